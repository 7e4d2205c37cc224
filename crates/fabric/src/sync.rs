//! The atomics and cells of the lock-free parts, replaceable by loom's for model checking.

#[cfg(loom)]
pub use loom::{
    cell::UnsafeCell,
    sync::atomic::{fence, AtomicBool, AtomicU32, AtomicU64, Ordering},
};

#[cfg(not(loom))]
pub use {
    core::sync::atomic::{fence, AtomicBool, AtomicU32, AtomicU64, Ordering},
    plain::UnsafeCell,
};

#[cfg(not(loom))]
mod plain {
    /// `core::cell::UnsafeCell` with the interface of loom's.
    #[repr(transparent)]
    pub struct UnsafeCell<T>(core::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub const fn new(value: T) -> Self {
            UnsafeCell(core::cell::UnsafeCell::new(value))
        }

        #[inline]
        pub fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
            read(self.0.get())
        }

        #[inline]
        pub fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
            write(self.0.get())
        }
    }
}
