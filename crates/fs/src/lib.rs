//! Files.
//!
//! [`File`] is an open file description as POSIX has it: what a descriptor refers to, with position and
//! flags of its own, wherever it lives. It lives on the kernel that made it; every other kernel holds a
//! `remote` stand-in whose operations are calls to that kernel. [`Paths`] is the one door for everything
//! that takes a path name. System calls (crate `linux`) speak to these two traits, and to what makes files without a name
//! (pipes, sockets, epolls, memory).
//!
//! Each module uses only those below it (`./cob test check` sees to that): [`file`] and [`inode`] are the traits; [`cache`] keeps pages;
//! [`namespace`] has names, mounts and walks; then come the kinds of files and the file systems; [`remote`], the files of other
//! kernels, knows them, and none of them knows it.
//!
//! What may not be here: descriptors and processes (crate `process`), user memory (crate `vm`).
#![no_std]
#![forbid(unsafe_code)]
// clippy.toml is for what runs in a kernel.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

extern crate alloc;
#[cfg(test)]
#[macro_use]
extern crate std;

pub mod block;
pub mod cache;
pub mod chardev;
pub mod devfs;
pub mod epoll;
pub mod event;
pub mod ext4;
#[deny(missing_docs)]
pub mod file;
pub mod initramfs;
#[deny(missing_docs)]
pub mod inode;
pub mod inotify;
pub mod namespace;
pub mod network;
pub mod ninep;
pub mod pipe;
pub mod remote;
pub mod socket;
pub mod stream;
pub mod synthetic;
#[cfg(test)]
mod testing;
pub mod tmpfs;
pub mod tty;
pub mod union;

pub use abi::{
    Attributes, Caller, Credentials, DirEntry, Events, FileAdvice, FileRef, FileSystemInfo, Kind, ObjectId, OpenFlags,
    PathOp, ReadAhead, SetAttributes, SetWhen, SyncRange, Timestamp, Whence, XattrOp,
};
pub use cache::{Clock, Holders, MappedWords, Mappers, PageCache, Refaults, Services, Store, WriteBackSettings};
pub use file::{
    anonymous, control, poll, Control, ControlAnswer, Fetched, File, LeftFile, Loaned, Object, MOST_FETCHED,
};
pub use inode::{lease, locks, FileSystem, Inode, WriteErrors};
pub use messages::fs::{Lost, MappingUse};
pub use namespace::{permission::may_read, Base, GoesOn, LocalPaths, Location, Onward, Onwards, PathAnswer, Paths};
pub use tmpfs::{anonymous_object, memfd};

pub(crate) use file::waiting;
