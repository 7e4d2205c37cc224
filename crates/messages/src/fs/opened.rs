//! Open files, pages and answers about path names, on their way between kernels.

use abi::{Attributes, FileRef, FileSystemInfo, ObjectId, OpenFlags};
use alloc::vec::Vec;
use machine::{errno::Result, Frame, KernelId};
use serde::{Deserialize, Serialize};

/// How a stand-in goes about operations that may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WaitPlace {
    /// At the owner, until it is done: regular files, directories, devices.
    Never,
    /// Pipes and their like: a read at the owner, which gives it up when asked to; a write by trying again after each change
    /// there, so that what is to be written waits in the writer's memory.
    Here,
    /// At the owner, with the caller named: terminals, whose reads depend on time and job control.
    AtOwner,
    /// As `Here`, and a writer is named: sockets, whose messages say who sent them.
    Socket {
        /// SOCK_STREAM: a write longer than there is room for may be taken in part.
        stream: bool,
    },
    /// Not at the owner: what is read or polled are the signals of whoever does. The owner keeps the mask and the flags.
    Signals,
}

/// A reference to a file, handed over: the receiver owns one count at the owner, and knows what a
/// stand-in must know without asking.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opened {
    /// The file at its owner.
    pub file: FileRef,
    /// F_GETFL at the time it was handed over.
    pub flags: OpenFlags,
    /// Where operations on it wait.
    pub waiting: WaitPlace,
    /// Can its readiness change at all?
    pub pollable: bool,
    /// Who had it counted for the receiver, if not the owner itself: the owner is told that it has arrived.
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

/// What a read gave.
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

/// What mappings of an object are counted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MappingUse {
    /// Shared mappings that are or may become writable: a file with one is not sealed against writing.
    Writes,
    /// Mappings of a program that is executed: its file is not opened to be written.
    Executes,
}

/// Pages of an object for another kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ObjectPagesReply {
    /// So many, copied into the frames that came with the question.
    Copies(u32),
    /// The owner's own frame of the first, counted there once more until it comes home.
    Own(Frame),
}

/// What an operation on paths answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum PathReply {
    /// It was done, and there is nothing to tell.
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
