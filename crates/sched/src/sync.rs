//! The atomics of the scheduler, replaceable by the model checker's (tests/loom.rs).

/// Where the one order of all SeqCst accesses is relied on. loom knows that order of fences only.
#[inline]
pub fn in_one_order() {
    #[cfg(loom)]
    fence(Ordering::SeqCst);
}

/// Called in a loop that waits for another CPU.
#[inline]
pub fn spin() {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(not(loom))]
    core::hint::spin_loop();
}

#[cfg(not(loom))]
pub use core::sync::atomic::{fence, AtomicBool, AtomicI64, AtomicU32, AtomicU64, AtomicU8, AtomicUsize, Ordering};
#[cfg(loom)]
pub use loom::sync::atomic::{fence, AtomicBool, AtomicI64, AtomicU32, AtomicU64, AtomicU8, AtomicUsize, Ordering};
