//! The regions of an address space as their owner keeps them: what `/proc/PID/maps` shows.

use alloc::{collections::BTreeMap, sync::Arc, vec::Vec};
use fs::{Object, ReadAhead};
use machine::{errno::Result, Access, Errno, Page, PageRange};
use messages::vm::{RegionKind, RemoteBacking};

bitflags::bitflags! {
    /// What mmap, mlock and madvise said about a region.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct RegionFlags: u32 {
        /// MAP_SHARED.
        const SHARED = 1 << 0;
        /// MAP_GROWSDOWN.
        const GROWS_DOWN = 1 << 1;
        /// MAP_NORESERVE.
        const NO_RESERVE = 1 << 2;
        /// mlock(2), mlockall(2), MAP_LOCKED.
        const LOCKED = 1 << 3;
        /// The main stack: `[stack]` in maps.
        const STACK = 1 << 4;
        /// What brk grows: `[heap]` in maps.
        const HEAP = 1 << 5;
        /// MADV_DONTFORK.
        const DONT_FORK = 1 << 6;
        /// MADV_WIPEONFORK.
        const WIPE_ON_FORK = 1 << 7;
        /// MADV_DONTDUMP.
        const DONT_DUMP = 1 << 8;
        /// A mapping of the program that execve loaded; its file is not opened for writing meanwhile.
        const PROGRAM = 1 << 9;
        /// MADV_RANDOM.
        const RANDOM = 1 << 10;
        /// MADV_SEQUENTIAL.
        const SEQUENTIAL = 1 << 11;
    }
}

/// Most regions of a process: Linux's vm.max_map_count. Each kernel counts those of its own slices.
const MOST_REGIONS: usize = 65_530;

/// Pages kept free below a region that grows down (Linux's `stack_guard_gap`).
pub(crate) const GUARD_GAP: u64 = 256;

/// What the pages of a region are copies or views of.
#[derive(Clone)]
pub(crate) struct Backing {
    pub object: Arc<dyn Object>,
    /// Page of the object at the region's start.
    pub first: u64,
    pub label: Arc<[u8]>,
}

impl Backing {
    fn follows(&self, before: &Backing, pages: u64) -> bool {
        self.object.id() == before.object.id() && self.first == before.first + pages && self.label == before.label
    }

    pub fn describe(&self) -> RemoteBacking {
        RemoteBacking { object: self.object.id(), first: self.first, label: self.label.to_vec() }
    }
}

#[derive(Clone)]
pub(crate) struct Region {
    pub range: PageRange,
    pub kind: RegionKind,
    pub backing: Option<Backing>,
}

/// What the hardware lets through for a protection: a page that may be written or executed
/// may be read.
pub(crate) fn effective(prot: Access) -> Access {
    if prot.is_empty() {
        prot
    } else {
        prot | Access::READ
    }
}

impl Region {
    pub fn flags(&self) -> RegionFlags {
        RegionFlags::from_bits_truncate(self.kind.flags)
    }

    pub fn access(&self) -> Access {
        effective(self.kind.prot)
    }

    /// What madvise said of reads.
    pub fn read_ahead(&self) -> ReadAhead {
        match (self.flags().contains(RegionFlags::RANDOM), self.flags().contains(RegionFlags::SEQUENTIAL)) {
            (true, _) => ReadAhead::Random,
            (_, true) => ReadAhead::Sequential,
            _ => ReadAhead::Normal,
        }
    }

    /// Writes go to the object, not to a copy.
    pub fn is_shared(&self) -> bool {
        self.flags().contains(RegionFlags::SHARED)
    }

    /// Whether the region is or may become writable, so that writes reach the object.
    pub fn may_write_through(&self) -> bool {
        self.is_shared() && self.kind.limit.contains(Access::WRITE)
    }

    /// The page of the backing object that `page` shows.
    pub fn object_page(&self, page: Page) -> Option<(&Backing, u64)> {
        self.backing.as_ref().map(|backing| (backing, backing.first + (page.0 - self.range.start.0)))
    }

    /// The part of it inside `range`, which must overlap it.
    pub fn cut(&self, range: PageRange) -> Region {
        let range = self.range.intersect(range);
        let mut part = Region { range, ..self.clone() };
        if let Some(backing) = &mut part.backing {
            backing.first += range.start.0 - self.range.start.0;
        }
        part
    }

    fn continues(&self, before: &Region) -> bool {
        before.range.end == self.range.start
            && before.kind == self.kind
            && !self.flags().contains(RegionFlags::GROWS_DOWN)
            && match (&before.backing, &self.backing) {
                (None, None) => true,
                (Some(a), Some(b)) => b.follows(a, before.range.len()),
                _ => false,
            }
    }

    /// The first page that no other region may use: the region, or the gap below a stack.
    fn guarded_start(&self) -> u64 {
        match self.flags().contains(RegionFlags::GROWS_DOWN) {
            true => self.range.start.0.saturating_sub(GUARD_GAP),
            false => self.range.start.0,
        }
    }
}

/// Regions by start page. They never overlap, and neighbours that could be one are one.
#[derive(Default, Clone)]
pub(crate) struct Regions {
    map: BTreeMap<Page, Region>,
    /// Pages of all of them, and the most there have been.
    total: u64,
    most: u64,
    /// No page above this one has become free since it was last read.
    freed: Page,
}

impl Regions {
    pub fn iter(&self) -> impl Iterator<Item = &Region> + Clone {
        self.map.values()
    }

    pub fn count(&self) -> usize {
        self.map.len()
    }

    /// Checks before a region is inserted. ENOMEM: there are too many.
    pub fn check_count(&self) -> Result<()> {
        (self.count() <= MOST_REGIONS).then_some(()).ok_or(Errno::ENOMEM)
    }

    /// Before regions are cut at the ends of `range` to be of another kind, or `removed`, in it. ENOMEM: there would be too many.
    pub fn check_cuts(&self, range: PageRange, removed: bool) -> Result<()> {
        if self.count() + 2 <= MOST_REGIONS {
            return Ok(());
        }
        let is_cut = |page: Page| self.find(page).is_some_and(|region| region.range.start < page);
        let inside_one = || self.find(range.start).is_some_and(|region| range.end < region.range.end);
        let more = match removed {
            true => usize::from(is_cut(range.start) && inside_one()),
            false => usize::from(is_cut(range.start)) + usize::from(is_cut(range.end)),
        };
        (more == 0 || self.count() + more <= MOST_REGIONS).then_some(()).ok_or(Errno::ENOMEM)
    }

    pub fn find(&self, page: Page) -> Option<&Region> {
        self.map.range(..=page).next_back().map(|(_, region)| region).filter(|r| r.range.contains(page))
    }

    /// The first region that starts after `page`.
    pub fn above(&self, page: Page) -> Option<&Region> {
        self.map.range(page.add(1)..).next().map(|(_, region)| region)
    }

    /// The last region that starts before `page`.
    pub fn below(&self, page: Page) -> Option<&Region> {
        self.map.range(..page).next_back().map(|(_, region)| region)
    }

    pub fn overlapping(&self, range: PageRange) -> impl Iterator<Item = &Region> {
        let first = self.find(range.start).map_or(range.start, |region| region.range.start);
        let end = range.end.max(first);
        self.map.range(first..end).map(|(_, region)| region)
    }

    pub fn is_free(&self, range: PageRange) -> bool {
        self.overlapping(range).next().is_none()
    }

    /// The first page of `range` that no region has.
    pub fn hole(&self, range: PageRange) -> Option<Page> {
        let mut at = range.start;
        while at < range.end {
            match self.find(at) {
                Some(region) => at = region.range.end,
                None => return Some(at),
            }
        }
        None
    }

    /// Pages mapped.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The most pages that have been mapped.
    pub fn most(&self) -> u64 {
        self.most
    }

    fn grown(&mut self, pages: u64) {
        self.total += pages;
        self.most = self.most.max(self.total);
    }

    /// Removes the regions in `range`, splitting those that cross its ends.
    pub fn remove(&mut self, range: PageRange) -> Vec<Region> {
        self.freed = self.freed.max(range.end);
        let starts: Vec<Page> = self.overlapping(range).map(|region| region.range.start).collect();
        let mut removed = Vec::with_capacity(starts.len());
        for start in starts {
            let Some(region) = self.map.remove(&start) else { continue };
            for rest in [
                PageRange::new(region.range.start, range.start.max(region.range.start)),
                PageRange::new(range.end.min(region.range.end), region.range.end),
            ] {
                if !rest.is_empty() {
                    self.map.insert(rest.start, region.cut(rest));
                }
            }
            let taken = region.cut(range);
            self.total -= taken.range.len();
            removed.push(taken);
        }
        removed
    }

    /// Inserts a region where none is, and merges it with neighbours that it continues.
    pub fn insert(&mut self, mut region: Region) {
        debug_assert!(self.is_free(region.range));
        self.grown(region.range.len());
        if let Some(before) = self.below(region.range.start).filter(|before| region.continues(before)) {
            let mut joined = before.clone();
            joined.range.end = region.range.end;
            region = joined;
        }
        if let Some(after) = self.map.get(&region.range.end).filter(|after| after.continues(&region)) {
            let end = after.range.end;
            self.map.remove(&region.range.end);
            region.range.end = end;
        }
        self.map.insert(region.range.start, region);
    }

    /// Changes all regions inside `range`, splitting those that cross its ends.
    pub fn update(&mut self, range: PageRange, mut change: impl FnMut(&mut RegionKind)) {
        let Some(whole) = self.map.get_mut(&range.start).filter(|region| region.range == range) else {
            for mut region in self.remove(range) {
                change(&mut region.kind);
                self.insert(region);
            }
            return;
        };
        change(&mut whole.kind);
        // It stays where it is, unless it has become a part of its neighbours.
        let whole = &self.map[&range.start];
        let joins = self.below(range.start).is_some_and(|before| whole.continues(before))
            || self.map.get(&range.end).is_some_and(|after| after.continues(whole));
        if joins {
            if let Some(region) = self.map.remove(&range.start) {
                self.total -= region.range.len();
                self.insert(region);
            }
        }
    }

    /// Grows the region that starts at `start` down to `to`.
    pub fn grow_down(&mut self, start: Page, to: Page) {
        if let Some(mut region) = self.map.remove(&start) {
            self.grown(start.0 - to.0);
            region.range.start = to;
            self.map.insert(to, region);
        }
    }

    /// The address up to which pages may have become free since the last call.
    pub fn take_freed(&mut self) -> Page {
        core::mem::replace(&mut self.freed, Page(0))
    }

    /// The highest place for `pages` pages inside `within`, and the end of the highest free page there.
    pub fn gap(&self, within: PageRange, pages: u64) -> (Option<Page>, Option<Page>) {
        let mut first = None;
        let mut end = within.end.0;
        // A region beyond the end may reach down with its guard gap, or cover the end.
        if let Some(next) = self.above(Page(end.saturating_sub(1))) {
            end = end.min(next.guarded_start());
        }
        for (_, region) in self.map.range(..within.end).rev() {
            let start = region.range.end.0.max(within.start.0);
            if end > start {
                first = first.or(Some(Page(end)));
                if end - start >= pages {
                    return (Some(Page(end - pages)), first);
                }
            }
            end = end.min(region.guarded_start());
            if end <= within.start.0 {
                return (None, first);
            }
        }
        let room = end.saturating_sub(within.start.0);
        first = first.or((room > 0).then_some(Page(end)));
        ((room >= pages).then(|| Page(end - pages)), first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, end: u64) -> PageRange {
        PageRange::new(Page(start), Page(end))
    }

    fn region(start: u64, end: u64, prot: Access) -> Region {
        let kind = RegionKind { prot, limit: Access::all(), flags: 0 };
        Region { range: range(start, end), kind, backing: None }
    }

    fn shape(regions: &Regions) -> Vec<(u64, u64)> {
        regions.iter().map(|r| (r.range.start.0, r.range.end.0)).collect()
    }

    #[test]
    fn neighbours_of_one_kind_become_one() {
        let mut regions = Regions::default();
        regions.insert(region(10, 20, Access::READ));
        regions.insert(region(30, 40, Access::READ));
        regions.insert(region(20, 30, Access::READ));
        assert_eq!(shape(&regions), [(10, 40)]);
        regions.update(range(15, 18), |kind| kind.prot = Access::WRITE);
        assert_eq!(shape(&regions), [(10, 15), (15, 18), (18, 40)]);
        regions.update(range(15, 18), |kind| kind.prot = Access::READ);
        assert_eq!(shape(&regions), [(10, 40)]);
    }

    #[test]
    fn removal_cuts_at_both_ends_and_holes_are_found() {
        let mut regions = Regions::default();
        regions.insert(region(10, 40, Access::READ));
        assert_eq!(regions.remove(range(20, 25)).len(), 1);
        assert_eq!(shape(&regions), [(10, 20), (25, 40)]);
        assert_eq!(regions.hole(range(12, 30)), Some(Page(20)));
        assert_eq!(regions.hole(range(25, 40)), None);
        assert!(regions.is_free(range(20, 25)));
        assert!(!regions.is_free(range(20, 26)));
        assert_eq!(regions.remove(range(0, 100)).len(), 2);
    }

    #[test]
    fn the_most_pages_there_have_been_are_remembered() {
        let mut regions = Regions::default();
        let counted = |regions: &Regions| {
            assert_eq!(regions.total(), regions.iter().map(|region| region.range.len()).sum());
            (regions.total(), regions.most())
        };
        regions.insert(region(10, 20, Access::READ));
        regions.insert(region(20, 40, Access::READ));
        assert_eq!(counted(&regions), (30, 30));
        regions.remove(range(15, 25));
        regions.update(range(10, 15), |kind| kind.prot = Access::WRITE);
        regions.update(range(30, 35), |kind| kind.prot = Access::WRITE);
        regions.update(range(30, 35), |kind| kind.prot = Access::READ);
        assert_eq!(counted(&regions), (20, 30));
        regions.grow_down(Page(25), Page(16));
        assert_eq!(counted(&regions), (29, 30));
        regions.insert(region(100, 102, Access::READ));
        assert_eq!(counted(&regions), (31, 31));
    }

    #[test]
    fn gaps_are_taken_from_the_top_and_leave_the_stack_its_guard() {
        let mut regions = Regions::default();
        assert_eq!(regions.gap(range(16, 1000), 10).0, Some(Page(990)));
        regions.insert(region(900, 1000, Access::READ));
        assert_eq!(regions.gap(range(16, 1000), 10).0, Some(Page(890)));
        regions.insert(region(850, 880, Access::READ));
        assert_eq!(regions.gap(range(16, 1000), 20).0, Some(Page(880)));
        assert_eq!(regions.gap(range(16, 1000), 21).0, Some(Page(829)));
        assert_eq!(regions.gap(range(16, 1000), 900).0, None);
        let mut stack = region(950, 1000, Access::READ);
        stack.kind.flags = RegionFlags::GROWS_DOWN.bits();
        let mut regions = Regions::default();
        regions.insert(stack);
        assert_eq!(regions.gap(range(16, 1000), 10).0, Some(Page(950 - 256 - 10)));
        assert_eq!(regions.gap(range(16, 940), 10).0, Some(Page(950 - 256 - 10)));
    }
}
