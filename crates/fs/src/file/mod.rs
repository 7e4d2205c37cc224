//! [`File`]: an open file description, and what all kinds of files share: pages that are mapped ([`Object`]), operations of some kinds
//! only ([`Control`]), how an operation waits, the attributes of what has no name, and waiting for any of several files.
//!
//! Names no kind of file and no file system.

mod across;
pub mod anonymous;
pub mod control;
mod object;
pub mod poll;
pub mod sigio;
mod transfer;
pub mod waiting;
mod xattr;

pub use across::{Gained, HeldBytes, Observed, SignalView, WatchedFiles, Watcher};
pub use control::{Control, ControlAnswer};
pub use object::{Loaned, Object};
pub use sigio::{Fasync, Signaller};
pub use transfer::{Access, Destination, Frames, Requester, Source, Transfer, UserBuffer, NEEDS_BUFFER};
pub use waiting::{Patience, MUST_WAIT};

use abi::{
    signal::SignalSet, Attributes, Caller, DirEntry, Events, FileRef, LockConflict, LockOp, OpenFlags, SetAttributes,
    SyncRange, Whence, XattrOp,
};
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use anonymous::StatusFlags;
use core::any::Any;
use machine::{errno::Result, sync::WaitQueue, BoxFuture, Errno, Pid, Shield};
use messages::fs::{SignalsSeen, SocketType, WaitPlace};

/// The offset that means the end of the file, wherever it is when the write is made (RWF_APPEND); no program can
/// name it.
pub const APPEND_AT: u64 = u64::MAX;

/// So many files of a process follow it to another kernel, or it is not taken there for what it would leave.
pub const MOST_FETCHED: usize = 256;

/// A file of a program that has come here, which it may have left on another kernel.
pub struct LeftFile {
    /// The caller has this reference beside those of the descriptors.
    pub file: Arc<dyn File>,
    /// How many descriptors of the program's table are open on it; at least one.
    pub descriptors: usize,
}

/// A file of another kernel that has moved here, and what it is here.
pub struct Fetched {
    /// Its stand-in, which is of no more use.
    pub from: Arc<dyn File>,
    /// The file.
    pub to: Arc<dyn File>,
}

/// An open file description. Operations that may wait return futures (a read or write a [`Transfer`]); dropping one abandons it without
/// losing data (an interrupted read has read nothing). O_NONBLOCK is obeyed by the implementation from
/// its own flags. The defaults are what Linux answers for a file that lacks the operation.
pub trait File: Any + Send + Sync + 'static {
    /// Reads as many bytes as `to` wants, or fewer; 0 at the end.
    fn read_into<'a>(&'a self, _to: Destination<'a>, access: Access<'a>) -> Transfer<'a> {
        Transfer::Done(access.check_stream().and(Err(Errno::EINVAL)))
    }
    /// Writes bytes of `from` (with O_APPEND at the end); how many. A stream (pipe, socket, terminal) may take less than all even if it may
    /// block, so that a signal loses no count; the system call goes on with the rest until it meets an error, and then answers the count so far
    /// if there is one.
    fn write_from<'a>(&'a self, _from: Source<'a>, access: Access<'a>) -> Transfer<'a> {
        Transfer::Done(access.check_stream().and(Err(Errno::EINVAL)))
    }
    /// [`File::read_into`] a buffer by the kernel, at the position. This and the next three are the same for all kinds of files.
    fn read<'a>(&'a self, buf: &'a mut [u8]) -> Transfer<'a> {
        self.read_into(Destination::Kernel(buf), Access::KERNEL)
    }
    /// [`File::write_from`] a buffer by the kernel, at the position.
    fn write<'a>(&'a self, buf: &'a [u8]) -> Transfer<'a> {
        self.write_from(Source::Kernel(buf), Access::KERNEL)
    }
    /// The same read at an offset.
    fn read_at<'a>(&'a self, buf: &'a mut [u8], offset: u64) -> Transfer<'a> {
        self.read_into(Destination::Kernel(buf), Access::at(offset))
    }
    /// The same write at an offset; [`APPEND_AT`] is the end.
    fn write_at<'a>(&'a self, buf: &'a [u8], offset: u64) -> Transfer<'a> {
        self.write_from(Source::Kernel(buf), Access::at(offset))
    }
    /// lseek(2): the new position.
    fn seek(&self, _offset: i64, _whence: Whence) -> BoxFuture<'_, Result<u64>> {
        ready(Err(Errno::ESPIPE))
    }
    /// Access mode, status flags and owner. None: another kernel has them, or this is none that a program has.
    fn status(&self) -> Option<&StatusFlags> {
        None
    }
    /// Access mode and status flags (F_GETFL).
    fn flags(&self) -> OpenFlags {
        self.status().map_or(OpenFlags::empty(), StatusFlags::get)
    }
    /// [`File::flags`] as they are now: a stand-in asks, for another kernel may have changed them.
    fn current_flags(&self) -> BoxFuture<'_, Result<OpenFlags>> {
        ready(Ok(self.flags()))
    }
    /// Changes APPEND, NONBLOCK, DIRECT, NOATIME (F_SETFL).
    fn set_flags(&self, flags: OpenFlags) -> BoxFuture<'_, Result<()>> {
        ready(self.status().map(|status| status.set(flags)).ok_or(Errno::EBADF))
    }
    /// How it signals with O_ASYNC that it is ready. None: never (Linux: it lacks the operation `fasync`).
    fn fasync(&self) -> Option<Fasync> {
        None
    }
    /// What fstat(2) says.
    fn attributes(&self) -> BoxFuture<'_, Result<Attributes>>;
    /// fchmod, fchown, futimens, ftruncate: applies what is Some, if `caller` may.
    fn set_attributes<'a>(&'a self, _caller: &'a Caller, _set: SetAttributes) -> BoxFuture<'a, Result<()>> {
        ready(Err(Errno::EINVAL))
    }
    /// fgetxattr and its kin. Get answers the value, List the names with a NUL behind each.
    fn xattr<'a>(&'a self, caller: &'a Caller, op: XattrOp) -> BoxFuture<'a, Result<Vec<u8>>> {
        Box::pin(async move { xattr::of_nameless(caller, self.attributes().await?.kind(), &op) })
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
    /// fsync, or with `data_only` fdatasync.
    fn sync(&self, _data_only: bool) -> BoxFuture<'_, Result<()>> {
        ready(Err(Errno::EINVAL))
    }
    /// sync_file_range(2). What is nowhere but in memory has nothing to be written.
    fn sync_range(&self, _range: SyncRange) -> BoxFuture<'_, Result<()>> {
        ready(Ok(()))
    }
    /// fallocate(2).
    fn allocate(&self, _mode: u32, _offset: u64, _len: u64) -> BoxFuture<'_, Result<()>> {
        ready(Err(Errno::ENODEV))
    }

    /// What only some kinds of files can do; reaches the owner like every operation.
    fn control<'a>(&'a self, _caller: &'a Caller, control: Control) -> BoxFuture<'a, Result<ControlAnswer>> {
        ready(Err(lacks(&control)))
    }

    /// How it is waited for what is to be read or written, for who has the file on another kernel.
    fn waiting(&self) -> WaitPlace {
        match self.changes() {
            Some(_) => WaitPlace::Here,
            None => WaitPlace::Never,
        }
    }
    /// What socket(2) was asked for; None: it is no socket.
    fn socket(&self) -> Option<SocketType> {
        match self.waiting() {
            WaitPlace::Socket(kind) => Some(kind),
            _ => None,
        }
    }
    /// SO_RCVTIMEO and SO_SNDTIMEO, in ns; 0: for ever. None: another kernel knows.
    fn timeouts(&self) -> Option<[u64; 2]> {
        Some([0; 2])
    }
    /// Does another kernel have what is read here?
    fn is_elsewhere(&self) -> bool {
        self.remote().is_some()
    }
    /// `control` with so much patience.
    fn control_with<'a>(
        &'a self,
        caller: &'a Caller,
        control: Control,
        patience: Patience,
    ) -> BoxFuture<'a, Result<ControlAnswer>> {
        patience.limit(self.control(caller, control))
    }

    /// The first bytes of a pipe, at most `most`, as soon as there are any and nobody else holds them; without `wait` EAGAIN if there
    /// are none. None: there will be none. EINVAL: it is no pipe.
    fn hold<'a>(
        &'a self,
        _shield: &'a Shield,
        _most: usize,
        _wait: bool,
    ) -> BoxFuture<'a, Result<Option<Box<dyn HeldBytes>>>> {
        ready(Err(Errno::EINVAL))
    }

    /// Whether the file, of which there is only one reference, can follow that to another kernel.
    fn may_move(&self) -> bool {
        false
    }

    /// Set for a file that watches others.
    fn watcher(&self) -> Option<&dyn Watcher> {
        None
    }

    /// Returns when what was written is where it can be read. For who writes from another kernel, and may read from there.
    fn delivered(&self) -> BoxFuture<'_, ()> {
        ready(())
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

    /// Set for a stand-in: the file as an epoll of this kernel watches it, which is not to keep it open.
    fn observe(&self) -> Option<BoxFuture<'_, Result<Arc<dyn Observed>>>> {
        None
    }

    /// What a process polls, or one thread of it, where that depends on who looks (a signalfd's signals are the reader's).
    /// None: the file itself. What is given does not keep the file open.
    fn seen_by(&self, _process: Pid, _thread: Option<Pid>) -> Option<Arc<dyn SignalView>> {
        None
    }
    /// Mask and flags of a signalfd, whose mask becomes `wanted` if that is Some. EINVAL: it is none.
    fn signals(&self, _wanted: Option<SignalSet>) -> BoxFuture<'_, Result<(SignalSet, OpenFlags)>> {
        ready(Err(Errno::EINVAL))
    }
    /// Set for a stand-in, whose owner does not know the signals of `caller`: which of them wait now, and a view that is ready when
    /// more have come.
    fn signals_from_now_on(&self, _caller: &Caller) -> Option<(SignalsSeen, Arc<dyn SignalView>)> {
        None
    }
    /// Set for a socket, or the stand-in of one: how often somebody may have got a reference to it. None: it can't be part of a
    /// circle of sockets that hold each other.
    fn gained(&self) -> Option<&Gained> {
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
    /// Where in this kernel's tree of names the file was opened; None without a name, or if remote. Only that tree looks into it:
    /// it is a [`Location`](crate::namespace::Location).
    fn location(&self) -> Option<&(dyn Any + Send + Sync)> {
        None
    }
    /// Gives this use of the file up. Some: it was the last use of a stand-in, and the future is done when the owner has heard of it.
    fn close(self: Arc<Self>) -> Option<BoxFuture<'static, ()>> {
        None
    }
    /// [`Self::closed`], then [`Self::close`]. A stand-in tells its owner of both with one message.
    fn close_descriptor(self: Arc<Self>, caller: &Caller) -> BoxFuture<'static, ()> {
        let caller = caller.clone();
        Box::pin(async move {
            self.closed(&caller).await;
            if let Some(told) = self.close() {
                told.await;
            }
        })
    }
    /// For a kind of file that has to know its own (an epoll that watches an epoll).
    fn as_any(&self) -> &dyn Any;
}

/// Where the file lies in this kernel's memory, which names it here as long as anybody has a reference, be it a weak one.
pub fn address_of(file: &Arc<dyn File>) -> usize {
    Arc::as_ptr(file).cast::<()>() as usize
}

/// Counts a reference to `file`, if it is a socket.
pub(crate) fn count_gained(file: &dyn File) {
    if let Some(gained) = file.gained() {
        gained.count_one();
    }
}

/// What a file answers that lacks the operation.
pub(crate) fn lacks(control: &Control) -> Errno {
    match control {
        Control::Socket(_) => Errno::ENOTSOCK,
        Control::Advise(_) => Errno::EOPNOTSUPP,
        Control::PtyPeer(_) | Control::AttachLoop { .. } => Errno::ENOTTY,
        Control::PipeSize | Control::SetPipeSize(_) | Control::Process | Control::ProcessDirectory => Errno::EBADF,
        _ => Errno::EINVAL,
    }
}

/// Closes: if this was the last use of a stand-in, returns when the owner has heard of it, so that whoever the
/// program tells afterwards finds the file closed (the end of a pipe, a name that is free again).
pub async fn close(file: Arc<dyn File>) {
    if let Some(told) = file.close() {
        told.await;
    }
}

/// Closes a descriptor of `caller`'s process, whose record locks on the file end.
pub async fn close_descriptor(file: Arc<dyn File>, caller: &Caller) {
    match file.is_elsewhere() {
        true => file.close_descriptor(caller).await,
        false => {
            file.closed(caller).await;
            close(file).await;
        }
    }
}

/// A future that is already done.
pub fn ready<'a, T: Send + 'a>(value: T) -> BoxFuture<'a, T> {
    Box::pin(core::future::ready(value))
}

/// The kernel itself.
pub(crate) static SYSTEM: Caller = Caller {
    credentials: abi::Credentials {
        uid: 0,
        euid: 0,
        suid: 0,
        fsuid: 0,
        gid: 0,
        egid: 0,
        sgid: 0,
        fsgid: 0,
        groups: Vec::new(),
        effective: abi::CapabilitySet::ALL,
    },
    process: Pid(0),
    thread: Pid(0),
    group: Pid(0),
    session: Pid(0),
    umask: 0,
    shield: machine::Shield::NONE,
};
