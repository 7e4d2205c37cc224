//! Reads and writes past the cache (O_DIRECT), between the store and frames of their own, coherent with the pages that are here.
//!
//! A read first has dirty pages of its range written. A write does, too, and when it is done pages of its range are forgotten, here and on all kernels, so whoever reads next reads what is below.
//!
//! Many direct writes of a file may be under way at once, but not of the same pages, and none while the file's extent changes or pages are written back:
//!
//! ```text
//! direct write                      truncation, hole, write-back
//! `flushing` for a moment:          holds `flushing`,
//! its range is noted                waits until no range is noted
//! bytes go to the store             blocks are freed, or given
//! its range is noted no more
//! ```
//!
//! The bytes go to the store in a task that keeps the note. So a thread that is killed leaves no write behind that would come after those of others; its frames belong to the device until that has answered.
//!
//! A write that moves the end of the file holds the writers' lock, as any that changes the size. One that is not of whole blocks of the store goes through the cache, and then to the store.

use super::{PageCache, Services, Slot, MAX_SIZE, PAGE};
use crate::{
    file::{Destination, Frames, Source, Transfer},
    ReadAhead,
};
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::{ops::Range, sync::atomic::Ordering::Relaxed};
use machine::{errno::Result, sync::AsyncGuard, to_completion, Errno, Frame, PAGE_SIZE};

/// Pages that a transfer has of its own at a time.
const BATCH: usize = 64;
/// Of a kernel's memory, that all such frames may be.
const PART: usize = 16;
/// How often pages are written first that have become dirty once more.
const TRIES: usize = 3;
/// Where in a program's memory the bytes must begin (`dma_alignment` of /sys/block/*/queue).
const MEMORY: usize = 512;

/// What transfers past the cache must be made of.
#[derive(Clone, Copy)]
pub struct DirectUnits {
    /// Bytes that the disk reads and writes at least: places and lengths are multiples of it.
    pub sector: u32,
    /// Bytes of a block of the store: a write of parts goes through the cache.
    pub block: u32,
}

/// A direct write that is under way: see the module.
struct Noted {
    cache: Arc<PageCache>,
    pages: Range<u64>,
}

impl Drop for Noted {
    fn drop(&mut self) {
        let mut state = self.cache.state.lock();
        if let Some(at) = state.direct.iter().position(|pages| *pages == self.pages) {
            state.direct.swap_remove(at);
        }
        drop(state);
        self.cache.loaded.wake_all();
    }
}

/// Frames of this kernel for the bytes between a program and a store.
struct Bounce {
    services: Arc<Services>,
    frames: Vec<Frame>,
}

impl Bounce {
    /// For so many bytes, or fewer. All transfers together may have a part of memory; beyond that each has a page.
    fn new(services: &Arc<Services>, bytes: usize) -> Result<Bounce> {
        let mut bounce = Bounce { services: services.clone(), frames: Vec::new() };
        let most = services.memory.totals().0 as usize / PART;
        while bounce.frames.len() < bytes.div_ceil(PAGE_SIZE).min(BATCH) {
            let is_first = bounce.frames.is_empty();
            if !is_first && services.bounced.load(Relaxed) >= most {
                break;
            }
            match services.frame() {
                Ok(frame) => bounce.frames.push(frame.into_raw()),
                Err(error) if is_first => return Err(error),
                Err(_) => break,
            }
            services.bounced.fetch_add(1, Relaxed);
        }
        Ok(bounce)
    }
}

impl Drop for Bounce {
    fn drop(&mut self) {
        self.services.bounced.fetch_sub(self.frames.len(), Relaxed);
        // A device that still has one counts it itself.
        self.frames.iter().for_each(|frame| self.services.memory.release(*frame));
    }
}

impl PageCache {
    fn direct_units(&self) -> Option<DirectUnits> {
        self.store.as_ref()?.direct()
    }

    /// As [`PageCache::read`], past the pages. EINVAL: not of whole sectors.
    pub fn read_direct<'a>(&'a self, to: Destination<'a>, offset: u64) -> Transfer<'a> {
        let Some(units) = self.direct_units() else { return self.read(to, offset, ReadAhead::Random) };
        if to.is_empty() || offset >= self.len() {
            return Transfer::Done(Ok(0));
        }
        if !is_whole(units, offset, to.len()) || !to.is_aligned(MEMORY, units.sector as usize) {
            return Transfer::Done(Err(Errno::EINVAL));
        }
        Transfer::later(self.read_below(to, offset, units))
    }

    async fn read_below<'a>(&'a self, mut to: Destination<'a>, offset: u64, units: DirectUnits) -> Result<usize> {
        let Some(store) = &self.store else { return Err(Errno::EINVAL) };
        self.write_back(offset, offset.saturating_add(to.len() as u64)).await?;
        let memory = &*self.services.memory;
        let mut done = 0;
        loop {
            let at = offset + done as u64;
            let (size, losses) = {
                let state = self.state.lock();
                (state.size, state.losses)
            };
            let left = (to.len() as u64).min(size.saturating_sub(at)) as usize;
            if left == 0 {
                return Ok(done);
            }
            let bounce = Bounce::new(&self.services, left)?;
            let bytes = left.min(bounce.frames.len() * PAGE_SIZE);
            // The disk has no smaller parts, also where the file ends.
            let room = Frames::new(memory, &bounce.frames, bytes.next_multiple_of(units.sector as usize));
            match store.read(at, room).await {
                Ok(_) => {}
                Err(_) if done > 0 => return Ok(done),
                Err(error) => return Err(error),
            }
            if self.state.lock().losses != losses {
                // Pages were lost meanwhile: where the bytes were, others may have theirs by now.
                return match self.read(to, at, ReadAhead::Random).await {
                    Err(error) if done == 0 => Err(error),
                    read => Ok(done + read.unwrap_or(0)),
                };
            }
            for (index, frame) in bounce.frames.iter().enumerate() {
                to.put_frame(memory, *frame, 0, bytes.saturating_sub(index * PAGE_SIZE).min(PAGE_SIZE))?;
            }
            done += bytes;
        }
    }

    /// As [`PageCache::write`], past the pages. EINVAL: not of whole sectors.
    pub fn write_direct<'a>(
        &'a self,
        from: Source<'a>,
        offset: Option<u64>,
        permit: impl Fn(u64, u64) -> Result<()> + Send + 'a,
    ) -> Transfer<'a, (u64, usize)> {
        let Some(units) = self.direct_units() else { return self.write(from, offset, permit) };
        if from.is_empty() {
            return Transfer::Done(Ok((offset.unwrap_or_else(|| self.len()), 0)));
        }
        let is_aligned = from.is_aligned(MEMORY, units.sector as usize);
        if !is_aligned || offset.is_some_and(|at| !is_whole(units, at, from.len())) {
            return Transfer::Done(Err(Errno::EINVAL));
        }
        Transfer::later(async move {
            let bytes = from.len() as u64;
            let whole_blocks = |start: u64| (start | bytes).is_multiple_of(units.block.into());
            if let Some(start) = offset.filter(|start| whole_blocks(*start) && *start < MAX_SIZE) {
                permit(start, start.saturating_add(bytes))?;
                if let Some(noted) = self.note(start, bytes, false).await? {
                    return self.write_below(from, start, noted).await;
                }
            }
            let writer = self.writer.lock().await;
            let start = offset.unwrap_or_else(|| self.len());
            if !is_whole(units, start, bytes as usize) {
                return Err(Errno::EINVAL);
            }
            if start.checked_add(bytes).is_none_or(|end| end > MAX_SIZE) {
                return Err(Errno::EFBIG);
            }
            if !whole_blocks(start) {
                return self.write_through(writer, from, start, permit).await;
            }
            permit(start, start + bytes)?;
            let noted = self.note(start, bytes, true).await?.ok_or(Errno::EIO)?;
            let written = self.write_below(from, start, noted).await;
            drop(writer);
            written
        })
    }

    /// Through the cache, and then to the store.
    async fn write_through<'a>(
        &'a self,
        writer: AsyncGuard<'a, ()>,
        from: Source<'a>,
        start: u64,
        permit: impl Fn(u64, u64) -> Result<()>,
    ) -> Result<(u64, usize)> {
        let (start, written) = self.write_locked(writer, from, Some(start), permit).await?;
        let end = start + written as u64;
        self.write_back(start, end).await?;
        self.forget_clean(start, end).await;
        Ok((start, written))
    }

    /// Notes that these bytes are written, when dirty pages of them have been and nobody else does. None: they are not all within the file, whose end may not move unless it `grows`.
    async fn note(&self, start: u64, bytes: u64, grows: bool) -> Result<Option<Arc<Noted>>> {
        let Some(cache) = self.this.upgrade() else { return Err(Errno::EIO) };
        let pages = start / PAGE..(start + bytes).div_ceil(PAGE);
        let overlaps = |other: &Range<u64>| other.start < pages.end && pages.start < other.end;
        let mut tries = 0;
        loop {
            tries += 1;
            self.write_back(start, start + bytes).await?;
            self.take_copies_back(pages.clone()).await;
            let mut from = pages.start;
            while from < pages.end {
                let end = pages.end.min(from + super::RESERVED);
                if let Some(reserved) = self.reserve_below(from..end) {
                    reserved.await?;
                }
                from = end;
            }
            self.loaded.wait_until(|| (!self.state.lock().direct.iter().any(overlaps)).then_some(())).await;
            let _flushing = self.flushing.lock().await;
            let mut state = self.state.lock();
            if !grows && start + bytes > state.size {
                return Ok(None);
            }
            let is_dirty = |(_, slot): (&u64, &Slot)| matches!(slot, Slot::Ready { dirty: true, .. });
            // Who writes through a mapping all the time must not keep this from being done.
            let again = tries < TRIES && state.pages.range(pages.clone()).any(is_dirty);
            if again || state.direct.iter().any(overlaps) {
                continue;
            }
            state.direct.push(pages.clone());
            drop(state);
            return Ok(Some(Arc::new(Noted { cache, pages })));
        }
    }

    async fn write_below(&self, from: Source<'_>, start: u64, noted: Arc<Noted>) -> Result<(u64, usize)> {
        let end = start + from.len() as u64;
        let mut forgets = Forgets { cache: Some(noted.cache.clone()), pages: noted.pages.clone(), start, end };
        let written = self.write_batches(from, start, &noted).await;
        drop(noted);
        // Without the note: an address space that is asked may be waiting for it. All of the bytes, also if they could not all be written: some of them may have been.
        self.forget_clean(start, end).await;
        forgets.cache = None;
        written
    }

    async fn write_batches(&self, mut from: Source<'_>, start: u64, noted: &Arc<Noted>) -> Result<(u64, usize)> {
        let memory = &*self.services.memory;
        let mut done = 0;
        while !from.is_empty() {
            let at = start + done as u64;
            let filled = Bounce::new(&self.services, from.len()).and_then(|bounce| {
                let bytes = from.len().min(bounce.frames.len() * PAGE_SIZE);
                for (index, frame) in bounce.frames.iter().enumerate() {
                    from.take_frame(memory, *frame, 0, (bytes - index * PAGE_SIZE).min(PAGE_SIZE))?;
                }
                Ok((bounce, bytes))
            });
            let written = match filled {
                Ok((bounce, bytes)) => {
                    let noted = noted.clone();
                    let work = async move { noted.cache.clone().put_below(at, bounce, bytes, noted).await };
                    to_completion(&*self.services.spawner, work).await.map(|()| bytes)
                }
                Err(crate::file::NEEDS_BUFFER) => return Err(crate::file::NEEDS_BUFFER),
                Err(error) => Err(error),
            };
            match written {
                Ok(bytes) => done += bytes,
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok((start, done))
    }

    async fn put_below(&self, at: u64, bounce: Bounce, bytes: usize, noted: Arc<Noted>) -> Result<()> {
        let Some(store) = &self.store else { return Err(Errno::EIO) };
        store.write(at, Frames::new(&*self.services.memory, &bounce.frames, bytes)).await?;
        let mut state = self.state.lock();
        state.size = state.size.max(at + bytes as u64);
        state.epoch += 1;
        drop(state);
        drop((noted, bounce));
        Ok(())
    }

    /// The right to change where the file's bytes are below: nobody writes any there meanwhile.
    pub(super) async fn settled(&self) -> AsyncGuard<'_, ()> {
        let flushing = self.flushing.lock().await;
        self.loaded.wait_until(|| self.state.lock().direct.is_empty().then_some(())).await;
        flushing
    }
}

/// Forgets the pages of a direct write whose thread was killed in the middle, when what it has begun is written.
struct Forgets {
    /// None: the thread does that itself.
    cache: Option<Arc<PageCache>>,
    pages: Range<u64>,
    start: u64,
    end: u64,
}

impl Drop for Forgets {
    fn drop(&mut self) {
        let Some(cache) = self.cache.take() else { return };
        let (pages, start, end) = (self.pages.clone(), self.start, self.end);
        let spawner = cache.services.spawner.clone();
        spawner.spawn(Box::pin(async move {
            let overlaps = |other: &Range<u64>| other.start < pages.end && pages.start < other.end;
            cache.loaded.wait_until(|| (!cache.state.lock().direct.iter().any(overlaps)).then_some(())).await;
            cache.forget_clean(start, end).await;
        }));
    }
}

fn is_whole(units: DirectUnits, offset: u64, bytes: usize) -> bool {
    (offset | bytes as u64).is_multiple_of(units.sector.into())
}
