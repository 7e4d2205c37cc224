//! Locks of one file: flock(2), and record locks of processes and of open file descriptions (fcntl(2)).
//!
//! flock and fcntl locks do not see each other, as on Linux. A process that would wait for one that waits for
//! it, over any number of files and of processes between, hears EDEADLK. Who waits for whom is one list for
//! this kernel, looked at and added to under one lock: of two that close a circle at once, the second sees
//! it. Descriptions' locks are not looked at, as on Linux.
//!
//! # Locks that another kernel keeps
//!
//! A program that locks and unlocks a file of another kernel again and again (a database) would pay a message for each. So a kernel that
//! alone sets record locks on a file is given them: from then on it sets and drops them by itself (remote/locks.rs), and the table here is empty
//! ([`LockTable::give`]). Whoever wants to know of the file's locks, here or on a third kernel, has them
//! fetched first ([`LockTable::at_home`]). They are given away only if all that are held are those of the process that has just taken one, and nobody waits for one.

use super::held::{carve, conflict, make_room, splits, take, HeldLock, Owner};
use crate::inode::Inode;
use abi::{LockConflict, LockMode, LockRange, RecordLock};
use alloc::{
    boxed::Box,
    collections::BTreeMap,
    sync::{Arc, Weak},
    vec::Vec,
};
use core::sync::atomic::{AtomicU64, Ordering};
use machine::{
    errno::Result,
    sync::{Lock, WaitQueue},
    Errno, KernelId, Pid,
};

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

/// Who keeps the record locks of a file for this kernel, and how they are fetched from there ([`crate::remote`]).
pub trait LockKeeper: Send + Sync {
    /// The kernel that keeps them.
    fn kernel(&self) -> KernelId;
    /// Whether that has not died.
    fn is_alive(&self) -> bool;
    /// Names what was given away.
    fn token(&self) -> u64;
    /// Begins to fetch the locks, and calls [`LockTable::came_home`] when they are here, or [`LockTable::keeper_died`].
    fn fetch(self: Arc<Self>);
}

/// The locks on one file.
#[derive(Default)]
pub struct LockTable {
    state: Lock<State>,
    changed: WaitQueue,
}

#[derive(Default)]
struct State {
    /// One owner's lie side by side, in the order of the file, and the owners in the order in which they came: F_GETLK tells of the
    /// first that conflicts, as on Linux. Empty while another kernel keeps them.
    held: Vec<HeldLock>,
    /// The kernel that keeps the locks.
    kept: Option<Box<Kept>>,
    /// How many wait for a lock.
    waiting: usize,
    /// Which kernel's processes have taken the last locks, and how many.
    last: Option<(KernelId, u32)>,
    /// How often the locks were fetched because somebody else wanted one.
    fetched: u32,
}

struct Kept {
    by: Arc<dyn LockKeeper>,
    /// The locks when they were given: if that answer never arrives, they still are these.
    given: Vec<HeldLock>,
    fetching: bool,
}

/// So many locks in a row a kernel takes before it is given the table; twice as many each time that somebody else has wanted one since.
const IN_A_ROW: u32 = 2;

/// Somebody waits for a lock.
struct Waiting<'a>(&'a LockTable);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.state.lock().waiting -= 1;
    }
}

impl LockTable {
    /// Whether nobody holds a lock, here or where another kernel keeps them.
    pub fn is_empty(&self) -> bool {
        let state = self.state.lock();
        state.held.is_empty() && state.kept.is_none()
    }

    /// Does `act` when this kernel has the locks, which it fetches if another one keeps them. If that has died the locks are here, without those
    /// that it kept, when all survivors are through with the death.
    async fn at_home<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        let mut act = Some(act);
        let done = || {
            {
                let mut state = self.state.lock();
                if state.kept.is_none() {
                    return act.take().map(|act| act(&mut state));
                }
            }
            // Also if they were at home meanwhile, and have been given away again.
            self.fetch();
            None
        };
        self.changed.wait_until(done).await
    }

    /// Begins to fetch the locks, unless somebody has.
    fn fetch(&self) {
        let keeper = {
            let mut state = self.state.lock();
            let kept = state.kept.as_mut().filter(|kept| !kept.fetching);
            kept.map(|kept| {
                kept.fetching = true;
                kept.by.clone()
            })
        };
        if let Some(keeper) = keeper {
            keeper.fetch();
        }
    }

    /// The kernel that keeps the locks has died.
    pub fn keeper_died(&self) {
        self.changed.wake_all();
    }

    /// `process` has taken a record lock, on `kernel`. True: it is time to give that kernel the locks.
    pub fn taken_by(&self, kernel: KernelId, process: Pid) -> bool {
        let mut state = self.state.lock();
        let count = match state.last {
            Some((last, count)) if last == kernel => count.saturating_add(1),
            _ => 1,
        };
        state.last = Some((kernel, count));
        count >= IN_A_ROW << state.fetched.min(16) && state.can_be_given(process)
    }

    /// Gives the locks, all of which are those of `process`, to `keeper`. None: not now.
    pub fn give(&self, keeper: &Arc<dyn LockKeeper>, process: Pid) -> Option<Vec<RecordLock>> {
        let mut state = self.state.lock();
        if !state.can_be_given(process) {
            return None;
        }
        let locks: Vec<RecordLock> = state.held.iter().filter_map(HeldLock::of_process).collect();
        let given = core::mem::take(&mut state.held);
        state.kept = Some(Box::new(Kept { by: keeper.clone(), given, fetching: false }));
        Some(locks)
    }

    /// The token of what `kernel` keeps.
    pub fn kept_by(&self, kernel: KernelId) -> Option<u64> {
        let state = self.state.lock();
        let kept = state.kept.as_ref()?;
        (kept.by.kernel() == kernel).then(|| kept.by.token())
    }

    /// What was given under `token` has come back. None: it never arrived. It may have come already.
    pub fn came_home(&self, token: u64, locks: Option<Vec<RecordLock>>) {
        let mut state = self.state.lock();
        let Some(kept) = state.kept.take_if(|kept| kept.by.token() == token) else { return };
        state.held = match locks {
            Some(locks) => locks.into_iter().map(HeldLock::from).collect(),
            None => kept.given,
        };
        state.last = None;
        if kept.fetching {
            state.fetched += 1;
        }
        drop(state);
        self.changed.wake_all();
    }

    /// F_GETLK: the first lock that stands in the way of this one.
    pub async fn test(&self, owner: Owner, range: LockRange, mode: LockMode) -> Option<LockConflict> {
        if mode == LockMode::Unlock {
            return None;
        }
        let found = self.at_home(|state| conflict(&state.held, owner, range, mode == LockMode::Exclusive)).await?;
        Some(found.conflict())
    }

    /// F_SETLK, F_SETLKW (`wait`), flock: takes, converts or gives up. EAGAIN: somebody is in the way. EDEADLK: a circle of processes would wait.
    pub async fn set(&self, owner: Owner, range: LockRange, mode: LockMode, wait: bool) -> Result<()> {
        if range.start >= range.end {
            return Err(Errno::EINVAL);
        }
        // man 2 flock: converting is not atomic; the old lock goes first, and may be lost to a waiter.
        if mode == LockMode::Unlock || matches!(owner, Owner::Flock(_)) {
            self.at_home(|state| state.cut(owner, range)).await?;
            self.changed.wake_all();
        }
        let exclusive = match mode {
            LockMode::Unlock => return Ok(()),
            LockMode::Shared => false,
            LockMode::Exclusive => true,
        };
        // Whoever waits is counted in the same step in which it finds that it must: until then the locks may be given away.
        let try_first = |state: &mut State| -> Result<_> {
            let taken = state.take(owner, range, exclusive)?;
            let waiting = (!taken && wait).then(|| state.waiting += 1);
            Ok((taken, waiting.map(|()| Waiting(self))))
        };
        let (taken, waiting) = self.at_home(try_first).await?;
        let Some(_waiting) = waiting else {
            if !taken {
                return Err(Errno::EAGAIN);
            }
            // An exclusive lock may have become a shared one.
            self.changed.wake_all();
            return Ok(());
        };
        let wait = Wait::new();
        let locked = || {
            let mut state = self.state.lock();
            match state.take(owner, range, exclusive) {
                Ok(false) => {}
                done => return Some(done.map(drop)),
            }
            let holder = conflict(&state.held, owner, range, exclusive).map(|held| held.owner);
            match (owner, holder) {
                (Owner::Process(waiter), Some(Owner::Process(holder))) => wait.is_for(waiter, holder).err().map(Err),
                _ => None,
            }
        };
        let locked = self.changed.wait_until(locked).await;
        self.changed.wake_all();
        locked
    }

    /// Everything `owner`, a description, holds is given up. (Its locks are never given away.)
    pub fn release(&self, owner: Owner) {
        let fewer = self.state.lock().release_all(|of| of == owner);
        if fewer {
            self.changed.wake_all();
        }
    }

    /// Everything the process holds is given up, wherever it is.
    pub async fn end_process(&self, process: Pid) {
        self.end_all(&|owner| owner == Owner::Process(process)).await;
    }

    /// A dead kernel is not waited for: all that have locks there end with it, and the survivors are not through with the death before that.
    async fn end_all(&self, gone: &(dyn Fn(Owner) -> bool + Sync)) {
        let fewer = || {
            {
                let mut state = self.state.lock();
                match &state.kept {
                    None => return Some(state.release_all(gone)),
                    Some(kept) if !kept.by.is_alive() => return Some(false),
                    Some(_) => {}
                }
            }
            self.fetch();
            None
        };
        if self.changed.wait_until(fewer).await {
            self.changed.wake_all();
        }
    }
}

impl State {
    /// Only locks of one process that is on the kernel: those of others would be lost if that kernel died.
    fn can_be_given(&self, process: Pid) -> bool {
        let its_own = self.held.iter().all(|held| held.owner == Owner::Process(process));
        self.kept.is_none()
            && self.waiting == 0
            && !self.held.is_empty()
            && its_own
            && self.held.len() + 2 <= MOST_GIVEN
    }

    /// Takes a lock. False: somebody is in the way.
    fn take(&mut self, owner: Owner, range: LockRange, exclusive: bool) -> Result<bool> {
        make_room(&mut self.held, MOST_HELD)?;
        Ok(take(&mut self.held, owner, range, exclusive))
    }

    /// Cuts `range` out of what `owner` holds. A full table only refuses to make two locks of one.
    fn cut(&mut self, owner: Owner, range: LockRange) -> Result<()> {
        if splits(&self.held, owner, range) {
            make_room(&mut self.held, MOST_HELD)?;
        }
        carve(&mut self.held, owner, range);
        Ok(())
    }

    /// True: somebody had something.
    fn release_all(&mut self, gone: impl Fn(Owner) -> bool) -> bool {
        let before = self.held.len();
        self.held.retain(|lock| !gone(lock.owner));
        self.held.len() < before
    }
}

/// Locks that one file may have: they are kept for users and charged to nobody, and each lock looks through all of them. The next one
/// finds ENOLCK.
const MOST_HELD: usize = 4096;

/// Locks that travel in one message.
pub const MOST_GIVEN: usize = 64;

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
    pub async fn end(&self, ended: &(dyn Fn(Pid) -> bool + Sync)) {
        let all: Vec<_> = self.0.lock().values().filter_map(Weak::upgrade).collect();
        for locks in all.iter().filter_map(|inode| inode.locks()) {
            locks.end_all(&|owner| matches!(owner, Owner::Process(process) if ended(process))).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{block_on, once};
    use machine::BoxFuture;

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
        assert_eq!(block_on(table.test(b, WHOLE, LockMode::Shared)).unwrap().range, range(0, 40));
        table.release(a);
        assert_eq!(block_on(table.test(b, WHOLE, LockMode::Exclusive)), None);
    }

    #[test]
    fn a_file_has_so_many_locks_and_no_more() {
        let table = LockTable::default();
        let (a, b) = (Owner::Process(Pid(1)), Owner::Process(Pid(2)));
        block_on(table.set(a, WHOLE, LockMode::Exclusive, false)).unwrap();
        let hole = |number: u64| block_on(table.set(a, range(2 * number + 1, 2 * number + 2), LockMode::Unlock, false));
        let holes = (0..10_000).take_while(|number| hole(*number).is_ok()).count();
        assert!(holes > MOST_HELD / 2 && table.state.lock().held.len() <= MOST_HELD, "{holes} holes");
        assert_eq!(hole(holes as u64), Err(Errno::ENOLCK));
        assert_eq!(block_on(table.set(b, range(1, 2), LockMode::Shared, false)), Err(Errno::ENOLCK));
        // Unlocking what makes no more of them is never refused.
        block_on(table.set(a, range(0, 1), LockMode::Unlock, false)).unwrap();
        block_on(table.set(a, range(0, 100), LockMode::Unlock, false)).unwrap();
        block_on(table.set(b, range(1, 2), LockMode::Shared, false)).unwrap();
        block_on(table.set(a, WHOLE, LockMode::Unlock, false)).unwrap();
        assert_eq!(table.state.lock().held.len(), 1);
    }

    /// Counts how often it is asked.
    struct Asked(u64, AtomicU64);

    impl LockKeeper for Asked {
        fn kernel(&self) -> KernelId {
            KernelId(1)
        }
        fn is_alive(&self) -> bool {
            true
        }
        fn token(&self) -> u64 {
            self.0
        }
        fn fetch(self: Arc<Self>) {
            self.1.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn locks_that_are_given_away_again_before_who_waits_has_looked_are_fetched_again() {
        let (a, b) = (Pid(1), Owner::Process(Pid(2)));
        for ends in [true, false] {
            let table = LockTable::default();
            let keepers = [1, 2].map(|token| Arc::new(Asked(token, AtomicU64::new(0))));
            let fetches = |keeper: usize| keepers[keeper].1.load(Ordering::Relaxed);
            block_on(table.set(Owner::Process(a), range(0, 10), LockMode::Exclusive, false)).unwrap();
            let locks = table.give(&(keepers[0].clone() as Arc<dyn LockKeeper>), a).unwrap();
            let mut waits: BoxFuture<'_, ()> = match ends {
                true => Box::pin(table.end_process(a)),
                false => Box::pin(async { table.set(b, range(20, 30), LockMode::Exclusive, false).await.unwrap() }),
            };
            assert!(once(waits.as_mut()).is_none());
            assert_eq!(fetches(0), 1);
            table.came_home(1, Some(locks));
            let locks = table.give(&(keepers[1].clone() as Arc<dyn LockKeeper>), a).unwrap();
            assert!(once(waits.as_mut()).is_none());
            assert_eq!(fetches(1), 1);
            table.came_home(2, Some(locks));
            assert!(once(waits.as_mut()).is_some());
            drop(waits);
            assert_eq!(table.state.lock().held.len(), if ends { 0 } else { 2 });
        }
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
