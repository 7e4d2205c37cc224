//! Random programs of futexes and of descriptors. More: `cob sim futex --seeds 10000`, `cob sim files --seeds 10000`.

use sim::{
    order::{Files, Futex, Program},
    scenario::{Kind, Log, Plan},
};

fn run(kind: Kind, seeds: std::ops::Range<u64>, kernels: usize) {
    for seed in seeds {
        let run = (kind.run)(&Plan::new(seed, kernels, kind.steps), Log::Nothing);
        let name = kind.name;
        assert_eq!(run.err(), None, "replay: cargo run -p sim -- {name} --seed {seed} --kernels {kernels} --trace");
    }
}

#[test]
fn futexes() {
    run(Kind::of::<Program<Futex>>(), 1..40, 1);
    run(Kind::of::<Program<Futex>>(), 1..100, 3);
}

#[test]
fn files() {
    run(Kind::of::<Program<Files>>(), 1..40, 1);
    run(Kind::of::<Program<Files>>(), 1..100, 3);
}
