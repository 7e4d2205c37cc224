//! What single operations cost: the rows of `tests/bench/micro`, on Cob with several numbers of kernels and on Debian's
//! kernel, a machine each in turns.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{bail, Result};

use super::machines::{sources, Setup, System, CPU};
use super::scale::model::{KERNEL, USER};
use super::scale::Counting;
use super::{progress::Progress, sample::Sample, table};
use crate::cli::BenchOptions;
use crate::vm;

/// One line of the program.
#[derive(Debug, PartialEq)]
struct Line {
    name: String,
    ns: f64,
    /// Messages between kernels for one operation.
    messages: Option<f64>,
}

/// What a system needed for a row.
#[derive(Clone, Debug, Default)]
pub struct Cell {
    pub ns: Sample,
    pub messages: Sample,
    /// Instructions of the guest for one operation, in user and in kernel mode.
    pub instructions: Option<[f64; 2]>,
    /// Events of the trace that it recorded for one operation.
    pub events: f64,
    /// Of those in kernel mode, how many are in which function, the heaviest first; asked for, and of Cob.
    pub functions: Vec<(String, f64)>,
}

pub struct Results {
    pub machine: String,
    pub rounds: u16,
    pub systems: Vec<String>,
    /// Where Linux is among them.
    pub linux: Option<usize>,
    /// Which of them is another one that records events: the other one, and that.
    pub traced: Vec<(usize, usize)>,
    /// Rows in the order of the program, a cell for each system.
    pub rows: Vec<(String, Vec<Cell>)>,
}

pub fn run(options: &BenchOptions, project: &Path, machine: &str) -> Result<()> {
    let (cpus, flags) = (options.one_cpus(), ["-std=gnu11", "-pthread"]);
    let setup = Setup::with_init(&sources(&project.join("tests/bench/micro"))?, &flags, cpus, options.accel)?;
    let (mut systems, linux) = System::wanted(options, cpus, project)?;
    let mut traced = Vec::new();
    if let Some(list) = &options.traced {
        for at in (0..systems.len()).filter(|at| !systems[*at].is_linux()).collect::<Vec<_>>() {
            traced.push((at, systems.len()));
            systems.push(systems[at].traced(list));
        }
    }
    let arguments: Vec<String> = options.only.iter().map(|part| part.replace(' ', "+")).collect();
    let arguments = arguments.join(" ");
    let progress = Progress::new();
    let mut rows: Vec<(String, Vec<Cell>)> = Vec::new();
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    for round in 1..=options.runs {
        for (at, system) in systems.iter().enumerate() {
            let prefix = format!("micro: round {round} of {}: {}", options.runs, system.name);
            let lines = measure(&setup, system, &arguments, |row| progress.say(&format!("{prefix}: {row}")))?;
            for line in lines {
                let place = *places.entry(line.name.clone()).or_insert_with(|| {
                    rows.push((line.name.clone(), vec![Cell::default(); systems.len()]));
                    rows.len() - 1
                });
                let cell = &mut rows[place].1[at];
                cell.ns.add(line.ns);
                line.messages.into_iter().for_each(|count| cell.messages.add(count));
            }
        }
    }
    if rows.is_empty() {
        bail!("no operation has {} in its name", options.only.join(" or "));
    }
    // With KVM there is nobody to count.
    if !vm::use_kvm(options.accel)? {
        if let Err(error) = count(&setup, &systems, options, project, &progress, &mut rows) {
            println!("Instructions are not counted: {error:#}");
        }
    }
    drop(progress);
    let machine = format!("{machine}, {cpus} CPUs, -cpu {CPU}");
    let systems = systems.into_iter().map(|system| system.name).collect();
    let results = Results { machine, rounds: options.runs, systems, linux, traced, rows };
    print!("{}", table::text(&results));
    options.write(&options.json, "micro", "json", &table::pretty(&table::json(&results)))?;
    options.write(&options.markdown, "micro", "md", &table::markdown(&results))?;
    Ok(())
}

/// Counts the instructions of each row, on one more machine of every system.
fn count(
    setup: &Setup,
    systems: &[System],
    options: &BenchOptions,
    project: &Path,
    progress: &Progress,
    rows: &mut [(String, Vec<Cell>)],
) -> Result<()> {
    let counting = Counting::new(options, project)?;
    let words: Vec<String> = options.only.iter().map(|part| part.replace(' ', "+")).collect();
    for (at, system) in systems.iter().enumerate() {
        // Linux with its addresses where they always are.
        let system = &counting.fixed(system);
        let setup = setup.with_plugin(counting.option(system));
        let mut told = usize::MAX;
        let (text, _) = setup.watch(system, &format!("count {}", words.join(" ")), |text| {
            let counted: Vec<_> = text.lines().filter_map(parse_counted).collect();
            if counted.len() != told {
                told = counted.len();
                let name = counted.last().map_or("", |(_, name)| name);
                progress.say(&format!("micro: instructions: {}: {name}", system.name));
            }
            (text.contains("BENCH-END") || text.contains("FAILED")).then(|| text.to_string())
        })?;
        if let Some(failure) = text.lines().find(|line| line.contains("FAILED")) {
            bail!("{}: {failure}", system.name);
        }
        let told: Vec<(f64, &str)> = text.lines().filter_map(parse_counted).collect();
        let counted = counting.counted()?;
        if told.len() != counted.len() {
            bail!("{}: {} rows ran, {} were counted", system.name, told.len(), counted.len());
        }
        for ((operations, name), counted) in told.into_iter().zip(counted) {
            let sum = |mode: usize| counted.cpus.iter().map(|cpu| cpu.instructions[mode]).sum::<u64>() as f64;
            if let Some((_, cells)) = rows.iter_mut().find(|(known, _)| known == name) {
                cells[at].instructions = Some([sum(USER) / operations, sum(KERNEL) / operations]);
                if !system.is_linux() {
                    cells[at].events = counting.events(&counted.codes)? as f64 / operations;
                }
                if options.profile && !system.is_linux() {
                    cells[at].functions = counting.functions(&counted.codes);
                    cells[at].functions.iter_mut().for_each(|(_, instructions)| *instructions /= operations);
                }
            }
        }
    }
    Ok(())
}

/// `COUNTED operations name`; the kernel's log is in between.
fn parse_counted(line: &str) -> Option<(f64, &str)> {
    let (operations, name) = line.trim_end().strip_prefix("COUNTED ")?.split_once(' ')?;
    Some((operations.parse().ok()?, name))
}

/// Runs the program on a machine of its own, telling the rows as they come.
fn measure(setup: &Setup, system: &System, arguments: &str, tell: impl Fn(&str)) -> Result<Vec<Line>> {
    let mut told = 0;
    let (text, _) = setup.watch(system, arguments, |text| {
        let rows = text.matches("ROW ").count();
        if rows > told {
            told = rows;
            tell(text.lines().filter_map(parse).next_back().map(|line| line.name).as_deref().unwrap_or_default());
        }
        (text.contains("BENCH-END") || text.contains("FAILED")).then(|| text.to_string())
    })?;
    if let Some(failure) = text.lines().find(|line| line.contains("FAILED")) {
        bail!("{}: {failure}", system.name);
    }
    Ok(text.lines().filter_map(parse).collect())
}

/// `ROW nanoseconds operations messages name`; the kernel's log is in between.
fn parse(line: &str) -> Option<Line> {
    let mut words = line.trim_end().strip_prefix("ROW ")?.splitn(4, ' ');
    let ns = words.next()?.parse().ok()?;
    words.next()?;
    let messages = words.next()?.parse().ok();
    Some(Line { name: words.next()?.to_string(), ns, messages })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_found_among_other_lines() {
        let line = parse("ROW 12.5 1000 2.00 null call (getppid)\r");
        assert_eq!(line, Some(Line { name: "null call (getppid)".into(), ns: 12.5, messages: Some(2.0) }));
        assert_eq!(parse("ROW 1.0 1 - x").unwrap().messages, None);
        assert_eq!(parse("[    0.1] [k0] INFO ROW 1 1 - x"), None);
        assert_eq!(parse("ROW 12.5 10"), None);
        assert_eq!(parse_counted("COUNTED 64 fork, exit\r"), Some((64.0, "fork, exit")));
        assert_eq!(parse_counted("ROW 64 fork"), None);
    }
}
