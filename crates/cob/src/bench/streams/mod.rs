//! What talks through pipes and sockets: `tests/bench/streams` on Cob with several numbers of kernels and on Debian's kernel, a machine for
//! each group of rows in turns. Where two programs talk, each row is run with them on the first and the last CPU (apart) and where they
//! come to by themselves (free).
//!
//! `programs`: what the rows need of this machine. `report`: tables and JSON.

mod programs;
mod report;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{bail, Result};

use super::machines::{sources, Setup, System, CPU};
use super::progress::{bar, Progress};
use crate::cli::{Accel, BenchOptions};
use programs::Group;

/// For a machine: redis over kernels takes seconds for thousands of requests, gcc under TCG as well.
const PATIENCE: Duration = Duration::from_secs(400);
/// PostgreSQL's and gcc's files are in memory, twice while the machine boots.
const MEMORY: u64 = 2 << 30;

/// A row, and where its programs are.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Case {
    row: &'static str,
    place: &'static str,
}

impl Case {
    /// As the program wants it.
    fn word(&self) -> String {
        format!("{}:{}", self.row, self.place)
    }
}

/// What one machine says of a case.
#[derive(Clone, Debug, PartialEq)]
struct Outcome {
    /// For one operation.
    ns: f64,
    /// Messages and doorbells for one operation, and how often threads moved in all. None: the system has no such kernels.
    counts: Option<[f64; 3]>,
}

struct Results {
    machine: String,
    pairs: u16,
    systems: Vec<String>,
    linux: Option<usize>,
    cases: Vec<Case>,
    /// By the case, the system and the round.
    outcomes: BTreeMap<(Case, usize, u16), Outcome>,
    /// Rows that were not run, and why.
    skipped: Vec<String>,
    failures: Vec<String>,
}

pub fn run(options: &BenchOptions, project: &Path, machine: &str) -> Result<u8> {
    let cpus = options.one_cpus();
    let base = base(options, project, cpus)?;
    let (systems, linux) = System::wanted(options, cpus, project)?;
    let mut results = Results {
        machine: format!("{machine}, {cpus} CPUs, -cpu {CPU}"),
        pairs: options.pairs,
        systems: systems.iter().map(|system| system.name.clone()).collect(),
        linux,
        cases: Vec::new(),
        outcomes: BTreeMap::new(),
        skipped: Vec::new(),
        failures: Vec::new(),
    };
    let mut groups = Vec::new();
    for group in Group::ALL {
        let cases: Vec<Case> = group.cases().into_iter().filter(|case| options.picks(&case.word())).collect();
        if cases.is_empty() {
            continue;
        }
        match group.content(project) {
            Ok(content) => {
                results.cases.extend(cases.iter().cloned());
                groups.push((cases, base.with_content(content)?));
            }
            Err(error) => results.skipped.push(format!("{}: {error:#}", group.rows().join(", "))),
        }
    }
    if groups.is_empty() {
        results.skipped.iter().for_each(|row| eprintln!("streams: skipped: {row}"));
        bail!("no row has {} in its name, or none can run", options.only.join(" or "));
    }
    let progress = Progress::new();
    let (all, mut done) = (usize::from(options.pairs) * results.cases.len() * systems.len(), 0);
    for round in 1..=options.pairs {
        for (cases, setup) in &groups {
            let words: Vec<String> = cases.iter().map(Case::word).collect();
            for (at, system) in systems.iter().enumerate() {
                let tell = |ran: usize| {
                    let word = words.get(ran).map_or("", String::as_str);
                    progress.say(&format!("{} streams: round {round}: {}: {word}", bar(done + ran, all), system.name));
                };
                results.add(round, at, cases, measure(setup, system, &words, tell));
                done += cases.len();
            }
        }
    }
    drop(progress);
    print!("{}", report::text(&results));
    options.write(&options.json, "streams", "json", &super::table::pretty(&report::json(&results)))?;
    options.write(&options.markdown, "streams", "md", &report::markdown(&results))?;
    results.failures.iter().for_each(|failure| eprintln!("streams: {failure}"));
    Ok(u8::from(!results.failures.is_empty()))
}

/// The program alone.
fn base(options: &BenchOptions, project: &Path, cpus: u16) -> Result<Setup> {
    let bench = project.join("tests/bench");
    let sources = [sources(&bench.join("streams"))?, sources(&bench.join("common"))?].concat();
    let accel: Accel = options.accel;
    let mut setup = Setup::with_init(&sources, &["-std=gnu11"], cpus, accel)?;
    (setup.patience, setup.memory) = (PATIENCE, MEMORY);
    Ok(setup)
}

impl Results {
    fn add(&mut self, round: u16, system: usize, cases: &[Case], told: Result<Told>) {
        let name = &self.systems[system];
        match told {
            Ok(told) => {
                self.failures.extend(told.failures.iter().map(|line| format!("round {round}: {name}: {line}")));
                for case in cases {
                    if let Some(outcome) = told.outcomes.get(&case.word()) {
                        self.outcomes.insert((case.clone(), system, round), outcome.clone());
                    }
                }
            }
            Err(error) => self.failures.push(format!("round {round}: {error:#}")),
        }
    }
}

/// What a machine has said.
#[derive(Debug, Default)]
struct Told {
    outcomes: BTreeMap<String, Outcome>,
    failures: Vec<String>,
}

/// Runs the program on a machine of its own, telling how many rows are over. What came before a machine hung counts.
fn measure(setup: &Setup, system: &System, words: &[String], tell: impl Fn(usize)) -> Result<Told> {
    let (mut said, mut last) = (usize::MAX, String::new());
    let watched = setup.watch(system, &words.join(" "), |text| {
        let ran = text.lines().filter(|line| parse(line).is_some()).count();
        if ran != said {
            said = ran;
            tell(ran);
        }
        last = text.to_string();
        text.contains("BENCH-END").then_some(())
    });
    let mut told = Told { outcomes: last.lines().filter_map(parse).collect(), failures: Vec::new() };
    told.failures.extend(last.lines().filter(|line| line.contains("FAILED")).map(|line| line.trim_end().to_string()));
    told.failures.extend(watched.err().map(|error| format!("{error:#}")));
    Ok(told)
}

/// `RUN row:place seconds operations messages doorbells moves`, - for what there is not.
fn parse(line: &str) -> Option<(String, Outcome)> {
    let (word, figures) = line.trim_end().strip_prefix("RUN ")?.split_once(' ')?;
    let figures: Vec<Option<f64>> = figures.split(' ').map(|figure| figure.parse().ok()).collect();
    let &[Some(seconds), Some(operations), messages, doorbells, moves] = &figures[..] else { return None };
    // Moves are few: of the whole row. What looking costs was taken off, and may have been more.
    let counts = || Some([messages? / operations, doorbells? / operations, moves?].map(|count| count.max(0.0)));
    Some((word.to_string(), Outcome { ns: seconds * 1e9 / operations, counts: counts() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_found_among_other_lines() {
        let ran = |ns, counts| Some(("unix-1:free".to_string(), Outcome { ns, counts }));
        assert_eq!(parse("RUN unix-1:free 0.5 1000 4000 2000 1\r"), ran(5e5, Some([4.0, 2.0, 1.0])));
        assert_eq!(parse("RUN unix-1:free 0.5 1000 - - -"), ran(5e5, None));
        assert_eq!(parse("RUN unix-1:free 0.5"), None);
        assert_eq!(parse("[k0] RUN unix-1:free 0.5 1000 - - -"), None);
    }

    #[test]
    fn every_row_is_one_of_the_program() {
        let sources = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/bench/streams");
        let text: String =
            ["talk.c", "programs.c"].map(|name| std::fs::read_to_string(format!("{sources}/{name}")).unwrap()).concat();
        let rows: Vec<&str> = Group::ALL.into_iter().flat_map(Group::rows).copied().collect();
        let missing: Vec<_> = rows.iter().filter(|row| !text.contains(&format!("{{\"{row}\","))).collect();
        assert!(missing.is_empty(), "{missing:?}");
        let known = text.matches(", PIPE,").count() + text.matches(", UNIX,").count() + text.matches(", TCP,").count();
        assert_eq!(known, rows.len());
    }
}
