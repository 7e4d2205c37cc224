//! The workloads of user-monitored threads: `runtime/examples` on a disk that takes its time, on Cob without and with them, and on Debian's kernel with several numbers of threads a
//! CPU, which is what a program does there whose threads wait. A machine for each group of rows and each system, in turns; all modes of a system run in the same machine.
//!
//! What is counted are the program's own counts (`runtime/examples/common`): time, idle CPUs and requests from /proc, switches from getrusage. `programs`: what the machines have.
//! `papers`: what the thesis has measured. `report`: tables, JSON and plots. `tasks`: another measurement, without machines.

mod papers;
mod programs;
mod report;
mod tasks;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use anyhow::{bail, Result};
use serde_json::Value;

use super::machines::{Setup, System, CPU};
use super::progress::{bar, Progress};
use crate::cli::BenchOptions;
use crate::vm;
use programs::{Group, Image};

/// For a machine.
const PATIENCE: Duration = Duration::from_secs(1200);
/// Each look takes a CPU of the host.
const INTERVAL: Duration = Duration::from_millis(1000);

type Row = &'static str;

/// A system and how the program is told to use it.
#[derive(Clone, Debug, PartialEq)]
struct Variant {
    system: usize,
    /// As tests/bench/umt/umt.c calls it.
    mode: &'static str,
    name: String,
    /// How many threads a CPU has.
    threads: Option<f64>,
}

/// What the program says of one run, by its name for it.
#[derive(Clone, Debug, Default, PartialEq)]
struct Outcome {
    figures: BTreeMap<String, f64>,
    checksum: String,
}

impl Outcome {
    fn of(line: &Value) -> Outcome {
        let figures = line.as_object().into_iter().flatten();
        let figures = figures.filter_map(|(name, value)| Some((name.clone(), value.as_f64()?)));
        Outcome { figures: figures.collect(), checksum: line["checksum"].as_str().unwrap_or_default().to_string() }
    }

    fn get(&self, name: &str) -> f64 {
        self.figures.get(name).copied().unwrap_or(f64::NAN)
    }

    /// The part of the time, over all CPUs, in which a CPU had more than one ready thread of the program.
    fn jam(&self) -> f64 {
        self.get("jammed") / (self.get("samples") * self.get("cpus"))
    }
}

struct Results {
    machine: String,
    /// What the slowest disk takes for a request.
    delay: Duration,
    pairs: u16,
    variants: Vec<Variant>,
    rows: Vec<Row>,
    /// By the row, the variant and the round.
    outcomes: BTreeMap<(Row, usize, u16), Outcome>,
    failures: Vec<String>,
}

/// Rows that one machine runs.
struct Job {
    rows: Vec<Row>,
    setup: Setup,
    image: Image,
    delay: Duration,
}

pub fn run(options: &BenchOptions, project: &Path, machine: &str) -> Result<u8> {
    if options.tasks {
        return tasks::run(options, project);
    }
    let cpus = options.one_cpus();
    let (systems, _) = System::wanted(options, cpus, project)?;
    let delay = Duration::from_micros(options.delay);
    let mut results = Results {
        machine: format!(
            "{machine}, {cpus} CPUs, -cpu {CPU}, a disk that takes {} ms for a request ({} on S2, {} on the server, {} on fwi) and serves {} at a time",
            delay.as_millis(),
            Group::Computing.delay(delay).as_millis(),
            Group::Keys.delay(delay).as_millis(),
            Group::Fwi.delay(delay).as_millis(),
            programs::DEPTH
        ),
        delay,
        pairs: options.pairs,
        variants: variants(&systems),
        rows: Vec::new(),
        outcomes: BTreeMap::new(),
        failures: Vec::new(),
    };
    // Before minutes go into building programs.
    if !Group::ALL.iter().any(|group| group.rows().iter().any(|row| options.picks(row))) {
        bail!("no row has {} in its name", options.only.join(" or "));
    }
    let programs = programs::build(project)?;
    let mut jobs = Vec::new();
    for group in Group::ALL {
        let rows: Vec<Row> = group.rows().iter().copied().filter(|row| options.picks(row)).collect();
        if rows.is_empty() {
            continue;
        }
        let mut setup = programs::setup(project, &programs, cpus, options)?;
        (setup.patience, setup.interval, setup.memory) = (PATIENCE, INTERVAL, group.memory());
        results.rows.extend(&rows);
        jobs.push(Job { rows, setup, image: Image::make(group, &programs)?, delay: group.delay(delay) });
    }
    let progress = Progress::new();
    let all = usize::from(options.pairs) * results.rows.len() * results.variants.len();
    let mut done = 0;
    for round in 1..=options.pairs {
        for job in &jobs {
            for (at, system) in systems.iter().enumerate() {
                let words = results.words(job, at);
                let tell = |ran: usize| {
                    let word = words.get(ran).map_or("", |(word, ..)| word.as_str());
                    progress.say(&format!("{} umt: round {round}: {}: {word}", bar(done + ran, all), system.name));
                };
                let told = measure(job, system, &words, tell);
                done += words.len();
                results.add(round, &words, &system.name, told);
            }
        }
    }
    drop(progress);
    results.compare();
    print!("{}", report::text(&results));
    options.write(&options.json, "umt", "json", &super::table::pretty(&report::json(&results)))?;
    options.write(&options.markdown, "umt", "md", &report::markdown(&results))?;
    if options.svg.is_some() {
        options.write(&options.svg, "umt", "svg", &report::plot(&results)?)?;
    }
    results.failures.iter().for_each(|failure| eprintln!("umt: {failure}"));
    Ok(u8::from(!results.failures.is_empty()))
}

fn variants(systems: &[System]) -> Vec<Variant> {
    let each = |(at, system): (usize, &System)| {
        let variant = |(mode, what, threads): (&'static str, &str, Option<f64>)| Variant {
            system: at,
            mode,
            name: format!("{}, {what}", system.name),
            threads,
        };
        let modes: &[(&'static str, &str, Option<f64>)] = match system.is_linux() {
            false => &[("baseline", "baseline", Some(1.0)), ("umt", "UMT", None), ("umt-idle", "UMT_IDLE", None)],
            true => &[
                ("t1", "1 thread a CPU", Some(1.0)),
                ("t2", "2 threads", Some(2.0)),
                ("t8", "8 threads", Some(8.0)),
                ("t50", "50 threads", Some(50.0)),
                ("bpf", "UMT by BPF", None),
            ],
        };
        modes.iter().copied().map(variant).collect::<Vec<_>>()
    };
    systems.iter().enumerate().flat_map(each).collect()
}

/// What a machine is told to run: the word, its row and its variant.
type Word = (String, Row, usize);

impl Results {
    fn words(&self, job: &Job, system: usize) -> Vec<Word> {
        let of_system = |variant: &&(usize, &Variant)| variant.1.system == system;
        let variants: Vec<(usize, &Variant)> = self.variants.iter().enumerate().collect();
        let variants: Vec<_> = variants.iter().filter(of_system).collect();
        let word = |row: Row| {
            let each = |&&(at, variant): &&(usize, &Variant)| (format!("{row}:{}", variant.mode), row, at);
            variants.iter().map(each).collect::<Vec<_>>()
        };
        job.rows.iter().copied().flat_map(word).collect()
    }

    fn add(&mut self, round: u16, words: &[Word], system: &str, told: Result<Told>) {
        match told {
            Ok(told) => {
                self.failures.extend(told.failures.iter().map(|line| format!("round {round}: {system}: {line}")));
                for (word, row, variant) in words {
                    if let Some(outcome) = told.outcomes.get(word) {
                        self.outcomes.insert((row, *variant, round), outcome.clone());
                    }
                }
            }
            Err(error) => self.failures.push(format!("round {round}: {system}: {error:#}")),
        }
    }

    /// Seconds that the disk takes at least for so many requests of that row.
    fn of_disk(&self, row: Row, requests: f64) -> f64 {
        let delay = Group::of(row).map_or(self.delay, |group| group.delay(self.delay));
        requests * delay.as_secs_f64() / programs::DEPTH.get() as f64
    }

    /// All ways to run a row end with the same files, and so do all versions of the seismic code that have the same sizes.
    fn compare(&mut self) {
        let mut sums: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for ((row, ..), outcome) in &self.outcomes {
            let what = match (row.starts_with("fwi"), row.ends_with("-group")) {
                (true, false) => "fwi",
                (true, true) => "fwi in a group",
                (false, _) => row,
            };
            sums.entry(what).or_default().insert(&outcome.checksum);
        }
        let differ = sums.iter().filter(|(_, sums)| sums.len() > 1);
        let differ: Vec<String> = differ.map(|(row, sums)| format!("{row}: checksums differ: {sums:?}")).collect();
        let wrong = self.outcomes.iter().filter(|(_, outcome)| outcome.get("errors") > 0.0);
        let wrong: Vec<String> = wrong.map(|((row, ..), _)| format!("{row}: requests failed")).collect();
        self.failures.extend(differ.into_iter().chain(wrong));
    }
}

/// What a machine has said.
#[derive(Debug, Default)]
struct Told {
    outcomes: BTreeMap<String, Outcome>,
    failures: Vec<String>,
}

/// Runs the words on a machine of its own with a copy of the image, telling how many are over. What came before a machine hung counts.
fn measure(job: &Job, system: &System, words: &[Word], tell: impl Fn(usize)) -> Result<Told> {
    let files = vm::private_directory()?;
    let image = job.image.copy(files.path())?;
    let text: Vec<&str> = words.iter().map(|(word, ..)| word.as_str()).collect();
    let (mut said, mut last) = (usize::MAX, String::new());
    let disks = vec![programs::disk(&image, job.delay)];
    let watched = job.setup.watch_disks(system, &text.join(" "), disks, |text, _| {
        last = text.to_string();
        let ran = text.lines().filter(|line| parse(line).is_some()).count();
        if ran != said {
            said = ran;
            tell(ran);
        }
        text.contains("BENCH-END").then_some(())
    });
    let mut told = Told { outcomes: last.lines().filter_map(parse).collect(), failures: Vec::new() };
    told.failures.extend(last.lines().filter(|line| line.contains("FAILED")).map(|line| line.trim_end().to_string()));
    told.failures.extend(watched.err().map(|error| format!("{error:#}")));
    Ok(told)
}

/// `RUN row:mode JSON`.
fn parse(line: &str) -> Option<(String, Outcome)> {
    let (word, json) = line.trim_end().strip_prefix("RUN ")?.split_once(' ')?;
    Some((word.to_string(), Outcome::of(&serde_json::from_str(json).ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_a_word_and_what_the_program_said() {
        let line = "RUN S1:umt {\"cpus\": 2, \"seconds\": 1.5, \"samples\": 10, \"jammed\": 5, \"mode\": \"umt\", \"checksum\": \"ab\"}\r";
        let (word, outcome) = parse(line).unwrap();
        assert_eq!((word.as_str(), outcome.get("seconds"), outcome.checksum.as_str()), ("S1:umt", 1.5, "ab"));
        assert_eq!(outcome.jam(), 0.25);
        assert!(outcome.get("mode").is_nan());
        assert!(parse("RUN S1:umt {\"cpus\": 2").is_none() && parse("[k0] RUN S1:umt {}").is_none());
    }

    #[test]
    fn every_row_is_one_of_the_program() {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/bench/umt/umt.c");
        let text = std::fs::read_to_string(source).unwrap();
        let rows: Vec<Row> = Group::ALL.into_iter().flat_map(Group::rows).copied().collect();
        let missing: Vec<_> = rows.iter().filter(|row| !text.contains(&format!("    {{\"{row}\", {{"))).collect();
        assert!(missing.is_empty(), "{missing:?}");
        assert_eq!(text.matches("    {\"").count(), rows.len());
    }
}
