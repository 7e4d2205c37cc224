//! madvise, msync, mincore and mlock (man 2 of each).

use crate::{
    change::checked_range,
    fault::TOUCHED,
    region::{Region, RegionFlags},
    space::{Operating, Space},
    withdraw::Withdrawal,
};
use alloc::{boxed::Box, sync::Arc, vec, vec::Vec};
use machine::{
    errno::Result, pause, Access, Errno, KernelId, Mapping, PageRange, Soft, Step, UserAddr, PAGE_BITS, PAGE_SIZE,
};
use messages::vm::{AskResidency, Fault, Operation, RegionReport, ResidencyReply};

/// The advice values of madvise(2).
mod advice {
    pub const NORMAL: u32 = 0;
    pub const RANDOM: u32 = 1;
    pub const SEQUENTIAL: u32 = 2;
    pub const WILLNEED: u32 = 3;
    pub const DONTNEED: u32 = 4;
    pub const FREE: u32 = 8;
    pub const REMOVE: u32 = 9;
    pub const DONTFORK: u32 = 10;
    pub const DOFORK: u32 = 11;
    pub const MERGEABLE: u32 = 12;
    pub const UNMERGEABLE: u32 = 13;
    pub const HUGEPAGE: u32 = 14;
    pub const NOHUGEPAGE: u32 = 15;
    pub const DONTDUMP: u32 = 16;
    pub const DODUMP: u32 = 17;
    pub const WIPEONFORK: u32 = 18;
    pub const KEEPONFORK: u32 = 19;
    pub const COLD: u32 = 20;
    pub const PAGEOUT: u32 = 21;
    pub const POPULATE_READ: u32 = 22;
    pub const POPULATE_WRITE: u32 = 23;
    pub const DONTNEED_LOCKED: u32 = 24;
}

const MS_ASYNC: u32 = 1;
const MS_INVALIDATE: u32 = 2;
const MS_SYNC: u32 = 4;

/// Most pages that one step of mincore asks about, as on Linux.
const MOST_RESIDENT: u64 = 4096;

fn is_shared(region: &RegionReport) -> bool {
    RegionFlags::from_bits_truncate(region.kind.flags).contains(RegionFlags::SHARED)
}

/// Whether following the advice makes pages present. That may take long, and may be given up at any time.
pub fn is_populating(advice: u32) -> bool {
    matches!(advice, advice::POPULATE_READ | advice::POPULATE_WRITE)
}

impl Space {
    /// madvise(2).
    pub async fn advise(self: &Arc<Self>, start: UserAddr, length: u64, advice: u32) -> Result<()> {
        match advice {
            advice::NORMAL..=advice::DONTNEED | advice::FREE..=advice::DONTNEED_LOCKED => {}
            _ => return Err(Errno::EINVAL),
        }
        let Some(range) = checked_range(start, length) else {
            // Whole pages, but where nothing can be mapped.
            let rounded = length.checked_next_multiple_of(PAGE_SIZE as u64);
            let fits = rounded.is_some_and(|length| start.0.checked_add(length).is_some());
            return Err(if start.offset() == 0 && fits { Errno::ENOMEM } else { Errno::EINVAL });
        };
        match advice {
            advice::POPULATE_READ => return self.fault_all(range, Access::READ).await,
            advice::POPULATE_WRITE => return self.fault_all(range, Access::WRITE).await,
            _ => {}
        }
        if advice == advice::REMOVE {
            return self.remove(range).await;
        }
        self.change(Operation::Advise { range, advice }).await.map(drop)
    }

    async fn fault_all(self: &Arc<Self>, range: PageRange, access: Access) -> Result<()> {
        for page in range.pages() {
            self.fault(page.address(), access).await.map_err(|fault| match fault {
                Fault::NotMapped | Fault::NoMemory => Errno::ENOMEM,
                Fault::Denied => Errno::EINVAL,
                Fault::PastEnd => Errno::EFAULT,
            })?;
            pause(&*self.vm.spawner).await;
        }
        Ok(())
    }

    pub(crate) async fn advise_here(
        self: &Arc<Self>,
        operating: &Operating,
        range: PageRange,
        advice: u32,
    ) -> Result<u64> {
        let parts: Vec<Region> = self.state.lock().regions.overlapping(range).map(|region| region.cut(range)).collect();
        let mut done = parts.iter().map(|region| region.range.len()).sum::<u64>() == range.len();
        for (index, region) in parts.iter().enumerate() {
            if index > 0 {
                pause(&*self.vm.spawner).await;
            }
            let private = region.backing.is_none() && !region.is_shared();
            let flags = region.flags();
            match advice {
                advice::DONTNEED if flags.contains(RegionFlags::LOCKED) => return Err(Errno::EINVAL),
                advice::FREE if !private => return Err(Errno::EINVAL),
                advice::DONTNEED | advice::DONTNEED_LOCKED | advice::FREE => {
                    self.drop_pages(operating, region.range).await;
                }
                advice::WIPEONFORK if !private => return Err(Errno::EINVAL),
                advice::DONTFORK => self.flag(region.range, RegionFlags::DONT_FORK, true)?,
                advice::DOFORK => self.flag(region.range, RegionFlags::DONT_FORK, false)?,
                advice::WIPEONFORK => self.flag(region.range, RegionFlags::WIPE_ON_FORK, true)?,
                advice::KEEPONFORK => self.flag(region.range, RegionFlags::WIPE_ON_FORK, false)?,
                advice::DONTDUMP => self.flag(region.range, RegionFlags::DONT_DUMP, true)?,
                advice::DODUMP => self.flag(region.range, RegionFlags::DONT_DUMP, false)?,
                advice::WILLNEED => self.read_ahead(region),
                advice::NORMAL | advice::RANDOM | advice::SEQUENTIAL => {
                    self.flag(region.range, RegionFlags::RANDOM, advice == advice::RANDOM)?;
                    self.flag(region.range, RegionFlags::SEQUENTIAL, advice == advice::SEQUENTIAL)?;
                }
                advice::MERGEABLE | advice::UNMERGEABLE | advice::HUGEPAGE | advice::NOHUGEPAGE => {}
                advice::COLD | advice::PAGEOUT => {}
                _ => done = false,
            }
        }
        match done {
            true => Ok(0),
            false => Err(Errno::ENOMEM),
        }
    }

    /// Nobody waits for it. The caller's control group pays.
    fn read_ahead(&self, region: &Region) {
        let Some(backing) = &region.backing else { return };
        let (object, first, end) = (backing.object.clone(), backing.first, backing.first + region.range.len());
        let spawner = &self.vm.spawner;
        let work = Box::pin(async move { object.read_ahead(first, end).await });
        spawner.spawn_for(spawner.actor(), spawner.payer(), work);
    }

    /// EAGAIN: too many regions.
    fn flag(&self, range: PageRange, flag: RegionFlags, on: bool) -> Result<()> {
        let regions = &mut self.state.lock().regions;
        regions.check_cuts(range, false).map_err(|_| Errno::EAGAIN)?;
        regions
            .update(range, |kind| kind.flags = if on { kind.flags | flag.bits() } else { kind.flags & !flag.bits() });
        Ok(())
    }

    async fn drop_pages(self: &Arc<Self>, operating: &Operating, range: PageRange) {
        let mut withdrawal = Withdrawal::new();
        {
            let mut state = self.state.lock();
            for region in state.regions.overlapping(range) {
                self.note_written(&region.cut(range));
            }
            self.take_pages(&mut state, range, &mut withdrawal, false);
        }
        self.settle(operating, withdrawal).await;
    }

    /// mlock and munlock, which make no pages present ([`Space::populate_locked`]). Says which pages they are.
    pub async fn lock_pages(self: &Arc<Self>, start: UserAddr, length: u64, on: bool) -> Result<PageRange> {
        let (skew, start) = (start.offset() as u64, start.page().address());
        let bytes = length.checked_add(skew).ok_or(Errno::EINVAL)?;
        let range = checked_range(start, bytes).ok_or(Errno::ENOMEM)?;
        self.change(Operation::Lock { range, on }).await?;
        Ok(range)
    }

    /// Makes the pages of a locked range present. That some can't be had is no error. May be dropped at any time.
    pub async fn populate_locked(self: &Arc<Self>, range: PageRange) {
        let mut regions = self.regions(range);
        while let Some(region) = regions.next().await {
            // What is the process's own is broken out of copy-on-write now, not at the first write.
            let mut access = region.kind.prot;
            access.set(Access::WRITE, access.contains(Access::WRITE) && !is_shared(&region));
            self.populate(region.range.intersect(range), access).await;
        }
    }

    /// How many of `pages` pages are locked.
    pub async fn locked(self: &Arc<Self>, start: UserAddr, pages: u64) -> u64 {
        let Some(range) = checked_range(start.page().address(), pages << PAGE_BITS) else { return 0 };
        let (mut regions, mut locked) = (self.regions(range), 0);
        while let Some(region) = regions.next().await {
            if RegionFlags::from_bits_truncate(region.kind.flags).contains(RegionFlags::LOCKED) {
                locked += region.range.intersect(range).len();
            }
        }
        locked
    }

    pub(crate) fn lock_here(&self, range: PageRange, on: bool) -> Result<u64> {
        let mut state = self.state.lock();
        let hole = state.regions.hole(range);
        let part = PageRange::new(range.start, hole.unwrap_or(range.end));
        state.regions.check_cuts(part, false)?;
        state.regions.update(part, |kind| {
            let locked = RegionFlags::LOCKED.bits();
            kind.flags = if on { kind.flags | locked } else { kind.flags & !locked }
        });
        hole.map_or(Ok(0), |_| Err(Errno::ENOMEM))
    }

    /// msync(2).
    pub async fn sync(self: &Arc<Self>, start: UserAddr, length: u64, flags: u32) -> Result<()> {
        if flags & !(MS_ASYNC | MS_INVALIDATE | MS_SYNC) != 0 || flags & MS_ASYNC != 0 && flags & MS_SYNC != 0 {
            return Err(Errno::EINVAL);
        }
        if start.offset() != 0 {
            return Err(Errno::EINVAL);
        }
        let range = checked_range(start, length).ok_or(Errno::ENOMEM)?;
        let checked = self.change(Operation::Sync { range, flags }).await;
        if flags & MS_SYNC != 0 && !matches!(checked, Err(Errno::EBUSY)) {
            self.sync_objects(range).await?;
        }
        checked.map(drop)
    }

    pub(crate) async fn sync_here(self: &Arc<Self>, range: PageRange, flags: u32) -> Result<u64> {
        let state = self.state.lock();
        let is_locked = |region: &Region| region.flags().contains(RegionFlags::LOCKED);
        if flags & MS_INVALIDATE != 0 && state.regions.overlapping(range).any(is_locked) {
            return Err(Errno::EBUSY);
        }
        state.regions.hole(range).map_or(Ok(0), |_| Err(Errno::ENOMEM))
    }

    /// Writes back what shared mappings in `range` show. Without a lock of this space: the pages are taken from its page tables before they are written.
    async fn sync_objects(self: &Arc<Self>, range: PageRange) -> Result<()> {
        let mut regions = self.regions(range);
        while let Some(region) = regions.next().await {
            let part = region.range.intersect(range);
            let flags = RegionFlags::from_bits_truncate(region.kind.flags);
            let Some(backing) = region.backing.clone().filter(|_| flags.contains(RegionFlags::SHARED)) else {
                continue;
            };
            let first = backing.first + (part.start.0 - region.range.start.0);
            if let Some(backing) = self.resolve_backing(Some(backing)).await? {
                backing.object.sync(first << PAGE_BITS, (first + part.len()) << PAGE_BITS).await?;
            }
        }
        Ok(())
    }

    /// Tells the object which pages of a region were written, before they are unmapped. The caller holds the lock of the space's state.
    pub(crate) fn note_written(&self, region: &Region) {
        if !region.is_shared() || region.backing.is_none() {
            return;
        }
        let mut cleaned = false;
        self.table.walk(region.range, &mut |page, mapping| {
            // What others may be writing counts as written.
            let exported = mapping.soft.contains(Soft::EXPORTED) && mapping.access.contains(Access::WRITE);
            let dirty = mapping.soft.contains(Soft::DIRTY);
            if let (true, Some((backing, index))) = (dirty || exported, region.object_page(page)) {
                backing.object.mark_dirty(index);
            }
            if !dirty {
                return Step::Keep;
            }
            cleaned = true;
            Step::Replace(Mapping { soft: mapping.soft - Soft::DIRTY, ..mapping })
        });
        if cleaned {
            self.table.flush(region.range);
        }
    }

    /// mincore: for each page whether it is in memory. ENOMEM if the range has a hole. The first [`MOST_RESIDENT`] of them: the
    /// answer for a large mapping is large.
    pub async fn resident(self: &Arc<Self>, start: UserAddr, length: u64) -> Result<Vec<bool>> {
        if start.offset() != 0 {
            return Err(Errno::EINVAL);
        }
        let mut rest = checked_range(start, length).ok_or(Errno::ENOMEM)?;
        rest.end = rest.end.min(rest.start.add(MOST_RESIDENT));
        let mut all = Vec::new();
        while !rest.is_empty() {
            let (owner, part) = self.pieces(rest)[0];
            let answer = match owner == self.me() {
                true => ResidencyReply::Pages(self.residency(part)),
                false => {
                    self.certain(part).await;
                    let request = AskResidency { space: self.id, range: part };
                    self.vm.endpoint.call(owner, request).await.map_err(Errno::from)?
                }
            };
            match answer {
                ResidencyReply::Pages(pages) => {
                    all.extend(pages.ok_or(Errno::ENOMEM)?);
                    rest.start = part.end;
                }
                ResidencyReply::Moved(news) => self.correct(owner, &news),
            }
        }
        Ok(all)
    }

    pub(crate) async fn serve_residency(self: &Arc<Self>, from: KernelId, range: PageRange) -> ResidencyReply {
        self.join(from);
        match self.check_owned(range).await {
            true => ResidencyReply::Pages(self.residency(range)),
            false => ResidencyReply::Moved(self.news(range)),
        }
    }

    fn residency(&self, range: PageRange) -> Option<Vec<bool>> {
        let state = self.state.lock();
        if state.regions.hole(range).is_some() {
            return None;
        }
        let mut pages = vec![false; range.len() as usize];
        for region in state.regions.overlapping(range) {
            for page in region.range.intersect(range).pages() {
                let cached = || {
                    let object = region.object_page(page);
                    object.is_some_and(|(backing, index)| backing.object.resident(index).is_some())
                };
                // Made ahead, and nobody has touched it yet.
                let ahead = |mapping: &Mapping| {
                    region.backing.is_none() && !mapping.soft.intersects(TOUCHED | Soft::COW | Soft::EXPORTED)
                };
                let here = self.table.get(page).is_some_and(|mapping| !ahead(&mapping));
                pages[(page.0 - range.start.0) as usize] = here || cached();
            }
        }
        Some(pages)
    }
}
