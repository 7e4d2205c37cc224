//! What a kernel may ask of the machine below it, and the words every other crate speaks.
//!
//! Here live the identifiers (kernels, CPUs, frames, pages), the error numbers, the locks and wait
//! queues of the kernel, and the traits behind which hardware hides: [`Memory`], [`PageTable`],
//! [`Cpu`], [`Spawner`], and [`UserRegisters`] for what differs between architectures. Crate `platform` implements them on hardware; crate `sim` implements them on
//! the host under a seeded scheduler. Nothing here knows either, and nothing here may be `unsafe`.
#![no_std]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

extern crate alloc;

pub mod account;
mod address;
mod arch;
mod bits;
pub mod block;
pub mod collections;
mod counted;
mod cpu;
mod device;
pub mod errno;
pub mod group;
mod ids;
mod memory;
#[cfg(loom_locks)]
mod modelled;
pub mod period;
pub mod plain;
mod shield;
pub mod sync;
mod task;
mod wait;

pub use address::{Frame, Page, PageRange, UserAddr, PAGE_BITS, PAGE_SIZE};
pub use arch::{Exception, Registers, ReturnAddress, UserRegisters, USER_END};
pub use bits::Bits;
pub use collections::{HashMap, HashSet};
pub use counted::{CountedFrame, FrameSlot, FrameTree};
pub use cpu::{Access, Counter, Cpu, FpuState, Trap};
pub use device::{ByteStream, Exchange, PageQueue};
pub use errno::Errno;
pub use ids::{Actor, CpuId, GroupId, KernelId, KernelSet, Pid, Serials, SpaceId};
pub use memory::{Mapping, Memory, NoMemory, PageTable, Soft, Step, UserFault, Words};
pub use shield::{HeldShield, Shield};
pub use task::{join_all, pause, to_completion, yield_now, BoxFuture, Spawner};
