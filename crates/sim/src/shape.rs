//! What a simulated machine is like.

use crate::{port::Weather, rng::Rng};

/// A machine; all of it follows from the seed unless the caller says otherwise.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub seed: u64,
    pub kernels: usize,
    /// CPUs of each kernel.
    pub cpus: usize,
    /// Frames of each kernel.
    pub frames: u64,
    /// So few frames that allocations fail, of page tables too.
    pub scarce: bool,
    pub weather: Weather,
}

impl Shape {
    /// The machine of a seed, with so many kernels.
    pub fn of(seed: u64, kernels: usize) -> Self {
        let rng = Rng::new(seed ^ 0xc0b);
        let scramble = rng.one_in(3);
        let longest = if scramble { 1 << 20 } else { *rng.pick(&[64, 256, 4096]) };
        let weather = Weather { room: *rng.pick(&[1, 2, 4, 1000]), longest, delay: *rng.pick(&[0, 3, 20]), scramble };
        let (cpus, scarce) = (1 + rng.below(3), rng.one_in(5));
        let frames = if scarce { 60 } else { 4096 };
        Shape { seed, kernels, cpus, frames, scarce, weather }
    }

    /// The same in weather that hides nothing: one CPU, no delays, enough of everything.
    pub fn calm(self) -> Self {
        let weather = Weather { room: 1000, longest: 1 << 20, delay: 0, scramble: false };
        Shape { cpus: 1, frames: 4096, scarce: false, weather, ..self }
    }
}

/// Kernels of the machine of a seed when nobody says how many: 2 to 16, mostly few, for most of what can go
/// wrong needs two or three, and those are the fastest.
pub fn kernels(seed: u64) -> usize {
    *Rng::new(seed ^ 0x6b).pick(&[2, 2, 2, 3, 3, 3, 4, 4, 5, 6, 7, 8, 9, 11, 13, 16])
}
