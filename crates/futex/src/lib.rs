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

mod across;
mod circle;
mod pi;
mod queue;

pub use pi::{Owners, OWNER_DIED, TID_MASK, WAITERS};

use alloc::{
    boxed::Box,
    sync::{Arc, Weak},
};
use core::{
    future::{poll_fn, Future},
    pin::{pin, Pin},
    task::Poll,
};
use fabric::{CallError, Endpoint};
use machine::{errno::Result, sync::Lock, BoxFuture, Errno, KernelId, Pid};
use messages::{
    futex::{
        FutexForget, FutexLock, FutexRequeue, FutexUnlock, FutexWait, FutexWaitOf, FutexWake, FutexWakeForLock,
        FutexWakeOp, OwnerDied, Waited, WordOp,
    },
    vm::FutexKey,
};
use queue::{Obstacle, Queues};

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
    locks: pi::Locks,
    owners: Lock<Option<Weak<dyn Owners>>>,
}

/// Matches any bitset.
pub const ANY: u32 = u32::MAX;

impl Futexes {
    pub fn new(endpoint: Arc<Endpoint>, words: Arc<dyn Words>) -> Arc<Futexes> {
        let sender = endpoint.clone();
        let forget = Box::new(move |key: FutexKey, ticket| {
            // If that kernel has died there is nothing to forget.
            let _ = sender.send(key.kernel, FutexForget { key, ticket });
        });
        let futexes = Arc::new(Futexes {
            me: endpoint.me(),
            endpoint,
            words,
            queues: Queues::new(forget),
            locks: Default::default(),
            owners: Lock::default(),
        });
        futexes.register();
        futexes
    }

    /// Says who knows the threads. Without, no lock with an owner can be waited for (ESRCH).
    pub fn set_owners(&self, owners: Weak<dyn Owners>) {
        *self.owners.lock() = Some(owners);
    }

    fn owners(&self) -> Option<Arc<dyn Owners>> {
        self.owners.lock().as_ref()?.upgrade()
    }

    fn register(self: &Arc<Self>) {
        let serve = self.endpoint.serve(self);
        serve.on(|state, from, ask: FutexWait| async move { state.wait_here(from, ask).await });
        serve.on_to_completion(|state, _, ask: FutexWake| async move {
            state.wake_here(&ask.key, ask.count, ask.bitset).await
        });
        serve.on_to_completion(|state, _, ask: FutexRequeue| async move {
            state.requeue_here(ask.from, ask.to, ask.wake, ask.requeue, ask.expected).await
        });
        serve.on_to_completion(|state, _, ask: FutexWakeForLock| async move {
            state.wake_for_lock_here(ask.from, ask.lock, ask.count, ask.expected).await
        });
        serve.on(|state, _, ask: FutexLock| async move { state.lock_here(ask.key, ask.thread, ask.only_try).await });
        serve.on_to_completion(|state, _, ask: FutexUnlock| async move {
            state.locks.unlock(&*state.words, ask.key, ask.thread).await
        });
        serve.on_to_completion(|state, _, ask: OwnerDied| async move { state.owner_died(ask.thread).await });
        serve.on_sync(|state, _, ask: FutexWaitOf| state.locks.wait_of(ask.thread));
        serve.on_to_completion(|state, _, ask: FutexWakeOp| async move { state.wake_op_here(ask).await });
        self.register_across();
    }

    /// Sleeps on a word until woken. `interrupt` ends the wait with its error, unless the wake came first: a
    /// wake that was counted is never lost. With `lock` it is woken by [`Futexes::wake_for_lock`] only.
    pub async fn wait(
        &self,
        key: FutexKey,
        expected: u32,
        bitset: u32,
        lock: Option<FutexKey>,
        interrupt: impl Future<Output = Errno>,
    ) -> Result<()> {
        let (mut interrupt, mut came) = (pin!(interrupt), None);
        // It is looked at again at every kernel that the wait goes on to.
        let mut interrupt = poll_fn(|context| {
            if came.is_none() {
                came = match interrupt.as_mut().poll(context) {
                    Poll::Ready(error) => Some(error),
                    Poll::Pending => None,
                };
            }
            came.map_or(Poll::Pending, Poll::Ready)
        });
        let ask = FutexWait { key, expected, bitset, lock };
        let mut waited = match key.kernel == self.me {
            true => unless_interrupted(self.wait_here(self.me, ask), &mut interrupt).await?,
            false => unless_cancelled(self.endpoint.start(key.kernel, ask), &mut interrupt).await?,
        };
        while let Waited::Moved { to, ticket } = waited {
            waited = self.go_on_at(to, ticket, &mut interrupt).await?;
        }
        Ok(())
    }

    /// Takes a lock with an owner for `thread`. After an interruption the word tells whether it got it all the same.
    pub async fn lock(
        &self,
        key: FutexKey,
        thread: Pid,
        only_try: bool,
        interrupt: impl Future<Output = Errno>,
    ) -> Result<()> {
        if key.kernel == self.me {
            return unless_interrupted(self.lock_here(key, thread, only_try), interrupt).await;
        }
        let ask = FutexLock { key, thread, only_try };
        unless_cancelled(self.endpoint.start(key.kernel, ask), interrupt).await
    }

    async fn lock_here(&self, key: FutexKey, thread: Pid, only_try: bool) -> Result<()> {
        let owners = self.owners().ok_or(Errno::ESRCH)?;
        match self.locks.join(&*self.words, &*owners, key, thread, only_try).await? {
            Some(waiting) => self.unless_in_circle(&*owners, waiting).await,
            None => Ok(()),
        }
    }

    pub async fn unlock(&self, key: FutexKey, thread: Pid) -> Result<()> {
        if key.kernel == self.me {
            return self.locks.unlock(&*self.words, key, thread).await;
        }
        self.endpoint.call(key.kernel, FutexUnlock { key, thread }).await.map_err(Errno::from)?
    }

    /// A thread that this kernel watches has ended.
    pub async fn owner_died(&self, thread: Pid) {
        self.locks.owner_died(&*self.words, thread).await;
    }

    /// A kernel has died, and with it the word of who ended there: the locks of those go to who waits.
    pub async fn kernel_died(&self) {
        if let Some(owners) = self.owners() {
            self.locks.look_after_owners(&*self.words, &*owners).await;
        }
    }

    /// What is in the way of a step at the queue of `key` goes away; then it is tried again.
    async fn clear(&self, obstacle: Obstacle, key: &FutexKey, write: bool) -> Result<()> {
        match obstacle {
            Obstacle::Failed(error) => return Err(error),
            Obstacle::Absent => self.words.make_resident(key, write).await?,
            Obstacle::Held(key) => self.queues.until_free(&key).await,
            Obstacle::MustHold => {}
        }
        Ok(())
    }

    fn check(&self, key: &FutexKey, expected: u32) -> core::result::Result<(), Obstacle> {
        match self.words.load(key) {
            Some(value) if value == expected => Ok(()),
            Some(_) => Err(Errno::EAGAIN.into()),
            None => Err(Obstacle::Absent),
        }
    }

    async fn wait_here(&self, from: KernelId, ask: FutexWait) -> Result<Waited> {
        let FutexWait { key, expected, bitset, lock } = ask;
        loop {
            match self.queues.join(from, key, bitset, lock, || self.check(&key, expected)) {
                Ok(waiting) => return Ok(waiting.await),
                Err(obstacle) => self.clear(obstacle, &key, false).await?,
            }
        }
    }

    /// Wakes up to `count` waiters; how many it were.
    pub async fn wake(&self, key: FutexKey, count: u32, bitset: u32) -> Result<u32> {
        if key.kernel == self.me {
            return self.wake_here(&key, count, bitset).await;
        }
        self.endpoint.call(key.kernel, FutexWake { key, count, bitset }).await.map_err(Errno::from)?
    }

    async fn wake_here(&self, key: &FutexKey, count: u32, bitset: u32) -> Result<u32> {
        loop {
            match self.queues.wake(key, count, bitset) {
                Ok(woken) => return Ok(woken),
                Err(obstacle) => self.clear(obstacle, key, false).await?,
            }
        }
    }

    /// FUTEX_CMP_REQUEUE_PI: those woken take `lock` by themselves, in whatever order they come; each holds it when its
    /// wait ends, which is all that Linux promises too.
    pub async fn wake_for_lock(&self, from: FutexKey, lock: FutexKey, count: u32, expected: u32) -> Result<u32> {
        if from.kernel == self.me {
            return self.wake_for_lock_here(from, lock, count, expected).await;
        }
        let ask = FutexWakeForLock { from, lock, count, expected };
        self.endpoint.call(from.kernel, ask).await.map_err(Errno::from)?
    }

    async fn wake_for_lock_here(&self, from: FutexKey, lock: FutexKey, count: u32, expected: u32) -> Result<u32> {
        loop {
            match self.queues.wake_for_lock(&from, &lock, count, || self.check(&from, expected)) {
                Ok(woken) => return Ok(woken),
                Err(obstacle) => self.clear(obstacle, &from, false).await?,
            }
        }
    }

    /// FUTEX_REQUEUE and FUTEX_CMP_REQUEUE: (woken, moved).
    pub async fn requeue(
        self: &Arc<Self>,
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
        self: &Arc<Self>,
        from: FutexKey,
        to: FutexKey,
        wake: u32,
        requeue: u32,
        expected: Option<u32>,
    ) -> Result<(u32, u32)> {
        if to.kernel != self.me {
            return self.requeue_across(from, to, (wake, requeue), expected).await;
        }
        loop {
            let check = || expected.map_or(Ok(()), |expected| self.check(&from, expected));
            match self.queues.requeue(&from, &to, wake, requeue, check) {
                Ok(done) => return Ok(done),
                Err(obstacle) => self.clear(obstacle, &from, false).await?,
            }
        }
    }

    /// FUTEX_WAKE_OP: changes the second word, wakes on the first and, if the old value says so, on the second, all in one step.
    pub async fn wake_op(
        self: &Arc<Self>,
        first: FutexKey,
        second: FutexKey,
        wake: u32,
        wake_second: u32,
        op: WordOp,
    ) -> Result<u32> {
        let ask = FutexWakeOp { first, second, wake, wake_second, op };
        match second.kernel == self.me {
            true => self.wake_op_here(ask).await,
            false => self.endpoint.call(second.kernel, ask).await.map_err(Errno::from)?,
        }
    }

    async fn wake_op_here(self: &Arc<Self>, ask: FutexWakeOp) -> Result<u32> {
        let FutexWakeOp { first, second, wake, wake_second, op } = ask;
        if first.kernel != self.me {
            return self.wake_op_across(ask).await;
        }
        loop {
            let change = || self.change(&second, op);
            match self.queues.wake_op(Some((&first, wake)), (&second, wake_second), change) {
                Ok(woken) => return Ok(woken),
                Err(obstacle) => self.clear(obstacle, &second, true).await?,
            }
        }
    }

    /// Does its operation on the second word; whether that's waiters are to be woken.
    fn change(&self, second: &FutexKey, op: WordOp) -> core::result::Result<bool, Obstacle> {
        loop {
            let old = self.words.load(second).ok_or(Obstacle::Absent)?;
            match self.words.compare_exchange(second, old, op.applied_to(old)?) {
                None => return Err(Obstacle::Absent),
                Some(Err(_)) => {}
                Some(Ok(_)) => return Ok(op.is_met_by(old)?),
            }
        }
    }

    /// Threads that wait here (tests, `cobctl`).
    pub fn waiting(&self) -> usize {
        self.queues.len() + self.locks.len()
    }
}

/// A wait on this kernel.
async fn unless_interrupted<T>(
    wait: impl Future<Output = Result<T>>,
    interrupt: impl Future<Output = Errno>,
) -> Result<T> {
    let (mut wait, mut interrupt) = (pin!(wait), pin!(interrupt));
    poll_fn(|context| {
        if let Poll::Ready(result) = wait.as_mut().poll(context) {
            return Poll::Ready(result);
        }
        // Dropping the wait takes it out of the queue; a wake between the two polls has set its flag, which the next
        // line of the caller's poll would see: so look once more.
        match interrupt.as_mut().poll(context) {
            Poll::Ready(error) => match wait.as_mut().poll(context) {
                Poll::Ready(result) => Poll::Ready(result),
                Poll::Pending => Poll::Ready(Err(error)),
            },
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// A wait on another kernel.
async fn unless_cancelled<T>(
    mut call: fabric::Call<'_, Result<T>>,
    interrupt: impl Future<Output = Errno>,
) -> Result<T> {
    let mut interrupt = pin!(interrupt);
    let mut interrupted = None;
    let answer = poll_fn(|context| {
        if let Poll::Ready(answer) = Pin::new(&mut call).poll(context) {
            return Poll::Ready(answer);
        }
        if interrupted.is_none() {
            if let Poll::Ready(error) = interrupt.as_mut().poll(context) {
                interrupted = Some(error);
                call.cancel();
                return Pin::new(&mut call).poll(context);
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
