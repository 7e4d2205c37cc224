//! One loop device: what its ioctls do, and when it gives up its file.
//!
//! A device is bound to a file by LOOP_CONFIGURE, and free again when LO_FLAGS_AUTOCLEAR is set and nobody uses it: no description is open on it or its partitions, and none of them is mounted.
//! LOOP_CLR_FD does no more than to set that flag, as on Linux, for who calls it has the device open. What changes the binding holds `changing`; and while the file is given up nobody can
//! begin to use the device (ENXIO), so that nobody sees one with half of its bytes.

use super::{
    device::{Backing, Bound},
    settings::{check_block, flag, request, Settings},
    Loops,
};
use crate::{
    block::{
        volume::{Driver, Volume},
        BlockFile,
    },
    file, Caller, File, Kind, Services,
};
use alloc::{
    boxed::Box,
    format,
    sync::{Arc, Weak},
    vec::Vec,
};
use linux_raw_sys::ioctl as raw;
use machine::{
    errno::Result,
    sync::{AsyncLock, Lock},
    BoxFuture, Errno,
};

/// How many loop devices may lie one over the other: a read of the topmost is carried out by all of them on one stack, each in the one above.
const MOST_NESTED: u32 = 2;

pub struct Loop {
    index: u32,
    set: Weak<Loops>,
    device: Arc<Backing>,
    volume: Lock<Weak<Volume>>,
    changing: AsyncLock<()>,
}

impl Loop {
    pub fn new(index: u32, set: &Arc<Loops>, services: &Arc<Services>) -> Loop {
        Loop {
            index,
            set: Arc::downgrade(set),
            device: Arc::new(Backing::new(services)),
            volume: Lock::new(Weak::new()),
            changing: AsyncLock::new(()),
        }
    }

    pub fn device(&self) -> &Arc<Backing> {
        &self.device
    }

    pub fn set_volume(&self, volume: &Arc<Volume>) {
        *self.volume.lock() = Arc::downgrade(volume);
    }

    pub fn volume(&self) -> Result<Arc<Volume>> {
        self.volume.lock().upgrade().ok_or(Errno::ENXIO)
    }

    fn set(&self) -> Result<Arc<Loops>> {
        self.set.upgrade().ok_or(Errno::ENXIO)
    }

    fn bound(&self) -> Result<Arc<Bound>> {
        self.device.bound().ok_or(Errno::ENXIO)
    }

    async fn bind(&self, file: Arc<dyn File>, can_write: bool, configuration: &[u8]) -> Result<()> {
        let _changing = self.changing.lock().await;
        if self.device.bound().is_some() {
            return Err(Errno::EBUSY);
        }
        self.check_file(&file).await?;
        let mut settings = Settings::configured(configuration)?;
        if !can_write || !file.current_flags().await?.writable() {
            settings.flags |= flag::READ_ONLY;
        }
        let scans = settings.has(flag::PARTSCAN);
        let bound = Bound::new(file, settings).await?;
        if bound.nesting() > MOST_NESTED {
            return Err(Errno::ELOOP);
        }
        let (volume, sectors) = (self.volume()?, bound.sectors());
        self.device.replace(Some(bound));
        volume.replaced(sectors).await?;
        if scans {
            self.scan(&volume).await?;
        }
        Ok(())
    }

    /// EBADF: it is this device itself, or one over it. EINVAL: it is neither a regular file nor a disk with bytes.
    async fn check_file(&self, file: &Arc<dyn File>) -> Result<()> {
        let number = self.volume()?.number();
        let mut at = Some(file.clone());
        // Ends: a device is bound to what was bound before.
        while let Some(disk) = at.take().as_ref().and_then(|file| file.as_any().downcast_ref::<BlockFile>()) {
            let volume = disk.volume();
            if volume.disk().unwrap_or(volume).number() == number {
                return Err(Errno::EBADF);
            }
            if let Some(driver) = volume.disk().unwrap_or(volume).driver() {
                at = Some(driver.backing().ok_or(Errno::EINVAL)?);
            }
        }
        match file.attributes().await?.kind() {
            Kind::Regular | Kind::BlockDevice => Ok(()),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Reads the table of partitions again. EBUSY: somebody uses one.
    async fn scan(&self, volume: &Arc<Volume>) -> Result<()> {
        self.set()?.disks.rescan(volume).await
    }

    async fn set_status(&self, info: &[u8]) -> Result<()> {
        let (bound, volume) = (self.bound()?, self.volume()?);
        let settings = bound.settings.changed(info)?;
        let old = &bound.settings;
        let moves = (old.offset, old.most) != (settings.offset, settings.most);
        let scans = settings.has(flag::PARTSCAN) && !old.has(flag::PARTSCAN);
        if moves {
            volume.sync().await?;
        }
        self.rebind(&bound, settings, moves).await?;
        match scans {
            true => self.scan(&volume).await,
            false => Ok(()),
        }
    }

    /// Other settings, with the file's size now. `moves`: other bytes are the disk's.
    async fn rebind(&self, bound: &Bound, settings: Settings, moves: bool) -> Result<()> {
        let (volume, new) = (self.volume()?, bound.with(settings).await?);
        let sectors = new.sectors();
        self.device.replace(Some(new));
        match moves {
            true => volume.replaced(sectors).await,
            false if sectors != volume.sectors() => volume.resized(sectors).await,
            false => Ok(()),
        }
    }

    async fn run(&self, caller: &Caller, can_write: bool, request: u32, data: &mut Vec<u8>) -> Result<i64> {
        let _changing = self.changing.lock().await;
        let changes = [request::SET_STATUS64, request::SET_CAPACITY, request::SET_DIRECT_IO, request::SET_BLOCK_SIZE];
        if changes.contains(&request) && !can_write && !caller.credentials.is_privileged() {
            return Err(Errno::EPERM);
        }
        let argument = data.first_chunk().map_or(0, |argument| u64::from_ne_bytes(*argument));
        match request {
            // Its descriptor is none, or its structure can't be read.
            request::SET_FD => return Err(Errno::EBADF),
            request::CONFIGURE if data.is_empty() => return Err(Errno::EFAULT),
            request::CONFIGURE => return Err(Errno::EBADF),
            request::CLR_FD => {
                let bound = self.bound()?;
                // Who reads the file next finds all that was written to the device.
                self.volume()?.sync().await?;
                let flags = bound.settings.flags | flag::AUTOCLEAR;
                self.rebind(&bound, Settings { flags, ..bound.settings.clone() }, false).await?;
            }
            request::SET_STATUS64 => self.set_status(data).await?,
            request::GET_STATUS64 => {
                let bound = self.bound()?;
                let file = &bound.attributes;
                *data = bound.settings.info(self.index, file.dev, file.ino, file.rdev);
            }
            request::SET_CAPACITY => {
                let bound = self.bound()?;
                self.rebind(&bound, bound.settings.clone(), false).await?;
            }
            request::SET_DIRECT_IO => {
                let bound = self.bound()?;
                let direct = if argument != 0 { flag::DIRECT_IO } else { 0 };
                let flags = bound.settings.flags & !flag::DIRECT_IO | direct;
                self.rebind(&bound, Settings { flags, ..bound.settings.clone() }, false).await?;
            }
            request::SET_BLOCK_SIZE => {
                let bound = self.bound()?;
                let block = check_block(u32::try_from(argument).map_err(|_| Errno::EINVAL)?)?;
                self.volume()?.sync().await?;
                self.rebind(&bound, Settings { block, ..bound.settings.clone() }, false).await?;
            }
            raw::BLKRRPART => {
                if !self.device.bound().is_some_and(|bound| bound.settings.has(flag::PARTSCAN)) {
                    return Err(Errno::EINVAL);
                }
                self.scan(&self.volume()?).await?;
            }
            // Linux's driver knows no ENOTTY.
            _ => return Err(Errno::EINVAL),
        }
        Ok(0)
    }

    /// Nobody uses the device, and nobody can: it gives up its file.
    async fn clear(&self, volume: &Arc<Volume>) -> Result<()> {
        let _changing = self.changing.lock().await;
        let given_up = async {
            self.set()?.disks.remove_partitions(volume).await?;
            volume.sync().await
        };
        let given_up = given_up.await;
        let emptied = volume.replaced(0).await;
        let bound = self.device.replace(None);
        volume.uses().reopen();
        if let Some(bound) = bound.and_then(Arc::into_inner) {
            file::close(bound.file).await;
        }
        given_up.and(emptied)
    }
}

impl Driver for Loop {
    fn request<'a>(
        &'a self,
        caller: &'a Caller,
        can_write: bool,
        request: u32,
        data: &'a mut Vec<u8>,
    ) -> BoxFuture<'a, Result<i64>> {
        Box::pin(self.run(caller, can_write, request, data))
    }

    fn attach<'a>(
        &'a self,
        file: Arc<dyn File>,
        can_write: bool,
        configuration: &'a [u8],
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.bind(file, can_write, configuration))
    }

    fn backing(&self) -> Option<Arc<dyn File>> {
        self.device.bound().map(|bound| bound.file.clone())
    }

    fn unused(self: Arc<Self>) -> Option<BoxFuture<'static, ()>> {
        let (bound, volume) = (self.device.bound()?, self.volume().ok()?);
        let clears = bound.settings.has(flag::AUTOCLEAR);
        if clears && volume.uses().close().is_err() {
            // Somebody was faster. When he closes it, it is looked at again.
            return None;
        }
        drop(bound);
        Some(Box::pin(async move {
            let done = match clears {
                true => self.clear(&volume).await,
                // As when the last one closes any disk of Linux.
                false => volume.sync().await,
            };
            if let Err(error) = done {
                log::error!("loop{}: {error:?}", self.index);
            }
        }))
    }

    fn shown(&self) -> Option<Vec<(&'static str, Vec<u8>)>> {
        let bound = self.device.bound().filter(|_| self.volume().is_ok_and(|volume| volume.uses().is_open()))?;
        let line = |text: Vec<u8>| [text, b"\n".to_vec()].concat();
        let number = |number: u64| line(format!("{number}").into_bytes());
        let settings = &bound.settings;
        let has = |flag: u32| number(settings.has(flag).into());
        Some(alloc::vec![
            ("autoclear", has(flag::AUTOCLEAR)),
            ("backing_file", line(bound.path())),
            ("dio", has(flag::DIRECT_IO)),
            ("offset", number(settings.offset)),
            ("partscan", has(flag::PARTSCAN)),
            ("sizelimit", number(settings.most)),
        ])
    }
}
