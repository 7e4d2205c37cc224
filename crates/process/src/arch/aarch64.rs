//! AArch64 (System V ABI for the Arm 64-bit architecture).

use machine::{Cpu, PAGE_SIZE};

/// The machine of an ELF file.
pub(crate) const ELF_MACHINE: u16 = elf::abi::EM_AARCH64;
/// AT_PLATFORM.
pub(crate) const PLATFORM: &[u8] = b"aarch64";
/// Where position-independent executables go (ELF_ET_DYN_BASE: two thirds of user space), before randomization.
pub(crate) const DYNAMIC_BASE: u64 = 0xaaaa_aaaa_a000;

/// There is none yet: programs read the clock by system calls.
pub(crate) const VDSO: Option<&[u8; PAGE_SIZE]> = None;

/// No register of user mode tells the CPU's number.
pub(crate) fn tells_cpu(_: &dyn Cpu) -> bool {
    false
}
