//! mremap (man 2 mremap).
//!
//! Pages move with their frames. Kernels that have a page at its old place give it back; until they have,
//! the new place can't be touched (entries without access, faults wait): a page is never in two places.
//!
//! Between owners the pages are copied: the owner of the old place takes them out, gives up its right to make
//! changes (two owners must never wait for each other), and the owner of the new place copies them in. If that
//! fails for want of memory, the old place is gone; and a fork just in between gives the child neither place.

use crate::{
    change::{checked_range, pages_at},
    region::{Backing, Region},
    space::{Operating, Space},
    withdraw::Withdrawal,
};
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use machine::{
    errno::Result, Access, BoxFuture, Errno, Frame, Mapping, Page, PageRange, Soft, UserAddr, PAGE_BITS, PAGE_SIZE,
};
use messages::vm::{Operation, RegionKind};

bitflags::bitflags! {
    /// Flags of mremap; values of Linux.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct RemapFlags: u32 {
        const MAYMOVE = 1;
        const FIXED = 2;
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
    /// mremap. `flags` as the program gave them.
    pub async fn remap(
        self: &Arc<Self>,
        old: UserAddr,
        old_length: u64,
        new_length: u64,
        flags: u32,
        to: UserAddr,
    ) -> Result<UserAddr> {
        let known = RemapFlags::from_bits(flags).ok_or(Errno::EINVAL)?;
        let moves = known.intersects(RemapFlags::FIXED | RemapFlags::DONTUNMAP);
        let round = |bytes: u64| bytes.checked_next_multiple_of(PAGE_SIZE as u64).ok_or(Errno::EINVAL);
        let (old_bytes, new_bytes) = (round(old_length)?, round(new_length)?);
        if moves && !known.contains(RemapFlags::MAYMOVE)
            || known.contains(RemapFlags::DONTUNMAP) && old_bytes != new_bytes
            || old.offset() != 0
            || new_bytes == 0
        {
            return Err(Errno::EINVAL);
        }
        let from = checked_range(old, old_bytes).ok_or(Errno::EINVAL)?;
        let pages = new_bytes >> PAGE_BITS;
        let to = match known.contains(RemapFlags::FIXED) {
            true => {
                let target = checked_range(to, new_bytes).ok_or(Errno::EINVAL)?;
                if !target.intersect(from).is_empty() {
                    return Err(Errno::EINVAL);
                }
                if to.0 < crate::MMAP_MIN {
                    return Err(Errno::EPERM);
                }
                Some(target.start)
            }
            false => None,
        };
        self.change(Operation::Remap { from, pages, flags, to }).await.map(UserAddr)
    }

    pub(crate) async fn remap_here(
        self: &Arc<Self>,
        mut operating: Operating,
        mut from: PageRange,
        pages: u64,
        flags: u32,
        to: Option<Page>,
    ) -> Result<u64> {
        let flags = RemapFlags::from_bits_truncate(flags);
        let keep_region = flags.contains(RemapFlags::DONTUNMAP);
        loop {
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
                return Ok(from.start.address().0);
            }
            if from.end > region.range.end {
                return Err(Errno::EFAULT);
            }
            if to.is_none() && !keep_region && self.extend(&region, from, pages)? {
                return Ok(from.start.address().0);
            }
            if !flags.contains(RemapFlags::MAYMOVE) {
                return Err(Errno::ENOMEM);
            }
            self.check_limits(&region.kind, pages - if keep_region { 0 } else { from.len() })?;
            let target = to.or_else(|| self.find_gap(&self.state.lock(), pages));
            if let Some(start) = target {
                let target = pages_at(start, pages).ok_or(Errno::EINVAL)?;
                let step = Move { from, to: target, keep_region };
                let owned = self.owns(&self.state.lock(), target);
                return match owned {
                    true => self.move_here(&operating, &region, step).await,
                    false => self.move_away(operating, &region, step).await,
                };
            }
            if self.is_home() {
                return Err(Errno::ENOMEM);
            }
            drop(operating);
            self.take_slices(pages).await?;
            operating = self.operate().await;
        }
    }

    /// Grows a region in place, if `from` is its end and there is room. False: it has to move.
    fn extend(&self, region: &Region, from: PageRange, pages: u64) -> Result<bool> {
        if from.is_empty() || from.end != region.range.end {
            return Ok(false);
        }
        self.check_limits(&region.kind, pages - from.len())?;
        let Some(whole) = pages_at(from.start, pages) else { return Ok(false) };
        let more = PageRange::new(from.end, whole.end);
        let mut state = self.state.lock();
        if !state.regions.is_free(more) || !self.owns(&state, more) {
            return Ok(false);
        }
        state.regions.insert(moved(region, region.range.start, region.range.start, more));
        Ok(true)
    }

    async fn move_here(self: &Arc<Self>, operating: &Operating, region: &Region, step: Move) -> Result<u64> {
        let Move { from, to, keep_region } = step;
        let mut withdrawal = Withdrawal::new();
        let removed = {
            let mut state = self.state.lock();
            let state = &mut *state;
            let mut removed = state.regions.remove(to);
            for region in &removed {
                self.note_written(region);
                self.take_pages(state, region.range, &mut withdrawal, |_, _| false);
            }
            let mut entries: Vec<(Page, Mapping)> = Vec::new();
            self.table.walk(from, &mut |page, mapping| {
                entries.push((Page(page.0 - from.start.0 + to.start.0), mapping));
                machine::Step::Keep
            });
            // The new entries first: they may need page-table pages, and then nothing is lost yet.
            // While others still have some at the old place, nobody may use the new one.
            let shared = entries.iter().any(|(_, mapping)| mapping.soft.contains(Soft::EXPORTED));
            for (index, (page, mapping)) in entries.iter().enumerate() {
                let access = if shared { Access::empty() } else { mapping.access };
                let entry = Mapping { access, soft: mapping.soft - Soft::EXPORTED, ..*mapping };
                if self.table.set(*page, entry).is_err() {
                    for (page, _) in &entries[..index] {
                        self.table.clear(*page);
                    }
                    self.table.flush(to);
                    return Err(Errno::ENOMEM);
                }
            }
            self.take_pages(state, from, &mut withdrawal, |_, _| true);
            if !keep_region {
                removed.extend(state.regions.remove(from));
            }
            state.regions.insert(moved(region, from.start, to.start, to));
            if !withdrawal.sharers.is_empty() {
                state.busy.push(to);
            }
            removed
        };
        drop(removed);
        self.settle_then(Some(operating), withdrawal, move |space| space.not_busy(to)).await;
        Ok(to.start.address().0)
    }

    /// The sending half of a move to another owner. Boxed because it is a change that makes another.
    fn move_away<'a>(
        self: &'a Arc<Self>,
        operating: Operating,
        region: &'a Region,
        step: Move,
    ) -> BoxFuture<'a, Result<u64>> {
        Box::pin(self.move_away_from(operating, region, step))
    }

    async fn move_away_from(self: &Arc<Self>, operating: Operating, region: &Region, step: Move) -> Result<u64> {
        let Move { from, to, keep_region } = step;
        let pieces = self.pieces(to);
        if pieces.len() > 1 {
            // To several owners at once is not supported.
            return Err(Errno::ENOMEM);
        }
        let mut withdrawal = Withdrawal::new();
        let mut pages: Vec<(u64, Frame)> = Vec::new();
        let removed = {
            let mut state = self.state.lock();
            self.note_written(&region.cut(from));
            self.take_pages(&mut state, from, &mut withdrawal, |page, mapping| {
                // What is only a view of an object, or still zero, is found again by a fault.
                let content = !mapping.soft.contains(Soft::CACHE) && mapping.frame != self.vm.zero;
                if content {
                    pages.push((page.0 - from.start.0, mapping.frame));
                }
                content
            });
            if keep_region {
                Vec::new()
            } else {
                state.regions.remove(from)
            }
        };
        drop(removed);
        self.settle(&operating, withdrawal).await;
        drop(operating);
        let new = moved(region, from.start, to.start, to);
        let frames: Vec<Frame> = pages.iter().map(|(_, frame)| *frame).collect();
        let backing = new.backing.as_ref().map(Backing::describe);
        let operation = Operation::Import { range: to, kind: new.kind, backing, pages };
        let space = self.clone();
        // To the end even if the caller goes: the frames must be read before they are released.
        self.detached(async move {
            let result = space.change(operation).await;
            // The new owner has asked for the object by its name: it had to be there until now.
            drop(new);
            frames.into_iter().for_each(|frame| space.vm.memory.release(frame));
            result
        })
        .await
    }

    /// The receiving half.
    pub(crate) async fn import_here(
        self: &Arc<Self>,
        operating: &Operating,
        range: PageRange,
        kind: RegionKind,
        backing: Option<Backing>,
        pages: Vec<(u64, Frame)>,
    ) -> Result<u64> {
        let mut copies: Vec<(Page, Frame)> = Vec::with_capacity(pages.len());
        for (index, frame) in pages {
            let Some(copy) = self.vm.memory.alloc() else {
                copies.into_iter().for_each(|(_, frame)| self.vm.memory.release(frame));
                return Err(Errno::ENOMEM);
            };
            self.vm.memory.copy(frame, copy);
            copies.push((range.start.add(index), copy));
        }
        // No fault may come between the region and its pages.
        self.state.lock().busy.push(range);
        let mapped = self.map_here(operating, range, true, kind, backing).await;
        let mut lost = mapped.is_err();
        {
            let state = self.state.lock();
            for (page, frame) in copies {
                let access = state.regions.find(page).map_or(Access::empty(), Region::access);
                let entry = Mapping { frame, access, soft: Soft::empty() };
                if lost || self.table.set(page, entry).is_err() {
                    self.vm.memory.release(frame);
                    lost = true;
                }
            }
        }
        self.not_busy(range);
        match lost {
            true => mapped.and(Err(Errno::ENOMEM)),
            false => mapped,
        }
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
