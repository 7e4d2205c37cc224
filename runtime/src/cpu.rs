//! What the runtime knows of a CPU.

use crate::sys;
use std::{
    os::fd::OwnedFd,
    sync::atomic::{AtomicBool, AtomicU32, Ordering::*},
};

pub(crate) struct Cpu {
    /// As the system numbers it.
    pub number: usize,
    /// The kernel or node that it belongs to.
    pub group: usize,
    /// What is counted on it, with user-monitored threads.
    counter: Option<Counter>,
    /// Unblocks that somebody has seen.
    seen: AtomicU32,
    /// A worker was woken for it, and its unblock was not seen yet: so that nobody wakes a second one.
    scheduled: AtomicBool,
}

/// Who sleeps on a counter waits for its descriptor; who only looks reads the sums, without a system call.
pub(crate) struct Counter {
    pub file: OwnedFd,
    pub sums: sys::Sums,
    /// If `file` is this ring buffer, and no eventfd.
    pub ring: Option<sys::bpf::Ring>,
}

impl Cpu {
    pub fn new(number: usize, group: usize, counter: Option<Counter>) -> Cpu {
        // Each CPU begins with a worker, which has not begun yet.
        Cpu { number, group, counter, seen: AtomicU32::new(0), scheduled: AtomicBool::new(true) }
    }

    /// What a leader waits for.
    pub fn file(&self) -> Option<&OwnedFd> {
        self.counter.as_ref().map(|counter| &counter.file)
    }

    /// Empties what a leader waits for, so that it can wait anew. Before it looks: what is counted afterwards wakes it again.
    pub fn hear(&self) {
        match &self.counter {
            Some(Counter { ring: Some(ring), .. }) => ring.take_all(),
            Some(Counter { file, .. }) => _ = sys::take(file),
            None => {}
        }
    }

    /// Looks at what has happened. Answers how many of its workers can go on.
    pub fn refresh(&self) -> i64 {
        let Some(counter) = &self.counter else { return 0 };
        let (blocks, unblocks) = counter.sums.look();
        if self.advance(unblocks) {
            self.scheduled.store(false, SeqCst);
        }
        unblocks.wrapping_sub(blocks) as i32 as i64
    }

    /// Whether these are more unblocks than anybody has seen. Who looked earlier may come later: then they are not.
    fn advance(&self, unblocks: u32) -> bool {
        let later = |seen: u32| (unblocks.wrapping_sub(seen) as i32 > 0).then_some(unblocks);
        self.seen.fetch_update(SeqCst, Relaxed, later).is_ok()
    }

    /// Counts as the kernel would.
    #[cfg(test)]
    pub fn count(&self, what: u64) {
        if let Some(counter) = &self.counter {
            counter.sums.add(what);
            sys::add(&counter.file, what);
        }
    }

    /// All its workers wait, and nobody was woken for it.
    pub fn stalls(&self) -> bool {
        self.counter.is_some() && self.refresh() <= 0 && !self.scheduled.load(SeqCst)
    }

    /// A worker that was woken for it is there, or can't come.
    pub fn note_arrived(&self) {
        self.refresh();
        self.scheduled.store(false, SeqCst);
    }

    pub fn note_scheduled(&self) {
        if self.counter.is_some() {
            self.refresh();
            self.scheduled.store(true, SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_look_that_comes_late_is_no_news() {
        let cpu = Cpu::new(0, 0, None);
        assert!(cpu.advance(5) && cpu.advance(6) && !cpu.advance(5) && !cpu.advance(6));
        // The sums begin anew after 2^32.
        cpu.seen.store(u32::MAX, SeqCst);
        assert!(cpu.advance(1) && !cpu.advance(u32::MAX) && cpu.advance(2));
    }
}
