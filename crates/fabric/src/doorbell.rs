//! The doorbell: when a sender must interrupt the receiver, and when it need not.
//!
//! # Problem
//!
//! An interrupt costs the receiver about as much as ten messages, so a receiver that is going to look at
//! its lanes anyway says so on the board and is left alone. It must never go to sleep with
//! a message in a lane and no interrupt under way.
//!
//! # Idea
//!
//! One word per kernel: how many of its CPUs are polling, and a bit RUNG that says that an interrupt is
//! already on its way. The dangerous interleaving:
//!
//! ```text
//!   sender                        receiver
//!                                 lanes are empty
//!   put message into lane
//!   word says: polling
//!   -> no interrupt
//!                                 word := not polling
//!                                 halt                      <- sleeps on a message
//! ```
//!
//! Therefore the receiver looks at the lanes *again* after it has changed the word, and both
//! sides put a full barrier between their write and their read (Dekker's scheme): the sender writes
//! the slot, then reads the word; the receiver writes the word, then reads the slots. Whatever the
//! order, at least one sees the other's write: the sender rings, or the receiver finds the message.
//!
//! RUNG works the same way. A sender that finds it set does not ring, because the receiver will,
//! after that interrupt, first clear RUNG and then look at the lanes; since the sender saw RUNG
//! still set after writing its slot, that look finds the message.

use crate::sync::{fence, AtomicU32, AtomicU64, Ordering};

const RUNG: u32 = 1 << 31;

/// A kernel's doorbell word, on the board. Zeroed memory is valid: not polling, not rung.
#[repr(C, align(64))]
pub struct Doorbell {
    word: AtomicU32,
    rung_at: AtomicU64,
}

impl Doorbell {
    /// Nobody has rung, and the receiver is not polling: the first sender interrupts.
    #[allow(clippy::new_without_default)] // See `Slot::new`.
    pub fn new() -> Self {
        Doorbell { word: AtomicU32::new(0), rung_at: AtomicU64::new(0) }
    }

    /// Sender: it interrupts at `now`, in ns of the machine's clock.
    pub fn rings(&self, now: u64) {
        self.rung_at.store(now, Ordering::Relaxed);
    }

    /// Receiver: when it was interrupted last. A hint: nothing orders it after the interrupt.
    pub fn rung_at(&self) -> u64 {
        self.rung_at.load(Ordering::Relaxed)
    }

    /// Receiver: a CPU will look at the lanes from now on. Counted, for clusters.
    pub fn start_polling(&self) {
        self.word.fetch_add(1, Ordering::SeqCst);
        // Clears RUNG before the lanes are read; pairs with the exchange in `must_ring`.
        self.word.fetch_and(!RUNG, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Receiver: a CPU will stop looking. The caller must look at the lanes once more afterwards.
    pub fn stop_polling(&self) {
        let before = self.word.fetch_sub(1, Ordering::SeqCst);
        debug_assert!(before & !RUNG > 0, "stop_polling without start_polling");
        // Pairs with the fence in `must_ring`.
        fence(Ordering::SeqCst);
    }

    /// Sender, after it has put a message into a lane: true if it must interrupt the receiver.
    pub fn must_ring(&self) -> bool {
        // The slot written before is visible before the word is read; pairs with the fences above.
        fence(Ordering::SeqCst);
        if self.word.load(Ordering::Relaxed) != 0 {
            return false;
        }
        // Of several senders at the same time one rings. Compare-exchange, because RUNG may only
        // be set by one who really rings: the others rely on it.
        self.word.compare_exchange(0, RUNG, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }
}
