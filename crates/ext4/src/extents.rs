//! Where the blocks of a file are: a tree of extents, whose root is in the inode.

use crate::{
    bytes::{joined, put_u16, put_u32, split, sum, u16_at, u32_at},
    handle::Handle,
    space::GROUPS_AT_ONCE,
    Device, Error, Inode, Result, Volume,
};
use ::core::ops::Range;
use alloc::vec::Vec;

/// Blocks of a file that lie in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The first of them, in the file.
    pub block: u32,
    /// How many.
    pub blocks: u32,
    /// Where the first is on the disk; None: they are zero, and take no place or were never written.
    pub place: Option<u64>,
    /// Blocks that are the file's, though they were never written: where the first of those is.
    pub unwritten: Option<u64>,
}

const MAGIC: u16 = 0xf30a;
const ENTRY: usize = 12;
/// As deep as Linux lets a tree become.
const DEEPEST: u16 = 5;
/// A longer extent has so much less blocks, which were never written.
const LONGEST: u16 = 1 << 15;
/// Of blocks that were never written one less.
const LONGEST_UNWRITTEN: u16 = LONGEST - 1;

/// Extents that are taken out at once, at most.
const EXTENTS_AT_ONCE: usize = 64;

/// The root of a tree without extents.
pub(crate) const EMPTY: [u8; 60] = {
    let mut root = [0; 60];
    [root[0], root[1], root[4]] = [0x0a, 0xf3, 4];
    root
};

/// An extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub block: u32,
    pub blocks: u16,
    pub place: u64,
    pub written: bool,
}

impl Extent {
    fn parse(entry: &[u8]) -> Extent {
        let length = u16_at(entry, 4);
        let (blocks, written) = if length > LONGEST { (length - LONGEST, false) } else { (length, true) };
        Extent { block: u32_at(entry, 0), blocks, place: joined(u32_at(entry, 8), u16_at(entry, 6).into()), written }
    }

    fn store(&self, entry: &mut [u8]) {
        let (low, high) = split(self.place);
        put_u32(entry, 0, self.block);
        put_u16(entry, 4, if self.written { self.blocks } else { self.blocks + LONGEST });
        put_u16(entry, 6, high as u16);
        put_u32(entry, 8, low);
    }

    fn end(&self) -> u64 {
        u64::from(self.block) + u64::from(self.blocks)
    }

    /// With `next` behind it, if both are one.
    fn joined(&self, next: &Extent) -> Option<Extent> {
        let most = if self.written { LONGEST } else { LONGEST_UNWRITTEN };
        let blocks = self.blocks.checked_add(next.blocks).filter(|blocks| *blocks <= most)?;
        let follows = self.end() == u64::from(next.block) && self.place + u64::from(self.blocks) == next.place;
        (follows && self.written == next.written).then_some(Extent { blocks, ..*self })
    }

    /// The part of it between two blocks of the file.
    fn part(&self, from: u64, to: u64) -> Option<Extent> {
        let (start, end) = (from.max(self.block.into()), to.min(self.end()));
        (start < end).then(|| Extent {
            block: start as u32,
            blocks: (end - start) as u16,
            place: self.place + (start - u64::from(self.block)),
            ..*self
        })
    }
}

/// What a node has.
struct Header {
    entries: usize,
    most: usize,
    depth: u16,
}

fn header(node: &[u8], depth: Option<u16>) -> Result<Header> {
    let (entries, most, found) = (u16_at(node, 2), u16_at(node, 4), u16_at(node, 6));
    let fits = usize::from(most) * ENTRY + ENTRY <= node.len() && entries <= most;
    let deep = depth.map_or(found <= DEEPEST, |depth| found == depth);
    match u16_at(node, 0) == MAGIC && fits && deep {
        true => Ok(Header { entries: entries.into(), most: most.into(), depth: found }),
        false => Err(Error::Corrupt("a node of extents")),
    }
}

fn entry(node: &[u8], index: usize) -> &[u8] {
    &node[ENTRY * (1 + index)..][..ENTRY]
}

/// How many entries begin at or before a block.
fn position(node: &[u8], entries: usize, block: u32) -> usize {
    let (mut low, mut high) = (0, entries);
    while low < high {
        let middle = (low + high) / 2;
        if u32_at(entry(node, middle), 0) <= block {
            low = middle + 1
        } else {
            high = middle
        }
    }
    low
}

/// The block that an entry of an inner node leads to.
fn child(entry: &[u8]) -> u64 {
    joined(u32_at(entry, 4), u16_at(entry, 8).into())
}

/// A node on the way from the root to a leaf: its block (None: the root), and the entry that leads on.
struct Step {
    node: Option<u64>,
    index: usize,
}

impl Handle<'_> {
    fn node<'a>(&'a self, inode: &'a Inode, node: Option<u64>) -> Result<&'a [u8]> {
        match node {
            None => Ok(&inode.root),
            Some(block) => {
                let seed = self.superblock().seed.map(|seed| inode.seed(seed));
                self.checked(block, "the sum of a node of extents", |node| {
                    let tail = ENTRY * (1 + usize::from(u16_at(node, 4)));
                    let Some(seed) = seed else { return true };
                    let summed = node.get(..tail).filter(|_| tail + 4 <= node.len());
                    summed.is_some_and(|summed| sum(seed, &[summed]) == u32_at(node, tail))
                })
            }
        }
    }

    /// Where block `block` of a file is, and those that follow it in a row there.
    pub(crate) fn map(&self, inode: &Inode, block: u32) -> Result<Run> {
        if !inode.has_extents() {
            return Err(Error::Unsupported("a file without extents"));
        }
        let (mut at, mut end, mut depth) = (None, u32::MAX, None);
        loop {
            let node = self.node(inode, at)?;
            let head = header(node, depth)?;
            let index = position(node, head.entries, block);
            let next = if index < head.entries { u32_at(entry(node, index), 0).min(end) } else { end };
            let hole = Run { block, blocks: next.saturating_sub(block), place: None, unwritten: None };
            if next <= block && block != u32::MAX {
                return Err(Error::Corrupt("the order of extents"));
            }
            if index == 0 {
                return Ok(hole);
            }
            let found = entry(node, index - 1);
            if head.depth > 0 {
                (at, end, depth) = (Some(child(found)), next, Some(head.depth - 1));
                continue;
            }
            let extent = Extent::parse(found);
            let Some(part) = extent.part(block.into(), next.into()) else { return Ok(hole) };
            if part.place == 0 || part.place + u64::from(part.blocks) > self.superblock().blocks {
                return Err(Error::Corrupt("an extent past the end"));
            }
            let run = Run { block, blocks: part.blocks.into(), place: None, unwritten: None };
            return Ok(match part.written {
                true => Run { place: Some(part.place), ..run },
                false => Run { unwritten: Some(part.place), ..run },
            });
        }
    }

    /// The way to the leaf that speaks of a block; the last step is the leaf, with how many entries begin at or before the block.
    fn path(&self, inode: &Inode, block: u32) -> Result<Vec<Step>> {
        if !inode.has_extents() {
            return Err(Error::Unsupported("a file without extents"));
        }
        let (mut path, mut at, mut depth) = (Vec::new(), None, None);
        loop {
            let node = self.node(inode, at)?;
            let head = header(node, depth)?;
            let index = position(node, head.entries, block);
            if head.depth == 0 {
                path.push(Step { node: at, index });
                return Ok(path);
            }
            if head.entries == 0 {
                return Err(Error::Corrupt("a node of extents"));
            }
            let index = index.saturating_sub(1);
            path.push(Step { node: at, index });
            (at, depth) = (Some(child(entry(node, index))), Some(head.depth - 1));
        }
    }

    /// Changes a node, and its sum. The inode is stored by who changes it.
    fn change_node(&mut self, inode: &mut Inode, node: Option<u64>, change: impl FnOnce(&mut [u8])) -> Result<()> {
        let Some(block) = node else {
            change(&mut inode.root);
            return Ok(());
        };
        let seed = self.superblock().seed.map(|seed| inode.seed(seed));
        let bytes = self.edit(block)?;
        change(bytes);
        if let Some(seed) = seed {
            let tail = ENTRY * (1 + usize::from(u16_at(bytes, 4)));
            let computed = sum(seed, &[&bytes[..tail]]);
            put_u32(bytes, tail, computed);
        }
        Ok(())
    }

    /// Blocks of a file that had no place get one. The blocks are taken already ([`Handle::take_blocks`]), the inode is stored by the caller.
    pub(crate) fn add_extent(&mut self, inode: &mut Inode, extent: Extent) -> Result<()> {
        let path = self.path(inode, extent.block)?;
        let Some(leaf) = path.last() else { return Err(Error::Corrupt("a node of extents")) };
        let node = self.node(inode, leaf.node)?;
        let entries = header(node, None)?.entries;
        let (index, at) = (leaf.index, leaf.node);
        let before = index.checked_sub(1).map(|index| Extent::parse(entry(node, index)));
        let after = (index < entries).then(|| Extent::parse(entry(node, index)));
        let overlaps = before.is_some_and(|before| before.end() > extent.block.into())
            || after.is_some_and(|after| extent.end() > after.block.into());
        if overlaps {
            return Err(Error::Corrupt("blocks of a file that are there twice"));
        }
        // One that it continues, and one that continues it.
        if let Some(all) = before.and_then(|before| before.joined(&extent)) {
            let joined = after.and_then(|after| all.joined(&after));
            return self.change_node(inode, at, |node| {
                joined.unwrap_or(all).store(&mut node[ENTRY * index..][..ENTRY]);
                if joined.is_some() {
                    remove_entries(node, index..index + 1);
                }
            });
        }
        if let Some(all) = after.and_then(|after| extent.joined(&after)) {
            self.change_node(inode, at, |node| all.store(&mut node[ENTRY * (index + 1)..][..ENTRY]))?;
            return self.fix_first(inode, &path);
        }
        let mut bytes = [0; ENTRY];
        extent.store(&mut bytes);
        self.add_entry(inode, path, bytes)
    }

    /// Puts an entry into the last node of a path, at its index; nodes that are full are split.
    fn add_entry(&mut self, inode: &mut Inode, mut path: Vec<Step>, bytes: [u8; ENTRY]) -> Result<()> {
        let Some(Step { node: at, index }) = path.pop() else { return Err(Error::Corrupt("a node of extents")) };
        let head = header(self.node(inode, at)?, None)?;
        if head.entries < head.most {
            self.change_node(inode, at, |node| {
                let from = ENTRY * (1 + index);
                node.copy_within(from..ENTRY * (1 + head.entries), from + ENTRY);
                node[from..from + ENTRY].copy_from_slice(&bytes);
                put_u16(node, 2, head.entries as u16 + 1);
            })?;
            path.push(Step { node: at, index });
            return self.fix_first(inode, &path);
        }
        let goal = self.goal(inode.number);
        let new = self.new_block(goal)?;
        inode.count_blocks(self.superblock(), 1);
        let most = (self.block_bytes() - ENTRY - 4) / ENTRY;
        if at.is_none() {
            // The root moves into a block of its own, and leads there.
            if head.depth == DEEPEST {
                return Err(Error::TooLarge);
            }
            let old = inode.root;
            self.change_node(inode, Some(new), |node| {
                node[..60].copy_from_slice(&old);
                put_u16(node, 4, most as u16);
            })?;
            self.change_node(inode, None, |root| {
                let first = u32_at(entry(root, 0), 0);
                put_u16(root, 2, 1);
                put_u16(root, 6, head.depth + 1);
                index_entry(first, new, &mut root[ENTRY..2 * ENTRY]);
                root[2 * ENTRY..].fill(0);
            })?;
            path.push(Step { node: None, index: 0 });
            path.push(Step { node: Some(new), index });
            return self.add_entry(inode, path, bytes);
        }
        // What comes last, most often grows at its end: then the full node stays full.
        let kept = if index == head.entries { head.entries } else { head.entries / 2 };
        let mut moved = Vec::new();
        moved.extend_from_slice(&self.node(inode, at)?[ENTRY * (1 + kept)..ENTRY * (1 + head.entries)]);
        self.change_node(inode, at, |node| {
            put_u16(node, 2, kept as u16);
            node[ENTRY * (1 + kept)..ENTRY * (1 + head.entries)].fill(0);
        })?;
        let first = if moved.is_empty() { u32_at(&bytes, 0) } else { u32_at(&moved, 0) };
        self.change_node(inode, Some(new), |node| {
            put_u16(node, 0, MAGIC);
            put_u16(node, 2, (moved.len() / ENTRY) as u16);
            put_u16(node, 4, most as u16);
            put_u16(node, 6, head.depth);
            node[ENTRY..ENTRY + moved.len()].copy_from_slice(&moved);
        })?;
        // The entry goes into one of the two, which has room now.
        let (node, index) = if index >= kept && (index > kept || moved.is_empty()) {
            (new, index - kept)
        } else {
            (at.unwrap_or(new), index)
        };
        let room = header(self.node(inode, Some(node))?, None)?.entries;
        self.change_node(inode, Some(node), |node| {
            let from = ENTRY * (1 + index);
            node.copy_within(from..ENTRY * (1 + room), from + ENTRY);
            node[from..from + ENTRY].copy_from_slice(&bytes);
            put_u16(node, 2, room as u16 + 1);
        })?;
        if index == 0 && node != new {
            path.push(Step { node: at, index });
            self.fix_first(inode, &path)?;
            path.pop();
        }
        let mut above = [0; ENTRY];
        index_entry(first, new, &mut above);
        if let Some(step) = path.last_mut() {
            step.index += 1;
        }
        self.add_entry(inode, path, above)
    }

    /// The first entry of the last node of a path has changed: so do the entries that lead to it.
    fn fix_first(&mut self, inode: &mut Inode, path: &[Step]) -> Result<()> {
        let Some(last) = path.last() else { return Ok(()) };
        let node = self.node(inode, last.node)?;
        if header(node, None)?.entries == 0 {
            return Ok(());
        }
        let first = u32_at(entry(node, 0), 0);
        for step in path.iter().rev().skip(1) {
            let node = self.node(inode, step.node)?;
            if u32_at(entry(node, step.index), 0) == first {
                break;
            }
            let index = step.index;
            self.change_node(inode, step.node, |node| put_u32(&mut node[ENTRY * (1 + index)..], 0, first))?;
            if index > 0 {
                break;
            }
        }
        Ok(())
    }

    /// Takes blocks `from..to` of a file out of its tree, the last first: those of one leaf, but not of more than a few groups. Says which they were, and up to which block more are to be
    /// taken out; None: that was all. The blocks are still taken; the inode is stored by the caller.
    pub(crate) fn remove_extents(
        &mut self,
        inode: &mut Inode,
        from: u32,
        to: u64,
    ) -> Result<(Vec<Extent>, Option<u64>)> {
        let to = to.min(u32::MAX.into());
        if to <= u64::from(from) {
            return Ok((Vec::new(), None));
        }
        let path = self.path(inode, (to - 1) as u32)?;
        let Some(leaf) = path.last() else { return Err(Error::Corrupt("a node of extents")) };
        let (at, end) = (leaf.node, leaf.index);
        // With which block this leaf begins; what is before is in the one to its left.
        let mut next = None;
        if let [.., above, _] = &path[..]
            && path.iter().rev().skip(1).any(|step| step.index > 0)
        {
            next = Some(u64::from(u32_at(entry(self.node(inode, above.node)?, above.index), 0)));
        }
        let node = self.node(inode, at)?;
        let (mut removed, mut kept, mut groups) = (Vec::new(), Vec::new(), Vec::new());
        let mut index = end;
        while index > 0 {
            let extent = Extent::parse(entry(node, index - 1));
            let Some(gone) = extent.part(from.into(), to) else {
                // Before `from`; or behind the last to go, where nothing is but damage.
                if extent.end() > from.into() {
                    return Err(Error::Corrupt("the order of extents"));
                }
                next = None;
                break;
            };
            let superblock = self.superblock();
            let last = (gone.place + u64::from(gone.blocks)).saturating_sub(1);
            for group in superblock.group_of(gone.place)..=superblock.group_of(last) {
                if !groups.contains(&group) {
                    groups.push(group);
                }
            }
            if !removed.is_empty() && (groups.len() > GROUPS_AT_ONCE || removed.len() == EXTENTS_AT_ONCE) {
                next = Some(extent.end());
                break;
            }
            kept.extend(extent.part(gone.end(), u64::MAX));
            kept.extend(extent.part(0, gone.block.into()));
            removed.push(gone);
            index -= 1;
        }
        if !removed.is_empty() {
            self.change_node(inode, at, |node| remove_entries(node, index..end))?;
            let is_empty = header(self.node(inode, at)?, None)?.entries == 0;
            match is_empty && kept.is_empty() && at.is_some() {
                true => self.remove_node(inode, path)?,
                false => self.fix_first(inode, &path)?,
            }
            // Parts of the first and of the last one.
            for extent in kept {
                self.add_extent(inode, extent)?;
            }
        }
        match next {
            Some(next) if next >= to => Err(Error::Corrupt("the order of extents")),
            next => Ok((removed, next.filter(|next| *next > u64::from(from)))),
        }
    }

    /// The last node of a path has no entries any more.
    fn remove_node(&mut self, inode: &mut Inode, mut path: Vec<Step>) -> Result<()> {
        while let Some(Step { node: Some(block), .. }) = path.pop() {
            self.free_metadata(block)?;
            inode.count_blocks(self.superblock(), -1);
            let Some(&Step { node: above, index }) = path.last() else { break };
            self.change_node(inode, above, |node| remove_entries(node, index..index + 1))?;
            if header(self.node(inode, above)?, None)?.entries > 0 {
                return self.fix_first(inode, &path);
            }
        }
        // Nothing is left.
        inode.root = EMPTY;
        Ok(())
    }
}

fn index_entry(first: u32, block: u64, entry: &mut [u8]) {
    let (low, high) = split(block);
    put_u32(entry, 0, first);
    put_u32(entry, 4, low);
    put_u16(entry, 8, high as u16);
    put_u16(entry, 10, 0);
}

fn remove_entries(node: &mut [u8], range: Range<usize>) {
    let entries = usize::from(u16_at(node, 2));
    node.copy_within(ENTRY * (1 + range.end)..ENTRY * (1 + entries), ENTRY * (1 + range.start));
    let left = entries - range.len();
    node[ENTRY * (1 + left)..ENTRY * (1 + entries)].fill(0);
    put_u16(node, 2, left as u16);
}

impl<D: Device> Volume<D> {
    /// Where block `block` of a file is, and those that follow it in a row there.
    pub async fn map(&self, inode: &Inode, block: u32) -> Result<Run> {
        self.run(|handle| handle.map(inode, block)).await
    }
}
