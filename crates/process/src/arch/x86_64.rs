//! x86-64 (System V ABI, x86-64 supplement).

use machine::{Cpu, PAGE_SIZE};

/// The machine of an ELF file.
pub(crate) const ELF_MACHINE: u16 = elf::abi::EM_X86_64;
/// AT_PLATFORM.
pub(crate) const PLATFORM: &[u8] = b"x86_64";
/// Where position-independent executables go (ELF_ET_DYN_BASE), before randomization.
pub(crate) const DYNAMIC_BASE: u64 = 0x5555_5555_4000;

/// The page of code of the vDSO (user/vdso).
pub(crate) const VDSO: Option<&[u8; PAGE_SIZE]> = Some(include_bytes!(concat!(env!("OUT_DIR"), "/vdso.page")));

/// Whether a program can read the number of its CPU (RDTSCP): CPUID, leaf 0x80000001, EDX bit 27
/// (<https://www.felixcloutier.com/x86/cpuid>).
pub(crate) fn tells_cpu(cpu: &dyn Cpu) -> bool {
    cpu.identify(0x8000_0001, 0)[3] >> 27 & 1 == 1
}
