//! What threads on many kernels make these do, counted: a machine of as many CPUs as kernels for each workload, a thread for each
//! kernel, once. Few hosts have as many CPUs as the largest machine, so no time is told.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use serde_json::{json, Value};

use super::papers::{FIGURES, KERNELS, MESSAGES_A_FAULT};
use super::report::{count, title};
use super::{measure, Case, Line};
use crate::bench::machines::System;
use crate::bench::progress::{bar, Progress};
use crate::bench::table::{aligned, page, pretty, Table};
use crate::cli::{BenchOptions, Class};

/// For a machine: many CPUs share few.
const PATIENCE: Duration = Duration::from_secs(3600);
/// FT of class A keeps 400 MiB.
const MEMORY: u64 = 4 << 30;

/// What is counted: its name, and where it stands in a [`Line`].
const COUNTED: [(&str, usize); 4] = [("remote faults", 4), ("messages", 5), ("faults answered alone", 3), ("moved", 2)];

struct Counts {
    machine: String,
    kernels: Vec<u16>,
    /// With a line for each number of kernels whose machine came to its end.
    rows: Vec<(&'static str, Class, Vec<Option<Line>>)>,
    failures: Vec<String>,
}

pub fn run(options: &BenchOptions, project: &Path, machine: &str) -> Result<u8> {
    let kernels = if options.kernels.is_empty() { vec![1, 2, 4] } else { options.kernels.clone() };
    let mut setup = super::setup(options, project, 1)?;
    (setup.patience, setup.memory) = (PATIENCE, MEMORY);
    let mut rows = Vec::new();
    for class in super::classes(options) {
        rows.extend(super::workloads(options).map(|workload| (workload, class, vec![None; kernels.len()])));
    }
    if rows.is_empty() {
        return Err(super::nothing_picked(options));
    }
    let progress = Progress::new();
    let (all, mut done, mut failures) = (rows.len() * kernels.len(), 0, Vec::new());
    for (workload, class, lines) in &mut rows {
        for (kernels, line) in kernels.iter().zip(lines) {
            let word = Case { workload, class: *class, threads: *kernels }.word();
            progress.say(&format!("{} npb: {word} on {kernels} kernels", bar(done, all)));
            setup.cpus = *kernels;
            match measure(&setup, &System::cob(*kernels)?, &[word], |_| {}) {
                Ok(told) => *line = told.into_iter().next(),
                Err(error) => failures.push(format!("{kernels} kernels: {error:#}")),
            }
            done += 1;
        }
    }
    drop(progress);
    let counts = Counts { machine: machine.to_string(), kernels, rows, failures };
    print!("{}", counts.text());
    options.write(&options.json, "npb", "json", &pretty(&counts.json()))?;
    options.write(&options.markdown, "npb", "md", &counts.markdown())?;
    counts.failures.iter().for_each(|failure| eprintln!("npb: {failure}"));
    Ok(u8::from(!counts.failures.is_empty()))
}

impl Counts {
    fn caption(&self) -> String {
        format!(
            "npb {}: each workload once on each machine, with as many CPUs and threads as kernels; every result was verified. Counts of \
             the whole process. Popcorn: what the papers count on {KERNELS} kernels (thesis of 2014, tables 6.2 to 6.18, faults that all kernels \
             processed; about {MESSAGES_A_FAULT} messages for each; the size is class A in the papers of 2014 and 2015, and not stated in the \
             thesis). A fault of Popcorn there brings the run of contiguous pages around it.",
            self.machine
        )
    }

    fn table(&self, place: usize) -> Table {
        let mut head = vec!["workload".to_string()];
        head.extend(self.kernels.iter().map(|kernels| match kernels {
            1 => "1 kernel".to_string(),
            many => format!("{many} kernels"),
        }));
        head.push(format!("Popcorn, {KERNELS} kernels"));
        let line = |(workload, class, lines): &(&'static str, Class, Vec<Option<Line>>)| {
            let mut line = vec![format!("{} {class:?}", title(workload))];
            line.extend(lines.iter().map(|told| count(figure(told, place))));
            let paper = FIGURES.iter().find(|paper| paper.workload == *workload && *class == Class::A);
            line.push(paper.map_or("-".to_string(), |paper| match place {
                4 => paper.faults.to_string(),
                5 => format!("{:.1} million", f64::from(paper.faults * MESSAGES_A_FAULT) / 1e6),
                2 => paper.migrations.to_string(),
                _ => "-".to_string(),
            }));
            line
        };
        (head, self.rows.iter().map(line).collect())
    }

    fn tables(&self) -> [(&'static str, Table); 4] {
        COUNTED.map(|(name, place)| (name, self.table(place)))
    }

    fn text(&self) -> String {
        let tables = self.tables().map(|(name, (head, body))| format!("\n{name}:\n{}", aligned(&head, &body)));
        self.caption() + "\n" + &tables.concat()
    }

    fn markdown(&self) -> String {
        page(&self.caption(), self.tables(), &self.failures)
    }

    fn json(&self) -> Value {
        let mut rows = Vec::new();
        for (workload, class, lines) in &self.rows {
            for (kernels, told) in self.kernels.iter().zip(lines) {
                let mut row = json!({ "workload": workload, "class": format!("{class:?}"), "kernels": kernels });
                COUNTED.iter().for_each(|(name, place)| row[*name] = figure(told, *place).into());
                rows.push(row);
            }
        }
        json!({ "machine": self.machine, "rows": rows, "failures": self.failures })
    }
}

/// NaN for what there is not: one kernel answers all faults alone.
fn figure(line: &Option<Line>, place: usize) -> f64 {
    line.as_ref().and_then(|line| line.figures[place]).unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn papers_stand_beside_class_a_only() {
        let line = |remote| Line { word: String::new(), figures: [1.0, 1.0, 3.0, 100.0, remote, 300.0].map(Some) };
        let rows = vec![("is", Class::W, vec![None]), ("is", Class::A, vec![Some(line(17.0))])];
        let counts = Counts { machine: "m".into(), kernels: vec![16], rows, failures: Vec::new() };
        let (head, body) = counts.table(4);
        assert_eq!(head, ["workload", "16 kernels", "Popcorn, 16 kernels"]);
        assert_eq!(body, [["IS W", "-", "-"], ["IS A", "17", "25306"]]);
        assert_eq!(counts.table(5).1[1][2], "1.9 million");
        assert_eq!(counts.json()["rows"][1]["remote faults"], json!(17.0));
        assert_eq!(counts.json()["rows"][0]["remote faults"], Value::Null);
    }
}
