//! File systems of ext4 on a disk, to be read. What is where crate `ext4` says; here are inodes, their page caches, and mounting.
//!
//! Blocks of metadata are read through the page cache of the disk, blocks of files past it, straight into the pages of the file. So what a program has written to the disk itself must be there before: a mount writes it back
//! first, as Linux does.

mod node;

use crate::{
    block::{Disks, Volume},
    file::Destination,
    inode::Mounter,
    FileSystem, FileSystemInfo, Inode, Services,
};
use alloc::{
    boxed::Box,
    collections::BTreeMap,
    sync::{Arc, Weak},
};
use ext4::{Error, Superblock};
use machine::{collections::try_filled, errno::Result, sync::Lock, BoxFuture, Errno};
use node::Node;

/// EXT4_SUPER_MAGIC.
const MAGIC: u64 = 0xef53;

/// What a program is told.
fn errno(error: Error) -> Errno {
    match error {
        Error::Io => Errno::EIO,
        Error::Corrupt(what) => {
            log::error!("ext4: {what} can't be");
            Errno::EUCLEAN
        }
        Error::Unsupported(_) => Errno::EOPNOTSUPP,
    }
}

/// Blocks of the file system, out of the disk's page cache.
struct Blocks {
    disk: Arc<Volume>,
    bytes: usize,
}

impl ext4::Device for Blocks {
    async fn read(&self, block: u64) -> ext4::Result<Arc<[u8]>> {
        let mut bytes = try_filled(self.bytes, 0u8).map_err(|_| Error::Io)?;
        let read = self.disk.cache().read(Destination::Kernel(&mut bytes), block * self.bytes as u64).await;
        match read {
            Ok(read) if read == self.bytes => Ok(bytes.into()),
            _ => Err(Error::Io),
        }
    }
}

/// What all inodes of a file system have.
struct Shared {
    volume: ext4::Volume<Blocks>,
    services: Arc<Services>,
    nodes: Lock<BTreeMap<u32, Weak<Node>>>,
}

impl Shared {
    fn disk(&self) -> &Arc<Volume> {
        &self.volume.device().disk
    }

    /// The node of an inode, the same for all who know it.
    fn node(self: &Arc<Self>, inode: ext4::Inode) -> Result<Arc<Node>> {
        let mut nodes = self.nodes.lock();
        let number = inode.number;
        if let Some(node) = nodes.get(&number).and_then(Weak::upgrade) {
            return Ok(node);
        }
        // Those that nobody has any more go now and then.
        if nodes.len().is_power_of_two() {
            nodes.retain(|_, node| node.strong_count() > 0);
        }
        let node = Node::new(self, inode)?;
        nodes.insert(number, Arc::downgrade(&node));
        Ok(node)
    }

    fn info(&self) -> FileSystemInfo {
        let superblock = self.volume.superblock();
        let id = u64::from_le_bytes(*superblock.uuid.first_chunk().expect("16 bytes"));
        FileSystemInfo {
            kind: MAGIC,
            block_size: superblock.block_bytes.into(),
            blocks: superblock.blocks.saturating_sub(superblock.overhead.into()),
            blocks_free: superblock.free_blocks,
            blocks_available: superblock.free_blocks.saturating_sub(superblock.reserved_blocks),
            files: superblock.inodes.into(),
            files_free: superblock.free_inodes.into(),
            id,
            name_max: 255,
            flags: 0,
        }
    }
}

/// A mounted one.
struct Ext4 {
    root: Arc<Node>,
}

impl FileSystem for Ext4 {
    fn kind(&self) -> &'static str {
        "ext4"
    }

    fn root(&self) -> Arc<dyn Inode> {
        self.root.clone()
    }
}

/// `mount -t ext4 /dev/vda1 DIRECTORY`.
pub struct Ext4Mounter {
    pub services: Arc<Services>,
    pub disks: Arc<Disks>,
}

impl Ext4Mounter {
    async fn open(&self, source: &[u8], data: &[u8]) -> Result<Arc<dyn FileSystem>> {
        let name = source.strip_prefix(b"/dev/").ok_or(Errno::ENOTBLK)?;
        let disk = self.disks.list().into_iter().find(|disk| disk.name().as_bytes() == name).ok_or(Errno::ENOTBLK)?;
        // What programs have written to it.
        disk.sync().await?;
        let (at, bytes) = Superblock::PLACE;
        let mut superblock = [0; Superblock::PLACE.1];
        if disk.cache().read(Destination::Kernel(&mut superblock), at as u64).await? < bytes {
            return Err(Errno::EINVAL);
        }
        let superblock = Superblock::parse(&superblock).map_err(|error| match error {
            Error::Unsupported(what) => {
                log::warn!("ext4: {}: {what}", disk.name());
                Errno::EINVAL
            }
            error => errno(error),
        })?;
        if superblock.blocks.checked_mul(superblock.block_bytes.into()).is_none_or(|bytes| bytes > disk.bytes()) {
            log::warn!("ext4: {}: the file system is larger than the disk", disk.name());
            return Err(Errno::EINVAL);
        }
        let ignores_journal = data.split(|byte| *byte == b',').any(|word| matches!(word, b"noload" | b"norecovery"));
        if superblock.needs_recovery && !ignores_journal {
            log::warn!(
                "ext4: {}: it was not unmounted, and its journal can't be replayed here (-o noload: without it)",
                disk.name()
            );
            return Err(Errno::EUCLEAN);
        }
        let blocks = Blocks { disk, bytes: superblock.block_bytes as usize };
        let volume = ext4::Volume::new(blocks, superblock);
        let root = volume.root().await.map_err(errno)?;
        let shared = Arc::new(Shared { volume, services: self.services.clone(), nodes: Lock::default() });
        Ok(Arc::new(Ext4 { root: shared.node(root)? }))
    }
}

impl Mounter for Ext4Mounter {
    fn mount<'a>(&'a self, source: &'a [u8], data: &'a [u8]) -> BoxFuture<'a, Result<Arc<dyn FileSystem>>> {
        Box::pin(self.open(source, data))
    }
}
