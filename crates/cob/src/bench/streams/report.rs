//! Tables and JSON of what talks.

use serde_json::{json, Value};

use super::{Case, Outcome, Results};
use crate::bench::sample::Sample;
use crate::bench::table::{aligned_page, duration, factor, page, Table};

/// Messages, doorbells and moves as [`Outcome::counts`] has them.
const COUNTED: [&str; 3] = ["messages", "doorbells", "moves"];

impl Results {
    fn rounds(&self, case: &Case, system: usize) -> impl Iterator<Item = (u16, &Outcome)> {
        let found = move |round| Some((round, self.outcomes.get(&(case.clone(), system, round))?));
        (1..=self.pairs).filter_map(found)
    }

    fn times(&self, case: &Case, system: usize) -> Sample {
        self.rounds(case, system).map(|(_, outcome)| outcome.ns).collect()
    }

    /// Of each pair of machines, how many times as long as the rival the system took.
    fn ratios(&self, case: &Case, system: usize, rival: usize) -> Sample {
        let other = |round| Some(self.outcomes.get(&(case.clone(), rival, round))?.ns);
        self.rounds(case, system).filter_map(|(round, outcome)| Some(outcome.ns / other(round)?)).collect()
    }

    /// For one operation, but of moves those of the whole row.
    fn counts(&self, case: &Case, system: usize, what: usize) -> Sample {
        self.rounds(case, system).filter_map(|(_, outcome)| Some(outcome.counts?[what])).collect()
    }

    fn caption(&self) -> String {
        format!(
            "streams {}: medians of {} machines of each system, in turns; ± is half of what lies between the outermost, \"to Linux\" and \"to 1 kernel\" the \
             median of the pairs. Time is that of one operation: a round trip, a block of 64 KiB, a request, a transaction, the whole of hackbench \
             or make. apart: one program is pinned to the first CPU, the other to the last. free: nobody is pinned; of round trips and \
             bandwidth what was measured began 1 s after the start.",
            self.machine, self.pairs
        )
    }

    fn time_table(&self) -> Option<Table> {
        let mut head = vec!["row".to_string()];
        for (at, system) in self.systems.iter().enumerate() {
            head.push(system.clone());
            head.extend(self.rivals(at).map(|(_, name)| name.to_string()));
        }
        let line = |case: &Case| {
            let mut line = vec![title(case)];
            for at in 0..self.systems.len() {
                line.push(self.time_cell(case, at));
                line.extend(self.rivals(at).map(|(rival, _)| factor(self.ratios(case, at, rival).median())));
            }
            line
        };
        let body: Vec<Vec<String>> = self.timed().map(line).collect();
        (!body.is_empty()).then_some((head, body))
    }

    /// The rows whose time is that of an operation.
    fn timed(&self) -> impl Iterator<Item = &Case> {
        self.cases.iter().filter(|case| !settles(case))
    }

    /// Those that a system is held against.
    fn rivals(&self, system: usize) -> impl Iterator<Item = (usize, &'static str)> {
        let alone = self.systems.iter().position(|name| name == "Cob, 1 kernel");
        let alone = alone.filter(|_| self.systems[system].starts_with("Cob"));
        let rivals = [(self.linux, "to Linux"), (alone, "to 1 kernel")];
        rivals.into_iter().filter_map(move |(rival, name)| Some((rival.filter(|rival| *rival != system)?, name)))
    }

    fn time_cell(&self, case: &Case, system: usize) -> String {
        let times = self.times(case, system);
        match times.is_empty() {
            true => "-".to_string(),
            false => format!("{} ±{:.0}%", duration(times.median()), times.spread() * 50.0),
        }
    }

    /// The systems of several kernels.
    fn several(&self) -> Vec<usize> {
        (0..self.systems.len()).filter(|system| self.systems[*system].ends_with(" kernels")).collect()
    }

    /// What systems of several kernels count.
    fn count_table(&self) -> Option<Table> {
        let systems = self.several();
        let mut head = vec!["row".to_string()];
        systems.iter().for_each(|at| head.extend(COUNTED.map(|what| format!("{what}: {}", self.systems[*at]))));
        let line = |case: &Case| {
            let mut line = vec![title(case)];
            for at in &systems {
                line.extend((0..COUNTED.len()).map(|what| factor(self.counts(case, *at, what).median())));
            }
            line
        };
        (!systems.is_empty() && self.timed().next().is_some()).then(|| (head, self.timed().map(line).collect()))
    }

    /// How two programs come together, on systems of several kernels.
    fn settle_table(&self) -> Option<Table> {
        let cases: Vec<&Case> = self.cases.iter().filter(|case| settles(case)).collect();
        let systems = self.several();
        let mut head = vec!["row".to_string()];
        for at in &systems {
            let columns = ["together after", "at most", "moves in 10 s, at most", "messages in 10 s"];
            head.extend(columns.map(|what| format!("{what}: {}", self.systems[*at])));
        }
        let line = |case: &&Case| {
            let mut line = vec![title(case)];
            for at in &systems {
                let times = self.times(case, *at);
                line.extend([times.median(), times.most()].map(duration));
                line.extend([self.counts(case, *at, 2).most(), self.counts(case, *at, 0).median()].map(factor));
            }
            line
        };
        (!cases.is_empty() && !systems.is_empty()).then(|| (head, cases.iter().map(line).collect()))
    }

    fn tables(&self) -> Vec<(&'static str, Table)> {
        let tables = [
            ("", self.time_table()),
            ("For one operation; moves of threads between kernels: in the whole row", self.count_table()),
            (
                "From the start of two programs until they are together, and the ten seconds after that",
                self.settle_table(),
            ),
        ];
        tables.into_iter().filter_map(|(what, table)| Some((what, table?))).collect()
    }
}

/// Whether the row is about how two programs come together.
fn settles(case: &Case) -> bool {
    case.row.starts_with("settle-")
}

fn title(case: &Case) -> String {
    format!("{}, {}", case.row, case.place)
}

pub fn text(results: &Results) -> String {
    aligned_page(&results.caption(), results.tables(), &results.skipped)
}

pub fn markdown(results: &Results) -> String {
    let skipped: String = results.skipped.iter().map(|row| format!("\nSkipped: {row}\n")).collect();
    page(&results.caption(), results.tables(), &results.failures) + &skipped
}

pub fn json(results: &Results) -> Value {
    let system = |case: &Case, at: usize| {
        let times = results.times(case, at);
        let mut value = json!({
            "system": results.systems[at],
            "median": times.median(),
            "least": times.least(),
            "most": times.most(),
            "to_linux": results.linux.map(|linux| results.ratios(case, at, linux).median()),
            "most_moves": results.counts(case, at, 2).most(),
        });
        COUNTED
            .iter()
            .enumerate()
            .for_each(|(what, name)| value[*name] = results.counts(case, at, what).median().into());
        value
    };
    let row = |case: &Case| {
        let systems: Vec<Value> = (0..results.systems.len()).map(|at| system(case, at)).collect();
        json!({ "row": case.row, "place": case.place, "systems": systems })
    };
    json!({
        "machine": results.machine,
        "pairs": results.pairs,
        "unit": "nanoseconds",
        "rows": results.cases.iter().map(row).collect::<Vec<_>>(),
        "skipped": results.skipped,
        "failures": results.failures,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn results() -> Results {
        let cases = vec![Case { row: "unix-1", place: "apart" }, Case { row: "tcp-1", place: "free" }];
        let mut outcomes = BTreeMap::new();
        for (round, (cob, linux)) in (1..).zip([(100.0, 50.0), (300.0, 100.0), (90.0, 90.0)]) {
            let ran = |ns, counts| Outcome { ns, counts };
            outcomes.insert((cases[0].clone(), 0, round), ran(cob, Some([4.0, 2.0, 0.0])));
            outcomes.insert((cases[0].clone(), 1, round), ran(linux, None));
        }
        let systems = ["Cob, 2 kernels", "Linux 6"].map(String::from).to_vec();
        let (skipped, failures) = (vec!["make-j4: no gcc".to_string()], Vec::new());
        Results { machine: "m".into(), pairs: 3, systems, linux: Some(1), cases, outcomes, skipped, failures }
    }

    #[test]
    fn the_ratio_is_the_median_of_the_pairs() {
        let results = results();
        let (head, body) = results.time_table().unwrap();
        assert_eq!(head, ["row", "Cob, 2 kernels", "to Linux", "Linux 6"]);
        assert_eq!(body[0], ["unix-1, apart", "100 ns ±105%", "2.00", "90 ns ±28%"]);
        assert_eq!(body[1], ["tcp-1, free", "-", "-", "-"]);
        assert_eq!(results.count_table().unwrap().1[0], ["unix-1, apart", "4.00", "2.00", "0.00"]);
    }

    #[test]
    fn of_pairs_that_come_together_the_worst_is_shown() {
        let mut results = results();
        let case = Case { row: "settle-unix", place: "free" };
        for (round, (ms, moves)) in (1..).zip([(300.0, 0.0), (900.0, 1.0), (400.0, 0.0)]) {
            let outcome = Outcome { ns: ms * 1e6, counts: Some([7.0, 3.0, moves]) };
            results.outcomes.insert((case.clone(), 0, round), outcome);
        }
        assert!(results.settle_table().is_none());
        results.cases = vec![case];
        assert_eq!(
            results.settle_table().unwrap().1,
            [["settle-unix, free", "400.00 ms", "900.00 ms", "1.00", "7.00"]]
        );
        assert!(results.time_table().is_none());
    }

    #[test]
    fn the_kernel_that_is_alone_is_a_rival_of_the_others() {
        let mut results = results();
        results.systems.push("Cob, 1 kernel".to_string());
        results.outcomes.insert((results.cases[0].clone(), 2, 1), Outcome { ns: 80.0, counts: None });
        let rivals = |at| results.rivals(at).collect::<Vec<_>>();
        assert_eq!(rivals(0), [(1, "to Linux"), (2, "to 1 kernel")]);
        assert_eq!((rivals(1), rivals(2)), (vec![], vec![(1, "to Linux")]));
        assert_eq!(results.ratios(&results.cases[0], 0, 2).median(), 1.25);
    }

    #[test]
    fn what_was_skipped_is_said() {
        assert!(text(&results()).contains("make-j4: no gcc") && markdown(&results()).contains("make-j4: no gcc"));
        assert_eq!(json(&results())["rows"][1]["systems"][0]["median"], Value::Null);
    }
}
