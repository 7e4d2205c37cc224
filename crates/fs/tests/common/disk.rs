//! A disk of bytes in memory.

use machine::{
    block::{BlockDevice, BlockLimits, BlockOp, Pieces, SECTOR},
    errno::Result,
    sync::WaitQueue,
    BoxFuture, Errno,
};
use std::{
    sync::{
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst},
        Arc, Mutex,
    },
    task::Poll,
};

/// Says what it was asked, and fails if it is told to.
pub struct Bytes {
    pub limits: BlockLimits,
    pub bytes: Mutex<Vec<u8>>,
    asked: Mutex<Vec<(BlockOp, u64, usize)>>,
    pub fails: AtomicBool,
    /// The first write takes a while, and after it none is answered before so many have come.
    pub together: AtomicUsize,
    written: Arc<AtomicUsize>,
    /// So many sectors it has, if it is one that gets another size.
    pub sectors: Option<AtomicU64>,
    pub resized: WaitQueue,
}

impl Bytes {
    pub fn new(bytes: Vec<u8>) -> Bytes {
        let limits = BlockLimits {
            sectors: bytes.len() as u64 / SECTOR,
            block: 512,
            physical_block: 4096,
            caches_writes: true,
            most_bytes: 8192,
            most_discarded: 0,
            most_zeroed: 8,
            ..BlockLimits::default()
        };
        Bytes {
            limits,
            bytes: Mutex::new(bytes),
            asked: Mutex::default(),
            fails: AtomicBool::new(false),
            together: AtomicUsize::new(0),
            written: Arc::default(),
            sectors: None,
            resized: WaitQueue::new(),
        }
    }

    pub fn taken(&self) -> Vec<(BlockOp, u64, usize)> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }
}

impl BlockDevice for Bytes {
    fn limits(&self) -> Arc<BlockLimits> {
        let sectors = self.sectors.as_ref().map_or(self.limits.sectors, |sectors| sectors.load(SeqCst));
        Arc::new(BlockLimits { sectors, ..self.limits.clone() })
    }

    fn resized(&self, known: u64) -> Option<BoxFuture<'_, u64>> {
        let sectors = self.sectors.as_ref()?;
        let now = move || Some(sectors.load(SeqCst)).filter(|now| *now != known);
        Some(Box::pin(self.resized.wait_until(now)))
    }

    fn submit(&self, op: BlockOp, sector: u64, pages: Pieces) -> BoxFuture<'_, Result<()>> {
        assert!(pages.len() <= self.limits.most_bytes);
        self.asked.lock().unwrap().push((op, sector, pages.len()));
        let answer = match self.fails.load(SeqCst) {
            true => Err(Errno::EIO),
            false => {
                let (mut bytes, from) = (self.bytes.lock().unwrap(), (sector * SECTOR) as usize);
                match op {
                    BlockOp::Read => pages.copy_from(&bytes[from..from + pages.len()]),
                    BlockOp::Write => {
                        let mut written = Vec::new();
                        pages.copy_to(&mut written);
                        bytes[from..from + written.len()].copy_from_slice(&written);
                    }
                    BlockOp::WriteZeroes { sectors } => bytes[from..from + sectors as usize * 512].fill(0),
                    BlockOp::Flush | BlockOp::Discard { .. } => {}
                }
                Ok(())
            }
        };
        let (together, written) = (self.together.load(SeqCst), self.written.clone());
        let counts = op == BlockOp::Write && together > 0;
        let (number, mut looks) = (if counts { written.fetch_add(1, SeqCst) } else { together }, 0);
        Box::pin(std::future::poll_fn(move |_| {
            looks += 1;
            match !counts || number == 0 && looks > 100 || number > 0 && written.load(SeqCst) >= together {
                true => Poll::Ready(answer),
                false => Poll::Pending,
            }
        }))
    }
}
