//! Copies to and from user memory through the loaded page table, with faults as return values.
//!
//! Only `paging` calls these, with the right table loaded and after checking that the addresses lie in
//! user space.

use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// Read by the assembly: whether `stac` and `clac` exist and are needed.
#[unsafe(no_mangle)]
static SMAP_ON: AtomicU8 = AtomicU8::new(0);

pub fn set_smap(on: bool) {
    SMAP_ON.store(on.into(), Relaxed);
}

/// After user mode: a program may have set the flag that lets the kernel touch user memory (AC), and
/// only a system call clears it.
pub fn forbid_user_access() {
    if SMAP_ON.load(Relaxed) != 0 {
        // SAFETY: exists, says the flag; only narrows what may be done.
        unsafe { core::arch::asm!("clac", options(nostack)) }
    }
}

/// A value, and 1 if a fault came instead.
#[repr(C)]
pub struct Loaded {
    pub value: u64,
    pub faulted: u64,
}

// SAFETY: usercopy.s defines these so.
unsafe extern "C" {
    /// Copies `bytes`; gives how many were *not* copied: 0, or the fault is at `bytes` minus that.
    pub fn user_copy(to: *mut u8, from: *const u8, bytes: usize) -> usize;
    pub fn user_zero(to: *mut u8, bytes: usize) -> usize;
    /// Bytes before the first NUL within `bytes`; `faulted`: the fault is that far in.
    pub fn user_find_zero(from: *const u8, bytes: usize) -> Loaded;
    pub fn user_load_u32(from: *const u32) -> Loaded;
    /// Compare-exchange; the value found.
    pub fn user_exchange_u32(at: *mut u32, old: u32, new: u32) -> Loaded;
    fn fpu_restore(area: *const u8, low: u32, high: u32, xsave: u32) -> u32;

    static fixup_table: [u64; 3];
    static fixup_table_end: [u64; 3];
}

/// Loads extended state; false if the area is malformed.
///
/// # Safety
/// `area` is 64-byte aligned and as large as the components in `mask` need.
pub unsafe fn restore_extended(area: *const u8, mask: u64, xsave: bool) -> bool {
    // SAFETY: says the caller; a fault is a return value.
    unsafe { fpu_restore(area, mask as u32, (mask >> 32) as u32, xsave.into()) == 0 }
}

/// Where a fault at `rip` goes on; None: it is a bug of the kernel.
pub fn fixup(rip: u64) -> Option<u64> {
    // SAFETY: the table is constant data between the two symbols.
    let table = unsafe {
        let (start, end) = (&raw const fixup_table, &raw const fixup_table_end);
        core::slice::from_raw_parts(start, end.offset_from(start) as usize)
    };
    table.iter().find(|[start, end, _]| (*start..*end).contains(&rip)).map(|[_, _, to]| *to)
}
