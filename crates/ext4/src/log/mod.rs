//! The log of the journal: where its blocks are, and how a transaction is written to them.
//!
//! | file | subject |
//! |---|---|
//! | format.rs | the blocks of a journal |

pub(crate) mod format;

use crate::{
    core::{shared, Committing},
    Bytes, Device, Error, Result,
};
use ::core::mem;
use alloc::vec::Vec;
use format::{escape, Form, LogSuperblock, Tag};

/// A write is of at most so many bytes.
const WRITE_BYTES: usize = 1 << 20;

/// Where blocks of the journal are: the first of a run in the journal, how many, and the first on the disk.
pub(crate) type JournalRun = (u32, u32, u64);

/// The journal's superblock, and where its blocks are.
pub(crate) struct JournalFile {
    pub head: LogSuperblock,
    /// By block in the journal, without gaps.
    pub runs: Vec<JournalRun>,
    /// The same by place on the disk.
    pub places: Vec<JournalRun>,
}

impl JournalFile {
    /// Where a block of the journal is on the disk.
    pub fn place(&self, block: u32) -> Result<u64> {
        let index = self.runs.partition_point(|(first, _, _)| *first <= block);
        let run = index.checked_sub(1).and_then(|index| self.runs.get(index));
        match run {
            Some((first, blocks, place)) if block - first < *blocks => Ok(place + u64::from(block - first)),
            _ => Err(Error::Corrupt("a block past the end of the journal")),
        }
    }

    /// Whether a block of the disk is the journal's.
    pub fn contains(&self, block: u64) -> bool {
        let index = self.places.partition_point(|(_, _, place)| *place <= block);
        let run = index.checked_sub(1).and_then(|index| self.places.get(index));
        run.is_some_and(|(_, blocks, place)| block - place < u64::from(*blocks))
    }

    /// Blocks of the log.
    pub fn ring(&self) -> u32 {
        self.head.length() - self.head.first()
    }

    /// The block of the log that is `blocks` behind another one, at most as many as the log has.
    pub fn after(&self, block: u32, blocks: u32) -> u32 {
        let at = u64::from(block - self.head.first()) + u64::from(blocks);
        self.head.first() + (at % u64::from(self.ring())) as u32
    }

    /// Writes where the log begins to the journal's superblock ([`LogSuperblock::set_start`]), and flushes.
    pub async fn write_start<D: Device>(&mut self, device: &D, start: u32, sequence: u32) -> Result<()> {
        self.head.set_start(start, sequence);
        let bytes = Bytes::new(copied(&self.head.bytes)?);
        device.write(self.place(0)?, alloc::vec![bytes]).await?;
        device.flush().await
    }
}

/// Writes blocks, those that follow each other together.
pub(crate) struct Writer<'a, D> {
    pub device: &'a D,
    pub first: u64,
    pub blocks: Vec<Bytes>,
}

impl<'a, D: Device> Writer<'a, D> {
    pub fn new(device: &'a D) -> Writer<'a, D> {
        Writer { device, first: 0, blocks: Vec::new() }
    }

    pub async fn push(&mut self, block: u64, bytes: Bytes) -> Result<()> {
        let most = WRITE_BYTES / bytes.len().max(1);
        if self.first + self.blocks.len() as u64 != block || self.blocks.len() >= most {
            self.finish().await?;
        }
        if self.blocks.is_empty() {
            self.first = block;
        }
        self.blocks.try_reserve(1).map_err(|_| Error::NoMemory)?;
        self.blocks.push(bytes);
        Ok(())
    }

    /// Writes what has been pushed last.
    pub async fn finish(&mut self) -> Result<()> {
        match self.blocks.is_empty() {
            true => Ok(()),
            false => self.device.write(self.first, mem::take(&mut self.blocks)).await,
        }
    }
}

pub(crate) fn copied(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut copy = Vec::new();
    copy.try_reserve_exact(bytes.len()).map_err(|_| Error::NoMemory)?;
    copy.extend_from_slice(bytes);
    Ok(copy)
}

/// The journal of a file system that is written.
pub(crate) struct Journal {
    pub log: Log,
    /// A transaction that is being written, or was when the future that did so was dropped or had no memory.
    pub unfinished: Option<Committing>,
    /// Somebody has begun to write and has not come to the end.
    pub interrupted: bool,
}

/// The log, and what is used of it.
pub(crate) struct Log {
    pub file: JournalFile,
    pub form: Form,
    /// Where the next transaction begins.
    pub head: u32,
    /// Blocks before it that must be replayed after a power cut.
    pub used: u32,
}

impl Journal {
    pub fn new(log: Log) -> Journal {
        Journal { log, unfinished: None, interrupted: false }
    }
}

/// The blocks of a transaction in the order of the log; the commit block follows them.
pub(crate) struct Encoded {
    pub blocks: Vec<Bytes>,
    pub commit: Bytes,
}

impl Log {
    /// An empty one.
    pub fn new(file: JournalFile) -> Log {
        Log { form: file.head.form(), head: file.head.first(), used: 0, file }
    }

    pub fn encode(&self, transaction: &Committing) -> Result<Encoded> {
        let (form, id) = (self.form, transaction.id);
        let (tags_at_once, revoked_at_once) = (form.tags_in_block(), form.revoked_in_block());
        let (copies, revoked) = (transaction.blocks.len(), transaction.revoked.len());
        let mut blocks = Vec::new();
        let count = copies + copies.div_ceil(tags_at_once) + revoked.div_ceil(revoked_at_once);
        blocks.try_reserve_exact(count).map_err(|_| Error::NoMemory)?;
        for revoked in transaction.revoked.chunks(revoked_at_once) {
            blocks.push(shared(form.revoke(id, revoked)?));
        }
        for copies in transaction.blocks.chunks(tags_at_once) {
            let mut tags = Vec::new();
            tags.try_reserve_exact(copies.len()).map_err(|_| Error::NoMemory)?;
            // The descriptor, which needs the sums of the copies.
            let at = blocks.len();
            blocks.push(Bytes::default());
            for (block, bytes) in copies {
                let escaped = escape(bytes)?;
                let tag = Tag { block: *block, escaped: escaped.is_some(), sum: 0 };
                let copy = escaped.map_or_else(|| bytes.clone(), shared);
                tags.push(Tag { sum: form.copy_sum(id, &copy), ..tag });
                blocks.push(copy);
            }
            blocks[at] = shared(form.descriptor(id, &tags)?);
        }
        Ok(Encoded { blocks, commit: shared(form.commit(id)?) })
    }

    /// Blocks that can be written. One is always free: else a full log would look like an empty one.
    pub fn room(&self) -> usize {
        (self.file.ring() - 1 - self.used) as usize
    }

    /// Writes a transaction to the log. It stays there when the future has answered.
    pub async fn write<D: Device>(&mut self, device: &D, transaction: Encoded) -> Result<()> {
        let mut writer = Writer::new(device);
        let mut at = self.head;
        let count = transaction.blocks.len() as u32 + 1;
        for block in transaction.blocks {
            writer.push(self.file.place(at)?, block).await?;
            at = self.file.after(at, 1);
        }
        writer.finish().await?;
        device.flush().await?;
        writer.push(self.file.place(at)?, transaction.commit).await?;
        writer.finish().await?;
        device.flush().await?;
        (self.head, self.used) = (self.file.after(at, 1), self.used + count);
        Ok(())
    }
}
