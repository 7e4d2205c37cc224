//! Random programs of processes, threads and signals. More: `cargo run --release -p sim -- life --seeds 10000`.

use sim::{
    life::Program,
    scenario::{Kind, Log, Plan, Scenario},
};

const LIFE: Kind = Kind::of::<Program>();

fn run(seeds: std::ops::Range<u64>, kernels: usize) {
    for seed in seeds {
        let run = (LIFE.run)(&Plan::new(seed, kernels, Program::STEPS), Log::Nothing);
        assert_eq!(run.err(), None, "replay: cargo run -p sim -- life --seed {seed} --kernels {kernels} --trace");
    }
}

#[test]
fn two_kernels() {
    run(1..30, 2);
}

#[test]
fn three_kernels() {
    run(1..30, 3);
}
