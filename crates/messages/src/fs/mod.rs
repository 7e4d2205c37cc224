//! Files, pipes, terminals and other open objects. Sockets are a subject of their own.

mod control;
mod opened;
pub(crate) mod sockets;

pub use control::*;
pub use opened::*;
pub use sockets::*;

use abi::signal::SignalSet;
use abi::{
    Attributes, Caller, DirEntry, Events, FileOwner, FileRef, LockConflict, LockOp, ObjectId, OpenFlags, OwnerChange,
    PathOp, SetAttributes, Whence,
};
use alloc::vec::Vec;
use machine::{errno::Result, Frame, KernelId};

/// Data of one message; longer transfers are several, or go by frames.
pub const INLINE_BYTES: usize = 2048;

messages! {
    "fs" 0x500;

    /// read, pread: a stand-in asks the owner. With `frames` the data goes there.
    file_read: FileRead {
        /// Which of the receiver's files: the `id` of its [`FileRef`].
        id: u64,
        /// pread's offset; None: at the shared position.
        at: Option<u64>,
        /// Most bytes to be read.
        bytes: u32,
        /// Frames of the sender, lent for the call; none: the data travels in the message.
        frames: Vec<Frame>,
        /// Whether the owner waits for data; false: EAGAIN without.
        wait: bool,
        /// Who reads, where that matters ([`WaitPlace::AtOwner`], [`WaitPlace::Socket`]).
        caller: Option<Caller>,
    } -> Result<ReadReply>, Low;

    /// write, pwrite: a stand-in asks the owner; answered with the bytes taken.
    file_write: FileWrite {
        /// Which of the receiver's files: the `id` of its [`FileRef`].
        id: u64,
        /// pwrite's offset; None: at the shared position, or the end with O_APPEND.
        at: Option<u64>,
        /// What is written.
        data: Data,
        /// Whether the owner waits for room; false: EAGAIN without.
        wait: bool,
        /// Who writes, where that matters ([`WaitPlace::AtOwner`], [`WaitPlace::Socket`]).
        caller: Option<Caller>,
    } -> Result<u64>, Low;

    /// lseek on the shared position, which is kept at the owner.
    file_seek: FileSeek {
        /// Which of the receiver's files: the `id` of its [`FileRef`].
        id: u64,
        /// Bytes, from where `whence` says.
        offset: i64,
        /// SEEK_*.
        whence: Whence,
    } -> Result<u64>, Low;

    /// F_SETFL, or F_GETFL without flags; answered with the flags as they are then.
    file_flags: FileSetFlags {
        /// Which of the receiver's files: the `id` of its [`FileRef`].
        id: u64,
        /// New flags; None: they stay.
        flags: Option<OpenFlags>,
    } -> Result<OpenFlags>, Low;

    /// F_SETOWN, F_SETSIG and their kin, and O_ASYNC: a change of whom the file signals; answered with its owner and its flags as they are then.
    file_owner: FileSetOwner {
        /// Which of the receiver's files: the `id` of its [`FileRef`].
        id: u64,
        /// Who makes the system call.
        caller: Caller,
        /// What changes.
        change: OwnerChange,
    } -> Result<(FileOwner, OpenFlags)>, Low;

    /// signalfd with a descriptor of another kernel: a new mask, or none; answered with mask and flags as they are then.
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

    /// getdents64.
    file_list: FileReadDir {
        /// Which of the receiver's files: the `id` of its [`FileRef`].
        id: u64,
        /// About how many bytes of entries fit into the answer.
        budget: u32,
    } -> Result<Vec<DirEntry>>, Low;

    /// ioctl; answered with the return value and the argument's bytes.
    file_ioctl: FileIoctl {
        /// Which of the receiver's files: the `id` of its [`FileRef`].
        id: u64,
        /// Who makes the system call.
        caller: Caller,
        /// The number of the request.
        request: u32,
        /// The argument's bytes, as the request has them.
        data: Vec<u8>,
    } -> Result<(i64, Vec<u8>)>, Low;

    /// fsync, fdatasync.
    file_sync: FileSync {
        /// Which of the receiver's files: the `id` of its [`FileRef`].
        id: u64,
        /// fdatasync, not fsync.
        data_only: bool,
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

    /// The path of a file, for /proc and getcwd.
    file_path: FilePath {
        /// Which of the receiver's files: the `id` of its [`FileRef`].
        id: u64,
    } -> Vec<u8>, Low;

    /// What only some kinds of files can do. The bytes of a socket's message go in `frames` if they are many:
    /// `sent` of them are there already, or there is room for an answer's, which says how many it put there.
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

    /// splice and tee from a pipe of another kernel: up to so many bytes, as a read gives them, that stay there; no other reader takes
    /// them as long as the sender holds them, by the number in the answer. Waits if there are none; None: there never will be any.
    pipe_hold: PipeHold {
        /// Which of the receiver's files: the `id` of its [`FileRef`].
        id: u64,
        /// Most bytes to be held.
        bytes: u32,
        /// Frames of the sender, lent for the call; none: the data travels in the message.
        frames: Vec<Frame>,
        /// Whether to wait for data; false: EAGAIN without.
        wait: bool,
    } -> Result<Option<(u64, ReadReply)>>, Low;

    /// The sender holds a pipe no longer. The first so many bytes are elsewhere now, and go.
    pipe_let_go: PipeLetGo {
        /// As the answer to [`PipeHold`] called the hold.
        number: u64,
        /// How many of the held bytes go.
        taken: u32,
    } -> (), Low;

    /// A descriptor of a stand-in was closed (POSIX locks).
    file_closed: FileClosed {
        /// Which of the receiver's files: the `id` of its [`FileRef`].
        id: u64,
        /// Who makes the system call.
        caller: Caller,
    } -> (), Low;

    /// A stand-in wants to hear of changes from now on; answered with what is ready now.
    file_watch: FileWatch {
        /// Which of the receiver's files: the `id` of its [`FileRef`].
        id: u64,
    } -> Result<Events>, Low;

    /// The owner tells a stand-in that readiness may have changed. The next one waits for the answer.
    file_ready: FileReady {
        /// The file, at the sender.
        file: FileRef,
        /// What is ready now.
        events: Events,
    } -> (), Low;

    /// An epoll of the sender watches the file without keeping it open; answered with what is ready now, and whether
    /// the file is an epoll itself.
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

    /// epoll_wait: what is ready of the files that the sender's epolls watch. None: it is closed.
    files_ready: FilesReady {
        /// The files at the receiver ([`FileRef`]'s `id`); the answer is in their order.
        ids: Vec<u64>,
    } -> Vec<Option<Readiness>>, Low;

    /// A file that the receiver's epolls watch has changed, or (None) is closed. The next one waits for the answer.
    file_observed: FileObserved {
        /// The file, at the sender.
        file: FileRef,
        /// What is ready now; None: it is closed.
        ready: Option<Readiness>,
    } -> (), Low;

    /// The file is added to an epoll, which is `root` if it has a number, with `above` epolls above the file: is there a circle, or
    /// are there too many ways up from it or below it? ELOOP, EINVAL.
    epoll_below: EpollBelow {
        /// Which of the receiver's files: the `id` of its [`FileRef`].
        id: u64,
        /// The epoll that the file is added to; None: other kernels don't know it.
        root: Option<FileRef>,
        /// How many epolls lie above the file.
        above: u32,
    } -> Result<()>, Low;

    /// Counts the ways up from a file that the receiver's epolls watch, by the number of epolls after the first, of which `nests` lie
    /// before: the counts, and how many epolls lie on the longest one. EINVAL: too many.
    epoll_above: EpollAbove {
        /// The file, at the sender.
        file: FileRef,
        /// How many epolls the way so far has passed.
        nests: u32,
        /// Ways counted so far, by how many epolls they have passed.
        ways: Vec<u32>,
    } -> Result<(Vec<u32>, u32)>, Low;

    /// A kernel that has a stand-in hands the file on: one count more, for the kernel named, unless that has said so first.
    file_retain: FileRetain {
        /// Which of the receiver's files: the `id` of its [`FileRef`].
        id: u64,
        /// The kernel that gets the reference.
        holder: KernelId,
    } -> (), Low;

    /// What the sender was to send to `holder` will not be sent: one count less.
    file_unsent: FileUnsent {
        /// Which of the receiver's files: the `id` of its [`FileRef`].
        id: u64,
        /// The kernel that was to get the reference.
        holder: KernelId,
    } -> (), Low;

    /// A reference arrived that `giver` has sent to the sender: one count more, unless that has said so first.
    file_arrived: FileArrived {
        /// Which of the receiver's files: the `id` of its [`FileRef`].
        id: u64,
        /// The kernel that has sent the reference.
        giver: KernelId,
    } -> (), Low;

    /// `dead` has died, and nothing more of it arrives at the sender: what it was to send to that, and never did, is not counted
    /// any more.
    file_lost: FilesLost {
        /// The kernel that is dead.
        dead: KernelId,
    } -> (), Low;

    /// The last user of a stand-in is gone: so many references come back.
    file_release: FileRelease {
        /// Which of the receiver's files: the `id` of its [`FileRef`].
        id: u64,
        /// How many references come back.
        count: u64,
    } -> (), Low;

    /// flock and fcntl locks. One that waits is given up when the caller is interrupted.
    file_lock: FileLock {
        /// Which of the receiver's files: the `id` of its [`FileRef`].
        id: u64,
        /// Who makes the system call.
        caller: Caller,
        /// Kind of lock, range, and whether to wait.
        op: LockOp,
    } -> Result<Option<LockConflict>>, Low;

    /// F_ADD_SEALS and F_GET_SEALS.
    file_seal: FileSeal {
        /// Which of the receiver's files: the `id` of its [`FileRef`].
        id: u64,
        /// F_SEAL_* to be added; 0: none. Answered with all that hold.
        add: u32,
    } -> Result<u32>, Low;

    /// A new description of the same file.
    file_reopen: FileReopen {
        /// Which of the receiver's files: the `id` of its [`FileRef`].
        id: u64,
        /// Who makes the system call.
        caller: Caller,
        /// Flags of the new description.
        flags: OpenFlags,
    } -> Result<Opened>, Low;

    /// mmap: which object, a reference to it, and whether that may be kept in case the object is mapped again: it keeps no memory
    /// that can't be had back.
    file_object: FileObject {
        /// Which of the receiver's files: the `id` of its [`FileRef`].
        id: u64,
    } -> Result<(Opened, ObjectId, bool)>, Low;

    /// Pages of a mapped object, for reading; at least one. The owner asks for them back (`ObjectLost`) before it changes
    /// what it gave copies of.
    object_pages: ObjectPages {
        /// Which of the receiver's files: the `id` of its [`FileRef`].
        id: u64,
        /// The first page wanted.
        first: u64,
        /// Frames of the sender, lent for the call: the copies go there.
        frames: Vec<Frame>,
    } -> Result<ObjectPagesReply>, Low;

    /// A mapped object by its name, for a kernel that was only told the name: a reference to it.
    resolve_object: ResolveObject {
        /// The object, which the receiver owns.
        object: ObjectId,
    } -> Result<Opened>, Low;

    /// The owner's own frame of a page, for a shared mapping. It is counted there once more, until it comes
    /// home like a frame that was lent.
    object_pin: ObjectPin {
        /// Which of the receiver's files: the `id` of its [`FileRef`].
        id: u64,
        /// Page of the object, counted from its start.
        index: u64,
    } -> Result<Frame>, Low;

    /// A page was written through a shared mapping.
    object_dirty: ObjectDirty {
        /// Which of the receiver's files: the `id` of its [`FileRef`].
        id: u64,
        /// Page of the object, counted from its start.
        index: u64,
    } -> (), Low;

    /// The owner tells a kernel that has pages of an object that some are no more what they were (truncation, a hole, a
    /// change of what was copied). Answered when nothing there shows them, with whether anything there still uses the
    /// object at all.
    object_lost: ObjectLost {
        /// Which pages.
        lost: Lost,
    } -> bool, Low;

    /// A shared mapping of an object of the receiver is there, and nobody uses it yet: may it write? EPERM: it is sealed.
    object_admit: ObjectAdmit {
        /// Which of the receiver's files: the `id` of its [`FileRef`].
        id: u64,
    } -> Result<()>, Low;

    /// MADV_REMOVE of an object of the receiver: pages `first..end` become a hole.
    object_punch: ObjectPunch {
        /// Which of the receiver's files: the `id` of its [`FileRef`].
        id: u64,
        /// The first page.
        first: u64,
        /// The page after the last.
        end: u64,
    } -> Result<()>, Low;

    /// msync of a shared mapping; bytes.
    object_sync: ObjectSync {
        /// Which of the receiver's files: the `id` of its [`FileRef`].
        id: u64,
        /// First byte.
        start: u64,
        /// The byte after the last.
        end: u64,
    } -> Result<()>, Low;

    /// An operation on paths, sent whole to the kernel that owns the root file system.
    /// `keep`: the sender would keep the answer.
    path: RunPath {
        /// Who makes the system call.
        caller: Caller,
        /// The caller's root directory.
        root: Opened,
        /// The directory that relative paths start from.
        at: Opened,
        /// Where the second path of a rename or link starts from.
        to: Option<Opened>,
        /// What is to be done, with its paths.
        op: PathOp,
        /// Whether the sender would keep the answer and must be told if it becomes wrong.
        keep: bool,
    } -> PathAnswered, Low;

    /// The root directory of the machine.
    root: RootDirectory {} -> Result<Opened>, Low;

    /// What the sender has answered about paths may be wrong in a moment: whatever rests on one of `tokens` is to be
    /// dropped. `watched`: closes of files that were opened without asking must be told of. The answer gives back the
    /// references (number, count) that were held only in case the file would be opened again.
    names_recall: NamesRecall {
        /// Facts that are about to change, as [`PathAnswered::tokens`] named them.
        tokens: Vec<u64>,
        /// Whether the sender must be told of closes of files that were opened without asking.
        watched: bool,
    } -> Vec<(u64, u64)>, High;
}
