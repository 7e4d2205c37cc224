//! What a change of code asks for ([`crate::patching`]).

use core::arch::{asm, x86_64::__cpuid};

/// Nothing that comes after this was fetched before it (SDM 3A, "Serializing Instructions").
pub fn serialize() {
    __cpuid(0);
}

/// Stores all eight bytes with one instruction, wherever `at` is: no interrupt of this CPU comes in the middle.
///
/// # Safety
///
/// They may be written.
pub unsafe fn store_code(at: *mut u64, word: u64) {
    // SAFETY: says the caller.
    unsafe { asm!("mov [{}], {}", in(reg) at, in(reg) word, options(nostack, preserves_flags)) }
}
