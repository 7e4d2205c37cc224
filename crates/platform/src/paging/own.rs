//! The one [`PartitionMemory`] of this kernel, on the real CPU.

use super::memory::{PartitionMemory, Setup};
use crate::arch::Mmu;
use crate::{board, pages};
use core::sync::atomic::Ordering::Relaxed;
use machine::{KernelId, PageTable};
use spin::Once;

/// The memory of this kernel.
pub type KernelMemory = PartitionMemory<Mmu>;

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
            boot_generation: board::entry(crate::kernel()).lifecycle().boot_generation.load(Relaxed),
            partition: pages::partition(),
            homes: homes.collect(),
            hardware: Mmu::default(),
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
