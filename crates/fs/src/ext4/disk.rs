//! The disk below a file system of ext4: blocks of metadata go past its page cache, as those of files do.

use crate::{
    block::Volume,
    file::{Destination, Frames},
    Services,
};
use alloc::{sync::Arc, vec::Vec};
use ext4::{Bytes, Error};
use machine::{collections::try_filled, sync::AsyncLock, CountedFrame, Errno, Frame, Memory, PAGE_SIZE};

/// Pages of one transfer of metadata, if there is memory for them.
const PAGES: usize = 64;

/// See the module.
pub struct Blocks {
    pub disk: Arc<Volume>,
    pub bytes: usize,
    services: Arc<Services>,
    /// A page for those who find no memory: what is to be written must be.
    spare: AsyncLock<Spare>,
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

impl Blocks {
    /// ENOMEM.
    pub fn new(disk: Arc<Volume>, bytes: usize, services: &Arc<Services>) -> Result<Blocks, Errno> {
        let frame = services.memory.alloc().ok_or(Errno::ENOMEM)?;
        let spare = AsyncLock::new(Spare { memory: services.memory.clone(), frame });
        Ok(Blocks { disk, bytes, services: services.clone(), spare })
    }

    /// Pages for so many bytes, or for fewer, or none.
    fn frames(&self, bytes: usize) -> Vec<CountedFrame<'_>> {
        (0..bytes.div_ceil(PAGE_SIZE).min(PAGES)).map_while(|_| self.services.frame().ok()).collect()
    }

    async fn put(&self, at: u64, frames: &[Frame], bytes: &[u8]) -> Result<(), Error> {
        let mut to = Frames::new(&*self.services.memory, frames, bytes.len());
        to.put(bytes);
        self.disk.write_from(at, Frames::new(&*self.services.memory, frames, bytes.len())).await.map_err(error)
    }
}

impl ext4::Device for Blocks {
    async fn read(&self, block: u64) -> ext4::Result<Vec<u8>> {
        let mut bytes = try_filled(self.bytes, 0u8).map_err(|_| Error::NoMemory)?;
        let counted = self.frames(self.bytes);
        let frames: Vec<Frame> = counted.iter().map(CountedFrame::frame).collect();
        if frames.len() * PAGE_SIZE < self.bytes {
            return Err(Error::NoMemory);
        }
        let to = || Frames::new(&*self.services.memory, &frames, self.bytes);
        self.disk.read_into(block * self.bytes as u64, to()).await.map_err(error)?;
        to().take(&mut bytes);
        Ok(bytes)
    }

    async fn write(&self, block: u64, blocks: Vec<Bytes>) -> ext4::Result<()> {
        let bytes: Vec<u8> = blocks.iter().flat_map(|block| block.iter().copied()).collect();
        let (start, mut done) = (block * self.bytes as u64, 0);
        while done < bytes.len() {
            let counted = self.frames(bytes.len() - done);
            let frames: Vec<Frame> = counted.iter().map(CountedFrame::frame).collect();
            let part = |pages: usize| &bytes[done..bytes.len().min(done + pages * PAGE_SIZE)];
            let written = if frames.is_empty() {
                let spare = self.spare.lock().await;
                self.put(start + done as u64, &[spare.frame], part(1)).await?;
                part(1).len()
            } else {
                self.put(start + done as u64, &frames, part(frames.len())).await?;
                part(frames.len()).len()
            };
            done += written;
        }
        // Who reads the disk itself sees what is on it.
        self.disk.cache().forget_clean(start, start + bytes.len() as u64).await;
        Ok(())
    }

    async fn flush(&self) -> ext4::Result<()> {
        self.disk.flush().await.map_err(error)
    }
}

/// The superblock, from the disk's page cache.
pub async fn superblock(disk: &Volume) -> Result<[u8; ext4::Superblock::PLACE.1], Errno> {
    let (at, bytes) = ext4::Superblock::PLACE;
    let mut superblock = [0; ext4::Superblock::PLACE.1];
    match disk.cache().read(Destination::Kernel(&mut superblock), at as u64).await? {
        read if read == bytes => Ok(superblock),
        _ => Err(Errno::EINVAL),
    }
}
