//! One kernel's replica of an address space, and the rules for touching it.
//!
//! Locks, outermost first:
//! - *operating*: one structural change at a time (map, unmap, protect, remap, fork) of what this kernel
//!   owns. May be held while other kernels are asked to give pages back, never while another kernel's
//!   operating lock is asked for; only home holds several, for a fork or a change of several owners, one at a time.
//! - `state`: regions, exports and page table change together under it. Never held over an await.
//!
//! Faults take `state` only. The pages that a change is moving or taking back are in `busy`: a fault there waits.

use crate::{
    ahead::Ahead,
    exports::Exports,
    gaps::Gaps,
    region::{Region, RegionFlags, Regions, GUARD_GAP},
    slices::SliceTable,
    vm::Shared,
    window::Windows,
    Limits,
};
use alloc::{collections::BTreeMap, sync::Arc, vec::Vec};
use machine::{
    sync::{AsyncLock, Lock, WaitQueue},
    KernelId, KernelSet, Page, PageRange, PageTable, SpaceId, UserAddr,
};
use slab::Slab;

/// What one kernel holds of an address space.
pub struct Space {
    pub(crate) vm: Arc<Shared>,
    pub(crate) id: SpaceId,
    pub(crate) table: Arc<dyn PageTable>,
    pub(crate) state: Lock<State>,
    /// Woken when a change, or a question to an owner, is over.
    pub(crate) changed: WaitQueue,
    /// At home: held while the break moves, and by a fork. Taken before `whole`.
    pub(crate) heap: AsyncLock<()>,
    /// At home: held while several owners change as one (change.rs, fork.rs). Taken before *operating*.
    pub(crate) whole: AsyncLock<()>,
    /// At home: held by a fork, and while mremap moves pages of several owners (remap.rs). Taken before `whole`.
    pub moving: AsyncLock<()>,
}

/// A question to an owner that has not been answered yet.
pub(crate) struct Pending {
    /// The pages asked for. Faults of other threads on them wait for the answer.
    pub range: PageRange,
    /// Pages that were revoked after the question was sent. The answer's mappings of them are not installed (remote.rs).
    pub poison: Vec<PageRange>,
    /// Pages that the question gives back to the owner, to get them with more access. Until it is answered, mappings of them in
    /// answers to other questions are not installed.
    pub given_back: PageRange,
}

/// What a replica knows of its space, under one lock.
#[derive(Default)]
pub(crate) struct State {
    pub regions: Regions,
    pub slices: SliceTable,
    pub gaps: Gaps,
    /// Which kernels have which pages of this one: those with [`machine::Soft::EXPORTED`].
    pub exports: Exports,
    /// At home: the kernels that have a replica. A kernel is entered when it first asks for anything.
    pub members: KernelSet,
    pub pending: Slab<Pending>,
    /// Pages that a change is moving or taking back: faults there wait.
    pub busy: Vec<PageRange>,
    /// Ranges that were handed over, until their new owner confirms it (handover.rs).
    pub granting: Vec<(PageRange, KernelId)>,
    /// A structural change is going on.
    pub operating: bool,
    /// Set during a fork: faults and changes wait.
    pub frozen: Option<Operating>,
    /// At home: the start of the heap, and the break.
    pub heap: (UserAddr, UserAddr),
    pub limits: Limits,
    /// The space has ended. A late answer installs nothing.
    pub gone: bool,
    /// Pages that an owner sent could not be mapped, because there was no memory for a page table.
    pub no_table: bool,
    pub windows: Windows,
    pub ahead: Ahead,
    /// How many zeroed frames the next question offers to an owner (remote.rs).
    pub offers: u16,
    pub faults: FaultCount,
}

/// Faults resolved so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCount {
    /// By this kernel alone.
    pub local: u64,
    /// By asking an owner.
    pub remote: u64,
}

impl State {
    pub fn new() -> Self {
        State { offers: 1, ..State::default() }
    }

    /// Enters a question about `range` before it is sent; answers its key in `pending`.
    pub fn ask(&mut self, range: PageRange, given_back: PageRange) -> usize {
        let given = self.pending.iter().map(|(_, pending)| pending.given_back);
        let poison = given.filter(|range| !range.is_empty()).collect();
        self.pending.insert(Pending { range, poison, given_back })
    }

    /// Makes answers that are under way install nothing in `ranges`.
    pub fn poison(&mut self, ranges: &[PageRange]) {
        for (_, pending) in self.pending.iter_mut() {
            pending.poison.extend_from_slice(ranges);
        }
    }

    /// Whether a fault in `range` must wait for a change or a fork.
    pub fn is_busy(&self, range: PageRange) -> bool {
        self.frozen.is_some() || self.busy.iter().any(|busy| !busy.intersect(range).is_empty())
    }

    /// The region at `page`, which this kernel (`me`) owns. A stack above `page` grows down to it if it may.
    pub fn region_for_fault(&mut self, page: Page, me: KernelId, home: KernelId) -> Option<Region> {
        if let Some(region) = self.regions.find(page) {
            return Some(region.clone());
        }
        let stack = self.regions.above(page).filter(|r| r.flags().contains(RegionFlags::GROWS_DOWN))?;
        let (start, pages) = (stack.range.start, stack.range.end.0 - page.0);
        if pages > self.limits.stack >> machine::PAGE_BITS || page.address().0 < crate::MMAP_MIN {
            return None;
        }
        // Linux keeps the gap below a growing stack unless the neighbour can't be touched anyway.
        let too_near = self.regions.below(page).is_some_and(|below| {
            below.range.end.0 + GUARD_GAP > page.0
                && !below.flags().contains(RegionFlags::GROWS_DOWN)
                && !below.kind.prot.is_empty()
        });
        // What is mapped where another kernel owns something in between is not known here: no stack grows over that.
        let between = PageRange::new(Page(page.0.saturating_sub(GUARD_GAP)), start);
        if too_near || self.slices.sole_owner(between, home) != Some(me) {
            return None;
        }
        self.regions.grow_down(start, page);
        self.regions.find(page).cloned()
    }
}

/// The *operating* lock, held until the last clone is dropped. A task that finishes a change after its caller has gone holds a clone.
#[derive(Clone)]
pub(crate) struct Operating(#[allow(dead_code)] Arc<OperatingGuard>);

struct OperatingGuard(Arc<Space>);

impl Drop for OperatingGuard {
    fn drop(&mut self) {
        self.0.state.lock().operating = false;
        self.0.changed.wake_all();
    }
}

impl Space {
    /// Its name on all kernels.
    pub fn id(&self) -> SpaceId {
        self.id
    }

    /// The page table of this kernel, to run threads on.
    pub fn table(&self) -> &Arc<dyn PageTable> {
        &self.table
    }

    pub(crate) fn me(&self) -> KernelId {
        self.vm.memory.kernel()
    }

    pub(crate) fn is_home(&self) -> bool {
        self.id.home == self.me()
    }

    /// Sets the limits on this replica only; [`Space::limit`] tells all kernels.
    pub fn set_limits(&self, limits: Limits) {
        self.state.lock().limits = limits;
    }

    /// The limits as this replica knows them.
    pub fn limits(&self) -> Limits {
        self.state.lock().limits
    }

    /// How many faults of this replica's threads have been resolved.
    pub fn fault_count(&self) -> FaultCount {
        self.state.lock().faults
    }

    /// The owner of `page`, as far as this replica knows.
    pub(crate) fn owner(&self, state: &State, page: Page) -> KernelId {
        state.slices.owner(page).unwrap_or(self.id.home)
    }

    /// The owner of the slice that `page` lies in.
    pub(crate) fn slice_owner(&self, state: &State, page: Page) -> KernelId {
        state.slices.slice_owner(page).unwrap_or(self.id.home)
    }

    /// Whether this kernel owns all of `range`.
    pub(crate) fn owns(&self, state: &State, range: PageRange) -> bool {
        state.slices.sole_owner(range, self.id.home) == Some(self.me())
    }

    /// The owners of all slices, home among them.
    pub(crate) fn owners(&self) -> KernelSet {
        self.state.lock().slices.owners().chain([self.id.home]).collect()
    }

    /// The owners of the slices that `range` touches.
    pub(crate) fn slice_owners(&self, range: PageRange) -> KernelSet {
        let slices = &self.state.lock().slices;
        let unowned = (!slices.knows(range)).then_some(self.id.home);
        slices.owners_in(range).chain(unowned).collect()
    }

    /// The other kernels whose replica may hold something. Complete at home only.
    pub(crate) fn others(&self) -> KernelSet {
        let state = self.state.lock();
        let mut set = state.members.clone();
        for owner in state.slices.owners() {
            set.insert(owner);
        }
        set.remove(self.me());
        set
    }

    /// Takes the *operating* lock.
    pub(crate) async fn operate(self: &Arc<Self>) -> Operating {
        self.changed
            .wait_until(|| {
                let mut state = self.state.lock();
                let free = !state.operating;
                state.operating = true;
                free.then(|| Operating(Arc::new(OperatingGuard(self.clone()))))
            })
            .await
    }
}

/// A set of ranges. Those that are added one behind the other are merged.
#[derive(Default)]
pub(crate) struct Ranges(BTreeMap<Page, Page>);

impl Ranges {
    pub fn add(&mut self, range: PageRange) {
        if let Some(mut last) = self.0.last_entry() {
            if *last.get() == range.start {
                *last.get_mut() = range.end;
                return;
            }
        }
        self.0.insert(range.start, range.end);
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = PageRange> + '_ {
        self.0.iter().map(|(start, end)| PageRange::new(*start, *end))
    }

    pub fn into_vec(self) -> Vec<PageRange> {
        self.0.into_iter().map(|(start, end)| PageRange::new(start, end)).collect()
    }
}
