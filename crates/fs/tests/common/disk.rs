//! A disk of bytes in memory.

use machine::{
    block::{BlockDevice, BlockLimits, BlockOp, Pieces, SECTOR},
    errno::Result,
    BoxFuture, Errno,
};
use std::sync::{
    atomic::{AtomicBool, Ordering::SeqCst},
    Arc, Mutex,
};

/// Says what it was asked, and fails if it is told to.
pub struct Bytes {
    pub limits: BlockLimits,
    pub bytes: Mutex<Vec<u8>>,
    asked: Mutex<Vec<(BlockOp, u64, usize)>>,
    pub fails: AtomicBool,
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
        Bytes { limits, bytes: Mutex::new(bytes), asked: Mutex::default(), fails: AtomicBool::new(false) }
    }

    pub fn taken(&self) -> Vec<(BlockOp, u64, usize)> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }
}

impl BlockDevice for Bytes {
    fn limits(&self) -> Arc<BlockLimits> {
        Arc::new(self.limits.clone())
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
        Box::pin(std::future::ready(answer))
    }
}
