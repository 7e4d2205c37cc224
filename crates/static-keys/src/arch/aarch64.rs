//! AArch64: `movz xzr, #KEY`, which does nothing, and `b` (Arm ARM, C6.2).

use super::MOST;
use core::arch::asm;

/// Bytes of either instruction.
pub const LENGTH: usize = 4;

/// The one that does nothing.
pub(crate) fn nothing(key: u32) -> [u8; LENGTH] {
    (0xd280_001f | key << 5).to_le_bytes()
}

/// A jump to `distance` bytes from its own start.
pub(crate) fn jump(distance: i32) -> [u8; LENGTH] {
    (0x1400_0000 | (distance >> 2) as u32 & 0x03ff_ffff).to_le_bytes()
}

/// Whether key number `KEY` is on.
#[inline(always)]
pub fn is_on<const KEY: u32>() -> bool {
    const { assert!(KEY < MOST) };
    // SAFETY: it does nothing, or goes to the label. What comes after it goes into a section of data.
    unsafe {
        asm!(
            "2: movz xzr, #{key}",
            ".pushsection static_keys, \"aR\", %progbits",
            ".balign 4",
            ".long 2b - ., {on} - ., {key}",
            ".popsection",
            on = label { return true },
            key = const KEY,
            options(nomem, nostack, preserves_flags),
        );
    }
    false
}
