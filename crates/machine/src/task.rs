//! Work that goes on beside the caller.

use crate::sync::{Lock, WaitQueue};
use alloc::{boxed::Box, sync::Arc};
use core::{
    future::{poll_fn, Future},
    mem,
    pin::Pin,
    task::Poll,
};

pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Starts kernel tasks (not user threads) on this kernel.
pub trait Spawner: Send + Sync {
    fn spawn(&self, task: BoxFuture<'static, ()>);
}

/// Runs `work` to its end as a task of the kernel, even if the caller stops waiting: its thread may be killed, and what
/// was begun must not stay half done. Starts at once. (No `async fn`: `work` is to be in the task only, or futures that
/// contain this one become as big as what they wait for.)
pub fn to_completion<T: Send + 'static>(
    spawner: &dyn Spawner,
    work: impl Future<Output = T> + Send + 'static,
) -> impl Future<Output = T> + Send {
    struct Slot<T> {
        value: Lock<Option<T>>,
        done: WaitQueue,
    }
    let slot = Arc::new(Slot { value: Lock::new(None), done: WaitQueue::new() });
    let result = slot.clone();
    spawner.spawn(Box::pin(async move {
        let value = work.await;
        *result.value.lock() = Some(value);
        result.done.wake_all();
    }));
    async move { slot.done.wait_until(|| slot.value.lock().take()).await }
}

/// Lets the CPU look around: at interrupts, messages, and at whose turn it is. For loops whose length a user decides.
pub async fn yield_now() {
    let mut yielded = false;
    poll_fn(|context| {
        if mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await
}
