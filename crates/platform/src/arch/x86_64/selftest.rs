//! What of `cob.selftest=platform` (selftest.rs) is about x86-64: instructions, registers, protections.

use super::entry::Bits;
use crate::selftest::{run_code, CODE, GO, WILD};
use alloc::{sync::Arc, vec};
use core::arch::x86_64::{__cpuid, __cpuid_count};
use core::sync::atomic::AtomicBool;
use machine::{Access, Exception, FpuState, PageTable, Registers, Trap, UserAddr};
use x86_64::registers::control::{Cr0, Cr0Flags, Cr4, Cr4Flags, Efer, EferFlags};
use x86_64::registers::rflags::RFlags;

/// A jump to itself.
pub const FOREVER: [u8; 2] = [0xeb, 0xfe];

/// Whether a page of the kernel can be written and executed.
pub fn is_writable_text(bits: u64) -> bool {
    let bits = Bits::from_bits_retain(bits);
    bits.contains(Bits::WRITE) && !bits.contains(Bits::NO_EXECUTE)
}

fn exception(vector: u8) -> Trap {
    Trap::Exception(Exception { vector, code: 0 })
}

pub fn user_mode(table: &Arc<dyn PageTable>) {
    let mut r =
        Registers { rax: 1, rbx: 2, rsp: 0x1234_5670, r15: 15, fs_base: 0x7000, gs_base: 0x8000, ..Default::default() };
    // lea rbx, [rbx + r15]; syscall; syscall
    assert_eq!(run_code(table, &[0x4a, 0x8d, 0x1c, 0x3b, 0x0f, 0x05, 0x0f, 0x05], &mut r), Trap::Syscall);
    assert_eq!((r.rax, r.rbx, r.r15, r.rsp, r.rip), (1, 17, 15, 0x1234_5670, CODE.0 + 6));
    assert_eq!((r.fs_base, r.gs_base, r.rcx, r.r11), (0x7000, 0x8000, r.rip, r.rflags));
    // Not a step if somebody says so before it begins.
    assert_eq!(crate::cpu().run_user(&mut r, &**table, &AtomicBool::new(true)), Trap::Interrupt);
    assert_eq!((r.rip, r.r15), (CODE.0 + 6, 15));
    // Straight on, this time by sysret.
    assert_eq!(crate::cpu().run_user(&mut r, &**table, &GO), Trap::Syscall);
    assert_eq!((r.rip, r.r15), (CODE.0 + 8, 15));
    // By iretq: rcx and r11 come through.
    r.rcx = 77;
    r.r11 = 88;
    r.rflags = !0;
    assert_eq!(run_code(table, &[0x90], &mut r), exception(1)); // the trap flag
                                                                // The flag that opens user memory to the kernel doesn't outlive user mode.
    assert!(r.rflags >> 18 & 1 == 1 && !x86_64::registers::rflags::read().contains(RFlags::ALIGNMENT_CHECK));
    r.rflags = 0;
    assert_eq!(run_code(table, &[0xcc], &mut r), exception(3));
    assert_eq!((r.rcx, r.r11), (77, 88));
    assert_eq!(run_code(table, &[0x0f, 0x0b], &mut r), exception(6));
    assert!(matches!(run_code(table, &[0xfa], &mut r), Trap::Exception(Exception { vector: 13, .. }))); // cli
    assert!(matches!(run_code(table, &[0xcd, 0x80], &mut r), Trap::Exception(Exception { vector: 13, .. }))); // int 0x80
                                                                                                              // mov [rax], rax; mov rax, [rax]; call rax
    r.rax = WILD.0;
    let page = |access| Trap::Page { at: WILD, access };
    assert_eq!(run_code(table, &[0x48, 0x89, 0x00], &mut r), page(Access::WRITE));
    assert_eq!(run_code(table, &[0x48, 0x8b, 0x00], &mut r), page(Access::READ));
    assert_eq!(run_code(table, &[0xff, 0xe0], &mut r), page(Access::EXEC));
    r.rax = crate::layout::IMAGE_BASE;
    let kernel = Trap::Page { at: UserAddr(r.rax), access: Access::READ };
    assert_eq!(run_code(table, &[0x48, 0x8b, 0x00], &mut r), kernel);
    for wild in [1 << 47, 0x8000_0000_0000_1000, 0xffff_7fff_ffff_ffff] {
        r.rip = wild;
        r.rcx = wild;
        r.r11 = r.rflags;
        assert_eq!(crate::cpu().run_user(&mut r, &**table, &GO), exception(13));
    }
}

/// What the CPU offers against programs is on (docs/security.md).
pub fn protections() {
    let has_leaf7 = __cpuid(0).eax >= 7;
    let [ebx, ecx] = if has_leaf7 { [__cpuid_count(7, 0).ebx, __cpuid_count(7, 0).ecx] } else { [0, 0] };
    for (offered, flag) in [
        (ebx >> 7 & 1, Cr4Flags::SUPERVISOR_MODE_EXECUTION_PROTECTION),
        (ebx >> 20 & 1, Cr4Flags::SUPERVISOR_MODE_ACCESS_PREVENTION),
        (ecx >> 2 & 1, Cr4Flags::USER_MODE_INSTRUCTION_PREVENTION),
    ] {
        assert!(offered == 0 || Cr4::read().contains(flag), "{flag:?} is off");
    }
    assert!(Cr0::read().contains(Cr0Flags::WRITE_PROTECT) && Efer::read().contains(EferFlags::NO_EXECUTE_ENABLE));
}

pub fn extended_state() {
    let cpu = crate::cpu();
    let mut state = FpuState::initial(cpu.fpu_size());
    cpu.fpu_load(&state);
    cpu.fpu_save(&mut state);
    let bytes = state.as_bytes().to_vec();
    assert_eq!((bytes[0], bytes[1]), (0x7f, 0x03), "control word");
    // Garbage from a signal frame must not hurt the kernel.
    let mut garbage = FpuState::initial(cpu.fpu_size());
    garbage.set_bytes(&vec![0xff; cpu.fpu_size()]);
    cpu.fpu_load(&garbage);
    cpu.fpu_save(&mut state);
    // FXRSTOR takes what XRSTOR refuses.
    assert!(cpu.fpu_size() <= 512 || state.as_bytes()[..2] == [0x7f, 0x03]);
}
