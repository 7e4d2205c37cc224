//! What /proc/PID/maps, smaps, statm and the audits ask.

use crate::{
    region::{Region, RegionFlags},
    space::Space,
    Statistics,
};
use abi::ObjectId;
use alloc::{sync::Arc, vec::Vec};
use core::mem::size_of;
use machine::{Access, KernelId, KernelSet, Page, PageRange, Soft, Step, PAGE_SIZE};
use messages::vm::{Inspect, Part, RegionReport, SliceRun};
use rangemap::RangeMap;

/// What one kernel has of a space, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Mapped in the slices of this kernel.
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

    /// The regions of this kernel's slices that reach into `range`, with their pages `counted`, and the kernels that hold parts of
    /// these slices there: at a moment at which they have what they hold. (Others may be given parts meanwhile, over and over: it is
    /// not held back.)
    pub(crate) async fn inspect(&self, range: PageRange, counted: bool) -> (Vec<RegionReport>, Vec<KernelId>) {
        let look = || {
            let state = self.state.lock();
            let certain = self.is_certain(&state, range);
            certain.then(|| {
                let regions = state.regions.overlapping(range).map(|region| self.report(region, counted)).collect();
                (regions, self.holders(&state, range))
            })
        };
        self.changed.wait_until(look).await
    }

    pub(crate) fn mappings_of(&self, object: abi::ObjectId) -> u64 {
        let state = self.state.lock();
        let maps = |region: &&Region| region.backing.as_ref().is_some_and(|backing| backing.object.id() == object);
        state.regions.iter().filter(maps).count() as u64
    }

    fn report(&self, region: &Region, counted: bool) -> RegionReport {
        let (mut resident, mut exported) = (0, 0);
        if counted {
            self.table.walk(region.range, &mut |_, mapping| {
                resident += u64::from(mapping.frame != self.vm.zero);
                exported += u64::from(mapping.soft.contains(Soft::EXPORTED));
                Step::Keep
            });
        }
        RegionReport {
            range: region.range,
            owner: self.me(),
            kind: region.kind,
            backing: region.backing.as_ref().map(|backing| backing.describe()),
            resident,
            exported,
            touched: 0,
        }
    }

    /// All regions of the space, in address order; nobody counts their pages. What is
    /// mapped all the while is seen, whoever has it when.
    pub async fn regions(self: &Arc<Self>) -> Vec<RegionReport> {
        self.regions_in(PageRange::user()).await
    }

    /// Those that reach into `range`, whole as far as the owners of `range` have them.
    pub async fn regions_in(self: &Arc<Self>, range: PageRange) -> Vec<RegionReport> {
        self.gather(range, false).await
    }

    /// [`Space::regions`], with what is present of them.
    pub async fn counted_regions(self: &Arc<Self>) -> Vec<RegionReport> {
        self.gather(PageRange::user(), true).await
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
    async fn gather(self: &Arc<Self>, range: PageRange, counted: bool) -> Vec<RegionReport> {
        if !self.state.lock().slices.knows(range) {
            // Without an answer what is known here is reported.
            let _ = self.join_home().await;
        }
        let (mut all, holders) = self.inspect(range, counted).await;
        let mut answered = KernelSet::new();
        answered.insert(self.me());
        let mut next: KernelSet = self.slice_owners(range).iter().chain(holders).collect();
        next.remove(self.me());
        while !next.is_empty() {
            if next.remove(self.me()) {
                all.extend(self.inspect(range, counted).await.0);
            }
            let mut named = KernelSet::new();
            let ask = Inspect { space: self.id, range, counted };
            for (kernel, answer) in self.vm.endpoint.multicast(&next, ask).await {
                let Ok((regions, holders)) = answer else { continue };
                all.extend(regions);
                if answered.insert(kernel) {
                    holders.into_iter().for_each(|holder| _ = named.insert(holder));
                }
            }
            next = named;
        }
        join(newest(all))
    }

    /// For audits: the parts of slices that have another owner, as far as this replica must know.
    pub fn certain_parts(&self) -> Vec<Part> {
        self.state.lock().slices.certain(PageRange::user(), self.me(), self.id.home)
    }

    /// Sums over all regions.
    pub async fn statistics(self: &Arc<Self>) -> Statistics {
        let mut sum = Statistics::default();
        for region in self.counted_regions().await {
            let flags = RegionFlags::from_bits_truncate(region.kind.flags);
            let pages = region.range.len();
            sum.mapped += pages;
            sum.resident += region.resident;
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

    /// Who owns which slices, as this replica knows it (/proc/PID/cob).
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

/// Makes one of what is one to the program: a region whose parts have several owners.
fn join(all: Vec<RegionReport>) -> Vec<RegionReport> {
    let mut joined: Vec<RegionReport> = Vec::with_capacity(all.len());
    for next in all {
        match joined.last_mut() {
            Some(last) if continues(&next, last) => {
                last.range.end = next.range.end;
                last.resident += next.resident;
                last.exported += next.exported;
            }
            _ => joined.push(next),
        }
    }
    joined
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
