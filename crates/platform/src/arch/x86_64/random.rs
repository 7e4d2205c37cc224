//! The instruction that gives random bits.

use core::arch::{asm, x86_64::__cpuid};

/// None: this CPU has no such instruction, or it has nothing to give.
pub fn word() -> Option<u64> {
    if __cpuid(1).ecx >> 30 & 1 == 0 {
        return None;
    }
    for _ in 0..10 {
        let (value, ok): (u64, u8);
        // SAFETY: RDRAND exists, says CPUID; it touches no memory.
        unsafe { asm!("rdrand {}", "setc {}", out(reg) value, out(reg_byte) ok, options(nomem, nostack)) }
        if ok == 1 {
            return Some(value);
        }
    }
    None
}
