//! A few hundred random programs. More: `cob sim --seeds 1000000`.

use sim::{
    memory::Program,
    scenario::{Kind, Log, Plan, Scenario},
};

const MEMORY: Kind = Kind::of::<Program>();

fn run(seeds: std::ops::Range<u64>, kernels: usize) {
    for seed in seeds {
        let run = (MEMORY.run)(&Plan::new(seed, kernels, Program::STEPS), Log::Nothing);
        assert_eq!(run.err(), None, "replay: cargo run -p sim -- memory --seed {seed} --kernels {kernels} --trace");
    }
}

#[test]
fn one_kernel() {
    run(1..80, 1);
}

#[test]
fn two_kernels() {
    run(1000..1080, 2);
}

#[test]
fn four_kernels() {
    run(2000..2080, 4);
}

#[test]
fn nine_kernels() {
    run(3000..3020, 9);
}

#[test]
fn a_seed_determines_the_run() {
    let run = || (MEMORY.run)(&Plan::new(77, 3, 60), Log::Nothing).unwrap();
    assert_eq!(run(), run());
}
