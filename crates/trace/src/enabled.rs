//! Which points are on.
//!
//! A kernel keeps it twice. In words, which are what counts; and in its code, where each place that passes a point is an instruction that does nothing while the point is off (crate
//! `static-keys`). A new kernel has its own copy of the image, and so of both. Who sets the words has the code follow them ([`crate::Sink::points_changed`]).
//!
//! A program of the host may have many kernels, of which each of its threads runs one at a time (crate `sim`): there, each thread has its own words, and each place looks at them.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Bit N % 32 of word N / 32: point N is on.
type Words = [AtomicU32; 2];

#[cfg(target_os = "none")]
static WORDS: Words = [AtomicU32::new(0), AtomicU32::new(0)];
#[cfg(not(target_os = "none"))]
std::thread_local! {
    static WORDS: Words = const { [AtomicU32::new(0), AtomicU32::new(0)] };
}

#[cfg(target_os = "none")]
fn words<T>(look: impl FnOnce(&Words) -> T) -> T {
    look(&WORDS)
}

#[cfg(not(target_os = "none"))]
#[inline(always)]
fn words<T>(look: impl FnOnce(&Words) -> T) -> T {
    WORDS.with(look)
}

#[cfg(target_os = "none")]
#[inline(always)]
pub fn is_on<const POINT: u32>() -> bool {
    static_keys::is_on::<POINT>()
}

#[cfg(not(target_os = "none"))]
#[inline(always)]
pub fn is_on<const POINT: u32>() -> bool {
    words(|words| words[(POINT / 32) as usize].load(Relaxed) & 1 << (POINT % 32) != 0)
}

pub fn get() -> u64 {
    words(|words| u64::from(words[0].load(Relaxed)) | u64::from(words[1].load(Relaxed)) << 32)
}

pub fn set(points: u64) {
    words(|words| {
        words[0].store(points as u32, Relaxed);
        words[1].store((points >> 32) as u32, Relaxed);
    });
}
