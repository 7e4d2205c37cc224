//! Interrupts. The kernel runs with interrupts off except in user mode and in `idle`, so a handler
//! never meets a lock held by its own CPU and may be an ordinary function; it should still only
//! acknowledge its device and wake somebody.

use crate::{arch, paging, percpu};
use alloc::{sync::Arc, vec::Vec};
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use machine::sync::Lock;

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

type Handler = Arc<dyn Fn() + Send + Sync>;

static NEXT_VECTOR: AtomicU32 = AtomicU32::new(*arch::DEVICE_VECTORS.start() as u32);
static HANDLERS: Lock<Vec<(u8, Handler)>> = Lock::new(Vec::new());

/// A vector nobody else of this kernel uses; None when all are taken.
pub fn alloc_vector() -> Option<u8> {
    let next = |n: u32| (n <= u32::from(*arch::DEVICE_VECTORS.end())).then_some(n + 1);
    NEXT_VECTOR.fetch_update(Relaxed, Relaxed, next).ok().map(|vector| vector as u8)
}

/// Calls `handler` on every interrupt of `vector`, on the CPU that got it.
pub fn on_irq(vector: u8, handler: impl Fn() + Send + Sync + 'static) {
    HANDLERS.lock().push((vector, Arc::new(handler)));
}

/// What happened on this CPU since the last call.
pub fn take_events() -> Events {
    Events::from_bits_truncate(percpu::current().take_events())
}

/// What [`take_events`] would say.
pub fn events() -> Events {
    Events::from_bits_truncate(percpu::current().events.load(Relaxed))
}

pub(crate) fn note(event: Events) {
    percpu::current().events.fetch_or(event.bits(), Relaxed);
}

/// The timer has interrupted this CPU.
pub(crate) fn timer() {
    percpu::current().alarm.store(0, Relaxed);
    note(Events::TIMER);
}

/// A device has interrupted this CPU.
pub(crate) fn device(vector: u8) {
    note(Events::DEVICE);
    let matching = |(number, _): &&(u8, Handler)| *number == vector;
    let handler = HANDLERS.lock().iter().find(matching).map(|(_, handler)| handler.clone());
    match handler {
        Some(handler) => handler(),
        None => log::warn!("interrupt {vector:#x} without a handler"),
    }
}

/// Halts until an interrupt. The caller has found nothing to do with interrupts off; one that came
/// since is still pending, and ends the halt, so none is missed.
pub fn idle() {
    paging::idle();
    arch::halt_until_interrupt();
}
