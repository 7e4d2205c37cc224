//! Binary buddy allocator over indices: pure bookkeeping, it never touches the memory it manages.
//!
//! A free block of order k is one bit in the set of that order. Whether the buddy of a block is free
//! is one bit test, and a free block is found by walking a [`BitTree`], so nothing is ever scanned.
//! The lowest free block is taken first, which keeps long-lived frames together at the bottom.

use crate::{bit_tree::BitTree, carve::Carve};
use core::array;

/// Largest block: 4 MiB.
pub const MAX_ORDER: usize = 10;
const ORDERS: usize = MAX_ORDER + 1;
pub const MAX_BLOCK: usize = 1 << MAX_ORDER;

pub struct Buddy {
    free: [BitTree; ORDERS],
    free_count: usize,
}

impl Buddy {
    /// Words of bitmaps for `len` indices, a multiple of the largest block.
    pub fn words_for(len: usize) -> usize {
        (0..ORDERS).map(|order| BitTree::words_for(len >> order)).sum()
    }

    /// Nothing is free at first.
    pub fn new(len: usize, carve: &mut Carve) -> Self {
        assert_eq!(len % MAX_BLOCK, 0);
        let tree = |order: usize| {
            let bits = len >> order;
            BitTree::new(bits, carve.words(BitTree::words_for(bits)))
        };
        Buddy { free: array::from_fn(tree), free_count: 0 }
    }

    pub fn free_count(&self) -> usize {
        self.free_count
    }

    /// A block of `1 << order` indices, aligned to its size.
    pub fn take(&mut self, order: usize) -> Option<usize> {
        let (mut found, mut block) = (order..ORDERS).find_map(|order| Some((order, self.free[order].first()?)))?;
        self.free[found].remove(block);
        while found > order {
            found -= 1;
            block *= 2;
            self.free[found].insert(block + 1);
        }
        self.free_count -= 1 << order;
        Some(block << order)
    }

    pub fn put(&mut self, index: usize, order: usize) {
        self.free_count += 1 << order;
        let (mut order, mut block) = (order, index >> order);
        while order < MAX_ORDER && self.free[order].contains(block ^ 1) {
            self.free[order].remove(block ^ 1);
            block /= 2;
            order += 1;
        }
        self.free[order].insert(block);
    }

    /// Makes `start..end` free, in as large blocks as alignment allows.
    pub fn put_range(&mut self, mut start: usize, end: usize) {
        while start < end {
            let aligned = start.trailing_zeros() as usize;
            let order = aligned.min((end - start).ilog2() as usize).min(MAX_ORDER);
            self.put(start, order);
            start += 1 << order;
        }
    }
}
