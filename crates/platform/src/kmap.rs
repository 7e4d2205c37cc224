//! Changes to this kernel's own half of the address space while it runs: device registers, lanes in other kernels'
//! memory, stacks, and windows. The direct map and the image never change.

use crate::arch;
use crate::arch::entry::{Bits, ADDRESS};
use crate::layout::*;
use crate::tables::{self, Mapped, TableMemory};
use crate::{board, lanes, pages, stacks};
use alloc::vec::Vec;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering::*};
use machine::{sync::Lock, Errno, KernelId, NoMemory, PAGE_SIZE};

const PAGE: u64 = PAGE_SIZE as u64;

static ROOT: AtomicU64 = AtomicU64::new(0);
static CHANGES: Lock<()> = Lock::new(());
/// Pages mapped in the heap's area so far, from its start on.
static SCATTERED: AtomicU64 = AtomicU64::new(0);
static NEXT_SHARED: AtomicU64 = AtomicU64::new(SHARED_FREE);
static NEXT_MMIO: AtomicU64 = AtomicU64::new(MMIO_FREE);
/// The registers that are mapped: physical start and end, and where. A few for each device.
static MMIO: Lock<Vec<(u64, u64, u64)>> = Lock::new(Vec::new());

/// Physical address of the kernel's own page table: what user tables copy their upper half from, and
/// what a CPU without a user table runs on.
pub fn root() -> u64 {
    ROOT.load(Relaxed)
}

pub fn set_root(root: u64) {
    ROOT.store(root, Relaxed);
}

/// The top-level entry under which `virt` lies.
pub fn top_entry(virt: u64) -> u64 {
    Direct.load(root(), tables::index(virt, 4))
}

/// Own table pages, through the direct map.
struct Direct;

impl TableMemory for Direct {
    fn allocate(&mut self) -> Result<u64, NoMemory> {
        pages::alloc_page().ok_or(NoMemory)
    }

    fn load(&self, table: u64, index: usize) -> u64 {
        // SAFETY: kernel tables lie in the own partition, are never freed, and `index` is below 512.
        unsafe { ((DIRECT_BASE + table) as *const u64).add(index).read_volatile() }
    }

    fn store(&mut self, table: u64, index: usize, value: u64) {
        // SAFETY: as above; writers hold `CHANGES` or own the entry (windows).
        unsafe { ((DIRECT_BASE + table) as *mut u64).add(index).write_volatile(value) }
    }
}

fn map(virt: u64, phys: u64, bytes: u64, bits: Bits) -> Result<(), NoMemory> {
    let _guard = CHANGES.lock();
    tables::map(&mut Direct, root(), virt, phys, bytes, bits, false)
}

/// A piece of memory that more than one kernel maps. Unmapped when dropped; its addresses are never
/// used again, so a translation left in some TLB can't be used by mistake.
pub struct SharedRegion {
    virt: u64,
    bytes: u64,
}

impl SharedRegion {
    pub fn pointer(&self) -> NonNull<u8> {
        NonNull::new(self.virt as *mut u8).expect("the shared area isn't at 0")
    }

    pub fn bytes(&self) -> usize {
        self.bytes as usize
    }
}

impl Drop for SharedRegion {
    fn drop(&mut self) {
        let _guard = CHANGES.lock();
        for virt in (self.virt..self.virt + self.bytes).step_by(PAGE_SIZE) {
            if let Ok(table) = tables::descend(&mut Direct, root(), virt, 1) {
                Direct.store(table, tables::index(virt, 1), 0);
                arch::flush_page(virt);
            }
        }
    }
}

/// Maps lanes that another kernel keeps for our messages, a page at a time. EPERM for anything else:
/// that would be private.
pub fn map_shared(phys: u64, bytes: u64) -> Result<SharedRegion, Errno> {
    let whole = phys.is_multiple_of(PAGE) && bytes.is_multiple_of(PAGE) && bytes > 0;
    let end = phys.checked_add(bytes).filter(|_| whole).ok_or(Errno::EINVAL)?;
    lane_owner(phys, end).ok_or(Errno::EPERM)?;
    let virt = NEXT_SHARED.fetch_add(bytes + PAGE, Relaxed);
    map(virt, phys, bytes, Bits::DATA).map_err(|NoMemory| Errno::ENOMEM)?;
    Ok(SharedRegion { virt, bytes })
}

/// The physical range that `kernel` keeps for lanes from us, once it has made them ready.
pub fn lanes_for_us(kernel: KernelId) -> Option<core::ops::Range<u64>> {
    let me = crate::kernel();
    let start = board::lanes_for(kernel, me, board::entry(me).lifecycle().boot_generation.load(Relaxed))?;
    Some(start..start + lanes::bytes() as u64)
}

/// The kernel whose lanes for us have the physical range `start..end` in them.
fn lane_owner(start: u64, end: u64) -> Option<KernelId> {
    let mut others = (0..crate::plan().kernels.len()).map(|k| KernelId(k as u16)).filter(|&k| k != crate::kernel());
    others.find(|&k| lanes_for_us(k).is_some_and(|lanes| lanes.start <= start && end <= lanes.end))
}

/// Maps device registers, uncached, for good: what is mapped already is not mapped again, or each look at a device (one is reset whenever the kernel that drives it has died) would
/// cost addresses, and at times a table. `phys` need not be page-aligned.
pub fn map_mmio(phys: u64, bytes: u64) -> Result<NonNull<u8>, Errno> {
    let start = phys / PAGE * PAGE;
    let end = phys.checked_add(bytes).and_then(|end| end.checked_next_multiple_of(PAGE)).ok_or(Errno::EINVAL)?;
    // Registers are never RAM: no way around the rule about private memory.
    let ram = crate::plan().kernels.iter().flat_map(|k| &k.memory).any(|m| m.start < end && start < m.end);
    if ram || end <= start {
        return Err(Errno::EPERM);
    }
    let mut known = MMIO.lock();
    let found = known.iter().find(|(first, last, _)| *first <= start && end <= *last);
    let virt = match found {
        Some((first, _, virt)) => virt + start - first,
        None => {
            let virt = NEXT_MMIO.fetch_add(end - start + PAGE, Relaxed);
            map(virt, start, end - start, Bits::DEVICE).map_err(|NoMemory| Errno::ENOMEM)?;
            known.push((start, end, virt));
            virt
        }
    };
    NonNull::new((virt + phys - start) as *mut u8).ok_or(Errno::EINVAL)
}

/// A new stack of `bytes` with a guard below it, painted (stacks.rs); gives the address past its end.
pub fn new_stack(bytes: u64) -> Result<u64, NoMemory> {
    static NEXT: AtomicU64 = AtomicU64::new(STACKS_BASE);
    let end = NEXT.fetch_add(STACK_STRIDE, Relaxed) + STACK_STRIDE;
    for virt in (end - bytes..end).step_by(PAGE_SIZE) {
        map(virt, pages::alloc_page().ok_or(NoMemory)?, PAGE, Bits::DATA)?;
    }
    // SAFETY: just mapped, and nobody's yet.
    unsafe { stacks::paint(end - bytes..end) };
    Ok(end)
}

/// Addresses in a row for `pages` frames of the own partition, wherever those lie, for good: a piece for the heap where no run of
/// frames is long enough. What was mapped in vain, because memory was used up, is part of the next piece.
pub fn new_heap_piece(pages: usize) -> Result<NonNull<u8>, NoMemory> {
    static END: AtomicU64 = AtomicU64::new(HEAP_BASE);
    let _guard = CHANGES.lock();
    let start = END.load(Relaxed);
    let (end, mapped) = (start + (pages * PAGE_SIZE) as u64, HEAP_BASE + SCATTERED.load(Relaxed) * PAGE);
    // Asked beforehand, so that this rarely happens.
    if pages::partition().totals().1 < end.saturating_sub(mapped) / PAGE {
        return Err(NoMemory);
    }
    for virt in (mapped..end).step_by(PAGE_SIZE) {
        let table = tables::descend(&mut Direct, root(), virt, 1)?;
        Direct.store(table, tables::index(virt, 1), pages::alloc_page().ok_or(NoMemory)? | Bits::DATA.bits());
        SCATTERED.fetch_add(1, Relaxed);
    }
    END.store(end, Relaxed);
    Ok(NonNull::new(start as *mut u8).expect("the heap's area isn't at 0"))
}

/// Frames of the heap that were mapped one by one, and of the tables for them.
pub fn scattered_frames() -> u64 {
    let pages = SCATTERED.load(Relaxed);
    pages + pages.div_ceil(512) + pages.div_ceil(512 * 512)
}

/// Where the page of `virt` lies, an address that is mapped 4 KiB at a time.
pub fn physical(virt: u64) -> Option<u64> {
    let table = (2..=4).rev().try_fold(root(), |table, level| {
        let entry = Direct.load(table, tables::index(virt, level));
        tables::is_present(entry).then_some(entry & ADDRESS)
    })?;
    let entry = Direct.load(table, tables::index(virt, 1));
    tables::is_present(entry).then_some((entry & ADDRESS) | (virt % PAGE))
}

/// Makes the window slots of a CPU (by its index in the kernel); gives the first slot's page-table entry.
pub fn prepare_windows(cpu: usize) -> Result<NonNull<u64>, NoMemory> {
    let _guard = CHANGES.lock();
    let virt = WINDOW_BASE + cpu as u64 * WINDOWS_PER_CPU * PAGE;
    let table = tables::descend(&mut Direct, root(), virt, 1)?;
    let entry = (DIRECT_BASE + table) as *mut u64;
    // SAFETY: eight slots never straddle a table of 512; the table lives for ever.
    let first = unsafe { entry.add(tables::index(virt, 1)) };
    NonNull::new(first).ok_or(NoMemory)
}

/// Maps the page at `phys` in window `slot` of the current CPU and gives its address there. Valid until
/// the slot is used again or closed; the caller must not move to another CPU meanwhile (the kernel
/// isn't preempted, so it can't outside an await).
pub fn open_window(slot: usize, phys: u64) -> *mut u8 {
    assert!(slot < WINDOWS_PER_CPU as usize);
    let cpu = crate::percpu::current();
    let virt = window_address(slot);
    // SAFETY: the entry of this CPU's own slot, which only this CPU writes.
    unsafe { cpu.windows.as_ptr().add(slot).write_volatile(phys & ADDRESS | Bits::DATA.bits()) };
    arch::flush_page(virt);
    virt as *mut u8
}

/// Where window `slot` of the current CPU is.
pub fn window_address(slot: usize) -> u64 {
    WINDOW_BASE + (u64::from(crate::percpu::current().index) * WINDOWS_PER_CPU + slot as u64) * PAGE
}

/// Takes away what `open_window` mapped, so that no kernel keeps another's memory mapped.
pub fn close_window(slot: usize) {
    assert!(slot < WINDOWS_PER_CPU as usize);
    let cpu = crate::percpu::current();
    let virt = window_address(slot);
    // SAFETY: as in `open_window`.
    unsafe { cpu.windows.as_ptr().add(slot).write_volatile(0) };
    arch::flush_page(virt);
}

/// Why a page is mapped in the kernel half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// In the own partition.
    Own(Area),
    Board,
    Trampoline,
    Lane(KernelId),
    Device,
    /// A window that is open right now.
    Window,
    /// None of the above: the invariant is broken.
    Foreign,
}

#[derive(Clone, Copy, Debug)]
pub struct Audited {
    pub mapped: Mapped,
    pub reason: Reason,
}

/// Walks the kernel half and says of every physical range why it is there: what proves invariant 1
/// ("no kernel maps another kernel's private memory") or finds who breaks it.
pub fn audit_kernel_mappings() -> Vec<Audited> {
    let mut found: Vec<Audited> = Vec::new();
    tables::visit(&Direct, root(), &mut |mapped| {
        let reason = reason_of(&mapped);
        if let Some(last) = found.last_mut() {
            let (end, phys_end) = (last.mapped.virt + last.mapped.bytes, last.mapped.phys + last.mapped.bytes);
            if last.reason == reason && end == mapped.virt && phys_end == mapped.phys && last.mapped.bits == mapped.bits
            {
                last.mapped.bytes += mapped.bytes;
                return;
            }
        }
        found.push(Audited { mapped, reason });
    });
    found
}

fn reason_of(mapped: &Mapped) -> Reason {
    let (start, end) = (mapped.phys, mapped.phys + mapped.bytes);
    let within = |from: u64, bytes: u64| from <= start && end <= from + bytes;
    let Some(area) = area_of(mapped.virt) else { return Reason::Foreign };
    let me = crate::kernel();
    let own = crate::plan().partition(me).is_some_and(|p| p.memory.iter().any(|m| within(m.start, m.bytes())));
    match area {
        Area::Direct | Area::Heap | Area::Stacks | Area::Image if own => Reason::Own(area),
        Area::Shared if within(BOARD_PHYS, BOARD_BYTES) => Reason::Board,
        Area::Shared if within(TRAMPOLINE_PHYS, TRAMPOLINE_BYTES) => Reason::Trampoline,
        Area::Shared => lane_owner(start, end).map_or(Reason::Foreign, Reason::Lane),
        Area::Mmio if crate::plan().home_of(start).is_none() => Reason::Device,
        Area::Window => Reason::Window,
        _ => Reason::Foreign,
    }
}
