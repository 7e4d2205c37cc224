//! Where things that are not a kernel's own lie in the physical memory of a PC.

/// Where the loader puts the primary's image (`PRIMARY_PHYS` in kernel.ld).
pub const PRIMARY_IMAGE_PHYS: u64 = 0x20_0000;

/// Physical memory below this belongs to no partition.
pub const COMMON_END: u64 = 0x20_0000;

/// The page the real-mode code is copied to, then its three page-table pages.
pub const TRAMPOLINE_PHYS: u64 = 0x8000;
pub const TRAMPOLINE_BYTES: u64 = 0x4000;

/// The board: the upper half of the common 2 MiB.
pub const BOARD_PHYS: u64 = 0x10_0000;

/// Registers that every CPU finds at the same place: its own local APIC.
pub const CPU_REGISTERS_PHYS: u64 = 0xfee0_0000;
pub const CPU_REGISTERS_BYTES: u64 = 0x1000;
