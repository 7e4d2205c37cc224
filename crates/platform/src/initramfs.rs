//! The archive that the loader put into memory (QEMU's `-initrd`).
//!
//! It lies where the loader liked, as a rule at the end of RAM, in the partition of another kernel. So the first
//! thing the primary does with memory is to move it behind its own image; when the files are made from it,
//! its frames go to the allocator.

use crate::layout::DIRECT_BASE;
use crate::plan::LEAST_MEMORY;
use core::ops::Range;
use machine::{sync::Lock, PAGE_SIZE};

/// Physical addresses, in the own partition.
static ARCHIVE: Lock<Option<Range<u64>>> = Lock::new(None);

/// Moves the archive at `from` to `free`, which then lies behind it.
///
/// # Safety
/// The primary alone, at boot: the first 4 GiB are mapped one to one, and the RAM from `free` to `end` is in no use but the archive's.
pub(crate) unsafe fn adopt(from: Range<u64>, free: &mut u64, end: u64) {
    let bytes = from.end - from.start;
    let to = free.next_multiple_of(PAGE_SIZE as u64);
    let behind = (to + bytes).next_multiple_of(PAGE_SIZE as u64);
    if from.end > 1 << 32 || behind + LEAST_MEMORY > end {
        let kibibytes = bytes >> 10;
        crate::panic::refuse(format_args!("an initramfs of {kibibytes} KiB does not fit into the memory of kernel 0"));
    }
    // SAFETY: mapped, says the caller; the two may overlap. Words, because bytes are slow to emulate; what is read and
    // written beyond the archive is the rest of a page.
    unsafe { core::ptr::copy(from.start as *const u64, to as *mut u64, bytes.div_ceil(8) as usize) };
    *ARCHIVE.lock() = Some(to..to + bytes);
    *free = behind;
}

/// The archive. Dropping it frees its memory.
pub struct Initramfs(Range<u64>);

/// The archive, if there was one and nobody has taken it yet.
pub fn take() -> Option<Initramfs> {
    ARCHIVE.lock().take().map(Initramfs)
}

impl Initramfs {
    pub fn bytes(&self) -> &[u8] {
        let length = (self.0.end - self.0.start) as usize;
        // SAFETY: in the direct map, kept from the allocator until `drop`, and nobody writes it.
        unsafe { core::slice::from_raw_parts((DIRECT_BASE + self.0.start) as *const u8, length) }
    }
}

impl Drop for Initramfs {
    fn drop(&mut self) {
        let pages = self.0.start..self.0.end.next_multiple_of(PAGE_SIZE as u64);
        // SAFETY: `adopt` reserved just these pages, behind the image and before the first table; `take` gives them out once.
        unsafe { crate::pages::partition().give(pages) };
    }
}
