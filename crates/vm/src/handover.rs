//! Handover: part of a slice gets another owner than the slice has.
//!
//! Problem: a thread's stack is mapped by the kernel that makes the thread, and used by the one it runs on: every fault
//! of it would be a question for as long as it lives. Idea: when a kernel K touches a page of a private region
//! where nobody has touched anything, the owner S does not answer with a page but with the region, as far as it is
//! untouched. From then on K owns these pages as if they were in a slice of its own: faults there are K's alone, and
//! changes find K. S keeps a forwarding entry. When nothing is mapped there any more, K gives the range back.
//! mremap moves ranges the same way: the kernel that has the pages asks for the range they go to (`TakeRange`), so
//! contents never change hands.
//!
//! Only the owner of the slice hands over, and only where it has no page, hence nobody has. So ownership goes
//! S -> K -> S and never from one holder to another, and no message about it carries pages.
//!
//! **Between two kernels there is a moment when neither is sure**, and it is dangerous where someone acts on it:
//!
//! ```text
//! S                                  K                                 home
//! fault of K: range R is K's now
//!   answer "R is yours" ------.
//! freeze <---------------------\-------------------------------------- fork: freeze all
//!   frozen -----------------------------------------------------------> all frozen: clone
//! clones: "R is K's"            \    clones: has no R       <---------- clone
//!                                '-> R is mine                          child: R is nobody's
//! ```
//!
//! So K confirms (`TakenOver`), and until then R is `granting` at S: whoever asks S about R waits, and so does a
//! freeze. The way back has no such moment: K holds its right to make changes (*operating*) until S has
//! answered `GiveBack`, so K can't be frozen in between; and S needs only its state lock to answer, so the two
//! never wait for each other. A question that meets the range between two owners is sent to and fro until it is over.
//!
//! S hands nothing over while a change of its own goes on: what a change has looked at stays S's until its end.
//! Another kernel may still believe that K owns a range that K has given back. When it asks K, K answers with who does (`news`).

use crate::{
    fault::Demand,
    region::{Region, RegionFlags},
    slices,
    space::{Operating, Space, State},
};
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::ops::Range;
use machine::{errno::Result, Access, BoxFuture, Errno, KernelId, Page, PageRange, Step};
use messages::vm::{
    ChangeReply, FaultAnswer, GiveBack, Operation, Owners, Part, RegionKind, StealForTest, Stretch, TakeRange,
    TakenOver,
};

/// Most pages handed over at once, aligned to as many: a thread's stack or arena, not a whole matrix.
const LARGEST: u64 = 16384;
/// Least untouched pages that are handed over from a region in use; fewer are faulted one by one.
const WORTH_WHILE: u64 = 32;
/// Most regions that fault injection chooses among; a list of all would need much memory in one piece.
const STEAL_REGIONS: usize = 64;

impl Space {
    /// At the owner of the slice, before a fault of `from` is resolved: if the page lies in an untouched
    /// stretch, all of that goes to `from`.
    pub(crate) fn hand_over(&self, from: KernelId, demand: &Demand<'_>) -> Option<FaultAnswer> {
        let mut state = self.state.lock();
        self.hand_stretch(&mut state, from, demand.page, demand.access, WORTH_WHILE..LARGEST).map(FaultAnswer::Yours)
    }

    /// Fault injection (`process/src/inject.rs`): asks an owner for pages that no thread has touched. `chance` determines which owner
    /// and which pages.
    pub async fn steal_for_test(self: &Arc<Self>, chance: u64) {
        let mut owners = self.others();
        owners.insert(self.id.home);
        owners.remove(self.me());
        let Some(owner) = owners.iter().nth(chance as usize % owners.len().max(1)) else { return };
        let space = self.clone();
        let then = move |answer: Option<Stretch>| {
            if let Some(Stretch { range, kind }) = answer {
                space.taken_over(owner, range, Some(kind));
            }
        };
        // A dead owner has nothing to give.
        let _ = self
            .vm
            .endpoint
            .call_then(owner, StealForTest { space: self.id, chance: chance.rotate_left(32) }, then)
            .await;
    }

    /// At the owner of slices: hands over an untouched stretch, chosen by `chance`.
    pub(crate) fn hand_some(&self, from: KernelId, chance: u64) -> Option<Stretch> {
        self.join(from);
        let mut state = self.state.lock();
        let count = state.regions.count();
        let all = state.regions.iter().map(|region| region.range).cycle();
        let some: Vec<PageRange> =
            all.skip(chance as u16 as usize % count.max(1)).take(count.min(STEAL_REGIONS)).collect();
        // Most are in use, or can't be handed over: the first one that can, and of it some.
        let mut pages = some.into_iter().flat_map(|region| {
            (0..region.len().min(8)).map(move |index| region.start.add(((chance >> 16) + index) % region.len()))
        });
        pages.find_map(|page| self.hand_stretch(&mut state, from, page, Access::READ, 1..1 << (chance >> 60)))
    }

    /// Hands over what is untouched around `page`, if `access` is allowed there: at least `pages.start` pages (or the whole region),
    /// and at most `pages.end`, a power of two.
    fn hand_stretch(
        &self,
        state: &mut State,
        to: KernelId,
        page: Page,
        access: Access,
        pages: Range<u64>,
    ) -> Option<Stretch> {
        if state.gone
            || state.operating
            || self.owner(state, page) != self.me()
            || self.slice_owner(state, page) != self.me()
        {
            return None;
        }
        let region = state.regions.find(page)?;
        let kind = region.kind;
        // What belongs to a place (stack, heap), to an object, or to memory is not one thread's.
        let fixed = RegionFlags::SHARED
            | RegionFlags::GROWS_DOWN
            | RegionFlags::STACK
            | RegionFlags::HEAP
            | RegionFlags::LOCKED;
        if region.backing.is_some() || region.flags().intersects(fixed) || !region.access().contains(access) {
            return None;
        }
        let first = Page(page.0 & !(pages.end - 1));
        let range = self.untouched(region, page, pages.start)?.intersect(PageRange::new(first, first.add(pages.end)));
        if state.busy.iter().any(|busy| !busy.intersect(range).is_empty()) {
            return None;
        }
        state.regions.remove(range);
        self.hand(state, range, to);
        Some(Stretch { range, kind })
    }

    /// Notes that `to` owns `range` from now on, as soon as it has confirmed.
    fn hand(&self, state: &mut State, range: PageRange, to: KernelId) {
        // The slice must not look as if nobody used it.
        state.slices.claim(range, self.me());
        state.slices.hand(range, to);
        state.granting.push((range, to));
    }

    /// The pages around `page` that nobody has touched, if they are the whole region or at least `least`. Looks in growing
    /// circles, so that a page among used ones is found out at once.
    fn untouched(&self, region: &Region, page: Page, least: u64) -> Option<PageRange> {
        // Beyond the slice others may be the ones to hand over.
        let region = region.range.intersect(slices::slice_around(page));
        let (mut start, mut end) = (page, page.add(1));
        let (mut below, mut above) = (true, true);
        for pages in [16, 256, LARGEST] {
            let first = Page(page.0 & !(pages - 1));
            let block = region.intersect(PageRange::new(first, first.add(pages)));
            if below {
                let ring = PageRange::new(block.start, start);
                start = block.start;
                self.table.walk_runs(ring, u64::MAX, &mut |mapped, _| {
                    (start, below) = (mapped.end, false);
                    Step::Keep
                });
            }
            if above {
                let ring = PageRange::new(end, block.end);
                end = block.end;
                self.table.walk_runs(ring, u64::MAX, &mut |mapped, _| {
                    (end, above) = (mapped.start, false);
                    Step::Stop
                });
            }
            if !below && !above {
                break;
            }
        }
        let stretch = PageRange::new(start, end);
        let whole = stretch == region && stretch.len() > 1;
        (self.table.get(page).is_none() && (whole || stretch.len() >= least)).then_some(stretch)
    }

    /// Takes over `range`, with a region of `kind` if one came with it. Runs while messages are drained, so it does not wait.
    pub(crate) fn taken_over(&self, owner: KernelId, range: PageRange, kind: Option<RegionKind>) {
        {
            let mut state = self.state.lock();
            if !state.gone {
                state.slices.claim(range, owner);
                state.slices.hand(range, self.me());
                if let Some(kind) = kind {
                    state.regions.insert(Region { range, kind, backing: None });
                }
            }
            // Under the lock: the range must not be given back before. A dead owner needs no confirmation.
            let _ = self.vm.endpoint.send(owner, TakenOver { space: self.id, range });
        }
    }

    /// Notes that the new owner of `range` has confirmed.
    pub(crate) fn confirmed(&self, from: KernelId, range: PageRange) {
        let mut state = self.state.lock();
        if let Some(index) = state.granting.iter().position(|granting| *granting == (range, from)) {
            state.granting.swap_remove(index);
        }
        drop(state);
        self.changed.wake_all();
    }

    /// Waits until the new owners have confirmed all handovers of `range` by this kernel.
    pub(crate) async fn certain(&self, range: PageRange) {
        self.changed.wait_until(|| self.is_certain(&self.state.lock(), range).then_some(())).await
    }

    pub(crate) fn is_certain(&self, state: &State, range: PageRange) -> bool {
        let waits = |(granting, to): &(PageRange, KernelId)| {
            !granting.intersect(range).is_empty() && self.vm.endpoint.is_alive(*to)
        };
        !state.granting.iter().any(waits)
    }

    /// Gives pages of `range` that were handed over to this kernel, and that nothing is mapped in any more, back to the owner of
    /// the slice.
    pub(crate) async fn give_up(self: &Arc<Self>, operating: &Operating, range: PageRange) {
        if !self.state.lock().slices.parts(range).any(|part| part.owner == self.me()) {
            return;
        }
        let (space, operating) = (self.clone(), operating.clone());
        // To the end: a range that neither has would be lost.
        self.detached(async move {
            let parts: Vec<(KernelId, PageRange)> = {
                let mut state = space.state.lock();
                let parts: Vec<Part> = state.slices.parts(range).filter(|part| part.owner == space.me()).collect();
                state.slices.take_back(range, space.me());
                parts.iter().map(|part| (space.slice_owner(&state, part.range.start), part.range)).collect()
            };
            for (owner, range) in parts {
                // If it died, so will the process.
                let _ = space.vm.endpoint.call(owner, GiveBack { space: space.id, range }).await;
            }
            drop(operating);
        })
        .await
    }

    pub(crate) fn take_back(&self, from: KernelId, range: PageRange) {
        self.state.lock().slices.take_back(range, from);
    }

    /// Makes this kernel the owner of `range`, with nothing mapped in it; EEXIST if something is mapped there and is not to be
    /// replaced. The caller must not hold [`Operating`]: other owners may have to change things first.
    /// Boxed because a change calls it, and it makes changes itself.
    pub(crate) fn obtain(self: &Arc<Self>, range: PageRange, replace: bool) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.obtain_parts(range, replace))
    }

    async fn obtain_parts(self: &Arc<Self>, range: PageRange, replace: bool) -> Result<()> {
        loop {
            let foreign = self.pieces(range).into_iter().find(|(owner, _)| *owner != self.me());
            let Some((owner, part)) = foreign else { return Ok(()) };
            let part = part.intersect(slices::slice_around(part.start));
            self.certain(part).await;
            let slice_owner = self.slice_owner(&self.state.lock(), part.start);
            if owner != slice_owner {
                if !replace {
                    return Err(Errno::EEXIST);
                }
                // Whoever has it gives it back to the owner of the slice.
                self.change(Operation::Unmap { range: part }).await?;
                continue;
            }
            let message = TakeRange { space: self.id, range: part, replace };
            // Also if nobody waits any more: the owner counts on it.
            let space = self.clone();
            let then = move |answer: ChangeReply| {
                if let ChangeReply::Done(Ok(_)) = answer {
                    space.taken_over(owner, part, None);
                }
                answer
            };
            match self.vm.endpoint.call_then(owner, message, then).await.map_err(Errno::from)? {
                ChangeReply::Done(done) => drop(done?),
                ChangeReply::Moved(owners) => self.correct(owner, &owners),
            }
        }
    }

    /// At the owner of the slice: unmaps the range and hands it over (`TakeRange`).
    pub(crate) async fn serve_take_range(
        self: &Arc<Self>,
        from: KernelId,
        range: PageRange,
        replace: bool,
    ) -> ChangeReply {
        self.join(from);
        if !self.check_owned(range).await {
            return ChangeReply::Moved(self.news(range));
        }
        let operating = self.operate().await;
        {
            let state = self.state.lock();
            let own_slices = slices::slices_in(range).all(|slice| self.slice_owner(&state, slice.start) == self.me());
            if !own_slices || !self.owns(&state, range) {
                return ChangeReply::Moved(state.slices.news(range));
            }
            if !replace && !state.regions.is_free(range) {
                return ChangeReply::Done(Err(Errno::EEXIST));
            }
        }
        self.unmap_here(&operating, range).await;
        self.hand(&mut self.state.lock(), range, from);
        ChangeReply::Done(Ok(0))
    }

    /// Who owns what of `range`, as far as this kernel knows.
    pub(crate) fn news(&self, range: PageRange) -> Owners {
        self.state.lock().slices.news(range)
    }

    /// Notes that `from` does not own all that it was asked for, and who does.
    pub(crate) fn correct(&self, from: KernelId, news: &Owners) {
        if from != self.me() {
            self.state.lock().slices.correct(from, news, self.me(), self.id.home);
        }
    }

    /// The kernels that hold parts of this kernel's slices in `range`.
    pub(crate) fn holders(&self, state: &State, range: PageRange) -> Vec<KernelId> {
        let me = self.me();
        let parts = state.slices.certain(range, me, self.id.home);
        let mut holders: Vec<KernelId> = parts.iter().map(|part| part.owner).collect();
        holders.retain(|holder| *holder != me);
        holders.sort();
        holders.dedup();
        holders
    }
}
