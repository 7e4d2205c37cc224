//! A few hundred random programs. More: `cargo run --release -p sim -- --seeds 100000`.

use sim::memory::run_seed;

fn run(seeds: std::ops::Range<u64>, kernels: usize) {
    for seed in seeds {
        let run = std::panic::catch_unwind(|| run_seed(seed, kernels, 120, false));
        assert!(run.is_ok(), "replay: cargo run -p sim -- --seed {seed} --kernels {kernels} --trace");
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
    assert_eq!(run_seed(77, 3, 60, false), run_seed(77, 3, 60, false));
}
