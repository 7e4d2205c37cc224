//! Names: the tree of directory entries that have been looked up.
//!
//! A dentry is a name that leads to an inode. Children are held by their parent, which makes them the
//! name cache (names that do not exist are cached too), and a child holds its parent, so `..` and the
//! path of an open file never need the file system. The cycle is broken when a name is removed, when the
//! tree is unmounted, and when [`Dentry::prune`] drops what nobody uses.

use super::mount::Mount;
use crate::{inode::FOREVER, Clock, Inode};
use alloc::{collections::BTreeMap, sync::Arc, vec::Vec};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use machine::sync::{AsyncLock, Lock};

pub struct Dentry {
    pub inode: Arc<dyn Inode>,
    place: Lock<Place>,
    children: Lock<BTreeMap<Vec<u8>, Child>>,
    /// Held by who changes or fills this directory; see [`super::change`] for the order of two.
    pub(super) changing: AsyncLock<()>,
    /// Mounts on this dentry: a quick "none".
    pub(super) mounts: AtomicU32,
    removed: AtomicBool,
    /// The name that was removed was the file's last.
    last: AtomicBool,
}

struct Place {
    name: Vec<u8>,
    /// None: the root of a file system, or a file that never had a name.
    parent: Option<Arc<Dentry>>,
}

struct Child {
    /// When the file system said so.
    checked: u64,
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
        Self::new(inode, Vec::new(), None)
    }

    /// A file opened without ever having a name (O_TMPFILE, memfd): shown as `name (deleted)`.
    pub fn unnamed(inode: Arc<dyn Inode>, parent: Option<Arc<Dentry>>, name: Vec<u8>) -> Arc<Self> {
        let dentry = Self::new(inode, name, parent);
        dentry.removed.store(true, Ordering::Relaxed);
        dentry
    }

    pub(super) fn new(inode: Arc<dyn Inode>, name: Vec<u8>, parent: Option<Arc<Dentry>>) -> Arc<Self> {
        Arc::new(Dentry {
            inode,
            place: Lock::new(Place { name, parent }),
            children: Lock::new(BTreeMap::new()),
            changing: AsyncLock::new(()),
            mounts: AtomicU32::new(0),
            removed: AtomicBool::new(false),
            last: AtomicBool::new(false),
        })
    }

    pub fn name(&self) -> Vec<u8> {
        self.place.lock().name.clone()
    }

    pub fn parent(&self) -> Option<Arc<Dentry>> {
        self.place.lock().parent.clone()
    }

    /// Its name is being removed, and the file has no other: with this dentry it ends.
    pub(super) fn is_last(&self) {
        self.last.store(true, Ordering::Relaxed);
    }

    /// Its name was unlinked.
    pub fn is_removed(&self) -> bool {
        self.removed.load(Ordering::Relaxed)
    }

    pub(super) fn cached(&self, name: &[u8], clock: &dyn Clock, believed: u64) -> Cached {
        let fresh = |checked| believed == FOREVER || clock.monotonic().saturating_sub(checked) < believed;
        match self.children.lock().get(name) {
            Some(Child { dentry: Some(dentry), checked })
                if fresh(*checked) || dentry.mounts.load(Ordering::Relaxed) > 0 =>
            {
                Cached::Is(dentry.clone())
            }
            Some(Child { dentry: None, checked }) if fresh(*checked) => Cached::IsNot,
            _ => Cached::Unknown,
        }
    }

    /// Takes down what the file system answered for `name`; a dentry that still leads to the same inode stays.
    pub(super) fn learn(self: &Arc<Self>, name: &[u8], inode: Option<Arc<dyn Inode>>, now: u64) -> Option<Arc<Dentry>> {
        let mut children = self.children.lock();
        let child = children.entry(name.to_vec()).or_insert(Child { checked: now, dentry: None });
        child.checked = now;
        child.dentry = match (child.dentry.take(), inode) {
            (Some(old), Some(inode)) if crate::inode::same(&old.inode, &inode) => Some(old),
            (_, Some(inode)) => Some(Dentry::new(inode, name.to_vec(), Some(self.clone()))),
            (_, None) => None,
        };
        child.dentry.clone()
    }

    /// `name` is gone.
    pub(super) fn forget(&self, name: &[u8], now: u64) {
        let old = self.children.lock().insert(name.to_vec(), Child { checked: now, dentry: None });
        if let Some(Child { dentry: Some(dentry), .. }) = old {
            dentry.removed.store(true, Ordering::Relaxed);
            dentry.children.lock().clear();
        }
    }

    /// `child` is now called `name` in this directory.
    pub(super) fn adopt(self: &Arc<Self>, name: &[u8], child: Arc<Dentry>, now: u64) {
        *child.place.lock() = Place { name: name.to_vec(), parent: Some(self.clone()) };
        child.removed.store(false, Ordering::Relaxed);
        self.children.lock().insert(name.to_vec(), Child { checked: now, dentry: Some(child) });
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

    /// Drops the names below that nobody uses; says how many.
    pub(super) fn prune(&self) -> usize {
        // Children are collected first: a deep tree must not be walked with locks held.
        let children: Vec<Arc<Dentry>> =
            self.children.lock().values().filter_map(|child| child.dentry.clone()).collect();
        let mut dropped = 0;
        for child in children {
            dropped += child.prune();
        }
        self.children.lock().retain(|_, child| {
            let keep = child
                .dentry
                .as_ref()
                .is_some_and(|dentry| Arc::strong_count(dentry) > 1 || dentry.mounts.load(Ordering::Relaxed) > 0);
            dropped += usize::from(!keep);
            keep
        });
        dropped
    }
}

impl Drop for Dentry {
    fn drop(&mut self) {
        if *self.removed.get_mut() && *self.last.get_mut() {
            crate::inotify::deleted(&self.inode);
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

    /// Absolute path, with ` (deleted)` if the name is gone.
    pub fn path(&self) -> Vec<u8> {
        let mut parts: Vec<Vec<u8>> = Vec::new();
        let mut at = self.clone();
        loop {
            while Arc::ptr_eq(&at.dentry, &at.mount.root) {
                match at.mount.on.clone() {
                    Some(on) => at = on,
                    None => break,
                }
            }
            let Some(parent) = at.dentry.parent() else {
                // A name without a place: memfd.
                if !at.dentry.name().is_empty() {
                    parts.push(at.dentry.name());
                }
                break;
            };
            parts.push(at.dentry.name());
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
