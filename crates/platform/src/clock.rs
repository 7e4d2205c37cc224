//! Time: nanoseconds since the machine started, from a cycle counter, the same on every kernel.
//! The primary measures rates once and puts them on the board; nobody else calibrates.

use crate::{arch, board};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

// A kernel's own copies, so that reading the clock touches no line another kernel reads.
static BASE: AtomicU64 = AtomicU64::new(0);
static RATE: AtomicU64 = AtomicU64::new(0);

/// Nanoseconds since the machine started; 0 before the clock is known.
pub fn now() -> u64 {
    let ticks = arch::ticks().saturating_sub(BASE.load(Relaxed));
    ((u128::from(ticks) * u128::from(RATE.load(Relaxed))) >> 32) as u64
}

/// What [`now`] reckons with.
pub fn counter() -> machine::Counter {
    machine::Counter { base: BASE.load(Relaxed), rate: RATE.load(Relaxed) }
}

/// The counter's value at `ns`, for a timer that goes by it.
pub fn ticks_at(ns: u64) -> u64 {
    let rate = u128::from(RATE.load(Relaxed).max(1));
    BASE.load(Relaxed).saturating_add(((u128::from(ns) << 32) / rate) as u64)
}

/// Takes over what the primary measured.
pub fn adopt() {
    let header = board::header();
    BASE.store(header.counter_base.load(Relaxed), Relaxed);
    RATE.store(header.counter_rate.load(Relaxed), Relaxed);
}

/// Rates of the counter and of the timer in kHz, for the log.
pub fn rates() -> (u64, u64) {
    let header = board::header();
    let counter = (1_000_000u128 << 32) / u128::from(header.counter_rate.load(Relaxed).max(1));
    let timer = (u128::from(header.timer_rate.load(Relaxed)) * 1_000_000) >> 32;
    (counter as u64, timer as u64)
}

/// Spins for about `ns`.
pub fn delay(ns: u64) {
    let until = now() + ns;
    while now() < until {
        core::hint::spin_loop();
    }
}

/// Measures the rates and publishes them. `start` is the counter when the machine started.
pub fn calibrate(start: u64) {
    let rates = arch::measure_rates();
    let (counter_khz, timer_khz) = rates.expect("nothing tells how fast the clock runs");
    let header = board::header();
    header.counter_base.store(start, Relaxed);
    header.counter_rate.store(((1_000_000u128 << 32) / u128::from(counter_khz.max(1))) as u64, Relaxed);
    header.timer_rate.store(((u128::from(timer_khz) << 32) / 1_000_000) as u64, Relaxed);
    adopt();
}
