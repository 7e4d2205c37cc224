//! x86-64: `nop` and `jmp rel32`, of five bytes each.

use super::MOST;
use core::arch::asm;

/// Bytes of either instruction.
pub const LENGTH: usize = 5;

/// The one that does nothing: `nop dword ptr [rax + rax + KEY]` (SDM 2B, NOP). A single instruction, so no interrupt comes in the middle of it.
pub(crate) fn nothing(key: u32) -> [u8; LENGTH] {
    [0x0f, 0x1f, 0x44, 0x00, key as u8]
}

/// A jump to `distance` bytes from its own start.
pub(crate) fn jump(distance: i32) -> [u8; LENGTH] {
    // The CPU counts from the next instruction on.
    let [a, b, c, d] = (distance - LENGTH as i32).to_le_bytes();
    [0xe9, a, b, c, d]
}

/// Whether key number `KEY` is on.
#[inline(always)]
pub fn is_on<const KEY: u32>() -> bool {
    const { assert!(KEY < MOST) };
    // SAFETY: it does nothing, or goes to the label. What comes after it goes into a section of data.
    unsafe {
        asm!(
            "2: .byte 0x0f, 0x1f, 0x44, 0x00, {key}",
            ".pushsection static_keys, \"aR\", @progbits",
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

#[cfg(test)]
mod tests {
    use super::jump;

    #[test]
    fn a_jump_counts_from_the_next_instruction_on() {
        assert_eq!(jump(5), [0xe9, 0, 0, 0, 0]);
        assert_eq!(jump(0x1234_5678 + 5), [0xe9, 0x78, 0x56, 0x34, 0x12]);
        assert_eq!(jump(0), [0xe9, 0xfb, 0xff, 0xff, 0xff]);
    }
}
