//! mremap (man 2 mremap).
//!
//! Pages move with their frames. Kernels that have a page at its old place give it back; until they have,
//! the new place can't be touched (entries without access, faults wait): a page is never in two places.
//!
//! The kernel that owns the pages moves them, also to a place that others own: it asks for that range first (`obtain`
//! in handover.rs). So contents never travel. If the pages have several owners, each moves its own, when the home tells it to, one after the
//! other. A fork in between must not see this:
//!
//! ```text
//! mremap of x (A's) and y (B's)        fork elsewhere
//!   A: x has moved
//!                                      the child has x at the new place, y at the old
//!   B: y has moved
//! ```
//!
//! Other changes of several owners freeze them all first. Here they must be able to go on: they obtain ranges, and take back what was
//! moved if one part fails. So the home waits for a fork that has begun, and lets none begin until all have moved
//! (`moving`). A thread that touches the pages meanwhile may find some of them moved: it would race with mremap on Linux, too.

use crate::{
    change::{checked_range, pages_at},
    region::Region,
    space::{Operating, Space},
    withdraw::{Withdrawal, BATCH},
};
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use machine::{
    errno::Result, Access, BoxFuture, Errno, Mapping, NoMemory, Page, PageRange, Soft, Step, UserAddr, PAGE_BITS,
    PAGE_SIZE, USER_END,
};
use messages::vm::{Operation, RegionKind};

bitflags::bitflags! {
    /// Flags of mremap; values of Linux.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct RemapFlags: u32 {
        /// MREMAP_MAYMOVE: if there is no room where the pages are, they move.
        const MAYMOVE = 1;
        /// MREMAP_FIXED: they move to a given address, replacing what is there.
        const FIXED = 2;
        /// MREMAP_DONTUNMAP: the old mapping stays, empty.
        const DONTUNMAP = 4;
    }
}

/// Where moved pages go.
struct Move {
    from: PageRange,
    to: PageRange,
    keep_region: bool,
}

impl Space {
    /// mremap(2), with `flags` as the program gave them.
    pub async fn remap(
        self: &Arc<Self>,
        old: UserAddr,
        old_length: u64,
        new_length: u64,
        flags: u32,
        to: UserAddr,
        low: bool,
    ) -> Result<UserAddr> {
        let known = RemapFlags::from_bits(flags).ok_or(Errno::EINVAL)?;
        let moves = known.intersects(RemapFlags::FIXED | RemapFlags::DONTUNMAP);
        // Nearly all of the address space is rounded up to nothing, as on Linux.
        let round = |bytes: u64| bytes.checked_next_multiple_of(PAGE_SIZE as u64).unwrap_or(0);
        let (old_bytes, new_bytes) = (round(old_length), round(new_length));
        if moves && !known.contains(RemapFlags::MAYMOVE)
            || known.contains(RemapFlags::DONTUNMAP) && old_bytes != new_bytes
            || old.offset() != 0
            || new_bytes == 0
            || new_bytes > USER_END
        {
            return Err(Errno::EINVAL);
        }
        let from = checked_range(old, old_bytes);
        let pages = new_bytes >> PAGE_BITS;
        let mut target = None;
        // Without FIXED, DONTUNMAP takes the address as a hint; it must do for a place all the same (mremap_to in Linux).
        if moves {
            let range = checked_range(to, new_bytes).ok_or(Errno::EINVAL)?;
            let wraps = from.is_none() && old.0.wrapping_add(old_bytes) > to.0 && to.0 + new_bytes > old.0;
            if wraps || from.is_some_and(|from| !range.intersect(from).is_empty()) {
                return Err(Errno::EINVAL);
            }
            if known.contains(RemapFlags::FIXED) {
                if to.0 < crate::MMAP_MIN && !low {
                    return Err(Errno::EPERM);
                }
                target = Some(range.start);
            }
        }
        let Some(from) = from else {
            // Beyond the end of the address space nothing can be cut off what is mapped at its start.
            let first = PageRange::one(old.page());
            if old_bytes <= new_bytes || self.regions(first).next().await.is_none() {
                return Err(Errno::EFAULT);
            }
            if let Some(target) = target.and_then(|to| pages_at(to, pages)) {
                // Linux makes room before it cuts, also where it takes what was to be moved: its check wraps (mremap_to).
                self.change(Operation::Unmap { range: target }).await?;
                self.regions(first).next().await.ok_or(Errno::EFAULT)?;
            }
            return Err(Errno::EINVAL);
        };
        self.check_room_to_remap(from, pages, known.contains(RemapFlags::DONTUNMAP)).await?;
        let mut held = None;
        if moves && target.is_none() {
            let kind = RegionKind { prot: Access::empty(), limit: Access::all(), flags: 0 };
            held = self.map_near(to, pages, kind, &None).await?;
        }
        let done = self.remap_pages(from, pages, flags, target.or(held), false).await;
        if let (Err(_), Some(range)) = (&done, held.and_then(|start| pages_at(start, pages))) {
            self.change(Operation::Unmap { range }).await?;
        }
        done.map(UserAddr)
    }

    /// At home: serves mremap of pages that another kernel found to have several owners.
    pub(crate) async fn remap_at_home(
        self: &Arc<Self>,
        from: PageRange,
        pages: u64,
        flags: u32,
        to: Option<Page>,
    ) -> Result<u64> {
        let _moving = self.moving.lock().await;
        self.remap_pages(from, pages, flags, to, true).await
    }

    /// Asks the kernel that owns all of `from` to move it. `moving`: the home lets no fork begin meanwhile. Boxed because moving the parts of several owners
    /// leads here again.
    fn remap_pages(
        self: &Arc<Self>,
        from: PageRange,
        pages: u64,
        flags: u32,
        to: Option<Page>,
        moving: bool,
    ) -> BoxFuture<'_, Result<u64>> {
        Box::pin(async move {
            let whole = if from.is_empty() { PageRange::one(from.start) } else { from };
            loop {
                let pieces = self.pieces(whole);
                let operation = Operation::Remap { from, pages, flags, to };
                match pieces.len() {
                    1 => {}
                    _ if moving => return self.remap_parts(from, pages, flags, to).await,
                    _ => return self.change_at_home(operation).await,
                }
                if let Some(done) = self.change_at(pieces[0].0, whole, operation, false).await? {
                    return Ok(done);
                }
            }
        })
    }

    /// At home: moves pages of several owners.
    async fn remap_parts(
        self: &Arc<Self>,
        mut from: PageRange,
        pages: u64,
        flags: u32,
        to: Option<Page>,
    ) -> Result<u64> {
        let known = RemapFlags::from_bits_truncate(flags);
        // With the page behind: does it go on there?
        let region = self.regions(PageRange::new(from.start, from.end.add(1))).next().await;
        let region = region.filter(|region| region.range.contains(from.start)).ok_or(Errno::EFAULT)?;
        if from.len() > pages {
            let tail = PageRange::new(from.start.add(pages), from.end);
            self.change(Operation::Unmap { range: tail }).await?;
            from.end = tail.start;
        }
        let moves = to.is_some() || known.contains(RemapFlags::DONTUNMAP);
        if !moves && from.len() == pages {
            return Ok(from.start.address().0);
        }
        if from.end > region.range.end {
            return Err(Errno::EFAULT);
        }
        // More of the same: what makes it longer, at its end or where it goes.
        let more = |range: PageRange, replace: bool| {
            let mut backing = region.backing.clone();
            if let Some(backing) = &mut backing {
                backing.first += from.end.0 - region.range.start.0;
            }
            Operation::Map { range, replace, kind: region.kind, backing }
        };
        if !moves && from.end == region.range.end {
            let grown = pages_at(from.end, pages - from.len()).ok_or(Errno::ENOMEM)?;
            match self.change(more(grown, false)).await {
                Err(Errno::EEXIST) => {}
                done => return done.map(|_| from.start.address().0),
            }
        }
        if !known.contains(RemapFlags::MAYMOVE) {
            return Err(Errno::ENOMEM);
        }
        let target = match to {
            Some(to) => to,
            // Room for what is moved, which is counted already.
            None => {
                let kind = RegionKind { prot: Access::empty(), limit: Access::all(), flags: 0 };
                self.map_anywhere(pages, kind, None).await?
            }
        };
        let target = pages_at(target, pages).ok_or(Errno::EINVAL)?;
        let fixed = (known | RemapFlags::MAYMOVE | RemapFlags::FIXED).bits();
        let tail = PageRange::new(target.start.add(from.len()), target.end);
        if !tail.is_empty() {
            self.change(more(tail, true)).await?;
        }
        let (mut rest, mut moved) = (from, Vec::new());
        while !rest.is_empty() {
            // Parts may have been handed over meanwhile, or given back: each is cut anew.
            let (_, part) = self.pieces(rest)[0];
            let to = target.start.add(part.start.0 - from.start.0);
            if let Err(error) = self.remap_pages(part, part.len(), fixed, Some(to), true).await {
                // What has gone comes back, as far as that works, and what was made goes.
                for (part, to) in moved {
                    let there = pages_at(to, PageRange::len(&part)).ok_or(error)?;
                    let _ = self.remap_pages(there, part.len(), fixed, Some(part.start), true).await;
                }
                self.change(Operation::Unmap { range: target }).await?;
                return Err(error);
            }
            moved.push((part, to));
            rest.start = part.end;
        }
        Ok(target.start.address().0)
    }

    /// Moves pages that this kernel owns. None: it does not own all of `from` (any more).
    pub(crate) async fn remap_here(
        self: &Arc<Self>,
        mut operating: Operating,
        mut from: PageRange,
        pages: u64,
        flags: u32,
        to: Option<Page>,
    ) -> Result<Option<u64>> {
        let flags = RemapFlags::from_bits_truncate(flags);
        let keep_region = flags.contains(RemapFlags::DONTUNMAP);
        let mut asked = false;
        let whole = if from.is_empty() { PageRange::one(from.start) } else { from };
        loop {
            if !self.owns(&self.state.lock(), whole) {
                return Ok(None);
            }
            let region = self.state.lock().regions.find(from.start).cloned().ok_or(Errno::EFAULT)?;
            if from.is_empty() && !region.is_shared() {
                return Err(Errno::EINVAL);
            }
            if from.len() > pages {
                let tail = PageRange::new(from.start.add(pages), from.end);
                self.unmap_here(&operating, tail).await;
                from.end = tail.start;
            }
            if to.is_none() && !keep_region && from.len() == pages {
                return Ok(Some(from.start.address().0));
            }
            if from.end > region.range.end {
                return Err(Errno::EFAULT);
            }
            if to.is_none() && !keep_region && from.end == region.range.end && !from.is_empty() {
                self.check_promise(&region.kind, pages - from.len())?;
                let Some(whole) = pages_at(from.start, pages) else { return Err(Errno::ENOMEM) };
                let more = PageRange::new(from.end, whole.end);
                if self.extend(&region, more) {
                    return Ok(Some(from.start.address().0));
                }
                let foreign = !self.owns(&self.state.lock(), more);
                if foreign && !asked && self.state.lock().regions.is_free(more) {
                    drop(operating);
                    asked = true;
                    // If something is there the region moves.
                    let _ = self.obtain(more, false).await;
                    operating = self.operate().await;
                    continue;
                }
            }
            if !flags.contains(RemapFlags::MAYMOVE) {
                return Err(Errno::ENOMEM);
            }
            self.check_promise(&region.kind, pages - if keep_region { 0 } else { from.len() })?;
            let target = to.or_else(|| self.find_gap(&mut self.state.lock(), pages));
            let Some(start) = target else {
                if self.is_home() {
                    return Err(Errno::ENOMEM);
                }
                drop(operating);
                self.take_slices(pages).await?;
                operating = self.operate().await;
                continue;
            };
            let target = pages_at(start, pages).ok_or(Errno::EINVAL)?;
            let owned = self.owns(&self.state.lock(), target);
            if owned {
                let step = Move { from, to: target, keep_region };
                return self.move_here(&operating, &region, step).await.map(Some);
            }
            drop(operating);
            self.obtain(target, true).await?;
            operating = self.operate().await;
        }
    }

    /// Grows a region in place by `more`, if there is room. False: it has to move.
    fn extend(&self, region: &Region, more: PageRange) -> bool {
        let mut state = self.state.lock();
        if !state.regions.is_free(more) || !self.owns(&state, more) {
            return false;
        }
        state.regions.insert(moved(region, region.range.start, region.range.start, more));
        true
    }

    async fn move_here(self: &Arc<Self>, operating: &Operating, region: &Region, step: Move) -> Result<u64> {
        let Move { from, to, keep_region } = step;
        let mut withdrawal = Withdrawal::new();
        let (removed, entered) = {
            let mut state = self.state.lock();
            let state = &mut *state;
            state.regions.check_count()?;
            let mut removed = state.regions.remove(to);
            removed.iter().for_each(|region| self.note_written(region));
            self.take_pages(state, to, &mut withdrawal, false);
            // The new entries first: they may need page-table pages, and then nothing is lost yet.
            let entered = self.enter(from, to);
            if entered.is_ok() {
                self.take_pages(state, from, &mut withdrawal, true);
                if !keep_region {
                    removed.extend(state.regions.remove(from));
                }
                state.regions.insert(moved(region, from.start, to.start, to));
            } else {
                self.table.walk_runs(to, u64::MAX, &mut |_, _| Step::Remove);
                self.table.flush(to);
            }
            if !withdrawal.sharers.is_empty() {
                state.busy.push(to);
            }
            (removed, entered)
        };
        drop(removed);
        // Also if it failed: what was at the new place is gone.
        self.settle_then(Some(operating), withdrawal, move |space| space.not_busy(to)).await;
        entered.map_err(|_| Errno::ENOMEM)?;
        if !keep_region {
            self.give_up(operating, from).await;
        }
        Ok(to.start.address().0)
    }
}

impl Space {
    /// Copies the page table entries of `from` to `to`, where nothing is mapped.
    fn enter(&self, from: PageRange, to: PageRange) -> core::result::Result<(), NoMemory> {
        // While others still have some at the old place, nobody may use the new one.
        let mut shared = false;
        self.table.walk_runs(from, u64::MAX, &mut |_, mapping| {
            shared = mapping.soft.contains(Soft::EXPORTED);
            if shared {
                Step::Stop
            } else {
                Step::Keep
            }
        });
        let mut entries: Vec<(PageRange, Mapping)> = Vec::new();
        let mut next = Some(from.start);
        while let Some(start) = next.take() {
            self.table.walk_runs(PageRange::new(start, from.end), u64::MAX, &mut |pages, mapping| {
                if entries.len() == BATCH {
                    next = Some(pages.start);
                    return Step::Stop;
                }
                entries.push((pages, mapping));
                Step::Keep
            });
            for (pages, mapping) in entries.drain(..) {
                let access = if shared { Access::empty() } else { mapping.access };
                let soft = mapping.soft - Soft::EXPORTED;
                let moved = |page: Page| Page(page.0 - from.start.0 + to.start.0);
                let there = PageRange::new(moved(pages.start), moved(pages.end));
                self.table.fill(there, Mapping { access, soft, ..mapping }, &mut |_, _| false)?;
            }
        }
        Ok(())
    }
}

/// The region as it is at `range`, when its page `from` has become page `to`.
fn moved(region: &Region, from: Page, to: Page, range: PageRange) -> Region {
    let mut new = Region { range, ..region.clone() };
    if let Some(backing) = &mut new.backing {
        // `range` may begin later than `to`, never earlier than the region's first page.
        backing.first += (from.0 - region.range.start.0) + (range.start.0 - to.0);
    }
    new
}
