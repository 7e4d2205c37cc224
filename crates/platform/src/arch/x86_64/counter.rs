//! The time-stamp counter, and how fast it and the APIC's timer run.

use super::apic;
use super::interval::{self, Instruments, Reading};
use core::arch::asm;
use core::arch::x86_64::__cpuid;
use x86_64::instructions::port::Port;

/// The time-stamp counter, not before earlier instructions.
pub fn ticks() -> u64 {
    let (low, high): (u64, u64);
    // SAFETY: both instructions exist on every x86-64 CPU and touch no memory.
    unsafe { asm!("lfence", "rdtsc", out("rax") low, out("rdx") high, options(nomem, nostack, preserves_flags)) }
    high << 32 | low
}

/// Rates of the time-stamp counter and of the APIC's timer in kHz. None: neither CPUID nor an interval timer tells.
pub fn measure_rates() -> Option<(u64, u64)> {
    hypervisor_rates().or_else(cpu_rates).or_else(measure)
}

/// KVM and VMware tell both rates (leaf 0x40000010): no time lost measuring.
fn hypervisor_rates() -> Option<(u64, u64)> {
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
