//! From the first instruction to `kernel_main`, and starting others.
//!
//! The primary: the architecture's first instructions -> [`primary`], which reads what loader and firmware say, plans
//! the partitions, fills the board, and builds its page table. A secondary: somebody copied the image
//! and built a page table ([`secondary`]); the architecture's launch ends in [`secondary_start`]. Both go on in
//! [`enter_kernel`], on the boot CPU's own stack.

mod firmware;
mod secondary;
mod siblings;

pub use secondary::boot_kernel;
pub use siblings::start_siblings;

use crate::layout::*;
use crate::plan::{MemoryRange, Plan};
use crate::tables::{self, ImageShape, TableMemory};
use crate::{arch, board, clock, heap, initramfs, kmap, logger, pages, paging, percpu};
use alloc::{string::String, vec::Vec};
use core::ops::Range;
use core::sync::atomic::Ordering::Relaxed;
use machine::{CpuId, KernelId, NoMemory, PAGE_SIZE};

// SAFETY: the architecture's kernel.ld defines these so; no data is read through the names of places.
unsafe extern "C" {
    static text_end: u8;
    static rodata_end: u8;
    static image_end: u8;
}

// SAFETY: the macro that defines it takes no other type.
unsafe extern "Rust" {
    /// Defined by `platform::entry!` in the kernel.
    fn cob_kernel_main(boot: Boot) -> !;
}

/// What a kernel is told when it starts.
pub struct Boot {
    pub kernel: KernelId,
    /// Of this kernel; the first is the one that runs.
    pub cpus: &'static [CpuId],
    pub memory: &'static [MemoryRange],
    /// Of all kernels.
    pub plan: &'static Plan,
}

impl Boot {
    pub fn command_line(&self) -> &'static str {
        &self.plan.command_line
    }
}

/// How the image is laid out; the same for every copy.
pub fn image_shape() -> ImageShape {
    let offset = |symbol: *const u8| symbol as u64 - IMAGE_BASE;
    ImageShape {
        text_end: offset(&raw const text_end),
        rodata_end: offset(&raw const rodata_end),
        end: offset(&raw const image_end),
    }
}

/// What a new kernel must know before it can look at the board.
#[repr(C)]
#[derive(Clone, Copy)]
struct Start {
    kernel: u64,
    root: u64,
    /// First byte of the partition that is in no use yet.
    free: u64,
}

/// Takes pages one after the other from the start of a partition's memory, one to one mapped.
struct Early {
    next: u64,
    end: u64,
}

impl TableMemory for Early {
    fn allocate(&mut self) -> Result<u64, NoMemory> {
        let page = self.next;
        self.next += PAGE_SIZE as u64;
        if self.next > self.end {
            return Err(NoMemory);
        }
        // SAFETY: in the own partition behind the image, below 4 GiB, mapped one to one, and nobody's.
        unsafe { core::ptr::write_bytes(page as *mut u8, 0, PAGE_SIZE) };
        Ok(page)
    }

    fn load(&self, table: u64, index: usize) -> u64 {
        // SAFETY: a page that `allocate` gave.
        unsafe { *(table as *const u64).add(index) }
    }

    fn store(&mut self, table: u64, index: usize, value: u64) {
        // SAFETY: as above.
        unsafe { *(table as *mut u64).add(index) = value }
    }
}

/// What the loader hands over.
pub(crate) struct Handover {
    pub command_line: String,
    /// Where ACPI's root pointer lies.
    pub rsdp: u64,
    pub memory: Vec<MemoryRange>,
    /// Where the loader has put the initramfs.
    pub initramfs: Option<Range<u64>>,
    /// The CPU that runs.
    pub boot_cpu: u32,
    /// The counter when the machine started.
    pub started: u64,
}

/// The primary, after its architecture's first instructions and [`percpu::init_early`].
///
/// # Safety
///
/// Once, in a machine that runs nothing else, with the first 4 GiB mapped one to one. What is handed over is true.
pub(crate) unsafe fn primary(handover: Handover) -> ! {
    // SAFETY: says the caller.
    let topology = unsafe { firmware::read(handover.rsdp, handover.memory, handover.boot_cpu) };
    let plan = Plan::new(topology, &handover.command_line).and_then(board::room_for);
    let plan = plan.and_then(|plan| plan.boot_now().map(|_| plan));
    let plan = plan.unwrap_or_else(|reason| crate::panic::refuse(format_args!("{reason}")));
    let shape = image_shape();
    let first = plan.kernels[0].boot_range().expect("every partition has one");
    let mut memory = Early { next: first.start + shape.end, end: first.end.min(1 << 32) };
    if let Some(archive) = handover.initramfs {
        // SAFETY: nothing of the partition behind the image is in use yet, and all is mapped one to one.
        unsafe { initramfs::adopt(archive, &mut memory.next, memory.end) };
    }
    let root = tables::build_kernel(&mut memory, PRIMARY_IMAGE_PHYS, shape, &plan.kernels[0].memory);
    let Ok(root) = root else { panic!("no room for the first page table") };
    arch::prepare_cpu();
    // SAFETY: the new table maps the image (where we and our stack are) as before. The one-to-one map
    // ends here; nothing of it is used below.
    unsafe { arch::load_kernel_root(root) };
    // SAFETY: the board is mapped, lies in RAM of no partition, and nobody else runs.
    unsafe { core::ptr::write_bytes(BOARD_VIRT as *mut u8, 0, BOARD_BYTES as usize) };
    crate::set_has_board();
    board::publish_plan(&plan);
    board::entry(KernelId::PRIMARY).lifecycle().boot_generation.store(1, Relaxed);
    arch::prepare_timer();
    clock::calibrate(handover.started);
    start(Start { kernel: 0, root, free: memory.next })
}

/// First Rust code of a secondary, on the boot stack of its own image; `start` in its direct map.
extern "C" fn secondary_start(start: *const Start) -> ! {
    percpu::init_early();
    // SAFETY: the booting kernel wrote it into this partition.
    let info = unsafe { *start };
    arch::prepare_cpu();
    crate::set_has_board();
    self::start(info)
}

fn start(start: Start) -> ! {
    let kernel = KernelId(start.kernel as u16);
    crate::set_kernel(kernel);
    kmap::set_root(start.root);
    clock::adopt();
    let plan = crate::set_plan(board::read_plan());
    logger::init(&plan.command_line);
    log::debug!("counter and timer run at {:?} kHz", clock::rates());
    let own = &plan.kernels[kernel.index()];
    board::entry(kernel).set_state(board::State::Up);
    pages::init(own, start.free);
    percpu::create_all(plan, &own.cpus).expect("LEAST_MEMORY has room for the stacks");
    arch::prepare_traps();
    let area = percpu::all()[0];
    arch::init_cpu(area);
    area.online.store(true, Relaxed);
    board::entry(kernel).lifecycle().doorbell.store(area.hardware_id, Relaxed);
    paging::start();
    // SAFETY: a fresh stack, mapped for good; nothing of the old one is needed.
    unsafe { arch::call_on(area.stack, enter_kernel) }
}

extern "C" fn enter_kernel() -> ! {
    // SAFETY: we have just left that stack, and `root` is loaded.
    unsafe { heap::adopt_boot_memory() };
    let kernel = crate::kernel();
    let plan = crate::plan();
    let partition = &plan.kernels[kernel.index()];
    // SAFETY: `platform::entry!` defines it with this signature.
    unsafe { cob_kernel_main(Boot { kernel, cpus: percpu::ids(), memory: &partition.memory, plan }) }
}
