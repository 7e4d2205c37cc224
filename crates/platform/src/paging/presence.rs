//! The part of the shootdown protocol (see `shootdown.rs`) in which the order of memory accesses
//! matters, small enough for loom to try all orders: `tests/order.rs`.

#[cfg(not(all(test, loom)))]
use core::sync::atomic::{fence, AtomicU64, Ordering};
#[cfg(all(test, loom))]
use loom::sync::atomic::{fence, AtomicU64, Ordering};

/// How often a table has been narrowed.
pub struct Generation(AtomicU64);

/// Which table one CPU uses right now, and how many stays it has ended. Only that CPU writes it.
pub struct Presence {
    using: AtomicU64,
    stays: AtomicU64,
}

/// What another CPU saw of a [`Presence`].
#[derive(Clone, Copy, Debug, Default)]
pub struct ObservedStay {
    pub using: u64,
    stays: u64,
}

/// No stay. Tables have other names.
pub const NOTHING: u64 = 0;

impl Generation {
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Generation(AtomicU64::new(0))
    }

    pub fn latest(&self) -> u64 {
        // Acquire: pairs with the Release in `bump`; who knows of a narrowing also sees it.
        self.0.load(Ordering::Acquire)
    }

    /// The table has been narrowed. One CPU at a time (under the log's lock); what the CPUs publish is
    /// looked at afterwards.
    pub fn bump(&self) {
        self.0.store(self.0.load(Ordering::Relaxed) + 1, Ordering::Release);
        // Step a before step b; pairs with the fence in `enter`.
        fence(Ordering::SeqCst);
    }
}

impl Presence {
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Presence { using: AtomicU64::new(NOTHING), stays: AtomicU64::new(0) }
    }

    /// Begins a stay; gives the generation to have caught up with before the table is used.
    pub fn enter(&self, table: u64, generation: &Generation) -> u64 {
        self.using.store(table, Ordering::Relaxed);
        // Step 1 before step 2; pairs with the fence in `bump`.
        fence(Ordering::SeqCst);
        generation.latest()
    }

    /// Ends the stay.
    pub fn leave(&self) {
        // Release: what was done during the stay came before; pairs with the Acquire loads below.
        self.using.store(NOTHING, Ordering::Release);
        self.stays.store(self.stays.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    /// By another CPU, after [`Generation::bump`].
    pub fn look(&self) -> ObservedStay {
        // In this order, see the header comment of `shootdown.rs`.
        let stays = self.stays.load(Ordering::Acquire);
        ObservedStay { stays, using: self.using.load(Ordering::Acquire) }
    }

    /// Whether the stay that was seen has ended.
    pub fn has_left(&self, seen: ObservedStay) -> bool {
        self.stays.load(Ordering::Acquire) != seen.stays
    }
}
