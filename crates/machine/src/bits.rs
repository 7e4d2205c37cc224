//! A set of small numbers.

use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// A set of numbers, all about as large as there are kernels or CPUs: those below 64 take no memory from the heap.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Bits {
    low: u64,
    /// Words for 64 and up; no trailing zero words, so equal sets compare equal.
    high: Vec<u64>,
}

impl Bits {
    /// The empty set.
    pub const fn new() -> Self {
        Bits { low: 0, high: Vec::new() }
    }

    /// From words of 64 numbers each, in order.
    pub fn from_words(words: impl IntoIterator<Item = u64>) -> Self {
        let mut words = words.into_iter();
        let low = words.next().unwrap_or(0);
        let mut high = Vec::new();
        for (index, word) in words.enumerate() {
            if word != 0 {
                high.resize(index, 0);
                high.push(word);
            }
        }
        Bits { low, high }
    }

    /// Its words of 64 numbers each, in order: as many as the largest number needs, but one at least.
    pub fn words(&self) -> impl Iterator<Item = u64> + '_ {
        core::iter::once(self.low).chain(self.high.iter().copied())
    }

    /// What is below 64, and the words of the rest.
    pub fn split(&self) -> (u64, &[u64]) {
        (self.low, &self.high)
    }

    /// The set that [`Bits::split`] took apart.
    pub fn join(low: u64, high: impl IntoIterator<Item = u64>) -> Self {
        Bits::from_words(core::iter::once(low).chain(high))
    }

    /// Adds `number`; true if it was not there.
    pub fn insert(&mut self, number: usize) -> bool {
        let (word, bit) = (number / 64, 1u64 << (number % 64));
        let slot = match word {
            0 => &mut self.low,
            _ => {
                if self.high.len() < word {
                    self.high.resize(word, 0);
                }
                &mut self.high[word - 1]
            }
        };
        let new = *slot & bit == 0;
        *slot |= bit;
        new
    }

    /// Takes `number` out; true if it was there.
    pub fn remove(&mut self, number: usize) -> bool {
        let (word, bit) = (number / 64, 1u64 << (number % 64));
        let slot = match word {
            0 => &mut self.low,
            _ => match self.high.get_mut(word - 1) {
                Some(slot) => slot,
                None => return false,
            },
        };
        let had = *slot & bit != 0;
        *slot &= !bit;
        while self.high.last() == Some(&0) {
            self.high.pop();
        }
        had
    }

    /// Whether `number` is in it.
    pub fn contains(&self, number: usize) -> bool {
        let (word, bit) = (number / 64, 1u64 << (number % 64));
        match word {
            0 => self.low & bit != 0,
            _ => self.high.get(word - 1).is_some_and(|slot| slot & bit != 0),
        }
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.low == 0 && self.high.is_empty()
    }

    /// How many numbers are in it.
    pub fn len(&self) -> usize {
        self.words().map(|word| word.count_ones() as usize).sum()
    }

    /// What is in both.
    pub fn intersect(&self, other: &Bits) -> Bits {
        Bits::from_words(self.words().zip(other.words()).map(|(mine, its)| mine & its))
    }

    /// The numbers in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.words().enumerate().flat_map(|(index, word)| {
            let mut rest = word;
            core::iter::from_fn(move || {
                let number = (rest != 0).then(|| index * 64 + rest.trailing_zeros() as usize);
                rest &= rest.wrapping_sub(1);
                number
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_grows_past_one_word_and_shrinks_back() {
        let mut set = Bits::new();
        assert!(set.insert(3));
        assert!(set.insert(200));
        assert!(!set.insert(200));
        assert_eq!(set.iter().collect::<Vec<_>>(), [3, 200]);
        assert_eq!(Bits::from_words(set.words().chain([0, 0])), set);
        let (low, high) = set.split();
        assert_eq!(Bits::join(low, high.iter().copied()), set);
        assert!(set.remove(200));
        assert!(!set.remove(64));
        assert_eq!(set, Bits::from_words([8]));
        assert_eq!(set.len(), 1);
    }

    #[test]
    fn what_is_in_both_is_no_longer_than_it_must_be() {
        let (one, other) = (Bits::from_words([1, 2, 4]), Bits::from_words([3, 5, 8]));
        assert_eq!(one.intersect(&other), Bits::from_words([1]));
        assert!(one.intersect(&Bits::new()).is_empty());
    }
}
