//! x86-64: `nop` and `jmp rel32`, of five bytes each.

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

/// The same for the assembler, which knows the key by name.
macro_rules! nothing_of_key {
    () => {
        ".byte 0x0f, 0x1f, 0x44, 0x00, {key}"
    };
}
pub(super) use nothing_of_key;

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
