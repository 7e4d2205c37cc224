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

    /// Whether the second word's waiters are woken, given its old value. ENOSYS: there is no such comparison. As on Linux, this shows
    /// only after the word has been changed.
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

/// The name of a waiter that was moved to another kernel's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Ticket {
    /// The kernel that moved it.
    pub by: KernelId,
    /// A number that this kernel gives to no other waiter.
    pub serial: u64,
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Waited {
    /// A thread woke it.
    Woken,
    /// It was moved to another kernel's queue. The thread's kernel sends that kernel [`FutexClaim`], and goes on waiting there.
    Moved {
        /// The queue where it waits now.
        to: FutexKey,
        /// Its name in that queue.
        ticket: Ticket,
    },
}

/// A waiter that is moved to a queue of the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MovedWaiter {
    /// The name by which its kernel will claim it.
    pub ticket: Ticket,
    /// The kernel of its thread, which will claim it.
    pub of: KernelId,
    /// The bitset of FUTEX_WAIT_BITSET.
    pub bitset: u32,
}

/// A thread's wait for a lock with an owner (FUTEX_LOCK_PI).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockWait {
    /// When it joined the queue, on the machine's clock.
    pub since: u64,
    /// The thread that has the lock.
    pub owner: Pid,
}

messages! {
    "futex" 0x400;

    /// FUTEX_WAIT: a thread waits in a queue of the receiver, if the word still has the value `expected` (else EAGAIN). The answer comes when
    /// the thread is woken or moved to another kernel's queue. The sender cancels the call on a signal or timeout.
    futex_wait: FutexWait {
        /// The word, and the queue of its waiters.
        key: FutexKey,
        /// The value that the word must still have; else EAGAIN.
        expected: u32,
        /// FUTEX_WAIT_BITSET; all ones: any wake.
        bitset: u32,
        /// FUTEX_WAIT_REQUEUE_PI: the lock that the thread is to take when it is woken.
        lock: Option<FutexKey>,
    } -> errno::Result<Waited>, Low;

    /// FUTEX_WAKE: wakes up to `count` waiters that have a bit of `bitset`. The receiver answers how many.
    futex_wake: FutexWake {
        /// The word, and the queue of its waiters.
        key: FutexKey,
        /// Most waiters to be woken.
        count: u32,
        /// FUTEX_WAKE_BITSET; all ones: all waiters.
        bitset: u32,
    } -> errno::Result<u32>, Low;

    /// FUTEX_REQUEUE: wakes up to `wake` waiters of `from` and moves up to `requeue` others to `to`, whose queue may be another kernel's.
    /// The receiver answers how many it has woken and how many it has moved.
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

    /// FUTEX_CMP_REQUEUE_PI: wakes up to `count` waiters of `from`, which then take `lock`, if the word at `from` still has the value
    /// `expected`. The receiver answers how many.
    futex_wake_for_lock: FutexWakeForLock {
        /// The word that they wait for.
        from: FutexKey,
        /// The lock that they take, or queue for.
        lock: FutexKey,
        /// Most waiters to be woken.
        count: u32,
        /// The value that the word must still have; else EAGAIN.
        expected: u32,
    } -> errno::Result<u32>, Low;

    /// FUTEX_LOCK_PI: takes a lock with an owner. The answer comes when the thread has the lock. The sender cancels the call on a signal or
    /// timeout.
    futex_lock: FutexLock {
        /// The word, and the queue of its waiters.
        key: FutexKey,
        /// The thread that takes the lock.
        thread: Pid,
        /// FUTEX_TRYLOCK_PI: EAGAIN instead of waiting.
        only_try: bool,
    } -> errno::Result<()>, Low;

    /// FUTEX_UNLOCK_PI: hands a lock with an owner to the next waiter, or frees it if there is none.
    futex_unlock: FutexUnlock {
        /// The word, and the queue of its waiters.
        key: FutexKey,
        /// The thread that has the lock; EPERM if another has.
        thread: Pid,
    } -> errno::Result<()>, Low;

    /// The home of a process tells a kernel that has asked for it (`WatchThread`) that a thread has ended. The receiver hands the locks that
    /// the thread held to the next waiters, with FUTEX_OWNER_DIED.
    owner_died: OwnerDied {
        /// The thread that ended.
        thread: Pid,
    } -> (), High;

    /// FUTEX_WAKE_OP: the receiver, which queues for `second`, changes that word. Before anybody can wait for the new value it wakes up to
    /// `wake` waiters of `first`, and if the old value meets the comparison up to `wake_second` waiters of `second`. It answers how many.
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

    /// Holds a queue of the receiver for an operation of the sender on two words. Until the sender releases it ([`FutexJoin`],
    /// [`FutexRelease`]) nobody else joins the queue, or wakes or moves its waiters. The answer comes when the sender holds the queue.
    futex_hold: FutexHold {
        /// The word, and the queue of its waiters.
        key: FutexKey,
    } -> errno::Result<()>, Low;

    /// Moves waiters into a queue that the sender holds ([`FutexHold`]), and releases it.
    futex_join: FutexJoin {
        /// The word, and the queue of its waiters.
        key: FutexKey,
        /// The waiters, in the order in which they wait.
        waiters: Vec<MovedWaiter>,
    } -> (), Low;

    /// Wakes up to `wake` waiters of a queue that the sender holds ([`FutexHold`]), and releases it. The receiver answers how many.
    futex_release: FutexRelease {
        /// The word, and the queue of its waiters.
        key: FutexKey,
        /// Most waiters to be woken.
        wake: u32,
    } -> errno::Result<u32>, Low;

    /// The kernel of a waiter that was moved to a queue of the receiver goes on waiting there. Answered like [`FutexWait`].
    futex_claim: FutexClaim {
        /// The word, and the queue of its waiters.
        key: FutexKey,
        /// The waiter's name.
        ticket: Ticket,
    } -> errno::Result<Waited>, Low;

    /// Takes a waiter that was moved to a queue of the receiver out of it, because its thread does not wait any more.
    futex_forget: FutexForget {
        /// The word, and the queue of its waiters.
        key: FutexKey,
        /// The waiter's name.
        ticket: Ticket,
    } -> (), Low;

    /// Asks which lock with an owner `thread` waits for in a queue of the receiver. The sender looks for a deadlock. None: it waits for none there.
    futex_wait_of: FutexWaitOf {
        /// The thread that waits.
        thread: Pid,
    } -> Option<LockWait>, Low;
}
