//! Kernel work and threads take turns when both want one CPU.
//!
//! Problem: what a kernel does for others goes before its threads, for somebody waits for it: messages, parked handlers, timers that are
//! due. Each piece is short, but nothing says how many there are. A thousand threads elsewhere that ask this kernel for a path in a
//! loop, or a thousand sleepers here, are enough for this:
//!
//! ```text
//!   kernel work on CPU 0            threads elsewhere             a thread with a right to CPU 0
//!   answers request 1                                             waits
//!                                   is answered, asks again
//!   answers request 2..1000                                       waits
//!   finds request 1' in the lane                                  waits, for ever
//! ```
//!
//! Idea: kernel work runs on credit. What it uses while a thread waits is its *debt* to threads; what threads use pays it off. Kernel work
//! goes first until it owes [`BURST_NS`]; then threads go first until nothing is owed. So of a CPU that both want for long, each
//! gets half, whatever is asked of it; and work that is less than that never waits. A thread waits for kernel work at most
//! [`BURST_NS`] and one piece (a poll of a task, a round of messages, the timers of a turn); kernel work for threads at most [`MOST_DEBT_NS`] of theirs.
//!
//! Time in which no thread wants the CPU is nobody's loss, and not owed. Nor is what the CPU's loop itself takes between two pieces:
//! threads that give up the CPU after each microsecond would never have paid for that, and kernel work would wait for ever.

/// What kernel work may use ahead of threads that wait.
pub const BURST_NS: u64 = 2_000_000;
/// No more is owed: one long piece must not keep the kernel from its duties for as long.
pub const MOST_DEBT_NS: u64 = 4 * BURST_NS;

#[derive(Default)]
pub(crate) struct Turns {
    debt: u64,
    /// It is paying.
    pays: bool,
}

impl Turns {
    /// Kernel work has used `ns` while a thread waited.
    pub fn borrow(&mut self, ns: u64) {
        self.debt = self.debt.saturating_add(ns).min(MOST_DEBT_NS);
        self.pays |= self.debt >= BURST_NS;
    }

    /// A thread has used `ns`.
    pub fn pay(&mut self, ns: u64) {
        self.debt = self.debt.saturating_sub(ns);
        self.pays &= self.debt > 0;
    }

    /// How much kernel work may use yet before it is the turn of threads.
    pub fn credit(&self) -> u64 {
        BURST_NS.saturating_sub(self.debt)
    }

    /// Is it the turn of threads, if there are any?
    pub fn threads_first(&self) -> bool {
        self.pays
    }

    /// How much longer it is, in ns of their time.
    pub fn left(&self) -> u64 {
        if self.pays {
            self.debt
        } else {
            0
        }
    }
}
