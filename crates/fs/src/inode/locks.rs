//! Locks of one file: flock(2), and record locks of processes and of open file descriptions (fcntl(2)).
//!
//! flock and fcntl locks do not see each other, as on Linux. A process that would wait for one that waits for
//! it, over any number of files and of processes between, hears EDEADLK. Who waits for whom is one list for
//! this kernel, looked at and added to under one lock: of two that close a circle at once, the second sees
//! it. Descriptions' locks are not looked at, as on Linux.

use crate::inode::Inode;
use abi::{LockConflict, LockMode, LockRange};
use alloc::{
    collections::BTreeMap,
    sync::{Arc, Weak},
    vec::Vec,
};
use core::sync::atomic::{AtomicU64, Ordering};
use machine::{
    errno::Result,
    sync::{Lock, WaitQueue},
    Errno, Pid,
};

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

#[derive(Clone, Copy, Debug)]
struct HeldLock {
    owner: Owner,
    range: LockRange,
    exclusive: bool,
}

/// All of a file, also what is not there yet.
pub const WHOLE: LockRange = LockRange { start: 0, end: u64::MAX };

/// Processes that wait, by serial number of the wait, and for whom.
static WAITING: Lock<BTreeMap<u64, (Pid, Pid)>> = Lock::new(BTreeMap::new());
static WAITS: AtomicU64 = AtomicU64::new(0);

/// One wait in the list, as long as it lasts.
struct Wait(u64);

impl Wait {
    fn new() -> Self {
        Wait(WAITS.fetch_add(1, Ordering::Relaxed))
    }

    /// Now it waits for `holder`. EDEADLK if that one, directly or not, waits for it.
    fn is_for(&self, waiter: Pid, holder: Pid) -> Result<()> {
        let mut waiting = WAITING.lock();
        let (mut seen, mut next) = (Vec::new(), alloc::vec![holder]);
        while let Some(process) = next.pop() {
            if process == waiter {
                return Err(Errno::EDEADLK);
            }
            if !seen.contains(&process) {
                seen.push(process);
                next.extend(waiting.values().filter(|(from, _)| *from == process).map(|(_, to)| *to));
            }
        }
        waiting.insert(self.0, (waiter, holder));
        Ok(())
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        WAITING.lock().remove(&self.0);
    }
}

/// The locks on one file.
#[derive(Default)]
pub struct LockTable {
    /// One owner's lie side by side, in the order of the file, and the owners in the order in which they came: F_GETLK tells of the
    /// first that conflicts, as on Linux.
    held: Lock<Vec<HeldLock>>,
    changed: WaitQueue,
}

fn conflict(held: &[HeldLock], owner: Owner, range: LockRange, exclusive: bool) -> Option<HeldLock> {
    held.iter()
        .find(|lock| {
            lock.owner.sees(owner)
                && (exclusive || lock.exclusive)
                && lock.range.start < range.end
                && range.start < lock.range.end
        })
        .copied()
}

impl LockTable {
    /// Whether nobody holds a lock.
    pub fn is_empty(&self) -> bool {
        self.held.lock().is_empty()
    }

    /// F_GETLK: the first lock that stands in the way of this one.
    pub fn test(&self, owner: Owner, range: LockRange, mode: LockMode) -> Option<LockConflict> {
        if mode == LockMode::Unlock {
            return None;
        }
        let found = conflict(&self.held.lock(), owner, range, mode == LockMode::Exclusive)?;
        Some(LockConflict {
            range: found.range,
            mode: if found.exclusive { LockMode::Exclusive } else { LockMode::Shared },
            process: match found.owner {
                Owner::Process(pid) => Some(pid),
                Owner::Description(_) | Owner::Flock(_) => None,
            },
        })
    }

    /// F_SETLK, F_SETLKW (`wait`), flock: takes, converts or gives up. EAGAIN: somebody is in the way. EDEADLK: a circle of processes would wait.
    pub async fn set(&self, owner: Owner, range: LockRange, mode: LockMode, wait: bool) -> Result<()> {
        if range.start >= range.end {
            return Err(Errno::EINVAL);
        }
        // man 2 flock: converting is not atomic; the old lock goes first, and may be lost to a waiter.
        if matches!(owner, Owner::Flock(_)) {
            self.unlock(owner, range);
        }
        let exclusive = match mode {
            LockMode::Unlock => {
                self.unlock(owner, range);
                return Ok(());
            }
            LockMode::Shared => false,
            LockMode::Exclusive => true,
        };
        if self.try_set(owner, range, exclusive) {
            return Ok(());
        }
        if !wait {
            return Err(Errno::EAGAIN);
        }
        let wait = Wait::new();
        let locked = || {
            if self.try_set(owner, range, exclusive) {
                return Some(Ok(()));
            }
            let holder = conflict(&self.held.lock(), owner, range, exclusive).map(|held| held.owner);
            match (owner, holder) {
                (Owner::Process(waiter), Some(Owner::Process(holder))) => wait.is_for(waiter, holder).err().map(Err),
                _ => None,
            }
        };
        self.changed.wait_until(locked).await
    }

    fn try_set(&self, owner: Owner, range: LockRange, exclusive: bool) -> bool {
        let mut held = self.held.lock();
        if conflict(&held, owner, range, exclusive).is_some() {
            return false;
        }
        let place = held.iter().position(|lock| lock.owner == owner).unwrap_or(held.len());
        carve(&mut held, owner, range);
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
        drop(held);
        // An exclusive lock may have become a shared one.
        self.changed.wake_all();
        true
    }

    fn unlock(&self, owner: Owner, range: LockRange) {
        carve(&mut self.held.lock(), owner, range);
        self.changed.wake_all();
    }

    /// Everything `owner` holds is given up.
    pub fn release(&self, owner: Owner) {
        self.release_all(|of| of == owner);
    }

    fn release_all(&self, gone: impl Fn(Owner) -> bool) {
        let mut held = self.held.lock();
        let before = held.len();
        held.retain(|lock| !gone(lock.owner));
        let fewer = held.len() < before;
        drop(held);
        if fewer {
            self.changed.wake_all();
        }
    }
}

/// Files of this kernel that have record locks of processes. Those end with a close, and a process whose kernel has died closes
/// nothing; so it must be possible to find them.
#[derive(Default)]
pub struct Locked(Lock<BTreeMap<usize, Weak<dyn Inode>>>);

/// The list is looked through for files without locks whenever it has grown by so many.
const SWEPT: usize = 32;

impl Locked {
    /// It has one.
    pub fn note(&self, inode: &Arc<dyn Inode>) {
        let mut all = self.0.lock();
        let known = all.insert(Arc::as_ptr(inode).cast::<()>() as usize, Arc::downgrade(inode)).is_some();
        let mut ended = Vec::new();
        if !known && all.len().is_multiple_of(SWEPT) {
            all.retain(|_, inode| {
                let inode = inode.upgrade();
                let has = inode.as_ref().is_some_and(|inode| inode.locks().is_some_and(|locks| !locks.is_empty()));
                ended.extend(inode);
                has
            });
        }
        // Whoever is the last to have an inode may end it: not under the lock.
        drop(all);
    }

    /// Record locks of processes that have ended go.
    pub fn end(&self, ended: &dyn Fn(Pid) -> bool) {
        let all: Vec<_> = self.0.lock().values().filter_map(Weak::upgrade).collect();
        for locks in all.iter().filter_map(|inode| inode.locks()) {
            locks.release_all(|owner| matches!(owner, Owner::Process(process) if ended(process)));
        }
    }
}

/// Cuts `range` out of what `owner` holds.
fn carve(held: &mut Vec<HeldLock>, owner: Owner, range: LockRange) {
    let mut at = 0;
    while let Some(&lock) = held.get(at) {
        at += 1;
        if lock.owner != owner || lock.range.end <= range.start || range.end <= lock.range.start {
            continue;
        }
        at -= 1;
        held.remove(at);
        let before = LockRange { start: lock.range.start, end: range.start };
        let behind = LockRange { start: range.end, end: lock.range.end };
        for rest in [before, behind].into_iter().filter(|rest| rest.start < rest.end) {
            held.insert(at, HeldLock { range: rest, ..lock });
            at += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{block_on, once};
    use std::boxed::Box;

    fn range(start: u64, end: u64) -> LockRange {
        LockRange { start, end }
    }

    #[test]
    fn unlocking_the_middle_splits_a_lock() {
        let table = LockTable::default();
        let (a, b) = (Owner::Process(Pid(1)), Owner::Process(Pid(2)));
        block_on(table.set(a, range(0, 100), LockMode::Exclusive, false)).unwrap();
        assert_eq!(block_on(table.set(b, range(40, 50), LockMode::Shared, false)), Err(Errno::EAGAIN));
        block_on(table.set(a, range(40, 50), LockMode::Unlock, false)).unwrap();
        block_on(table.set(b, range(40, 50), LockMode::Exclusive, false)).unwrap();
        assert_eq!(table.test(b, WHOLE, LockMode::Shared).unwrap().range, range(0, 40));
        table.release(a);
        assert_eq!(table.test(b, WHOLE, LockMode::Exclusive), None);
    }

    #[test]
    fn a_circle_over_three_files_is_not_closed() {
        let files: [LockTable; 3] = Default::default();
        let process = |number| Owner::Process(Pid(70_000 + number as u32));
        for (number, file) in files.iter().enumerate() {
            block_on(file.set(process(number), WHOLE, LockMode::Exclusive, false)).unwrap();
        }
        let mut first = Box::pin(files[1].set(process(0), WHOLE, LockMode::Shared, true));
        assert!(once(first.as_mut()).is_none());
        {
            let mut second = Box::pin(files[2].set(process(1), WHOLE, LockMode::Shared, true));
            assert!(once(second.as_mut()).is_none());
            let third = files[0].set(process(2), WHOLE, LockMode::Shared, true);
            assert_eq!(block_on(third), Err(Errno::EDEADLK));
        }
        // The second has given up: no circle any more.
        let mut third = Box::pin(files[0].set(process(2), WHOLE, LockMode::Shared, true));
        assert!(once(third.as_mut()).is_none());
        files[1].release(process(1));
        assert_eq!(once(first.as_mut()), Some(Ok(())));
    }

    #[test]
    fn flock_and_record_locks_do_not_see_each_other() {
        let table = LockTable::default();
        block_on(table.set(Owner::Flock(1), WHOLE, LockMode::Exclusive, false)).unwrap();
        block_on(table.set(Owner::Process(Pid(1)), WHOLE, LockMode::Exclusive, false)).unwrap();
        assert_eq!(block_on(table.set(Owner::Flock(2), WHOLE, LockMode::Shared, false)), Err(Errno::EAGAIN));
        assert_eq!(block_on(table.set(Owner::Description(1), WHOLE, LockMode::Shared, false)), Err(Errno::EAGAIN));
    }
}
