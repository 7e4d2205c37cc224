//! Files.
//!
//! [`File`] is an open file description as POSIX has it: what a descriptor refers to, with position and
//! flags of its own, wherever it lives. It lives on the kernel that made it; every other kernel holds a
//! `remote` stand-in whose operations are calls to that kernel. [`Paths`] is the one door for everything
//! that takes a path name. System calls (crate `linux`) speak only to these two traits.
//!
//! What may not be here: descriptors and processes (crate `process`), user memory (crate `vm`).
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod file;
pub mod paths;

pub use abi::{
    Attributes, Caller, Credentials, DirEntry, Events, FileRef, FileSystemInfo, Kind, ObjectId, OpenFlags,
    PathOp, SetAttributes, Timestamp, Whence,
};
pub use file::{File, Object};
pub use paths::{Base, PathAnswer, Paths};
