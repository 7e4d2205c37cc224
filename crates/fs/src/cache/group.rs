//! Pages of files that control groups pay for (machine/src/group.rs): charged when they are made, to the group of the thread that reads or writes, and the
//! first to go when their group needs room.

use super::{
    mapped::{Of, BATCH, FEW},
    PageCache, Services, Slot, MAX_SIZE,
};
use alloc::{sync::Arc, vec::Vec};
use machine::{
    errno::Result,
    group::{ChargedPage, PageKind},
    Errno, Frame, FrameSlot, GroupId,
};

/// What a system call answers that found its group full. (A fault tells that from a kernel without memory, for which processes of any group end.)
pub(super) fn for_caller(error: Errno) -> Errno {
    if error == Errno::EDQUOT {
        Errno::ENOMEM
    } else {
        error
    }
}

impl Services {
    /// Charges whoever this CPU works for with a page, and makes room in the group for it. EDQUOT: there is none.
    pub(crate) async fn charge(&self, kind: PageKind) -> Result<ChargedPage<'_>> {
        loop {
            let payer = self.spawner.payer();
            if let Ok(page) = ChargedPage::new(&*self.memory, payer, kind) {
                return Ok(page);
            }
            let room = match self.mappers() {
                Some(mappers) => mappers.room_in_group(payer).await,
                None => false,
            };
            if !room {
                return Err(Errno::EDQUOT);
            }
        }
    }

    /// The same if the kernel may charge it at once.
    pub(crate) fn charge_now(&self, kind: PageKind) -> Option<ChargedPage<'_>> {
        ChargedPage::new(&*self.memory, self.spawner.payer(), kind).ok()
    }

    /// Drops pages that are charged to `groups` (ascending), as [`Services::reclaim_any`] does.
    pub async fn reclaim_of(&self, groups: &[GroupId]) -> usize {
        self.reclaim_in_order(Some(groups)).await
    }

    /// Drops pages of files that can be read again: those that nobody maps, then dirty ones, which are written back first, then those that are mapped and were not used
    /// lately, and if nothing has gone, those in use. Not to be called by who writes something back.
    pub async fn reclaim_any(&self) -> usize {
        self.reclaim_in_order(None).await
    }

    async fn reclaim_in_order(&self, of: Of<'_>) -> usize {
        let caches = self.reclaimable_caches();
        let mut freed = drop_clean(&caches, of, BATCH);
        // A few are no sign that there is enough: what programs of other kernels have just read looks unused here, goes, and is read again at once.
        if freed < FEW {
            for cache in caches.iter().filter(|cache| cache.has_dirty_of(of)) {
                // What can't be written stays.
                let _ = cache.write_back(0, MAX_SIZE).await;
            }
            freed += drop_clean(&caches, of, BATCH - freed);
        }
        if freed < FEW {
            freed += self.reclaim_mapped_of(&caches, of, false).await;
        }
        match freed {
            0 => self.reclaim_mapped_of(&caches, of, true).await,
            freed => freed,
        }
    }
}

fn drop_clean(caches: &[Arc<PageCache>], of: Of<'_>, most: usize) -> usize {
    let mut freed = 0;
    for cache in caches {
        if freed >= most {
            break;
        }
        freed += cache.reclaim_of(of, most - freed);
    }
    freed
}

impl PageCache {
    pub(super) fn page_kind(&self) -> PageKind {
        if self.store.is_some() {
            PageKind::File
        } else {
            PageKind::Shared
        }
    }

    pub(super) fn pays(&self, of: Of<'_>, frame: Frame) -> bool {
        let Some(groups) = of else { return true };
        let tag = self.services.memory.tag(frame);
        !tag.group().is_root() && groups.binary_search(&tag.group()).is_ok()
    }

    fn reclaim_of(&self, of: Of<'_>, frames: usize) -> usize {
        // Perhaps asked for from inside this cache.
        let Some(mut state) = self.state.try_lock() else { return 0 };
        let memory = &*self.services.memory;
        let is_meant = |slot: &Slot| slot.is_idle(memory) && slot.frame().is_some_and(|frame| self.pays(of, frame));
        let idle = state.pages.iter().filter(|(_, slot)| is_meant(slot)).map(|(index, _)| *index);
        let idle: Vec<u64> = idle.take(frames).collect();
        idle.iter().for_each(|index| state.pages.remove(index));
        idle.len()
    }

    fn has_dirty_of(&self, of: Of<'_>) -> bool {
        let Some(state) = self.state.try_lock() else { return false };
        let meant = |slot: &Slot| matches!(slot, Slot::Ready { frame, dirty: true, .. } if self.pays(of, *frame));
        state.dirty.get() > 0 && state.pages.values().any(meant)
    }
}
