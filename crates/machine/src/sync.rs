//! Locks and wait queues of one kernel.

use alloc::vec::Vec;
use core::{
    future::Future,
    marker::PhantomData,
    ops::{Deref, DerefMut},
    pin::Pin,
    task::{Context, Poll, Waker},
};
use slab::Slab;

/// A spin lock. The kernel runs with interrupts off, so holding it is short by construction; its
/// guard is not `Send`, so a future that the executor accepts cannot hold one over an `.await`:
///
/// ```compile_fail
/// async fn wait() {}
/// async fn bad(lock: &machine::sync::Lock<u32>) {
///     let guard = lock.lock();
///     wait().await;
///     drop(guard);
/// }
/// fn spawn<F: Future + Send>(_: F) {}
/// static LOCK: machine::sync::Lock<u32> = machine::sync::Lock::new(0);
/// spawn(bad(&LOCK));
/// ```
#[derive(Default)]
pub struct Lock<T: ?Sized>(spin::Mutex<T>);

pub struct LockGuard<'a, T: ?Sized> {
    guard: spin::MutexGuard<'a, T>,
    not_send: PhantomData<*const ()>,
}

impl<T> Lock<T> {
    pub const fn new(value: T) -> Self {
        Lock(spin::Mutex::new(value))
    }

    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }
}

impl<T: ?Sized> Lock<T> {
    pub fn lock(&self) -> LockGuard<'_, T> {
        LockGuard { guard: self.0.lock(), not_send: PhantomData }
    }

    pub fn try_lock(&self) -> Option<LockGuard<'_, T>> {
        Some(LockGuard { guard: self.0.try_lock()?, not_send: PhantomData })
    }

    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }
}

impl<T: ?Sized> Deref for LockGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T: ?Sized> DerefMut for LockGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

/// Tasks waiting for a condition. The condition lives elsewhere; whoever changes it wakes the queue
/// afterwards. A waiter registers *before* it checks, so a change between check and sleep is not lost.
#[derive(Default)]
pub struct WaitQueue {
    wakers: Lock<Slab<Waker>>,
}

impl WaitQueue {
    pub const fn new() -> Self {
        WaitQueue { wakers: Lock::new(Slab::new()) }
    }

    pub fn wake_all(&self) {
        // Woken outside the lock: a waker may run code that registers again.
        let wakers: Vec<Waker> = match &*self.wakers.lock() {
            none if none.is_empty() => return,
            wakers => wakers.iter().map(|(_, waker)| waker.clone()).collect(),
        };
        for waker in wakers {
            waker.wake();
        }
    }

    /// Wakes `waker` at every change until [`WaitQueue::unsubscribe`]: for a watcher that outlives any
    /// one wait (epoll).
    pub fn subscribe(&self, waker: Waker) -> usize {
        self.wakers.lock().insert(waker)
    }

    pub fn unsubscribe(&self, key: usize) {
        // Dropped outside the lock: a waker may own what owns the queue.
        let waker = self.wakers.lock().try_remove(key);
        drop(waker);
    }

    pub fn has_waiters(&self) -> bool {
        !self.wakers.lock().is_empty()
    }

    /// Waits until `check` gives a value. `check` runs at every wake-up; it must not block.
    pub fn wait_until<T, F: FnMut() -> Option<T>>(&self, check: F) -> WaitUntil<'_, F> {
        WaitUntil { check, registration: Registration::new(self) }
    }
}

/// One task's place in a queue, given up when dropped.
pub struct Registration<'a> {
    queue: &'a WaitQueue,
    key: Option<usize>,
}

impl<'a> Registration<'a> {
    pub fn new(queue: &'a WaitQueue) -> Self {
        Registration { queue, key: None }
    }

    /// From now on a wake of the queue wakes `waker`.
    pub fn register(&mut self, waker: &Waker) {
        let mut wakers = self.queue.wakers.lock();
        match self.key {
            Some(key) => wakers[key].clone_from(waker),
            None => self.key = Some(wakers.insert(waker.clone())),
        }
    }
}

impl Drop for Registration<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.queue.wakers.lock().remove(key);
        }
    }
}

pub struct WaitUntil<'a, F> {
    check: F,
    registration: Registration<'a>,
}

impl<F> Unpin for WaitUntil<'_, F> {}

impl<T, F: FnMut() -> Option<T>> Future for WaitUntil<'_, F> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        if let Some(value) = (self.check)() {
            return Poll::Ready(value);
        }
        self.registration.register(context.waker());
        match (self.check)() {
            Some(value) => Poll::Ready(value),
            None => Poll::Pending,
        }
    }
}

/// A mutex whose holder may wait (also for another kernel) while holding it.
pub struct AsyncLock<T> {
    value: Lock<Option<T>>,
    queue: WaitQueue,
}

impl<T: Default> Default for AsyncLock<T> {
    fn default() -> Self {
        AsyncLock::new(T::default())
    }
}

impl<T> AsyncLock<T> {
    pub const fn new(value: T) -> Self {
        AsyncLock { value: Lock::new(Some(value)), queue: WaitQueue::new() }
    }

    pub async fn lock(&self) -> AsyncGuard<'_, T> {
        let value = self.queue.wait_until(|| self.value.lock().take()).await;
        AsyncGuard { lock: self, value: Some(value) }
    }

    pub fn try_lock(&self) -> Option<AsyncGuard<'_, T>> {
        let value = self.value.lock().take()?;
        Some(AsyncGuard { lock: self, value: Some(value) })
    }
}

/// The value, taken out of the lock; put back when dropped.
pub struct AsyncGuard<'a, T> {
    lock: &'a AsyncLock<T>,
    value: Option<T>,
}

impl<T> Deref for AsyncGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.value.as_ref().expect("present until dropped")
    }
}

impl<T> DerefMut for AsyncGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_mut().expect("present until dropped")
    }
}

impl<T> Drop for AsyncGuard<'_, T> {
    fn drop(&mut self) {
        *self.lock.value.lock() = self.value.take();
        self.lock.queue.wake_all();
    }
}
