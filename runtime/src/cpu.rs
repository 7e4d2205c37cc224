//! What the runtime knows of a CPU.

use crate::sys;
use std::{
    os::fd::OwnedFd,
    sync::atomic::{AtomicBool, AtomicI64, Ordering::*},
};

pub(crate) struct Cpu {
    /// As the system numbers it.
    pub number: usize,
    /// The kernel or node that it belongs to.
    pub group: usize,
    /// Its counter, with user-monitored threads.
    pub counter: Option<OwnedFd>,
    /// Workers bound to it that can go on, by what was read from the counter.
    ready: AtomicI64,
    /// A worker was woken for it, and its unblock was not read yet: so that nobody wakes a second one.
    scheduled: AtomicBool,
}

impl Cpu {
    pub fn new(number: usize, group: usize, counter: Option<OwnedFd>) -> Cpu {
        // Each CPU begins with a worker, which has not begun yet.
        Cpu { number, group, counter, ready: AtomicI64::new(0), scheduled: AtomicBool::new(true) }
    }

    /// Reads what has happened since the counter was last read, by whomever. Who reads at the same time gets another part of it, so all is added once.
    pub fn refresh(&self) -> i64 {
        let Some(counter) = &self.counter else { return 0 };
        let count = sys::take(counter);
        let (blocks, unblocks) = (count as u32, (count >> 32) as u32);
        if unblocks > 0 {
            self.scheduled.store(false, SeqCst);
        }
        match count {
            0 => self.ready(),
            _ => {
                let change = i64::from(unblocks) - i64::from(blocks);
                self.ready.fetch_add(change, SeqCst) + change
            }
        }
    }

    /// Counts as the kernel would.
    #[cfg(test)]
    pub fn count(&self, what: u64) {
        self.counter.iter().for_each(|counter| sys::add(counter, what));
    }

    pub fn ready(&self) -> i64 {
        self.ready.load(SeqCst)
    }

    /// All its workers wait, and nobody was woken for it.
    pub fn stalls(&self) -> bool {
        self.counter.is_some() && self.ready() <= 0 && !self.scheduled.load(SeqCst)
    }

    /// A worker that was woken for it is there, or can't come.
    pub fn note_arrived(&self) {
        self.refresh();
        self.scheduled.store(false, SeqCst);
    }

    pub fn note_scheduled(&self) {
        if self.counter.is_some() {
            self.scheduled.store(true, SeqCst);
        }
    }
}
