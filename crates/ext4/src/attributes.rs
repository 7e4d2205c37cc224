//! Extended attributes: in the inode behind its fields, and in one block that inodes may share.
//!
//! Both places hold a table of entries from the front, ended by four zero bytes, and the values from the back. They differ in three things:
//!
//! | | in the inode | in the block |
//! |---|---|---|
//! | in front of the entries | the magic number | a header: magic, how many inodes share the block, hash, sum |
//! | values are counted from | the first entry | the start of the block |
//! | entries | in any order, without a hash | sorted, with a hash |
//!
//! A change reads a whole table, changes the list, and writes the table anew: they are small. As in Linux an attribute goes into the inode if it fits there, else into the block. A block that other
//! inodes share is not changed: the inode gets one of its own.

use crate::{
    bytes::{put_u16, put_u32, sum, u16_at, u32_at},
    handle::Handle,
    Device, Error, Inode, Result, Time, Volume,
};
use alloc::vec::Vec;

const MAGIC: u32 = 0xea02_0000;
/// The compatible feature that a file system with attributes has.
const FEATURE: (usize, u32) = (0x5c, 0x8);
/// Bytes of the header of a block, and fields in it.
const HEADER: usize = 32;
const REFERENCES: usize = 4;
const BLOCKS: usize = 8;
const HASH: usize = 12;
const SUM: usize = 16;
/// Bytes of an entry without its name.
const ENTRY: usize = 16;
/// More inodes than that do not share a block (EXT4_XATTR_REFCOUNT_MAX).
const MOST_REFERENCES: u32 = 1024;

/// The numbers of names' beginnings. Those of ACLs are whole names.
const USER: u8 = 1;
const ACL_ACCESS: u8 = 2;
const ACL_DEFAULT: u8 = 3;
const TRUSTED: u8 = 4;
const SECURITY: u8 = 6;
const PREFIXES: [(u8, &[u8]); 5] = [
    (USER, b"user."),
    (ACL_ACCESS, b"system.posix_acl_access"),
    (ACL_DEFAULT, b"system.posix_acl_default"),
    (TRUSTED, b"trusted."),
    (SECURITY, b"security."),
];

/// When an attribute is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetWhen {
    /// In any case.
    Always,
    /// Only if there is none of that name (XATTR_CREATE).
    Missing,
    /// Only if there is one (XATTR_REPLACE).
    Present,
}

/// One attribute as it is on the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Attribute {
    index: u8,
    name: Vec<u8>,
    value: Vec<u8>,
}

fn padded(bytes: usize) -> usize {
    bytes.next_multiple_of(4)
}

fn copied(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut copy = Vec::new();
    copy.try_reserve_exact(bytes.len()).map_err(|_| Error::NoMemory)?;
    copy.extend_from_slice(bytes);
    Ok(copy)
}

/// The number of a name's beginning, and the rest of the name.
fn split_name(name: &[u8]) -> Result<(u8, &[u8])> {
    let found = PREFIXES.iter().find_map(|(index, prefix)| Some((*index, name.strip_prefix(*prefix)?)));
    match found {
        Some((ACL_ACCESS | ACL_DEFAULT, rest)) if !rest.is_empty() => Err(Error::Unsupported("an attribute's name")),
        Some((USER | TRUSTED | SECURITY, [])) => Err(Error::Unsupported("an attribute's name")),
        Some(found) => Ok(found),
        None => Err(Error::Unsupported("an attribute's name")),
    }
}

impl Attribute {
    fn is(&self, name: (u8, &[u8])) -> bool {
        (self.index, &*self.name) == name
    }

    /// The order of entries in a block.
    fn key(&self) -> (u8, usize, &[u8]) {
        (self.index, self.name.len(), &self.name)
    }

    /// The bytes of its entry.
    fn entry_bytes(&self) -> usize {
        padded(ENTRY + self.name.len())
    }

    /// As system calls have it. None: nobody knows such names.
    fn full_name(&self) -> Result<Option<Vec<u8>>> {
        let Some((_, prefix)) = PREFIXES.iter().find(|(index, _)| *index == self.index) else { return Ok(None) };
        let mut name = copied(prefix)?;
        name.try_reserve_exact(self.name.len()).map_err(|_| Error::NoMemory)?;
        name.extend_from_slice(&self.name);
        Ok(Some(name))
    }

    /// The hash of an entry in a block: of the name, and of the value with its padding.
    fn hash(&self) -> u32 {
        let name = self.name.iter().fold(0u32, |hash, byte| hash.rotate_left(5) ^ u32::from(*byte));
        self.value.chunks(4).fold(name, |hash, chunk| {
            let mut word = [0; 4];
            word[..chunk.len()].copy_from_slice(chunk);
            hash.rotate_left(16) ^ u32::from_le_bytes(word)
        })
    }
}

/// The table in `bytes`, whose entries begin at `first` and whose values are counted from `base`.
fn parse(bytes: &[u8], first: usize, base: usize) -> Result<Vec<Attribute>> {
    const WHAT: Error = Error::Corrupt("a table of attributes");
    let mut attributes = Vec::new();
    let (mut at, mut room) = (first, bytes.len());
    loop {
        let head = bytes.get(at..at + 4).ok_or(WHAT)?;
        if head == [0; 4] {
            return Ok(attributes);
        }
        let entry = bytes.get(at..at + ENTRY).ok_or(WHAT)?;
        let (name_bytes, index) = (usize::from(entry[0]), entry[1]);
        let (offset, inode, value_bytes) = (u16_at(entry, 2), u32_at(entry, 4), u32_at(entry, 8) as usize);
        if inode != 0 {
            return Err(Error::Unsupported("an attribute in an inode of its own"));
        }
        let name = bytes.get(at + ENTRY..at + ENTRY + name_bytes).ok_or(WHAT)?;
        let start = base + usize::from(offset);
        let end = start.checked_add(value_bytes).ok_or(WHAT)?;
        let value = if value_bytes == 0 { &[][..] } else { bytes.get(start..end).ok_or(WHAT)? };
        // Values that lie over each other would need more memory than the table has bytes.
        room = room.checked_sub(value_bytes).ok_or(WHAT)?;
        attributes.try_reserve(1).map_err(|_| Error::NoMemory)?;
        attributes.push(Attribute { index, name: copied(name)?, value: copied(value)? });
        at += padded(ENTRY + name_bytes);
    }
}

/// Whether a table of so many bytes, without what is in front of the entries, has room for them.
fn fits(attributes: &[Attribute], room: usize) -> bool {
    let bytes = attributes.iter().map(|attribute| attribute.entry_bytes() + padded(attribute.value.len()));
    bytes.sum::<usize>() + 4 <= room
}

/// Writes a table that [`fits`] from `first` to the end of `bytes`.
fn store(bytes: &mut [u8], attributes: &[Attribute], first: usize, base: usize, hashed: bool) {
    bytes[first..].fill(0);
    let (mut at, mut end) = (first, bytes.len());
    for attribute in attributes {
        let value = &attribute.value;
        end -= padded(value.len());
        bytes[end..end + value.len()].copy_from_slice(value);
        bytes[at] = attribute.name.len() as u8;
        bytes[at + 1] = attribute.index;
        put_u16(bytes, at + 2, if value.is_empty() { 0 } else { (end - base) as u16 });
        put_u32(bytes, at + 8, value.len() as u32);
        put_u32(bytes, at + 12, if hashed { attribute.hash() } else { 0 });
        bytes[at + ENTRY..at + ENTRY + attribute.name.len()].copy_from_slice(&attribute.name);
        at += attribute.entry_bytes();
    }
}

/// The hash in the header of a block; 0: no other inode may use the block.
fn table_hash(attributes: &[Attribute]) -> u32 {
    attributes
        .iter()
        .map(Attribute::hash)
        .try_fold(0u32, |hash, entry| (entry != 0).then(|| hash.rotate_left(16) ^ entry))
        .unwrap_or(0)
}

/// The sum that a block should have.
fn block_sum(seed: u32, block: u64, bytes: &[u8]) -> u32 {
    sum(seed, &[&block.to_le_bytes(), &bytes[..SUM], &[0; 4], &bytes[SUM + 4..]])
}

/// Tags of entries of ACLs that name a user or a group: only these have an id on the disk.
const NAMED: [u16; 2] = [0x2, 0x8];
const NOBODY: u32 = u32::MAX;

/// An ACL as it is on the disk (version 1), of one of the system calls (version 2).
fn acl_to_disk(value: &[u8]) -> Result<Vec<u8>> {
    const WHAT: Error = Error::Unsupported("an ACL");
    let entries = match value.split_first_chunk() {
        Some((version, entries)) if u32::from_le_bytes(*version) == 2 && entries.len().is_multiple_of(8) => entries,
        _ => return Err(WHAT),
    };
    let mut disk = Vec::new();
    disk.try_reserve_exact(value.len()).map_err(|_| Error::NoMemory)?;
    disk.extend_from_slice(&1u32.to_le_bytes());
    for entry in entries.chunks_exact(8) {
        let bytes = if NAMED.contains(&u16_at(entry, 0)) { 8 } else { 4 };
        disk.extend_from_slice(&entry[..bytes]);
    }
    Ok(disk)
}

/// The other way round.
fn acl_from_disk(disk: &[u8]) -> Result<Vec<u8>> {
    const WHAT: Error = Error::Corrupt("an ACL");
    let mut entries = match disk.split_first_chunk() {
        Some((version, entries)) if u32::from_le_bytes(*version) == 1 => entries,
        _ => return Err(WHAT),
    };
    let mut value = Vec::new();
    value.try_reserve_exact(2 * disk.len()).map_err(|_| Error::NoMemory)?;
    value.extend_from_slice(&2u32.to_le_bytes());
    while !entries.is_empty() {
        let has_id = NAMED.contains(&u16_at(entries, 0));
        let (entry, rest) = entries.split_at_checked(if has_id { 8 } else { 4 }).ok_or(WHAT)?;
        value.extend_from_slice(&entry[..4]);
        value.extend_from_slice(&if has_id { u32_at(entry, 4) } else { NOBODY }.to_le_bytes());
        entries = rest;
    }
    Ok(value)
}

impl Handle<'_> {
    /// Where attributes begin in the bytes of an inode; None: there is no room for any.
    fn inode_table(&self, bytes: &[u8]) -> Result<Option<usize>> {
        let extra = usize::from(u16_at(bytes, 0x80)) * usize::from(bytes.len() > 128);
        let at = 128 + extra;
        match extra {
            0 => Ok(None),
            _ if !extra.is_multiple_of(4) || at > bytes.len() => Err(Error::Corrupt("an inode's size")),
            // The magic number, and an end.
            _ => Ok((at + 8 <= bytes.len()).then_some(at)),
        }
    }

    /// The attributes in the inode itself, and where they begin there.
    fn in_inode(&self, inode: &Inode) -> Result<(Vec<Attribute>, Option<usize>)> {
        let bytes = self.inode_bytes_read(inode.number)?;
        match self.inode_table(bytes)? {
            Some(at) if u32_at(bytes, at) == MAGIC => Ok((parse(bytes, at + 4, at + 4)?, Some(at))),
            place => Ok((Vec::new(), place)),
        }
    }

    /// The bytes of the block of attributes that an inode has.
    fn attribute_block(&self, block: u64) -> Result<&[u8]> {
        let seed = self.superblock().seed;
        let holds = |bytes: &[u8]| {
            let sound = seed.is_none_or(|seed| block_sum(seed, block, bytes) == u32_at(bytes, SUM));
            sound && u32_at(bytes, 0) == MAGIC && u32_at(bytes, BLOCKS) == 1
        };
        let bytes = self.checked(block, "a block of attributes", holds)?;
        match u32_at(bytes, REFERENCES) {
            1..=MOST_REFERENCES => Ok(bytes),
            _ => Err(Error::Corrupt("the references to a block of attributes")),
        }
    }

    fn in_block(&self, inode: &Inode) -> Result<Vec<Attribute>> {
        match inode.attributes {
            0 => Ok(Vec::new()),
            block => parse(self.attribute_block(block)?, HEADER, 0),
        }
    }

    /// The value of an attribute; None: the inode has none of that name. ACLs are as in system calls.
    pub(crate) fn attribute(&self, inode: &Inode, name: &[u8]) -> Result<Option<Vec<u8>>> {
        let name = split_name(name)?;
        let mut found = self.in_inode(inode)?.0.into_iter().find(|attribute| attribute.is(name));
        if found.is_none() {
            found = self.in_block(inode)?.into_iter().find(|attribute| attribute.is(name));
        }
        match found {
            Some(acl) if matches!(acl.index, ACL_ACCESS | ACL_DEFAULT) => acl_from_disk(&acl.value).map(Some),
            found => Ok(found.map(|attribute| attribute.value)),
        }
    }

    /// The names of all attributes, also of ACLs and `trusted.`, in the order of the disk.
    pub(crate) fn attributes(&self, inode: &Inode) -> Result<Vec<Vec<u8>>> {
        let mut names = Vec::new();
        for attribute in self.in_inode(inode)?.0.iter().chain(&self.in_block(inode)?) {
            if let Some(name) = attribute.full_name()? {
                names.try_reserve(1).map_err(|_| Error::NoMemory)?;
                names.push(name);
            }
        }
        Ok(names)
    }

    /// Sets an attribute, or with None removes it, and stores the inode, with `time` as that of its change. False: `when` forbids it, or what is to be removed is missing; nothing has been changed.
    /// [`Error::NoSpace`]: it does not fit.
    pub(crate) fn set_attribute(
        &mut self,
        inode: &mut Inode,
        name: &[u8],
        value: Option<&[u8]>,
        when: SetWhen,
        time: Time,
    ) -> Result<bool> {
        let (index, rest) = split_name(name)?;
        let is_it = |attribute: &Attribute| attribute.is((index, rest));
        let (mut near, place) = self.in_inode(inode)?;
        let mut far = self.in_block(inode)?;
        let (was_near, was_far) = (near.iter().any(is_it), far.iter().any(is_it));
        let present = was_near || was_far;
        let forbidden = match when {
            SetWhen::Always => value.is_none() && !present,
            SetWhen::Missing => present,
            SetWhen::Present => !present,
        };
        if forbidden {
            return Ok(false);
        }
        let new = match value {
            Some(value) if matches!(index, ACL_ACCESS | ACL_DEFAULT) => Some(acl_to_disk(value)?),
            Some(value) => Some(copied(value)?),
            None => None,
        };
        far.retain(|attribute| !is_it(attribute));
        let kept = near.iter().position(is_it);
        near.retain(|attribute| !is_it(attribute));
        let (mut changes_near, mut changes_far) = (was_near, was_far);
        if let Some(value) = new {
            let attribute = Attribute { index, name: copied(rest)?, value };
            near.try_reserve(1).map_err(|_| Error::NoMemory)?;
            near.insert(kept.unwrap_or(near.len()), attribute);
            let room = place.map_or(0, |at| self.superblock().inode_bytes - at - 4);
            changes_near = true;
            if !fits(&near, room) {
                let attribute = near.remove(kept.unwrap_or(near.len() - 1));
                changes_near = was_near;
                far.try_reserve(1).map_err(|_| Error::NoMemory)?;
                far.push(attribute);
                far.sort_by(|a, b| a.key().cmp(&b.key()));
                changes_far = true;
            }
            self.note_feature()?;
        }
        if changes_far {
            self.put_block(inode, &far)?;
        }
        if let (true, Some(at)) = (changes_near, place) {
            let bytes = self.inode_bytes(inode.number)?;
            put_u32(bytes, at, if near.is_empty() { 0 } else { MAGIC });
            store(bytes, &near, at + 4, at + 4, false);
        }
        inode.changed = time;
        self.put_inode(inode)?;
        Ok(true)
    }

    /// The block of attributes of an inode becomes that table: a block of its own, or none if the table is empty. The caller stores the inode.
    fn put_block(&mut self, inode: &mut Inode, attributes: &[Attribute]) -> Result<()> {
        if attributes.is_empty() {
            return self.drop_block(inode);
        }
        if !fits(attributes, self.block_bytes() - HEADER) {
            return Err(Error::NoSpace);
        }
        let mut block = inode.attributes;
        if block == 0 || u32_at(self.attribute_block(block)?, REFERENCES) > 1 {
            // First, for it may fail.
            let new = self.new_block(self.goal(inode.number))?;
            if block != 0 {
                self.drop_block(inode)?;
            }
            inode.attributes = new;
            inode.count_blocks(self.superblock(), 1);
            block = new;
        }
        let seed = self.superblock().seed;
        let bytes = self.edit(block)?;
        bytes[..HEADER].fill(0);
        put_u32(bytes, 0, MAGIC);
        put_u32(bytes, REFERENCES, 1);
        put_u32(bytes, BLOCKS, 1);
        store(bytes, attributes, HEADER, 0, true);
        put_u32(bytes, HASH, table_hash(attributes));
        seal(bytes, seed, block);
        Ok(())
    }

    /// An inode uses its block of attributes no more: the last one that does frees it. The caller stores the inode.
    fn drop_block(&mut self, inode: &mut Inode) -> Result<()> {
        let block = inode.attributes;
        if block == 0 {
            return Ok(());
        }
        match u32_at(self.attribute_block(block)?, REFERENCES) {
            1 => self.free_metadata(block)?,
            references => {
                let seed = self.superblock().seed;
                let bytes = self.edit(block)?;
                put_u32(bytes, REFERENCES, references - 1);
                seal(bytes, seed, block);
            }
        }
        inode.attributes = 0;
        inode.count_blocks(self.superblock(), -1);
        Ok(())
    }

    /// Gives up the block of attributes of an inode that is being deleted. The caller stores the inode; attributes in it end with it.
    pub(crate) fn free_attributes(&mut self, inode: &mut Inode) -> Result<()> {
        self.drop_block(inode)
    }

    /// The superblock says that there are attributes.
    fn note_feature(&mut self) -> Result<()> {
        let (block, at) = self.superblock().place();
        let (field, feature) = FEATURE;
        let features = u32_at(self.read(block)?, at + field);
        match features & feature {
            0 => self.change_superblock(|bytes| put_u32(bytes, field, features | feature)),
            _ => Ok(()),
        }
    }
}

/// Computes the sum of a block anew.
pub(crate) fn seal(bytes: &mut [u8], seed: Option<u32>, block: u64) {
    if let Some(seed) = seed {
        let computed = block_sum(seed, block, bytes);
        put_u32(bytes, SUM, computed);
    }
}

impl<D: Device> Volume<D> {
    /// The value of an attribute; None: the inode has none of that name. ACLs are as in system calls. [`Error::Unsupported`]: no attribute is called so. [`Error::Gone`]: the inode is not in use.
    pub async fn attribute(&self, number: u32, name: &[u8]) -> Result<Option<Vec<u8>>> {
        self.run(|handle| handle.attribute(&handle.inode_if_used(number)?.ok_or(Error::Gone)?, name)).await
    }

    /// The names of all attributes. [`Error::Gone`]: the inode is not in use.
    pub async fn attributes(&self, number: u32) -> Result<Vec<Vec<u8>>> {
        self.run(|handle| handle.attributes(&handle.inode_if_used(number)?.ok_or(Error::Gone)?)).await
    }

    /// Sets an attribute, or with None removes it; `change` changes what else of the inode goes with that (a new ACL brings a new mode). False: `when` forbids it, or what is to be removed is
    /// missing; nothing has been changed. [`Error::NoSpace`]: it does not fit.
    pub async fn set_attribute(
        &self,
        number: u32,
        name: &[u8],
        value: Option<&[u8]>,
        when: SetWhen,
        time: Time,
        change: impl Fn(&mut Inode),
    ) -> Result<bool> {
        self.run(|handle| {
            if value.is_some() {
                handle.core().check_room_for_names()?;
            }
            let mut inode = handle.any_inode(number)?;
            change(&mut inode);
            handle.set_attribute(&mut inode, name, value, when, time)
        })
        .await
    }
}
