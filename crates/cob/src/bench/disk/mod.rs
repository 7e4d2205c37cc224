//! Programs that read and write files on a disk: `tests/bench/disk` on Cob and on Debian's kernel, a machine for each group of rows in turns. Each machine has a
//! fresh copy of the same image with ext4, which QEMU serves from a file.
//!
//! What reaches the device is what QEMU itself counts of it (query-blockstats). The program says when a row begins and ends and waits until that has been
//! read: [`device`]. `programs`: what the rows need of this machine, and the images. `report`: tables and JSON.

mod device;
mod programs;
mod report;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{bail, Result};
use tempfile::TempDir;

use super::machines::{outcome, sources, Setup, System, CPU};
use super::progress::{bar, Progress};
use super::scale::model::{KERNEL, USER};
use super::scale::Counting;
use crate::cli::BenchOptions;
use crate::vm;
use device::{Device, Requests};
pub use programs::{disk as plain, make_ext4, modules};
use programs::{Group, Image};

/// For a machine.
const PATIENCE: Duration = Duration::from_secs(600);
/// The program waits for us at each mark.
const INTERVAL: Duration = Duration::from_millis(50);
/// fio's libraries are in memory, twice while the machine boots.
const MEMORY: u64 = 2 << 30;

type Row = &'static str;

/// What one machine says of a row.
#[derive(Clone, Debug, PartialEq)]
struct Outcome {
    seconds: f64,
    operations: f64,
    /// Between kernels. None: the system has no such kernels.
    messages: Option<f64>,
    /// Those that the device got.
    requests: Requests,
}

struct Results {
    machine: String,
    pairs: u16,
    systems: Vec<String>,
    linux: Option<usize>,
    rows: Vec<Row>,
    /// By the row, the system and the round.
    outcomes: BTreeMap<(Row, usize, u16), Outcome>,
    /// Of the whole row in user and in kernel mode, by the row and the system; if they were asked for.
    instructions: BTreeMap<(Row, usize), [f64; 2]>,
    /// Rows that were not run, and why.
    skipped: Vec<String>,
    failures: Vec<String>,
}

/// Rows that one machine runs.
struct Job {
    rows: Vec<Row>,
    setup: Setup,
    image: Image,
}

pub fn run(options: &BenchOptions, project: &Path, machine: &str) -> Result<u8> {
    let cpus = options.one_cpus();
    let (systems, linux) = System::wanted(options, cpus, project)?;
    let mut results = Results {
        machine: format!("{machine}, {cpus} CPUs, -cpu {CPU}"),
        pairs: options.pairs,
        systems: systems.iter().map(|system| system.name.clone()).collect(),
        linux,
        rows: Vec::new(),
        outcomes: BTreeMap::new(),
        instructions: BTreeMap::new(),
        skipped: Vec::new(),
        failures: Vec::new(),
    };
    let jobs = jobs(options, project, cpus, &mut results)?;
    if jobs.is_empty() {
        results.skipped.iter().for_each(|row| eprintln!("disk: skipped: {row}"));
        bail!("no row has {} in its name, or none can run", options.only.join(" or "));
    }
    let progress = Progress::new();
    let (all, mut done) = (usize::from(options.pairs) * results.rows.len() * systems.len(), 0);
    for round in 1..=options.pairs {
        for job in &jobs {
            for (at, system) in systems.iter().enumerate() {
                let tell = |ran: usize| {
                    let row = job.rows.get(ran).copied().unwrap_or_default();
                    progress.say(&format!("{} disk: round {round}: {}: {row}", bar(done + ran, all), system.name));
                };
                let told = measure(job, &job.setup, system, "", tell);
                results.add(round, at, told);
                done += job.rows.len();
            }
        }
    }
    // With KVM there is nobody to count.
    if options.instructions && !vm::use_kvm(options.accel)? {
        count(options, project, &jobs, &systems, &progress, &mut results)?;
    }
    drop(progress);
    print!("{}", report::text(&results));
    options.write(&options.json, "disk", "json", &super::table::pretty(&report::json(&results)))?;
    options.write(&options.markdown, "disk", "md", &report::markdown(&results))?;
    results.failures.iter().for_each(|failure| eprintln!("disk: {failure}"));
    Ok(u8::from(!results.failures.is_empty()))
}

/// The groups of which rows are asked for. The others, and those that can't run here, are left out.
fn jobs(options: &BenchOptions, project: &Path, cpus: u16, results: &mut Results) -> Result<Vec<Job>> {
    let bench = project.join("tests/bench");
    let sources = [sources(&bench.join("disk"))?, sources(&bench.join("common"))?].concat();
    let mut base = Setup::with_init(&sources, &["-std=gnu11"], cpus, options.accel)?;
    (base.patience, base.interval, base.memory) = (PATIENCE, INTERVAL, MEMORY);
    let modules = project.join(super::machines::LINUX);
    let mut jobs = Vec::new();
    for group in Group::ALL {
        let rows: Vec<Row> = group.rows().iter().copied().filter(|row| options.picks(row)).collect();
        if rows.is_empty() {
            continue;
        }
        let made = group.content(&modules).and_then(|content| Ok((base.with_content(content)?, Image::make(group)?)));
        match made {
            Ok((setup, image)) => {
                results.rows.extend(&rows);
                jobs.push(Job { rows, setup, image });
            }
            Err(error) => results.skipped.push(format!("{}: {error:#}", group.rows().join(", "))),
        }
    }
    Ok(jobs)
}

/// Counts the instructions of each row, on one more machine of every system.
fn count(
    options: &BenchOptions,
    project: &Path,
    jobs: &[Job],
    systems: &[System],
    progress: &Progress,
    results: &mut Results,
) -> Result<()> {
    let counting = Counting::new(options, project)?;
    for job in jobs {
        for (at, system) in systems.iter().enumerate() {
            let setup = job.setup.with_plugin(counting.option(system));
            let told = measure(job, &setup, &counting.fixed(system), "count ", |ran| {
                let row = job.rows.get(ran).copied().unwrap_or_default();
                progress.say(&format!("disk: instructions: {}: {row}", system.name));
            })?;
            let counted = counting.counted()?;
            if counted.len() != job.rows.len() || !told.failures.is_empty() {
                let ran = counted.len();
                results.failures.push(format!("{}: {ran} rows counted; {}", system.name, told.failures.join("; ")));
                continue;
            }
            for (row, counted) in job.rows.iter().zip(counted) {
                let sum = |mode: usize| counted.cpus.iter().map(|cpu| cpu.instructions[mode]).sum::<u64>() as f64;
                results.instructions.insert((row, at), [sum(USER), sum(KERNEL)]);
            }
        }
    }
    Ok(())
}

impl Results {
    fn add(&mut self, round: u16, system: usize, told: Result<Told>) {
        let name = &self.systems[system];
        match told {
            Ok(told) => {
                self.failures.extend(told.failures.iter().map(|line| format!("round {round}: {name}: {line}")));
                self.outcomes.extend(told.outcomes.into_iter().map(|(row, outcome)| ((row, system, round), outcome)));
            }
            Err(error) => self.failures.push(format!("round {round}: {error:#}")),
        }
    }
}

/// What a machine has said.
#[derive(Debug, Default)]
struct Told {
    outcomes: Vec<(Row, Outcome)>,
    failures: Vec<String>,
}

/// Runs the rows on a machine of its own with a copy of the image, telling how many are over. What came before a machine hung counts.
fn measure(job: &Job, setup: &Setup, system: &System, first: &str, tell: impl Fn(usize)) -> Result<Told> {
    let files: TempDir = vm::private_directory()?;
    let image = job.image.copy(files.path())?;
    let mut device = Device::new(files.path())?;
    let place = if system.kernels > 1 { "apart" } else { "free" };
    let words: Vec<String> = job.rows.iter().map(|row| format!("{row}:{place}")).collect();
    let (mut said, mut last) = (usize::MAX, String::new());
    let disks = vec![programs::disk(&image), programs::disk(device.control())];
    let watched = setup.watch_disks(system, &format!("{first}{}", words.join(" ")), disks, |text, monitor| {
        last = text.to_string();
        let ran = text.lines().filter(|line| parse(line).is_some()).count();
        if ran != said {
            said = ran;
            tell(ran);
        }
        match device.answer(text, monitor) {
            Err(error) => Some(Err(error)),
            Ok(()) => text.contains("BENCH-END").then_some(Ok(())),
        }
    });
    let watched = watched.and_then(|(result, _)| result);
    let mut told = Told::default();
    for (at, row) in job.rows.iter().enumerate() {
        let figures = last.lines().filter_map(parse).find(|(word, _)| *word == words[at]);
        if let (Some((_, [seconds, operations, messages])), Some(requests)) = (figures, device.between(2 * at)) {
            let (seconds, operations) = (seconds.unwrap_or(f64::NAN), operations.unwrap_or(f64::NAN));
            told.outcomes.push((row, Outcome { seconds, operations, messages, requests }));
        }
    }
    told.failures.extend(last.lines().filter(|line| line.contains("FAILED")).map(|line| line.trim_end().to_string()));
    match watched {
        Err(error) => told.failures.push(format!("{error:#}")),
        // What was unmounted must be whole.
        Ok(()) => {
            let checked = outcome(Command::new("/usr/sbin/e2fsck").args(["-f", "-n"]).arg(&image));
            told.failures.extend(checked.err().map(|error| format!("{}: {error:#}", job.rows.join(", "))));
        }
    }
    Ok(told)
}

/// `RUN row:place seconds operations messages`, - for what there is not.
fn parse(line: &str) -> Option<(&str, [Option<f64>; 3])> {
    let (word, figures) = line.trim_end().strip_prefix("RUN ")?.split_once(' ')?;
    let figures: Vec<Option<f64>> = figures.split(' ').map(|figure| figure.parse().ok()).collect();
    Some((word, figures.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_found_among_other_lines() {
        assert_eq!(parse("RUN fsync-4k:free 0.5 400 -\r"), Some(("fsync-4k:free", [Some(0.5), Some(400.0), None])));
        assert_eq!(
            parse("RUN read-1:apart 1.5 1024 17"),
            Some(("read-1:apart", [Some(1.5), Some(1024.0), Some(17.0)]))
        );
        assert_eq!(parse("RUN read-1:apart 1.5"), None);
        assert_eq!(parse("[k0] RUN read-1:apart 1.5 1024 17"), None);
    }

    #[test]
    fn every_row_is_one_of_the_program() {
        let sources = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/bench/disk");
        let read = |name| std::fs::read_to_string(format!("{sources}/{name}")).unwrap();
        let text = ["fio.c", "files.c", "databases.c"].map(read).concat();
        let rows: Vec<Row> = Group::ALL.into_iter().flat_map(Group::rows).copied().collect();
        let missing: Vec<_> = rows.iter().filter(|row| !text.contains(&format!("    {{\"{row}\", "))).collect();
        assert!(missing.is_empty(), "{missing:?}");
        assert_eq!(text.matches("\n    {\"").count(), rows.len());
    }
}
