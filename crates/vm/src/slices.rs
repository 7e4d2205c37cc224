//! Who owns which slice of an address space.
//!
//! The table is kept at home; every replica has a copy that may lack entries but is never wrong: a
//! slice that has an owner keeps it. A slice without an owner is home's, so a replica that does not
//! know better asks home, which answers or sends its table.

use alloc::{collections::BTreeMap, vec::Vec};
use machine::{KernelId, Page, PageRange, PAGE_BITS, USER_END};
use messages::vm::SliceRun;

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

pub(crate) fn pages_of(run: SliceRun) -> PageRange {
    PageRange::new(Page(u64::from(run.start) << PAGES_BITS), Page(u64::from(run.end) << PAGES_BITS))
}

#[derive(Default, Clone)]
pub(crate) struct SliceTable(BTreeMap<u32, KernelId>);

impl SliceTable {
    pub fn owner(&self, page: Page) -> Option<KernelId> {
        // The common process has never left its kernel.
        if self.0.is_empty() {
            return None;
        }
        self.0.get(&slice_of(page)).copied()
    }

    /// Takes over what another kernel knows.
    pub fn learn(&mut self, runs: &[SliceRun]) {
        for run in runs {
            for slice in run.start..run.end {
                self.0.insert(slice, run.owner);
            }
        }
    }

    /// Gives the slices of `range` that have no owner yet to `owner`.
    pub fn claim(&mut self, range: PageRange, owner: KernelId) {
        for slice in slice_of(range.start)..=slice_of(Page(range.end.0.saturating_sub(1).max(range.start.0))) {
            self.0.entry(slice).or_insert(owner);
        }
    }

    pub fn runs(&self) -> Vec<SliceRun> {
        let mut runs: Vec<SliceRun> = Vec::new();
        for (&slice, &owner) in &self.0 {
            match runs.last_mut() {
                Some(run) if run.end == slice && run.owner == owner => run.end += 1,
                _ => runs.push(SliceRun { start: slice, end: slice + 1, owner }),
            }
        }
        runs
    }

    pub fn owners(&self) -> impl Iterator<Item = KernelId> + '_ {
        self.0.values().copied()
    }

    /// Cuts `range` where the owner changes; `default` owns what has no owner.
    pub fn pieces(&self, range: PageRange, default: KernelId) -> Vec<(KernelId, PageRange)> {
        let mut pieces: Vec<(KernelId, PageRange)> = Vec::new();
        if self.0.is_empty() || range.is_empty() {
            pieces.push((default, range));
            return pieces;
        }
        for slice in slice_of(range.start)..=slice_of(Page(range.end.0 - 1)) {
            let owner = self.0.get(&slice).copied().unwrap_or(default);
            let part = range.intersect(pages_of(SliceRun { start: slice, end: slice + 1, owner }));
            match pieces.last_mut() {
                Some((last, before)) if *last == owner => before.end = part.end,
                _ => pieces.push((owner, part)),
            }
        }
        pieces
    }

    /// The highest `count` consecutive slices that nobody owns and `is_free` lets go, now `owner`'s.
    pub fn take(&mut self, count: u32, owner: KernelId, is_free: impl Fn(PageRange) -> bool) -> Option<SliceRun> {
        let mut end = FIRST_TAKEN;
        while end > count {
            let run = SliceRun { start: end - count, end, owner };
            match (run.start..run.end).find(|slice| {
                self.0.contains_key(slice) || !is_free(pages_of(SliceRun { start: *slice, end: slice + 1, owner }))
            }) {
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
        let used = pages_of(SliceRun { start: FIRST_TAKEN - 3, end: FIRST_TAKEN - 2, owner: KernelId(0) });
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
    }
}
