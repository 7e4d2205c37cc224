//! Changes go to the owners of what they change, piece by piece in address order.
//!
//! Whoever wants a change cuts its range by the slice table it knows. A piece of its own it changes itself; for
//! another it asks the owner, which refuses with its own slice table if it is not the owner. Home's table is
//! never out of date, so this ends.

use crate::space::{Operating, Space};
use alloc::{sync::Arc, vec::Vec};
use machine::{errno::Result, Errno, KernelId, Page, PageRange};
use messages::vm::{Change, Changed, ListSlices, Operation, SliceRun, TakeSlices};

/// The pages an operation changes; what is moved elsewhere by `Remap` is the owner's business.
fn range_of(operation: &Operation) -> PageRange {
    match operation {
        Operation::Map { range, .. }
        | Operation::Unmap { range }
        | Operation::Protect { range, .. }
        | Operation::Advise { range, .. }
        | Operation::Sync { range, .. }
        | Operation::Lock { range, .. }
        | Operation::Import { range, .. } => *range,
        // What can't be cut: the owner of its first page has it all.
        Operation::Remap { from, .. } => PageRange::one(from.start),
        Operation::Break { .. } | Operation::Place { .. } => PageRange::user(),
    }
}

/// The operation on `part` of its range only.
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
        Operation::Remap { .. } | Operation::Break { .. } | Operation::Place { .. } | Operation::Import { .. } => {}
    }
    piece
}

impl Space {
    /// Makes a change wherever it has to be made. The result is that of the last piece.
    pub(crate) async fn change(self: &Arc<Self>, operation: Operation) -> Result<u64> {
        let whole = range_of(&operation);
        let mut rest = whole;
        let mut result = 0;
        while !rest.is_empty() {
            let (owner, part) = match operation {
                Operation::Break { .. } => (self.id.home, rest),
                Operation::Place { ref backing, .. } => (backing.object.owner, rest),
                _ => self.pieces(rest)[0],
            };
            let piece = restrict(&operation, part);
            let changed = match owner == self.me() {
                true => self.perform(piece).await,
                false => {
                    let message = Change { space: self.id, operation: piece };
                    self.vm.endpoint.call(owner, message).await.map_err(Errno::from)?
                }
            };
            match changed {
                Changed::Done(done) => {
                    result = done?;
                    rest.start = part.end;
                }
                Changed::Moved(slices) => self.learn(&slices),
            }
        }
        Ok(result)
    }

    pub(crate) fn pieces(&self, range: PageRange) -> Vec<(KernelId, PageRange)> {
        self.state.lock().slices.pieces(range, self.id.home)
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

    /// Whether all of `range` is this kernel's, before serving another kernel. Home takes what nobody owns for
    /// good, so that the other may remember it; any other kernel may have been given it so recently that
    /// it has not heard, and asks.
    pub(crate) async fn check_owned(self: &Arc<Self>, range: PageRange) -> bool {
        let owned = {
            let mut state = self.state.lock();
            if self.is_home() && range.len() <= crate::slices::SLICE_PAGES {
                state.slices.claim(range, self.me());
            }
            self.owns(&state, range)
        };
        if owned || self.is_home() {
            return owned;
        }
        let table = self.vm.endpoint.call(self.id.home, ListSlices { space: self.id }).await;
        if let Ok(Ok(slices)) = table {
            self.learn(&slices);
        }
        self.owns(&self.state.lock(), range)
    }

    /// A change that another kernel asks for.
    pub(crate) async fn serve_change(self: &Arc<Self>, from: KernelId, operation: Operation) -> Changed {
        self.join(from);
        let anywhere = matches!(operation, Operation::Break { .. } | Operation::Place { .. });
        if !anywhere && !self.check_owned(range_of(&operation)).await {
            return Changed::Moved(self.slices());
        }
        self.perform(operation).await
    }

    /// Slices for `from` to map in.
    pub(crate) async fn serve_slices(self: &Arc<Self>, from: KernelId, count: u32) -> Result<SliceRun> {
        self.join(from);
        // Not while something is being mapped there, and not during a fork.
        let _operating = self.operate().await;
        let mut state = self.state.lock();
        let state = &mut *state;
        let regions = &state.regions;
        state.slices.take(count, from, |range| regions.is_free(range)).ok_or(Errno::ENOMEM)
    }

    /// More room for mappings of this kernel.
    pub(crate) async fn take_slices(self: &Arc<Self>, pages: u64) -> Result<()> {
        let count = pages.div_ceil(crate::slices::SLICE_PAGES).max(1) as u32;
        let request = TakeSlices { space: self.id, count };
        let run = self.vm.endpoint.call(self.id.home, request).await.map_err(Errno::from)??;
        self.learn(&[run]);
        Ok(())
    }

    /// Changes what this kernel owns.
    async fn perform(self: &Arc<Self>, operation: Operation) -> Changed {
        if let Operation::Break { to } = operation {
            return Changed::Done(self.break_here(to).await);
        }
        if let Operation::Place { pages, kind, backing } = operation {
            return Changed::Done(self.place_here(pages, kind, backing).await);
        }
        let operating = self.operate().await;
        let range = range_of(&operation);
        if !self.owns(&self.state.lock(), range) {
            return Changed::Moved(self.slices());
        }
        Changed::Done(self.perform_owned(operating, operation).await)
    }

    async fn perform_owned(self: &Arc<Self>, operating: Operating, operation: Operation) -> Result<u64> {
        let held = &operating;
        match operation {
            Operation::Map { range, replace, kind, backing } => {
                let backing = self.resolve_backing(backing).await?;
                self.map_here(held, range, replace, kind, backing).await
            }
            Operation::Unmap { range } => {
                self.unmap_here(held, range).await;
                Ok(0)
            }
            Operation::Protect { range, prot } => self.protect_here(held, range, prot).await,
            Operation::Advise { range, advice } => self.advise_here(held, range, advice).await,
            Operation::Sync { range, flags } => {
                // Writing back changes no structure, and may take long.
                drop(operating);
                self.sync_here(range, flags).await
            }
            Operation::Lock { range, on } => self.lock_here(range, on),
            // They don't come here: they are made of other changes, see `perform`.
            Operation::Break { .. } | Operation::Place { .. } => Err(Errno::EINVAL),
            Operation::Remap { from, pages, flags, to } => self.remap_here(operating, from, pages, flags, to).await,
            Operation::Import { range, kind, backing, pages } => {
                let backing = self.resolve_backing(backing).await?;
                self.import_here(held, range, kind, backing, pages).await
            }
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
