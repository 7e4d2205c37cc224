//! A queue of bytes that is filled and emptied where it lies, so that bytes go from one program to another by two copies.

use alloc::boxed::Box;
use machine::{collections::try_filled, errno::Result};

/// The least memory it takes.
const LEAST: usize = 256;

#[derive(Default)]
pub(crate) struct Ring {
    /// As many as a power of two says, or none.
    bytes: Box<[u8]>,
    start: usize,
    len: usize,
}

impl Ring {
    pub fn len(&self) -> usize {
        self.len
    }

    /// Bytes of memory it takes, however many are in it.
    pub fn memory(&self) -> usize {
        self.bytes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The places behind the last byte for `count` more, in order. They count when [`Ring::push`] says so.
    /// ENOMEM.
    pub fn room(&mut self, count: usize) -> Result<[&mut [u8]; 2]> {
        if self.len + count > self.bytes.len() {
            self.grow((self.len + count).next_power_of_two().max(LEAST))?;
        }
        let at = self.place(self.len);
        let first = count.min(self.bytes.len() - at);
        let (front, back) = self.bytes.split_at_mut(at);
        Ok([&mut back[..first], &mut front[..count - first]])
    }

    /// So many places have been filled.
    pub fn push(&mut self, count: usize) {
        debug_assert!(self.len + count <= self.bytes.len());
        self.len += count;
    }

    /// The first bytes, at most `most`, in order.
    pub fn front(&self, most: usize) -> [&[u8]; 2] {
        let count = most.min(self.len);
        let first = count.min(self.bytes.len() - self.start);
        [&self.bytes[self.start..self.start + first], &self.bytes[..count - first]]
    }

    /// Forgets the first bytes; when all are gone, the memory too if it is more than `keep`.
    pub fn pop(&mut self, count: usize, keep: usize) {
        debug_assert!(count <= self.len);
        self.len -= count;
        self.start = if self.len == 0 { 0 } else { self.place(count) };
        if self.len == 0 && self.bytes.len() > keep {
            self.bytes = Box::default();
        }
    }

    /// Where the byte `index` after the first lies.
    fn place(&self, index: usize) -> usize {
        (self.start + index) & self.bytes.len().wrapping_sub(1)
    }

    fn grow(&mut self, to: usize) -> Result<()> {
        let mut bytes = try_filled(to, 0)?.into_boxed_slice();
        copy(self.front(self.len), &mut bytes);
        (self.bytes, self.start) = (bytes, 0);
        Ok(())
    }
}

/// Copies both parts to the beginning of `to`, and says how much that was.
pub(crate) fn copy([front, back]: [&[u8]; 2], to: &mut [u8]) -> usize {
    let (first, rest) = to.split_at_mut(front.len());
    first.copy_from_slice(front);
    rest[..back.len()].copy_from_slice(back);
    front.len() + back.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::{collections::VecDeque, vec, vec::Vec};

    #[test]
    fn it_is_a_queue_wherever_it_begins_and_as_it_grows() {
        let (mut ring, mut model, mut next) = (Ring::default(), VecDeque::new(), 0u8);
        for step in 0..2000usize {
            let count = step * 37 % 300;
            for place in ring.room(count).unwrap().into_iter().flatten() {
                *place = next;
                model.push_back(next);
                next = next.wrapping_add(1);
            }
            ring.push(count);
            let count = step * 53 % 311;
            let mut out = vec![0; count.min(ring.len())];
            assert_eq!(copy(ring.front(count), &mut out), out.len());
            assert_eq!(out, model.drain(..out.len()).collect::<Vec<_>>());
            ring.pop(out.len(), 4096);
            assert_eq!(ring.len(), model.len());
        }
    }

    #[test]
    fn places_that_were_not_pushed_are_not_there_and_much_memory_is_given_back() {
        let mut ring = Ring::default();
        ring.room(1000).unwrap()[0].fill(7);
        assert!(ring.is_empty() && ring.front(10)[0].is_empty());
        ring.room(600).unwrap()[0].fill(1);
        ring.push(600);
        ring.pop(600, 512);
        assert!(ring.bytes.is_empty());
    }
}
