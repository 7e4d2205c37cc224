//! What belongs to one CPU. Reached through a register while in the kernel; nobody else writes it, except for
//! the event flags.

use crate::arch::{self, Head};
use crate::layout::STACK_BYTES;
use crate::{kmap, magazine::Magazine};
use alloc::{boxed::Box, vec::Vec};
use core::cell::UnsafeCell;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use machine::{CpuId, NoMemory};
use spin::Once;

#[repr(C)]
pub struct PerCpu {
    /// First: the architecture's entries know where it is.
    pub(crate) head: Head,
    pub cpu: CpuId,
    /// Position among the CPUs of this kernel.
    pub index: u32,
    /// What interrupts for it are addressed to.
    pub hardware_id: u32,
    pub node: u32,
    /// Flags of `irq::Events` not yet taken.
    pub events: AtomicU32,
    pub online: AtomicBool,
    /// The change of code that it has last waited for, or made; and whether the interrupt for it may come after that (patching.rs).
    pub(crate) change: AtomicU32,
    pub(crate) change_comes_late: AtomicBool,
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

impl PerCpu {
    const fn new(cpu: CpuId, index: u32, hardware_id: u32, node: u32) -> PerCpu {
        PerCpu {
            head: Head::new(),
            cpu,
            index,
            hardware_id,
            node,
            events: AtomicU32::new(0),
            online: AtomicBool::new(false),
            change: AtomicU32::new(0),
            change_comes_late: AtomicBool::new(false),
            alarm: AtomicU64::new(0),
            windows: NonNull::dangling(),
            stack: 0,
            magazine: UnsafeCell::new(Magazine::new()),
        }
    }

    /// Everything a CPU needs before it runs.
    fn create(cpu: CpuId, index: u32, hardware_id: u32, node: u32) -> Result<&'static PerCpu, NoMemory> {
        let mut area = Box::new(PerCpu::new(cpu, index, hardware_id, node));
        let at = &raw const *area;
        area.windows = kmap::prepare_windows(index as usize)?;
        area.stack = kmap::new_stack(STACK_BYTES)?;
        area.head.prepare(at)?;
        Ok(Box::leak(area))
    }
}

/// For the time before the real areas exist: frames and log ask which CPU they are on.
static EARLY: PerCpu = PerCpu::new(CpuId(u32::MAX), 0, 0, 0);
static CPUS: Once<Vec<&'static PerCpu>> = Once::new();
static IDS: Once<Vec<CpuId>> = Once::new();

/// Before anything else in a new kernel.
pub fn init_early() {
    arch::set_area(&EARLY);
}

/// Makes the areas of all CPUs of this kernel; the boot CPU's is the first.
pub fn create_all(plan: &crate::plan::Plan, cpus: &[CpuId]) -> Result<(), NoMemory> {
    let mut areas = Vec::new();
    for (index, &cpu) in cpus.iter().enumerate() {
        let info = plan.topology.cpus[cpu.0 as usize];
        areas.push(PerCpu::create(cpu, index as u32, info.hardware_id, info.node)?);
    }
    IDS.call_once(|| cpus.to_vec());
    CPUS.call_once(|| areas);
    Ok(())
}

/// Makes `area` the current CPU's.
pub fn install(area: &'static PerCpu) {
    arch::set_area(area);
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
#[inline]
pub fn current() -> &'static PerCpu {
    // SAFETY: what was installed lives for ever.
    unsafe { arch::area().as_ref() }.unwrap_or(&EARLY)
}

pub fn current_index() -> usize {
    current().index as usize
}

/// Whether this CPU has an area yet; safe to ask at any time, for the panic message.
pub fn is_installed() -> bool {
    arch::has_area()
}

impl PerCpu {
    pub(crate) fn take_events(&self) -> u32 {
        self.events.swap(0, Relaxed)
    }
}
