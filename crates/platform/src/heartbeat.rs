//! What a kernel shows on the board of its being alive, and the interrupt that asks it (suspicion.rs has the
//! reasons). A probe is a non-maskable interrupt to the CPU that takes doorbells: it comes through where
//! everything else waits.

use crate::{apic, board, cpu::Frame, panic};
use core::sync::atomic::Ordering::*;
use machine::KernelId;

/// This kernel is well. Once a second.
pub fn beat() {
    // Release: pairs with the Acquire of `seen`, which reads the answers after the beat.
    board::entry(crate::kernel()).pulse.0.heartbeat.fetch_add(1, Release);
}

/// Beats and answers of another kernel; None if it does not run, or has not begun to beat in this life.
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
        apic::send_nmi(entry.life().doorbell.load(Relaxed));
    }
}

/// `kernel` hangs: its own CPU ends it, at the place where it is, as in a panic.
pub fn condemn(kernel: KernelId) {
    let entry = board::entry(kernel);
    entry.watch.0.condemned.store(entry.life().boots.load(Relaxed), Release);
    probe(kernel);
}

/// A probe has come while this CPU was in the kernel (or in user mode: then `frame` is None).
pub(crate) fn on_probe(frame: Option<&Frame>) {
    panic::stop_if_asked();
    let entry = board::entry(crate::kernel());
    let condemned = entry.watch.0.condemned.load(Acquire);
    if condemned != 0 && condemned == entry.life().boots.load(Relaxed) {
        panic::from_hang(frame);
    }
    entry.watch.0.answered.fetch_add(1, Release);
}
