//! Cached pages that go because memory is short or a control group is full: which ones, and in what order.
//!
//! Of the pages that a request looks at, first those go that nobody maps ([`Stage::Unmapped`]); then dirty ones, which are written back before; then those that programs map and have not
//! used lately; and if nothing has gone, those in use. A page that is mapped is taken out of the page tables first (of other kernels by the owners of the addresses: [`Mappers::unmap`]),
//! and goes if nobody has it afterwards. Nothing is changed before that: who touches a page meanwhile finds the old one or, once it is gone, reads it anew. Dangerous is a write that comes
//! between the look and the end:
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
//! What a request costs does not depend on how much is cached. For each stage a hand goes round all objects, and one round the pages of each: a request goes on where the last one stopped,
//! and stops when [`BATCH`] pages have gone, or it has looked at as many as the stage may ([`Stage::looks`]). Only one that has found nothing at all goes on until it has seen every page
//! once: its answer, that there is nothing, ends a process. A page that was used since the hand of [`Stage::Unused`] came by last is skipped (second chance). The hands are also why what
//! was read last does not go first. Whether taking pages from programs leads anywhere is noticed by refaults.rs.

use super::{Mappers, PageCache, Refaults, Services, Slot, State, PAGE};
use crate::ObjectId;
use alloc::{boxed::Box, collections::BTreeMap, sync::Arc};
use core::{
    ops::{Deref, Range},
    sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
};
use machine::{
    errno::Result, pause, BoxFuture, CountedFrame, Errno, Frame, FrameSlot, FrameTree, GroupId, Memory, Spawner,
};
use messages::cgroup::Reclaim;

/// Pages that go at a time.
const BATCH: usize = 256;
/// If fewer have gone, the next stage is tried, too: a few are no sign that there is enough. (What programs of other kernels have just read looks unused here, goes, and is read again at once.)
const FEW: usize = 32;
/// Pages taken out of page tables at a time.
const RUN: u64 = 256;
/// Pages from a dirty one on of which those that are dirty are written back with it.
const WRITTEN: u64 = 2048;
/// Pages looked at under one lock.
const GLANCE: usize = 1024;

/// Whose pages go: those charged to some groups (ascending), or all.
pub(crate) type ChargedTo<'a> = Option<&'a [GroupId]>;

pub(crate) fn is_charged_to(memory: &dyn Memory, frame: Frame, of: ChargedTo<'_>) -> bool {
    of.is_none_or(|groups| groups.binary_search(&memory.tag(frame).group()).is_ok())
}

/// What kind of pages goes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Nobody maps or reads it, and it can be read again.
    Unmapped,
    /// It can be read again once it is written back.
    Dirty,
    /// It can be read again, and programs map it that have not used it lately.
    Unused,
    /// The same, used or not.
    Used,
}

impl Stage {
    pub const COUNT: usize = 4;

    /// Pages that a request looks at.
    fn looks(self) -> usize {
        match self {
            Stage::Unmapped | Stage::Dirty => 16 * GLANCE,
            // As many are taken out of page tables, or lose the mark that they were used.
            Stage::Unused | Stage::Used => GLANCE,
        }
    }
}

/// Where each stage goes on in the pages of an object.
#[derive(Default)]
pub(crate) struct Hands([AtomicU64; Stage::COUNT]);

impl Hands {
    fn of(&self, stage: Stage) -> &AtomicU64 {
        &self.0[stage as usize]
    }
}

/// Where each stage goes on among the objects.
#[derive(Default)]
pub(super) struct Turns([AtomicUsize; Stage::COUNT]);

/// Pages of one object that can be had again when they have gone.
pub(crate) trait Reclaimable: Send + Sync {
    fn name(&self) -> ObjectId;
    fn hands(&self) -> &Hands;
    /// Looks at the next pages of `range` for some that can go in this stage, `most` at most.
    fn look(&self, range: Range<u64>, stage: Stage, of: ChargedTo<'_>, most: usize) -> Look;
    /// Drops pages of `range` that can be had again and that nobody else has, `most` at most; says how many, and to `tell` which.
    fn drop_idle(&self, range: Range<u64>, of: ChargedTo<'_>, most: usize, tell: &dyn Fn(u64)) -> usize;
    /// What can't be written stays dirty.
    fn write_back(&self, _range: Range<u64>) -> BoxFuture<'_, ()> {
        Box::pin(core::future::ready(()))
    }
}

/// What a look has found.
pub(crate) struct Look {
    /// Pages that can go, with nothing between them that can't. (What is not in memory between them does not matter.)
    run: Option<Range<u64>>,
    /// Where to look next.
    next: u64,
    looked: usize,
}

impl Look {
    pub(crate) fn at<S>(
        pages: &BTreeMap<u64, S>,
        range: Range<u64>,
        most: usize,
        is_meant: impl Fn(&S) -> bool,
    ) -> Look {
        let mut look = Look { run: None, next: range.end, looked: 0 };
        let mut found = 0;
        for (&index, slot) in pages.range(range) {
            if look.looked == GLANCE {
                look.next = index;
                break;
            }
            look.looked += 1;
            match (&mut look.run, is_meant(slot)) {
                (None, false) => {}
                (run @ None, true) => *run = Some(index..index + 1),
                (Some(run), true) if index < run.start + RUN && found < most => run.end = index + 1,
                (Some(run), _) => {
                    look.next = run.end;
                    break;
                }
            }
            found += usize::from(look.run.is_some());
        }
        look
    }
}

/// Objects whose pages go in turn.
pub(crate) trait Objects: Sync {
    fn count(&self) -> usize;
    /// The next one in this stage. None: it has ended.
    fn next(&self, stage: Stage) -> Option<Arc<dyn Reclaimable>>;
}

/// What a stage of a request may still do.
struct Budget {
    /// How many pages may go.
    most: usize,
    looks: usize,
    freed: usize,
    /// It ends only when something has gone, or every page has been looked at.
    insists: bool,
}

impl Budget {
    fn is_spent(&self) -> bool {
        self.freed >= self.most || self.looks == 0 && !(self.insists && self.freed == 0)
    }
}

/// One request.
pub(crate) struct Request<'a> {
    pub objects: &'a dyn Objects,
    pub of: ChargedTo<'a>,
    /// None: no page is mapped.
    pub mappers: Option<Arc<dyn Mappers>>,
    pub refaults: &'a Refaults,
    pub spawner: &'a dyn Spawner,
}

impl Request<'_> {
    /// Does one stage after the other until enough pages have gone. 0 says little: not all pages were looked at.
    pub async fn some(&self, stages: &[Stage]) -> usize {
        let mut freed = 0;
        for stage in stages {
            freed += self.stage(*stage, BATCH - freed, false).await;
            if freed >= FEW {
                break;
            }
        }
        freed
    }

    /// Does one stage after the other until something has gone. 0: there is nothing.
    pub async fn any(&self, stages: &[Stage]) -> usize {
        for stage in stages {
            let freed = self.stage(*stage, BATCH, true).await;
            if freed > 0 {
                return freed;
            }
        }
        0
    }

    /// What is meant of a group's pages; says how many. The owner of the group asks all kernels for more if these were few.
    pub async fn meant(&self, which: Reclaim) -> usize {
        match which {
            Reclaim::None => 0,
            Reclaim::Unmapped => self.some(&[Stage::Unmapped, Stage::Dirty]).await,
            Reclaim::Unused => self.some(&[Stage::Unused]).await,
            Reclaim::Used => self.any(&[Stage::Used, Stage::Unmapped, Stage::Dirty]).await,
        }
    }

    async fn stage(&self, stage: Stage, most: usize, insists: bool) -> usize {
        let mut budget = Budget { most, looks: stage.looks(), freed: 0, insists };
        for _ in 0..self.objects.count() {
            if budget.is_spent() {
                break;
            }
            if let Some(object) = self.objects.next(stage) {
                self.go_round(&*object, stage, &mut budget).await;
            }
            pause(self.spawner).await;
        }
        budget.freed
    }

    /// Goes round the pages of an object once, from where the last request stopped.
    async fn go_round(&self, object: &dyn Reclaimable, stage: Stage, budget: &mut Budget) {
        let hand = object.hands().of(stage);
        let begin = hand.load(Relaxed);
        for mut part in [begin..u64::MAX, 0..begin] {
            while !part.is_empty() && !budget.is_spent() {
                let look = object.look(part.clone(), stage, self.of, budget.most - budget.freed);
                part.start = look.next;
                hand.store(look.next, Relaxed);
                budget.looks = budget.looks.saturating_sub(look.looked);
                if let Some(run) = look.run {
                    let run = self.free(object, stage, run).await;
                    // What goes because a group is full says nothing about memory.
                    let is_told = self.of.is_none() && matches!(stage, Stage::Unused | Stage::Used);
                    let tell = |page| {
                        if is_told {
                            self.refaults.gone(object.name(), page);
                        }
                    };
                    budget.freed += object.drop_idle(run, self.of, budget.most - budget.freed, &tell);
                }
                pause(self.spawner).await;
            }
        }
    }

    /// Sees to it that nobody else has the pages and that they are clean, if that can be. Answers which may go now.
    async fn free(&self, object: &dyn Reclaimable, stage: Stage, run: Range<u64>) -> Range<u64> {
        match (stage, &self.mappers) {
            (Stage::Dirty, _) => {
                let run = run.start..run.start.saturating_add(WRITTEN);
                object.write_back(run.clone()).await;
                return run;
            }
            (Stage::Unused | Stage::Used, Some(mappers)) => {
                mappers.unmap(object.name(), run.clone(), stage == Stage::Used).await
            }
            (Stage::Unused | Stage::Used, None) | (Stage::Unmapped, _) => {}
        }
        run
    }
}

/// Drops pages of `pages` in `range` that `is_idle`, `most` at most; says how many. `remove` takes one out and tells whom it concerns.
pub(crate) fn drop_idle<P: Deref<Target = FrameTree<S>>, S: FrameSlot>(
    pages: &mut P,
    range: Range<u64>,
    most: usize,
    is_idle: impl Fn(&S) -> bool,
    remove: impl Fn(&mut P, u64),
) -> usize {
    let (mut at, mut dropped) = (range.start, 0);
    while dropped < most {
        let found = pages.range(at..range.end).find(|(_, slot)| is_idle(slot)).map(|(index, _)| *index);
        let Some(index) = found else { break };
        remove(pages, index);
        (at, dropped) = (index + 1, dropped + 1);
    }
    dropped
}

impl Objects for Services {
    fn count(&self) -> usize {
        self.caches.lock().len()
    }

    fn next(&self, stage: Stage) -> Option<Arc<dyn Reclaimable>> {
        Some(self.next_cache(stage)?)
    }
}

impl Services {
    fn next_cache(&self, stage: Stage) -> Option<Arc<PageCache>> {
        let turn = self.turns.0[stage as usize].fetch_add(1, Relaxed);
        let caches = self.caches.lock();
        caches.get(turn % caches.len().max(1))?.upgrade()
    }

    fn request<'a>(&'a self, of: ChargedTo<'a>) -> Request<'a> {
        Request { objects: self, of, mappers: self.mappers(), refaults: &self.refaults, spawner: &*self.spawner }
    }

    /// Drops pages of files that can be read again: unmapped ones, dirty ones, mapped ones; says how many. 0: there are none. Not to be called by who writes something back.
    pub async fn reclaim_any(&self) -> usize {
        let request = self.request(None);
        match request.some(&[Stage::Unmapped, Stage::Dirty, Stage::Unused]).await {
            0 => request.any(&[Stage::Used, Stage::Unmapped, Stage::Dirty]).await,
            freed => freed,
        }
    }

    /// The same of those that are charged to `groups` (ascending) and meant.
    pub async fn reclaim_of(&self, groups: &[GroupId], which: Reclaim) -> usize {
        self.request(Some(groups)).meant(which).await
    }

    /// Drops clean pages that are mapped, also those that are in use; says how many. It waits for other kernels only, for no lock of a file.
    pub async fn reclaim_mapped(&self) -> usize {
        let request = self.request(None);
        match request.some(&[Stage::Unused]).await {
            0 => request.any(&[Stage::Used]).await,
            freed => freed,
        }
    }

    /// Gives back up to `frames` frames of clean, unmapped cache pages at once; says how many.
    pub fn reclaim(&self, frames: usize) -> usize {
        let mut freed = 0;
        for _ in 0..self.count() {
            if freed >= frames {
                break;
            }
            if let Some(cache) = self.next_cache(Stage::Unmapped) {
                freed += cache.reclaim(frames - freed);
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
    /// Whether the page may go in this stage.
    fn goes(&self, stage: Stage, memory: &dyn Memory) -> bool {
        match self {
            Slot::Ready { dirty: true, .. } => stage == Stage::Dirty,
            Slot::Ready { frame, exposed, .. } => match (memory.count(*frame), stage) {
                (1, Stage::Unmapped) => true,
                (2.., Stage::Unused | Stage::Used) => !exposed,
                _ => false,
            },
            Slot::Loading(_) | Slot::Lost => false,
        }
    }
}

impl PageCache {
    /// Drops up to `most` clean pages that nobody maps; says how many.
    fn reclaim(&self, most: usize) -> usize {
        let hand = self.hands.of(Stage::Unmapped);
        let begin = hand.load(Relaxed);
        let mut freed = 0;
        for mut part in [begin..u64::MAX, 0..begin] {
            while !part.is_empty() && freed < most {
                // Called when memory is short, perhaps from inside this cache: never wait for the lock.
                let Some(mut state) = self.state.try_lock() else { return freed };
                let look = self.look_in(&state, part.clone(), Stage::Unmapped, None, most - freed);
                part.start = look.next;
                hand.store(look.next, Relaxed);
                freed += look.run.map_or(0, |run| self.drop_idle_in(&mut state, run, None, most - freed, &|_| ()));
            }
        }
        freed
    }

    fn look_in(&self, state: &State, range: Range<u64>, stage: Stage, of: ChargedTo<'_>, most: usize) -> Look {
        let memory = &*self.services.memory;
        let is_ours = |slot: &Slot| slot.frame().is_some_and(|frame| is_charged_to(memory, frame, of));
        Look::at(&state.pages, range, most, |slot| slot.goes(stage, memory) && is_ours(slot))
    }

    fn drop_idle_in(
        &self,
        state: &mut State,
        range: Range<u64>,
        of: ChargedTo<'_>,
        most: usize,
        tell: &dyn Fn(u64),
    ) -> usize {
        let memory = &*self.services.memory;
        let is_ours = |slot: &Slot| slot.frame().is_some_and(|frame| is_charged_to(memory, frame, of));
        let is_idle = |slot: &Slot| slot.is_idle(memory) && is_ours(slot);
        drop_idle(&mut state.pages, range, most, is_idle, |pages, index| {
            pages.remove(&index);
            tell(index);
        })
    }
}

impl Reclaimable for PageCache {
    fn name(&self) -> ObjectId {
        self.id
    }

    fn hands(&self) -> &Hands {
        &self.hands
    }

    fn look(&self, range: Range<u64>, stage: Stage, of: ChargedTo<'_>, most: usize) -> Look {
        self.look_in(&self.state.lock(), range, stage, of, most)
    }

    fn drop_idle(&self, range: Range<u64>, of: ChargedTo<'_>, most: usize, tell: &dyn Fn(u64)) -> usize {
        self.drop_idle_in(&mut self.state.lock(), range, of, most, tell)
    }

    fn write_back(&self, range: Range<u64>) -> BoxFuture<'_, ()> {
        let bytes = |page: u64| page.saturating_mul(PAGE);
        Box::pin(async move {
            let _ = PageCache::write_back(self, bytes(range.start), bytes(range.end)).await;
        })
    }
}
