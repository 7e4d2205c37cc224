//! Frames of other kernels, when the own ones run out.
//!
//! Problem: each kernel has memory of its own, and one may be full while the others are nearly empty. To end a process for
//! want of memory that is there would not be Linux.
//!
//! Idea: the mechanism of offered frames, the other way round. A kernel whose memory runs out asks the others, one after
//! another, for a batch of zeroed frames. Who has plenty gives them away for good (`lend`), and they are counted by the
//! kernel that got them until the last user is gone; then they go home in batches like all foreign frames. What exists nowhere else
//! gets them: anonymous memory, private and shared, System V segments, and files in memory (tmpfs, memfd; so also POSIX shared
//! memory). What the kernel itself reads through its direct map must lie at home: page tables, whose entries it and the CPU follow at
//! every fault, and which the death of a lender would take from processes that have nothing there. Pages of the host's files can be
//! dropped instead. So that those do not starve, the others begin to borrow while an eighth is still free
//! ([`Memory::alloc_anywhere`]).
//!
//! Order of what a fault does that finds no frame: borrow from who has plenty; from who can do without; take from the rest at
//! home; drop cached pages; end the heaviest process of the machine (relief.rs). A file in memory stops before: it drops cached
//! pages first, asks only who has plenty, takes at home until a sixteenth is left (`fs::Services`), and then its disk is full.
//! For programs end for want of memory; writing a file only fails.
//!
//! A page of a file may be used by other kernels, too, wherever it lies: it is pinned for them by who has borrowed it, and returns to him
//! before he sends it home. What becomes of it when the lender dies: death.rs.
//!
//! ```text
//! A: fault, memory low        B                             C
//!    borrow 64 ------------>  has no plenty either
//!          <----------------  none
//!    borrow 64 ------------------------------------------>  lends 64
//!          <----------------------------------------------  frames
//!    (in the drain: counted here, in stock)
//!    retried: takes one of the stock
//! ```
//!
//! Dangerous: that the asking thread is killed while the answer is on its way. So the answer is taken by the drain
//! (`call_then`), not by the thread. Two kernels that are both low do not pass frames to and fro: who lends gives only frames of
//! its own, and keeps more than makes it borrow itself, unless all have come to that.

use crate::vm::Shared;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use machine::{CountedFrame, Frame, KernelId};
use messages::vm::BorrowFrames;

/// Frames that are asked for at once: 256 KiB for each message.
const BATCH: u16 = 64;
/// A lender keeps one part in so many of its memory free.
const KEPT: u64 = 4;
/// The same for an urgent request.
const KEPT_IF_URGENT: u64 = 16;
/// When all kernels have been asked in vain, the next so many faults take frames of this kernel without asking.
const PATIENCE: u32 = 64;

/// Remembers requests that were in vain, so that a few faults after one do not ask again.
#[derive(Default)]
pub(crate) struct Hope {
    /// How many more faults do not ask.
    none: AtomicU32,
}

impl Hope {
    fn asks(&self) -> bool {
        // Not below 0: several CPUs may be here.
        self.none.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_err()
    }

    fn learn(&self, lent: bool) {
        self.none.store(if lent { 0 } else { PATIENCE }, Relaxed);
    }
}

impl Shared {
    /// True if somebody gave frames: they are in stock now. `must`: ask again even if it was in vain lately.
    pub async fn borrow(&self, must: bool) -> bool {
        if !must && !self.hope.asks() {
            return false;
        }
        let lent = self.ask_around(false).await || self.ask_around(true).await;
        self.hope.learn(lent);
        lent
    }

    /// The same for files, from who has plenty.
    pub async fn borrow_for_files(&self, must: bool) -> bool {
        if !must && !self.hope_of_files.asks() {
            return false;
        }
        let lent = self.ask_around(false).await;
        self.hope_of_files.learn(lent);
        lent
    }

    async fn ask_around(&self, urgent: bool) -> bool {
        // Who gave last may have more.
        let last = KernelId(self.lender.load(Relaxed));
        let others: Vec<KernelId> = self.endpoint.others().iter().collect();
        let from = others.partition_point(|kernel| *kernel < last);
        for &kernel in others[from..].iter().chain(&others[..from]) {
            let memory = self.memory.clone();
            let question = BorrowFrames { frames: BATCH, urgent };
            let call = self.endpoint.call_then(kernel, question, move |frames| {
                memory.stock(&frames);
                !frames.is_empty()
            });
            if call.await == Ok(true) {
                self.lender.store(kernel.0, Relaxed);
                return true;
            }
        }
        false
    }

    /// Serves a kernel whose memory runs out (`BorrowFrames`).
    pub fn lend_some(&self, to: KernelId, request: BorrowFrames) -> Vec<Frame> {
        let spare = || {
            let (total, free) = self.memory.totals();
            free.saturating_sub(total / if request.urgent { KEPT_IF_URGENT } else { KEPT })
        };
        let wanted = u64::from(request.frames.min(BATCH));
        if spare() < wanted && request.urgent {
            self.reclaim();
        }
        let lend_one = || Some(CountedFrame::from_raw(&*self.memory, self.memory.alloc()?).lend(to));
        (0..spare().min(wanted)).map_while(|_| lend_one()).collect()
    }
}
