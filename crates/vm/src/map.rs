//! mmap, munmap and mprotect (man 2 mmap, munmap, mprotect).

use crate::{
    change::{checked_range, pages_at},
    region::{effective, Backing, Region, RegionFlags},
    shared::SharedMemory,
    space::{Operating, Ranges, Space, State},
    withdraw::Withdrawal,
    MapAddress, MapRequest, Source, MMAP_MIN,
};
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::future::Future;
use fs::Object;
use machine::{
    errno::Result, pause, Access, Errno, Mapping, Page, PageRange, Soft, SpaceId, Step, UserAddr, PAGE_BITS, PAGE_SIZE,
    USER_END,
};
use messages::vm::{Operation, RegionKind, RemoteBacking};

/// A mapping of another kernel's object that only reads and is no longer than this is this kernel's own.
const FEW_PAGES: u64 = 16;
/// Pages that are kept free below the top of user space for the stack to grow into (Linux's MIN_GAP), unless the stack's
/// limit is larger.
const STACK_ROOM: u64 = 128 << 20;

impl Space {
    /// mmap(2). Answers where the mapping is.
    pub async fn map(self: &Arc<Self>, request: MapRequest) -> Result<UserAddr> {
        if request.length == 0 {
            return Err(Errno::EINVAL);
        }
        let bytes = request
            .length
            .checked_next_multiple_of(PAGE_SIZE as u64)
            .filter(|bytes| *bytes <= USER_END)
            .ok_or(Errno::ENOMEM)?;
        let (kind, backing) = describe(&request, bytes)?;
        let pages = bytes >> PAGE_BITS;
        if request.shared && backing.is_none() && !request.no_reserve && pages > self.vm.machine_pages() {
            return Err(Errno::ENOMEM);
        }
        self.check_promise(&kind, pages)?;
        let replaced = match request.place {
            MapAddress::Fixed(at) => checked_range(at, bytes),
            _ => None,
        };
        self.check_room(&kind, pages, replaced).await?;
        if let MapAddress::Fixed(at) | MapAddress::FixedNoReplace(at) = request.place {
            if at.0 < MMAP_MIN && !request.low {
                return Err(Errno::EPERM);
            }
        }
        // Without a wish for an address, shared pages of an object are mapped by the kernel that has the
        // object, so that its frames need not be pinned one by one. With that the space has something there, and does not
        // outlive that kernel; for a few counters that are only read this is not worth it.
        let few = request.survives_owner && pages <= FEW_PAGES && !request.prot.contains(Access::WRITE);
        let foreign =
            backing.as_ref().filter(|backing| request.shared && !few && backing.object.id().owner != self.me());
        let start = match request.place {
            MapAddress::Fixed(at) => self.map_at(at, pages, true, kind, &backing).await?,
            MapAddress::FixedNoReplace(at) => self.map_at(at, pages, false, kind, &backing).await?,
            MapAddress::Hint(at) => match self.map_near(at, pages, kind, &backing).await? {
                Some(start) => start,
                None if foreign.is_some() => self.map_at_object(pages, kind, foreign).await?,
                None => self.map_anywhere(pages, kind, backing).await?,
            },
        };
        if trace::on::map_file() && request.prot.contains(Access::EXEC) {
            self.trace_file(start.address(), &request);
        }
        Ok(start.address())
    }

    /// Has a profile know which file's code is where.
    #[cold]
    fn trace_file(&self, start: UserAddr, request: &MapRequest) {
        let Source::Object { offset, label, .. } = &request.source else { return };
        let SpaceId { home, serial } = self.id;
        for (part, path) in (0..=u8::MAX).zip(label.chunks(trace::MOST_TEXT)) {
            trace::map_file(serial, start.0, request.length, *offset, home.0, part, path);
        }
    }

    async fn map_at_object(self: &Arc<Self>, pages: u64, kind: RegionKind, backing: Option<&Backing>) -> Result<Page> {
        let backing = backing.map(Backing::describe).ok_or(Errno::EINVAL)?;
        let start = self.change(Operation::Place { pages, kind, backing }).await?;
        Ok(UserAddr(start).page())
    }

    pub(crate) async fn place_here(
        self: &Arc<Self>,
        pages: u64,
        kind: RegionKind,
        backing: RemoteBacking,
    ) -> Result<u64> {
        let backing = self.resolve_backing(Some(backing)).await?;
        Ok(self.map_anywhere(pages, kind, backing).await?.address().0)
    }

    async fn map_at(
        self: &Arc<Self>,
        at: UserAddr,
        pages: u64,
        replace: bool,
        kind: RegionKind,
        backing: &Option<Backing>,
    ) -> Result<Page> {
        if at.offset() != 0 {
            return Err(Errno::EINVAL);
        }
        let range = pages_at(at.page(), pages).ok_or(Errno::ENOMEM)?;
        // Here the object itself is at hand; only its name can be sent.
        let operating = self.operate().await;
        if self.owns(&self.state.lock(), range) {
            self.map_here(&operating, range, replace, kind, backing.clone()).await?;
            return Ok(range.start);
        }
        drop(operating);
        let backing = backing.as_ref().map(Backing::describe);
        self.change(Operation::Map { range, replace, kind, backing }).await?;
        Ok(range.start)
    }

    /// Checks that no owner has anything mapped in `range`; else EEXIST.
    pub(crate) async fn check_free(self: &Arc<Self>, range: PageRange) -> Result<()> {
        match self.regions(range).next().await {
            None => Ok(()),
            Some(_) => Err(Errno::EEXIST),
        }
    }

    /// Maps at the hint, if there is one and the place is free. A hint is rounded, never refused.
    pub(crate) async fn map_near(
        self: &Arc<Self>,
        hint: UserAddr,
        pages: u64,
        kind: RegionKind,
        backing: &Option<Backing>,
    ) -> Result<Option<Page>> {
        let start = Page(hint.0 >> PAGE_BITS);
        if hint.is_null() || start.address().0 < MMAP_MIN || pages_at(start, pages).is_none() {
            return Ok(None);
        }
        match self.map_at(start.address(), pages, false, kind, backing).await {
            Ok(start) => Ok(Some(start)),
            Err(Errno::EEXIST) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Maps in a slice of this kernel, from the top.
    pub(crate) async fn map_anywhere(
        self: &Arc<Self>,
        pages: u64,
        kind: RegionKind,
        backing: Option<Backing>,
    ) -> Result<Page> {
        loop {
            let operating = self.operate().await;
            let start = self.find_gap(&mut self.state.lock(), pages);
            if let Some(start) = start {
                let range = PageRange::new(start, start.add(pages));
                self.map_here(&operating, range, false, kind, backing).await?;
                return Ok(start);
            }
            drop(operating);
            if self.is_home() {
                return Err(Errno::ENOMEM);
            }
            self.take_slices(pages).await?;
        }
    }

    /// The highest place for `pages` pages in what this kernel owns.
    pub(crate) fn find_gap(&self, state: &mut State, pages: u64) -> Option<Page> {
        let room = state.limits.stack.clamp(STACK_ROOM, USER_END / 6 * 5);
        let all = PageRange::new(Page(MMAP_MIN >> PAGE_BITS), Page((USER_END - room) >> PAGE_BITS));
        let State { gaps, regions, slices, .. } = state;
        gaps.find(regions, slices, (self.me(), self.id.home), all, pages)
    }

    /// Reads or writes every page once, as far as that works (MAP_POPULATE, mlock). May be dropped at any time.
    pub async fn populate(self: &Arc<Self>, range: PageRange, prot: Access) {
        let access = if prot.contains(Access::WRITE) { Access::WRITE } else { Access::READ };
        if prot.is_empty() {
            return;
        }
        for page in range.pages() {
            if self.fault(page.address(), access).await.is_err() {
                return;
            }
            pause(&*self.vm.spawner).await;
        }
    }

    pub(crate) async fn resolve_backing(&self, backing: Option<RemoteBacking>) -> Result<Option<Backing>> {
        let Some(RemoteBacking { object, first, label }) = backing else { return Ok(None) };
        let object = match self.vm.shared_memory(object) {
            Some(memory) => memory,
            None => self.vm.objects.resolve(object).await?,
        };
        Ok(Some(Backing { object, first, label: label.into() }))
    }

    pub(crate) async fn map_here(
        self: &Arc<Self>,
        operating: &Operating,
        range: PageRange,
        replace: bool,
        kind: RegionKind,
        backing: Option<Backing>,
    ) -> Result<u64> {
        let mut region = Region { range, kind, backing };
        if region.is_shared() {
            match &mut region.backing {
                // Not copies, but the frames themselves.
                Some(backing) => backing.object = backing.object.shared().unwrap_or(backing.object.clone()),
                None => region.backing = Some(SharedMemory::backing(self.vm.clone(), range.len())),
            }
        }
        let object = region.backing.as_ref().filter(|_| region.may_write_through()).map(|backing| &backing.object);
        let sealable = object.filter(|object| object.admit_writer().is_some()).cloned();
        let mut withdrawal = Withdrawal::new();
        let mut replaced = Vec::new();
        {
            let mut state = self.state.lock();
            state.regions.check_count()?;
            if !state.regions.is_free(range) {
                if !replace {
                    return Err(Errno::EEXIST);
                }
                state.regions.check_cuts(range, true)?;
                // Dropped outside the lock: an object may end with its last region.
                replaced = state.regions.remove(range);
                replaced.iter().for_each(|region| self.note_written(region));
                self.take_pages(&mut state, range, &mut withdrawal, false);
            }
            if sealable.is_some() {
                // Nobody uses it before it is known what it may do.
                state.busy.push(range);
            }
            state.regions.insert(region);
        }
        drop(replaced);
        let settled = self.settle(operating, withdrawal);
        match sealable {
            Some(object) => Box::pin(self.admit_writer(operating, range, kind, object, settled)).await?,
            None => settled.await,
        }
        Ok(range.start.address().0)
    }

    /// Checks the seals of a file that is mapped shared: the mapping is made as asked, or it can never become writable, or it is refused.
    async fn admit_writer(
        self: &Arc<Self>,
        operating: &Operating,
        range: PageRange,
        kind: RegionKind,
        object: Arc<dyn Object>,
        settled: impl Future<Output = ()> + Send + 'static,
    ) -> Result<()> {
        let (space, operating) = (self.clone(), operating.clone());
        self.detached(async move {
            settled.await;
            let admitted = match object.admit_writer() {
                Some(question) => question.await,
                None => Ok(()),
            };
            let result = match admitted {
                Err(Errno::EPERM) if !kind.prot.contains(Access::WRITE) => {
                    space.state.lock().regions.update(range, |kind| kind.limit -= Access::WRITE);
                    Ok(())
                }
                Err(error) => {
                    space.unmap_here(&operating, range).await;
                    Err(error)
                }
                Ok(()) => Ok(()),
            };
            space.not_busy(range);
            drop(operating);
            result
        })
        .await
    }

    /// munmap(2).
    pub async fn unmap(self: &Arc<Self>, start: UserAddr, length: u64) -> Result<()> {
        let range = checked_range(start, length).filter(|range| !range.is_empty()).ok_or(Errno::EINVAL)?;
        self.change(Operation::Unmap { range }).await.map(drop)
    }

    pub(crate) async fn unmap_here(self: &Arc<Self>, operating: &Operating, range: PageRange) {
        let mut withdrawal = Withdrawal::new();
        let removed = {
            let mut state = self.state.lock();
            let removed = state.regions.remove(range);
            removed.iter().for_each(|region| self.note_written(region));
            // At once, so that faults wait in all of it.
            self.take_pages(&mut state, range, &mut withdrawal, false);
            removed
        };
        drop(removed);
        self.settle(operating, withdrawal).await;
        self.give_up(operating, range).await;
    }

    /// mprotect(2). What lies before the first hole is changed even if the answer is ENOMEM.
    pub async fn protect(self: &Arc<Self>, start: UserAddr, length: u64, prot: Access) -> Result<()> {
        if start.offset() != 0 {
            return Err(Errno::EINVAL);
        }
        let range = checked_range(start, length).ok_or(Errno::ENOMEM)?;
        self.check_room_for_data(range, prot).await?;
        self.change(Operation::Protect { range, prot }).await.map(drop)
    }

    pub(crate) async fn protect_here(
        self: &Arc<Self>,
        operating: &Operating,
        range: PageRange,
        prot: Access,
    ) -> Result<u64> {
        let access = effective(prot);
        let mut withdrawal = Withdrawal::keeping(access);
        let result = {
            let mut state = self.state.lock();
            let hole = state.regions.hole(range);
            state.regions.check_cuts(range, false)?;
            let parts: Vec<Region> = state
                .regions
                .overlapping(PageRange::new(range.start, hole.unwrap_or(range.end)))
                .map(|region| region.cut(range))
                .collect();
            let refused = parts.iter().find(|region| !region.kind.limit.contains(prot)).map(|r| r.range.start);
            let end = refused.or(hole).unwrap_or(range.end);
            for region in parts.iter().take_while(|region| region.range.start < end) {
                state.regions.update(region.range, |kind| kind.prot = prot);
                if region.access() != access {
                    self.set_access(&mut state, region.range, access, &mut withdrawal);
                }
            }
            withdrawal.hold(&mut state, range);
            match (refused, hole) {
                (Some(_), _) => Err(Errno::EACCES),
                (None, Some(_)) => Err(Errno::ENOMEM),
                (None, None) => Ok(0),
            }
        };
        self.settle(operating, withdrawal).await;
        result
    }

    /// Brings the entries of owned pages in line with a new protection. What a write still has to pass
    /// through (copy-on-write, the dirty mark of an object) stays unwritable.
    fn set_access(&self, state: &mut State, range: PageRange, access: Access, withdrawal: &mut Withdrawal) {
        let mut narrowed = Ranges::default();
        self.table.walk_runs(range, u64::MAX, &mut |pages, mapping| {
            let held = mapping.soft.intersects(Soft::COW | Soft::CACHE) && !mapping.access.contains(Access::WRITE);
            let new = if held { access - Access::WRITE } else { access };
            if !new.contains(mapping.access) {
                narrowed.add(pages);
            }
            Step::Replace(Mapping { access: new, ..mapping })
        });
        if !narrowed.is_empty() {
            self.table.flush(range);
        }
        narrowed.iter().for_each(|range| withdrawal.narrow(state, range));
        if access.is_empty() {
            // Sharers have lost them altogether.
            for range in withdrawal.ranges.iter() {
                state.exports.remove(range);
            }
            self.table.walk_runs(range, u64::MAX, &mut |_, mapping| match mapping.soft.contains(Soft::EXPORTED) {
                true => Step::Replace(Mapping { soft: mapping.soft - Soft::EXPORTED, ..mapping }),
                false => Step::Keep,
            });
        }
    }
}

/// The kind of region that a request makes.
fn describe(request: &MapRequest, bytes: u64) -> Result<(RegionKind, Option<Backing>)> {
    let mut flags = RegionFlags::empty();
    flags.set(RegionFlags::SHARED, request.shared);
    flags.set(RegionFlags::GROWS_DOWN, request.grows_down || request.stack);
    flags.set(RegionFlags::STACK, request.stack);
    flags.set(RegionFlags::PROGRAM, request.program);
    flags.set(RegionFlags::NO_RESERVE, request.no_reserve);
    flags.set(RegionFlags::LOCKED, request.locked);
    let (limit, backing) = match &request.source {
        Source::Anonymous => (Access::all(), None),
        Source::Object { object, offset, label, limit } => {
            if !offset.is_multiple_of(PAGE_SIZE as u64) {
                return Err(Errno::EINVAL);
            }
            offset.checked_add(bytes).ok_or(Errno::EOVERFLOW)?;
            if request.grows_down {
                return Err(Errno::EINVAL);
            }
            let first = offset >> PAGE_BITS;
            (*limit, Some(Backing { object: object.clone(), first, label: label.clone() }))
        }
    };
    if !limit.contains(request.prot) {
        return Err(Errno::EACCES);
    }
    Ok((RegionKind { prot: request.prot, limit, flags: flags.bits() }, backing))
}
