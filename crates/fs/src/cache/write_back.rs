//! Dirty pages on their way to the store.
//!
//! A page that a mapping may write to changes unseen. So before it is written, it is taken from all page tables, of all kernels: whoever writes to it next faults, and the page is dirty again
//! ([`crate::Object::write`]). If somebody does so before its bytes have been taken, it stays dirty.

use super::{PageCache, Slot, Store, MAX_SIZE, PAGE};
use crate::{file::Frames, SyncRange};
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::{ops::Range, sync::atomic::Ordering::SeqCst};
use machine::{errno::Result, join_all, sync::Lock, to_completion, BoxFuture, CountedFrame, Errno, Frame, PAGE_SIZE};

/// Pages that are written together if they lie one behind the other: as many as a disk takes in a request (1280 KiB, as on Linux).
const RUN: u64 = 320;
/// Runs of a range that are on their way at the same time.
const RUNS: usize = 8;
/// Ranges of a file, which several threads sync.
const RANGES: usize = 64;

impl PageCache {
    /// Takes the next run of dirty pages in `range` that mappings may write to from those.
    async fn hide_exposed(&self, range: &Range<u64>) {
        let (first, end) = {
            let mut state = self.state.lock();
            let is_dirty = |slot: &Slot| matches!(slot, Slot::Ready { dirty: true, .. });
            let Some((first, _)) = state.pages.range(range.clone()).find(|(_, slot)| is_dirty(slot)) else { return };
            let (first, mut end, mut any) = (*first, *first, false);
            while end < range.end.min(first + RUN) {
                let Some(Slot::Ready { dirty: true, exposed, .. }) = state.pages.get_mut(&end) else { break };
                any |= core::mem::replace(exposed, false);
                end += 1;
            }
            if !any {
                return;
            }
            state.lose(first, end);
            (first, end)
        };
        self.withdraw(first, end, false).await;
    }

    /// The next run of dirty pages in `range`, marked clean, with their frames, and how many bytes of the file they hold.
    fn take_dirty(&self, range: &Range<u64>) -> Option<(Range<u64>, Vec<CountedFrame<'_>>, usize)> {
        let mut state = self.state.lock();
        let is_dirty = |slot: &Slot| matches!(slot, Slot::Ready { dirty: true, .. });
        let first = *state.pages.range(range.clone()).find(|(_, slot)| is_dirty(slot))?.0;
        let mut frames = Vec::new();
        let (mut index, mut clean) = (first, 0);
        while index < range.end.min(first + RUN) {
            let Some(Slot::Ready { frame, dirty: dirty @ true, exposed }) = state.pages.get_mut(&index) else { break };
            *dirty = *exposed;
            clean += usize::from(!*exposed);
            frames.push(CountedFrame::retain(&*self.services.memory, *frame));
            index += 1;
        }
        state.dirty.remove(clean);
        state.writing += (index - first) as usize;
        let bytes = (index * PAGE).min(state.size).saturating_sub(first * PAGE);
        Some((first..index, frames, bytes as usize))
    }

    /// Writes dirty pages back. What has begun comes to its end, also if the caller does not wait for it: a store may not be told twice at once where the same bytes go.
    pub async fn write_back(&self, start: u64, end: u64) -> Result<()> {
        if self.store.is_none() {
            return Ok(());
        }
        if self.is_clean() {
            self.services.leave_list_if_clean(self);
            return Ok(());
        }
        let Some(this) = self.this.upgrade() else { return Ok(()) };
        let work = async move {
            let written = this.write_back_now(start, end).await;
            this.services.leave_list_if_clean(&this);
            written
        };
        to_completion(&*self.services.spawner, work).await
    }

    /// sync_file_range(2), whose three steps are three questions.
    pub(super) async fn write_out(&self, range: SyncRange) -> Result<()> {
        if self.store.is_none() {
            return Ok(());
        }
        if range.waits_before {
            self.written_out().await;
        }
        match (range.writes, range.waits_after) {
            (true, true) => self.write_back(range.start, range.end).await?,
            (true, false) => self.begin_write_back(range.start, range.end).await,
            (false, true) => self.written_out().await,
            (false, false) => {}
        }
        Ok(())
    }

    /// Waits for what is being written back, and for what a task was told to write back before this.
    async fn written_out(&self) {
        self.loaded.wait_until(|| (!self.begun.load(SeqCst)).then_some(())).await;
        drop(self.flushing.lock().await);
    }

    /// Lets a task write dirty pages back. Who does that while the last one still writes waits: there is one for a file, however often somebody asks.
    pub(super) async fn begin_write_back(&self, start: u64, end: u64) {
        let Some(this) = self.this.upgrade() else { return };
        if self.is_clean() {
            return;
        }
        self.loaded.wait_until(|| (!self.begun.swap(true, SeqCst)).then_some(())).await;
        self.services.spawner.spawn(Box::pin(async move {
            // The pages stay dirty, and the failure is counted.
            let _ = this.write_back_now(start, end).await;
            this.begun.store(false, SeqCst);
            this.loaded.wake_all();
            this.services.leave_list_if_clean(&this);
        }));
    }

    /// Writes all dirty pages back within the caller's task, which must come to its end: what several caches ask for is asked for at once.
    pub(crate) async fn write_back_in_task(&self) -> Result<()> {
        let written = match self.is_clean() {
            true => Ok(()),
            false => self.write_back_now(0, MAX_SIZE).await,
        };
        self.services.leave_list_if_clean(self);
        written
    }

    /// Writes a range back, and with it all others that are asked for meanwhile: who gets the lock does the work of those that wait for it. Threads that sync parts of one file each have their
    /// requests under way together, and not one after the other.
    async fn write_back_now(&self, start: u64, end: u64) -> Result<()> {
        let Some(store) = &self.store else { return Ok(()) };
        let own = Arc::new(Asked { range: start / PAGE..end.div_ceil(PAGE), answer: Lock::new(None) });
        self.asked.lock().push(own.clone());
        let _flushing = self.settled().await;
        let answered = *own.answer.lock();
        if let Some(answer) = answered {
            return answer;
        }
        let mut all = core::mem::take(&mut *self.asked.lock());
        if !all.iter().any(|other| Arc::ptr_eq(other, &own)) {
            // Somebody took it who was stopped before it was written.
            all.push(own.clone());
        }
        all.sort_unstable_by_key(|asked| asked.range.start);
        // The store may not be told twice at once where the same bytes go, so what overlaps is one.
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for Asked { range, .. } in all.iter().map(|asked| &**asked) {
            match ranges.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => ranges.push(range.clone()),
            }
        }
        let mut answers = Vec::new();
        for some in ranges.chunks(RANGES) {
            let write = |range: &Range<u64>| -> BoxFuture<'_, Result<()>> {
                Box::pin(self.write_range(&**store, range.clone()))
            };
            answers.extend(join_all(some.iter().map(write).collect()).await);
        }
        for asked in &all {
            let place = ranges.partition_point(|range| range.start <= asked.range.start);
            *asked.answer.lock() = place.checked_sub(1).map(|place| answers[place]);
        }
        let answer = *own.answer.lock();
        answer.unwrap_or(Ok(()))
    }

    /// The caller holds `flushing`.
    async fn write_range(&self, store: &dyn Store, mut range: Range<u64>) -> Result<()> {
        let mut result = Ok(());
        loop {
            let mut runs: Vec<BoxFuture<'_, Result<()>>> = Vec::new();
            while runs.len() < RUNS {
                self.hide_exposed(&range).await;
                let Some((pages, frames, bytes)) = self.take_dirty(&range) else { break };
                range.start = pages.end;
                let writing = Writing { cache: self, rest: alloc::vec![pages.clone()], failed: Vec::new(), pages };
                runs.push(Box::pin(writing.write(store, frames, bytes)));
            }
            if runs.is_empty() {
                return result;
            }
            // One that fails keeps no other from being written.
            result = join_all(runs).await.into_iter().fold(result, Result::and);
        }
    }
}

/// A range of pages that somebody waits for to be written back.
pub(super) struct Asked {
    range: Range<u64>,
    /// Of who has written it.
    answer: Lock<Option<Result<()>>>,
}

/// A run of pages on its way to the store: dirty again unless they get there.
struct Writing<'a> {
    cache: &'a PageCache,
    pages: Range<u64>,
    /// What has not been written yet.
    rest: Vec<Range<u64>>,
    /// What could not be.
    failed: Vec<Range<u64>>,
}

impl<'a> Writing<'a> {
    /// Where something can't be written the halves are tried by themselves, and so on: a bad block keeps no page dirty but its own.
    async fn write(mut self, store: &'a dyn Store, counted: Vec<CountedFrame<'a>>, bytes: usize) -> Result<()> {
        let frames: Vec<Frame> = counted.iter().map(CountedFrame::frame).collect();
        let all = Frames::new(&*self.cache.services.memory, &frames, bytes);
        let mut result = Ok(());
        while let Some(part) = self.rest.last().cloned() {
            let from = (part.start - self.pages.start) as usize * PAGE_SIZE;
            let written = store.write(part.start * PAGE, all.part(from, (part.end - part.start) as usize * PAGE_SIZE));
            let written = written.await;
            self.rest.pop();
            match written {
                Ok(()) => {}
                Err(Errno::EIO) if part.end - part.start > 1 => {
                    let middle = part.start + (part.end - part.start) / 2;
                    self.rest.extend([middle..part.end, part.start..middle]);
                }
                Err(error) => {
                    self.failed.push(part);
                    result = Err(error);
                }
            }
        }
        result
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        let mut state = self.cache.state.lock();
        state.writing -= (self.pages.end - self.pages.start) as usize;
        state.epoch += 1;
        for index in self.rest.iter().chain(&self.failed).cloned().flatten() {
            if let Some(Slot::Ready { dirty, .. }) = state.pages.get_mut(&index) {
                let was = core::mem::replace(dirty, true);
                state.dirty.add(usize::from(!was));
            }
        }
    }
}
