//! The bytes of a regular file: what lies below its page cache.
//!
//! Blocks are found for pages when they are written back (delayed allocation), not before. So that there are some then, a page that becomes dirty reserves what it will need: nobody hears of a full
//! disk after his write has been answered.

use super::{disk::Blocks, errno, raise, ranges::Ranges, Shared};
use crate::{
    cache::{DirectUnits, RESERVED},
    file::Frames,
    lease::OWN,
    PageCache, Store, Timestamp, WriteErrors,
};
use alloc::{
    boxed::Box,
    sync::{Arc, Weak},
    vec::Vec,
};
use core::{
    ops::Range,
    sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
};
use ext4::{Error, Target, Time};
use machine::{
    errno::Result,
    join_all,
    sync::{AsyncGuard, AsyncLock, Lock},
    BoxFuture, Errno, Frame, PAGE_SIZE,
};
use spin::Once;

const PAGE: u64 = PAGE_SIZE as u64;
static ZEROES: [u8; PAGE_SIZE] = [0; PAGE_SIZE];
/// Ranges of pages that are remembered as having their blocks.
const KNOWN: usize = 256;
/// Places that some bytes have, of which all are written at the same time.
const TARGETS: usize = 16;

/// See the module.
pub struct Content {
    shared: Arc<Shared>,
    number: u32,
    cache: Once<Weak<PageCache>>,
    state: Lock<State>,
    /// The last transaction that gave the file blocks or another time: fsync commits it, whoever wrote the bytes back.
    transaction: AtomicU32,
    /// The last one that the file's bytes can't be found without: it gave the file blocks or another size. fdatasync commits no later one.
    data_transaction: AtomicU32,
    /// See [`Content::telling`].
    telling: AsyncLock<()>,
    /// The file goes: nothing more is done to it. Set before its pages are discarded, and looked at by who holds what that waits for.
    gone: AtomicBool,
    /// Failures of write-back, for fsync.
    errors: WriteErrors,
}

#[derive(Default)]
struct State {
    /// Pages that need nothing more: their blocks are there, or reserved.
    known: Ranges,
    /// Blocks of the file that are reserved.
    reserved: Ranges,
    /// When contents last changed, if the inode does not say so yet.
    modified: Option<Timestamp>,
}

impl Content {
    /// The contents of a file that is `size` bytes long, and their page cache.
    pub fn new(shared: &Arc<Shared>, number: u32, size: u64) -> (Arc<PageCache>, Arc<Content>) {
        let content = Arc::new(Content {
            shared: shared.clone(),
            number,
            cache: Once::new(),
            state: Lock::default(),
            transaction: AtomicU32::new(shared.volume.transaction()),
            data_transaction: AtomicU32::new(shared.volume.transaction()),
            telling: AsyncLock::new(()),
            gone: AtomicBool::new(false),
            errors: WriteErrors::default(),
        });
        let cache = PageCache::over(&shared.services, size, content.clone());
        content.cache.call_once(|| Arc::downgrade(&cache));
        (cache, content)
    }

    /// Writes what is dirty.
    pub async fn write_data(&self, cache: &Arc<PageCache>) -> Result<()> {
        match cache.has_dirty() {
            true => self.shared.services.flush(cache).await,
            // It may be on the list of dirty ones still.
            false => cache.write_back(0, u64::MAX).await,
        }
    }

    /// Writes what is dirty, and tells the inode when its contents changed.
    pub async fn write_back(&self, cache: &Arc<PageCache>) -> Result<()> {
        self.write_data(cache).await?;
        self.tell_time().await
    }

    /// The same within the caller's task, which must come to its end.
    pub async fn write_back_in_task(&self, cache: &Arc<PageCache>) -> Result<()> {
        cache.write_back_in_task().await?;
        self.tell_time().await
    }

    /// Tells the inode when its contents changed, if it does not say so yet.
    async fn tell_time(&self) -> Result<()> {
        let _telling = self.telling.lock().await;
        if let (Some(now), Ok(())) = (self.modified(), self.check_here()) {
            let time = Time { seconds: now.seconds, nanoseconds: now.nanoseconds };
            let change = |inode: &mut ext4::Inode| (inode.modified, inode.changed) = (time, time);
            self.shared.volume.change(self.number, change).await.map_err(errno)?;
            self.note_time();
            self.told(now);
        }
        Ok(())
    }

    fn block(&self) -> u64 {
        self.shared.volume.superblock().block_bytes.into()
    }

    /// Contents have changed; the inode says so when it is written.
    pub fn changed(&self, now: Timestamp) {
        self.state.lock().modified = Some(now);
    }

    /// When they did, if the inode does not say so.
    pub fn modified(&self) -> Option<Timestamp> {
        self.state.lock().modified
    }

    /// Held by who tells the inode when they did, from before he looks until that is a part of a transaction which [`Content::commit`] knows: fsync, which may find nothing to tell, waits for
    /// him. Nor does he tell it a time that a program sets meanwhile from the past.
    pub async fn telling(&self) -> AsyncGuard<'_, ()> {
        self.telling.lock().await
    }

    /// The inode says so.
    pub fn told(&self, time: Timestamp) {
        self.state.lock().modified.take_if(|modified| *modified == time);
    }

    /// Nobody has the file any more, and it has no name.
    pub fn goes(&self) {
        self.gone.store(true, SeqCst);
        self.state.lock().modified = None;
    }

    /// EIO: the file goes, so nothing may be done to its inode, which may soon be another's.
    pub fn check_here(&self) -> Result<()> {
        match self.gone.load(SeqCst) {
            true => Err(Errno::EIO),
            false => Ok(()),
        }
    }

    /// What has been written, where it is, and what else the inode says of it, stays; `also`: another transaction that must.
    pub async fn commit(&self, also: Option<u32>) -> Result<()> {
        commit(&self.shared, [Some(self.transaction.load(SeqCst)), also].into_iter().flatten()).await
    }

    /// What has been written, and where it is, stays.
    pub async fn commit_data(&self) -> Result<()> {
        commit(&self.shared, core::iter::once(self.data_transaction.load(SeqCst))).await
    }

    /// The inode has another time: in the transaction that runs, at the latest.
    fn note_time(&self) {
        raise(&self.transaction, self.shared.volume.transaction());
        self.shared.changed();
    }

    /// The inode has other blocks or another size: in the transaction that runs, at the latest.
    pub fn note_change(&self) {
        raise(&self.data_transaction, self.shared.volume.transaction());
        self.note_time();
    }

    /// What could not be written back.
    pub fn errors(&self) -> &WriteErrors {
        &self.errors
    }

    /// Something could not be. Other kernels open the file by themselves no more: who opens it from now on need not be told.
    fn note_failure(&self, error: Errno) {
        // Of a file system that is not written any more every fsync says so.
        if error == Errno::EROFS {
            return;
        }
        self.errors.note();
        if let Some(node) = self.shared.known(self.number).filter(|node| node.sharers.begin().is_shared()) {
            self.shared.services.spawner.spawn(Box::pin(async move { drop(node.sharers.change(&[OWN]).await) }));
        }
    }

    /// Blocks of the file that pages in memory will take.
    pub fn reserved_blocks(&self) -> u64 {
        self.state.lock().reserved.count()
    }

    /// The file's pages `range` have no blocks any more, and need none.
    pub fn forget(&self, range: Range<u64>) {
        let per_page = PAGE.div_ceil(self.block()).max(1);
        self.forget_blocks(range.clone(), range.start * per_page..range.end.saturating_mul(per_page));
    }

    /// The file ends at byte `size`: what lies behind it has no blocks any more, and needs none. Of the page in which it ends that is a part.
    pub fn forget_behind(&self, size: u64) {
        self.forget_blocks(size / PAGE..u64::MAX, size.div_ceil(self.block())..u64::MAX);
    }

    fn forget_blocks(&self, pages: Range<u64>, blocks: Range<u64>) {
        let mut state = self.state.lock();
        state.known.remove(pages);
        let blocks = state.reserved.remove(blocks);
        drop(state);
        self.shared.volume.unreserve(blocks);
    }

    /// Reserves what pages need. False: something had to be read first.
    fn try_reserve(&self, pages: Range<u64>) -> core::result::Result<bool, Error> {
        let block = self.block();
        let volume = &self.shared.volume;
        let mut state = self.state.lock();
        if state.known.len() > KNOWN {
            state.known.clear();
        }
        for gap in state.known.missing(pages) {
            let (first, end) = (gap.start * PAGE / block, (gap.end * PAGE).div_ceil(block));
            let (mut at, mut holes) = (first, Ranges::default());
            while at < end {
                let number = u32::try_from(at).map_err(|_| Error::TooLarge)?;
                let Some(run) = volume.try_map(self.number, number)? else { return Ok(false) };
                if run.blocks == 0 {
                    return Err(Error::TooLarge);
                }
                let next = end.min(at + u64::from(run.blocks));
                if run.place.is_none() && run.unwritten.is_none() {
                    holes.insert(at..next);
                }
                at = next;
            }
            // Those of a page that is known in part only, are reserved already.
            let mut needed = Ranges::default();
            for hole in holes.iter() {
                state.reserved.missing(hole).into_iter().for_each(|part| needed.insert(part));
            }
            volume.reserve(needed.count())?;
            needed.iter().for_each(|range| state.reserved.insert(range));
            state.known.insert(gap);
        }
        Ok(true)
    }

    async fn reserve_waiting(&self, pages: Range<u64>) -> Result<()> {
        let pages = pages.start..pages.end.min(pages.start + RESERVED);
        let mut tries = 0;
        loop {
            match self.try_reserve(pages.clone()) {
                Ok(true) => return Ok(()),
                Ok(false) => {
                    let block = self.block();
                    let (mut at, end) = (pages.start * PAGE / block, (pages.end * PAGE).div_ceil(block));
                    while at < end {
                        let number = u32::try_from(at).map_err(|_| Errno::EFBIG)?;
                        let run = self.shared.volume.map_now(self.number, number).await.map_err(errno)?;
                        at += u64::from(run.blocks.max(1));
                    }
                }
                // What has been freed is free when that has been committed; and what others have reserved may be more than they need.
                Err(Error::Full | Error::NoSpace) if tries < 2 => {
                    tries += 1;
                    self.shared.make_room().await?;
                }
                Err(Error::Full) => return Err(Errno::ENOSPC),
                Err(error) => return Err(errno(error)),
            }
        }
    }

    /// Writes bytes, from a block of the file on, to where they are to be.
    async fn write_all(&self, offset: u64, from: Frames<'_>) -> Result<()> {
        if self.check_here().is_err() {
            return Ok(());
        }
        self.shared.check_goes_on()?;
        let block = self.block();
        let volume = &self.shared.volume;
        let mut done = 0;
        // Whole blocks: what a page has behind the end of the file is zero.
        let all = from.whole();
        while done < from.len() {
            // Where some of them go, and only then are they written: what lies together there is one request.
            let (mut targets, mut end) = (Vec::new(), done);
            while end < from.len() && targets.len() < TARGETS {
                let number = u32::try_from((offset + end as u64) / block).map_err(|_| Errno::EFBIG)?;
                let blocks = ((from.len() - end) as u64).div_ceil(block) as u32;
                match volume.place(self.number, number, blocks).await {
                    Ok(target) => {
                        end += target.blocks as usize * block as usize;
                        targets.push(target);
                    }
                    // What has a place is written.
                    Err(_) if !targets.is_empty() => break,
                    Err(error) => return Err(errno(error)),
                }
            }
            let mut at = done;
            let write = |target: &Target<'_, _>| -> BoxFuture<'_, Result<()>> {
                let bytes = target.blocks as usize * block as usize;
                let part = all.part(at, bytes);
                at += bytes;
                let place = target.place * block;
                Box::pin(async move { self.shared.disk().write_from(place, part).await })
            };
            let writes = join_all(targets.iter().map(write).collect());
            let written = self.shared.disk().queue().plugged(writes).await;
            for (target, written) in targets.into_iter().zip(written) {
                written?;
                done += target.blocks as usize * block as usize;
                self.settle(target, offset + done.min(from.len()) as u64).await?;
            }
        }
        Ok(())
    }

    /// The bytes of `target` have been written: the inode says where they are, and that the file ends at byte `end` at least.
    async fn settle(&self, target: Target<'_, Blocks>, end: u64) -> Result<()> {
        let (first, last) = (u64::from(target.block), u64::from(target.block) + u64::from(target.blocks));
        let telling = match self.modified() {
            Some(_) => Some(self.telling().await),
            None => None,
        };
        let modified = telling.as_ref().and_then(|_| self.modified());
        let time = modified.map(|time| Time { seconds: time.seconds, nanoseconds: time.nanoseconds });
        let finds = !target.is_known() || end > self.shared.size_on_disk(self.number);
        let settles = finds || time.is_some();
        if settles {
            self.shared.volume.settle(self.number, target, end, time).await.map_err(errno)?;
        }
        let blocks = self.state.lock().reserved.remove(first..last);
        self.shared.volume.unreserve(blocks);
        match (finds, settles) {
            (true, _) => self.note_change(),
            (false, true) => self.note_time(),
            (false, false) => {}
        }
        modified.iter().for_each(|time| self.told(*time));
        Ok(())
    }
}

impl Drop for Content {
    fn drop(&mut self) {
        self.shared.forget_contents(self.number);
        let blocks = self.state.lock().reserved.count();
        self.shared.volume.unreserve(blocks);
    }
}

impl Store for Content {
    fn read<'a>(&'a self, offset: u64, to: Frames<'a>) -> BoxFuture<'a, Result<usize>> {
        Box::pin(async move {
            let block = self.block();
            let volume = &self.shared.volume;
            let size = self.shared.size(self.number).await?;
            let left = usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX);
            let wanted = to.len().min(left);
            let mut done = 0;
            while done < wanted {
                let at = offset + done as u64;
                let number = u32::try_from(at / block).map_err(|_| Errno::EFBIG)?;
                let run = volume.map_now(self.number, number).await.map_err(errno)?;
                if run.blocks == 0 {
                    return Err(Errno::EFBIG);
                }
                let bytes = (u64::from(run.blocks) * block - at % block).min((wanted - done) as u64) as usize;
                if let Some(place) = run.place {
                    // The disk has no smaller parts; what comes with it from behind the end nobody may see.
                    let part = self.shared.disk().device().limits().block as usize;
                    let whole = bytes.next_multiple_of(part).min(to.len() - done);
                    self.shared.disk().read_into(place * block + at % block, to.part(done, whole)).await?;
                    to.part(done + bytes, whole - bytes).put(&ZEROES[..whole - bytes]);
                }
                done += bytes;
            }
            // What lies behind the end on the disk is zero.
            Ok(to.len())
        })
    }

    fn write<'a>(&'a self, offset: u64, from: Frames<'a>) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.write_all(offset, from).await.inspect_err(|error| self.note_failure(*error)) })
    }

    fn reserve(&self, pages: Range<u64>) -> Option<BoxFuture<'_, Result<()>>> {
        if let Err(error) = self.shared.check_goes_on() {
            return Some(crate::file::ready(Err(error)));
        }
        if self.state.lock().known.contains(&pages) {
            return None;
        }
        let is_short = pages.end - pages.start <= RESERVED;
        match is_short.then(|| self.try_reserve(pages.clone())) {
            Some(Ok(true)) => None,
            _ => Some(Box::pin(self.reserve_waiting(pages))),
        }
    }

    fn direct(&self) -> Option<DirectUnits> {
        Some(DirectUnits { sector: self.shared.disk().device().limits().block, block: self.block() as u32 })
    }

    fn read_ahead(&self) -> u64 {
        self.shared.disk().queue().settings.read_ahead()
    }

    /// As fdatasync (Linux: msync calls vfs_fsync_range with `datasync`).
    fn sync(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.shared.check_goes_on()?;
            self.commit_data().await
        })
    }

    fn dirtied(&self, mapped: bool) {
        if mapped {
            self.changed(self.shared.services.clock.realtime());
        }
        if let Some(cache) = self.cache.get().and_then(Weak::upgrade) {
            self.shared.services.write_back_later(&cache);
        }
    }
}

/// Transactions are committed, and what was written to the disk before stays.
pub async fn commit(shared: &Shared, transactions: impl Iterator<Item = u32>) -> Result<()> {
    let (volume, clock) = (&shared.volume, &*shared.services.clock);
    let mut flushed = false;
    for transaction in transactions {
        if volume.is_committed(transaction) {
            continue;
        }
        // If so, whoever commits it flushes the disk, and with it what has been written to the disk until now.
        let is_to_come = volume.is_to_come(transaction);
        shared.syncs.gather(clock).await;
        let began = clock.monotonic();
        // It has stopped since the caller looked: this is the commit that failed.
        let committed = volume.commit_through(transaction).await;
        if committed.map_err(|error| if error == Error::ReadOnly { Errno::EIO } else { errno(error) })? {
            shared.syncs.took(clock.monotonic() - began);
            flushed = true;
        }
        flushed |= is_to_come;
    }
    match flushed {
        true => Ok(()),
        false => shared.disk().flush().await,
    }
}

impl Shared {
    /// Makes the block that byte `size` of a file is in zero from there on, on the disk: the file is to end there.
    pub(super) async fn zero_tail(&self, number: u32, size: u64) -> Result<()> {
        let block = u64::from(self.volume.superblock().block_bytes);
        if size.is_multiple_of(block) {
            return Ok(());
        }
        let at = u32::try_from(size / block).map_err(|_| Errno::EFBIG)?;
        let Some(place) = self.volume.map_now(number, at).await.map_err(errno)?.place else { return Ok(()) };
        let memory = &*self.services.memory;
        let counted = self.services.frame()?;
        let frames: [Frame; 1] = [counted.frame()];
        let bytes = Frames::new(memory, &frames, block as usize);
        self.disk().read_into(place * block, bytes.part(0, block as usize)).await?;
        let kept = (size % block) as usize;
        bytes.part(kept, block as usize - kept).put(&ZEROES[..block as usize - kept]);
        self.disk().write_from(place * block, bytes).await
    }
}
