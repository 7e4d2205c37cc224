//! Where a mapping goes for which no address was asked: the highest place that this kernel owns, as on Linux.
//!
//! Problem: what lies above that place grows with the mappings of the process and, at home, with its threads elsewhere (their
//! stacks are parts, handed over), and a search from the top passes it all each time. Idea: remember from where on up nothing is
//! free. Whatever may free something (a region goes, an owner changes) says up to where, and the search begins there again.

use crate::{region::Regions, slices::SliceTable};
use machine::{KernelId, Page, PageRange};

#[derive(Default)]
pub(crate) struct Gaps {
    /// Where the last search was to begin, and where it found the first free page: between the two there was none.
    searched: Page,
    free_to: Page,
}

impl Gaps {
    /// The highest place for `pages` pages in what `me` owns of `within`.
    pub fn find(
        &mut self,
        regions: &mut Regions,
        slices: &mut SliceTable,
        (me, home): (KernelId, KernelId),
        within: PageRange,
        pages: u64,
    ) -> Option<Page> {
        let freed = regions.take_freed().max(slices.take_changed());
        if self.searched != within.end {
            (self.searched, self.free_to) = (within.end, within.end);
        }
        self.free_to = self.free_to.max(freed).min(within.end);
        let mut first = None;
        let mut rest = PageRange::new(within.start, self.free_to.max(within.start));
        let place = loop {
            let Some(owned) = slices.highest(rest, me, home) else { break None };
            let (place, free_to) = regions.gap(owned, pages);
            first = first.or(free_to);
            if place.is_some() {
                break place;
            }
            rest.end = owned.start;
        };
        self.free_to = first.unwrap_or(within.start);
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{region::Region, slices::SLICE_PAGES};
    use alloc::vec::Vec;
    use machine::Access;
    use messages::vm::{RegionKind, SliceRun};
    use proptest::prelude::*;

    /// In units of a sixteenth of a slice, over four slices.
    const UNIT: u64 = SLICE_PAGES / 16;
    const UNITS: u64 = 64;
    const ME: KernelId = KernelId(1);
    const OTHER: KernelId = KernelId(2);

    fn units(start: u64, count: u64) -> PageRange {
        PageRange::new(Page(start * UNIT), Page((start + count).min(UNITS) * UNIT))
    }

    #[derive(Clone, Debug)]
    enum Event {
        Map(u64),
        MapAt(u64, u64),
        Unmap(u64, u64),
        Hand(u64, u64, bool),
        TakeBack(u64, u64),
        Claim(u64, bool),
        Learn(u64, bool),
        Within(u64),
    }

    fn events() -> impl Strategy<Value = Vec<Event>> {
        let at = || 0..UNITS;
        let event = prop_oneof![
            6 => (1..6u64).prop_map(Event::Map),
            2 => (at(), 1..6u64).prop_map(|(start, count)| Event::MapAt(start, count)),
            3 => (at(), 1..9u64).prop_map(|(start, count)| Event::Unmap(start, count)),
            1 => (at(), 1..4u64, any::<bool>()).prop_map(|(start, count, mine)| Event::Hand(start, count, mine)),
            1 => (at(), 1..9u64).prop_map(|(start, count)| Event::TakeBack(start, count)),
            1 => (0..4u64, any::<bool>()).prop_map(|(slice, mine)| Event::Claim(slice, mine)),
            1 => (0..4u64, any::<bool>()).prop_map(|(slice, mine)| Event::Learn(slice, mine)),
            1 => (UNITS / 2..=UNITS).prop_map(Event::Within),
        ];
        proptest::collection::vec(event, 1..60)
    }

    fn region(range: PageRange) -> Region {
        let kind = RegionKind { prot: Access::READ, limit: Access::all(), flags: 0 };
        Region { range, kind, backing: None }
    }

    /// Looked for from the top, all of it.
    fn highest(regions: &Regions, slices: &SliceTable, home: KernelId, within: PageRange, pages: u64) -> Option<Page> {
        let pieces = slices.pieces(within, home);
        let own = pieces.iter().rev().filter(|(owner, _)| *owner == ME);
        own.map(|(_, piece)| *piece).find_map(|piece| regions.gap(piece, pages).0)
    }

    proptest! {
        #[test]
        fn it_is_the_highest_place(events in events(), at_home: bool) {
            let home = if at_home { ME } else { OTHER };
            let owner = |mine: bool| if mine { ME } else { OTHER };
            let (mut regions, mut slices, mut gaps) = (Regions::default(), SliceTable::default(), Gaps::default());
            let mut within = units(1, UNITS);
            for event in events {
                match event {
                    Event::Map(count) => {
                        let pages = count * UNIT;
                        let wanted = highest(&regions, &slices, home, within, pages);
                        let found = gaps.find(&mut regions, &mut slices, (ME, home), within, pages);
                        prop_assert_eq!(found, wanted);
                        if let Some(start) = found {
                            regions.insert(region(PageRange::new(start, start.add(pages))));
                        }
                    }
                    Event::MapAt(start, count) => {
                        regions.remove(units(start, count));
                        regions.insert(region(units(start, count)));
                    }
                    Event::Unmap(start, count) => drop(regions.remove(units(start, count))),
                    Event::Hand(start, count, mine) => {
                        regions.remove(units(start, count));
                        slices.claim(units(start, count), OTHER);
                        slices.hand(units(start, count), owner(mine));
                    }
                    Event::TakeBack(start, count) => slices.take_back(units(start, count), OTHER),
                    Event::Claim(slice, mine) => slices.claim(units(slice * 16, 16), owner(mine)),
                    Event::Learn(slice, mine) => {
                        let slice = slice as u32;
                        slices.learn(&[SliceRun { start: slice, end: slice + 1, owner: owner(mine) }]);
                    }
                    Event::Within(end) => within = units(1, end - 1),
                }
            }
        }
    }
}
