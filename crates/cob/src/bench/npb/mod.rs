//! The papers' workloads: `tests/bench/papers` on Cob with several numbers of kernels and on Debian's kernel, a machine for
//! each workload and size in turns. A wrong result, or a machine that does not come to its end, is a failure; the others still run.
//!
//! `ranks`: what the machines need for MPI. `counts`: how often threads move and fault and kernels talk, of many kernels. `papers`: what the papers say of the same workloads. `report`: tables, JSON, plots.

mod counts;
mod papers;
mod ranks;
mod report;

use std::path::Path;
use std::time::Duration;

use anyhow::{anyhow, bail, Result};

use super::machines::{sources, Setup, System, CPU};
use super::progress::{bar, Progress};
use super::sample::Sample;
use crate::cli::{BenchOptions, Class, Link};

const FLAGS: [&str; 3] = ["-std=gnu11", "-fopenmp", "-lm"];
const WORKLOADS: [&str; 5] = ["is", "ft", "cg", "bfs", "lud"];
/// With Open MPI, and with MPICH.
const WITH_MPI: [&str; 6] = ["is-mpi", "ft-mpi", "cg-mpi", "is-mpich", "ft-mpich", "cg-mpich"];
/// With MPI an initramfs has all of Open MPI and MPICH in it.
const MEMORY: u64 = 2 << 30;

/// What a machine may take for one run of a workload. Class A under TCG on a busy machine takes minutes.
fn patience(class: Class) -> Duration {
    Duration::from_secs(if class == Class::A { 900 } else { 180 })
}

#[derive(Clone, Debug, PartialEq)]
struct Case {
    workload: &'static str,
    class: Class,
    threads: u16,
}

impl Case {
    /// As the program wants it.
    fn word(&self) -> String {
        format!("{}.{:?}.{}", self.workload, self.class, self.threads)
    }
}

/// What a system needed for a case.
#[derive(Clone, Debug, Default)]
struct Cell {
    /// Of what the specification times.
    seconds: Sample,
    /// Of the whole process.
    whole: Sample,
    /// How often threads moved between kernels.
    moved: Sample,
    /// Faults that a kernel answered alone, and with another's help.
    local: Sample,
    remote: Sample,
    messages: Sample,
}

struct Results {
    machine: String,
    rounds: u16,
    systems: Vec<String>,
    linux: Option<usize>,
    rows: Vec<(Case, Vec<Cell>)>,
    failures: Vec<String>,
}

pub fn run(options: &BenchOptions, project: &Path, machine: &str) -> Result<u8> {
    if options.counts {
        return counts::run(options, project, machine);
    }
    let cpus = options.one_cpus();
    let mut setup = setup(options, project, cpus)?;
    let (systems, linux) = System::wanted(options, cpus, project)?;
    let cases = cases(options);
    if cases.is_empty() {
        return Err(nothing_picked(options));
    }
    let linked = if options.link == Link::Static { "static" } else { "dynamic" };
    let mut results = Results {
        machine: format!("{machine}, {cpus} CPUs, -cpu {CPU}, gcc -O2, {linked}"),
        rounds: options.runs,
        systems: systems.iter().map(|system| system.name.clone()).collect(),
        linux,
        rows: cases.iter().map(|case| (case.clone(), vec![Cell::default(); systems.len()])).collect(),
        failures: Vec::new(),
    };
    let progress = Progress::new();
    let (all, mut done) = (usize::from(options.runs) * cases.len() * systems.len(), 0);
    for round in 1..=options.runs {
        for group in cases.chunk_by(|a, b| (a.workload, a.class) == (b.workload, b.class)) {
            setup.patience = patience(group[0].class) * group.len() as u32;
            for (at, system) in systems.iter().enumerate() {
                let what = format!("npb: round {round} of {}: {}", options.runs, system.name);
                let words: Vec<String> = [warm_up(group)].into_iter().chain(group.iter().map(Case::word)).collect();
                let tell = |ran: usize| {
                    let word = words.get(ran).map_or("", String::as_str);
                    // The first does not count.
                    progress.say(&format!("{} {what}: {word}", bar(done + ran.saturating_sub(1), all)));
                };
                match measure(&setup, system, &words, tell) {
                    Ok(lines) => lines.into_iter().skip(1).for_each(|line| results.add(at, &line)),
                    Err(error) => results.failures.push(format!("round {round}: {}: {error:#}", words.join(" "))),
                }
                done += group.len();
            }
        }
    }
    drop(progress);
    print!("{}", report::text(&results));
    options.write(&options.json, "npb", "json", &super::table::pretty(&report::json(&results)))?;
    options.write(&options.markdown, "npb", "md", &report::markdown(&results))?;
    options.write(&options.svg, "npb", "svg", &report::plot(&results)?)?;
    results.failures.iter().for_each(|failure| eprintln!("npb: {failure}"));
    Ok(u8::from(!results.failures.is_empty()))
}

/// The program as /init, and what else it needs.
fn setup(options: &BenchOptions, project: &Path, cpus: u16) -> Result<Setup> {
    let directory = project.join("tests/bench/papers");
    let mut setup = Setup::linked(&sources(&directory)?, &FLAGS, options.link, cpus, options.accel)?;
    if options.mpi {
        let content = ranks::content(&directory)?;
        setup = setup.with_content(content)?;
        setup.memory = MEMORY;
    }
    Ok(setup)
}

/// Those that are asked for.
fn workloads(options: &BenchOptions) -> impl Iterator<Item = &'static str> + '_ {
    let with_mpi = WITH_MPI.into_iter().filter(|_| options.mpi);
    WORKLOADS.into_iter().chain(with_mpi).filter(|workload| options.picks(workload))
}

fn nothing_picked(options: &BenchOptions) -> anyhow::Error {
    let all: Vec<&str> = WORKLOADS.into_iter().chain(WITH_MPI).collect();
    anyhow!("no workload has {} in its name: {} (those with MPI: --mpi)", options.only.join(" or "), all.join(", "))
}

/// The smaller first.
fn classes(options: &BenchOptions) -> impl Iterator<Item = Class> + '_ {
    [Class::S, Class::W, Class::A].into_iter().filter(|class| options.class.contains(class))
}

/// Whether ranks that wait spin without a system call: where they are more than CPUs each waits for the time slices of the others.
fn spins(workload: &str) -> bool {
    workload.ends_with("-mpich")
}

/// Those of a machine stand together.
fn cases(options: &BenchOptions) -> Vec<Case> {
    let mut cases = Vec::new();
    for class in classes(options) {
        for workload in workloads(options) {
            let threads = options.threads.iter().filter(|threads| !spins(workload) || **threads <= options.one_cpus());
            cases.extend(threads.map(|threads| Case { workload, class, threads: *threads }));
        }
    }
    cases
}

/// What a machine runs before the cases that count: under TCG code that was never run is translated first, on each kernel's own
/// copy.
fn warm_up(group: &[Case]) -> String {
    let threads = group.iter().map(|case| case.threads).max().unwrap_or(1);
    Case { workload: group[0].workload, class: Class::S, threads }.word()
}

/// One line of the program.
#[derive(Clone, Debug, PartialEq)]
struct Line {
    word: String,
    /// Seconds, of the whole process, moved, local, remote, messages.
    figures: [Option<f64>; 6],
}

/// `RUN word figure...`, - for what there is not; the kernel's log is in between.
fn parse(line: &str) -> Option<Line> {
    let mut words = line.trim_end().strip_prefix("RUN ")?.split(' ');
    let word = words.next()?.to_string();
    let figures = words.map(|word| word.parse().ok()).collect::<Vec<_>>().try_into().ok()?;
    Some(Line { word, figures })
}

impl Results {
    fn add(&mut self, system: usize, line: &Line) {
        let Some((_, cells)) = self.rows.iter_mut().find(|(case, _)| case.word() == line.word) else { return };
        let cell = &mut cells[system];
        let samples = [
            &mut cell.seconds,
            &mut cell.whole,
            &mut cell.moved,
            &mut cell.local,
            &mut cell.remote,
            &mut cell.messages,
        ];
        for (sample, figure) in samples.into_iter().zip(line.figures) {
            figure.into_iter().for_each(|figure| sample.add(figure));
        }
    }
}

/// Runs the program on a machine of its own, telling how many runs are over.
fn measure(setup: &Setup, system: &System, words: &[String], tell: impl Fn(usize)) -> Result<Vec<Line>> {
    let mut told = usize::MAX;
    let (text, _) = setup.watch(system, &words.join(" "), |text| {
        let ran = text.matches("RUN ").count();
        if ran != told {
            told = ran;
            tell(ran);
        }
        text.contains("BENCH-END").then(|| text.to_string())
    })?;
    if let Some(wrong) = text.lines().find(|line| line.contains("WRONG")) {
        bail!("{}: {}", system.name, wrong.trim_end());
    }
    let lines: Vec<Line> = text.lines().filter_map(parse).collect();
    if lines.len() != words.len() {
        bail!("{}: {} of {} runs were told of", system.name, lines.len(), words.len());
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_found_among_other_lines() {
        let line = parse("RUN is.W.2 0.5 1.25 1 100 20 300\r").unwrap();
        assert_eq!(line.word, "is.W.2");
        assert_eq!(line.figures, [0.5, 1.25, 1.0, 100.0, 20.0, 300.0].map(Some));
        assert_eq!(parse("RUN is.W.2 0.5 1.25 - 100 - -").unwrap().figures[2..], [None, Some(100.0), None, None]);
        assert_eq!(parse("RUN is.W.2 0.5"), None);
        assert_eq!(parse("[k0] RUN is.W.2 1 1 1 1 1 1"), None);
    }
}
