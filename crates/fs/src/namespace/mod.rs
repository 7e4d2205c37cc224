//! The tree of names: mounts, walks, and everything that takes a path ([`LocalPaths`]).
//!
//! `walk` turns a path into a [`Location`]; `open`, `query` and `change` do what is asked there, after
//! the permission checks that are the same for all file systems; `mount` and `mounting` hang trees into
//! the tree; `files` holds the open descriptions of files that have names. What a file system itself
//! must know is behind [`crate::Inode`]. Called by crate `linux` through [`crate::Paths`].

mod anchor;
mod cache;
mod change;
mod dentry;
mod device_nodes;
mod devices;
mod directory;
pub mod elsewhere;
mod files;
pub mod mount;
mod mounting;
mod named;
pub(crate) mod nodes;
mod open;
mod paths;
pub mod permission;
mod query;
mod walk;
mod xattr;

use cache::NameCache;
pub use dentry::{Dentry, Location};
pub use devices::{Devices, FifoOpener, Opener, Opening};
pub use files::RegularFile;
pub use mount::Mount;
pub(crate) use paths::GOES_ON;
pub use paths::{Base, GoesOn, Onward, Onwards, PathAnswer, Paths};
pub use walk::resolve;

use crate::{
    inode::Mounter,
    inotify::Inotify,
    lease::{self, Sharers},
    Caller, File, FileSystem, OpenFlags, PathOp, Services,
};
use alloc::{
    boxed::Box,
    collections::BTreeMap,
    sync::{Arc, Weak},
    vec::Vec,
};
use core::sync::atomic::AtomicBool;
use elsewhere::Trees;
use machine::{
    errno::Result,
    sync::{AsyncLock, Lock},
    BoxFuture, Errno, PAGE_SIZE,
};
use messages::fs::{TreeMount, TreeOp};
use mount::MountTable;
use query::start_of;
use walk::Walk;

/// The file systems of a kernel. That of one has the root of the machine, and its mounts are the tree of all mounts.
pub struct LocalPaths {
    services: Arc<Services>,
    pub devices: Arc<Devices>,
    /// None: another kernel has the root.
    root: Option<Arc<Mount>>,
    mounts: MountTable,
    kinds: Lock<BTreeMap<Vec<u8>, Arc<dyn Mounter>>>,
    /// One rename between directories at a time: so the tree has no loops (see `change`).
    renaming: AsyncLock<()>,
    names: NameCache,
    /// Held by who unmounts, until the file system is closed.
    unmounting: AsyncLock<()>,
    /// A task waits for detached mounts.
    watching: AtomicBool,
    this: Weak<LocalPaths>,
    /// Every answer another kernel holds rests on what is mounted where.
    everything: Sharers,
    /// How other kernels are asked to mount.
    trees: Lock<Option<Arc<dyn Trees>>>,
    /// Directories of this kernel's that file systems of others cover.
    covered: Lock<Vec<Weak<directory::DirFile>>>,
}

/// The inode of a file of this kernel that has a name.
pub(crate) fn inode_of(file: &dyn File) -> Option<Arc<dyn crate::Inode>> {
    file.location()?.downcast_ref::<Location>().map(|at| at.inode().clone())
}

impl LocalPaths {
    pub fn new(services: Arc<Services>, root: Arc<dyn FileSystem>, devices: Arc<Devices>) -> Arc<Self> {
        let dentry = Dentry::root(root.root());
        let source = root.source();
        let mount = Mount::new(root, dentry, None, source, mount::flags::RELATIME);
        Self::over(services, Some(mount), devices)
    }

    /// Those of a kernel that does not have the root: none yet.
    pub fn without_root(services: Arc<Services>) -> Arc<Self> {
        Self::over(services, None, Arc::default())
    }

    fn over(services: Arc<Services>, root: Option<Arc<Mount>>, devices: Arc<Devices>) -> Arc<Self> {
        let mounts = MountTable::with_root(root.clone());
        let memory = services.memory.totals().0 as usize * PAGE_SIZE;
        let paths = Arc::new_cyclic(|this| LocalPaths {
            services,
            devices,
            root,
            mounts,
            kinds: Lock::new(BTreeMap::new()),
            renaming: AsyncLock::new(()),
            names: NameCache::new(memory),
            unmounting: AsyncLock::new(()),
            watching: AtomicBool::new(false),
            this: this.clone(),
            everything: Sharers::default(),
            trees: Lock::new(None),
            covered: Lock::default(),
        });
        paths.devices.set_paths(&paths);
        paths
    }

    fn now(&self) -> u64 {
        self.services.clock.monotonic()
    }

    fn root_location(&self) -> Result<Location> {
        let mount = self.root.clone().ok_or(Errno::ENOENT)?;
        Ok(Location { dentry: mount.root.clone(), mount })
    }

    /// All mounts, for /proc/mounts.
    pub fn mounts(&self) -> Vec<Arc<Mount>> {
        self.mounts.list()
    }

    /// sync(2).
    pub async fn sync(&self) -> Result<()> {
        // Else a mount would be busy because it is written back.
        let _unmounting = self.unmounting.lock().await;
        let mut result = Ok(());
        for mount in self.mounts.list().into_iter().chain(self.mounts.detached()) {
            result = result.and(mount.file_system.sync().await);
        }
        // What file systems have written may be a disk's.
        result.and(self.devices.sync().await)
    }

    /// Names that nobody uses are looked up again.
    pub async fn drop_names(&self) {
        let _changing = self.everything.change(&[lease::OWN]).await;
        self.names.drop_unused();
    }

    /// Before a name is cached: drops old ones if there are too many.
    async fn make_room_for_name(&self) {
        if self.names.is_full() {
            // Inodes may end here, and with them what is noted of who holds what.
            let _changing = self.everything.change(&[lease::OWN]).await;
            self.names.sweep();
        }
    }
}

impl Drop for LocalPaths {
    /// Names hold their directories and are held by them, and mounts hold the names that they cover.
    fn drop(&mut self) {
        self.mounts.remove_all();
        self.names.drop_unused();
    }
}

impl LocalPaths {
    /// Runs `op`. Each of what is done most has a future of its own: the longest of all futures would be allocated for each.
    fn start<'a>(
        &'a self,
        caller: &'a Caller,
        base: &'a Base,
        op: PathOp,
        onwards: Option<&'a dyn Onwards>,
    ) -> BoxFuture<'a, Result<PathAnswer>> {
        match op {
            PathOp::Open { path, flags, mode, resolve } => Box::pin(async move {
                match self.open(caller, base, &path, flags, mode, resolve).await {
                    Err(GOES_ON) => go_on(caller, base, PathOp::Open { path, flags, mode, resolve }, onwards).await,
                    answer => answer.map(PathAnswer::File),
                }
            }),
            PathOp::Stat { path, follow, empty_ok } => Box::pin(async move {
                // Not a step in a future of its own: with that it is too long for a small piece of the heap.
                let found = match start_of(base, &path, empty_ok) {
                    Some(start) => Ok(start),
                    None => match Walk::new(self, caller, base, &path, false) {
                        Ok(mut walk) => walk.target(&path, follow).await,
                        Err(error) => Err(error),
                    },
                };
                match found {
                    Ok(found) => query::attributes_at(base, found).await.map(PathAnswer::Attributes),
                    Err(GOES_ON) => go_on(caller, base, PathOp::Stat { path, follow, empty_ok }, onwards).await,
                    Err(error) => Err(error),
                }
            }),
            PathOp::Unlink { path, directory } => Box::pin(async move {
                match self.unlink(caller, base, &path, directory).await {
                    Err(GOES_ON) => go_on(caller, base, PathOp::Unlink { path, directory }, onwards).await,
                    answer => answer.map(|()| PathAnswer::Done),
                }
            }),
            mut op => Box::pin(async move {
                match self.perform(caller, base, &mut op).await {
                    Err(GOES_ON) => go_on(caller, base, op, onwards).await,
                    answer => answer,
                }
            }),
        }
    }

    /// All but what [`LocalPaths::start`] does by itself.
    async fn perform(&self, caller: &Caller, base: &Base, op: &mut PathOp) -> Result<PathAnswer> {
        let done = |()| PathAnswer::Done;
        match op {
            // [`LocalPaths::start`] has done these.
            PathOp::Open { .. } | PathOp::Stat { .. } | PathOp::Unlink { .. } => Err(Errno::EIO),
            PathOp::StatFs { path } => {
                self.stat_fs(caller, base, path).await.map(|info| PathAnswer::FileSystem(Box::new(info)))
            }
            PathOp::ReadLink { path, empty_ok } => {
                self.read_link(caller, base, path, *empty_ok).await.map(PathAnswer::Bytes)
            }
            PathOp::Access { path, mode, effective, follow, empty_ok } => {
                self.access(caller, base, path, *mode, *effective, *follow, *empty_ok).await.map(done)
            }
            PathOp::MakeDir { path, mode } => self.make_dir(caller, base, path, *mode).await.map(done),
            PathOp::MakeNode { path, mode, rdev } => self.make_node(caller, base, path, *mode, *rdev).await.map(done),
            PathOp::Symlink { target, path } => self.symlink(caller, base, target.clone(), path).await.map(done),
            PathOp::Link { from, to, follow, empty_ok } => {
                self.link(caller, base, from, to, *follow, *empty_ok).await.map(done)
            }
            PathOp::Rename { from, to, flags } => self.rename(caller, base, from, to, *flags).await.map(done),
            PathOp::SetAttributes { path, follow, empty_ok, set } => {
                self.set_attributes(caller, base, path, *follow, *empty_ok, set.clone()).await.map(done)
            }
            PathOp::Xattr { path, follow, op } => {
                self.xattr(caller, base, path, *follow, op).await.map(PathAnswer::Bytes)
            }
            PathOp::Mount { source, path, kind, flags, data } => {
                self.mount(caller, base, source.clone(), path, kind, *flags, data).await.map(done)
            }
            PathOp::Unmount { path, flags } => self.unmount(caller, base, path, *flags).await.map(done),
            PathOp::Parent { path } => Walk::new(self, caller, base, path, false)?.parent(path).await.map(|_| done(())),
            PathOp::Sync => self.sync().await.map(done),
            PathOp::SyncFs { path } => self.sync_fs(caller, base, path).await.map(done),
            PathOp::Notify { flags } => {
                let account = self.services.accounts.of(caller.process, caller.credentials.uid);
                Ok(PathAnswer::File(Inotify::new(caller, &account, *flags)?))
            }
            PathOp::Watch { path, mask } => self.watch(caller, base, path, *mask).await.map(PathAnswer::Number),
        }
    }
}

impl Paths for LocalPaths {
    fn run<'a>(&'a self, caller: &'a Caller, base: &'a Base, op: PathOp) -> BoxFuture<'a, Result<PathAnswer>> {
        self.start(caller, base, op, None)
    }

    fn run_onwards<'a>(
        &'a self,
        caller: &'a Caller,
        base: &'a Base,
        op: PathOp,
        onwards: &'a dyn Onwards,
    ) -> BoxFuture<'a, Result<PathAnswer>> {
        self.start(caller, base, op, Some(onwards))
    }

    fn drop_unused(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let _changing = self.everything.change(&[lease::OWN]).await;
            self.names.drop_unused();
        })
    }

    fn root(&self) -> BoxFuture<'_, Result<Arc<dyn File>>> {
        Box::pin(async move {
            let file = directory::DirFile::new(&self.services, self.root_location()?, OpenFlags::DIRECTORY);
            Ok(file as Arc<dyn File>)
        })
    }

    fn mount_for<'a>(&'a self, mount: TreeMount, above: Arc<dyn File>) -> BoxFuture<'a, Result<Arc<dyn File>>> {
        Box::pin(LocalPaths::mount_for(self, mount, above))
    }

    fn control_tree<'a>(&'a self, entry: &'a Arc<dyn File>, op: TreeOp) -> BoxFuture<'a, Result<()>> {
        Box::pin(LocalPaths::control_tree(self, entry, op))
    }
}

/// The answer to an operation whose walk has left this kernel's file systems.
fn go_on<'a>(
    caller: &'a Caller,
    base: &'a Base,
    op: PathOp,
    onwards: Option<&'a dyn Onwards>,
) -> BoxFuture<'a, Result<PathAnswer>> {
    let Some(onward) = base.onward.lock().take() else { return crate::file::ready(Err(Errno::EIO)) };
    let goes_on = Box::new(GoesOn { op, onward });
    match onwards {
        Some(onwards) => onwards.go_on(caller, base, goes_on),
        None => crate::file::ready(Ok(PathAnswer::GoesOn(goes_on))),
    }
}

/// The opener of fifos, or ENXIO until crate `linux` has set one.
fn fifo_opener(devices: &Devices) -> Result<FifoOpener> {
    devices.fifo().ok_or(Errno::ENXIO)
}
