//! Time: nanoseconds since the machine started, from the time-stamp counter, the same on every kernel.
//! The primary measures rates once and puts them on the board; nobody else calibrates.

use crate::{
    apic, board,
    interval::{self, Instruments, Reading},
};
use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use x86_64::instructions::port::Port;

// A kernel's own copies, so that reading the clock touches no line another kernel reads.
static BASE: AtomicU64 = AtomicU64::new(0);
static RATE: AtomicU64 = AtomicU64::new(0);

/// The time-stamp counter, not before earlier instructions.
pub fn ticks() -> u64 {
    let (low, high): (u64, u64);
    // SAFETY: both instructions exist on every x86-64 CPU and touch no memory.
    unsafe { asm!("lfence", "rdtsc", out("rax") low, out("rdx") high, options(nomem, nostack, preserves_flags)) }
    high << 32 | low
}

/// Nanoseconds since the machine started; 0 before the clock is known.
pub fn now() -> u64 {
    let ticks = ticks().saturating_sub(BASE.load(Relaxed));
    ((u128::from(ticks) * u128::from(RATE.load(Relaxed))) >> 32) as u64
}

/// What [`now`] reckons with.
pub fn counter() -> machine::Counter {
    machine::Counter { base: BASE.load(Relaxed), rate: RATE.load(Relaxed) }
}

/// The counter's value at `ns` (TSC-deadline timer).
pub fn ticks_at(ns: u64) -> u64 {
    let rate = u128::from(RATE.load(Relaxed).max(1));
    BASE.load(Relaxed).saturating_add(((u128::from(ns) << 32) / rate) as u64)
}

/// Takes over what the primary measured.
pub fn adopt() {
    let header = board::header();
    BASE.store(header.tsc_base.load(Relaxed), Relaxed);
    RATE.store(header.tsc_rate.load(Relaxed), Relaxed);
}

/// Rates of the time-stamp counter and of the APIC's timer in kHz, for the log.
pub fn rates() -> (u64, u64) {
    let header = board::header();
    let tsc = (1_000_000u128 << 32) / u128::from(header.tsc_rate.load(Relaxed).max(1));
    let apic = (u128::from(header.apic_rate.load(Relaxed)) * 1_000_000) >> 32;
    (tsc as u64, apic as u64)
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
    let rates = hypervisor_rates().or_else(cpu_rates).or_else(measure);
    let (tsc_khz, apic_khz) = rates.expect("neither CPUID nor an interval timer tells how fast the clock runs");
    let header = board::header();
    header.tsc_base.store(start, Relaxed);
    header.tsc_rate.store(((1_000_000u128 << 32) / u128::from(tsc_khz.max(1))) as u64, Relaxed);
    header.apic_rate.store(((u128::from(apic_khz) << 32) / 1_000_000) as u64, Relaxed);
    adopt();
}

/// KVM and VMware tell both rates (leaf 0x40000010): no time lost measuring.
fn hypervisor_rates() -> Option<(u64, u64)> {
    use core::arch::x86_64::__cpuid;
    let hypervisor = __cpuid(1).ecx >> 31 == 1;
    if !hypervisor || __cpuid(0x4000_0000).eax < 0x4000_0010 {
        return None;
    }
    let leaf = __cpuid(0x4000_0010);
    (leaf.eax != 0 && leaf.ebx != 0).then_some((leaf.eax.into(), leaf.ebx.into()))
}

/// Newer Intel CPUs tell the rate of the counter (SDM 3B, 19.7.3). Only with a deadline timer, which needs
/// no other rate: what the countdown timer runs at is not told reliably.
fn cpu_rates() -> Option<(u64, u64)> {
    use core::arch::x86_64::__cpuid;
    if __cpuid(0).eax < 0x15 || !apic::has_deadline() {
        return None;
    }
    let leaf = __cpuid(0x15);
    let (denominator, numerator, crystal) = (u64::from(leaf.eax), u64::from(leaf.ebx), u64::from(leaf.ecx));
    let known = denominator != 0 && numerator != 0 && crystal != 0;
    known.then(|| (crystal * numerator / denominator / 1000, crystal / 1000))
}

/// Both counters against channel 2 of the interval timer. None if that does not count.
fn measure() -> Option<(u64, u64)> {
    let rates = interval::rates(&mut Ports);
    apic::start_timer(0);
    rates
}

struct Ports;

fn out(port: u16, value: u8) {
    // SAFETY: the interval timer and the speaker gate: no memory is touched.
    unsafe { Port::<u8>::new(port).write(value) }
}

fn read(port: u16) -> u8 {
    // SAFETY: as above.
    unsafe { Port::<u8>::new(port).read() }
}

impl Instruments for Ports {
    fn start(&mut self) {
        out(0x61, read(0x61) & !2 | 1); // gate on, speaker off
        out(0x43, 0b1011_0000); // channel 2, both bytes, mode 0
        out(0x42, 0xff);
        out(0x42, 0xff);
        apic::start_timer(u32::MAX);
    }

    fn read(&mut self) -> Reading {
        let before = ticks();
        out(0x43, 0b1100_1000); // read back status and count of channel 2
        let apic = apic::timer_count();
        let after = ticks();
        // Output up: the count is over. Null count: it has not begun.
        let runs = read(0x42) & 0xc0 == 0;
        let count = u16::from(read(0x42)) | u16::from(read(0x42)) << 8;
        Reading { before, after, apic, left: runs.then_some(count) }
    }
}
