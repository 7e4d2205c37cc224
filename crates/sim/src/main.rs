//! Random programs on simulated kernels. A seed that fails is shrunk, and the command that replays what is left of it
//! is printed.
#![forbid(unsafe_code)]

use sim::{
    recorder,
    scenario::{Kind, Log, Plan, Step},
    seeds::{self, Seeds},
    shrink::shrink,
    KINDS, USUAL,
};
use std::process::ExitCode;

const USAGE: &str = "sim [KIND...] [--seed S] [--seeds N] [--kernels K] [--steps T]     run N seeds from S on
sim KIND --seed S --kernels K --keep STEPS [--luck L] [--calm]         one run, as a failure prints it
sim --program FILE    a program of calls that failed: made shorter, and written in C
sim --baseline    messages per operation, beside those of Popcorn Linux
    --trace      print every operation; --messages: every message too; --events: every event that kernels trace
    --check-trace  what the kernels trace must be possible (--events includes it)
    --no-shrink  say only which seed failed";

struct Options {
    kinds: Vec<Kind>,
    seed: u64,
    seeds: u64,
    kernels: Option<usize>,
    steps: Option<u32>,
    keep: Option<Vec<Step>>,
    luck: u64,
    calm: bool,
    log: Log,
    shrink: bool,
    check_trace: bool,
}

fn options() -> Result<Options, String> {
    let mut options = Options {
        kinds: Vec::new(),
        seed: 1,
        seeds: 1,
        kernels: None,
        steps: None,
        keep: None,
        luck: 0,
        calm: false,
        log: Log::Nothing,
        shrink: true,
        check_trace: false,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{name} needs a value"));
        let number = |text: String| text.parse::<u64>().map_err(|_| format!("{text} is no number"));
        match name.as_str() {
            "--trace" => options.log = Log::Operations,
            "--messages" => options.log = Log::Messages,
            "--check-trace" => options.check_trace = true,
            "--events" => options.log = Log::Events,
            "--no-shrink" => options.shrink = false,
            "--calm" => options.calm = true,
            "--seed" => options.seed = number(value()?)?,
            "--seeds" => options.seeds = number(value()?)?,
            "--luck" => options.luck = number(value()?)?,
            "--kernels" => options.kernels = Some(number(value()?)?.clamp(1, sim::port::MAX_KERNELS as u64) as usize),
            "--steps" => options.steps = Some(number(value()?)?.min(1 << 20) as u32),
            "--keep" => options.keep = Some(value()?.split(',').map(str::parse).collect::<Result<_, _>>()?),
            kind => {
                let known = KINDS.iter().find(|known| known.name == kind);
                options.kinds.push(*known.ok_or(format!("no option {kind}\n{USAGE}"))?);
            }
        }
    }
    if options.kinds.is_empty() {
        options.kinds = USUAL.to_vec();
    }
    Ok(options)
}

/// The command that does this again.
fn replay(kind: Kind, plan: &Plan) -> String {
    let keep = match plan.steps.is_empty() {
        true => "--steps 0".to_string(),
        false => format!("--keep {}", plan.steps.iter().map(Step::to_string).collect::<Vec<_>>().join(",")),
    };
    let luck = if plan.luck == 0 { String::new() } else { format!(" --luck {}", plan.luck) };
    let calm = if plan.calm { " --calm" } else { "" };
    let check = if recorder::are_machines_recorded() { " --check-trace" } else { "" };
    let (seed, kernels) = (plan.seed, plan.kernels);
    let options = format!("--seed {seed} --kernels {kernels} {keep}{luck}{calm}{check} --trace");
    format!("cargo run --release -p sim -- {} {options}", kind.name)
}

fn one(kind: Kind, plan: &Plan, log: Log) -> ExitCode {
    log.line(|| format!("{} on {:?}", kind.name, plan.shape()));
    match (kind.run)(plan, log) {
        Ok(tally) => {
            println!("{} operations, {} messages: all as the model says", tally.operations, tally.messages);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("FAILED: {error}");
            ExitCode::FAILURE
        }
    }
}

fn many(kind: Kind, options: &Options) -> ExitCode {
    let Options { seed: first, seeds: count, kernels, .. } = *options;
    let steps = options.steps.unwrap_or(kind.steps);
    let start = std::time::Instant::now();
    let failure = match seeds::run(kind, Seeds { first, count, kernels, steps }) {
        Ok(tally) => {
            let rate = tally.operations as f64 / start.elapsed().as_secs_f64();
            println!(
                "{}: {count} seeds, {} operations, {} messages, {rate:.0} operations/s: all as the model says",
                kind.name, tally.operations, tally.messages
            );
            return ExitCode::SUCCESS;
        }
        Err(failure) => failure,
    };
    let plan = failure.plan;
    eprintln!("{}: seed {} on {} kernels failed: {}", kind.name, plan.seed, plan.kernels, failure.error);
    if !options.shrink {
        let check = if recorder::are_machines_recorded() { " --check-trace" } else { "" };
        let options = format!("--seed {} --kernels {} --steps {steps}{check} --trace", plan.seed, plan.kernels);
        eprintln!("replay: sim {} {options}", kind.name);
        return ExitCode::FAILURE;
    }
    let (steps, kernels, plan_seed) = (plan.steps.len(), plan.kernels, plan.seed);
    let shrunk = shrink(kind, plan, failure.error, 20_000);
    let (left, on) = (shrunk.plan.steps.len(), shrunk.plan.kernels);
    eprintln!("shrunk from {steps} steps on {kernels} kernels to {left} on {on}, in {} runs:", shrunk.runs);
    let _ = one(kind, &shrunk.plan, Log::Operations);
    eprintln!("replay: {}", replay(kind, &shrunk.plan));
    if kind.name == "calls" {
        let numbers = shrunk.plan.steps.iter().map(|step| step.number as usize);
        println!("{}", sim::calls::in_c(plan_seed, numbers, &shrunk.error));
    }
    ExitCode::FAILURE
}

/// A file that `guided` left.
fn program(file: &str) -> Result<String, String> {
    let bytes = std::fs::read(file).map_err(|error| format!("{file}: {error}"))?;
    sim::calls::shortened(fuzz::program::Program::decode(&bytes).ok_or("this is no program")?)
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [option, file] = &words[..] {
        if option == "--program" {
            return match program(file) {
                Ok(text) => {
                    print!("{text}");
                    ExitCode::FAILURE
                }
                Err(error) => {
                    eprintln!("sim: {error}");
                    ExitCode::SUCCESS
                }
            };
        }
    }
    let tells = match words.join(" ").as_str() {
        "--baseline" => Some(sim::baseline::table()),
        "--help" | "-h" => Some(format!("{USAGE}\n")),
        _ => None,
    };
    if let Some(text) = tells {
        print!("{text}");
        return ExitCode::SUCCESS;
    }
    let options = match options() {
        Ok(options) => options,
        Err(error) => {
            eprintln!("sim: {error}");
            return ExitCode::from(2);
        }
    };
    recorder::record_machines(options.check_trace || options.log == Log::Events);
    let single = options.keep.is_some() || options.log.on();
    for kind in &options.kinds {
        let code = if single {
            let kernels = options.kernels.unwrap_or_else(|| sim::shape::kernels(options.seed));
            let mut plan = Plan::new(options.seed, kernels, options.steps.unwrap_or(kind.steps));
            plan.steps = options.keep.clone().unwrap_or(plan.steps);
            (plan.luck, plan.calm) = (options.luck, options.calm);
            one(*kind, &plan, options.log)
        } else {
            many(*kind, &options)
        };
        if code != ExitCode::SUCCESS {
            return code;
        }
    }
    ExitCode::SUCCESS
}
