//! What a thread is doing, as the letter of /proc/PID/stat says it (man 5 proc).

use crate::{exit::INIT, Thread};
use core::sync::atomic::Ordering::Relaxed;
use messages::inspect::RunState;

impl Thread {
    /// What it is doing. A suspended thread that waits neither in [`Thread::interruptible`] nor in [`Thread::unless_killed`], nor for a disk
    /// (`waits` in fsync and its like, `fetches` in a fault), counts as running: then this or another kernel is at work for it.
    pub fn run_state(&self) -> RunState {
        // A record without a program, which waits for ever.
        if self.tid == INIT {
            return RunState::Interruptible;
        }
        if self.polled.load(Relaxed) || self.waits_for_cpu() {
            return RunState::Runnable;
        }
        if self.fetches.load(Relaxed) {
            return RunState::Uninterruptible;
        }
        let ways = [RunState::Runnable, RunState::Interruptible, RunState::Uninterruptible];
        let now = self.waits.load(Relaxed);
        ways.into_iter().find(|way| *way as u8 == now).unwrap_or(RunState::Runnable)
    }

    /// Says how the thread waits, for /proc, until what it answers is dropped.
    pub fn waits(&self, how: RunState) -> Waits<'_> {
        let before = self.waits.load(Relaxed);
        self.waits.store(how as u8, Relaxed);
        Waits { thread: self, before }
    }
}

/// As long as it exists, a suspended thread is said to wait that way.
pub struct Waits<'a> {
    thread: &'a Thread,
    before: u8,
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.thread.waits.store(self.before, Relaxed);
    }
}
