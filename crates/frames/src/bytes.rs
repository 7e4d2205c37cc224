//! Raw operations on the bytes of a mapped frame.
//!
//! A frame may be in use by user code on other CPUs at the same moment, so nothing here makes a
//! reference to it. Whole pages move in unrolled words: the kernel has no vector registers, and an
//! emulator runs `rep stos` an element at a time.

use core::{
    ptr,
    sync::atomic::{AtomicU32, Ordering},
};
use machine::PAGE_SIZE;

const WORDS: usize = PAGE_SIZE / 8;
const UNROLL: usize = 8;

/// # Safety
/// `page` is page-aligned and mapped writable for a page.
pub unsafe fn zero(page: *mut u8) {
    let words = page.cast::<u64>();
    for start in (0..WORDS).step_by(UNROLL) {
        for word in start..start + UNROLL {
            // SAFETY: inside the page. Volatile, so that this doesn't become a call of memset.
            unsafe { words.add(word).write_volatile(0) };
        }
    }
}

/// # Safety
/// Both are page-aligned and mapped for a page, `to` writable.
pub unsafe fn copy(from: *const u8, to: *mut u8) {
    let (from, to) = (from.cast::<u64>(), to.cast::<u64>());
    for start in (0..WORDS).step_by(UNROLL) {
        for word in start..start + UNROLL {
            // SAFETY: inside the pages. Volatile, so that this doesn't become a call of memcpy.
            unsafe { to.add(word).write_volatile(from.add(word).read_volatile()) };
        }
    }
}

/// # Safety
/// `page` is mapped for a page. Panics if the bytes leave it.
pub unsafe fn read(page: *const u8, offset: usize, to: &mut [u8]) {
    assert!(offset + to.len() <= PAGE_SIZE, "read leaves the frame");
    // SAFETY: inside the page, and a kernel buffer never overlaps a frame that is handed out.
    unsafe { ptr::copy_nonoverlapping(page.add(offset), to.as_mut_ptr(), to.len()) };
}

/// # Safety
/// `page` is mapped writable for a page. Panics if the bytes leave it.
pub unsafe fn write(page: *mut u8, offset: usize, from: &[u8]) {
    assert!(offset + from.len() <= PAGE_SIZE, "write leaves the frame");
    // SAFETY: as in `read`.
    unsafe { ptr::copy_nonoverlapping(from.as_ptr(), page.add(offset), from.len()) };
}

/// The aligned word at `offset`, for atomic access.
///
/// # Safety
/// `page` is page-aligned and mapped writable for a page as long as the result is used.
pub unsafe fn word<'a>(page: *mut u8, offset: usize) -> &'a AtomicU32 {
    assert!(offset.is_multiple_of(4) && offset < PAGE_SIZE, "no aligned word of the frame");
    // SAFETY: aligned and inside the page; user code touches the word with whole-word instructions.
    unsafe { AtomicU32::from_ptr(page.add(offset).cast()) }
}

/// # Safety
/// As for [`word`].
pub unsafe fn load_u32(page: *mut u8, offset: usize) -> u32 {
    // SAFETY: the caller's promise. SeqCst: futex compares pair with user space's full barriers.
    unsafe { word(page, offset) }.load(Ordering::SeqCst)
}

/// # Safety
/// As for [`word`].
pub unsafe fn compare_exchange_u32(page: *mut u8, offset: usize, old: u32, new: u32) -> Result<u32, u32> {
    // SAFETY: the caller's promise; SeqCst as in `load_u32`.
    unsafe { word(page, offset) }.compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst)
}
