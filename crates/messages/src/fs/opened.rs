//! Open files, pages and answers about path names, on their way between kernels.

use crate::disk::PlacedDisk;
use abi::{Attributes, FileRef, FileSystemInfo, LockConflict, ObjectId, OpenFlags, RecordLock};
use alloc::vec::Vec;
use machine::{errno::Result, Frame, KernelId};
use serde::{Deserialize, Serialize};

/// What socket(2) was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketType {
    /// AF_UNIX and so on.
    pub family: u16,
    /// SOCK_STREAM and so on.
    pub kind: u16,
}

impl SocketType {
    /// SOCK_STREAM: bytes without borders between them; what is longer than there is room for may be taken in part.
    pub fn is_stream(self) -> bool {
        self.kind == 1
    }

    /// SOCK_DGRAM of AF_UNIX.
    pub fn is_unix_datagram(self) -> bool {
        (self.family, self.kind) == (1, 2)
    }
}

/// Where an operation on another kernel's file waits: at the owner, or on the caller's kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WaitPlace {
    /// The operation never waits for another program: regular files, directories, devices. The caller waits for the
    /// owner's answer, and a signal does not interrupt it.
    Never,
    /// Pipes and their like. A read waits at the owner, which gives it up when asked to. A write is tried again after each change
    /// there, so that the data waits in the writer's memory.
    Here,
    /// Epolls: as `Here`. Who has the only reference may fetch what one watches ([`EpollMove`](super::EpollMove)).
    Epoll,
    /// Terminals: the operation waits at the owner, which is told the caller, since reads depend on time and job control.
    AtOwner,
    /// Sockets: as `Here`, and the owner is told who writes, since messages carry their sender.
    Socket(SocketType),
    /// Signalfds: a read waits on the reader's kernel, for it takes the reader's own signals. The owner keeps the mask and the flags.
    Signals,
}

/// A reference to a file that is handed to another kernel. The receiver owns one count at the file's owner, and knows all that a
/// stand-in must know without asking.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opened {
    /// The file at its owner.
    pub file: FileRef,
    /// F_GETFL at the time it was handed over.
    pub flags: OpenFlags,
    /// Where operations on it wait.
    pub waiting: WaitPlace,
    /// Whether its readiness can ever change.
    pub pollable: bool,
    /// The kernel that had it counted for the receiver, which then tells the owner that it has arrived. None: the owner itself.
    pub giver: Option<KernelId>,
}

/// Data that goes with a read or a write.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Data {
    /// Few bytes, in the message itself.
    Inline(#[serde(with = "serde_bytes")] Vec<u8>),
    /// So many bytes in frames of the caller, lent until the answer.
    Frames(Vec<Frame>, u32),
}

/// The data that a read answers, also of a pipe that is spliced from or a message queue.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ReadReply {
    /// Few bytes, in the message itself.
    Inline(#[serde(with = "serde_bytes")] Vec<u8>),
    /// So many bytes are in the frames now.
    InFrames(u32),
}

/// Pages `first..end` of a mapped object that were changed or cut off: no kernel may map or keep them any longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// The object that was changed.
    pub object: ObjectId,
    /// Its first page that is concerned, counted from its start.
    pub first: u64,
    /// The page after the last; `u64::MAX`: all behind `first`.
    pub end: u64,
    /// Whether copies that programs made by writing to a private mapping go, too: the file now ends before them.
    pub private: bool,
}

/// Which mappings of an object are counted ([`CountUses`](crate::vm::CountUses)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MappingUse {
    /// Shared mappings that are or may become writable: a file with one is not sealed against writing.
    Writes,
    /// Mappings of a program that is executed: its file is not opened to be written.
    Executes,
    /// All: a file system with one is not unmounted.
    Maps,
}

/// The answer to [`ObjectPages`](super::ObjectPages).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ObjectPagesReply {
    /// So many pages were copied into the frames that came with the question.
    Copies(u32),
    /// The owner's own frame of the first page, lent: it is counted at the owner until it is returned.
    Own(Frame),
}

/// What an operation on paths answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum PathReply {
    /// The operation was done and has no result.
    Done,
    /// A file that was opened.
    File(Opened),
    /// stat(2).
    Attributes(Attributes),
    /// statfs(2).
    FileSystem(FileSystemInfo),
    /// The target of a link, a path, or the value of an extended attribute.
    Bytes(Vec<u8>),
    /// A number that depends on the operation.
    Number(i64),
    /// A regular file that the asker may open again by itself: through this reference to it, as long as nobody recalls
    /// `tokens` and if the path's are not recalled either. `quiet`: a read changes nothing at the owner.
    Anchor {
        /// The reference the asker opens through. It counts like any other, and comes back with `NamesRecall`.
        file: Opened,
        /// What stat(2) says of the file.
        attributes: Attributes,
        /// A read of it changes nothing at the owner (no access time), so that it need not be told.
        quiet: bool,
        /// What the asker's right rests on besides the path: recalled one by one.
        tokens: Vec<u64>,
    },
    /// Nothing was done: the walk goes on elsewhere.
    GoesOn {
        /// That of the operation's second path.
        second: bool,
        /// At this directory. None: at the caller's root.
        at: Option<Opened>,
        /// What is left of the path.
        path: Vec<u8>,
        /// Symbolic links followed so far.
        links: u32,
        /// How many bytes at the end of the path that was asked for are left, if nothing else is.
        tail: Option<u32>,
    },
}

/// A file system that another kernel is to mount.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TreeMount {
    /// As mount(2)'s.
    pub kind: Vec<u8>,
    /// As mount(2)'s.
    pub source: Vec<u8>,
    /// As mount(2)'s.
    pub flags: u64,
    /// As mount(2)'s.
    pub data: Vec<u8>,
    /// The disk that it is on.
    pub disk: Option<PlacedDisk>,
}

/// What is done to such a file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TreeOp {
    /// Writes back all that is dirty.
    Sync,
    /// Mounted with these flags of mount(2) from now on.
    Remount(u64),
    /// Takes it away. EBUSY: something of it is in use. With `detached` it hangs nowhere any more (MNT_DETACH).
    Unmount {
        /// The same question comes again, each second.
        detached: bool,
    },
    /// The machine ends.
    Close,
}

/// An operation whose walk comes from other kernels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Continues {
    /// Symbolic links followed so far.
    pub links: u32,
    /// Of its two paths: whether it begins where a walk on another kernel has come to. Who asks need not have the right to search that directory for its `.` or `..`.
    pub crossed: [bool; 2],
}

/// The answer to an operation on paths. If it names `tokens`, it may be kept until one of them is recalled, but for no
/// more than `lasts` ns.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PathAnswered {
    /// What the operation answered.
    pub reply: Result<PathReply>,
    /// Numbers of the facts that the answer rests on; empty: it may not be kept.
    pub tokens: Vec<u64>,
    /// For how many ns it may be kept; `u64::MAX`: until it is recalled.
    pub lasts: u64,
}

/// The answer to [`FileLock`](super::FileLock).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LockReply {
    /// It is done; for F_GETLK the lock that is in the way.
    Done(Option<LockConflict>),
    /// It is done, and the asker keeps all record locks of the file from now on.
    Given {
        /// Names what is given.
        token: u64,
        /// The file's locks.
        locks: Vec<RecordLock>,
    },
    /// Nothing is done: the asker keeps the file's locks, under this token.
    Yours(u64),
}

/// The answer to [`LocksFetch`](super::LocksFetch).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FetchedLocks {
    /// They were not there yet, and will not be kept when they arrive.
    NotYet,
    /// They come in a message of their own ([`LocksReturn`](super::LocksReturn)), whose answer tells the sender that they have arrived.
    Returning,
}
