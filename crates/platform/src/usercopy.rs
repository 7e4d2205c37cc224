//! Touching user memory of the loaded page table, with recovery from faults.
//!
//! Only [`paging`](crate::paging) calls the copies: it has loaded the right table, checked the address
//! against the end of user space, and told the other CPUs. The handler of page faults in kernel mode
//! asks [`fixup`] first: if that gives an address, it resumes there with CR2 in rax.

use core::{
    arch::global_asm,
    ptr::addr_of,
    slice,
    sync::atomic::{AtomicU8, Ordering},
};
use machine::{Access, UserAddr, UserFault};

global_asm!(include_str!("usercopy.s"));

extern "C" {
    fn user_copy(to: u64, from: u64, bytes: usize) -> u64;
    fn user_zero(to: u64, bytes: usize) -> u64;
    fn user_string_length(string: u64, limit: usize, length: *mut usize) -> u64;
    fn user_load_u32(at: u64, value: *mut u32) -> u64;
    fn user_compare_exchange_u32(at: u64, old: u32, new: u32, found: *mut u32) -> u64;
    static usercopy_fixups: Fixup;
    static usercopy_fixups_end: Fixup;
}

/// Whether user memory has to be opened with `stac`: set by [`enable_smap`].
#[no_mangle]
static usercopy_smap: AtomicU8 = AtomicU8::new(0);

/// To be called once CR4.SMAP is set on a CPU, or is about to be.
pub fn enable_smap() {
    // Relaxed: `stac` is harmless early, and a CPU reads its own write.
    usercopy_smap.store(1, Ordering::Relaxed);
}

/// Distances from each field to what it names, so that the table needs no relocation.
#[repr(C)]
struct Fixup {
    from: i32,
    to: i32,
    target: i32,
}

fn named_by(field: &i32) -> u64 {
    (field as *const i32 as u64).wrapping_add_signed(i64::from(*field))
}

/// Where to go on after a page fault at `rip` in the kernel; None: that was no user access.
pub fn fixup(rip: u64) -> Option<u64> {
    // SAFETY: usercopy.s puts an array of entries between the two labels.
    let entries = unsafe {
        let (start, end) = (addr_of!(usercopy_fixups), addr_of!(usercopy_fixups_end));
        slice::from_raw_parts(start, end.offset_from(start) as usize)
    };
    let covers = |entry: &&Fixup| (named_by(&entry.from)..named_by(&entry.to)).contains(&rip);
    entries.iter().find(covers).map(|entry| named_by(&entry.target))
}

fn outcome(answer: u64, access: Access) -> Result<(), UserFault> {
    match answer {
        u64::MAX => Ok(()),
        at => Err(UserFault { at: UserAddr(at), access }),
    }
}

// The callers below (paging/user.rs) keep user addresses below USER_END, so the only kernel memory
// these touch is the buffer they are given.

pub(crate) fn read(from: UserAddr, to: &mut [u8]) -> Result<(), UserFault> {
    // SAFETY: writes `to` only; reading user memory recovers from faults.
    outcome(unsafe { user_copy(to.as_mut_ptr() as u64, from.0, to.len()) }, Access::READ)
}

pub(crate) fn write(to: UserAddr, from: &[u8]) -> Result<(), UserFault> {
    // SAFETY: reads `from` only; user memory is not the kernel's, and faults recover.
    outcome(unsafe { user_copy(to.0, from.as_ptr() as u64, from.len()) }, Access::WRITE)
}

pub(crate) fn fill_zero(to: UserAddr, bytes: usize) -> Result<(), UserFault> {
    // SAFETY: as in `write`.
    outcome(unsafe { user_zero(to.0, bytes) }, Access::WRITE)
}

/// Bytes before the NUL, or `limit`.
pub(crate) fn string_length(string: UserAddr, limit: usize) -> Result<usize, UserFault> {
    let mut length = 0;
    // SAFETY: writes `length` only.
    outcome(unsafe { user_string_length(string.0, limit, &mut length) }, Access::READ)?;
    Ok(length)
}

pub(crate) fn load_u32(at: UserAddr) -> Result<u32, UserFault> {
    let mut value = 0;
    // SAFETY: writes `value` only.
    outcome(unsafe { user_load_u32(at.0, &mut value) }, Access::READ)?;
    Ok(value)
}

pub(crate) fn compare_exchange_u32(at: UserAddr, old: u32, new: u32) -> Result<Result<u32, u32>, UserFault> {
    let mut found = 0;
    // SAFETY: user memory and `found` only.
    outcome(unsafe { user_compare_exchange_u32(at.0, old, new, &mut found) }, Access::WRITE)?;
    Ok(if found == old { Ok(found) } else { Err(found) })
}
