//! What a mount does with transactions whose blocks may not be at home.
//!
//! The log is read from its beginning for as long as transactions follow each other: each ends with a commit block, and its number is one more than that of the one before. The
//! first that has no commit block was being written when the power failed, and nobody was told that it is lasting. For each block the newest copy counts, unless the same or a later
//! transaction revokes the block. These copies are written home, once each and in order.

use super::{change_superblock, open_journal_file, read};
use crate::{
    core::shared,
    log::{
        format::{unescape, Form, Kind, Tag},
        JournalFile, Writer,
    },
    superblock, Device, Error, Result, Volume,
};
use alloc::{collections::BTreeMap, vec::Vec};

/// The newest copy of a block that is to be replayed.
struct Copy {
    /// Where it is in the journal.
    at: u32,
    /// Its transaction.
    id: u32,
    tag: Tag,
}

/// What has been read of a log.
struct Replay<'a, D> {
    volume: &'a Volume<D>,
    file: &'a JournalFile,
    form: Form,
    /// By block.
    copies: BTreeMap<u64, Copy>,
}

/// Replays the journal of a file system whose superblock says that this is needed, and makes it say so no more. Nothing of what `volume` has in memory is right afterwards.
pub(super) async fn recover<D: Device>(volume: &Volume<D>) -> Result<()> {
    let mut file = open_journal_file(volume).await?;
    if file.head.start() != 0 {
        file.head.check_features()?;
        let mut replay = Replay { volume, form: file.head.form(), file: &file, copies: BTreeMap::new() };
        let end = replay.scan().await?;
        replay.write().await?;
        volume.device().flush().await?;
        // The number of the transaction that was not whole is not used again.
        file.write_start(volume.device(), 0, end.wrapping_add(1)).await?;
    }
    change_superblock(volume.device(), volume.superblock(), |bytes| superblock::put_needs_recovery(bytes, false)).await
}

impl<D: Device> Replay<'_, D> {
    async fn read(&self, at: u32) -> Result<Vec<u8>> {
        read(self.volume.device(), self.file.place(at)?, self.volume.superblock().block_bytes).await
    }

    /// Finds the copies to be replayed, and answers the number of the first transaction that is not whole.
    async fn scan(&mut self) -> Result<u32> {
        let (mut at, mut id) = (self.file.head.start(), self.file.head.sequence());
        // Descriptors and revoke blocks of the transaction, and whether all their sums are right.
        let (mut parts, mut holds) = (Vec::new(), true);
        let (mut passed, mut last_time) = (0u64, 0);
        loop {
            let bytes = self.read(at).await?;
            let Some((kind, _)) = self.form.header(&bytes).filter(|(_, found)| *found == id) else { break };
            let tags = if kind == Kind::Descriptor { self.form.tags(&bytes).count() as u32 } else { 0 };
            passed += 1 + u64::from(tags);
            if passed > self.file.ring().into() {
                // Those that are whole fit the log.
                break;
            }
            if kind == Kind::Commit {
                let time = self.form.commit_time(&bytes);
                if !self.form.commit_holds(&bytes) || (!holds && time < last_time) {
                    // It was being written, or is left over from an older file system.
                    break;
                }
                if !holds {
                    return Err(Error::Corrupt("the sum of a block of the journal"));
                }
                self.take(id, &parts).await?;
                parts.clear();
                (id, last_time) = (id.wrapping_add(1), time);
            } else {
                holds &= self.form.tail_holds(&bytes);
                parts.try_reserve(1).map_err(|_| Error::NoMemory)?;
                parts.push((kind, at));
            }
            at = self.file.after(at, 1 + tags);
        }
        Ok(id)
    }

    /// Takes the copies of a whole transaction, and forgets those that it revokes.
    async fn take(&mut self, id: u32, parts: &[(Kind, u32)]) -> Result<()> {
        for (_, at) in parts.iter().filter(|(kind, _)| *kind == Kind::Descriptor) {
            let bytes = self.read(*at).await?;
            for (tag, index) in self.form.tags(&bytes).zip(1..) {
                if tag.block >= self.volume.superblock().blocks || self.file.contains(tag.block) {
                    return Err(Error::Corrupt("a block in the journal that can't be"));
                }
                let copy = Copy { at: self.file.after(*at, index), id, tag };
                self.copies.insert(tag.block, copy);
            }
        }
        for (_, at) in parts.iter().filter(|(kind, _)| *kind == Kind::Revoke) {
            let bytes = self.read(*at).await?;
            for block in self.form.revoked(&bytes)? {
                self.copies.remove(&block);
            }
        }
        Ok(())
    }

    async fn write(&self) -> Result<()> {
        let mut writer = Writer::new(self.volume.device());
        for (block, copy) in &self.copies {
            let mut bytes = self.read(copy.at).await?;
            if !self.form.copy_holds(copy.id, &copy.tag, &bytes) {
                return Err(Error::Corrupt("the sum of a copy in the journal"));
            }
            if copy.tag.escaped {
                unescape(&mut bytes);
            }
            writer.push(*block, shared(bytes)).await?;
        }
        writer.finish().await
    }
}
