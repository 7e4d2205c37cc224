//! What bounds the mappings of a process: RLIMIT_AS and RLIMIT_DATA (man 2 getrlimit), and that more than the machine has is
//! promised to nobody.
//!
//! A space's replicas know the limits; how much is mapped only its owners know together. So where there is a limit, the
//! kernel of the thread that wants more asks all of them before anything is changed. Two changes at the same moment may both
//! find the room that is there for one.

use crate::{region::RegionFlags, space::Space};
use alloc::sync::Arc;
use machine::{errno::Result, Access, Errno, PageRange, PAGE_BITS};
use messages::vm::{LimitSpace, Limits, RegionKind, RegionReport};

/// Whether RLIMIT_DATA counts a region.
fn is_data(kind: &RegionKind) -> bool {
    kind.prot.contains(Access::WRITE)
        && !RegionFlags::from_bits_truncate(kind.flags).intersects(RegionFlags::SHARED | RegionFlags::GROWS_DOWN)
}

/// Pages that are mapped, by what the limits count.
#[derive(Default)]
struct Mapped {
    all: u64,
    data: u64,
}

impl Mapped {
    /// Whether so many more pages of a kind may be mapped.
    fn check(&self, limits: &Limits, kind: &RegionKind, pages: u64) -> Result<()> {
        let too_much = |used: u64, limit: u64| used + pages > limit >> PAGE_BITS;
        match too_much(self.all, limits.address_space) || is_data(kind) && too_much(self.data, limits.data) {
            true => Err(Errno::ENOMEM),
            false => Ok(()),
        }
    }
}

impl Space {
    /// Tells the limits to every kernel that may own a part of the space (setrlimit).
    pub async fn limit(self: &Arc<Self>, limits: Limits) {
        match self.is_home() {
            true => self.serve_limits(limits, true).await,
            false => {
                let told = LimitSpace { space: self.id, limits, everywhere: true };
                // A dead home takes the space with it.
                let _ = self.vm.endpoint.call(self.id.home, told).await;
            }
        }
    }

    pub(crate) async fn serve_limits(&self, limits: Limits, everywhere: bool) {
        self.set_limits(limits);
        if everywhere {
            let told = LimitSpace { space: self.id, limits, everywhere: false };
            self.vm.endpoint.multicast(&self.others(), told).await;
        }
    }

    /// Refuses a single mapping of more pages than the machine has (vm.overcommit_memory 0).
    pub(crate) fn check_promise(&self, kind: &RegionKind, pages: u64) -> Result<()> {
        let uncounted = RegionFlags::SHARED | RegionFlags::NO_RESERVE;
        let counted =
            kind.prot.contains(Access::WRITE) && !RegionFlags::from_bits_truncate(kind.flags).intersects(uncounted);
        match counted && pages > self.vm.machine_pages() {
            true => Err(Errno::ENOMEM),
            false => Ok(()),
        }
    }

    /// The limits and what they are compared with, if there are any. Shows each region.
    async fn limited(self: &Arc<Self>, mut show: impl FnMut(&RegionReport)) -> Option<(Limits, Mapped)> {
        let limits = self.limits();
        if limits.address_space == u64::MAX && limits.data == u64::MAX {
            return None;
        }
        let (mut mapped, mut regions) = (Mapped::default(), self.regions(PageRange::user()));
        while let Some(region) = regions.next().await {
            mapped.all += region.range.len();
            mapped.data += if is_data(&region.kind) { region.range.len() } else { 0 };
            show(&region);
        }
        Some((limits, mapped))
    }

    /// Whether a thread of this kernel may map so many more pages. Pages that replace others do not count.
    pub(crate) async fn check_room(
        self: &Arc<Self>,
        kind: &RegionKind,
        pages: u64,
        replaced: Option<PageRange>,
    ) -> Result<()> {
        let mut gone = 0;
        let show = |region: &RegionReport| gone += replaced.map_or(0, |range| region.range.intersect(range).len());
        let Some((limits, mapped)) = self.limited(show).await else { return Ok(()) };
        mapped.check(&limits, kind, pages - gone)
    }

    /// The same for mremap, which makes `pages` of `from` and may keep that. What is not mapped as it thinks is not refused here.
    pub(crate) async fn check_room_to_remap(self: &Arc<Self>, from: PageRange, pages: u64, keeps: bool) -> Result<()> {
        let more = if keeps { pages } else { pages.saturating_sub(from.len()) };
        if more == 0 {
            return Ok(());
        }
        let mut kind = None;
        let show = |region: &RegionReport| {
            if region.range.contains(from.start) && from.end <= region.range.end {
                kind = Some(region.kind);
            }
        };
        let Some((limits, mapped)) = self.limited(show).await else { return Ok(()) };
        kind.map_or(Ok(()), |kind| mapped.check(&limits, &kind, more))
    }

    /// And for mprotect, which makes data of what was none: as far as it will come, up to the first hole or refusal.
    pub(crate) async fn check_room_for_data(self: &Arc<Self>, range: PageRange, prot: Access) -> Result<()> {
        if self.limits().data == u64::MAX || !prot.contains(Access::WRITE) {
            return Ok(());
        }
        let (mut at, mut more) = (range.start, 0);
        let show = |region: &RegionReport| {
            let part = region.range.intersect(range);
            // After a hole or a refusal none begins there.
            if part.is_empty() || part.start != at || !region.kind.limit.contains(prot) {
                return;
            }
            at = part.end;
            if !is_data(&region.kind) && is_data(&RegionKind { prot, ..region.kind }) {
                more += part.len();
            }
        };
        // The address space does not grow.
        match self.limited(show).await {
            Some((limits, mapped)) if more > 0 && mapped.data + more > limits.data >> PAGE_BITS => Err(Errno::ENOMEM),
            _ => Ok(()),
        }
    }
}
