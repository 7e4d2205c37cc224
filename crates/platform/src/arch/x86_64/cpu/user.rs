//! User mode as a function call, and the rest of `machine::Cpu`.

use super::super::apic::{self, Signal};
use super::super::{interrupts, usercopy};
use super::{features, trap, Fpu};
use crate::{clock, heartbeat, paging, patching, percpu, random, sampling};
use core::{
    arch::asm,
    sync::atomic::{AtomicBool, Ordering},
};
use machine::{Access, Counter, Cpu, CpuId, Exception, FpuState, PageTable, Registers, Trap, UserAddr, USER_END};
use x86_64::registers::control::{Cr2, Cr3};
use x86_64::registers::model_specific::Msr;

#[repr(C)]
struct Left {
    vector: u64,
    code: u64,
}

// SAFETY: trap.s defines these so; no data is read through the names of places.
unsafe extern "C" {
    fn enter_user(registers: *mut Registers, sysret: u32) -> Left;
    fn take_nmis_again();
}

const SYSTEM_CALL: u64 = 256;

const FS_BASE: u32 = 0xc000_0100;
const KERNEL_GS_BASE: u32 = 0xc000_0102;

const CARRY_TO_OVERFLOW: u64 = 0xcd5;
const TRAP_FLAG: u64 = 1 << 8;
const INTERRUPTS: u64 = 1 << 9;
const RESUME: u64 = 1 << 16;
const ALIGNMENT: u64 = 1 << 18;
const CPUID_FLAG: u64 = 1 << 21;
/// Flags a program may set; the others are the kernel's.
const USER_FLAGS: u64 = CARRY_TO_OVERFLOW | TRAP_FLAG | RESUME | ALIGNMENT | CPUID_FLAG;

/// The current CPU and its siblings.
pub struct ThisCpu;

impl Cpu for ThisCpu {
    fn current(&self) -> CpuId {
        percpu::current().cpu
    }

    fn cpus(&self) -> &[CpuId] {
        percpu::ids()
    }

    fn index(&self) -> usize {
        percpu::current_index()
    }

    fn run_user(&self, registers: &mut Registers, table: &dyn PageTable, unless: &AtomicBool) -> Trap {
        // A non-canonical rip would fault in the middle of iretq (or, worse, sysret), in kernel mode;
        // bases likewise. The program gets what the CPU would have said.
        if !(is_canonical(registers.rip) & is_canonical(registers.fs_base) & is_canonical(registers.gs_base)) {
            return Trap::Exception(Exception { vector: trap::GENERAL_PROTECTION as u8, code: 0 });
        }
        registers.rflags = registers.rflags & USER_FLAGS | INTERRUPTS | 2;
        // sysret takes rip from rcx and flags from r11, and must not see an rip outside user space.
        let sysret = registers.rcx == registers.rip
            && registers.r11 == registers.rflags
            && registers.rip < USER_END
            && registers.rflags & (TRAP_FLAG | RESUME) == 0;

        paging::enter(table);
        // After the fence in it; pairs with the one of a flush (paging/shootdown.rs).
        if unless.load(Ordering::Relaxed) {
            paging::leave();
            return Trap::Interrupt;
        }
        write_bases(registers);
        // SAFETY: the registers outlive the call; the area behind gs is this CPU's; user code can only
        // come back through the entries of trap.s.
        let left = unsafe { enter_user(registers, sysret.into()) };
        usercopy::forbid_user_access();
        read_bases(registers);
        if trace::on::sample() {
            show_position(registers);
        }
        paging::leave();
        trap_of(left)
    }

    fn identify(&self, leaf: u32, sub: u32) -> [u32; 4] {
        let answer = core::arch::x86_64::__cpuid_count(leaf, sub);
        [answer.eax, answer.ebx, answer.ecx, answer.edx]
    }

    fn cycle_rate(&self) -> u64 {
        clock::rates().0
    }

    fn counter(&self) -> Option<Counter> {
        Some(clock::counter())
    }

    fn fpu_size(&self) -> usize {
        Fpu::get().bytes()
    }

    fn fpu_load(&self, state: &FpuState) {
        Fpu::get().load(state);
    }

    fn fpu_save(&self, state: &mut FpuState) {
        Fpu::get().save(state);
    }

    fn now(&self) -> u64 {
        clock::now()
    }

    fn set_alarm(&self, at: Option<u64>) {
        apic::set_alarm(at);
    }

    fn alarm_ends_user_mode(&self) -> bool {
        true
    }

    fn switch_key_on(&self, key: u32) {
        patching::switch_on(key);
    }

    fn kick(&self, cpu: CpuId) {
        if let Some(area) = percpu::of(cpu) {
            apic::send(area.hardware_id, Signal::Kick);
        }
    }

    fn capabilities(&self) -> (u64, u64) {
        (core::arch::x86_64::__cpuid(1).edx.into(), u64::from(features::has_fsgsbase()) << 1)
    }

    fn random(&self, bytes: &mut [u8]) {
        random::fill(bytes);
    }
}

/// Samples find here where the thread has left user mode.
#[cold]
fn show_position(registers: &Registers) {
    if let Some(here) = sampling::position() {
        let root = Cr3::read_raw().0.start_address().as_u64();
        here.set_place([root, registers.rip, registers.rsp, registers.rbp]);
    }
}

/// Bits 63 to 47 are equal.
fn is_canonical(address: u64) -> bool {
    address.wrapping_add(1 << 47) >> 48 == 0
}

/// Nothing that may cause a page fault comes before this: it would overwrite the address of the last.
fn trap_of(left: Left) -> Trap {
    match left.vector {
        SYSTEM_CALL => Trap::Syscall,
        trap::PAGE_FAULT => {
            let access = match (left.code >> 1 & 1, left.code >> 4 & 1) {
                (_, 1) => Access::EXEC,
                (1, _) => Access::WRITE,
                _ => Access::READ,
            };
            Trap::Page { at: UserAddr(Cr2::read_raw()), access }
        }
        vector @ 32.. => {
            interrupts::dispatch(vector as u8);
            Trap::Interrupt
        }
        trap::NMI => {
            // Before the next one can come: there is one ring.
            let sampled = sampling::take(None);
            // SAFETY: returns here, on this stack; the probe's own is left.
            unsafe { take_nmis_again() };
            heartbeat::on_probe(heartbeat::Found::UserMode, sampled);
            Trap::Interrupt
        }
        vector @ (8 | 18) => panic!("vector {vector} (double fault or machine check) in user mode"),
        vector => Trap::Exception(Exception { vector: vector as u8, code: left.code }),
    }
}

/// While in the kernel, the user's gs base is what swapgs will bring.
fn write_bases(registers: &Registers) {
    // SAFETY: both are canonical; gs is the kernel's again after the second swapgs, with interrupts
    // off in between.
    unsafe {
        if features::has_fsgsbase() {
            asm!(
                "wrfsbase {}", "swapgs", "wrgsbase {}", "swapgs",
                in(reg) registers.fs_base, in(reg) registers.gs_base, options(nostack, preserves_flags)
            );
        } else {
            Msr::new(FS_BASE).write(registers.fs_base);
            Msr::new(KERNEL_GS_BASE).write(registers.gs_base);
        }
    }
}

fn read_bases(registers: &mut Registers) {
    // SAFETY: as above.
    unsafe {
        if features::has_fsgsbase() {
            asm!(
                "rdfsbase {}", "swapgs", "rdgsbase {}", "swapgs",
                out(reg) registers.fs_base, out(reg) registers.gs_base, options(nostack, preserves_flags)
            );
        } else {
            registers.fs_base = Msr::new(FS_BASE).read();
            registers.gs_base = Msr::new(KERNEL_GS_BASE).read();
        }
    }
}
