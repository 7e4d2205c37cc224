//! Clean pages that programs map go, too, when those that nobody uses do not suffice.
//!
//! A run of them is taken out of the page tables (of other kernels by the owners of the addresses: [`Mappers::unmap`]), and what nobody has afterwards goes.
//! Nothing is changed before that: who touches a page meanwhile finds the old one or, once it is gone, reads it anew. Dangerous is a write that comes between the look and the end:
//!
//! ```text
//!   reclaim                                    a program
//!   page 5 is clean: take it from all
//!                                              writes to page 5: asks (Object::write), it is dirty from now on
//!   nobody has page 5 ... it is dirty: stays   goes on
//! ```
//!
//! So a page is looked at again, under the lock that a fault takes a count of its frame under, and goes only if it is clean and the cache has the one count.
//! A mapping may write only to a page that is dirty. (Not so the frames that are lent to other kernels to be written, of which the kernel hears later. Those stay.)
//!
//! A hand goes round each file (second chance); a page that was used since it came by last is skipped, unless none of the next 1024 is unused.

use super::{Mappers, PageCache, Services, Slot};
use alloc::{
    sync::{Arc, Weak},
    vec::Vec,
};
use core::{ops::Range, sync::atomic::Ordering::Relaxed};
use machine::{errno::Result, pause, CountedFrame, Errno, FrameSlot, GroupId, Memory};

/// Pages that go at a time.
pub(super) const BATCH: usize = 256;
/// If fewer have gone, others are looked for.
pub(super) const FEW: usize = 32;
/// Pages taken out of page tables at a time.
const RUN: u64 = 256;
/// Pages that are looked at before used ones go.
const LOOKS: usize = 4 * BATCH;

/// Whose pages go: those charged to some groups (ascending), or all.
pub(super) type Of<'a> = Option<&'a [GroupId]>;

impl Services {
    pub(super) fn reclaimable_caches(&self) -> Vec<Arc<PageCache>> {
        self.caches.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// Drops clean pages that are mapped, also those that are in use; says how many. It waits for other kernels only, for no lock of a file.
    pub async fn reclaim_mapped(&self) -> usize {
        let caches = self.reclaimable_caches();
        match self.reclaim_mapped_of(&caches, None, false).await {
            0 => self.reclaim_mapped_of(&caches, None, true).await,
            freed => freed,
        }
    }

    /// `used`: also those that were used lately.
    pub(super) async fn reclaim_mapped_of(&self, caches: &[Arc<PageCache>], of: Of<'_>, used: bool) -> usize {
        let Some(mappers) = self.mappers().filter(|_| !caches.is_empty()) else { return 0 };
        let (mut freed, mut looks) = (0, if used { usize::MAX } else { LOOKS });
        let begin = self.hand.fetch_add(1, Relaxed) % caches.len();
        for cache in caches[begin..].iter().chain(&caches[..begin]) {
            freed += cache.reclaim_mapped(&*mappers, of, BATCH - freed, used, &mut looks).await;
            if freed >= BATCH || looks == 0 {
                break;
            }
        }
        freed
    }

    /// A zeroed frame, at the cost of pages that programs use if need be.
    pub(super) async fn frame_at_any_cost(&self) -> Result<CountedFrame<'_>> {
        match self.frame() {
            Err(Errno::ENOMEM) if self.reclaim_mapped().await > 0 => self.frame(),
            frame => frame,
        }
    }
}

impl Slot {
    /// The page can be read again, but somebody maps or reads it now.
    fn is_in_use(&self, memory: &dyn Memory) -> bool {
        matches!(self, Slot::Ready { frame, dirty: false, exposed: false } if memory.count(*frame) > 1)
    }
}

impl PageCache {
    /// Goes round once, from where it ended last.
    async fn reclaim_mapped(
        &self,
        mappers: &dyn Mappers,
        of: Of<'_>,
        most: usize,
        used: bool,
        looks: &mut usize,
    ) -> usize {
        let hand = self.state.lock().hand;
        let mut freed = 0;
        for mut part in [hand..u64::MAX, 0..hand] {
            while freed < most && *looks > 0 {
                let Some(run) = self.next_in_use(part.clone(), of, most - freed) else { break };
                part.start = run.end;
                *looks = looks.saturating_sub((run.end - run.start) as usize);
                mappers.unmap(self.id, run.clone(), used).await;
                freed += self.drop_idle(run, of);
                pause(&*self.services.spawner).await;
            }
        }
        freed
    }

    /// The next pages in use, one behind the other (what is not in memory between them does not matter).
    fn next_in_use(&self, range: Range<u64>, of: Of<'_>, most: usize) -> Option<Range<u64>> {
        let state = self.state.lock();
        let memory = &*self.services.memory;
        let is_meant = |slot: &Slot| slot.is_in_use(memory) && slot.frame().is_some_and(|frame| self.pays(of, frame));
        let mut pages = state.pages.range(range).skip_while(|(_, slot)| !is_meant(slot));
        let (first, _) = pages.next()?;
        let rest = pages.take_while(|(index, slot)| **index < first + RUN && is_meant(slot));
        Some(*first..rest.take(most - 1).last().map_or(*first, |(index, _)| *index) + 1)
    }

    fn drop_idle(&self, run: Range<u64>, of: Of<'_>) -> usize {
        let memory = &*self.services.memory;
        let mut state = self.state.lock();
        state.hand = run.end;
        let is_meant = |slot: &Slot| slot.is_idle(memory) && slot.frame().is_some_and(|frame| self.pays(of, frame));
        let idle: Vec<u64> =
            state.pages.range(run).filter(|(_, slot)| is_meant(slot)).map(|(index, _)| *index).collect();
        idle.iter().for_each(|index| state.pages.remove(index));
        idle.len()
    }
}
