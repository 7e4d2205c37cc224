//! A file of the union: a lower inode, an upper inode, or both.

use super::{copy::is_whiteout, list::last_position, mark, Shared, UPPER_INO};
use crate::{
    file::{Destination, Source, Transfer},
    inode::{
        acl::{Acl, AclKind},
        listing::Listing,
        Attachment, Extent, Followed, NewNode, WriteAt, FOREVER,
    },
    lease::Sharers,
    locks::LockTable,
    Attributes, Caller, File, FileSystemInfo, Inode, Kind, Object, OpenFlags, ReadAhead, SetAttributes, SetWhen,
    WriteErrors,
};
use alloc::{
    boxed::Box,
    sync::{Arc, Weak},
    vec::Vec,
};
use core::{
    any::Any,
    sync::atomic::{AtomicU32, Ordering},
};
use machine::{errno::Result, sync::Lock, BoxFuture, Errno};
use spin::Once;

pub struct UnionInode {
    pub(super) shared: Arc<Shared>,
    kind: Kind,
    ino: u64,
    /// What it shows through to, or was copied from. None below an opaque directory.
    pub(super) lower: Option<Arc<dyn Inode>>,
    upper: Once<Arc<dyn Inode>>,
    /// By which name it was found first: where a copy goes.
    origin: Lock<Option<(Arc<UnionInode>, Vec<u8>)>>,
    /// Lower names removed while there was no copy to count them.
    gone: AtomicU32,
    pub(super) this: Weak<UnionInode>,
    locks: LockTable,
    attachment: Attachment,
    pub(super) sharers: Sharers,
}

pub(super) fn union(node: &Arc<dyn Inode>) -> Result<&UnionInode> {
    (**node).as_any().downcast_ref().ok_or(Errno::EXDEV)
}

impl UnionInode {
    /// The inode of this pair: the one in use, or a new one.
    pub(super) fn get(
        shared: &Arc<Shared>,
        lower: Option<Arc<dyn Inode>>,
        upper: Option<Arc<dyn Inode>>,
        origin: Option<(Arc<UnionInode>, Vec<u8>)>,
    ) -> Result<Arc<Self>> {
        let first = upper.as_ref().or(lower.as_ref()).ok_or(Errno::ENOENT)?;
        let kind = first.kind();
        let ino = match (&upper, &lower) {
            (Some(upper), _) => match mark(upper).origin {
                Some(origin) => origin.ino(),
                None => UPPER_INO | upper.ino(),
            },
            (None, Some(lower)) => lower.ino(),
            (None, None) => 0,
        };
        let known = shared.nodes.lock().get(&ino).and_then(Weak::upgrade);
        if let Some(node) = known {
            // The host may have given the number to another file; the upper tree never does.
            let same_lower = match (&node.lower, &lower) {
                (Some(a), Some(b)) => crate::inode::same(a, b),
                _ => true,
            };
            if node.kind == kind && same_lower {
                // Found in the middle of a copy-up, when the name is there already.
                if let (Some(upper), None) = (upper, node.upper()) {
                    node.set_upper(upper);
                }
                return Ok(node);
            }
        }
        // Only what is not above yet will have to be copied to its place there.
        let origin = origin.filter(|_| upper.is_none());
        let node = Arc::new_cyclic(|this| UnionInode {
            shared: shared.clone(),
            kind,
            ino,
            lower,
            upper: upper.map_or_else(Once::new, Once::initialized),
            origin: Lock::new(origin),
            gone: AtomicU32::new(0),
            this: this.clone(),
            locks: LockTable::default(),
            attachment: Attachment::default(),
            sharers: Sharers::default(),
        });
        shared.nodes.lock().insert(ino, Arc::downgrade(&node));
        Ok(node)
    }

    pub(super) fn upper(&self) -> Option<Arc<dyn Inode>> {
        self.upper.get().cloned()
    }

    pub(super) fn set_upper(&self, upper: Arc<dyn Inode>) {
        self.upper.call_once(|| upper);
        // A name above no longer matters, and would keep its inode alive.
        let origin = self.origin.lock().take();
        drop(origin);
    }

    pub(super) fn origin(&self) -> Option<(Arc<UnionInode>, Vec<u8>)> {
        self.origin.lock().clone()
    }

    /// A lower name of this file was removed; a copy made from now on has no place to go to.
    pub(super) fn lose_name(&self) {
        self.gone.fetch_add(1, Ordering::Relaxed);
        let origin = self.origin.lock().take();
        drop(origin);
    }

    /// Links of the lower file that are still there.
    pub(super) fn links_below(&self, links: u32) -> u32 {
        links.saturating_sub(self.gone.load(Ordering::Relaxed))
    }

    /// Where reading happens.
    pub(super) fn top(&self) -> Result<Arc<dyn Inode>> {
        self.shown().cloned().ok_or(Errno::ESTALE)
    }

    /// The same, to be looked at.
    fn shown(&self) -> Option<&Arc<dyn Inode>> {
        self.upper.get().or(self.lower.as_ref())
    }

    /// The lower directory whose names show through, if any.
    pub(super) fn below(&self) -> Option<&Arc<dyn Inode>> {
        let hidden = self.upper().is_some_and(|upper| mark(&upper).opaque);
        self.lower.as_ref().filter(|lower| !hidden && lower.kind() == Kind::Directory)
    }

    async fn lower_child(&self, caller: &Caller, name: &[u8]) -> Result<Option<Arc<dyn Inode>>> {
        let Some(below) = self.below() else { return Ok(None) };
        match below.lookup(caller, name).await {
            Ok(node) => Ok(Some(node)),
            Err(Errno::ENOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Does the tree below have this name, hidden or not?
    pub(super) async fn shows_through(&self, name: &[u8]) -> Result<bool> {
        Ok(self.lower_child(&crate::file::SYSTEM, name).await?.is_some())
    }

    pub(super) async fn find(&self, caller: &Caller, name: &[u8]) -> Result<Arc<UnionInode>> {
        let mut upper = match self.upper() {
            Some(directory) => match directory.lookup(caller, name).await {
                Ok(node) if is_whiteout(&node) => return Err(Errno::ENOENT),
                Ok(node) => Some(node),
                Err(Errno::ENOENT) => None,
                Err(error) => return Err(error),
            },
            None => None,
        };
        let lower = match &upper {
            // A copy knows what it is of; only a directory shows through.
            Some(node) if node.kind() != Kind::Directory => mark(node).origin,
            Some(node) if mark(node).opaque => None,
            _ => self.lower_child(caller, name).await?,
        };
        let lower = match (&upper, lower) {
            (Some(upper), Some(lower)) if upper.kind() != lower.kind() => None,
            (None, None) => return Err(Errno::ENOENT),
            (_, lower) => lower,
        };
        if upper.is_none() {
            // Another name of it was copied up.
            let ino = lower.as_ref().map(|lower| lower.ino());
            upper = ino.and_then(|ino| self.shared.copies.lock().get(&ino).cloned());
        }
        let this = self.this.upgrade().ok_or(Errno::ESTALE)?;
        Self::get(&self.shared, lower, upper, Some((this, name.to_vec())))
    }

    /// Shown attributes from those of the inode that has them.
    fn show(&self, mut attributes: Attributes) -> Attributes {
        attributes.dev = self.shared.device;
        attributes.ino = self.ino;
        match (self.upper.is_completed(), self.kind) {
            // Its subdirectories are in two places; 1 says "not counted", as overlayfs does.
            (true, Kind::Directory) if self.lower.is_some() => attributes.nlink = 1,
            (true, _) => {}
            (false, _) => attributes.nlink = self.links_below(attributes.nlink),
        }
        attributes
    }
}

impl Drop for UnionInode {
    fn drop(&mut self) {
        let mut nodes = self.shared.nodes.lock();
        if nodes.get(&self.ino).is_some_and(|node| node.strong_count() == 0) {
            nodes.remove(&self.ino);
        }
        drop(nodes);
        // It was perhaps the last that its directory, and the one above that, were kept for.
        let mut above = self.origin.get_mut().take();
        while let Some(mut unused) = above.and_then(|(directory, _)| Arc::into_inner(directory)) {
            above = unused.origin.get_mut().take();
        }
    }
}

impl Inode for UnionInode {
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
        Box::pin(async move { Ok(self.show(self.top()?.attributes().await?)) })
    }

    fn attributes_now(&self) -> Option<Attributes> {
        Some(self.show(self.top().ok()?.attributes_now()?))
    }

    fn set(&self, set: SetAttributes) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.raise(set.size != Some(0)).await?.set(set).await })
    }

    fn info(&self) -> BoxFuture<'_, Result<FileSystemInfo>> {
        // The room there is, is that of the upper tree.
        self.shared.root.info()
    }

    fn xattr<'a>(&'a self, name: &'a [u8]) -> BoxFuture<'a, Result<Vec<u8>>> {
        Box::pin(async move {
            match self.top()?.xattr(name).await {
                // A copy could have one: what is true of the upper tree is true of all files.
                Err(Errno::EOPNOTSUPP) if self.upper().is_none() => {
                    self.shared.root.xattr(name).await.and(Err(Errno::ENODATA))
                }
                value => value,
            }
        })
    }

    fn xattrs(&self) -> BoxFuture<'_, Result<Vec<Vec<u8>>>> {
        Box::pin(async move { self.top()?.xattrs().await })
    }

    fn set_xattr<'a>(&'a self, name: &'a [u8], value: Option<&'a [u8]>, when: SetWhen) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            if value.is_none() && self.upper().is_none() {
                // What is not there is not worth a copy.
                match self.xattr(name).await {
                    Err(Errno::ENODATA) => return when.check(false),
                    value => value?,
                };
            }
            self.raise(true).await?.set_xattr(name, value, when).await
        })
    }

    fn has_capabilities(&self) -> bool {
        self.shown().is_some_and(|top| top.has_capabilities())
    }

    fn acl(&self, kind: AclKind) -> Result<Option<Arc<Acl>>> {
        match self.shown().ok_or(Errno::ESTALE)?.acl(kind) {
            Err(Errno::EOPNOTSUPP) if self.kind != Kind::Symlink => Ok(None),
            acl => acl,
        }
    }

    fn set_acl(&self, kind: AclKind, acl: Option<Arc<Acl>>, mode: Option<u32>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            if acl.is_none() && mode.is_none() && self.acl(kind)?.is_none() {
                return Ok(());
            }
            self.raise(true).await?.set_acl(kind, acl, mode).await
        })
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

    /// What is above is only changed here.
    fn lasts(&self) -> u64 {
        match (self.upper(), &self.lower) {
            (None, Some(lower)) => lower.believed(),
            _ => FOREVER,
        }
    }

    fn is_sparse(&self) -> bool {
        self.upper().is_some_and(|upper| upper.is_sparse())
    }

    fn notes_read(&self) -> bool {
        self.upper().is_some_and(|upper| upper.notes_read())
    }

    fn sync(&self, data_only: bool) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            match self.upper() {
                Some(upper) => upper.sync(data_only).await,
                None => Ok(()),
            }
        })
    }

    fn lookup<'a>(&'a self, caller: &'a Caller, name: &'a [u8]) -> BoxFuture<'a, Result<Arc<dyn Inode>>> {
        Box::pin(async move { Ok(self.find(caller, name).await? as Arc<dyn Inode>) })
    }

    fn believed(&self) -> u64 {
        match self.lower.as_ref().map_or(FOREVER, |lower| lower.believed()) {
            FOREVER => FOREVER,
            below => self.below().map_or(FOREVER, |_| below),
        }
    }

    fn list<'a>(&'a self, caller: &'a Caller, to: &'a mut Listing) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.merge(caller, to))
    }

    fn last_position(&self) -> u64 {
        last_position(self.lower.is_some())
    }

    fn create<'a>(&'a self, name: &'a [u8], new: NewNode) -> BoxFuture<'a, Result<Arc<dyn Inode>>> {
        Box::pin(self.make(name, new))
    }

    fn create_unnamed(&self, new: NewNode) -> BoxFuture<'_, Result<Arc<dyn Inode>>> {
        Box::pin(async move {
            let upper = self.raise(true).await?.create_unnamed(new).await?;
            Ok(Self::get(&self.shared, None, Some(upper), None)? as Arc<dyn Inode>)
        })
    }

    fn link<'a>(&'a self, name: &'a [u8], node: &'a Arc<dyn Inode>) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.add_name(name, node))
    }

    fn unlink<'a>(&'a self, name: &'a [u8], node: &'a Arc<dyn Inode>) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.remove(name, node))
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
        Box::pin(self.swap_names(from, node, target, to, other))
    }

    fn follow<'a>(&'a self, caller: &'a Caller) -> BoxFuture<'a, Result<Followed>> {
        Box::pin(async move { self.top()?.follow(caller).await })
    }

    fn open<'a>(&'a self, caller: &'a Caller, flags: OpenFlags) -> BoxFuture<'a, Result<Option<Arc<dyn File>>>> {
        Box::pin(async move {
            let node = match flags.writable() {
                true => self.raise(!flags.contains(OpenFlags::TRUNC)).await?,
                false => self.top()?,
            };
            node.open(caller, flags).await
        })
    }

    fn read<'a>(&'a self, to: Destination<'a>, offset: u64, read_ahead: ReadAhead) -> Transfer<'a> {
        match self.shown() {
            Some(node) => node.read(to, offset, read_ahead),
            None => Transfer::Done(Err(Errno::ESTALE)),
        }
    }

    fn write<'a>(&'a self, mut from: Source<'a>, at: WriteAt) -> Transfer<'a, (u64, usize)> {
        match self.upper.get() {
            Some(node) => node.write(from, at),
            None => Transfer::later(async move { self.raise(true).await?.write(from.reborrow(), at).await }),
        }
    }

    fn write_errors(&self) -> Option<&WriteErrors> {
        self.upper.get()?.write_errors()
    }

    fn allocate(&self, mode: u32, offset: u64, len: u64) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.raise(true).await?.allocate(mode, offset, len).await })
    }

    fn seek(&self, offset: u64, what: Extent) -> BoxFuture<'_, Result<u64>> {
        Box::pin(async move { self.top()?.seek(offset, what).await })
    }

    fn object(&self, write: bool) -> BoxFuture<'_, Result<Arc<dyn Object>>> {
        Box::pin(async move {
            let node = if write { self.raise(true).await? } else { self.top()? };
            node.object(write).await
        })
    }

    fn seal(&self, _add: u32) -> BoxFuture<'_, Result<u32>> {
        crate::file::ready(Err(Errno::EINVAL))
    }
}
