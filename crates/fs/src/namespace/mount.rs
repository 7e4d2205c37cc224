//! Mounts: which tree hangs where.

use super::dentry::{Dentry, Location};
use crate::{File, FileSystem, Object, ObjectId, OpenFlags};
use alloc::{
    collections::{BTreeMap, BTreeSet},
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
    /// If the file system is another kernel's: its topmost directory, where walks go on.
    entry: Option<Arc<dyn File>>,
    pub source: Vec<u8>,
    flags: AtomicU64,
    /// The directory of another kernel that this mount covers.
    pub(super) above: Option<Arc<dyn File>>,
    /// The topmost directory as that kernel knows it.
    pub(super) known_as: Lock<Weak<dyn File>>,
    /// That kernel has taken the mount away.
    gone: AtomicBool,
    /// It hangs nowhere any more, but is used still (MNT_DETACH): no other kernel may keep a file of it open.
    detached: AtomicBool,
    given: Lock<Given>,
}

/// Objects of files that were given out to be mapped: a mapping keeps the object and not the mount.
#[derive(Default)]
struct Given {
    objects: BTreeMap<ObjectId, Weak<dyn Object>>,
    /// How often.
    times: u64,
    /// So many are looked through for those that are gone.
    sweep_at: usize,
}

/// Fewer objects than this are not looked through.
const FEW: usize = 64;

/// Whether somebody may map files of a mount, as was found out at some time.
#[derive(Clone, Copy)]
pub(super) struct Mapped {
    pub is_mapped: bool,
    /// How often objects had been given out by then.
    pub times: u64,
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
        let entry = file_system.elsewhere().map(|there| there.entry().clone());
        Arc::new(Mount {
            root,
            on,
            file_system,
            entry,
            source,
            flags: AtomicU64::new(flags & flags::KEPT),
            above,
            known_as: Lock::new(Weak::<super::directory::DirFile>::new()),
            gone: AtomicBool::new(false),
            detached: AtomicBool::new(false),
            given: Lock::default(),
        })
    }

    /// Whether it hangs in the tree: it is neither the root of everything nor a tree without names.
    fn hangs(&self) -> bool {
        self.on.is_some() || self.above.is_some()
    }

    pub fn entry(&self) -> Option<&Arc<dyn File>> {
        self.entry.as_ref()
    }

    /// Whether the kernel that has the directory above has taken it away.
    pub(super) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    pub(super) fn is_detached(&self) -> bool {
        self.detached.load(Ordering::Acquire)
    }

    /// A tree that hangs nowhere, for files without names.
    pub(crate) fn detached(file_system: Arc<dyn FileSystem>) -> Arc<Self> {
        let root = Dentry::root(file_system.root());
        Self::new(file_system, root, None, Vec::new(), 0)
    }

    /// It hangs nowhere any more. The caller has recalled what other kernels keep, and none gets anything to keep meanwhile.
    pub(super) fn set_detached(&self) {
        self.detached.store(true, Ordering::Release);
    }

    /// An object of one of its files is given out, perhaps to be mapped.
    pub(super) fn gives(&self, object: &Arc<dyn Object>) {
        // What hangs nowhere is never unmounted.
        if !self.hangs() {
            return;
        }
        let mut given = self.given.lock();
        given.times += 1;
        if given.objects.len() >= given.sweep_at.max(FEW) {
            given.objects.retain(|_, object| object.strong_count() > 0);
            given.sweep_at = 2 * given.objects.len();
        }
        given.objects.insert(object.id(), Arc::downgrade(object));
    }

    /// The objects that were given out and that somebody still has; and how often any was.
    pub(super) fn given(&self) -> (Vec<Arc<dyn Object>>, u64) {
        let given = self.given.lock();
        (given.objects.values().filter_map(Weak::upgrade).collect(), given.times)
    }

    /// Whether it is in use, beside by `holders` who ask.
    fn is_used(self: &Arc<Self>, holders: usize, mapped: Mapped) -> bool {
        mapped.is_mapped || Arc::strong_count(self) > holders || self.given.lock().times != mapped.times
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
pub(super) struct MountTable {
    mounts: Lock<Vec<Arc<Mount>>>,
    /// Those that hang nowhere any more (MNT_DETACH), as long as somebody uses them.
    detached: Lock<Vec<Arc<Mount>>>,
}

impl MountTable {
    pub fn with_root(root: Option<Arc<Mount>>) -> Self {
        MountTable { mounts: Lock::new(root.into_iter().collect()), detached: Lock::default() }
    }

    /// The mount that covers `at`, if any.
    pub fn covering(&self, at: &Location) -> Option<Arc<Mount>> {
        if at.dentry.mounts.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mounts = self.mounts.lock();
        mounts.iter().rev().find(|mount| mount.on.as_ref().is_some_and(|on| on.same(at))).cloned()
    }

    /// If a walk begins at `start` because it came there from the mount on another kernel, and that has been taken away since: what it covered. Under the lock: who takes
    /// the mount away later finds it used by the walk.
    pub fn left(&self, mount: &Arc<Mount>, start: &Arc<dyn File>) -> Option<Arc<dyn File>> {
        let above = mount.above.as_ref()?;
        let _mounts = self.mounts.lock();
        let is_known = || core::ptr::addr_eq(Weak::as_ptr(&mount.known_as.lock()), Arc::as_ptr(start));
        (mount.is_gone() && is_known()).then(|| above.clone())
    }

    /// ENOSPC: there are too many. ENOENT: what it is to hang on hangs nowhere any more.
    pub fn add(&self, mount: Arc<Mount>) -> Result<()> {
        let mut mounts = self.mounts.lock();
        if mounts.len() >= MOST {
            return Err(Errno::ENOSPC);
        }
        if mount.on.as_ref().is_some_and(|on| !mounts.iter().any(|other| Arc::ptr_eq(other, &on.mount))) {
            return Err(Errno::ENOENT);
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
        let detached = core::mem::take(&mut *self.detached.lock());
        drop(detached);
        while let Some(mount) = { self.mounts.lock().pop_if(|mount| mount.on.is_some()) } {
            if let Some(on) = &mount.on {
                on.dentry.mounts.fetch_sub(1, Ordering::Release);
            }
        }
    }

    /// Takes `mount` out. EBUSY: it is used by an open file, a working directory, a mapping or another mount. `apart` of its uses make it no busier.
    pub fn remove(&self, mount: &Arc<Mount>, mapped: Mapped, apart: usize) -> Result<()> {
        // The table's, the caller's, and that of the directory that another kernel knows.
        let holders = 2 + usize::from(mount.above.is_some()) + apart;
        self.take_out(mount, Some((holders, mapped)))
    }

    /// Takes out `mount`, whose file system is another kernel's, where it has been taken away.
    pub fn forget(&self, mount: &Arc<Mount>) -> Result<()> {
        self.take_out(mount, None)
    }

    fn take_out(&self, mount: &Arc<Mount>, unless_used: Option<(usize, Mapped)>) -> Result<()> {
        let mut mounts = self.mounts.lock();
        if !mount.hangs() {
            return Err(Errno::EINVAL);
        }
        let place = mounts.iter().position(|other| Arc::ptr_eq(other, mount)).ok_or(Errno::EINVAL)?;
        if unless_used.is_some_and(|(holders, mapped)| mount.is_used(holders, mapped)) {
            return Err(Errno::EBUSY);
        }
        mounts.remove(place);
        mount.gone.store(unless_used.is_some(), Ordering::Release);
        drop(mounts);
        if let Some(on) = &mount.on {
            on.dentry.mounts.fetch_sub(1, Ordering::Release);
        }
        Ok(())
    }

    /// EBUSY: something of this kernel uses `mount`, apart from the table, the caller and `apart` others.
    pub fn check_unused(&self, mount: &Arc<Mount>, apart: usize) -> Result<()> {
        let mounts = self.mounts.lock();
        match mounts.iter().any(|other| Arc::ptr_eq(other, mount)) {
            true if Arc::strong_count(mount) > 2 + apart => Err(Errno::EBUSY),
            true => Ok(()),
            false => Err(Errno::EINVAL),
        }
    }

    /// Takes `mount` out, and all that hang on it, whoever uses them.
    pub fn detach(&self, mount: &Arc<Mount>) -> Result<()> {
        if !mount.hangs() {
            return Err(Errno::EINVAL);
        }
        let mut mounts = self.mounts.lock();
        if !mounts.iter().any(|other| Arc::ptr_eq(other, mount)) {
            return Err(Errno::EINVAL);
        }
        let gone = with_hanging(&mounts, mount);
        let known: BTreeSet<_> = gone.iter().map(Arc::as_ptr).collect();
        mounts.retain(|other| !known.contains(&Arc::as_ptr(other)));
        drop(mounts);
        for on in gone.iter().filter_map(|mount| mount.on.as_ref()) {
            on.dentry.mounts.fetch_sub(1, Ordering::Release);
        }
        gone.iter().for_each(|mount| mount.set_detached());
        self.detached.lock().extend(gone);
        Ok(())
    }

    /// Those that were detached and are still in use.
    pub fn detached(&self) -> Vec<Arc<Mount>> {
        self.detached.lock().clone()
    }

    /// Takes a detached mount out of those in use, if it is used no more; says whether.
    pub fn forget_detached(&self, mount: &Arc<Mount>, mapped: Mapped, holders: usize) -> bool {
        let mut detached = self.detached.lock();
        if mount.is_used(holders, mapped) {
            return false;
        }
        detached.retain(|other| !Arc::ptr_eq(other, mount));
        true
    }

    /// The same for one whose file system is another kernel's, where it has been taken away.
    pub fn drop_detached(&self, mount: &Arc<Mount>) {
        self.detached.lock().retain(|other| !Arc::ptr_eq(other, mount));
    }

    /// Whether more than `holders` have a detached mount, whoever maps its files.
    pub fn is_held(&self, mount: &Arc<Mount>, holders: usize) -> bool {
        let _detached = self.detached.lock();
        Arc::strong_count(mount) > holders
    }

    pub fn list(&self) -> Vec<Arc<Mount>> {
        self.mounts.lock().clone()
    }

    /// The topmost name of a file system that is to be mounted: that of its other mounts, if it has any, so that what one of them changes the others know.
    pub fn root_of(&self, file_system: &dyn FileSystem) -> Arc<Dentry> {
        let root = file_system.root();
        let is_root = |top: &Arc<Dentry>| core::ptr::addr_eq(Arc::as_ptr(&top.inode), Arc::as_ptr(&root));
        let find = |mounts: &[Arc<Mount>]| mounts.iter().map(|mount| mount.root.topmost()).find(is_root);
        let known = find(&self.mounts.lock());
        let known = known.or_else(|| find(&self.detached.lock()));
        known.unwrap_or_else(|| Dentry::root(root))
    }
}

/// `mount` and all of `mounts` that hang on it, the oldest first.
fn with_hanging(mounts: &[Arc<Mount>], mount: &Arc<Mount>) -> Vec<Arc<Mount>> {
    let mut found = alloc::vec![mount.clone()];
    let mut known = BTreeSet::from([Arc::as_ptr(mount)]);
    // What hangs on a mount is younger than that.
    for other in mounts {
        if other.on.as_ref().is_some_and(|on| known.contains(&Arc::as_ptr(&on.mount))) {
            known.insert(Arc::as_ptr(other));
            found.push(other.clone());
        }
    }
    found
}
