//! What the threads of a process have in common, and the changes of it.

use crate::{descriptor::TableId, fs::Opened};
use abi::{
    signal::{Action, Signal},
    Credentials,
};
use alloc::vec::Vec;
use machine::{KernelId, Pid, SpaceId};
use serde::{Deserialize, Serialize};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// What all threads of a process share beside memory and descriptors. The home kernel decides the order
/// of changes; every kernel that ever ran a thread of the process holds a copy.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Shared {
    pub parent: Pid,
    pub group: Pid,
    pub session: Pid,
    /// Signal its parent gets when it ends (`clone`'s exit signal; 0: none).
    pub exit_signal: u8,
    pub actions: abi::signal::Actions,
    pub umask: u32,
    /// (soft, hard) of the 16 resources of getrlimit(2).
    #[serde(with = "limits")]
    pub limits: Vec<(u64, u64)>,
    /// Path of the executable, for /proc/PID/exe.
    #[serde(with = "serde_bytes")]
    pub executable: Vec<u8>,
    #[serde(with = "machine::plain")]
    pub layout: Layout,
    /// execve has happened since fork (setpgid's EACCES).
    pub executed: bool,
    pub child_subreaper: bool,
    pub dumpable: bool,
    pub no_new_privileges: bool,
    /// What mlockall(2) said of mappings to come (MCL_FUTURE, MCL_ONFAULT).
    pub lock_future: u32,
    /// Commands of membarrier(2) it has registered for.
    pub barriers: u32,
    /// By [`Facet`]: the processes with which it has that in common.
    pub circles: [Option<CircleId>; 2],
    /// Start time, ns since boot.
    pub started: u64,
}

/// Whole: RLIM_INFINITY, which most are, would be the longest number of all.
mod limits {
    use super::*;
    use serde::{de::Error, Deserializer, Serializer};
    use serde_bytes::Bytes;

    pub fn serialize<S: Serializer>(limits: &[(u64, u64)], to: S) -> Result<S::Ok, S::Error> {
        let plain: Vec<[u64; 2]> = limits.iter().map(|limit| (*limit).into()).collect();
        Bytes::new(plain.as_bytes()).serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<(u64, u64)>, D::Error> {
        let bytes: &'de Bytes = Deserialize::deserialize(from)?;
        let pairs = bytes.chunks(size_of::<[u64; 2]>()).map(<[u64; 2]>::read_from_bytes);
        let wrong = |_| D::Error::invalid_length(bytes.len(), &"pairs of limits");
        pairs.map(|pair| pair.map(Into::into).map_err(wrong)).collect()
    }
}

impl Shared {
    /// Of the first process of a machine, before it has an id.
    pub fn first(limits: Vec<(u64, u64)>, executable: Vec<u8>) -> Self {
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
            no_new_privileges: false,
            lock_future: 0,
            barriers: 0,
            circles: [None; 2],
            started: 0,
        }
    }
}

/// What processes may have in common beside memory and descriptors, which have homes of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Facet {
    /// CLONE_FS: root, working directory, umask.
    Directories = 0,
    /// CLONE_SIGHAND: signal handlers.
    Handlers = 1,
}

/// Processes that have a [`Facet`] in common: the kernel that keeps the list of members, and a number of that kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CircleId {
    pub home: KernelId,
    pub serial: u64,
}

/// Where execve put things, for /proc/PID and prctl.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct Layout {
    pub arguments: [u64; 2],
    pub environment: [u64; 2],
    pub stack: u64,
    pub brk: u64,
    pub code: [u64; 2],
    pub auxv: [u64; 2],
}

/// One change of [`Shared`] (or of the directories).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Change {
    Action {
        signal: Signal,
        action: Action,
    },
    ResetActions,
    Umask(u32),
    Limit {
        resource: u32,
        limit: (u64, u64),
    },
    Parent(Pid),
    Group(Pid),
    Session(Pid),
    Executable {
        #[serde(with = "serde_bytes")]
        path: Vec<u8>,
        #[serde(with = "machine::plain")]
        layout: Layout,
    },
    Subreaper(bool),
    Dumpable(bool),
    NoNewPrivileges,
    LockFuture(u32),
    /// What the main thread may: kept at home only, which answers for the process.
    Owner(Credentials),
    Barriers(u32),
    /// Into a circle, if it is in none yet, or out of it.
    Circle {
        facet: Facet,
        circle: Option<CircleId>,
    },
    /// The root, or else the current directory.
    Directory {
        directory: Opened,
        root: bool,
    },
    /// execve made a new address space and maybe a new descriptor table.
    Image {
        space: SpaceId,
        files: TableId,
        /// Where the only thread is: what other kernels have of the process goes.
        alone: Option<KernelId>,
    },
}
