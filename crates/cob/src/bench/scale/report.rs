//! Tables, JSON and plots of the scaling model.

use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::Result;

use super::model::{stated, Counted, KERNEL, USER};
use super::{Case, Kind, Results};
use serde_json::{json, Value};

use crate::bench::plot::{Line, Panel, Plot};
use crate::bench::table::{aligned, page, Table};

/// Of the pairs and blocks of a measurement so many are looked at, and so many symbols shown.
pub const CANDIDATES: usize = 8;
const SHOWN: usize = 3;

fn count(value: f64) -> String {
    match value {
        value if !value.is_finite() => "-".to_string(),
        value if value >= 100.0 => format!("{value:.0}"),
        value => format!("{value:.2}"),
    }
}

/// A name without the types in it: enough to find the function.
pub fn short(name: &str) -> String {
    let mut depth = 0i32;
    let plain: String = name
        .chars()
        .filter(|letter| {
            depth += i32::from(*letter == '<');
            let keep = depth < 2;
            depth -= i32::from(*letter == '>');
            keep
        })
        .collect();
    plain.chars().take(70).collect::<String>().replace('|', "\\|")
}

impl Results {
    fn kinds(&self) -> Vec<(Kind, String)> {
        let mut kinds =
            vec![(Kind::Many, "Cob, a kernel per CPU".to_string()), (Kind::One, "Cob, 1 kernel".to_string())];
        kinds.extend(self.linux.iter().map(|name| (Kind::Linux, name.clone())));
        kinds
    }

    fn caption(&self) -> String {
        let letters = self.kinds().into_iter().map(|(kind, name)| format!("{}: {name}", letter(kind)));
        format!(
            "scale {}. {}. Of five rounds the median by modelled throughput. Measured, for one operation, the mean of all CPUs: instructions in user and kernel mode; \"lines\" are cache lines that \
             one CPU wrote and another then touched in kernel mode (in brackets: different ones in the whole measurement; lines of the \
             user's are in the JSON; `one_line` has one of those for every operation, on purpose). Boot, warm-up, waiting and timer interrupts are not counted. Modelled: operations in a second of \
             all CPUs (and x: how many times those of one CPU), from these costs: {}. Not modelled: waiting for locks beyond the moves of their line, what an interrupt between CPUs costs beyond \
             its instructions, misses of the TLB and of caches that are too small.",
            self.machine,
            letters.collect::<Vec<_>>().join("; "),
            stated()
        )
    }

    fn gain(&self, case: &Case, cpus: u16, kind: Kind) -> f64 {
        let throughput = |cpus| self.get(case, cpus, kind).map_or(f64::NAN, Counted::throughput);
        throughput(cpus) / throughput(1)
    }

    fn figures(&self) -> Table {
        let kinds = self.kinds();
        let mut head = vec!["loop".to_string(), "CPUs".to_string()];
        for (kind, _) in &kinds {
            head.extend(["user", "kernel", "lines", "modelled/s", "x"].map(|what| format!("{what} {}", letter(*kind))));
        }
        if self.linux.is_some() {
            head.push("N to L".to_string());
        }
        let mut body = Vec::new();
        for case in &self.cases {
            for cpus in &self.cpus {
                let mut line = vec![title(case), cpus.to_string()];
                for (kind, _) in &kinds {
                    match self.get(case, *cpus, *kind) {
                        Some(counted) => line.extend([
                            count(counted.instructions(USER)),
                            count(counted.instructions(KERNEL)),
                            format!("{} ({})", count(counted.transfers(KERNEL)), counted.distinct[KERNEL]),
                            format!("{:.0}", counted.throughput()),
                            count(self.gain(case, *cpus, *kind)),
                        ]),
                        None => line.extend(["-"; 5].map(String::from)),
                    }
                }
                if self.linux.is_some() {
                    let of = |kind| self.get(case, *cpus, kind).map_or(f64::NAN, Counted::throughput);
                    line.push(count(of(Kind::Many) / of(Kind::Linux)));
                }
                body.push(line);
            }
        }
        (head, body)
    }

    /// What travels on the largest machine, by the function that wanted a line and the one that had written it.
    fn travellers(&self) -> Table {
        let head = ["loop", "system", "moves for one operation", "wanted by", "written by"].map(String::from).to_vec();
        let mut body = Vec::new();
        for case in &self.cases {
            for (kind, name) in self.kinds() {
                let Some(counted) = self.get(case, self.most_cpus(), kind) else { continue };
                let mut sums: BTreeMap<(String, String), u64> = BTreeMap::new();
                for pair in counted.pairs.iter().take(CANDIDATES) {
                    let names = (short(&self.name(kind, pair.at)), short(&self.name(kind, pair.writer)));
                    *sums.entry(names).or_default() += pair.transfers + pair.recalls;
                }
                let mut sums: Vec<_> = sums.into_iter().collect();
                sums.sort_by_key(|(_, moves)| std::cmp::Reverse(*moves));
                for ((at, writer), moves) in sums.into_iter().take(SHOWN) {
                    let moves = moves as f64 / (counted.operations * counted.cpus.len() as u64) as f64;
                    body.push(vec![title(case), name.clone(), count(moves), at, writer]);
                }
            }
        }
        (head, body)
    }

    /// Where the instructions of Cob's kernels are on the largest machine.
    fn weights(&self) -> Table {
        let head = ["loop", "kernel instructions for one operation", "function"].map(String::from).to_vec();
        let mut body = Vec::new();
        for case in &self.cases {
            let Some(counted) = self.get(case, self.most_cpus(), Kind::Many) else { continue };
            let mut sums: BTreeMap<String, u64> = BTreeMap::new();
            for code in &counted.codes {
                *sums.entry(short(&self.name(Kind::Many, code.at))).or_default() += code.instructions;
            }
            let mut sums: Vec<_> = sums.into_iter().collect();
            sums.sort_by_key(|(_, instructions)| std::cmp::Reverse(*instructions));
            for (name, instructions) in sums.into_iter().take(CANDIDATES) {
                let instructions = instructions as f64 / (counted.operations * counted.cpus.len() as u64) as f64;
                body.push(vec![title(case), count(instructions), name]);
            }
        }
        (head, body)
    }

    fn tables(&self) -> [(String, Table); 3] {
        let most = self.most_cpus();
        [
            (String::new(), self.figures()),
            (format!("What travels with {most} CPUs (transfers and recalls; the heaviest)"), self.travellers()),
            (
                format!("Where Cob's kernel instructions are with a kernel per CPU, {most} CPUs (the heaviest)"),
                self.weights(),
            ),
        ]
    }
}

/// Stands for a system in a table with many columns.
fn letter(kind: Kind) -> &'static str {
    match kind {
        Kind::Many => "N",
        Kind::One => "1",
        Kind::Linux => "L",
    }
}

fn title(case: &Case) -> String {
    format!("{}, {}", case.0, case.1)
}

pub fn text(results: &Results) -> String {
    let mut text = results.caption() + "\n";
    for (what, (head, body)) in results.tables() {
        if !what.is_empty() {
            let _ = write!(text, "\n{what}:\n");
        }
        text += &aligned(&head, &body);
    }
    text
}

pub fn markdown(results: &Results) -> String {
    page(&results.caption(), results.tables(), &results.failures)
}

pub fn json(results: &Results) -> Value {
    let kinds = results.kinds();
    let row = |((case, cpus, kind), counted): (&(Case, u16, Kind), &Counted)| {
        json!({
            "loop": case.0,
            "mode": case.1,
            "cpus": cpus,
            "system": kinds.iter().find_map(|(known, name)| (known == kind).then_some(name)),
            "operations": counted.operations,
            "user_instructions": counted.instructions(USER),
            "kernel_instructions": counted.instructions(KERNEL),
            "user_lines": counted.transfers(USER),
            "kernel_lines": counted.transfers(KERNEL),
            "distinct_user_lines": counted.distinct[USER],
            "distinct_kernel_lines": counted.distinct[KERNEL],
            "hottest_line_moves": counted.hottest,
            "modelled_per_second": counted.throughput(),
        })
    };
    json!({
        "machine": results.machine,
        "model": stated(),
        "rows": results.counted.iter().map(row).collect::<Vec<_>>(),
        "failures": results.failures,
    })
}

/// Modelled operations over CPUs, a panel for each loop.
pub fn plot(results: &Results) -> Result<String> {
    let panels = results.cases.iter().map(|case| {
        let line = |(kind, name): (Kind, String)| {
            let points = results.cpus.iter().map(|cpus| {
                let throughput = results.get(case, *cpus, kind).map_or(f64::NAN, Counted::throughput);
                (f64::from(*cpus), throughput / 1e6)
            });
            Line { name, points: points.collect() }
        };
        Panel { title: title(case), lines: results.kinds().into_iter().map(line).collect() }
    });
    let title = format!("Modelled throughput of loops, {}", results.machine);
    Plot { title: &title, x: "CPUs", y: "million operations/s, modelled", panels: panels.collect() }.draw()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lose_the_types_in_them() {
        assert_eq!(short("<vm::slices::SliceTable>::pieces"), "<vm::slices::SliceTable>::pieces");
        assert_eq!(short("a::b::<c::D<e>>::f"), "a::b::<c::D>::f");
        assert!(short(&"x".repeat(200)).len() <= 70);
    }
}
