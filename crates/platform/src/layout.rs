//! The kernel half of the virtual address space: one list of what lies where.
//!
//! Every area has a top-level page-table entry of its own that is filled before the first user table
//! exists, so user tables copy the upper 256 entries once and never have to be updated.
//!
//! | area | holds | pages |
//! |---|---|---|
//! | direct | this kernel's own partition, at `DIRECT_BASE` + physical address | 2 MiB |
//! | shared | the board, the trampoline, lanes in other kernels' memory | 4 KiB |
//! | mmio | device registers, uncached | 4 KiB |
//! | heap | pieces of the heap whose frames are scattered | 4 KiB |
//! | window | one page at a time of somebody else's memory, per CPU | 4 KiB |
//! | stacks | kernel stacks with guard pages | 4 KiB |
//! | image | text, rodata, data of this kernel's own copy | 4 KiB |

pub use crate::arch::memory_map::*;
use core::ops::Range;

pub const DIRECT_BASE: u64 = 0xffff_8000_0000_0000;
pub const SHARED_BASE: u64 = 0xffff_c000_0000_0000;
pub const MMIO_BASE: u64 = 0xffff_d000_0000_0000;
pub const HEAP_BASE: u64 = 0xffff_d800_0000_0000;
pub const WINDOW_BASE: u64 = 0xffff_e000_0000_0000;
pub const STACKS_BASE: u64 = 0xffff_f000_0000_0000;
pub const IMAGE_BASE: u64 = 0xffff_ffff_8000_0000;

/// Bytes one top-level entry covers; every area but the direct map is that large.
pub const TOP_BYTES: u64 = 1 << 39;

/// A partition's memory comes in units of this.
pub const PARTITION_ALIGN: u64 = 0x20_0000;

pub const BOARD_BYTES: u64 = 0x10_0000;

/// Mapped by whoever builds a kernel's first page table, at the start of the shared area.
pub const BOARD_VIRT: u64 = SHARED_BASE;
pub const TRAMPOLINE_VIRT: u64 = BOARD_VIRT + BOARD_BYTES;
/// First address of the shared area that is handed out at run time.
pub const SHARED_FREE: u64 = TRAMPOLINE_VIRT + TRAMPOLINE_BYTES;

/// Registers of whichever CPU looks (its interrupt controller): the same place on all of them.
pub const CPU_REGISTERS_VIRT: u64 = MMIO_BASE;
pub const MMIO_FREE: u64 = CPU_REGISTERS_VIRT + CPU_REGISTERS_BYTES;

/// Window slots of a CPU; the last is for booting a kernel.
pub const WINDOWS_PER_CPU: u64 = 8;

/// Bytes of a CPU's stack, of a stack for interrupts that may come at any instruction, and from one stack to the next (the rest is guard).
pub const STACK_BYTES: u64 = 64 << 10;
pub const INTERRUPT_STACK_BYTES: u64 = 16 << 10;
pub const STACK_STRIDE: u64 = 128 << 10;

/// What an area is for: the reason a page of it may be mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Area {
    Direct,
    Shared,
    Mmio,
    Heap,
    Window,
    Stacks,
    Image,
}

pub const AREAS: [(Area, Range<u64>); 7] = [
    (Area::Direct, DIRECT_BASE..SHARED_BASE),
    (Area::Shared, SHARED_BASE..SHARED_BASE + TOP_BYTES),
    (Area::Mmio, MMIO_BASE..MMIO_BASE + TOP_BYTES),
    (Area::Heap, HEAP_BASE..HEAP_BASE + TOP_BYTES),
    (Area::Window, WINDOW_BASE..WINDOW_BASE + TOP_BYTES),
    (Area::Stacks, STACKS_BASE..STACKS_BASE + TOP_BYTES),
    (Area::Image, IMAGE_BASE..0xffff_ffff_ffff_f000),
];

/// The area `virt` lies in.
pub fn area_of(virt: u64) -> Option<Area> {
    AREAS.iter().find(|(_, range)| range.contains(&virt)).map(|&(area, _)| area)
}
