//! What a kernel shows on the board of its being alive, and the interrupt that asks it (suspicion.rs has the
//! reasons). A probe is a non-maskable interrupt to the CPU that takes doorbells: it comes through where
//! everything else waits.

use crate::panic::{self, CpuPosition};
use crate::{arch, board, patching, percpu};
use core::sync::atomic::Ordering::*;
use machine::KernelId;

/// This kernel is well. Once a second.
pub fn beat() {
    // Release: pairs with the Acquire of `seen`, which reads the answers after the beat.
    board::entry(crate::kernel()).pulse.0.heartbeat.fetch_add(1, Release);
}

/// Beats and answers of another kernel; None if it does not run, or has not begun to beat in this boot generation.
pub fn seen(kernel: KernelId) -> Option<(u64, u32)> {
    let entry = board::entry(kernel);
    let answered = entry.watch.0.answered.load(Acquire);
    let beat = entry.pulse.0.heartbeat.load(Acquire);
    (entry.state() == board::State::Running && beat != 0).then_some((beat, answered))
}

/// Asks whether the CPU of `kernel` still executes.
pub fn probe(kernel: KernelId) {
    let entry = board::entry(kernel);
    if entry.state() == board::State::Running {
        entry.watch.0.probed.fetch_add(1, AcqRel);
        arch::send_unmaskable(entry.lifecycle().doorbell.load(Relaxed));
    }
}

/// `kernel` hangs: its own CPU ends it, at the place where it is, as in a panic.
pub fn condemn(kernel: KernelId) {
    let entry = board::entry(kernel);
    entry.watch.0.condemned.store(entry.lifecycle().boot_generation.load(Relaxed), Release);
    probe(kernel);
}

/// Where a non-maskable interrupt has found this CPU.
#[derive(Clone, Copy)]
pub(crate) enum Found {
    UserMode,
    InKernel(CpuPosition),
}

/// A non-maskable interrupt has come: from a sibling that wants this CPU to stop, or to wait while it changes code, from a kernel that asks whether this one still executes, or
/// from the host, which interrupts all CPUs to hear where they are, if it was not to take a sample (`sampled`).
pub(crate) fn on_probe(found: Found, sampled: bool) {
    panic::stop_if_asked();
    let entry = board::entry(crate::kernel());
    let watch = &entry.watch.0;
    let condemned = watch.condemned.load(Acquire);
    if condemned != 0 && condemned == entry.lifecycle().boot_generation.load(Relaxed) {
        panic::from_hang(found);
    }
    // Probes go to one CPU. If one of the host's has come together with a probe, the host asks again.
    let probed = watch.probed.load(Acquire);
    let is_probe = percpu::current().hardware_id == entry.lifecycle().doorbell.load(Relaxed)
        && watch.answered.swap(probed, AcqRel) != probed;
    let for_code = patching::wait_while_code_changes(is_probe);
    if !is_probe && !sampled && !for_code {
        panic::say_where(found);
    }
}
