//! A fault on a page of another kernel's slice, seen from both sides.
//!
//! Problem: the borrower asks, the owner answers with mappings, and at any time the owner may take pages
//! back. If the borrower installed an answer *after* it has handled the revocation of one of its pages, a CPU
//! would go on using a frame that is reused for something else.
//!
//! Idea, first half: the answer is installed inside the drain, before the next message of its lane is
//! looked at (`call_then`), and revocations travel in the lane of the answers. Second half, for what the lane
//! can't promise (a kernel has several CPUs: one computes the answer, another sends the revocation first):
//! a question without an answer is in `pending`, and a revocation that arrives meanwhile *poisons* it. Poisoned
//! pages of the answer are not installed; the thread touches the page again and asks anew.
//!
//! ```text
//! owner, CPU 0: fault handler: page p is frame f      owner, CPU 1: munmap p
//!               export p to K, unlock                               lock, p's sharers = {K}, unlock
//!                                                                   revoke p ---> K: p not mapped; poison; ack
//!               answer p = f  ------------------------------------------------> K: p is poisoned, drop
//!                                                                   ack: release f
//! ```
//!
//! The owner may believe that K has a page that K dropped or never installed. That is harmless: it costs one
//! revocation. The other way round, K having a page the owner does not know of, can't happen: the page gets into
//! the export table before the answer is sent.
//!
//! Offers: the question carries zeroed frames of the borrower, already given away (`lend`), as long as it has plenty. The
//! answer says how many the owner took; the rest comes home at once. If the owner dies, all do.

use crate::{
    fault::{Demand, Resolution, TOUCHED},
    region::Region,
    relief::Missing,
    space::{Pending, Space, State},
};
use alloc::{sync::Arc, vec::Vec};
use machine::{Access, Frame, KernelId, Mapping, NoMemory, Page, PageRange, Soft, Step};
use messages::vm::{Fault, FaultAnswer, FaultReply, FaultRequest, Run, Stretch};

/// Most frames offered at once.
const MAX_OFFERS: u16 = 16;

impl Space {
    /// Asks the owner until the page is mapped here.
    pub(crate) async fn fault_remote(self: &Arc<Self>, page: Page, access: Access) -> Result<(), Fault> {
        let mut attempts = 0;
        loop {
            let mut demand = Demand::local(page, access);
            let owner = match self.resolve_fully(&mut demand).await {
                Resolution::Mapped => return Ok(()),
                Resolution::Failed(fault) => return Err(fault),
                Resolution::Foreign(owner) => owner,
                _ => continue,
            };
            // What is being handed over has an owner when it is.
            self.certain(PageRange::one(page)).await;
            // Another CPU may be asking for the same page.
            let asked = |state: &State| state.pending.iter().any(|(_, pending)| pending.page == page);
            if asked(&self.state.lock()) {
                self.changed.wait_until(|| (!asked(&self.state.lock())).then_some(())).await;
                continue;
            }
            self.ask(owner, page, access).await?;
            if core::mem::take(&mut self.state.lock().no_table) && !self.try_again(Missing::Own, &mut attempts).await {
                return Err(Fault::NoMemory);
            }
        }
    }

    async fn ask(self: &Arc<Self>, owner: KernelId, page: Page, access: Access) -> Result<(), Fault> {
        let (around, offers, key) = {
            let mut state = self.state.lock();
            let around = state.windows.ask(page, |range| self.used(range));
            state.faults.remote += 1;
            let key = state.pending.insert(Pending { page, poison: Vec::new() });
            (around, state.offers, key)
        };
        // Offers to a dead kernel would be lost.
        let offers = if self.vm.endpoint.is_alive(owner) { offers } else { 0 };
        let offers: Vec<Frame> = (0..offers).map_while(|_| self.vm.memory.alloc_spare()).collect();
        offers.iter().for_each(|frame| self.vm.memory.lend(*frame));
        let question = FaultRequest { space: self.id, page, access, around, offers: offers.clone() };
        // Runs even if the call is dropped or the owner dies, so no offer is lost.
        let mut answer = Answer { space: self.clone(), owner, key: Some(key), page, around, offers };
        let call = self.vm.endpoint.call_then(owner, question, move |reply| answer.arrived(reply));
        match call.await {
            Ok(FaultReply { answer: FaultAnswer::Failed(fault), .. }) => Err(fault),
            Ok(_) => Ok(()),
            Err(_) => Err(Fault::PastEnd),
        }
    }

    /// Pages of `range` that are mapped here and have been touched.
    fn used(&self, range: PageRange) -> u64 {
        let mut used = 0;
        self.table.walk_runs(range, u64::MAX, &mut |pages, mapping| {
            if mapping.soft.contains(Soft::ACCESSED) {
                used += pages.len();
            }
            Step::Keep
        });
        used
    }

    /// Installs what an owner sent, except poisoned pages.
    fn install(&self, state: &mut State, runs: &[Run], poison: &[PageRange]) {
        if state.gone {
            return;
        }
        for run in runs {
            let poisoned = poison.iter().any(|range| !range.intersect(run.range()).is_empty());
            let filled = match poisoned {
                false => self.borrow(run, run.range()),
                true => run
                    .range()
                    .pages()
                    .filter(|page| !poison.iter().any(|range| range.contains(*page)))
                    .try_for_each(|page| self.borrow(run, PageRange::one(page))),
            };
            if filled.is_err() {
                state.no_table = true;
                return;
            }
        }
    }

    /// Maps `pages` of what the owner sent.
    fn borrow(&self, run: &Run, pages: PageRange) -> Result<(), NoMemory> {
        let frame_of = |page: Page| run.frame.add(page.0 - run.page.0);
        let first = Mapping { frame: frame_of(pages.start), access: run.access, soft: Soft::BORROWED };
        let mut stale = Vec::new();
        let filled = self.table.fill(pages, first, &mut |page, old| {
            let known = old.frame == frame_of(page) && old.access.contains(run.access);
            if !known {
                stale.push(page);
            }
            known
        });
        stale.into_iter().for_each(|page| self.table.flush(PageRange::one(page)));
        filled
    }

    /// The owner's side: a fault of kernel `from`.
    pub(crate) async fn serve_fault(self: &Arc<Self>, from: KernelId, request: FaultRequest) -> FaultReply {
        let FaultRequest { page, access, around, offers, .. } = request;
        self.join(from);
        let mut demand = Demand::remote(page, access, offers, from, self.vm.endpoint.life(from));
        let answer = match self.check_owned(PageRange::one(page)).await {
            true => match self.hand_over(from, &demand) {
                Some(yours) => yours,
                None => self.serve(from, &mut demand, around).await,
            },
            false => FaultAnswer::Moved(self.news(PageRange::one(page))),
        };
        FaultReply { answer, adopted: demand.adopted }
    }

    async fn serve(self: &Arc<Self>, from: KernelId, demand: &mut Demand, around: PageRange) -> FaultAnswer {
        let mut attempts = 0;
        loop {
            // Who has the page is written down, and a frame that is adopted.
            if !self.vm.memory.has_room() && !self.try_again(Missing::Own, &mut attempts).await {
                return FaultAnswer::Failed(Fault::NoMemory);
            }
            match self.resolve_fully(demand).await {
                Resolution::Failed(fault) => return FaultAnswer::Failed(fault),
                Resolution::Mapped => {}
                _ => return FaultAnswer::Moved(self.news(PageRange::one(demand.page))),
            }
            let mut state = self.state.lock();
            // A change may have come in between: resolved once more under the lock that exports the
            // page, so that nobody gets a page that is already being taken back.
            if matches!(self.resolve(&mut state, demand), Resolution::Mapped) {
                return FaultAnswer::Mapped(self.export(&mut state, from, demand, around));
            }
        }
    }

    /// Writes `from` down as a sharer of the page and of what is ready of the range it asks for.
    fn export(&self, state: &mut State, from: KernelId, demand: &mut Demand, around: PageRange) -> Vec<Run> {
        let page = demand.page;
        let Some(region) = state.regions.find(page).cloned() else { return Vec::new() };
        let block = region.range.intersect(around);
        let next = PageRange::new(page.add(1), page.add(1 + u64::from(MAX_OFFERS))).intersect(block);
        self.use_offers(state, &region, next, demand);
        let known: Vec<_> = state.exports.inside(block).filter(|(_, sharers)| sharers.contains(from)).collect();
        let longest = if known.is_empty() { u64::MAX } else { 1 };
        let mut runs = Vec::new();
        // The page itself is ready; of its neighbours a run is taken only if all of it is.
        for part in [PageRange::new(block.start, page), PageRange::one(page), PageRange::new(page.add(1), block.end)] {
            self.table.walk_runs(part, longest, &mut |near, mapping| {
                let needs_copy = mapping.soft.contains(Soft::COW) && self.copied_first(&region, mapping, near.len());
                let is_known = near.start != page && known.iter().any(|(range, _)| range.contains(near.start));
                if is_known || needs_copy || mapping.access.is_empty() || state.is_busy(near) {
                    return Step::Keep;
                }
                push(&mut runs, near, mapping);
                match mapping.soft.contains(Soft::EXPORTED) {
                    true => Step::Keep,
                    false => Step::Replace(Mapping { soft: mapping.soft | Soft::EXPORTED, ..mapping }),
                }
            });
        }
        // Runs end where frames do not follow each other; pages that do are one entry.
        for runs in runs.chunk_by(|run, next| run.range().end == next.page) {
            let (first, last) = (&runs[0], &runs[runs.len() - 1]);
            state.exports.add(PageRange::new(first.page, last.range().end), from);
        }
        runs
    }

    /// First touch going upwards: the offers become the next pages, as far as they do not exist.
    fn use_offers(&self, state: &State, region: &Region, range: PageRange, demand: &mut Demand) {
        if region.backing.is_some() {
            return;
        }
        if demand.offers.is_empty() {
            return;
        }
        for page in self.unmapped(range).into_iter().flat_map(|gap| gap.pages()) {
            if demand.offers.is_empty() {
                return;
            }
            if state.is_busy(PageRange::one(page)) {
                continue;
            }
            let Some(frame) = self.new_frame(demand) else { return };
            let new = Mapping { frame, access: region.access(), soft: TOUCHED };
            if !matches!(self.put_counted(page, new), Resolution::Mapped) {
                return;
            }
        }
    }

    /// The parts of `range` that nothing is mapped in.
    fn unmapped(&self, range: PageRange) -> Vec<PageRange> {
        let (mut gaps, mut end) = (Vec::new(), range.start);
        self.table.walk_runs(range, u64::MAX, &mut |pages, _| {
            gaps.extend((end < pages.start).then_some(PageRange::new(end, pages.start)));
            end = pages.end;
            Step::Keep
        });
        gaps.extend((end < range.end).then_some(PageRange::new(end, range.end)));
        gaps
    }
}

/// Adds `range`, which no table's border lies in: at most 512 pages.
fn push(runs: &mut Vec<Run>, range: PageRange, mapping: Mapping) {
    let pages = range.len() as u16;
    if let Some(last) = runs.last_mut() {
        let continues = last.range().end == range.start
            && last.frame.add(last.pages.into()) == mapping.frame
            && last.access == mapping.access;
        if let (true, Some(together)) = (continues, last.pages.checked_add(pages)) {
            last.pages = together;
            return;
        }
    }
    runs.push(Run { page: range.start, frame: mapping.frame, pages, access: mapping.access });
}

/// What waits for the owner's answer.
struct Answer {
    space: Arc<Space>,
    owner: KernelId,
    /// In `pending`; None once answered.
    key: Option<usize>,
    page: Page,
    around: PageRange,
    offers: Vec<Frame>,
}

impl Answer {
    fn arrived(&mut self, reply: &FaultReply) {
        let (space, owner) = (self.space.clone(), self.owner);
        let mut state = space.state.lock();
        let poison = self.key.take().map(|key| state.pending.remove(key).poison).unwrap_or_default();
        let (adopted, offered) = (reply.adopted, self.offers.len() as u16);
        match &reply.answer {
            FaultAnswer::Mapped(runs) => {
                space.install(&mut state, runs, &poison);
                if let (Some(first), Some(last)) = (runs.first(), runs.last()) {
                    state.windows.got(self.around, PageRange::new(first.page, last.range().end));
                }
                state.offers = if adopted == offered { offered * 2 } else { adopted }.clamp(1, MAX_OFFERS);
            }
            FaultAnswer::Failed(_) | FaultAnswer::Yours(_) | FaultAnswer::Moved(_) => {}
        }
        drop(state);
        match &reply.answer {
            FaultAnswer::Yours(Stretch { range, kind }) => space.taken_over(owner, *range, Some(*kind)),
            FaultAnswer::Moved(news) => space.correct(owner, PageRange::one(self.page), news),
            FaultAnswer::Mapped(_) | FaultAnswer::Failed(_) => {}
        }
        self.offers.drain(..usize::from(adopted).min(self.offers.len()));
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        let unanswered = self.key.take();
        if let Some(key) = unanswered {
            self.space.state.lock().pending.remove(key);
        }
        // Those that the owner did not take. If it died before it answered, nobody knows which: it may have put one into its table, and
        // a third kernel may map it for as long as the process lives. So they stay lent.
        let known = unanswered.is_none() || self.space.vm.endpoint.is_alive(self.owner);
        self.offers.iter().filter(|_| known).for_each(|frame| self.space.vm.memory.take_home(*frame));
        self.space.changed.wake_all();
    }
}
