//! One kernel's replica of an address space, and the rules for touching it.
//!
//! Locks, outermost first:
//! - *operating*: one structural change at a time (map, unmap, protect, remap, fork) of what this kernel
//!   owns. May be held while other kernels are asked to give pages back, never while another kernel's
//!   operating lock is asked for; only home holds several, for a fork or a change of several owners, one at a time.
//! - `state`: regions, exports and page table change together under it. Never held over an await.
//!
//! Faults take `state` only. What a change has under way is in `busy`: a fault there waits.

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
    /// Woken when a change or a request of a page is over.
    pub(crate) changed: WaitQueue,
    /// At home: held while the break moves, and by a fork. Taken before `whole`.
    pub(crate) heap: AsyncLock<()>,
    /// At home: held while several owners change as one (change.rs, fork.rs). Taken before *operating*.
    pub(crate) whole: AsyncLock<()>,
    /// At home: a fork does not begin while pages of several owners move, nor they during one (remap.rs). Taken before `whole`.
    pub moving: AsyncLock<()>,
}

/// A question to an owner that has no answer yet. See remote.rs for why it can be poisoned.
pub(crate) struct Pending {
    /// Who touches this waits for the answer.
    pub range: PageRange,
    pub poison: Vec<PageRange>,
    /// The owner is told with it that this was given back: no answer to another question may bring it before this one's.
    pub given_back: PageRange,
}

#[derive(Default)]
pub(crate) struct State {
    pub regions: Regions,
    pub slices: SliceTable,
    pub gaps: Gaps,
    /// Kernels that have an owned page, for pages with [`machine::Soft::EXPORTED`].
    pub exports: Exports,
    /// At home: the kernels that have a replica, as far as they have ever asked for anything.
    pub members: KernelSet,
    pub pending: Slab<Pending>,
    /// Pages a change is moving: faults wait.
    pub busy: Vec<PageRange>,
    /// Ranges handed over whose new owner has not confirmed it (handover.rs).
    pub granting: Vec<(PageRange, KernelId)>,
    /// A structural change is going on.
    pub operating: bool,
    /// A fork is going on: faults and changes wait.
    pub frozen: Option<Operating>,
    /// Where the heap starts, and the break. Meaningful at home only.
    pub heap: (UserAddr, UserAddr),
    pub limits: Limits,
    /// The space has ended; an answer that comes late installs nothing.
    pub gone: bool,
    /// A page that an owner sent found no table.
    pub no_table: bool,
    pub windows: Windows,
    pub ahead: Ahead,
    /// Frames the next question to an owner offers (remote.rs).
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

    /// A question about `range` goes out; gives its key.
    pub fn ask(&mut self, range: PageRange, given_back: PageRange) -> usize {
        let given = self.pending.iter().map(|(_, pending)| pending.given_back);
        let poison = given.filter(|range| !range.is_empty()).collect();
        self.pending.insert(Pending { range, poison, given_back })
    }

    /// Nothing of `ranges` may come with an answer that is under way.
    pub fn poison(&mut self, ranges: &[PageRange]) {
        for (_, pending) in self.pending.iter_mut() {
            pending.poison.extend_from_slice(ranges);
        }
    }

    pub fn is_busy(&self, range: PageRange) -> bool {
        self.frozen.is_some() || self.busy.iter().any(|busy| !busy.intersect(range).is_empty())
    }

    /// The region at `page`, which is `me`'s; a stack grows if that makes it one.
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

/// The right to change the structure of what this kernel owns, until the last clone is dropped. A task
/// that finishes a change its caller may abandon holds a clone.
#[derive(Clone)]
pub(crate) struct Operating(#[allow(dead_code)] Arc<Held>);

struct Held(Arc<Space>);

impl Drop for Held {
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

    /// Faults of this replica so far.
    pub fn fault_count(&self) -> FaultCount {
        self.state.lock().faults
    }

    pub(crate) fn owner(&self, state: &State, page: Page) -> KernelId {
        state.slices.owner(page).unwrap_or(self.id.home)
    }

    /// Who owns the slice of `page`.
    pub(crate) fn slice_owner(&self, state: &State, page: Page) -> KernelId {
        state.slices.slice_owner(page).unwrap_or(self.id.home)
    }

    /// Whether all of `range` is this kernel's.
    pub(crate) fn owns(&self, state: &State, range: PageRange) -> bool {
        state.slices.sole_owner(range, self.id.home) == Some(self.me())
    }

    /// The owners of all slices, home among them.
    pub(crate) fn owners(&self) -> KernelSet {
        self.state.lock().slices.owners().chain([self.id.home]).collect()
    }

    pub(crate) fn slice_owners(&self, range: PageRange) -> KernelSet {
        let slices = &self.state.lock().slices;
        let unowned = (!slices.knows(range)).then_some(self.id.home);
        slices.owners_in(range).chain(unowned).collect()
    }

    /// The kernels whose replica may hold something, without this one. Complete at home only.
    pub(crate) fn others(&self) -> KernelSet {
        let state = self.state.lock();
        let mut set = state.members.clone();
        for owner in state.slices.owners() {
            set.insert(owner);
        }
        set.remove(self.me());
        set
    }

    pub(crate) async fn operate(self: &Arc<Self>) -> Operating {
        self.changed
            .wait_until(|| {
                let mut state = self.state.lock();
                let free = !state.operating;
                state.operating = true;
                free.then(|| Operating(Arc::new(Held(self.clone()))))
            })
            .await
    }
}

/// Owned pages of a set of ranges, merged, to be taken back from kernels that have them.
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
