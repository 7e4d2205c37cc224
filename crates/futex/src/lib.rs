//! Futexes over all kernels (man 2 futex; Popcorn paper A, V.C).
//!
//! Every word has one kernel that queues its waiters: the owner of its slice for a private futex, the owner
//! of the object for a shared one. A wait compares the word *there*, under the queue's lock, and joins the
//! queue under the same lock; a wake takes the lock too.
//!
//! Why no wake-up is lost: a waker first changes the word (in memory that all kernels share coherently), then
//! wakes at the owner. If the waiter's comparison sees the old value, it is in the queue before the lock is
//! released, and the wake, which needs the lock, comes later. Where the two threads run doesn't matter:
//!
//! ```text
//!   waiter (K1)              owner (O)                    waker (K2)
//!                                                         word = 1
//!   -- wait(word == 0) ----> lock; reads 1; EAGAIN   or   -- wake ----> lock; finds the waiter
//! ```
//!
//! The word may not be in the owner's memory when the comparison is due; reading it may then wait for a
//! fault, so it is made resident first, without the lock, and the comparison tried again.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod queue;

use alloc::sync::Arc;
use core::{future::Future, pin::pin, task::Poll};
use fabric::{CallError, Endpoint};
use machine::{errno::Result, BoxFuture, Errno, KernelId};
use messages::{
    futex::{FutexRequeue, FutexWait, FutexWake, FutexWordOp, WordOp},
    vm::FutexKey,
};
use queue::Queues;

/// How the owner reads and changes a futex word.
pub trait Words: Send + Sync {
    /// The word, if it can be read without waiting. Called under a queue's lock.
    fn load(&self, key: &FutexKey) -> Option<u32>;
    /// The result of the exchange (Err: the value found), if it can be done without waiting.
    fn compare_exchange(&self, key: &FutexKey, old: u32, new: u32) -> Option<core::result::Result<u32, u32>>;
    /// Makes the word reachable, for writing if `write`. EFAULT if there is none.
    fn make_resident<'a>(&'a self, key: &'a FutexKey, write: bool) -> BoxFuture<'a, Result<()>>;
}

pub struct Futexes {
    me: KernelId,
    endpoint: Arc<Endpoint>,
    words: Arc<dyn Words>,
    queues: Queues,
}

/// Matches any bitset.
pub const ANY: u32 = u32::MAX;

impl Futexes {
    pub fn new(endpoint: Arc<Endpoint>, words: Arc<dyn Words>) -> Arc<Futexes> {
        let futexes = Arc::new(Futexes { me: endpoint.me(), endpoint, words, queues: Queues::default() });
        futexes.register();
        futexes
    }

    fn register(self: &Arc<Self>) {
        let state = self.clone();
        self.endpoint.on::<FutexWait, _, _>(move |_, ask| {
            let state = state.clone();
            async move { state.wait_here(ask.key, ask.expected, ask.bitset).await }
        });
        let state = self.clone();
        self.endpoint.on_sync::<FutexWake, _>(move |_, ask| state.queues.wake(&ask.key, ask.count, ask.bitset));
        let state = self.clone();
        self.endpoint.on_to_completion::<FutexRequeue, _, _>(move |_, ask| {
            let state = state.clone();
            async move { state.requeue_here(ask.from, ask.to, ask.wake, ask.requeue, ask.expected).await }
        });
        let state = self.clone();
        self.endpoint.on_to_completion::<FutexWordOp, _, _>(move |_, ask| {
            let state = state.clone();
            async move { state.word_op_here(ask.key, ask.op).await }
        });
    }

    /// Sleeps on a word until woken. `interrupt` ends the wait with its error, unless the wake came first: a
    /// wake that was counted is never lost.
    pub async fn wait(
        &self,
        key: FutexKey,
        expected: u32,
        bitset: u32,
        interrupt: impl Future<Output = Errno>,
    ) -> Result<()> {
        let mut interrupt = pin!(interrupt);
        if key.kernel == self.me {
            let mut wait = pin!(self.wait_here(key, expected, bitset));
            return core::future::poll_fn(|context| {
                if let Poll::Ready(result) = wait.as_mut().poll(context) {
                    return Poll::Ready(result);
                }
                // Dropping the wait takes it out of the queue; a wake between the two polls has set its flag,
                // which the next line of the caller's poll would see: so look once more.
                match interrupt.as_mut().poll(context) {
                    Poll::Ready(error) => match wait.as_mut().poll(context) {
                        Poll::Ready(result) => Poll::Ready(result),
                        Poll::Pending => Poll::Ready(Err(error)),
                    },
                    Poll::Pending => Poll::Pending,
                }
            })
            .await;
        }
        let mut call = self.endpoint.start(key.kernel, FutexWait { key, expected, bitset });
        let mut interrupted = None;
        let answer = core::future::poll_fn(|context| {
            if let Poll::Ready(answer) = core::pin::Pin::new(&mut call).poll(context) {
                return Poll::Ready(answer);
            }
            if interrupted.is_none() {
                if let Poll::Ready(error) = interrupt.as_mut().poll(context) {
                    interrupted = Some(error);
                    call.cancel();
                    return core::pin::Pin::new(&mut call).poll(context);
                }
            }
            Poll::Pending
        })
        .await;
        match answer {
            Ok(result) => result,
            Err(CallError::Cancelled) => Err(interrupted.unwrap_or(Errno::EINTR)),
            Err(error) => Err(error.into()),
        }
    }

    async fn wait_here(&self, key: FutexKey, expected: u32, bitset: u32) -> Result<()> {
        loop {
            let joined = self.queues.join(key, bitset, || match self.words.load(&key) {
                Some(value) if value == expected => Ok(()),
                Some(_) => Err(Some(Errno::EAGAIN)),
                None => Err(None),
            });
            match joined {
                Ok(waiting) => {
                    waiting.await;
                    return Ok(());
                }
                Err(Some(error)) => return Err(error),
                Err(None) => self.words.make_resident(&key, false).await?,
            }
        }
    }

    /// Wakes up to `count` waiters; how many it were.
    pub async fn wake(&self, key: FutexKey, count: u32, bitset: u32) -> Result<u32> {
        if key.kernel == self.me {
            return Ok(self.queues.wake(&key, count, bitset));
        }
        Ok(self.endpoint.call(key.kernel, FutexWake { key, count, bitset }).await?)
    }

    /// FUTEX_REQUEUE and FUTEX_CMP_REQUEUE: (woken, moved). Between words of different owners the waiters to
    /// be moved are woken instead, which futex(2) allows: they look at their word again.
    pub async fn requeue(
        &self,
        from: FutexKey,
        to: FutexKey,
        wake: u32,
        requeue: u32,
        expected: Option<u32>,
    ) -> Result<(u32, u32)> {
        if from.kernel == self.me {
            return self.requeue_here(from, to, wake, requeue, expected).await;
        }
        let ask = FutexRequeue { from, to, wake, requeue, expected };
        self.endpoint.call(from.kernel, ask).await.map_err(Errno::from)?
    }

    async fn requeue_here(
        &self,
        from: FutexKey,
        to: FutexKey,
        wake: u32,
        requeue: u32,
        expected: Option<u32>,
    ) -> Result<(u32, u32)> {
        loop {
            let check = || match expected.map(|expected| (expected, self.words.load(&from))) {
                None => Ok(()),
                Some((expected, Some(value))) if value == expected => Ok(()),
                Some((_, Some(_))) => Err(Some(Errno::EAGAIN)),
                Some((_, None)) => Err(None),
            };
            let target = (to.kernel == self.me).then_some(to);
            match self.queues.requeue(&from, target, wake, requeue, check) {
                Ok(done) => return Ok(done),
                Err(Some(error)) => return Err(error),
                Err(None) => self.words.make_resident(&from, false).await?,
            }
        }
    }

    /// FUTEX_WAKE_OP: changes the second word, wakes on the first and, if the old value says so, on the second.
    pub async fn wake_op(
        &self,
        first: FutexKey,
        second: FutexKey,
        wake: u32,
        wake_second: u32,
        op: WordOp,
    ) -> Result<u32> {
        let meets = match second.kernel == self.me {
            true => self.word_op_here(second, op).await?,
            false => {
                self.endpoint.call(second.kernel, FutexWordOp { key: second, op }).await.map_err(Errno::from)??
            }
        };
        let mut woken = self.wake(first, wake, ANY).await?;
        if meets {
            woken += self.wake(second, wake_second, ANY).await?;
        }
        Ok(woken)
    }

    async fn word_op_here(&self, key: FutexKey, op: WordOp) -> Result<bool> {
        loop {
            let Some(old) = self.words.load(&key) else {
                self.words.make_resident(&key, true).await?;
                continue;
            };
            let new = match op.operation {
                0 => op.argument,
                1 => old.wrapping_add(op.argument),
                2 => old | op.argument,
                3 => old & !op.argument,
                4 => old ^ op.argument,
                _ => return Err(Errno::ENOSYS),
            };
            match self.words.compare_exchange(&key, old, new) {
                None => self.words.make_resident(&key, true).await?,
                Some(Err(_)) => {}
                Some(Ok(_)) => {
                    // Compared as signed numbers, as Linux does.
                    let (old, with) = (old as i32, op.compared_with as i32);
                    return Ok(match op.compare {
                        0 => old == with,
                        1 => old != with,
                        2 => old < with,
                        3 => old <= with,
                        4 => old > with,
                        5 => old >= with,
                        _ => return Err(Errno::ENOSYS),
                    });
                }
            }
        }
    }

    /// Threads that wait here (tests, `cobctl`).
    pub fn waiting(&self) -> usize {
        self.queues.len()
    }
}
