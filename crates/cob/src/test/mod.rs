//! `cob test`: everything that says whether Cob works, from the cheapest to the dearest.
//!
//! - `check`: formatting, lints, where unsafe code is, what is x86-64 (`arch`). `cargo`: the tests of the crates, and the simulator.
//! - `long`: what takes hours. `cases`: what the guest tests are (`tests/guest`). `guest`: running them and comparing with this Linux.
//!   `loopback`: where this Linux has Cob's network. `stacks`: how deep the kernels' stacks have been in them.
//!
//! Only cob itself calls this. Nothing is skipped without being counted and named.

mod arch;
pub mod cargo;
mod cases;
mod check;
mod guest;
mod long;
mod loopback;
mod modules;
mod pages;
mod profiled;
mod stacks;
mod traced;

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{bail, Context, Result};

use crate::cli::{SimOptions, TestOptions, TestStage};

/// What came out so far.
#[derive(Debug, Default)]
pub struct Tally {
    pub passed: usize,
    pub failed: Vec<String>,
    pub skipped: Vec<String>,
    /// What is known not to work yet, and indeed doesn't.
    pub gaps: Vec<String>,
}

impl Tally {
    pub fn add(&mut self, name: &str, result: Result<(), String>) {
        match result {
            Ok(()) => {
                self.passed += 1;
                println!("ok      {name}");
            }
            Err(why) => {
                println!("FAILED  {name}");
                why.lines().for_each(|line| println!("        | {line}"));
                self.failed.push(name.to_string());
            }
        }
    }

    /// A test of something known not to work yet. That it works is a failure too: then the list is wrong.
    pub fn add_gap(&mut self, name: &str, result: Result<(), String>, reason: &str) {
        match result {
            Ok(()) => self.add(name, Err("passes now: take it out of tests/guest/gaps".to_string())),
            Err(_) => {
                println!("gap     {name}: {reason}");
                self.gaps.push(name.to_string());
            }
        }
    }

    pub fn skip(&mut self, name: &str, why: &str) {
        println!("skipped {name}: {why}");
        self.skipped.push(name.to_string());
    }
}

pub fn main(options: TestOptions) -> Result<u8> {
    let project = project()?;
    if options.long {
        return long::run(&project);
    }
    let mut tally = Tally::default();
    for stage in [TestStage::Check, TestStage::Unit, TestStage::Sim, TestStage::Guest] {
        if options.stage.is_some_and(|only| only != stage) {
            continue;
        }
        let name = format!("{stage:?}").to_lowercase();
        println!("== {name}");
        let start = Instant::now();
        match stage {
            TestStage::Check => check::run(&project, &mut tally),
            TestStage::Unit => {
                cargo::unit(&project, &options.names, &mut tally);
                cargo::loom(&project, &options.names, &mut tally);
            }
            TestStage::Sim => cargo::sim(&project, &options.names, &mut tally),
            TestStage::Guest => {
                guest::run(&project, &options, &mut tally)?;
                fuzz(&options, &mut tally)?;
            }
        }
        println!("-- {name}: {} s", start.elapsed().as_secs());
    }
    if !tally.failed.is_empty() {
        println!("\nfailed:");
        tally.failed.iter().for_each(|name| println!("  {name}"));
    }
    if !tally.gaps.is_empty() {
        println!("{} known gaps (tests/guest/gaps)", tally.gaps.len());
    }
    println!("{} passed, {} failed, {} skipped", tally.passed, tally.failed.len(), tally.skipped.len());
    if tally.passed + tally.failed.len() == 0 {
        bail!("no test has such a name");
    }
    Ok(u8::from(!tally.failed.is_empty()))
}

/// A short run of `cob fuzz`.
fn fuzz(options: &TestOptions, tally: &mut Tally) -> Result<()> {
    let named = options.names.is_empty() || options.names.iter().any(|name| "fuzz".contains(name.as_str()));
    if !named || !options.seeds().is_empty() || options.kernels.is_some_and(|kernels| kernels != 4) {
        return Ok(());
    }
    if !rustix::process::geteuid().is_root() {
        tally.skip("fuzz [4]", "only root can watch those that have no privileges");
        return Ok(());
    }
    let mut command = std::process::Command::new(std::env::current_exe()?);
    let outcome = cargo::outcome(command.args(["fuzz", "--seed", "1", "--calls", "8000", "--trials", "20"]));
    tally.add("fuzz [4]", outcome.map(|_| ()));
    Ok(())
}

/// `cob sim`: the simulator's own command, built for speed.
pub fn simulate(options: SimOptions) -> Result<u8> {
    let (mut command, arguments) = match options.arguments.split_first() {
        Some((first, rest)) if first == "guided" => (cargo::guided(&project()?)?, rest),
        _ => (cargo::simulator(&project()?), &options.arguments[..]),
    };
    let status = command.args(arguments).status().context("cargo")?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

/// The root of the repository: `./cob` says it; without it, from the place of this program in `target/`.
pub fn project() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("COB_PROJECT") {
        return Ok(PathBuf::from(path));
    }
    let this = std::env::current_exe()?;
    let found = this.ancestors().find(|dir| dir.join("tests/guest").is_dir() && dir.join("crates").is_dir());
    found.map(Path::to_path_buf).context("the source tree of Cob is not around this program")
}

/// The last lines of a long text.
pub fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}
