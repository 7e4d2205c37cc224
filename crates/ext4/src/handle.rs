//! A handle (jbd2's word): what one operation on the file system reads, and what it wants to change.
//!
//! An operation is a function of a handle. It waits for nothing: where it needs a block that is not in memory, it gives up with [`Error::Missing`], the block is read while
//! nothing is locked, and the operation begins anew. What it changes are copies in the handle, so that an operation that gives up has changed nothing; all changes of one that
//! has come to its end become part of the running transaction at once ([`Core::apply`]).

use crate::{
    core::{Changes, Core},
    Error, Result, Superblock,
};
use ::core::ops::Range;
use alloc::vec::Vec;

/// See the module.
pub struct Handle<'a> {
    core: &'a Core,
    changes: Changes,
}

impl<'a> Handle<'a> {
    pub(crate) fn new(core: &'a Core) -> Handle<'a> {
        Handle { core, changes: Changes::default() }
    }

    pub(crate) fn finish(self) -> Changes {
        self.changes
    }

    pub(crate) fn core(&self) -> &'a Core {
        self.core
    }

    pub(crate) fn changes(&mut self) -> &mut Changes {
        &mut self.changes
    }

    /// Blocks that this operation has freed.
    pub(crate) fn freed(&self) -> &[Range<u64>] {
        &self.changes.freed
    }

    /// Sizes and features.
    pub(crate) fn superblock(&self) -> &'a Superblock {
        &self.core.superblock
    }

    pub(crate) fn block_bytes(&self) -> usize {
        self.core.superblock.block_bytes as usize
    }

    /// A block of metadata as this operation sees it.
    pub(crate) fn read(&self, block: u64) -> Result<&[u8]> {
        self.checked(block, "", |_| true)
    }

    /// The same; `holds` says whether it can be. It is asked once for a block that comes from the disk. What: for the log.
    pub(crate) fn checked(&self, block: u64, what: &'static str, holds: impl FnOnce(&[u8]) -> bool) -> Result<&[u8]> {
        match self.changes.blocks.get(&block) {
            Some(bytes) => Ok(bytes),
            None => self.core.cached(block, what, holds),
        }
    }

    /// Whether a block of metadata is in memory.
    pub(crate) fn has(&self, block: u64) -> bool {
        self.changes.blocks.contains_key(&block) || self.core.has(block)
    }

    /// A block of metadata that has been read, to be changed.
    pub(crate) fn edit(&mut self, block: u64) -> Result<&mut [u8]> {
        if !self.changes.blocks.contains_key(&block) {
            let mut copy = Vec::new();
            let bytes = self.core.cached(block, "", |_| true)?;
            copy.try_reserve_exact(bytes.len()).map_err(|_| Error::NoMemory)?;
            copy.extend_from_slice(bytes);
            self.changes.blocks.insert(block, copy);
        }
        self.changes.blocks.get_mut(&block).map(Vec::as_mut_slice).ok_or(Error::Corrupt("a block"))
    }

    /// A block that becomes metadata: all zero, whatever it was.
    pub(crate) fn fresh(&mut self, block: u64) -> Result<&mut [u8]> {
        let mut zero = Vec::new();
        zero.try_reserve_exact(self.block_bytes()).map_err(|_| Error::NoMemory)?;
        zero.resize(self.block_bytes(), 0);
        self.changes.revoked.retain(|revoked| *revoked != block);
        self.changes.blocks.insert(block, zero);
        self.changes.blocks.get_mut(&block).map(Vec::as_mut_slice).ok_or(Error::Corrupt("a block"))
    }

    /// A block is metadata no more. Who calls this frees it too.
    pub(crate) fn forget(&mut self, block: u64) {
        self.changes.blocks.remove(&block);
        self.changes.revoked.push(block);
    }
}
