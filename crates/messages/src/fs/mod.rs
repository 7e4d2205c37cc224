//! Files, pipes, terminals and other open objects. Sockets are a subject of their own.

mod control;
mod ends;
mod opened;
pub(crate) mod sockets;

pub use control::*;
pub use ends::*;
pub use opened::*;
pub use sockets::*;

use abi::signal::SignalSet;
use abi::{
    Attributes, Caller, DirEntry, Events, FileOwner, FileRef, LockOp, ObjectId, OpenFlags, OwnerChange, PathOp,
    ReadAhead, RecordLock, SetAttributes, SyncRange, Whence, XattrOp,
};
use alloc::vec::Vec;
use machine::{errno::Result, Frame, KernelId};

/// Data of one message; longer transfers are several, or go by frames.
pub const INLINE_BYTES: usize = 2048;

messages! {
    "fs" 0x500;

    /// read, pread: a stand-in asks the owner, which answers with the data, or has put it into `frames`.
    file_read: FileRead {
        /// Which of the receiver's files: the `id` of its [`FileRef`].
        id: u64,
        /// pread's offset; None: at the shared position.
        at: Option<u64>,
        /// Most bytes to be read.
        bytes: u32,
        /// Frames of the sender, lent for the call; none: the data travels in the message.
        frames: Vec<Frame>,
        /// Whether the owner waits for data; false: EAGAIN if there is none.
        wait: bool,
        /// Who reads, where that matters ([`WaitPlace::AtOwner`], [`WaitPlace::Socket`]).
        caller: Option<Caller>,
    } -> Result<ReadReply>, Low;

    /// write, pwrite: a stand-in asks the owner, which answers how many bytes it has taken.
    file_write: FileWrite {
        /// Which of the receiver's files: the `id` of its [`FileRef`].
        id: u64,
        /// pwrite's offset; None: at the shared position, or the end with O_APPEND.
        at: Option<u64>,
        /// What is written.
        data: Data,
        /// Whether the owner waits for room; false: EAGAIN if there is none.
        wait: bool,
        /// Who writes, where that matters ([`WaitPlace::AtOwner`], [`WaitPlace::Socket`]).
        caller: Option<Caller>,
    } -> Result<u64>, Low;

    /// lseek: a stand-in has the owner move the position, which the owner keeps.
    file_seek: FileSeek {
        /// Which of the receiver's files: the `id` of its [`FileRef`].
        id: u64,
        /// Bytes, from where `whence` says.
        offset: i64,
        /// SEEK_*.
        whence: Whence,
    } -> Result<u64>, Low;

    /// F_SETFL, or without `flags` F_GETFL. The owner answers the flags as they are afterwards.
    file_flags: FileSetFlags {
        /// Which of the receiver's files: the `id` of its [`FileRef`].
        id: u64,
        /// New flags; None: they stay.
        flags: Option<OpenFlags>,
    } -> Result<OpenFlags>, Low;

    /// F_SETOWN, F_SETSIG and their kin, and O_ASYNC: changes whom the file signals. Answered with its owner and its flags as they are afterwards.
    file_owner: FileSetOwner {
        /// Which of the receiver's files: the `id` of its [`FileRef`].
        id: u64,
        /// Who makes the system call.
        caller: Caller,
        /// What changes.
        change: OwnerChange,
    } -> Result<(FileOwner, OpenFlags)>, Low;

    /// signalfd: sets or reads the mask of a signalfd of the receiver. Answered with mask and flags as they are afterwards.
    file_signals: FileSignals {
        /// Which of the receiver's files: the `id` of its [`FileRef`].
        id: u64,
        /// New mask; None: it stays.
        wanted: Option<SignalSet>,
    } -> Result<(SignalSet, OpenFlags)>, Low;

    /// fstat.
    file_attributes: FileAttributes {
        /// Which of the receiver's files: the `id` of its [`FileRef`].
        id: u64,
    } -> Result<Attributes>, Low;

    /// fchmod, fchown, ftruncate, futimens.
    file_set: FileSetAttributes {
        /// Which of the receiver's files: the `id` of its [`FileRef`].
        id: u64,
        /// Who makes the system call.
        caller: Caller,
        /// Which attributes change, and to what.
        set: SetAttributes,
    } -> Result<()>, Low;

    /// getdents64: the owner answers the next entries from the position on, and moves it. No entries: the directory ends there.
    file_list: FileReadDir {
        /// Which of the receiver's files: the `id` of its [`FileRef`].
        id: u64,
        /// About how many bytes of entries fit into the answer.
        budget: u32,
    } -> Result<Vec<DirEntry>>, Low;

    /// ioctl. Answered with the return value, and the argument's bytes as they are afterwards.
    file_ioctl: FileIoctl {
        /// Which of the receiver's files: the `id` of its [`FileRef`].
        id: u64,
        /// Who makes the system call.
        caller: Caller,
        /// The number of the request.
        request: u32,
        /// The argument's bytes, as many as the request has.
        data: Vec<u8>,
    } -> Result<(i64, Vec<u8>)>, Low;

    /// fsync, fdatasync, sync_file_range.
    file_sync: FileSync {
        /// Which of the receiver's files: the `id` of its [`FileRef`].
        id: u64,
        /// fdatasync, not fsync.
        data_only: bool,
        /// sync_file_range, of these bytes.
        range: Option<SyncRange>,
    } -> Result<()>, Low;

    /// fallocate.
    file_allocate: FileAllocate {
        /// Which of the receiver's files: the `id` of its [`FileRef`].
        id: u64,
        /// FALLOC_FL_*.
        mode: u32,
        /// First byte.
        offset: u64,
        /// How many bytes.
        len: u64,
    } -> Result<()>, Low;

    /// Asks for the path of a file, for /proc and getcwd.
    file_path: FilePath {
        /// Which of the receiver's files: the `id` of its [`FileRef`].
        id: u64,
    } -> Vec<u8>, Low;

    /// An operation that only some kinds of files have ([`Control`]). Many bytes of a socket's message travel in `frames`: a sent message has
    /// `sent` bytes there, and for a received one the answer says how many bytes the owner has put there.
    file_control: FileControl {
        /// Which of the receiver's files: the `id` of its [`FileRef`].
        id: u64,
        /// Who makes the system call.
        caller: Caller,
        /// What is to be done.
        control: Control<Opened>,
        /// Whether the owner waits where Linux would block; false: EAGAIN.
        wait: bool,
        /// Frames of the sender, lent for the call; none: the data travels in the message.
        frames: Vec<Frame>,
        /// Bytes of the message that are in `frames`.
        sent: u32,
    } -> Result<(ControlAnswer<Opened>, u32)>, Low;

    /// splice and tee from a pipe of the receiver. The answer has bytes like a read's, but they stay in the pipe: the sender holds them under the
    /// number in the answer, and no other reader takes them until [`PipeLetGo`]. None: the pipe is empty and has no writer.
    pipe_hold: PipeHold {
        /// Which of the receiver's files: the `id` of its [`FileRef`].
        id: u64,
        /// Most bytes to be held.
        bytes: u32,
        /// Frames of the sender, lent for the call; none: the data travels in the message.
        frames: Vec<Frame>,
        /// Whether the owner waits for data; false: EAGAIN if there is none.
        wait: bool,
    } -> Result<Option<(u64, ReadReply)>>, Low;

    /// Ends a hold on a pipe. The first `taken` bytes were written elsewhere, and leave the pipe.
    pipe_let_go: PipeLetGo {
        /// The hold's number, from the answer to [`PipeHold`].
        number: u64,
        /// How many of the held bytes leave the pipe.
        taken: u32,
    } -> (), Low;

    /// A descriptor of a stand-in was closed. The owner drops the caller's record locks on the file.
    file_closed: FileClosed {
        /// Which of the receiver's files: the `id` of its [`FileRef`].
        id: u64,
        /// Who makes the system call.
        caller: Caller,
        /// How many references come back, because it was the last descriptor; 0: others are open.
        count: u64,
    } -> (), Low;

    /// A stand-in wants to hear of changes of readiness from now on ([`FileReady`]). The owner answers what is ready now.
    file_watch: FileWatch {
        /// Which of the receiver's files: the `id` of its [`FileRef`].
        id: u64,
    } -> Result<Events>, Low;

    /// The owner tells a stand-in that readiness may have changed. It sends the next one after this has been answered.
    file_ready: FileReady {
        /// The file, at the sender.
        file: FileRef,
        /// What is ready now.
        events: Events,
    } -> (), Low;

    /// An epoll of the sender begins to watch the file, without keeping it open. The owner answers what is ready now, and whether the file
    /// is an epoll itself; from now on it tells of changes ([`FileObserved`]).
    file_observe: FileObserve {
        /// Which of the receiver's files: the `id` of its [`FileRef`].
        id: u64,
    } -> Result<(Readiness, bool)>, Low;

    /// The only program that has this epoll is on the sender's kernel, which makes one of its own that watches the same; answered with its
    /// flags and its entries: descriptor number, file, events and data. EBUSY: others have it or hear of it, or it watches very much.
    epoll_move: EpollMove {
        /// Which of the receiver's files: the `id` of its [`FileRef`].
        id: u64,
        /// So many references the sender has.
        references: u64,
    } -> Result<(OpenFlags, Vec<(i32, FileRef, EpollInterest)>)>, Low;

    /// No epoll of the sender watches the file any more.
    file_unobserve: FileUnobserve {
        /// Which of the receiver's files: the `id` of its [`FileRef`].
        id: u64,
    } -> (), Low;

    /// epoll_wait: asks what is ready of files that the sender's epolls watch. None: the file is closed.
    files_ready: FilesReady {
        /// The files at the receiver ([`FileRef`]'s `id`); the answer is in their order.
        ids: Vec<u64>,
    } -> Vec<Option<Readiness>>, Low;

    /// The owner tells a kernel whose epolls watch a file that its readiness has changed, or that it is closed. It sends the next one after this
    /// has been answered.
    file_observed: FileObserved {
        /// The file, at the sender.
        file: FileRef,
        /// What is ready now; None: it is closed.
        ready: Option<Readiness>,
    } -> (), Low;

    /// EPOLL_CTL_ADD of an epoll that watches a file of the receiver, directly or through others: asks whether epolls would watch each other in a
    /// circle or be nested too deeply (ELOOP), or would be nested in too many ways (EINVAL).
    epoll_below: EpollBelow {
        /// Which of the receiver's files: the `id` of its [`FileRef`].
        id: u64,
        /// The epoll that it is added to. None: no other kernel has a reference to that, so it can't be in a circle.
        root: Option<FileRef>,
        /// How many epolls would watch it, one above the other.
        above: u32,
    } -> Result<()>, Low;

    /// Counts the ways from a file upwards through the epolls of the receiver that watch it, by their length. `ways` has the counts so far. Answered
    /// with the counts, and how many epolls the longest way has. EINVAL: there are too many.
    epoll_above: EpollAbove {
        /// The file, at the sender.
        file: FileRef,
        /// How many epolls the way so far has passed.
        nests: u32,
        /// Ways counted so far, by their length.
        ways: Vec<u32>,
    } -> Result<(Vec<u32>, u32)>, Low;

    /// A kernel that has a stand-in hands the file on to `holder`. The owner counts one more reference of `holder`, unless that has told it first
    /// ([`FileArrived`]).
    file_retain: FileRetain {
        /// Which of the receiver's files: the `id` of its [`FileRef`].
        id: u64,
        /// The kernel that gets the reference.
        holder: KernelId,
    } -> (), Low;

    /// Takes a [`FileRetain`] back: the sender does not send `holder` the reference.
    file_unsent: FileUnsent {
        /// Which of the receiver's files: the `id` of its [`FileRef`].
        id: u64,
        /// The kernel that was to get the reference.
        holder: KernelId,
    } -> (), Low;

    /// A reference that `giver` has sent has arrived at the sender. The owner counts one more reference of the sender, unless `giver` has told it
    /// first ([`FileRetain`]).
    file_arrived: FileArrived {
        /// Which of the receiver's files: the `id` of its [`FileRef`].
        id: u64,
        /// The kernel that has sent the reference.
        giver: KernelId,
    } -> (), Low;

    /// `dead` has died, and no more messages of it can arrive at the sender. The receiver uncounts references that `dead` has announced for the
    /// sender ([`FileRetain`]) and never sent.
    file_lost: FilesLost {
        /// The kernel that is dead.
        dead: KernelId,
    } -> (), Low;

    /// A stand-in is dropped. The owner uncounts its references.
    file_release: FileRelease {
        /// Which of the receiver's files: the `id` of its [`FileRef`].
        id: u64,
        /// How many references come back.
        count: u64,
    } -> (), Low;

    /// flock, and record locks of fcntl. The owner waits for the lock if `op` says so; the sender cancels the call on a signal. F_GETLK is answered
    /// with the lock that is in the way. The answer may give the sender all record locks of the file, to keep them from then on.
    file_lock: FileLock {
        /// Which of the receiver's files: the `id` of its [`FileRef`].
        id: u64,
        /// Who makes the system call.
        caller: Caller,
        /// Kind of lock, range, and whether to wait.
        op: LockOp,
        /// If the sender keeps the file's locks, the owner fetches them first.
        here: bool,
    } -> Result<LockReply>, Low;

    /// Fetches the record locks of a file of the sender, which the receiver keeps.
    locks_fetch: LocksFetch {
        /// What they were given under ([`LockReply::Given`]).
        token: u64,
    } -> FetchedLocks, Low;

    /// The sender does not keep the record locks of a file of the receiver any longer.
    locks_return: LocksReturn {
        /// What they were given under ([`LockReply::Given`]).
        token: u64,
        /// The locks.
        locks: Vec<RecordLock>,
    } -> (), Low;

    /// F_ADD_SEALS and F_GET_SEALS.
    file_seal: FileSeal {
        /// Which of the receiver's files: the `id` of its [`FileRef`].
        id: u64,
        /// F_SEAL_* to be added; 0: none. Answered with all seals of the file.
        add: u32,
    } -> Result<u32>, Low;

    /// Opens the same file again, with a description of its own (open of /proc/self/fd/N).
    file_reopen: FileReopen {
        /// Which of the receiver's files: the `id` of its [`FileRef`].
        id: u64,
        /// Who makes the system call.
        caller: Caller,
        /// Flags of the new description.
        flags: OpenFlags,
    } -> Result<Opened>, Low;

    /// mmap: asks for the object behind a file. Answered with a reference to it, its id, and whether the sender may keep the reference in case the
    /// file is mapped again: then it keeps no memory in use that the owner could not reclaim.
    file_object: FileObject {
        /// Which of the receiver's files: the `id` of its [`FileRef`].
        id: u64,
    } -> Result<(Opened, ObjectId, bool)>, Low;

    /// Asks for pages of a mapped object, for reading. The owner copies at least one page into `frames`, or gives its own frame. It asks for copies
    /// back ([`ObjectLost`]) before it changes the pages.
    object_pages: ObjectPages {
        /// Which of the receiver's files: the `id` of its [`FileRef`].
        id: u64,
        /// The first page wanted.
        first: u64,
        /// Frames of the sender, lent for the call: the copies go there.
        frames: Vec<Frame>,
        /// What madvise said of the mapping.
        read_ahead: ReadAhead,
    } -> Result<ObjectPagesReply>, Low;

    /// Asks for a reference to an object of which the sender only has the id.
    resolve_object: ResolveObject {
        /// The object, which the receiver owns.
        object: ObjectId,
    } -> Result<Opened>, Low;

    /// Asks for the owner's own frame of a page, for a shared mapping. The owner counts the frame once more, until the sender returns it
    /// (`FramesHome`).
    object_pin: ObjectPin {
        /// Which of the receiver's files: the `id` of its [`FileRef`].
        id: u64,
        /// Page of the object, counted from its start.
        index: u64,
    } -> Result<Frame>, Low;

    /// A page was written through a shared mapping of the sender. The owner marks it dirty.
    object_dirty: ObjectDirty {
        /// Which of the receiver's files: the `id` of its [`FileRef`].
        id: u64,
        /// Page of the object, counted from its start.
        index: u64,
    } -> (), Low;

    /// The owner tells a kernel that has pages of an object that some are gone or change (truncation, a hole, a write to what was copied). Answered
    /// when nothing on that kernel maps them any more, with whether anything there still uses the object.
    object_lost: ObjectLost {
        /// Which pages.
        lost: Lost,
    } -> bool, Low;

    /// Asks whether a new shared mapping of an object of the receiver may write. The sender asks when the mapping is in place and before anybody can
    /// use it. EPERM: the file is sealed.
    object_admit: ObjectAdmit {
        /// Which of the receiver's files: the `id` of its [`FileRef`].
        id: u64,
    } -> Result<()>, Low;

    /// MADV_REMOVE: makes pages `first..end` of an object of the receiver a hole.
    object_punch: ObjectPunch {
        /// Which of the receiver's files: the `id` of its [`FileRef`].
        id: u64,
        /// The first page.
        first: u64,
        /// The page after the last.
        end: u64,
    } -> Result<()>, Low;

    /// msync of a shared mapping of an object of the receiver.
    object_sync: ObjectSync {
        /// Which of the receiver's files: the `id` of its [`FileRef`].
        id: u64,
        /// First byte.
        start: u64,
        /// The byte after the last.
        end: u64,
    } -> Result<()>, Low;

    /// Runs an operation on paths on the kernel that owns the file system where its walk begins. If the walk leaves the receiver's file systems nothing
    /// is done, and the answer is where it goes on.
    path: RunPath {
        /// Who makes the system call.
        caller: Caller,
        /// The caller's root directory, if the receiver owns it.
        root: Option<Opened>,
        /// The directory that a relative path starts from; None: the path is absolute.
        at: Option<Opened>,
        /// Where the second path of a rename or link starts from.
        to: Option<Opened>,
        /// What is to be done, with its paths.
        op: PathOp,
        /// What was walked on other kernels before; None: it begins here.
        continues: Option<Continues>,
        /// Whether the sender would keep the answer, if the receiver promises to recall it ([`NamesRecall`]) before it becomes wrong.
        keep: bool,
    } -> PathAnswered, Low;

    /// Asks for the root directory of the machine.
    root: RootDirectory {} -> Result<Opened>, Low;

    /// The owner of an inode is about to change something on which answers about paths rest. The receiver drops the answers that rest on one of
    /// `tokens`. It answers with the references (number, count) that it had kept only to open the files again, which it gives back.
    names_recall: NamesRecall {
        /// Facts that are about to change, as [`PathAnswered::tokens`] names them.
        tokens: Vec<u64>,
        /// Whether the sender must hear of closes of files that were opened without asking it.
        watched: bool,
    } -> Vec<(u64, u64)>, High;

    /// fgetxattr, fsetxattr, flistxattr, fremovexattr. Answered with the value or the names, a NUL behind each; a change answers no bytes.
    file_xattr: FileXattr {
        /// Which of the receiver's files: the `id` of its [`FileRef`].
        id: u64,
        /// Who makes the system call.
        caller: Caller,
        /// What is done, to which attribute.
        op: XattrOp,
    } -> Result<Vec<u8>>, Low;

    /// The owner of the root has the receiver mount a file system of its own. Answered with the topmost directory: the root's owner has a mount in its tree
    /// for it, and walks go on there.
    tree_mount: TreeForMount {
        /// What is to be mounted.
        mount: TreeMount,
        /// The directory that it covers, where `..` leads.
        above: Opened,
    } -> Result<Opened>, Low;

    /// The owner of the root wants something done to a file system that it has had mounted.
    tree_control: TreeControl {
        /// The topmost directory: the `id` of its [`FileRef`].
        id: u64,
        /// What.
        op: TreeOp,
    } -> Result<()>, Low;
}
