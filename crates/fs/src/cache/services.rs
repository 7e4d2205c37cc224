//! What files take from the kernel they live on: memory, clocks, tasks, serial numbers.

use super::{reclaim::Turns, refaults::Refaults, Flusher, PageCache};
use crate::{inode::locks::Locked, Object, ObjectId, Timestamp};
use alloc::{
    boxed::Box,
    collections::BTreeMap,
    sync::{Arc, Weak},
    vec::Vec,
};
use core::{
    ops::Range,
    sync::atomic::{AtomicU32, AtomicUsize, Ordering},
};
use machine::{
    account::Accounts, errno::Result, sync::Lock, BoxFuture, CountedFrame, Errno, Frame, GroupId, HashMap, KernelId,
    KernelSet, Memory, Pid, Serials, Spawner, PAGE_SIZE,
};
use messages::fs::{Lost, MappingUse};

/// Cached pages that go at a time when memory is short.
const RECLAIM_BATCH: usize = 64;
/// Of a kernel's number in that of a device: a machine has 299 at most.
const KERNEL_BITS: u32 = 9;
/// Files in memory leave this part of it free.
const LEFT_BY_FILES: u64 = 16;

/// The two clocks that file systems read.
pub trait Clock: Send + Sync {
    /// CLOCK_REALTIME, for the times of files.
    fn realtime(&self) -> Timestamp;
    /// Nanoseconds that only go forward, for the age of cached answers.
    fn monotonic(&self) -> u64;
    /// Done once [`Clock::monotonic`] has reached `ns`. None: nobody can wait here, so what is to happen later happens at once.
    fn at(&self, _ns: u64) -> Option<BoxFuture<'static, ()>> {
        None
    }
}

/// Who maps pages of objects, and knows whose memory there is.
pub trait Mappers: Send + Sync {
    /// Address spaces of this kernel show none of the lost pages afterwards, nor does any kernel that borrowed them
    /// from one.
    fn lost(&self, lost: Lost) -> BoxFuture<'_, ()>;
    /// Nor do `others`, which had pages from the object itself. Answers those that use nothing of it any more.
    fn recall(&self, others: KernelSet, lost: Lost) -> BoxFuture<'_, KernelSet>;
    /// Takes pages out of the page tables of this kernel's address spaces, and of those of kernels that borrowed them from one. They are still the object's: a program that touches one
    /// faults, and gets it from there. A page stays mapped where it is locked or may be written. With `used` false it also stays where a program has used it since the last such call.
    fn unmap(&self, _object: ObjectId, _pages: Range<u64>, _used: bool) -> BoxFuture<'_, ()> {
        Box::pin(core::future::ready(()))
    }
    /// Asks other kernels for frames, also (`must`) if that was in vain lately. True if there are some for
    /// [`Memory::alloc_anywhere`] now.
    fn borrow(&self, _must: bool) -> BoxFuture<'_, bool> {
        Box::pin(core::future::ready(false))
    }
    /// This kernel may not charge a control group with a page more: gets it leave to. False: there is none to be had.
    fn room_in_group(&self, _group: GroupId) -> BoxFuture<'_, bool> {
        Box::pin(core::future::ready(false))
    }
    /// How many mappings on all kernels use an object so.
    fn uses(&self, object: ObjectId, usage: MappingUse) -> BoxFuture<'_, u64>;
}

pub struct Services {
    pub memory: Arc<dyn Memory>,
    /// Who pays for what is kept here.
    pub accounts: Arc<Accounts>,
    pub clock: Arc<dyn Clock>,
    pub spawner: Arc<dyn Spawner>,
    serials: Serials,
    device: AtomicU32,
    /// All caches by serial number; each takes itself out when it ends.
    objects: Lock<HashMap<u64, Weak<PageCache>>>,
    /// Caches whose pages can be read again, hence reclaimed.
    pub(super) caches: Lock<Vec<Weak<PageCache>>>,
    pub(super) turns: Turns,
    /// Pages that have gone too early. [`crate::remote::Remote`] counts in it, too.
    pub refaults: Arc<Refaults>,
    mappers: Lock<Option<Arc<dyn Mappers>>>,
    pub(crate) locked: Arc<Locked>,
    /// What is dirty.
    pub flusher: Flusher,
    /// Frames of transfers past the caches (direct.rs).
    pub(crate) bounced: AtomicUsize,
}

impl Services {
    pub fn new(memory: Arc<dyn Memory>, clock: Arc<dyn Clock>, spawner: Arc<dyn Spawner>) -> Arc<Self> {
        Arc::new(Services {
            serials: Serials::new(&*memory),
            refaults: Arc::new(Refaults::new(&*memory)),
            accounts: Accounts::new(memory.totals().0 as usize * PAGE_SIZE),
            memory,
            clock,
            spawner,
            device: AtomicU32::new(1),
            objects: Lock::default(),
            caches: Lock::new(Vec::new()),
            turns: Turns::default(),
            mappers: Lock::new(None),
            locked: Arc::default(),
            flusher: Flusher::default(),
            bounced: AtomicUsize::new(0),
        })
    }

    /// Says who must hear of lost pages.
    pub fn set_mappers(&self, mappers: Arc<dyn Mappers>) {
        *self.mappers.lock() = Some(mappers);
    }

    pub(crate) fn mappers(&self) -> Option<Arc<dyn Mappers>> {
        self.mappers.lock().clone()
    }

    /// Processes that have ended, and did not close their files, have no record locks on files of this kernel any more.
    pub async fn end_locks(&self, ended: &(dyn Fn(Pid) -> bool + Sync)) {
        self.locked.end(ended).await;
    }

    pub(crate) fn object_id(&self) -> ObjectId {
        ObjectId { owner: self.memory.kernel(), serial: self.serials.next() }
    }

    /// A number for a file system without a device, as Linux's get_anon_bdev; that of no other kernel.
    pub fn anonymous_device(&self) -> (u32, u32) {
        (0, self.device.fetch_add(1, Ordering::Relaxed) << KERNEL_BITS | u32::from(self.memory.kernel().0))
    }

    pub(crate) fn register(&self, cache: &Arc<PageCache>) {
        self.objects.lock().insert(cache.id().serial, Arc::downgrade(cache));
    }

    pub(crate) fn unregister(&self, id: ObjectId) {
        self.objects.lock().remove(&id.serial);
    }

    pub(crate) fn reclaimable(&self, cache: &Arc<PageCache>) {
        let mut caches = self.caches.lock();
        // Amortised: the list is swept of dead caches whenever it would have to grow.
        if caches.len() == caches.capacity() {
            caches.retain(|cache| cache.strong_count() > 0);
        }
        caches.push(Arc::downgrade(cache));
    }

    /// The object of this kernel with that name, if it is in use.
    pub fn object(&self, id: ObjectId) -> Option<Arc<PageCache>> {
        if id.owner != self.memory.kernel() {
            return None;
        }
        self.objects.lock().get(&id.serial)?.upgrade()
    }

    /// Frames that the caches hold, by the kernels whose they are.
    pub fn pages(&self) -> BTreeMap<KernelId, u64> {
        let objects: Vec<_> = self.objects.lock().values().filter_map(Weak::upgrade).collect();
        let mut pages = BTreeMap::new();
        for home in objects.iter().flat_map(|cache| cache.homes()) {
            *pages.entry(home).or_default() += 1;
        }
        pages
    }

    /// Pages of files that were borrowed from a kernel which has died are no more ([`Memory::forget`] has been called); returns
    /// when nobody shows them.
    pub async fn lose_frames(&self) {
        let objects: Vec<_> = self.objects.lock().values().filter_map(Weak::upgrade).collect();
        for cache in objects {
            cache.lose_frames().await;
        }
    }

    /// A zeroed frame for a file that exists nowhere else, so that it can't be had back. ENOSPC when little is
    /// free here and elsewhere: programs end for want of memory, writing files only fails.
    ///
    /// Who puts it into a file looks, under the file's lock, whether it [is lost](Memory::is_lost) already: that tells those
    /// that [`Services::lose_frames`] finds from those that come later.
    pub(crate) async fn lasting_frame(&self) -> Result<CountedFrame<'_>> {
        if let Some(frame) = self.frame_anywhere() {
            return Ok(frame);
        }
        if self.reclaim(RECLAIM_BATCH) > 0
            && let Some(frame) = self.frame_anywhere()
        {
            return Ok(frame);
        }
        if let Some(frame) = self.borrowed_frame(false).await {
            return Ok(frame);
        }
        match self.rest_at_home() {
            Err(full) => self.borrowed_frame(true).await.ok_or(full),
            frame => frame,
        }
    }

    async fn borrowed_frame(&self, must: bool) -> Option<CountedFrame<'_>> {
        let mappers = self.mappers()?;
        while mappers.borrow(must).await {
            // Others may have been faster.
            if let Some(frame) = self.frame_anywhere() {
                return Some(frame);
            }
        }
        None
    }

    fn rest_at_home(&self) -> Result<CountedFrame<'_>> {
        let missing = || {
            let (total, free) = self.memory.totals();
            (total / LEFT_BY_FILES).saturating_sub(free) as usize
        };
        match missing() {
            0 => {}
            frames => drop(self.reclaim(frames + RECLAIM_BATCH)),
        }
        match missing() {
            0 => self.frame().map_err(|_| Errno::ENOSPC),
            _ => Err(Errno::ENOSPC),
        }
    }

    /// A zeroed frame, at the cost of cached pages if need be.
    pub(crate) fn frame(&self) -> Result<CountedFrame<'_>> {
        let own = || self.memory.alloc().map(|frame| self.counted(frame));
        if let Some(frame) = own() {
            return Ok(frame);
        }
        self.reclaim(RECLAIM_BATCH);
        own().ok_or(Errno::ENOMEM)
    }

    /// A zeroed frame, perhaps one that another kernel has lent.
    pub(crate) fn frame_anywhere(&self) -> Option<CountedFrame<'_>> {
        self.memory.alloc_anywhere().map(|frame| self.counted(frame))
    }

    /// Takes over the count of a frame that was just allocated.
    fn counted(&self, frame: Frame) -> CountedFrame<'_> {
        CountedFrame::from_raw(&*self.memory, frame)
    }
}
