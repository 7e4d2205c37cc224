//! The lanes of the fabric on this machine itself, between two threads, beside the queues they are held against: criterion
//! measures (`crates/fabric/benches/lanes.rs`), this shows the ratios.

use std::path::Path;

use anyhow::{bail, Result};

use super::progress::Progress;
use crate::test::cargo;

/// Row, and the one it is held against.
const RATIOS: [(&str, &str); 6] = [
    ("one way/lane/56", "one way/rtrb/56"),
    ("one way/lane/64", "one way/rtrb/64"),
    ("one way/lane/64", "one way/crossbeam/64"),
    ("round trip/lane/64", "round trip/rtrb/64"),
    ("round trip/lane/64", "round trip/crossbeam/64"),
    ("round trip/lane/56", "round trip/flag/8"),
];

pub fn run(project: &Path) -> Result<()> {
    let progress = Progress::new();
    progress.say("fabric: criterion measures, about a minute after it is built");
    let words = ["bench", "--quiet", "-p", "fabric", "--bench", "lanes", "--", "--noplot"];
    let text = match cargo::outcome(cargo::cargo(project).args(words)) {
        Ok(text) => text,
        Err(text) => bail!("cargo {}:\n{text}", words.join(" ")),
    };
    drop(progress);
    let times = times(&text);
    let time = |name: &str| times.iter().find(|(known, _)| known == name).map(|(_, ns)| *ns);
    println!("messages between two threads of this machine, ns (one way: per message; number: bytes):");
    for (name, ns) in &times {
        println!("{name:<26} {ns:>8.1}");
    }
    for (name, rival) in RATIOS {
        let (Some(own), Some(other)) = (time(name), time(rival)) else {
            bail!("no figure for {name} or {rival}:\n{text}")
        };
        println!("{name} takes {:.2} times {rival}", own / other);
    }
    Ok(())
}

/// Criterion's estimates: the name is on the line of its `time:`, or on the one before if it is long.
fn times(text: &str) -> Vec<(String, f64)> {
    let mut found = Vec::new();
    let mut name = "";
    for line in text.lines() {
        let (head, rest) = line.split_once("time:").unwrap_or((line, ""));
        if !line.starts_with(' ') && !head.trim().is_empty() {
            name = head.trim();
        }
        let mut words = rest.split(['[', ']', ' ']).filter(|word| !word.is_empty());
        // Lower bound, its unit, then the estimate.
        let (Some(value), Some(unit)) = (words.nth(2), words.next()) else { continue };
        let scale = match unit {
            "ps" => 1e-3,
            "ns" => 1.0,
            "µs" => 1e3,
            "ms" => 1e6,
            _ => continue,
        };
        found.extend(value.parse::<f64>().map(|value| (name.to_string(), value * scale)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::times;

    #[test]
    fn criterion_s_lines_are_read() {
        let text = "one way/lane/56         time:   [25.082 ns 25.691 ns 26.3 ns]\n                        thrpt:  [1 2 3]\n\
                    round trip/crossbeam/64\n                        time:   [1.1 µs 1.25 µs 1.4 µs]\nFound 2 outliers\n";
        let found = times(text);
        assert_eq!(found, [("one way/lane/56".to_string(), 25.691), ("round trip/crossbeam/64".to_string(), 1250.0)]);
    }
}
