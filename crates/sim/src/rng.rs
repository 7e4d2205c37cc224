//! SplitMix64 (Steele, Lea, Flood 2014): small, fast, good enough to shuffle a schedule.

use std::sync::atomic::{AtomicU64, Ordering};

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Random numbers that a seed determines. Shared by reference.
pub struct Rng(AtomicU64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        let rng = Rng(AtomicU64::new(0));
        rng.reseed(seed);
        rng
    }

    /// From here on the same numbers as a new one of this seed.
    pub fn reseed(&self, seed: u64) {
        self.0.store(seed.wrapping_mul(STEP) ^ 0x5851_f42d_4c95_7f2d, Ordering::Relaxed);
    }

    pub fn next(&self) -> u64 {
        scramble(self.0.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP))
    }

    /// Below `bound`, which is not 0.
    pub fn below(&self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// True once in `n`.
    pub fn one_in(&self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub fn pick<'a, T>(&self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}

/// A seed from several numbers.
pub fn mix(numbers: &[u64]) -> u64 {
    numbers.iter().fold(0, |mixed, number| scramble(mixed ^ number.wrapping_add(STEP)))
}

fn scramble(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
