//! Disks, as the services above see them.

use crate::errno::Result;
use crate::{BoxFuture, Frame, KernelId, Memory, PAGE_SIZE};
use alloc::{sync::Arc, vec::Vec};
use serde::{Deserialize, Serialize};

/// The unit in which places on a disk are counted, whatever its own blocks are.
pub const SECTOR: u64 = 512;

/// What a disk is, and what it can do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockLimits {
    /// Its size.
    pub sectors: u64,
    /// Bytes of a block that it reads and writes, a power of two of at least [`SECTOR`].
    pub block: u32,
    /// Bytes of a block that it has to read first if only a part of it is written.
    pub physical_block: u32,
    /// Nobody may write it.
    pub read_only: bool,
    /// What was written may be lost until a [`BlockOp::Flush`] has been answered.
    pub caches_writes: bool,
    /// Bytes of one read or write, at most: a whole number of pages.
    pub most_bytes: usize,
    /// Pieces of pages of one read or write, at most; 0: any number.
    pub most_pieces: usize,
    /// Runs of adjoining memory that they are, at most ([`Pieces::segments`]); 0: any number.
    pub most_segments: usize,
    /// Queues that it takes requests from, one for each CPU; 0 is as good as 1.
    pub queues: usize,
    /// Requests of a queue that it works on at the same time; 0: any number.
    pub depth: usize,
    /// Sectors of one [`BlockOp::Discard`], at most; 0: it can't.
    pub most_discarded: u32,
    /// Sectors of one [`BlockOp::WriteZeroes`], at most; 0: it can't.
    pub most_zeroed: u32,
    /// What it is called by who made the machine; empty: nothing.
    pub serial: Vec<u8>,
}

/// What is wanted of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BlockOp {
    /// Its bytes come into the request's pages.
    Read,
    /// The bytes of the request's pages go to it.
    Write,
    /// All that was answered as written before stays if the power fails.
    Flush,
    /// Nobody wants the bytes of `sectors` sectors any more.
    Discard {
        /// How many.
        sectors: u32,
    },
    /// So many sectors become zero.
    WriteZeroes {
        /// How many.
        sectors: u32,
    },
}

/// What has been asked of a part of a disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountedPart {
    /// Its first sector, and how many it has.
    pub sectors: (u64, u64),
    /// As a line of /proc/diskstats has them.
    pub numbers: [u64; 17],
}

/// A piece of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    /// The page.
    pub frame: Frame,
    /// Where in it the piece begins.
    pub offset: usize,
    /// Its length.
    pub bytes: usize,
}

impl Piece {
    /// Where in the machine's memory it begins.
    fn start(&self) -> u64 {
        self.frame.address() + self.offset as u64
    }

    /// Whether `next` lies behind it in the machine's memory.
    fn adjoins(&self, next: &Piece) -> bool {
        self.start() + self.bytes as u64 == next.start()
    }
}

/// Pieces of pages, one after the other. It has a count of each frame, so none goes while a request has them.
pub struct Pieces {
    memory: Arc<dyn Memory>,
    pieces: Vec<Piece>,
    bytes: usize,
    segments: usize,
}

impl Pieces {
    /// None.
    pub fn none(memory: &Arc<dyn Memory>) -> Pieces {
        Pieces { memory: memory.clone(), pieces: Vec::new(), bytes: 0, segments: 0 }
    }

    /// Adds a piece of a page that somebody keeps here until this returns.
    pub fn push(&mut self, piece: Piece) {
        debug_assert!(piece.offset + piece.bytes <= PAGE_SIZE);
        self.memory.retain(piece.frame);
        self.bytes += piece.bytes;
        self.segments += usize::from(!self.continues(&piece));
        self.pieces.push(piece);
    }

    /// Whether `next`, behind them, makes their last segment longer.
    pub fn continues(&self, next: &Piece) -> bool {
        self.pieces.last().is_some_and(|last| last.adjoins(next))
    }

    /// How many bytes they are.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether they are none.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Adds those of `other` behind.
    pub fn append(&mut self, mut other: Pieces) {
        self.segments += other.segments - self.joins(&other);
        self.bytes += core::mem::take(&mut other.bytes);
        self.pieces.append(&mut other.pieces);
    }

    /// How many runs of adjoining memory they are: so many addresses a device needs for them.
    pub fn segments(&self) -> usize {
        self.segments
    }

    /// How many segments fewer they are together with `next`, behind them, than apart.
    pub fn joins(&self, next: &Pieces) -> usize {
        usize::from(next.pieces.first().is_some_and(|first| self.continues(first)))
    }

    /// Where each segment begins in the machine's memory, and its bytes.
    pub fn each_segment(&self) -> impl Iterator<Item = (u64, usize)> + '_ {
        let runs = self.pieces.chunk_by(Piece::adjoins);
        runs.map(|run| (run[0].start(), run.iter().map(|piece| piece.bytes).sum()))
    }

    /// Each of them.
    pub fn as_slice(&self) -> &[Piece] {
        &self.pieces
    }

    /// Adds their bytes to `to`.
    pub fn copy_to(&self, to: &mut Vec<u8>) {
        for piece in &self.pieces {
            let from = to.len();
            to.resize(from + piece.bytes, 0);
            self.memory.read(piece.frame, piece.offset, &mut to[from..]);
        }
    }

    /// Their bytes become those of `from`, as far as that goes.
    pub fn copy_from(&self, mut from: &[u8]) {
        for piece in &self.pieces {
            let (now, later) = from.split_at(piece.bytes.min(from.len()));
            self.memory.write(piece.frame, piece.offset, now);
            from = later;
        }
    }
}

impl Clone for Pieces {
    fn clone(&self) -> Self {
        self.pieces.iter().for_each(|piece| self.memory.retain(piece.frame));
        Pieces { memory: self.memory.clone(), pieces: self.pieces.clone(), bytes: self.bytes, segments: self.segments }
    }
}

impl Drop for Pieces {
    fn drop(&mut self) {
        self.pieces.iter().for_each(|piece| self.memory.release(piece.frame));
    }
}

/// A disk.
pub trait BlockDevice: Send + Sync {
    /// What it is now. (A loop device gets another size and other bytes when a program says so.)
    fn limits(&self) -> Arc<BlockLimits>;

    /// How many loop devices a request goes through before it comes to a disk.
    fn nesting(&self) -> u32 {
        0
    }

    /// If another kernel drives it: which, and the disk's number on the bus.
    fn driven_by(&self) -> Option<(KernelId, u32)> {
        None
    }

    /// If another kernel drives it: what has been asked of its parts there, for file systems that are mounted there.
    fn counted_there(&self) -> Option<BoxFuture<'_, Vec<CountedPart>>> {
        None
    }

    /// Done when it has another number of sectors than `known`: how many. None: it stays as large as it is, or its driver tells of that.
    fn resized(&self, _known: u64) -> Option<BoxFuture<'_, u64>> {
        None
    }

    /// Does `op` from `sector` on, and waits until the disk has answered. Many may be under way at once, in any order; of two that overlap either may be first.
    ///
    /// Dropping the future does not call the request back: the disk still carries it out, also a read. The pages stay counted until it has answered, so nobody else gets one before.
    ///
    /// EIO: the disk says so, or is gone. EOPNOTSUPP: it can't do that. EINVAL: it is past the end, or more than the limits say.
    fn submit(&self, op: BlockOp, sector: u64, pages: Pieces) -> BoxFuture<'_, Result<()>>;
}
