//! x86-64. What the names are for: [`crate::arch`].

mod cache;
mod calls;
mod cpuinfo;
mod exception;
mod frame;
mod layout;
mod prctl;

pub(crate) use cache::caches;
pub(crate) use calls::with_own_calls;
pub(crate) use cpuinfo::cpuinfo;
pub(crate) use exception::{fault_code, signal_of};
pub(crate) use frame::{restore, Frame, Saved, RED_ZONE};
pub(crate) use layout::{with_time, EpollEvent, Stat, MACHINE, MACHINE_32, MAP_32BIT};
pub(crate) use prctl::{arch_prctl, set_thread_pointer};

/// clone(2)'s arguments as [flags, stack, parent_tid, child_tid, tls].
pub(crate) fn clone_arguments([flags, stack, parent_tid, child_tid, tls, _]: [u64; 6]) -> [u64; 5] {
    [flags, stack, parent_tid, child_tid, tls]
}
