//! Control register bits: what protects the kernel from user mode, where the CPU has it.

use super::super::usercopy;
use core::arch::x86_64::{__cpuid, __cpuid_count};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use x86_64::registers::control::{Cr0, Cr0Flags, Cr4, Cr4Flags, Efer, EferFlags};
use x86_64::registers::model_specific::Msr;

static FSGSBASE: AtomicBool = AtomicBool::new(false);
static RDTSCP: AtomicBool = AtomicBool::new(false);

/// Whether `rdfsbase` and its kin may be used, here and in user mode.
pub fn has_fsgsbase() -> bool {
    FSGSBASE.load(Relaxed)
}

pub fn has_rdtscp() -> bool {
    RDTSCP.load(Relaxed)
}

/// On the current CPU. All CPUs of a machine are taken to be alike.
pub fn enable() {
    let basic = __cpuid(1);
    let extended = if __cpuid(0).eax >= 7 { __cpuid_count(7, 0) } else { __cpuid_count(0x8000_0000, 0) };
    let has_leaf7 = __cpuid(0).eax >= 7;
    let leaf7_ebx = if has_leaf7 { extended.ebx } else { 0 };
    let leaf7_ecx = if has_leaf7 { extended.ecx } else { 0 };
    let bit = |word: u32, at: u32| word >> at & 1 == 1;

    let mut cr4 =
        Cr4Flags::PHYSICAL_ADDRESS_EXTENSION | Cr4Flags::PAGE_GLOBAL | Cr4Flags::OSFXSR | Cr4Flags::OSXMMEXCPT_ENABLE;
    cr4.set(Cr4Flags::OSXSAVE, bit(basic.ecx, 26));
    cr4.set(Cr4Flags::FSGSBASE, bit(leaf7_ebx, 0));
    cr4.set(Cr4Flags::SUPERVISOR_MODE_EXECUTION_PROTECTION, bit(leaf7_ebx, 7));
    cr4.set(Cr4Flags::SUPERVISOR_MODE_ACCESS_PREVENTION, bit(leaf7_ebx, 20));
    cr4.set(Cr4Flags::USER_MODE_INSTRUCTION_PREVENTION, bit(leaf7_ecx, 2));
    FSGSBASE.store(cr4.contains(Cr4Flags::FSGSBASE), Relaxed);
    usercopy::set_smap(cr4.contains(Cr4Flags::SUPERVISOR_MODE_ACCESS_PREVENTION));
    let last_extended = __cpuid(0x8000_0000).eax;
    RDTSCP.store(last_extended >= 0x8000_0001 && bit(__cpuid(0x8000_0001).edx, 27), Relaxed);

    // SAFETY: every bit was asked of CPUID; the kernel keeps the promises they make (user memory is only
    // touched between stac and clac, text is not writable, user pages are not executed).
    unsafe {
        Efer::write(Efer::read() | EferFlags::NO_EXECUTE_ENABLE | EferFlags::SYSTEM_CALL_EXTENSIONS);
        let cr0 = Cr0Flags::PROTECTED_MODE_ENABLE
            | Cr0Flags::PAGING
            | Cr0Flags::WRITE_PROTECT
            | Cr0Flags::NUMERIC_ERROR
            | Cr0Flags::MONITOR_COPROCESSOR
            | Cr0Flags::EXTENSION_TYPE;
        Cr0::write(cr0);
        Cr4::write(cr4);
    }
    restrict_branches(bit(if has_leaf7 { extended.edx } else { 0 }, 29), last_extended);
}

/// Where the CPU can keep what user mode has taught its branch predictor from the kernel by itself (Intel's enhanced IBRS, AMD's automatic
/// IBRS), switches that on, once. Without it nothing is done: see docs/security.md.
fn restrict_branches(has_capabilities: bool, last_extended: u32) {
    const ARCH_CAPABILITIES: u32 = 0x10a;
    const SPEC_CTRL: u32 = 0x48;
    const IBRS_ALL: u64 = 1 << 1;
    const IBRS: u64 = 1;
    const AUTOMATIC_IBRS: u64 = 1 << 21;
    // SAFETY: each register and bit exists, says CPUID or the register that lists capabilities, and only narrows what is predicted.
    unsafe {
        if has_capabilities && Msr::new(ARCH_CAPABILITIES).read() & IBRS_ALL != 0 {
            Msr::new(SPEC_CTRL).write(Msr::new(SPEC_CTRL).read() | IBRS);
        }
        if last_extended >= 0x8000_0021 && __cpuid(0x8000_0021).eax >> 8 & 1 == 1 {
            Efer::write_raw(Efer::read_raw() | AUTOMATIC_IBRS);
        }
    }
}
