//! Locks with an owner: the futexes of FUTEX_LOCK_PI and its kin (man 2 futex, "Priority-inheritance futexes").
//!
//! The word holds the owner's thread id, and a bit that says that threads wait. User space takes and frees the lock by
//! itself as long as nobody waits; everything else happens at the kernel that queues the word's waiters, under one
//! lock for all such words of that kernel. Waiters stand in order of arrival; the owner is not given their
//! priority (docs/limits.md), everything else is as on Linux:
//!
//! - Unlocking hands the lock over: the word gets the next waiter's id before anybody wakes, so it is never free while
//!   threads wait, and nobody can come in between.
//! - Waiting for a lock one holds, also by way of other locks queued here, is EDEADLK (by way of other kernels: circle.rs).
//! - The owner's end hands the lock over too, with FUTEX_OWNER_DIED.
//!
//! **Owners that end.** Nothing is known of an owner until somebody waits. So before a thread waits, the home of the
//! owner's process notes that this kernel wants to hear of its end (`Owners::watch`; ESRCH if it has ended), and so does
//! the waiter's, which may be the next owner. The dangerous interleaving:
//!
//! ```text
//!   waiter's task (O)            home of the owner
//!   asks ----------------------> notes O; the owner lives
//!                                the owner ends
//!        <-------------- answer
//!        <---------- owner died  hands over the locks it owns: none is queued for
//!   joins the queue              <- waits for ever
//! ```
//!
//! So deaths are counted, and the answer counts only if none was told since before it was asked for; otherwise the
//! waiter begins anew.
//!
//! **A waiter that gives up** when it has just been handed the lock. The word names it by then, so whoever waits
//! looks at the word after giving up: if it has its own id, the lock is its, and the wait has succeeded (Linux's
//! `fixup_pi_owner`). A waiter that was dropped is not in the queue any more, so nothing can be handed to it later.

use crate::Words;
use alloc::{collections::VecDeque, sync::Arc, vec::Vec};
use core::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, Waker},
};
use machine::{errno::Result, sync::Lock, BoxFuture, Errno, HashMap, HashSet, KernelSet, Pid};
use messages::{futex::LockWait, vm::FutexKey};

/// The bits of a word beside the id.
pub const WAITERS: u32 = 0x8000_0000;
pub const OWNER_DIED: u32 = 0x4000_0000;
pub const TID_MASK: u32 = 0x3fff_ffff;

/// Who knows the threads.
pub trait Owners: Send + Sync {
    /// From now on this kernel hears of the end of `thread`, as those do that this answers. ESRCH if it has ended.
    fn watch(&self, thread: Pid) -> BoxFuture<'_, Result<KernelSet>>;
    /// Nanoseconds, the same on all kernels.
    fn now(&self) -> u64;
    fn sleep_until(&self, at: u64) -> BoxFuture<'_, ()>;
}

#[derive(Default)]
pub(crate) struct Locks {
    table: Lock<Table>,
}

#[derive(Default)]
struct Table {
    queues: HashMap<FutexKey, Queue>,
    /// What each waiting thread waits for.
    waiting: HashMap<Pid, WaitedLock>,
    /// Threads whose end this kernel will hear of.
    watched: HashSet<Pid>,
    /// Ends told so far.
    deaths: u64,
}

/// The lock that a thread waits for.
struct WaitedLock {
    key: FutexKey,
    /// When the thread joined its queue.
    since: u64,
}

struct Queue {
    owner: Pid,
    waiters: VecDeque<Arc<Waiter>>,
}

struct Waiter {
    thread: Pid,
    state: Lock<State>,
}

#[derive(Default)]
struct State {
    /// It has the lock, or it never will (the word is out of reach).
    result: Option<Result<()>>,
    waker: Option<Waker>,
}

/// What a step under the lock came to.
enum Step<T> {
    Done(T),
    /// The word is not in memory, or it changed: once more, after making it resident.
    Again,
}

/// How far an attempt to lock got.
enum Attempt {
    Taken,
    /// The end of this thread is to be watched first.
    Unwatched(Pid),
    Waiting(Arc<Waiter>),
}

impl Table {
    /// Would `thread`, waiting for a lock of `owner`, wait for itself?
    fn is_deadlock(&self, thread: Pid, mut owner: Pid) -> bool {
        // Every step is another waiting thread, so there are at most as many.
        for _ in 0..=self.waiting.len() {
            if owner == thread {
                return true;
            }
            match self.wait_of(owner) {
                Some(wait) => owner = wait.owner,
                None => return false,
            }
        }
        true
    }

    fn wait_of(&self, thread: Pid) -> Option<LockWait> {
        let place = self.waiting.get(&thread)?;
        Some(LockWait { since: place.since, owner: self.queues.get(&place.key)?.owner })
    }

    /// Hands `key` to the next waiter; `keep` are bits of the word that stay. False if nobody waits.
    fn hand_over(&mut self, words: &dyn Words, key: &FutexKey, word: u32, keep: u32) -> Step<Option<Arc<Waiter>>> {
        let Some(next) = self.queues.get(key).and_then(|queue| queue.waiters.front()).cloned() else {
            return Step::Done(None);
        };
        match words.compare_exchange(key, word, next.thread.0 | WAITERS | keep) {
            None | Some(Err(_)) => return Step::Again,
            Some(Ok(_)) => {}
        }
        self.waiting.remove(&next.thread);
        if let Some(queue) = self.queues.get_mut(key) {
            queue.waiters.pop_front();
            queue.owner = next.thread;
            if queue.waiters.is_empty() {
                self.queues.remove(key);
            }
        }
        Step::Done(Some(next))
    }
}

impl Locks {
    /// FUTEX_LOCK_PI, FUTEX_TRYLOCK_PI (`only_try`) at the kernel of the word's queue: a place in it, or the lock itself.
    pub async fn join(
        &self,
        words: &dyn Words,
        owners: &dyn Owners,
        key: FutexKey,
        thread: Pid,
        only_try: bool,
    ) -> Result<Option<QueuedLocker<'_>>> {
        loop {
            match self.attempt(words, owners, key, thread, only_try)? {
                Step::Again => words.make_resident(&key, true).await?,
                Step::Done(Attempt::Taken) => return Ok(None),
                Step::Done(Attempt::Waiting(waiter)) => return Ok(Some(QueuedLocker { locks: self, key, waiter })),
                Step::Done(Attempt::Unwatched(owner)) => {
                    let deaths = self.table.lock().deaths;
                    match owners.watch(owner).await {
                        Ok(_) => {
                            let mut table = self.table.lock();
                            if table.deaths == deaths {
                                table.watched.insert(owner);
                            }
                        }
                        // Gone; but it may have freed the lock first.
                        Err(Errno::ESRCH) if self.still_has(words, &key, owner) => return Err(Errno::ESRCH),
                        Err(Errno::ESRCH) => {}
                        Err(error) => return Err(error),
                    }
                }
            }
        }
    }

    fn still_has(&self, words: &dyn Words, key: &FutexKey, owner: Pid) -> bool {
        words.load(key).is_none_or(|word| word & TID_MASK == owner.0)
    }

    fn attempt(
        &self,
        words: &dyn Words,
        owners: &dyn Owners,
        key: FutexKey,
        thread: Pid,
        only_try: bool,
    ) -> Result<Step<Attempt>> {
        let mut table = self.table.lock();
        let Some(word) = words.load(&key) else { return Ok(Step::Again) };
        let owner = Pid(word & TID_MASK);
        if owner == thread {
            return Err(Errno::EDEADLK);
        }
        let queue_owner = table.queues.get(&key).map(|queue| queue.owner);
        match queue_owner {
            // The word's owner has ended and its lock is about to be handed on: stand in line.
            Some(_) if owner.0 == 0 && word & OWNER_DIED != 0 => {}
            // The word was written by somebody who should not have.
            Some(known) if known != owner => return Err(Errno::EINVAL),
            Some(_) => {}
            None if owner.0 == 0 => {
                let new = word & OWNER_DIED | thread.0;
                return Ok(match words.compare_exchange(&key, word, new) {
                    Some(Ok(_)) => Step::Done(Attempt::Taken),
                    _ => Step::Again,
                });
            }
            None => {}
        }
        let concerned = [queue_owner.unwrap_or(owner), thread];
        if let Some(unwatched) = concerned.into_iter().find(|thread| !table.watched.contains(thread)) {
            return Ok(Step::Done(Attempt::Unwatched(unwatched)));
        }
        // From now on the owner can't free it without us.
        if word & WAITERS == 0 && !matches!(words.compare_exchange(&key, word, word | WAITERS), Some(Ok(_))) {
            return Ok(Step::Again);
        }
        if only_try {
            return Err(Errno::EAGAIN);
        }
        let owner = queue_owner.unwrap_or(owner);
        if table.is_deadlock(thread, owner) {
            return Err(Errno::EDEADLK);
        }
        let waiter = Arc::new(Waiter { thread, state: Lock::default() });
        let queue = table.queues.entry(key).or_insert_with(|| Queue { owner, waiters: VecDeque::new() });
        queue.waiters.push_back(waiter.clone());
        table.waiting.insert(thread, WaitedLock { key, since: owners.now() });
        Ok(Step::Done(Attempt::Waiting(waiter)))
    }

    /// FUTEX_UNLOCK_PI.
    pub async fn unlock(&self, words: &dyn Words, key: FutexKey, thread: Pid) -> Result<()> {
        loop {
            match self.try_unlock(words, &key, thread)? {
                Step::Again => words.make_resident(&key, true).await?,
                Step::Done(next) => {
                    if let Some(next) = next {
                        next.finish(Ok(()));
                    }
                    return Ok(());
                }
            }
        }
    }

    fn try_unlock(&self, words: &dyn Words, key: &FutexKey, thread: Pid) -> Result<Step<Option<Arc<Waiter>>>> {
        let mut table = self.table.lock();
        let Some(word) = words.load(key) else { return Ok(Step::Again) };
        if word & TID_MASK != thread.0 {
            return Err(Errno::EPERM);
        }
        match table.queues.get(key) {
            // Somebody wrote this thread's id into another's lock.
            Some(queue) if queue.owner != thread => return Err(Errno::EINVAL),
            Some(_) => return Ok(table.hand_over(words, key, word, 0)),
            None => {}
        }
        Ok(match words.compare_exchange(key, word, 0) {
            Some(Ok(_)) => Step::Done(None),
            _ => Step::Again,
        })
    }

    /// An owner has ended: what it held goes to those who wait.
    pub async fn owner_died(&self, words: &dyn Words, thread: Pid) {
        let held: Vec<FutexKey> = {
            let mut table = self.table.lock();
            table.deaths += 1;
            table.watched.remove(&thread);
            let of_it = table.queues.iter().filter(|(_, queue)| queue.owner == thread);
            of_it.map(|(key, _)| *key).collect()
        };
        for key in held {
            self.pass_on(words, key, thread).await;
        }
    }

    /// Who has a lock that others wait for may have ended without a word.
    pub async fn look_after_owners(&self, words: &dyn Words, owners: &dyn Owners) {
        let holding: Vec<Pid> = self.table.lock().queues.values().map(|queue| queue.owner).collect();
        for thread in holding {
            if owners.watch(thread).await == Err(Errno::ESRCH) {
                self.owner_died(words, thread).await;
            }
        }
    }

    async fn pass_on(&self, words: &dyn Words, key: FutexKey, dead: Pid) {
        loop {
            let step = {
                let mut table = self.table.lock();
                match (table.queues.get(&key).map(|queue| queue.owner), words.load(&key)) {
                    (Some(owner), Some(word)) if owner == dead => table.hand_over(words, &key, word, OWNER_DIED),
                    (Some(owner), None) if owner == dead => Step::Again,
                    _ => return,
                }
            };
            match step {
                Step::Done(next) => return next.into_iter().for_each(|next| next.finish(Ok(()))),
                Step::Again => {
                    if let Err(error) = words.make_resident(&key, true).await {
                        return self.give_up_on(&key, error);
                    }
                }
            }
        }
    }

    /// The word's memory has gone: nobody will ever free this lock.
    fn give_up_on(&self, key: &FutexKey, error: Errno) {
        let waiters = {
            let mut table = self.table.lock();
            let waiters = table.queues.remove(key).map(|queue| queue.waiters).unwrap_or_default();
            for waiter in &waiters {
                table.waiting.remove(&waiter.thread);
            }
            waiters
        };
        waiters.iter().for_each(|waiter| waiter.finish(Err(error)));
    }

    pub fn wait_of(&self, thread: Pid) -> Option<LockWait> {
        self.table.lock().wait_of(thread)
    }

    pub fn len(&self) -> usize {
        self.table.lock().waiting.len()
    }
}

impl Waiter {
    fn finish(&self, result: Result<()>) {
        let waker = {
            let mut state = self.state.lock();
            state.result = Some(result);
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// A place in a lock's queue; dropping it leaves the queue.
pub(crate) struct QueuedLocker<'a> {
    locks: &'a Locks,
    key: FutexKey,
    waiter: Arc<Waiter>,
}

impl QueuedLocker<'_> {
    pub fn thread(&self) -> Pid {
        self.waiter.thread
    }

    /// Leaves the queue. False if it is not there any more: it ends by itself.
    pub fn leave(&self) -> bool {
        let mut table = self.locks.table.lock();
        let Some(queue) = table.queues.get_mut(&self.key) else { return false };
        let before = queue.waiters.len();
        queue.waiters.retain(|waiter| !Arc::ptr_eq(waiter, &self.waiter));
        let (left, was_there) = (queue.waiters.len(), queue.waiters.len() < before);
        if left == 0 {
            table.queues.remove(&self.key);
        }
        if was_there {
            table.waiting.remove(&self.waiter.thread);
        }
        was_there
    }
}

impl Future for QueuedLocker<'_> {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let mut state = self.waiter.state.lock();
        match state.result {
            Some(result) => Poll::Ready(result),
            None => {
                state.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for QueuedLocker<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::pin::pin;
    use core::sync::atomic::{AtomicU32, Ordering::SeqCst};
    use machine::{KernelId, SpaceId, UserAddr};
    use messages::vm::FutexPlace;

    /// Two words, at 0 and 4, always in memory.
    #[derive(Default)]
    struct Two([AtomicU32; 2]);

    fn index(key: &FutexKey) -> usize {
        match key.place {
            FutexPlace::Private { at, .. } => at.0 as usize / 4,
            FutexPlace::Shared { .. } => unreachable!("the tests make private ones"),
        }
    }

    impl Words for Two {
        fn load(&self, key: &FutexKey) -> Option<u32> {
            Some(self.0[index(key)].load(SeqCst))
        }
        fn compare_exchange(&self, key: &FutexKey, old: u32, new: u32) -> Option<core::result::Result<u32, u32>> {
            Some(self.0[index(key)].compare_exchange(old, new, SeqCst, SeqCst))
        }
        fn make_resident<'a>(&'a self, _: &'a FutexKey, _: bool) -> BoxFuture<'a, Result<()>> {
            unreachable!("everything is in memory")
        }
    }

    /// Threads below 100 live.
    struct Below100;

    impl Owners for Below100 {
        fn watch(&self, thread: Pid) -> BoxFuture<'_, Result<KernelSet>> {
            alloc::boxed::Box::pin(async move {
                if thread.0 < 100 {
                    Ok(KernelSet::only(KernelId(0)))
                } else {
                    Err(Errno::ESRCH)
                }
            })
        }
        fn now(&self) -> u64 {
            0
        }
        fn sleep_until(&self, _: u64) -> BoxFuture<'_, ()> {
            unreachable!("circles over kernels are circle.rs's")
        }
    }

    fn key(at: u64) -> FutexKey {
        let place = FutexPlace::Private { space: SpaceId { home: KernelId(0), serial: 1 }, at: UserAddr(at) };
        FutexKey { kernel: KernelId(0), place }
    }

    async fn lock(locks: &Locks, words: &Two, at: u64, thread: u32, only_try: bool) -> Result<()> {
        match locks.join(words, &Below100, key(at), Pid(thread), only_try).await? {
            Some(waiting) => waiting.await,
            None => Ok(()),
        }
    }

    fn poll<T>(future: Pin<&mut impl Future<Output = T>>) -> Poll<T> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    fn now<T>(future: impl Future<Output = T>) -> T {
        match poll(pin!(future)) {
            Poll::Ready(value) => value,
            Poll::Pending => panic!("it waits"),
        }
    }

    #[test]
    fn a_lock_is_handed_over_in_order_of_arrival() {
        let (locks, words) = (Locks::default(), Two::default());
        let lock = |thread| lock(&locks, &words, 0, thread, false);
        assert_eq!(now(lock(1)), Ok(()));
        assert_eq!(words.0[0].load(SeqCst), 1);
        let (mut second, mut third) = (pin!(lock(2)), pin!(lock(3)));
        assert!(poll(second.as_mut()).is_pending() && poll(third.as_mut()).is_pending());
        assert_eq!(words.0[0].load(SeqCst), 1 | WAITERS);
        assert_eq!(now(locks.unlock(&words, key(0), Pid(2))), Err(Errno::EPERM));
        assert_eq!(now(locks.unlock(&words, key(0), Pid(1))), Ok(()));
        assert_eq!(words.0[0].load(SeqCst), 2 | WAITERS);
        assert!(poll(second.as_mut()) == Poll::Ready(Ok(())) && poll(third.as_mut()).is_pending());
        assert_eq!(now(locks.unlock(&words, key(0), Pid(2))), Ok(()));
        assert_eq!(poll(third.as_mut()), Poll::Ready(Ok(())));
        assert_eq!(now(locks.unlock(&words, key(0), Pid(3))), Ok(()));
        assert_eq!((words.0[0].load(SeqCst), locks.len()), (0, 0));
    }

    #[test]
    fn waiting_for_oneself_is_a_deadlock_also_through_others() {
        let (locks, words) = (Locks::default(), Two::default());
        let lock = |at, thread| lock(&locks, &words, at, thread, false);
        assert_eq!((now(lock(0, 1)), now(lock(4, 2))), (Ok(()), Ok(())));
        assert_eq!(now(lock(0, 1)), Err(Errno::EDEADLK));
        {
            let mut waits = pin!(lock(4, 1));
            assert!(poll(waits.as_mut()).is_pending());
            assert_eq!(now(lock(0, 2)), Err(Errno::EDEADLK));
        }
        // The first has given up, so the second may wait.
        let mut waits = pin!(lock(0, 2));
        assert!(poll(waits.as_mut()).is_pending());
        assert_eq!(locks.len(), 1);
    }

    #[test]
    fn the_end_of_an_owner_hands_its_locks_over_marked() {
        let (locks, words) = (Locks::default(), Two::default());
        let lock = |thread| lock(&locks, &words, 0, thread, false);
        assert_eq!(now(lock(1)), Ok(()));
        let mut second = pin!(lock(2));
        assert!(poll(second.as_mut()).is_pending());
        now(locks.owner_died(&words, Pid(1)));
        assert_eq!(poll(second.as_mut()), Poll::Ready(Ok(())));
        assert_eq!(words.0[0].load(SeqCst), 2 | WAITERS | OWNER_DIED);
        words.0[1].store(100, SeqCst);
        assert_eq!(now(self::lock(&locks, &words, 4, 3, false)), Err(Errno::ESRCH));
    }

    #[test]
    fn who_only_tries_does_not_wait() {
        let (locks, words) = (Locks::default(), Two::default());
        words.0[0].store(1, SeqCst);
        assert_eq!(now(lock(&locks, &words, 0, 2, true)), Err(Errno::EAGAIN));
        assert_eq!((words.0[0].load(SeqCst), locks.len()), (1 | WAITERS, 0));
    }
}
