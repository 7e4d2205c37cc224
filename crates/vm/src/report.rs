//! What /proc/PID/maps, smaps, statm and the audits ask.

use crate::{
    region::{Backing, Region, RegionFlags},
    space::Space,
    Statistics,
};
use abi::ObjectId;
use alloc::{
    boxed::Box,
    sync::Arc,
    vec::{self, Vec},
};
use core::mem::size_of;
use fs::MappingUse;
use machine::{Access, Frame, KernelSet, Page, PageRange, Soft, Step, PAGE_SIZE};
use messages::vm::{AskPeak, Inspect, Listed, PageCounts, Part, Peak, RegionReport, SliceRun, SHARE};
use rangemap::RangeMap;

/// Most regions of one answer. A program may have more than there is memory for a list of all; a list of so many fits into a page, and where
/// memory is used up there may be no two frames side by side for the heap.
pub const REGIONS_LISTED: u32 = (PAGE_SIZE / size_of::<RegionReport>()) as u32;

/// Walks the regions that reach into a range, in address order, and asks their owners in steps. A region that is mapped all
/// the while is listed, also if another kernel takes its pages over meanwhile. A mapping whose parts have several owners is
/// listed as one region. Pages are counted only if [`Space::counted_regions`] made the list.
pub struct RegionList {
    space: Arc<Space>,
    counted: bool,
    /// Regions that a kernel is asked for at a time.
    most: u32,
    rest: PageRange,
    found: vec::IntoIter<RegionReport>,
    /// The last region, which is held back: the next one may continue it.
    last: Option<RegionReport>,
}

impl RegionList {
    /// Has each owner asked for `most` regions at a time, for a caller that may not want all.
    pub fn in_steps_of(self, most: u32) -> RegionList {
        // The next one shows where the last one ends.
        RegionList { most: most + 1, ..self }
    }

    /// The next region, in ascending order; None after the last. Asks other kernels when what they told is used up.
    pub async fn next(&mut self) -> Option<RegionReport> {
        loop {
            let Some(next) = self.found.next() else {
                if self.rest.is_empty() {
                    return self.last.take();
                }
                let (found, end) = Box::pin(self.space.gather(self.rest, self.counted, self.most)).await;
                // The last one may reach beyond the end of what was listed.
                let reached = found.last().map_or(end, |last| last.range.end.max(end));
                self.rest.start = reached.min(self.rest.end);
                self.found = found.into_iter();
                continue;
            };
            match &mut self.last {
                Some(last) if continues(&next, last) => {
                    last.range.end = next.range.end;
                    last.pages.add(next.pages);
                }
                last => {
                    if let Some(done) = last.replace(next) {
                        return Some(done);
                    }
                }
            }
        }
    }
}

/// What one kernel has of a space, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Pages mapped in the slices of this kernel.
    pub mapped: u64,
    /// In frames of this kernel's partition, owned here or by another kernel: memory without a file.
    pub anonymous: u64,
    /// The same: pages of files and shared objects, which may outlive the space.
    pub cached: u64,
    /// Last-level page tables.
    pub tables: u64,
    /// What the kernel would get back if only this space ended: memory it shares with nobody, pages of
    /// objects that nobody else has mapped, its tables and its list of regions.
    pub exclusive: u64,
}

impl Space {
    /// Counts what this kernel has of the space, by a walk through its page table.
    pub fn footprint(&self) -> Footprint {
        let state = self.state.lock();
        let mut sum = Footprint { mapped: state.regions.total(), ..Footprint::default() };
        sum.exclusive = (state.regions.count() * size_of::<Region>() / PAGE_SIZE) as u64;
        let memory = &self.vm.memory;
        let mut last = None;
        self.table.walk(PageRange::user(), &mut |page, mapping| {
            let table = Some(page.0 / (PAGE_SIZE / size_of::<u64>()) as u64);
            if table != last {
                last = table;
                sum.tables += 1;
                sum.exclusive += 1;
            }
            if mapping.frame == self.vm.zero || memory.home_of(mapping.frame) != Some(self.me()) {
                return Step::Keep;
            }
            // The object is one user of its page.
            let users = memory.count(mapping.frame);
            if mapping.soft.contains(Soft::CACHE) {
                sum.cached += 1;
                sum.exclusive += u64::from(users <= 2);
            } else {
                sum.anonymous += 1;
                sum.exclusive += u64::from(users <= 1);
            }
            Step::Keep
        });
        sum
    }

    /// The regions of this kernel's slices that reach into `range`, with their pages `counted`: at a moment at which the kernels that
    /// hold parts of these slices have what they hold. (Others may be given parts meanwhile, over and over: it is not held back.)
    pub(crate) async fn inspect(&self, range: PageRange, counted: bool, most: u32) -> Listed {
        let look = || {
            let state = self.state.lock();
            self.is_certain(&state, range).then(|| {
                let mut there = state.regions.overlapping(range);
                let most = most.clamp(1, REGIONS_LISTED) as usize;
                let regions = there.by_ref().take(most).map(|region| self.report(region, counted)).collect();
                let end = there.next().map_or(range.end, |next| next.range.start);
                Listed { regions, end, holders: self.holders(&state, PageRange::new(range.start, end)) }
            })
        };
        self.changed.wait_until(look).await
    }

    pub(crate) fn mappings_of(&self, object: abi::ObjectId) -> u64 {
        let state = self.state.lock();
        let maps = |region: &&Region| region.backing.as_ref().is_some_and(|backing| backing.object.id() == object);
        state.regions.iter().filter(maps).count() as u64
    }

    pub(crate) fn uses_of(&self, object: abi::ObjectId, usage: MappingUse) -> u64 {
        let state = self.state.lock();
        let counts = |region: &&Region| {
            let used = match usage {
                MappingUse::Writes => region.may_write_through(),
                MappingUse::Executes => region.flags().contains(RegionFlags::PROGRAM),
                MappingUse::Maps => true,
            };
            used && region.backing.as_ref().is_some_and(|backing| backing.object.id() == object)
        };
        state.regions.iter().filter(counts).count() as u64
    }

    fn report(&self, region: &Region, counted: bool) -> RegionReport {
        let pages = if counted { self.count_pages(region) } else { PageCounts::default() };
        RegionReport {
            range: region.range,
            owner: self.me(),
            kind: region.kind,
            backing: region.backing.as_ref().map(|backing| backing.describe()),
            pages,
        }
    }

    /// Counts the present pages of a region that this kernel owns. Users of a page are the spaces of this kernel that have it, not those
    /// of other kernels. A page is dirty if it was written here, or if another kernel may write it.
    fn count_pages(&self, region: &Region) -> PageCounts {
        let mut sum = PageCounts::default();
        // An object counts itself among the users of its pages; pages of an object of another kernel are counted for their mappings.
        let object = |backing: &Backing| backing.object.id().owner == self.me() || backing.object.shared().is_some();
        let counts_itself = u32::from(region.backing.as_ref().is_some_and(object));
        self.table.walk(region.range, &mut |_, mapping| {
            if mapping.frame == self.vm.zero {
                return Step::Keep;
            }
            let (anonymous, exported) = (!mapping.soft.contains(Soft::CACHE), mapping.soft.contains(Soft::EXPORTED));
            let dirty =
                anonymous || mapping.soft.contains(Soft::DIRTY) || exported && mapping.access.contains(Access::WRITE);
            let count = self.vm.memory.count(mapping.frame);
            let users = u64::from(count - if anonymous { 0 } else { counts_itself.min(count) }).max(1);
            let kind = match (users > 1, dirty) {
                (true, false) => &mut sum.shared_clean,
                (true, true) => &mut sum.shared_dirty,
                (false, false) => &mut sum.private_clean,
                (false, true) => &mut sum.private_dirty,
            };
            *kind += 1;
            sum.present += 1;
            sum.exported += u64::from(exported);
            sum.anonymous += u64::from(anonymous);
            sum.proportional += SHARE / users;
            sum.proportional_dirty += if dirty { SHARE / users } else { 0 };
            Step::Keep
        });
        sum
    }

    /// The regions that reach into `range`.
    pub fn regions(self: &Arc<Self>, range: PageRange) -> RegionList {
        let found = Vec::new().into_iter();
        RegionList { space: self.clone(), counted: false, most: REGIONS_LISTED, rest: range, found, last: None }
    }

    /// [`Space::regions`], with their present pages counted.
    pub fn counted_regions(self: &Arc<Self>, range: PageRange) -> RegionList {
        RegionList { counted: true, ..self.regions(range) }
    }

    /// Regions go from the owner of a slice to who is to hold a part of it (handover.rs), and never back:
    ///
    /// ```text
    /// K1 (owner of the slice)             K2                                  K3
    ///                                     <---------------------- Inspect ----
    /// <-------------------------------------------------------- Inspect -----
    /// fault of K2: region R is K2's now   has no R -------------------------->
    /// has no R, K2 is a holder ---------------------------------------------->
    /// ```
    ///
    /// So whoever is named as a holder by the first answer of a kernel is asked after that answer, also if it was asked before. Two may
    /// have the same page in their answers then: the last one counts, and of those of one round either, for both were true meanwhile.
    ///
    /// The answer is complete up to the page that is given with it.
    async fn gather(self: &Arc<Self>, mut range: PageRange, counted: bool, most: u32) -> (Vec<RegionReport>, Page) {
        if !self.state.lock().slices.knows(range) {
            // Without an answer what is known here is reported.
            let _ = self.join_home().await;
        }
        let Listed { regions: mut all, end, holders } = self.inspect(range, counted, most).await;
        range.end = end;
        let mut answered = KernelSet::new();
        answered.insert(self.me());
        let mut next: KernelSet = self.slice_owners(range).iter().chain(holders).collect();
        next.remove(self.me());
        while !next.is_empty() {
            let mut answers = Vec::new();
            if next.remove(self.me()) {
                answers.push((self.me(), self.inspect(range, counted, most).await));
            }
            let ask = Inspect { space: self.id, range, counted, most };
            let others = self.vm.endpoint.multicast(&next, ask).await;
            answers.extend(others.into_iter().filter_map(|(kernel, answer)| Some((kernel, answer.ok()?))));
            let mut named = KernelSet::new();
            for (kernel, Listed { regions, end, holders }) in answers {
                all.extend(regions);
                range.end = range.end.min(end);
                if answered.insert(kernel) {
                    holders.into_iter().for_each(|holder| _ = named.insert(holder));
                }
            }
            next = named;
        }
        all.retain(|region| region.range.start < range.end);
        (newest(all), range.end)
    }

    /// For audits: the parts of slices that have another owner, as far as this replica must know.
    pub fn certain_parts(&self) -> Vec<Part> {
        self.state.lock().slices.certain(PageRange::user(), self.me(), self.id.home)
    }

    /// The most pages it has had (getrusage, VmHWM, VmPeak). Each kernel keeps the peak of what it owns; if they had theirs at different
    /// times, the sum is more than there ever was. A space that never left its kernel costs no message.
    pub async fn peak(&self) -> Peak {
        self.ask_peak(false).await
    }

    /// The most pages that were resident are from now on those that are (clear_refs).
    pub async fn clear_peak(&self) {
        self.ask_peak(true).await;
    }

    async fn ask_peak(&self, clear: bool) -> Peak {
        if self.is_home() {
            return self.serve_peak(true, clear).await;
        }
        let question = AskPeak { space: self.id, everywhere: true, clear };
        // The process dies with its home.
        self.vm.endpoint.call(self.id.home, question).await.unwrap_or_default()
    }

    pub(crate) async fn serve_peak(&self, everywhere: bool, clear: bool) -> Peak {
        let mut sum = Peak { resident: self.table.owned_entries().1, mapped: self.state.lock().regions.most() };
        if clear {
            let _state = self.state.lock();
            self.table.forget_most_owned();
        }
        if everywhere {
            let question = AskPeak { space: self.id, everywhere: false, clear };
            for (_, answer) in self.vm.endpoint.multicast(&self.others(), question).await {
                let there = answer.unwrap_or_default();
                sum = Peak { resident: sum.resident + there.resident, mapped: sum.mapped + there.mapped };
            }
        }
        sum
    }

    /// The sizes of all regions, summed up.
    pub async fn statistics(self: &Arc<Self>) -> Statistics {
        let mut sum = Statistics::default();
        let mut regions = self.counted_regions(PageRange::user());
        while let Some(region) = regions.next().await {
            let flags = RegionFlags::from_bits_truncate(region.kind.flags);
            let pages = region.range.len();
            sum.mapped += pages;
            sum.resident += region.pages.present;
            if flags.contains(RegionFlags::LOCKED) {
                sum.locked += pages;
            }
            if flags.contains(RegionFlags::GROWS_DOWN) {
                sum.stack += pages;
            } else if region.kind.prot.contains(Access::WRITE) && !flags.contains(RegionFlags::SHARED) {
                sum.data += pages;
            } else if region.kind.prot.contains(Access::EXEC) {
                sum.text += pages;
            }
        }
        sum
    }

    /// For audits: who owns which slices, as this replica knows it.
    pub fn slice_runs(&self) -> Vec<SliceRun> {
        self.slices()
    }

    /// The break (the heap starts at the first value). Known at home.
    pub fn heap_range(&self) -> (machine::UserAddr, machine::UserAddr) {
        self.state.lock().heap
    }

    /// For audits: the kernels the owner believes to have pages of it.
    pub fn exports(&self) -> Vec<(PageRange, KernelSet)> {
        self.state.lock().exports.inside(PageRange::user()).map(|(range, set)| (range, set.clone())).collect()
    }

    /// For audits: this kernel's page of zeros.
    pub fn zeros(&self) -> Frame {
        self.vm.zero
    }

    /// For audits: whether this replica owns `page`.
    pub fn owns_page(&self, page: Page) -> bool {
        self.owner(&self.state.lock(), page) == self.me()
    }

    /// For audits: what the region at an owned page allows, and for a shared mapping the page of the object that it
    /// shows.
    pub fn allowed(&self, page: Page) -> Option<(Access, Option<(ObjectId, u64)>)> {
        let state = self.state.lock();
        let region = state.regions.find(page)?;
        let place = region.object_page(page).filter(|_| region.is_shared());
        Some((region.access(), place.map(|(backing, index)| (backing.object.id(), index))))
    }
}

/// Reports in address order, of a page that is in several only the last one.
fn newest(mut all: Vec<RegionReport>) -> Vec<RegionReport> {
    let mut last: RangeMap<Page, usize> = RangeMap::new();
    for (index, report) in all.iter().enumerate() {
        last.insert(report.range.start..report.range.end, index);
    }
    let parts = last.iter().map(|(range, index)| all[*index].take_part(PageRange::new(range.start, range.end)));
    parts.collect()
}

fn continues(next: &RegionReport, last: &RegionReport) -> bool {
    last.range.end == next.range.start
        && last.kind == next.kind
        && !RegionFlags::from_bits_truncate(next.kind.flags).contains(RegionFlags::GROWS_DOWN)
        && match (&last.backing, &next.backing) {
            (None, None) => true,
            (Some(a), Some(b)) => a.object == b.object && a.first + last.range.len() == b.first && a.label == b.label,
            _ => false,
        }
}
