//! A file system: all of it together.

use crate::{
    bytes::{joined, sum, u16_at, u32_at},
    inode::FileType,
    superblock, Device, Error, Inode, Result, Superblock,
};
use alloc::{sync::Arc, vec::Vec};

/// The number of the topmost directory.
const ROOT: u32 = 2;

/// A file system on a device.
pub struct Volume<D> {
    device: D,
    superblock: Superblock,
}

impl<D: Device> Volume<D> {
    /// `superblock`: bytes 1024 to 2047 of the device, which reads blocks of the size that they say.
    pub fn new(device: D, superblock: Superblock) -> Volume<D> {
        Volume { device, superblock }
    }

    /// What the superblock says.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Where it is read.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// The topmost directory.
    pub async fn root(&self) -> Result<Inode> {
        let root = self.inode(ROOT).await?.ok_or(Error::Corrupt("no root"))?;
        match root.file_type()? {
            FileType::Directory => Ok(root),
            _ => Err(Error::Corrupt("the root is no directory")),
        }
    }

    pub(crate) async fn block(&self, block: u64) -> Result<Arc<[u8]>> {
        if block >= self.superblock.blocks {
            return Err(Error::Corrupt("a block past the end"));
        }
        let bytes = self.device.read(block).await?;
        if bytes.len() == self.superblock.block_bytes as usize {
            Ok(bytes)
        } else {
            Err(Error::Io)
        }
    }

    /// An inode. None: it is not in use.
    pub async fn inode(&self, number: u32) -> Result<Option<Inode>> {
        let superblock = &self.superblock;
        if number == 0 || number > superblock.inodes {
            return Err(Error::Corrupt("the number of an inode"));
        }
        let group = (number - 1) / superblock.inodes_per_group;
        let index = u64::from((number - 1) % superblock.inodes_per_group);
        let table = self.inode_table(group).await?;
        let at = index * superblock.inode_bytes as u64;
        let block = u64::from(superblock.block_bytes);
        let bytes = self.block(table + at / block).await?;
        let from = (at % block) as usize;
        Inode::parse(superblock, number, &bytes[from..from + superblock.inode_bytes])
    }

    /// The first block of a group's table of inodes.
    async fn inode_table(&self, group: u32) -> Result<u64> {
        let superblock = &self.superblock;
        if u64::from(group) >= superblock.groups() {
            return Err(Error::Corrupt("the number of a group"));
        }
        let bytes = superblock.descriptor_bytes as u64;
        let at = u64::from(group) * bytes;
        let block = u64::from(superblock.block_bytes);
        let descriptors = self.block(u64::from(superblock.first_block) + 1 + at / block).await?;
        let descriptor = &descriptors[(at % block) as usize..][..bytes as usize];
        if let Some(seed) = superblock.seed {
            let mut copy = descriptor.to_vec();
            copy[0x1e..0x20].fill(0);
            if sum(seed, &[&group.to_le_bytes(), &copy]) as u16 != u16_at(descriptor, 0x1e) {
                return Err(Error::Corrupt("the sum of a group"));
            }
        }
        Ok(joined(u32_at(descriptor, 0x8), u32_at(descriptor, 0x28)))
    }

    /// Where a symbolic link leads.
    pub async fn link(&self, inode: &Inode) -> Result<Vec<u8>> {
        let bytes = usize::try_from(inode.size).unwrap_or(usize::MAX);
        if inode.file_type()? != FileType::Symlink || bytes > self.superblock.block_bytes as usize {
            return Err(Error::Corrupt("a symbolic link"));
        }
        if bytes < inode.root.len() && !inode.has_extents() {
            return Ok(inode.root[..bytes].to_vec());
        }
        let place = self.map(inode, 0).await?.place.ok_or(Error::Corrupt("a symbolic link"))?;
        Ok(self.block(place).await?[..bytes].to_vec())
    }
}

/// Where a device has the superblock.
impl Superblock {
    /// Byte of the device, and how many.
    pub const PLACE: (usize, usize) = (superblock::AT, superblock::BYTES);
}
