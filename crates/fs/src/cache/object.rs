//! What the memory of programs sees of a file: the object behind their mappings.

use super::{advice::ADVISED, PageCache, Slot, PAGE};
use crate::{Loaned, Object, ObjectId, ReadAhead, SyncRange};
use alloc::boxed::Box;
use core::sync::atomic::Ordering;
use machine::{errno::Result, pause, BoxFuture, CountedFrame, Errno, KernelId};

impl Object for PageCache {
    fn id(&self) -> ObjectId {
        self.id
    }

    fn size(&self) -> u64 {
        self.len()
    }

    fn page(&self, index: u64) -> BoxFuture<'_, Result<CountedFrame<'_>>> {
        self.page_advised(index, ReadAhead::Normal)
    }

    fn page_advised(&self, index: u64, read_ahead: ReadAhead) -> BoxFuture<'_, Result<CountedFrame<'_>>> {
        Box::pin(self.load(index, self.wanted_by_fault(read_ahead), read_ahead))
    }

    fn resident(&self, index: u64) -> Option<CountedFrame<'_>> {
        let state = self.state.lock();
        match state.pages.get(&index) {
            Some(Slot::Ready { frame, .. }) if index < state.size.div_ceil(PAGE) => {
                Some(CountedFrame::retain(&*self.services.memory, *frame))
            }
            _ => None,
        }
    }

    fn mark_dirty(&self, index: u64) {
        self.dirty(self.state.lock(), index);
    }

    fn write(&self, index: u64) -> bool {
        if self.reserve_below(index..index + 1).is_some() {
            return false;
        }
        let mut state = self.state.lock();
        if state.is_copied(index) {
            return false;
        }
        if let Some(Slot::Ready { exposed, .. }) = state.pages.get_mut(&index) {
            *exposed = true;
        }
        self.dirty(state, index);
        true
    }

    fn take_back(&self, index: u64) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            if let Some(reserved) = self.reserve_below(index..index + 1) {
                reserved.await?;
            }
            self.take_copies_back(index..index + 1).await;
            Ok(())
        })
    }

    fn is_only_in_memory(&self) -> bool {
        self.store.is_none()
    }

    fn losses(&self) -> u64 {
        self.state.lock().losses
    }

    fn lend(&self, index: u64, to: KernelId, write: bool, read_ahead: ReadAhead) -> BoxFuture<'_, Result<Loaned<'_>>> {
        Box::pin(self.lend_page(index, to, write, read_ahead))
    }

    fn admit_writer(&self) -> Option<BoxFuture<'_, Result<()>>> {
        self.sealable.load(Ordering::Acquire).then(|| -> BoxFuture<'_, Result<()>> {
            Box::pin(async move {
                let _decided = self.sealing.lock().await;
                (!self.sealed.load(Ordering::Acquire)).then_some(()).ok_or(Errno::EPERM)
            })
        })
    }

    fn punch(&self, first: u64, end: u64) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            if self.store.is_some() {
                return Err(Errno::EOPNOTSUPP);
            }
            if self.sealed.load(Ordering::Acquire) {
                return Err(Errno::EPERM);
            }
            PageCache::punch(self, first.saturating_mul(PAGE), end.saturating_mul(PAGE)).await;
            Ok(())
        })
    }

    fn read_ahead(&self, first: u64, end: u64) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let Some(store) = &self.store else { return };
            let end = end.min(first.saturating_add(store.read_ahead().max(ADVISED)));
            for index in first..end.min(self.len().div_ceil(PAGE)) {
                // No more than was asked for.
                let load = self.load(index, end - index, ReadAhead::Random);
                if !self.services.memory.has_room() || load.await.is_err() {
                    break;
                }
                pause(&*self.services.spawner).await;
            }
        })
    }

    fn not_needed(&self, start: u64, end: u64) -> BoxFuture<'_, ()> {
        Box::pin(self.drop_unneeded(start, end))
    }

    fn sync_range(&self, range: SyncRange) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.write_out(range))
    }

    fn sync(&self, start: u64, end: u64) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.write_back(start, end).await?;
            match &self.store {
                Some(store) => store.sync().await,
                None => Ok(()),
            }
        })
    }
}
