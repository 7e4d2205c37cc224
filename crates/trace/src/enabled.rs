//! Which points are on. A kernel has its own copy of its image, and so of these words. A program of the host may have many kernels, of which each of its threads runs
//! one at a time (crate `sim`): there, each thread has its own.

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
#[inline(always)]
fn words<T>(look: impl FnOnce(&Words) -> T) -> T {
    look(&WORDS)
}

#[cfg(not(target_os = "none"))]
#[inline(always)]
fn words<T>(look: impl FnOnce(&Words) -> T) -> T {
    WORDS.with(look)
}

#[inline(always)]
pub fn is_on(number: usize) -> bool {
    words(|words| words[number / 32].load(Relaxed) & 1 << (number % 32) != 0)
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
