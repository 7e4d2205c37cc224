//! Dirty pages on their way to the store.

use super::{PageCache, Slot, PAGE, WINDOW};
use crate::file::Frames;
use alloc::vec::Vec;
use core::ops::Range;
use machine::{errno::Result, CountedFrame, Frame};

impl PageCache {
    /// The next run of dirty pages in `range`, marked clean, with their frames, and how many bytes of the file they hold.
    fn take_dirty(&self, range: &Range<u64>) -> Option<(Range<u64>, Vec<CountedFrame<'_>>, usize)> {
        let mut state = self.state.lock();
        let is_dirty = |slot: &Slot| matches!(slot, Slot::Ready { dirty: true, .. });
        let first = *state.pages.range(range.clone()).find(|(_, slot)| is_dirty(slot))?.0;
        let mut frames = Vec::new();
        let mut index = first;
        while index < range.end.min(first + WINDOW.1) {
            let Some(Slot::Ready { frame, dirty: dirty @ true, .. }) = state.pages.get_mut(&index) else { break };
            *dirty = false;
            frames.push(CountedFrame::retain(&*self.services.memory, *frame));
            index += 1;
        }
        state.dirty -= (index - first) as usize;
        state.writing += (index - first) as usize;
        let bytes = (index * PAGE).min(state.size).saturating_sub(first * PAGE);
        Some((first..index, frames, bytes as usize))
    }

    /// Writes dirty pages back.
    pub async fn write_back(&self, start: u64, end: u64) -> Result<()> {
        let Some(store) = &self.store else { return Ok(()) };
        let mut range = start / PAGE..end.div_ceil(PAGE);
        let _flushing = self.flushing.lock().await;
        while let Some((pages, counted, bytes)) = self.take_dirty(&range) {
            range.start = pages.end;
            let mut writing = Writing { cache: self, pages: pages.clone(), written: false };
            let frames: Vec<Frame> = counted.iter().map(CountedFrame::frame).collect();
            store.write(pages.start * PAGE, Frames::new(&*self.services.memory, &frames, bytes)).await?;
            writing.written = true;
        }
        Ok(())
    }
}

/// Pages on their way to the store: dirty again unless they get there.
struct Writing<'a> {
    cache: &'a PageCache,
    pages: Range<u64>,
    written: bool,
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        let mut state = self.cache.state.lock();
        state.writing -= (self.pages.end - self.pages.start) as usize;
        state.epoch += 1;
        if self.written {
            return;
        }
        for index in self.pages.clone() {
            if let Some(Slot::Ready { dirty, .. }) = state.pages.get_mut(&index) {
                let was = core::mem::replace(dirty, true);
                state.dirty += usize::from(!was);
            }
        }
    }
}
