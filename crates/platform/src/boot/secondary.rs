//! Starting another kernel: a fresh copy of the image in its partition, its first page table, then its
//! boot CPU. Any kernel can do this to any that doesn't run. Its memory is reached through a window, a
//! page at a time, and not at all once it runs.

use super::{image_shape, secondary_start, Start};
use crate::arch::{self, launch, Launch};
use crate::layout::*;
use crate::tables::{self, index, TableMemory};
use crate::{board, clock, kmap};
use core::cell::Cell;
use core::sync::atomic::Ordering::Relaxed;
use machine::{CpuId, Errno, KernelId, NoMemory, PAGE_SIZE};

const PAGE: u64 = PAGE_SIZE as u64;
/// The window slot that booting uses.
const SLOT: usize = WINDOWS_PER_CPU as usize - 1;

// SAFETY: the architecture's kernel.ld and start.s define these so; no data is read through the names of places.
unsafe extern "C" {
    static pristine_start: u8;
    static boot_stack_end: u8;
}

/// Boots `kernel` and returns once it runs its own code. EINVAL: there is no such partition. EBUSY: it
/// runs, or somebody boots it. ETIMEDOUT: its CPU does not answer. ENOMEM: its partition is too small.
pub fn boot_kernel(kernel: KernelId) -> Result<(), Errno> {
    let partition = crate::plan().partition(kernel).ok_or(Errno::EINVAL)?;
    let entry = board::entry(kernel);
    if kernel == crate::kernel() || !entry.claim_boot() {
        return Err(Errno::EBUSY);
    }
    let booted = (|| {
        let lifecycle = entry.lifecycle();
        board::forget_lanes(kernel);
        board::traces(kernel).store(0, Relaxed);
        if lifecycle.boot_generation.fetch_add(1, Relaxed) > 0 {
            hold(&partition.cpus);
        }
        // Its predecessor may have died while it was looking at its lanes.
        entry.reset_doorbell();
        entry.pulse.0.heartbeat.store(0, Relaxed);
        entry.pulse.0.load.store(0, Relaxed);
        let first = partition.boot_range().ok_or(Errno::ENOMEM)?;
        let mut memory = Remote { next: first.start, end: first.end, open: Cell::new(0) };
        let (start_at, start) = fill(&mut memory, kernel, &partition.memory)?;
        let image_entry = memory.load(start.root, index(IMAGE_BASE, 4));
        drop(memory);
        let begin = Launch {
            hardware_id: crate::plan().topology.cpus[partition.cpus[0].0 as usize].hardware_id,
            root: start.root,
            image_entry,
            // The same address in every image.
            stack: &raw const boot_stack_end as u64,
            function: secondary_start as *const () as u64,
            argument: DIRECT_BASE + start_at,
        };
        launch(&begin, || entry.state() != board::State::Starting)
    })();
    if booted.is_err() {
        entry.set_state(board::State::Dead);
    }
    booted
}

/// Resets the CPUs of a dead kernel, so that none runs on while its memory is made new.
fn hold(cpus: &[CpuId]) {
    for cpu in cpus {
        arch::reset(crate::plan().topology.cpus[cpu.0 as usize].hardware_id);
    }
    clock::delay(10_000_000);
}

/// Copies the image and builds the page table; gives the address of the `Start`, and itself.
fn fill(memory: &mut Remote, kernel: KernelId, ranges: &[crate::plan::MemoryRange]) -> Result<(u64, Start), Errno> {
    let shape = image_shape();
    let image = memory.next;
    // Text and rodata are as good as new, but for points of the trace that are on here; data is copied from before it changed.
    let data = shape.rodata_end;
    let data_bytes = pristine_offset() - data;
    for offset in (0..shape.end).step_by(PAGE_SIZE) {
        let page = memory.allocate().map_err(|NoMemory| Errno::ENOMEM)?;
        let from = match offset {
            at if at < data => IMAGE_BASE + at,
            at if at < data + data_bytes => IMAGE_BASE + at + data_bytes,
            at if at < data + 2 * data_bytes => IMAGE_BASE + at,
            _ => continue, // zero
        };
        let to = memory.reach(page);
        // SAFETY: a page of our image, and a page of the target that we have in the window.
        let page = unsafe {
            core::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, PAGE_SIZE);
            core::slice::from_raw_parts_mut(to as *mut u8, PAGE_SIZE)
        };
        if offset < shape.text_end {
            static_keys::switch_off_copy(from as usize, page);
        }
    }
    let start_at = memory.allocate().map_err(|NoMemory| Errno::ENOMEM)?;
    let root = tables::build_kernel(memory, image, shape, ranges).map_err(|NoMemory| Errno::ENOMEM)?;
    let start = Start { kernel: kernel.0.into(), root, free: memory.next };
    for (word, value) in [start.kernel, start.root, start.free].into_iter().enumerate() {
        memory.store(start_at, word, value);
    }
    Ok((start_at, start))
}

/// The pristine copy of .data lies right behind .data.
fn pristine_offset() -> u64 {
    &raw const pristine_start as u64 - IMAGE_BASE
}

/// Pages of a partition whose kernel doesn't run, through a window of this CPU.
struct Remote {
    next: u64,
    end: u64,
    /// The page in the window; 0: none.
    open: Cell<u64>,
}

impl Remote {
    fn reach(&self, page: u64) -> *mut u64 {
        if self.open.get() != page {
            kmap::open_window(SLOT, page);
            self.open.set(page);
        }
        kmap::window_address(SLOT) as *mut u64
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        kmap::close_window(SLOT);
    }
}

impl TableMemory for Remote {
    fn allocate(&mut self) -> Result<u64, NoMemory> {
        let page = self.next;
        self.next += PAGE;
        if self.next > self.end {
            return Err(NoMemory);
        }
        // SAFETY: a page of the target's partition, which nobody uses, in our window.
        unsafe { core::ptr::write_bytes(self.reach(page) as *mut u8, 0, PAGE_SIZE) };
        Ok(page)
    }

    fn load(&self, table: u64, index: usize) -> u64 {
        // SAFETY: as above.
        unsafe { self.reach(table).add(index).read_volatile() }
    }

    fn store(&mut self, table: u64, index: usize, value: u64) {
        // SAFETY: as above.
        unsafe { self.reach(table).add(index).write_volatile(value) }
    }
}
