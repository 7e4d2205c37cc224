//! A file, directory, link or device of a tmpfs.

use super::{
    file,
    names::{Named, Names},
    xattrs::{Replaced, Xattrs},
    Shared,
};
use crate::{
    file::{ready, Destination, Source, Transfer},
    inode::{
        acl::{Acl, AclKind},
        listing::Listing,
        same, Attachment, Extent, Followed, NewNode, WriteAt,
    },
    lease::Sharers,
    locks::LockTable,
    Attributes, Caller, FileSystemInfo, Inode, Kind, Object, PageCache, ReadAhead, SetAttributes, SetWhen, Timestamp,
};
use alloc::{boxed::Box, collections::LinkedList, sync::Arc, vec::Vec};
use core::{
    any::Any,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};
use machine::{
    account::Charge, collections::try_with_capacity, errno::Result, sync::Lock, BoxFuture, Errno, PAGE_SIZE,
};

/// Size that a directory shows, and what each of its names adds, as Linux's tmpfs (BOGO_DIRENT_SIZE).
const NAME_SIZE: u64 = 20;

pub struct TmpInode {
    pub(super) shared: Arc<Shared>,
    kind: Kind,
    ino: u64,
    rdev: (u32, u32),
    pub(super) meta: Lock<Meta>,
    pub(super) body: Body,
    locks: LockTable,
    attachment: Attachment,
    sharers: Sharers,
    /// Has `security.capability`: each write asks.
    has_capabilities: AtomicBool,
    /// What the union above keeps with this node (opaque, origin).
    pub(crate) mark: Attachment,
    _charge: Charge,
}

pub(super) struct Meta {
    mode: u32,
    uid: u32,
    gid: u32,
    nlink: u32,
    accessed: Timestamp,
    modified: Timestamp,
    changed: Timestamp,
    pub(super) seals: u32,
    xattrs: Xattrs,
}

pub(super) enum Body {
    Directory(Lock<Names>),
    Data(Arc<PageCache>),
    Link(Vec<u8>),
    None,
}

fn tmp(node: &Arc<dyn Inode>) -> Result<&TmpInode> {
    (**node).as_any().downcast_ref().ok_or(Errno::EXDEV)
}

impl TmpInode {
    /// The root of a tree, which nobody is charged for.
    pub(super) fn directory(shared: &Arc<Shared>, mode: u32, uid: u32, gid: u32) -> Arc<Self> {
        let new = NewNode { kind: Kind::Directory, mode, uid, gid, rdev: (0, 0), target: Vec::new() };
        Self::charged(shared, new, Charge::FREE)
    }

    /// ENOSPC: the file system has as many files as it may have.
    pub(super) fn make(shared: &Arc<Shared>, new: NewNode) -> Result<Arc<Self>> {
        let charge = shared.charge_inode()?;
        Ok(Self::charged(shared, new, charge))
    }

    fn charged(shared: &Arc<Shared>, new: NewNode, charge: Charge) -> Arc<Self> {
        let now = shared.services.clock.realtime();
        let body = match new.kind {
            Kind::Directory => Body::Directory(Lock::default()),
            Kind::Regular => Body::Data(PageCache::within(&shared.services, &shared.account)),
            Kind::Symlink => Body::Link(new.target),
            _ => Body::None,
        };
        Arc::new(TmpInode {
            shared: shared.clone(),
            kind: new.kind,
            ino: shared.ino(),
            rdev: new.rdev,
            meta: Lock::new(Meta {
                mode: new.mode,
                uid: new.uid,
                gid: new.gid,
                nlink: if new.kind == Kind::Directory { 2 } else { 1 },
                accessed: now,
                modified: now,
                changed: now,
                seals: file::seals::SEAL,
                xattrs: Xattrs::default(),
            }),
            body,
            locks: LockTable::default(),
            attachment: Attachment::default(),
            sharers: Sharers::default(),
            has_capabilities: AtomicBool::new(false),
            mark: Attachment::default(),
            _charge: charge,
        })
    }

    /// What is in it, if that is something.
    fn take_names(&mut self) -> Option<Names> {
        match &mut self.body {
            Body::Directory(names) => Some(core::mem::take(names.get_mut())).filter(|names| !names.is_empty()),
            _ => None,
        }
    }

    fn names(&self) -> Result<&Lock<Names>> {
        match &self.body {
            Body::Directory(names) => Ok(names),
            _ => Err(Errno::ENOTDIR),
        }
    }

    pub(super) fn data(&self) -> Result<&Arc<PageCache>> {
        match &self.body {
            Body::Data(cache) => Ok(cache),
            Body::Directory(_) => Err(Errno::EISDIR),
            _ => Err(Errno::EINVAL),
        }
    }

    pub(super) fn now(&self) -> Timestamp {
        self.shared.services.clock.realtime()
    }

    /// relatime: only the first read after a change is worth noting.
    fn was_read(&self) {
        let mut meta = self.meta.lock();
        if meta.accessed <= meta.modified {
            meta.accessed = self.now();
        }
    }

    /// The contents or the names changed.
    pub(super) fn touch(&self) {
        let now = self.now();
        let mut meta = self.meta.lock();
        (meta.modified, meta.changed) = (now, now);
    }

    fn change_xattrs(&self, change: impl FnOnce(&mut Meta) -> Result<Replaced>) -> Result<()> {
        let now = self.now();
        let mut meta = self.meta.lock();
        let replaced = change(&mut meta)?;
        meta.changed = now;
        self.has_capabilities.store(meta.xattrs.has_capabilities(), Relaxed);
        drop(meta);
        drop(replaced);
        Ok(())
    }

    fn add_links(&self, links: i32) {
        let now = self.now();
        let mut meta = self.meta.lock();
        meta.nlink = meta.nlink.saturating_add_signed(links);
        meta.changed = now;
    }

    /// For the union: the position behind the name that was made last.
    pub(crate) fn newest(&self) -> Result<u64> {
        Ok(self.names()?.lock().newest())
    }

    /// For the union: what a name leads to, and the position behind it.
    pub(crate) fn find(&self, name: &[u8]) -> Result<Option<(u64, Arc<dyn Inode>)>> {
        Ok(self.names()?.lock().find(name))
    }

    /// The union gives a copied-up file the links and times it had below.
    pub(crate) fn set_origin(&self, links: u32, accessed: Timestamp, modified: Timestamp) {
        let mut meta = self.meta.lock();
        meta.nlink = links;
        (meta.accessed, meta.modified) = (accessed, modified);
    }

    /// The union removes a name of this file that exists only below.
    pub(crate) fn drop_link(&self) {
        self.add_links(-1);
    }

    fn snapshot(&self) -> Attributes {
        let meta = self.meta.lock();
        let (size, blocks) = match &self.body {
            Body::Directory(names) => ((2 + names.lock().len() as u64) * NAME_SIZE, 0),
            Body::Data(cache) => (cache.len(), cache.frames() * (PAGE_SIZE as u64 / 512)),
            Body::Link(target) => (target.len() as u64, 0),
            Body::None => (0, 0),
        };
        Attributes {
            dev: self.shared.device,
            ino: self.ino,
            mode: self.kind as u32 | meta.mode,
            nlink: meta.nlink,
            uid: meta.uid,
            gid: meta.gid,
            rdev: self.rdev,
            size,
            block_size: PAGE_SIZE as u32,
            blocks,
            accessed: meta.accessed,
            modified: meta.modified,
            changed: meta.changed,
        }
    }

    /// Takes `name` out.
    fn take(&self, name: &[u8]) -> Result<()> {
        let named = self.names()?.lock().take(name).ok_or(Errno::ENOENT)?;
        self.lost(&named.node)
    }

    /// A name of `node` in this directory is gone: lowers the counts.
    fn lost(&self, node: &Arc<dyn Inode>) -> Result<()> {
        let node = tmp(node)?;
        if node.kind == Kind::Directory {
            node.add_links(-2);
            self.add_links(-1);
        } else {
            node.add_links(-1);
        }
        Ok(())
    }

    fn check_empty(node: &Arc<dyn Inode>) -> Result<()> {
        match &tmp(node)?.body {
            Body::Directory(names) if !names.lock().is_empty() => Err(Errno::ENOTEMPTY),
            _ => Ok(()),
        }
    }

    fn move_to(&self, from: &[u8], node: &Arc<dyn Inode>, target: &Arc<dyn Inode>, to: &[u8]) -> Result<()> {
        let target = tmp(target)?;
        let named = self.names()?.lock().take(from).ok_or(Errno::ENOENT)?;
        let replaced = target.names()?.lock().put(to, named);
        if let Some(replaced) = replaced {
            target.lost(&replaced.node)?;
        }
        if node.kind() == Kind::Directory {
            self.add_links(-1);
            target.add_links(1);
        }
        self.touch();
        target.touch();
        tmp(node)?.add_links(0);
        Ok(())
    }
}

impl Drop for TmpInode {
    /// A tree that is unmounted may be any number of directories deep.
    fn drop(&mut self) {
        let mut trees = LinkedList::new();
        trees.extend(self.take_names());
        while let Some(mut names) = trees.pop_back() {
            let Some(Named { node, .. }) = names.pop() else { continue };
            trees.push_back(names);
            // If nobody else has it, what is in it goes with it: taken out before, and in its turn.
            let node: Arc<dyn Any + Send + Sync> = node;
            if let Some(mut last) = node.downcast::<TmpInode>().ok().and_then(Arc::into_inner) {
                trees.extend(last.take_names());
            }
        }
    }
}

impl Inode for TmpInode {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn kind(&self) -> Kind {
        self.kind
    }

    fn ino(&self) -> u64 {
        self.ino
    }

    fn attributes(&self) -> BoxFuture<'_, Result<Attributes>> {
        ready(Ok(self.snapshot()))
    }

    fn attributes_now(&self) -> Option<Attributes> {
        Some(self.snapshot())
    }

    fn set(&self, set: SetAttributes) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            if let Some(size) = set.size {
                self.resize(size).await?;
            }
            let now = self.now();
            let time = |time: Timestamp| if time == Timestamp::NOW { now } else { time };
            let mut _replaced = Replaced::default();
            let mut meta = self.meta.lock();
            if let (Some(mode), Some(acl)) = (set.mode, meta.xattrs.acl(AclKind::Access)) {
                let acl = Arc::new(acl.with_mode(mode)?);
                _replaced = meta.xattrs.set_acl(&self.shared.account, AclKind::Access, Some(acl))?;
            }
            meta.mode = set.mode.unwrap_or(meta.mode);
            meta.uid = set.uid.unwrap_or(meta.uid);
            meta.gid = set.gid.unwrap_or(meta.gid);
            if set.size.is_some() {
                meta.modified = now;
            }
            meta.accessed = set.accessed.map_or(meta.accessed, time);
            meta.modified = set.modified.map_or(meta.modified, time);
            meta.changed = now;
            Ok(())
        })
    }

    fn info(&self) -> BoxFuture<'_, Result<FileSystemInfo>> {
        ready(Ok(self.shared.info()))
    }

    fn xattr<'a>(&'a self, name: &'a [u8]) -> BoxFuture<'a, Result<Vec<u8>>> {
        let value = self.meta.lock().xattrs.get(name);
        ready(value.and_then(|value| {
            let mut copy = try_with_capacity(value.len())?;
            copy.extend_from_slice(&value);
            Ok(copy)
        }))
    }

    fn xattrs(&self) -> BoxFuture<'_, Result<Vec<Vec<u8>>>> {
        ready(self.meta.lock().xattrs.names())
    }

    fn set_xattr<'a>(&'a self, name: &'a [u8], value: Option<&'a [u8]>, when: SetWhen) -> BoxFuture<'a, Result<()>> {
        ready(self.change_xattrs(|meta| meta.xattrs.set(&self.shared.account, name, value, when)))
    }

    fn has_capabilities(&self) -> bool {
        self.has_capabilities.load(Relaxed)
    }

    fn acl(&self, kind: AclKind) -> Result<Option<Arc<Acl>>> {
        match self.kind {
            Kind::Symlink => Err(Errno::EOPNOTSUPP),
            _ => Ok(self.meta.lock().xattrs.acl(kind)),
        }
    }

    fn set_acl(&self, kind: AclKind, acl: Option<Arc<Acl>>, mode: Option<u32>) -> BoxFuture<'_, Result<()>> {
        ready(self.change_xattrs(|meta| {
            let replaced = meta.xattrs.set_acl(&self.shared.account, kind, acl)?;
            meta.mode = mode.unwrap_or(meta.mode);
            Ok(replaced)
        }))
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

    fn is_sparse(&self) -> bool {
        self.data().is_ok_and(|cache| cache.frames() < cache.len().div_ceil(PAGE_SIZE as u64))
    }

    fn notes_read(&self) -> bool {
        let meta = self.meta.lock();
        meta.accessed <= meta.modified
    }

    fn lookup<'a>(&'a self, _caller: &'a Caller, name: &'a [u8]) -> BoxFuture<'a, Result<Arc<dyn Inode>>> {
        ready(self.names().and_then(|names| names.lock().get(name).cloned().ok_or(Errno::ENOENT)))
    }

    fn list<'a>(&'a self, _caller: &'a Caller, to: &'a mut Listing) -> BoxFuture<'a, Result<()>> {
        ready(self.names().map(|names| names.lock().list(to)))
    }

    fn create<'a>(&'a self, name: &'a [u8], new: NewNode) -> BoxFuture<'a, Result<Arc<dyn Inode>>> {
        Box::pin(async move {
            let directory = new.kind == Kind::Directory;
            let node: Arc<dyn Inode> = Self::make(&self.shared, new)?;
            self.names()?.lock().put(name, Named::first(&node));
            if directory {
                self.add_links(1);
            }
            self.touch();
            Ok(node)
        })
    }

    fn create_unnamed(&self, new: NewNode) -> BoxFuture<'_, Result<Arc<dyn Inode>>> {
        ready(Self::make(&self.shared, new).map(|node| {
            node.meta.lock().nlink = 0;
            node as Arc<dyn Inode>
        }))
    }

    fn link<'a>(&'a self, name: &'a [u8], node: &'a Arc<dyn Inode>) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let charge = self.shared.charge_inode()?;
            tmp(node)?.add_links(1);
            self.names()?.lock().put(name, Named::further(node, charge));
            self.touch();
            Ok(())
        })
    }

    fn unlink<'a>(&'a self, name: &'a [u8], node: &'a Arc<dyn Inode>) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            Self::check_empty(node)?;
            self.take(name)?;
            self.touch();
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
            if let Some(old) = old {
                Self::check_empty(old)?;
            }
            self.move_to(from, node, target, to)
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
            let below = tmp(target)?;
            let (here, there) = (self.names()?, below.names()?);
            // Both names are there at any moment: one leads to the same file as the other for a while.
            let at_to = there.lock().put(to, Named::first(node)).ok_or(Errno::ENOENT)?;
            let at_from = here.lock().put(from, at_to).ok_or(Errno::ENOENT)?;
            let twice = there.lock().put(to, at_from);
            drop(twice);
            let moved = |node: &Arc<dyn Inode>| i32::from(node.kind() == Kind::Directory);
            self.add_links(moved(other) - moved(node));
            below.add_links(moved(node) - moved(other));
            self.touch();
            below.touch();
            debug_assert!(!same(node, other));
            Ok(())
        })
    }

    fn follow<'a>(&'a self, _caller: &'a Caller) -> BoxFuture<'a, Result<Followed>> {
        ready(match &self.body {
            Body::Link(target) => Ok(Followed::Path(target.clone())),
            _ => Err(Errno::EINVAL),
        })
    }

    fn read<'a>(&'a self, to: Destination<'a>, offset: u64, read_ahead: ReadAhead) -> Transfer<'a> {
        match self.data() {
            Ok(cache) => cache.read(to, offset, read_ahead).inspect(|_| self.was_read()),
            Err(error) => Transfer::Done(Err(error)),
        }
    }

    fn write<'a>(&'a self, from: Source<'a>, at: WriteAt) -> Transfer<'a, (u64, usize)> {
        match self.data() {
            Ok(cache) => self.write_to(cache, from, at),
            Err(error) => Transfer::Done(Err(error)),
        }
    }

    fn allocate(&self, mode: u32, offset: u64, len: u64) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.fallocate(mode, offset, len))
    }

    fn seek(&self, offset: u64, what: Extent) -> BoxFuture<'_, Result<u64>> {
        ready(self.data().and_then(|cache| cache.seek(offset, what)))
    }

    fn object(&self, _write: bool) -> BoxFuture<'_, Result<Arc<dyn Object>>> {
        ready(self.map())
    }

    fn seal(&self, add: u32) -> BoxFuture<'_, Result<u32>> {
        Box::pin(self.add_seals(add))
    }
}
