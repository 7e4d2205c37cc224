//! Words that this kernel counts in and programs map.
//!
//! They lie in frames of this kernel, so counting costs no message. A program that maps them, on whatever kernel, maps these frames: the kernel writes at any
//! time, so no copy may be lent, and what was counted is seen everywhere at once. Nobody can map them so that he may write.

use super::{lent::Copies, PageCache, PAGE};
use crate::{Object, Services};
use alloc::{sync::Arc, vec::Vec};
use core::sync::atomic::Ordering::Release;
use machine::{account::Charge, errno::Result, Errno, Frame, PAGE_SIZE};

/// Pages of 32-bit words, all zero at first.
pub struct MappedWords {
    /// Keeps the frames: nothing makes it smaller.
    cache: Arc<PageCache>,
    frames: Vec<Frame>,
}

impl MappedWords {
    /// `charge` is kept as long as somebody has the words or maps them. ENOMEM.
    pub fn new(services: &Arc<Services>, pages: usize, charge: Charge) -> Result<Arc<Self>> {
        let mut frames = Vec::new();
        frames.try_reserve_exact(pages).map_err(|_| Errno::ENOMEM)?;
        let cache = PageCache::charged(services, pages as u64 * PAGE, charge);
        cache.sealable.store(true, Release);
        cache.sealed.store(true, Release);
        for index in 0..pages as u64 {
            let frame = services.frame()?;
            frames.push(frame.frame());
            let mut state = cache.state.lock();
            state.pages.insert(index, frame);
            state.copies.insert(index, Copies::Over);
        }
        Ok(Arc::new(MappedWords { cache, frames }))
    }

    /// Adds one to the word at byte `at`, modulo 2^32; the sum.
    pub fn count(&self, at: usize) -> u32 {
        self.cache.services.memory.add_u32(self.frames[at / PAGE_SIZE], at % PAGE_SIZE, 1)
    }

    /// The word at byte `at`.
    pub fn get(&self, at: usize) -> u32 {
        self.cache.services.memory.load_u32(self.frames[at / PAGE_SIZE], at % PAGE_SIZE)
    }

    /// What mmap maps.
    pub fn object(&self) -> Arc<dyn Object> {
        self.cache.clone()
    }
}
