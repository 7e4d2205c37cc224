//! What makes a kernel stop scaling, counted: `tests/bench/scale` on Cob with a kernel per CPU, on Cob with one kernel and on Linux, in
//! a QEMU whose plugin follows every access to memory.
//!
//! Measured: instructions, and cache lines that one CPU wrote and another then touched. Modelled: the time that this would take.
//! `plugin`: the plugin and its file. `model`: costs and modelled time. `names`: symbols. `report`: tables, JSON, plots.

mod model;
mod names;
mod plugin;
mod report;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{bail, Context, Result};

use self::model::Counted;
use super::machines::{sources, Setup, System, CPU};
use super::progress::{bar, Progress};
use crate::cli::{Accel, BenchOptions, Rival};
use crate::prepare::kernel_image;
use crate::vm;

const CPUS: [u16; 5] = [1, 2, 4, 8, 16];
/// Cob's timer interrupt enters here: a stub for each vector (crates/platform, cpu/trap.s and apic.rs).
const TRAP_VECTORS: &str = "trap_vectors";
const TIMER_STUB: u64 = 0xf0 * 16;
const LINUX_TIMER: &str = "asm_sysvec_apic_timer_interrupt";
/// Linux gives its init 32 words at most.
const NAMES_AT_ONCE: usize = 28;
const PATIENCE: Duration = Duration::from_secs(1500);

/// The systems that are compared, by what they are with any number of CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Many,
    One,
    Linux,
}

/// A loop as threads or processes.
type Case = (String, String);

struct Results {
    machine: String,
    linux: Option<String>,
    cpus: Vec<u16>,
    /// In the order of the program.
    cases: Vec<Case>,
    counted: BTreeMap<(Case, u16, Kind), Counted>,
    image: names::Image,
    linux_names: BTreeMap<u64, String>,
    failures: Vec<String>,
}

pub fn run(options: &BenchOptions, project: &Path, machine: &str) -> Result<u8> {
    let directory = project.join("tests/bench/scale");
    let files = vm::private_directory()?;
    let library = plugin::build(&directory.join("plugin/plugin.c"), files.path())?;
    let sources = sources(&directory)?;
    let mut setup = Setup::with_init(&sources, &["-std=gnu11", "-pthread"], 1, Accel::Tcg)?;
    setup.patience = PATIENCE;
    let mut results = Results {
        machine: format!("{machine}, all CPUs in one thread of TCG, -cpu {CPU}, gcc -O2, static"),
        linux: None,
        cpus: if options.cpus.is_empty() { CPUS.to_vec() } else { options.cpus.clone() },
        cases: Vec::new(),
        counted: BTreeMap::new(),
        image: names::Image::read(&kernel_image()?)?,
        linux_names: BTreeMap::new(),
        failures: Vec::new(),
    };
    let cob_timer = results.image.address(TRAP_VECTORS).context("no trap_vectors in the kernel")? + TIMER_STUB;
    let linux = linux(options, project, &setup);
    results.linux = linux.as_ref().map(|(system, _)| system.name.clone());
    let progress = Progress::new();
    let machines = machines(&results.cpus, &linux, cob_timer)?;
    for (at, (cpus, kind, system, timer)) in machines.iter().enumerate() {
        let what = format!("scale: {}, {cpus} CPUs", system.name);
        setup.cpus = *cpus;
        let out = files.path().join("counted");
        setup.plugin = Some(plugin::option(&library, &out, *timer));
        let tell = |name: &str| progress.say(&format!("{} {what}: {name}", bar(at, machines.len())));
        match measure(&setup, system, options, &out, tell) {
            Ok(all) => all.into_iter().for_each(|(case, counted)| results.add(case, *cpus, *kind, counted)),
            Err(error) => results.failures.push(format!("{cpus} CPUs: {error:#}")),
        }
    }
    setup.plugin = None;
    setup.cpus = 1;
    if let Some((system, _)) = &linux {
        progress.say("scale: Linux' names of addresses");
        if let Err(error) = results.name_addresses(&setup, system) {
            results.failures.push(format!("{error:#}"));
        }
    }
    drop(progress);
    print!("{}", report::text(&results));
    options.write(&options.json, "scale", "json", &report::json(&results))?;
    options.write(&options.markdown, "scale", "md", &report::markdown(&results))?;
    options.write(&options.svg, "scale", "svg", &report::plot(&results))?;
    results.failures.iter().for_each(|failure| eprintln!("scale: {failure}"));
    Ok(u8::from(!results.failures.is_empty()))
}

/// Linux and where its timer interrupt enters, if it is asked for and to be had.
fn linux(options: &BenchOptions, project: &Path, setup: &Setup) -> Option<(System, u64)> {
    if options.against != Some(Rival::Linux) {
        return None;
    }
    // Addresses are to mean the same in every machine.
    let found = System::linux(project).map(|linux| linux.with_word("nokaslr")).and_then(|linux| {
        let entry = names::ask_linux(setup, &linux, &[LINUX_TIMER.to_string()])?;
        Ok((linux, entry[0].0))
    });
    found
        .inspect_err(|error| println!("Debian's kernel is skipped, so there is nothing to compare with: {error:#}"))
        .ok()
}

/// Every machine: its CPUs, what it is, its system and where its timer interrupt enters.
fn machines(cpus: &[u16], linux: &Option<(System, u64)>, timer: u64) -> Result<Vec<(u16, Kind, System, u64)>> {
    let mut machines = Vec::new();
    for cpus in cpus {
        // On one CPU the two are the same.
        if *cpus > 1 {
            machines.push((*cpus, Kind::Many, System::cob(*cpus)?, timer));
        }
        machines.push((*cpus, Kind::One, System::cob(1)?, timer));
        if let Some((system, timer)) = linux {
            machines.push((*cpus, Kind::Linux, system.clone(), *timer));
        }
    }
    Ok(machines)
}

/// Runs the loops on a machine of its own and gives what the plugin counted for each.
fn measure(
    setup: &Setup,
    system: &System,
    options: &BenchOptions,
    out: &Path,
    tell: impl Fn(&str),
) -> Result<Vec<(Case, Counted)>> {
    let mut told = usize::MAX;
    let (text, _) = setup.watch(system, &options.only.join(" "), |text| {
        let loops: Vec<_> = text.lines().filter_map(parse).collect();
        if loops.len() != told {
            told = loops.len();
            tell(loops.last().map_or("", |(case, _)| case.0.as_str()));
        }
        (text.contains("BENCH-END") || text.contains("WRONG")).then(|| text.to_string())
    })?;
    if let Some(wrong) = text.lines().find(|line| line.contains("WRONG")) {
        bail!("{}: {}", system.name, wrong.trim_end());
    }
    let loops: Vec<(Case, u64)> = text.lines().filter_map(parse).collect();
    let counted = plugin::read(&fs::read_to_string(out)?)?;
    if loops.len() != counted.len() {
        bail!("{}: {} loops ran, {} were counted", system.name, loops.len(), counted.len());
    }
    let pairs = loops.into_iter().zip(counted);
    pairs
        .map(|((case, operations), counted)| {
            if counted.cpus.len() != usize::from(setup.cpus) {
                bail!("{}: {} ran on {} CPUs of {}", system.name, case.0, counted.cpus.len(), setup.cpus);
            }
            Ok((case, Counted { operations, ..counted }))
        })
        .collect()
}

/// `LOOP name mode workers operations`; the kernel's log is in between.
fn parse(line: &str) -> Option<(Case, u64)> {
    let words: Vec<&str> = line.trim_end().strip_prefix("LOOP ")?.split(' ').collect();
    let [name, mode, _, operations] = words[..] else { return None };
    Some(((name.to_string(), mode.to_string()), operations.parse().ok()?))
}

impl Results {
    fn add(&mut self, case: Case, cpus: u16, kind: Kind, counted: Counted) {
        if !self.cases.contains(&case) {
            self.cases.push(case.clone());
        }
        if cpus == 1 && kind == Kind::One {
            self.counted.insert((case.clone(), cpus, Kind::Many), counted.clone());
        }
        self.counted.insert((case, cpus, kind), counted);
    }

    fn get(&self, case: &Case, cpus: u16, kind: Kind) -> Option<&Counted> {
        self.counted.get(&(case.clone(), cpus, kind))
    }

    fn most_cpus(&self) -> u16 {
        self.cpus.iter().copied().max().unwrap_or(1)
    }

    /// Asks for the names of Linux' addresses that will be shown.
    fn name_addresses(&mut self, setup: &Setup, linux: &System) -> Result<()> {
        let shown =
            self.counted.iter().filter(|((_, cpus, kind), _)| (*cpus, *kind) == (self.most_cpus(), Kind::Linux));
        let pairs = shown.flat_map(|(_, counted)| counted.pairs.iter().take(report::CANDIDATES));
        let addresses: BTreeSet<u64> = pairs.flat_map(|pair| [pair.at, pair.writer]).filter(|at| *at != 0).collect();
        let words: Vec<String> = addresses.iter().map(|address| format!("{address:#x}")).collect();
        for words in words.chunks(NAMES_AT_ONCE) {
            self.linux_names.extend(names::ask_linux(setup, linux, words)?);
        }
        Ok(())
    }

    fn name(&self, kind: Kind, address: u64) -> String {
        let name = match kind {
            _ if address == 0 => Some("nobody"),
            _ if address >> 63 == 0 => Some("user"),
            Kind::Linux => self.linux_names.get(&address).map(String::as_str),
            _ => self.image.name(address),
        };
        name.map_or(format!("{address:#x}"), str::to_string)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loops_are_found_among_other_lines() {
        let case = ("open_close".to_string(), "threads".to_string());
        assert_eq!(parse("LOOP open_close threads 2 128\r"), Some((case, 128)));
        assert_eq!(parse("[k0] LOOP x threads 2 1"), None);
        assert_eq!(parse("LOOP x threads"), None);
    }
}
