//! Tables and JSON of disks.

use serde_json::{json, Value};

use super::{Outcome, Requests, Results, Row};
use crate::bench::sample::Sample;
use crate::bench::table::{aligned_page, duration, factor, mean, page, Table};

type Count = fn(&Requests) -> u64;

/// What is counted of the device: at most Linux's are wanted.
const COUNTED: [(&str, Count); 5] = [
    ("reads", |requests| requests.reads),
    ("KiB read", |requests| requests.read_bytes >> 10),
    ("writes", |requests| requests.writes),
    ("KiB written", |requests| requests.written_bytes >> 10),
    ("flushes", |requests| requests.flushes),
];

impl Results {
    fn rounds(&self, row: Row, system: usize) -> impl Iterator<Item = (u16, &Outcome)> {
        (1..=self.pairs).filter_map(move |round| Some((round, self.outcomes.get(&(row, system, round))?)))
    }

    fn times(&self, row: Row, system: usize) -> Sample {
        self.rounds(row, system).map(|(_, outcome)| outcome.seconds * 1e9).collect()
    }

    /// Of each pair of machines, how many times as long as Linux the system took.
    fn ratios(&self, row: Row, system: usize) -> Sample {
        let linux = |round| Some(self.outcomes.get(&(row, self.linux?, round))?.seconds);
        self.rounds(row, system).filter_map(|(round, outcome)| Some(outcome.seconds / linux(round)?)).collect()
    }

    fn counts(&self, row: Row, system: usize, count: Count) -> Sample {
        self.rounds(row, system).map(|(_, outcome)| count(&outcome.requests) as f64).collect()
    }

    fn messages(&self, row: Row, system: usize) -> Sample {
        self.rounds(row, system).filter_map(|(_, outcome)| outcome.messages).collect()
    }

    fn operations(&self, row: Row) -> f64 {
        let all = (0..self.systems.len()).flat_map(|system| self.rounds(row, system));
        all.map(|(_, outcome)| outcome.operations).next().unwrap_or(f64::NAN)
    }

    fn caption(&self) -> String {
        format!(
            "disk {}: medians of {} machines of each system, in turns; ± is half of what lies between the outermost, \"to Linux\" the median of \
             the pairs. Time is that of the whole row. Of several kernels, programs are on the last one and the disk is the first one's. \
             Requests, bytes and flushes are those that QEMU's disk got from the beginning of the row until all was synced.",
            self.machine, self.pairs
        )
    }

    fn held_against(&self, system: usize) -> bool {
        self.linux.is_some_and(|linux| linux != system)
    }

    fn time_table(&self) -> Table {
        let mut head = vec!["row".to_string(), "operations".to_string()];
        for (at, system) in self.systems.iter().enumerate() {
            head.push(system.clone());
            head.extend(self.held_against(at).then(|| "to Linux".to_string()));
        }
        let line = |row: Row| {
            let mut line = vec![row.to_string(), format!("{:.0}", self.operations(row))];
            for at in 0..self.systems.len() {
                let times = self.times(row, at);
                line.push(match times.is_empty() {
                    true => "-".to_string(),
                    false => format!("{} ±{:.0}%", duration(times.median()), times.spread() * 50.0),
                });
                line.extend(self.held_against(at).then(|| factor(self.ratios(row, at).median())));
            }
            line
        };
        let mut body: Vec<Vec<String>> = self.rows.iter().copied().map(line).collect();
        if self.linux.is_some() {
            let mut means = vec!["geometric mean".to_string(), String::new()];
            for at in 0..self.systems.len() {
                means.push(String::new());
                let ratios =
                    self.rows.iter().map(|row| self.ratios(row, at).median()).filter(|ratio| ratio.is_finite());
                means.extend(self.held_against(at).then(|| factor(mean(ratios).unwrap_or(f64::NAN))));
            }
            body.push(means);
        }
        (head, body)
    }

    /// A line for each row and system. What is more than Linux's has its ratio beside it.
    fn device_table(&self) -> Table {
        let head = ["row", "system"].into_iter().chain(COUNTED.map(|(name, _)| name)).chain(["messages"]);
        let mut head: Vec<String> = head.map(String::from).collect();
        let counted = !self.instructions.is_empty();
        head.extend(counted.then(|| "instructions: user".to_string()));
        head.extend(counted.then(|| "kernel".to_string()));
        let line = |row: Row, at: usize| {
            let mut line = vec![row.to_string(), self.systems[at].clone()];
            line.extend(COUNTED.map(|(_, count)| {
                let value = self.counts(row, at, count).median();
                let linux = self.linux.map_or(f64::NAN, |linux| self.counts(row, linux, count).median());
                match (value.is_finite(), value > linux) {
                    (false, _) => "-".to_string(),
                    (true, false) => format!("{value:.0}"),
                    (true, true) if linux == 0.0 => format!("{value:.0} (> 0)"),
                    (true, true) => format!("{value:.0} ({:.2})", value / linux),
                }
            }));
            let whole = |value: f64| if value.is_finite() { format!("{value:.0}") } else { "-".to_string() };
            line.push(whole(self.messages(row, at).median()));
            if counted {
                let millions =
                    |value: f64| if value.is_finite() { format!("{:.1} M", value / 1e6) } else { "-".to_string() };
                line.extend(self.instructions.get(&(row, at)).unwrap_or(&[f64::NAN; 2]).map(millions));
            }
            line
        };
        let lines = |row: &Row| (0..self.systems.len()).map(move |at| (*row, at)).collect::<Vec<_>>();
        (head, self.rows.iter().flat_map(lines).map(|(row, at)| line(row, at)).collect())
    }

    fn tables(&self) -> [(&'static str, Table); 2] {
        let device = "What the device got; in brackets how many times Linux's, where it is more";
        [("", self.time_table()), (device, self.device_table())]
    }
}

pub fn text(results: &Results) -> String {
    aligned_page(&results.caption(), results.tables(), &results.skipped)
}

pub fn markdown(results: &Results) -> String {
    let skipped: String = results.skipped.iter().map(|row| format!("\nSkipped: {row}\n")).collect();
    page(&results.caption(), results.tables(), &results.failures) + &skipped
}

pub fn json(results: &Results) -> Value {
    let system = |row: Row, at: usize| {
        let times = results.times(row, at);
        let [user, kernel] = results.instructions.get(&(row, at)).copied().unwrap_or([f64::NAN; 2]);
        let mut value = json!({
            "system": results.systems[at],
            "median": times.median(),
            "least": times.least(),
            "most": times.most(),
            "to_linux": results.ratios(row, at).median(),
            "messages": results.messages(row, at).median(),
            "instructions": { "user": user, "kernel": kernel },
        });
        COUNTED.iter().for_each(|(name, count)| value[*name] = results.counts(row, at, *count).median().into());
        value
    };
    let row = |row: &Row| {
        let systems: Vec<Value> = (0..results.systems.len()).map(|at| system(row, at)).collect();
        json!({ "row": row, "operations": results.operations(row), "systems": systems })
    };
    json!({
        "machine": results.machine,
        "pairs": results.pairs,
        "unit": "nanoseconds",
        "rows": results.rows.iter().map(row).collect::<Vec<_>>(),
        "skipped": results.skipped,
        "failures": results.failures,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn results() -> Results {
        let rows = vec!["fsync-4k", "git-gc"];
        let mut outcomes = BTreeMap::new();
        for (round, (cob, linux)) in (1..).zip([(1.0, 0.5), (3.0, 1.0), (0.9, 0.9)]) {
            let ran = |seconds, writes, messages| {
                let requests = Requests { writes, written_bytes: 8192, ..Requests::default() };
                Outcome { seconds, operations: 400.0, messages, requests }
            };
            outcomes.insert((rows[0], 0, round), ran(cob, 30, Some(0.0)));
            outcomes.insert((rows[0], 1, round), ran(linux, 20, None));
        }
        let systems = ["Cob, 1 kernel", "Linux 6"].map(String::from).to_vec();
        let (skipped, failures) = (vec!["git-gc: no git".to_string()], Vec::new());
        let instructions = BTreeMap::new();
        Results {
            machine: "m".into(),
            pairs: 3,
            systems,
            linux: Some(1),
            rows,
            outcomes,
            instructions,
            skipped,
            failures,
        }
    }

    #[test]
    fn the_ratio_is_the_median_of_the_pairs() {
        let (head, body) = results().time_table();
        assert_eq!(head, ["row", "operations", "Cob, 1 kernel", "to Linux", "Linux 6"]);
        assert_eq!(body[0], ["fsync-4k", "400", "1.00 s ±105%", "2.00", "900.00 ms ±28%"]);
        assert_eq!(body[1], ["git-gc", "NaN", "-", "-", "-"]);
        assert_eq!(body[2], ["geometric mean", "", "", "2.00", ""]);
    }

    #[test]
    fn more_than_linux_is_marked() {
        let (_, body) = results().device_table();
        assert_eq!(body[0], ["fsync-4k", "Cob, 1 kernel", "0", "0", "30 (1.50)", "8", "0", "0"]);
        assert_eq!(body[1], ["fsync-4k", "Linux 6", "0", "0", "20", "8", "0", "-"]);
    }

    #[test]
    fn what_was_skipped_is_said() {
        assert!(text(&results()).contains("git-gc: no git") && markdown(&results()).contains("git-gc: no git"));
        assert_eq!(json(&results())["rows"][1]["systems"][0]["median"], Value::Null);
    }
}
