//! Record locks of processes on files (man 2 fcntl): those that do not wait.

use super::{
    super::{Id, Outcome, EAGAIN, EBADF, EIO},
    done, Files, Kind,
};
use crate::rng::Rng;
use std::collections::{BTreeMap, BTreeSet};

pub(super) const F_SETLK: u64 = 6;
/// Bytes of a file that are locked.
const BYTES: u8 = 3;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LockKind {
    Shared,
    Exclusive,
    None,
}

impl LockKind {
    pub const ALL: [LockKind; 3] = [LockKind::Shared, LockKind::Exclusive, LockKind::None];
}

/// By file, byte and process: whether it is exclusive.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Locks(BTreeMap<(usize, u8, Id), bool>);

/// Some bytes: the first, and the first that is not one of them.
pub(super) fn range(rng: &Rng) -> (u8, u8) {
    let start = rng.below(BYTES.into()) as u8;
    (start, start + 1 + rng.below((BYTES - start).into()) as u8)
}

/// struct flock.
pub(super) fn argument(kind: LockKind, (start, end): (u8, u8)) -> Vec<u8> {
    let kind: u16 = match kind {
        LockKind::Shared => 0,
        LockKind::Exclusive => 1,
        LockKind::None => 2,
    };
    let mut flock = Vec::from(u64::from(kind).to_le_bytes());
    flock.extend(u64::from(start).to_le_bytes());
    flock.extend(u64::from(end - start).to_le_bytes());
    flock.extend([0; 8]);
    flock
}

impl Locks {
    pub fn end(&mut self, ended: &BTreeSet<Id>) {
        self.0.retain(|(.., process), _| !ended.contains(process));
    }
}

impl Files {
    pub(super) fn lock(&mut self, thread: Id, kind: LockKind, (start, end): (u8, u8)) -> i64 {
        let process = self.process[&thread];
        let file = match self.descriptions[&self.held[&thread]].kind {
            Kind::File { file, .. } => file,
            // How it was opened is looked at first.
            Kind::Dead { reads: false, .. } if kind == LockKind::Shared => return EBADF,
            Kind::Dead { writes: false, .. } if kind == LockKind::Exclusive => return EBADF,
            Kind::Dead { .. } => return EIO,
            _ => return EBADF,
        };
        let bytes = start..end;
        let exclusive = kind == LockKind::Exclusive;
        let in_the_way = |(&(of, byte, holder), &held): (&(usize, u8, Id), &bool)| {
            of == file && bytes.contains(&byte) && holder != process && (held || exclusive)
        };
        if kind != LockKind::None && self.locks.0.iter().any(in_the_way) {
            return EAGAIN;
        }
        for byte in start..end {
            match kind {
                LockKind::None => drop(self.locks.0.remove(&(file, byte, process))),
                _ => drop(self.locks.0.insert((file, byte, process), exclusive)),
            }
        }
        0
    }

    /// A descriptor of the process was closed.
    pub(super) fn unlock(&mut self, process: Id, description: usize) {
        if let Some(Kind::File { file, .. }) = self.descriptions.get(&description).map(|known| known.kind.clone()) {
            self.locks.0.retain(|(of, _, holder), _| *of != file || *holder != process);
        }
    }

    pub(super) fn closed(&mut self, thread: Id, result: i64) -> Outcome {
        self.unlock(self.process[&thread], self.held[&thread]);
        done(result)
    }
}
