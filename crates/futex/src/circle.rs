//! Circles of locks with an owner that lead over several kernels: who closes one is refused (EDEADLK).
//!
//! pi.rs refuses whoever would wait for itself by way of locks that this kernel queues, before it joins. Of a circle over several
//! kernels none sees all:
//!
//! ```text
//!   K1 (queues for a; B has it)            K2 (queues for b; A has it)
//!   A wants a: B waits for nothing here    B wants b: A waits for nothing here
//!   A joins                                B joins                              <- both wait for ever
//! ```
//!
//! So who still waits after [`PATIENCE_NS`] follows the circle from kernel to kernel: the owner of the lock that it waits for, what that
//! one waits for, and so on (`FutexWaitOf`; the home of a thread's process knows the kernels where it may wait, for they watch it). If
//! that leads back to it, and nobody on the way joined later, it leaves its queue. Locks that are soon free cost no message.
//!
//! **Who joined last** is said by the machine's clock, which is read under the lock of the queue. Of threads that close a circle at the same
//! moment exactly one has the latest time (and, of equal times, the highest id). All others had joined before it looks, whatever
//! clocks differ by, as that is far less than the patience: so it finds the circle, and nobody else gives up a lock for it.
//!
//! **A circle that never was.** What is seen on the way is seen at different times:
//!
//! ```text
//!   T waits for Y's lock             Y waits for Z's lock         Z
//!   asks Y's kernel: for Z
//!                                    has the lock, runs     <---  unlocks; wants T's lock
//!   asks Z's kernel: for T           <- a circle? Y waits for nobody
//! ```
//!
//! So it is followed twice. If all the waits and owners are the same, with the same times, everybody waited from when it was first
//! seen until it was seen again, and who waits neither takes nor frees a lock: at the end of the first time all of the circle was there.

use crate::{
    pi::{Owners, QueuedLocker},
    Futexes,
};
use alloc::vec::Vec;
use core::{
    future::{pending, poll_fn, Future},
    pin::pin,
    task::Poll,
};
use machine::{errno::Result, Errno, Pid};
use messages::futex::{FutexWaitOf, LockWait};

const PATIENCE_NS: u64 = 1_000_000;

impl Futexes {
    /// Waits for the lock; EDEADLK if the wait has closed a circle.
    pub(crate) async fn unless_in_circle(&self, owners: &dyn Owners, waiting: QueuedLocker<'_>) -> Result<()> {
        let thread = waiting.thread();
        let mut waiting = pin!(waiting);
        {
            let mut in_circle = pin!(async {
                owners.sleep_until(owners.now() + PATIENCE_NS).await;
                if !self.closes_circle(owners, thread).await {
                    pending().await
                }
            });
            let ended = poll_fn(|context| match waiting.as_mut().poll(context) {
                Poll::Ready(result) => Poll::Ready(Some(result)),
                Poll::Pending => in_circle.as_mut().poll(context).map(|()| None),
            });
            if let Some(result) = ended.await {
                return result;
            }
        }
        match waiting.leave() {
            true => Err(Errno::EDEADLK),
            // Somebody has freed the lock after all, and the thread has it.
            false => waiting.await,
        }
    }

    async fn closes_circle(&self, owners: &dyn Owners, thread: Pid) -> bool {
        match self.circle(owners, thread).await {
            Some(circle) => self.circle(owners, thread).await == Some(circle),
            None => false,
        }
    }

    /// The waits that lead from `thread` back to it, if its own is the latest.
    async fn circle(&self, owners: &dyn Owners, thread: Pid) -> Option<Vec<(Pid, LockWait)>> {
        let mut circle: Vec<(Pid, LockWait)> = Vec::new();
        let mut next = thread;
        loop {
            let wait = self.wait_of(owners, next).await?;
            circle.push((next, wait));
            if (wait.since, next) > (circle[0].1.since, thread) {
                return None;
            }
            next = wait.owner;
            if next == thread {
                return Some(circle);
            }
            if circle.iter().any(|(seen, _)| *seen == next) {
                // Another one's, which this one only leads to.
                return None;
            }
        }
    }

    /// What `thread` waits for, on whichever kernel.
    async fn wait_of(&self, owners: &dyn Owners, thread: Pid) -> Option<LockWait> {
        if let Some(wait) = self.locks.wait_of(thread) {
            return Some(wait);
        }
        let mut kernels = owners.watch(thread).await.ok()?;
        kernels.remove(self.me);
        let answers = self.endpoint.multicast(&kernels, FutexWaitOf { thread }).await;
        answers.into_iter().find_map(|(_, wait)| wait.ok().flatten())
    }
}
