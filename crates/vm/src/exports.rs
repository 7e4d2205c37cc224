//! Which other kernels have the pages of this owner.
//!
//! By ranges, for programs share arrays and not pages: what a borrower gets with one answer is one entry, and munmap of it is
//! one look.

use alloc::vec::Vec;
use machine::{KernelId, KernelSet, Page, PageRange};
use rangemap::RangeMap;

/// The kernels that have each page; no entry has an empty set.
#[derive(Default)]
pub(crate) struct Exports(RangeMap<Page, KernelSet>);

impl Exports {
    pub fn sharers(&self, page: Page) -> Option<&KernelSet> {
        self.0.get(&page)
    }

    /// Notes that `kernel` has all of `range` now.
    pub fn add(&mut self, range: PageRange, kernel: KernelId) {
        let had: Vec<_> = self.inside(range).map(|(range, sharers)| (range, sharers.clone())).collect();
        self.0.insert(range.start..range.end, KernelSet::only(kernel));
        for (range, mut sharers) in had {
            sharers.insert(kernel);
            self.0.insert(range.start..range.end, sharers);
        }
    }

    /// Notes that `kernel` has `page` no longer. True: it was the last kernel that had the page.
    pub fn forget(&mut self, page: Page, kernel: KernelId) -> bool {
        let Some(mut sharers) = self.0.get(&page).filter(|sharers| sharers.contains(kernel)).cloned() else {
            return false;
        };
        sharers.remove(kernel);
        match sharers.is_empty() {
            true => self.0.remove(page..page.add(1)),
            false => self.0.insert(page..page.add(1), sharers),
        }
        self.0.get(&page).is_none()
    }

    /// The exported pages of `range`, in order.
    pub fn inside(&self, range: PageRange) -> impl Iterator<Item = (PageRange, &KernelSet)> {
        let found = self.0.overlapping(range.start..range.end);
        found.map(move |(found, sharers)| (PageRange::new(found.start, found.end).intersect(range), sharers))
    }

    /// Notes that no other kernel has a page of `range`.
    pub fn remove(&mut self, range: PageRange) {
        self.0.remove(range.start..range.end);
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, end: u64) -> PageRange {
        PageRange::new(Page(start), Page(end))
    }

    #[test]
    fn sharers_are_those_of_each_page() {
        let mut exports = Exports::default();
        exports.add(range(10, 20), KernelId(1));
        exports.add(range(15, 25), KernelId(2));
        exports.add(range(20, 30), KernelId(1));
        exports.remove(range(12, 13));
        let seen: Vec<_> = exports
            .inside(range(11, 28))
            .map(|(range, set)| (range.start.0, range.end.0, set.iter().map(|kernel| kernel.0).collect::<Vec<_>>()))
            .collect();
        assert_eq!(seen, [(11, 12, [1].into()), (13, 15, [1].into()), (15, 25, [1, 2].into()), (25, 28, [1].into())]);
        assert_eq!(exports.sharers(Page(12)), None);
        assert!(!exports.forget(Page(16), KernelId(1)) && !exports.forget(Page(16), KernelId(1)));
        assert_eq!(exports.sharers(Page(16)), Some(&KernelSet::only(KernelId(2))));
        assert!(exports.forget(Page(16), KernelId(2)) && !exports.forget(Page(16), KernelId(2)));
        assert!(exports.sharers(Page(16)).is_none() && exports.sharers(Page(17)).is_some());
        assert_eq!(exports.sharers(Page(29)), Some(&KernelSet::only(KernelId(1))));
    }
}
