//! Dirty pages on their way to the store.

use super::{PageCache, Slot, PAGE, WINDOW, ZEROS};
use alloc::vec::Vec;
use core::ops::Range;
use machine::errno::Result;

impl PageCache {
    /// The next run of dirty pages in `range`, marked clean, and its bytes.
    fn take_dirty(&self, range: &Range<u64>) -> Option<(Range<u64>, Vec<u8>)> {
        let mut state = self.state.lock();
        let size = state.size;
        let is_dirty = |slot: &Slot| matches!(slot, Slot::Ready { dirty: true, .. });
        let first = *state.pages.range(range.clone()).find(|(_, slot)| is_dirty(slot))?.0;
        let mut data = Vec::new();
        let mut index = first;
        while index < range.end.min(first + WINDOW.1) {
            let Some(Slot::Ready { frame, dirty: dirty @ true, .. }) = state.pages.get_mut(&index) else { break };
            *dirty = false;
            let start = data.len();
            data.extend_from_slice(&ZEROS[..(size - index * PAGE).min(PAGE) as usize]);
            self.services.memory.read(*frame, 0, &mut data[start..]);
            index += 1;
        }
        state.dirty -= (index - first) as usize;
        state.writing += (index - first) as usize;
        Some((first..index, data))
    }

    /// Writes dirty pages back.
    pub async fn write_back(&self, start: u64, end: u64) -> Result<()> {
        let Some(store) = &self.store else { return Ok(()) };
        let mut range = start / PAGE..end.div_ceil(PAGE);
        let _flushing = self.flushing.lock().await;
        while let Some((pages, data)) = self.take_dirty(&range) {
            range.start = pages.end;
            let mut writing = Writing { cache: self, pages: pages.clone(), written: false };
            store.write(pages.start * PAGE, data).await?;
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
