//! [`Hardware`] on the real CPU.

use super::apic::{self, Signal};
use super::usercopy::{self, Loaded};
use crate::paging::{Hardware, Window};
use crate::{kmap, percpu};
use core::arch::asm;
use core::hint;
use machine::{Access, Frame, Page, UserAddr, UserFault, PAGE_BITS};
use x86_64::{
    instructions::tlb,
    registers::control::{Cr3, Cr3Flags},
    structures::paging::PhysFrame,
    PhysAddr, VirtAddr,
};

/// The translation of addresses by the current CPU.
#[derive(Default)]
pub struct Mmu(());

/// Makes this CPU forget the translation of the page at `virt`.
#[inline]
pub fn flush_page(virt: u64) {
    tlb::flush(VirtAddr::new(virt));
}

/// Loads the page table at `root`, in a kernel that has just begun.
///
/// # Safety
///
/// It maps what is used from here on as the one before did: the image, and with it the stack.
pub unsafe fn load_kernel_root(root: u64) {
    // SAFETY: says the caller.
    unsafe { asm!("mov cr3, {}", in(reg) root, options(nostack)) }
}

impl Hardware for Mmu {
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
        // SAFETY: every root has the same kernel half (paging/tree.rs), and its tables outlive their being
        // loaded (paging/shootdown.rs).
        unsafe { Cr3::write(root, Cr3Flags::empty()) };
    }

    fn invalidate_page(&self, page: Page) {
        flush_page(page.address().0);
    }

    fn invalidate_all(&self) {
        // Writing CR3 keeps global translations, which are the kernel's.
        tlb::flush_all();
    }

    fn interrupt(&self, cpu: usize) {
        apic::send(percpu::all()[cpu].hardware_id, Signal::Flush);
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
