//! Words that this kernel counts in and programs map.
//!
//! They lie in frames of this kernel, so counting costs no message. A program that maps them, on whatever kernel, maps these frames: the kernel writes at any
//! time, so no copy may be lent, and what was counted is seen everywhere at once. Nobody can map them so that he may write.

use super::{lent::Copies, PageCache, PAGE};
use crate::{Object, Services};
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::sync::atomic::Ordering::Release;
use machine::{account::Charge, errno::Result, Errno, Frame, Words, PAGE_SIZE};

/// Pages of 32-bit words, all zero at first.
pub struct MappedWords {
    /// Keeps the frames: nothing makes it smaller.
    cache: Arc<PageCache>,
    pages: Vec<WordPage>,
}

struct WordPage {
    frame: Frame,
    /// None: the frame lies in another kernel's memory, which happens when here is little.
    words: Option<Box<dyn Words>>,
}

impl MappedWords {
    /// `charge` is kept as long as somebody has the words or maps them. ENOMEM.
    pub fn new(services: &Arc<Services>, pages: usize, charge: Charge) -> Result<Arc<Self>> {
        let count = pages;
        let mut pages = Vec::new();
        pages.try_reserve_exact(count).map_err(|_| Errno::ENOMEM)?;
        let cache = PageCache::charged(services, count as u64 * PAGE, charge);
        cache.sealable.store(true, Release);
        cache.sealed.store(true, Release);
        for index in 0..count as u64 {
            let frame = services.frame()?;
            pages.push(WordPage { frame: frame.frame(), words: services.memory.words(frame.frame()) });
            let mut state = cache.state.lock();
            state.pages.insert(index, frame);
            state.copies.insert(index, Copies::Over);
        }
        Ok(Arc::new(MappedWords { cache, pages }))
    }

    /// Adds one to the word at byte `at`, modulo 2^32; the sum.
    pub fn count(&self, at: usize) -> u32 {
        let WordPage { frame, words } = &self.pages[at / PAGE_SIZE];
        match words {
            Some(words) => words.add(at % PAGE_SIZE, 1),
            None => self.cache.services.memory.add_u32(*frame, at % PAGE_SIZE, 1),
        }
    }

    /// The word at byte `at`.
    pub fn get(&self, at: usize) -> u32 {
        let WordPage { frame, words } = &self.pages[at / PAGE_SIZE];
        match words {
            Some(words) => words.load(at % PAGE_SIZE),
            None => self.cache.services.memory.load_u32(*frame, at % PAGE_SIZE),
        }
    }

    /// Sets the word at byte `at`, as if so much had been counted.
    #[cfg(test)]
    pub fn set(&self, at: usize, sum: u32) {
        let frame = self.pages[at / PAGE_SIZE].frame;
        self.cache.services.memory.write(frame, at % PAGE_SIZE, &sum.to_ne_bytes());
    }

    /// What mmap maps.
    pub fn object(&self) -> Arc<dyn Object> {
        self.cache.clone()
    }
}
