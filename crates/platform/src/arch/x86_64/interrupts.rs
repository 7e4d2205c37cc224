//! Vectors, and the moments in which the kernel takes interrupts.

use super::apic::{self, Signal};
use crate::irq::{self, Events};
use crate::percpu;
use core::arch::asm;
use core::ops::RangeInclusive;
use machine::CpuId;

/// Vectors for devices: above the exceptions, below the kernel's own.
pub const DEVICE_VECTORS: RangeInclusive<u8> = 0x30..=0xef;

const DOORBELL: u8 = Signal::Doorbell as u8;
const KICK: u8 = Signal::Kick as u8;
const FLUSH: u8 = Signal::Flush as u8;

/// Address and data that make a device's message interrupt arrive as `vector` at `cpu` of this kernel
/// (SDM 3A, 11.11).
pub fn message_interrupt(cpu: CpuId, vector: u8) -> Option<(u64, u32)> {
    let apic = percpu::of(cpu)?.hardware_id;
    // The destination has eight bits without interrupt remapping.
    (apic < 256).then_some((0xfee0_0000 | u64::from(apic) << 12, u32::from(vector)))
}

/// An interrupt has come, from the timer, another CPU or a device.
pub(super) fn dispatch(vector: u8) {
    match vector {
        apic::SPURIOUS => return, // not in service: must not be acknowledged (SDM 3A, 11.9)
        apic::TIMER => irq::timer(),
        DOORBELL => irq::note(Events::DOORBELL),
        KICK => irq::note(Events::KICK),
        // It has made the CPU leave user mode, which is what the sender waits for.
        FLUSH => {}
        _ => irq::device(vector),
    }
    apic::end_of_interrupt();
}

/// Takes the interrupts that are pending. The kernel runs with them off; its loop opens this moment each
/// turn, so that a CPU with nothing but kernel work still hears its doorbell.
pub fn accept_interrupts() {
    // SAFETY: as in `halt_until_interrupt`. The `nop` is the one instruction before which `sti` holds interrupts back.
    unsafe { asm!("sti", "nop", "cli", options(nostack)) }
}

/// Halts until an interrupt; one that is pending ends the halt at once, for `sti` takes effect only after the `hlt` has begun.
pub fn halt_until_interrupt() {
    // SAFETY: handlers expect exactly this place; no lock is held (the kernel holds none across here).
    unsafe { halt_with_interrupts() }
}

// SAFETY: trap.s (cpu/) defines these so; no data is read through the names of places.
unsafe extern "C" {
    fn halt_with_interrupts();
    static about_to_halt: u8;
    static halted: u8;
}

/// Where a CPU goes on that an interrupt which can't be masked has found at `pc`. Not in the halt, if it was about to begin one: `sti` holds interrupts back for one instruction, and that may have been
/// the one of the handler's return. An interrupt that was pending would come before the halt, and not end it.
pub(super) fn not_into_halt(pc: u64) -> u64 {
    if pc == &raw const about_to_halt as u64 {
        &raw const halted as u64
    } else {
        pc
    }
}

/// Whether a CPU that is interrupted at `pc` was in the halt of [`halt_until_interrupt`].
pub fn is_halt(pc: u64) -> bool {
    pc == &raw const halted as u64
}
