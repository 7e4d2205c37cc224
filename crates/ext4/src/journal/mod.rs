//! The journal (jbd2): transactions on the disk; mounting and unmounting, which begin and end with it.
//!
//! | file | subject |
//! |---|---|
//! | replay.rs | what a mount does with transactions whose blocks may not be at home |
//! | commit.rs | writing transactions, and their blocks home |
//! | orphans.rs | files that were to go away when the power failed |
//!
//! What is on the disk at any time:
//!
//! | state | RECOVER in the file system's superblock | start in the journal's |
//! |---|---|---|
//! | not mounted | no | 0 |
//! | while mounting and unmounting | yes | 0 |
//! | mounted | yes | where the oldest transaction begins whose blocks may not be at home |
//!
//! Each step from one line to the next is flushed before the following one begins.

mod commit;
mod orphans;
mod replay;

use crate::{
    bytes::put_u32,
    inode::FileType,
    log::{format::LogSuperblock, Journal, JournalFile, Log},
    superblock, Bytes, Device, Error, Result, Superblock, Time, Volume,
};
use ::core::mem;
use alloc::vec::Vec;

/// How a file system is mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Nothing is written, and the blocks are taken as they are, even if the journal has newer ones (Linux's mount option `noload`).
    ReadOnlyWithoutReplay,
    /// The device can't be written: [`Error::ReadOnly`] if the journal must be replayed.
    ReadOnlyDevice,
    /// The journal is replayed if it must be; then nothing is written.
    ReadOnly,
    /// The journal is replayed if it must be, and files may be changed.
    ReadWrite,
}

/// More pieces of a journal are not remembered.
const MOST_RUNS: usize = 1 << 14;
/// Linux's mkfs makes no longer journals. What replay remembers of each block is in memory.
const LONGEST: u32 = 10_240_000;

/// The file that the journal is. Fails if there is none in this file system, or if it can't be one.
async fn open_journal_file<D: Device>(volume: &Volume<D>) -> Result<JournalFile> {
    let (number, block_bytes) = (volume.superblock().journal, volume.superblock().block_bytes);
    if volume.superblock().has_external_journal() {
        return Err(Error::Unsupported("a journal on another device"));
    }
    let inode = volume.run(|handle| handle.any_inode(number)).await?;
    if inode.file_type()? != FileType::Regular {
        return Err(Error::Corrupt("the journal is no file"));
    }
    let place = volume.map(&inode, 0).await?.place.ok_or(Error::Corrupt("a hole in the journal"))?;
    let head = LogSuperblock::parse(read(volume.device(), place, block_bytes).await?, block_bytes)?;
    if u64::from(head.length()) > inode.size / u64::from(block_bytes) || head.length() > LONGEST {
        return Err(Error::Corrupt("the length of the journal"));
    }
    let (mut runs, mut at) = (Vec::new(), 0);
    while at < head.length() {
        let run = volume.map(&inode, at).await?;
        let place = run.place.ok_or(Error::Corrupt("a hole in the journal"))?;
        let blocks = run.blocks.min(head.length() - at);
        if blocks == 0 || runs.len() == MOST_RUNS {
            return Err(Error::Unsupported("a journal in too many pieces"));
        }
        runs.try_reserve(1).map_err(|_| Error::NoMemory)?;
        runs.push((at, blocks, place));
        at += blocks;
    }
    let mut places = Vec::new();
    places.try_reserve_exact(runs.len()).map_err(|_| Error::NoMemory)?;
    places.extend_from_slice(&runs);
    places.sort_unstable_by_key(|(_, _, place)| *place);
    let overlaps = places.windows(2).any(|two| two[0].2 + u64::from(two[0].1) > two[1].2);
    if overlaps || places.first().is_none_or(|first| first.2 <= volume.superblock().place().0) {
        return Err(Error::Corrupt("where the journal's blocks are"));
    }
    Ok(JournalFile { head, runs, places })
}

/// Reads a block of the expected size.
async fn read<D: Device>(device: &D, block: u64, bytes: u32) -> Result<Vec<u8>> {
    let read = device.read(block, 1).await?;
    match read.len() == bytes as usize {
        true => Ok(read),
        false => Err(Error::Io),
    }
}

/// Changes the file system's superblock on the disk, not by a transaction, and flushes.
async fn change_superblock<D: Device>(
    device: &D,
    superblock: &Superblock,
    change: impl FnOnce(&mut [u8]) + Send,
) -> Result<()> {
    let (block, at) = superblock.place();
    let mut bytes = read(device, block, superblock.block_bytes).await?;
    let part = &mut bytes[at..at + superblock::BYTES];
    change(part);
    superblock.seal(part);
    device.write(block, alloc::vec![Bytes::new(bytes)]).await?;
    device.flush().await
}

/// The superblock as the disk has it now.
async fn read_superblock<D: Device>(device: &D, old: &Superblock) -> Result<Superblock> {
    let (block, at) = old.place();
    let bytes = read(device, block, old.block_bytes).await?;
    let superblock = Superblock::parse(bytes[at..].first_chunk().ok_or(Error::Io)?)?;
    // The device reads blocks of that size.
    match superblock.block_bytes == old.block_bytes {
        true => Ok(superblock),
        false => Err(Error::Corrupt("the journal changes the size of blocks")),
    }
}

impl<D: Device> Volume<D> {
    /// Mounts a file system. `superblock`: see [`Volume::new`]; `now`: seconds since 1970.
    ///
    /// Whatever is not known to those who write is refused with [`Error::ReadOnly`] if it is to be written. A mount that fails or whose future is dropped leaves a file system that
    /// can be mounted.
    pub async fn mount(device: D, superblock: Superblock, access: Access, now: u32) -> Result<Volume<D>> {
        if access == Access::ReadWrite && superblock.unknown_to_writers {
            return Err(Error::ReadOnly);
        }
        let replays = superblock.needs_recovery && access != Access::ReadOnlyWithoutReplay;
        if replays && access == Access::ReadOnlyDevice {
            return Err(Error::ReadOnly);
        }
        let mut volume = Volume::new(device, superblock);
        if replays {
            replay::recover(&volume).await?;
            let mut superblock = read_superblock(volume.device(), volume.superblock()).await?;
            let older = volume.superblock();
            if older.has_errors && !superblock.has_errors {
                change_superblock(volume.device(), older, |bytes| superblock::keep_errors(bytes, older)).await?;
                superblock = read_superblock(volume.device(), older).await?;
            }
            volume = Volume::new(volume.into_device(), superblock);
        }
        if access == Access::ReadWrite {
            if volume.superblock().unknown_to_writers {
                return Err(Error::ReadOnly);
            }
            volume.open_for_writing(now).await?;
        } else if replays {
            volume.count_free().await?;
        }
        Ok(volume)
    }

    /// Lets a file system that was mounted to be read be written, or one that was unmounted ([`Volume::close`]) be written again. Its journal has nothing that must be replayed.
    pub async fn open_for_writing(&self, now: u32) -> Result<()> {
        let superblock = read_superblock(self.device(), self.superblock()).await?;
        if superblock.unknown_to_writers || superblock.needs_recovery {
            return Err(Error::ReadOnly);
        }
        // An unmount has changed it on the disk.
        self.core.lock().forget_clean(superblock.place().0);
        // Damage is found before anything is written.
        self.count_free().await?;
        self.load_orphans(superblock.last_orphan).await?;
        self.open_journal(now).await?;
        self.release_orphans(&superblock, Time { seconds: now.into(), nanoseconds: 0 }).await
    }

    /// Makes the journal ready to be written. It has nothing that must be replayed.
    async fn open_journal(&self, now: u32) -> Result<()> {
        let superblock = self.superblock();
        if superblock.journal == 0 && !superblock.has_external_journal() {
            return Err(Error::Unsupported("a file system without a journal is only read here"));
        }
        let mut file = open_journal_file(self).await?;
        let (start, sequence) = (file.head.start(), file.head.sequence());
        file.head.check_features()?;
        // One more, as Linux does. A log that need not be replayed though it is not empty has fewer transactions than blocks.
        let id = sequence.wrapping_add(if start == 0 { 1 } else { 1 + file.ring() });
        if start != 0 {
            file.write_start(self.device(), 0, id).await?;
        }
        change_superblock(self.device(), superblock, |bytes| superblock::note_mount(bytes, now)).await?;
        file.head.set_features(superblock.wide, superblock.seed.is_some())?;
        let first = file.head.first();
        file.write_start(self.device(), first, id).await?;
        let most =
            ((file.ring() / 4) as usize).min((self.device().memory() / 4 / superblock.block_bytes as usize).max(64));
        *self.journal.lock().await = Some(Journal::new(Log::new(file)));
        self.core.lock().open(id, most);
        Ok(())
    }

    /// Counts free blocks and inodes by what the groups say. Only an unmount puts the numbers into the superblock.
    async fn count_free(&self) -> Result<()> {
        let superblock = self.superblock();
        let groups = superblock.groups() as u32;
        let at_once = superblock.block_bytes / superblock.descriptor_bytes as u32;
        let (mut blocks, mut inodes, mut from) = (0u64, 0u64, 0);
        while from < groups {
            let end = groups.min(from.saturating_add(at_once.max(1)));
            let counts = self.run(|handle| {
                (from..end).try_fold((0, 0), |(blocks, inodes), number| {
                    let group = handle.group(number)?;
                    Ok((blocks + u64::from(group.free_blocks), inodes + u64::from(group.free_inodes)))
                })
            });
            let counts = counts.await?;
            (blocks, inodes, from) = (blocks + counts.0, inodes + counts.1, end);
        }
        if blocks > superblock.blocks || inodes > superblock.inodes.into() {
            return Err(Error::Corrupt("the free blocks and inodes of the groups"));
        }
        self.core.lock().set_counts(blocks, inodes as u32);
        Ok(())
    }

    /// Whether errors were found that the superblock does not tell of.
    pub fn has_unsaved_errors(&self) -> bool {
        self.core.lock().errors.0 > 0
    }

    /// Makes the superblock tell of the errors that were found since this was called last. `now`: seconds since 1970.
    pub async fn save_errors(&self, now: u32) -> Result<()> {
        // Nothing of the journal is on its way.
        let journal = self.journal.lock().await;
        let (goes_on, (count, what)) = {
            let mut core = self.core.lock();
            (!core.read_only, mem::take(&mut core.errors))
        };
        if count == 0 {
            return Ok(());
        }
        let note = |bytes: &mut [u8]| superblock::note_errors(bytes, count, what, now);
        let saved = async {
            if goes_on {
                drop(journal);
                return self.run(|handle| handle.change_superblock(note)).await;
            }
            // What was written and never answered comes before.
            self.device().flush().await?;
            change_superblock(self.device(), self.superblock(), note).await
        };
        let saved = saved.await;
        if saved.is_err() {
            let mut core = self.core.lock();
            let (more, newer) = core.errors;
            core.errors = (count.saturating_add(more), if more > 0 { newer } else { what });
        }
        saved
    }

    /// Unmounts a file system that nobody changes any more: all is home, and the journal is empty. `now`: seconds since 1970. Nothing can be changed afterwards. If the future
    /// is dropped, this may be called again.
    pub async fn close(&self, now: u32) -> Result<()> {
        let mut journal = loop {
            // One that did not come to its end has left it read only.
            if !self.core.lock().read_only {
                self.run(|handle| {
                    handle.put_counts()?;
                    handle.change_superblock(|bytes| put_u32(bytes, superblock::field::WRITTEN, now))
                })
                .await?;
                self.commit().await?;
            }
            let journal = self.journal.lock().await;
            let mut core = self.core.lock();
            if core.has_failed() {
                return Err(Error::ReadOnly);
            }
            if !core.has_changes() {
                core.read_only = true;
                drop(core);
                break journal;
            }
        };
        if journal.is_none() {
            return Ok(());
        }
        self.empty_journal(&mut journal).await?;
        change_superblock(self.device(), self.superblock(), |bytes| superblock::put_needs_recovery(bytes, false))
            .await?;
        *journal = None;
        Ok(())
    }
}
