//! fork of a space whose slices have several owners.
//!
//! Problem: the child must see one moment of the parent. If owner A clones its slices and then owner B, a thread
//! elsewhere could write to A's memory after its clone and to B's before: the child would have the second write
//! without the first. Idea: home freezes all owners first. A frozen owner takes no changes and resolves no
//! faults. Then all clone, taking away every writable copy other kernels have. A thread that writes to a page
//! already cloned faults, and its fault waits; so nothing it does afterwards can get into the child. Then
//! home thaws them.
//!
//! ```text
//! thread: write x (A's page, A has cloned) -> fault at A, waits ... thaw -> copy, write
//!         write y (B's page, B not yet)       not before x is done
//! ```
//!
//! Who owns what must not change between two clones either: a range that was handed over (handover.rs) is cloned by its
//! holder, and the child's tables say so at both. The frozen owners name their holders, who are frozen next. A
//! holder hands nothing on, so then all are; and no range is between two owners when a freeze is answered.
//!
//! A change of pages of several owners is one step for a fork, because home makes it under the same freeze (change.rs). An mremap of
//! them takes many steps, which a freeze would hold off as well; so home has forks wait for it instead (remap.rs).
//!
//! Forks of one space go one after the other, because home holds its own right to change things during
//! the whole of it; no other change waits for a second owner while it holds that right, so freezing can't
//! deadlock.

use crate::{
    region::{Region, RegionFlags},
    space::{Ranges, Space, State},
    withdraw::Withdrawal,
};
use alloc::{sync::Arc, vec::Vec};
use machine::{errno::Result, Access, Errno, KernelId, KernelSet, Mapping, PageRange, Soft, SpaceId, Step};
use messages::vm::{CloneSlices, Destroy, Fork, Forked, Freeze, RegionKind, SliceRun, Thaw};

/// Regions that are copied between two checks of the free memory: some pages of the heap.
const AT_A_TIME: usize = 64;

impl Space {
    /// Clones this space, with the home of the clone here. A kernel owns the same ranges of the clone as of this space.
    pub async fn fork(self: &Arc<Self>) -> Result<Arc<Space>> {
        let child = self.vm.replica(self.vm.new_id())?;
        child.state.lock().limits = self.limits();
        let space = self.clone();
        let id = child.id;
        let mut lost = false;
        let forked = match self.is_home() {
            // Alone there is nothing to wait for, and nothing that could be abandoned half-way.
            true if self.others().is_empty() => self.fork_here(id).await,
            true => self.detached(async move { space.fork_here(id).await }).await,
            false => {
                let call = async move {
                    let request = Fork { parent: space.id, child: id };
                    space.vm.endpoint.call(space.id.home, request).await
                };
                let answer = self.detached(call).await;
                lost = answer.is_err();
                answer.unwrap_or_else(|error| Err(Errno::from(error)))
            }
        };
        match forked {
            Ok(Forked { slices, owners, heap }) => {
                let mut state = child.state.lock();
                state.slices.learn(&slices);
                state.members = owners.into_iter().collect();
                state.heap = heap;
            }
            Err(error) => {
                child.drop_everything();
                if lost {
                    // Home has died, and nobody else knows who has made a replica of the child. Who makes one after this asks us
                    // when it hears of the death (death.rs).
                    self.vm.endpoint.multicast(&self.vm.endpoint.others(), Destroy { space: id }).await;
                }
                return Err(error);
            }
        }
        trace::fork_space(self.id.serial, id.serial, self.id.home.0, id.home.0);
        Ok(child)
    }

    /// Clones the space at the parent's home, on all its owners.
    pub(crate) async fn fork_here(self: &Arc<Self>, child: SpaceId) -> Result<Forked> {
        let _heap = self.heap.lock().await;
        let _moving = self.moving.lock().await;
        let _whole = self.whole.lock().await;
        // Home first: afterwards nobody is given a slice.
        let home = self.freeze_all(PageRange::user(), KernelSet::new(), [self.me()].into_iter().collect()).await;
        let frozen = self.freeze_all(PageRange::user(), home, self.owners()).await;
        let mut owners = frozen.clone();
        owners.remove(self.me());
        let (slices, heap) = {
            let state = self.state.lock();
            let mut slices = state.slices.clone();
            if child.home != self.me() {
                // What nobody owns of the child is its home's; what is here must be owned by name.
                state.regions.iter().for_each(|region| slices.claim(region.range, self.me()));
            }
            (slices.runs(), state.heap)
        };
        let mut owners = frozen.clone();
        owners.remove(self.me());
        let clone = CloneSlices { parent: self.id, child, slices: slices.clone() };
        let clones = self.vm.endpoint.multicast(&owners, clone);
        let mut result = self.clone_here(child, &slices).await;
        for (_, answer) in clones.await {
            // An owner that died takes the process with it; that is not decided here.
            result = result.and(answer.unwrap_or(Err(Errno::EIO)));
        }
        self.thaw_all(&frozen);
        if let Err(error) = result {
            self.vm.endpoint.multicast(&owners, Destroy { space: child }).await;
            if child.home != self.me() {
                self.vm.find(child).into_iter().for_each(|child| child.drop_everything());
            }
            return Err(error);
        }
        let mut owners: Vec<_> = owners.iter().collect();
        if child.home != self.me() {
            owners.push(self.me());
            owners.retain(|kernel| *kernel != child.home);
        }
        Ok(Forked { slices, owners, heap })
    }

    /// Freezes `new` and whoever holds parts of their slices in `range`, if they are not in `all` yet; says who is frozen then.
    /// At home, under `whole`.
    pub(crate) async fn freeze_all(
        self: &Arc<Self>,
        range: PageRange,
        mut all: KernelSet,
        new: KernelSet,
    ) -> KernelSet {
        let mut new: KernelSet = new.iter().filter(|kernel| !all.contains(*kernel)).collect();
        while !new.is_empty() {
            all = all.iter().chain(new.iter()).collect();
            let mut holders = Vec::new();
            if new.remove(self.me()) {
                holders = self.freeze(range).await;
            }
            let answers = self.vm.endpoint.multicast(&new, Freeze { space: self.id, range }).await;
            holders.extend(answers.into_iter().flat_map(|(_, answer)| answer.unwrap_or_default()));
            new = holders.into_iter().filter(|holder| !all.contains(*holder)).collect();
        }
        all
    }

    /// Thaws these kernels without waiting for them. One that is frozen again before it has heard of this thaws first.
    pub(crate) fn thaw_all(&self, frozen: &KernelSet) {
        for kernel in frozen.iter() {
            match kernel == self.me() {
                true => self.thaw(),
                // The dead need none.
                false => drop(self.vm.endpoint.send(kernel, Thaw { space: self.id })),
            }
        }
    }

    /// Answers whom parts of this kernel's slices in `range` were handed over to.
    pub(crate) async fn freeze(self: &Arc<Self>, range: PageRange) -> Vec<KernelId> {
        let operating = self.operate().await;
        {
            let mut state = self.state.lock();
            // A dead home thaws nobody.
            if self.is_home() || self.vm.endpoint.is_alive(self.id.home) {
                state.frozen = Some(operating);
            }
        }
        self.certain(range).await;
        let state = self.state.lock();
        self.holders(&state, range)
    }

    pub(crate) fn thaw(&self) {
        // Dropped outside the lock, which its drop takes.
        let operating = self.state.lock().frozen.take();
        drop(operating);
        self.changed.wake_all();
    }

    /// At each owner: gives the child what it owns of the parent, copy-on-write.
    pub(crate) async fn clone_here(self: &Arc<Self>, child: SpaceId, slices: &[SliceRun]) -> Result<()> {
        let child = self.vm.replica(child)?;
        // The replicas of a space whose home has died are given up; this one may have come too late for that.
        if !child.is_home() && !self.vm.endpoint.is_alive(child.id.home) {
            child.drop_everything();
            return Err(Errno::EIO);
        }
        child.learn(slices);
        let mut withdrawal = Withdrawal::new();
        let result = {
            let _copying = self.vm.copying.lock();
            let mut state = self.state.lock();
            let mut copy = child.state.lock();
            copy.limits = state.limits;
            for part in state.slices.certain(PageRange::user(), self.me(), self.id.home) {
                copy.slices.hand(part.range, part.owner);
            }
            self.clone_regions(&mut state, &child, &mut copy, &mut withdrawal)
        };
        let operating = self.state.lock().frozen.clone();
        self.settle_then(operating.as_ref(), withdrawal, |_| ()).await;
        result
    }

    fn clone_regions(
        &self,
        state: &mut State,
        child: &Space,
        copy: &mut State,
        withdrawal: &mut Withdrawal,
    ) -> Result<()> {
        // One after the other: a list of all would have to be in one piece.
        let mut next = state.regions.iter().next().cloned();
        while let Some(region) = next {
            next = state.regions.above(region.range.start).cloned();
            if copy.regions.count() % AT_A_TIME == AT_A_TIME - 1 && !self.vm.memory.has_room() {
                return Err(Errno::ENOMEM);
            }
            let flags = region.flags();
            if flags.contains(RegionFlags::DONT_FORK) {
                continue;
            }
            // Locks are not inherited (man 2 mlock).
            let kind = RegionKind { flags: (flags - RegionFlags::LOCKED).bits(), ..region.kind };
            copy.regions.insert(Region { kind, ..region.clone() });
            // Shared pages are found again through the object.
            if region.is_shared() || flags.contains(RegionFlags::WIPE_ON_FORK) {
                continue;
            }
            self.clone_pages(state, child, region.range, withdrawal)?;
        }
        Ok(())
    }

    fn clone_pages(
        &self,
        state: &mut State,
        child: &Space,
        range: PageRange,
        withdrawal: &mut Withdrawal,
    ) -> Result<()> {
        let mut result = Ok(());
        let mut narrowed = false;
        let mut exported = Ranges::default();
        let mut give = |pages: PageRange, mapping: Mapping| {
            // A run lies in one table: it is mapped whole or not at all.
            let filled = child.table.fill(pages, mapping, &mut |_, _| false);
            match filled {
                // Nobody looks at the child's table yet, and what is in ours stays: we hold its lock.
                Ok(()) => mapping.frame.row(pages.len()).for_each(|frame| self.vm.memory.retain(frame)),
                Err(_) => result = Err(Errno::ENOMEM),
            }
            filled.is_ok()
        };
        self.table.walk_runs(range, u64::MAX, &mut |pages, mapping| {
            if mapping.soft.contains(Soft::BORROWED) {
                return Step::Keep;
            }
            let soft = mapping.soft & Soft::CACHE | Soft::COW;
            let shared = Mapping { access: mapping.access - Access::WRITE, soft, ..mapping };
            if !give(pages, shared) || mapping.soft.contains(Soft::COW) {
                // Already copy-on-write here: then sharers can only read it, and may go on.
                return Step::Keep;
            }
            narrowed = true;
            if mapping.soft.contains(Soft::EXPORTED) {
                exported.add(pages);
            }
            Step::Replace(shared)
        });
        if narrowed {
            self.table.flush(range);
        }
        exported.iter().for_each(|range| withdrawal.unexport(state, range));
        result
    }
}
