//! Control groups (cgroups(7), version 2).
//!
//! The primary owns the tree ([`Tree`]), as it owns the root of the file system that shows it (procfs/src/cgroup). There is who is in a group
//! that is not the root: all other processes are in the root, and cost nothing. What a process's group is its home keeps with what its threads
//! share, and its replicas have copies.
//!
//! Problem: a process forks, makes threads, ends and is moved, each on another kernel, and a group must be killed and counted as a whole.
//!
//! Idea: what happens to a process in a group is told to the owner, which puts it in order.
//!
//! - *fork*: before there is a child, the owner enters it, by the group that the parent is in at that moment (`CgroupFork`). When it can be
//!   found (`Life::Born`), it can be killed.
//! - *threads*: the home says how many there are, with a version, for what tells of a birth and of a death may overtake each other.
//! - *move*: the home makes it in a turn of the process's changes (change.rs): it counts the threads and has the owner enter the process, then
//!   tells its replicas. A thread of a process in a group is born in a turn, too, so it is counted in one of the groups.
//! - *end*: the home says so in a turn, before the parent hears of it, so who has waited for the child finds cgroup.events right.
//!
//! Dangerous is a fork while the group is killed (cgroup.kill; a fork bomb):
//!
//! ```text
//!   K: P forks                         owner of the tree          H: home of P
//!   fork P, C -----------------------> C is in P's group
//!                                      kill: P and C are marked
//!                                      -- CgroupKill P ---------> P ends
//!   C can be found
//!   born C --------------------------> marked: kill it, too
//!   P (it has not heard yet) forks
//!   fork P, D -----------------------> P is marked: EAGAIN
//! ```
//!
//! So one pass over the members is enough: each child was entered before, and is marked, or is refused.
//!
//! A process that forks before it is moved, as its kernel sees it, has its child in the old group, as if the fork had been first.

mod entries;
mod grants;
mod members;
mod memory;
mod reclaim;
#[cfg(test)]
mod tests;
mod tree;

pub use memory::{GroupMemory, MemoryEvents};
pub use tree::{Controllers, Group, Ownership, Pids, Tree, PROCS, PROCS_MODE, ROOT_INO};

use machine::sync::Lock;

/// The control groups of the machine. Only the primary's has any but the root.
#[derive(Default)]
pub struct Cgroups {
    /// What there is. [`crate::System::with_cgroups`] changes it.
    pub tree: Lock<Tree>,
}

/// What the home of a process keeps about its threads.
#[derive(Default)]
pub(crate) struct Counted {
    /// The process is in a group that is not the root, or is about to be.
    pub in_group: bool,
    /// Threads that are being born.
    pub births: u32,
    pub version: u64,
}
