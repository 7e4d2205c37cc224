//! File systems of other kernels that hang in the tree of the root's owner ([`crate::namespace::elsewhere`]).

use super::Remote;
use crate::{
    inode::{Elsewhere, Lent, Placed},
    namespace::elsewhere::Trees,
    Attributes, File, FileRef, FileSystem, FileSystemInfo, Inode, Kind, SetAttributes,
};
use alloc::{
    boxed::Box,
    sync::{Arc, Weak},
};
use core::{
    any::Any,
    sync::atomic::{AtomicBool, Ordering::Release},
};
use machine::{errno::Result, sync::Lock, to_completion, BoxFuture, Errno};
use messages::fs::{TreeControl, TreeForMount, TreeMount, TreeOp};

/// Registers what answers each message of the subject.
pub fn register(remote: &Arc<Remote>) {
    let serve = remote.endpoint.serve(remote);
    // The root's owner waits for it whatever becomes of the program.
    serve.on_to_completion::<TreeForMount, _, _>(|remote, from, TreeForMount { mount, above }| async move {
        let above = remote.accept(above)?;
        if mount.disk.is_some() {
            remote.disks.until_opened().await;
        }
        let entry = remote.paths.as_ref().ok_or(Errno::ENODEV)?.mount_for(mount, above).await?;
        Ok(remote.hand_over(from, &entry).await?.send())
    });
    serve.on_to_completion::<TreeControl, _, _>(|remote, _, TreeControl { id, op }| async move {
        let entry = remote.exports.get(id)?;
        remote.paths.as_ref().ok_or(Errno::ENODEV)?.control_tree(&entry, op).await
    });
}

/// Has other kernels mount, for the root's owner.
pub struct RemoteTrees(Weak<Remote>);

impl RemoteTrees {
    pub fn new(remote: &Arc<Remote>) -> Arc<RemoteTrees> {
        Arc::new(RemoteTrees(Arc::downgrade(remote)))
    }
}

impl Trees for RemoteTrees {
    fn mount(
        &self,
        placed: Placed,
        mount: TreeMount,
        above: Arc<dyn File>,
    ) -> BoxFuture<'_, Result<Arc<dyn FileSystem>>> {
        let remote = self.0.upgrade();
        Box::pin(async move {
            let remote = remote.ok_or(Errno::ENODEV)?;
            let spawner = remote.spawner.clone();
            // A thread that is killed meanwhile must not leave a mount of which nobody knows: what nobody waits for is dropped, and that unmounts it.
            to_completion(&*spawner, mount_at(remote, placed, mount, above)).await
        })
    }
}

async fn mount_at(
    remote: Arc<Remote>,
    placed: Placed,
    mount: TreeMount,
    above: Arc<dyn File>,
) -> Result<Arc<dyn FileSystem>> {
    let Placed { kernel, disk, lent } = placed;
    let kind = match &mount.kind[..] {
        b"ext4" => "ext4",
        _ => "tmpfs",
    };
    let asked = async {
        let above = remote.hand_to(kernel, &above).await?;
        let message = TreeForMount { mount: TreeMount { disk, ..mount }, above: above.opened() };
        let accepts = remote.clone();
        let accept = move |entry: Result<_>| accepts.accept(entry?);
        remote.ask_with(kernel, message, [above].into(), accept).await?
    };
    match asked.await {
        Ok(entry) => {
            let (root, lent) = (Arc::new(FarRoot { entry }), Lock::new(lent));
            Ok(Arc::new(FarTree { remote: remote.clone(), kind, root, lent, is_mounted: AtomicBool::new(true) }))
        }
        Err(error) => {
            if let Some(lent) = lent {
                lent.returned().await;
            }
            Err(error)
        }
    }
}

/// A file system of another kernel.
struct FarTree {
    remote: Arc<Remote>,
    kind: &'static str,
    root: Arc<FarRoot>,
    lent: Lock<Option<Arc<dyn Lent>>>,
    is_mounted: AtomicBool,
}

impl FarTree {
    async fn ask(&self, op: TreeOp) -> Result<()> {
        let FileRef { owner, id } = self.root.entry.remote().ok_or(Errno::EIO)?;
        if self.is_lost() {
            return Err(Errno::EIO);
        }
        self.remote.endpoint.call(owner, TreeControl { id, op }).await?
    }

    /// Whether its kernel has died.
    fn is_lost(&self) -> bool {
        super::stand_in(&self.root.entry).is_ok_and(|entry| entry.is_lost())
    }
}

impl FileSystem for FarTree {
    fn kind(&self) -> &'static str {
        self.kind
    }

    fn root(&self) -> Arc<dyn Inode> {
        self.root.clone()
    }

    fn sync(&self) -> BoxFuture<'_, Result<()>> {
        match self.is_lost() {
            // There is nothing any more that could be written back. Who has a file of it open hears of that.
            true => crate::file::ready(Ok(())),
            false => Box::pin(self.ask(TreeOp::Sync)),
        }
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        match self.is_lost() {
            true => crate::file::ready(Ok(())),
            false => Box::pin(self.ask(TreeOp::Close)),
        }
    }

    fn elsewhere(&self) -> Option<&dyn Elsewhere> {
        Some(self)
    }
}

impl Elsewhere for FarTree {
    fn entry(&self) -> &Arc<dyn File> {
        &self.root.entry
    }

    fn remount(&self, flags: u64) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.ask(TreeOp::Remount(flags)))
    }

    fn unmount(&self, detached: bool) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let unmounted = self.ask(TreeOp::Unmount { detached }).await;
            // With its kernel all that used it has ended.
            if unmounted.is_err() && !self.is_lost() {
                return unmounted;
            }
            self.is_mounted.store(false, Release);
            let lent = self.lent.lock().take();
            if let Some(lent) = lent {
                lent.returned().await;
            }
            Ok(())
        })
    }
}

impl Drop for FarTree {
    /// It has been mounted and hangs nowhere.
    fn drop(&mut self) {
        if !*self.is_mounted.get_mut() || self.is_lost() {
            return;
        }
        let (remote, entry, lent) = (self.remote.clone(), self.root.entry.clone(), self.lent.get_mut().take());
        self.remote.spawn(async move {
            let Some(FileRef { owner, id }) = entry.remote() else { return };
            let asked = remote.endpoint.call(owner, TreeControl { id, op: TreeOp::Unmount { detached: false } }).await;
            let unmounted = asked.map_err(Errno::from).and_then(|unmounted| unmounted);
            if let (Err(error), true) = (unmounted, remote.endpoint.is_alive(owner)) {
                log::error!("a file system that hangs nowhere could not be closed on kernel {}: {error:?}", owner.0);
                // It is mounted there still: nobody else may use the disk.
                core::mem::forget(lent);
                return;
            }
            if let Some(lent) = lent {
                lent.returned().await;
            }
        });
    }
}

/// Its topmost directory, where it is looked at as a mount: walks go on at [`Elsewhere::entry`].
struct FarRoot {
    entry: Arc<dyn File>,
}

impl Inode for FarRoot {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn kind(&self) -> Kind {
        Kind::Directory
    }

    fn ino(&self) -> u64 {
        0
    }

    fn attributes(&self) -> BoxFuture<'_, Result<Attributes>> {
        self.entry.attributes()
    }

    fn set(&self, _set: SetAttributes) -> BoxFuture<'_, Result<()>> {
        crate::file::ready(Err(Errno::EIO))
    }

    fn info(&self) -> BoxFuture<'_, Result<FileSystemInfo>> {
        crate::file::ready(Err(Errno::EIO))
    }
}
