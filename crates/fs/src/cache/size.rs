//! Where a file ends, and what of it is a hole.

use super::{group::for_caller, PageCache, Slot, MAX_SIZE, PAGE, ZEROS};
use crate::inode::Extent;
use alloc::vec::Vec;
use core::ops::Range;
use machine::{errno::Result, pause, BoxFuture, Errno};

/// Pages that become a hole under one lock.
const PUNCHED: usize = 1024;

impl PageCache {
    /// Sets the size; `below` does the same in the store, after `permit` was asked (old size, new).
    pub async fn truncate(
        &self,
        size: u64,
        permit: impl Fn(u64, u64) -> Result<()> + Send,
        below: BoxFuture<'_, Result<()>>,
    ) -> Result<()> {
        let writer = self.writer.lock().await;
        if size > MAX_SIZE {
            return Err(Errno::EFBIG);
        }
        let old = self.len();
        permit(old, size)?;
        if size < old && !size.is_multiple_of(PAGE) {
            // Its end becomes zero.
            self.take_copies_back(size / PAGE..size / PAGE + 1).await;
        }
        let flushing = self.settled().await;
        below.await?;
        self.resize(size);
        // Address spaces are asked without our locks: one that syncs a mapping may be waiting for them. A
        // fault finds the new size already.
        drop((writer, flushing));
        if size < old {
            self.withdraw(size.div_ceil(PAGE), u64::MAX, true).await;
        }
        Ok(())
    }

    /// Forgets what lies past `size`; the last page is zero from there on.
    pub fn resize(&self, size: u64) {
        let mut state = self.state.lock();
        if size < state.size {
            state.lose(size.div_ceil(PAGE), u64::MAX);
        }
        state.size = size;
        state.epoch += 1;
        let dead = state.pages.split_off(size.div_ceil(PAGE));
        for slot in dead.values() {
            if let Slot::Ready { dirty, .. } = slot {
                state.dirty.remove(usize::from(*dirty));
            }
        }
        let within = (size % PAGE) as usize;
        match state.pages.get(&(size / PAGE)) {
            Some(Slot::Ready { frame, .. }) if within > 0 => {
                self.services.memory.write(*frame, within, &ZEROS[within..]);
            }
            // Its tail may be on the way: read it again.
            Some(Slot::Loading(_)) => state.pages.remove(&(size / PAGE)),
            _ => {}
        }
        drop(state);
        self.loaded.wake_all();
    }

    /// Makes `start..end` a hole (FALLOC_FL_PUNCH_HOLE); memory files only.
    pub async fn punch(&self, start: u64, end: u64) {
        let writer = self.writer.lock().await;
        // The whole pages.
        let (first, last) = (start.div_ceil(PAGE), end / PAGE);
        if first > last {
            self.clear(last, start % PAGE..end % PAGE).await;
        } else {
            self.clear(start / PAGE, start % PAGE..if start < first * PAGE { PAGE } else { 0 }).await;
            self.clear(last, 0..end % PAGE).await;
        }
        drop(writer);
        let mut from = first;
        while from < last {
            from = self.punch_some(from..last).await;
            pause(&*self.services.spawner).await;
        }
    }

    /// Pages `first..end` become a hole in the store by `below`, and are not here any more either.
    pub async fn punch_through(&self, first: u64, end: u64, below: BoxFuture<'_, Result<()>>) -> Result<()> {
        let writer = self.writer.lock().await;
        let flushing = self.settled().await;
        below.await?;
        {
            let mut state = self.state.lock();
            state.lose(first, end);
            let mut dirty = 0;
            state.pages.retain(|index, slot| {
                let gone = (first..end).contains(&index);
                dirty += usize::from(gone && matches!(slot, Slot::Ready { dirty: true, .. }));
                !gone
            });
            state.dirty.remove(dirty);
            state.epoch += 1;
        }
        self.loaded.wake_all();
        drop((writer, flushing));
        self.withdraw(first, end, false).await;
        Ok(())
    }

    /// Bytes up to `end` get their place in the store by `below`, while no page is on its way there; the file ends there at least, unless its size is to be kept (fallocate).
    pub async fn allocate_through(&self, end: u64, keep_size: bool, below: BoxFuture<'_, Result<()>>) -> Result<()> {
        let _writer = self.writer.lock().await;
        if end > MAX_SIZE {
            return Err(Errno::EFBIG);
        }
        let _flushing = self.settled().await;
        below.await?;
        let mut state = self.state.lock();
        if !keep_size {
            state.size = state.size.max(end);
        }
        Ok(())
    }

    /// Nobody has the file any more, and it is to go: forgets all pages, when none is on its way to the store.
    pub(crate) async fn discard(&self) {
        let _flushing = self.settled().await;
        self.resize(0);
    }

    /// Bytes `start..end` have been changed in the store, past the cache: clean pages of them are read again.
    pub async fn forget_clean(&self, start: u64, end: u64) {
        let (first, end) = (start / PAGE, end.div_ceil(PAGE));
        {
            // A page on its way to the store is clean, and must stay: read again now, it would be what was there before.
            let _flushing = self.flushing.lock().await;
            let mut state = self.state.lock();
            let is_dirty = |slot: &Slot| matches!(slot, Slot::Ready { dirty: true, .. });
            let clean = state.pages.range(first..end).filter(|(_, slot)| !is_dirty(slot)).map(|(index, _)| *index);
            let clean: Vec<u64> = clean.collect();
            clean.iter().for_each(|index| state.pages.remove(index));
            if !state.lose(first, end) && clean.is_empty() {
                return;
            }
        }
        self.loaded.wake_all();
        self.withdraw(first, end, false).await;
    }

    /// Makes the first pages of `range` a hole, and says where it ends: what is forgotten under one lock is withdrawn at once, as whoever punches may
    /// be killed before he comes to the rest.
    async fn punch_some(&self, range: Range<u64>) -> u64 {
        let writer = self.writer.lock().await;
        let (lost, end) = {
            let mut state = self.state.lock();
            let some: Vec<u64> = state.pages.range(range.clone()).map(|(index, _)| *index).take(PUNCHED).collect();
            let end = if some.len() < PUNCHED { range.end } else { some[PUNCHED - 1] + 1 };
            some.iter().for_each(|index| state.pages.remove(index));
            // A hole has no pages, so nobody shows any.
            (state.lose(range.start, end) | !some.is_empty(), end)
        };
        drop(writer);
        if lost {
            self.withdraw(range.start, end, false).await;
        }
        end
    }

    /// Makes `start..end` zero: in the store by `below`, and in pages that are here, which are dirty then, for what they held may be on its way there.
    pub async fn zero(&self, start: u64, end: u64, below: BoxFuture<'_, Result<()>>) -> Result<()> {
        let _writer = self.writer.lock().await;
        below.await?;
        let mut from = start / PAGE;
        loop {
            let some: Vec<u64> = {
                let mut state = self.state.lock();
                let some = state.pages.range(from..end.div_ceil(PAGE)).map(|(index, _)| *index);
                let some: Vec<u64> = some.take(PUNCHED).collect();
                // What was read before must not arrive.
                for index in &some {
                    if matches!(state.pages.get(index), Some(Slot::Loading(_))) {
                        state.pages.remove(index);
                    }
                }
                some
            };
            self.loaded.wake_all();
            let Some(last) = some.last() else { return Ok(()) };
            from = last + 1;
            for index in some {
                let page = index * PAGE;
                self.clear(index, start.max(page) - page..end.min(page + PAGE) - page).await;
                self.dirty(self.state.lock(), index);
            }
            pause(&*self.services.spawner).await;
        }
    }

    /// Zeroes a part of a page.
    async fn clear(&self, index: u64, part: Range<u64>) {
        while !part.is_empty() {
            self.take_copies_back(index..index + 1).await;
            let state = self.state.lock();
            if state.is_copied(index) {
                continue;
            }
            if let Some(Slot::Ready { frame, .. }) = state.pages.get(&index) {
                let zeros = &ZEROS[..(part.end - part.start) as usize];
                self.services.memory.write(*frame, part.start as usize, zeros);
            }
            return;
        }
    }

    /// Allocates the pages of `start..end` and, if asked, moves the end of the file (fallocate).
    pub async fn reserve(&self, start: u64, end: u64, keep_size: bool) -> Result<()> {
        let _writer = self.writer.lock().await;
        if end > MAX_SIZE {
            return Err(Errno::EFBIG);
        }
        let pages = if self.store.is_none() { start / PAGE..end.div_ceil(PAGE) } else { 0..0 };
        for index in pages {
            while !self.state.lock().pages.contains_key(&index) {
                let frame = self.frame().await.map_err(for_caller)?;
                let mut state = self.state.lock();
                if !state.pages.contains_key(&index) && !self.services.memory.is_lost(frame.frame()) {
                    state.pages.insert(index, frame);
                }
            }
            pause(&*self.services.spawner).await;
        }
        let mut state = self.state.lock();
        if !keep_size {
            state.size = state.size.max(end);
        }
        Ok(())
    }

    /// The first byte at or after `offset` that is data (in a page) or hole (in none).
    pub fn seek(&self, offset: u64, what: Extent) -> Result<u64> {
        let state = self.state.lock();
        if offset >= state.size {
            return Err(Errno::ENXIO);
        }
        let mut index = offset / PAGE;
        match what {
            Extent::Data => match state.pages.range(index..).next() {
                Some((page, _)) if page * PAGE < state.size => Ok(offset.max(page * PAGE)),
                _ => Err(Errno::ENXIO),
            },
            Extent::Hole => {
                let in_a_row = (index..).zip(state.pages.range(index..)).take_while(|(next, (page, _))| next == *page);
                index += in_a_row.count() as u64;
                Ok(offset.max(index * PAGE).min(state.size))
            }
        }
    }
}
