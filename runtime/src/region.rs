//! What tasks read and write: ranges of addresses, and who has to wait for whom.
//!
//! The children of one task are a domain. A task waits for those of its siblings that were made before it and use the same bytes, unless both only
//! read them (OmpSs: in, out, inout). A domain keeps for each range who wrote it last and who has read it since:
//!
//! ```text
//!           0        100       200        300
//! A out     |---------A---------|
//! B in      |    B reads        |                      B waits for A
//! C inout             |--------C----------|            C waits for A and B
//!           |writer A |writer C           |
//!           |reader B |                   |
//! ```

use std::{collections::BTreeMap, ops::Range, sync::Arc};

/// Bytes that a task uses, by their addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    start: usize,
    end: usize,
}

impl Region {
    /// `bytes` bytes from address `start` on.
    pub fn new(start: usize, bytes: usize) -> Region {
        Region { start, end: start.saturating_add(bytes) }
    }

    /// Where the value is.
    pub fn of<T: ?Sized>(value: &T) -> Region {
        Region::new(std::ptr::from_ref(value).cast::<u8>() as usize, size_of_val(value))
    }
}

/// How a task uses a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    In,
    Out,
    InOut,
}

/// What the domain knows of a range without an inner border.
#[derive(Debug)]
struct Piece<T> {
    end: usize,
    writer: Option<Arc<T>>,
    readers: Vec<Arc<T>>,
}

impl<T> Clone for Piece<T> {
    fn clone(&self) -> Self {
        Piece { end: self.end, writer: self.writer.clone(), readers: self.readers.clone() }
    }
}

/// Who used what last, in one domain. `T` is a task.
#[derive(Debug)]
pub struct Domain<T> {
    /// By where they begin; they don't overlap.
    pieces: BTreeMap<usize, Piece<T>>,
    /// About how many pieces and readers there are, and how many there may be before those of ended tasks go.
    entries: usize,
    limit: usize,
}

/// So many are always kept.
const LEAST: usize = 64;

impl<T> Default for Domain<T> {
    fn default() -> Self {
        Domain { pieces: BTreeMap::new(), entries: 0, limit: LEAST }
    }
}

impl<T> Domain<T> {
    /// Enters that `task` uses the region, and calls `waits_for` with each task that it must wait for. (With the same one more than once, maybe.)
    pub fn enter(&mut self, task: &Arc<T>, region: Region, access: Access, mut waits_for: impl FnMut(&Arc<T>)) {
        let Region { start, end } = region;
        if start >= end {
            return;
        }
        self.split(start);
        self.split(end);
        let mut at = start;
        while at < end {
            let next = self.pieces.range(at..end).next().map_or(end, |(start, _)| *start);
            if next > at {
                // Nobody has used this yet.
                self.pieces.insert(at, Piece { end: next, writer: None, readers: Vec::new() });
            }
            let Some(piece) = self.pieces.get_mut(&at) else { break };
            let is_other = |other: &&Arc<T>| !Arc::ptr_eq(other, task);
            piece.writer.iter().filter(is_other).for_each(&mut waits_for);
            match access {
                Access::In => piece.readers.push(task.clone()),
                Access::Out | Access::InOut => {
                    piece.readers.iter().filter(is_other).for_each(&mut waits_for);
                    piece.readers.clear();
                    piece.writer = Some(task.clone());
                }
            }
            at = piece.end;
            self.entries += 1;
        }
    }

    /// Makes a border at `at`.
    fn split(&mut self, at: usize) {
        let Some((_, piece)) = self.pieces.range_mut(..at).next_back() else { return };
        if piece.end <= at {
            return;
        }
        let behind = piece.clone();
        piece.end = at;
        self.pieces.insert(at, behind);
    }

    /// Forgets tasks that have ended, and ranges that nobody uses any more.
    pub fn forget(&mut self, mut has_ended: impl FnMut(&T) -> bool) {
        self.pieces.retain(|_, piece| {
            piece.writer = piece.writer.take().filter(|task| !has_ended(task));
            piece.readers.retain(|task| !has_ended(task));
            piece.writer.is_some() || !piece.readers.is_empty()
        });
    }

    /// The same when there has come as much as was left the last time.
    pub fn forget_at_times(&mut self, has_ended: impl FnMut(&T) -> bool) {
        if self.entries > self.limit {
            self.forget(has_ended);
            self.entries = self.pieces.values().map(|piece| 1 + piece.readers.len()).sum();
            self.limit = (2 * self.entries).max(LEAST);
        }
    }
}

impl From<Range<usize>> for Region {
    fn from(range: Range<usize>) -> Region {
        Region { start: range.start, end: range.end }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn readers_wait_for_writers_and_writers_for_all() {
        let mut domain = Domain::default();
        let [a, b, c, d] = [0, 1, 2, 3].map(Arc::new);
        let mut ask = |task: &Arc<i32>, range: Range<usize>, access| {
            let mut waits = BTreeSet::new();
            domain.enter(task, range.into(), access, |other| _ = waits.insert(**other));
            waits.into_iter().collect::<Vec<_>>()
        };
        assert_eq!(ask(&a, 0..200, Access::Out), []);
        assert_eq!(ask(&b, 0..200, Access::In), [0]);
        assert_eq!(ask(&c, 100..300, Access::InOut), [0, 1]);
        assert_eq!(ask(&d, 0..100, Access::In), [0]);
        assert_eq!(ask(&d, 150..160, Access::In), [2]);
        assert_eq!(ask(&d, 150..160, Access::In), [2]);
        assert_eq!(ask(&a, 300..301, Access::In), []);
        domain.forget(|task| *task != 3);
        assert_eq!(domain.pieces.len(), 2);
    }

    /// Against a model that keeps a writer and readers for each byte.
    #[test]
    fn random_accesses_wait_for_whom_the_bytes_say() {
        let mut seed = 1u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        for _ in 0..200 {
            let mut domain = Domain::default();
            let mut bytes: Vec<(Option<u64>, BTreeSet<u64>)> = vec![Default::default(); 64];
            for number in 0..40 {
                let task = Arc::new(number);
                let start = random(60) as usize;
                let end = start + random(20) as usize;
                let access = [Access::In, Access::Out, Access::InOut][random(3) as usize];
                let mut waits = BTreeSet::new();
                domain.enter(&task, (start..end.min(64)).into(), access, |other| _ = waits.insert(**other));
                let mut expected = BTreeSet::new();
                for (writer, readers) in &mut bytes[start..end.min(64)] {
                    expected.extend(writer.iter().copied());
                    if access == Access::In {
                        readers.insert(number);
                    } else {
                        expected.append(readers);
                        *writer = Some(number);
                    }
                }
                assert_eq!(waits, expected);
            }
        }
    }
}
