//! The queues of one kernel: waiters by word, first come first woken.
//!
//! A queue may be *held* by an operation on two words whose queues are on different kernels (across.rs): until it is
//! released nobody else joins, wakes or moves waiters there. Waiters that such an operation brings along stand in the
//! queue before the kernel of their thread knows (`arrived`); it then claims them by their ticket.

mod held;

pub(crate) use held::Claim;

use alloc::{
    boxed::Box,
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    vec::{self, Vec},
};
use core::{
    future::Future,
    option,
    pin::Pin,
    sync::atomic::AtomicU64,
    task::{Context, Poll, Waker},
};
use held::Hold;
use machine::{
    sync::{Lock, LockGuard},
    Errno, HashMap, KernelId,
};
use messages::{
    futex::{Ticket, Waited},
    vm::{FutexKey, FutexPlace},
};

/// Words hash onto this many locks, so that unrelated futexes don't meet on one.
const BUCKETS: usize = 64;
/// An empty queue with room for so many is used again.
const KEPT: usize = 8;

#[derive(Default)]
struct Bucket {
    queues: HashMap<FutexKey, VecDeque<Arc<Waiter>>>,
    /// An empty queue, for the next word: most waits are the only one of their word.
    spare: VecDeque<Arc<Waiter>>,
    held: HashMap<FutexKey, Hold>,
}

/// Tells the kernel that queues for a word of a waiter that left on its way there.
type Forget = Box<dyn Fn(FutexKey, Ticket) + Send + Sync>;

pub(crate) struct Queues {
    buckets: Vec<Lock<Bucket>>,
    /// Waiters from other kernels' queues that nobody has claimed. Locked under a bucket's lock.
    arrived: Lock<BTreeMap<Ticket, Arc<Waiter>>>,
    tickets: AtomicU64,
    forget: Forget,
}

struct Waiter {
    /// The kernel of its thread.
    of: KernelId,
    bitset: u32,
    /// FUTEX_WAIT_REQUEUE_PI: the lock it will take. Only FUTEX_CMP_REQUEUE_PI to that lock may wake it.
    lock: Option<FutexKey>,
    state: Lock<State>,
}

struct State {
    /// Where it stands; requeueing changes it.
    key: FutexKey,
    /// Woken, or moved to another kernel: it stands in no queue here.
    end: Option<Waited>,
    /// The wait was given up: nobody may wake or move it any more.
    left: bool,
    waker: Option<Waker>,
}

/// Why a step was not done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Obstacle {
    Failed(Errno),
    /// The word is not in memory.
    Absent,
    /// Another operation holds the queue of this word.
    Held(FutexKey),
    /// There is somebody to be moved to another kernel, and the queues are not held.
    MustHold,
}

impl From<Errno> for Obstacle {
    fn from(error: Errno) -> Self {
        Obstacle::Failed(error)
    }
}

impl Queues {
    pub fn new(forget: Forget) -> Self {
        Queues {
            buckets: (0..BUCKETS).map(|_| Lock::default()).collect(),
            arrived: Lock::default(),
            tickets: AtomicU64::default(),
            forget,
        }
    }

    fn index(key: &FutexKey) -> usize {
        let word = match key.place {
            FutexPlace::Private { space, at } => space.serial.rotate_left(32) ^ at.0,
            FutexPlace::Shared { object, offset } => object.serial.rotate_left(32) ^ offset,
        };
        // Fibonacci hashing: the high bits of the product depend on all bits of the word.
        (word.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % BUCKETS
    }

    fn bucket(&self, key: &FutexKey) -> &Lock<Bucket> {
        &self.buckets[Self::index(key)]
    }

    /// Locks the queues of two words; neither is held by anybody, unless it is the caller who holds them (`mine`).
    fn lock_two(&self, keys: [&FutexKey; 2], mine: bool) -> Result<Two<'_>, Obstacle> {
        // Two locks of a kind: always the lower one first.
        let indices = keys.map(Self::index);
        let lower = indices[0].min(indices[1]);
        let low = self.buckets[lower].lock();
        let high = (indices[0] != indices[1]).then(|| self.buckets[indices[0].max(indices[1])].lock());
        let mut two = Two { lower, low, high };
        keys.into_iter().try_for_each(|key| two.bucket(key).check_free(key, mine))?;
        Ok(two)
    }

    /// Joins the queue of `key` for a thread of kernel `of`, if `check`, run under its lock, agrees.
    pub fn join(
        &self,
        of: KernelId,
        key: FutexKey,
        bitset: u32,
        lock: Option<FutexKey>,
        check: impl FnOnce() -> Result<(), Obstacle>,
    ) -> Result<QueuedWaiter<'_>, Obstacle> {
        let mut bucket = self.bucket(&key).lock();
        bucket.check_free(&key, false)?;
        check()?;
        let waiter = Waiter::new(of, key, bitset, lock);
        bucket.push(key, waiter.clone());
        Ok(QueuedWaiter { queues: self, waiter, done: false })
    }

    /// EINVAL if one of those meant can only be requeued.
    pub fn wake(&self, key: &FutexKey, count: u32, bitset: u32) -> Result<u32, Obstacle> {
        let woken = {
            let mut bucket = self.bucket(key).lock();
            bucket.check_free(key, false)?;
            bucket.wake(key, count, bitset)?
        };
        Ok(wake_all(woken))
    }

    /// FUTEX_CMP_REQUEUE_PI: wakes up to `count` waiters, which then ask for `lock`; how many. EINVAL if one waits for
    /// something else.
    pub fn wake_for_lock(
        &self,
        from: &FutexKey,
        lock: &FutexKey,
        count: u32,
        check: impl FnOnce() -> Result<(), Obstacle>,
    ) -> Result<u32, Obstacle> {
        let mut woken = Vec::new();
        {
            let mut bucket = self.bucket(from).lock();
            bucket.check_free(from, false)?;
            check()?;
            bucket.check_locks(from, count, u32::MAX, Some(lock))?;
            bucket.take(from, count, u32::MAX, || Some(Waited::Woken), |waiter, _| woken.push(waiter));
        }
        Ok(wake_all(woken))
    }

    /// FUTEX_WAKE_OP: does `change`, and wakes up to so many waiters of the first word and, if it says so, of the second. Nobody joins or
    /// wakes either queue in between. With no first word that of another kernel and the second are held by the caller.
    pub fn wake_op(
        &self,
        first: Option<(&FutexKey, u32)>,
        second: (&FutexKey, u32),
        change: impl FnOnce() -> Result<bool, Obstacle>,
    ) -> Result<u32, Obstacle> {
        let mine = first.is_none();
        let mut woken = Vec::new();
        let done: Result<(), Errno> = {
            let mut two = self.lock_two([first.unwrap_or(second).0, second.0], mine)?;
            let meets = change()?;
            first.into_iter().chain(meets.then_some(second)).try_for_each(|(key, count)| {
                woken.extend(two.bucket(key).wake(key, count, u32::MAX)?);
                Ok(())
            })
        };
        let woken = wake_all(woken);
        Ok(done.map(|()| woken)?)
    }

    /// FUTEX_REQUEUE between words of this kernel: wakes and moves waiters if `check` agrees, in one step.
    pub fn requeue(
        &self,
        from: &FutexKey,
        to: &FutexKey,
        wake: u32,
        requeue: u32,
        check: impl FnOnce() -> Result<(), Obstacle>,
    ) -> Result<(u32, u32), Obstacle> {
        let (mut woken, mut moved) = (Vec::new(), Vec::new());
        {
            let mut two = self.lock_two([from, to], false)?;
            check()?;
            let source = two.bucket(from);
            source.check_locks(from, wake.saturating_add(requeue), u32::MAX, None)?;
            source.take(from, wake, u32::MAX, || Some(Waited::Woken), |waiter, _| woken.push(waiter));
            source.take(from, requeue, u32::MAX, || None, |waiter, _| moved.push(waiter));
            for waiter in &moved {
                // One that gives up meanwhile says so in `left` and is not queued again.
                let mut state = waiter.state.lock();
                if !state.left {
                    state.key = *to;
                    two.bucket(to).push(*to, waiter.clone());
                }
            }
        }
        Ok((wake_all(woken), moved.len() as u32))
    }

    /// Waiters in queues, queues that are held, and waiters that were woken or moved on before they were claimed.
    pub fn len(&self) -> usize {
        let in_bucket = |bucket: &Bucket| bucket.queues.values().map(VecDeque::len).sum::<usize>() + bucket.held.len();
        let queued: usize = self.buckets.iter().map(|bucket| in_bucket(&bucket.lock())).sum();
        queued + self.arrived.lock().values().filter(|waiter| waiter.state.lock().end.is_some()).count()
    }
}

/// The locked queues of two words.
struct Two<'a> {
    lower: usize,
    low: LockGuard<'a, Bucket>,
    high: Option<LockGuard<'a, Bucket>>,
}

impl Two<'_> {
    fn bucket(&mut self, key: &FutexKey) -> &mut Bucket {
        match &mut self.high {
            Some(high) if Queues::index(key) != self.lower => high,
            _ => &mut self.low,
        }
    }
}

impl Waiter {
    fn new(of: KernelId, key: FutexKey, bitset: u32, lock: Option<FutexKey>) -> Arc<Waiter> {
        Arc::new(Waiter { of, bitset, lock, state: Lock::new(State { key, end: None, left: false, waker: None }) })
    }
}

impl Bucket {
    fn check_free(&self, key: &FutexKey, mine: bool) -> Result<(), Obstacle> {
        match !mine && self.held.contains_key(key) {
            true => Err(Obstacle::Held(*key)),
            false => Ok(()),
        }
    }

    fn push(&mut self, key: FutexKey, waiter: Arc<Waiter>) {
        self.queues.entry(key).or_insert_with(|| core::mem::take(&mut self.spare)).push_back(waiter);
    }

    /// The queue of this word is empty.
    fn remove(&mut self, key: &FutexKey) {
        if let Some(queue) = self.queues.remove(key).filter(|queue| queue.capacity() <= KEPT) {
            self.spare = queue;
        }
    }

    /// Takes out those to be woken.
    fn wake(&mut self, key: &FutexKey, count: u32, bitset: u32) -> Result<Woken, Errno> {
        let mut woken = Woken::default();
        self.check_locks(key, count, bitset, None)?;
        self.take(key, count, bitset, || Some(Waited::Woken), |waiter, _| woken.push(waiter));
        Ok(woken)
    }

    /// Do the first `count` matching waiters all want `lock` (none of them any, if None)? EINVAL.
    fn check_locks(&self, key: &FutexKey, count: u32, bitset: u32, lock: Option<&FutexKey>) -> Result<(), Errno> {
        let queue = self.queues.get(key).into_iter().flatten();
        let mut meant = queue.filter(|waiter| waiter.bitset & bitset != 0).take(count as usize);
        match meant.all(|waiter| waiter.lock.as_ref() == lock) {
            true => Ok(()),
            false => Err(Errno::EINVAL),
        }
    }

    /// Takes up to `count` matching waiters out of a queue, oldest first. With an `end` their wait is over from here
    /// on: one that gives up at this moment either is skipped, or sees it and passes the wake on.
    fn take(
        &mut self,
        key: &FutexKey,
        count: u32,
        bitset: u32,
        end: impl Fn() -> Option<Waited>,
        mut each: impl FnMut(Arc<Waiter>, Option<Waited>),
    ) {
        let Some(queue) = self.queues.get_mut(key) else { return };
        let mut left = count;
        queue.retain(|waiter| {
            if left == 0 || waiter.bitset & bitset == 0 {
                return true;
            }
            let mut state = waiter.state.lock();
            if state.left {
                return true;
            }
            let end = end();
            state.end = end;
            drop(state);
            left -= 1;
            each(waiter.clone(), end);
            false
        });
        if queue.is_empty() {
            self.remove(key);
        }
    }
}

/// Waiters whose wait is over. Most often it is one, for which nothing is allocated.
#[derive(Default)]
struct Woken {
    first: Option<Arc<Waiter>>,
    others: Vec<Arc<Waiter>>,
}

impl Woken {
    fn push(&mut self, waiter: Arc<Waiter>) {
        match self.first {
            None => self.first = Some(waiter),
            Some(_) => self.others.push(waiter),
        }
    }
}

impl IntoIterator for Woken {
    type Item = Arc<Waiter>;
    type IntoIter = core::iter::Chain<option::IntoIter<Arc<Waiter>>, vec::IntoIter<Arc<Waiter>>>;

    fn into_iter(self) -> Self::IntoIter {
        self.first.into_iter().chain(self.others)
    }
}

/// Tells those whose wait is over; how many they are.
fn wake_all(waiters: impl IntoIterator<Item = Arc<Waiter>>) -> u32 {
    let mut count = 0;
    for waiter in waiters {
        count += 1;
        let waker = waiter.state.lock().waker.take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
    count
}

/// A place in a queue; dropping it leaves the queue. A wake that came but was not seen before the drop (the
/// wait was interrupted at the same moment) is passed on to the next waiter, so that it is not lost.
pub(crate) struct QueuedWaiter<'a> {
    queues: &'a Queues,
    waiter: Arc<Waiter>,
    done: bool,
}

impl Future for QueuedWaiter<'_> {
    type Output = Waited;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Waited> {
        let end = {
            let mut state = self.waiter.state.lock();
            if state.end.is_none() {
                state.waker = Some(context.waker().clone());
            }
            state.end
        };
        self.done = end.is_some();
        end.map_or(Poll::Pending, Poll::Ready)
    }
}

impl Drop for QueuedWaiter<'_> {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        let (end, key) = {
            let mut state = self.waiter.state.lock();
            state.left = true;
            (state.end, state.key)
        };
        match end {
            Some(Waited::Moved { to, ticket }) => (self.queues.forget)(to, ticket),
            // Those behind wait for the same kind of wake. A queue that is held has its next wake at its release or after.
            Some(Waited::Woken) if self.waiter.lock.is_none() => {
                let next = self.queues.bucket(&key).lock().wake(&key, 1, self.waiter.bitset);
                next.map(wake_all).unwrap_or_default();
            }
            Some(Waited::Woken) => {}
            None => {
                let mut bucket = self.queues.bucket(&key).lock();
                if let Some(queue) = bucket.queues.get_mut(&key) {
                    queue.retain(|waiter| !Arc::ptr_eq(waiter, &self.waiter));
                    if queue.is_empty() {
                        bucket.remove(&key);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::{KernelId, SpaceId, UserAddr};

    pub(super) fn key(at: u64) -> FutexKey {
        let place = FutexPlace::Private { space: SpaceId { home: KernelId(0), serial: 1 }, at: UserAddr(at) };
        FutexKey { kernel: KernelId(0), place }
    }

    pub(super) fn join(queues: &Queues, at: u64) -> QueuedWaiter<'_> {
        join_as(queues, at, u32::MAX, None)
    }

    fn join_as(queues: &Queues, at: u64, bitset: u32, lock: Option<FutexKey>) -> QueuedWaiter<'_> {
        let joined = queues.join(KernelId(0), key(at), bitset, lock, || Ok(()));
        joined.unwrap_or_else(|obstacle| unreachable!("{obstacle:?}"))
    }

    pub(super) fn queues() -> Queues {
        Queues::new(Box::new(|_, _| unreachable!("nobody is moved")))
    }

    pub(super) fn is_woken(waiting: &mut QueuedWaiter<'_>) -> bool {
        Pin::new(waiting).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn the_oldest_is_woken_first_and_leaving_empties_the_queue() {
        let queues = queues();
        let (mut first, mut second, third) = (join(&queues, 4), join(&queues, 4), join(&queues, 4));
        assert_eq!(queues.wake(&key(4), 1, u32::MAX), Ok(1));
        assert!(is_woken(&mut first) && !is_woken(&mut second));
        drop(third);
        assert_eq!(queues.wake(&key(4), 9, u32::MAX), Ok(1));
        assert!(is_woken(&mut second));
        assert_eq!(queues.len(), 0);
    }

    #[test]
    fn a_wake_that_met_an_interrupted_waiter_goes_to_the_next() {
        let queues = queues();
        let (first, mut second) = (join(&queues, 4), join(&queues, 4));
        assert_eq!(queues.wake(&key(4), 1, u32::MAX), Ok(1));
        drop(first);
        assert!(is_woken(&mut second));
    }

    #[test]
    fn moved_waiters_are_woken_at_their_new_word_only() {
        let queues = queues();
        let (mut first, mut second) = (join(&queues, 4), join(&queues, 4));
        assert_eq!(queues.requeue(&key(4), &key(8), 1, 9, || Ok(())), Ok((1, 1)));
        assert!(is_woken(&mut first));
        assert_eq!(queues.wake(&key(4), 9, u32::MAX), Ok(0));
        assert_eq!(queues.wake(&key(8), 9, u32::MAX), Ok(1));
        assert!(is_woken(&mut second));
    }

    #[test]
    fn a_word_is_changed_and_wakes_in_one_step() {
        let queues = queues();
        // Words of the same lock and of others.
        for at in (8..8 + 4 * 2 * BUCKETS as u64).step_by(4) {
            let (mut first, mut second) = (join(&queues, 4), join(&queues, at));
            let none = queues.wake_op(Some((&key(4), 0)), (&key(at), 9), || Ok(false));
            assert_eq!((none, is_woken(&mut second)), (Ok(0), false));
            let failed = queues.wake_op(Some((&key(4), 9)), (&key(at), 9), || Err(Errno::ENOSYS.into()));
            assert_eq!((failed, is_woken(&mut first)), (Err(Errno::ENOSYS.into()), false));
            assert_eq!(queues.wake_op(None, (&key(at), 9), || Ok(true)), Ok(1));
            assert!(is_woken(&mut second) && !is_woken(&mut first));
            // Who can only be requeued is no reason to forget who was woken before.
            let _stays = join_as(&queues, at, u32::MAX, Some(key(0)));
            let refused = queues.wake_op(Some((&key(4), 9)), (&key(at), 9), || Ok(true));
            assert_eq!((refused, is_woken(&mut first)), (Err(Errno::EINVAL.into()), true));
        }
        let (mut first, mut second) = (join(&queues, 4), join(&queues, 4));
        assert_eq!(queues.wake_op(Some((&key(4), 1)), (&key(4), 1), || Ok(true)), Ok(2));
        assert!(is_woken(&mut first) && is_woken(&mut second));
    }

    #[test]
    fn a_bitset_picks_its_waiters() {
        let queues = queues();
        let mut odd = join_as(&queues, 4, 1, None);
        assert_eq!(queues.wake(&key(4), 9, 2), Ok(0));
        assert_eq!(queues.wake(&key(4), 9, 3), Ok(1));
        assert!(is_woken(&mut odd));
    }
}
