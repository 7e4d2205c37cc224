//! Control groups (cgroups(7)): which group a process is in, and what a group's processes have. The primary owns the tree.

use crate::process::Heaviest;
use abi::Credentials;
use alloc::vec::Vec;
use machine::{errno, group::GivenBack, GroupId, Pid};
use serde::{Deserialize, Serialize};

/// What happens to a process that is in a group, or is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Life {
    /// Its fork is over: it can be killed from now on.
    Born,
    /// Its last thread has ended.
    Ended,
    /// It was waited for, or its fork has failed.
    Gone,
}

/// The group that a child is to be in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IntoCgroup {
    /// Inode number of its directory.
    pub ino: u64,
    /// Who wants that, for permissions.
    pub who: Credentials,
}

/// How many threads a process has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadCount {
    /// Those that live, and those that are being born.
    pub threads: u32,
    /// Grows with each change at the home of the process. The owner of the tree drops what is older than what it knows.
    pub version: u64,
}

/// What a kernel may charge a group with from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drawn {
    /// So many pages more.
    pub pages: u32,
    /// None, because this group, the same or one above it, has as many as it may.
    pub full: Option<GroupId>,
    /// This one has more than it should (memory.high).
    pub high: Option<GroupId>,
}

/// What became of a group that is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Room {
    /// There may be some.
    Again,
    /// A process is about to end for it.
    Wait,
    /// There is none: the page can't be had. Or the process of the thread that asks was killed.
    Fail,
}

/// Which pages of files a kernel drops that can be read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reclaim {
    /// No page.
    None,
    /// Those that nobody maps, and dirty ones once they are written back.
    Unmapped,
    /// Those that programs map and have not used lately.
    Unused,
    /// Any.
    Used,
}

messages! {
    "cgroup" 0x800;

    /// A thread of a process in a group is about to fork, or (with `into`) whoever it is wants the child in a group. The owner of the tree
    /// enters the child, by the group that the parent is in then. EAGAIN: pids.max of a group does not let it; or the parent is
    /// being killed with its group.
    cgroup_fork: CgroupFork {
        /// The process that forks.
        parent: Pid,
        /// The id that the child will have.
        child: Pid,
        /// clone3 with CLONE_INTO_CGROUP.
        into: Option<IntoCgroup>,
    } -> errno::Result<GroupId>, High;

    /// The kernel of a process in a group tells the owner of the tree how far it is.
    cgroup_life: CgroupLife {
        /// The process.
        process: Pid,
        /// What has happened to it.
        life: Life,
    } -> (), High;

    /// The home of a process in a group tells the owner of the tree how many threads it has. With `asks` another one is about to be born:
    /// EAGAIN if pids.max of a group does not let it.
    cgroup_threads: CgroupThreads {
        /// The process.
        process: Pid,
        /// How many threads it has.
        count: ThreadCount,
        /// Whether there may be so many.
        asks: bool,
    } -> errno::Result<()>, High;

    /// The owner of the tree asks the home of a process to move it into another group (cgroup.procs was written).
    cgroup_move: CgroupMove {
        /// The process.
        process: Pid,
        /// The group that it is to be in.
        to: GroupId,
    } -> errno::Result<()>, Low;

    /// The home of a process, which makes no other change of it meanwhile, moves it: the owner of the tree enters it into the group.
    /// ENODEV: the group was removed. EBUSY: its processes are in its children.
    cgroup_enter: CgroupEnter {
        /// The process.
        process: Pid,
        /// The group that it is in from now on.
        to: GroupId,
        /// How many threads it has.
        count: ThreadCount,
    } -> errno::Result<()>, High;

    /// cgroup.kill was written: the owner of the tree has the home of some processes kill them. Answered when all are ending.
    cgroup_kill: CgroupKill {
        /// Processes that are at home on the receiver.
        processes: Vec<Pid>,
    } -> (), Low;

    /// cgroup.procs or cgroup.threads is read: asks for the processes in a group that are at home on the receiver and have a thread, with their
    /// threads.
    cgroup_members: CgroupMembers {
        /// The group.
        group: GroupId,
    } -> Vec<(Pid, Vec<Pid>)>, Low;

    /// A kernel may not charge a group with any more page, and asks the owner of the tree for a tranche.
    cgroup_draw: CgroupDraw {
        /// The group.
        group: GroupId,
    } -> Drawn, High;

    /// A group is full, and a thread wants a page: asks the owner of the tree to make room: by what kernels do not need of what they were
    /// granted, by dropping what can be read again, at last by the end of a process in the group.
    cgroup_room: CgroupRoom {
        /// The group that is full, or has more than it should.
        group: GroupId,
        /// The thread.
        thread: Pid,
        /// It has not asked for this page before.
        first: bool,
        /// The group only has more than it should: nothing ends.
        high: bool,
    } -> Room, Low;

    /// The owner of the tree wants back what is granted to some groups and not charged. The receiver drops pages of them before. The answer: how many
    /// it dropped, and what it gives back.
    cgroup_give_back: CgroupGiveBack {
        /// The groups, ascending.
        groups: Vec<GroupId>,
        /// Which pages it drops.
        reclaim: Reclaim,
    } -> (u64, Vec<GivenBack>), Low;

    /// An idle kernel gives back what it does not need soon.
    cgroup_returns: CgroupReturns {
        /// What it gives back.
        given: Vec<GivenBack>,
    } -> (), High;

    /// memory.current and memory.stat are read: asks what is charged to some groups on the receiver, by kind ([`machine::group::PageKind`]).
    cgroup_usage: CgroupUsage {
        /// The groups, ascending.
        groups: Vec<GroupId>,
    } -> [u64; 3], High;

    /// A group is full, and nothing can be dropped: asks for the process in some groups with most memory on the receiver.
    cgroup_heaviest: CgroupHeaviest {
        /// The groups, ascending.
        groups: Vec<GroupId>,
    } -> Option<Heaviest>, Low;
}
