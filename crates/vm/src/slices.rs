//! Who owns which slice of an address space, and which part of a slice has another owner.
//!
//! The table of slices is kept at home; every replica has a copy that may lack entries but is never wrong: a
//! slice that has an owner keeps it. A slice without an owner is home's, so a replica that does not
//! know better asks home, which answers or sends its table.
//!
//! Parts are what the owner of a slice has handed over (handover.rs). What a replica knows of them is of three kinds:
//! parts of its own slices (it handed them over; always right), parts that it holds itself (always right), and
//! what others told it (may be out of date: whoever is asked in vain says so).

use crate::parts::Parts;
use alloc::{
    collections::{btree_map::Entry, BTreeMap},
    vec::Vec,
};
use machine::{KernelId, Page, PageRange, PAGE_BITS, USER_END};
use messages::vm::{Owners, Part, SliceRun};

/// A slice is 64 GiB: 2048 of them, few enough for a tiny table, big enough that a kernel rarely needs
/// a second one.
pub(crate) const SLICE_BITS: u32 = 36;
const PAGES_BITS: u32 = SLICE_BITS - PAGE_BITS;

/// Pages of a slice.
pub(crate) const SLICE_PAGES: u64 = 1 << PAGES_BITS;

/// Slices that are handed out lie below this one, out of the way of home's own mappings, which grow
/// down from the stack.
const FIRST_TAKEN: u32 = (USER_END >> SLICE_BITS) as u32 / 4 * 3;

pub(crate) fn slice_of(page: Page) -> u32 {
    (page.0 >> PAGES_BITS) as u32
}

/// The pages of a slice.
fn whole(slice: u32) -> PageRange {
    PageRange::new(Page(u64::from(slice) << PAGES_BITS), Page(u64::from(slice + 1) << PAGES_BITS))
}

/// The pages of consecutive slices.
pub(crate) fn pages_of(run: &SliceRun) -> PageRange {
    PageRange::new(whole(run.start).start, whole(run.end).start)
}

/// The slices `range` touches.
pub(crate) fn slices_in(range: PageRange) -> impl Iterator<Item = PageRange> {
    let last = Page(range.end.0.saturating_sub(1).max(range.start.0));
    (slice_of(range.start)..=slice_of(last)).map(whole)
}

/// The slice of `page`.
pub(crate) fn slice_around(page: Page) -> PageRange {
    whole(slice_of(page))
}

/// What this kernel knows of who owns which pages of a space.
#[derive(Default, Clone)]
pub(crate) struct SliceTable {
    slices: BTreeMap<u32, KernelId>,
    parts: Parts,
    /// End of the highest range whose owner has changed since [`SliceTable::take_changed`] was last called.
    changed: Page,
}

impl SliceTable {
    /// The owner of `page`. None: no owner is known, so home is to be asked.
    pub fn owner(&self, page: Page) -> Option<KernelId> {
        // Most processes never leave their kernel, and have no slices.
        if self.slices.is_empty() {
            return None;
        }
        self.parts.owner(page).or_else(|| self.slice_owner(page))
    }

    /// The owner of the slice that `page` lies in, even if it has handed the page over.
    pub fn slice_owner(&self, page: Page) -> Option<KernelId> {
        self.slices.get(&slice_of(page)).copied()
    }

    /// Enters slices whose owners another kernel has named.
    pub fn learn(&mut self, runs: &[SliceRun]) {
        for run in runs {
            for slice in run.start..run.end {
                if self.slices.insert(slice, run.owner) != Some(run.owner) {
                    self.note_change(whole(slice));
                }
            }
        }
    }

    fn note_change(&mut self, range: PageRange) {
        self.changed = self.changed.max(range.end);
    }

    /// The end of the highest range whose owner has changed since the last call.
    pub fn take_changed(&mut self) -> Page {
        core::mem::replace(&mut self.changed, Page(0))
    }

    /// Enters what `from` answered when this kernel (`me`) asked it for pages that it does not own.
    pub fn correct(&mut self, from: KernelId, news: &Owners, me: KernelId, home: KernelId) {
        self.learn(&news.slices);
        for slice in slices_in(news.about) {
            let about = news.about.intersect(slice);
            let owner = self.slice_owner(slice.start).unwrap_or(home);
            if owner == me {
                continue;
            }
            let held: Vec<Part> = self.parts.inside(about).filter(|part| part.owner == me).collect();
            // The owner of the slice knows all its parts; any other, those that it holds itself.
            let knows = |holder: KernelId| owner == from || holder == from;
            self.parts.clear(about, |holder| holder != me && knows(holder));
            // What names this kernel as owner is out of date: this kernel knows what it holds.
            for part in news.parts.iter().filter(|part| part.owner != me && knows(part.owner)) {
                let range = part.range.intersect(about);
                if !range.is_empty() {
                    self.parts.set(range, part.owner);
                }
            }
            held.iter().for_each(|part| self.parts.set(part.range, me));
        }
    }

    /// What to answer a kernel that asked for `range`, which this kernel does not own. The answer also covers the pages around
    /// `range` that have the same owners as its ends, so that the next fault there goes to the right kernel.
    pub fn news(&self, range: PageRange) -> Owners {
        let last = Page(range.end.0.saturating_sub(1).max(range.start.0));
        let about = PageRange::new(self.around(range.start).start, self.around(last).end);
        Owners { about, slices: self.runs(), parts: self.parts.inside(about).collect() }
    }

    /// The pages around `page` with the same owner: the part that contains it, or what lies between two parts of its slice.
    fn around(&self, page: Page) -> PageRange {
        let slice = slice_around(page);
        match self.parts.last_before(page.add(1)) {
            Some(part) if part.range.contains(page) => part.range,
            below => {
                let start = below.map_or(slice.start, |part| part.range.end.max(slice.start));
                let above = self.parts.inside(PageRange::new(page, slice.end)).next();
                PageRange::new(start, above.map_or(slice.end, |part| part.range.start))
            }
        }
    }

    /// Notes that `range` was handed over to `owner`.
    pub fn hand(&mut self, range: PageRange, owner: KernelId) {
        self.note_change(range);
        self.parts.set(range, owner);
    }

    /// Notes that `holder` has returned its parts of `range` to the owner of their slice.
    pub fn take_back(&mut self, range: PageRange, holder: KernelId) {
        self.note_change(range);
        self.parts.clear(range, |owner| owner == holder);
    }

    /// The parts in `range`: pages whose owner is not that of their slice.
    pub fn parts(&self, range: PageRange) -> impl Iterator<Item = Part> + '_ {
        self.parts.inside(range)
    }

    /// Those parts in `range` that cannot be out of date: the ones that this kernel (`me`) holds, and those of its own slices.
    pub fn certain(&self, range: PageRange, me: KernelId, home: KernelId) -> Vec<Part> {
        let own = |part: &Part| self.slice_owner(part.range.start).unwrap_or(home) == me;
        self.parts.inside(range).filter(|part| part.owner == me || own(part)).collect()
    }

    /// Whether the owner of every slice in `range` is known.
    pub fn knows(&self, range: PageRange) -> bool {
        slices_in(range).all(|slice| self.slice_owner(slice.start).is_some())
    }

    /// Makes `owner` the owner of those slices of `range` that have none yet.
    pub fn claim(&mut self, range: PageRange, owner: KernelId) {
        for slice in slice_of(range.start)..=slice_of(Page(range.end.0.saturating_sub(1).max(range.start.0))) {
            if let Entry::Vacant(free) = self.slices.entry(slice) {
                free.insert(owner);
                self.note_change(whole(slice));
            }
        }
    }

    /// All slices that have an owner.
    pub fn runs(&self) -> Vec<SliceRun> {
        let mut runs: Vec<SliceRun> = Vec::new();
        for (&slice, &owner) in &self.slices {
            match runs.last_mut() {
                Some(run) if run.end == slice && run.owner == owner => run.end += 1,
                _ => runs.push(SliceRun { start: slice, end: slice + 1, owner }),
            }
        }
        runs
    }

    /// The owners of all slices. A kernel appears once for each slice that it owns.
    pub fn owners(&self) -> impl Iterator<Item = KernelId> + '_ {
        self.slices.values().copied()
    }

    /// The owners of the slices that `range` touches, without those slices that have none.
    pub fn owners_in(&self, range: PageRange) -> impl Iterator<Item = KernelId> + '_ {
        let last = Page(range.end.0.saturating_sub(1).max(range.start.0));
        self.slices.range(slice_of(range.start)..=slice_of(last)).map(|(_, owner)| *owner)
    }

    /// The kernel that owns all of `range`, if one does. `default` owns slices that have no owner.
    pub fn sole_owner(&self, range: PageRange, default: KernelId) -> Option<KernelId> {
        if self.slices.is_empty() || range.is_empty() {
            return Some(default);
        }
        let (owner, _) = self.piece_below(range, default);
        (self.highest(range, owner, default) == Some(range)).then_some(owner)
    }

    /// The highest consecutive pages of `range` that `owner` owns. `default` owns slices that have no owner.
    pub fn highest(&self, range: PageRange, owner: KernelId, default: KernelId) -> Option<PageRange> {
        let (mut rest, mut found) = (range, None::<PageRange>);
        while !rest.is_empty() {
            let (whose, start) = self.piece_below(rest, default);
            let piece = PageRange::new(start, rest.end);
            match (&mut found, whose == owner) {
                (None, true) => found = Some(piece),
                (Some(found), true) => found.start = start,
                (Some(_), false) => break,
                (None, false) => {}
            }
            rest.end = start;
        }
        found
    }

    /// The owner of the last page of `range`, and the first page from which on it owns all up to there.
    fn piece_below(&self, range: PageRange, default: KernelId) -> (KernelId, Page) {
        if self.slices.is_empty() {
            return (default, range.start);
        }
        let last = Page(range.end.0 - 1);
        let part = self.parts.last_before(range.end);
        if let Some(part) = part.filter(|part| part.range.contains(last)) {
            return (part.owner, part.range.start.max(range.start));
        }
        let above_part = part.map_or(range.start, |part| part.range.end);
        let (owner, start) = match self.slices.range(..=slice_of(last)).next_back() {
            Some((&slice, &owner)) if slice == slice_of(last) => (owner, slice_around(last).start),
            Some((&slice, _)) => (default, whole(slice).end),
            None => (default, range.start),
        };
        (owner, start.max(above_part).max(range.start))
    }

    /// Cuts `range` where the owner changes. `default` owns slices that have no owner.
    pub fn pieces(&self, range: PageRange, default: KernelId) -> Vec<(KernelId, PageRange)> {
        let mut pieces: Vec<(KernelId, PageRange)> = Vec::new();
        if self.slices.is_empty() || range.is_empty() {
            pieces.push((default, range));
            return pieces;
        }
        let mut add = |owner: KernelId, part: PageRange| match pieces.last_mut() {
            _ if part.is_empty() => {}
            Some((last, before)) if *last == owner => before.end = part.end,
            _ => pieces.push((owner, part)),
        };
        let mut add_slices = |owner: KernelId, mut rest: PageRange| {
            let parts = (!self.parts.is_empty() && !rest.is_empty()).then(|| self.parts.inside(rest));
            for part in parts.into_iter().flatten() {
                add(owner, PageRange::new(rest.start, part.range.start));
                add(part.owner, part.range);
                rest.start = part.range.end;
            }
            add(owner, rest);
        };
        // By the slices that have owners: a range may be the whole address space.
        let mut rest = range;
        for (&slice, &owner) in self.slices.range(slice_of(range.start)..=slice_of(Page(range.end.0 - 1))) {
            let owned = range.intersect(whole(slice));
            add_slices(default, PageRange::new(rest.start, owned.start));
            add_slices(owner, owned);
            rest.start = owned.end;
        }
        add_slices(default, rest);
        pieces
    }

    /// Gives `owner` the highest `count` consecutive slices that have no owner and in which home has mapped nothing (`is_free`).
    pub fn take(&mut self, count: u32, owner: KernelId, is_free: impl Fn(PageRange) -> bool) -> Option<SliceRun> {
        let mut end = FIRST_TAKEN;
        while end > count {
            let run = SliceRun { start: end - count, end, owner };
            match (run.start..run.end).find(|slice| self.slices.contains_key(slice) || !is_free(whole(*slice))) {
                // Slice 0 holds static executables; it stays with home.
                None if run.start > 0 => {
                    self.learn(&[run]);
                    return Some(run);
                }
                None => return None,
                Some(taken) => end = taken,
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taken_slices_are_consecutive_and_skip_what_is_used() {
        let mut table = SliceTable::default();
        let used = whole(FIRST_TAKEN - 3);
        let is_free = |range: PageRange| range.intersect(used).is_empty();
        let first = table.take(2, KernelId(1), is_free).unwrap();
        assert_eq!((first.start, first.end), (FIRST_TAKEN - 2, FIRST_TAKEN));
        let second = table.take(1, KernelId(2), is_free).unwrap();
        assert_eq!(second.end, FIRST_TAKEN - 3);
        assert_eq!(table.runs().len(), 2);
        assert!(table.take(FIRST_TAKEN, KernelId(1), is_free).is_none());
    }

    #[test]
    fn a_range_is_cut_where_the_owner_changes() {
        let mut table = SliceTable::default();
        let home = KernelId(0);
        let range = PageRange::new(Page(SLICE_PAGES / 2), Page(SLICE_PAGES * 3 + 1));
        assert_eq!(table.pieces(range, home), [(home, range)]);
        table.learn(&[SliceRun { start: 1, end: 3, owner: KernelId(2) }]);
        let owners: Vec<_> = table.pieces(range, home).into_iter().map(|(owner, part)| (owner.0, part.len())).collect();
        assert_eq!(owners, [(0, SLICE_PAGES / 2), (2, SLICE_PAGES * 2), (0, 1)]);
        table.hand(PageRange::new(Page(SLICE_PAGES + 5), Page(SLICE_PAGES + 9)), KernelId(3));
        let owners: Vec<_> = table.pieces(range, home).into_iter().map(|(owner, part)| (owner.0, part.len())).collect();
        let rest = SLICE_PAGES * 2 - 9;
        assert_eq!(owners, [(0, SLICE_PAGES / 2), (2, 5), (3, 4), (2, rest), (0, 1)]);
    }

    #[test]
    fn who_asks_the_wrong_kernel_about_a_page_learns_of_all_around_it() {
        let (home, owner, holder) = (KernelId(0), KernelId(2), KernelId(3));
        let mut table = SliceTable::default();
        table.learn(&[SliceRun { start: 1, end: 3, owner }]);
        let at = |start: u64, end: u64| PageRange::new(Page(SLICE_PAGES + start), Page(SLICE_PAGES + end));
        table.hand(at(10, 20), holder);
        table.hand(at(30, 40), holder);
        let about = |start, end| table.news(at(start, end)).about;
        assert_eq!(about(12, 13), at(10, 20));
        assert_eq!(about(20, 21), at(20, 30));
        assert_eq!(about(5, 15), at(0, 20));
        assert_eq!(about(45, 46), at(40, SLICE_PAGES));
        let mut asker = SliceTable::default();
        let pieces = |table: &SliceTable| table.pieces(at(0, 50), home);
        asker.correct(owner, &table.news(at(12, 13)), KernelId(1), home);
        assert_eq!(pieces(&asker), [(owner, at(0, 10)), (holder, at(10, 20)), (owner, at(20, 50))]);
        // The holder has given all back meanwhile.
        let given_back = SliceTable::default().news(at(14, 15));
        asker.correct(holder, &given_back, KernelId(1), home);
        assert_eq!(pieces(&asker), [(owner, at(0, 50))]);
    }

    #[test]
    fn what_the_owner_of_a_slice_says_of_its_parts_is_believed_except_about_oneself() {
        let (home, me, owner, other) = (KernelId(0), KernelId(1), KernelId(2), KernelId(3));
        let mut table = SliceTable::default();
        table.learn(&[SliceRun { start: 1, end: 2, owner }]);
        let at = |page: u64| PageRange::one(Page(SLICE_PAGES + page));
        let about = PageRange::new(Page(SLICE_PAGES), Page(SLICE_PAGES + 10));
        table.hand(at(1), other);
        table.hand(at(2), me);
        let part = |page, owner| Part { range: at(page), owner };
        let parts = Vec::from([part(2, other), part(3, other), part(4, me)]);
        table.correct(owner, &Owners { about, slices: Vec::new(), parts }, me, home);
        let owners: Vec<u16> = (1..5).map(|page| table.owner(at(page).start).unwrap().0).collect();
        assert_eq!(owners, [2, 1, 3, 2]);
        table.correct(other, &Owners { about, slices: Vec::new(), parts: Vec::new() }, me, home);
        assert_eq!(table.owner(at(3).start), Some(owner));
    }
}
