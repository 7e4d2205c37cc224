//! Which locks are held on a file, and what one more does to them: the same wherever they are kept.

use abi::{LockConflict, LockMode, LockRange, RecordLock};
use alloc::vec::Vec;
use machine::{errno::Result, Errno, Pid};

/// Who holds a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A process: fcntl(F_SETLK).
    Process(Pid),
    /// An open file description: fcntl(F_OFD_SETLK).
    Description(u64),
    /// An open file description: flock(2), which knows nothing of the others.
    Flock(u64),
}

impl Owner {
    fn sees(self, other: Owner) -> bool {
        self != other && matches!(self, Owner::Flock(_)) == matches!(other, Owner::Flock(_))
    }
}

/// A lock that is held.
#[derive(Clone, Copy, Debug)]
pub struct HeldLock {
    /// Whose it is.
    pub owner: Owner,
    /// Which bytes.
    pub range: LockRange,
    /// Nobody else may have one, not even a shared one.
    pub exclusive: bool,
}

impl HeldLock {
    /// As a value that travels. None: it is a description's.
    pub fn of_process(&self) -> Option<RecordLock> {
        match self.owner {
            Owner::Process(process) => Some(RecordLock { process, range: self.range, exclusive: self.exclusive }),
            Owner::Description(_) | Owner::Flock(_) => None,
        }
    }

    /// What F_GETLK tells of it.
    pub fn conflict(&self) -> LockConflict {
        LockConflict {
            range: self.range,
            mode: if self.exclusive { LockMode::Exclusive } else { LockMode::Shared },
            process: match self.owner {
                Owner::Process(process) => Some(process),
                Owner::Description(_) | Owner::Flock(_) => None,
            },
        }
    }
}

impl From<RecordLock> for HeldLock {
    fn from(lock: RecordLock) -> Self {
        HeldLock { owner: Owner::Process(lock.process), range: lock.range, exclusive: lock.exclusive }
    }
}

/// The first lock that stands in the way of this one.
pub fn conflict(held: &[HeldLock], owner: Owner, range: LockRange, exclusive: bool) -> Option<HeldLock> {
    held.iter()
        .find(|lock| {
            lock.owner.sees(owner)
                && (exclusive || lock.exclusive)
                && lock.range.start < range.end
                && range.start < lock.range.end
        })
        .copied()
}

/// Makes room for what one more lock, or a cut, may add to a table that holds `most` at most. ENOLCK: there is none.
pub fn make_room(held: &mut Vec<HeldLock>, most: usize) -> Result<()> {
    // A cut makes two of one lock, and the new lock is one more.
    match held.len() + 2 > most {
        true => Err(Errno::ENOLCK),
        false => held.try_reserve(2).map_err(|_| Errno::ENOLCK),
    }
}

/// Takes a lock. False: somebody is in the way. There is room ([`make_room`]).
pub fn take(held: &mut Vec<HeldLock>, owner: Owner, range: LockRange, exclusive: bool) -> bool {
    if conflict(held, owner, range, exclusive).is_some() {
        return false;
    }
    let place = held.iter().position(|lock| lock.owner == owner).unwrap_or(held.len());
    carve(held, owner, range);
    let mut whole = range;
    // What touches a lock of the same kind and owner is one lock with it.
    held.retain(|lock| {
        let joins = lock.owner == owner && lock.exclusive == exclusive;
        if !joins || lock.range.end < whole.start || whole.end < lock.range.start {
            return true;
        }
        whole = LockRange { start: whole.start.min(lock.range.start), end: whole.end.max(lock.range.end) };
        false
    });
    let below = |lock: &HeldLock| lock.owner == owner && lock.range.start < whole.start;
    let place = held.iter().rposition(below).map_or(place.min(held.len()), |last| last + 1);
    held.insert(place, HeldLock { owner, range: whole, exclusive });
    true
}

/// Whether [`carve`] would make two of one lock, for which there must be room.
pub fn splits(held: &[HeldLock], owner: Owner, range: LockRange) -> bool {
    held.iter().any(|lock| lock.owner == owner && lock.range.start < range.start && range.end < lock.range.end)
}

/// Cuts `range` out of what `owner` holds.
pub fn carve(held: &mut Vec<HeldLock>, owner: Owner, range: LockRange) {
    let (mut kept, mut behind) = (0, None);
    held.retain_mut(|lock| {
        kept += 1;
        if lock.owner != owner || lock.range.end <= range.start || range.end <= lock.range.start {
            return true;
        }
        let before = LockRange { start: lock.range.start, end: range.start };
        let rest = LockRange { start: range.end, end: lock.range.end };
        match (before.start < before.end, rest.start < rest.end) {
            (true, more) => {
                // One owner's locks do not overlap, so at most one of them lies on both sides.
                behind = more.then_some((kept, HeldLock { range: rest, ..*lock }));
                lock.range = before;
            }
            (false, true) => lock.range = rest,
            (false, false) => {
                kept -= 1;
                return false;
            }
        }
        true
    });
    if let Some((at, lock)) = behind {
        held.insert(at, lock);
    }
}
