//! Changes go to the owner of what they change.
//!
//! Whoever wants a change cuts its range by the owners it knows. If that is one kernel, it makes the change itself
//! or has the owner make it, which refuses with what it knows if it is not the owner. The owner of a slice is never
//! out of date about its parts, nor is home about slices, so this ends.
//!
//! Problem: a range may have several owners, and to the program the change is one step all the same. Made owner by owner,
//! a fork could come in between, or a thread that finds the first page unmapped and then the second one mapped:
//!
//! ```text
//! munmap of x (A's) and y (B's)        a thread elsewhere
//!   A: x is gone
//!                                      x faults: gone. y: still there
//!   B: y is gone
//! ```
//!
//! Idea: home makes such changes, one at a time and never during a fork (`whole`). It freezes the owners of the range as a
//! fork does: no faults, no other changes, and nothing is handed over. Then each changes its part, and home thaws them.

use crate::{
    region::{Backing, RegionFlags},
    shared::SharedMemory,
    space::{Operating, Space},
};
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use machine::{errno::Result, Errno, KernelId, KernelSet, Page, PageRange};
use messages::vm::{Change, ChangeAll, ChangeReply, Operation, SliceRun, TakeSlices};

/// The pages that an operation changes. Of `Remap` these are the old ones: their owner takes care of the new place.
fn range_of(operation: &Operation) -> PageRange {
    match operation {
        Operation::Map { range, .. }
        | Operation::Unmap { range }
        | Operation::Protect { range, .. }
        | Operation::Advise { range, .. }
        | Operation::Sync { range, .. }
        | Operation::Lock { range, .. } => *range,
        Operation::Remap { from, .. } if from.is_empty() => PageRange::one(from.start),
        // It can't be cut: remap.rs sees to it that one kernel has it all.
        Operation::Remap { from, .. } => *from,
        Operation::Break { .. } | Operation::Place { .. } => PageRange::user(),
    }
}

/// The same operation, on `part` of its range only.
fn restrict(operation: &Operation, part: PageRange) -> Operation {
    let mut piece = operation.clone();
    match &mut piece {
        Operation::Map { range, backing, .. } => {
            if let Some(backing) = backing {
                backing.first += part.start.0 - range.start.0;
            }
            *range = part;
        }
        Operation::Unmap { range }
        | Operation::Protect { range, .. }
        | Operation::Advise { range, .. }
        | Operation::Sync { range, .. }
        | Operation::Lock { range, .. } => *range = part,
        Operation::Remap { .. } | Operation::Break { .. } | Operation::Place { .. } => {}
    }
    piece
}

impl Space {
    /// Makes a change on all kernels that own something of its range, as one step. Futures of rare cases are boxed, here and below:
    /// otherwise the common change of memory that this kernel owns would reserve room for them.
    pub(crate) async fn change(self: &Arc<Self>, operation: Operation) -> Result<u64> {
        let whole = range_of(&operation);
        if whole.is_empty() {
            return Ok(0);
        }
        loop {
            let owner = match &operation {
                Operation::Break { .. } => self.id.home,
                Operation::Place { backing, .. } => backing.object.owner,
                _ => match self.sole_owner(whole) {
                    Some(owner) => owner,
                    None if matches!(operation, Operation::Sync { .. }) => {
                        return Box::pin(self.change_parts(operation, false)).await
                    }
                    None => return Box::pin(self.change_at_home(operation)).await,
                },
            };
            if let Some(done) = self.change_at(owner, whole, operation.clone(), false).await? {
                return Ok(done);
            }
        }
    }

    pub(crate) async fn change_at_home(self: &Arc<Self>, operation: Operation) -> Result<u64> {
        if self.is_home() {
            let space = self.clone();
            // Who is frozen must be thawed.
            return self.detached(async move { space.change_frozen(operation).await }).await;
        }
        let message = ChangeAll { space: self.id, operation };
        self.vm.endpoint.call(self.id.home, message).await.map_err(Errno::from)?
    }

    /// At home: makes a change in a range that several kernels own.
    pub(crate) async fn change_frozen(self: &Arc<Self>, operation: Operation) -> Result<u64> {
        if let Operation::Remap { from, pages, flags, to } = operation {
            return self.remap_at_home(from, pages, flags, to).await;
        }
        let _whole = self.whole.lock().await;
        let range = range_of(&operation);
        let owners = self.slice_owners(range);
        let owners = self.freeze_all(range, KernelSet::new(), owners).await;
        let result = self.change_parts(operation, true).await;
        self.thaw_all(&owners);
        result
    }

    /// Makes a change owner by owner, in address order. The result is that of the last part.
    async fn change_parts(self: &Arc<Self>, mut operation: Operation, frozen: bool) -> Result<u64> {
        let whole = range_of(&operation);
        if let Operation::Map { replace: false, .. } = operation {
            self.check_free(whole).await?;
        }
        // Keeps what the parts share until all of them have it.
        let _memory = self.give_one_memory(&mut operation);
        let (mut rest, mut result) = (whole, 0);
        while !rest.is_empty() {
            let (owner, part) = self.pieces(rest)[0];
            if let Some(done) = self.change_at(owner, part, restrict(&operation, part), frozen).await? {
                result = done;
                rest.start = part.end;
            }
        }
        Ok(result)
    }

    /// Gives shared memory that is mapped in ranges of several owners one object, which this kernel owns.
    fn give_one_memory(&self, operation: &mut Operation) -> Option<Backing> {
        let Operation::Map { range, kind, backing: backing @ None, .. } = operation else { return None };
        if !RegionFlags::from_bits_truncate(kind.flags).contains(RegionFlags::SHARED) {
            return None;
        }
        let memory = SharedMemory::backing(self.vm.clone(), range.len());
        *backing = Some(memory.describe());
        Some(memory)
    }

    /// Asks `owner` to change `part`. None: it is not the owner, and its answer has been entered in the tables.
    pub(crate) async fn change_at(
        self: &Arc<Self>,
        owner: KernelId,
        part: PageRange,
        operation: Operation,
        frozen: bool,
    ) -> Result<Option<u64>> {
        let changed = match owner == self.me() {
            true => self.perform(operation, frozen).await,
            false => Box::pin(self.have_changed(owner, part, operation, frozen)).await?,
        };
        match changed {
            ChangeReply::Done(done) => done.map(Some),
            ChangeReply::Moved(news) => {
                self.correct(owner, &news);
                Ok(None)
            }
        }
    }

    async fn have_changed(
        &self,
        owner: KernelId,
        part: PageRange,
        operation: Operation,
        frozen: bool,
    ) -> Result<ChangeReply> {
        self.certain(part).await;
        let message = Change { space: self.id, operation, frozen };
        self.vm.endpoint.call(owner, message).await.map_err(Errno::from)
    }

    pub(crate) fn pieces(&self, range: PageRange) -> Vec<(KernelId, PageRange)> {
        self.state.lock().slices.pieces(range, self.id.home)
    }

    fn sole_owner(&self, range: PageRange) -> Option<KernelId> {
        self.state.lock().slices.sole_owner(range, self.id.home)
    }

    pub(crate) fn slices(&self) -> Vec<SliceRun> {
        self.state.lock().slices.runs()
    }

    pub(crate) fn learn(&self, slices: &[SliceRun]) {
        self.state.lock().slices.learn(slices);
    }

    /// Home remembers that `kernel` has a replica. Every replica comes to home first, because it knows
    /// no other owner.
    pub(crate) fn join(&self, kernel: KernelId) {
        if self.is_home() && kernel != self.me() {
            self.state.lock().members.insert(kernel);
        }
    }

    /// Whether this kernel owns all of `range`, asked before it serves another kernel. Home first takes the slices that nobody owns, so that
    /// the other kernel may remember the answer. Any other kernel may own a slice without having heard of it yet, and asks home.
    pub(crate) async fn check_owned(self: &Arc<Self>, range: PageRange) -> bool {
        self.certain(range).await;
        let (owned, known) = {
            let mut state = self.state.lock();
            if self.is_home() && range.len() <= crate::slices::SLICE_PAGES {
                state.slices.claim(range, self.me());
            }
            (self.owns(&state, range), state.slices.knows(range))
        };
        if owned || known || self.is_home() {
            return owned;
        }
        // Without an answer what is known here counts.
        let _ = self.join_home().await;
        self.owns(&self.state.lock(), range)
    }

    /// Serves a change that another kernel asks for.
    pub(crate) async fn serve_change(
        self: &Arc<Self>,
        from: KernelId,
        operation: Operation,
        frozen: bool,
    ) -> ChangeReply {
        self.join(from);
        let anywhere = matches!(operation, Operation::Break { .. } | Operation::Place { .. });
        if !anywhere && !self.check_owned(range_of(&operation)).await {
            return ChangeReply::Moved(self.news(range_of(&operation)));
        }
        self.perform(operation, frozen).await
    }

    /// At home: gives `from` slices to make mappings in.
    pub(crate) async fn serve_slices(self: &Arc<Self>, from: KernelId, count: u32) -> Result<SliceRun> {
        self.join(from);
        // Not while something is being mapped there, and not during a fork.
        let _operating = self.operate().await;
        let mut state = self.state.lock();
        let state = &mut *state;
        let regions = &state.regions;
        state.slices.take(count, from, |range| regions.is_free(range)).ok_or(Errno::ENOMEM)
    }

    /// Gets more slices for mappings of this kernel.
    pub(crate) async fn take_slices(self: &Arc<Self>, pages: u64) -> Result<()> {
        let count = pages.div_ceil(crate::slices::SLICE_PAGES).max(1) as u32;
        let request = TakeSlices { space: self.id, count };
        let run = self.vm.endpoint.call(self.id.home, request).await.map_err(Errno::from)??;
        self.learn(&[run]);
        Ok(())
    }

    /// Makes a change in memory that this kernel owns. `frozen`: home asks, which has frozen this kernel.
    async fn perform(self: &Arc<Self>, operation: Operation, frozen: bool) -> ChangeReply {
        if let Operation::Break { to } = operation {
            return ChangeReply::Done(Box::pin(self.break_here(to)).await);
        }
        if let Operation::Place { pages, kind, backing } = operation {
            return ChangeReply::Done(Box::pin(self.place_here(pages, kind, backing)).await);
        }
        let held = if frozen { self.state.lock().frozen.clone() } else { None };
        let operating = match held {
            Some(operating) => operating,
            None => self.operate().await,
        };
        let range = range_of(&operation);
        if !self.owns(&self.state.lock(), range) {
            return ChangeReply::Moved(self.news(range));
        }
        if let Operation::Remap { from, pages, flags, to } = operation {
            return match Box::pin(self.remap_here(operating, from, pages, flags, to)).await {
                Ok(Some(done)) => ChangeReply::Done(Ok(done)),
                Ok(None) => ChangeReply::Moved(self.news(range)),
                Err(error) => ChangeReply::Done(Err(error)),
            };
        }
        ChangeReply::Done(self.perform_owned(operating, operation).await)
    }

    async fn perform_owned(self: &Arc<Self>, operating: Operating, operation: Operation) -> Result<u64> {
        let held = &operating;
        match operation {
            Operation::Map { range, replace, kind, backing } => {
                let backing = match backing {
                    None => None,
                    some => Box::pin(self.resolve_backing(some)).await?,
                };
                self.map_here(held, range, replace, kind, backing).await
            }
            Operation::Unmap { range } => {
                self.state.lock().regions.check_cuts(range, true)?;
                self.unmap_here(held, range).await;
                Ok(0)
            }
            Operation::Protect { range, prot } => self.protect_here(held, range, prot).await,
            Operation::Advise { range, advice } => Box::pin(self.advise_here(held, range, advice)).await,
            Operation::Sync { range, flags } => {
                // Writing back changes no structure, and may take long.
                drop(operating);
                Box::pin(self.sync_here(range, flags)).await
            }
            Operation::Lock { range, on } => self.lock_here(range, on),
            // They don't come here: they are made of other changes, see `perform`.
            Operation::Break { .. } | Operation::Place { .. } | Operation::Remap { .. } => Err(Errno::EINVAL),
        }
    }
}

/// `length` bytes at `start`, as the memory calls take them: `start` aligned, length rounded up, inside user space.
pub(crate) fn checked_range(start: machine::UserAddr, length: u64) -> Option<PageRange> {
    if start.offset() != 0 {
        return None;
    }
    PageRange::of(start, length)
}

/// The pages of `pages` pages at `start`, if they are user space.
pub(crate) fn pages_at(start: Page, pages: u64) -> Option<PageRange> {
    let end = Page(start.0.checked_add(pages)?);
    (end <= PageRange::user().end).then(|| PageRange::new(start, end))
}
