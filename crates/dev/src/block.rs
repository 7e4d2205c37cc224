//! A disk behind virtio-blk (virtio 1.2, 5.2): what it says of itself, and requests in its words.
//!
//! The device does several requests at once, and reads and writes the pages of each where they are. What is here has no state: the queue keeps the pages until the device has
//! answered, and how many requests there may be is decided above (`fs/src/block/queue`).

use alloc::{boxed::Box, sync::Arc, vec::Vec};

use machine::block::{BlockDevice, BlockLimits, BlockOp, Piece, Pieces, SECTOR};
use machine::errno::Result;
use machine::{sync::Lock, BoxFuture, CountedFrame, Errno, Memory, PageQueue};

/// Features (5.2.3) that are of use here.
pub const FEATURES: u64 = feature::SEGMENTS
    | feature::READ_ONLY
    | feature::BLOCK_SIZE
    | feature::FLUSH
    | feature::TOPOLOGY
    | feature::QUEUES
    | feature::DISCARD
    | feature::WRITE_ZEROES;

mod feature {
    pub const SEGMENTS: u64 = 1 << 2;
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
/// So much goes in one request, as Linux has it (BLK_DEF_MAX_SECTORS_CAP).
const MOST_BYTES: usize = 1280 << 10;
/// Requests of a queue that the device has at the same time.
const DEPTH: usize = 64;

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
    queues: Arc<dyn PageQueue>,
    limits: Lock<Arc<BlockLimits>>,
}

impl Disk {
    /// A device that has agreed on `features`. Asks for its serial number, which needs a frame of `memory` meanwhile.
    pub async fn start(
        memory: &Arc<dyn Memory>,
        queues: Arc<dyn PageQueue>,
        features: u64,
        configuration: &[u8],
    ) -> Result<Disk> {
        let has = |feature: u64| features & feature != 0;
        let field =
            |feature: u64, at: usize, bytes: usize| if has(feature) { number(configuration, at, bytes) } else { 0 };
        let block = match field(feature::BLOCK_SIZE, 20, 4) as u32 {
            block if block.is_power_of_two() && (512..=4096).contains(&block) => block,
            _ => SECTOR as u32,
        };
        let physical = field(feature::TOPOLOGY, 24, 1).min(8) as u32;
        let most_segments = match field(feature::SEGMENTS, 12, 4) as usize {
            0 => queues.most_segments(),
            most => most.min(queues.most_segments()),
        };
        let mut limits = BlockLimits {
            sectors: number(configuration, 0, 8),
            block,
            physical_block: block << physical,
            read_only: has(feature::READ_ONLY),
            caches_writes: has(feature::FLUSH),
            most_bytes: MOST_BYTES,
            most_pieces: 0,
            most_segments,
            queues: queues.queues(),
            depth: DEPTH,
            most_discarded: field(feature::DISCARD, 36, 4) as u32,
            most_zeroed: field(feature::WRITE_ZEROES, 48, 4) as u32,
            serial: Vec::new(),
        };
        let disk = Disk { queues, limits: Lock::default() };
        // A device that does not know the question has no serial number.
        if let Ok(mut serial) = disk.serial(memory).await {
            let end = serial.iter().position(|byte| *byte == 0).unwrap_or(serial.len());
            serial.truncate(end);
            limits.serial = serial;
        }
        *disk.limits.lock() = Arc::new(limits);
        Ok(disk)
    }

    async fn serial(&self, memory: &Arc<dyn Memory>) -> Result<Vec<u8>> {
        let frame = CountedFrame::from_raw(&**memory, memory.alloc().ok_or(Errno::ENOMEM)?);
        let mut pieces = Pieces::none(memory);
        pieces.push(Piece { frame: frame.frame(), offset: 0, bytes: SERIAL_BYTES });
        self.request(kind::GET_ID, 0, &[], pieces).await?;
        let mut serial = alloc::vec![0; SERIAL_BYTES];
        memory.read(frame.frame(), 0, &mut serial);
        Ok(serial)
    }

    /// Sends a request: its header, with `data` behind, and the pieces.
    async fn request(&self, kind: u32, sector: u64, data: &[u8], pieces: Pieces) -> Result<()> {
        let mut header = Vec::with_capacity(16 + data.len());
        header.extend_from_slice(&kind.to_le_bytes());
        header.extend_from_slice(&[0; 4]);
        header.extend_from_slice(&sector.to_le_bytes());
        header.extend_from_slice(data);
        match self.queues.submit(header, pieces, matches!(kind, kind::READ | kind::GET_ID)).await? {
            OK => Ok(()),
            UNSUPPORTED => Err(Errno::EOPNOTSUPP),
            _ => Err(Errno::EIO),
        }
    }

    /// EIO: it lies behind the end, perhaps since the disk has become smaller. EINVAL: the request is not within the limits.
    fn check(&self, op: BlockOp, sector: u64, bytes: u64) -> Result<()> {
        let limits = self.limits();
        let end = sector.checked_add(bytes.div_ceil(SECTOR)).ok_or(Errno::EINVAL)?;
        let aligned =
            bytes.is_multiple_of(u64::from(limits.block)) && (sector * SECTOR).is_multiple_of(limits.block.into());
        let most = match op {
            BlockOp::Read | BlockOp::Write => limits.most_bytes as u64,
            BlockOp::Flush => 0,
            BlockOp::Discard { .. } => u64::from(limits.most_discarded) * SECTOR,
            BlockOp::WriteZeroes { .. } => u64::from(limits.most_zeroed) * SECTOR,
        };
        if end > limits.sectors {
            return Err(Errno::EIO);
        }
        let fits = bytes <= most && aligned && (bytes > 0 || op == BlockOp::Flush);
        if fits {
            Ok(())
        } else {
            Err(Errno::EINVAL)
        }
    }

    async fn carry_out(&self, op: BlockOp, sector: u64, pages: Pieces) -> Result<()> {
        let limits = self.limits();
        let can = match op {
            BlockOp::Discard { .. } => limits.most_discarded > 0,
            BlockOp::WriteZeroes { .. } => limits.most_zeroed > 0,
            BlockOp::Flush => limits.caches_writes,
            BlockOp::Read | BlockOp::Write => true,
        };
        if !can {
            // One that keeps nothing back has nothing to flush.
            return if op == BlockOp::Flush { Ok(()) } else { Err(Errno::EOPNOTSUPP) };
        }
        if limits.read_only && !matches!(op, BlockOp::Read | BlockOp::Flush) {
            return Err(Errno::EPERM);
        }
        match op {
            BlockOp::Read | BlockOp::Write => {
                self.check(op, sector, pages.len() as u64)?;
                if pages.segments() > limits.most_segments {
                    return Err(Errno::EINVAL);
                }
                let kind = if op == BlockOp::Read { kind::READ } else { kind::WRITE };
                self.request(kind, sector, &[], pages).await
            }
            BlockOp::Flush => self.request(kind::FLUSH, 0, &[], pages).await,
            BlockOp::Discard { sectors } => self.range(kind::DISCARD, op, sector, sectors, pages).await,
            BlockOp::WriteZeroes { sectors } => self.range(kind::WRITE_ZEROES, op, sector, sectors, pages).await,
        }
    }

    /// A request that names its sectors in its data (`struct virtio_blk_discard_write_zeroes`), and has no pieces.
    async fn range(&self, kind: u32, op: BlockOp, sector: u64, sectors: u32, none: Pieces) -> Result<()> {
        self.check(op, sector, u64::from(sectors) * SECTOR)?;
        let mut data = [0; 16];
        data[..8].copy_from_slice(&sector.to_le_bytes());
        data[8..12].copy_from_slice(&sectors.to_le_bytes());
        self.request(kind, 0, &data, none).await
    }
}

impl BlockDevice for Disk {
    fn limits(&self) -> Arc<BlockLimits> {
        self.limits.lock().clone()
    }

    fn resized(&self, known: u64) -> Option<BoxFuture<'_, u64>> {
        let changes = self.queues.changes()?;
        Some(Box::pin(async move {
            let now = || {
                let sectors = number(&self.queues.configuration(), 0, 8);
                (sectors != known).then_some(sectors)
            };
            let sectors = changes.wait_until(now).await;
            let mut limits = self.limits.lock();
            *limits = Arc::new(BlockLimits { sectors, ..BlockLimits::clone(&limits) });
            sectors
        }))
    }

    fn submit(&self, op: BlockOp, sector: u64, pages: Pieces) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.carry_out(op, sector, pages))
    }
}
