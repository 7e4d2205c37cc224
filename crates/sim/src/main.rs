//! `sim --seed S --seeds N --kernels K --steps T [--trace]`: runs random programs; a seed that fails prints
//! the command that replays it.
#![forbid(unsafe_code)]

use std::process::ExitCode;

struct Options {
    seed: u64,
    seeds: u64,
    kernels: Option<usize>,
    steps: usize,
    trace: bool,
}

fn options() -> Result<Options, String> {
    let mut options = Options { seed: 1, seeds: 1, kernels: None, steps: 120, trace: false };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        if name == "--trace" {
            options.trace = true;
            continue;
        }
        let value = arguments.next().ok_or(format!("{name} needs a number"))?;
        let number: u64 = value.parse().map_err(|_| format!("{value} is no number"))?;
        match name.as_str() {
            "--seed" => options.seed = number,
            "--seeds" => options.seeds = number,
            "--kernels" => options.kernels = Some(number.clamp(1, 64) as usize),
            "--steps" => options.steps = number as usize,
            _ => return Err(format!("no option {name}")),
        }
    }
    Ok(options)
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(options) => options,
        Err(error) => {
            eprintln!("sim: {error}");
            return ExitCode::from(2);
        }
    };
    let (mut operations, mut messages) = (0, 0);
    let start = std::time::Instant::now();
    for seed in options.seed..options.seed + options.seeds {
        let kernels = options.kernels.unwrap_or(1 + seed as usize % 5);
        let run = std::panic::catch_unwind(|| sim::memory::run_seed(seed, kernels, options.steps, options.trace));
        let Ok((acts, sent)) = run else {
            eprintln!(
                "seed {seed} failed; replay: cargo run -p sim -- --seed {seed} --kernels {kernels} --steps {} --trace",
                options.steps
            );
            return ExitCode::FAILURE;
        };
        operations += acts;
        messages += sent;
    }
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{} seeds, {operations} operations, {messages} messages, {:.0} operations/s: all as the model says",
        options.seeds,
        operations as f64 / seconds
    );
    ExitCode::SUCCESS
}
