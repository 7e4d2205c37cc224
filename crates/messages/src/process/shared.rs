//! What the threads of a process have in common, and the changes of it.

use crate::{descriptor::TableId, fs::Opened};
use abi::{
    signal::{Action, Actions, Signal},
    Credentials,
};
use alloc::{borrow::Cow, vec::Vec};
use machine::{GroupId, KernelId, Pid, SpaceId};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// What all threads of a process share beside memory and descriptors. The home kernel decides the order
/// of changes; every kernel that ever ran a thread of the process holds a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shared {
    /// getppid(2).
    pub parent: Pid,
    /// getpgrp(2).
    pub group: Pid,
    /// getsid(2).
    pub session: Pid,
    /// Signal its parent gets when it ends (`clone`'s exit signal; 0: none).
    pub exit_signal: u8,
    /// sigaction(2), for each signal.
    pub actions: Actions,
    /// umask(2).
    pub umask: u32,
    /// (soft, hard) of the resources of getrlimit(2).
    pub limits: [(u64, u64); RESOURCES],
    /// Path of the executable, for /proc/PID/exe.
    pub executable: Vec<u8>,
    /// Where execve put arguments, code and heap.
    pub layout: Layout,
    /// Whether the process has called execve since it was forked (then its parent's setpgid answers EACCES).
    pub executed: bool,
    /// PR_SET_CHILD_SUBREAPER.
    pub child_subreaper: bool,
    /// PR_SET_DUMPABLE.
    pub dumpable: bool,
    /// PR_SET_NO_NEW_PRIVS.
    pub no_new_privileges: bool,
    /// Kernels have counters for its monitored threads (umt_enable).
    pub monitored: bool,
    /// What mlockall(2) said of mappings to come (MCL_FUTURE, MCL_ONFAULT).
    pub lock_future: u32,
    /// Commands of membarrier(2) it has registered for.
    pub barriers: u32,
    /// oom_score_adj, and the least that it may be made without CAP_SYS_RESOURCE.
    pub oom: (i16, i16),
    /// The control group that it is in.
    pub cgroup: GroupId,
    /// For each [`SharedPart`], the processes that it has that in common with.
    pub sharing_groups: [Option<SharingGroupId>; SHARED_PARTS],
    /// Start time, ns since boot.
    pub started: u64,
}

/// How many resources getrlimit(2) knows (RLIM_NLIMITS).
pub const RESOURCES: usize = 16;

/// The numbers of a [`Shared`], as they travel: see those of a thread.
#[derive(FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Numbers {
    limits: [[u64; 2]; RESOURCES],
    layout: Layout,
    started: u64,
    sharing_groups: [u64; SHARED_PARTS],
    parent: u32,
    group: u32,
    session: u32,
    umask: u32,
    lock_future: u32,
    barriers: u32,
    oom: [i16; 2],
    sharing_group_homes: [u16; SHARED_PARTS],
    exit_signal: u16,
    cgroup: u16,
    /// Bits for what is a `bool` in [`Shared`], and for the sharing groups that it is in.
    is: u16,
}

const EXECUTED: u16 = 1;
const SUBREAPER: u16 = 2;
const DUMPABLE: u16 = 4;
const NO_NEW_PRIVILEGES: u16 = 8;
const IN_SHARING_GROUP: [u16; SHARED_PARTS] = [16, 32, 64];
const MONITORED: u16 = 128;

impl Numbers {
    fn of(shared: &Shared) -> Self {
        let bit = |is: bool, bit: u16| if is { bit } else { 0 };
        let in_sharing_group = |which: usize| bit(shared.sharing_groups[which].is_some(), IN_SHARING_GROUP[which]);
        Numbers {
            limits: shared.limits.map(Into::into),
            layout: shared.layout,
            started: shared.started,
            sharing_groups: shared
                .sharing_groups
                .map(|sharing_group| sharing_group.map_or(0, |sharing_group| sharing_group.serial)),
            parent: shared.parent.0,
            group: shared.group.0,
            session: shared.session.0,
            umask: shared.umask,
            lock_future: shared.lock_future,
            barriers: shared.barriers,
            oom: shared.oom.into(),
            sharing_group_homes: shared
                .sharing_groups
                .map(|sharing_group| sharing_group.map_or(0, |sharing_group| sharing_group.home.0)),
            exit_signal: shared.exit_signal.into(),
            cgroup: shared.cgroup.0,
            is: bit(shared.executed, EXECUTED)
                | bit(shared.child_subreaper, SUBREAPER)
                | bit(shared.dumpable, DUMPABLE)
                | bit(shared.monitored, MONITORED)
                | bit(shared.no_new_privileges, NO_NEW_PRIVILEGES)
                | in_sharing_group(0)
                | in_sharing_group(1)
                | in_sharing_group(2),
        }
    }

    fn sharing_group(&self, which: usize) -> Option<SharingGroupId> {
        let sharing_group =
            || SharingGroupId { home: KernelId(self.sharing_group_homes[which]), serial: self.sharing_groups[which] };
        (self.is & IN_SHARING_GROUP[which] != 0).then(sharing_group)
    }
}

/// The wire form of a [`Shared`].
#[derive(Serialize, Deserialize)]
struct Travelling<'a> {
    #[serde(with = "machine::plain")]
    numbers: Numbers,
    #[serde(borrow, with = "serde_bytes")]
    executable: &'a [u8],
    actions: Cow<'a, Actions>,
}

impl Serialize for Shared {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let (numbers, actions) = (Numbers::of(self), Cow::Borrowed(&self.actions));
        Travelling { numbers, executable: &self.executable, actions }.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Shared {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let Travelling { numbers, executable, actions } = Deserialize::deserialize(from)?;
        Ok(Shared {
            parent: Pid(numbers.parent),
            group: Pid(numbers.group),
            session: Pid(numbers.session),
            exit_signal: numbers.exit_signal as u8,
            actions: actions.into_owned(),
            umask: numbers.umask,
            limits: numbers.limits.map(Into::into),
            executable: executable.to_vec(),
            layout: numbers.layout,
            executed: numbers.is & EXECUTED != 0,
            child_subreaper: numbers.is & SUBREAPER != 0,
            dumpable: numbers.is & DUMPABLE != 0,
            monitored: numbers.is & MONITORED != 0,
            no_new_privileges: numbers.is & NO_NEW_PRIVILEGES != 0,
            lock_future: numbers.lock_future,
            barriers: numbers.barriers,
            oom: numbers.oom.into(),
            cgroup: GroupId(numbers.cgroup),
            sharing_groups: core::array::from_fn(|which| numbers.sharing_group(which)),
            started: numbers.started,
        })
    }
}

impl Shared {
    /// What the first process of a machine starts with, before it has an id.
    pub fn first(limits: [(u64, u64); RESOURCES], executable: Vec<u8>) -> Self {
        Shared {
            parent: Pid(1),
            group: Pid(0),
            session: Pid(0),
            exit_signal: Signal::CHLD.number(),
            actions: Default::default(),
            umask: 0o22,
            limits,
            executable,
            layout: Layout::default(),
            executed: true,
            child_subreaper: false,
            dumpable: true,
            monitored: false,
            no_new_privileges: false,
            lock_future: 0,
            barriers: 0,
            oom: (0, 0),
            cgroup: GroupId::ROOT,
            sharing_groups: [None; SHARED_PARTS],
            started: 0,
        }
    }
}

/// What processes may have in common beside memory and descriptors, which have homes of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SharedPart {
    /// CLONE_FS: root, working directory, umask.
    Directories = 0,
    /// CLONE_SIGHAND: signal handlers.
    Handlers = 1,
    /// CLONE_VM, but not in vfork: oom_score_adj.
    Memory = 2,
}

/// How many variants [`SharedPart`] has.
pub const SHARED_PARTS: usize = 3;

impl SharedPart {
    /// All, in the order of their numbers.
    pub const ALL: [SharedPart; SHARED_PARTS] = [SharedPart::Directories, SharedPart::Handlers, SharedPart::Memory];
}

/// Processes that have a [`SharedPart`] in common: the kernel that keeps the list of members, and a number of that kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SharingGroupId {
    /// The kernel that keeps the list of members, and puts changes in order.
    pub home: KernelId,
    /// Number of the sharing group among that kernel's.
    pub serial: u64,
}

/// Where execve put things, for /proc/PID and prctl.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct Layout {
    /// `arg_start` and `arg_end` of /proc/PID/stat: where the strings lie.
    pub arguments: [u64; 2],
    /// `env_start` and `env_end`.
    pub environment: [u64; 2],
    /// `start_stack`: the stack pointer a program starts with.
    pub stack: u64,
    /// `start_brk`: the end of the program's data.
    pub brk: u64,
    /// `start_code` and `end_code`.
    pub code: [u64; 2],
    /// Start and end of the auxiliary vector, for /proc/PID/auxv.
    pub auxv: [u64; 2],
}

/// One change of [`Shared`] (or of the directories).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Change {
    /// sigaction(2).
    Action {
        /// The signal that is handled otherwise from now on.
        signal: Signal,
        /// Its new action.
        action: Action,
    },
    /// execve: handlers become SIG_DFL, what is ignored stays ignored.
    ResetActions,
    /// umask(2).
    Umask(u32),
    /// setrlimit(2), prlimit(2).
    Limit {
        /// RLIMIT_*.
        resource: u32,
        /// (soft, hard).
        limit: (u64, u64),
    },
    /// The parent has ended: this process adopts it.
    Parent(Pid),
    /// setpgid(2).
    Group(Pid),
    /// setsid(2).
    Session(Pid),
    /// execve: /proc/PID/exe and where things are now.
    Executable {
        /// Absolute path of the program.
        #[serde(with = "serde_bytes")]
        path: Vec<u8>,
        /// Where execve put things.
        #[serde(with = "machine::plain")]
        layout: Layout,
    },
    /// PR_SET_CHILD_SUBREAPER.
    Subreaper(bool),
    /// PR_SET_DUMPABLE, and 0 or 1 after a change of ids.
    Dumpable(bool),
    /// umt_enable: see [`Shared::monitored`]. EBUSY: it is so already.
    Monitored(bool),
    /// PR_SET_NO_NEW_PRIVS, which can't be undone.
    NoNewPrivileges,
    /// mlockall(2), munlockall(2): see [`Shared::lock_future`].
    LockFuture(u32),
    /// The main thread's credentials. Only the home keeps them, for checks of who may signal or inspect the process.
    Owner(Credentials),
    /// membarrier(2): see [`Shared::barriers`].
    Barriers(u32),
    /// See [`Shared::oom`].
    Oom {
        /// oom_score_adj from now on.
        adjust: i16,
        /// The least that it may be made without CAP_SYS_RESOURCE; None: unchanged.
        least: Option<i16>,
    },
    /// Another control group, which the owner of the tree has entered it into.
    Cgroup(GroupId),
    /// The process joins a sharing group, if it is in none yet, or leaves it.
    SharingGroup {
        /// What the members have in common.
        part: SharedPart,
        /// The sharing group it joins; None: it leaves.
        sharing_group: Option<SharingGroupId>,
    },
    /// The root, or else the current directory.
    Directory {
        /// The new one, counted for each kernel that is told.
        directory: Opened,
        /// chroot or pivot_root, not chdir.
        root: bool,
    },
    /// execve made a new address space and maybe a new descriptor table.
    Image {
        /// Its address space from now on.
        space: SpaceId,
        /// Its descriptor table from now on.
        files: TableId,
        /// Where the only thread is: what other kernels have of the process goes.
        alone: KernelId,
    },
    /// Another descriptor table. EAGAIN if the process does not have `from` any more: another thread was faster.
    Files {
        /// The table the thread that asks believes the process to have.
        from: TableId,
        /// The table it has from now on.
        to: TableId,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_is_shared_travels() {
        let plain = Shared::first([(1, u64::MAX); RESOURCES], b"/bin/true".into());
        let mut actions = Actions::default();
        actions.set(Signal::USR1, Action { handler: 2, ..Action::default() });
        let full = Shared {
            parent: Pid(3),
            group: Pid(4),
            session: Pid(u32::MAX),
            exit_signal: 0,
            actions,
            umask: 0o77,
            limits: core::array::from_fn(|at| (at as u64, u64::MAX - at as u64)),
            layout: Layout {
                arguments: [5, 6],
                environment: [7, 8],
                stack: 9,
                brk: 10,
                code: [11, 12],
                auxv: [13, 14],
            },
            executed: false,
            child_subreaper: true,
            dumpable: false,
            monitored: true,
            no_new_privileges: true,
            lock_future: 3,
            barriers: 15,
            oom: (-1000, 1000),
            cgroup: GroupId::MAX,
            sharing_groups: [None, Some(SharingGroupId { home: KernelId(16), serial: u64::MAX }), None],
            started: 17,
            ..plain.clone()
        };
        for shared in [plain, full] {
            let bytes = postcard::to_allocvec(&shared).unwrap();
            assert_eq!(postcard::from_bytes::<Shared>(&bytes).unwrap(), shared);
        }
    }
}
