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
    space::{Space, State},
    vm::Soon,
    window::{Windows, FIRST_WINDOW},
};
use alloc::{sync::Arc, vec::Vec};
use machine::{Access, CountedFrame, Frame, KernelId, Mapping, NoMemory, Page, PageRange, Soft, SpaceId, Step};
use messages::vm::{Fault, FaultAhead, FaultAnswer, FaultReply, FaultRequest, FirstPages, Run, Runs, Stretch, Touch};

/// Most frames offered at once.
const MAX_OFFERS: u16 = 16;
/// Most runs in an answer. The asking kernel asks again from where it ends; longer answers would keep both kernels busy for too long.
const MAX_RUNS: usize = 128;

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
            if self.state.lock().gone {
                return Err(Fault::NotMapped);
            }
            // The owner of pages that are being handed over is certain only when the new one has confirmed.
            self.certain(PageRange::one(page)).await;
            // Another CPU may be asking for the same page, or this one has asked for it ahead.
            let asked = |state: &State| state.pending.iter().any(|(_, pending)| pending.range.contains(page));
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
        let (around, ahead, offers, given_back, key) = {
            let mut state = self.state.lock();
            let around = state.windows.ask(page, |range| self.used(range));
            state.faults.remote += 1;
            let given_back = self.give_back_first(&mut state, page, access);
            let key = state.ask(PageRange::one(page), given_back);
            (around, state.windows.ahead(around), state.offers, given_back, key)
        };
        // Offers to a dead kernel would be lost.
        let offers = if self.vm.endpoint.is_alive(owner) { offers } else { 0 };
        let spare = || Some(CountedFrame::from_raw(&*self.vm.memory, self.vm.memory.alloc_spare()?).lend(owner));
        let offers: Vec<Frame> = (0..offers).map_while(|_| spare()).collect();
        let question = FaultRequest {
            space: self.id,
            page,
            access,
            given_back: given_back.len() as u16,
            around,
            offers: offers.clone(),
        };
        // Runs even if the call is dropped or the owner dies, so no offer is lost.
        let waits = Question { space: self.clone(), key: Some(key) };
        let mut demanded = Demanded { question: waits, owner, around, offers };
        let _soon = self.vm.expect_soon();
        let call = self.vm.endpoint.call_then(owner, question, move |reply| demanded.arrived(reply));
        if let Some(range) = ahead {
            self.ask_ahead(owner, range);
        }
        call.await.unwrap_or(Err(Fault::PastEnd))
    }

    /// Called before the owner is asked for `page` with more access than this kernel has. Unmaps the page, and the pages of zeros behind it
    /// that the owner may fill with offered frames, so that the owner need not revoke them. As with [`Space::give_back`], answers under way
    /// can't bring them back. Answers the pages that were unmapped.
    fn give_back_first(&self, state: &mut State, page: Page, access: Access) -> PageRange {
        let mut range = PageRange::new(page, page.add(state.offers.into()));
        // The page may have been mapped meanwhile, or this kernel may own it now.
        let too_little = |mapping: Mapping| mapping.soft.contains(Soft::BORROWED) && !mapping.access.contains(access);
        if !self.table.get(page).is_some_and(too_little) {
            return PageRange::new(page, page);
        }
        self.table.walk(range, &mut |near, mapping| {
            let is_zeros = mapping.soft.contains(Soft::BORROWED) && mapping.frame == self.vm.zero;
            if near == page || is_zeros {
                return Step::Remove;
            }
            range.end = near;
            Step::Stop
        });
        self.table.flush(range);
        state.poison(&[range]);
        range
    }

    /// Asks the owner for those pages of `range` that it has ready. Threads that touch the range meanwhile wait for the answer.
    fn ask_ahead(self: &Arc<Self>, owner: KernelId, range: PageRange) {
        let key = self.state.lock().ask(range, PageRange::new(range.start, range.start));
        let mut question = Question { space: self.clone(), key: Some(key) };
        let then = move |Runs(runs): Runs| {
            let space = question.space.clone();
            let mut state = space.state.lock();
            question.install(&mut state, range, &runs);
        };
        self.vm.endpoint.call_then(owner, FaultAhead { space: self.id, range }, then).detach();
    }

    /// Asks for the pages that a thread on its way to this kernel will touch at once, with one question to each owner. Otherwise the thread
    /// would ask for one after the other. Threads that touch one of them meanwhile wait for the answer.
    pub fn expect_touches(self: &Arc<Self>, pages: &[(Page, Access)]) {
        let asked: Vec<(KernelId, Vec<Touch>, Expected)> = {
            let mut state = self.state.lock();
            let mut owners: Vec<(KernelId, Vec<(Page, Access)>)> = Vec::new();
            for (page, access) in pages.iter().copied().filter(|(page, _)| self.misses(&state, *page)) {
                let owner = self.owner(&state, page);
                match owners.iter_mut().find(|(known, _)| *known == owner) {
                    Some((_, pages)) => pages.push((page, access)),
                    None => owners.push((owner, alloc::vec![(page, access)])),
                }
            }
            let foreign = owners.into_iter().filter(|(owner, _)| *owner != self.me());
            let ask = |(owner, pages): (KernelId, Vec<_>)| {
                let touches = choose(&mut state.windows, pages, |range| self.used(range));
                let expected = self.wait_for(&mut state, &touches);
                (owner, touches, expected)
            };
            foreign.map(ask).collect()
        };
        for (owner, touches, expected) in asked {
            let question = FirstPages { space: self.id, touches };
            self.vm.endpoint.call_then(owner, question, |answers| expected.came(answers)).detach();
        }
    }

    /// At home: those of the pages that a moving thread will touch at once which this kernel owns, so that it can send them along.
    pub fn first_touches(&self, pages: &[(Page, Access)]) -> Vec<Touch> {
        let state = self.state.lock();
        let is_own = |(page, _): &(Page, Access)| self.is_home() && self.owner(&state, *page) == self.me();
        choose(&mut Windows::default(), pages.iter().copied().filter(is_own), |_| 0)
    }

    /// Called when the home has announced that it will send these pages unasked ([`Space::serve_first`]). From now on it may also revoke them.
    pub fn expect_first(self: &Arc<Self>, touches: &[Touch]) -> Expected {
        let mut state = self.state.lock();
        // So that faults behind these pages continue their streams.
        let pages = touches.iter().map(|touch| (touch.page, touch.access));
        choose(&mut state.windows, pages, |range| self.used(range));
        self.wait_for(&mut state, touches)
    }

    /// Opens a question about each page that is missing.
    fn wait_for(self: &Arc<Self>, state: &mut State, touches: &[Touch]) -> Expected {
        let mut ask = |touch: &Touch| {
            let question = self.misses(state, touch.page).then(|| {
                state.faults.remote += 1;
                let key = state.ask(PageRange::one(touch.page), PageRange::new(touch.page, touch.page));
                Question { space: self.clone(), key: Some(key) }
            });
            (touch.around, question)
        };
        let questions = touches.iter().map(&mut ask).collect();
        Expected { questions, space: self.clone(), _soon: self.vm.expect_soon() }
    }

    /// Whether a page is neither mapped here nor asked for.
    fn misses(&self, state: &State, page: Page) -> bool {
        let is_asked = || state.pending.iter().any(|(_, pending)| pending.range.contains(page));
        !state.gone && self.table.get(page).is_none() && !is_asked()
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
        let Some(first) = run.frame() else {
            return pages
                .pages()
                .try_for_each(|page| self.borrow_row(PageRange::one(page), self.vm.zero, run.access()));
        };
        self.borrow_row(pages, first.add(pages.start.0 - run.page().0), run.access())
    }

    fn borrow_row(&self, pages: PageRange, frame: Frame, access: Access) -> Result<(), NoMemory> {
        let frame_of = |page: Page| frame.add(page.0 - pages.start.0);
        let first = Mapping { frame, access, soft: Soft::BORROWED };
        let mut stale = Vec::new();
        let filled = self.table.fill(pages, first, &mut |page, old| {
            let known = old.frame == frame_of(page) && old.access.contains(access);
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
        let FaultRequest { page, access, given_back, around, offers, .. } = request;
        self.join(from);
        self.unshare(from, PageRange::new(page, page.add(given_back.into())));
        let mut demand = Demand::remote(page, access, offers, from, self.vm.endpoint.boot_generation(from));
        let answer = match self.check_owned(PageRange::one(page)).await {
            true => match self.hand_over(from, &demand) {
                Some(yours) => yours,
                None => self.serve(from, &mut demand, around).await,
            },
            false => FaultAnswer::Moved(self.news(PageRange::one(page))),
        };
        FaultReply { answer, adopted: demand.adopted }
    }

    /// Notes that `from` has given back the pages of `range` that were exported to it.
    fn unshare(&self, from: KernelId, range: PageRange) {
        let mut state = self.state.lock();
        for page in range.pages() {
            if state.exports.forget(page, from) {
                self.clear_exported(page);
            }
        }
    }

    async fn serve<'m>(self: &'m Arc<Self>, from: KernelId, demand: &mut Demand<'m>, around: PageRange) -> FaultAnswer {
        let mut attempts = 0;
        loop {
            // Noting who has the page takes memory, and so does noting an adopted frame.
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
                return FaultAnswer::Mapped(Runs(self.export_around(&mut state, from, demand, around)));
            }
        }
    }

    /// The owner's side of [`Space::ask_ahead`], which makes no pages and does not wait.
    pub(crate) fn serve_ahead(&self, from: KernelId, range: PageRange) -> Runs {
        let mut state = self.state.lock();
        let region = state.regions.find(range.start).cloned();
        let Some(region) = region.filter(|_| !state.gone && self.vm.memory.has_room()) else { return Runs(Vec::new()) };
        let range = region.range.intersect(range);
        match self.owns(&state, range) {
            true => Runs(self.export(&mut state, from, &region, [range], None)),
            false => Runs(Vec::new()),
        }
    }

    /// The owner's side of [`Space::expect_touches`] and [`Space::expect_first`].
    pub fn serve_first(self: &Arc<Self>, from: KernelId, touches: &[Touch]) -> Vec<Runs> {
        self.join(from);
        let serve = |touch: &Touch| {
            let mut state = self.state.lock();
            if self.is_home() {
                state.slices.claim(PageRange::one(touch.page), self.me());
            }
            let mut demand = Demand::at_once(touch.page, touch.access);
            // Noting who has the page takes memory.
            match self.vm.memory.has_room() && matches!(self.resolve(&mut state, &mut demand), Resolution::Mapped) {
                true => Runs(self.export_around(&mut state, from, &mut demand, touch.around)),
                false => Runs(Vec::new()),
            }
        };
        touches.iter().map(serve).collect()
    }

    /// Exports to `from` the page and what is ready of the range that it asks for.
    fn export_around(&self, state: &mut State, from: KernelId, demand: &mut Demand<'_>, around: PageRange) -> Vec<Run> {
        let page = demand.page;
        let Some(region) = state.regions.find(page).cloned() else { return Vec::new() };
        let block = region.range.intersect(around);
        if region.backing.is_none() {
            match demand.access.contains(Access::WRITE) {
                true => self.use_offers(state, &region, block, demand),
                // A thread that goes through them in order.
                false if around.len() > u64::from(FIRST_WINDOW) => self.show_zeros(state, &region, block, page),
                false => {}
            }
        }
        // The page itself is ready; of its neighbours a run is taken only if all of it is.
        let parts = [PageRange::new(block.start, page), PageRange::one(page), PageRange::new(page.add(1), block.end)];
        self.export(state, from, &region, parts, Some(page))
    }

    /// Exports to `from` what is ready of these neighbouring parts of a region, and `page` again if it is among them.
    fn export<const N: usize>(
        &self,
        state: &mut State,
        from: KernelId,
        region: &Region,
        parts: [PageRange; N],
        page: Option<Page>,
    ) -> Vec<Run> {
        let whole = PageRange::new(parts[0].start, parts[N - 1].end);
        let known: Vec<_> = state.exports.inside(whole).filter(|(_, sharers)| sharers.contains(from)).collect();
        let longest = if known.is_empty() { u64::MAX } else { 1 };
        let mut runs = Vec::new();
        for part in parts {
            self.table.walk_runs(part, longest, &mut |near, mapping| {
                if runs.len() >= MAX_RUNS && page != Some(near.start) {
                    return Step::Stop;
                }
                let needs_copy = mapping.soft.contains(Soft::COW) && self.copied_first(region, mapping, near.len());
                let is_known = page != Some(near.start) && known.iter().any(|(range, _)| range.contains(near.start));
                if is_known || needs_copy || mapping.access.is_empty() || state.is_busy(near) {
                    return Step::Keep;
                }
                push(&mut runs, near, mapping, self.vm.zero);
                match mapping.soft.contains(Soft::EXPORTED) {
                    true => Step::Keep,
                    false => Step::Replace(Mapping { soft: mapping.soft | Soft::EXPORTED, ..mapping }),
                }
            });
        }
        // Runs end where frames do not follow each other; pages that do are one entry.
        for runs in runs.chunk_by(|run, next| run.range().end == next.page()) {
            let (first, last) = (&runs[0], &runs[runs.len() - 1]);
            state.exports.add(PageRange::new(first.page(), last.range().end), from);
        }
        runs
    }

    /// Uses the offered frames for the pages that follow, as far as these do not exist: for first touches in ascending order.
    fn use_offers(&self, state: &State, region: &Region, block: PageRange, demand: &mut Demand<'_>) {
        if demand.offers.is_empty() {
            return;
        }
        let page = demand.page;
        let range = PageRange::new(page.add(1), page.add(1 + u64::from(MAX_OFFERS))).intersect(block);
        for page in self.unmapped(range).into_iter().flat_map(|gap| gap.pages()) {
            if demand.offers.is_empty() {
                return;
            }
            if state.is_busy(PageRange::one(page)) {
                continue;
            }
            let Ok(frame) = self.new_frame(demand) else { return };
            if !matches!(self.put_counted(page, frame, region.access(), TOUCHED), Resolution::Mapped) {
                return;
            }
        }
    }

    /// Maps the page of zeros at pages behind `page` that do not exist: for reads in ascending order.
    fn show_zeros(&self, state: &State, region: &Region, block: PageRange, page: Page) {
        let range = PageRange::new(page.add(1), block.end).intersect(block);
        for page in self.unmapped(range).into_iter().flat_map(|gap| gap.pages()) {
            if !state.is_busy(PageRange::one(page)) && !matches!(self.put_zero(page, region), Resolution::Mapped) {
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
fn push(runs: &mut Vec<Run>, range: PageRange, mapping: Mapping, zero: Frame) {
    let pages = range.len() as u16;
    let frame = (mapping.frame != zero || pages > 1).then_some(mapping.frame);
    if let Some(last) = runs.last_mut() {
        let continues = last.range().end == range.start
            && last.frame().map(|first| first.add(last.pages().into())) == frame
            && last.access() == mapping.access;
        if let (true, Some(together)) = (continues, last.pages().checked_add(pages)) {
            *last = Run::new(last.page(), together, last.frame(), mapping.access);
            return;
        }
    }
    runs.push(Run::new(range.start, pages, frame, mapping.access));
}

/// A question that waits for its answer; it is in `pending` until then.
struct Question {
    space: Arc<Space>,
    /// None once answered.
    key: Option<usize>,
}

impl Question {
    /// The owner has sent `runs` of `asked`: all but what it has taken back meanwhile is mapped.
    fn install(&mut self, state: &mut State, asked: PageRange, runs: &[Run]) {
        let poison = self.answered(state);
        self.space.install(state, runs, &poison);
        let got = match (runs.first(), runs.last()) {
            (Some(first), Some(last)) => PageRange::new(first.page(), last.range().end),
            _ => PageRange::new(asked.start, asked.start),
        };
        state.windows.got(asked, got);
    }

    /// Ends the question, and answers which pages its answer must not map.
    fn answered(&mut self, state: &mut State) -> Vec<PageRange> {
        self.key.take().map(|key| state.pending.remove(key).poison).unwrap_or_default()
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        if self.key.is_some() {
            let space = self.space.clone();
            self.answered(&mut space.state.lock());
        }
        self.space.changed.wake_all();
    }
}

/// Pages that a thread which is on its way will touch at once, and that have been asked for, or were promised.
pub struct Expected {
    space: Arc<Space>,
    /// Each page with the range that may come with it; pages that were here already are left out.
    questions: Vec<(PageRange, Option<Question>)>,
    _soon: Soon,
}

impl Expected {
    /// The owner's answer: for each page what is mapped with it.
    pub fn came(mut self, answers: Vec<Runs>) {
        let mut state = self.space.state.lock();
        for ((around, question), Runs(runs)) in self.questions.iter_mut().zip(answers) {
            if let Some(question) = question {
                question.install(&mut state, *around, &runs);
            }
        }
    }

    /// The address space that the pages are of.
    pub fn space(&self) -> SpaceId {
        self.space.id
    }
}

/// The pages to ask for, each once, with what may come along.
fn choose(
    windows: &mut Windows,
    pages: impl IntoIterator<Item = (Page, Access)>,
    used: impl Fn(PageRange) -> u64,
) -> Vec<Touch> {
    let mut touches: Vec<Touch> = Vec::new();
    for (page, access) in pages {
        if touches.iter().any(|touch| touch.page == page) {
            continue;
        }
        let comes = touches.iter().any(|touch| touch.around.contains(page));
        let around = if comes { PageRange::one(page) } else { windows.ask(page, &used) };
        touches.push(Touch { page, access, around });
    }
    touches
}

/// A question about a fault, with what it offers.
struct Demanded {
    question: Question,
    owner: KernelId,
    around: PageRange,
    offers: Vec<Frame>,
}

impl Demanded {
    fn arrived(&mut self, reply: FaultReply) -> Result<(), Fault> {
        let FaultReply { answer, adopted } = reply;
        let (space, owner) = (self.question.space.clone(), self.owner);
        let mut state = space.state.lock();
        let offered = self.offers.len() as u16;
        match &answer {
            FaultAnswer::Mapped(Runs(runs)) => {
                self.question.install(&mut state, self.around, runs);
                state.offers = if adopted == offered { offered * 2 } else { adopted }.clamp(1, MAX_OFFERS);
            }
            FaultAnswer::Failed(_) | FaultAnswer::Yours(_) | FaultAnswer::Moved(_) => {
                self.question.answered(&mut state);
            }
        }
        drop(state);
        self.offers.drain(..usize::from(adopted).min(self.offers.len()));
        match answer {
            FaultAnswer::Yours(Stretch { range, kind }) => space.taken_over(owner, range, Some(kind)),
            FaultAnswer::Moved(news) => space.correct(owner, &news),
            FaultAnswer::Mapped(_) => {}
            FaultAnswer::Failed(fault) => return Err(fault),
        }
        Ok(())
    }
}

impl Drop for Demanded {
    fn drop(&mut self) {
        // Those that the owner did not take. If it died before it answered, nobody knows which: it may have put one into its table, and
        // a third kernel may map it for as long as the process lives. So they stay lent until all survivors are through with that death.
        let space = &self.question.space;
        let known = self.question.key.is_none() || space.vm.endpoint.is_alive(self.owner);
        self.offers.iter().filter(|_| known).for_each(|frame| space.vm.memory.take_home(*frame, self.owner));
    }
}
