//! A set of small numbers whose smallest member is found in a few steps, however large it is.
//!
//! Level 0 has a bit per number; every level above has a bit per word below, set if that word is not
//! zero; the top level is one word. Finding the first member is one `trailing_zeros` a level (three
//! for a gigabyte of frames).

const BITS: usize = u64::BITS as usize;
/// 64^6 numbers: more frames than an address has room for.
const MAX_LEVELS: usize = 6;

pub struct BitTree {
    words: &'static mut [u64],
    /// Where each level starts in `words`.
    starts: [usize; MAX_LEVELS],
    levels: usize,
}

impl BitTree {
    /// Words of storage for numbers below `len`.
    pub fn words_for(len: usize) -> usize {
        Self::layout(len).2
    }

    fn layout(len: usize) -> ([usize; MAX_LEVELS], usize, usize) {
        let (mut starts, mut level, mut total, mut bits) = ([0; MAX_LEVELS], 0, 0, len.max(1));
        loop {
            starts[level] = total;
            bits = bits.div_ceil(BITS);
            total += bits;
            level += 1;
            if bits == 1 {
                return (starts, level, total);
            }
        }
    }

    /// An empty set of numbers below `len`; `words` are all zero and `words_for(len)` many.
    pub fn new(len: usize, words: &'static mut [u64]) -> Self {
        let (starts, levels, total) = Self::layout(len);
        assert_eq!(words.len(), total);
        BitTree { words, starts, levels }
    }

    pub fn contains(&self, number: usize) -> bool {
        self.words[number / BITS] >> (number % BITS) & 1 == 1
    }

    pub fn insert(&mut self, mut number: usize) {
        for start in &self.starts[..self.levels] {
            let word = &mut self.words[start + number / BITS];
            let known_above = *word != 0;
            *word |= 1 << (number % BITS);
            if known_above {
                return;
            }
            number /= BITS;
        }
    }

    pub fn remove(&mut self, mut number: usize) {
        for start in &self.starts[..self.levels] {
            let word = &mut self.words[start + number / BITS];
            *word &= !(1 << (number % BITS));
            if *word != 0 {
                return;
            }
            number /= BITS;
        }
    }

    /// The smallest member.
    pub fn first(&self) -> Option<usize> {
        let top = self.starts[self.levels - 1];
        if self.words[top] == 0 {
            return None;
        }
        let descend =
            |number: usize, start: &usize| number * BITS + self.words[start + number].trailing_zeros() as usize;
        Some(self.starts[..self.levels].iter().rev().fold(0, descend))
    }
}
