//! A volume: a disk, or a partition of one. Its pages are in a page cache of its own, as on Linux: who writes a disk and a partition of it at once sees two truths.

use super::{hold::Uses, queue::Queue, stats::Stats, Disks};
use crate::{
    cache::{DirectUnits, MAX_SIZE},
    file::Frames,
    Caller, File, PageCache, Services, Store, WriteErrors,
};
use alloc::{
    boxed::Box,
    string::String,
    sync::{Arc, Weak},
    vec::Vec,
};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use machine::{
    block::{BlockDevice, BlockOp, CountedPart, Piece, Pieces, SECTOR},
    errno::Result,
    join_all,
    sync::Lock,
    BoxFuture, Errno, KernelId, PAGE_SIZE,
};
use messages::disk::PlacedDisk;
use spin::Once;

/// Where a volume's bytes are, and what has been asked of it.
pub struct Content {
    services: Arc<Services>,
    /// Of the disk.
    queue: Arc<Queue>,
    start: u64,
    sectors: AtomicU64,
    /// Also counted in the disk's.
    disk: Option<Arc<Stats>>,
    pub(super) stats: Arc<Stats>,
    /// What could not be written back: who has the volume open hears of it at his next fsync.
    pub(super) errors: WriteErrors,
    cache: Lock<Weak<PageCache>>,
}

impl Content {
    /// Does `op` from byte `offset` of the volume on.
    async fn submit(&self, op: BlockOp, offset: u64, pages: Pieces) -> Result<()> {
        let counted = || (self.stats.clone(), self.disk.clone());
        self.queue.submit(op, self.start + offset / SECTOR, pages, counted).await
    }

    /// Reads or writes `pages`, from a byte of the volume on: in as few requests as the disk can, all at once.
    async fn transfer(&self, op: BlockOp, offset: u64, pages: Frames<'_>) -> Result<()> {
        let most = self.queue.most();
        let mut parts: Vec<(u64, Pieces)> = Vec::new();
        let mut at = offset;
        for (frame, within, bytes) in pages.pieces() {
            let piece = Piece { frame, offset: within, bytes };
            match parts.last_mut() {
                Some((_, part))
                    if part.len() + bytes <= most.bytes
                        && part.as_slice().len() < most.pieces
                        && (part.segments() < most.segments || part.continues(&piece)) =>
                {
                    part.push(piece);
                }
                _ => {
                    let mut part = Pieces::none(&self.services.memory);
                    part.push(piece);
                    parts.push((at, part));
                }
            }
            at += bytes as u64;
        }
        if parts.len() == 1 {
            return self.submit(op, offset, parts.remove(0).1).await;
        }
        let all = parts.into_iter().map(|(at, part)| -> BoxFuture<'_, _> { Box::pin(self.submit(op, at, part)) });
        self.queue.plugged(join_all(all.collect())).await.into_iter().collect()
    }
}

/// What the page cache asks of it.
struct Below(Arc<Content>);

impl Store for Below {
    fn read<'a>(&'a self, offset: u64, to: Frames<'a>) -> BoxFuture<'a, Result<usize>> {
        Box::pin(async move {
            let left = (self.0.sectors.load(Relaxed) * SECTOR).saturating_sub(offset);
            let bytes = to.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            self.0.transfer(BlockOp::Read, offset, to.part(0, bytes)).await?;
            Ok(bytes)
        })
    }

    fn write<'a>(&'a self, offset: u64, from: Frames<'a>) -> BoxFuture<'a, Result<()>> {
        Box::pin(
            async move { self.0.transfer(BlockOp::Write, offset, from).await.inspect_err(|_| self.0.errors.note()) },
        )
    }

    fn sync(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.0.submit(BlockOp::Flush, 0, Pieces::none(&self.0.services.memory)))
    }

    fn direct(&self) -> Option<DirectUnits> {
        let block = self.0.queue.limits().block;
        Some(DirectUnits { sector: block, block })
    }

    fn read_ahead(&self) -> u64 {
        self.0.queue.settings.read_ahead()
    }

    fn dirtied(&self, _mapped: bool) {
        if let Some(cache) = self.0.cache.lock().upgrade() {
            self.0.services.write_back_later(&cache);
        }
    }
}

/// What gives a disk its bytes and takes them away again: a loop device.
pub trait Driver: Send + Sync {
    /// An ioctl that is the driver's; `can_write`: by who has the disk open to write it. ENOTTY: it is not the driver's.
    fn request<'a>(
        &'a self,
        caller: &'a Caller,
        can_write: bool,
        request: u32,
        data: &'a mut Vec<u8>,
    ) -> BoxFuture<'a, Result<i64>>;
    /// Takes the disk's bytes from `file` from now on, as `configuration` says; `can_write` as above.
    fn attach<'a>(&'a self, file: Arc<dyn File>, can_write: bool, configuration: &'a [u8])
        -> BoxFuture<'a, Result<()>>;
    /// The file that has the disk's bytes, if one has.
    fn backing(&self) -> Option<Arc<dyn File>>;
    /// Nobody uses the disk or its partitions any more: what is to be done then.
    fn unused(self: Arc<Self>) -> Option<BoxFuture<'static, ()>>;
    /// The files of directory `loop` in the disk's directory of /sys; None: there is none.
    fn shown(&self) -> Option<Vec<(&'static str, Vec<u8>)>>;
}

/// What a volume is called and where it is.
pub(super) struct Place {
    pub name: String,
    /// Major and minor.
    pub number: (u32, u32),
    /// The first sector, and how many.
    pub sectors: (u64, u64),
}

/// A partition: which, and of what disk.
#[derive(Clone)]
pub(super) struct Part {
    pub number: u32,
    pub disk: Arc<Volume>,
    pub identity: Identity,
}

/// What a table of partitions says of one beside its place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// PARTUUID, as blkid writes it; empty: it has none.
    pub uuid: String,
    /// PARTLABEL.
    pub label: String,
}

/// A disk or a partition.
pub struct Volume {
    name: String,
    number: (u32, u32),
    part: Option<Part>,
    content: Arc<Content>,
    cache: Arc<PageCache>,
    uses: Uses,
    driver: Option<Arc<dyn Driver>>,
    /// The disks that it is one of, if it was there when the machine started.
    disks: Once<Weak<Disks>>,
}

impl Volume {
    pub(super) fn new(
        services: &Arc<Services>,
        queue: &Arc<Queue>,
        place: Place,
        part: Option<Part>,
        driver: Option<Arc<dyn Driver>>,
    ) -> Arc<Volume> {
        let Place { name, number, sectors: (start, sectors) } = place;
        let content = Arc::new(Content {
            services: services.clone(),
            queue: queue.clone(),
            start,
            sectors: AtomicU64::new(sectors),
            disk: part.as_ref().map(|part| part.disk.content.stats.clone()),
            stats: Arc::default(),
            errors: WriteErrors::default(),
            cache: Lock::new(Weak::new()),
        });
        let cache = PageCache::over(services, sectors * SECTOR, Arc::new(Below(content.clone())));
        *content.cache.lock() = Arc::downgrade(&cache);
        Arc::new(Volume { name, number, part, content, cache, uses: Uses::default(), driver, disks: Once::new() })
    }

    /// As below /dev.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Major and minor.
    pub fn number(&self) -> (u32, u32) {
        self.number
    }

    /// Which partition of its disk it is, and with which sector of that it begins; None: it is the disk.
    pub fn partition(&self) -> Option<(u32, u64)> {
        self.part.as_ref().map(|part| (part.number, self.content.start))
    }

    /// What another kernel that drives its disk is to know of it. None: its disk is driven here.
    pub(crate) fn placed(&self) -> Option<(KernelId, PlacedDisk)> {
        let (kernel, disk) = self.device().driven_by()?;
        let (name, sectors) = (self.name.clone(), self.extent());
        Some((kernel, PlacedDisk { disk, name, number: self.number, sectors }))
    }

    /// Whether it is what another kernel says.
    pub(super) fn is_at(&self, name: &str, sectors: (u64, u64)) -> bool {
        (self.name(), self.extent()) == (name, sectors)
    }

    /// Its first sector of the disk, and how many it has.
    pub(super) fn extent(&self) -> (u64, u64) {
        (self.content.start, self.sectors())
    }

    /// How large it is.
    pub fn sectors(&self) -> u64 {
        self.content.sectors.load(Relaxed)
    }

    /// The same in bytes.
    pub fn bytes(&self) -> u64 {
        self.sectors() * SECTOR
    }

    /// The disk that it is, or is on.
    pub fn device(&self) -> &dyn BlockDevice {
        &**self.content.queue.device()
    }

    /// The disk that it is a partition of; None: it is a disk itself.
    pub fn disk(&self) -> Option<&Arc<Volume>> {
        self.part.as_ref().map(|part| &part.disk)
    }

    /// What the table of partitions calls it.
    pub fn identity(&self) -> Identity {
        self.part.as_ref().map(|part| part.identity.clone()).unwrap_or_default()
    }

    /// What gives the disk its bytes, if that is not a machine's device.
    pub fn driver(&self) -> Option<&Arc<dyn Driver>> {
        self.driver.as_ref()
    }

    pub(super) fn listed_in(&self, disks: &Arc<Disks>) {
        self.disks.call_once(|| Arc::downgrade(disks));
    }

    /// Reads its table of partitions again. EINVAL: it has none.
    pub(super) async fn rescan(self: &Arc<Self>) -> Result<()> {
        let disks = self.disks.get().and_then(Weak::upgrade).filter(|_| self.disk().is_none());
        disks.ok_or(Errno::EINVAL)?.rescan(self).await
    }

    /// Whether it is a disk with a driver, or a partition of one.
    pub(super) fn is_driven(&self) -> bool {
        self.disk().map_or(self.driver.is_some(), |disk| disk.driver.is_some())
    }

    /// The queue of that disk.
    pub fn queue(&self) -> &Arc<Queue> {
        &self.content.queue
    }

    pub(super) fn services(&self) -> &Arc<Services> {
        &self.content.services
    }

    pub(super) fn uses(&self) -> &Uses {
        &self.uses
    }

    /// Other bytes lie below from now on, so many sectors: forgets all pages.
    pub(crate) async fn replaced(&self, sectors: u64) -> Result<()> {
        self.content.sectors.store(sectors, Relaxed);
        for bytes in [0, sectors * SECTOR] {
            self.cache.truncate(bytes, |_, _| Ok(()), crate::file::ready(Ok(()))).await?;
        }
        Ok(())
    }

    /// The same bytes lie below, but more or fewer.
    pub(super) async fn resized(&self, sectors: u64) -> Result<()> {
        self.content.sectors.store(sectors, Relaxed);
        self.cache.truncate(sectors * SECTOR, |_, _| Ok(()), crate::file::ready(Ok(()))).await
    }

    /// What has been asked of it, also on a kernel that drives its disk and has mounted it, as a line of /proc/diskstats.
    pub async fn counts(&self) -> [u64; 17] {
        self.counts_with(&self.counted_there().await)
    }

    pub(super) async fn counted_there(&self) -> Vec<CountedPart> {
        match self.device().counted_there() {
            Some(counted) => counted.await,
            None => Vec::new(),
        }
    }

    /// Its counters and those of `there`: of all parts, if it is the disk.
    pub(super) fn counts_with(&self, there: &[CountedPart]) -> [u64; 17] {
        let mut numbers = self.stats().numbers();
        for part in there.iter().filter(|part| self.part.is_none() || part.sectors == self.extent()) {
            numbers.iter_mut().zip(part.numbers).for_each(|(number, more)| *number += more);
        }
        numbers
    }

    /// What has been asked of it here.
    pub fn stats(&self) -> &Stats {
        &self.content.stats
    }

    pub(crate) fn cache(&self) -> &Arc<PageCache> {
        &self.cache
    }

    pub(super) fn errors(&self) -> &WriteErrors {
        &self.content.errors
    }

    /// Reads whole sectors from byte `offset` on, past the page cache.
    pub(crate) async fn read_into(&self, offset: u64, to: Frames<'_>) -> Result<()> {
        if !offset.is_multiple_of(SECTOR) || offset.checked_add(to.len() as u64).is_none_or(|end| end > self.bytes()) {
            return Err(Errno::EIO);
        }
        self.content.transfer(BlockOp::Read, offset, to).await
    }

    /// Writes whole sectors from byte `offset` on, past the page cache. A disk that is dropped while it writes still writes.
    pub(crate) async fn write_from(&self, offset: u64, from: Frames<'_>) -> Result<()> {
        if !offset.is_multiple_of(SECTOR) || offset.checked_add(from.len() as u64).is_none_or(|end| end > self.bytes())
        {
            return Err(Errno::EIO);
        }
        self.content.transfer(BlockOp::Write, offset, from).await
    }

    /// What the disk has answered as written stays if the power fails.
    pub(crate) async fn flush(&self) -> Result<()> {
        self.content.submit(BlockOp::Flush, 0, Pieces::none(&self.content.services.memory)).await
    }

    /// Writes dirty pages of these bytes back.
    pub(super) async fn write_back(&self, start: u64, end: u64) -> Result<()> {
        self.cache.write_back(start, end).await
    }

    /// The same of all, and what the disk has of it stays if the power fails.
    pub async fn sync(&self) -> Result<()> {
        self.write_back(0, MAX_SIZE).await?;
        self.flush().await
    }

    /// Says that nobody wants these bytes any more, which must be whole sectors (EINVAL): they may be anything then. EOPNOTSUPP: the disk can't.
    pub(super) async fn discard(&self, start: u64, bytes: u64) -> Result<()> {
        let end = self.check_sectors(start, bytes)?;
        let most = self.device().limits().most_discarded;
        if most == 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        // Nothing older may follow it there.
        self.write_back(start, end).await?;
        self.by_ranges(start, end, most, |sectors| BlockOp::Discard { sectors }).await?;
        self.cache.invalidate(self.bytes(), self.cache.epoch()).await;
        Ok(())
    }

    /// Makes these bytes zero, which must be whole sectors (EINVAL), on the disk too.
    pub(super) async fn zero(&self, start: u64, bytes: u64) -> Result<()> {
        let end = self.check_sectors(start, bytes)?;
        match self.device().limits().most_zeroed {
            0 => self.write_zeroes(start, end).await?,
            most => {
                let below = self.by_ranges(start, end, most, |sectors| BlockOp::WriteZeroes { sectors });
                self.cache.zero(start, end, Box::pin(below)).await?;
            }
        }
        self.write_back(start, end).await
    }

    /// Where the bytes end.
    fn check_sectors(&self, start: u64, bytes: u64) -> Result<u64> {
        let end = start.checked_add(bytes).filter(|end| *end <= self.bytes()).ok_or(Errno::EINVAL)?;
        let whole = start.is_multiple_of(SECTOR) && bytes.is_multiple_of(SECTOR);
        whole.then_some(end).ok_or(Errno::EINVAL)
    }

    /// Asks the disk for an operation on at most so many sectors at a time.
    async fn by_ranges(&self, start: u64, end: u64, most: u32, op: impl Fn(u32) -> BlockOp + Send) -> Result<()> {
        let block = (self.device().limits().block / SECTOR as u32).max(1);
        let most = (most / block * block).max(block);
        let mut at = start;
        while at < end {
            let sectors = ((end - at) / SECTOR).min(most.into()) as u32;
            self.content.submit(op(sectors), at, Pieces::none(&self.content.services.memory)).await?;
            at += u64::from(sectors) * SECTOR;
        }
        Ok(())
    }

    /// For a disk that can't: through the cache.
    async fn write_zeroes(&self, start: u64, end: u64) -> Result<()> {
        static ZEROES: [u8; PAGE_SIZE] = [0; PAGE_SIZE];
        let mut at = start;
        while at < end {
            let part = &ZEROES[..PAGE_SIZE.min((end - at) as usize)];
            let (_, written) = self.cache.write(crate::file::Source::Kernel(part), Some(at), |_, _| Ok(())).await?;
            at += written as u64;
        }
        Ok(())
    }
}
