//! Names: the tree of directory entries that have been looked up.
//!
//! A dentry is a name that leads to an inode. Children are held by their parent, which makes them the
//! name cache (names that do not exist are cached too), and a child holds its parent, so `..` and the
//! path of an open file never need the file system. The cycle is broken when a name is removed, and when
//! [`super::cache`] drops what nobody uses.
//!
//! A program decides how deep the tree is, so nothing here recurses: neither a walk nor a drop.

use super::{cache::NameCache, mount::Mount, walk::PATH_MAX};
use crate::{inode::FOREVER, inotify, Clock, File, Inode};
use alloc::{
    boxed::Box,
    collections::{btree_map::Entry, BTreeMap},
    sync::Arc,
    vec::Vec,
};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use machine::{
    sync::{AsyncLock, Lock},
    BoxFuture,
};

pub struct Dentry {
    pub inode: Arc<dyn Inode>,
    place: Lock<NameInParent>,
    children: Lock<BTreeMap<Name, Child>>,
    /// Held by who changes or fills this directory; see [`super::change`] for the order of two.
    pub(super) changing: AsyncLock<()>,
    /// Mounts on this dentry: a quick "none".
    pub(super) mounts: AtomicU32,
    removed: AtomicBool,
    /// The name that was removed was the file's last.
    last: AtomicBool,
}

/// One component of a path. The directory, the dentry and the cache's queue share its bytes.
pub(super) type Name = Arc<[u8]>;

struct NameInParent {
    name: Name,
    /// None: the root of a file system, or a file that never had a name.
    parent: Option<Arc<Dentry>>,
}

struct Child {
    name: Name,
    /// When the file system said so.
    checked: u64,
    /// Looked up again since the cache last considered dropping it.
    used: bool,
    dentry: Option<Arc<Dentry>>,
}

/// What the cache knows of a name.
pub(super) enum Cached {
    Is(Arc<Dentry>),
    IsNot,
    Unknown,
}

impl Dentry {
    pub fn root(inode: Arc<dyn Inode>) -> Arc<Self> {
        Self::new(inode, Arc::default(), None)
    }

    /// A file opened without ever having a name (O_TMPFILE, memfd): shown as `name (deleted)`.
    pub fn unnamed(inode: Arc<dyn Inode>, parent: Option<Arc<Dentry>>, name: Vec<u8>) -> Arc<Self> {
        let dentry = Self::new(inode, name.into(), parent);
        dentry.removed.store(true, Ordering::Relaxed);
        dentry
    }

    pub(super) fn new(inode: Arc<dyn Inode>, name: Name, parent: Option<Arc<Dentry>>) -> Arc<Self> {
        Arc::new(Dentry {
            inode,
            place: Lock::new(NameInParent { name, parent }),
            children: Lock::new(BTreeMap::new()),
            changing: AsyncLock::new(()),
            mounts: AtomicU32::new(0),
            removed: AtomicBool::new(false),
            last: AtomicBool::new(false),
        })
    }

    pub fn name(&self) -> Arc<[u8]> {
        self.place.lock().name.clone()
    }

    pub fn parent(&self) -> Option<Arc<Dentry>> {
        self.place.lock().parent.clone()
    }

    /// Its name is being removed, and the file has no other: with this dentry it ends.
    pub(super) fn is_last(&self) {
        self.last.store(true, Ordering::Relaxed);
    }

    /// Tells who watches (inotify) it, or its directory, what has happened to it.
    pub(super) fn tell(&self, event: u32) {
        if inotify::nobody_watches() {
            return;
        }
        let (above, name) = (self.parent(), self.name());
        inotify::about(&self.inode, above.as_ref().map(|above| (&above.inode, &*name, self.is_removed())), event);
    }

    /// Its name was unlinked.
    pub fn is_removed(&self) -> bool {
        self.removed.load(Ordering::Relaxed)
    }

    pub(super) fn cached(&self, name: &[u8], clock: &dyn Clock, believed: u64) -> Cached {
        let mut children = self.children.lock();
        let Some(child) = children.get_mut(name) else { return Cached::Unknown };
        let fresh = believed == FOREVER || clock.monotonic().saturating_sub(child.checked) < believed;
        let found = match &child.dentry {
            Some(dentry) if fresh || dentry.mounts.load(Ordering::Relaxed) > 0 => Cached::Is(dentry.clone()),
            None if fresh => Cached::IsNot,
            _ => return Cached::Unknown,
        };
        child.used = true;
        found
    }

    /// Takes down what the file system answered for `name`; a dentry that still leads to the same inode stays.
    pub(super) fn learn(
        self: &Arc<Self>,
        name: &[u8],
        inode: Option<Arc<dyn Inode>>,
        cache: &NameCache,
        now: u64,
    ) -> Option<Arc<Dentry>> {
        let (_, new) = self.change_child(name, cache, now, |old, name| match (old, inode) {
            (Some(old), Some(inode)) if crate::inode::same(&old.inode, &inode) => Some(old.clone()),
            (_, Some(inode)) => Some(Dentry::new(inode, name.clone(), Some(self.clone()))),
            (_, None) => None,
        });
        new
    }

    /// `name` is gone.
    pub(super) fn forget(self: &Arc<Self>, name: &[u8], cache: &NameCache, now: u64) {
        let (old, _) = self.change_child(name, cache, now, |_, _| None);
        if let Some(dentry) = old {
            dentry.removed.store(true, Ordering::Relaxed);
            let names = core::mem::take(&mut *dentry.children.lock());
            drop(names);
        }
    }

    /// `child` is now called `name` in this directory.
    pub(super) fn adopt(self: &Arc<Self>, name: &[u8], child: Arc<Dentry>, cache: &NameCache, now: u64) {
        self.change_child(name, cache, now, |_, name| {
            let place = NameInParent { name: name.clone(), parent: Some(self.clone()) };
            let before = core::mem::replace(&mut *child.place.lock(), place);
            child.removed.store(false, Ordering::Relaxed);
            // The directory it was in is held by who moves the child.
            drop(before);
            Some(child)
        });
    }

    /// Has `name` lead to what `to` makes of what it leads to now; gives both. A name that was not cached is one more for the cache
    /// to drop some day.
    fn change_child(
        self: &Arc<Self>,
        name: &[u8],
        cache: &NameCache,
        now: u64,
        to: impl FnOnce(Option<&Arc<Dentry>>, &Name) -> Option<Arc<Dentry>>,
    ) -> (Option<Arc<Dentry>>, Option<Arc<Dentry>>) {
        let mut children = self.children.lock();
        if let Some(child) = children.get_mut(name) {
            let old = child.dentry.take();
            let new = to(old.as_ref(), &child.name);
            (child.checked, child.used) = (now, false);
            child.dentry.clone_from(&new);
            return (old, new);
        }
        let name = Name::from(name);
        let new = to(None, &name);
        let child = Child { name: name.clone(), checked: now, used: false, dentry: new.clone() };
        children.insert(name.clone(), child);
        drop(children);
        cache.add(self, name);
        (None, new)
    }

    /// Drops the cached `name` unless it is used: open, below something open, mounted on, or, if `recent` names are to stay, looked up
    /// since the last time. Whether it is still there.
    pub(super) fn drop_unused(&self, name: &Name, keep_recent: bool) -> bool {
        let mut children = self.children.lock();
        let Entry::Occupied(mut entry) = children.entry(name.clone()) else { return false };
        let child = entry.get_mut();
        let recent = core::mem::take(&mut child.used) && keep_recent;
        let held = child
            .dentry
            .as_ref()
            .is_some_and(|dentry| Arc::strong_count(dentry) > 1 || dentry.mounts.load(Ordering::Relaxed) > 0);
        if recent || held {
            return true;
        }
        let unused = entry.remove();
        drop(children);
        // Ends its inode, if nobody else has that: not under the lock.
        drop(unused);
        false
    }

    /// The topmost name of its file system.
    pub(super) fn topmost(self: &Arc<Self>) -> Arc<Dentry> {
        let mut at = self.clone();
        while let Some(above) = at.parent() {
            at = above;
        }
        at
    }

    /// Is `self` `other` or below it?
    pub(super) fn is_within(self: &Arc<Self>, other: &Arc<Dentry>) -> bool {
        let mut at = Some(self.clone());
        while let Some(dentry) = at {
            if Arc::ptr_eq(&dentry, other) {
                return true;
            }
            at = dentry.parent();
        }
        false
    }
}

impl Drop for Dentry {
    fn drop(&mut self) {
        if *self.removed.get_mut() && *self.last.get_mut() {
            inotify::deleted(&self.inode);
        }
        // Of directories that were removed, or whose tree was unmounted, this was perhaps the last use: all the way up.
        let mut above = self.place.get_mut().parent.take();
        while let Some(mut unused) = above.and_then(Arc::into_inner) {
            above = unused.place.get_mut().parent.take();
        }
    }
}

/// A dentry as reached through a mount: where an open file is, or a walk has come to.
#[derive(Clone)]
pub struct Location {
    pub mount: Arc<Mount>,
    pub dentry: Arc<Dentry>,
}

impl Location {
    pub fn inode(&self) -> &Arc<dyn Inode> {
        &self.dentry.inode
    }

    pub fn same(&self, other: &Location) -> bool {
        Arc::ptr_eq(&self.mount, &other.mount) && Arc::ptr_eq(&self.dentry, &other.dentry)
    }

    /// The directory above, across mounts; None at the top of everything.
    pub(super) fn up(&self) -> Option<Location> {
        let mut at = self.clone();
        while Arc::ptr_eq(&at.dentry, &at.mount.root) {
            at = at.mount.on.clone()?;
        }
        let parent = at.dentry.parent()?;
        Some(Location { mount: at.mount, dentry: parent })
    }

    /// Where `..` leads from the topmost directory of a file system that hangs in another kernel's tree: the directory there that it covers.
    pub(super) fn above(&self) -> Option<Arc<dyn File>> {
        Arc::ptr_eq(&self.dentry, &self.mount.root).then(|| self.mount.above.clone())?
    }

    /// [`Location::path`], with what the kernel that owns the root says of where the file system hangs.
    pub fn whole_path(&self) -> BoxFuture<'_, Vec<u8>> {
        let Some(above) = self.mount.above.clone() else { return crate::file::ready(self.path()) };
        Box::pin(async move {
            let (mut path, below) = (above.path().await, self.path());
            if path == b"/" {
                return below;
            }
            if below != b"/" {
                path.extend_from_slice(&below);
            }
            path
        })
    }

    /// Absolute path within the file systems of this kernel, with ` (deleted)` if the name is gone. One of more than [`PATH_MAX`] bytes lacks its beginning; a call
    /// that gives it to a program answers ENAMETOOLONG.
    pub fn path(&self) -> Vec<u8> {
        let mut parts: Vec<Name> = Vec::new();
        let mut length = 0;
        let mut at = self.clone();
        while length <= PATH_MAX {
            while Arc::ptr_eq(&at.dentry, &at.mount.root) {
                match at.mount.on.clone() {
                    Some(on) => at = on,
                    None => break,
                }
            }
            let (name, parent) = (at.dentry.name(), at.dentry.parent());
            // Without a parent a name has no place: memfd.
            if parent.is_some() || !name.is_empty() {
                length += name.len() + 1;
                parts.push(name);
            }
            let Some(parent) = parent else { break };
            at.dentry = parent;
        }
        let mut path = Vec::new();
        for part in parts.iter().rev() {
            path.push(b'/');
            path.extend_from_slice(part);
        }
        if path.is_empty() {
            path.push(b'/');
        }
        if self.dentry.is_removed() {
            path.extend_from_slice(b" (deleted)");
        }
        path
    }
}
