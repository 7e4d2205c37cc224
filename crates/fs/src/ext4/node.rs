//! An inode of ext4. What is done with names is in names.rs, with rights and attributes in rights.rs, with the extent of a file in size.rs; its bytes are those of content.rs.

use super::{
    content::{self, Content},
    errno, raise, Shared,
};
use crate::{
    file::{ready, Destination, Source, Transfer},
    inode::{
        acl::{Acl, AclKind, Acls},
        listing::Listing,
        Attachment, Extent, Followed, NewNode, WriteAt,
    },
    lease::Sharers,
    locks::LockTable,
    Attributes, Caller, FileSystemInfo, Inode, Kind, Object, PageCache, ReadAhead, SetAttributes, Timestamp,
    WriteErrors,
};
use abi::SetWhen;
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::{
    any::Any,
    sync::atomic::{
        AtomicBool, AtomicU32, AtomicU64,
        Ordering::{Relaxed, SeqCst},
    },
};
use ext4::{FileType, Time};
use machine::{
    errno::Result,
    sync::{AsyncLock, Lock},
    BoxFuture, Errno, PAGE_SIZE,
};

pub struct Node {
    pub(super) shared: Arc<Shared>,
    pub(super) number: u32,
    pub(super) kind: Kind,
    pub(super) rdev: (u32, u32),
    /// Of a regular file: its pages, and what lies below.
    pub(super) contents: Option<(Arc<PageCache>, Arc<Content>)>,
    /// Of a directory: held by who changes its names.
    pub(super) names: AsyncLock<()>,
    /// How often that has begun and ended.
    pub(super) changes: AtomicU64,
    /// It has no name any more: it goes when nobody has it open.
    pub(super) unlinked: AtomicBool,
    /// A read since the last change has been noted (relatime).
    pub(super) read: AtomicBool,
    /// The last transaction that changed it.
    pub(super) transaction: AtomicU32,
    /// Lists of rights, and whether it has `security.capability`: asked for without waiting.
    pub(super) acls: Lock<Acls>,
    pub(super) has_capabilities: AtomicBool,
    pub(super) sharers: Sharers,
    pub(super) locks: LockTable,
    pub(super) attachment: Attachment,
}

pub(super) fn own(node: &Arc<dyn Inode>) -> Result<&Node> {
    (**node).as_any().downcast_ref().ok_or(Errno::EXDEV)
}

pub(super) fn time(time: Timestamp) -> Time {
    Time { seconds: time.seconds, nanoseconds: time.nanoseconds }
}

fn timestamp(time: Time) -> Timestamp {
    Timestamp { seconds: time.seconds, nanoseconds: time.nanoseconds }
}

impl Node {
    pub(super) fn new(
        shared: &Arc<Shared>,
        inode: &ext4::Inode,
        (acls, capabilities): (Acls, bool),
        contents: Option<(Arc<PageCache>, Arc<Content>)>,
    ) -> Result<Arc<Node>> {
        let kind = match inode.file_type().map_err(|error| shared.met(error))? {
            FileType::Fifo => Kind::Fifo,
            FileType::CharDevice => Kind::CharDevice,
            FileType::Directory => Kind::Directory,
            FileType::BlockDevice => Kind::BlockDevice,
            FileType::Regular => Kind::Regular,
            FileType::Symlink => Kind::Symlink,
            FileType::Socket => Kind::Socket,
        };
        let rdev = if matches!(kind, Kind::CharDevice | Kind::BlockDevice) { inode.device() } else { (0, 0) };
        Ok(Arc::new(Node {
            shared: shared.clone(),
            number: inode.number,
            kind,
            rdev,
            contents,
            names: AsyncLock::new(()),
            changes: AtomicU64::new(0),
            unlinked: AtomicBool::new(inode.links == 0),
            read: AtomicBool::new(false),
            transaction: AtomicU32::new(shared.volume.transaction()),
            acls: Lock::new(acls),
            has_capabilities: AtomicBool::new(capabilities),
            sharers: Sharers::default(),
            locks: LockTable::default(),
            attachment: Attachment::default(),
        }))
    }

    pub(super) fn file(&self) -> Result<(&Arc<PageCache>, &Arc<Content>)> {
        match &self.contents {
            Some((cache, content)) => Ok((cache, content)),
            _ if self.kind == Kind::Directory => Err(Errno::EISDIR),
            _ => Err(Errno::EINVAL),
        }
    }

    pub(super) fn now(&self) -> Timestamp {
        self.shared.services.clock.realtime()
    }

    /// It has been changed on the disk, or is to be: in the transaction that runs, at the latest.
    pub(super) fn changed(&self) {
        raise(&self.transaction, self.shared.volume.transaction());
        self.read.store(false, Relaxed);
        self.shared.changed();
    }

    pub(super) fn is_unlinked(&self) -> bool {
        self.unlinked.load(Relaxed)
    }

    fn snapshot(&self, inode: &ext4::Inode) -> Attributes {
        let mut attributes = Attributes {
            dev: self.shared.disk().number(),
            ino: self.number.into(),
            mode: inode.mode.into(),
            nlink: inode.links.into(),
            uid: inode.uid,
            gid: inode.gid,
            rdev: self.rdev,
            size: inode.size,
            block_size: self.shared.volume.superblock().block_bytes,
            blocks: inode.sectors,
            accessed: timestamp(inode.accessed),
            modified: timestamp(inode.modified),
            changed: timestamp(inode.changed),
        };
        if let Ok((cache, content)) = self.file() {
            attributes.size = cache.len();
            let sectors = u64::from(self.shared.volume.superblock().block_bytes / 512);
            attributes.blocks += content.reserved_blocks() * sectors;
            if let Some(modified) = content.modified() {
                (attributes.modified, attributes.changed) = (modified, modified);
            }
        }
        attributes
    }

    /// Where a file may be written. EFBIG: it would have blocks that no number names.
    fn permit(&self) -> impl Fn(u64, u64) -> Result<()> + Send + use<> {
        let most = u64::from(u32::MAX) * u64::from(self.shared.volume.superblock().block_bytes);
        move |start, _| if start >= most { Err(Errno::EFBIG) } else { Ok(()) }
    }

    /// Contents change by a write.
    fn note_write<'a>(&'a self, writing: Transfer<'a, (u64, usize)>) -> Transfer<'a, (u64, usize)> {
        writing.inspect(|(_, bytes)| {
            if let (true, Some((_, content))) = (*bytes > 0, &self.contents) {
                content.changed(self.now());
                self.read.store(false, Relaxed);
            }
        })
    }

    /// relatime: only the first read after a change is worth noting, and one a day.
    fn notes(&self) -> bool {
        !self.read.load(Relaxed) && !self.shared.volume.is_read_only()
    }

    pub(super) fn was_read(&self) {
        if !self.notes() {
            return;
        }
        self.read.store(true, Relaxed);
        let now = time(self.now());
        // An inode that is not in memory is not worth reading for that.
        let Some(inode) = self.shared.volume.inode_now(self.number) else { return };
        let last = |time: Time| (time.seconds, time.nanoseconds);
        let changed = last(inode.modified).max(last(inode.changed));
        if last(inode.accessed) <= changed || inode.accessed.seconds + 86_400 < now.seconds {
            self.shared.volume.change_now(self.number, |inode| inode.accessed = now);
            self.shared.changed();
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.shared.forget(self.number);
        // Two that took its last names away at once may have told it in the other order.
        let inode = self.shared.volume.inode_now(self.number);
        let unlinked = inode.map_or(self.unlinked.load(Relaxed), |inode| inode.links == 0);
        if unlinked && !self.shared.volume.is_read_only() {
            let (shared, number, now) = (self.shared.clone(), self.number, time(self.now()));
            let contents = self.contents.take();
            shared.releasing.fetch_add(1, SeqCst);
            if let Some((cache, _)) = &contents {
                self.shared.services.write_back_never(cache);
            }
            // Before the CPU goes back to the program: a directory that is emptied would make orphans faster than another CPU removes them.
            self.shared.services.spawner.spawn_here(Box::pin(async move {
                if let Some((cache, content)) = contents {
                    content.goes();
                    cache.discard().await;
                    drop(content.telling().await);
                    content.forget(0..u64::MAX / PAGE_SIZE as u64);
                }
                if let Err(error) = shared.volume.release(number, now).await {
                    log::error!("ext4: inode {number} can't be removed: {error:?}");
                }
                shared.changed();
                shared.releasing.fetch_sub(1, SeqCst);
                shared.released.wake_all();
            }));
        }
    }
}

impl Inode for Node {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn kind(&self) -> Kind {
        self.kind
    }

    fn ino(&self) -> u64 {
        self.number.into()
    }

    fn attributes(&self) -> BoxFuture<'_, Result<Attributes>> {
        Box::pin(async move {
            let inode = self.shared.volume.any_inode(self.number).await.map_err(errno)?;
            Ok(self.snapshot(&inode))
        })
    }

    fn attributes_now(&self) -> Option<Attributes> {
        Some(self.snapshot(&self.shared.volume.inode_now(self.number)?))
    }

    fn set(&self, set: SetAttributes) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.set_attributes(set))
    }

    fn xattr<'a>(&'a self, name: &'a [u8]) -> BoxFuture<'a, Result<Vec<u8>>> {
        Box::pin(self.read_xattr(name))
    }

    fn xattrs(&self) -> BoxFuture<'_, Result<Vec<Vec<u8>>>> {
        Box::pin(async move { self.shared.volume.attributes(self.number).await.map_err(errno) })
    }

    fn set_xattr<'a>(&'a self, name: &'a [u8], value: Option<&'a [u8]>, when: SetWhen) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.write_xattr(name, value, when))
    }

    fn has_capabilities(&self) -> bool {
        self.has_capabilities.load(Relaxed)
    }

    fn acl(&self, kind: AclKind) -> Result<Option<Arc<Acl>>> {
        match self.kind {
            Kind::Symlink => Err(Errno::EOPNOTSUPP),
            _ => Ok(self.acls.lock().get(kind).cloned()),
        }
    }

    fn set_acl(&self, kind: AclKind, acl: Option<Arc<Acl>>, mode: Option<u32>) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.write_acl(kind, acl, mode))
    }

    fn info(&self) -> BoxFuture<'_, Result<FileSystemInfo>> {
        ready(Ok(self.shared.info()))
    }

    fn locks(&self) -> Option<&LockTable> {
        Some(&self.locks)
    }

    fn attachment(&self) -> Option<&Attachment> {
        Some(&self.attachment)
    }

    fn sharers(&self) -> Option<&Sharers> {
        Some(&self.sharers)
    }

    fn notes_read(&self) -> bool {
        self.notes()
    }

    fn write_refused(&self) -> Option<Errno> {
        self.shared.volume.is_read_only().then_some(Errno::EROFS)
    }

    fn sync(&self, data_only: bool) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.shared.check_goes_on()?;
            let transaction = self.transaction.load(Relaxed);
            let Ok((cache, content)) = self.file() else {
                return content::commit(&self.shared, core::iter::once(transaction)).await;
            };
            let syncing = self.shared.syncs.begin();
            // Times may be lost (man 2 fdatasync).
            if data_only {
                content.write_data(cache).await?;
                drop(syncing);
                return content.commit_data().await;
            }
            content.write_back(cache).await?;
            drop(syncing);
            content.commit(Some(transaction)).await
        })
    }

    fn write_errors(&self) -> Option<&WriteErrors> {
        self.contents.as_ref().map(|(_, content)| content.errors())
    }

    fn lookup<'a>(&'a self, _caller: &'a Caller, name: &'a [u8]) -> BoxFuture<'a, Result<Arc<dyn Inode>>> {
        Box::pin(self.lookup_name(name))
    }

    fn last_position(&self) -> u64 {
        i64::MAX as u64
    }

    fn list<'a>(&'a self, _caller: &'a Caller, to: &'a mut Listing) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.list_names(to))
    }

    fn create<'a>(&'a self, name: &'a [u8], new: NewNode) -> BoxFuture<'a, Result<Arc<dyn Inode>>> {
        Box::pin(self.make(name, new))
    }

    fn create_unnamed(&self, new: NewNode) -> BoxFuture<'_, Result<Arc<dyn Inode>>> {
        Box::pin(self.make_unnamed(new))
    }

    fn link<'a>(&'a self, name: &'a [u8], node: &'a Arc<dyn Inode>) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.add_name(name, node))
    }

    fn unlink<'a>(&'a self, name: &'a [u8], node: &'a Arc<dyn Inode>) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.remove_name(name, node))
    }

    fn rename<'a>(
        &'a self,
        from: &'a [u8],
        node: &'a Arc<dyn Inode>,
        target: &'a Arc<dyn Inode>,
        to: &'a [u8],
        old: Option<&'a Arc<dyn Inode>>,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.move_name(from, node, target, to, old))
    }

    fn exchange<'a>(
        &'a self,
        from: &'a [u8],
        node: &'a Arc<dyn Inode>,
        target: &'a Arc<dyn Inode>,
        to: &'a [u8],
        other: &'a Arc<dyn Inode>,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.exchange_names(from, node, target, to, other))
    }

    fn follow<'a>(&'a self, _caller: &'a Caller) -> BoxFuture<'a, Result<Followed>> {
        Box::pin(async move {
            if self.kind != Kind::Symlink {
                return Err(Errno::EINVAL);
            }
            let inode = self.shared.volume.any_inode(self.number).await.map_err(errno)?;
            let target: Vec<u8> = self.shared.volume.link_target(&inode).await.map_err(errno)?;
            Ok(Followed::Path(target))
        })
    }

    fn read<'a>(&'a self, to: Destination<'a>, offset: u64, read_ahead: ReadAhead) -> Transfer<'a> {
        match self.file() {
            Ok((cache, _)) => {
                self.was_read();
                cache.read(to, offset, read_ahead)
            }
            Err(error) => Transfer::Done(Err(error)),
        }
    }

    fn write<'a>(&'a self, from: Source<'a>, at: WriteAt) -> Transfer<'a, (u64, usize)> {
        match self.file() {
            Ok((cache, _)) => self.note_write(cache.write(from, at.offset(), self.permit())),
            Err(error) => Transfer::Done(Err(error)),
        }
    }

    fn read_direct<'a>(&'a self, to: Destination<'a>, offset: u64) -> Transfer<'a> {
        match self.file() {
            Ok((cache, _)) => {
                self.was_read();
                cache.read_direct(to, offset)
            }
            Err(error) => Transfer::Done(Err(error)),
        }
    }

    fn write_direct<'a>(&'a self, from: Source<'a>, at: WriteAt) -> Transfer<'a, (u64, usize)> {
        match self.file() {
            Ok((cache, content)) => {
                // Before as well: what is on its way to the disk takes the time along, and no dirty page is left that would.
                content.changed(self.now());
                self.note_write(cache.write_direct(from, at.offset(), self.permit()))
            }
            Err(error) => Transfer::Done(Err(error)),
        }
    }

    fn allocate(&self, mode: u32, offset: u64, len: u64) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let done = self.fallocate(mode, offset, len).await;
            self.changed();
            done
        })
    }

    fn seek(&self, offset: u64, what: Extent) -> BoxFuture<'_, Result<u64>> {
        Box::pin(self.seek_extent(offset, what))
    }

    fn object(&self, write: bool) -> BoxFuture<'_, Result<Arc<dyn Object>>> {
        ready(match self.file() {
            Ok(_) if write && self.shared.volume.is_read_only() => Err(Errno::EROFS),
            Ok((cache, _)) => {
                self.was_read();
                Ok(cache.clone() as Arc<dyn Object>)
            }
            Err(_) => Err(Errno::ENODEV),
        })
    }
}
