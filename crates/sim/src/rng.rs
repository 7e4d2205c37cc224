//! SplitMix64 (Steele, Lea, Flood 2014): small, fast, good enough to shuffle a schedule.

use std::sync::Mutex;

/// Random numbers that a seed determines. Shared by reference.
pub struct Rng(Mutex<u64>);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Rng(Mutex::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d))
    }

    pub fn next(&self) -> u64 {
        let mut state = self.0.lock().expect("no panic while drawing");
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = *state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
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
