//! Tables, JSON and plots of user-monitored threads.

use anyhow::Result;
use serde_json::{json, Value};

use super::papers::paper;
use super::{Outcome, Results, Row, Variant};
use crate::bench::plot::{Line, Panel, Plot};
use crate::bench::sample::Sample;
use crate::bench::table::{aligned_page, duration, factor, page, Table};

type Figure = fn(&Outcome) -> f64;

const FIGURES: [(&str, Figure); 12] = [
    ("seconds", |outcome| outcome.get("seconds")),
    ("idle", |outcome| outcome.get("idle")),
    ("ready_jam", Outcome::jam),
    ("voluntary_switches", |outcome| outcome.get("voluntary_switches")),
    ("involuntary_switches", |outcome| outcome.get("involuntary_switches")),
    ("threads", |outcome| outcome.get("most_threads")),
    ("requests", |outcome| outcome.get("requests")),
    ("in_flight", |outcome| outcome.get("in_flight")),
    ("most_in_flight", |outcome| outcome.get("most_in_flight")),
    ("surrenders", |outcome| outcome.get("surrenders")),
    ("middle_us", |outcome| outcome.get("middle_us")),
    ("slowest_hundredth_us", |outcome| outcome.get("slowest_hundredth_us")),
];

fn percent(part: f64) -> String {
    match part.is_finite() {
        true if part < 0.001 => format!("{:.3} %", part * 100.0),
        true => format!("{:.1} %", part * 100.0),
        false => "-".to_string(),
    }
}

fn whole(value: f64) -> String {
    if value.is_finite() {
        format!("{value:.0}")
    } else {
        "-".to_string()
    }
}

impl Results {
    fn figure(&self, row: Row, variant: usize, figure: Figure) -> f64 {
        let rounds = (1..=self.pairs).filter_map(|round| self.outcomes.get(&(row, variant, round)));
        rounds.map(figure).filter(|value| value.is_finite()).collect::<Sample>().median()
    }

    fn seconds(&self, row: Row, variant: usize) -> f64 {
        self.figure(row, variant, |outcome| outcome.get("seconds"))
    }

    fn caption(&self) -> String {
        format!(
            "umt {}: medians of {} machines of each system. Programs: runtime/examples, sizes: tests/bench/umt/umt.c. Idle is of all CPUs while the program works; ready jam \
             the part of looks (five a second, at each CPU) at which more than one of its threads was ready or running there; in flight the mean number of requests while the disk had any, and the most \
             that was seen; the disk's time is what it takes for the requests if it always serves as many as it can.",
            self.machine, self.pairs
        )
    }

    /// For a variant that has no number of threads: the same system's variant with one thread a CPU. None for the others.
    fn baseline(&self, variant: usize) -> Option<usize> {
        let Variant { system, threads, .. } = self.variants[variant];
        let is_baseline = |other: &Variant| other.system == system && other.threads == Some(1.0);
        threads.is_none().then(|| self.variants.iter().position(is_baseline))?
    }

    /// Linux with the number of threads that suits the row best.
    fn best_of_linux(&self, row: Row) -> Option<f64> {
        let linux = self.variants.iter().enumerate().filter(|(_, variant)| variant.mode.starts_with('t'));
        linux.map(|(at, _)| self.seconds(row, at)).filter(|time| time.is_finite()).min_by(f64::total_cmp)
    }

    fn time_table(&self) -> Table {
        let mut head = vec!["row".to_string()];
        let compared = self.variants.iter().any(|variant| variant.mode.starts_with('t'));
        for (at, variant) in self.variants.iter().enumerate() {
            head.push(variant.name.clone());
            if self.baseline(at).is_some() {
                head.push("times faster".to_string());
                head.extend(compared.then(|| "to Linux' best".to_string()));
            }
        }
        head.push("thesis: times faster".to_string());
        let line = |row: Row| {
            let mut line = vec![row.to_string()];
            for at in 0..self.variants.len() {
                line.push(duration(self.seconds(row, at) * 1e9));
                if let Some(baseline) = self.baseline(at) {
                    line.push(factor(self.seconds(row, baseline) / self.seconds(row, at)));
                    let best = self.best_of_linux(row).unwrap_or(f64::NAN);
                    line.extend(compared.then(|| factor(self.seconds(row, at) / best)));
                }
            }
            let paper = paper(row);
            line.push(match (paper.faster.is_finite(), paper.says) {
                (true, "") => factor(paper.faster),
                (true, says) => format!("{} ({says})", factor(paper.faster)),
                (false, says) => says.to_string(),
            });
            line
        };
        (head, self.rows.iter().copied().map(line).collect())
    }

    fn count_table(&self) -> Table {
        let head = [
            "row",
            "system",
            "time",
            "idle",
            "thesis",
            "ready jam",
            "thesis",
            "threads",
            "thesis",
            "switches: waited",
            "for others",
            "requests",
            "in flight",
            "most",
            "time to the disk's",
        ];
        let line = |row: Row, at: usize| {
            let figure = |name: &str| {
                let (_, figure) = FIGURES.iter().find(|(known, _)| *known == name).expect("a figure");
                self.figure(row, at, *figure)
            };
            let paper = paper(row);
            let of_paper = |two: [f64; 2]| match self.variants[at].mode {
                "baseline" => two[0],
                "umt" | "umt-idle" => two[1],
                _ => f64::NAN,
            };
            vec![
                row.to_string(),
                self.variants[at].name.clone(),
                duration(figure("seconds") * 1e9),
                percent(figure("idle")),
                percent(of_paper(paper.idle)),
                percent(figure("ready_jam")),
                percent(of_paper(paper.jam)),
                whole(figure("threads")),
                whole(of_paper(paper.threads)),
                whole(figure("voluntary_switches")),
                whole(figure("involuntary_switches")),
                whole(figure("requests")),
                factor(figure("in_flight")),
                whole(figure("most_in_flight")),
                factor(figure("seconds") / self.of_disk(row, figure("requests"))),
            ]
        };
        let lines = |row: &Row| (0..self.variants.len()).map(move |at| (*row, at)).collect::<Vec<_>>();
        (head.map(String::from).to_vec(), self.rows.iter().flat_map(lines).map(|(row, at)| line(row, at)).collect())
    }

    fn tables(&self) -> [(&'static str, Table); 2] {
        [("", self.time_table()), ("What was counted", self.count_table())]
    }
}

pub fn text(results: &Results) -> String {
    aligned_page(&results.caption(), results.tables(), &[])
}

pub fn markdown(results: &Results) -> String {
    page(&results.caption(), results.tables(), &results.failures)
}

pub fn json(results: &Results) -> Value {
    let variant = |row: Row, at: usize| {
        let mut value = json!({ "system": results.variants[at].name });
        FIGURES.iter().for_each(|(name, figure)| value[*name] = results.figure(row, at, *figure).into());
        value
    };
    let row = |row: &Row| {
        let variants: Vec<Value> = (0..results.variants.len()).map(|at| variant(row, at)).collect();
        let paper = paper(row);
        let thesis =
            json!({ "faster": paper.faster, "idle": paper.idle, "ready_jam": paper.jam, "threads": paper.threads });
        json!({ "row": row, "systems": variants, "thesis": thesis })
    };
    json!({
        "machine": results.machine,
        "pairs": results.pairs,
        "rows": results.rows.iter().map(row).collect::<Vec<_>>(),
        "failures": results.failures,
    })
}

/// Time over threads a CPU. With user-monitored threads nobody chooses a number, so that is a level line.
pub fn plot(results: &Results) -> Result<String> {
    let numbers: Vec<f64> = results.variants.iter().filter_map(|variant| variant.threads).collect();
    let last = numbers.iter().copied().fold(1.0, f64::max);
    let panel = |row: &Row| {
        let mut lines: Vec<Line> = Vec::new();
        for (at, variant) in results.variants.iter().enumerate() {
            let seconds = results.seconds(row, at);
            let name = variant.name.split(',').next().unwrap_or_default();
            match variant.threads {
                None => lines.push(Line { name: variant.name.clone(), points: vec![(1.0, seconds), (last, seconds)] }),
                Some(threads) if variant.mode == "baseline" => {
                    lines.push(Line { name: variant.name.clone(), points: vec![(threads, seconds)] });
                }
                Some(threads) => match lines.iter_mut().find(|line| line.name == name) {
                    Some(line) => line.points.push((threads, seconds)),
                    None => lines.push(Line { name: name.to_string(), points: vec![(threads, seconds)] }),
                },
            }
        }
        Panel { title: (*row).to_string(), lines }
    };
    let panels = results.rows.iter().map(panel).collect();
    Plot { title: "Time with threads that wait for a disk", x: "threads a CPU", y: "seconds", panels }.draw()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::time::Duration;

    fn results() -> Results {
        let variant = |system, mode, name: &str, threads| Variant { system, mode, name: name.to_string(), threads };
        let variants = vec![
            variant(0, "baseline", "Cob, baseline", Some(1.0)),
            variant(0, "umt", "Cob, UMT", None),
            variant(1, "t1", "Linux 6, 1 thread", Some(1.0)),
            variant(1, "t8", "Linux 6, 8 threads", Some(8.0)),
        ];
        let outcome = |seconds: f64| {
            let figures = [("seconds", seconds), ("idle", 0.5), ("samples", 10.0), ("jammed", 5.0), ("cpus", 2.0)];
            let figures = figures.into_iter().chain([("requests", 640.0)]);
            let figures = figures.map(|(name, value)| (name.to_string(), value)).collect();
            Outcome { figures, checksum: "a".into() }
        };
        let mut outcomes = BTreeMap::new();
        for (at, seconds) in [8.0, 2.0, 9.0, 4.0].into_iter().enumerate() {
            outcomes.insert(("S1", at, 1), outcome(seconds));
        }
        let delay = Duration::from_millis(20);
        Results {
            machine: "m".into(),
            delay,
            pairs: 1,
            variants,
            rows: vec!["S1", "S2"],
            outcomes,
            failures: Vec::new(),
        }
    }

    #[test]
    fn umt_is_held_against_its_baseline_and_the_best_of_linux() {
        let (head, body) = results().time_table();
        assert_eq!(head[1..5], ["Cob, baseline", "Cob, UMT", "times faster", "to Linux' best"]);
        assert_eq!(body[0], ["S1", "8.00 s", "2.00 s", "4.00", "0.50", "9.00 s", "4.00 s", "8.00"]);
        assert_eq!(body[1], ["S2", "-", "-", "-", "-", "-", "-", "3.35"]);
        let (_, body) = results().count_table();
        assert_eq!(body[1][2..7], ["2.00 s", "50.0 %", "88.0 %", "25.0 %", "1.6 %"]);
        assert_eq!(body[1].last().unwrap(), "2.50");
    }

    #[test]
    fn a_plot_has_linux_as_one_line_and_what_differs_is_said() {
        let mut results = results();
        assert!(plot(&results).unwrap().contains("Linux 6"));
        results.outcomes.get_mut(&("S1", 1, 1)).unwrap().checksum = "b".into();
        results.compare();
        assert!(results.failures[0].contains("checksums differ"));
        assert_eq!(json(&results)["rows"][1]["systems"][0]["seconds"], Value::Null);
    }
}
