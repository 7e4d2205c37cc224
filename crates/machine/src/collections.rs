//! Collections without std, and for kernels: hash maps with one hasher, a queue in pieces.

use alloc::collections::{LinkedList, VecDeque};
use foldhash::fast::FixedState;

/// Whoever walks a hash map does things in its order. With one hasher for all that order follows from what was done before, so
/// that a seed of the simulator is one run; hashbrown's own takes a new hasher for each map.
pub type HashMap<K, V> = hashbrown::HashMap<K, V, FixedState>;
pub type HashSet<T> = hashbrown::HashSet<T, FixedState>;

/// A queue that never needs more than a page in one piece, however long it gets. `VecDeque` doubles: of a queue whose length
/// programs decide it would ask the heap for megabytes at once.
pub struct Queue<T> {
    /// None is empty, all but the last and the first are full.
    pieces: LinkedList<VecDeque<T>>,
    len: usize,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Queue<T> {
    /// Elements that fit into a page.
    const PIECE: usize = match crate::PAGE_SIZE / size_of::<T>() {
        0 => 1,
        fit => fit,
    };

    pub const fn new() -> Self {
        Queue { pieces: LinkedList::new(), len: 0 }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn push_back(&mut self, value: T) {
        self.len += 1;
        match self.pieces.back_mut() {
            Some(last) if last.len() < Self::PIECE => last.push_back(value),
            _ => self.pieces.push_back([value].into()),
        }
    }

    pub fn push_front(&mut self, value: T) {
        self.len += 1;
        match self.pieces.front_mut() {
            Some(first) if first.len() < Self::PIECE => first.push_front(value),
            _ => self.pieces.push_front([value].into()),
        }
    }

    pub fn pop_front(&mut self) -> Option<T> {
        let first = self.pieces.front_mut()?;
        let value = first.pop_front();
        if first.is_empty() {
            self.pieces.pop_front();
        }
        self.len -= 1;
        value
    }

    pub fn pop_back(&mut self) -> Option<T> {
        let last = self.pieces.back_mut()?;
        let value = last.pop_back();
        if last.is_empty() {
            self.pieces.pop_back();
        }
        self.len -= 1;
        value
    }

    pub fn front(&self) -> Option<&T> {
        self.pieces.front()?.front()
    }

    pub fn front_mut(&mut self) -> Option<&mut T> {
        self.pieces.front_mut()?.front_mut()
    }

    /// From the front on.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.pieces.iter().flatten()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.pieces.iter_mut().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against a deque, with elements of which few and of which many fit into a piece.
    fn agrees<T: From<u8> + PartialEq + core::fmt::Debug>() {
        let (mut queue, mut model) = (Queue::<T>::new(), VecDeque::<T>::new());
        let mut random = 7u32;
        for step in 0..50_000 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let value = (random >> 24) as u8;
            // More come than go in the first half, and the other way round in the second.
            match (random >> 16 & 7, step < 25_000) {
                (0..3, true) | (0, false) => (queue.push_back(value.into()), model.push_back(value.into())).0,
                (3..5, true) | (1, false) => (queue.push_front(value.into()), model.push_front(value.into())).0,
                (5, _) | (2..4, false) => assert_eq!(queue.pop_front(), model.pop_front()),
                _ => assert_eq!(queue.pop_back(), model.pop_back()),
            }
            assert_eq!((queue.len(), queue.front()), (model.len(), model.front()));
        }
        assert!(queue.iter().eq(model.iter()));
    }

    #[test]
    fn a_queue_in_pieces_is_a_queue() {
        agrees::<u8>();
        agrees::<u64>();
    }
}
