//! The index of a directory by the hashes of its names (Linux's Documentation/filesystems/ext4/directory.rst, "Hash Tree Directories").
//!
//! The root is in block 0, behind `.` and `..`; it leads to blocks of entries (leaves), or to nodes that do. An entry of the index has the smallest hash of what it leads to, the
//! first of a block has none. Hashes are even: an odd one in the index says that the block also has names with the hash that the block before ends with.

use super::{hash::Hasher, pack, slots, NewEntry, INDEX_ENTRY, INDEX_TAIL, NODE_TABLE, ROOT_TABLE};
use crate::{
    bytes::{put_u16, put_u32, u16_at, u32_at},
    handle::Handle,
    inode::INDEX,
    Error, Inode, Result,
};
use alloc::vec::Vec;

/// Numbers of blocks in an index have so many bits.
const BLOCK_BITS: u32 = 28;
/// Nodes between the root and a leaf at most. The feature large_dir, which allows another one, is not supported.
const MOST_LEVELS: u8 = 1;
/// Where the root says how the index is made.
const ROOT_RESERVED: usize = 24;
const ROOT_VERSION: usize = 28;
const ROOT_LENGTH: usize = 29;
const ROOT_LEVELS: usize = 30;
const ROOT_FLAGS: usize = 31;
const INFO_BYTES: u8 = 8;

/// A block of an index on the way to a leaf, and which of its entries leads on.
#[derive(Clone, Debug)]
pub(super) struct Step {
    block: u32,
    start: usize,
    limit: usize,
    count: usize,
    index: usize,
}

/// The way from the root of an index to a leaf. It is valid as long as nobody changes the directory.
#[derive(Clone, Debug)]
pub(super) struct Path {
    steps: Vec<Step>,
    /// The leaf's block.
    pub leaf: u32,
}

fn hash_at(block: &[u8], start: usize, index: usize) -> u32 {
    u32_at(block, start + index * INDEX_ENTRY)
}

impl Handle<'_> {
    /// The hash function of a directory's index. None: it has none, or one with a function that is not known.
    pub(super) fn index_hasher(&self, directory: &Inode) -> Result<Option<Hasher>> {
        if directory.flags & INDEX == 0 || !self.superblock().indexes_directories() {
            return Ok(None);
        }
        let root = self.directory_block(directory, 0)?.ok_or(Error::Corrupt("an index without a root"))?;
        Ok(Hasher::new(&self.superblock().hash, root[ROOT_VERSION]))
    }

    /// The hash function of directories that get an index. None: none gets one.
    pub(super) fn default_hasher(&self) -> Option<Hasher> {
        let superblock = self.superblock();
        Hasher::new(&superblock.hash, superblock.hash.version).filter(|_| superblock.indexes_directories())
    }

    /// Entries that a block of an index has room for.
    fn index_limit(&self, start: usize) -> usize {
        let tail = if self.superblock().seed.is_some() { INDEX_TAIL } else { 0 };
        (self.block_bytes() - start - tail) / INDEX_ENTRY
    }

    /// A block of an index; `start`: where its entries are.
    fn index_block(&self, directory: &Inode, number: u32, start: usize) -> Result<(&[u8], usize)> {
        let block = self.directory_block(directory, number)?.ok_or(Error::Corrupt("an index with a hole"))?;
        let (limit, count) = (usize::from(u16_at(block, start)), usize::from(u16_at(block, start + 2)));
        match limit == self.index_limit(start) && (1..=limit).contains(&count) {
            true => Ok((block, count)),
            false => Err(Error::Corrupt("a block of an index")),
        }
    }

    /// Nodes between the root of an index and its leaves.
    fn index_levels(&self, directory: &Inode) -> Result<usize> {
        let (root, _) = self.index_block(directory, 0, ROOT_TABLE)?;
        let [length, levels, flags] = [root[ROOT_LENGTH], root[ROOT_LEVELS], root[ROOT_FLAGS]];
        match length == INFO_BYTES && levels <= MOST_LEVELS && flags & 1 == 0 {
            true => Ok(levels.into()),
            false => Err(Error::Corrupt("the root of an index")),
        }
    }

    /// Goes down from a block of an index to a leaf, and adds the steps to a path. `choose` says which entry leads on, of the depth, the block, where its entries are and their number.
    fn descend(
        &self,
        directory: &Inode,
        steps: &mut Vec<Step>,
        from: u32,
        choose: impl Fn(usize, &[u8], usize, usize) -> usize,
    ) -> Result<u32> {
        let (levels, blocks) = (self.index_levels(directory)?, self.directory_blocks(directory)?);
        let mut number = from;
        while steps.len() <= levels {
            let depth = steps.len();
            let start = if depth == 0 { ROOT_TABLE } else { NODE_TABLE };
            let (block, count) = self.index_block(directory, number, start)?;
            let index = choose(depth, block, start, count);
            if index >= count {
                return Err(Error::Corrupt("an index that was changed while it was read"));
            }
            steps.push(Step { block: number, start, limit: self.index_limit(start), count, index });
            number = u32_at(block, start + index * INDEX_ENTRY + 4) & ((1 << BLOCK_BITS) - 1);
            if number == 0 || number >= blocks {
                return Err(Error::Corrupt("an index that leads nowhere"));
            }
        }
        Ok(number)
    }

    /// The way to the first leaf that may have names of a hash.
    pub(super) fn probe(&self, directory: &Inode, hash: u32) -> Result<Path> {
        let mut steps = Vec::new();
        let leaf = self.descend(directory, &mut steps, 0, |_, block, start, count| {
            // The first entry has no hash; all are at or above it.
            let (mut low, mut high) = (1, count);
            while low < high {
                let middle = (low + high) / 2;
                match hash_at(block, start, middle) > hash {
                    true => high = middle,
                    false => low = middle + 1,
                }
            }
            low - 1
        })?;
        Ok(Path { steps, leaf })
    }

    /// The hash that the index has for the leaf behind one. None: it is the last.
    pub(super) fn next_hash(&self, directory: &Inode, path: &Path) -> Result<Option<u32>> {
        let Some(step) = path.steps.iter().rfind(|step| step.index + 1 < step.count) else { return Ok(None) };
        let (block, _) = self.index_block(directory, step.block, step.start)?;
        Ok(Some(hash_at(block, step.start, step.index + 1)))
    }

    /// The way to the leaf behind one. None: it is the last.
    pub(super) fn next_leaf(&self, directory: &Inode, path: &Path) -> Result<Option<Path>> {
        let Some(turn) = path.steps.iter().rposition(|step| step.index + 1 < step.count) else { return Ok(None) };
        let (block, index) = (path.steps[turn].block, path.steps[turn].index + 1);
        let mut steps = path.steps[..turn].to_vec();
        let leaf =
            self.descend(directory, &mut steps, block, |depth, _, _, _| if depth == turn { index } else { 0 })?;
        Ok(Some(Path { steps, leaf }))
    }

    /// Adds a name to a directory with an index. The leaf for its hash is split if it is full, and so are nodes.
    pub(super) fn add_indexed(&mut self, directory: &mut Inode, hasher: &Hasher, entry: &NewEntry<'_>) -> Result<()> {
        let hash = hasher.hash(entry.name).0;
        // Each round that does not end makes room for what the one before lacked: a level, room in a node, room in a leaf.
        for _ in 0..8 {
            let path = self.probe(directory, hash)?;
            if self.change_entries(directory, path.leaf, |block, end| entry.insert(block, end))? {
                return Ok(());
            }
            match &path.steps[..] {
                [.., last] if last.count < last.limit => self.split_leaf(directory, hasher, &path)?,
                [root, node] if root.count < root.limit => self.split_node(directory, root, node)?,
                [root] => self.add_level(directory, root)?,
                _ => return Err(Error::NoSpace),
            }
        }
        Err(Error::Corrupt("an index that does not take a name"))
    }

    /// Makes an index for a directory of one block. All names but `.` and `..` move to its only leaf.
    pub(super) fn make_index(&mut self, directory: &mut Inode, hasher: &Hasher) -> Result<()> {
        let old = self.directory_block(directory, 0)?.ok_or(Error::Corrupt("a hole in a directory"))?.to_vec();
        let mut all = slots(self.body(&old));
        for (at, name) in [(0, &b"."[..]), (12, b"..")] {
            let slot = all.next().transpose()?;
            if slot.is_none_or(|slot| slot.at != at || slot.name != name || slot.inode == 0) {
                return Err(Error::Corrupt("a directory without . and .."));
            }
        }
        let all = all.collect::<Result<Vec<_>>>()?;
        let leaf = self.append_directory_block(directory)?;
        let end = self.body_bytes();
        self.change_directory_block(directory, leaf, |block| pack(block, end, all))?;
        let limit = self.index_limit(ROOT_TABLE);
        self.change_directory_block(directory, 0, |block| {
            let bytes = block.len();
            put_u16(block, 12 + 4, (bytes - 12) as u16);
            block[ROOT_RESERVED..].fill(0);
            [block[ROOT_VERSION], block[ROOT_LENGTH]] = [hasher.version(), INFO_BYTES];
            put_table(block, ROOT_TABLE, limit, 1);
            put_u32(block, ROOT_TABLE + 4, leaf);
            Ok(())
        })?;
        directory.flags |= INDEX;
        Ok(())
    }

    /// Moves the names with the larger hashes, half a block of them, from a leaf to a new one.
    fn split_leaf(&mut self, directory: &mut Inode, hasher: &Hasher, path: &Path) -> Result<()> {
        let Some(step) = path.steps.last() else { return Err(Error::Corrupt("an index")) };
        let old = self.directory_block(directory, path.leaf)?.ok_or(Error::Corrupt("an index with a hole"))?.to_vec();
        let mut all = Vec::new();
        for slot in slots(self.body(&old)) {
            let slot = slot?;
            if slot.inode != 0 {
                all.push((hasher.hash(slot.name).0, slot));
            }
        }
        if all.len() < 2 {
            return Err(Error::Corrupt("a leaf without names that is full"));
        }
        all.sort_by_key(|(hash, _)| *hash);
        let (mut split, mut bytes) = (all.len(), 0);
        while split > 0 && bytes + all[split - 1].1.used() / 2 <= self.block_bytes() / 2 {
            bytes += all[split - 1].1.used();
            split -= 1;
        }
        // Gaps can make a block full whose names need less than half of it.
        if split == 0 || split == all.len() {
            split = all.len() / 2;
        }
        let hash = all[split].0;
        let hash = hash | u32::from(all[split - 1].0 == hash);
        let moved = all.split_off(split);
        let new = self.append_directory_block(directory)?;
        let end = self.body_bytes();
        for (number, slots) in [(path.leaf, all), (new, moved)] {
            let slots = slots.into_iter().map(|(_, slot)| slot);
            self.change_directory_block(directory, number, |block| pack(block, end, slots))?;
        }
        self.insert_index(directory, step, hash, new)
    }

    /// Puts an entry behind the one by which a path leads on.
    fn insert_index(&mut self, directory: &Inode, step: &Step, hash: u32, leads_to: u32) -> Result<()> {
        self.change_directory_block(directory, step.block, |block| {
            let (at, end) = (step.start + (step.index + 1) * INDEX_ENTRY, step.start + step.count * INDEX_ENTRY);
            block.copy_within(at..end, at + INDEX_ENTRY);
            put_u32(block, at, hash);
            put_u32(block, at + 4, leads_to);
            put_table(block, step.start, step.limit, step.count + 1);
            Ok(())
        })
    }

    /// Moves half of the entries of a node to a new one.
    fn split_node(&mut self, directory: &mut Inode, root: &Step, node: &Step) -> Result<()> {
        let kept = node.count / 2;
        let (block, _) = self.index_block(directory, node.block, node.start)?;
        let at = node.start + kept * INDEX_ENTRY..node.start + node.count * INDEX_ENTRY;
        let moved = block[at.clone()].to_vec();
        let new = self.new_node(directory, &moved)?;
        self.change_directory_block(directory, node.block, |block| {
            block[at].fill(0);
            put_table(block, node.start, node.limit, kept);
            Ok(())
        })?;
        self.insert_index(directory, root, u32_at(&moved, 0), new)
    }

    /// Moves all entries of the root to a new node.
    fn add_level(&mut self, directory: &mut Inode, root: &Step) -> Result<()> {
        let (block, _) = self.index_block(directory, root.block, root.start)?;
        let at = root.start..root.start + root.count * INDEX_ENTRY;
        let moved = block[at.clone()].to_vec();
        let new = self.new_node(directory, &moved)?;
        self.change_directory_block(directory, root.block, |block| {
            block[at].fill(0);
            put_table(block, root.start, root.limit, 1);
            put_u32(block, root.start + 4, new);
            block[ROOT_LEVELS] += 1;
            Ok(())
        })
    }

    /// Makes a node of entries of an index.
    fn new_node(&mut self, directory: &mut Inode, entries: &[u8]) -> Result<u32> {
        let new = self.append_directory_block(directory)?;
        let limit = self.index_limit(NODE_TABLE);
        self.change_directory_block(directory, new, |block| {
            let bytes = block.len();
            put_u16(block, 4, bytes as u16);
            block[NODE_TABLE..NODE_TABLE + entries.len()].copy_from_slice(entries);
            put_table(block, NODE_TABLE, limit, entries.len() / INDEX_ENTRY);
            Ok(())
        })?;
        Ok(new)
    }
}

/// Puts the numbers of entries of a block of an index where its first entry would have a hash.
fn put_table(block: &mut [u8], start: usize, limit: usize, count: usize) {
    put_u16(block, start, limit as u16);
    put_u16(block, start + 2, count as u16);
}
