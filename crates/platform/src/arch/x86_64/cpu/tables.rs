//! Segment and interrupt descriptor tables, and the system call registers. The selectors are Linux's:
//! programs see them in signal frames.

use super::super::area::{DEBUG_STACK, DOUBLE_FAULT_STACK, MACHINE_CHECK_STACK, PROBE_STACK};
use super::features;
use crate::percpu::PerCpu;
use core::arch::asm;
use core::cell::UnsafeCell;
use x86_64::registers::model_specific::Msr;

pub const KERNEL_CODE: u16 = 0x10;
pub const KERNEL_DATA: u16 = 0x18;
const TASK: u16 = 0x40;

const STAR: u32 = 0xc000_0081;
const LSTAR: u32 = 0xc000_0082;
const SFMASK: u32 = 0xc000_0084;
const TSC_AUX: u32 = 0xc000_0103;

// SAFETY: trap.s defines these so; no data is read through the names of places.
unsafe extern "C" {
    static trap_vectors: u8;
    fn syscall_entry();
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Gate {
    low: u64,
    high: u64,
}

/// One table for all CPUs of the kernel: what differs between them is behind gs and the task state.
#[repr(C, align(16))]
struct Gates(UnsafeCell<[Gate; 256]>);

// SAFETY: written by the boot CPU before any other runs (`fill_gates`), read by hardware only.
unsafe impl Sync for Gates {}

static GATES: Gates = Gates(UnsafeCell::new([Gate { low: 0, high: 0 }; 256]));

/// Once per kernel, by its boot CPU.
pub fn fill_gates() {
    let stubs = &raw const trap_vectors as u64;
    for vector in 0..256u64 {
        let stub = stubs + vector * 16;
        let stack = match vector {
            1 => DEBUG_STACK,
            2 => PROBE_STACK,
            8 => DOUBLE_FAULT_STACK,
            18 => MACHINE_CHECK_STACK,
            _ => 0,
        };
        // int3 and into may be executed by programs.
        let privilege: u64 = if matches!(vector, 3 | 4) { 3 } else { 0 };
        let low = stub & 0xffff
            | u64::from(KERNEL_CODE) << 16
            | u64::from(stack) << 32
            | (0x8e | privilege << 5) << 40
            | (stub >> 16 & 0xffff) << 48;
        // SAFETY: the boot CPU is alone, and interrupts are off.
        unsafe { (*GATES.0.get())[vector as usize] = Gate { low, high: stub >> 32 } };
    }
}

#[repr(C, packed)]
struct Pointer {
    limit: u16,
    base: u64,
}

/// Loads the tables on the current CPU.
pub fn load(area: &'static PerCpu) {
    let task = area.head.task_state.get() as u64;
    let limit = core::mem::size_of_val(&area.head.task_state) as u64 - 1;
    let descriptors = [
        0,
        0,
        0x00af_9b00_0000_ffff, // 0x10 kernel code
        0x00cf_9300_0000_ffff, // 0x18 kernel data
        0x00cf_fb00_0000_ffff, // 0x20 32-bit user code (sysret counts from here)
        0x00cf_f300_0000_ffff, // 0x28 user data
        0x00af_fb00_0000_ffff, // 0x30 user code
        0,
        limit & 0xffff | (task & 0xff_ffff) << 16 | 0x89 << 40 | (task >> 24 & 0xff) << 56, // 0x40 task
        task >> 32,
    ];
    // SAFETY: the area belongs to this CPU and lives for ever; the descriptors describe flat segments
    // and its task state; the gates were filled.
    unsafe {
        *area.head.descriptors.get() = descriptors;
        let gdt = Pointer { limit: 10 * 8 - 1, base: area.head.descriptors.get() as u64 };
        let idt = Pointer { limit: 256 * 16 - 1, base: GATES.0.get() as u64 };
        asm!(
            "lgdt [{gdt}]",
            "push {code}",
            "lea {t}, [rip + 2f]",
            "push {t}",
            "retfq",
            "2:",
            "mov ss, {data:x}",
            "mov ds, {data:x}",
            "mov es, {data:x}",
            "xor {t:e}, {t:e}",
            "mov fs, {t:x}",
            "mov gs, {t:x}",
            "ltr {task:x}",
            "lidt [{idt}]",
            gdt = in(reg) &gdt,
            idt = in(reg) &idt,
            code = in(reg) u64::from(KERNEL_CODE),
            data = in(reg) u64::from(KERNEL_DATA),
            task = in(reg) u64::from(TASK),
            t = out(reg) _,
        );
    }
}

pub fn enable_system_calls(area: &PerCpu) {
    // SAFETY: architectural registers; the entry point keeps its side of the bargain. The flags that
    // must be clear in the kernel: interrupts, trap, direction, alignment/user access, nested task.
    unsafe {
        Msr::new(STAR).write(0x23 << 48 | u64::from(KERNEL_CODE) << 32);
        Msr::new(LSTAR).write(syscall_entry as *const () as u64);
        Msr::new(SFMASK).write(0x4_7700 | 0xd5);
        if features::has_rdtscp() {
            // What Linux puts there: rdtscp and rdpid tell programs their CPU and node.
            Msr::new(TSC_AUX).write(u64::from(area.node) << 12 | u64::from(area.cpu.0));
        }
    }
}
