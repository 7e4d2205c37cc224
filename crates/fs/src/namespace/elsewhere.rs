//! Mounts of file systems that another kernel has.
//!
//! The kernel that owns the root keeps the tree of all mounts. A file system of kernel K has a mount there, which shows nothing: a walk that reaches it goes on at K,
//! at the topmost directory ([`Mount::entry`]), and K has a mount of its own for what it serves. That one knows the directory that it covers as a stand-in
//! ([`Mount::above`]), to which `..` leads:
//!
//! ```text
//! owner of the root                               K
//! /mnt/d: a mount, entry ------------------------> topmost directory of a mount
//! the directory it covers <----------------- above
//! ```
//!
//! It is taken away at K first, where its users are. A walk that has been told the entry and comes to K afterwards goes on below: at the directory that was covered.

use super::{
    dentry::{Dentry, Location},
    directory::DirFile,
    mount::Mount,
    mounting::check_writable,
    walk::place_of,
    LocalPaths,
};
use crate::{inode::Placed, lease, File, FileSystem, OpenFlags};
use alloc::{
    sync::{Arc, Weak},
    vec::Vec,
};
use machine::{errno::Result, BoxFuture, Errno};
use messages::fs::{TreeMount, TreeOp};

/// How the owner of the root has other kernels mount.
pub trait Trees: Send + Sync {
    /// A file system on another kernel, which is to hang where `above` is.
    fn mount(
        &self,
        placed: Placed,
        mount: TreeMount,
        above: Arc<dyn File>,
    ) -> BoxFuture<'_, Result<Arc<dyn FileSystem>>>;
}

impl LocalPaths {
    /// On the owner of the root.
    pub fn set_trees(&self, trees: Arc<dyn Trees>) {
        *self.trees.lock() = Some(trees);
    }

    pub(super) async fn mount_elsewhere(&self, on: Location, placed: Placed, mount: TreeMount) -> Result<()> {
        let trees = self.trees.lock().clone().ok_or(Errno::ENODEV)?;
        let above = DirFile::new(&self.services, on.clone(), OpenFlags::PATH | OpenFlags::DIRECTORY);
        {
            let mut covered = self.covered.lock();
            covered.retain(|file| file.strong_count() > 0);
            covered.push(Arc::downgrade(&above));
        }
        let (source, flags) = (mount.source.clone(), mount.flags);
        let tree = trees.mount(placed, mount, above).await?;
        let _hanging = self.unmounting.lock().await;
        let hung = self.hang(on, Dentry::root(tree.root()), tree.clone(), source, flags);
        if let (Err(_), Some(there)) = (&hung, tree.elsewhere()) {
            // Why it does not hang is told, and not what its closing meets.
            let _ = there.unmount(false).await;
        }
        hung
    }

    /// Directories on `mount` that other kernels know because their file systems cover them, or did until just now: of one that is mounted there, the mount itself makes
    /// it busy, and of one that is not, that kernel's word that it has forgotten the directory may be on its way.
    /// They are to be kept until the uses of the mount have been counted.
    pub(super) fn covered_on(&self, mount: &Arc<Mount>) -> Vec<Arc<DirFile>> {
        let is_on = |file: &Arc<DirFile>| place_of(&**file).is_some_and(|at| Arc::ptr_eq(&at.mount, mount));
        self.covered.lock().iter().filter_map(Weak::upgrade).filter(is_on).collect()
    }

    /// The caller has locked `unmounting`. Whatever fails there leaves it mounted here: its kernel has the file system still, and the disk.
    pub(super) async fn unmount_elsewhere(&self, mount: &Arc<Mount>, detach: bool) -> Result<()> {
        let there = mount.file_system.elsewhere().ok_or(Errno::EINVAL)?;
        let used = {
            let covered = self.covered_on(mount);
            self.mounts.check_unused(mount, covered.len())
        };
        let unmounted = match used {
            Ok(()) => there.unmount(false).await,
            busy => busy,
        };
        match unmounted {
            Ok(()) => self.mounts.forget(mount),
            Err(Errno::EBUSY) if detach => self.detach(mount).await,
            failed => failed,
        }
    }

    /// On the kernel that is to have the file system.
    pub(super) async fn mount_for(&self, mount: TreeMount, above: Arc<dyn File>) -> Result<Arc<dyn File>> {
        let TreeMount { kind, source, flags, data, disk } = mount;
        let mounter = self.kinds.lock().get(&kind).cloned().ok_or(Errno::ENODEV)?;
        let read_only = flags & super::mount::flags::RDONLY != 0;
        let tree = mounter.mount_placed(disk.as_ref(), &source, &data, read_only).await?;
        let root = self.mounts.root_of(&*tree);
        if let Err(error) = check_writable(&root, flags) {
            let _ = tree.close().await;
            return Err(error);
        }
        let mount = Mount::over(tree, root.clone(), (None, Some(above)), source, flags);
        if let Err(error) = self.mounts.add(mount.clone()) {
            let _ = mount.file_system.close().await;
            return Err(error);
        }
        let at = Location { mount: mount.clone(), dentry: root };
        let entry: Arc<dyn File> = DirFile::new(&self.services, at, OpenFlags::PATH | OpenFlags::DIRECTORY);
        *mount.known_as.lock() = Arc::downgrade(&entry);
        Ok(entry)
    }

    pub(super) async fn control_tree(&self, entry: &Arc<dyn File>, op: TreeOp) -> Result<()> {
        let mount = place_of(&**entry).map(|at| at.mount.clone()).ok_or(Errno::EINVAL)?;
        let tree = &mount.file_system;
        match op {
            TreeOp::Sync => tree.sync().await,
            TreeOp::Remount(flags) => {
                let _changing = self.everything.change(&[lease::OWN]).await;
                if flags & super::mount::flags::BIND == 0 {
                    tree.remount(flags & super::mount::flags::RDONLY != 0).await?;
                }
                mount.set_flags(flags);
                Ok(())
            }
            TreeOp::Unmount { detached } => self.take_away(mount, detached).await,
            TreeOp::Close => tree.close().await,
        }
    }

    async fn take_away(&self, mount: Arc<Mount>, detached: bool) -> Result<()> {
        // The answer that said so was lost.
        if mount.is_gone() {
            return Ok(());
        }
        if mount.is_detached() {
            // Asked again, each second. Other kernels keep nothing of it since the first time: what uses it now is in use, and nothing has to be recalled or written to find that out.
            let covered = self.covered_on(&mount);
            self.mounts.check_unused(&mount, covered.len() + usize::from(mount.above.is_some()))?;
            if self.mapped(&mount).await.is_mapped {
                return Err(Errno::EBUSY);
            }
        } else if detached {
            let _changing = self.everything.change(&[lease::OWN]).await;
            mount.set_detached();
        }
        // As in `LocalPaths::unmount`.
        let _ = mount.file_system.sync().await;
        let _unmounting = self.unmounting.lock().await;
        self.take_from_tree(mount, false).await
    }
}
