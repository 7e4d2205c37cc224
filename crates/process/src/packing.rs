//! Emptying kernels, where the policy does that ([`Placement::packs`](crate::placement::Placement::packs)): a thread that has a CPU here goes to a fuller kernel.

use crate::{balance::Destination, placement::Candidate, System, Thread};
use alloc::{sync::Arc, vec::Vec};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use machine::KernelId;

/// Time between two looks; each sends one thread away at most.
const LOOK_NS: u64 = 200_000_000;

/// When this kernel looks next.
#[derive(Default)]
pub(crate) struct Packing(AtomicU64);

impl System {
    /// Called by a CPU on which no thread waits: may send the thread away that is moved most cheaply.
    pub(crate) fn pack(&self) {
        if !self.placement.packs() {
            return;
        }
        let (now, due) = (self.now(), self.placing.packing.0.load(Relaxed));
        if now < due || self.placing.packing.0.compare_exchange(due, now + LOOK_NS, Relaxed, Relaxed).is_err() {
            return;
        }
        let threads: Vec<Arc<Thread>> = {
            let threads = self.threads.lock();
            threads.values().filter(|thread| thread.is_settled(now)).cloned().collect()
        };
        let goes = |thread: &&Arc<Thread>| {
            let affinity = thread.state.lock().affinity.clone();
            self.fuller(thread, &affinity).is_some()
        };
        if let Some(thread) = threads.iter().filter(goes).min_by_key(|thread| thread.state.lock().usage.minor_faults) {
            thread.go_later(Destination::Packing);
            // It may be in user mode on another CPU, which nothing interrupts while it has one thread.
            thread.wake();
        }
    }

    /// Where the policy sends a thread of this kernel.
    pub(crate) fn fuller(&self, thread: &Thread, affinity: &abi::CpuSet) -> Option<KernelId> {
        let pack = |all: &[Candidate<'_>]| self.placement.pack(self.kernel, all);
        self.with_candidates(affinity, thread.class().worth(), pack).flatten().filter(|&to| to != self.kernel)
    }
}
