//! A file of the host as an inode.

use super::{
    client::{Entry, Fid},
    wire::Qid,
    Shared,
};
use crate::{
    cache::Store,
    file::{ready, Destination, Frames, Source, Transfer},
    inode::{
        listing::{Listing, FIRST},
        Attachment, Followed, NewNode, WriteAt,
    },
    locks::LockTable,
    Attributes, Caller, File, FileSystemInfo, Inode, Kind, Object, OpenFlags, PageCache, ReadAhead, SetAttributes,
};
use alloc::{
    boxed::Box,
    sync::{Arc, Weak},
    vec::Vec,
};
use core::any::Any;
use machine::{
    errno::Result,
    sync::{AsyncLock, Lock},
    BoxFuture, Errno,
};
use spin::Once;

// Flags of Tlopen and Tlcreate: 9P2000.L has numbers of its own, the same on every architecture.
const RDONLY: u32 = 0;
const WRONLY: u32 = 1;
const RDWR: u32 = 2;
const CREATE_NEW: u32 = 0o300;

/// How long (ns) a page that a mapping writes to waits until it is written back.
const MAPPED: u64 = 200_000_000;

pub struct NineInode {
    shared: Arc<Shared>,
    qid: Qid,
    kind: Kind,
    content: Arc<Content>,
    known: Lock<Known>,
    cache: Once<Arc<PageCache>>,
    /// Directories and names by which a file (not a directory) was found: by which else its fid can be
    /// walked when one of them goes.
    names: Lock<Vec<(Weak<NineInode>, Vec<u8>)>>,
    locks: LockTable,
    attachment: Attachment,
}

/// What the host last said about the file.
struct Known {
    attributes: Attributes,
    checked: u64,
    link: Option<Vec<u8>>,
}

/// The file's fids: what lies below the page cache.
struct Content {
    /// Names the file; never opened. A server goes by path, so this dies with the name it was walked by,
    /// and the next name that is looked up brings a living one.
    fid: Lock<Arc<Fid>>,
    open: AsyncLock<Open>,
    inode: Weak<NineInode>,
}

#[derive(Default)]
struct Open {
    read: Option<Arc<Fid>>,
    write: Option<Arc<Fid>>,
}

impl Content {
    fn fid(&self) -> Arc<Fid> {
        self.fid.lock().clone()
    }

    async fn reader(&self) -> Result<Arc<Fid>> {
        let mut open = self.open.lock().await;
        if let Some(fid) = &open.read {
            return Ok(fid.clone());
        }
        let fid = Arc::new(self.fid().again().await?);
        fid.open(RDONLY).await?;
        open.read = Some(fid.clone());
        Ok(fid)
    }

    async fn writer(&self) -> Result<Arc<Fid>> {
        let mut open = self.open.lock().await;
        if let Some(fid) = &open.write {
            return Ok(fid.clone());
        }
        let fid = Arc::new(self.fid().again().await?);
        match fid.open(RDWR).await {
            Ok(()) => open.read = Some(fid.clone()),
            // A file that may be written but not read.
            Err(Errno::EACCES) => fid.open(WRONLY).await?,
            Err(error) => return Err(error),
        }
        open.write = Some(fid.clone());
        Ok(fid)
    }
}

impl Store for Content {
    fn read<'a>(&'a self, offset: u64, to: Frames<'a>) -> BoxFuture<'a, Result<usize>> {
        Box::pin(async move { self.reader().await?.read(offset, to).await })
    }

    fn write<'a>(&'a self, offset: u64, from: Frames<'a>) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.writer().await?.write(offset, from).await })
    }

    /// Writing back begins at once, in a task that keeps the inode until it is clean. Pages that mappings write to wait for a while: each time they are written back, the next write faults.
    fn dirtied(&self, mapped: bool) {
        let Some(inode) = self.inode.upgrade() else { return };
        let services = inode.shared.services.clone();
        services.clone().spawner.spawn(Box::pin(async move {
            let mut waits = mapped;
            while inode.cached().is_some_and(|cache| cache.has_dirty()) {
                if waits && let Some(wait) = services.clock.at(services.clock.monotonic() + MAPPED) {
                    wait.await;
                }
                // Again only for what has been written meanwhile.
                waits = true;
                if let Err(error) = inode.write_back().await {
                    log::warn!("9p: writing back inode {}: {error:?}", inode.qid.path);
                    break;
                }
            }
        }));
    }
}

fn nine(node: &Arc<dyn Inode>) -> Result<&NineInode> {
    (**node).as_any().downcast_ref().ok_or(Errno::EXDEV)
}

impl NineInode {
    /// The inode of a fid that was just walked to.
    pub(super) async fn found(shared: &Arc<Shared>, fid: Fid, qid: Qid) -> Result<Arc<Self>> {
        let known = shared.inodes.lock().get(&qid.path).and_then(Weak::upgrade);
        if let Some(inode) = known.filter(|inode| inode.qid.kind == qid.kind) {
            let old = core::mem::replace(&mut *inode.content.fid.lock(), Arc::new(fid));
            drop(old);
            inode.refresh_if_old().await?;
            return Ok(inode);
        }
        let attributes = fid.attributes(shared.device).await?;
        let checked = shared.services.clock.monotonic();
        let inode = Arc::new_cyclic(|weak| NineInode {
            shared: shared.clone(),
            qid,
            kind: attributes.kind(),
            content: Arc::new(Content {
                fid: Lock::new(Arc::new(fid)),
                open: AsyncLock::new(Open::default()),
                inode: weak.clone(),
            }),
            known: Lock::new(Known { attributes, checked, link: None }),
            cache: Once::new(),
            names: Lock::new(Vec::new()),
            locks: LockTable::default(),
            attachment: Attachment::default(),
        });
        // Found by another name at the same time: that one stays, or contents would be cached twice.
        let other = {
            let mut inodes = shared.inodes.lock();
            let other = inodes.get(&qid.path).and_then(Weak::upgrade);
            if other.as_ref().is_none_or(|other| other.qid.kind != qid.kind) {
                inodes.insert(qid.path, Arc::downgrade(&inode));
            }
            other
        };
        Ok(other.filter(|other| other.qid.kind == qid.kind).unwrap_or(inode))
    }

    fn cached(&self) -> Option<Arc<PageCache>> {
        self.cache.get().cloned()
    }

    fn pages(&self) -> &Arc<PageCache> {
        let size = || self.known.lock().attributes.size;
        self.cache.call_once(|| PageCache::over(&self.shared.services, size(), self.content.clone()))
    }

    pub(super) async fn write_back(&self) -> Result<()> {
        match self.cached() {
            Some(cache) => cache.write_back(0, u64::MAX).await,
            None => Ok(()),
        }
    }

    fn was_written(&self) {
        let now = self.shared.services.clock.realtime();
        let mut known = self.known.lock();
        (known.attributes.modified, known.attributes.changed) = (now, now);
    }

    fn is_fresh(&self) -> bool {
        let now = self.shared.services.clock.monotonic();
        now.saturating_sub(self.known.lock().checked) < self.shared.believed
    }

    async fn refresh_if_old(&self) -> Result<()> {
        if self.is_fresh() {
            return Ok(());
        }
        self.refresh().await
    }

    /// Asks the host; contents that changed there are forgotten here.
    async fn refresh(&self) -> Result<()> {
        let epoch = self.cached().map(|cache| cache.epoch());
        let attributes = match self.content.fid().attributes(self.shared.device).await {
            // Open, but its name is gone: the host can't be asked.
            Err(Errno::ENOENT) => return Ok(()),
            answer => answer?,
        };
        let checked = self.shared.services.clock.monotonic();
        let (size, modified) = (attributes.size, attributes.modified);
        let changed = {
            let mut known = self.known.lock();
            let old = core::mem::replace(&mut known.attributes, attributes);
            known.checked = checked;
            known.link = None;
            old.size != size || old.modified != modified
        };
        if let (true, Some(cache), Some(epoch)) = (changed, self.cached(), epoch) {
            cache.invalidate(size, epoch).await;
        }
        Ok(())
    }

    fn snapshot(&self) -> Attributes {
        let mut attributes = self.known.lock().attributes.clone();
        if let Some(cache) = self.cached() {
            attributes.size = cache.len();
            attributes.blocks = attributes.blocks.max(attributes.size.div_ceil(512));
        }
        attributes
    }

    async fn child(&self, name: &[u8]) -> Result<Arc<dyn Inode>> {
        let (fid, qid) = self.content.fid().walk(name).await?;
        let node = Self::found(&self.shared, fid, qid).await?;
        self.note_name(&node, name);
        Ok(node)
    }

    /// `node` has `name` here.
    fn note_name(&self, node: &NineInode, name: &[u8]) {
        if node.kind == Kind::Directory {
            return;
        }
        let this = &self.content.inode;
        let mut names = node.names.lock();
        if !names.iter().any(|(directory, other)| directory.ptr_eq(this) && other == name) {
            names.push((this.clone(), name.to_vec()));
        }
    }

    /// `node` has lost `name` here: finds it by another one.
    async fn lose_name(&self, node: &NineInode, name: &[u8]) {
        let others = {
            let mut names = node.names.lock();
            names.retain(|(directory, other)| !(directory.ptr_eq(&self.content.inode) && other == name));
            names.clone()
        };
        for (directory, name) in others {
            let Some(directory) = directory.upgrade() else { continue };
            let walked = directory.content.fid().walk(&name).await;
            if let Some((fid, _)) = walked.ok().filter(|(_, qid)| qid.path == node.qid.path) {
                let old = core::mem::replace(&mut *node.content.fid.lock(), Arc::new(fid));
                drop(old);
                return;
            }
        }
    }

    /// After a change of names here: counts and times are other ones.
    async fn changed(&self) {
        // The change itself has happened; that the host can't be asked shows next time.
        let _ = self.refresh().await;
    }

    async fn forget_name(&self, node: &NineInode, name: &[u8]) {
        let last = node.kind == Kind::Directory || node.known.lock().attributes.nlink <= 1;
        if last {
            // The host may use the number again for another file.
            self.shared.inodes.lock().remove(&node.qid.path);
            let mut known = node.known.lock();
            known.attributes.nlink = 0;
            // Its name is gone, so the host can't be asked any more.
            known.checked = u64::MAX;
        } else {
            self.lose_name(node, name).await;
            node.changed().await;
        }
        self.changed().await;
    }
}

impl Drop for NineInode {
    fn drop(&mut self) {
        let mut inodes = self.shared.inodes.lock();
        if inodes.get(&self.qid.path).is_some_and(|inode| inode.strong_count() == 0) {
            inodes.remove(&self.qid.path);
        }
    }
}

/// A server's offset in a directory, as a position: behind those of `.` and `..`, and no negative number for lseek. ext4 and btrfs
/// have the largest offset of all behind the last name, and no names at the two before it, which give way.
fn position(offset: u64) -> Result<u64> {
    match i64::try_from(offset) {
        Ok(offset) => Ok(offset.saturating_add(FIRST as i64) as u64),
        Err(_) => {
            log::warn!("9p: {offset:#x} is no offset in a directory");
            Err(Errno::EIO)
        }
    }
}

fn offset(position: u64) -> u64 {
    match position {
        END => END,
        _ => position - FIRST,
    }
}

const END: u64 = i64::MAX as u64;

impl NineInode {
    /// The directory stays open at the server until a scan comes to the end.
    async fn list_from_server(&self, to: &mut Listing) -> Result<()> {
        let mut from = offset(to.scan.position);
        loop {
            let entries = self.content.reader().await?.read_dir(from, to.room()).await?;
            let Some(last) = entries.last() else {
                self.content.open.lock().await.read = None;
                return Ok(());
            };
            from = last.next;
            let mut names = entries.into_iter().filter(|entry| entry.name != b"." && entry.name != b"..").peekable();
            if names.peek().is_none() {
                continue;
            }
            for Entry { qid, next, d_type, name } in names {
                if !to.add(qid.path, position(next)?, d_type, &name) {
                    break;
                }
            }
            return Ok(());
        }
    }
}

impl Inode for NineInode {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn kind(&self) -> Kind {
        self.kind
    }

    fn ino(&self) -> u64 {
        self.qid.path
    }

    fn attributes(&self) -> BoxFuture<'_, Result<Attributes>> {
        Box::pin(async move {
            self.refresh_if_old().await?;
            Ok(self.snapshot())
        })
    }

    fn attributes_now(&self) -> Option<Attributes> {
        self.is_fresh().then(|| self.snapshot())
    }

    fn set(&self, set: SetAttributes) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            if let Some(size) = set.size {
                let only_size = SetAttributes { size: Some(size), ..SetAttributes::default() };
                let below = async { self.content.fid().set(&only_size).await };
                self.pages().truncate(size, |_, _| Ok(()), Box::pin(below)).await?;
            }
            let rest = SetAttributes { size: None, ..set };
            if rest != SetAttributes::default() {
                // Later writing back would set the time of change again.
                self.write_back().await?;
                self.content.fid().set(&rest).await?;
            }
            self.refresh().await
        })
    }

    fn info(&self) -> BoxFuture<'_, Result<FileSystemInfo>> {
        Box::pin(async move { self.content.fid().info().await })
    }

    fn locks(&self) -> Option<&LockTable> {
        Some(&self.locks)
    }

    fn attachment(&self) -> Option<&Attachment> {
        Some(&self.attachment)
    }

    fn sync(&self, data_only: bool) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.write_back().await?;
            let fid = self.content.open.lock().await.write.clone();
            match fid {
                Some(fid) => fid.sync(data_only).await,
                None => Ok(()),
            }
        })
    }

    fn lookup<'a>(&'a self, _caller: &'a Caller, name: &'a [u8]) -> BoxFuture<'a, Result<Arc<dyn Inode>>> {
        Box::pin(self.child(name))
    }

    fn believed(&self) -> u64 {
        self.shared.believed
    }

    fn list<'a>(&'a self, _caller: &'a Caller, to: &'a mut Listing) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.list_from_server(to))
    }

    fn create<'a>(&'a self, name: &'a [u8], new: NewNode) -> BoxFuture<'a, Result<Arc<dyn Inode>>> {
        Box::pin(async move {
            let fid = self.content.fid();
            let mut opened = None;
            match new.kind {
                Kind::Regular => {
                    let file = fid.again().await?;
                    file.create(name, RDWR | CREATE_NEW, new.mode, new.gid).await?;
                    opened = Some(Arc::new(file));
                }
                Kind::Directory => fid.make_dir(name, new.mode, new.gid).await?,
                Kind::Symlink => fid.symlink(name, &new.target, new.gid).await?,
                kind => fid.make_node(name, kind, new.mode, new.rdev, new.gid).await?,
            }
            let node = self.child(name).await?;
            if opened.is_some() {
                let mut open = nine(&node)?.content.open.lock().await;
                *open = Open { read: opened.clone(), write: opened };
            }
            self.changed().await;
            Ok(node)
        })
    }

    fn link<'a>(&'a self, name: &'a [u8], node: &'a Arc<dyn Inode>) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let node = nine(node)?;
            self.content.fid().link(name, &node.content.fid()).await?;
            self.note_name(node, name);
            node.changed().await;
            self.changed().await;
            Ok(())
        })
    }

    fn unlink<'a>(&'a self, name: &'a [u8], node: &'a Arc<dyn Inode>) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let node = nine(node)?;
            // Whoever has it open goes on by a fid that was opened then.
            self.content.fid().unlink(name, node.kind == Kind::Directory).await?;
            self.forget_name(node, name).await;
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
            let target = nine(target)?;
            self.content.fid().rename(from, &target.content.fid(), to).await?;
            if let Some(old) = old {
                target.forget_name(nine(old)?, to).await;
            }
            let node = nine(node)?;
            target.note_name(node, to);
            self.lose_name(node, from).await;
            node.changed().await;
            self.changed().await;
            target.changed().await;
            Ok(())
        })
    }

    fn follow<'a>(&'a self, _caller: &'a Caller) -> BoxFuture<'a, Result<Followed>> {
        Box::pin(async move {
            if self.kind != Kind::Symlink {
                return Err(Errno::EINVAL);
            }
            if self.is_fresh() {
                let known = self.known.lock().link.clone();
                if let Some(link) = known {
                    return Ok(Followed::Path(link));
                }
            }
            let link = self.content.fid().read_link().await?;
            self.known.lock().link = Some(link.clone());
            Ok(Followed::Path(link))
        })
    }

    fn open<'a>(&'a self, _caller: &'a Caller, flags: OpenFlags) -> BoxFuture<'a, Result<Option<Arc<dyn File>>>> {
        Box::pin(async move {
            if self.kind == Kind::Regular {
                // Opened on the host now, so that its refusal is open's answer and not read's.
                if flags.writable() {
                    self.content.writer().await?;
                }
                if flags.readable() {
                    self.content.reader().await?;
                }
            }
            Ok(None)
        })
    }

    fn read<'a>(&'a self, to: Destination<'a>, offset: u64, read_ahead: ReadAhead) -> Transfer<'a> {
        self.pages().read(to, offset, read_ahead)
    }

    fn write<'a>(&'a self, from: Source<'a>, at: WriteAt) -> Transfer<'a, (u64, usize)> {
        self.pages().write(from, at.offset(), |_, _| Ok(())).inspect(|_| self.was_written())
    }

    fn allocate(&self, mode: u32, offset: u64, len: u64) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            // The protocol has no fallocate; growing is all that can be had.
            if mode != 0 {
                return Err(Errno::EOPNOTSUPP);
            }
            if offset + len > self.pages().len() {
                return self.set(SetAttributes { size: Some(offset + len), ..SetAttributes::default() }).await;
            }
            Ok(())
        })
    }

    fn object(&self, _write: bool) -> BoxFuture<'_, Result<Arc<dyn Object>>> {
        ready(match self.kind {
            Kind::Regular => Ok(self.pages().clone() as Arc<dyn Object>),
            _ => Err(Errno::ENODEV),
        })
    }
}
