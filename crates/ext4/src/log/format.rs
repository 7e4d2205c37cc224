//! The blocks of a journal (jbd2's format): all numbers are big endian.
//!
//! Block 0 of the journal is its superblock. The others form a ring of blocks, the log. A transaction is a row of blocks there:
//!
//! | block | contents |
//! |---|---|
//! | revoke | numbers of blocks of which no copy of this or an earlier transaction may be replayed |
//! | descriptor | one tag for each of the copies that follow it: the block's number, flags, sum |
//! | copies | the new contents of blocks; one that would begin with [`MAGIC`] begins with 0 instead, and its tag says so |
//! | commit | makes the transaction valid |

use crate::{bytes::sum, Error, Result};
use alloc::vec::Vec;

/// All blocks of a journal but the copies begin with it.
pub(crate) const MAGIC: u32 = 0xc03b_3998;

/// Bytes of magic, kind and number of the transaction.
const HEADER: usize = 12;
/// The first record of a revoke block.
const REVOKE_HEADER: usize = 16;
/// A sum at the end of descriptors and revoke blocks.
const TAIL: usize = 4;
/// Bytes of the superblock that count.
const BYTES: usize = 1024;
const UUID: usize = 16;
/// Sums are CRC-32C.
const CRC32C: u8 = 4;
/// Linux makes no shorter journals and takes none.
const SHORTEST: u32 = 1024;

mod kind {
    pub const DESCRIPTOR: u32 = 1;
    pub const COMMIT: u32 = 2;
    pub const SUPERBLOCK1: u32 = 3;
    pub const SUPERBLOCK2: u32 = 4;
    pub const REVOKE: u32 = 5;
}

mod compatible {
    pub const CHECKSUM: u32 = 1;
}

mod incompatible {
    pub const REVOKE: u32 = 0x1;
    pub const SIXTY_FOUR_BIT: u32 = 0x2;
    pub const CSUM_V2: u32 = 0x8;
    pub const CSUM_V3: u32 = 0x10;
    pub const KNOWN: u32 = REVOKE | SIXTY_FOUR_BIT | CSUM_V2 | CSUM_V3;
}

mod flag {
    pub const ESCAPED: u32 = 1;
    pub const SAME_UUID: u32 = 2;
    pub const LAST: u32 = 8;
}

/// Where the superblock has its fields.
mod field {
    pub const BLOCK_BYTES: usize = 0xc;
    pub const LENGTH: usize = 0x10;
    pub const FIRST: usize = 0x14;
    pub const SEQUENCE: usize = 0x18;
    pub const START: usize = 0x1c;
    pub const COMPATIBLE: usize = 0x24;
    pub const INCOMPATIBLE: usize = 0x28;
    pub const READ_ONLY: usize = 0x2c;
    pub const UUID: usize = 0x30;
    pub const SUM_KIND: usize = 0x50;
    pub const SUM: usize = 0xfc;
}
/// Where a commit block has its sum, and the seconds of when it was written.
const COMMIT_SUM: usize = 0x10;
const COMMIT_TIME: usize = 0x30;

/// 32 bits at `at`; 0 past the end.
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u32::from_be_bytes(*word))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) << 32 | u64::from(u32_at(bytes, at + 4))
}

/// Puts 32 bits at `at`, which must be there.
fn put_u32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

/// The sum of bytes, with 0 for the four that hold it.
fn sum_without(seed: u32, bytes: &[u8], at: usize) -> u32 {
    sum(seed, &[&bytes[..at], &[0; 4], &bytes[at + 4..]])
}

/// A block of zeros.
pub(crate) fn zeroed(bytes: usize) -> Result<Vec<u8>> {
    let mut block = Vec::new();
    block.try_reserve_exact(bytes).map_err(|_| Error::NoMemory)?;
    block.resize(bytes, 0);
    Ok(block)
}

/// The superblock of a journal: where the log begins, and in which form it is.
pub(crate) struct LogSuperblock {
    /// The whole block.
    pub bytes: Vec<u8>,
}

impl LogSuperblock {
    /// Of block 0 of a journal in a file system whose blocks have so many bytes.
    pub fn parse(bytes: Vec<u8>, block_bytes: u32) -> Result<LogSuperblock> {
        let superblock = LogSuperblock { bytes };
        let bytes = &superblock.bytes;
        let is_superblock = matches!(u32_at(bytes, 4), kind::SUPERBLOCK1 | kind::SUPERBLOCK2);
        if bytes.len() < BYTES || u32_at(bytes, 0) != MAGIC || !is_superblock {
            return Err(Error::Corrupt("the journal's superblock"));
        }
        let sums = superblock.incompatible() & (incompatible::CSUM_V2 | incompatible::CSUM_V3);
        if sums != 0 {
            if sums.count_ones() > 1 || bytes[field::SUM_KIND] != CRC32C {
                return Err(Error::Unsupported("sums of the journal of an unknown kind"));
            }
            if sum_without(u32::MAX, &bytes[..BYTES], field::SUM) != u32_at(bytes, field::SUM) {
                return Err(Error::Corrupt("the sum of the journal's superblock"));
            }
        }
        let (first, start, length) = (superblock.first(), superblock.start(), superblock.length());
        let starts = start == 0 || (first..length).contains(&start);
        let long = length >= SHORTEST && first > 0 && first <= length / 2;
        match u32_at(bytes, field::BLOCK_BYTES) == block_bytes && long && starts {
            true => Ok(superblock),
            false => Err(Error::Corrupt("the sizes of the journal")),
        }
    }

    /// Blocks of the journal, with its superblock.
    pub fn length(&self) -> u32 {
        u32_at(&self.bytes, field::LENGTH)
    }

    /// The first block of the log.
    pub fn first(&self) -> u32 {
        u32_at(&self.bytes, field::FIRST)
    }

    /// The block where the oldest transaction begins that need be replayed; 0: none need be.
    pub fn start(&self) -> u32 {
        u32_at(&self.bytes, field::START)
    }

    /// The number of that transaction.
    pub fn sequence(&self) -> u32 {
        u32_at(&self.bytes, field::SEQUENCE)
    }

    fn has_features(&self) -> bool {
        u32_at(&self.bytes, 4) == kind::SUPERBLOCK2
    }

    fn incompatible(&self) -> u32 {
        if self.has_features() {
            u32_at(&self.bytes, field::INCOMPATIBLE)
        } else {
            0
        }
    }

    /// Fails if the log may hold what is not known here.
    pub fn check_features(&self) -> Result<()> {
        let known = self.incompatible() & !incompatible::KNOWN == 0;
        match known && (!self.has_features() || u32_at(&self.bytes, field::READ_ONLY) == 0) {
            true => Ok(()),
            false => Err(Error::Unsupported("a feature of the journal that is not known")),
        }
    }

    /// Sets the features as Linux does for a file system with 64-bit block numbers and with sums of metadata. The log must be empty.
    pub fn set_features(&mut self, wide: bool, sums: bool) -> Result<()> {
        self.check_features()?;
        if !self.has_features() {
            return Err(Error::Unsupported("a journal of the first version"));
        }
        let of = |has: bool, feature: u32| if has { feature } else { 0 };
        let features = incompatible::REVOKE | of(wide, incompatible::SIXTY_FOUR_BIT) | of(sums, incompatible::CSUM_V3);
        let others = u32_at(&self.bytes, field::COMPATIBLE) & !compatible::CHECKSUM;
        put_u32(&mut self.bytes, field::COMPATIBLE, others);
        put_u32(&mut self.bytes, field::INCOMPATIBLE, features);
        self.bytes[field::SUM_KIND] = if sums { CRC32C } else { 0 };
        Ok(())
    }

    /// Sets where the log begins ([`LogSuperblock::start`]), and computes the sum anew.
    pub fn set_start(&mut self, start: u32, sequence: u32) {
        put_u32(&mut self.bytes, field::START, start);
        put_u32(&mut self.bytes, field::SEQUENCE, sequence);
        let has_sums = self.incompatible() & (incompatible::CSUM_V2 | incompatible::CSUM_V3) != 0;
        let computed = if has_sums { sum_without(u32::MAX, &self.bytes[..BYTES], field::SUM) } else { 0 };
        put_u32(&mut self.bytes, field::SUM, computed);
    }

    /// In which form the log is.
    pub fn form(&self) -> Form {
        let features = self.incompatible();
        Form {
            block_bytes: self.bytes.len(),
            wide: features & incompatible::SIXTY_FOUR_BIT != 0,
            sums: match features & (incompatible::CSUM_V2 | incompatible::CSUM_V3) {
                0 => Sums::None,
                incompatible::CSUM_V2 => Sums::Short,
                _ => Sums::Long,
            },
            seed: sum(u32::MAX, &[&self.bytes[field::UUID..field::UUID + UUID]]),
        }
    }
}

/// Which sums a log has: none, 16 bits of a copy's (CSUM_V2), or all 32 bits (CSUM_V3).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sums {
    None,
    Short,
    Long,
}

/// What a block of a log is, if it is no copy; and of which transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Descriptor,
    Commit,
    Revoke,
}

/// What a descriptor says of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag {
    /// The block that it is a copy of.
    pub block: u64,
    /// Its first four bytes are [`MAGIC`] in truth.
    pub escaped: bool,
    /// See [`Form::copy_sum`].
    pub sum: u32,
}

/// The form of a log's blocks.
#[derive(Clone, Copy)]
pub(crate) struct Form {
    block_bytes: usize,
    /// Numbers of blocks have 64 bits.
    wide: bool,
    sums: Sums,
    /// What sums begin with.
    seed: u32,
}

impl Form {
    /// What a block is; None: nothing of a log.
    pub fn header(&self, bytes: &[u8]) -> Option<(Kind, u32)> {
        let kind = match u32_at(bytes, 4) {
            kind::DESCRIPTOR => Kind::Descriptor,
            kind::COMMIT => Kind::Commit,
            kind::REVOKE => Kind::Revoke,
            _ => return None,
        };
        (u32_at(bytes, 0) == MAGIC).then_some((kind, u32_at(bytes, 8)))
    }

    fn make(&self, kind: u32, id: u32) -> Result<Vec<u8>> {
        let mut bytes = zeroed(self.block_bytes)?;
        put_u32(&mut bytes, 0, MAGIC);
        put_u32(&mut bytes, 4, kind);
        put_u32(&mut bytes, 8, id);
        Ok(bytes)
    }

    fn put_sum(&self, bytes: &mut [u8], at: usize) {
        if self.sums != Sums::None {
            let computed = sum_without(self.seed, bytes, at);
            put_u32(bytes, at, computed);
        }
    }

    fn sum_holds(&self, bytes: &[u8], at: usize) -> bool {
        self.sums == Sums::None || sum_without(self.seed, bytes, at) == u32_at(bytes, at)
    }

    /// Whether the sum of a descriptor or a revoke block is right.
    pub fn tail_holds(&self, bytes: &[u8]) -> bool {
        self.sum_holds(bytes, self.block_bytes - TAIL)
    }

    /// Whether the sum of a commit block is right.
    pub fn commit_holds(&self, bytes: &[u8]) -> bool {
        self.sum_holds(bytes, COMMIT_SUM)
    }

    /// The second when a commit block was written, if who wrote it had a clock.
    pub fn commit_time(&self, bytes: &[u8]) -> u64 {
        u64_at(bytes, COMMIT_TIME)
    }

    /// The end of what tags and revoke records may take.
    fn end(&self) -> usize {
        self.block_bytes - if self.sums == Sums::None { 0 } else { TAIL }
    }

    /// Bytes of a tag without the UUID that may follow.
    fn tag_bytes(&self) -> usize {
        match (self.sums, self.wide) {
            (Sums::Long, _) => 16,
            (Sums::Short, true) => 14,
            (Sums::Short, false) => 10,
            (Sums::None, true) => 12,
            (Sums::None, false) => 8,
        }
    }

    /// The tags of a descriptor.
    pub fn tags<'a>(&self, bytes: &'a [u8]) -> impl Iterator<Item = Tag> + use<'a> {
        let (form, mut at, mut last) = (*self, HEADER, false);
        ::core::iter::from_fn(move || {
            let tag = bytes.get(at..at + form.tag_bytes()).filter(|_| !last && at + form.tag_bytes() <= form.end())?;
            // With sums of 16 bits the upper half of this is the sum.
            let word = u32_at(tag, 4);
            let flags = word & 0xffff;
            last = flags & flag::LAST != 0;
            at += form.tag_bytes() + if flags & flag::SAME_UUID == 0 { UUID } else { 0 };
            let high = if form.wide { u32_at(tag, 8) } else { 0 };
            Some(Tag {
                block: u64::from(high) << 32 | u64::from(u32_at(tag, 0)),
                escaped: flags & flag::ESCAPED != 0,
                sum: if form.sums == Sums::Long { u32_at(tag, 12) } else { word >> 16 },
            })
        })
    }

    /// The sum of a copy, as it is in the log, that a tag has.
    pub fn copy_sum(&self, id: u32, copy: &[u8]) -> u32 {
        match self.sums {
            Sums::None => 0,
            Sums::Short => sum(self.seed, &[&id.to_be_bytes(), copy]) & 0xffff,
            Sums::Long => sum(self.seed, &[&id.to_be_bytes(), copy]),
        }
    }

    /// Whether a copy is the one that a tag of transaction `id` speaks of.
    pub fn copy_holds(&self, id: u32, tag: &Tag, copy: &[u8]) -> bool {
        self.sums == Sums::None || self.copy_sum(id, copy) == tag.sum
    }

    /// The blocks of a revoke block.
    pub fn revoked<'a>(&self, bytes: &'a [u8]) -> Result<impl Iterator<Item = u64> + use<'a>> {
        let (used, wide) = (u32_at(bytes, HEADER) as usize, self.wide);
        let used = bytes.get(..used).filter(|_| (REVOKE_HEADER..=self.end()).contains(&used));
        let used = used.ok_or(Error::Corrupt("a revoke block of the journal"))?;
        let records = used[REVOKE_HEADER..].chunks_exact(self.record_bytes());
        Ok(records.map(move |record| if wide { u64_at(record, 0) } else { u32_at(record, 0).into() }))
    }

    fn record_bytes(&self) -> usize {
        if self.wide {
            8
        } else {
            4
        }
    }

    /// Tags that a descriptor has room for; only the first is followed by a UUID.
    pub fn tags_in_block(&self) -> usize {
        (self.end() - HEADER - UUID) / self.tag_bytes()
    }

    /// Blocks that a revoke block has room for.
    pub fn revoked_in_block(&self) -> usize {
        (self.end() - REVOKE_HEADER) / self.record_bytes()
    }

    /// A descriptor; `tags`: at most [`Form::tags_in_block`].
    pub fn descriptor(&self, id: u32, tags: &[Tag]) -> Result<Vec<u8>> {
        let mut bytes = self.make(kind::DESCRIPTOR, id)?;
        let mut at = HEADER;
        for (index, tag) in tags.iter().enumerate() {
            let of = |has: bool, flag: u32| if has { flag } else { 0 };
            let flags = of(tag.escaped, flag::ESCAPED)
                | of(index > 0, flag::SAME_UUID)
                | of(index + 1 == tags.len(), flag::LAST);
            let short = if self.sums == Sums::Short { tag.sum << 16 } else { 0 };
            put_u32(&mut bytes, at, tag.block as u32);
            put_u32(&mut bytes, at + 4, flags | short);
            if self.wide {
                put_u32(&mut bytes, at + 8, (tag.block >> 32) as u32);
            }
            if self.sums == Sums::Long {
                put_u32(&mut bytes, at + 12, tag.sum);
            }
            at += self.tag_bytes() + if index == 0 { UUID } else { 0 };
        }
        self.put_sum(&mut bytes, self.block_bytes - TAIL);
        Ok(bytes)
    }

    /// A revoke block; `blocks`: at most [`Form::revoked_in_block`].
    pub fn revoke(&self, id: u32, blocks: &[u64]) -> Result<Vec<u8>> {
        let mut bytes = self.make(kind::REVOKE, id)?;
        let mut at = REVOKE_HEADER;
        for block in blocks {
            if self.wide {
                put_u32(&mut bytes, at, (block >> 32) as u32);
                put_u32(&mut bytes, at + 4, *block as u32);
            } else {
                put_u32(&mut bytes, at, *block as u32);
            }
            at += self.record_bytes();
        }
        put_u32(&mut bytes, HEADER, at as u32);
        self.put_sum(&mut bytes, self.block_bytes - TAIL);
        Ok(bytes)
    }

    /// A commit block.
    pub fn commit(&self, id: u32) -> Result<Vec<u8>> {
        let mut bytes = self.make(kind::COMMIT, id)?;
        self.put_sum(&mut bytes, COMMIT_SUM);
        Ok(bytes)
    }
}

/// A copy as it goes to the log, if it must differ from the block: it begins with [`MAGIC`].
pub(crate) fn escape(bytes: &[u8]) -> Result<Option<Vec<u8>>> {
    if u32_at(bytes, 0) != MAGIC {
        return Ok(None);
    }
    let mut copy = zeroed(bytes.len())?;
    copy[4..].copy_from_slice(&bytes[4..]);
    Ok(Some(copy))
}

/// Makes the block of an escaped copy.
pub(crate) fn unescape(copy: &mut [u8]) {
    put_u32(copy, 0, MAGIC);
}
