//! Address spaces that span kernels.
//!
//! A space is cut into slices; each slice has one owner, which alone may change it. The owner keeps the
//! regions of its slices, its page table is the page map (with the soft bits of [`machine::Soft`]), and an
//! export table names the kernels that have a page. Every other kernel of the process has a replica that only
//! holds borrowed pages. A kernel maps new memory in a slice of its own, so that memory only one kernel
//! uses costs no message.
//!
//! | file | subject |
//! |---|---|
//! | space.rs | the replica, its state and locks |
//! | region.rs, slices.rs, parts.rs | the tables: what is mapped, who owns it |
//! | fault.rs | faults at the owner; copy-on-write |
//! | remote.rs, window.rs | faults at a borrower: offered frames, poison; how much to ask for |
//! | handover.rs | ranges that get another owner than their slice |
//! | withdraw.rs | taking pages back before their frames are reused |
//! | lost.rs | pages of objects that are no more (truncation, holes) |
//! | change.rs | sending a change to the owners of its range |
//! | map.rs, heap.rs, remap.rs, advise.rs | the memory calls |
//! | fork.rs, lifetime.rs, death.rs | birth and end; what the death of a kernel condemns |
//! | access.rs, force.rs | the kernel's own access to user memory; /proc/PID/mem |
//! | relief.rs | what happens when no frame is left |
//! | audit.rs | comparing all replicas of a space that ends |
//! | futex.rs, report.rs, touched.rs, replicas.rs | what futex and /proc ask |
//!
//! Called by `process` (create, attach, fork, leave, destroy), `linux` (the memory calls, user memory) and
//! the loop that runs threads (`fault`). Not here: files (only [`fs::Object`] is seen), threads, signals.
#![no_std]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

extern crate alloc;

mod access;
mod advise;
mod ahead;
mod audit;
mod borrow;
mod change;
mod death;
mod exports;
mod fault;
mod force;
mod fork;
mod futex;
mod gaps;
mod handover;
mod heap;
mod lifetime;
mod limits;
mod lost;
mod map;
mod parts;
mod reclaim;
mod region;
mod relief;
mod remap;
mod remote;
mod replicas;
mod report;
mod request;
mod shared;
mod slices;
mod space;
mod touched;
mod vm;
mod window;
mod withdraw;

pub use advise::is_populating;
pub use death::MOST_SPACES;
pub use messages::vm::{Fault, FutexKey, FutexPlace, Limits, Peak, RegionKind, RegionReport, SliceRun};
pub use region::RegionFlags;
pub use relief::Relief;
pub use remap::RemapFlags;
pub use remote::Expected;
pub use report::{Footprint, RegionList, REGIONS_LISTED};
pub use request::{MapAddress, MapRequest, Source, Statistics};
pub use shared::SharedMemory;
pub use space::{FaultCount, Space};
pub use vm::{Soon, Vm};

use abi::ObjectId;
use alloc::sync::Arc;
use fs::{Lost, Object};
use machine::{errno::Result, BoxFuture, KernelSet};

/// Lowest address a program may map (Linux's vm.mmap_min_addr).
pub const MMAP_MIN: u64 = 65536;

/// Finds a mapped object by its name: one of this kernel, or a stand-in for another kernel's.
pub trait Objects: Send + Sync {
    /// The object; ESTALE or another error if its kernel has none of this name, or is dead.
    fn resolve(&self, id: ObjectId) -> BoxFuture<'_, Result<Arc<dyn Object>>>;
    /// See [`fs::Mappers::recall`].
    fn recall(&self, others: KernelSet, lost: Lost) -> BoxFuture<'_, KernelSet>;
}
