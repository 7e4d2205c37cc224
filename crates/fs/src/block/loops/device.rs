//! The bytes of a loop device: those of a file, or none.

use super::settings::{flag, Settings};
use crate::{
    block::BlockFile,
    file::{Access, Destination, Frames, Source, NEEDS_BUFFER},
    namespace::Location,
    Attributes, File, Kind, Services,
};
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use machine::{
    block::{BlockDevice, BlockLimits, BlockOp, Piece, Pieces, SECTOR},
    collections::try_filled,
    errno::Result,
    sync::Lock,
    to_completion, BoxFuture, Errno, Frame, Memory, PAGE_SIZE,
};

/// Bytes of one read or write.
const MOST_BYTES: usize = 256 << 10;
/// Sectors that are discarded or zeroed at once (Linux: UINT_MAX >> 9).
const MOST_SECTORS: u32 = u32::MAX >> 9;
/// FALLOC_FL_KEEP_SIZE with FALLOC_FL_PUNCH_HOLE, or with FALLOC_FL_ZERO_RANGE.
const PUNCH: u32 = 1 | 2;
const ZERO: u32 = 1 | 0x10;

/// Where a bound device has its bytes.
pub struct Bound {
    pub file: Arc<dyn File>,
    pub settings: Settings,
    /// Of the file, when it was bound.
    pub attributes: Attributes,
    /// What it was called then. One of this kernel is asked again.
    path: Vec<u8>,
    limits: Arc<BlockLimits>,
    nesting: u32,
}

impl Bound {
    /// Over `file`, read only if `settings` say so.
    pub async fn new(file: Arc<dyn File>, settings: Settings) -> Result<Bound> {
        let (attributes, path, nesting) = (file.attributes().await?, file.path().await, nesting_of(&file) + 1);
        let limits = limits(&attributes, &settings, length(&file, &attributes));
        Ok(Bound { file, settings, attributes, path, limits, nesting })
    }

    /// The same with other settings, and as large as the file is now.
    pub async fn with(&self, settings: Settings) -> Result<Bound> {
        let now = self.file.attributes().await?;
        let limits = limits(&now, &settings, length(&self.file, &now));
        let (file, attributes, path) = (self.file.clone(), self.attributes.clone(), self.path.clone());
        Ok(Bound { file, settings, attributes, path, limits, nesting: self.nesting })
    }

    pub fn nesting(&self) -> u32 {
        self.nesting
    }

    pub fn sectors(&self) -> u64 {
        self.limits.sectors
    }

    pub fn path(&self) -> Vec<u8> {
        match self.file.location().and_then(|at| at.downcast_ref::<Location>()) {
            Some(at) => at.path(),
            None => self.path.clone(),
        }
    }
}

fn length(file: &Arc<dyn File>, attributes: &Attributes) -> u64 {
    match file.as_any().downcast_ref::<BlockFile>() {
        Some(disk) => disk.volume().bytes(),
        None => attributes.size,
    }
}

fn limits(attributes: &Attributes, settings: &Settings, bytes: u64) -> Arc<BlockLimits> {
    // A disk below has no holes.
    let most = if attributes.kind() == Kind::Regular { MOST_SECTORS } else { 0 };
    Arc::new(BlockLimits {
        sectors: settings.sectors(bytes),
        block: settings.block,
        physical_block: settings.block,
        read_only: settings.has(flag::READ_ONLY),
        caches_writes: true,
        most_bytes: MOST_BYTES,
        most_discarded: most,
        most_zeroed: most,
        ..BlockLimits::default()
    })
}

/// How many loop devices lie below a file.
fn nesting_of(file: &Arc<dyn File>) -> u32 {
    if let Some(disk) = file.as_any().downcast_ref::<BlockFile>() {
        return disk.volume().device().nesting();
    }
    let at = file.location().and_then(|at| at.downcast_ref::<Location>());
    at.map_or(0, |at| at.mount.file_system.nesting())
}

/// See the module. Requests that began over one file end there.
pub struct Backing {
    services: Arc<Services>,
    bound: Lock<Option<Arc<Bound>>>,
    none: Arc<BlockLimits>,
}

impl Backing {
    pub fn new(services: &Arc<Services>) -> Backing {
        let none = BlockLimits { block: 512, physical_block: 512, most_bytes: MOST_BYTES, ..BlockLimits::default() };
        Backing { services: services.clone(), bound: Lock::default(), none: Arc::new(none) }
    }

    pub fn bound(&self) -> Option<Arc<Bound>> {
        self.bound.lock().clone()
    }

    /// Gives what was there before.
    pub fn replace(&self, bound: Option<Bound>) -> Option<Arc<Bound>> {
        core::mem::replace(&mut *self.bound.lock(), bound.map(Arc::new))
    }
}

impl Bound {
    async fn carry_out(&self, memory: &dyn Memory, op: BlockOp, sector: u64, pages: Pieces) -> Result<()> {
        let bytes = match op {
            BlockOp::Flush => 0,
            BlockOp::Read | BlockOp::Write => pages.len() as u64,
            BlockOp::Discard { sectors } | BlockOp::WriteZeroes { sectors } => u64::from(sectors) * SECTOR,
        };
        let start = sector.checked_mul(SECTOR).ok_or(Errno::EINVAL)?;
        if start.checked_add(bytes).is_none_or(|end| end > self.limits.sectors * SECTOR) {
            return Err(Errno::EINVAL);
        }
        if self.limits.read_only && !matches!(op, BlockOp::Read | BlockOp::Flush) {
            return Err(Errno::EIO);
        }
        let (file, at) = (&self.file, self.settings.offset + start);
        match op {
            BlockOp::Read | BlockOp::Write => {
                let mut at = at;
                for run in Run::all(pages.as_slice()) {
                    match op {
                        BlockOp::Read => read(file, run.frames(memory), at).await?,
                        _ => write(file, run.frames(memory), at).await?,
                    }
                    at += run.bytes as u64;
                }
                Ok(())
            }
            BlockOp::Flush => match file.sync(true).await {
                // It has nothing to be synced.
                Err(Errno::EINVAL) => Ok(()),
                synced => synced,
            },
            BlockOp::Discard { .. } => file.allocate(PUNCH, at, bytes).await,
            BlockOp::WriteZeroes { .. } => match file.allocate(ZERO, at, bytes).await {
                Err(Errno::EOPNOTSUPP | Errno::ENODEV | Errno::EINVAL) => write_zeroes(file, at, bytes).await,
                done => done,
            },
        }
    }
}

impl BlockDevice for Backing {
    fn limits(&self) -> Arc<BlockLimits> {
        self.bound.lock().as_ref().map_or_else(|| self.none.clone(), |bound| bound.limits.clone())
    }

    fn nesting(&self) -> u32 {
        self.bound.lock().as_ref().map_or(0, |bound| bound.nesting)
    }

    fn submit(&self, op: BlockOp, sector: u64, pages: Pieces) -> BoxFuture<'_, Result<()>> {
        let services = &self.services;
        Box::pin(async move {
            let bound = self.bound().ok_or(Errno::EIO)?;
            let answer = match op {
                BlockOp::Read => bound.carry_out(&*services.memory, op, sector, pages).await,
                // As a task: it is carried out also if nobody waits, and has a stack of its own however deep the file lies.
                _ => {
                    let memory = services.memory.clone();
                    let work = async move { bound.carry_out(&*memory, op, sector, pages).await };
                    to_completion(&*services.spawner, work).await
                }
            };
            answer.map_err(|error| match error {
                Errno::EINVAL | Errno::EOPNOTSUPP => error,
                // Whatever it is to the file, the disk has failed.
                _ => Errno::EIO,
            })
        })
    }
}

/// Pieces that are consecutive bytes of consecutive pages.
struct Run {
    pages: Vec<Frame>,
    start: usize,
    bytes: usize,
}

impl Run {
    fn all(pieces: &[Piece]) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        for piece in pieces {
            match runs.last_mut() {
                Some(run) if piece.offset == 0 && (run.start + run.bytes).is_multiple_of(PAGE_SIZE) => {
                    run.pages.push(piece.frame);
                    run.bytes += piece.bytes;
                }
                _ => runs.push(Run { pages: alloc::vec![piece.frame], start: piece.offset, bytes: piece.bytes }),
            }
        }
        runs
    }

    fn frames<'a>(&'a self, memory: &'a dyn Memory) -> Frames<'a> {
        Frames::new(memory, &self.pages, self.start + self.bytes).part(self.start, self.bytes)
    }
}

/// What lies behind the file's end is zero.
async fn read(file: &Arc<dyn File>, to: Frames<'_>, at: u64) -> Result<()> {
    let mut done = 0;
    while done < to.len() {
        let left = to.part(done, to.len() - done);
        let access = Access::at(at + done as u64);
        let read = match file.read_into(Destination::Frames(left), access).await {
            Err(NEEDS_BUFFER) => {
                let mut buffer: Vec<u8> = try_filled(left.len(), 0)?;
                let read = file.read_into(Destination::Kernel(&mut buffer), access).await?;
                left.part(0, read).put(&buffer[..read]);
                read
            }
            read => read?,
        };
        if read == 0 {
            return Destination::Frames(left).put_zeros(left.len());
        }
        done += read;
    }
    Ok(())
}

async fn write(file: &Arc<dyn File>, from: Frames<'_>, at: u64) -> Result<()> {
    let mut done = 0;
    while done < from.len() {
        let mut left = from.part(done, from.len() - done);
        let access = Access::at(at + done as u64);
        let written = match file.write_from(Source::Frames(left), access).await {
            Err(NEEDS_BUFFER) => {
                let mut buffer: Vec<u8> = try_filled(left.len(), 0)?;
                left.take(&mut buffer);
                file.write_from(Source::Kernel(&buffer), access).await?
            }
            written => written?,
        };
        if written == 0 {
            return Err(Errno::EIO);
        }
        done += written;
    }
    Ok(())
}

async fn write_zeroes(file: &Arc<dyn File>, mut at: u64, bytes: u64) -> Result<()> {
    static ZEROES: [u8; PAGE_SIZE] = [0; PAGE_SIZE];
    let end = at + bytes;
    while at < end {
        let part = &ZEROES[..(end - at).min(PAGE_SIZE as u64) as usize];
        match file.write_at(part, at).await? {
            0 => return Err(Errno::EIO),
            written => at += written as u64,
        }
    }
    Ok(())
}
