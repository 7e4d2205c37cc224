//! Interrupts. The kernel runs with interrupts off except in user mode and in `idle`, so a handler
//! never meets a lock held by its own CPU and may be an ordinary function; it should still only
//! acknowledge its device and wake somebody.

use crate::{apic, paging, percpu};
use alloc::{sync::Arc, vec::Vec};
use core::arch::asm;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use machine::{sync::Lock, CpuId};

bitflags::bitflags! {
    /// What happened on a CPU since it last looked.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct Events: u32 {
        const TIMER = 1;
        /// Another kernel has put something into our lanes.
        const DOORBELL = 2;
        /// Another CPU of this kernel wants this one to look around.
        const KICK = 4;
        const DEVICE = 8;
    }
}

/// Vectors for devices: above the exceptions, below the kernel's own.
pub const FIRST_DEVICE: u8 = 0x30;
const LAST_DEVICE: u8 = 0xef;

type Handler = Arc<dyn Fn() + Send + Sync>;

static NEXT_VECTOR: AtomicU32 = AtomicU32::new(FIRST_DEVICE as u32);
static HANDLERS: Lock<Vec<(u8, Handler)>> = Lock::new(Vec::new());

/// A vector nobody else of this kernel uses; None when all are taken.
pub fn alloc_vector() -> Option<u8> {
    let next = |n: u32| (n <= u32::from(LAST_DEVICE)).then_some(n + 1);
    NEXT_VECTOR.fetch_update(Relaxed, Relaxed, next).ok().map(|vector| vector as u8)
}

/// Calls `handler` on every interrupt of `vector`, on the CPU that got it.
pub fn on_irq(vector: u8, handler: impl Fn() + Send + Sync + 'static) {
    HANDLERS.lock().push((vector, Arc::new(handler)));
}

/// Address and data that make a device's message interrupt arrive as `vector` at `cpu` of this kernel
/// (SDM 3A, 11.11).
pub fn msi_message(cpu: CpuId, vector: u8) -> Option<(u64, u32)> {
    let apic = percpu::of(cpu)?.apic;
    // The destination has eight bits without interrupt remapping.
    (apic < 256).then_some((0xfee0_0000 | u64::from(apic) << 12, u32::from(vector)))
}

/// What happened on this CPU since the last call.
pub fn take_events() -> Events {
    Events::from_bits_truncate(percpu::current().take_events())
}

/// Whether [`take_events`] would say something.
pub fn has_events() -> bool {
    percpu::current().events.load(Relaxed) != 0
}

fn note(event: Events) {
    percpu::current().events.fetch_or(event.bits(), Relaxed);
}

pub(crate) fn dispatch(vector: u8) {
    match vector {
        apic::SPURIOUS => return, // not in service: must not be acknowledged (SDM 3A, 11.9)
        apic::TIMER => {
            percpu::current().alarm.store(0, Relaxed);
            note(Events::TIMER);
        }
        apic::DOORBELL => note(Events::DOORBELL),
        apic::KICK => note(Events::KICK),
        apic::TLB => paging::on_tlb_interrupt(),
        _ => {
            note(Events::DEVICE);
            let matching = |(number, _): &&(u8, Handler)| *number == vector;
            let handler = HANDLERS.lock().iter().find(matching).map(|(_, handler)| handler.clone());
            match handler {
                Some(handler) => handler(),
                None => log::warn!("interrupt {vector:#x} without a handler"),
            }
        }
    }
    apic::end_of_interrupt();
}

/// Takes the interrupts that are pending. The kernel runs with them off; its loop opens this moment each
/// turn, so that a CPU with nothing but kernel work still hears its doorbell.
pub fn accept_interrupts() {
    // SAFETY: as in `idle`. The `nop` is the one instruction before which `sti` holds interrupts back.
    unsafe { asm!("sti", "nop", "cli", options(nostack)) }
}

/// Halts until an interrupt. The caller has found nothing to do with interrupts off; one that came
/// since is still pending, and `sti` takes effect only after the `hlt` has begun, so none is missed.
pub fn idle() {
    paging::idle();
    // SAFETY: handlers expect exactly this place; no lock is held (the kernel holds none across here).
    unsafe { halt_until_interrupt() }
}

unsafe extern "C" {
    fn halt_until_interrupt();
    static halted: u8;
}

/// Whether a CPU that is interrupted at `rip` was in the halt of [`idle`].
pub(crate) fn is_halt(rip: u64) -> bool {
    rip == &raw const halted as u64
}
