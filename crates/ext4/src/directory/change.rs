//! Adding, removing and changing a name. The caller keeps others from changing the directory, and stores its inode afterwards.

use super::{find, needed, pack, NewEntry, HEADER, LONGEST};
use crate::{
    bytes::{put_u16, put_u32},
    extents::Extent,
    handle::Handle,
    inode::INDEX,
    Error, FileType, Inode, Result,
};

/// The block of a directory behind the last one that an index can name.
const MOST_BLOCKS: u32 = 1 << 28;

impl Handle<'_> {
    /// Gives block `number` of a directory, which has none, a place. The block is all zero, and its caller makes a block of entries or of an index of it.
    fn place_directory_block(&mut self, directory: &mut Inode, number: u32) -> Result<()> {
        let before = match number.checked_sub(1) {
            Some(before) => self.directory_place(directory, before)?,
            None => None,
        };
        let goal = before.map_or_else(|| self.goal(directory.number), |before| before + 1);
        let place = self.new_block(goal)?;
        directory.count_blocks(self.superblock(), 1);
        self.add_extent(directory, Extent { block: number, blocks: 1, place, written: true })
    }

    /// The same at the end of a directory, which grows by the block. Answers its number.
    pub(super) fn append_directory_block(&mut self, directory: &mut Inode) -> Result<u32> {
        let number = self.directory_blocks(directory)?;
        if number >= MOST_BLOCKS {
            return Err(Error::NoSpace);
        }
        self.place_directory_block(directory, number)?;
        directory.size = u64::from(number + 1) * u64::from(self.superblock().block_bytes);
        Ok(number)
    }

    fn insert_name(&mut self, directory: &Inode, number: u32, entry: &NewEntry<'_>) -> Result<bool> {
        self.change_entries(directory, number, |block, end| entry.insert(block, end))
    }

    /// Makes a block of entries with nothing in it.
    fn clear_entries(&mut self, directory: &Inode, number: u32) -> Result<()> {
        let end = self.body_bytes();
        self.change_directory_block(directory, number, |block| pack(block, end, []))
    }

    /// Adds a name that the directory does not have. `hint`: a block with room for it ([`crate::Volume::find_room`]), in a directory without an index; None: only the last block may have
    /// room.
    pub(crate) fn add_name(
        &mut self,
        directory: &mut Inode,
        name: &[u8],
        inode: u32,
        file_type: FileType,
        hint: Option<u32>,
    ) -> Result<()> {
        if name.is_empty() || name.len() > LONGEST {
            return Err(Error::TooLarge);
        }
        let entry = NewEntry { inode, kind: self.kind(file_type), name };
        if directory.flags & INDEX != 0 {
            if let Some(hasher) = self.index_hasher(directory)? {
                return self.add_indexed(directory, &hasher, &entry);
            }
            // Whoever adds a name without the index must give the index up; its blocks have sums that do not fit blocks of entries.
            if self.superblock().seed.is_some() || self.superblock().indexes_directories() {
                return Err(Error::Unsupported("the hash function of a directory"));
            }
            directory.flags &= !INDEX;
        }
        let blocks = self.directory_blocks(directory)?;
        let last = blocks.checked_sub(1).ok_or(Error::Corrupt("a directory without blocks"))?;
        let number = hint.filter(|hint| *hint < blocks).unwrap_or(last);
        if self.directory_place(directory, number)?.is_none() {
            self.place_directory_block(directory, number)?;
            self.clear_entries(directory, number)?;
        }
        if self.insert_name(directory, number, &entry)? {
            return Ok(());
        }
        if let Some(hasher) = self.default_hasher().filter(|_| blocks == 1) {
            self.make_index(directory, &hasher)?;
            return self.add_indexed(directory, &hasher, &entry);
        }
        let number = self.append_directory_block(directory)?;
        self.clear_entries(directory, number)?;
        match self.insert_name(directory, number, &entry)? {
            true => Ok(()),
            false => Err(Error::Corrupt("a name larger than a block")),
        }
    }

    /// Removes a name, and answers to which inode it led. `number`: the block that has it, as a lookup has found it.
    pub(crate) fn remove_name(&mut self, directory: &Inode, name: &[u8], number: u32) -> Result<u32> {
        self.change_entries(directory, number, |block, end| {
            let (slot, before) = find(&block[..end], name)?.ok_or(Error::Corrupt("a name that is gone"))?;
            let (at, length, inode) = (slot.at, slot.length, slot.inode);
            match before.map(|before| (before.at, before.length)) {
                Some((before, more)) => {
                    block[at..at + length].fill(0);
                    put_u16(block, before + 4, (more + length) as u16);
                }
                None => {
                    put_u32(block, at, 0);
                    block[at + 6..at + length].fill(0);
                }
            }
            Ok(inode)
        })
    }

    /// Lets a name lead to another inode, and answers to which one it led. `number`: the block that has it.
    pub(crate) fn change_name(
        &mut self,
        directory: &Inode,
        name: &[u8],
        number: u32,
        inode: u32,
        file_type: FileType,
    ) -> Result<u32> {
        let kind = self.kind(file_type);
        let end = self.body_bytes();
        // `..` may be in the root of an index, which has no tail.
        self.change_directory_block(directory, number, |block| {
            let end = if super::has_tail(block) { end } else { block.len() };
            let (slot, _) = find(&block[..end], name)?.ok_or(Error::Corrupt("a name that is gone"))?;
            let (at, before) = (slot.at, slot.inode);
            put_u32(block, at, inode);
            block[at + HEADER - 1] = kind;
            Ok(before)
        })
    }

    /// A directory moves below another one: so does its `..`.
    pub(crate) fn set_parent(&mut self, directory: &Inode, parent: u32) -> Result<()> {
        self.change_name(directory, b"..", 0, parent, FileType::Directory).map(|_| ())
    }

    /// Gives a new directory its first block, with `.` and `..`.
    pub(crate) fn make_directory_block(&mut self, directory: &mut Inode, parent: u32) -> Result<()> {
        let number = self.append_directory_block(directory)?;
        let kind = self.kind(FileType::Directory);
        let itself = directory.number;
        let end = self.body_bytes();
        self.change_directory_block(directory, number, |block| {
            pack(block, end, [])?;
            NewEntry { inode: itself, kind, name: b"." }.store(block, 0, needed(1));
            NewEntry { inode: parent, kind, name: b".." }.store(block, needed(1), end - needed(1));
            Ok(())
        })
    }
}
