//! Results as text, Markdown and JSON: what all benches share, and the tables of `micro`.

use std::fmt::Write;

use serde_json::{json, Value};

use super::micro::{Cell, Results};
use super::scale::{
    model::{KERNEL, USER},
    short,
};

/// The head, and a line of cells for each row.
pub type Table = (Vec<String>, Vec<Vec<String>>);

/// How many times as long as on Linux; None without Linux, or for Linux itself.
fn ratio(results: &Results, cells: &[Cell], at: usize) -> Option<f64> {
    let linux = results.linux.filter(|linux| *linux != at)?;
    let ratio = cells[at].ns.median() / cells[linux].ns.median();
    ratio.is_finite().then_some(ratio)
}

fn geometric_mean(results: &Results, at: usize) -> Option<f64> {
    mean(results.rows.iter().filter_map(|(_, cells)| ratio(results, cells, at)))
}

pub fn mean(ratios: impl Iterator<Item = f64>) -> Option<f64> {
    let ratios: Vec<f64> = ratios.collect();
    (!ratios.is_empty()).then(|| (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64).exp())
}

/// A ratio, or another small number.
pub fn factor(value: f64) -> String {
    match value.is_finite() {
        true => format!("{value:.2}"),
        false => "-".to_string(),
    }
}

pub fn duration(ns: f64) -> String {
    match ns {
        ns if ns.is_nan() => "-".to_string(),
        ns if ns < 1e3 => format!("{ns:.0} ns"),
        ns if ns < 1e5 => format!("{:.2} us", ns / 1e3),
        ns if ns < 1e6 => format!("{:.0} us", ns / 1e3),
        ns if ns < 1e9 => format!("{:.2} ms", ns / 1e6),
        ns => format!("{:.2} s", ns / 1e9),
    }
}

fn head(results: &Results) -> Vec<String> {
    let mut head = vec!["operation".to_string()];
    for (at, system) in results.systems.iter().enumerate() {
        head.push(system.clone());
        if results.linux.is_some_and(|linux| linux != at) {
            head.push("to Linux".to_string());
        }
        if results.rows.iter().any(|(_, cells)| cells[at].messages.median() > 0.0) {
            head.push("messages".to_string());
        }
    }
    head
}

fn body(results: &Results) -> Vec<Vec<String>> {
    let talks: Vec<bool> = (0..results.systems.len())
        .map(|at| results.rows.iter().any(|(_, cells)| cells[at].messages.median() > 0.0))
        .collect();
    let mut lines = Vec::new();
    for (name, cells) in &results.rows {
        let mut line = vec![name.clone()];
        for (at, cell) in cells.iter().enumerate() {
            let spread = if cell.ns.is_empty() { String::new() } else { format!(" ±{:.0}%", cell.ns.spread() * 50.0) };
            line.push(duration(cell.ns.median()) + &spread);
            if results.linux.is_some_and(|linux| linux != at) {
                line.push(ratio(results, cells, at).map_or("-".to_string(), |ratio| format!("{ratio:.2}")));
            }
            if talks[at] {
                line.push(format!("{:.1}", cell.messages.median().max(0.0)));
            }
        }
        lines.push(line);
    }
    if results.linux.is_some() {
        let mut line = vec!["geometric mean".to_string()];
        for (at, talks) in talks.iter().enumerate() {
            line.push(String::new());
            if results.linux != Some(at) {
                line.push(geometric_mean(results, at).map_or("-".to_string(), |mean| format!("{mean:.2}")));
            }
            if *talks {
                line.push(String::new());
            }
        }
        lines.push(line);
    }
    lines
}

/// Instructions in user and kernel mode, and their sum held against Linux'; the mean at the end.
fn instructions(results: &Results) -> Option<(Vec<String>, Vec<Vec<String>>)> {
    let counted = |cell: &Cell| cell.instructions.map_or(f64::NAN, |[user, kernel]| user + kernel);
    if results.rows.iter().all(|(_, cells)| cells.iter().all(|cell| cell.instructions.is_none())) {
        return None;
    }
    let against = |at: usize| results.linux.filter(|linux| *linux != at);
    let mut head = vec!["instructions, user + kernel".to_string()];
    let mut means = vec!["geometric mean".to_string()];
    for (at, system) in results.systems.iter().enumerate() {
        head.push(system.clone());
        means.push(String::new());
        if let Some(linux) = against(at) {
            head.push("to Linux".to_string());
            let ratios = results.rows.iter().map(|(_, cells)| counted(&cells[at]) / counted(&cells[linux]));
            means.push(
                mean(ratios.filter(|ratio| ratio.is_finite())).map_or("-".to_string(), |mean| format!("{mean:.2}")),
            );
        }
    }
    let mut body = Vec::new();
    for (name, cells) in &results.rows {
        let mut line = vec![name.clone()];
        for (at, cell) in cells.iter().enumerate() {
            line.push(cell.instructions.map_or("-".to_string(), |[user, kernel]| format!("{user:.0} + {kernel:.0}")));
            if let Some(linux) = against(at) {
                let ratio = counted(cell) / counted(&cells[linux]);
                line.push(if ratio.is_finite() { format!("{ratio:.2}") } else { "-".to_string() });
            }
        }
        body.push(line);
    }
    if results.linux.is_some() {
        body.push(means);
    }
    Some((head, body))
}

/// What an event of the trace costs, where some were recorded.
fn tracing(results: &Results) -> Option<Table> {
    let mut head = vec!["operation".to_string()];
    for (plain, _) in &results.traced {
        head.extend([format!("{}: events", results.systems[*plain]), "instructions an event".to_string()]);
    }
    let sum = |cell: &Cell| cell.instructions.map_or(f64::NAN, |[user, kernel]| user + kernel);
    let mut body = Vec::new();
    for (name, cells) in &results.rows {
        let mut line = vec![name.clone()];
        for (plain, traced) in &results.traced {
            let events = cells[*traced].events;
            let cost = (sum(&cells[*traced]) - sum(&cells[*plain])) / events;
            line.push(format!("{events:.1}"));
            line.push(if cost.is_finite() { format!("{cost:.0}") } else { "-".to_string() });
        }
        body.push(line);
    }
    (!results.traced.is_empty()).then_some((head, body))
}

const TRACING: &str = "Events of the trace for one operation, and what one costs: the difference of the instructions above, by the events. What threads that      are recorded do otherwise (they meet at other places) is in it:";

/// Functions shown of each row.
const HEAVIEST: usize = 30;

/// Where the instructions of Cob's kernels are, if that was asked for.
fn functions(results: &Results) -> Option<Table> {
    let head = ["operation: function", "instructions for one operation", "system"].map(String::from).to_vec();
    let mut body = Vec::new();
    for (name, cells) in &results.rows {
        for (cell, system) in cells.iter().zip(&results.systems) {
            for (function, instructions) in cell.functions.iter().take(HEAVIEST) {
                let function = format!("{name}: {}", short(function));
                body.push(vec![function, format!("{instructions:.0}"), system.clone()]);
            }
        }
    }
    (!body.is_empty()).then_some((head, body))
}

const FUNCTIONS: &str =
    "Where the instructions of Cob's kernels are (the heaviest functions, with what was inlined into them):";

const INSTRUCTIONS: &str = "Instructions of the guest for one operation, counted by a plugin of QEMU that runs all CPUs in one thread, without timer \
     interrupts; on rows that need two CPUs, those of all CPUs, idle ones included:";

fn caption(results: &Results) -> String {
    format!(
        "micro {}: medians of {} machines each, in turns; ± is half of what lies between the outermost",
        results.machine, results.rounds
    )
}

pub fn text(results: &Results) -> String {
    let mut text = caption(results) + "\n" + &aligned(&head(results), &body(results));
    if let Some((head, body)) = instructions(results) {
        text += &format!("\n{INSTRUCTIONS}\n{}", aligned(&head, &body));
    }
    if let Some((head, body)) = tracing(results) {
        text += &format!("\n{TRACING}\n{}", aligned(&head, &body));
    }
    if let Some((head, body)) = functions(results) {
        text += &format!("\n{FUNCTIONS}\n{}", aligned(&head, &body));
    }
    text
}

pub fn markdown(results: &Results) -> String {
    let mut text = caption(results) + "\n\n" + &piped(&head(results), &body(results));
    if let Some((head, body)) = instructions(results) {
        text += &format!("\n{INSTRUCTIONS}\n\n{}", piped(&head, &body));
    }
    if let Some((head, body)) = tracing(results) {
        text += &format!("\n{TRACING}\n\n{}", piped(&head, &body));
    }
    if let Some((head, body)) = functions(results) {
        text += &format!("\n{FUNCTIONS}\n\n{}", piped(&head, &body));
    }
    text
}

/// Columns for a terminal; the first to the left, the others to the right.
pub fn aligned(head: &[String], body: &[Vec<String>]) -> String {
    let lines = || std::iter::once(head).chain(body.iter().map(Vec::as_slice));
    let width = |column: usize| lines().map(|line| line[column].chars().count()).max().unwrap_or_default();
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let mut text = String::new();
    for line in lines() {
        for (column, word) in line.iter().enumerate() {
            let pad = " ".repeat(widths[column] - word.chars().count());
            text.push_str(&if column == 0 { format!("  {word}{pad}") } else { format!("  {pad}{word}") });
        }
        text.push('\n');
    }
    text
}

/// A page: the caption, tables with what they show (if that is not said yet), and what failed.
pub fn page<W: AsRef<str>>(caption: &str, tables: impl IntoIterator<Item = (W, Table)>, failures: &[String]) -> String {
    let mut text = format!("{caption}\n");
    for (what, (head, body)) in tables {
        if !what.as_ref().is_empty() {
            let _ = write!(text, "\n{}:\n", what.as_ref());
        }
        text = text + "\n" + &piped(&head, &body);
    }
    for failure in failures {
        let _ = write!(text, "\nFAILED: {}\n", failure.replace('\n', "  \n"));
    }
    text
}

/// The same for a terminal, without what failed and with what was not run.
pub fn aligned_page<W: AsRef<str>>(
    caption: &str,
    tables: impl IntoIterator<Item = (W, Table)>,
    skipped: &[String],
) -> String {
    let mut text = format!("{caption}\n");
    for (what, (head, body)) in tables {
        if !what.as_ref().is_empty() {
            let _ = write!(text, "\n{}:\n", what.as_ref());
        }
        text += &aligned(&head, &body);
    }
    skipped.iter().for_each(|row| text += &format!("skipped: {row}\n"));
    text
}

/// [`aligned`] for Markdown.
pub fn piped(head: &[String], body: &[Vec<String>]) -> String {
    let mut text = format!("| {} |\n|---{}|\n", head.join(" | "), "|---:".repeat(head.len() - 1));
    for line in body {
        let _ = writeln!(text, "| {} |", line.join(" | "));
    }
    text
}

/// For a file.
pub fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}

/// NaN becomes null.
pub fn json(results: &Results) -> Value {
    let cell = |(system, cell): (&String, &Cell)| {
        let [user, kernel] = cell.instructions.map_or([f64::NAN; 2], |both| [both[USER], both[KERNEL]]);
        json!({
            "system": system,
            "median": cell.ns.median(),
            "least": cell.ns.least(),
            "most": cell.ns.most(),
            "messages": cell.messages.median(),
            "user_instructions": user,
            "kernel_instructions": kernel,
        })
    };
    let row = |(name, cells): &(String, Vec<Cell>)| json!({ "name": name, "systems": results.systems.iter().zip(cells).map(cell).collect::<Vec<_>>() });
    json!({
        "machine": results.machine,
        "rounds": results.rounds,
        "unit": "nanoseconds",
        "rows": results.rows.iter().map(row).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::sample::Sample;

    fn cell(ns: f64, messages: Option<f64>) -> Cell {
        let mut cell = Cell {
            events: 0.0,
            ns: Sample::default(),
            messages: Sample::default(),
            instructions: Some([10.0, ns]),
            functions: Vec::new(),
        };
        cell.ns.add(ns);
        messages.into_iter().for_each(|count| cell.messages.add(count));
        cell
    }

    fn results() -> Results {
        Results {
            machine: "on a \"fast\" one".to_string(),
            rounds: 1,
            systems: vec!["Cob, 2 kernels".to_string(), "Linux 6".to_string()],
            linux: Some(1),
            traced: Vec::new(),
            rows: vec![
                ("a".to_string(), vec![cell(100.0, Some(2.0)), cell(200.0, None)]),
                ("b".to_string(), vec![cell(4000.0, Some(0.0)), cell(500.0, None)]),
                ("only here".to_string(), vec![cell(4e6, Some(0.0)), Cell::default()]),
            ],
        }
    }

    #[test]
    fn ratios_and_their_mean() {
        let results = results();
        assert_eq!(ratio(&results, &results.rows[0].1, 0), Some(0.5));
        assert_eq!(ratio(&results, &results.rows[0].1, 1), None);
        assert_eq!(ratio(&results, &results.rows[2].1, 0), None);
        assert!((geometric_mean(&results, 0).unwrap() - 2.0).abs() < 1e-9);
    }

    #[test]
    fn tables_have_a_column_for_all() {
        let text = text(&results());
        assert!(text.contains("0.50") && text.contains("8.00") && text.contains("4.00 us") && text.contains("4.00 ms"));
        let table = markdown(&results());
        let table = table.split(INSTRUCTIONS).next().unwrap();
        let bars: Vec<usize> =
            table.lines().skip(2).filter(|line| !line.is_empty()).map(|line| line.matches('|').count()).collect();
        assert!(bars.iter().all(|count| *count == bars[0]), "{table}");
        let (head, body) = instructions(&results()).unwrap();
        assert!(body.iter().all(|line| line.len() == head.len()), "{body:?}");
        assert_eq!(body[0], ["a", "10 + 100", "0.52", "10 + 200"]);
    }

    #[test]
    fn json_knows_no_nan() {
        let cells = &json(&results())["rows"][2]["systems"];
        assert_eq!((&cells[0]["median"], &cells[1]["median"]), (&json!(4e6), &Value::Null));
    }
}
