//! The format of ext4 (Linux's Documentation/filesystems/ext4), as Debian's mkfs.ext4 makes it: extents, flexible groups, 64 bits, checksums of metadata.
//!
//! This crate has no device, no clock and no pages: whoever uses it gives it a [`Device`] that moves blocks, asks where a file's bytes are ([`Volume::map`]), and moves them himself.
//!
//! Everything on a disk may be wrong, by accident or on purpose. What is read is checked before it is used (sums, bounds, depths); what does not hold is [`Error::Corrupt`], and no
//! loop here is longer than what the disk's size allows.
//!
//! What changes more than one block must happen as a whole or not at all, whenever the power fails. So each change is an operation on a [`handle`], operations are gathered in a
//! transaction ([`core`](mod@crate::core)), and a transaction is written to the journal, with one block that makes it valid, before anything of it is written to its place ([`journal`]).
//!
//! | file | subject |
//! |---|---|
//! | superblock.rs | the superblock: sizes, features |
//! | inode.rs | the bytes of one inode |
//! | extents.rs | where the blocks of a file are |
//! | content.rs | the blocks of regular files |
//! | directory/ | names in a directory |
//! | attributes.rs | extended attributes |
//! | handle.rs | one operation: what it reads and changes |
//! | core.rs | blocks in memory, and the running transaction |
//! | group.rs, space.rs | groups and their bitmaps; who gets which blocks and inodes |
//! | file.rs | inodes made, read and written by operations |
//! | names.rs | inodes that get, change and lose names |
//! | log/ | the blocks of the journal (jbd2) |
//! | journal/ | commits, checkpoints and replay; mounting and unmounting |
//! | volume.rs | a file system: all of it together |
//! | bytes.rs | numbers in blocks, and sums over them |
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

extern crate alloc;

mod attributes;
mod bytes;
mod content;
mod core;
mod directory;
mod extents;
mod file;
mod group;
mod handle;
mod inode;
mod journal;
mod log;
mod names;
mod space;
mod superblock;
#[cfg(test)]
mod tests;
mod volume;

pub use attributes::SetWhen;
pub use content::Target;
pub use directory::Entry;
pub use extents::Run;
pub use file::NewInode;
pub use inode::{FileType, Inode, Time};
pub use journal::Access;
pub use names::Changed;
pub use superblock::{OnError, Superblock};
pub use volume::Volume;

use ::core::future::Future;
use alloc::{sync::Arc, vec::Vec};

/// Why something can't be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The device could not read or write.
    Io,
    /// What is on the disk can't be (EUCLEAN).
    Corrupt(&'static str),
    /// The file system has a feature that is not known here, or is none of ext4.
    Unsupported(&'static str),
    /// No block or inode is free.
    NoSpace,
    /// The kernel has no memory.
    NoMemory,
    /// It is mounted to be read only, or became so by an error.
    ReadOnly,
    /// The name, or the directory that it is to be in, is gone, or the name leads to another inode than the caller knows.
    Gone,
    /// A directory to be removed has names in it.
    NotEmpty,
    /// A file has as many names as it may have.
    TooManyLinks,
    /// A file can't be so large.
    TooLarge,
    /// The operation needs a block that is not in memory: it is read, and the operation begins anew. Nobody sees this outside of this crate.
    Missing(u64),
    /// The same, and blocks around it will probably be needed, too. Nobody sees this outside of this crate.
    MissingOf {
        /// What it needs.
        block: u64,
        /// What may be read with it.
        first: u64,
        /// How many those are.
        blocks: u32,
    },
    /// The running transaction must be committed before the operation can be done. Nobody sees this outside of this crate.
    Full,
}

/// The same for all of this crate.
pub type Result<T> = ::core::result::Result<T, Error>;

/// The bytes of a block, shared.
pub type Bytes = Arc<Vec<u8>>;

/// What was wrong with a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// What its blocks say can't be.
    Damage(&'static str),
    /// Its journal could not be written: nothing is, from now on.
    Journal,
}

/// Moves blocks of the file system.
pub trait Device: Send + Sync {
    /// Bytes of blocks of metadata that may be kept in memory, about: a quarter for those that are on the disk as they are, a quarter for the running transaction, and half for those
    /// that are in the journal only.
    fn memory(&self) -> usize {
        32 << 20
    }
    /// All bytes of so many blocks that follow each other, beginning with `block`. The file system asks for none past its end.
    fn read(&self, block: u64, blocks: u32) -> impl Future<Output = Result<Vec<u8>>> + Send;
    /// Writes blocks that follow each other, beginning with `block`. They need not stay if the power fails before the next [`Device::flush`] has answered.
    /// When the future is dropped, the device may still write them.
    fn write(&self, block: u64, blocks: Vec<Bytes>) -> impl Future<Output = Result<()>> + Send;
    /// Called when damage was found in a file system that is mounted, or its journal could not be written. It may have become read only by that ([`Volume::is_read_only`]);
    /// [`Volume::save_errors`] makes the superblock tell of it. No spin lock is held, but perhaps the journal's, which that waits for: so another task must call it.
    fn failed(&self, _failure: Failure) {}
    /// What has been written stays. It answers only after all writes that began before it have ended, also those whose futures were dropped: whoever writes anew what a
    /// dropped future was to write flushes first, so that the old write does not come after a newer one.
    fn flush(&self) -> impl Future<Output = Result<()>> + Send;
}
