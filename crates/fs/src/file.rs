//! [`File`]: an open file description.

use crate::control::{Control, ControlAnswer};
use crate::event::Seen;
use crate::namespace::Location;
use abi::{
    Attributes, Caller, DirEntry, Events, FileRef, LockConflict, LockOp, ObjectId, OpenFlags, SetAttributes, Whence,
};
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::any::Any;
use machine::{errno::Result, sync::WaitQueue, BoxFuture, Errno, Frame, KernelId, Pid};

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
    /// A shared mapping of page `index` is about to become writable: from then on the page changes unseen. False if other
    /// kernels have copies of it: they are to be taken back first ([`Object::take_back`]), then it is asked again.
    fn write(&self, index: u64) -> bool {
        self.mark_dirty(index);
        true
    }
    /// Returns when no other kernel shows a copy of page `index`.
    fn take_back(&self, _index: u64) -> BoxFuture<'_, ()> {
        ready(())
    }
    /// Is there no other place that its pages are kept at? Then who keeps it in case it is wanted again keeps all its memory.
    fn is_only_in_memory(&self) -> bool {
        false
    }
    /// Goes up whenever pages of the object are lost ([`messages::fs::Lost`]): a frame that was got before counts no more.
    fn losses(&self) -> u64 {
        0
    }
    /// Page `index` for kernel `to`, counted for the caller; `write`: for a shared mapping there. Whoever takes pages away
    /// afterwards must ask `to`.
    fn lend(&self, index: u64, _to: KernelId, _write: bool) -> BoxFuture<'_, Result<Loaned>> {
        Box::pin(async move { Ok(Loaned::Own(self.page(index).await?)) })
    }
    /// May a shared mapping be written? Asked when the mapping is there, for all to count, and before anybody can use it. EPERM: the
    /// object is sealed ([`crate::tmpfs`]). None: it never is.
    fn admit_writer(&self) -> Option<BoxFuture<'_, Result<()>>> {
        None
    }
    /// Makes a hole of pages `first..end` (MADV_REMOVE).
    fn punch(&self, _first: u64, _end: u64) -> BoxFuture<'_, Result<()>> {
        ready(Err(Errno::EOPNOTSUPP))
    }
    /// Writes dirty pages of bytes `start..end` back (msync, fsync).
    fn sync(&self, start: u64, end: u64) -> BoxFuture<'_, Result<()>>;
    /// Gets pages `first..end` from where they are kept, as long as there is room for them: somebody says that he will need them
    /// (MADV_WILLNEED, readahead). What is kept nowhere else is here already.
    fn read_ahead(&self, _first: u64, _end: u64) -> BoxFuture<'_, ()> {
        ready(())
    }
    /// Set for a stand-in, whose pages are copies: the same object with the owner's own frames, for
    /// shared mappings.
    fn shared(&self) -> Option<Arc<dyn Object>> {
        None
    }
}

/// A page on its way to another kernel.
pub enum Loaned {
    /// To be copied: the object asks for the copy back before it changes the page.
    Copy(Frame),
    /// To be mapped there itself, because it may change at any time.
    Own(Frame),
}

/// The program's side of a transfer that does not wait. Each moves on by as many bytes as can be moved at once, and says how
/// many that was; a frame (`bytes` bytes at `offset` of it) can't change its owner meanwhile.
pub trait UserBuffer {
    fn put(&mut self, from: &[u8]) -> usize;
    fn put_frame(&mut self, from: Frame, offset: usize, bytes: usize) -> usize;
    fn put_zeros(&mut self, bytes: usize) -> usize;
    fn take(&mut self, to: &mut [u8]) -> usize;
    fn take_frame(&mut self, to: Frame, offset: usize, bytes: usize) -> usize;
}

/// The offset that means the end of the file, wherever it is when the write is made (RWF_APPEND); no program can
/// name it.
pub const APPEND_AT: u64 = u64::MAX;

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
    /// A read of `bytes` bytes, at the position or at `at`, that needs not wait: what is in memory goes straight to the program.
    /// The file is open for reading. None: it would wait, is refused, or `to` has not taken all; then nothing has happened but
    /// what `to` did.
    fn read_now(&self, _at: Option<u64>, _bytes: usize, _to: &mut dyn UserBuffer) -> Option<usize> {
        None
    }
    /// A write of at most `bytes` bytes that needs not wait. The file is open for writing. None: as above; then nothing has
    /// happened but that some of the bytes may be where they belong already.
    fn write_now(&self, _at: Option<u64>, _bytes: usize, _from: &mut dyn UserBuffer) -> Option<usize> {
        None
    }
    fn seek(&self, _offset: i64, _whence: Whence) -> BoxFuture<'_, Result<u64>> {
        ready(Err(Errno::ESPIPE))
    }
    /// Access mode and status flags (F_GETFL).
    fn flags(&self) -> OpenFlags;
    /// [`File::flags`] as they are now: a stand-in asks, for another kernel may have changed them.
    fn current_flags(&self) -> BoxFuture<'_, Result<OpenFlags>> {
        ready(Ok(self.flags()))
    }
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

    /// `read` for a program: a terminal first asks whether `caller` is in its foreground (SIGTTIN).
    fn read_for<'a>(&'a self, _caller: &'a Caller, buf: &'a mut [u8]) -> BoxFuture<'a, Result<usize>> {
        self.read(buf)
    }
    /// `write` for a program (TOSTOP, SIGTTOU). What applies to all writes: a stream (pipe, socket,
    /// terminal) may take less than all even if it may block, so that a signal loses no count; the system
    /// call goes on with the rest until it meets an error, and then answers the count so far if there is one.
    fn write_for<'a>(&'a self, _caller: &'a Caller, buf: &'a [u8]) -> BoxFuture<'a, Result<usize>> {
        self.write(buf)
    }
    /// What only some kinds of files can do; reaches the owner like every operation.
    fn control<'a>(&'a self, _caller: &'a Caller, control: Control) -> BoxFuture<'a, Result<ControlAnswer>> {
        ready(Err(lacks(&control)))
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

    /// What a process polls, or one thread of it, where that depends on who looks (a signalfd's signals are the reader's).
    /// None: the file itself. What is given does not keep the file open.
    fn seen_by(&self, _process: Pid, _thread: Option<Pid>) -> Option<Arc<Seen>> {
        None
    }

    /// What mmap maps. Errors: ENODEV.
    fn object(&self) -> BoxFuture<'_, Result<Arc<dyn Object>>> {
        ready(Err(Errno::ENODEV))
    }
    /// Absolute path for /proc/PID/fd, maps, getcwd: `/bin/sh`, `pipe:[12]`, `/tmp/x (deleted)`.
    fn path(&self) -> BoxFuture<'_, Vec<u8>>;
    /// Called when a descriptor is closed (not the last one: man 2 close, flush of NFS-like files, POSIX locks).
    fn closed<'a>(&'a self, _caller: &'a Caller) -> BoxFuture<'a, ()> {
        ready(())
    }
    /// Set for a stand-in: where the file really lives.
    fn remote(&self) -> Option<FileRef> {
        None
    }
    /// flock(2) and fcntl(2) locks; waits if the operation says so. The answer is that of `LockOp::Get`.
    fn lock<'a>(&'a self, _caller: &'a Caller, _op: LockOp) -> BoxFuture<'a, Result<Option<LockConflict>>> {
        ready(Err(Errno::EBADF))
    }
    /// fcntl(F_ADD_SEALS, F_GET_SEALS): adds `add` (may be 0), then says which there are.
    fn seal(&self, _add: u32) -> BoxFuture<'_, Result<u32>> {
        ready(Err(Errno::EINVAL))
    }
    /// A new description of the same file, as opening /proc/self/fd/N gives, for a file without a name.
    fn reopen<'a>(&'a self, _caller: &'a Caller, _flags: OpenFlags) -> BoxFuture<'a, Result<Arc<dyn File>>> {
        ready(Err(Errno::ENXIO))
    }
    /// Where in this kernel's tree of names the file was opened; None without a name, or if remote.
    fn location(&self) -> Option<&Location> {
        None
    }
    /// For downcasts inside crate `fs` (epoll watching epoll, passing descriptors, directory handles) and `process`.
    fn as_any(&self) -> &dyn Any;
}

/// What a file answers that lacks the operation.
pub(crate) fn lacks(control: &Control) -> Errno {
    match control {
        Control::Socket(_) => Errno::ENOTSOCK,
        Control::PtyPeer(_) => Errno::ENOTTY,
        Control::PipeSize | Control::SetPipeSize(_) | Control::Process | Control::ProcessDirectory => Errno::EBADF,
        _ => Errno::EINVAL,
    }
}

/// A future that is already done.
pub fn ready<'a, T: Send + 'a>(value: T) -> BoxFuture<'a, T> {
    alloc::boxed::Box::pin(core::future::ready(value))
}
