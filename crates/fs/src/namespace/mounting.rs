//! mount(2), umount2(2), and hanging up trees at boot.

use super::{
    dentry::{Dentry, Location},
    mount::{flags, Mapped, Mount},
    walk::{place_of, Walk},
    LocalPaths, GOES_ON,
};
use crate::{inode::Mounter, lease, Base, Caller, FileSystem, Kind, MappingUse};
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::sync::atomic::Ordering::SeqCst;
use machine::{errno::Result, to_completion, Errno};
use messages::fs::TreeMount;

const MNT_FORCE: u32 = 1;
const MNT_DETACH: u32 = 2;
const UMOUNT_NOFOLLOW: u32 = 8;
/// ns
const SECOND: u64 = 1_000_000_000;

impl LocalPaths {
    pub fn register_kind(&self, kind: &str, mounter: Arc<dyn Mounter>) {
        self.kinds.lock().insert(kind.as_bytes().to_vec(), mounter);
    }

    /// Names for /proc/filesystems.
    pub fn kinds(&self) -> Vec<Vec<u8>> {
        self.kinds.lock().keys().cloned().collect()
    }

    /// Hangs `file_system` on the existing directory (or file, for a file's root) `path`.
    pub async fn attach(
        &self,
        caller: &Caller,
        path: &[u8],
        file_system: Arc<dyn FileSystem>,
        source: &[u8],
        flags: u64,
    ) -> Result<()> {
        let root = crate::Paths::root(self).await?;
        let base = Base::new(root.clone(), root);
        let on = Walk::new(self, caller, &base, path, false)?.location(path, true).await?;
        let _changing = self.everything.change(&[lease::OWN]).await;
        self.hang(on, Dentry::root(file_system.root()), file_system, source.to_vec(), flags)
    }

    pub(super) fn hang(
        &self,
        on: Location,
        root: Arc<Dentry>,
        file_system: Arc<dyn FileSystem>,
        source: Vec<u8>,
        flags: u64,
    ) -> Result<()> {
        let is_directory = |dentry: &Dentry| dentry.inode.kind() == Kind::Directory;
        if is_directory(&on.dentry) != is_directory(&root) {
            return Err(Errno::ENOTDIR);
        }
        if on.dentry.is_removed() {
            return Err(Errno::ENOENT);
        }
        // MS_STRICTATIME aside, relatime is what Linux defaults to.
        let flags = if flags & flags::NOATIME == 0 { flags | flags::RELATIME } else { flags };
        self.mounts.add(Mount::new(file_system, root, Some(on), source, flags))
    }

    /// What mount(2) and umount(2) are asked to work on. From the topmost directory of a file system that hangs in another kernel's tree they go on there.
    async fn mount_point(&self, caller: &Caller, base: &Base, path: &[u8], follow: bool) -> Result<Location> {
        if let (true, Some(covered)) = (path.is_empty() && base.continues.is_some(), place_of(&*base.at)) {
            return Ok(self.cover(covered.clone()));
        }
        let mut walk = Walk::new(self, caller, base, path, false)?.of_mount();
        let found = walk.location(path, follow).await?;
        match found.above() {
            Some(above) => Err(walk.go_on(Some(above), b"", b"")),
            None => Ok(found),
        }
    }

    #[allow(clippy::too_many_arguments)]
    pub(super) async fn mount(
        &self,
        caller: &Caller,
        base: &Base,
        source: Vec<u8>,
        path: &[u8],
        kind: &[u8],
        flags: u64,
        data: &[u8],
    ) -> Result<()> {
        if !caller.credentials.is_privileged() {
            return Err(Errno::EPERM);
        }
        let on = self.mount_point(caller, base, path, true).await?;
        if self.root.is_none() {
            log::warn!("mount: {}: mounts lie on directories of the kernel that owns the root", path.escape_ascii());
            return Err(Errno::EOPNOTSUPP);
        }
        let _changing = self.everything.change(&[lease::OWN]).await;
        if flags & flags::REMOUNT != 0 {
            if !Arc::ptr_eq(&on.dentry, &on.mount.root) {
                return Err(Errno::EINVAL);
            }
            if let Some(there) = on.mount.file_system.elsewhere() {
                there.remount(flags).await?;
                on.mount.set_flags(flags);
                return Ok(());
            }
            // With MS_BIND only this mount changes.
            if flags & flags::BIND == 0 {
                on.mount.file_system.remount(flags & flags::RDONLY != 0).await?;
            }
            on.mount.set_flags(flags);
            return Ok(());
        }
        // Nothing propagates here: one namespace.
        if flags & flags::PROPAGATION != 0 {
            return Ok(());
        }
        if flags & flags::MOVE != 0 {
            return Err(Errno::EINVAL);
        }
        if flags & flags::BIND != 0 {
            let from = Walk::new(self, caller, base, &source, false)?.of_mount().location(&source, true).await;
            let from = match from {
                Ok(from) if from.mount.entry().is_none() => from,
                Ok(_) | Err(GOES_ON) => {
                    log::warn!("mount: {}: another kernel's file systems are not bound", source.escape_ascii());
                    return Err(Errno::EOPNOTSUPP);
                }
                Err(error) => return Err(error),
            };
            let flags = flags | from.mount.flags();
            let _hanging = self.unmounting.lock().await;
            return self.hang(on, from.dentry, from.mount.file_system.clone(), source, flags);
        }
        let mounter = self.kinds.lock().get(kind).cloned().ok_or(Errno::ENODEV)?;
        if let Some(placed) = mounter.place(&source, data).await? {
            let mount = TreeMount { kind: kind.to_vec(), source, flags, data: data.to_vec(), disk: None };
            return self.mount_elsewhere(on, placed, mount).await;
        }
        let file_system = mounter.mount(&source, data, flags & flags::RDONLY != 0).await?;
        let _hanging = self.unmounting.lock().await;
        let root = self.mounts.root_of(&*file_system);
        let hung = check_writable(&root, flags).and_then(|()| self.hang(on, root, file_system.clone(), source, flags));
        if hung.is_err() {
            // It is mounted nowhere. Why not is told, and not what its closing meets.
            let _ = file_system.close().await;
        }
        hung
    }

    pub(super) async fn unmount(&self, caller: &Caller, base: &Base, path: &[u8], flags: u32) -> Result<()> {
        if flags & !(MNT_FORCE | MNT_DETACH | UMOUNT_NOFOLLOW) != 0 {
            return Err(Errno::EINVAL);
        }
        if !caller.credentials.is_privileged() {
            return Err(Errno::EPERM);
        }
        let follow = flags & UMOUNT_NOFOLLOW == 0;
        let Location { mount, dentry } = self.mount_point(caller, base, path, follow).await?;
        if !Arc::ptr_eq(&dentry, &mount.root) {
            return Err(Errno::EINVAL);
        }
        drop(dentry);
        let (this, detach) = (self.this.upgrade().ok_or(Errno::EIO)?, flags & MNT_DETACH != 0);
        // A program that is killed meanwhile must not leave it half done.
        to_completion(&*self.services.spawner, async move { this.unmount_found(mount, detach).await }).await
    }

    async fn unmount_found(&self, mount: Arc<Mount>, detach: bool) -> Result<()> {
        if mount.entry().is_none() {
            // Most of what there is to write is written while others go on; what can't be is lost when it is closed, as on Linux.
            let _ = mount.file_system.sync().await;
        }
        let _unmounting = self.unmounting.lock().await;
        self.take_from_tree(mount, detach).await
    }

    /// Takes a mount away, and closes its file system if nobody uses that. The caller has locked `unmounting`.
    pub(super) async fn take_from_tree(&self, mount: Arc<Mount>, detach: bool) -> Result<()> {
        // Nobody keeps a file of it open only in case it is opened again.
        let _changing = self.everything.change(&[lease::OWN]).await;
        if mount.entry().is_some() {
            return self.unmount_elsewhere(&mount, detach).await;
        }
        if detach {
            return self.detach(&mount).await;
        }
        let mapped = self.mapped(&mount).await;
        let covered = self.covered_on(&mount);
        self.mounts.remove(&mount, mapped, covered.len())?;
        drop(covered);
        self.close_last(mount).await;
        Ok(())
    }

    /// MNT_DETACH: what hangs on the mount goes with it, and each is closed when nobody uses it any more. The caller has locked `unmounting`, and has recalled what other
    /// kernels keep.
    pub(super) async fn detach(&self, mount: &Arc<Mount>) -> Result<()> {
        self.mounts.detach(mount)?;
        self.close_unused(Some(mount)).await;
        self.watch_detached();
        Ok(())
    }

    /// Nobody uses a mount any more. If no other mount has its file system, that is closed. The caller has locked `unmounting`: of two mounts one is the last.
    async fn close_last(&self, mount: Arc<Mount>) {
        self.names.drop_unused();
        if Arc::strong_count(&mount.file_system) == 1
            && let Err(error) = mount.file_system.close().await
        {
            // It hangs nowhere any more: nobody could try again.
            log::error!("umount: {}: {error:?}", mount.source.escape_ascii());
        }
    }

    /// Whether a program maps files of a mount.
    pub(super) async fn mapped(&self, mount: &Mount) -> Mapped {
        let (objects, times) = mount.given();
        if let Some(mappers) = self.services.mappers() {
            for object in objects {
                if mappers.uses(object.id(), MappingUse::Maps).await > 0 {
                    return Mapped { is_mapped: true, times };
                }
            }
        }
        Mapped { is_mapped: false, times }
    }

    /// Closes what was detached and is used no more. The caller has locked `unmounting`; `held` is the mount that he has himself.
    async fn close_unused(&self, held: Option<&Arc<Mount>>) {
        // What hung on another first.
        for mount in self.mounts.detached().into_iter().rev() {
            // The list's, and this one.
            let holders = 2 + usize::from(held.is_some_and(|held| Arc::ptr_eq(held, &mount)));
            if self.mounts.is_held(&mount, holders) {
                continue;
            }
            if let Some(there) = mount.file_system.elsewhere() {
                // It is as busy as it is there. Of whatever else fails there the log speaks there, and the watcher tries again.
                if there.unmount(true).await.is_ok() {
                    self.mounts.drop_detached(&mount);
                }
                continue;
            }
            let mapped = self.mapped(&mount).await;
            if self.mounts.forget_detached(&mount, mapped, holders) {
                // Unused names go, and with their inodes what is noted of who holds what.
                let _changing = self.everything.change(&[lease::OWN]).await;
                self.close_last(mount).await;
            }
        }
    }

    /// As long as detached mounts are used, a task looks every second whether they still are.
    fn watch_detached(&self) {
        if self.mounts.detached().is_empty() || self.watching.swap(true, SeqCst) {
            return;
        }
        let (this, services) = (self.this.clone(), self.services.clone());
        services.clone().spawner.spawn(Box::pin(async move {
            while let Some(wait) = services.clock.at(services.clock.monotonic() + SECOND) {
                wait.await;
                let Some(paths) = this.upgrade() else { return };
                let _unmounting = paths.unmounting.lock().await;
                paths.close_unused(None).await;
                // Under the lock, under which others detach.
                if paths.mounts.detached().is_empty() {
                    paths.watching.store(false, SeqCst);
                    return;
                }
            }
        }));
    }

    /// The machine ends: file systems are left as if they had been unmounted.
    pub async fn close(&self) -> Result<()> {
        let synced = self.sync().await;
        let mut closed: Vec<Arc<dyn FileSystem>> = Vec::new();
        let mut result = Ok(());
        // The newest first: one of a loop device lies on an older one.
        let all = self.mounts.list().into_iter().chain(self.mounts.detached());
        for mount in all.collect::<Vec<_>>().into_iter().rev() {
            if !closed.iter().any(|other| Arc::ptr_eq(other, &mount.file_system)) {
                result = result.and(mount.file_system.close().await);
                closed.push(mount.file_system.clone());
            }
        }
        synced.and(result)
    }
}

/// EROFS: to be written, but it can't be. (mount(8) tries again without.)
pub(super) fn check_writable(root: &Dentry, flags: u64) -> Result<()> {
    match root.inode.write_refused() {
        Some(Errno::EROFS) if flags & flags::RDONLY == 0 => Err(Errno::EROFS),
        _ => Ok(()),
    }
}
