//! Work that goes on beside the caller.

use crate::{
    sync::{Lock, WaitQueue},
    Actor, GroupId,
};
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::{future::Future, pin::Pin, task::Poll};

/// A future on the heap that any CPU of the kernel may poll.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Starts kernel tasks (not user threads) on this kernel.
pub trait Spawner: Send + Sync {
    /// Starts `task`, which runs to its end.
    fn spawn(&self, task: BoxFuture<'static, ()>);

    /// The same, and the task stays on this CPU as long as it runs: for work that the caller waits for, or that this CPU's device wakes. To ask another CPU would take longer.
    fn spawn_here(&self, task: BoxFuture<'static, ()>) {
        self.spawn(task);
    }

    /// The same for work that another kernel's thread waits for: who wakes the task wakes `_actor`, and `_payer` pays for the pages that it makes.
    fn spawn_for(&self, _actor: Actor, _payer: GroupId, task: BoxFuture<'static, ()>) {
        self.spawn(task);
    }

    /// Which of the kernel's CPUs this is, from 0 on.
    fn cpu(&self) -> usize {
        0
    }

    /// For whom this CPU works.
    fn actor(&self) -> Actor {
        Actor::NOBODY
    }

    /// From now on this CPU works for `_actor`. Gives whom it worked for before.
    fn set_actor(&self, _actor: Actor) -> Actor {
        Actor::NOBODY
    }

    /// The thread that this CPU works for uses something of this kernel that threads talk through.
    fn note_talk(&self) {}

    /// The control group that pays for the pages that are made on this CPU.
    fn payer(&self) -> GroupId {
        GroupId::ROOT
    }

    /// From now on `_payer` pays. Gives who did before.
    fn set_payer(&self, _payer: GroupId) -> GroupId {
        GroupId::ROOT
    }

    /// Whether the task that runs has had its CPU long enough ([`pause`]).
    fn is_turn_over(&self) -> bool {
        true
    }
}

/// Between two pieces of work (of some ten microseconds each) whose number a user decides: lets the CPU look around, if the task has had it
/// long enough. The kernel is not preempted, so without this nobody else would run before the last piece is done, and the thread
/// for which it is done could not be killed: who waits in `Thread::unless_killed` is dropped here.
pub async fn pause(spawner: &dyn Spawner) {
    if spawner.is_turn_over() {
        yield_now().await;
    }
}

/// Lets the CPU look around: at interrupts, messages, and at whose turn it is.
pub async fn yield_now() {
    let mut yielded = false;
    core::future::poll_fn(|context| {
        if core::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await
}

/// Does all of `futures` at the same time, and gives what each has answered. They are few: each wake-up polls all that are left.
pub async fn join_all<T>(futures: Vec<BoxFuture<'_, T>>) -> Vec<T> {
    let mut all: Vec<Result<T, BoxFuture<'_, T>>> = futures.into_iter().map(Err).collect();
    core::future::poll_fn(|context| {
        let mut are_done = true;
        for one in &mut all {
            if let Err(future) = one {
                match future.as_mut().poll(context) {
                    Poll::Ready(answer) => *one = Ok(answer),
                    Poll::Pending => are_done = false,
                }
            }
        }
        if are_done {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
    all.into_iter().filter_map(Result::ok).collect()
}

/// Runs `work` to its end as a task of the kernel, even if the caller stops waiting: its thread may be killed, and what
/// was begun must not stay half done. Begins when the caller waits, and stays on the CPU that called this. (No `async fn`: `work` is to be in the task only, or futures that
/// contain this one become as big as what they wait for.)
pub fn to_completion<T: Send + 'static, W: Future<Output = T> + Send + 'static>(
    spawner: &dyn Spawner,
    work: W,
) -> impl Future<Output = T> + Send + use<T, W> {
    struct Slot<T> {
        value: Lock<Option<T>>,
        done: WaitQueue,
    }
    let slot = Arc::new(Slot { value: Lock::new(None), done: WaitQueue::new() });
    let result = slot.clone();
    spawner.spawn_here(Box::pin(async move {
        let value = work.await;
        *result.value.lock() = Some(value);
        result.done.wake_all();
    }));
    async move { slot.done.wait_until(|| slot.value.lock().take()).await }
}
