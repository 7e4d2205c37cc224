//! File systems of ext4 on a disk. What is where crate `ext4` says; here are inodes and their page caches; mounter.rs mounts them.
//!
//! Blocks go between the disk and memory past the page cache of the disk: those of metadata into the memory of crate `ext4`, those of files into the pages of the file. What a program has
//! written to the disk itself must be there before: a mount writes it back first, as Linux does.

mod content;
mod disk;
mod group_commit;
mod mounter;
mod names;
mod node;
mod ranges;
mod rights;
mod size;

use crate::{
    block::{Hold, Volume},
    lease::Sharers,
    FileSystem, FileSystemInfo, Inode, PageCache, Services,
};
use alloc::{
    boxed::Box,
    collections::BTreeMap,
    format,
    sync::{Arc, Weak},
    vec::Vec,
};
use content::Content;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::SeqCst};
use disk::Blocks;
use ext4::Error;
use group_commit::Syncs;
use machine::{
    errno::Result,
    join_all,
    sync::{Lock, WaitQueue},
    to_completion, BoxFuture, Errno,
};
pub use mounter::Ext4Mounter;
use node::Node;

/// EXT4_SUPER_MAGIC.
const MAGIC: u64 = 0xef53;
/// How long (ns) a change may wait for its commit, if nobody asks for it (mount option commit=5).
const COMMIT: u64 = 5_000_000_000;

/// Files that are written back at the same time.
const FILES_AT_ONCE: usize = 64;

/// What a program is told.
fn errno(error: Error) -> Errno {
    match error {
        Error::Io => Errno::EIO,
        // The log has it from the disk (disk.rs).
        Error::Corrupt(_) => Errno::EUCLEAN,
        Error::Unsupported(_) => Errno::EOPNOTSUPP,
        Error::NoSpace | Error::Full => Errno::ENOSPC,
        Error::NoMemory => Errno::ENOMEM,
        Error::ReadOnly => Errno::EROFS,
        Error::Gone => Errno::ENOENT,
        Error::NotEmpty => Errno::ENOTEMPTY,
        Error::TooManyLinks => Errno::EMLINK,
        Error::TooLarge => Errno::EFBIG,
        Error::Missing(_) | Error::MissingOf { .. } => Errno::EIO,
    }
}

/// The page cache of a file, and what lies below.
type Contents = (Weak<PageCache>, Weak<Content>);

/// A cache that is there keeps what lies below: so nothing ends here, under the lock that it would want.
fn both((cache, content): &Contents) -> Option<(Arc<PageCache>, Arc<Content>)> {
    let cache = cache.upgrade()?;
    Some((cache, content.upgrade()?))
}

/// What all inodes of a file system have.
struct Shared {
    volume: Arc<ext4::Volume<Blocks>>,
    services: Arc<Services>,
    nodes: Lock<BTreeMap<u32, Weak<Node>>>,
    /// Contents of files, which outlive their nodes as long as they are dirty.
    contents: Lock<BTreeMap<u32, Contents>>,
    /// Tasks that remove files which nobody has any more.
    releasing: AtomicUsize,
    released: WaitQueue,
    /// Itself, while a task waits to commit what has changed: so that this happens also if it is mounted nowhere any more.
    uncommitted: Lock<Option<Arc<Shared>>>,
    syncs: Syncs,
    /// How often it is mounted.
    mounts: AtomicUsize,
    /// The disk is in use until it is not mounted any more.
    hold: Lock<Option<Hold>>,
    this: Weak<Shared>,
}

impl Shared {
    fn disk(&self) -> &Arc<Volume> {
        &self.volume.device().disk
    }

    /// EROFS: there was an error, after which nothing is written.
    fn check_goes_on(&self) -> Result<()> {
        match self.volume.device().has_stopped() {
            true => Err(Errno::EROFS),
            false => Ok(()),
        }
    }

    /// What a program is told of an error that was found outside of an operation.
    fn met(&self, error: Error) -> Errno {
        if let Error::Corrupt(what) = error {
            self.volume.note_damage(what);
        }
        errno(error)
    }

    /// The node of an inode, if somebody has it.
    fn known(&self, number: u32) -> Option<Arc<Node>> {
        self.nodes.lock().get(&number).and_then(Weak::upgrade)
    }

    /// The node of an inode, the same for all who know it. ENOENT: it had a name, and has lost it meanwhile.
    async fn node(&self, inode: &ext4::Inode) -> Result<Arc<Node>> {
        let (number, is_named) = (inode.number, inode.links > 0);
        let shared = self.this.upgrade().ok_or(Errno::EIO)?;
        let mut inode = inode.clone();
        loop {
            if let Some(node) = self.known(number) {
                return Ok(node);
            }
            let rights = rights::rights(self, number).await?;
            let is_file = inode.file_type().map_err(|error| self.met(error))? == ext4::FileType::Regular;
            let contents = if is_file { shared.contents(number) } else { None };
            {
                let mut nodes = self.nodes.lock();
                if let Some(node) = nodes.get(&number).and_then(Weak::upgrade) {
                    // What is dropped last may want the lock.
                    drop(nodes);
                    drop(contents);
                    return Ok(node);
                }
                // Whoever takes the last name away has the node: from here on that is this one.
                if is_file == contents.is_some() && self.volume.inode_now(number).as_ref() == Some(&inode) {
                    let node = Node::new(&shared, &inode, rights, contents)?;
                    nodes.insert(number, Arc::downgrade(&node));
                    return Ok(node);
                }
            }
            // It has changed, or is not in memory any more.
            inode = match is_named {
                true => self.volume.inode(number).await.map_err(errno)?.ok_or(Errno::ENOENT)?,
                // Kept by who has just made it.
                false => self.volume.any_inode(number).await.map_err(errno)?,
            };
        }
    }

    /// The contents of a file, the same for all nodes that it has one after the other. None: the inode is not in memory, and says how long the file is.
    fn contents(self: &Arc<Self>, number: u32) -> Option<(Arc<PageCache>, Arc<Content>)> {
        let mut contents = self.contents.lock();
        // The inode may have been that of a file which went, and of whose contents somebody still has a count.
        let known = contents.get(&number).and_then(both).filter(|(_, content)| content.check_here().is_ok());
        if known.is_some() {
            return known;
        }
        // Now, for those that have just ended may have made it longer.
        let size = self.volume.inode_now(number)?.size;
        let (cache, content) = Content::new(self, number, size);
        contents.insert(number, (Arc::downgrade(&cache), Arc::downgrade(&content)));
        Some((cache, content))
    }

    /// They have ended.
    fn forget_contents(&self, number: u32) {
        let mut contents = self.contents.lock();
        if contents.get(&number).is_some_and(|(_, content)| content.strong_count() == 0) {
            contents.remove(&number);
        }
    }

    /// A node has ended.
    fn forget(&self, number: u32) {
        let mut nodes = self.nodes.lock();
        if nodes.get(&number).is_some_and(|node| node.strong_count() == 0) {
            nodes.remove(&number);
        }
    }

    /// Something has changed: it is committed within [`COMMIT`].
    fn changed(&self) {
        {
            let mut uncommitted = self.uncommitted.lock();
            if uncommitted.is_some() || self.volume.is_read_only() {
                return;
            }
            *uncommitted = self.this.upgrade();
        }
        let (services, this) = (self.services.clone(), self.this.clone());
        services.clone().spawner.spawn(Box::pin(async move {
            if let Some(wait) = services.clock.at(services.clock.monotonic() + COMMIT) {
                wait.await;
            }
            let Some(shared) = this.upgrade() else { return };
            let _kept = shared.uncommitted.lock().take();
            // Who asks for his data to stay hears of errors himself.
            let _ = shared.volume.commit().await;
        }));
    }

    /// What the disk says of the size of a file; 0: not known without reading.
    fn size_on_disk(&self, number: u32) -> u64 {
        self.volume.inode_now(number).map_or(0, |inode| inode.size)
    }

    async fn size(&self, number: u32) -> Result<u64> {
        Ok(self.volume.any_inode(number).await.map_err(errno)?.size)
    }

    /// Files get the blocks that they have reserved, and what was freed can be used.
    async fn make_room(&self) -> Result<()> {
        // Their errors are theirs.
        let _ = self.write_back().await;
        self.volume.commit().await.map_err(errno)
    }

    /// Writes dirty pages of all files, of several at once: what lies together on the disk is written by one request. The first error, if there is one; the others are written all the same.
    async fn write_back(&self) -> Result<()> {
        let Some(shared) = self.this.upgrade() else { return Ok(()) };
        let work = async move {
            let contents: Vec<_> = shared.contents.lock().values().filter_map(both).collect();
            let mut result = Ok(());
            for some in contents.chunks(FILES_AT_ONCE) {
                let write = |(cache, content): &'_ (Arc<PageCache>, Arc<Content>)| -> BoxFuture<'_, _> {
                    let (cache, content) = (cache.clone(), content.clone());
                    Box::pin(async move { content.write_back_in_task(&cache).await })
                };
                let all = join_all(some.iter().map(write).collect());
                for written in shared.disk().queue().plugged(all).await {
                    match written {
                        Ok(()) | Err(Errno::EROFS) => {}
                        Err(error) => log::error!("ext4: writing back: {error:?}"),
                    }
                    result = result.and(written);
                }
            }
            result
        };
        to_completion(&*self.services.spawner, work).await
    }

    async fn sync(&self) -> Result<()> {
        self.check_goes_on()?;
        if self.volume.is_read_only() {
            return Ok(());
        }
        let written = self.write_back().await;
        let committed = self.volume.commit().await.map_err(errno);
        written.and(committed)?;
        self.disk().flush().await
    }

    /// Whether somebody has a file open to write it, or one that goes when he closes it.
    fn has_writers(&self) -> bool {
        let nodes: Vec<_> = self.nodes.lock().values().filter_map(Weak::upgrade).collect();
        nodes.iter().any(|node| node.is_unlinked() || node.sharers().is_some_and(Sharers::is_written))
    }

    /// It is mounted once less. The last time leaves the disk as one that was unmounted, and to others.
    async fn unmount(&self) -> Result<()> {
        if self.mounts.fetch_sub(1, SeqCst) > 1 {
            return Ok(());
        }
        let closed = self.close().await;
        // The disk may be another's afterwards: nothing is written to it any more.
        self.give_up().await;
        self.volume.device().has_told().await;
        // What closing has found. If that can't be, the log says so.
        let _ = self.save_errors().await;
        let hold = self.hold.lock().take();
        if let Some(hold) = hold {
            hold.release().await;
        }
        closed
    }

    /// Makes the superblock tell of the errors that were found, within [`COMMIT`].
    async fn save_errors(&self) -> Result<()> {
        if !self.volume.has_unsaved_errors() {
            return Ok(());
        }
        let now = self.services.clock.realtime().seconds as u32;
        match self.volume.save_errors(now).await {
            Ok(()) => {
                self.changed();
                Ok(())
            }
            Err(error) => {
                if self.volume.device().is_told() {
                    let disk = self.disk().name();
                    log::error!("EXT4-fs ({disk}): its superblock does not tell of errors: {error:?}");
                }
                Err(errno(error))
            }
        }
    }

    /// What could not be written never will be.
    async fn give_up(&self) {
        let contents: Vec<_> = self.contents.lock().values().filter_map(both).collect();
        for (cache, _) in contents.into_iter().filter(|(cache, _)| cache.has_dirty()) {
            self.services.write_back_never(&cache);
            cache.discard().await;
        }
    }

    /// Leaves the disk as one that was unmounted. Nothing can be changed any more.
    async fn close(&self) -> Result<()> {
        let _ = self.save_errors().await;
        if self.volume.is_read_only() {
            // Nothing is committed any more.
            let kept = self.uncommitted.lock().take();
            drop(kept);
            return Ok(());
        }
        let written = self.write_back().await;
        let releasing = || self.releasing.load(SeqCst) > 0;
        self.released.wait_until(|| (!releasing()).then_some(())).await;
        let now = self.services.clock.realtime().seconds as u32;
        let closed = self.volume.close(now).await.map_err(errno);
        let kept = self.uncommitted.lock().take();
        drop(kept);
        written.and(closed)
    }

    fn info(&self) -> FileSystemInfo {
        let superblock = self.volume.superblock();
        let id = u64::from_le_bytes(*superblock.uuid.first_chunk().expect("16 bytes"));
        let (free, inodes) = self.volume.free();
        FileSystemInfo {
            kind: MAGIC,
            block_size: superblock.block_bytes.into(),
            blocks: superblock.blocks.saturating_sub(superblock.overhead.into()),
            blocks_free: free,
            blocks_available: free.saturating_sub(superblock.reserved_blocks),
            files: superblock.inodes.into(),
            files_free: inodes.into(),
            id,
            name_max: 255,
            flags: 0,
            has_stopped: self.volume.device().has_stopped(),
        }
    }
}

/// A mounted one.
struct Ext4 {
    shared: Arc<Shared>,
    root: Arc<Node>,
    closed: AtomicBool,
}

impl FileSystem for Ext4 {
    fn kind(&self) -> &'static str {
        "ext4"
    }

    fn root(&self) -> Arc<dyn Inode> {
        self.root.clone()
    }

    fn source(&self) -> Vec<u8> {
        format!("/dev/{}", self.shared.disk().name()).into_bytes()
    }

    fn sync(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.shared.sync())
    }

    fn nesting(&self) -> u32 {
        self.shared.disk().device().nesting()
    }

    fn remount(&self, read_only: bool) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let shared = &self.shared;
            match (shared.volume.is_read_only(), read_only) {
                (true, false) if shared.disk().device().limits().read_only => Err(Errno::EROFS),
                (true, false) => {
                    let now = shared.services.clock.realtime().seconds as u32;
                    shared.volume.open_for_writing(now).await.map_err(errno)
                }
                (false, true) if shared.has_writers() => Err(Errno::EBUSY),
                (false, true) => shared.close().await,
                _ => Ok(()),
            }
        })
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            match self.closed.swap(true, SeqCst) {
                true => Ok(()),
                false => self.shared.unmount().await,
            }
        })
    }
}

/// Of two transactions the later one must be committed: raises `known` to `new`, unless another has raised it further. (Their numbers go round, as jbd2's.)
fn raise(known: &AtomicU32, new: u32) {
    let _ = known.fetch_update(SeqCst, SeqCst, |old| (new.wrapping_sub(old) as i32 > 0).then_some(new));
}
