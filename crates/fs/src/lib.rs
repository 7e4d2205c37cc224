//! Files.
//!
//! [`File`] is an open file description as POSIX has it: what a descriptor refers to, with position and
//! flags of its own, wherever it lives. It lives on the kernel that made it; every other kernel holds a
//! `remote` stand-in whose operations are calls to that kernel. [`Paths`] is the one door for everything
//! that takes a path name. System calls (crate `linux`) speak to these two traits, and to what makes files without a name
//! (pipes, sockets, epolls, memory).
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

mod cache;
pub mod devfs;
pub mod file;
// Objects without a file system, and files of other kernels.
pub mod anonymous;
pub mod chardev;
pub mod control;
pub mod epoll;
pub mod event;
mod holders;
pub mod initramfs;
pub mod inode;
pub mod inotify;
pub mod lease;
pub mod locks;
pub mod namespace;
pub mod ninep;
mod nodes;
pub mod paths;
pub mod pipe;
pub mod poll;
pub mod remote;
mod ring;
mod services;
pub mod socket;
pub mod stream;
pub mod synthetic;
#[cfg(test)]
mod testing;
pub mod tmpfs;
pub mod tty;
pub mod union;
mod waiting;

pub use abi::{
    Attributes, Caller, Credentials, DirEntry, Events, FileRef, FileSystemInfo, Kind, ObjectId, OpenFlags, PathOp,
    SetAttributes, Timestamp, Whence,
};
pub use cache::{PageCache, Store};
pub use control::{Control, ControlAnswer};
pub use file::{File, Loaned, Object};
pub use holders::Holders;
pub use inode::{FileSystem, Inode};
pub use messages::fs::{Lost, Usage};
pub use namespace::{permission::may_read, LocalPaths, Location};
pub use paths::{Base, PathAnswer, Paths};
pub use services::{Clock, Mappers, Services};
pub use tmpfs::{anonymous_object, memfd};
