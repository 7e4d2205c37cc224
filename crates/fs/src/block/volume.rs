//! A volume: a disk, or a partition of one. Its pages are in a page cache of its own, as on Linux: who writes a disk and a partition of it at once sees two truths.

use super::{partitions, stats::Stats};
use crate::{cache::MAX_SIZE, file::Frames, PageCache, Services, Store};
use alloc::{
    boxed::Box,
    format,
    string::{String, ToString},
    sync::{Arc, Weak},
    vec::Vec,
};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use machine::{
    block::{BlockDevice, BlockOp, Piece, Pieces, SECTOR},
    collections::try_filled,
    errno::Result,
    sync::Lock,
    BoxFuture, Errno, PAGE_SIZE,
};

/// Where a volume's bytes are, and what has been asked of it.
pub struct Content {
    services: Arc<Services>,
    device: Arc<dyn BlockDevice>,
    start: u64,
    sectors: u64,
    /// Also counted in the disk's.
    disk: Option<Arc<Stats>>,
    pub(super) stats: Arc<Stats>,
    /// How often bytes could not be written back: who has the volume open hears of it at his next fsync.
    pub(super) failures: AtomicU64,
    cache: Lock<Weak<PageCache>>,
}

impl Content {
    /// Does `op` from byte `offset` of the volume on.
    async fn submit(&self, op: BlockOp, offset: u64, pages: Pieces) -> Result<()> {
        let sectors = match op {
            BlockOp::Discard { sectors } | BlockOp::WriteZeroes { sectors } => u64::from(sectors),
            BlockOp::Flush => 0,
            BlockOp::Read | BlockOp::Write => pages.len() as u64 / SECTOR,
        };
        let clock = &self.services.clock;
        let began = clock.monotonic();
        let all = || [Some(&self.stats), self.disk.as_ref()].into_iter().flatten();
        all().for_each(|stats| stats.begin(began));
        let answer = self.device.submit(op, self.start + offset / SECTOR, pages).await;
        let now = clock.monotonic();
        all().for_each(|stats| stats.end(op, sectors, began, now));
        answer
    }

    /// Reads or writes `pages`, from a byte of the volume on.
    async fn transfer(&self, op: BlockOp, offset: u64, pages: Frames<'_>, bytes: usize) -> Result<()> {
        let most = self.device.limits().most_bytes;
        for from in (0..bytes).step_by(most) {
            let mut pieces = Pieces::none(&self.services.memory);
            for (frame, within, bytes) in pages.part(from, most.min(bytes - from)).pieces() {
                pieces.push(Piece { frame, offset: within, bytes });
            }
            self.submit(op, offset + from as u64, pieces).await?;
        }
        Ok(())
    }
}

/// What the page cache asks of it.
struct Below(Arc<Content>);

impl Store for Below {
    fn read<'a>(&'a self, offset: u64, to: Frames<'a>) -> BoxFuture<'a, Result<usize>> {
        Box::pin(async move {
            let left = (self.0.sectors * SECTOR).saturating_sub(offset);
            let bytes = to.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            self.0.transfer(BlockOp::Read, offset, to, bytes).await?;
            Ok(bytes)
        })
    }

    fn write<'a>(&'a self, offset: u64, from: Frames<'a>) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let bytes = from.len();
            self.0.transfer(BlockOp::Write, offset, from, bytes).await.inspect_err(|_| {
                self.0.failures.fetch_add(1, Relaxed);
            })
        })
    }

    fn dirtied(&self, _mapped: bool) {
        if let Some(cache) = self.0.cache.lock().upgrade() {
            self.0.services.write_back_later(&cache);
        }
    }
}

/// A disk or a partition.
pub struct Volume {
    name: String,
    number: (u32, u32),
    /// Of a partition: which, and where on its disk it begins.
    partition: Option<(u32, u64)>,
    content: Arc<Content>,
    cache: Arc<PageCache>,
}

impl Volume {
    fn new(
        services: &Arc<Services>,
        device: &Arc<dyn BlockDevice>,
        name: String,
        number: (u32, u32),
        (start, sectors): (u64, u64),
        of: Option<(u32, &Arc<Volume>)>,
    ) -> Arc<Volume> {
        let content = Arc::new(Content {
            services: services.clone(),
            device: device.clone(),
            start,
            sectors,
            disk: of.map(|(_, disk)| disk.content.stats.clone()),
            stats: Arc::default(),
            failures: AtomicU64::new(0),
            cache: Lock::new(Weak::new()),
        });
        let cache = PageCache::over(services, sectors * SECTOR, Arc::new(Below(content.clone())));
        *content.cache.lock() = Arc::downgrade(&cache);
        Arc::new(Volume { name, number, partition: of.map(|(number, _)| (number, start)), content, cache })
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
        self.partition
    }

    /// How large it is.
    pub fn sectors(&self) -> u64 {
        self.content.sectors
    }

    /// The same in bytes.
    pub fn bytes(&self) -> u64 {
        self.sectors() * SECTOR
    }

    /// The disk that it is, or is on.
    pub fn device(&self) -> &dyn BlockDevice {
        &*self.content.device
    }

    /// What has been asked of it.
    pub fn stats(&self) -> &Stats {
        &self.content.stats
    }

    pub(crate) fn cache(&self) -> &Arc<PageCache> {
        &self.cache
    }

    pub(super) fn failures(&self) -> u64 {
        self.content.failures.load(Relaxed)
    }

    /// Reads whole sectors from byte `offset` on, past the page cache.
    pub(crate) async fn read_into(&self, offset: u64, to: Frames<'_>) -> Result<()> {
        if !offset.is_multiple_of(SECTOR) || offset.checked_add(to.len() as u64).is_none_or(|end| end > self.bytes()) {
            return Err(Errno::EIO);
        }
        self.content.transfer(BlockOp::Read, offset, to, to.len()).await
    }

    /// Writes whole sectors from byte `offset` on, past the page cache. A disk that is dropped while it writes still writes.
    pub(crate) async fn write_from(&self, offset: u64, from: Frames<'_>) -> Result<()> {
        if !offset.is_multiple_of(SECTOR) || offset.checked_add(from.len() as u64).is_none_or(|end| end > self.bytes())
        {
            return Err(Errno::EIO);
        }
        self.content.transfer(BlockOp::Write, offset, from, from.len()).await
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

/// Reads a disk before there are volumes.
struct Raw<'a> {
    services: &'a Arc<Services>,
    device: &'a dyn BlockDevice,
}

impl partitions::Sectors for Raw<'_> {
    async fn read(&mut self, sector: u64, bytes: usize) -> Option<Vec<u8>> {
        let (memory, limits) = (&self.services.memory, self.device.limits());
        let block = u64::from(limits.block);
        // Whole blocks around it.
        let start = sector * SECTOR / block * block;
        let end = (sector * SECTOR + bytes as u64).next_multiple_of(block);
        if end > limits.sectors * SECTOR {
            return None;
        }
        let mut read: Vec<u8> = try_filled((end - start) as usize, 0).ok()?;
        for at in (start..end).step_by(PAGE_SIZE) {
            let part = (end - at).min(PAGE_SIZE as u64) as usize;
            let frame = self.services.frame().ok()?;
            let mut pieces = Pieces::none(memory);
            pieces.push(Piece { frame: frame.frame(), offset: 0, bytes: part });
            self.device.submit(BlockOp::Read, at / SECTOR, pieces).await.ok()?;
            let from = (at - start) as usize;
            memory.read(frame.frame(), 0, &mut read[from..from + part]);
        }
        let from = (sector * SECTOR - start) as usize;
        Some(read[from..from + bytes].to_vec())
    }
}

/// All disks of the machine with their partitions, on the kernel that has them.
#[derive(Default)]
pub struct Disks(Lock<Vec<Arc<Volume>>>);

/// What Debian's kernel gives virtio disks, whose major number is assigned as they come.
const MAJOR: u32 = 254;
/// Minor numbers of a disk.
const MINORS: u32 = 16;

impl Disks {
    /// Reads the partitions of one more disk, and gives the volumes that it adds: the disk first.
    pub async fn add(&self, services: &Arc<Services>, device: Arc<dyn BlockDevice>) -> Vec<Arc<Volume>> {
        let index = self.0.lock().iter().filter(|volume| volume.partition.is_none()).count() as u32;
        let name = format!("vd{}", letters(index));
        let limits = device.limits().clone();
        let number = (MAJOR, index * MINORS);
        let disk = Volume::new(services, &device, name.clone(), number, (0, limits.sectors), None);
        let mut added = alloc::vec![disk.clone()];
        let mut raw = Raw { services, device: &*device };
        for partition in partitions::read(&mut raw, limits.sectors, limits.block).await {
            if partition.number >= MINORS {
                log::warn!("{name}: partition {} has no minor number", partition.number);
                continue;
            }
            let number = (MAJOR, index * MINORS + partition.number);
            let of = Some((partition.number, &disk));
            let name = format!("{name}{}", partition.number);
            added.push(Volume::new(services, &device, name, number, (partition.start, partition.sectors), of));
        }
        self.0.lock().extend(added.iter().cloned());
        added
    }

    /// In the order in which they were found, each disk before its partitions.
    pub fn list(&self) -> Vec<Arc<Volume>> {
        self.0.lock().clone()
    }

    /// Writes all dirty pages back, and has all disks keep them. The first error, if there is one; the others are asked all the same.
    pub async fn sync(&self) -> Result<()> {
        let mut result = Ok(());
        for volume in self.list() {
            result = result.and(volume.sync().await);
        }
        result
    }
}

/// a to z, then aa, ab, ...
fn letters(index: u32) -> String {
    let last = char::from(b'a' + (index % 26) as u8);
    match index / 26 {
        0 => last.to_string(),
        more => letters(more - 1) + &last.to_string(),
    }
}
