//! Where a regular file ends, and which of its bytes have blocks.

use super::{
    content::Content,
    errno,
    node::{time, Node},
    Shared,
};
use crate::{file::Source, inode::Extent, PageCache};
use alloc::{boxed::Box, sync::Arc};
use ext4::Time;
use machine::{errno::Result, to_completion, Errno, PAGE_SIZE};

const PAGE: u64 = PAGE_SIZE as u64;

/// What fallocate(2) is to do.
mod allocate {
    pub const KEEP_SIZE: u32 = 1;
    pub const PUNCH_HOLE: u32 = 2;
    pub const ZERO_RANGE: u32 = 16;
}

impl Node {
    /// Makes the file end there, in memory and on the disk.
    pub(super) async fn resize(&self, size: u64) -> Result<()> {
        let (cache, content) = self.file()?;
        let (cache, content) = (cache.clone(), content.clone());
        let (shared, number, now) = (self.shared.clone(), self.number, time(self.now()));
        let work = async move {
            let below = async {
                content.check_here()?;
                if size < cache.len() {
                    shared.zero_tail(number, size).await?;
                }
                shared.volume.truncate(number, size, now).await.map_err(errno)?;
                content.note_change();
                content.forget_behind(size);
                Ok(())
            };
            let most = u64::from(u32::MAX) * u64::from(shared.volume.superblock().block_bytes);
            let permit = |_, size| if size > most { Err(Errno::EFBIG) } else { Ok(()) };
            cache.truncate(size, permit, Box::pin(below)).await
        };
        to_completion(&*self.shared.services.spawner, work).await
    }

    /// fallocate(2).
    pub(super) async fn fallocate(&self, mode: u32, offset: u64, len: u64) -> Result<()> {
        let (cache, content) = self.file().map_err(|_| Errno::ENODEV)?;
        let end = offset.checked_add(len).ok_or(Errno::EFBIG)?;
        let block = u64::from(self.shared.volume.superblock().block_bytes);
        let last = u32::try_from(end.div_ceil(block)).map_err(|_| Errno::EFBIG)?;
        let (cache, content) = (cache.clone(), content.clone());
        let (shared, number, now) = (self.shared.clone(), self.number, time(self.now()));
        let work = async move {
            match mode & !allocate::KEEP_SIZE {
                0 => {}
                allocate::PUNCH_HOLE if mode & allocate::KEEP_SIZE != 0 => {}
                allocate::ZERO_RANGE => {}
                _ => return Err(Errno::EOPNOTSUPP),
            }
            if mode & (allocate::PUNCH_HOLE | allocate::ZERO_RANGE) != 0 {
                shared.punch(&cache, &content, number, offset..end.min(cache.len().max(offset)), now).await?;
            }
            if mode & allocate::PUNCH_HOLE != 0 {
                return Ok(());
            }
            let keeps_size = mode & allocate::KEEP_SIZE != 0;
            let size = if keeps_size { 0 } else { end };
            let below = async {
                content.check_here()?;
                let mut at = (offset / block) as u32;
                while at < last {
                    at = shared.volume.allocate(number, at, last, size, now).await.map_err(errno)?;
                    content.note_change();
                }
                Ok(())
            };
            cache.allocate_through(end, keeps_size, Box::pin(below)).await
        };
        to_completion(&*self.shared.services.spawner, work).await
    }

    /// See [`Inode::seek`].
    pub(super) async fn seek_extent(&self, offset: u64, what: Extent) -> Result<u64> {
        let (cache, _) = self.file()?;
        // What is in memory only has no place yet.
        cache.write_back(0, u64::MAX).await?;
        let (size, block) = (cache.len(), u64::from(self.shared.volume.superblock().block_bytes));
        let mut at = offset;
        while at < size {
            let number = u32::try_from(at / block).map_err(|_| Errno::EFBIG)?;
            let run = self.shared.volume.map_now(self.number, number).await.map_err(errno)?;
            if run.place.is_some() == (what == Extent::Data) {
                return Ok(at);
            }
            at = (u64::from(number) + u64::from(run.blocks.max(1))) * block;
        }
        match what {
            Extent::Hole if offset < size => Ok(size),
            _ => Err(Errno::ENXIO),
        }
    }
}

impl Shared {
    /// Makes bytes of a file a hole. Parts of pages at both ends are written as zeros, if they are not holes already.
    async fn punch(
        &self,
        cache: &Arc<PageCache>,
        content: &Arc<Content>,
        number: u32,
        range: core::ops::Range<u64>,
        now: Time,
    ) -> Result<()> {
        static ZEROES: [u8; PAGE_SIZE] = [0; PAGE_SIZE];
        let (first, last) = (range.start.div_ceil(PAGE), range.end / PAGE);
        let edges = match first > last {
            true => [range.clone(), 0..0],
            false => [range.start..first * PAGE, last * PAGE..range.end],
        };
        for edge in edges.into_iter().filter(|edge| edge.start < edge.end) {
            let zeros = &ZEROES[..(edge.end - edge.start) as usize];
            cache.write(Source::Kernel(zeros), Some(edge.start), |_, _| Ok(())).await?;
        }
        if first >= last {
            return Ok(());
        }
        let per_page = |page: u64| page * PAGE / u64::from(self.volume.superblock().block_bytes);
        let from = u32::try_from(per_page(first)).map_err(|_| Errno::EFBIG)?;
        let below = async {
            content.check_here()?;
            self.volume.punch(number, from, per_page(last), now).await.map_err(errno)?;
            content.note_change();
            content.forget(first..last);
            Ok(())
        };
        cache.punch_through(first, last, Box::pin(below)).await
    }
}
