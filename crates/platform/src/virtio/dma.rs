//! Memory that devices reach: this kernel's own partition, through the direct map.

use core::ptr::NonNull;

use machine::{Frame, PAGE_BITS, PAGE_SIZE};
use virtio_drivers::{BufferDirection, Hal, PhysAddr};

use crate::layout::{area_of, Area, DIRECT_BASE, IMAGE_BASE};
use crate::{kmap, pages};

use super::ring::DeviceMemory;

/// Queues and buffers in the partition's own memory. A device reaches a buffer where it is on the heap: no bounce
/// buffers, no I/O page tables. A buffer whose frames are scattered is several to it ([`DeviceMemory`]).
pub struct PartitionMemory;

impl DeviceMemory for PartitionMemory {
    fn contiguous(buffer: &[u8]) -> usize {
        let (start, bytes) = (buffer.as_ptr() as u64, buffer.len());
        if area_of(start) != Some(Area::Heap) {
            return bytes;
        }
        let mut end = PAGE_SIZE - (start % PAGE_SIZE as u64) as usize;
        while end < bytes && physical(start + end as u64) == physical(start) + end as u64 {
            end += PAGE_SIZE;
        }
        end.min(bytes)
    }
}

// SAFETY: `alloc_run` gives zeroed frames that nobody else has, reached through the direct map.
unsafe impl Hal for PartitionMemory {
    fn dma_alloc(pages: usize, _: BufferDirection) -> (PhysAddr, NonNull<u8>) {
        match pages::alloc_run(order(pages))
            .and_then(|phys| Some((phys, NonNull::new((DIRECT_BASE + phys) as *mut u8)?)))
        {
            Some(run) => run,
            // virtio-drivers' sign for "none left".
            None => (0, NonNull::dangling()),
        }
    }

    unsafe fn dma_dealloc(phys: PhysAddr, _: NonNull<u8>, count: usize) -> i32 {
        pages::partition().free_run(Frame(phys >> PAGE_BITS), order(count));
        0
    }

    unsafe fn mmio_phys_to_virt(_: PhysAddr, _: usize) -> NonNull<u8> {
        // Only `PciTransport` asks for this, and `registers.rs` is used instead.
        unreachable!("registers are mapped by Mmio::map")
    }

    unsafe fn share(buffer: NonNull<[u8]>, _: BufferDirection) -> PhysAddr {
        physical(buffer.as_ptr().cast::<u8>() as u64)
    }

    unsafe fn unshare(_: PhysAddr, _: NonNull<[u8]>, _: BufferDirection) {}
}

fn order(pages: usize) -> usize {
    pages.next_power_of_two().trailing_zeros() as usize
}

/// The areas that the heap lies in. The first two are contiguous in physical memory as well.
fn physical(virt: u64) -> PhysAddr {
    match area_of(virt) {
        Some(Area::Direct) => virt - DIRECT_BASE,
        // The heap's first piece. The image lies at the start of the partition.
        Some(Area::Image) => image() + (virt - IMAGE_BASE),
        Some(Area::Heap) => kmap::physical(virt).expect("a buffer is mapped"),
        area => panic!("a buffer for a device at {virt:#x} ({area:?})"),
    }
}

fn image() -> PhysAddr {
    crate::plan().partition(crate::kernel()).map_or(0, |partition| partition.memory[0].start)
}
