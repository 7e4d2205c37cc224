//! The partition's physical memory, as the rest of the platform takes it: crate `frames` does the work.

use crate::layout::DIRECT_BASE;
use crate::plan;
use alloc::vec::Vec;
use frames::{Config, Partition};
use spin::Once;

static PARTITION: Once<Partition> = Once::new();

/// Gives the memory of `own` to the allocator, but for what the boot has used of its range, up to `free`.
pub fn init(own: &plan::Partition, free: u64) {
    let ranges: Vec<_> = own.memory.iter().map(|m| m.start..m.end).collect();
    let used = own.boot_range().expect("every partition has one").start..free;
    let config = Config {
        direct_base: DIRECT_BASE as usize,
        ranges: &ranges,
        reserved: core::slice::from_ref(&used),
        cpus: own.cpus.len(),
        cpu: crate::percpu::current_index,
    };
    // SAFETY: the direct map covers the partition, and what lies below `free` (image, first tables) is
    // said to be reserved.
    let partition = unsafe { Partition::new(&config) }.expect("LEAST_MEMORY has room for the tables");
    PARTITION.call_once(|| partition);
}

/// The own partition; there is none before `init`.
pub fn try_partition() -> Option<&'static Partition> {
    PARTITION.get()
}

pub fn partition() -> &'static Partition {
    PARTITION.get().expect("pages::init has run")
}

/// A zeroed page: its physical address.
pub fn alloc_page() -> Option<u64> {
    Some(try_partition()?.alloc()?.address())
}

/// `1 << order` contiguous pages, zeroed.
pub fn alloc_run(order: usize) -> Option<u64> {
    let phys = try_partition()?.alloc_run(order)?.address();
    // SAFETY: a fresh run of the own partition, in the direct map.
    unsafe { core::ptr::write_bytes((DIRECT_BASE + phys) as *mut u8, 0, machine::PAGE_SIZE << order) };
    Some(phys)
}
