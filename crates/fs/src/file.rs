//! [`File`]: an open file description.

use crate::{Attributes, Caller, SetAttributes};
use alloc::{sync::Arc, vec::Vec};
use core::any::Any;
use machine::{
    errno::Result, sync::WaitQueue, BoxFuture, Errno, Frame, KernelId,
};
use serde::{Deserialize, Serialize};

bitflags::bitflags! {
    /// Flags of `open` and `fcntl(F_SETFL)`; values of x86-64 Linux.
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
        const DIRECT = 0o40000;
        const LARGEFILE = 0o100000;
        const DIRECTORY = 0o200000;
        const NOFOLLOW = 0o400000;
        const NOATIME = 0o1000000;
        const CLOEXEC = 0o2000000;
        const SYNC = 0o4010000;
        const PATH = 0o10000000;
        const TMPFILE = 0o20200000;
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
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

/// Pages that can be mapped: a file's page cache, a memfd, shared anonymous memory.
pub trait Object: Send + Sync + 'static {
    fn id(&self) -> ObjectId;
    /// Bytes; a page wholly past the end is SIGBUS.
    fn size(&self) -> u64;
    /// The frame of page `index`, filled; counted once more for the caller, who releases it.
    /// Errors: EFAULT past the end (SIGBUS), EIO, ENOMEM.
    fn page(&self, index: u64) -> BoxFuture<'_, Result<Frame>>;
    /// The frame if it is in memory already (fault-around, mincore); counted for the caller.
    fn resident(&self, index: u64) -> Option<Frame>;
    /// Page `index` was written through a shared mapping.
    fn mark_dirty(&self, index: u64);
    /// Writes dirty pages in `start..end` back (msync, fsync).
    fn sync(&self, start: u64, end: u64) -> BoxFuture<'_, Result<()>>;
}

/// An open file description. Operations that may wait return futures; dropping one abandons it without
/// losing data (an interrupted read has read nothing). O_NONBLOCK is obeyed by the implementation from
/// its own flags. The defaults are what Linux answers for a file that lacks the operation.
pub trait File: Any + Send + Sync + 'static {
    fn read<'a>(&'a self, _buf: &'a mut [u8]) -> BoxFuture<'a, Result<usize>> {
        ready(Err(Errno::EINVAL))
    }
    fn write<'a>(&'a self, _buf: &'a [u8]) -> BoxFuture<'a, Result<usize>> {
        ready(Err(Errno::EINVAL))
    }
    fn read_at<'a>(&'a self, _buf: &'a mut [u8], _offset: u64) -> BoxFuture<'a, Result<usize>> {
        ready(Err(Errno::ESPIPE))
    }
    fn write_at<'a>(&'a self, _buf: &'a [u8], _offset: u64) -> BoxFuture<'a, Result<usize>> {
        ready(Err(Errno::ESPIPE))
    }
    fn seek(&self, _offset: i64, _whence: Whence) -> BoxFuture<'_, Result<u64>> {
        ready(Err(Errno::ESPIPE))
    }
    /// Access mode and status flags (F_GETFL).
    fn flags(&self) -> OpenFlags;
    /// Changes APPEND, NONBLOCK, ASYNC, DIRECT, NOATIME (F_SETFL).
    fn set_flags(&self, flags: OpenFlags) -> BoxFuture<'_, Result<()>>;
    fn attributes(&self) -> BoxFuture<'_, Result<Attributes>>;
    fn set_attributes<'a>(&'a self, _caller: &'a Caller, _set: SetAttributes) -> BoxFuture<'a, Result<()>> {
        ready(Err(Errno::EINVAL))
    }
    /// Entries from the current position on that fit `budget` bytes in getdents64 form; advances. Empty
    /// at the end. EINVAL if not even one fits.
    fn read_dir(&self, _budget: usize) -> BoxFuture<'_, Result<Vec<DirEntry>>> {
        ready(Err(Errno::ENOTDIR))
    }
    /// `data` holds the argument's bytes (as many as the request reads or writes) and takes the answer;
    /// a plain integer argument arrives as eight bytes. The result is the call's return value.
    fn ioctl<'a>(&'a self, _caller: &'a Caller, _request: u32, _data: &'a mut Vec<u8>) -> BoxFuture<'a, Result<i64>> {
        ready(Err(Errno::ENOTTY))
    }
    fn sync(&self, _data_only: bool) -> BoxFuture<'_, Result<()>> {
        ready(Err(Errno::EINVAL))
    }
    /// fallocate(2).
    fn allocate(&self, _mode: u32, _offset: u64, _len: u64) -> BoxFuture<'_, Result<()>> {
        ready(Err(Errno::ENODEV))
    }

    /// What can be done now without waiting.
    fn poll(&self) -> Events {
        Events::IN | Events::OUT | Events::RDNORM | Events::WRNORM
    }
    /// Woken whenever [`File::poll`]'s answer may have changed. None: it never changes.
    fn changes(&self) -> Option<&WaitQueue> {
        None
    }
    /// Makes sure [`File::poll`] is current and [`File::changes`] will be woken: a no-op for a local file,
    /// a subscription at the owner for a remote one.
    fn watch(&self) -> BoxFuture<'_, Result<()>> {
        ready(Ok(()))
    }

    /// What mmap maps. Errors: ENODEV.
    fn object(&self) -> BoxFuture<'_, Result<Arc<dyn Object>>> {
        ready(Err(Errno::ENODEV))
    }
    /// Absolute path for /proc/PID/fd, maps, getcwd: `/bin/sh`, `pipe:[12]`, `/tmp/x (deleted)`.
    fn path(&self) -> BoxFuture<'_, Vec<u8>>;
    /// Called when a descriptor is closed (not the last one: man 2 close, flush of NFS-like files, POSIX locks).
    fn closed(&self, _caller: &Caller) {}
    /// Set for a stand-in: where the file really lives.
    fn remote(&self) -> Option<FileRef> {
        None
    }
    /// For downcasts inside crate `fs` (epoll watching epoll, passing descriptors, directory handles) and `process`.
    fn as_any(&self) -> &dyn Any;
}

/// A future that is already done.
pub fn ready<'a, T: Send + 'a>(value: T) -> BoxFuture<'a, T> {
    alloc::boxed::Box::pin(core::future::ready(value))
}
