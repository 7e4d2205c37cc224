//! Ranges of pages whose owner is not the one their slice names: see handover.rs.

use crate::slices::slice_of;
use alloc::{collections::BTreeMap, vec::Vec};
use machine::{KernelId, Page, PageRange};
use messages::vm::Part;

/// Parts of slices by start page. They do not overlap, none crosses the border of a slice, and neighbours in a slice with the same owner
/// are merged.
#[derive(Default, Clone)]
pub(crate) struct Parts(BTreeMap<Page, (Page, KernelId)>);

impl Parts {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn owner(&self, page: Page) -> Option<KernelId> {
        self.0.range(..=page).next_back().filter(|(_, (end, _))| page < *end).map(|(_, (_, owner))| *owner)
    }

    /// The last one that begins before `page`.
    pub fn last_before(&self, page: Page) -> Option<Part> {
        let (start, (end, owner)) = self.0.range(..page).next_back()?;
        Some(Part { range: PageRange::new(*start, *end), owner: *owner })
    }

    /// The parts in `range`, cut to it.
    pub fn inside(&self, range: PageRange) -> impl Iterator<Item = Part> + '_ {
        let before = self.0.range(..range.start).next_back().filter(|(_, (end, _))| *end > range.start);
        let from = before.map_or(range.start, |(start, _)| *start);
        self.0.range(from..range.end.max(from)).map(move |(start, (end, owner))| Part {
            range: PageRange::new(*start, *end).intersect(range),
            owner: *owner,
        })
    }

    /// Removes the parts in `range` that `which` selects, splitting those that cross its ends.
    pub fn clear(&mut self, range: PageRange, which: impl Fn(KernelId) -> bool) {
        let found: Vec<Part> = self.inside(range).filter(|part| which(part.owner)).collect();
        for Part { range, owner } in found {
            let Some((start, end)) = self
                .0
                .range(..=range.start)
                .next_back()
                .map(|(start, (end, _))| (*start, *end))
                .filter(|(_, end)| range.start < *end)
            else {
                continue;
            };
            self.0.remove(&start);
            for rest in [PageRange::new(start, range.start), PageRange::new(range.end, end)] {
                if rest.start < rest.end {
                    self.0.insert(rest.start, (rest.end, owner));
                }
            }
        }
    }

    pub fn set(&mut self, range: PageRange, owner: KernelId) {
        self.clear(range, |_| true);
        for slice in crate::slices::slices_in(range) {
            self.insert(range.intersect(slice), owner);
        }
    }

    fn insert(&mut self, mut range: PageRange, owner: KernelId) {
        let here = slice_of(range.start);
        if let Some((end, _)) =
            self.0.get(&range.end).filter(|(_, other)| *other == owner && slice_of(range.end) == here)
        {
            let end = *end;
            self.0.remove(&range.end);
            range.end = end;
        }
        if let Some((start, (end, other))) = self.0.range_mut(..range.start).next_back() {
            if *end == range.start && *other == owner && slice_of(*start) == here {
                *end = range.end;
                return;
            }
        }
        self.0.insert(range.start, (range.end, owner));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slices::SLICE_PAGES;

    fn range(start: u64, end: u64) -> PageRange {
        PageRange::new(Page(start), Page(end))
    }

    fn shape(parts: &Parts) -> Vec<(u64, u64, u16)> {
        parts.inside(range(0, u64::MAX)).map(|p| (p.range.start.0, p.range.end.0, p.owner.0)).collect()
    }

    #[test]
    fn they_are_cut_joined_and_cleared() {
        let mut parts = Parts::default();
        parts.set(range(10, 20), KernelId(1));
        parts.set(range(20, 30), KernelId(1));
        assert_eq!(shape(&parts), [(10, 30, 1)]);
        parts.set(range(15, 18), KernelId(2));
        assert_eq!(shape(&parts), [(10, 15, 1), (15, 18, 2), (18, 30, 1)]);
        assert_eq!(parts.owner(Page(17)), Some(KernelId(2)));
        assert_eq!(parts.owner(Page(30)), None);
        parts.clear(range(12, 25), |owner| owner == KernelId(1));
        assert_eq!(shape(&parts), [(10, 12, 1), (15, 18, 2), (25, 30, 1)]);
        parts.set(range(12, 15), KernelId(1));
        assert_eq!(shape(&parts), [(10, 15, 1), (15, 18, 2), (25, 30, 1)]);
        let inside: Vec<Part> = parts.inside(range(14, 26)).collect();
        assert_eq!(inside.len(), 3);
        assert_eq!(inside[0].range, range(14, 15));
    }

    #[test]
    fn none_crosses_the_border_of_a_slice() {
        let mut parts = Parts::default();
        parts.set(range(SLICE_PAGES - 4, SLICE_PAGES + 4), KernelId(1));
        assert_eq!(shape(&parts).len(), 2);
    }
}
