//! An inode of ext4.

use super::{content::Content, errno, Shared};
use crate::{
    file::{ready, Destination, Source, Transfer},
    inode::{
        acl::{Acl, AclKind, Acls},
        listing::{Listing, FIRST},
        Attachment, Extent, Followed, NewNode, WriteAt,
    },
    lease::Sharers,
    locks::LockTable,
    Attributes, Caller, FileSystemInfo, Inode, Kind, Object, PageCache, SetAttributes, Timestamp,
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
use ext4::{FileType, NewInode, Time};
use machine::{
    errno::Result,
    sync::{AsyncGuard, AsyncLock, Lock},
    to_completion, BoxFuture, Errno, PAGE_SIZE,
};

const PAGE: u64 = PAGE_SIZE as u64;

/// What fallocate(2) is to do.
mod allocate {
    pub const KEEP_SIZE: u32 = 1;
    pub const PUNCH_HOLE: u32 = 2;
    pub const ZERO_RANGE: u32 = 16;
}

pub struct Node {
    shared: Arc<Shared>,
    number: u32,
    kind: Kind,
    rdev: (u32, u32),
    /// Of a regular file: its pages, and what lies below.
    contents: Option<(Arc<PageCache>, Arc<Content>)>,
    /// Of a directory: held by who changes its names.
    names: AsyncLock<()>,
    /// How often that has begun and ended.
    changes: AtomicU64,
    /// It has no name any more: it goes when nobody has it open.
    unlinked: AtomicBool,
    /// A read since the last change has been noted (relatime).
    read: AtomicBool,
    /// The last transaction that changed it.
    transaction: AtomicU32,
    /// Lists of rights, and whether it has `security.capability`: asked for without waiting.
    acls: Lock<Acls>,
    has_capabilities: AtomicBool,
    sharers: Sharers,
    locks: LockTable,
    attachment: Attachment,
}

fn own(node: &Arc<dyn Inode>) -> Result<&Node> {
    (**node).as_any().downcast_ref().ok_or(Errno::EXDEV)
}

fn time(time: Timestamp) -> Time {
    Time { seconds: time.seconds, nanoseconds: time.nanoseconds }
}

fn timestamp(time: Time) -> Timestamp {
    Timestamp { seconds: time.seconds, nanoseconds: time.nanoseconds }
}

const CAPABILITIES: &[u8] = b"security.capability";

/// What a program is told of an attribute that can't be.
fn name_error(name: &[u8], error: ext4::Error) -> Errno {
    match error {
        ext4::Error::Unsupported(_) if name.ends_with(b".") => Errno::EINVAL,
        error => errno(error),
    }
}

/// The lists of rights of an inode, and whether it has capabilities.
pub(super) async fn rights(shared: &Shared, inode: &ext4::Inode) -> Result<(Acls, bool)> {
    let volume = &shared.volume;
    let names = volume.attributes(inode).await.map_err(errno)?;
    let mut acls = Acls::default();
    for kind in AclKind::BOTH.into_iter().filter(|kind| names.iter().any(|name| name == kind.name())) {
        if let Some(value) = volume.attribute(inode, kind.name()).await.map_err(errno)? {
            acls.set(kind, Acl::parse(&value)?.map(Arc::new));
        }
    }
    Ok((acls, names.iter().any(|name| name == CAPABILITIES)))
}

impl Node {
    pub(super) fn new(
        shared: &Arc<Shared>,
        inode: &ext4::Inode,
        (acls, capabilities): (Acls, bool),
    ) -> Result<Arc<Node>> {
        let kind = match inode.file_type().map_err(errno)? {
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
            contents: (kind == Kind::Regular).then(|| shared.contents(inode)),
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

    fn file(&self) -> Result<(&Arc<PageCache>, &Arc<Content>)> {
        match &self.contents {
            Some((cache, content)) => Ok((cache, content)),
            _ if self.kind == Kind::Directory => Err(Errno::EISDIR),
            _ => Err(Errno::EINVAL),
        }
    }

    fn now(&self) -> Timestamp {
        self.shared.services.clock.realtime()
    }

    /// It has been changed on the disk, or is to be: in the transaction that runs, at the latest.
    fn changed(&self) {
        self.transaction.store(self.shared.volume.transaction(), Relaxed);
        self.read.store(false, Relaxed);
        self.shared.changed();
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

    /// relatime: only the first read after a change is worth noting, and one a day.
    fn notes(&self) -> bool {
        !self.read.load(Relaxed) && !self.shared.volume.is_read_only()
    }

    fn was_read(&self) {
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

    async fn resize(&self, size: u64) -> Result<()> {
        let (cache, content) = self.file()?;
        let (cache, content) = (cache.clone(), content.clone());
        let (shared, number, now) = (self.shared.clone(), self.number, time(self.now()));
        let work = async move {
            let below = async {
                if size < cache.len() {
                    shared.zero_tail(number, size).await?;
                }
                shared.volume.truncate(number, size, now).await.map_err(errno)?;
                content.forget(size.div_ceil(PAGE)..u64::MAX / PAGE);
                Ok(())
            };
            let most = u64::from(u32::MAX) * u64::from(shared.volume.superblock().block_bytes);
            let permit = |_, size| if size > most { Err(Errno::EFBIG) } else { Ok(()) };
            cache.truncate(size, permit, Box::pin(below)).await
        };
        to_completion(&*self.shared.services.spawner, work).await
    }

    async fn fallocate(&self, mode: u32, offset: u64, len: u64) -> Result<()> {
        let (cache, content) = self.file().map_err(|_| Errno::ENODEV)?;
        let end = offset.checked_add(len).ok_or(Errno::EFBIG)?;
        let block = u64::from(self.shared.volume.superblock().block_bytes);
        let last = u32::try_from(end.div_ceil(block)).map_err(|_| Errno::EFBIG)?;
        let (cache, content) = (cache.clone(), content.clone());
        let (shared, number, now) = (self.shared.clone(), self.number, time(self.now()));
        let work = async move {
            match mode & !allocate::KEEP_SIZE {
                0 => {}
                allocate::PUNCH_HOLE if mode & allocate::KEEP_SIZE != 0 => {}
                allocate::ZERO_RANGE => {}
                _ => return Err(Errno::EOPNOTSUPP),
            }
            if mode & (allocate::PUNCH_HOLE | allocate::ZERO_RANGE) != 0 {
                shared.punch(&cache, &content, number, offset..end.min(cache.len().max(offset)), now).await?;
            }
            if mode & allocate::PUNCH_HOLE != 0 {
                return Ok(());
            }
            let size = if mode & allocate::KEEP_SIZE == 0 { end } else { 0 };
            // Pages that were written and have no blocks yet get theirs first.
            cache.write_back(offset, end).await?;
            let mut at = (offset / block) as u32;
            while at < last {
                at = shared.volume.allocate(number, at, last, size, now).await.map_err(errno)?;
            }
            cache.reserve(offset, end, mode & allocate::KEEP_SIZE != 0).await
        };
        to_completion(&*self.shared.services.spawner, work).await
    }

    /// To change names in it.
    async fn change_names(&self) -> ChangingNames<'_> {
        let locked = self.names.lock().await;
        self.changes.fetch_add(1, SeqCst);
        ChangingNames { node: self, _locked: locked }
    }

    /// The same in two directories, which may be one.
    async fn change_both<'a>(&'a self, other: &'a Node) -> (ChangingNames<'a>, Option<ChangingNames<'a>>) {
        if self.number == other.number {
            return (self.change_names().await, None);
        }
        let (first, second) = if self.number < other.number { (self, other) } else { (other, self) };
        let first = first.change_names().await;
        (first, Some(second.change_names().await))
    }

    /// The inode of a directory whose names are to be looked at, and how often they have changed. Who looks keeps nobody from changing them; if somebody did ([`Node::is_unchanged`]), what
    /// was found counts for nothing, and he looks again while nobody can.
    async fn directory(&self) -> Result<(ext4::Inode, u64)> {
        if self.kind != Kind::Directory {
            return Err(Errno::ENOTDIR);
        }
        let before = self.changes.load(SeqCst);
        Ok((self.shared.volume.any_inode(self.number).await.map_err(errno)?, before))
    }

    fn is_unchanged(&self, before: u64) -> bool {
        before.is_multiple_of(2) && self.changes.load(SeqCst) == before
    }

    async fn list_from(&self, from: u64) -> Result<Option<Vec<ext4::Entry>>> {
        let mut locked = None;
        loop {
            let (directory, before) = self.directory().await?;
            let found = self.shared.volume.list(&directory, from).await;
            if locked.is_some() || self.is_unchanged(before) {
                return found.map_err(errno);
            }
            locked = Some(self.names.lock().await);
        }
    }

    async fn lookup_name(&self, name: &[u8]) -> Result<Arc<dyn Inode>> {
        let volume = &self.shared.volume;
        let mut locked = None;
        let entry = loop {
            let (directory, before) = self.directory().await?;
            let found = volume.lookup(&directory, name).await;
            if locked.is_some() || self.is_unchanged(before) {
                break found.map_err(errno)?.ok_or(Errno::ENOENT)?;
            }
            locked = Some(self.names.lock().await);
        };
        drop(locked);
        let inode = volume.inode(entry.inode).await.map_err(errno)?;
        let inode = inode.ok_or_else(|| errno(ext4::Error::Corrupt("a name without an inode")))?;
        Ok(self.shared.node(&inode).await? as Arc<dyn Inode>)
    }

    fn new_inode(&self, new: &NewNode) -> NewInode {
        let now = self.now();
        NewInode {
            mode: (new.kind as u32 | new.mode & 0o7777) as u16,
            uid: new.uid,
            gid: new.gid,
            time: time(now),
            generation: now.nanoseconds ^ (now.seconds as u32).rotate_left(16) ^ self.number,
            device: new.rdev,
        }
    }

    /// `node` has lost a name.
    fn lost_name(&self, node: &Node, links: u16) {
        node.unlinked.store(links == 0, Relaxed);
        node.changed();
        self.changed();
    }
}

/// Names of a directory are being changed.
struct ChangingNames<'a> {
    node: &'a Node,
    _locked: AsyncGuard<'a, ()>,
}

impl Drop for ChangingNames<'_> {
    fn drop(&mut self) {
        self.node.changes.fetch_add(1, SeqCst);
    }
}

impl Shared {
    /// Makes bytes of a file a hole. Parts of pages at both ends are written as zeros, if they are not holes already.
    async fn punch(
        &self,
        cache: &Arc<PageCache>,
        content: &Arc<Content>,
        number: u32,
        range: core::ops::Range<u64>,
        now: Time,
    ) -> Result<()> {
        static ZEROES: [u8; PAGE_SIZE] = [0; PAGE_SIZE];
        let (first, last) = (range.start.div_ceil(PAGE), range.end / PAGE);
        let edges = match first > last {
            true => [range.clone(), 0..0],
            false => [range.start..first * PAGE, last * PAGE..range.end],
        };
        for edge in edges.into_iter().filter(|edge| edge.start < edge.end) {
            let zeros = &ZEROES[..(edge.end - edge.start) as usize];
            cache.write(Source::Kernel(zeros), Some(edge.start), |_, _| Ok(())).await?;
        }
        if first >= last {
            return Ok(());
        }
        let per_page = |page: u64| page * PAGE / u64::from(self.volume.superblock().block_bytes);
        let from = u32::try_from(per_page(first)).map_err(|_| Errno::EFBIG)?;
        let below = async {
            self.volume.punch(number, from, per_page(last), now).await.map_err(errno)?;
            content.forget(first..last);
            Ok(())
        };
        cache.punch_through(first, last, Box::pin(below)).await
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.shared.forget(self.number);
        if self.unlinked.load(Relaxed) && !self.shared.volume.is_read_only() {
            let (shared, number, now) = (self.shared.clone(), self.number, time(self.now()));
            let contents = self.contents.take();
            shared.releasing.fetch_add(1, SeqCst);
            if let Some((cache, _)) = &contents {
                self.shared.services.write_back_never(cache);
            }
            self.shared.services.spawner.spawn(Box::pin(async move {
                if let Some((cache, content)) = contents {
                    cache.discard().await;
                    content.forget(0..u64::MAX / PAGE);
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
        Box::pin(async move {
            if let Some(size) = set.size {
                self.resize(size).await?;
            }
            let now = self.now();
            let pending = self.contents.as_ref().and_then(|(_, content)| content.take_modified());
            let wanted = |wanted: Timestamp| time(if wanted == Timestamp::NOW { now } else { wanted });
            let access = self.acls.lock().get(AclKind::Access).cloned();
            let acl = match (set.mode, access) {
                (Some(mode), Some(acl)) => Some(Arc::new(acl.with_mode(mode)?)),
                _ => None,
            };
            let change = |inode: &mut ext4::Inode| {
                if let Some(mode) = set.mode {
                    inode.mode = inode.mode & 0xf000 | (mode & 0o7777) as u16;
                }
                inode.uid = set.uid.unwrap_or(inode.uid);
                inode.gid = set.gid.unwrap_or(inode.gid);
                if let Some(modified) = pending {
                    inode.modified = time(modified);
                }
                if set.size.is_some() {
                    inode.modified = time(now);
                }
                inode.accessed = set.accessed.map_or(inode.accessed, wanted);
                inode.modified = set.modified.map_or(inode.modified, wanted);
                inode.changed = time(now);
            };
            let volume = &self.shared.volume;
            match acl {
                // The mode and the list change together.
                Some(acl) => {
                    let (name, value) = (AclKind::Access.name(), acl.to_bytes()?);
                    let (when, now) = (ext4::SetWhen::Always, time(now));
                    volume.set_attribute(self.number, name, Some(&value), when, now, change).await.map_err(errno)?;
                    self.acls.lock().set(AclKind::Access, Some(acl));
                }
                None => volume.change(self.number, change).await.map_err(errno)?,
            }
            self.changed();
            Ok(())
        })
    }

    fn xattr<'a>(&'a self, name: &'a [u8]) -> BoxFuture<'a, Result<Vec<u8>>> {
        Box::pin(async move {
            let inode = self.shared.volume.any_inode(self.number).await.map_err(errno)?;
            let value = self.shared.volume.attribute(&inode, name).await.map_err(|error| name_error(name, error))?;
            value.ok_or(Errno::ENODATA)
        })
    }

    fn xattrs(&self) -> BoxFuture<'_, Result<Vec<Vec<u8>>>> {
        Box::pin(async move {
            let inode = self.shared.volume.any_inode(self.number).await.map_err(errno)?;
            self.shared.volume.attributes(&inode).await.map_err(errno)
        })
    }

    fn set_xattr<'a>(&'a self, name: &'a [u8], value: Option<&'a [u8]>, when: SetWhen) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let volume = &self.shared.volume;
            let allowed = match (when.present, when.missing) {
                (true, true) => ext4::SetWhen::Always,
                (true, false) => ext4::SetWhen::Present,
                (false, true) => ext4::SetWhen::Missing,
                (false, false) => {
                    let inode = volume.any_inode(self.number).await.map_err(errno)?;
                    let value = volume.attribute(&inode, name).await.map_err(|error| name_error(name, error))?;
                    return when.check(value.is_some());
                }
            };
            let set = volume.set_attribute(self.number, name, value, allowed, time(self.now()), |_| {}).await;
            if !set.map_err(|error| name_error(name, error))? {
                return match allowed {
                    ext4::SetWhen::Missing => Err(Errno::EEXIST),
                    ext4::SetWhen::Present => Err(Errno::ENODATA),
                    ext4::SetWhen::Always => Ok(()),
                };
            }
            if name == CAPABILITIES {
                self.has_capabilities.store(value.is_some(), Relaxed);
            }
            self.changed();
            Ok(())
        })
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
        Box::pin(async move {
            let value = acl.as_ref().map(|acl| acl.to_bytes()).transpose()?;
            let change = |inode: &mut ext4::Inode| {
                if let Some(mode) = mode {
                    inode.mode = inode.mode & 0xf000 | (mode & 0o7777) as u16;
                }
            };
            let (volume, now) = (&self.shared.volume, time(self.now()));
            let (name, when) = (kind.name(), ext4::SetWhen::Always);
            let set = volume.set_attribute(self.number, name, value.as_deref(), when, now, change).await;
            if !set.map_err(errno)? {
                // There was none; the mode may change all the same.
                volume.change(self.number, change).await.map_err(errno)?;
            }
            self.acls.lock().set(kind, acl);
            self.changed();
            Ok(())
        })
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

    fn sync(&self, _data_only: bool) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let mut transactions = [self.transaction.load(Relaxed); 2];
            if let Ok((cache, content)) = self.file() {
                content.write_back(cache).await?;
                transactions[1] = content.transaction();
            }
            let volume = &self.shared.volume;
            if transactions.iter().all(|transaction| volume.is_committed(*transaction)) {
                // What was written must stay all the same.
                return self.shared.disk().flush().await;
            }
            for transaction in transactions {
                volume.commit_through(transaction).await.map_err(errno)?;
            }
            Ok(())
        })
    }

    fn write_failures(&self) -> u64 {
        self.contents.as_ref().map_or(0, |(_, content)| content.failures())
    }

    fn lookup<'a>(&'a self, _caller: &'a Caller, name: &'a [u8]) -> BoxFuture<'a, Result<Arc<dyn Inode>>> {
        Box::pin(self.lookup_name(name))
    }

    fn last_position(&self) -> u64 {
        i64::MAX as u64
    }

    fn list<'a>(&'a self, _caller: &'a Caller, to: &'a mut Listing) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.was_read();
            let mut from = to.scan.position.saturating_sub(FIRST);
            while !to.is_full() {
                let entries = self.list_from(from).await?;
                let Some(entries) = entries else { return Ok(()) };
                for entry in entries {
                    let is_dot = entry.name == b"." || entry.name == b"..";
                    if !is_dot && !to.add(entry.inode.into(), FIRST + entry.next, entry.kind, &entry.name) {
                        return Ok(());
                    }
                    from = entry.next;
                }
            }
            Ok(())
        })
    }

    fn create<'a>(&'a self, name: &'a [u8], new: NewNode) -> BoxFuture<'a, Result<Arc<dyn Inode>>> {
        Box::pin(async move {
            let inode = self.new_inode(&new);
            let target = (new.kind == Kind::Symlink).then_some(&new.target[..]);
            let _changing = self.change_names().await;
            let made = self.shared.volume.create(self.number, name, &inode, target).await.map_err(errno)?;
            self.changed();
            let node = self.shared.node(&made.inode).await?;
            node.changed();
            Ok(node as Arc<dyn Inode>)
        })
    }

    fn create_unnamed(&self, new: NewNode) -> BoxFuture<'_, Result<Arc<dyn Inode>>> {
        Box::pin(async move {
            let inode = self.new_inode(&new);
            let made = self.shared.volume.create_unnamed(self.number, &inode).await.map_err(errno)?;
            let node = self.shared.node(&made).await?;
            node.changed();
            Ok(node as Arc<dyn Inode>)
        })
    }

    fn link<'a>(&'a self, name: &'a [u8], node: &'a Arc<dyn Inode>) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let node = own(node)?;
            let now = time(self.now());
            let _changing = self.change_names().await;
            self.shared.volume.add_link(self.number, name, node.number, now).await.map_err(errno)?;
            self.lost_name(node, 1);
            Ok(())
        })
    }

    fn unlink<'a>(&'a self, name: &'a [u8], node: &'a Arc<dyn Inode>) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let node = own(node)?;
            let (volume, now) = (&self.shared.volume, time(self.now()));
            let _changing = self.change_names().await;
            let changed = match node.kind {
                Kind::Directory => volume.remove_directory(self.number, name, node.number, now).await,
                _ => volume.unlink(self.number, name, node.number, now).await,
            };
            self.lost_name(node, changed.map_err(errno)?.inode.links);
            Ok(())
        })
    }

    fn rename<'a>(
        &'a self,
        from: &'a [u8],
        node: &'a Arc<dyn Inode>,
        target: &'a Arc<dyn Inode>,
        to: &'a [u8],
        old: Option<&'a Arc<dyn Inode>>,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let (node, target) = (own(node)?, own(target)?);
            let old = old.map(own).transpose()?;
            let (volume, now) = (&self.shared.volume, time(self.now()));
            let replaced = old.map(|old| old.number);
            let _changing = self.change_both(target).await;
            let moved = volume.rename((self.number, from), node.number, (target.number, to), replaced, now);
            let changed = moved.await.map_err(errno)?;
            if let (Some(old), Some(other)) = (old, changed.other) {
                self.lost_name(old, other.links);
            }
            node.changed();
            target.changed();
            self.changed();
            Ok(())
        })
    }

    fn exchange<'a>(
        &'a self,
        from: &'a [u8],
        node: &'a Arc<dyn Inode>,
        target: &'a Arc<dyn Inode>,
        to: &'a [u8],
        other: &'a Arc<dyn Inode>,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let (node, target, other) = (own(node)?, own(target)?, own(other)?);
            let now = time(self.now());
            let volume = &self.shared.volume;
            let _changing = self.change_both(target).await;
            let exchanged = volume.exchange((self.number, from), node.number, (target.number, to), other.number, now);
            exchanged.await.map_err(errno)?;
            [node, target, other].iter().for_each(|node| node.changed());
            self.changed();
            Ok(())
        })
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

    fn read<'a>(&'a self, to: Destination<'a>, offset: u64) -> Transfer<'a> {
        match self.file() {
            Ok((cache, _)) => {
                self.was_read();
                cache.read(to, offset)
            }
            Err(error) => Transfer::Done(Err(error)),
        }
    }

    fn write<'a>(&'a self, from: Source<'a>, at: WriteAt) -> Transfer<'a, (u64, usize)> {
        let (cache, content) = match self.file() {
            Ok(file) => file,
            Err(error) => return Transfer::Done(Err(error)),
        };
        let most = u64::from(u32::MAX) * u64::from(self.shared.volume.superblock().block_bytes);
        let permit = move |start: u64, _| if start >= most { Err(Errno::EFBIG) } else { Ok(()) };
        cache.write(from, at.offset(), permit).inspect(|(_, bytes)| {
            if *bytes > 0 {
                content.changed(self.now());
                self.read.store(false, Relaxed);
            }
        })
    }

    fn allocate(&self, mode: u32, offset: u64, len: u64) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let done = self.fallocate(mode, offset, len).await;
            self.changed();
            done
        })
    }

    fn seek(&self, offset: u64, what: Extent) -> BoxFuture<'_, Result<u64>> {
        Box::pin(async move {
            let (cache, _) = self.file()?;
            // What is in memory only has no place yet.
            cache.write_back(0, u64::MAX).await?;
            let (size, block) = (cache.len(), u64::from(self.shared.volume.superblock().block_bytes));
            let mut at = offset;
            while at < size {
                let number = u32::try_from(at / block).map_err(|_| Errno::EFBIG)?;
                let run = self.shared.volume.map_now(self.number, number).await.map_err(errno)?;
                if run.place.is_some() == (what == Extent::Data) {
                    return Ok(at);
                }
                at = (u64::from(number) + u64::from(run.blocks.max(1))) * block;
            }
            match what {
                Extent::Hole if offset < size => Ok(size),
                _ => Err(Errno::ENXIO),
            }
        })
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
