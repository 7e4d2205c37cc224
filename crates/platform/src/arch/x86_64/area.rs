//! What a CPU needs at a fixed place of its area: the words that trap.s uses, task state and descriptors. gs leads there while in the kernel.

use crate::kmap;
use crate::layout::INTERRUPT_STACK_BYTES;
use crate::percpu::PerCpu;
use core::arch::asm;
use core::cell::UnsafeCell;
use core::ptr::null_mut;
use machine::{NoMemory, Registers};
use x86_64::registers::model_specific::Msr;

/// Task state segment (SDM 3A, 8.7): only its stack pointers matter.
#[repr(C, packed(4))]
pub struct TaskState {
    reserved: u32,
    stacks: [u64; 3],
    reserved2: u64,
    interrupt_stacks: [u64; 7],
    reserved3: u64,
    reserved4: u16,
    io_map: u16,
}

/// The head of a CPU's area. Its layout is known to cpu/trap.s.
#[repr(C)]
pub struct Head {
    this: *const PerCpu,
    kernel_stack: UnsafeCell<u64>,
    registers: UnsafeCell<*mut Registers>,
    scratch: UnsafeCell<u64>,
    unused: [u64; 4],
    /// At 64: enter_user writes its first stack pointer.
    pub(super) task_state: UnsafeCell<TaskState>,
    pub(super) descriptors: UnsafeCell<[u64; 10]>,
}

const _: () = assert!(core::mem::offset_of!(PerCpu, head) == 0);
const _: () = assert!(core::mem::offset_of!(Head, task_state) == 64);

/// Stack numbers in the task state for vectors that may come at any instruction. None shares one: a machine check or an overflow of
/// the stack may come while a probe is answered.
pub const PROBE_STACK: u8 = 1;
pub const DEBUG_STACK: u8 = 2;
pub const DOUBLE_FAULT_STACK: u8 = 3;
pub const MACHINE_CHECK_STACK: u8 = 4;
const INTERRUPT_STACKS: usize = 4;

impl Head {
    #[allow(clippy::new_without_default, reason = "a constant")]
    pub const fn new() -> Head {
        let task_state = TaskState {
            reserved: 0,
            stacks: [0; 3],
            reserved2: 0,
            interrupt_stacks: [0; 7],
            reserved3: 0,
            reserved4: 0,
            io_map: core::mem::size_of::<TaskState>() as u16,
        };
        Head {
            this: core::ptr::null(),
            kernel_stack: UnsafeCell::new(0),
            registers: UnsafeCell::new(null_mut()),
            scratch: UnsafeCell::new(0),
            unused: [0; 4],
            task_state: UnsafeCell::new(task_state),
            descriptors: UnsafeCell::new([0; 10]),
        }
    }

    /// Makes what the head leads to, once its area is where it stays: at `area`.
    pub fn prepare(&mut self, area: *const PerCpu) -> Result<(), NoMemory> {
        self.this = area;
        let mut interrupt_stacks = [0; 7];
        for stack in &mut interrupt_stacks[..INTERRUPT_STACKS] {
            // The area's address stands above the frame that the CPU pushes: there trap.s finds it, whatever gs is. The CPU aligns to 16.
            *stack = kmap::new_stack(INTERRUPT_STACK_BYTES)? - 16;
            // SAFETY: the uppermost words of a new stack, which is mapped for good.
            unsafe { (*stack as *mut *const PerCpu).write(area) };
        }
        self.task_state.get_mut().interrupt_stacks = interrupt_stacks;
        Ok(())
    }
}

const GS_BASE: u32 = 0xc000_0101;

/// Makes `area` the current CPU's.
pub fn set_area(area: *const PerCpu) {
    // SAFETY: kernel code reads gs only through `area`, which expects exactly this.
    unsafe { Msr::new(GS_BASE).write(area as u64) }
}

/// The current CPU's area; null for one that is not prepared. Not before `set_area`.
#[inline]
pub fn area() -> *const PerCpu {
    let area: *const PerCpu;
    // SAFETY: gs points to this CPU's area whenever kernel code runs, and its first word at itself.
    unsafe { asm!("mov {}, gs:[0]", out(reg) area, options(nostack, preserves_flags, readonly)) };
    area
}

/// Whether this CPU has an area yet; safe to ask at any time, for the panic message.
pub fn has_area() -> bool {
    // SAFETY: reads a register.
    unsafe { Msr::new(GS_BASE).read() != 0 }
}
