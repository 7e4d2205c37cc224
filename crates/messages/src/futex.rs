//! Futexes: waiting and waking at the kernel that queues a word's waiters.

use crate::vm::FutexKey;
use alloc::vec::Vec;
use machine::{errno, Errno, KernelId, Pid};
use serde::{Deserialize, Serialize};

/// FUTEX_OP_* of man 2 futex: what to do with the second word, and which of its old values wake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WordOp {
    /// SET 0, ADD 1, OR 2, ANDN 3, XOR 4.
    pub operation: u8,
    /// The right operand. FUTEX_OP_OPARG_SHIFT has been applied.
    pub argument: u32,
    /// EQ 0, NE 1, LT 2, LE 3, GT 4, GE 5.
    pub compare: u8,
    /// What the old value is compared with, as a signed number.
    pub compared_with: u32,
}

impl WordOp {
    /// The new value of the word. ENOSYS: there is no such operation.
    pub fn applied_to(&self, old: u32) -> errno::Result<u32> {
        Ok(match self.operation {
            0 => self.argument,
            1 => old.wrapping_add(self.argument),
            2 => old | self.argument,
            3 => old & !self.argument,
            4 => old ^ self.argument,
            _ => return Err(Errno::ENOSYS),
        })
    }

    /// Are the second word's waiters to be woken? ENOSYS: there is no such comparison, which Linux too finds when the word is changed.
    pub fn is_met_by(&self, old: u32) -> errno::Result<bool> {
        // Compared as signed numbers, as Linux does.
        let (old, with) = (old as i32, self.compared_with as i32);
        Ok(match self.compare {
            0 => old == with,
            1 => old != with,
            2 => old < with,
            3 => old <= with,
            4 => old > with,
            5 => old >= with,
            _ => return Err(Errno::ENOSYS),
        })
    }
}

/// A waiter that was moved to another kernel's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Ticket {
    /// Who moved it.
    pub by: KernelId,
    /// Which of the waiters that kernel has moved.
    pub serial: u64,
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Waited {
    /// Somebody woke it.
    Woken,
    /// It goes on at another kernel: [`FutexClaim`].
    Moved {
        /// The queue where it waits now.
        to: FutexKey,
        /// The name it claims its place in that queue by.
        ticket: Ticket,
    },
}

/// What the kernel that gets a waiter by requeueing must know of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MovedWaiter {
    /// The name it will be claimed by.
    pub ticket: Ticket,
    /// The kernel of its thread, which will claim it.
    pub of: KernelId,
    /// What it waits for (FUTEX_WAIT_BITSET).
    pub bitset: u32,
}

/// A thread stands in the queue of a lock with an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockWait {
    /// When it joined, on the machine's clock.
    pub since: u64,
    /// Who has the lock now.
    pub owner: Pid,
}

messages! {
    "futex" 0x400;

    /// A thread sleeps on a word of the receiver, if the word still holds `expected`; answered when it is
    /// woken (to take `lock`, if one is given; the key may have changed by requeueing), or at once with EAGAIN. Cancelled on a signal or timeout.
    futex_wait: FutexWait {
        /// The word, and the queue of those who wait for it.
        key: FutexKey,
        /// The value that the word must still have; else EAGAIN.
        expected: u32,
        /// FUTEX_WAIT_BITSET; all ones: any wake.
        bitset: u32,
        /// FUTEX_WAIT_REQUEUE_PI: the lock that it may be moved to.
        lock: Option<FutexKey>,
    } -> errno::Result<Waited>, Low;

    /// Wakes up to `count` waiters whose bitset meets `bitset`; answers how many.
    futex_wake: FutexWake {
        /// The word, and the queue of those who wait for it.
        key: FutexKey,
        /// Most waiters to be woken.
        count: u32,
        /// FUTEX_WAKE_BITSET; all ones: all waiters.
        bitset: u32,
    } -> errno::Result<u32>, Low;

    /// Wakes up to `wake` waiters of `from` and moves up to `requeue` of the others to `to` (whoever queues for it), if
    /// the word at `from` still holds `expected`. Answers (woken, moved).
    futex_requeue: FutexRequeue {
        /// The word that they wait for.
        from: FutexKey,
        /// The word that some of them wait for afterwards.
        to: FutexKey,
        /// Most waiters to be woken.
        wake: u32,
        /// Most waiters to be moved.
        requeue: u32,
        /// FUTEX_CMP_REQUEUE: the value that the word must still have; else EAGAIN.
        expected: Option<u32>,
    } -> errno::Result<(u32, u32)>, Low;

    /// Wakes up to `count` waiters of `from` to take `lock`, if the word at `from` still holds `expected`; answers how
    /// many (FUTEX_CMP_REQUEUE_PI).
    futex_wake_for_lock: FutexWakeForLock {
        /// The word that they wait for.
        from: FutexKey,
        /// The lock that they get, or queue for.
        lock: FutexKey,
        /// Most waiters to be woken.
        count: u32,
        /// The value that the word must still have; else EAGAIN.
        expected: u32,
    } -> errno::Result<u32>, Low;

    /// Takes a lock with an owner (FUTEX_LOCK_PI); answered when the thread has it. Cancelled on a signal or timeout.
    futex_lock: FutexLock {
        /// The word, and the queue of those who wait for it.
        key: FutexKey,
        /// The thread that takes it.
        thread: Pid,
        /// FUTEX_TRYLOCK_PI: EAGAIN instead of waiting.
        only_try: bool,
    } -> errno::Result<()>, Low;

    /// Frees such a lock, or hands it to the next waiter.
    futex_unlock: FutexUnlock {
        /// The word, and the queue of those who wait for it.
        key: FutexKey,
        /// The thread that has it; EPERM if another has.
        thread: Pid,
    } -> errno::Result<()>, Low;

    /// A thread that the receiver watches has ended: what it held goes to the next waiters.
    owner_died: OwnerDied {
        /// The thread that ended.
        thread: Pid,
    } -> (), High;

    /// FUTEX_WAKE_OP: changes the receiver's word `second` and, before anybody can wait for the new value, wakes up to `wake` waiters of
    /// `first`, and up to `wake_second` of `second`, if the old value meets the comparison. Answers how many.
    futex_wake_op: FutexWakeOp {
        /// The word whose waiters are woken in any case.
        first: FutexKey,
        /// The word that is changed.
        second: FutexKey,
        /// Most waiters of `first` to be woken.
        wake: u32,
        /// Most waiters of `second` to be woken.
        wake_second: u32,
        /// The change, and the comparison.
        op: WordOp,
    } -> errno::Result<u32>, Low;

    /// The sender has an operation on two words of which the receiver queues for one: until it says so nobody else joins, wakes or moves
    /// waiters there. Answered when nobody else holds the queue.
    futex_hold: FutexHold {
        /// The word, and the queue of those who wait for it.
        key: FutexKey,
    } -> errno::Result<()>, Low;

    /// Waiters join the receiver's queue of a word, which the sender holds and hereby releases.
    futex_join: FutexJoin {
        /// The word, and the queue of those who wait for it.
        key: FutexKey,
        /// Who joins, in the order in which they wait.
        waiters: Vec<MovedWaiter>,
    } -> (), Low;

    /// The sender's operation is over, and the last that it does is to wake up to `wake` waiters; answers how many.
    futex_release: FutexRelease {
        /// The word, and the queue of those who wait for it.
        key: FutexKey,
        /// Most waiters to be woken at the end.
        wake: u32,
    } -> errno::Result<u32>, Low;

    /// A waiter that was moved to the receiver's queue of a word goes on waiting there: like `FutexWait`.
    futex_claim: FutexClaim {
        /// The word, and the queue of those who wait for it.
        key: FutexKey,
        /// Who moved the waiter, and by what number.
        ticket: Ticket,
    } -> errno::Result<Waited>, Low;

    /// Nobody will claim this waiter.
    futex_forget: FutexForget {
        /// The word, and the queue of those who wait for it.
        key: FutexKey,
        /// Who moved the waiter, and by what number.
        ticket: Ticket,
    } -> (), Low;

    /// The lock with an owner that `thread` waits for on the receiver, if any: the sender follows a circle of them.
    futex_wait_of: FutexWaitOf {
        /// The thread that waits.
        thread: Pid,
    } -> Option<LockWait>, Low;
}
