//! `cob test --long`: what takes hours. All stages, guest tests on two kernels and with fault injection, many seeds of the simulator,
//! many calls of `cob fuzz`, power cuts of a disk.
//!
//! It is cut into parts, each a command of `cob` or of cargo. What a part came to is one line of `target/long/COMMIT`; whoever starts it again on the same commit goes
//! on behind the last line. A part that failed is not tried again: its line has to be taken out first. The report at the end
//! sums the parts up, for CHANGELOG.md; it is also in `target/long/report.md`.

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};

use super::cargo::{cargo, outcome};
use crate::bench::processors;

/// Kinds of random programs, how many seeds, and how many to a part.
const SEEDS: [(&str, u64, u64); 7] = [
    ("memory", 1_000_000, 50_000),
    ("life", 80_000, 8_000),
    ("futex", 100_000, 10_000),
    ("files", 200_000, 20_000),
    ("sockets", 100_000, 10_000),
    ("popcorn", 200_000, 20_000),
    // About 55 calls each: ten million.
    ("calls", 185_000, 18_500),
];
/// Guest tests with fault injection of seeds from 1 on.
const SHAKEN: u64 = 3;
/// System calls inside the machine, and how many to a part.
const CALLS: (u64, u64) = (1_000_000, 50_000);

/// Tests of power cuts (crates/fs/tests/ext4_write.rs), and cuts in each.
const CUTS: (u64, u64) = (10, 2000);

/// One command of `cob`, or of cargo.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Part {
    /// Parts of one group are told together: as this, and how many of that.
    group: String,
    count: u64,
    words: Vec<String>,
}

impl Part {
    fn new(group: &str, count: u64, words: &str) -> Part {
        Part { group: group.to_string(), count, words: words.split(' ').map(str::to_string).collect() }
    }

    fn name(&self) -> String {
        self.words.join(" ")
    }

    fn command(&self, project: &Path) -> Result<Command> {
        let (mut command, arguments) = match self.words.split_first() {
            Some((first, rest)) if first == "cargo" => (cargo(project), rest),
            _ => (Command::new(std::env::current_exe()?), &self.words[..]),
        };
        command.args(arguments);
        Ok(command)
    }
}

fn parts() -> Vec<Part> {
    let mut parts = Vec::new();
    for stage in ["check", "unit", "sim", "guest", "guest --kernels 2"] {
        parts.push(Part::new(&format!("test {stage}"), 1, &format!("test {stage}")));
    }
    parts.extend(
        (1..=SHAKEN).map(|seed| Part::new("test guest --shake, seeds", 1, &format!("test guest --shake {seed}"))),
    );
    for (kind, seeds, each) in SEEDS {
        let firsts = (1..=seeds).step_by(each as usize);
        let part = |first: u64| {
            Part::new(&format!("sim {kind}, seeds"), each, &format!("sim {kind} --seed {first} --seeds {each}"))
        };
        parts.extend(firsts.map(part));
    }
    let (tests, each) = CUTS;
    let part = |number: u64| {
        let words = "cargo test --release -p fs --test ext4_write -- --ignored --exact power_cuts_";
        Part::new("power cuts, disks", each, &format!("{words}{number}"))
    };
    parts.extend((0..tests).map(part));
    let (calls, each) = CALLS;
    // It ends when the calls are made; minutes are for a machine that hangs.
    let part = |seed: u64| Part::new("fuzz, calls", each, &format!("fuzz --seed {seed} --calls {each} --minutes 60"));
    parts.extend((1..=calls / each).map(part));
    parts
}

pub fn run(project: &Path) -> Result<u8> {
    let commit = commit(project)?;
    let directory = project.join("target/long");
    fs::create_dir_all(&directory)?;
    let record = directory.join(&commit);
    let parts = parts();
    for (index, part) in parts.iter().enumerate() {
        let name = part.name();
        if find(&fs::read_to_string(&record).unwrap_or_default(), &name).is_some() {
            continue;
        }
        println!("{} of {}: {name}", index + 1, parts.len());
        let start = Instant::now();
        let done = outcome(&mut part.command(project)?);
        let verdict = if done.is_ok() { "ok" } else { "FAILED" };
        if let Err(why) = done {
            fs::write(directory.join(format!("failed-{}.txt", index + 1)), &why)?;
            println!("FAILED  {name}");
            why.lines().for_each(|line| println!("        | {line}"));
        }
        let mut record = OpenOptions::new().append(true).create(true).open(&record)?;
        writeln!(record, "{verdict} {} {name}", start.elapsed().as_secs())?;
    }
    let record = fs::read_to_string(&record)?;
    let report = report(&parts, &record, &format!("commit {commit}, {}", processors()?));
    fs::write(directory.join("report.md"), &report)?;
    print!("{report}");
    Ok(u8::from(record.lines().any(|line| line.starts_with("FAILED"))))
}

/// What is tried; results of a changed tree would be nobody's.
fn commit(project: &Path) -> Result<String> {
    let git = |words: &[&str]| {
        outcome(Command::new("git").arg("-C").arg(project).args(words)).map_err(anyhow::Error::msg).context("git")
    };
    if !git(&["status", "--porcelain", "--untracked-files=no"])?.trim().is_empty() {
        bail!("--long speaks of a commit, and the tree has changes that are none");
    }
    Ok(git(&["rev-parse", "--short=12", "HEAD"])?.trim().to_string())
}

/// Verdict and seconds of a part that has run.
fn find<'a>(record: &'a str, name: &str) -> Option<(&'a str, Duration)> {
    record.lines().find_map(|line| {
        let mut words = line.splitn(3, ' ');
        let (verdict, seconds, part) = (words.next()?, words.next()?, words.next()?);
        (part == name).then_some((verdict, Duration::from_secs(seconds.parse().ok()?)))
    })
}

fn report(parts: &[Part], record: &str, what: &str) -> String {
    let mut text = format!("Long tests of {what}:\n");
    for group in parts.chunk_by(|one, other| one.group == other.group) {
        let ran: Vec<(&Part, &str, Duration)> = group
            .iter()
            .filter_map(|part| find(record, &part.name()).map(|(verdict, time)| (part, verdict, time)))
            .collect();
        let count: u64 = ran.iter().map(|(part, ..)| part.count).sum();
        let minutes = ran.iter().map(|(.., time)| time.as_secs()).sum::<u64>() / 60;
        let failed: Vec<String> = ran
            .iter()
            .filter(|(_, verdict, _)| *verdict != "ok")
            .map(|(part, ..)| format!("`{}`", part.name()))
            .collect();
        let counted = if group[0].group.contains(',') { format!(": {count}") } else { String::new() };
        let outcome = if failed.is_empty() { "passed".to_string() } else { format!("FAILED: {}", failed.join(", ")) };
        let _ = writeln!(text, "- {}{counted}, {minutes} min, {outcome}", group[0].group);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_make_up_what_is_promised() {
        let parts = parts();
        let of = |group: &str| parts.iter().filter(|part| part.group == group).map(|part| part.count).sum::<u64>();
        assert_eq!(
            (of("sim memory, seeds"), of("fuzz, calls"), of("power cuts, disks")),
            (1_000_000, 1_000_000, 20_000)
        );
        let mut names: Vec<String> = parts.iter().map(Part::name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), parts.len());
    }

    #[test]
    fn groups_are_summed_up_and_failures_named() {
        let parts = [
            Part::new("test unit", 1, "test unit"),
            Part::new("sim x, seeds", 5, "sim x 1"),
            Part::new("sim x, seeds", 5, "sim x 2"),
        ];
        let record = "ok 61 test unit\nok 120 sim x 1\nFAILED 60 sim x 2\n";
        assert_eq!(
            report(&parts, record, "m"),
            "Long tests of m:\n- test unit, 1 min, passed\n- sim x, seeds: 10, 3 min, FAILED: `sim x 2`\n"
        );
        assert_eq!(find(record, "sim x"), None);
    }
}
