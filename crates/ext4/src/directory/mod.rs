//! Names in a directory. A directory is a file whose blocks hold entries, each with the length up to the next one. A large directory has an index by the hash of the name, whose
//! blocks look as if they held one unused entry to those who know nothing of it.
//!
//! | file | subject |
//! |---|---|
//! | mod.rs | the entries of one block, and its sum |
//! | hash.rs | the hash functions |
//! | index.rs | the index |
//! | search.rs | finding a name, room for one, all names |
//! | change.rs | adding, removing and changing a name |

use crate::{
    bytes::{put_u16, put_u32, sum, u16_at, u32_at},
    handle::Handle,
    Error, FileType, Inode, Result,
};
use alloc::vec::Vec;

mod change;
pub(crate) mod hash;
mod index;
pub(crate) mod search;

/// One name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The inode that it leads to.
    pub inode: u32,
    /// The type of that, as getdents64 has it (`DT_REG` and so on); 0: unknown.
    pub kind: u8,
    /// The position from which a listing goes on behind this name.
    pub next: u64,
    /// The name.
    pub name: Vec<u8>,
    /// The block of the directory that it is in.
    pub(crate) block: u32,
}

const HEADER: usize = 8;
const TAIL: usize = 12;
const TAIL_KIND: u8 = 0xde;
/// The longest name.
const LONGEST: usize = 255;
/// The `d_type` of getdents64 for each number that ext4 has for a type of file.
const KINDS: [u8; 8] = [0, 8, 4, 2, 6, 1, 12, 10];
/// Where the entries of an index are in its root, behind `.` and `..`, and in its other blocks; see index.rs.
const ROOT_TABLE: usize = 32;
const NODE_TABLE: usize = 8;
const INDEX_ENTRY: usize = 8;
const INDEX_TAIL: usize = 8;

/// One entry of a block as it lies there.
#[derive(Clone, Copy)]
struct Slot<'a> {
    at: usize,
    /// Bytes up to the next one.
    length: usize,
    /// 0: it is unused.
    inode: u32,
    kind: u8,
    name: &'a [u8],
}

impl Slot<'_> {
    /// Bytes that it needs, which are no more than it has.
    fn used(&self) -> usize {
        if self.inode == 0 {
            return 0;
        }
        needed(self.name.len())
    }

    fn is_dots(&self) -> bool {
        is_dots(self.name)
    }

    fn entry(&self, block: u32, next: u64) -> Entry {
        let kind = KINDS.get(usize::from(self.kind)).copied().unwrap_or(0);
        Entry { inode: self.inode, kind, next, name: self.name.to_vec(), block }
    }
}

/// Bytes of an entry with a name of that length.
fn needed(name: usize) -> usize {
    (HEADER + name).next_multiple_of(4)
}

fn is_dots(name: &[u8]) -> bool {
    name == b"." || name == b".."
}

/// The entries of a block ([`Handle::body`]), one after the other. An error is the last.
struct Slots<'a> {
    body: &'a [u8],
    at: usize,
}

fn slots(body: &[u8]) -> Slots<'_> {
    Slots { body, at: 0 }
}

impl<'a> Iterator for Slots<'a> {
    type Item = Result<Slot<'a>>;

    fn next(&mut self) -> Option<Result<Slot<'a>>> {
        let (body, at) = (self.body, self.at);
        if at + HEADER > body.len() {
            return None;
        }
        let (length, name) = (slot_length(body, at), usize::from(body[at + 6]));
        if length < HEADER + name || !length.is_multiple_of(4) || at + length > body.len() {
            self.at = body.len();
            return Some(Err(Error::Corrupt("an entry of a directory")));
        }
        self.at = at + length;
        let name = &body[at + HEADER..at + HEADER + name];
        Some(Ok(Slot { at, length, inode: u32_at(body, at), kind: body[at + 7], name }))
    }
}

/// The length that an entry says. 65536 does not fit into 16 bits.
fn slot_length(block: &[u8], at: usize) -> usize {
    match u16_at(block, at + 4) {
        0xffff => block.len(),
        length => length.into(),
    }
}

/// What a new entry is to say.
struct NewEntry<'a> {
    inode: u32,
    /// The number that ext4 has for the type; 0 where the file system's entries have no types.
    kind: u8,
    name: &'a [u8],
}

impl NewEntry<'_> {
    fn store(&self, block: &mut [u8], at: usize, length: usize) {
        put_u32(block, at, self.inode);
        put_u16(block, at + 4, length as u16);
        [block[at + 6], block[at + 7]] = [self.name.len() as u8, self.kind];
        block[at + HEADER..at + HEADER + self.name.len()].copy_from_slice(self.name);
    }

    /// Puts it where there is room in the first `end` bytes of a block. False: there is none.
    fn insert(&self, block: &mut [u8], end: usize) -> Result<bool> {
        let Some((at, used, length)) = room(&block[..end], self.name.len())? else { return Ok(false) };
        if used > 0 {
            put_u16(block, at + 4, used as u16);
        }
        self.store(block, at + used, length - used);
        Ok(true)
    }
}

/// The first entry of a block behind which, or in which, a name of that length has room: where it is, what of it is in use, and its length.
fn room(body: &[u8], name: usize) -> Result<Option<(usize, usize, usize)>> {
    for slot in slots(body) {
        let slot = slot?;
        let used = slot.used();
        if slot.length - used >= needed(name) {
            return Ok(Some((slot.at, used, slot.length)));
        }
    }
    Ok(None)
}

/// Finds a name among the entries of a block; also the entry before it.
fn find<'a>(body: &'a [u8], name: &[u8]) -> Result<Option<(Slot<'a>, Option<Slot<'a>>)>> {
    let mut before = None;
    for slot in slots(body) {
        let slot = slot?;
        if slot.inode != 0 && slot.name == name {
            return Ok(Some((slot, before)));
        }
        before = Some(slot);
    }
    Ok(None)
}

/// Makes a block of entries of some that lie elsewhere: back to back, and without those that are not in use. They take the first `end` bytes; a tail follows if that leaves room.
fn pack<'a>(block: &mut [u8], end: usize, all: impl IntoIterator<Item = Slot<'a>>) -> Result<()> {
    block.fill(0);
    let (mut last, mut at) = (0, 0);
    for slot in all.into_iter().filter(|slot| slot.inode != 0) {
        if at + slot.used() > end {
            return Err(Error::Corrupt("more names than a block has room for"));
        }
        NewEntry { inode: slot.inode, kind: slot.kind, name: slot.name }.store(block, at, slot.used());
        (last, at) = (at, at + slot.used());
    }
    put_u16(block, last + 4, (end - last) as u16);
    if end < block.len() {
        put_tail(block);
    }
    Ok(())
}

/// Whether a block ends with the sum of a block of entries, which looks like an unused entry of an unknown type.
fn has_tail(block: &[u8]) -> bool {
    let Some(tail) = block.len().checked_sub(TAIL) else { return false };
    u32_at(block, tail) == 0 && u16_at(block, tail + 4) == TAIL as u16 && block[tail + 7] == TAIL_KIND
}

fn put_tail(block: &mut [u8]) {
    let tail = block.len() - TAIL;
    block[tail..].fill(0);
    put_u16(block, tail + 4, TAIL as u16);
    block[tail + 7] = TAIL_KIND;
}

/// Where a block that has no tail has the entries of an index; None: it is no block of an index.
fn table_of(block: &[u8]) -> Option<usize> {
    let bytes = block.len();
    if u32_at(block, 0) == 0 && slot_length(block, 0) == bytes {
        return Some(NODE_TABLE);
    }
    (slot_length(block, 0) == 12 && slot_length(block, 12) == bytes - 12).then_some(ROOT_TABLE)
}

/// Where a block of a directory has its sum, and what that should be; None: it can't have one.
fn block_sum(seed: u32, block: &[u8]) -> Option<(usize, u32)> {
    let tail = block.len() - TAIL;
    if has_tail(block) {
        return Some((tail + 8, sum(seed, &[&block[..tail]])));
    }
    let start = table_of(block)?;
    let (limit, count) = (usize::from(u16_at(block, start)), usize::from(u16_at(block, start + 2)));
    let tail = start + limit * INDEX_ENTRY;
    if count > limit || tail + INDEX_TAIL > block.len() {
        return None;
    }
    let pieces = [&block[..start + count * INDEX_ENTRY], &block[tail..tail + 4], &[0; 4]];
    Some((tail + 4, sum(seed, &pieces)))
}

impl Handle<'_> {
    /// Where a block of a directory is on the disk. None: a hole.
    fn directory_place(&self, directory: &Inode, number: u32) -> Result<Option<u64>> {
        Ok(self.map(directory, number)?.place)
    }

    /// A block of a directory. None: a hole.
    fn directory_block(&self, directory: &Inode, number: u32) -> Result<Option<&[u8]>> {
        let Some(place) = self.directory_place(directory, number)? else { return Ok(None) };
        let seed = self.superblock().seed.map(|seed| directory.seed(seed));
        let block = self.checked(place, "the sum of a directory", |block| {
            let Some(seed) = seed else { return true };
            block_sum(seed, block).is_some_and(|(at, sum)| u32_at(block, at) == sum)
        })?;
        Ok(Some(block))
    }

    /// The part of a block that holds entries.
    fn body<'a>(&self, block: &'a [u8]) -> &'a [u8] {
        match self.superblock().seed.is_some() && has_tail(block) {
            true => &block[..block.len() - TAIL],
            false => block,
        }
    }

    /// Bytes of a block that may hold entries, in blocks that are written here.
    fn body_bytes(&self) -> usize {
        self.block_bytes() - if self.superblock().seed.is_some() { TAIL } else { 0 }
    }

    /// Changes a block of a directory, and its sum.
    fn change_directory_block<T>(
        &mut self,
        directory: &Inode,
        number: u32,
        change: impl FnOnce(&mut [u8]) -> Result<T>,
    ) -> Result<T> {
        // The old sum is checked before a new one takes its place.
        self.directory_block(directory, number)?;
        let place = self.directory_place(directory, number)?.ok_or(Error::Corrupt("a hole in a directory"))?;
        let seed = self.superblock().seed.map(|seed| directory.seed(seed));
        let block = self.edit(place)?;
        let answer = change(block)?;
        if let Some(seed) = seed {
            let (at, sum) = block_sum(seed, block).ok_or(Error::Corrupt("a block of a directory"))?;
            put_u32(block, at, sum);
        }
        Ok(answer)
    }

    /// The same for a block of entries, with how many bytes of it those may take.
    fn change_entries<T>(
        &mut self,
        directory: &Inode,
        number: u32,
        change: impl FnOnce(&mut [u8], usize) -> Result<T>,
    ) -> Result<T> {
        let (end, has_sums) = (self.body_bytes(), self.superblock().seed.is_some());
        self.change_directory_block(directory, number, |block| match has_sums && !has_tail(block) {
            true => Err(Error::Corrupt("a block of entries without a sum")),
            false => change(block, end),
        })
    }

    /// How many blocks a directory has, holes among them. No directory needs more of them than there are on the disk, and whoever looks at all comes to an end.
    fn directory_blocks(&self, directory: &Inode) -> Result<u32> {
        let superblock = self.superblock();
        let blocks = directory.size.div_ceil(superblock.block_bytes.into());
        match u32::try_from(blocks) {
            Ok(number) if blocks <= superblock.blocks => Ok(number),
            _ => Err(Error::Corrupt("the size of a directory")),
        }
    }

    /// The number that an entry has for a type of file.
    fn kind(&self, file_type: FileType) -> u8 {
        if !self.superblock().has_file_types() {
            return 0;
        }
        match file_type {
            FileType::Regular => 1,
            FileType::Directory => 2,
            FileType::CharDevice => 3,
            FileType::BlockDevice => 4,
            FileType::Fifo => 5,
            FileType::Socket => 6,
            FileType::Symlink => 7,
        }
    }
}
