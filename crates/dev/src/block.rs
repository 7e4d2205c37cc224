//! A disk behind virtio-blk (virtio 1.2, 5.2): what it says of itself, and requests in its words.
//!
//! The device does several requests at once, and each of its queues is one [`Exchange`], so what is here has no state but which queue is next. Bytes are copied between the pages of a request
//! and a buffer of the queue's, which keeps that until the device has answered: whoever drops the future has nothing that the device still writes.

use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use machine::block::{BlockDevice, BlockLimits, BlockOp, Pieces, SECTOR};
use machine::errno::Result;
use machine::sync::WaitQueue;
use machine::{BoxFuture, Errno, Exchange};

/// Features (5.2.3) that are of use here.
pub const FEATURES: u64 = feature::READ_ONLY
    | feature::BLOCK_SIZE
    | feature::FLUSH
    | feature::TOPOLOGY
    | feature::QUEUES
    | feature::DISCARD
    | feature::WRITE_ZEROES;

mod feature {
    pub const READ_ONLY: u64 = 1 << 5;
    pub const BLOCK_SIZE: u64 = 1 << 6;
    pub const FLUSH: u64 = 1 << 9;
    pub const TOPOLOGY: u64 = 1 << 10;
    pub const QUEUES: u64 = 1 << 12;
    pub const DISCARD: u64 = 1 << 13;
    pub const WRITE_ZEROES: u64 = 1 << 14;
}

/// Types of requests (5.2.6).
mod kind {
    pub const READ: u32 = 0;
    pub const WRITE: u32 = 1;
    pub const FLUSH: u32 = 4;
    pub const GET_ID: u32 = 8;
    pub const DISCARD: u32 = 11;
    pub const WRITE_ZEROES: u32 = 13;
}

const OK: u8 = 0;
const UNSUPPORTED: u8 = 2;
const SERIAL_BYTES: usize = 20;
/// So much goes in one request.
const MOST_BYTES: usize = 256 << 10;
/// Requests of a queue that have buffers at the same time; who comes then waits without one, however many threads want something of the disk.
const MOST_UNDER_WAY: usize = 16;

/// How many queues a device has, by the features that it and its driver have agreed on, and its configuration.
pub fn queues(features: u64, configuration: &[u8]) -> u16 {
    match features & feature::QUEUES {
        0 => 1,
        _ => number(configuration, 34, 2).max(1) as u16,
    }
}

/// A field of the configuration; 0 where there is none.
fn number(configuration: &[u8], at: usize, bytes: usize) -> u64 {
    let field = configuration.get(at..at + bytes).unwrap_or_default();
    field.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

/// One disk.
pub struct Disk {
    queues: Vec<Arc<dyn Exchange>>,
    next: AtomicUsize,
    limits: Arc<BlockLimits>,
    under_way: AtomicUsize,
    /// Woken when one has been answered.
    room: WaitQueue,
}

/// The right to have buffers.
struct Turn<'a>(&'a Disk);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Relaxed);
        self.0.room.wake_all();
    }
}

impl Disk {
    /// A device that has agreed on `features`. Asks for its serial number.
    pub async fn start(queues: Vec<Arc<dyn Exchange>>, features: u64, configuration: &[u8]) -> Result<Disk> {
        let has = |feature: u64| features & feature != 0;
        let field =
            |feature: u64, at: usize, bytes: usize| if has(feature) { number(configuration, at, bytes) } else { 0 };
        let block = match field(feature::BLOCK_SIZE, 20, 4) as u32 {
            block if block.is_power_of_two() && (512..=4096).contains(&block) => block,
            _ => SECTOR as u32,
        };
        let physical = field(feature::TOPOLOGY, 24, 1).min(8) as u32;
        let mut limits = BlockLimits {
            sectors: number(configuration, 0, 8),
            block,
            physical_block: block << physical,
            read_only: has(feature::READ_ONLY),
            caches_writes: has(feature::FLUSH),
            most_bytes: MOST_BYTES,
            most_discarded: field(feature::DISCARD, 36, 4) as u32,
            most_zeroed: field(feature::WRITE_ZEROES, 48, 4) as u32,
            serial: Vec::new(),
        };
        let (next, under_way) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let mut disk = Disk { queues, next, limits: Arc::default(), under_way, room: WaitQueue::new() };
        // A device that does not know the question has no serial number.
        if let Ok(mut serial) = disk.request(kind::GET_ID, 0, &[], SERIAL_BYTES).await {
            let end = serial.iter().position(|byte| *byte == 0).unwrap_or(serial.len());
            serial.truncate(end);
            limits.serial = serial;
        }
        disk.limits = Arc::new(limits);
        Ok(disk)
    }

    /// Sends a request with `data` for the device, and gives the `room` bytes that it answers.
    async fn request(&self, kind: u32, sector: u64, data: &[u8], room: usize) -> Result<Vec<u8>> {
        let mut out = Vec::with_capacity(16 + data.len());
        out.extend_from_slice(&kind.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&sector.to_le_bytes());
        out.extend_from_slice(data);
        self.send(out, room).await
    }

    async fn send(&self, out: Vec<u8>, room: usize) -> Result<Vec<u8>> {
        let queue = &self.queues[self.next.fetch_add(1, Relaxed) % self.queues.len()];
        let mut reply = queue.exchange(out, room + 1).await?;
        // The status is the last byte of all, also where the device has written nothing else.
        match reply.pop() {
            Some(OK) if reply.len() == room => Ok(reply),
            Some(UNSUPPORTED) => Err(Errno::EOPNOTSUPP),
            _ => Err(Errno::EIO),
        }
    }

    /// EINVAL: the request is not within the limits.
    fn check(&self, op: BlockOp, sector: u64, bytes: u64) -> Result<()> {
        let limits = &self.limits;
        let end = sector.checked_add(bytes.div_ceil(SECTOR)).ok_or(Errno::EINVAL)?;
        let aligned =
            bytes.is_multiple_of(u64::from(limits.block)) && (sector * SECTOR).is_multiple_of(limits.block.into());
        let most = match op {
            BlockOp::Read | BlockOp::Write => limits.most_bytes as u64,
            BlockOp::Flush => 0,
            BlockOp::Discard { .. } => u64::from(limits.most_discarded) * SECTOR,
            BlockOp::WriteZeroes { .. } => u64::from(limits.most_zeroed) * SECTOR,
        };
        let fits = end <= limits.sectors && bytes <= most && aligned && (bytes > 0 || op == BlockOp::Flush);
        if fits {
            Ok(())
        } else {
            Err(Errno::EINVAL)
        }
    }

    async fn turn(&self) -> Turn<'_> {
        let most = MOST_UNDER_WAY * self.queues.len();
        let more = |now: usize| (now < most).then_some(now + 1);
        let took = || self.under_way.fetch_update(Relaxed, Relaxed, more).is_ok().then_some(());
        self.room.wait_until(took).await;
        Turn(self)
    }

    async fn carry_out(&self, op: BlockOp, sector: u64, pages: Pieces) -> Result<()> {
        let can = match op {
            BlockOp::Discard { .. } => self.limits.most_discarded > 0,
            BlockOp::WriteZeroes { .. } => self.limits.most_zeroed > 0,
            BlockOp::Flush => self.limits.caches_writes,
            BlockOp::Read | BlockOp::Write => true,
        };
        if !can {
            // One that keeps nothing back has nothing to flush.
            return if op == BlockOp::Flush { Ok(()) } else { Err(Errno::EOPNOTSUPP) };
        }
        if self.limits.read_only && !matches!(op, BlockOp::Read | BlockOp::Flush) {
            return Err(Errno::EPERM);
        }
        let _turn = self.turn().await;
        match op {
            BlockOp::Read => {
                self.check(op, sector, pages.len() as u64)?;
                let bytes = self.request(kind::READ, sector, &[], pages.len()).await?;
                pages.copy_from(&bytes);
            }
            BlockOp::Write => {
                self.check(op, sector, pages.len() as u64)?;
                let mut out = Vec::with_capacity(16 + pages.len());
                out.extend_from_slice(&kind::WRITE.to_le_bytes());
                out.extend_from_slice(&[0; 4]);
                out.extend_from_slice(&sector.to_le_bytes());
                pages.copy_to(&mut out);
                self.send(out, 0).await?;
            }
            BlockOp::Flush => _ = self.request(kind::FLUSH, 0, &[], 0).await?,
            BlockOp::Discard { sectors } => self.range(kind::DISCARD, op, sector, sectors).await?,
            BlockOp::WriteZeroes { sectors } => self.range(kind::WRITE_ZEROES, op, sector, sectors).await?,
        }
        Ok(())
    }

    /// A request that names its sectors in its data (`struct virtio_blk_discard_write_zeroes`).
    async fn range(&self, kind: u32, op: BlockOp, sector: u64, sectors: u32) -> Result<()> {
        self.check(op, sector, u64::from(sectors) * SECTOR)?;
        let mut data = sector.to_le_bytes().to_vec();
        data.extend_from_slice(&sectors.to_le_bytes());
        data.extend_from_slice(&[0; 4]);
        self.request(kind, 0, &data, 0).await.map(|_| ())
    }
}

impl BlockDevice for Disk {
    fn limits(&self) -> Arc<BlockLimits> {
        self.limits.clone()
    }

    fn submit(&self, op: BlockOp, sector: u64, pages: Pieces) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.carry_out(op, sector, pages))
    }
}
