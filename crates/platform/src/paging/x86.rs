//! [`Hardware`] on the real CPU, and the one [`PartitionMemory`] of this kernel.

use super::{
    hardware::{Hardware, Window},
    memory::{PartitionMemory, Setup},
};
use crate::{
    apic, board, kmap, pages, percpu,
    usercopy::{self, Loaded},
};
use core::{hint, sync::atomic::Ordering::Relaxed};
use machine::{Access, Frame, KernelId, Page, PageTable, UserAddr, UserFault, PAGE_BITS};
use spin::Once;
use x86_64::{
    instructions::tlb,
    registers::control::{Cr3, Cr3Flags},
    structures::paging::PhysFrame,
    PhysAddr, VirtAddr,
};

pub struct X86(());

/// The memory of this kernel.
pub type KernelMemory = PartitionMemory<X86>;

static MEMORY: Once<KernelMemory> = Once::new();

/// Once, when the own frames, all CPUs' areas and the kernel's page table are there.
pub fn start() -> &'static KernelMemory {
    MEMORY.call_once(|| {
        let kernels = crate::plan().kernels.iter().zip(0..);
        let homes = kernels.flat_map(|(partition, id)| {
            partition.memory.iter().map(move |range| (range.start..range.end, KernelId(id)))
        });
        PartitionMemory::start(Setup {
            kernel: crate::kernel(),
            life: board::entry(crate::kernel()).life().boots.load(Relaxed),
            partition: pages::partition(),
            homes: homes.collect(),
            hardware: X86(()),
        })
    })
}

/// What [`start`] made.
pub fn memory() -> &'static KernelMemory {
    MEMORY.get().expect("paging::start has run")
}

/// The same for services that share ownership with what they are given.
pub fn shared_memory() -> alloc::sync::Arc<dyn machine::Memory> {
    alloc::sync::Arc::new(memory().clone())
}

/// Just before user mode: loads `table` with nothing stale, and tells flushing CPUs that it is in use.
pub fn enter(table: &dyn PageTable) {
    memory().enter_user(table);
}

/// First thing after user mode: flushing CPUs may be waiting for it.
pub fn leave() {
    memory().leave_user();
}

/// Before this CPU halts: gives up a page table that died meanwhile.
pub fn idle() {
    if let Some(memory) = MEMORY.get() {
        memory.idle();
    }
}

/// Nothing is left to do: the interrupt has made the CPU leave user mode, which is what the sender
/// waits for.
pub fn on_tlb_interrupt() {}

impl Hardware for X86 {
    fn cpus(&self) -> usize {
        percpu::all().len()
    }

    fn cpu(&self) -> usize {
        percpu::current_index()
    }

    fn kernel_root(&self) -> Frame {
        Frame(kmap::root() >> PAGE_BITS)
    }

    fn load_root(&self, root: Frame) {
        let root = PhysFrame::containing_address(PhysAddr::new(root.address()));
        // SAFETY: every root has the same kernel half (tree.rs), and its tables outlive their being
        // loaded (shootdown.rs).
        unsafe { Cr3::write(root, Cr3Flags::empty()) };
    }

    fn invalidate_page(&self, page: Page) {
        tlb::flush(VirtAddr::new(page.address().0));
    }

    fn invalidate_all(&self) {
        // Writing CR3 keeps global translations, which are the kernel's.
        tlb::flush_all();
    }

    fn interrupt(&self, cpu: usize) {
        apic::send(percpu::all()[cpu].apic, apic::TLB);
    }

    fn relax(&self) {
        hint::spin_loop();
    }

    fn open_window(&self, window: Window, frame: Frame) -> *mut u8 {
        kmap::open_window(window as usize, frame.address())
    }

    fn close_window(&self, window: Window) {
        kmap::close_window(window as usize);
    }

    fn read_user(&self, from: UserAddr, to: &mut [u8]) -> Result<(), UserFault> {
        // SAFETY: `to` is ours alone.
        unsafe { self.read_user_to(from, to.as_mut_ptr(), to.len()) }
    }

    unsafe fn read_user_to(&self, from: UserAddr, to: *mut u8, bytes: usize) -> Result<(), UserFault> {
        // SAFETY: writes `to` only, which may be written, says the caller; reading user memory recovers from faults.
        let left = unsafe { usercopy::user_copy(to, from.0 as *const u8, bytes) };
        all_of(from, bytes, left, Access::READ)
    }

    fn write_user(&self, to: UserAddr, from: &[u8]) -> Result<(), UserFault> {
        // SAFETY: `from` is readable.
        unsafe { self.write_user_from(to, from.as_ptr(), from.len()) }
    }

    unsafe fn write_user_from(&self, to: UserAddr, from: *const u8, bytes: usize) -> Result<(), UserFault> {
        // SAFETY: reads `from` only; the target is user memory, says the caller, here and below.
        let left = unsafe { usercopy::user_copy(to.0 as *mut u8, from, bytes) };
        all_of(to, bytes, left, Access::WRITE)
    }

    fn zero_user(&self, to: UserAddr, bytes: usize) -> Result<(), UserFault> {
        // SAFETY: as in `write_user_from`.
        let left = unsafe { usercopy::user_zero(to.0 as *mut u8, bytes) };
        all_of(to, bytes, left, Access::WRITE)
    }

    fn user_string_length(&self, string: UserAddr, limit: usize) -> Result<usize, UserFault> {
        // SAFETY: reads user memory only.
        let found = unsafe { usercopy::user_find_zero(string.0 as *const u8, limit) };
        let at = string.add(found.value as usize);
        value(found, at, Access::READ).map(|length| length as usize)
    }

    fn load_user_u32(&self, at: UserAddr) -> Result<u32, UserFault> {
        // SAFETY: reads user memory only.
        let found = unsafe { usercopy::user_load_u32(at.0 as *const u32) };
        value(found, at, Access::READ).map(|word| word as u32)
    }

    fn compare_exchange_user_u32(&self, at: UserAddr, old: u32, new: u32) -> Result<Result<u32, u32>, UserFault> {
        // SAFETY: as in `write_user`.
        let found = unsafe { usercopy::user_exchange_u32(at.0 as *mut u32, old, new) };
        let found = value(found, at, Access::WRITE)? as u32;
        Ok(if found == old { Ok(found) } else { Err(found) })
    }
}

/// The outcome of an access to `bytes` bytes at `start` that left `left` of them undone.
fn all_of(start: UserAddr, bytes: usize, left: usize, access: Access) -> Result<(), UserFault> {
    match left {
        0 => Ok(()),
        _ => Err(UserFault { at: start.add(bytes - left), access }),
    }
}

fn value(found: Loaded, at: UserAddr, access: Access) -> Result<u64, UserFault> {
    match found.faulted {
        0 => Ok(found.value),
        _ => Err(UserFault { at, access }),
    }
}
