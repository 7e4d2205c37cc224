//! Who gets which blocks and inodes.

use crate::{
    group::{first_clear, is_set, put_counts, set_bits, Bitmap},
    handle::Handle,
    Error, Inode, Result,
};
use ::core::ops::Range;

/// Groups of which one operation frees blocks at most: the blocks that it changes must fit a transaction.
pub(crate) const GROUPS_AT_ONCE: usize = 16;

impl Handle<'_> {
    /// A range of free blocks, at most `want` of them, as near behind `goal` as may be. It is not taken yet. [`Error::NoSpace`]: there are none.
    pub(crate) fn find_free(&self, goal: u64, want: u32) -> Result<Range<u64>> {
        let superblock = self.superblock();
        let groups = superblock.groups() as u32;
        let goal = if (u64::from(superblock.first_block)..superblock.blocks).contains(&goal) { goal } else { 0 };
        let first = superblock.group_of(goal).min(groups - 1);
        // The first time only where there is room for all of it at once.
        let (mut best, mut tries) = (None::<Range<u64>>, 0);
        for number in (first..groups).chain(0..first) {
            let group = self.group(number)?;
            if group.free_blocks == 0 {
                continue;
            }
            let from = if number == first { goal.saturating_sub(superblock.group_blocks(number).start) } else { 0 };
            let found = self.longest_free(number, from as usize, want as usize)?;
            let longer =
                |found: &Range<u64>| best.as_ref().is_none_or(|best| found.end - found.start > best.end - best.start);
            if let Some(found) = found.filter(longer) {
                best = Some(found);
            }
            // Groups with little room are many on a full disk.
            tries += 1;
            if best.as_ref().is_some_and(|best| best.end - best.start >= u64::from(want) || tries >= 8) {
                break;
            }
        }
        match best {
            Some(best) => Ok(best),
            None if self.core().pending() > 0 => Err(Error::Full),
            None => Err(Error::NoSpace),
        }
    }

    /// The first range of `want` free blocks of a group, from bit `from` on and then from the beginning; else the longest.
    fn longest_free(&self, number: u32, from: usize, want: usize) -> Result<Option<Range<u64>>> {
        let blocks = self.superblock().group_blocks(number);
        let bits = (blocks.end - blocks.start) as usize;
        let mut bitmap = self.bitmap(number, Bitmap::Blocks)?;
        let here = |range: &Range<u64>| range.start.max(blocks.start)..range.end.min(blocks.end);
        let freed = self.freed().iter().map(here).filter(|freed| !freed.is_empty());
        for busy in self.core().busy(blocks.clone()).chain(freed) {
            set_bits(&mut bitmap, (busy.start - blocks.start) as usize..(busy.end - blocks.start) as usize, true);
        }
        let mut longest = 0..0;
        for (mut at, end) in [(from, bits), (0, from.min(bits))] {
            while let Some(start) = first_clear(&bitmap, at, end) {
                let most = bits.min(start + want);
                let stop = (start..most).find(|bit| is_set(&bitmap, *bit)).unwrap_or(most);
                if stop - start > longest.len() {
                    longest = start..stop;
                }
                if longest.len() >= want || (start == from && stop > start) {
                    // What follows the goal directly is good, however short.
                    return Ok(Some(blocks.start + longest.start as u64..blocks.start + longest.end as u64));
                }
                at = stop + 1;
            }
        }
        Ok((!longest.is_empty()).then(|| blocks.start + longest.start as u64..blocks.start + longest.end as u64))
    }

    /// The parts of a range of blocks that lie in one group each: its number, and bits.
    fn by_groups(&self, range: Range<u64>) -> impl Iterator<Item = (u32, Range<usize>)> + use<> {
        let superblock = self.superblock().clone();
        let mut at = range.start;
        ::core::iter::from_fn(move || {
            (at < range.end).then(|| {
                let number = superblock.group_of(at);
                let blocks = superblock.group_blocks(number);
                let end = range.end.min(blocks.end.max(at + 1));
                let bits = (at - blocks.start) as usize..(end - blocks.start) as usize;
                at = end;
                (number, bits)
            })
        })
    }

    /// Takes free blocks.
    pub(crate) fn take_blocks(&mut self, range: Range<u64>) -> Result<()> {
        self.check_range(&range)?;
        for (number, bits) in self.by_groups(range.clone()) {
            let blocks = bits.len() as u32;
            self.change_bitmap(number, Bitmap::Blocks, bits, true, |group| {
                group.free_blocks =
                    group.free_blocks.checked_sub(blocks).ok_or(Error::Corrupt("the free blocks of a group"))?;
                Ok(())
            })?;
        }
        self.changes().free_blocks -= (range.end - range.start) as i64;
        Ok(())
    }

    /// Gives blocks back. They may be used anew when this has been committed.
    pub(crate) fn free_blocks(&mut self, range: Range<u64>) -> Result<()> {
        self.check_range(&range)?;
        for (number, bits) in self.by_groups(range.clone()) {
            let blocks = bits.len() as u32;
            self.change_bitmap(number, Bitmap::Blocks, bits, false, |group| {
                group.free_blocks += blocks;
                Ok(())
            })?;
        }
        self.changes().free_blocks += (range.end - range.start) as i64;
        self.changes().freed.push(range);
        Ok(())
    }

    fn check_range(&self, range: &Range<u64>) -> Result<()> {
        match range.start >= u64::from(self.superblock().first_block) && range.end <= self.superblock().blocks {
            true if range.start < range.end => Ok(()),
            _ => Err(Error::Corrupt("blocks outside of the file system")),
        }
    }

    /// Takes a free block for metadata; it is all zero.
    pub(crate) fn new_block(&mut self, goal: u64) -> Result<u64> {
        let block = self.find_free(goal, 1)?.start;
        self.take_blocks(block..block + 1)?;
        self.fresh(block)?;
        Ok(block)
    }

    /// Gives a block of metadata back.
    pub(crate) fn free_metadata(&mut self, block: u64) -> Result<()> {
        self.forget(block);
        self.free_blocks(block..block + 1)
    }

    /// Where blocks of an inode should be, if it has none yet: in its group.
    pub(crate) fn goal(&self, inode: u32) -> u64 {
        self.superblock().group_blocks((inode - 1) / self.superblock().inodes_per_group).start
    }

    /// The group for a new inode: for a directory below the root one with much room, for all others that of the directory or one behind it.
    fn group_for(&self, parent: u32, directory: bool) -> Result<u32> {
        let superblock = self.superblock();
        let groups = superblock.groups() as u32;
        let home = (parent - 1) / superblock.inodes_per_group;
        if directory && parent == crate::volume::ROOT {
            let mut best = None;
            for number in 0..groups.min(1024) {
                let group = self.group(number)?;
                let room = (group.free_inodes > 0).then_some(u32::MAX - group.directories).zip(Some(group.free_blocks));
                if room.is_some() && room > best.map(|(_, room)| room) {
                    best = Some((number, room.unwrap_or_default()));
                }
            }
            if let Some((number, _)) = best {
                return Ok(number);
            }
        }
        for number in (home..groups).chain(0..home) {
            if self.group(number)?.free_inodes > 0 {
                return Ok(number);
            }
        }
        Err(Error::NoSpace)
    }

    /// Takes a free inode. Its place in the table is not touched.
    pub(crate) fn take_inode(&mut self, parent: u32, directory: bool) -> Result<u32> {
        let superblock = self.superblock();
        let all = superblock.inodes_per_group;
        let number = self.group_for(parent, directory)?;
        let bitmap = self.bitmap(number, Bitmap::Inodes)?;
        // Those below are the file system's own.
        let from = if number == 0 { superblock.first_inode.saturating_sub(1) as usize } else { 0 };
        let last = (superblock.inodes - number * all).min(all) as usize;
        let index = first_clear(&bitmap, from, last).ok_or(Error::Corrupt("the free inodes of a group"))?;
        self.change_bitmap(number, Bitmap::Inodes, index..index + 1, true, |group| {
            group.free_inodes -= 1;
            group.directories += u32::from(directory);
            group.note_used(index as u32, all);
            Ok(())
        })?;
        self.changes().free_inodes -= 1;
        Ok(number * all + index as u32 + 1)
    }

    /// Gives an inode back.
    pub(crate) fn free_inode(&mut self, inode: &Inode, directory: bool) -> Result<()> {
        let all = self.superblock().inodes_per_group;
        let (number, index) = ((inode.number - 1) / all, ((inode.number - 1) % all) as usize);
        self.change_bitmap(number, Bitmap::Inodes, index..index + 1, false, |group| {
            group.free_inodes += 1;
            group.directories = group.directories.saturating_sub(directory.into());
            Ok(())
        })?;
        self.changes().free_inodes += 1;
        Ok(())
    }

    /// Puts an inode on the list of those that go away when nobody has them open, or at the next mount. The caller stores it.
    pub(crate) fn add_orphan(&mut self, inode: &mut Inode) -> Result<()> {
        if self.is_orphan(inode.number) {
            return Ok(());
        }
        let next = self.newest_orphan();
        inode.deleted = next;
        self.changes().orphans.push((inode.number, true));
        self.put_newest_orphan(inode.number)
    }

    /// Takes it off again. The caller stores it.
    pub(crate) fn remove_orphan(&mut self, inode: &mut Inode) -> Result<()> {
        if !self.is_orphan(inode.number) {
            return Ok(());
        }
        let orphans = self.all_orphans();
        let at = orphans.iter().position(|other| *other == inode.number).unwrap_or_default();
        let older = at.checked_sub(1).map_or(0, |older| orphans[older]);
        match orphans.get(at + 1) {
            Some(newer) => {
                let mut newer = self.any_inode(*newer)?;
                newer.deleted = older;
                self.put_inode(&newer)?;
            }
            None => self.put_newest_orphan(older)?,
        }
        inode.deleted = 0;
        self.changes().orphans.push((inode.number, false));
        Ok(())
    }

    fn all_orphans(&mut self) -> alloc::vec::Vec<u32> {
        let mut orphans = self.core().orphans().to_vec();
        for (inode, added) in &self.changes().orphans {
            match added {
                true => orphans.push(*inode),
                false => orphans.retain(|other| other != inode),
            }
        }
        orphans
    }

    fn is_orphan(&mut self, inode: u32) -> bool {
        let changed = self.changes().orphans.iter().rev().find(|(other, _)| *other == inode).map(|(_, added)| *added);
        changed.unwrap_or_else(|| self.core().orphans().contains(&inode))
    }

    fn newest_orphan(&mut self) -> u32 {
        match self.changes().orphans.is_empty() {
            true => self.core().orphans().last().copied().unwrap_or(0),
            false => self.all_orphans().last().copied().unwrap_or(0),
        }
    }

    fn put_newest_orphan(&mut self, inode: u32) -> Result<()> {
        let superblock = self.superblock();
        let blocks = superblock.free_blocks.saturating_add_signed(self.changes().free_blocks);
        let inodes = superblock.free_inodes.saturating_add_signed(self.changes().free_inodes as i32);
        self.change_superblock(|bytes| put_counts(bytes, blocks, inodes, inode))
    }

    /// Puts the numbers of free blocks and inodes into the superblock.
    pub(crate) fn put_counts(&mut self) -> Result<()> {
        let newest = self.newest_orphan();
        self.put_newest_orphan(newest)
    }

    /// Changes the superblock, and its sum.
    pub(crate) fn change_superblock(&mut self, change: impl FnOnce(&mut [u8])) -> Result<()> {
        let superblock = self.superblock();
        let (block, at) = superblock.place();
        let bytes = &mut self.edit(block)?[at..at + crate::superblock::BYTES];
        change(bytes);
        superblock.seal(bytes);
        Ok(())
    }
}
