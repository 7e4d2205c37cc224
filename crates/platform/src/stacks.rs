//! How deep the stacks of this kernel's CPUs have ever been. A stack is painted when it is made; the lowest word that has another colour is
//! how deep it was. Below each lies a guard that is not mapped (kmap.rs): the CPU cannot push the page fault's frame there either, so an
//! overflow is a double fault, which has a stack of its own and says so (arch/x86_64/cpu/trap.rs).

pub use crate::layout::STACK_BYTES;
use crate::layout::{area_of, Area};
use crate::percpu;
use core::ops::Range;

/// No pointer, no small number, not zero.
const COLOUR: u64 = 0x5afe_57ac_5afe_57ac;

/// Paints a new stack.
///
/// # Safety
/// Mapped, aligned, and nobody's.
pub(crate) unsafe fn paint(stack: Range<u64>) {
    let words = ((stack.end - stack.start) / 8) as usize;
    // SAFETY: says the caller.
    unsafe { core::slice::from_raw_parts_mut(stack.start as *mut u64, words).fill(COLOUR) }
}

/// Most bytes that any of this kernel's CPUs has had on its stack, of [`STACK_BYTES`].
pub fn deepest() -> u64 {
    percpu::all().iter().map(|area| depth(area.stack)).max().unwrap_or(0)
}

fn depth(end: u64) -> u64 {
    let start = end - STACK_BYTES;
    // SAFETY: a stack is mapped for good. Its CPU may write it at this moment: a word is then read as it was or as it is.
    let is_painted = |at: &u64| unsafe { (*at as *const u64).read_volatile() } == COLOUR;
    end - (start..end).step_by(8).find(|at| !is_painted(at)).unwrap_or(end)
}

/// Whether a fault at `address` is an overflow: nothing in the area of stacks is missing but the guards.
pub(crate) fn is_guard(address: u64) -> bool {
    area_of(address) == Some(Area::Stacks)
}
