//! Finding a name, room for one, and all names. A directory may be large: one block of it is looked at at a time, and nothing is locked between one and the next. While others change
//! the directory a call may answer [`Error::Corrupt`], so none notes damage: the caller does ([`Volume::note_damage`]) who knows that nobody has changed it.
//!
//! A listing of a directory with an index goes by the hashes of the names, as in Linux, because the split of a leaf moves names to another block: by blocks, a listing would find
//! them twice or never. A directory of one block, which may get an index, is listed in the same way.

use super::{find, hash::Hasher, index::Path, is_dots, room, slots, Entry};
use crate::{handle::Handle, inode::INDEX, Device, Error, Inode, Result, Volume};
use alloc::{collections::BTreeMap, vec::Vec};

/// The low bits of a position tell names apart whose hashes are the same in all 51 other bits, by their order. When one of those goes, the others behind it move, and a listing that
/// had stopped among them may omit one.
const ORDER: u64 = 0xfff;
/// Names that a listing holds at a time: more than those of one leaf, and than [`ORDER`] tells apart.
const HELD: usize = 2 * (ORDER as usize + 1);
/// Behind the largest position of a name.
const END: u64 = 0x7fff_ffff << 32;

/// Where a name is in a listing by hashes, with 0 for its order.
fn position(hasher: &Hasher, name: &[u8]) -> u64 {
    let (major, minor) = hasher.hash(name);
    u64::from(major >> 1) << 32 | u64::from(minor) & !ORDER
}

/// How one step of a search has ended.
enum Searched {
    Found(Entry),
    Absent,
    /// More names with the hash are in the next leaf.
    Further(Path),
    /// There is no index to search by.
    NoIndex,
}

impl Handle<'_> {
    /// Block `number` of a directory, or a hole (None); and the number of the block or hole behind.
    fn directory_piece(&self, directory: &Inode, number: u32) -> Result<(Option<&[u8]>, u64)> {
        let run = self.map(directory, number)?;
        match run.place {
            Some(_) => Ok((self.directory_block(directory, number)?, u64::from(number) + 1)),
            None => Ok((None, u64::from(number) + u64::from(run.blocks.max(1)))),
        }
    }

    fn find_in(&self, directory: &Inode, number: u32, name: &[u8]) -> Result<Option<Entry>> {
        let block = self.directory_block(directory, number)?.ok_or(Error::Corrupt("an index with a hole"))?;
        Ok(find(self.body(block), name)?.map(|(slot, _)| slot.entry(number, 0)))
    }

    /// Looks for a name in one leaf of the index: the first that may have it, or the one that the last step has led to.
    fn search(&self, directory: &Inode, name: &[u8], path: Option<&Path>) -> Result<Searched> {
        let Some(hasher) = self.index_hasher(directory)? else { return Ok(Searched::NoIndex) };
        let hash = hasher.hash(name).0;
        let first;
        let path = match path {
            Some(path) => path,
            None => {
                first = self.probe(directory, hash)?;
                &first
            }
        };
        if let Some(entry) = self.find_in(directory, path.leaf, name)? {
            return Ok(Searched::Found(entry));
        }
        if self.next_hash(directory, path)?.is_none_or(|next| next & !1 != hash) {
            return Ok(Searched::Absent);
        }
        Ok(self.next_leaf(directory, path)?.map_or(Searched::Absent, Searched::Further))
    }

    /// The hash function by which a directory is listed. None: it is listed by its blocks.
    fn listing_hasher(&self, directory: &Inode) -> Result<Option<Hasher>> {
        if directory.flags & INDEX != 0 {
            return self.index_hasher(directory);
        }
        Ok(self.default_hasher().filter(|_| directory.size == u64::from(self.superblock().block_bytes)))
    }

    /// The names of block `number` with their positions, from position `from` on.
    fn positions(&self, directory: &Inode, number: u32, hasher: &Hasher, from: u64) -> Result<Vec<(u64, Entry)>> {
        let mut found = Vec::new();
        let Some(block) = self.directory_block(directory, number)? else { return Ok(found) };
        for slot in slots(self.body(block)) {
            let slot = slot?;
            if slot.inode == 0 || slot.name.is_empty() || slot.is_dots() {
                continue;
            }
            let position = position(hasher, slot.name);
            if position >= from {
                found.push((position, slot.entry(number, 0)));
            }
        }
        Ok(found)
    }
}

impl<D: Device> Volume<D> {
    /// Looks for a name. Names are compared byte for byte.
    pub async fn lookup(&self, directory: &Inode, wanted: &[u8]) -> Result<Option<Entry>> {
        let mut path = None;
        // The index does not lead to these two, which are in the first block.
        while !is_dots(wanted) {
            match self.look(|handle| handle.search(directory, wanted, path.as_ref())).await? {
                Searched::Found(entry) => return Ok(Some(entry)),
                Searched::Absent => return Ok(None),
                Searched::Further(next) => path = Some(next),
                Searched::NoIndex => break,
            }
        }
        self.scan(directory, |number, body| match body {
            Some(body) => Ok(find(body, wanted)?.map(|(slot, _)| slot.entry(number, 0))),
            None => Ok(None),
        })
        .await
    }

    /// Looks at the blocks and holes of a directory in their order, until `each` has found something.
    async fn scan<T>(
        &self,
        directory: &Inode,
        mut each: impl FnMut(u32, Option<&[u8]>) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let blocks = self.look(|handle| handle.directory_blocks(directory)).await?;
        let mut number = 0;
        while number < blocks {
            let (found, next) = self
                .look(|handle| {
                    let (block, next) = handle.directory_piece(directory, number)?;
                    Ok((each(number, block.map(|block| handle.body(block)))?, next))
                })
                .await?;
            if found.is_some() {
                return Ok(found);
            }
            number = u32::try_from(next).unwrap_or(u32::MAX);
        }
        Ok(None)
    }

    /// Looks for a block of a directory with room for a name of that length, or a hole. None: there is none, or the directory has an index that knows the block.
    pub(crate) async fn find_room(&self, directory: &Inode, name: usize) -> Result<Option<u32>> {
        // Most often the last block has room, if any has.
        let last = self
            .look(|handle| {
                let blocks = handle.directory_blocks(directory)?;
                if blocks <= 1 || handle.index_hasher(directory)?.is_some() {
                    return Ok(None);
                }
                let (block, _) = handle.directory_piece(directory, blocks - 1)?;
                let has_room = block.map_or(Ok(true), |block| Ok(room(handle.body(block), name)?.is_some()))?;
                Ok(Some((blocks - 1, has_room)))
            })
            .await?;
        match last {
            None => Ok(None),
            Some((last, true)) => Ok(Some(last)),
            Some(_) => {
                self.scan(directory, |number, body| match body {
                    Some(body) => Ok(room(body, name)?.map(|_| number)),
                    None => Ok(Some(number)),
                })
                .await
            }
        }
    }

    /// Whether a directory has no names but `.` and `..`.
    pub async fn is_empty_directory(&self, directory: &Inode) -> Result<bool> {
        let found = self
            .scan(directory, |_, body| {
                for slot in slots(body.unwrap_or_default()) {
                    let slot = slot?;
                    if slot.inode != 0 && !slot.is_dots() {
                        return Ok(Some(()));
                    }
                }
                Ok(None)
            })
            .await?;
        Ok(found.is_none())
    }

    /// The inode that a name leads to.
    pub async fn find(&self, directory: &Inode, name: &[u8]) -> Result<Option<Inode>> {
        let Some(entry) = self.lookup(directory, name).await? else { return Ok(None) };
        let inode = self.look(|handle| handle.inode(entry.inode)).await?;
        inode.map(Some).ok_or(Error::Corrupt("a name without an inode"))
    }

    /// The names of a directory from a position on, some of them; `.` and `..` are left out. The first position is 0, others are the [`Entry::next`] of a name. None: there are no more.
    ///
    /// A name that is there all the time is listed once, whatever others add and remove between one call and the next.
    pub async fn list(&self, directory: &Inode, from: u64) -> Result<Option<Vec<Entry>>> {
        match self.look(|handle| handle.listing_hasher(directory)).await? {
            Some(hasher) => self.list_by_hash(directory, &hasher, from).await,
            None => self.list_by_block(directory, from).await,
        }
    }

    /// Positions are bytes.
    async fn list_by_block(&self, directory: &Inode, from: u64) -> Result<Option<Vec<Entry>>> {
        let bytes = u64::from(self.superblock().block_bytes);
        let blocks = self.look(|handle| handle.directory_blocks(directory)).await?;
        let mut from = from;
        while from / bytes < u64::from(blocks) {
            let number = (from / bytes) as u32;
            let (found, next) = self
                .look(|handle| {
                    let mut found = Vec::new();
                    let (block, next) = handle.directory_piece(directory, number)?;
                    for slot in slots(handle.body(block.unwrap_or_default())) {
                        let slot = slot?;
                        let at = u64::from(number) * bytes + slot.at as u64;
                        if at >= from && slot.inode != 0 && !slot.name.is_empty() && !slot.is_dots() {
                            found.push(slot.entry(number, at + slot.length as u64));
                        }
                    }
                    Ok((found, next))
                })
                .await?;
            if !found.is_empty() {
                return Ok(Some(found));
            }
            from = next * bytes;
        }
        Ok(None)
    }

    /// Positions are made of hashes. Names whose hashes are the same get positions that follow each other, in the order of the names.
    async fn list_by_hash(&self, directory: &Inode, hasher: &Hasher, from: u64) -> Result<Option<Vec<Entry>>> {
        if from >= END {
            return Ok(None);
        }
        let (first, hash) = (from & !ORDER, ((from >> 32) as u32) << 1);
        let is_indexed = directory.flags & INDEX != 0;
        let mut path = match is_indexed {
            true => Some(self.look(|handle| handle.probe(directory, hash)).await?),
            false => None,
        };
        let mut found = BTreeMap::new();
        loop {
            let number = path.as_ref().map_or(0, |path| path.leaf);
            let names = self.look(|handle| handle.positions(directory, number, hasher, first)).await?;
            for (position, mut entry) in names {
                found.insert((position, ::core::mem::take(&mut entry.name)), entry);
                if found.len() > HELD {
                    found.pop_last();
                }
            }
            let (next, hash) = match &path {
                Some(path) => {
                    let both = |handle: &mut Handle<'_>| {
                        Ok((handle.next_leaf(directory, path)?, handle.next_hash(directory, path)?))
                    };
                    self.look(both).await?
                }
                None => (None, None),
            };
            // The next leaf may have names that belong among these.
            if hash.is_none_or(|hash| hash & 1 == 0) {
                let names = in_order(::core::mem::take(&mut found), from);
                if !names.is_empty() {
                    return Ok(Some(names));
                }
            }
            if next.is_none() {
                return Ok(None);
            }
            path = next;
        }
    }
}

/// Gives names their final positions, and leaves out those before `from`. Names are by hashes and then by their bytes, so that every listing finds the same order.
pub(crate) fn in_order(found: BTreeMap<(u64, Vec<u8>), Entry>, from: u64) -> Vec<Entry> {
    let (mut last, mut order) = (None, 0);
    let mut names = Vec::new();
    for ((position, name), entry) in found {
        order = if last == Some(position) { (order + 1).min(ORDER) } else { 0 };
        last = Some(position);
        if position + order >= from {
            names.push(Entry { next: position + order + 1, name, ..entry });
        }
    }
    names
}
