//! Mounts: which tree hangs where.

use super::dentry::{Dentry, Location};
use crate::{File, FileSystem, OpenFlags};
use alloc::{
    sync::{Arc, Weak},
    vec::Vec,
};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use machine::{errno::Result, sync::Lock, Errno};

/// Flags of mount(2).
pub mod flags {
    pub const RDONLY: u64 = 1;
    pub const NOSUID: u64 = 2;
    pub const NODEV: u64 = 4;
    pub const NOEXEC: u64 = 8;
    pub const REMOUNT: u64 = 32;
    pub const NOATIME: u64 = 1024;
    pub const BIND: u64 = 4096;
    pub const MOVE: u64 = 8192;
    pub const REC: u64 = 16384;
    pub const SILENT: u64 = 32768;
    pub const PROPAGATION: u64 = 1 << 17 | 1 << 18 | 1 << 19 | 1 << 20;
    pub const RELATIME: u64 = 1 << 21;
    /// What a mount keeps.
    pub const KEPT: u64 = RDONLY | NOSUID | NODEV | NOEXEC | NOATIME | RELATIME;
}

pub struct Mount {
    pub root: Arc<Dentry>,
    /// The directory that this mount covers; None for the root of everything, and if another kernel has that directory.
    pub on: Option<Location>,
    pub file_system: Arc<dyn FileSystem>,
    pub source: Vec<u8>,
    flags: AtomicU64,
    /// The directory of another kernel that this mount covers.
    pub(super) above: Option<Arc<dyn File>>,
    /// The topmost directory as that kernel knows it.
    pub(super) known_as: Lock<Weak<dyn File>>,
    /// That kernel has taken the mount away.
    pub(super) gone: AtomicBool,
}

impl Mount {
    pub(super) fn new(
        file_system: Arc<dyn FileSystem>,
        root: Arc<Dentry>,
        on: Option<Location>,
        source: Vec<u8>,
        flags: u64,
    ) -> Arc<Self> {
        Self::over(file_system, root, (on, None), source, flags)
    }

    /// One that covers a directory of this kernel, or of another.
    pub(super) fn over(
        file_system: Arc<dyn FileSystem>,
        root: Arc<Dentry>,
        (on, above): (Option<Location>, Option<Arc<dyn File>>),
        source: Vec<u8>,
        flags: u64,
    ) -> Arc<Self> {
        Arc::new(Mount {
            root,
            on,
            file_system,
            source,
            flags: AtomicU64::new(flags & flags::KEPT),
            above,
            known_as: Lock::new(Weak::<super::directory::DirFile>::new()),
            gone: AtomicBool::new(false),
        })
    }

    /// If the file system is another kernel's: its topmost directory, where walks go on.
    pub fn entry(&self) -> Option<&Arc<dyn File>> {
        self.file_system.elsewhere().map(|there| there.entry())
    }

    /// If a walk begins at `start` because it came there from the mount on another kernel, and that has been taken away since: what it covered.
    pub(super) fn left(&self, start: &Arc<dyn File>) -> Option<Arc<dyn File>> {
        let is_known = || core::ptr::addr_eq(Weak::as_ptr(&self.known_as.lock()), Arc::as_ptr(start));
        if self.gone.load(Ordering::Acquire) && is_known() {
            return self.above.clone();
        }
        None
    }

    /// A tree that hangs nowhere, for files without names.
    pub(crate) fn detached(file_system: Arc<dyn FileSystem>) -> Arc<Self> {
        let root = Dentry::root(file_system.root());
        Self::new(file_system, root, None, Vec::new(), 0)
    }

    pub fn flags(&self) -> u64 {
        self.flags.load(Ordering::Relaxed)
    }

    pub(super) fn set_flags(&self, flags: u64) {
        self.flags.store(flags & flags::KEPT, Ordering::Relaxed);
    }

    /// What of its flags the files that are open on it have.
    pub fn open_flags(&self) -> OpenFlags {
        match self.flags() & flags::NOEXEC {
            0 => OpenFlags::empty(),
            _ => OpenFlags::NOEXEC,
        }
    }

    pub fn check_writable(&self) -> Result<()> {
        match self.flags() & flags::RDONLY {
            0 => Ok(()),
            _ => Err(Errno::EROFS),
        }
    }
}

impl Drop for Mount {
    /// Mounts on mounts may be any number deep, and with MNT_DETACH the last use of all of them ends at once.
    fn drop(&mut self) {
        let mut below = self.on.take();
        while let Some(mut unused) = below.and_then(|on| Arc::into_inner(on.mount)) {
            below = unused.on.take();
        }
    }
}

/// fs.mount-max.
const MOST: usize = 100_000;

/// All mounts, oldest first. Few and rarely changed, so a list; a dentry's own count of mounts keeps
/// walks from searching it.
pub(super) struct MountTable(Lock<Vec<Arc<Mount>>>);

impl MountTable {
    pub fn with_root(root: Option<Arc<Mount>>) -> Self {
        MountTable(Lock::new(root.into_iter().collect()))
    }

    /// The mount that covers `at`, if any.
    pub fn covering(&self, at: &Location) -> Option<Arc<Mount>> {
        if at.dentry.mounts.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mounts = self.0.lock();
        mounts.iter().rev().find(|mount| mount.on.as_ref().is_some_and(|on| on.same(at))).cloned()
    }

    /// ENOSPC: there are too many.
    pub fn add(&self, mount: Arc<Mount>) -> Result<()> {
        let mut mounts = self.0.lock();
        if mounts.len() >= MOST {
            return Err(Errno::ENOSPC);
        }
        if let Some(on) = &mount.on {
            // Pairs with the load in `covering`: who sees the count finds the entry.
            on.dentry.mounts.fetch_add(1, Ordering::Release);
        }
        mounts.push(mount);
        Ok(())
    }

    /// All but the root.
    pub fn remove_all(&self) {
        while let Some(mount) = { self.0.lock().pop_if(|mount| mount.on.is_some()) } {
            if let Some(on) = &mount.on {
                on.dentry.mounts.fetch_sub(1, Ordering::Release);
            }
        }
    }

    /// Takes `mount` out unless it is busy: used by an open file, a working directory or another mount.
    pub fn remove(&self, mount: &Arc<Mount>, detach: bool) -> Result<()> {
        let mut mounts = self.0.lock();
        if mount.on.is_none() && mount.above.is_none() {
            return Err(Errno::EINVAL);
        }
        let place = mounts.iter().position(|other| Arc::ptr_eq(other, mount)).ok_or(Errno::EINVAL)?;
        // The table's, the caller's, and that of the directory that another kernel knows.
        if !detach && Arc::strong_count(mount) > 2 + usize::from(mount.above.is_some()) {
            return Err(Errno::EBUSY);
        }
        let gone = mounts.remove(place);
        gone.gone.store(!detach, Ordering::Release);
        drop(mounts);
        if let Some(on) = &mount.on {
            on.dentry.mounts.fetch_sub(1, Ordering::Release);
        }
        Ok(())
    }

    /// EBUSY: something of this kernel uses `mount`, whose file system is another's.
    pub fn check_unused(&self, mount: &Arc<Mount>) -> Result<()> {
        let mounts = self.0.lock();
        match mounts.iter().any(|other| Arc::ptr_eq(other, mount)) {
            true if Arc::strong_count(mount) > 2 => Err(Errno::EBUSY),
            true => Ok(()),
            false => Err(Errno::EINVAL),
        }
    }

    pub fn list(&self) -> Vec<Arc<Mount>> {
        self.0.lock().clone()
    }
}
