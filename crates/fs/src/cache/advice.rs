//! What programs say about how they will use a file (man 2 posix_fadvise, man 2 madvise; mm/fadvise.c, mm/readahead.c).

use super::{PageCache, Store, FAULT, PAGE};
use crate::ReadAhead;
use alloc::vec::Vec;
use machine::pause;

/// Pages that are dropped under one lock.
const BATCH: usize = 64;
/// Pages that one WILLNEED reads at most, if read_ahead_kb is not more: what a disk takes in a request, as on Linux (`force_page_cache_ra`).
pub(crate) const ADVISED: u64 = 320;

/// Pages that are read at a time at most.
pub(super) fn most(store: &dyn Store, advice: ReadAhead) -> u64 {
    let most = store.read_ahead().max(1);
    match advice {
        ReadAhead::Sequential => most * 2,
        ReadAhead::Normal | ReadAhead::Random => most,
    }
}

impl PageCache {
    /// How many pages a fault wants, which knows of one only.
    pub(super) fn wanted_by_fault(&self, advice: ReadAhead) -> u64 {
        match (advice, &self.store) {
            (ReadAhead::Random, _) => 1,
            // All that Linux reads ahead: who faults here goes on to the end.
            (ReadAhead::Sequential, Some(store)) => store.read_ahead().max(1),
            _ => FAULT,
        }
    }

    /// POSIX_FADV_DONTNEED. As on Linux, nobody waits for what is written, and what is on its way to the store stays: who wants the pages gone for certain syncs the file first.
    pub(super) async fn drop_unneeded(&self, start: u64, end: u64) {
        if self.store.is_none() {
            return;
        }
        self.begin_write_back(start, end).await;
        let size = self.len();
        // A page of which a part is still needed stays, but for the last one of the file.
        let end = if end >= size { size.div_ceil(PAGE) } else { end / PAGE };
        let mut next = start.div_ceil(PAGE);
        while next < end {
            {
                let mut state = self.state.lock();
                let memory = &*self.services.memory;
                let some: Vec<(u64, bool)> = state
                    .pages
                    .range(next..end)
                    .take(BATCH)
                    .map(|(index, slot)| (*index, slot.is_idle(memory)))
                    .collect();
                next = some.last().map_or(end, |(index, _)| index + 1);
                some.iter().filter(|(_, idle)| *idle).for_each(|(index, _)| state.pages.remove(index));
            }
            pause(&*self.services.spawner).await;
        }
    }
}
