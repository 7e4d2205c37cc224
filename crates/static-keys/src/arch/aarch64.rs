//! AArch64: `movz xzr, #KEY`, which does nothing, and `b` (Arm ARM, C6.2).

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

/// The same for the assembler, which knows the key by name.
macro_rules! nothing_of_key {
    () => {
        "movz xzr, #{key}"
    };
}
pub(super) use nothing_of_key;
