//! Operations on two words whose waiters queue on different kernels: FUTEX_REQUEUE and FUTEX_WAKE_OP.
//!
//! Linux locks both queues. Here the one kernel (of the word that is compared, or changed) does the work, and both queues are *held* for
//! it: who else joins, wakes or moves waiters there comes after it. The dangerous interleaving without:
//!
//! ```text
//!   O1 (queues for a)                 O2 (queues for b)                  another thread
//!   requeue a -> b: takes w out
//!                                                                        wakes at a: nobody, so the move is over
//!                                                                        wakes at b: nobody
//!   -- w joins b ------------------>  w sleeps                           <- w is lost: who was to wake it has been
//! ```
//!
//! The lower kernel's queue is held first, so no operations wait for each other in a circle; whatever else an operation may have to wait
//! for (a word that is not in memory) it waits for without holding anything.
//!
//! **A waiter that moves** is not sent: its thread's kernel K asked O1, and is answered that the wait goes on at O2, by a *ticket*. O2
//! has the waiter in its queue from `FutexJoin` on, so from when the requeue is answered a wake finds it, whether or not K has come:
//!
//! ```text
//!   K                        O1                              O2
//!   FutexWait -------------> w in a's queue
//!                            FutexHold --------------------> b is held
//!     <--- moved, ticket t - takes w; FutexJoin(t) --------> t in b's queue; b is free again
//!   FutexClaim(t) ---------------------------------------->  answered when t is woken, or moved on
//! ```
//!
//! A claim may come before the waiter: b is held then, and the claim waits. If there is no such waiter and b is free, who moved it has
//! died before it said so, and the wait ends (a wake that nobody counted, as futex(2) allows). A waiter that gives up leaves b's queue,
//! or is noted in the hold and does not join. A wake that it has been counted for by then reaches it first, as with any wait.
//!
//! When a kernel dies, what it holds is released, and whom nobody will claim leaves the queues: its threads, and those that it has moved
//! there, whose kernel it may not have told.

use crate::{
    queue::{Claim, Obstacle},
    unless_cancelled, unless_interrupted, Futexes,
};
use alloc::{sync::Arc, vec::Vec};
use core::future::Future;
use fabric::{Call, Endpoint};
use machine::{errno::Result, Errno, KernelId};
use messages::{
    futex::{FutexClaim, FutexForget, FutexHold, FutexJoin, FutexRelease, FutexWakeOp, MovedWaiter, Ticket, Waited},
    vm::FutexKey,
};

/// A queue that an operation of this kernel holds; dropping it releases it. Made in the drain, when the answer comes: so it is
/// released also if the operation was dropped meanwhile.
struct HeldQueue {
    futexes: Arc<Futexes>,
    key: FutexKey,
    released: bool,
}

impl HeldQueue {
    /// Wakes up to `count` waiters as the last thing.
    async fn release(mut self, count: u32) -> Result<u32> {
        self.released = true;
        let (futexes, key) = (&self.futexes, self.key);
        if key.kernel == futexes.me {
            return futexes.queues.release(&key, futexes.me, count);
        }
        futexes.endpoint.call(key.kernel, FutexRelease { key, wake: count }).await.map_err(Errno::from)?
    }

    /// Waiters join it as the last thing.
    fn join(mut self, endpoint: &Endpoint, waiters: Vec<MovedWaiter>) -> Call<'_, ()> {
        self.released = true;
        endpoint.start(self.key.kernel, FutexJoin { key: self.key, waiters })
    }
}

impl Drop for HeldQueue {
    fn drop(&mut self) {
        let (futexes, key) = (&self.futexes, self.key);
        match (self.released, key.kernel == futexes.me) {
            (true, _) => {}
            // Nobody is woken.
            (false, true) => drop(futexes.queues.release(&key, futexes.me, 0)),
            (false, false) => futexes.endpoint.start(key.kernel, FutexRelease { key, wake: 0 }).detach(),
        }
    }
}

/// A claim that may have come before its waiter. Dropped meanwhile, the waiter is not to join.
struct Early<'a> {
    futexes: &'a Futexes,
    key: FutexKey,
    ticket: Ticket,
    over: bool,
}

impl Drop for Early<'_> {
    fn drop(&mut self) {
        if !self.over {
            self.futexes.queues.forget(&self.key, self.ticket);
        }
    }
}

impl Futexes {
    pub(crate) fn register_across(self: &Arc<Self>) {
        let serve = self.endpoint.serve(self);
        serve.on(|state, from, ask: FutexHold| async move { state.hold_here(ask.key, from).await });
        serve.on_sync(|state, from, ask: FutexJoin| {
            let is_alive = |kernel| kernel == state.me || state.endpoint.is_alive(kernel);
            state.queues.arrive(&ask.key, &ask.waiters, is_alive);
            // Nobody is woken, so nothing can be wrong with it.
            let _ = state.queues.release(&ask.key, from, 0);
        });
        serve.on_sync(|state, from, ask: FutexRelease| state.queues.release(&ask.key, from, ask.wake));
        serve.on(|state, _, ask: FutexClaim| async move { state.claim_here(ask.key, ask.ticket).await });
        serve.on_sync(|state, _, ask: FutexForget| state.queues.forget(&ask.key, ask.ticket));
    }

    /// A kernel has died, and is told of no more: what it holds is released.
    pub fn release_of(&self, dead: KernelId) {
        self.queues.release_of(dead);
    }

    async fn hold_here(&self, key: FutexKey, holder: KernelId) -> Result<()> {
        let boot_generation = || self.endpoint.boot_generation(holder);
        let asked_in = boot_generation();
        // Of one that has died nobody would release it.
        let check = || match holder == self.me || asked_in.is_some() && boot_generation() == asked_in {
            true => Ok(()),
            false => Err(Errno::EIO.into()),
        };
        while let Err(obstacle) = self.queues.hold(&key, holder, check) {
            self.clear(obstacle, &key, false).await?;
        }
        Ok(())
    }

    async fn hold(self: &Arc<Self>, key: FutexKey) -> Result<HeldQueue> {
        let futexes = self.clone();
        let held = move || HeldQueue { futexes, key, released: false };
        if key.kernel == self.me {
            return self.hold_here(key, self.me).await.map(|()| held());
        }
        let take = move |answer: Result<()>| answer.map(|()| held());
        self.endpoint.call_then(key.kernel, FutexHold { key }, take).await.map_err(Errno::from)?
    }

    /// Holds the queues of two words of different kernels, in the order of these.
    async fn hold_both(self: &Arc<Self>, one: FutexKey, other: FutexKey) -> Result<(HeldQueue, HeldQueue)> {
        if one.kernel < other.kernel {
            let one = self.hold(one).await?;
            return Ok((one, self.hold(other).await?));
        }
        let other = self.hold(other).await?;
        Ok((self.hold(one).await?, other))
    }

    /// FUTEX_REQUEUE from a word of this kernel to one of another: (woken, moved).
    pub(crate) async fn requeue_across(
        self: &Arc<Self>,
        from: FutexKey,
        to: FutexKey,
        counts: (u32, u32),
        expected: Option<u32>,
    ) -> Result<(u32, u32)> {
        let check = || expected.map_or(Ok(()), |expected| self.check(&from, expected));
        let take = |held, join: &mut dyn FnMut(Vec<MovedWaiter>)| {
            self.queues.take_across(self.me, (&from, &to), counts, held, check, join)
        };
        loop {
            // A broadcast that nobody waits for asks nobody.
            let mut obstacle = match take(false, &mut |_| {}) {
                Ok(woken) => return Ok((woken, 0)),
                Err(obstacle) => obstacle,
            };
            if obstacle == Obstacle::MustHold {
                let (_source, target) = self.hold_both(from, to).await?;
                let (mut target, mut moved, mut joining) = (Some(target), 0, None);
                // Sent before the waiters' kernels hear of it, so that their claims seldom come first.
                let taken = take(true, &mut |waiters| {
                    moved = waiters.len() as u32;
                    joining = target.take_if(|_| moved > 0).map(|target| target.join(&self.endpoint, waiters));
                });
                match (taken, joining) {
                    (Ok(woken), Some(joining)) => {
                        joining.await.map_err(Errno::from)?;
                        return Ok((woken, moved));
                    }
                    (Ok(woken), None) => return Ok((woken, moved)),
                    (Err(in_the_way), _) => obstacle = in_the_way,
                }
            }
            self.clear(obstacle, &from, false).await?;
        }
    }

    /// FUTEX_WAKE_OP on a second word of this kernel, with a first one of another.
    pub(crate) async fn wake_op_across(self: &Arc<Self>, ask: FutexWakeOp) -> Result<u32> {
        let FutexWakeOp { first, second, wake, wake_second, op } = ask;
        loop {
            let obstacle = {
                let (at_first, _at_second) = self.hold_both(first, second).await?;
                match self.queues.wake_op(None, (&second, wake_second), || self.change(&second, op)) {
                    Ok(woken) => return Ok(woken + at_first.release(wake).await?),
                    Err(obstacle) => obstacle,
                }
            };
            self.clear(obstacle, &second, true).await?;
        }
    }

    /// A wait that was moved to another word goes on there.
    pub(crate) async fn go_on_at(
        &self,
        key: FutexKey,
        ticket: Ticket,
        interrupt: impl Future<Output = Errno>,
    ) -> Result<Waited> {
        if key.kernel == self.me {
            return unless_interrupted(self.claim_here(key, ticket), interrupt).await;
        }
        let result = unless_cancelled(self.endpoint.start(key.kernel, FutexClaim { key, ticket }), interrupt).await;
        if result.is_err() {
            // The claim may never have left. If that kernel has died there is nothing to forget.
            let _ = self.endpoint.send(key.kernel, FutexForget { key, ticket });
        }
        result
    }

    async fn claim_here(&self, key: FutexKey, ticket: Ticket) -> Result<Waited> {
        loop {
            match self.queues.claim(&key, ticket) {
                Claim::Here(waiting) => return Ok(waiting.await),
                Claim::Gone => return Ok(Waited::Woken),
                Claim::NotYet => {
                    let mut early = Early { futexes: self, key, ticket, over: false };
                    self.queues.until_free(&key).await;
                    early.over = true;
                }
            }
        }
    }
}
