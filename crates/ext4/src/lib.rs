//! The format of ext4 (Linux's Documentation/filesystems/ext4), as Debian's mkfs.ext4 makes it: extents, flexible groups, 64 bits, checksums of metadata.
//!
//! This crate reads and says what is where. It has no device, no clock and no pages: whoever uses it gives it a [`Device`] that reads blocks, asks where a file's bytes are ([`Volume::map`]), and
//! moves them himself. It does not write yet.
//!
//! Everything on a disk may be wrong, by accident or on purpose. What is read is checked before it is used (sums, bounds, depths); what does not hold is [`Error::Corrupt`], and no
//! loop here is longer than what the disk's size allows.
//!
//! | file | subject |
//! |---|---|
//! | superblock.rs | the superblock: sizes, features |
//! | inode.rs | one inode |
//! | extents.rs | where the blocks of a file are |
//! | directory.rs | names in a directory |
//! | volume.rs | a file system: all of it together |
//! | bytes.rs | numbers in blocks, and sums over them |
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

extern crate alloc;

mod bytes;
mod directory;
mod extents;
mod inode;
mod superblock;
#[cfg(test)]
mod tests;
mod volume;

pub use directory::Entry;
pub use extents::Run;
pub use inode::{FileType, Inode, Time};
pub use superblock::Superblock;
pub use volume::Volume;

use alloc::sync::Arc;
use core::future::Future;

/// Why something can't be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The device could not read.
    Io,
    /// What is on the disk can't be (EUCLEAN).
    Corrupt(&'static str),
    /// The file system has a feature that is not known here, or is none of ext4.
    Unsupported(&'static str),
}

/// The same for all of this crate.
pub type Result<T> = core::result::Result<T, Error>;

/// Reads blocks of the file system.
pub trait Device: Send + Sync {
    /// All bytes of a block. The file system asks for none past its end.
    fn read(&self, block: u64) -> impl Future<Output = Result<Arc<[u8]>>> + Send;
}
