//! Tables, JSON and plots of the papers' workloads.

use anyhow::Result;

use super::{Case, Cell, Results};
use serde_json::{json, Value};

use crate::bench::plot::{Line, Panel, Plot};
use crate::bench::table::{aligned, duration, page, Table};

fn ratio(cell: &Cell, to: &Cell) -> String {
    let ratio = cell.seconds.median() / to.seconds.median();
    if ratio.is_finite() {
        format!("{ratio:.2}")
    } else {
        "-".to_string()
    }
}

pub(super) fn count(value: f64) -> String {
    if value.is_finite() {
        format!("{value:.0}")
    } else {
        "-".to_string()
    }
}

impl Results {
    /// Where Cob with one kernel is, if others are held against it.
    fn alone(&self) -> Option<usize> {
        self.systems.iter().position(|system| system == "Cob, 1 kernel")
    }

    /// Cob with the most kernels.
    fn many(&self) -> Option<usize> {
        self.systems.iter().position(|system| system.starts_with("Cob") && system.ends_with("kernels"))
    }

    /// Those that a system is held against.
    fn rivals(&self, at: usize) -> impl Iterator<Item = (usize, &'static str)> {
        let alone = self.alone().filter(|_| self.systems[at].starts_with("Cob"));
        let rivals = [(self.linux, "to Linux"), (alone, "to 1 kernel")];
        rivals.into_iter().filter_map(move |(other, name)| Some((other.filter(|other| *other != at)?, name)))
    }

    fn caption(&self) -> String {
        format!(
            "npb {}: medians of {} machines each, in turns; ± is half of what lies between the outermost. Time is that of the part that the \
             specification times; every result was verified. Moved, faults and messages are those of the whole process: threads \
             that moved to another kernel, faults that a kernel answered alone and with another's help, messages between kernels.",
            self.machine, self.rounds
        )
    }

    fn times(&self) -> Table {
        let mut head = vec!["workload".to_string()];
        for (at, system) in self.systems.iter().enumerate() {
            head.push(system.clone());
            head.extend(self.rivals(at).map(|(_, name)| name.to_string()));
        }
        let line = |(case, cells): &(Case, Vec<Cell>)| {
            let mut line = vec![title_of(case)];
            for (at, cell) in cells.iter().enumerate() {
                let spread = if cell.seconds.is_empty() {
                    String::new()
                } else {
                    format!(" ±{:.0}%", cell.seconds.spread() * 50.0)
                };
                line.push(duration(cell.seconds.median() * 1e9) + &spread);
                line.extend(self.rivals(at).map(|(other, _)| ratio(cell, &cells[other])));
            }
            line
        };
        (head, self.rows.iter().map(line).collect())
    }

    fn events(&self) -> Table {
        let mut head = vec!["workload".to_string()];
        for (at, system) in self.systems.iter().enumerate() {
            if self.many() == Some(at) {
                head.extend(["moved", "faults", "remote faults", "messages"].map(|what| format!("{what}: {system}")));
            } else {
                head.push(format!("faults: {system}"));
            }
        }
        let line = |(case, cells): &(Case, Vec<Cell>)| {
            let mut line = vec![title_of(case)];
            for (at, cell) in cells.iter().enumerate() {
                let faults =
                    count(cell.local.median() + if cell.remote.is_empty() { 0.0 } else { cell.remote.median() });
                if self.many() == Some(at) {
                    line.extend([count(cell.moved.median()), faults, count(cell.remote.median())]);
                    line.push(count(cell.messages.median()));
                } else {
                    line.push(faults);
                }
            }
            line
        };
        (head, self.rows.iter().map(line).collect())
    }
}

/// A workload's name in a table.
pub(super) fn title(workload: &str) -> String {
    match workload.split_once('-') {
        Some((plain, "mpich")) => format!("{} with MPICH", plain.to_uppercase()),
        Some((plain, _)) => format!("{} with MPI", plain.to_uppercase()),
        None => workload.to_uppercase(),
    }
}

fn title_of(case: &Case) -> String {
    let workers = if case.workload.contains('-') { "rank" } else { "thread" };
    let many = if case.threads == 1 { "" } else { "s" };
    format!("{} {:?}, {} {workers}{many}", title(case.workload), case.class, case.threads)
}

pub fn text(results: &Results) -> String {
    let mut text = results.caption() + "\n";
    for (what, (head, body)) in [("", results.times()), ("\n", results.events())] {
        text += what;
        text += &aligned(&head, &body);
    }
    text
}

pub fn markdown(results: &Results) -> String {
    page(&results.caption(), [("", results.times()), ("", results.events())], &results.failures)
}

pub fn json(results: &Results) -> Value {
    let cell = |(system, cell): (&String, &Cell)| {
        json!({
            "system": system,
            "median": cell.seconds.median(),
            "least": cell.seconds.least(),
            "most": cell.seconds.most(),
            "whole": cell.whole.median(),
            "moved": cell.moved.median(),
            "faults_local": cell.local.median(),
            "faults_remote": cell.remote.median(),
            "messages": cell.messages.median(),
        })
    };
    let row = |(case, cells): &(Case, Vec<Cell>)| {
        json!({
            "workload": case.workload,
            "class": format!("{:?}", case.class),
            "threads": case.threads,
            "systems": results.systems.iter().zip(cells).map(cell).collect::<Vec<_>>(),
        })
    };
    json!({
        "machine": results.machine,
        "rounds": results.rounds,
        "unit": "seconds",
        "rows": results.rows.iter().map(row).collect::<Vec<_>>(),
        "failures": results.failures,
    })
}

/// Time over threads, a panel for each workload and size.
pub fn plot(results: &Results) -> Result<String> {
    let panels = results.rows.chunk_by(|(a, _), (b, _)| (a.workload, a.class) == (b.workload, b.class)).map(|group| {
        let line = |(at, name): (usize, &String)| {
            let point = |(case, cells): &(Case, Vec<Cell>)| (f64::from(case.threads), cells[at].seconds.median());
            Line { name: name.clone(), points: group.iter().map(point).collect() }
        };
        let title = format!("{} {:?}", title(group[0].0.workload), group[0].0.class);
        Panel { title, lines: results.systems.iter().enumerate().map(line).collect() }
    });
    let title = format!("Time of the papers' workloads, {}", results.machine);
    Plot { title: &title, x: "threads", y: "seconds", panels: panels.collect() }.draw()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Class;

    fn results() -> Results {
        let systems = ["Cob, 2 kernels", "Cob, 1 kernel", "Linux 6"].map(String::from).to_vec();
        let row = |threads: u16| {
            let mut cells = vec![Cell::default(); 3];
            cells[0].seconds.add(3.0);
            cells[0].remote.add(17.0);
            cells[1].seconds.add(2.0);
            cells[2].seconds.add(4.0);
            (Case { workload: "is", class: Class::W, threads }, cells)
        };
        Results {
            machine: "m".into(),
            rounds: 1,
            systems,
            linux: Some(2),
            rows: vec![row(1), row(2)],
            failures: vec!["a \"b\"".into()],
        }
    }

    #[test]
    fn tables_have_a_column_for_all() {
        let results = results();
        for (head, body) in [results.times(), results.events()] {
            assert!(body.iter().all(|line| line.len() == head.len()), "{head:?} {body:?}");
        }
        let times = results.times();
        assert_eq!(times.0[1..4], ["Cob, 2 kernels", "to Linux", "to 1 kernel"]);
        assert_eq!(times.1[0][2..4], ["0.75", "1.50"]);
    }

    #[test]
    fn ranks_are_no_threads() {
        let case = |workload, threads| title_of(&Case { workload, class: Class::S, threads });
        assert_eq!(case("cg-mpi", 2), "CG with MPI S, 2 ranks");
        assert_eq!(case("ft-mpich", 1), "FT with MPICH S, 1 rank");
        assert_eq!(case("cg", 1), "CG S, 1 thread");
    }

    #[test]
    fn json_and_plot_know_no_nan() {
        let cell = &json(&results())["rows"][0]["systems"][0];
        assert_eq!((&cell["median"], &cell["moved"]), (&json!(3.0), &Value::Null));
        assert_eq!(plot(&results()).unwrap().matches("<circle").count(), 6);
    }
}
