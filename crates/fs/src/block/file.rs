//! An open disk or partition (man 4 sd, man 2 ioctl_list: linux/fs.h).

use super::{hold::Hold, volume::Volume};
use crate::{
    anonymous::{answer_int, argument_int, Identity, StatusFlags},
    cache::MAX_SIZE,
    file::{lacks, ready, Access, Destination, Source, Transfer},
    namespace::{nodes, Location},
    Attributes, Caller, Control, ControlAnswer, File, Kind, Object, OpenFlags, SetAttributes, SyncRange, Whence,
};
use alloc::{boxed::Box, format, sync::Arc, vec::Vec};
use core::{any::Any, sync::atomic::AtomicU64};
use linux_raw_sys::ioctl as raw;
use machine::{
    block::SECTOR,
    errno::Result,
    sync::{AsyncGuard, AsyncLock},
    to_completion, BoxFuture, Errno, PAGE_SIZE,
};

pub struct BlockFile {
    hold: Hold,
    flags: StatusFlags,
    position: AsyncLock<u64>,
    /// Failures of writing back that this description has heard of.
    heard: AtomicU64,
    inode: Identity,
    at: Option<Location>,
}

impl BlockFile {
    /// EACCES: a disk that nobody may write is to be written. EBUSY: it is to be open for nobody else (O_EXCL), and is mounted or open like that.
    pub fn open(volume: &Arc<Volume>, flags: OpenFlags, at: Option<Location>) -> Result<Arc<Self>> {
        // One whose driver can change that may be opened: writing is refused then.
        if flags.writable() && volume.device().limits().read_only && !volume.is_driven() {
            return Err(Errno::EACCES);
        }
        let hold = Hold::new(volume, flags.contains(OpenFlags::EXCL))?;
        let (number, mode) = (volume.number(), Kind::BlockDevice as u32 | 0o660);
        let inode = Identity::of((0, 6), u64::from(number.0 << 20 | number.1), mode, (0, 0), number);
        Ok(Arc::new(BlockFile {
            hold,
            flags: StatusFlags::new(flags),
            position: AsyncLock::new(0),
            heard: AtomicU64::new(volume.errors().sample()),
            inode,
            at,
        }))
    }

    pub(super) fn volume(&self) -> &Arc<Volume> {
        self.hold.volume()
    }

    fn read_here<'a>(
        &'a self,
        to: Destination<'a>,
        at: u64,
        mut position: Option<AsyncGuard<'a, u64>>,
    ) -> Transfer<'a> {
        let mut have = move |read: usize| {
            if let Some(position) = position.as_deref_mut() {
                *position += read as u64;
            }
            read
        };
        let cache = self.volume().cache();
        let moving = match self.flags.get().contains(OpenFlags::DIRECT) {
            true => cache.read_direct(to, at),
            false => cache.read(to, at, self.flags.get().read_ahead()),
        };
        match moving {
            Transfer::Done(read) => Transfer::Done(read.map(have)),
            Transfer::Later(moving) => Transfer::later(async move { moving.await.map(&mut have) }),
        }
    }

    fn write_here<'a>(
        &'a self,
        mut from: Source<'a>,
        at: u64,
        mut position: Option<AsyncGuard<'a, u64>>,
    ) -> Transfer<'a> {
        let (flags, end) = (self.flags.get(), self.volume().bytes());
        if self.volume().device().limits().read_only {
            return Transfer::Done(Err(Errno::EPERM));
        }
        if at >= end {
            return Transfer::Done(if from.is_empty() { Ok(0) } else { Err(Errno::ENOSPC) });
        }
        from.limit(usize::try_from(end - at).unwrap_or(usize::MAX));
        let cache = self.volume().cache();
        let moving = match flags.contains(OpenFlags::DIRECT) {
            true => cache.write_direct(from, Some(at), |_, _| Ok(())),
            false => cache.write(from, Some(at), |_, _| Ok(())),
        };
        let through = flags.intersects(OpenFlags::DSYNC);
        let mut have = move |(start, written): (u64, usize)| {
            if let Some(position) = position.as_deref_mut() {
                *position = start + written as u64;
            }
            written
        };
        match moving {
            Transfer::Done(written) if !through => Transfer::Done(written.map(have)),
            moving => Transfer::later(async move {
                let written = have(moving.await?);
                if through {
                    self.volume().write_back(at, at + written as u64).await?;
                    self.volume().flush().await?;
                }
                Ok(written)
            }),
        }
    }

    /// EIO if something could not be written back since this description last heard of that.
    fn failed_since(&self) -> Result<()> {
        self.volume().errors().check(&self.heard)
    }

    async fn request(&self, caller: &Caller, request: u32, data: &mut Vec<u8>) -> Result<i64> {
        let (volume, limits) = (self.volume(), self.volume().device().limits());
        let settings = &volume.queue().settings;
        let answer_long = |data: &mut Vec<u8>, value: u64| *data = value.to_ne_bytes().to_vec();
        match request {
            raw::BLKGETSIZE64 => answer_long(data, volume.bytes()),
            raw::BLKGETSIZE => answer_long(data, volume.sectors()),
            raw::BLKSSZGET => answer_int(data, limits.block as usize),
            raw::BLKPBSZGET => *data = limits.physical_block.to_ne_bytes().to_vec(),
            raw::BLKIOMIN => *data = limits.physical_block.to_ne_bytes().to_vec(),
            raw::BLKIOOPT | raw::BLKALIGNOFF | raw::BLKDISCARDZEROES => *data = 0u32.to_ne_bytes().to_vec(),
            raw::BLKBSZGET => answer_int(data, PAGE_SIZE),
            raw::BLKROGET => answer_int(data, limits.read_only.into()),
            raw::BLKROTATIONAL => *data = u16::from(settings.is_rotational()).to_ne_bytes().to_vec(),
            raw::BLKSECTGET => *data = ((volume.queue().most().bytes as u64 / SECTOR) as u16).to_ne_bytes().to_vec(),
            raw::BLKRAGET | raw::BLKFRAGET => {
                answer_long(data, settings.get("read_ahead_kb", &limits) * 1024 / SECTOR);
            }
            raw::BLKGETDISKSEQ => answer_long(data, u64::from(volume.number().1 / 16 + 1)),
            raw::BLKFLSBUF if !caller.credentials.is_privileged() => return Err(Errno::EACCES),
            raw::BLKFLSBUF => volume.sync().await?,
            raw::BLKBSZSET | raw::BLKROSET | raw::BLKRASET | raw::BLKFRASET | raw::BLKRRPART | raw::BLKPG
                if !caller.credentials.is_privileged() =>
            {
                return Err(Errno::EACCES)
            }
            // Of what the cache is made of nobody sees anything but pages.
            raw::BLKBSZSET => match argument_int(data)? {
                size if (512..=PAGE_SIZE as i32).contains(&size) && size.count_ones() == 1 => {}
                _ => return Err(Errno::EINVAL),
            },
            raw::BLKRRPART if volume.disk().is_none() && volume.driver().is_some() => {
                return self.ask_driver(caller, request, data).await
            }
            raw::BLKRRPART => {
                let volume = volume.clone();
                // What has begun comes to its end: partitions must not be left half there.
                to_completion(&*self.volume().services().spawner, async move { volume.rescan().await }).await?;
            }
            raw::BLKDISCARD | raw::BLKZEROOUT => {
                if !self.flags.get().writable() {
                    return Err(Errno::EBADF);
                }
                if limits.read_only {
                    return Err(Errno::EPERM);
                }
                let word =
                    |at: usize| data.get(at..at + 8).and_then(|word| Some(u64::from_ne_bytes(*word.first_chunk()?)));
                let (Some(start), Some(bytes)) = (word(0), word(8)) else { return Err(Errno::EFAULT) };
                match request {
                    raw::BLKDISCARD => volume.discard(start, bytes).await?,
                    _ => volume.zero(start, bytes).await?,
                }
            }
            raw::BLKSECDISCARD => return Err(Errno::EOPNOTSUPP),
            raw::BLKROSET | raw::BLKRASET | raw::BLKFRASET | raw::BLKPG => return Err(Errno::EINVAL),
            _ => return self.ask_driver(caller, request, data).await,
        }
        Ok(0)
    }

    async fn ask_driver(&self, caller: &Caller, request: u32, data: &mut Vec<u8>) -> Result<i64> {
        let driver = self.volume().driver().ok_or(Errno::ENOTTY)?.clone();
        let (can_write, caller, mut moved) = (self.flags.get().writable(), caller.clone(), core::mem::take(data));
        let work = async move { (driver.request(&caller, can_write, request, &mut moved).await, moved) };
        let answer;
        // A device must not be left half bound if the thread is killed.
        (answer, *data) = to_completion(&*self.volume().services().spawner, work).await;
        answer
    }
}

impl File for BlockFile {
    fn read_into<'a>(&'a self, to: Destination<'a>, access: Access<'a>) -> Transfer<'a> {
        if !self.flags.get().readable() {
            return Transfer::Done(Err(Errno::EBADF));
        }
        match access.at {
            Some(at) if at > MAX_SIZE => Transfer::Done(Err(Errno::EINVAL)),
            Some(at) => self.read_here(to, at, None),
            None => match self.position.try_lock() {
                Some(position) => self.read_here(to, *position, Some(position)),
                None => Transfer::later(async move {
                    let position = self.position.lock().await;
                    self.read_here(to, *position, Some(position)).await
                }),
            },
        }
    }

    fn write_from<'a>(&'a self, from: Source<'a>, access: Access<'a>) -> Transfer<'a> {
        let flags = self.flags.get();
        if !flags.writable() {
            return Transfer::Done(Err(Errno::EBADF));
        }
        let appends = flags.contains(OpenFlags::APPEND) || access.at == Some(crate::file::APPEND_AT);
        let end = self.volume().bytes();
        let place = move |at: u64| if appends { end } else { at };
        match access.at {
            Some(at) => self.write_here(from, place(at), None),
            None => match self.position.try_lock() {
                Some(position) => self.write_here(from, place(*position), Some(position)),
                None => Transfer::later(async move {
                    let position = self.position.lock().await;
                    self.write_here(from, place(*position), Some(position)).await
                }),
            },
        }
    }

    fn seek(&self, offset: i64, whence: Whence) -> BoxFuture<'_, Result<u64>> {
        Box::pin(async move {
            let mut position = self.position.lock().await;
            let end = self.volume().bytes();
            let start = match whence {
                Whence::Set => 0,
                Whence::Current => *position,
                Whence::End => end,
                Whence::Data | Whence::Hole => return Err(Errno::EINVAL),
            };
            // As Linux's fixed_size_llseek: not past the end.
            *position = start.checked_add_signed(offset).filter(|to| *to <= end).ok_or(Errno::EINVAL)?;
            Ok(*position)
        })
    }

    fn status(&self) -> Option<&StatusFlags> {
        Some(&self.flags)
    }

    fn attributes(&self) -> BoxFuture<'_, Result<Attributes>> {
        Box::pin(nodes::attributes(self.at.as_ref(), &self.inode))
    }

    fn set_attributes<'a>(&'a self, caller: &'a Caller, set: SetAttributes) -> BoxFuture<'a, Result<()>> {
        Box::pin(nodes::set_attributes(self.at.as_ref(), &self.inode, caller, set))
    }

    fn ioctl<'a>(&'a self, caller: &'a Caller, request: u32, data: &'a mut Vec<u8>) -> BoxFuture<'a, Result<i64>> {
        Box::pin(self.request(caller, request, data))
    }

    fn control<'a>(&'a self, _caller: &'a Caller, control: Control) -> BoxFuture<'a, Result<ControlAnswer>> {
        Box::pin(async move {
            match (control, self.volume().driver()) {
                (Control::AttachLoop { file, configuration }, Some(driver)) => {
                    let (driver, can_write) = (driver.clone(), self.flags.get().writable());
                    let work = async move { driver.attach(file, can_write, &configuration).await };
                    to_completion(&*self.volume().services().spawner, work).await?;
                    Ok(ControlAnswer::Done)
                }
                (Control::Advise(advice), _) => {
                    self.flags.advise(advice, self.object(), &*self.volume().services().spawner).await
                }
                (control, _) => Err(lacks(&control)),
            }
        })
    }

    fn sync(&self, _data_only: bool) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let synced = self.volume().sync().await;
            self.failed_since().and(synced)
        })
    }

    fn sync_range(&self, range: SyncRange) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let written = self.volume().cache().sync_range(range).await;
            match range.waits_before || range.waits_after {
                true => self.failed_since().and(written),
                false => written,
            }
        })
    }

    fn object(&self) -> BoxFuture<'_, Result<Arc<dyn Object>>> {
        ready(Ok(self.volume().cache().clone()))
    }

    fn path(&self) -> BoxFuture<'_, Vec<u8>> {
        ready(match &self.at {
            Some(at) => at.path(),
            None => format!("/dev/{}", self.volume().name()).into_bytes(),
        })
    }

    fn location(&self) -> Option<&(dyn Any + Send + Sync)> {
        self.at.as_ref().map(|at| at as _)
    }

    fn close(self: Arc<Self>) -> Option<BoxFuture<'static, ()>> {
        Arc::into_inner(self).map(|last| -> BoxFuture<'static, ()> { Box::pin(last.hold.release()) })
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
