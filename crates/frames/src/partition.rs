//! The partition: its zones, its CPUs' caches, and the way between a frame and its bytes.

use crate::{
    bytes,
    cache::{self, CpuCache},
    carve::Carve,
    zone::Zone,
    MAX_ORDER,
};
use core::{
    ops::Range,
    ptr::NonNull,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};
use machine::{group::Tag, Frame, KernelId, PAGE_SIZE};

const PAGE: u64 = PAGE_SIZE as u64;

/// For whom a frame is. Programs stop first and their page tables next, so that the kernel can still do what
/// it takes to end one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Anything the kernel itself needs: to the last frame.
    Kernel,
    /// Tables and whatever else grows with what programs map.
    Table,
    /// Pages of programs and files.
    User,
    /// Pages for which other kernels' memory will do.
    Anywhere,
}

/// What a partition is made from. Ranges are physical byte addresses.
pub struct Config<'a> {
    /// Virtual address of physical address 0 in the direct map.
    pub direct_base: usize,
    /// The memory of the partition: ascending, disjoint, page-aligned.
    pub ranges: &'a [Range<u64>],
    /// Parts of it that are in use already (image, boot tables, lanes), in any order.
    pub reserved: &'a [Range<u64>],
    /// CPUs of the kernel, and which of them (counted from zero) the caller runs on. A wrong answer
    /// costs speed, never correctness.
    pub cpus: usize,
    pub cpu: fn() -> usize,
}

/// No gap of the memory has room for the allocator's own tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooSmall;

/// One part in so many is kept for pages that must lie here, while others have memory.
const KEPT_FOR_OWN: usize = 8;

/// A frame is said to come home that is not away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotLent(pub Frame);

pub struct Partition {
    direct_base: usize,
    zones: &'static [Zone],
    caches: &'static [CpuCache],
    cpu: fn() -> usize,
    total: u64,
    /// Frames that programs leave free, while they are out of the CPUs' caches.
    reserve: usize,
    /// See [`Partition::is_short`].
    short: AtomicBool,
}

/// Kept back from programs: about a hundredth, as Linux's min_free_kbytes; little on machines of a test's size.
fn reserve_of(total: u64) -> usize {
    (total / 128).clamp(64, 2048).min(total / 16) as usize
}

impl Partition {
    /// # Safety
    /// `direct_base + address` is mapped writable for all of `ranges`, for ever, and what is not in
    /// `reserved` belongs to nobody else.
    pub unsafe fn new(config: &Config) -> Result<Self, TooSmall> {
        let zones = config.ranges.len();
        let bytes = Carve::cost::<Zone>(zones)
            + Carve::cost::<CpuCache>(config.cpus)
            + config.ranges.iter().map(|range| Zone::cost(&frames_of(range))).sum::<usize>();
        let bytes = bytes.next_multiple_of(PAGE_SIZE);
        let own = config
            .ranges
            .iter()
            .flat_map(|range| gaps(range.clone(), config.reserved))
            .find(|gap| gap.end - gap.start >= bytes as u64)
            .map(|gap| gap.start..gap.start + bytes as u64)
            .ok_or(TooSmall)?;
        let start = NonNull::new((config.direct_base + own.start as usize) as *mut u8).ok_or(TooSmall)?;
        // SAFETY: mapped and nobody's, says the caller, since `own` lies between the reserved parts;
        // and below it is reserved before anything is given out.
        let mut carve = unsafe { Carve::new(start, bytes) };
        let mut zone_storage = carve.split(Carve::cost::<Zone>(zones));
        let caches = carve.fill(config.cpus.max(1), |_| CpuCache::new());
        let zones = zone_storage.fill(zones, |zone| Zone::new(frames_of(&config.ranges[zone]), &mut carve));

        for (zone, range) in zones.iter().zip(config.ranges) {
            for gap in gaps(range.clone(), config.reserved) {
                for free in gaps(gap, core::slice::from_ref(&own)) {
                    zone.give(frames_of(&free));
                }
            }
        }
        let total = zones.iter().map(|zone| zone.range().end - zone.range().start).sum();
        Ok(Partition {
            direct_base: config.direct_base,
            zones,
            caches,
            cpu: config.cpu,
            total,
            reserve: reserve_of(total),
            short: AtomicBool::new(false),
        })
    }

    /// Takes over memory of the partition that was said to be reserved.
    ///
    /// # Safety
    /// Page-aligned, all of it reserved, and nobody uses it any more.
    pub unsafe fn give(&self, range: Range<u64>) {
        let frames = frames_of(&range);
        for zone in self.zones {
            let part = frames.start.max(zone.range().start)..frames.end.min(zone.range().end);
            if !part.is_empty() {
                zone.give(part);
            }
        }
    }

    /// Whether `frame` lies in this partition.
    pub fn contains(&self, frame: Frame) -> bool {
        self.zones.iter().any(|zone| zone.contains(frame))
    }

    /// Frames of the partition in all, and free ones (a snapshot).
    pub fn totals(&self) -> (u64, u64) {
        let cached: usize = self.caches.iter().map(|cache| cache.0.lock().len()).sum();
        let free: usize = self.zones.iter().map(Zone::free_count).sum();
        (self.total, (cached + free) as u64)
    }

    /// A zeroed frame with one user.
    pub fn alloc(&self) -> Option<Frame> {
        self.look_at_reserve();
        self.alloc_for(Purpose::Kernel)
    }

    /// The same, if `purpose` may have one.
    pub fn alloc_for(&self, purpose: Purpose) -> Option<Frame> {
        // Tables are made between pages that lie in a row, and stay when those go: a hole in the row, if they were of the same block.
        let alone = if purpose == Purpose::Table { self.take_alone() } else { None };
        let frame = alone.or_else(|| self.take_cached(purpose)).or_else(|| self.steal())?;
        self.zone(frame).first_user(frame);
        // SAFETY: mapped, and nobody else's yet.
        unsafe { bytes::zero(self.pointer(frame).as_ptr()) };
        Some(frame)
    }

    /// `1 << order` contiguous frames, aligned to their size (up to 4 MiB), not zeroed: for the heap
    /// and for devices. They have no count and go back with [`Partition::free_run`].
    pub fn alloc_run(&self, order: usize) -> Option<Frame> {
        if order > MAX_ORDER {
            return None;
        }
        self.look_at_reserve();
        let take = || self.zones.iter().find_map(|zone| zone.take_run(order));
        take().or_else(|| {
            // What the caches hoard may be just the missing buddies.
            self.caches.iter().for_each(|cache| self.spill(&mut cache.0.lock(), cache::CAPACITY));
            take()
        })
    }

    pub fn free_run(&self, first: Frame, order: usize) {
        self.zone(first).put_run(first, order);
    }

    pub fn retain(&self, frame: Frame) {
        self.zone(frame).retain(frame);
    }

    pub fn release(&self, frame: Frame) {
        self.release_charged(frame);
    }

    /// The same. Gives the tag of a frame that has no user any more.
    pub fn release_charged(&self, frame: Frame) -> Tag {
        let zone = self.zone(frame);
        if !zone.release(frame) {
            return Tag::NONE;
        }
        let tag = zone.tag(frame);
        if tag != Tag::NONE {
            zone.set_tag(frame, Tag::NONE);
        }
        self.put_cached(frame);
        tag
    }

    /// To whom a frame that is counted here is charged.
    pub fn tag(&self, frame: Frame) -> Tag {
        self.zone(frame).tag(frame)
    }

    pub fn set_tag(&self, frame: Frame, tag: Tag) {
        self.zone(frame).set_tag(frame, tag);
    }

    /// Users of `frame`; 0 for one that is free, lent, reserved or in a run.
    pub fn count(&self, frame: Frame) -> u32 {
        self.zone(frame).count(frame)
    }

    /// The single user gives `frame` to another kernel, which counts its users from now on.
    pub fn lend(&self, frame: Frame, to: KernelId) {
        self.zone(frame).lend(frame, to);
    }

    pub fn is_lent(&self, frame: Frame) -> bool {
        self.zone(frame).is_lent(frame)
    }

    /// Whether the frame is the partition's and not lent, so that its users are counted here.
    #[inline]
    pub fn counts(&self, frame: Frame) -> bool {
        self.zones.iter().find(|zone| zone.contains(frame)).is_some_and(|zone| !zone.is_lent(frame))
    }

    /// Frees a frame that was lent to `from`. Another kernel's word is not trusted: Err rather than panic.
    pub fn take_home(&self, frame: Frame, from: KernelId) -> Result<(), NotLent> {
        let zone = self.zones.iter().find(|zone| zone.contains(frame)).ok_or(NotLent(frame))?;
        if !zone.take_home(frame, from) {
            return Err(NotLent(frame));
        }
        self.put_cached(frame);
        Ok(())
    }

    /// Frees all that is lent to a kernel that has died.
    pub fn take_all_home(&self, dead: KernelId) {
        for (zone, frame) in self.zones.iter().flat_map(|zone| zone.all_lent_to(dead).map(move |frame| (zone, frame))) {
            if zone.take_home(frame, dead) {
                self.put_cached(frame);
            }
        }
    }

    /// A lent frame comes back in use (its page is owned here again): one user.
    pub fn adopt(&self, frame: Frame) {
        self.zone(frame).adopt(frame);
    }

    /// Where the direct map has `frame`, which lies in this partition.
    pub fn pointer(&self, frame: Frame) -> NonNull<u8> {
        debug_assert!(self.contains(frame), "{frame:?} is foreign");
        NonNull::new((self.direct_base + frame.address() as usize) as *mut u8).expect("the map isn't at 0")
    }

    /// Whether there is so much that what lies elsewhere may go home: twice what [`Purpose::Anywhere`] leaves.
    pub fn has_plenty(&self) -> bool {
        self.totals().1 as usize > 2 * self.total as usize / KEPT_FOR_OWN
    }

    /// Whether the kernel has taken of the half of the reserve that is its own, since [`Partition::relieved`]. It got what it
    /// asked for, but before programs make it ask for more, one of them has to go.
    pub fn is_short(&self) -> bool {
        self.short.load(Relaxed)
    }

    /// What could be done has been done.
    pub fn relieved(&self) {
        self.short.store(false, Relaxed);
    }

    fn look_at_reserve(&self) {
        if !self.admits(Purpose::Table, 0) {
            self.short.store(true, Relaxed);
        }
    }

    fn zone(&self, frame: Frame) -> &Zone {
        match self.zones.iter().find(|zone| zone.contains(frame)) {
            Some(zone) => zone,
            None => panic!("{frame:?} is not of this partition"),
        }
    }

    fn cache(&self) -> &CpuCache {
        &self.caches[(self.cpu)() % self.caches.len()]
    }

    fn take_cached(&self, purpose: Purpose) -> Option<Frame> {
        let mut cache = self.cache().0.lock();
        // Looked at once a batch: the caches are small against the reserve.
        if cache.len() == 0 && self.admits(purpose, 0) {
            for zone in self.zones {
                let wanted = cache::BATCH - cache.len();
                zone.take(wanted, |frame| cache.push(frame));
            }
            // Lowest first: pages touched in order get frames in order, which other kernels are told of in one piece.
            cache.reverse();
        }
        cache.pop()
    }

    /// A frame of the smallest block there is, for a table.
    fn take_alone(&self) -> Option<Frame> {
        if !self.admits(Purpose::Table, 0) {
            return None;
        }
        self.zones.iter().find_map(|zone| {
            let mut found = None;
            zone.take(1, |frame| found = Some(frame));
            found
        })
    }

    /// Whether `purpose` may have another frame, and so many `more`.
    pub fn admits(&self, purpose: Purpose, more: usize) -> bool {
        let least = match purpose {
            Purpose::Kernel => return true,
            Purpose::Table => self.reserve / 2,
            Purpose::User => self.reserve,
            Purpose::Anywhere => self.total as usize / KEPT_FOR_OWN,
        };
        self.zones.iter().map(Zone::free_count).sum::<usize>() > least + more
    }

    /// The buddy has none to give: a frame of a sibling's cache.
    fn steal(&self) -> Option<Frame> {
        self.caches.iter().find_map(|cache| cache.0.lock().pop())
    }

    fn put_cached(&self, frame: Frame) {
        let mut cache = self.cache().0.lock();
        if cache.len() == cache::CAPACITY {
            self.spill(&mut cache, cache::BATCH);
        }
        cache.push(frame);
    }

    /// The `count` coldest frames of a cache go back to their zones, one lock for a run of frames of
    /// the same zone.
    fn spill(&self, cache: &mut cache::Stack, count: usize) {
        let mut batch = [Frame(0); cache::CAPACITY];
        let mut len = 0;
        cache.take_oldest(count, |frame| {
            batch[len] = frame;
            len += 1;
        });
        for frames in batch[..len].chunk_by(|a, b| core::ptr::eq(self.zone(*a), self.zone(*b))) {
            self.zone(frames[0]).put(frames.iter().copied());
        }
    }
}

fn frames_of(range: &Range<u64>) -> Range<u64> {
    range.start / PAGE..range.end / PAGE
}

/// The page-aligned parts of `range` that no part of `reserved` touches, ascending.
fn gaps(range: Range<u64>, reserved: &[Range<u64>]) -> impl Iterator<Item = Range<u64>> + '_ {
    let mut at = range.start;
    core::iter::from_fn(move || {
        while let Some(over) = reserved.iter().find(|part| part.start / PAGE * PAGE <= at && at < part.end) {
            at = over.end.next_multiple_of(PAGE);
        }
        if at >= range.end {
            return None;
        }
        let next = reserved.iter().map(|part| part.start / PAGE * PAGE).filter(|start| *start > at).min();
        let gap = at..next.unwrap_or(range.end).min(range.end);
        at = gap.end;
        Some(gap)
    })
}
