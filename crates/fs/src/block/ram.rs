//! /dev/ram0: a disk whose bytes are in memory. A page of it exists from its first write on, until it is discarded.

use crate::Services;
use alloc::{collections::BTreeMap, sync::Arc, vec::Vec};
use machine::{
    block::{BlockDevice, BlockLimits, BlockOp, Pieces, SECTOR},
    collections::try_filled,
    errno::Result,
    sync::Lock,
    BoxFuture, Errno, Frame, PAGE_SIZE,
};

/// Bytes of one read or write.
const MOST_BYTES: usize = 256 << 10;

/// See the module. It is to be made with a size that the machine has the memory for: a write that finds none free is EIO.
pub struct RamDisk {
    services: Arc<Services>,
    limits: Arc<BlockLimits>,
    pages: Lock<BTreeMap<u64, Frame>>,
}

impl RamDisk {
    /// Of so many bytes, rounded down to whole pages.
    pub fn new(services: &Arc<Services>, bytes: u64) -> RamDisk {
        let limits = BlockLimits {
            sectors: bytes / PAGE_SIZE as u64 * (PAGE_SIZE as u64 / SECTOR),
            block: SECTOR as u32,
            physical_block: PAGE_SIZE as u32,
            most_bytes: MOST_BYTES,
            most_discarded: u32::MAX >> 9,
            ..BlockLimits::default()
        };
        RamDisk { services: services.clone(), limits: Arc::new(limits), pages: Lock::default() }
    }

    fn carry_out(&self, op: BlockOp, sector: u64, pieces: &Pieces) -> Result<()> {
        let start = sector.checked_mul(SECTOR).ok_or(Errno::EINVAL)?;
        let bytes = match op {
            BlockOp::Flush => return Ok(()),
            BlockOp::Read | BlockOp::Write => pieces.len() as u64,
            BlockOp::Discard { sectors } => u64::from(sectors) * SECTOR,
            BlockOp::WriteZeroes { .. } => return Err(Errno::EOPNOTSUPP),
        };
        let end = start.checked_add(bytes).filter(|end| *end <= self.limits.sectors * SECTOR).ok_or(Errno::EINVAL)?;
        match op {
            BlockOp::Discard { .. } => {
                self.discard(start, end);
                Ok(())
            }
            BlockOp::Read => {
                let (mut read, mut done): (Vec<u8>, usize) = (try_filled(bytes as usize, 0)?, 0);
                self.each_page(start, end, |page, within, bytes| {
                    if let Some(frame) = self.pages.lock().get(&page) {
                        self.services.memory.read(*frame, within, &mut read[done..done + bytes]);
                    }
                    done += bytes;
                });
                pieces.copy_from(&read);
                Ok(())
            }
            _ => {
                for page in start / PAGE_SIZE as u64..end.div_ceil(PAGE_SIZE as u64) {
                    self.make_page(page)?;
                }
                let (mut written, mut done) = (Vec::new(), 0);
                pieces.copy_to(&mut written);
                self.each_page(start, end, |page, within, bytes| {
                    // One that was discarded meanwhile stays so.
                    if let Some(frame) = self.pages.lock().get(&page) {
                        self.services.memory.write(*frame, within, &written[done..done + bytes]);
                    }
                    done += bytes;
                });
                Ok(())
            }
        }
    }

    fn each_page(&self, start: u64, end: u64, mut each: impl FnMut(u64, usize, usize)) {
        let mut at = start;
        while at < end {
            let within = (at % PAGE_SIZE as u64) as usize;
            let bytes = (PAGE_SIZE - within).min((end - at) as usize);
            each(at / PAGE_SIZE as u64, within, bytes);
            at += bytes as u64;
        }
    }

    fn make_page(&self, page: u64) -> Result<()> {
        if self.pages.lock().contains_key(&page) {
            return Ok(());
        }
        let frame = self.services.frame()?;
        let mut pages = self.pages.lock();
        if let alloc::collections::btree_map::Entry::Vacant(slot) = pages.entry(page) {
            slot.insert(frame.into_raw());
        }
        Ok(())
    }

    /// The whole pages go; they are zero from then on.
    fn discard(&self, start: u64, end: u64) {
        let (first, last) = (start.div_ceil(PAGE_SIZE as u64), end / PAGE_SIZE as u64);
        if first < last {
            let gone: Vec<_> = self.pages.lock().extract_if(first..last, |_, _| true).collect();
            gone.into_iter().for_each(|(_, frame)| self.services.memory.release(frame));
        }
    }
}

impl Drop for RamDisk {
    fn drop(&mut self) {
        self.pages.lock().values().for_each(|frame| self.services.memory.release(*frame));
    }
}

impl BlockDevice for RamDisk {
    fn limits(&self) -> Arc<BlockLimits> {
        self.limits.clone()
    }

    fn submit(&self, op: BlockOp, sector: u64, pages: Pieces) -> BoxFuture<'_, Result<()>> {
        crate::file::ready(self.carry_out(op, sector, &pages).map_err(|error| match error {
            Errno::ENOMEM => Errno::EIO,
            error => error,
        }))
    }
}
