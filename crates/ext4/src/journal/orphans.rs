//! Files that were to go away when the power failed: those without a name that somebody had open, and those that were being shortened.
//!
//! The disk has them in a list, which begins in the superblock and goes on in the inodes (the field for the time of deletion), and Linux may have put some into a file of orphans
//! instead: blocks of inode numbers, 0 where there is none. Here all of them go to the list, and then each is released.

use crate::{
    bytes::{put_u32, sum, u32_at},
    handle::Handle,
    superblock::clear_orphans_in_file,
    Device, Error, Inode, Result, Superblock, Time, Volume,
};
use alloc::{collections::BTreeSet, vec::Vec};

/// Magic number and sum at the end of a block of the file of orphans.
const MAGIC: u32 = 0x0b10_ca04;
const TAIL: usize = 8;

impl<D: Device> Volume<D> {
    /// Releases the orphans of a file system that has just been mounted: those of the list, which has been loaded, and those of the file.
    pub(super) async fn release_orphans(&self, superblock: &Superblock, time: Time) -> Result<()> {
        if superblock.has_orphans_in_file() {
            self.empty_orphan_file().await?;
        }
        let mut orphans = Vec::new();
        {
            let core = self.core.lock();
            orphans.try_reserve_exact(core.orphans().len()).map_err(|_| Error::NoMemory)?;
            orphans.extend_from_slice(core.orphans());
        }
        // To take the newest off the list changes no other inode.
        for number in orphans.into_iter().rev() {
            self.release(number, time).await?;
        }
        Ok(())
    }

    /// Follows the list on the disk from the newest orphan to the oldest.
    pub(super) async fn load_orphans(&self, newest: u32) -> Result<()> {
        let (mut orphans, mut seen) = (Vec::new(), BTreeSet::new());
        let mut next = newest;
        while next != 0 {
            if !seen.insert(next) {
                return Err(Error::Corrupt("a cycle in the list of orphans"));
            }
            let inode = self.run(|handle| handle.orphan(next)).await?;
            orphans.try_reserve(1).map_err(|_| Error::NoMemory)?;
            orphans.push(next);
            next = inode.deleted;
        }
        orphans.reverse();
        self.core.lock().set_orphans(orphans);
        Ok(())
    }

    /// Moves the orphans of the file to the list. A power cut in between leaves some here and some there.
    async fn empty_orphan_file(&self) -> Result<()> {
        let number = self.superblock().orphan_file;
        let file = self.run(|handle| handle.any_inode(number)).await?;
        let block_bytes = self.superblock().block_bytes;
        let blocks = u32::try_from(file.size / u64::from(block_bytes)).map_err(|_| Error::TooLarge)?;
        let mut block = 0;
        while block < blocks {
            let run = self.map(&file, block).await?;
            let place = run.place.ok_or(Error::Corrupt("a hole in the file of orphans"))?;
            for place in place..place + u64::from(run.blocks.min(blocks - block)) {
                let slots = (block_bytes as usize - TAIL) / 4;
                let mut from = 0;
                // Each operation moves one: an operation's changes must fit a transaction.
                while let Some(slot) = self.run(|handle| handle.move_orphan(&file, place, from..slots)).await? {
                    from = slot + 1;
                }
            }
            block = block.saturating_add(run.blocks.max(1));
        }
        self.run(|handle| handle.change_superblock(clear_orphans_in_file)).await
    }
}

impl Handle<'_> {
    /// An inode that a list or file of orphans names.
    fn orphan(&self, number: u32) -> Result<Inode> {
        match number >= self.superblock().first_inode {
            true => self.any_inode(number),
            false => Err(Error::Corrupt("an orphan that is the file system's own")),
        }
    }

    /// Puts the first orphan that is in `slots` of a block of the file on the list instead, and answers its slot.
    fn move_orphan(&mut self, file: &Inode, place: u64, mut slots: ::core::ops::Range<usize>) -> Result<Option<usize>> {
        let end = self.block_bytes() - TAIL;
        let seed = self.superblock().seed.map(|seed| sum(file.seed(seed), &[&place.to_le_bytes()]));
        let bytes = self.checked(place, "a block of the file of orphans", |bytes| {
            let sum_holds = seed.is_none_or(|seed| sum(seed, &[&bytes[..end]]) == u32_at(bytes, end + 4));
            u32_at(bytes, end) == MAGIC && sum_holds
        })?;
        let Some(slot) = slots.find(|slot| u32_at(bytes, 4 * slot) != 0) else { return Ok(None) };
        let mut inode = self.orphan(u32_at(bytes, 4 * slot))?;
        self.add_orphan(&mut inode)?;
        self.put_inode(&inode)?;
        let bytes = self.edit(place)?;
        put_u32(bytes, 4 * slot, 0);
        if let Some(seed) = seed {
            let computed = sum(seed, &[&bytes[..end]]);
            put_u32(bytes, end + 4, computed);
        }
        Ok(Some(slot))
    }
}
