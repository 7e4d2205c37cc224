//! What belongs to one CPU. Reached through gs while in the kernel; nobody else writes it, except for
//! the event flags.

use crate::layout::{INTERRUPT_STACK_BYTES, STACK_BYTES};
use crate::{kmap, magazine::Magazine};
use alloc::{boxed::Box, vec::Vec};
use core::arch::asm;
use core::cell::UnsafeCell;
use core::ptr::{null_mut, NonNull};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use machine::{CpuId, NoMemory, Registers};
use spin::Once;
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

/// The head's layout is known to cpu/trap.s.
#[repr(C)]
pub struct PerCpu {
    this: *const PerCpu,
    kernel_stack: UnsafeCell<u64>,
    registers: UnsafeCell<*mut Registers>,
    scratch: UnsafeCell<u64>,
    unused: [u64; 4],
    /// At 64: enter_user writes its first stack pointer.
    pub(crate) task_state: UnsafeCell<TaskState>,
    pub(crate) descriptors: UnsafeCell<[u64; 10]>,
    pub cpu: CpuId,
    /// Position among the CPUs of this kernel.
    pub index: u32,
    pub apic: u32,
    pub node: u32,
    /// Flags of `irq::Events` not yet taken.
    pub events: AtomicU32,
    pub online: AtomicBool,
    /// For when the timer is armed (ns of the clock); 0: it is not.
    pub alarm: AtomicU64,
    pub(crate) windows: NonNull<u64>,
    /// Past the end of the stack.
    pub(crate) stack: u64,
    /// Of the heap; only its allocator uses it.
    pub(crate) magazine: UnsafeCell<Magazine>,
}

// SAFETY: the cells are written by the CPU that owns the area only (and before it starts, by the one
// that starts it); the rest is constant or atomic.
unsafe impl Sync for PerCpu {}
// SAFETY: as above.
unsafe impl Send for PerCpu {}

const _: () = assert!(core::mem::offset_of!(PerCpu, task_state) == 64);

/// Stack numbers in the task state for vectors that may come at any instruction. None shares one: a machine check or an overflow of
/// the stack may come while a probe is answered.
pub const PROBE_STACK: u8 = 1;
pub const DEBUG_STACK: u8 = 2;
pub const DOUBLE_FAULT_STACK: u8 = 3;
pub const MACHINE_CHECK_STACK: u8 = 4;
const INTERRUPT_STACKS: usize = 4;

impl PerCpu {
    const fn new(cpu: CpuId, index: u32, apic: u32, node: u32) -> PerCpu {
        let task_state = TaskState {
            reserved: 0,
            stacks: [0; 3],
            reserved2: 0,
            interrupt_stacks: [0; 7],
            reserved3: 0,
            reserved4: 0,
            io_map: core::mem::size_of::<TaskState>() as u16,
        };
        PerCpu {
            this: core::ptr::null(),
            kernel_stack: UnsafeCell::new(0),
            registers: UnsafeCell::new(null_mut()),
            scratch: UnsafeCell::new(0),
            unused: [0; 4],
            task_state: UnsafeCell::new(task_state),
            descriptors: UnsafeCell::new([0; 10]),
            cpu,
            index,
            apic,
            node,
            events: AtomicU32::new(0),
            online: AtomicBool::new(false),
            alarm: AtomicU64::new(0),
            windows: NonNull::dangling(),
            stack: 0,
            magazine: UnsafeCell::new(Magazine::new()),
        }
    }

    /// Everything a CPU needs before it runs.
    fn create(cpu: CpuId, index: u32, apic: u32, node: u32) -> Result<&'static PerCpu, NoMemory> {
        let mut area = Box::new(PerCpu::new(cpu, index, apic, node));
        area.this = &raw const *area;
        area.windows = kmap::prepare_windows(index as usize)?;
        area.stack = kmap::new_stack(STACK_BYTES)?;
        let mut interrupt_stacks = [0; 7];
        for stack in &mut interrupt_stacks[..INTERRUPT_STACKS] {
            // The area's address stands above the frame that the CPU pushes: there trap.s finds it, whatever gs is. The CPU aligns to 16.
            *stack = kmap::new_stack(INTERRUPT_STACK_BYTES)? - 16;
            // SAFETY: the uppermost words of a new stack, which is mapped for good.
            unsafe { (*stack as *mut *const PerCpu).write(area.this) };
        }
        area.task_state.get_mut().interrupt_stacks = interrupt_stacks;
        Ok(Box::leak(area))
    }
}

/// For the time before the real areas exist: frames and log ask which CPU they are on.
static EARLY: PerCpu = PerCpu::new(CpuId(u32::MAX), 0, 0, 0);
static CPUS: Once<Vec<&'static PerCpu>> = Once::new();
static IDS: Once<Vec<CpuId>> = Once::new();

const GS_BASE: u32 = 0xc000_0101;

fn load_gs(area: *const PerCpu) {
    // SAFETY: kernel code reads gs only through `current`, which expects exactly this.
    unsafe { Msr::new(GS_BASE).write(area as u64) }
}

/// Before anything else in a new kernel.
pub fn init_early() {
    load_gs(&EARLY);
}

/// Makes the areas of all CPUs of this kernel; the boot CPU's is the first.
pub fn create_all(plan: &crate::plan::Plan, cpus: &[CpuId]) -> Result<(), NoMemory> {
    let mut areas = Vec::new();
    for (index, &cpu) in cpus.iter().enumerate() {
        let info = plan.topology.cpus[cpu.0 as usize];
        areas.push(PerCpu::create(cpu, index as u32, info.apic, info.node)?);
    }
    IDS.call_once(|| cpus.to_vec());
    CPUS.call_once(|| areas);
    Ok(())
}

/// Makes `area` the current CPU's.
pub fn install(area: &'static PerCpu) {
    load_gs(area);
}

/// All CPUs of this kernel, by index.
pub fn all() -> &'static [&'static PerCpu] {
    CPUS.get().map_or(&[], Vec::as_slice)
}

pub fn ids() -> &'static [CpuId] {
    IDS.get().map_or(&[], Vec::as_slice)
}

pub fn of(cpu: CpuId) -> Option<&'static PerCpu> {
    all().iter().copied().find(|area| area.cpu == cpu)
}

/// The current CPU's area. Not before `install`.
pub fn current() -> &'static PerCpu {
    let area: *const PerCpu;
    // SAFETY: gs points to this CPU's area whenever kernel code runs, and its first word at itself.
    unsafe {
        asm!("mov {}, gs:[0]", out(reg) area, options(nostack, preserves_flags, readonly));
        if area.is_null() {
            &EARLY
        } else {
            &*area
        }
    }
}

pub fn current_index() -> usize {
    current().index as usize
}

/// Whether this CPU has an area yet; safe to ask at any time, for the panic message.
pub fn is_installed() -> bool {
    // SAFETY: reads a register.
    unsafe { Msr::new(GS_BASE).read() != 0 }
}

impl PerCpu {
    pub(crate) fn take_events(&self) -> u32 {
        self.events.swap(0, Relaxed)
    }
}
