//! Mounting: mount options, which file systems are refused, and that a disk which is mounted twice has one file system.

use super::{
    disk::{self, Blocks},
    errno,
    group_commit::Syncs,
    Ext4, Shared,
};
use crate::{
    block::{Disks, Hold, Volume},
    inode::{Lent, Mounter, Placed},
    FileSystem, Services,
};
use alloc::{
    boxed::Box,
    collections::BTreeMap,
    sync::{Arc, Weak},
};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use ext4::{Access, Error, OnError, Superblock};
use machine::{
    errno::Result,
    sync::{AsyncLock, Lock, WaitQueue},
    BoxFuture, Errno,
};
use messages::disk::PlacedDisk;

/// `mount -t ext4 /dev/vda1 DIRECTORY`.
pub struct Ext4Mounter {
    services: Arc<Services>,
    disks: Arc<Disks>,
    /// What is mounted, by the number of the disk.
    mounted: AsyncLock<BTreeMap<(u32, u32), Weak<Shared>>>,
    /// What other kernels have mounted, likewise.
    away: AsyncLock<BTreeMap<(u32, u32), Weak<Away>>>,
}

/// A volume that the kernel which drives its disk has mounted. Nobody else may claim it.
struct Away(Hold);

impl Lent for Away {
    fn returned(self: Arc<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            // It may be mounted twice.
            let Some(Away(hold)) = Arc::into_inner(self) else { return };
            let volume = hold.volume().clone();
            // What this kernel has of the disk is from before, unless a program has written to it meanwhile. If that fails the next fsync there says so.
            let _ = volume.sync().await;
            let _ = volume.replaced(volume.sectors()).await;
            hold.release().await;
        })
    }
}

/// The mount options that mean something here; others are left to Linux.
#[derive(Default)]
struct Options {
    on_error: Option<OnError>,
    /// The journal is not replayed.
    noload: bool,
}

impl Options {
    /// EINVAL: what `errors=` says is not known, or is `panic`: a machine of many kernels does not end for a disk.
    fn parse(disk: &Volume, data: &[u8]) -> Result<Options> {
        let mut options = Options::default();
        for word in data.split(|byte| *byte == b',') {
            match word {
                b"errors=continue" => options.on_error = Some(OnError::Continue),
                b"errors=remount-ro" => options.on_error = Some(OnError::ReadOnly),
                b"noload" | b"norecovery" => options.noload = true,
                _ if word.starts_with(b"errors=") => {
                    let word = word.escape_ascii();
                    log::warn!(
                        "EXT4-fs ({}): mount option {word}: only continue and remount-ro are known",
                        disk.name()
                    );
                    return Err(Errno::EINVAL);
                }
                _ => {}
            }
        }
        Ok(options)
    }
}

impl Ext4Mounter {
    /// For the disks of the machine.
    pub fn new(services: &Arc<Services>, disks: &Arc<Disks>) -> Ext4Mounter {
        Ext4Mounter {
            services: services.clone(),
            disks: disks.clone(),
            mounted: AsyncLock::default(),
            away: AsyncLock::default(),
        }
    }

    /// The disks that it looks for what is to be mounted on.
    pub fn disks(&self) -> &Arc<Disks> {
        &self.disks
    }

    fn find(&self, source: &[u8]) -> Result<Arc<Volume>> {
        self.disks.find(source.strip_prefix(b"/dev/").ok_or(Errno::ENOTBLK)?)
    }

    async fn open(&self, disk: Arc<Volume>, data: &[u8], read_only: bool) -> Result<Arc<dyn FileSystem>> {
        let mut mounted = self.mounted.lock().await;
        // The same disk twice is one file system.
        let known = mounted.get(&disk.number()).and_then(Weak::upgrade);
        let one_more = |mounts: usize| (mounts > 0).then(|| mounts + 1);
        if let Some(shared) = known.filter(|shared| shared.mounts.fetch_update(SeqCst, SeqCst, one_more).is_ok()) {
            if shared.volume.is_read_only() && !read_only {
                shared.unmount().await?;
                return Err(Errno::EBUSY);
            }
            return self.mount_of(&shared).await;
        }
        let hold = Hold::new(&disk, true)?;
        // What programs have written to it.
        disk.sync().await?;
        let superblock = Superblock::parse(&disk::superblock(&disk).await?).map_err(|error| refused(&disk, error))?;
        if superblock.blocks.checked_mul(superblock.block_bytes.into()).is_none_or(|bytes| bytes > disk.bytes()) {
            log::warn!("ext4: {}: the file system is larger than the disk", disk.name());
            return Err(Errno::EINVAL);
        }
        let options = Options::parse(&disk, data)?;
        if superblock.has_errors {
            log::warn!("EXT4-fs ({}): warning: mounting fs with errors, running e2fsck is recommended", disk.name());
        }
        let can_write = !disk.device().limits().read_only;
        let access = match read_only || !can_write || superblock.unknown_to_writers {
            false if options.noload => return Err(Errno::EINVAL),
            false => Access::ReadWrite,
            true if options.noload => Access::ReadOnlyWithoutReplay,
            true if !can_write => Access::ReadOnlyDevice,
            true => Access::ReadOnly,
        };
        let now = self.services.clock.realtime().seconds as u32;
        let blocks = Blocks::new(disk.clone(), superblock.block_bytes as usize, &self.services)?;
        let on_error = options.on_error.unwrap_or(superblock.on_error);
        let volume = ext4::Volume::mount(blocks, superblock, access, now).await;
        let volume = Arc::new(volume.map_err(|error| refused(&disk, error))?);
        let shared = Arc::new_cyclic(|this| Shared {
            volume,
            services: self.services.clone(),
            nodes: Lock::default(),
            contents: Lock::default(),
            releasing: AtomicUsize::new(0),
            released: WaitQueue::new(),
            uncommitted: Lock::default(),
            syncs: Syncs::default(),
            mounts: AtomicUsize::new(1),
            hold: Lock::new(Some(hold)),
            this: this.clone(),
        });
        shared.volume.on_error(on_error);
        shared.volume.device().mounted.call_once(|| Arc::downgrade(&shared));
        mounted.retain(|_, shared| shared.strong_count() > 0);
        mounted.insert(disk.number(), Arc::downgrade(&shared));
        self.mount_of(&shared).await
    }

    /// One more mount of a file system, which has been counted.
    async fn mount_of(&self, shared: &Arc<Shared>) -> Result<Arc<dyn FileSystem>> {
        let root = async {
            let root = shared.volume.root().await.map_err(errno)?;
            shared.node(&root).await
        };
        match root.await {
            Ok(root) => Ok(Arc::new(Ext4 { shared: shared.clone(), root, closed: AtomicBool::new(false) })),
            Err(error) => {
                shared.unmount().await?;
                Err(error)
            }
        }
    }
}

/// Why a disk is not mounted.
fn refused(disk: &Volume, error: Error) -> Errno {
    match error {
        Error::Unsupported(what) => {
            log::warn!("ext4: {}: {what}", disk.name());
            Errno::EINVAL
        }
        Error::ReadOnly => {
            log::warn!(
                "ext4: {}: its journal can't be replayed on a disk that is read only (-o noload: without it)",
                disk.name()
            );
            Errno::EROFS
        }
        Error::Corrupt(what) => {
            log::error!("EXT4-fs error (device {}): {what} can't be", disk.name());
            Errno::EUCLEAN
        }
        error => errno(error),
    }
}

impl Mounter for Ext4Mounter {
    fn mount<'a>(
        &'a self,
        source: &'a [u8],
        data: &'a [u8],
        read_only: bool,
    ) -> BoxFuture<'a, Result<Arc<dyn FileSystem>>> {
        Box::pin(async move { self.open(self.find(source)?, data, read_only).await })
    }

    fn place<'a>(&'a self, source: &'a [u8], _data: &'a [u8]) -> BoxFuture<'a, Result<Option<Placed>>> {
        Box::pin(async move {
            let volume = self.find(source)?;
            let Some((kernel, disk)) = volume.placed() else { return Ok(None) };
            let mut away = self.away.lock().await;
            let known = away.get(&disk.number).and_then(Weak::upgrade);
            let lent = match known {
                Some(lent) => lent,
                None => {
                    let lent = Arc::new(Away(Hold::new(&volume, true)?));
                    // What programs have written to it; and what they have read is old as soon as the file system is written to.
                    volume.sync().await?;
                    volume.replaced(volume.sectors()).await?;
                    away.insert(disk.number, Arc::downgrade(&lent));
                    lent
                }
            };
            Ok(Some(Placed { kernel, disk: Some(disk), lent: Some(lent) }))
        })
    }

    fn mount_placed<'a>(
        &'a self,
        disk: Option<&'a PlacedDisk>,
        _source: &'a [u8],
        data: &'a [u8],
        read_only: bool,
    ) -> BoxFuture<'a, Result<Arc<dyn FileSystem>>> {
        Box::pin(async move {
            let volume = self.disks.placed(&self.services, disk.ok_or(Errno::ENODEV)?).await?;
            self.open(volume, data, read_only).await
        })
    }
}
