//! Groups of blocks: their descriptors and bitmaps.

use crate::{
    bytes::{joined, put_u16, put_u32, sum, u16_at, u32_at},
    handle::Handle,
    Error, Result,
};
use ::core::ops::Range;
use alloc::vec::Vec;

/// Flags of a descriptor: bitmaps that were never written.
const INODES_UNINITIALISED: u16 = 1;
const BLOCKS_UNINITIALISED: u16 = 2;

/// What a descriptor says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group {
    pub block_bitmap: u64,
    pub inode_bitmap: u64,
    pub inode_table: u64,
    pub free_blocks: u32,
    pub free_inodes: u32,
    pub directories: u32,
    flags: u16,
    /// Inodes at the end of the table that were never used.
    unused: u32,
    sums: [u32; 2],
}

/// Which of a group's two bitmaps.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bitmap {
    Blocks,
    Inodes,
}

impl Group {
    fn parse(bytes: &[u8]) -> Group {
        // Past the end of a short one is 0.
        let wide = |low: usize, high: usize| u32::from(u16_at(bytes, low)) | u32::from(u16_at(bytes, high)) << 16;
        Group {
            block_bitmap: joined(u32_at(bytes, 0), u32_at(bytes, 0x20)),
            inode_bitmap: joined(u32_at(bytes, 0x4), u32_at(bytes, 0x24)),
            inode_table: joined(u32_at(bytes, 0x8), u32_at(bytes, 0x28)),
            free_blocks: wide(0xc, 0x2c),
            free_inodes: wide(0xe, 0x2e),
            directories: wide(0x10, 0x30),
            flags: u16_at(bytes, 0x12),
            unused: wide(0x1c, 0x32),
            sums: [wide(0x18, 0x38), wide(0x1a, 0x3a)],
        }
    }

    /// Inodes at the end of the table that were never used.
    pub fn unused(&self) -> u32 {
        self.unused
    }

    fn store(&self, bytes: &mut [u8]) {
        let long = bytes.len() >= 64;
        let mut wide = |low: usize, high: usize, value: u32| {
            put_u16(bytes, low, value as u16);
            if long {
                put_u16(bytes, high, (value >> 16) as u16);
            }
        };
        wide(0xc, 0x2c, self.free_blocks);
        wide(0xe, 0x2e, self.free_inodes);
        wide(0x10, 0x30, self.directories);
        wide(0x1c, 0x32, self.unused);
        wide(0x18, 0x38, self.sums[0]);
        wide(0x1a, 0x3a, self.sums[1]);
        put_u16(bytes, 0x12, self.flags);
    }
}

/// The sum that a descriptor should have.
fn descriptor_sum(seed: u32, number: u32, bytes: &[u8]) -> u16 {
    sum(seed, &[&number.to_le_bytes(), &bytes[..0x1e], &[0; 2], &bytes[0x20..]]) as u16
}

impl Handle<'_> {
    /// A group, if there is one of that number.
    pub(crate) fn group(&self, number: u32) -> Result<Group> {
        let superblock = self.superblock();
        if u64::from(number) >= superblock.groups() {
            return Err(Error::Corrupt("the number of a group"));
        }
        let (block, at) = superblock.descriptor_place(number);
        let per_block = superblock.block_bytes as usize / superblock.descriptor_bytes;
        let holds = |bytes: &[u8]| {
            let Some(seed) = superblock.seed else { return true };
            let first = number - (at / superblock.descriptor_bytes) as u32;
            let here = (superblock.groups() - u64::from(first)).min(per_block as u64) as usize;
            let mut all = (first..).zip(bytes.chunks_exact(superblock.descriptor_bytes)).take(here);
            all.all(|(number, bytes)| descriptor_sum(seed, number, bytes) == u16_at(bytes, 0x1e))
        };
        let bytes = self.checked(block, "the sum of a group", holds)?;
        let group = Group::parse(&bytes[at..at + superblock.descriptor_bytes]);
        let tables = u64::from(superblock.inodes_per_group) * superblock.inode_bytes as u64;
        let table_end = group.inode_table.saturating_add(tables.div_ceil(superblock.block_bytes.into()));
        let inside = |block: u64| (u64::from(superblock.first_block) + 1..superblock.blocks).contains(&block);
        match inside(group.block_bitmap) && inside(group.inode_bitmap) && inside(group.inode_table) {
            true if table_end <= superblock.blocks => Ok(group),
            _ => Err(Error::Corrupt("a group that lies outside")),
        }
    }

    pub(crate) fn put_group(&mut self, number: u32, group: &Group) -> Result<()> {
        let superblock = self.superblock();
        let (block, at) = superblock.descriptor_place(number);
        let bytes = &mut self.edit(block)?[at..at + superblock.descriptor_bytes];
        group.store(bytes);
        if let Some(seed) = superblock.seed {
            let computed = descriptor_sum(seed, number, bytes);
            put_u16(bytes, 0x1e, computed);
        }
        Ok(())
    }

    /// Bits that count in a bitmap of the group.
    fn bits(&self, number: u32, which: Bitmap) -> usize {
        let superblock = self.superblock();
        match which {
            Bitmap::Blocks => {
                let blocks = superblock.group_blocks(number);
                (blocks.end - blocks.start) as usize
            }
            Bitmap::Inodes => superblock.inodes_per_group as usize,
        }
    }

    /// A bitmap to be looked at; None: it was never written, and nothing is in use but what [`Handle::initial`] says.
    fn bitmap_block(&self, number: u32, group: &Group, which: Bitmap) -> Result<Option<&[u8]>> {
        let (block, never, expected, bits) = match which {
            Bitmap::Blocks => {
                (group.block_bitmap, BLOCKS_UNINITIALISED, group.sums[0], self.superblock().blocks_per_group)
            }
            Bitmap::Inodes => {
                (group.inode_bitmap, INODES_UNINITIALISED, group.sums[1], self.superblock().inodes_per_group)
            }
        };
        let _ = number;
        let superblock = self.superblock();
        if group.flags & never != 0 && superblock.seed.is_some() {
            return Ok(None);
        }
        let mask = if superblock.descriptor_bytes >= 64 { u32::MAX } else { 0xffff };
        let holds = |bytes: &[u8]| {
            let Some(seed) = superblock.seed else { return true };
            let summed = bytes.get(..bits as usize / 8);
            summed.is_some_and(|summed| (sum(seed, &[summed]) ^ expected) & mask == 0)
        };
        self.checked(block, "the sum of a bitmap", holds).map(Some)
    }

    /// What is in use of a group's blocks whose bitmap was never written: copies of the superblock and descriptors, and its own bitmaps and table.
    fn initial(&self, number: u32, group: &Group, which: Bitmap, bytes: &mut [u8]) {
        let superblock = self.superblock();
        let bits = self.bits(number, which);
        set_bits(bytes, bits..bytes.len() * 8, true);
        if which == Bitmap::Inodes {
            return;
        }
        let blocks = superblock.group_blocks(number);
        let mut take = |range: Range<u64>| {
            let (start, end) = (range.start.max(blocks.start), range.end.min(blocks.end));
            if start < end {
                set_bits(bytes, (start - blocks.start) as usize..(end - blocks.start) as usize, true);
            }
        };
        if superblock.has_backup(number) {
            let descriptors = superblock.descriptor_blocks() + u64::from(superblock.spare_descriptors);
            take(blocks.start..blocks.start + 1 + descriptors);
        }
        let table = u64::from(superblock.inodes_per_group) * superblock.inode_bytes as u64;
        let table = table.div_ceil(superblock.block_bytes.into());
        take(group.block_bitmap..group.block_bitmap + 1);
        take(group.inode_bitmap..group.inode_bitmap + 1);
        take(group.inode_table..group.inode_table + table);
    }

    /// A copy of a group's bitmap.
    pub(crate) fn bitmap(&self, number: u32, which: Bitmap) -> Result<Vec<u8>> {
        let group = self.group(number)?;
        let mut copy = Vec::new();
        copy.try_reserve_exact(self.block_bytes()).map_err(|_| Error::NoMemory)?;
        match self.bitmap_block(number, &group, which)? {
            Some(bytes) => copy.extend_from_slice(bytes),
            None => {
                copy.resize(self.block_bytes(), 0);
                self.initial(number, &group, which, &mut copy);
            }
        }
        Ok(copy)
    }

    /// Sets or clears bits of a group's bitmap, all of which were the other way, and lets `change` count in its descriptor.
    pub(crate) fn change_bitmap(
        &mut self,
        number: u32,
        which: Bitmap,
        range: Range<usize>,
        taken: bool,
        change: impl FnOnce(&mut Group) -> Result<()>,
    ) -> Result<()> {
        let mut group = self.group(number)?;
        if range.end > self.bits(number, which) {
            return Err(Error::Corrupt("a place past the end of a group"));
        }
        let superblock = self.superblock();
        let (block, never, index, bits) = match which {
            Bitmap::Blocks => (group.block_bitmap, BLOCKS_UNINITIALISED, 0, superblock.blocks_per_group),
            Bitmap::Inodes => (group.inode_bitmap, INODES_UNINITIALISED, 1, superblock.inodes_per_group),
        };
        if self.bitmap_block(number, &group, which)?.is_none() {
            let bytes = self.bitmap(number, which)?;
            self.fresh(block)?.copy_from_slice(&bytes);
        }
        let bytes = self.edit(block)?;
        if range.clone().any(|bit| is_set(bytes, bit) == taken) {
            return Err(Error::Corrupt("what is taken is free, or what is free is taken"));
        }
        set_bits(bytes, range, taken);
        let bits = bits as usize / 8;
        group.flags &= !never;
        if let Some(seed) = superblock.seed {
            group.sums[index] = sum(seed, &[&bytes[..bits]]);
        }
        change(&mut group)?;
        self.put_group(number, &group)
    }
}

impl Group {
    /// Inode `index` of `all` in the group is in use now.
    pub(crate) fn note_used(&mut self, index: u32, all: u32) {
        self.unused = self.unused.min(all - index - 1);
    }
}

pub(crate) fn is_set(bytes: &[u8], bit: usize) -> bool {
    bytes[bit / 8] >> (bit % 8) & 1 != 0
}

pub(crate) fn set_bits(bytes: &mut [u8], range: Range<usize>, set: bool) {
    let mut bit = range.start;
    while bit < range.end {
        if bit.is_multiple_of(8) && bit + 8 <= range.end {
            bytes[bit / 8] = if set { 0xff } else { 0 };
            bit += 8;
            continue;
        }
        match set {
            true => bytes[bit / 8] |= 1 << (bit % 8),
            false => bytes[bit / 8] &= !(1 << (bit % 8)),
        }
        bit += 1;
    }
}

/// The first clear bit from `from` on, below `end`.
pub(crate) fn first_clear(bytes: &[u8], from: usize, end: usize) -> Option<usize> {
    let mut bit = from;
    while bit < end {
        if bit.is_multiple_of(8) && bytes[bit / 8] == 0xff {
            bit += 8;
        } else if is_set(bytes, bit) {
            bit += 1;
        } else {
            return Some(bit);
        }
    }
    None
}

/// Puts the numbers of free blocks and inodes, and the newest orphan, into the bytes of the superblock.
pub(crate) fn put_counts(bytes: &mut [u8], blocks: u64, inodes: u32, orphan: u32) {
    use crate::superblock::field;
    let (low, high) = crate::bytes::split(blocks);
    put_u32(bytes, field::FREE_BLOCKS.0, low);
    put_u32(bytes, field::FREE_BLOCKS.1, high);
    put_u32(bytes, field::FREE_INODES, inodes);
    put_u32(bytes, field::LAST_ORPHAN, orphan);
}
