//! Words about open files: flags, events, entries, and how another kernel names a file.

use alloc::vec::Vec;
use linux_raw_sys::general as raw;
use machine::KernelId;
use serde::{Deserialize, Serialize};

bitflags::bitflags! {
    /// Flags of `open` and `fcntl(F_SETFL)`; values of Linux, some of which differ
    /// between architectures.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct OpenFlags: u32 {
        const WRONLY = 0o1;
        const RDWR = 0o2;
        const CREAT = 0o100;
        const EXCL = 0o200;
        const NOCTTY = 0o400;
        const TRUNC = 0o1000;
        const APPEND = 0o2000;
        const NONBLOCK = 0o4000;
        const DSYNC = 0o10000;
        const ASYNC = 0o20000;
        const DIRECT = raw::O_DIRECT;
        const LARGEFILE = raw::O_LARGEFILE;
        const DIRECTORY = raw::O_DIRECTORY;
        const NOFOLLOW = raw::O_NOFOLLOW;
        const NOATIME = 0o1000000;
        const CLOEXEC = 0o2000000;
        const SYNC = 0o4010000;
        const PATH = 0o10000000;
        const TMPFILE = raw::O_TMPFILE;
        /// Inside the kernel only: to be executed, which needs the right to that and none to read. An empty path is the file that the
        /// walk begins at.
        const EXEC = 1 << 30;
        /// Inside the kernel only, of an open file: it is on a mount with noexec, so it is not mapped to be executed.
        const NOEXEC = 1 << 29;
        /// Inside the kernel only, of an open file: what posix_fadvise said of reads ([`OpenFlags::read_ahead`]).
        const RANDOM = 1 << 28;
        const SEQUENTIAL = 1 << 27;
        const INTERNAL = Self::EXEC.bits() | Self::NOEXEC.bits() | Self::RANDOM.bits() | Self::SEQUENTIAL.bits();
    }

    /// `poll` events; values of Linux (man 2 poll).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Events: u32 {
        const IN = 0x1;
        const PRI = 0x2;
        const OUT = 0x4;
        const ERR = 0x8;
        const HUP = 0x10;
        const NVAL = 0x20;
        const RDNORM = 0x40;
        const RDBAND = 0x80;
        const WRNORM = 0x100;
        const WRBAND = 0x200;
        const RDHUP = 0x2000;
    }
}

impl OpenFlags {
    /// What programs are shown of an open file's.
    pub fn shown(self) -> u32 {
        self.difference(OpenFlags::INTERNAL).bits()
    }

    pub fn read_ahead(self) -> ReadAhead {
        match (self.contains(Self::RANDOM), self.contains(Self::SEQUENTIAL)) {
            (true, _) => ReadAhead::Random,
            (_, true) => ReadAhead::Sequential,
            _ => ReadAhead::Normal,
        }
    }

    pub fn readable(self) -> bool {
        !self.contains(Self::WRONLY) && !self.contains(Self::PATH)
    }

    pub fn writable(self) -> bool {
        self.intersects(Self::WRONLY.union(Self::RDWR)) && !self.contains(Self::PATH)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Whence {
    Set,
    Current,
    End,
    Data,
    Hole,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirEntry {
    pub ino: u64,
    /// Position of the entry after this one (`d_off`).
    pub next: u64,
    pub d_type: u8,
    pub name: Vec<u8>,
}

/// A file as another kernel names it: where it lives, and its number in that kernel's export table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FileRef {
    pub owner: KernelId,
    pub id: u64,
}

/// Identity of something that can be mapped: equal for two files exactly if they are the same bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ObjectId {
    pub owner: KernelId,
    pub serial: u64,
}

/// What sync_file_range(2) is to do: with bytes `start..end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyncRange {
    pub start: u64,
    pub end: u64,
    /// Wait for what is on its way already (SYNC_FILE_RANGE_WAIT_BEFORE).
    pub waits_before: bool,
    /// Begin to write what is dirty (SYNC_FILE_RANGE_WRITE).
    pub writes: bool,
    /// Wait for all that is on its way then (SYNC_FILE_RANGE_WAIT_AFTER).
    pub waits_after: bool,
}

/// How a file will be read, as far as somebody has said it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReadAhead {
    #[default]
    Normal,
    /// Here and there: nothing is read that was not asked for.
    Random,
    /// From the beginning to the end: twice as much is read ahead.
    Sequential,
}

/// What posix_fadvise(2) says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileAdvice {
    /// POSIX_FADV_NORMAL, RANDOM, SEQUENTIAL: how this description will read.
    Reads(ReadAhead),
    /// POSIX_FADV_WILLNEED, for pages `first..end`.
    WillNeed { first: u64, end: u64 },
    /// POSIX_FADV_DONTNEED, for bytes `start..end`.
    DontNeed { start: u64, end: u64 },
}
