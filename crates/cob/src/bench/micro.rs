//! What single operations cost: the rows of `tests/bench/micro`, on Cob with several numbers of kernels and on Debian's
//! kernel, a machine each in turns.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{bail, Result};

use super::machines::{sources, Setup, System, CPU};
use super::{progress::Progress, sample::Sample, table};
use crate::cli::BenchOptions;

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
}

pub struct Results {
    pub machine: String,
    pub rounds: u16,
    pub systems: Vec<String>,
    /// Where Linux is among them.
    pub linux: Option<usize>,
    /// Rows in the order of the program, a cell for each system.
    pub rows: Vec<(String, Vec<Cell>)>,
}

pub fn run(options: &BenchOptions, project: &Path, machine: &str) -> Result<()> {
    let (cpus, flags) = (options.one_cpus(), ["-std=gnu11", "-pthread"]);
    let setup = Setup::with_init(&sources(&project.join("tests/bench/micro"))?, &flags, cpus, options.accel)?;
    let (systems, linux) = System::wanted(options, cpus, project)?;
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
    drop(progress);
    let machine = format!("{machine}, {cpus} CPUs, -cpu {CPU}");
    let systems = systems.into_iter().map(|system| system.name).collect();
    let results = Results { machine, rounds: options.runs, systems, linux, rows };
    print!("{}", table::text(&results));
    options.write(&options.json, "micro", "json", &table::json(&results))?;
    options.write(&options.markdown, "micro", "md", &table::markdown(&results))?;
    Ok(())
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
    }
}
