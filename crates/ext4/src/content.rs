//! The blocks of regular files: where bytes that are written go, and which blocks a file gives back.
//!
//! Bytes are written before the file says where they are (ordered mode): [`Volume::place`] finds blocks that are free and promises them to the caller, who writes them; [`Volume::settle`]
//! makes them the file's. So no transaction ever says of a block that it holds a file's bytes before it does, and nobody reads what was there before.

use crate::{
    extents::{Extent, Run},
    handle::Handle,
    Device, Error, FileType, Inode, Result, Time, Volume,
};
use ::core::ops::Range;

/// Blocks of one extent that was never written, at most.
const LONGEST: u32 = 32767;
/// Blocks of a file: a number of 32 bits each, and the last is not used.
const MOST: u64 = u32::MAX as u64;

/// Where some blocks of a file are to be written. [`Volume::settle`] takes it when they have been; dropped before, new blocks are free again.
pub struct Target<'a, D: Device> {
    volume: &'a Volume<D>,
    /// The first of them, in the file.
    pub block: u32,
    /// How many.
    pub blocks: u32,
    /// Where the first is to be written.
    pub place: u64,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// They are the file's, and were written before.
    Written,
    /// They are the file's, and are zero until it is said that they are written.
    Unwritten,
    /// They are free, and nobody else gets them.
    Claimed,
}

impl<D: Device> Target<'_, D> {
    /// Whether the file must be told ([`Volume::settle`]): its blocks have been written before.
    pub fn is_known(&self) -> bool {
        self.kind == Kind::Written
    }

    fn range(&self) -> Range<u64> {
        self.place..self.place + u64::from(self.blocks)
    }
}

impl<D: Device> Drop for Target<'_, D> {
    fn drop(&mut self) {
        if self.kind == Kind::Claimed {
            self.volume.core.lock().unclaim(self.range());
        }
    }
}

impl<D: Device> Volume<D> {
    /// Where blocks of a file, from `block` on, are to be written: at most `blocks` of them, or fewer.
    pub async fn place(&self, number: u32, block: u32, blocks: u32) -> Result<Target<'_, D>> {
        let found = self.retry(|volume| volume.try_place(number, block, blocks)).await?;
        let (run, place, kind) = found;
        Ok(Target { volume: self, block, blocks: run, place, kind })
    }

    fn try_place(&self, number: u32, block: u32, blocks: u32) -> Result<(u32, u64, Kind)> {
        let mut core = self.core.lock();
        let handle = Handle::new(&core);
        let inode = handle.any_inode(number)?;
        if inode.file_type()? != FileType::Regular {
            return Err(Error::Corrupt("the contents of what is no file"));
        }
        let run = handle.map(&inode, block)?;
        let most = run.blocks.min(blocks);
        match run {
            Run { place: Some(place), .. } => return Ok((most, place, Kind::Written)),
            Run { unwritten: Some(place), .. } => return Ok((most, place, Kind::Unwritten)),
            _ if most == 0 => return Err(Error::TooLarge),
            _ => {}
        }
        if core.read_only {
            return Err(Error::ReadOnly);
        }
        let range = handle.find_free(handle.goal_behind(&inode, block)?, most.min(LONGEST))?;
        core.claim(range.clone());
        Ok(((range.end - range.start) as u32, range.start, Kind::Claimed))
    }

    /// The blocks of `target` have been written: they are the file's. The file ends at byte `size` at least, and was changed at `time`.
    pub async fn settle(&self, number: u32, mut target: Target<'_, D>, size: u64, time: Option<Time>) -> Result<()> {
        let (range, block, kind) = (target.range(), target.block, target.kind);
        let extent = Extent { block, blocks: target.blocks as u16, place: target.place, written: true };
        self.run(|handle| {
            let mut inode = handle.any_inode(number)?;
            match kind {
                Kind::Written => {}
                Kind::Claimed => {
                    handle.changes().settled.push(range.clone());
                    handle.take_blocks(range.clone())?;
                    handle.add_extent(&mut inode, extent)?;
                    inode.count_blocks(handle.superblock(), extent.blocks.into());
                }
                Kind::Unwritten => handle.convert(&mut inode, extent)?,
            }
            inode.size = inode.size.max(size);
            if let Some(time) = time {
                (inode.modified, inode.changed) = (time, time);
            }
            handle.put_inode(&inode)
        })
        .await?;
        // What was promised is the file's.
        target.kind = Kind::Written;
        Ok(())
    }

    /// Sees to it that blocks of a file have a place (fallocate): those that have none get one, and stay zero. Says up to which block it came; the caller goes on from there.
    /// The file ends at byte `size` at least.
    pub async fn allocate(&self, number: u32, block: u32, end: u32, size: u64, time: Time) -> Result<u32> {
        self.run(|handle| {
            let mut inode = handle.any_inode(number)?;
            let run = handle.map(&inode, block)?;
            let mut next = block.saturating_add(run.blocks).min(end);
            if run.place.is_none() && run.unwritten.is_none() {
                let room = handle.core().room().min(LONGEST.into()) as u32;
                handle.core().check_room(1)?;
                let want = (next - block).min(room);
                let range = handle.find_free(handle.goal_behind(&inode, block)?, want)?;
                let blocks = (range.end - range.start) as u16;
                handle.take_blocks(range.clone())?;
                let extent = Extent { block, blocks, place: range.start, written: false };
                handle.add_extent(&mut inode, extent)?;
                inode.count_blocks(handle.superblock(), blocks.into());
                next = block + u32::from(blocks);
            }
            if next == end {
                inode.size = inode.size.max(size);
            }
            (inode.modified, inode.changed) = (time, time);
            handle.put_inode(&inode)?;
            Ok(next)
        })
        .await
    }

    /// Gives blocks `from..to` of a file back: they are a hole.
    pub async fn punch(&self, number: u32, from: u32, to: u64, time: Time) -> Result<()> {
        let mut end = Some(to);
        while let Some(to) = end {
            end = self
                .run(|handle| {
                    let mut inode = handle.any_inode(number)?;
                    let next = handle.give_back(&mut inode, from, to)?;
                    (inode.modified, inode.changed) = (time, time);
                    handle.put_inode(&inode)?;
                    Ok(next)
                })
                .await?;
        }
        Ok(())
    }

    /// Makes a file end at byte `size`, and gives back the blocks behind that. What the last block has behind it is the caller's to make zero before.
    pub async fn truncate(&self, number: u32, size: u64, time: Time) -> Result<()> {
        if size.div_ceil(self.superblock().block_bytes.into()) > MOST {
            return Err(Error::TooLarge);
        }
        let shrinks = self
            .run(|handle| {
                let mut inode = handle.any_inode(number)?;
                let shrinks = size < inode.size || size == inode.size && inode.sectors > 0;
                inode.size = size;
                (inode.modified, inode.changed) = (time, time);
                if shrinks {
                    // If the power fails half way, the next mount goes on.
                    handle.add_orphan(&mut inode)?;
                }
                handle.put_inode(&inode)?;
                Ok(shrinks)
            })
            .await?;
        match shrinks {
            true => self.trim(number, false, time).await,
            false => Ok(()),
        }
    }

    /// Does what is left to do with an inode on the list of orphans: one that has no name any more, and is not open, goes, with its blocks; of others the blocks behind their end go.
    pub async fn release(&self, number: u32, time: Time) -> Result<()> {
        self.trim(number, true, time).await
    }

    /// Gives back the blocks behind the end of an inode; of one without a name all, and itself, if it `goes`. Else somebody has it open, and it stays on the list of orphans.
    async fn trim(&self, number: u32, goes: bool, time: Time) -> Result<()> {
        let mut end = Some(u64::from(u32::MAX));
        while let Some(to) = end {
            end = self
                .run(|handle| {
                    let mut inode = handle.any_inode(number)?;
                    let goes = goes && inode.links == 0;
                    let mut next = None;
                    if inode.has_extents() {
                        let keeps = if goes { 0 } else { inode.size };
                        let from = keeps.div_ceil(handle.superblock().block_bytes.into()).min(MOST) as u32;
                        next = handle.give_back(&mut inode, from, to)?;
                    }
                    if next.is_none() && (goes || inode.links > 0) {
                        handle.remove_orphan(&mut inode)?;
                    }
                    if next.is_none() && goes {
                        return handle.delete(inode, time).map(|()| None);
                    }
                    handle.put_inode(&inode)?;
                    Ok(next)
                })
                .await?;
        }
        Ok(())
    }

    /// Changes an inode.
    pub async fn change(&self, number: u32, change: impl Fn(&mut Inode)) -> Result<()> {
        self.run(|handle| {
            let mut inode = handle.any_inode(number)?;
            change(&mut inode);
            handle.put_inode(&inode)
        })
        .await
    }

    /// An inode that must be in use, also one without a name.
    pub async fn any_inode(&self, number: u32) -> Result<Inode> {
        self.run(|handle| handle.any_inode(number)).await
    }

    /// Changes an inode, if that can be done without waiting; says whether.
    pub fn change_now(&self, number: u32, change: impl Fn(&mut Inode)) -> bool {
        let changed = self.try_run(|handle| {
            let mut inode = handle.any_inode(number)?;
            change(&mut inode);
            handle.put_inode(&inode)
        });
        changed.is_ok()
    }

    /// An inode, also one without a name, if it is in memory.
    pub fn inode_now(&self, number: u32) -> Option<Inode> {
        self.try_run(|handle| handle.any_inode(number)).ok()
    }

    /// Where block `block` of a file is, as [`Volume::map`], of its newest inode.
    pub async fn map_now(&self, number: u32, block: u32) -> Result<Run> {
        self.run(|handle| handle.map(&handle.any_inode(number)?, block)).await
    }

    /// The same, if all that it needs is in memory.
    pub fn try_map(&self, number: u32, block: u32) -> Result<Option<Run>> {
        match self.try_run(|handle| handle.map(&handle.any_inode(number)?, block)) {
            Err(Error::Missing(_) | Error::MissingOf { .. }) => Ok(None),
            answer => answer.map(Some),
        }
    }

    /// Sets blocks aside that pages in memory will need when they are written. [`Error::Full`]: there are enough after the next commit.
    pub fn reserve(&self, blocks: u64) -> Result<()> {
        self.core.lock().reserve(blocks)
    }

    /// They took them, or need them no more.
    pub fn unreserve(&self, blocks: u64) {
        self.core.lock().unreserve(blocks);
    }

    /// Free blocks that nobody has been promised, and free inodes.
    pub fn free(&self) -> (u64, u32) {
        let core = self.core.lock();
        (core.available(), core.superblock.free_inodes)
    }

    /// Whether it has become read only by an error.
    pub fn has_failed(&self) -> bool {
        self.core.lock().has_failed()
    }

    /// Whether nobody can change anything.
    pub fn is_read_only(&self) -> bool {
        self.core.lock().read_only
    }
}

impl Handle<'_> {
    /// Where block `block` of a file should be: behind the one before it.
    fn goal_behind(&self, inode: &Inode, block: u32) -> Result<u64> {
        if let Some(before) = block.checked_sub(1) {
            let run = self.map(inode, before)?;
            if let Some(place) = run.place.or(run.unwritten) {
                return Ok(place + 1);
            }
        }
        Ok(self.goal(inode.number))
    }

    /// Blocks that were the file's and never written have been.
    fn convert(&mut self, inode: &mut Inode, extent: Extent) -> Result<()> {
        let mut end = Some(u64::from(extent.block) + u64::from(extent.blocks));
        while let Some(to) = end {
            let (removed, next) = self.remove_extents(inode, extent.block, to)?;
            let inside = extent.place..extent.place + u64::from(extent.blocks);
            if removed.iter().any(|gone| gone.written || !inside.contains(&gone.place)) {
                return Err(Error::Corrupt("blocks that were written by somebody else"));
            }
            end = next;
        }
        self.add_extent(inode, extent)
    }

    /// Gives the last of blocks `from..to` of a file back; see [`Handle::remove_extents`].
    fn give_back(&mut self, inode: &mut Inode, from: u32, to: u64) -> Result<Option<u64>> {
        let (removed, next) = self.remove_extents(inode, from, to)?;
        let is_metadata = inode.file_type()? != FileType::Regular;
        for gone in removed {
            if is_metadata {
                // Directories and long symbolic links are in the journal.
                (gone.place..gone.place + u64::from(gone.blocks)).for_each(|block| self.forget(block));
            }
            self.free_blocks(gone.place..gone.place + u64::from(gone.blocks))?;
            inode.count_blocks(self.superblock(), -i64::from(gone.blocks));
        }
        Ok(next)
    }

    /// An inode that has no name and no blocks goes.
    fn delete(&mut self, mut inode: Inode, time: Time) -> Result<()> {
        let is_directory = inode.file_type()? == FileType::Directory;
        self.free_attributes(&mut inode)?;
        self.free_inode(&inode, is_directory)?;
        inode.deleted = time.seconds as u32;
        inode.mode = 0;
        inode.size = 0;
        self.put_inode(&inode)
    }
}
