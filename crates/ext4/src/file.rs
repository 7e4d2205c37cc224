//! What operations do to one inode and its place in the table.

use crate::{
    group::{is_set, Bitmap},
    handle::Handle,
    inode::EXTENTS,
    volume::ROOT,
    Error, FileType, Inode, Result, Time,
};

/// Blocks of the table of inodes that are read at once.
const TABLE_AHEAD: u64 = 32;

/// What a new inode is to be.
#[derive(Clone, Debug)]
pub struct NewInode {
    /// Type and permissions, as stat(2) has them.
    pub mode: u16,
    /// Whose it is.
    pub uid: u32,
    /// Whose group's it is.
    pub gid: u32,
    /// Now.
    pub time: Time,
    /// Any number; another one for each inode.
    pub generation: u32,
    /// Major and minor number, if it is a device.
    pub device: (u32, u32),
}

impl Handle<'_> {
    /// Where in the tables an inode is: block, and byte there.
    fn inode_place(&self, number: u32) -> Result<(u64, usize)> {
        let superblock = self.superblock();
        if number == 0 || number > superblock.inodes {
            return Err(Error::Corrupt("the number of an inode"));
        }
        let group = self.group((number - 1) / superblock.inodes_per_group)?;
        let at = u64::from((number - 1) % superblock.inodes_per_group) * superblock.inode_bytes as u64;
        let block = u64::from(superblock.block_bytes);
        Ok((group.inode_table + at / block, (at % block) as usize))
    }

    /// The blocks of the table that are read together with that of an inode, as Linux does (inode_readahead_blks=32): those of an aligned window in which inodes have been used.
    fn table_window(&self, number: u32, block: u64) -> Result<Error> {
        let superblock = self.superblock();
        let group = self.group((number - 1) / superblock.inodes_per_group)?;
        let used =
            u64::from(superblock.inodes_per_group.saturating_sub(group.unused())) * superblock.inode_bytes as u64;
        let table = group.inode_table..group.inode_table + used.div_ceil(superblock.block_bytes.into());
        let start = block - block % TABLE_AHEAD;
        let window = start.max(table.start)..(start + TABLE_AHEAD).min(table.end).max(block + 1);
        Ok(Error::MissingOf { block, first: window.start, blocks: (window.end - window.start) as u32 })
    }

    /// Whether no other inode is in use that lies in the same block of the table.
    fn is_alone(&self, number: u32) -> Result<bool> {
        let superblock = self.superblock();
        let (group, index) = ((number - 1) / superblock.inodes_per_group, (number - 1) % superblock.inodes_per_group);
        let per_block = (superblock.block_bytes / superblock.inode_bytes as u32).max(1);
        let first = index - index % per_block;
        let bitmap = self.bitmap(group, Bitmap::Inodes)?;
        Ok((first..(first + per_block).min(superblock.inodes_per_group))
            .all(|other| other == index || !is_set(&bitmap, other as usize)))
    }

    /// The bytes of an inode that has just been taken. A block of the table in which no other one is in use need not be read: what else is in it is nobody's.
    fn new_inode_bytes(&mut self, number: u32) -> Result<&mut [u8]> {
        let (block, _) = self.inode_place(number)?;
        if !self.has(block) && self.is_alone(number)? {
            self.fresh(block)?;
        }
        self.inode_bytes(number)
    }

    /// An inode. None: it is not in use.
    pub(crate) fn inode(&self, number: u32) -> Result<Option<Inode>> {
        self.parse_inode(number, false)
    }

    /// The same, also one without a name.
    pub(crate) fn inode_if_used(&self, number: u32) -> Result<Option<Inode>> {
        self.parse_inode(number, true)
    }

    /// An inode that must be in use, also one without a name.
    pub(crate) fn any_inode(&self, number: u32) -> Result<Inode> {
        self.inode_if_used(number)?.ok_or(Error::Corrupt("an inode that is not in use"))
    }

    fn parse_inode(&self, number: u32, orphans: bool) -> Result<Option<Inode>> {
        let (block, at) = self.inode_place(number)?;
        let superblock = self.superblock();
        let bytes = match self.read(block) {
            Err(Error::Missing(block)) => return Err(self.table_window(number, block)?),
            bytes => &bytes?[at..at + superblock.inode_bytes],
        };
        Inode::parse(superblock, number, bytes, orphans)
    }

    /// Writes an inode to its place.
    pub(crate) fn put_inode(&mut self, inode: &Inode) -> Result<()> {
        let (block, at) = self.inode_place(inode.number)?;
        let superblock = self.superblock();
        inode.store(superblock, &mut self.edit(block)?[at..at + superblock.inode_bytes]);
        Ok(())
    }

    /// The bytes of an inode, to be changed; who does so computes the sum anew ([`Inode::seal`]).
    pub(crate) fn inode_bytes(&mut self, number: u32) -> Result<&mut [u8]> {
        let (block, at) = self.inode_place(number)?;
        let bytes = self.superblock().inode_bytes;
        Ok(&mut self.edit(block)?[at..at + bytes])
    }

    /// The same, to be looked at.
    pub(crate) fn inode_bytes_read(&self, number: u32) -> Result<&[u8]> {
        let (block, at) = self.inode_place(number)?;
        let bytes = self.superblock().inode_bytes;
        Ok(&self.read(block)?[at..at + bytes])
    }

    /// Makes an inode that has no name yet, with no blocks.
    pub(crate) fn make_inode(&mut self, parent: u32, new: &NewInode) -> Result<Inode> {
        let superblock = self.superblock();
        let is_directory = new.mode >> 12 == 4;
        let number = self.take_inode(parent, is_directory)?;
        let bytes = self.new_inode_bytes(number)?;
        bytes.fill(0);
        if bytes.len() > 128 {
            crate::bytes::put_u16(bytes, 0x80, superblock.extra.min(bytes.len() as u16 - 128));
        }
        let mut inode = Inode {
            number,
            mode: new.mode,
            uid: new.uid,
            gid: new.gid,
            size: 0,
            links: 1,
            sectors: 0,
            accessed: new.time,
            modified: new.time,
            changed: new.time,
            created: (superblock.inode_bytes > 128).then_some(new.time),
            flags: 0,
            generation: new.generation,
            deleted: 0,
            attributes: 0,
            root: [0; 60],
        };
        match inode.file_type()? {
            FileType::Regular | FileType::Directory | FileType::Symlink => {
                inode.flags |= EXTENTS;
                inode.root = crate::extents::EMPTY;
            }
            FileType::CharDevice | FileType::BlockDevice => inode.set_device(new.device),
            FileType::Fifo | FileType::Socket => {}
        }
        self.put_inode(&inode)?;
        Ok(inode)
    }

    /// The topmost directory.
    pub(crate) fn root(&self) -> Result<Inode> {
        let root = self.inode(ROOT)?.ok_or(Error::Corrupt("no root"))?;
        match root.file_type()? {
            FileType::Directory => Ok(root),
            _ => Err(Error::Corrupt("the root is no directory")),
        }
    }
}
