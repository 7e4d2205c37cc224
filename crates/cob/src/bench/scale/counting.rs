//! Machines whose instructions and lines are counted: the plugin, and where each system's timer interrupt enters.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tempfile::TempDir;

use super::model::{Code, Counted};
use super::{names, plugin};
use crate::bench::machines::{sources, Setup, System};
use crate::cli::{Accel, BenchOptions, Rival};
use crate::prepare::kernel_image;
use crate::vm;

/// Cob's timer interrupt enters here: an entry for each vector (crates/platform/src/arch/x86_64, cpu/trap.s and apic.rs).
const TRAP_VECTORS: &str = "trap_vectors";
const TIMER_STUB: u64 = 0xf0 * 16;
/// Every event of the trace goes through here (platform's tracing.rs).
const RECORD: &str = "<platform::tracing::Rings as trace::Sink>::record";
const LINUX_TIMER: &str = "asm_sysvec_apic_timer_interrupt";

pub struct Counting {
    library: PathBuf,
    out: PathBuf,
    pub image: names::Image,
    cob_timer: u64,
    /// Linux with its addresses where they always are, and its timer's entry; if it is asked for and to be had.
    linux: Option<(System, u64)>,
    /// Runs the loops of `scale`, and asks Linux for names.
    pub setup: Setup,
    _files: TempDir,
}

impl Counting {
    pub fn new(options: &BenchOptions, project: &Path) -> Result<Counting> {
        let directory = project.join("tests/bench/scale");
        let files = vm::private_directory()?;
        let library = plugin::build(&directory.join("plugin/plugin.c"), files.path())?;
        let setup = Setup::with_init(&sources(&directory)?, &["-std=gnu11", "-pthread"], 1, Accel::Tcg)?;
        let image = names::Image::read(&kernel_image()?)?;
        let cob_timer = image.address(TRAP_VECTORS).context("no trap_vectors in the kernel")? + TIMER_STUB;
        let mut counting = Counting {
            library,
            out: files.path().join("counted"),
            image,
            cob_timer,
            linux: None,
            setup,
            _files: files,
        };
        if options.against == Some(Rival::Linux) {
            let found = System::linux(project).and_then(|linux| counting.with_timer(linux.with_word("nokaslr")));
            counting.linux = found
                .inspect_err(|error| {
                    println!("Debian's kernel is skipped, so there is nothing to compare with: {error:#}")
                })
                .ok();
        }
        Ok(counting)
    }

    fn with_timer(&self, linux: System) -> Result<(System, u64)> {
        let entry = names::ask_linux(&self.setup, &linux, &[LINUX_TIMER.to_string()])?;
        Ok((linux, entry[0].0))
    }

    /// A system with its addresses where `option` expects them.
    pub fn fixed(&self, system: &System) -> System {
        match system.is_linux() {
            true => system.clone().with_word("nokaslr"),
            false => system.clone(),
        }
    }

    pub fn linux(&self) -> Option<&System> {
        self.linux.as_ref().map(|(system, _)| system)
    }

    /// QEMU's -plugin for a system.
    pub fn option(&self, system: &System) -> String {
        let timer = self.linux.as_ref().filter(|_| system.is_linux()).map_or(self.cob_timer, |(_, timer)| *timer);
        plugin::option(&self.library, &self.out, timer)
    }

    /// Sums by function of Cob's image, the heaviest first.
    pub fn functions(&self, codes: &[Code]) -> Vec<(String, f64)> {
        let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
        for code in codes {
            *sums.entry(self.image.name(code.at).unwrap_or("?")).or_default() += code.instructions;
        }
        let mut sums: Vec<_> = sums.into_iter().map(|(name, sum)| (name.to_string(), sum as f64)).collect();
        sums.sort_by(|a, b| b.1.total_cmp(&a.1));
        sums
    }

    /// Events of the trace that were recorded: so often was the function entered that each of them goes through.
    pub fn events(&self, codes: &[Code]) -> Result<u64> {
        let entry = self.image.address(RECORD).with_context(|| format!("no {RECORD} in the kernel"))?;
        Ok(codes.iter().filter(|code| code.at == entry).map(|code| code.executed).sum())
    }

    /// What the plugin of the last machine counted.
    pub fn counted(&self) -> Result<Vec<Counted>> {
        plugin::read(&fs::read_to_string(&self.out)?)
    }
}
