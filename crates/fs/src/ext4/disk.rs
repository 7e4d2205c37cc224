//! The disk below a file system of ext4: blocks of metadata go past its page cache, as those of files do.

use super::Shared;
use crate::{
    block::Volume,
    file::{Destination, Frames},
    ReadAhead, Services,
};
use alloc::{
    boxed::Box,
    sync::{Arc, Weak},
    vec::Vec,
};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::SeqCst};
use ext4::{Bytes, Error, Failure};
use machine::{
    collections::try_filled,
    sync::{AsyncLock, WaitQueue},
    to_completion, CountedFrame, Errno, Frame, Memory, PAGE_SIZE,
};
use spin::Once;

/// Errors that the log tells of one by one.
const LINES: u32 = 10;
/// Pages of one transfer of metadata, if there is memory for them.
const PAGES: usize = 256;

/// See the module.
pub struct Blocks {
    pub disk: Arc<Volume>,
    pub bytes: usize,
    writer: Arc<Writer>,
    /// The file system, once it is mounted.
    pub mounted: Once<Weak<Shared>>,
    /// Nothing is written any more, for there was an error.
    stopped: AtomicBool,
    failures: AtomicU32,
    /// A task makes the superblock tell of errors; who waits for its end.
    telling: AtomicBool,
    told: WaitQueue,
}

/// Writes blocks, one call after the other.
struct Writer {
    disk: Arc<Volume>,
    services: Arc<Services>,
    /// A page for those who find no memory: what is to be written must be.
    spare: AsyncLock<Spare>,
    /// Writes that the disk has not answered, also those that nobody waits for any more.
    outstanding: AtomicUsize,
    answered: WaitQueue,
}

struct Spare {
    memory: Arc<dyn Memory>,
    frame: Frame,
}

impl Drop for Spare {
    fn drop(&mut self) {
        self.memory.release(self.frame);
    }
}

fn error(error: Errno) -> Error {
    match error {
        Errno::ENOMEM => Error::NoMemory,
        _ => Error::Io,
    }
}

impl Writer {
    /// Pages for so many bytes, or for fewer, or none.
    fn frames(&self, bytes: usize) -> Vec<CountedFrame<'_>> {
        (0..bytes.div_ceil(PAGE_SIZE).min(PAGES)).map_while(|_| self.services.frame().ok()).collect()
    }

    async fn put(&self, at: u64, frames: &[Frame], blocks: &[Bytes], bytes: usize) -> Result<(), Errno> {
        let all = || Frames::new(&*self.services.memory, frames, bytes);
        let mut to = all();
        blocks.iter().for_each(|block| to.put(block));
        self.disk.write_from(at, all()).await
    }

    async fn write(&self, start: u64, blocks: &[Bytes]) -> Result<(), Errno> {
        let each = blocks.first().map_or(0, |block| block.len());
        let mut at = start;
        // As many blocks as find pages, or one in the page that is always here.
        let mut rest = blocks;
        while !rest.is_empty() {
            let counted = self.frames(rest.len() * each);
            let frames: Vec<Frame> = counted.iter().map(CountedFrame::frame).collect();
            let spare = if frames.is_empty() { Some(self.spare.lock().await) } else { None };
            let pages = spare.as_ref().map_or(&frames[..], |spare| core::slice::from_ref(&spare.frame));
            let (now, later) = rest.split_at((pages.len() * PAGE_SIZE / each).clamp(1, rest.len()));
            self.put(at, pages, now, now.len() * each).await?;
            at += (now.len() * each) as u64;
            rest = later;
        }
        // Who reads the disk itself sees what is on it.
        self.disk.cache().forget_clean(start, at).await;
        Ok(())
    }
}

impl Blocks {
    /// ENOMEM.
    pub fn new(disk: Arc<Volume>, bytes: usize, services: &Arc<Services>) -> Result<Blocks, Errno> {
        let frame = services.memory.alloc().ok_or(Errno::ENOMEM)?;
        let spare = AsyncLock::new(Spare { memory: services.memory.clone(), frame });
        let (outstanding, answered) = (AtomicUsize::new(0), WaitQueue::new());
        let writer = Writer { disk: disk.clone(), services: services.clone(), spare, outstanding, answered };
        Ok(Blocks {
            disk,
            bytes,
            writer: Arc::new(writer),
            mounted: Once::new(),
            stopped: AtomicBool::new(false),
            failures: AtomicU32::new(0),
            telling: AtomicBool::new(false),
            told: WaitQueue::new(),
        })
    }

    /// Whether the file system has become read only by an error.
    pub fn has_stopped(&self) -> bool {
        self.stopped.load(SeqCst)
    }

    /// A task makes the superblock tell of errors, if it can still be written.
    fn tell(&self, shared: Arc<Shared>) {
        if self.telling.swap(true, SeqCst) {
            return;
        }
        self.writer.services.spawner.spawn(Box::pin(async move {
            let device = shared.volume.device();
            loop {
                let saved = shared.save_errors().await;
                device.telling.store(false, SeqCst);
                // Who has found one since left it to this task.
                if saved.is_err() || !shared.volume.has_unsaved_errors() || device.telling.swap(true, SeqCst) {
                    break;
                }
            }
            device.told.wake_all();
        }));
    }

    /// Waits for the task that makes the superblock tell of errors.
    pub async fn has_told(&self) {
        self.told.wait_until(|| (!self.telling.load(SeqCst)).then_some(())).await;
    }

    /// Whether the log is to tell of the newest failure, too: a damaged file system has much to say.
    pub fn is_told(&self) -> bool {
        let number = self.failures.load(SeqCst);
        number <= LINES || number.is_power_of_two()
    }
}

impl ext4::Device for Blocks {
    fn memory(&self) -> usize {
        let (pages, _) = self.writer.services.memory.totals();
        (pages as usize * PAGE_SIZE / 16).clamp(1 << 20, 32 << 20)
    }

    async fn read(&self, block: u64, blocks: u32) -> ext4::Result<Vec<u8>> {
        let length = self.bytes * blocks as usize;
        let mut bytes = try_filled(length, 0u8).map_err(|_| Error::NoMemory)?;
        let counted = self.writer.frames(length);
        let frames: Vec<Frame> = counted.iter().map(CountedFrame::frame).collect();
        if frames.len() * PAGE_SIZE < length {
            return Err(Error::NoMemory);
        }
        let to = || Frames::new(&*self.writer.services.memory, &frames, length);
        self.disk.read_into(block * self.bytes as u64, to()).await.map_err(error)?;
        to().take(&mut bytes);
        Ok(bytes)
    }

    async fn write(&self, block: u64, blocks: Vec<Bytes>) -> ext4::Result<()> {
        let (writer, start) = (self.writer.clone(), block * self.bytes as u64);
        writer.outstanding.fetch_add(1, SeqCst);
        let work = async move {
            let written = writer.write(start, &blocks).await;
            writer.outstanding.fetch_sub(1, SeqCst);
            writer.answered.wake_all();
            written
        };
        to_completion(&*self.writer.services.spawner, work).await.map_err(error)
    }

    fn failed(&self, failure: Failure) {
        let Some(shared) = self.mounted.get().and_then(Weak::upgrade) else { return };
        let disk = self.disk.name();
        self.failures.fetch_add(1, SeqCst);
        if self.is_told() {
            match failure {
                Failure::Damage(what) => log::error!("EXT4-fs error (device {disk}): {what} can't be"),
                Failure::Journal => {
                    log::error!("Aborting journal on device {disk}-8.");
                    log::error!("EXT4-fs error (device {disk}): Detected aborted journal");
                }
            }
        }
        if shared.volume.has_failed() && !self.stopped.swap(true, SeqCst) {
            log::error!("EXT4-fs ({disk}): Remounting filesystem read-only");
        }
        self.tell(shared);
    }

    async fn flush(&self) -> ext4::Result<()> {
        let writer = &self.writer;
        writer.answered.wait_until(|| (writer.outstanding.load(SeqCst) == 0).then_some(())).await;
        self.disk.flush().await.map_err(error)
    }
}

/// The superblock, from the disk's page cache.
pub async fn superblock(disk: &Volume) -> Result<[u8; ext4::Superblock::PLACE.1], Errno> {
    let (at, bytes) = ext4::Superblock::PLACE;
    let mut superblock = [0; ext4::Superblock::PLACE.1];
    match disk.cache().read(Destination::Kernel(&mut superblock), at as u64, ReadAhead::Normal).await? {
        read if read == bytes => Ok(superblock),
        _ => Err(Errno::EINVAL),
    }
}
