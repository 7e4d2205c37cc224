//! What a task costs: empty tasks, made by one task, with and without something that they use; and joins, down to leaves that do nothing.
//!
//! ```text
//! cost [tasks=N] [depth=N] [rounds=N]
//! ```
//!
//! Prints a line of JSON with nanoseconds for a task, the fastest of the rounds. `runtime/rayon` has the same joins with rayon (`pool cost`), and runtime/examples/cost.c the same
//! tasks with libgomp.

mod common;

use cob_tasks::{join, scope, spawn, task, taskwait, Builder, Region};
use common::{number, Line};
use std::time::Instant;

fn leaves(depth: u32) -> u64 {
    if depth == 0 {
        return std::hint::black_box(1);
    }
    let (one, other) = join(|| leaves(depth - 1), || leaves(depth - 1));
    one + other
}

fn main() -> std::io::Result<()> {
    let (mut tasks, mut depth, mut rounds) = (100_000u64, 17, 7);
    for word in std::env::args().skip(1) {
        match &word {
            word if word.starts_with("tasks=") => tasks = number(word),
            word if word.starts_with("depth=") => depth = number(word),
            word if word.starts_with("rounds=") => rounds = number(word),
            word => panic!("{word}: not known"),
        }
    }
    let runtime = Builder::from_environment().build()?;
    let fastest = |count: u64, work: &(dyn Fn() + Sync)| {
        let round = || {
            let begin = Instant::now();
            runtime.run(work);
            begin.elapsed().as_nanos() as u64
        };
        (0..rounds).map(|_| round()).min().unwrap_or(0) / count
    };
    let empty = fastest(tasks, &|| {
        (0..tasks).for_each(|_| spawn(|| _ = std::hint::black_box(1)));
        taskwait();
    });
    let uses = fastest(tasks, &|| {
        let at = |number: u64| Region::new(0x1000 + (number % 64) as usize * 8, 8);
        (0..tasks).for_each(|number| task().changes(at(number)).spawn(|| _ = std::hint::black_box(1)));
        taskwait();
    });
    let scoped = fastest(tasks, &|| {
        scope(|scope| (0..tasks).for_each(|_| scope.spawn(|_| _ = std::hint::black_box(1))));
    });
    let joined = fastest((1 << depth) - 1, &|| assert_eq!(leaves(depth), 1 << depth));
    Line::new("cost", &runtime)
        .with("spawn_ns", empty)
        .with("spawn_with_a_use_ns", uses)
        .with("scope_ns", scoped)
        .with("join_ns", joined)
        .print(&runtime);
    Ok(())
}
