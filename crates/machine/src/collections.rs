//! Collections without std, and for kernels: hash maps with one hasher, a queue in pieces, and vectors that may be refused.
//!
//! What a program decides the size of is made by `try_*`: ENOMEM where the heap has no such piece. Crates `linux` and `fs` may not make
//! it otherwise (`clippy.toml` there).

use crate::{errno::Result, Errno};
use alloc::{
    collections::{LinkedList, VecDeque},
    vec::Vec,
};
use foldhash::fast::FixedState;

/// A hash map with one hasher for all. Whoever walks one acts in its order, which so follows from what was done before: a
/// seed of the simulator is one run. (hashbrown's own takes a new hasher for each map.)
pub type HashMap<K, V> = hashbrown::HashMap<K, V, FixedState>;
/// The same for sets.
pub type HashSet<T> = hashbrown::HashSet<T, FixedState>;

/// A vector with room for `len` elements.
pub fn try_with_capacity<T>(len: usize) -> Result<Vec<T>> {
    let mut vector = Vec::new();
    vector.try_reserve_exact(len).map_err(|_| Errno::ENOMEM)?;
    Ok(vector)
}

/// A vector of `len` times `value`.
pub fn try_filled<T: Clone>(len: usize, value: T) -> Result<Vec<T>> {
    let mut vector = try_with_capacity(len)?;
    vector.resize(len, value);
    Ok(vector)
}

/// Makes `vector` as long as that, with `value` at the end where it is longer now.
pub fn try_resize<T: Clone>(vector: &mut Vec<T>, len: usize, value: T) -> Result<()> {
    vector.try_reserve(len.saturating_sub(vector.len())).map_err(|_| Errno::ENOMEM)?;
    vector.resize(len, value);
    Ok(())
}

/// A piece of a queue with room for so many elements stays when they are gone.
const SMALL: usize = 4;

/// A queue that never needs more than a page in one piece, however long it gets. `VecDeque` doubles: of a queue whose length
/// programs decide it would ask the heap for megabytes at once.
pub struct Queue<T> {
    /// All but the last and the first are full. None is empty but a small one that is the only one: a queue of one element now and then
    /// needs no memory each time.
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

    /// An empty queue, which takes no memory.
    pub const fn new() -> Self {
        Queue { pieces: LinkedList::new(), len: 0 }
    }

    /// How many elements there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends an element.
    pub fn push_back(&mut self, value: T) {
        self.len += 1;
        match self.pieces.back_mut() {
            Some(last) if last.len() < Self::PIECE => last.push_back(value),
            _ => self.pieces.push_back([value].into()),
        }
    }

    /// Puts an element before all others.
    pub fn push_front(&mut self, value: T) {
        self.len += 1;
        match self.pieces.front_mut() {
            Some(first) if first.len() < Self::PIECE => first.push_front(value),
            _ => self.pieces.push_front([value].into()),
        }
    }

    /// Takes the first element out.
    pub fn pop_front(&mut self) -> Option<T> {
        let first = self.pieces.front_mut()?;
        let value = first.pop_front()?;
        self.len -= 1;
        if first.is_empty() && (self.len > 0 || first.capacity() > SMALL) {
            self.pieces.pop_front();
        }
        Some(value)
    }

    /// Takes the last element out.
    pub fn pop_back(&mut self) -> Option<T> {
        let last = self.pieces.back_mut()?;
        let value = last.pop_back()?;
        self.len -= 1;
        if last.is_empty() && (self.len > 0 || last.capacity() > SMALL) {
            self.pieces.pop_back();
        }
        Some(value)
    }

    /// The last element.
    pub fn back(&self) -> Option<&T> {
        self.pieces.back()?.back()
    }

    /// The first element.
    pub fn front(&self) -> Option<&T> {
        self.pieces.front()?.front()
    }

    /// The first element, to be changed.
    pub fn front_mut(&mut self) -> Option<&mut T> {
        self.pieces.front_mut()?.front_mut()
    }

    /// From the front on.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.pieces.iter().flatten()
    }

    /// From the front on, to be changed.
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
            assert_eq!((queue.len(), queue.front(), queue.back()), (model.len(), model.front(), model.back()));
        }
        assert!(queue.iter().eq(model.iter()));
    }

    #[test]
    fn what_is_too_large_is_refused() {
        assert_eq!(try_filled(3, 7u8), Ok([7, 7, 7].into()));
        assert_eq!(try_filled(usize::MAX, 7u8), Err(Errno::ENOMEM));
        assert_eq!(try_with_capacity::<u64>(usize::MAX / 8 - 1), Err(Errno::ENOMEM));
        let mut some = Vec::from([1u8, 2]);
        assert_eq!((try_resize(&mut some, 3, 9), &some[..]), (Ok(()), &[1, 2, 9][..]));
        assert_eq!((try_resize(&mut some, usize::MAX / 2 + 9, 9), some.len()), (Err(Errno::ENOMEM), 3));
        assert_eq!((try_resize(&mut some, 1, 9), &some[..]), (Ok(()), &[1][..]));
    }

    #[test]
    fn a_queue_in_pieces_is_a_queue() {
        agrees::<u8>();
        agrees::<u64>();
    }
}
