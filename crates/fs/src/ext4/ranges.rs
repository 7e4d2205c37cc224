//! Sets of numbers that are kept as ranges.

use alloc::{collections::BTreeMap, vec::Vec};
use core::ops::Range;

/// Ranges that neither overlap nor touch each other: where each begins, and where it ends.
#[derive(Clone, Debug, Default)]
pub struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    /// How many ranges.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// How many numbers.
    pub fn count(&self) -> u64 {
        self.0.iter().map(|(from, to)| to - from).sum()
    }

    /// The ranges.
    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.0.iter().map(|(from, to)| *from..*to)
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Adds a range.
    pub fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let (mut start, mut end) = (range.start, range.end);
        while let Some((&from, &to)) = self.0.range(..=end).next_back().filter(|(_, to)| **to >= start) {
            self.0.remove(&from);
            (start, end) = (start.min(from), end.max(to));
        }
        self.0.insert(start, end);
    }

    /// Takes a range out; says how many numbers of it were there.
    pub fn remove(&mut self, range: Range<u64>) -> u64 {
        let mut removed = 0;
        if range.is_empty() {
            return 0;
        }
        while let Some((&from, &to)) = self.0.range(..range.end).next_back().filter(|(_, to)| **to > range.start) {
            self.0.remove(&from);
            removed += to.min(range.end) - from.max(range.start);
            if to > range.end {
                self.0.insert(range.end, to);
            }
            if from < range.start {
                self.0.insert(from, range.start);
            }
        }
        removed
    }

    /// The parts of a range that are not there.
    pub fn missing(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let (mut at, mut missing) = (range.start, Vec::new());
        let before = self.0.range(..=range.start).next_back();
        for (&from, &to) in before.into_iter().chain(self.0.range(range.start + 1..range.end.max(range.start + 1))) {
            if from > at {
                missing.push(at..from.min(range.end));
            }
            at = at.max(to);
        }
        if at < range.end {
            missing.push(at..range.end);
        }
        missing
    }

    /// Whether all of a range is there.
    pub fn contains(&self, range: &Range<u64>) -> bool {
        range.is_empty() || self.0.range(..=range.start).next_back().is_some_and(|(_, to)| *to >= range.end)
    }
}

#[cfg(test)]
mod tests {
    use super::Ranges;
    use alloc::{collections::BTreeSet, vec::Vec};

    #[test]
    fn ranges_are_the_set_that_they_stand_for() {
        let (mut ranges, mut model) = (Ranges::default(), BTreeSet::new());
        let mut state = 1u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % below
        };
        for _ in 0..20_000 {
            let start = random(100);
            let range = start..start + random(12);
            match random(3) {
                0 => {
                    ranges.insert(range.clone());
                    model.extend(range.clone());
                }
                1 => {
                    let removed = range.clone().filter(|number| model.remove(number)).count();
                    assert_eq!(ranges.remove(range.clone()), removed as u64);
                }
                _ => {
                    let missing: Vec<u64> = ranges.missing(range.clone()).into_iter().flatten().collect();
                    let expected: Vec<u64> = range.clone().filter(|number| !model.contains(number)).collect();
                    assert_eq!(missing, expected);
                    assert_eq!(ranges.contains(&range), expected.is_empty());
                }
            }
            let touching = ranges.0.iter().zip(ranges.0.iter().skip(1)).any(|((_, to), (from, _))| to >= from);
            assert!(!touching);
        }
    }
}
