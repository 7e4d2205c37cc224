//! What makes a kernel stop scaling, counted: `tests/bench/scale` on Cob with a kernel per CPU, on Cob with one kernel and on Linux, in
//! a QEMU whose plugin follows every access to memory.
//!
//! Measured: instructions, and cache lines that one CPU wrote and another then touched. Modelled: the time that this would take.
//! `counting`: machines with the plugin. `plugin`: the plugin and its file. `model`: costs and modelled time. `names`: symbols. `report`: tables, JSON, plots.

mod counting;
pub mod model;
mod names;
mod plugin;
mod report;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use anyhow::{bail, Context, Result};

pub use self::counting::Counting;
use self::model::Counted;
pub use self::report::short;
use super::machines::{System, CPU};
use super::progress::{bar, Progress};
use crate::cli::BenchOptions;

/// What the plugin and the program take.
const MOST_CPUS: u16 = 64;
const CPUS: [u16; 5] = [1, 2, 4, 8, 16];
/// Linux gives its init 32 words at most.
const NAMES_AT_ONCE: usize = 28;
/// Linux starts with one CPU and does not calibrate the loop that it would wait with: see `start_cpus` in the program.
const WORDS: [&str; 2] = ["maxcpus=1", "lpj=4000000"];
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
    /// Of Linux or not, and by address.
    names: BTreeMap<(bool, u64), String>,
    failures: Vec<String>,
}

pub fn run(options: &BenchOptions, project: &Path, machine: &str) -> Result<u8> {
    if let Some(many) = options.cpus.iter().find(|cpus| **cpus > MOST_CPUS) {
        bail!("--cpus {many}: scale counts on {MOST_CPUS} CPUs at most");
    }
    let mut counting = Counting::new(options, project)?;
    counting.setup.patience = PATIENCE;
    let mut results = Results {
        machine: format!("{machine}, all CPUs in one thread of TCG, -cpu {CPU}, gcc -O2, static"),
        linux: counting.linux().map(|system| system.name.clone()),
        cpus: if options.cpus.is_empty() { CPUS.to_vec() } else { options.cpus.clone() },
        cases: Vec::new(),
        counted: BTreeMap::new(),
        names: BTreeMap::new(),
        failures: Vec::new(),
    };
    let progress = Progress::new();
    let linux = counting.linux().map(|linux| WORDS.iter().fold(linux.clone(), |linux, word| linux.with_word(word)));
    let machines = machines(&results.cpus, linux.as_ref())?;
    counting.setup.counts_time = true;
    for (at, (cpus, kind, system)) in machines.iter().enumerate() {
        let what = format!("scale: {}, {cpus} CPUs", system.name);
        counting.setup.cpus = *cpus;
        counting.setup.plugin = Some(counting.option(system));
        let tell = |name: &str| progress.say(&format!("{} {what}: {name}", bar(at, machines.len())));
        match measure(&counting, system, options, tell) {
            Ok(all) => all.into_iter().for_each(|(case, counted)| results.add(case, *cpus, *kind, counted)),
            Err(error) => results.failures.push(format!("{cpus} CPUs: {error:#}")),
        }
    }
    counting.setup.plugin = None;
    counting.setup.counts_time = false;
    counting.setup.cpus = 1;
    progress.say("scale: names of addresses");
    if let Err(error) = results.name_addresses(&counting) {
        results.failures.push(format!("{error:#}"));
    }
    drop(progress);
    print!("{}", report::text(&results));
    options.write(&options.json, "scale", "json", &super::table::pretty(&report::json(&results)))?;
    options.write(&options.markdown, "scale", "md", &report::markdown(&results))?;
    options.write(&options.svg, "scale", "svg", &report::plot(&results)?)?;
    results.failures.iter().for_each(|failure| eprintln!("scale: {failure}"));
    Ok(u8::from(!results.failures.is_empty()))
}

/// Every machine: its CPUs, what it is, and its system.
fn machines(cpus: &[u16], linux: Option<&System>) -> Result<Vec<(u16, Kind, System)>> {
    let mut machines = Vec::new();
    for cpus in cpus {
        // On one CPU the two are the same.
        if *cpus > 1 {
            machines.push((*cpus, Kind::Many, System::cob(*cpus)?));
        }
        machines.push((*cpus, Kind::One, System::cob(1)?));
        machines.extend(linux.map(|linux| (*cpus, Kind::Linux, linux.clone())));
    }
    Ok(machines)
}

/// Runs the loops on a machine of its own and gives what the plugin counted for each.
fn measure(
    counting: &Counting,
    system: &System,
    options: &BenchOptions,
    tell: impl Fn(&str),
) -> Result<Vec<(Case, Counted)>> {
    let mut told = usize::MAX;
    let (text, _) = counting.setup.watch(system, &options.only.join(" "), |text| {
        let loops: Vec<_> = text.lines().filter_map(parse).collect();
        if loops.len() != told {
            told = loops.len();
            tell(loops.last().map_or("", |told| told.case.0.as_str()));
        }
        (text.contains("BENCH-END") || text.contains("WRONG")).then(|| text.to_string())
    })?;
    if let Some(wrong) = text.lines().find(|line| line.contains("WRONG")) {
        bail!("{}: {}", system.name, wrong.trim_end());
    }
    let loops: Vec<Told> = text.lines().filter_map(parse).collect();
    if loops.is_empty() {
        bail!("no loop has {} in its name", options.only.join(" or "));
    }
    let mut counted = counting.counted()?.into_iter();
    let mut all = Vec::new();
    for Told { case, rounds, operations } in loops {
        let rounds: Vec<Counted> = counted.by_ref().take(rounds).map(|one| Counted { operations, ..one }).collect();
        if let Some(few) = rounds.iter().find(|one| one.cpus.len() != usize::from(counting.setup.cpus)) {
            bail!("{}: {} ran on {} CPUs of {}", system.name, case.0, few.cpus.len(), counting.setup.cpus);
        }
        let median = model::median(rounds).with_context(|| format!("{}: {} was not counted", system.name, case.0))?;
        all.push((case, median));
    }
    if counted.next().is_some() {
        bail!("{}: more was counted than ran", system.name);
    }
    Ok(all)
}

/// One line of the program: a loop, how often it was measured, and its operations each time.
#[derive(Debug, PartialEq)]
struct Told {
    case: Case,
    rounds: usize,
    operations: u64,
}

/// `LOOP name mode rounds operations`; the kernel's log is in between.
fn parse(line: &str) -> Option<Told> {
    let words: Vec<&str> = line.trim_end().strip_prefix("LOOP ")?.split(' ').collect();
    let [name, mode, rounds, operations] = words[..] else { return None };
    let case = (name.to_string(), mode.to_string());
    Some(Told { case, rounds: rounds.parse().ok()?, operations: operations.parse().ok()? })
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

    /// Finds the names of all addresses that will be shown.
    fn name_addresses(&mut self, counting: &Counting) -> Result<()> {
        let shown = |wanted: Kind| {
            let most = self.most_cpus();
            let counted = self.counted.iter().filter(move |((_, cpus, kind), _)| *cpus == most && *kind == wanted);
            counted.map(|(_, counted)| counted)
        };
        let mut names = BTreeMap::new();
        for kind in [Kind::Many, Kind::One] {
            let pairs = shown(kind).flat_map(|counted| counted.pairs.iter().flat_map(|pair| [pair.at, pair.writer]));
            let codes = shown(kind).flat_map(|counted| counted.codes.iter().map(|code| code.at));
            for at in pairs.chain(codes) {
                names.extend(counting.image.name(at).map(|name| ((false, at), name.to_string())));
            }
        }
        if let Some(linux) = counting.linux() {
            let pairs = shown(Kind::Linux).flat_map(|counted| counted.pairs.iter().take(report::CANDIDATES));
            let addresses: BTreeSet<u64> =
                pairs.flat_map(|pair| [pair.at, pair.writer]).filter(|at| at >> 63 == 1).collect();
            let words: Vec<String> = addresses.iter().map(|address| format!("{address:#x}")).collect();
            for words in words.chunks(NAMES_AT_ONCE) {
                let told = names::ask_linux(&counting.setup, linux, words)?;
                names.extend(told.into_iter().map(|(at, name)| ((true, at), name)));
            }
        }
        self.names = names;
        Ok(())
    }

    fn name(&self, kind: Kind, address: u64) -> String {
        let name = match address {
            0 => Some("nobody"),
            _ if address >> 63 == 0 => Some("user"),
            _ => self.names.get(&(kind == Kind::Linux, address)).map(String::as_str),
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
        assert_eq!(parse("LOOP open_close threads 5 128\r"), Some(Told { case, rounds: 5, operations: 128 }));
        assert_eq!(parse("[k0] LOOP x threads 2 1"), None);
        assert_eq!(parse("LOOP x threads"), None);
    }
}
