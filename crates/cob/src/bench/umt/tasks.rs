//! What a task costs on this machine itself (`--tasks`): the task runtime, rayon on it, and beside them rayon by itself and tasks of libgomp. Each program makes empty tasks and a tree of joins, several
//! times, and prints a line of JSON with nanoseconds for a task, those of its fastest round.

use std::path::Path;
use std::process::Command;

use anyhow::{anyhow, Context, Result};
use serde_json::{json, Value};

use crate::bench::machines::outcome;
use crate::bench::processors;
use crate::bench::progress::Progress;
use crate::bench::table::{aligned_page, page, pretty, Table};
use crate::cli::BenchOptions;
use crate::test::cargo::cargo;
use crate::vm;

/// What is measured, and what the programs call it.
const ROWS: [(&str, &str); 4] = [
    ("a task, made by one", "spawn_ns"),
    ("a task that changes one of 64 regions", "spawn_with_a_use_ns"),
    ("a closure of a scope", "scope_ns"),
    ("a join, in a tree of 2^17 leaves", "join_ns"),
];
/// What was wanted of the task runtime.
const MOST_NS: f64 = 1000.0;

pub fn run(options: &BenchOptions, project: &Path) -> Result<u8> {
    let machine = format!("on {}", processors()?);
    let progress = Progress::new();
    progress.say("umt: building the task runtime, rayon with and without it, and a program of OpenMP");
    let files = vm::private_directory()?;
    let columns = [
        ("task runtime", in_release(project, ".", &["-p", "cob-tasks", "--example", "cost"], "examples/cost", &[])?),
        ("rayon on it", in_release(project, "runtime/rayon", &[], "pool", &["cost"])?),
        ("rayon", in_release(project, "runtime/rayon/plain", &[], "pool-plain", &["cost"])?),
        ("libgomp", {
            let program = files.path().join("cost");
            let source = project.join("runtime/examples/cost.c");
            outcome(Command::new("gcc").args(["-O2", "-fopenmp", "-o"]).arg(&program).arg(source))?;
            Command::new(program)
        }),
    ];
    let mut measured = Vec::new();
    for (name, mut command) in columns {
        progress.say(&format!("umt: {name}"));
        let said = outcome(command.env("COB_TASKS", "baseline")).with_context(|| name.to_string())?;
        measured.push((name, figures(&said)?));
    }
    drop(progress);
    let caption = format!("What a task costs, {machine}: nanoseconds, the fastest of 7 rounds.");
    print!("{}", aligned_page(&caption, [("", table(&measured))], &[]));
    let own = measured.first().into_iter().flat_map(|(_, figures)| figures.iter().copied());
    let most = own.filter(|ns| ns.is_finite()).fold(0.0, f64::max);
    println!("The task runtime's dearest: {most:.0} ns; at most {MOST_NS:.0} were wanted.");
    let each = |(name, figures): &(&str, Vec<f64>)| {
        let mut value = json!({ "system": name });
        ROWS.iter().zip(figures).for_each(|((_, key), ns)| value[*key] = (*ns).into());
        value
    };
    let values: Vec<Value> = measured.iter().map(each).collect();
    options.write(&options.json, "umt", "json", &pretty(&json!({ "machine": machine, "systems": values })))?;
    options.write(&options.markdown, "umt", "md", &page(&caption, [("", table(&measured))], &[]))?;
    Ok(0)
}

/// Builds a program of the workspace in `directory`. It is to be started with these words.
fn in_release(project: &Path, directory: &str, build: &[&str], program: &str, words: &[&str]) -> Result<Command> {
    let directory = project.join(directory);
    let mut command = cargo(&directory);
    // Those of runtime/rayon have the same names with and without the runtime.
    let target = directory.join("target");
    outcome(command.args(["build", "--quiet", "--release"]).args(build).env("CARGO_TARGET_DIR", &target))?;
    let mut command = Command::new(target.join("release").join(program));
    command.args(words);
    Ok(command)
}

fn figures(said: &str) -> Result<Vec<f64>> {
    let line = said.lines().find(|line| line.starts_with('{')).ok_or_else(|| anyhow!("no figures: {said}"))?;
    let line: Value = serde_json::from_str(line)?;
    Ok(ROWS.iter().map(|(_, key)| line[*key].as_f64().unwrap_or(f64::NAN)).collect())
}

fn table(measured: &[(&str, Vec<f64>)]) -> Table {
    let head = std::iter::once("").chain(measured.iter().map(|(name, _)| *name)).map(String::from);
    let shown = |ns: f64| if ns.is_finite() { format!("{ns:.0}") } else { "-".to_string() };
    let line = |(at, (row, _)): (usize, &(&str, &str))| {
        std::iter::once((*row).to_string()).chain(measured.iter().map(|(_, figures)| shown(figures[at]))).collect()
    };
    (head.collect(), ROWS.iter().enumerate().map(line).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_does_not_measure_is_left_out() {
        let rayon = figures("{\"benchmark\": \"rayon\", \"scope_ns\": 38, \"join_ns\": 12}\n").unwrap();
        let own =
            figures("{\"spawn_ns\": 263, \"spawn_with_a_use_ns\": 762, \"scope_ns\": 300, \"join_ns\": 213}").unwrap();
        let (head, body) = table(&[("task runtime", own), ("rayon", rayon)]);
        assert_eq!(head, ["", "task runtime", "rayon"]);
        assert_eq!(body[0][1..], ["263", "-"]);
        assert_eq!(body[3][1..], ["213", "12"]);
        assert!(figures("nothing").is_err());
    }
}
