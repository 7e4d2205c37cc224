//! Locks and wait queues of one kernel.

use core::{
    marker::PhantomData,
    ops::{Deref, DerefMut},
};

pub use crate::wait::{Registration, Subscriber, WaitQueue};

#[cfg(loom_locks)]
use crate::modelled as mutex;
#[cfg(not(loom_locks))]
use spin as mutex;

/// A function that is `const` but where the model checker's mutex is used.
macro_rules! constant {
    ($(#[doc = $doc:literal])* pub fn $($rest:tt)*) => {
        $(#[doc = $doc])*
        #[cfg(not(loom_locks))]
        pub const fn $($rest)*
        $(#[doc = $doc])*
        #[cfg(loom_locks)]
        pub fn $($rest)*
    };
}
pub(crate) use constant;

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
pub struct Lock<T: ?Sized>(mutex::Mutex<T>);

/// Unlocks when dropped.
pub struct LockGuard<'a, T: ?Sized> {
    guard: mutex::MutexGuard<'a, T>,
    not_send: PhantomData<*const ()>,
}

impl<T> Lock<T> {
    constant! {
        /// An unlocked lock around `value`.
        pub fn new(value: T) -> Self {
            Lock(mutex::Mutex::new(value))
        }
    }

    /// The value, of a lock that nobody else can have.
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }
}

impl<T: ?Sized> Lock<T> {
    /// Waits, spinning, until nobody else holds it. A CPU that holds it already waits for ever.
    pub fn lock(&self) -> LockGuard<'_, T> {
        let guard = match self.0.try_lock() {
            Some(guard) => guard,
            None => self.lock_contended(),
        };
        LockGuard { guard, not_send: PhantomData }
    }

    #[cold]
    #[inline(never)]
    fn lock_contended(&self) -> mutex::MutexGuard<'_, T> {
        let address = (&raw const self.0).cast::<u8>() as u64;
        trace::contention_begin(address);
        let guard = self.0.lock();
        trace::contention_end(address);
        guard
    }

    /// None if somebody holds it.
    pub fn try_lock(&self) -> Option<LockGuard<'_, T>> {
        Some(LockGuard { guard: self.0.try_lock()?, not_send: PhantomData })
    }

    /// The value, without locking: nobody else can have the lock.
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
    constant! {
        /// An unlocked lock around `value`.
        pub fn new(value: T) -> Self {
            AsyncLock { value: Lock::new(Some(value)), queue: WaitQueue::new() }
        }
    }

    /// Waits until nobody else holds it. Who came first need not get it first.
    pub async fn lock(&self) -> AsyncGuard<'_, T> {
        let value = self.queue.wait_until(|| self.value.lock().take()).await;
        AsyncGuard { lock: self, value: Some(value) }
    }

    /// None if somebody holds it.
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
