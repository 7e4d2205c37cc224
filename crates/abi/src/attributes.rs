//! What `stat` tells, and who asks.

use crate::capabilities::{capability, CapabilitySet};
use alloc::vec::Vec;
use machine::{Pid, Shield};
use serde::{Deserialize, Serialize};

/// File types as in `st_mode` (man 7 inode), already shifted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[repr(u32)]
pub enum Kind {
    Fifo = 0o010000,
    CharDevice = 0o020000,
    Directory = 0o040000,
    BlockDevice = 0o060000,
    Regular = 0o100000,
    Symlink = 0o120000,
    Socket = 0o140000,
}

impl Kind {
    pub fn of_mode(mode: u32) -> Option<Kind> {
        Some(match mode & 0o170000 {
            0o010000 => Kind::Fifo,
            0o020000 => Kind::CharDevice,
            0o040000 => Kind::Directory,
            0o060000 => Kind::BlockDevice,
            0o100000 => Kind::Regular,
            0o120000 => Kind::Symlink,
            0o140000 => Kind::Socket,
            _ => return None,
        })
    }

    /// `d_type` of getdents64.
    pub fn d_type(self) -> u8 {
        (self as u32 >> 12) as u8
    }
}

/// Time since the epoch (CLOCK_REALTIME).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Timestamp {
    pub seconds: i64,
    pub nanoseconds: u32,
}

impl Timestamp {
    /// Stands for the clock's time in [`SetAttributes`] (utimensat's UTIME_NOW, same value): a caller who
    /// may write the file may set this time, another one only the owner.
    pub const NOW: Timestamp = Timestamp { seconds: 0, nanoseconds: 0x3fff_ffff };
}

/// `struct stat` without its padding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    /// Device number as `makedev` packs it for user space (new_encode_dev is done by `linux`).
    pub dev: (u32, u32),
    pub ino: u64,
    /// Type and permission bits.
    pub mode: u32,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    /// Major and minor of a device node.
    pub rdev: (u32, u32),
    pub size: u64,
    pub block_size: u32,
    /// In units of 512 bytes.
    pub blocks: u64,
    pub accessed: Timestamp,
    pub modified: Timestamp,
    pub changed: Timestamp,
}

impl Attributes {
    pub fn kind(&self) -> Kind {
        Kind::of_mode(self.mode).unwrap_or(Kind::Regular)
    }
}

/// Changes for chmod, chown, utimensat and truncate by path or descriptor. None: leave.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetAttributes {
    /// Permission bits only.
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub accessed: Option<Timestamp>,
    pub modified: Option<Timestamp>,
}

/// Who a process is (man 7 credentials).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credentials {
    pub uid: u32,
    pub euid: u32,
    pub suid: u32,
    pub fsuid: u32,
    pub gid: u32,
    pub egid: u32,
    pub sgid: u32,
    pub fsgid: u32,
    pub groups: Vec<u32>,
    /// What it may beside that.
    pub effective: CapabilitySet,
}

impl Credentials {
    pub fn can(&self, capability: u32) -> bool {
        self.effective.has(capability)
    }

    /// CAP_SYS_ADMIN: what has no capability of its own.
    pub fn is_privileged(&self) -> bool {
        self.can(capability::SYS_ADMIN)
    }
}

/// On whose behalf a file operation runs: enough for permissions, /proc/self and job control.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caller {
    pub credentials: Credentials,
    /// Thread group, thread, process group, session.
    pub process: Pid,
    pub thread: Pid,
    pub group: Pid,
    pub session: Pid,
    pub umask: u32,
    /// Of the thread, if it waits on this kernel.
    #[serde(skip)]
    pub shield: Shield,
}
