//! The queues of one kernel: waiters by word, first come first woken.

use alloc::{collections::VecDeque, sync::Arc, vec::Vec};
use core::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, Waker},
};
use machine::{sync::Lock, Errno, HashMap};
use messages::vm::{FutexKey, FutexPlace};

/// Words hash onto this many locks, so that unrelated futexes don't meet on one.
const BUCKETS: usize = 64;

type Bucket = HashMap<FutexKey, VecDeque<Arc<Waiter>>>;

pub(crate) struct Queues {
    buckets: Vec<Lock<Bucket>>,
}

struct Waiter {
    bitset: u32,
    /// FUTEX_WAIT_REQUEUE_PI: the lock it will take. Only FUTEX_CMP_REQUEUE_PI to that lock may wake it.
    lock: Option<FutexKey>,
    state: Lock<State>,
}

struct State {
    /// Where it stands; requeueing changes it.
    key: FutexKey,
    woken: bool,
    /// The wait was given up: nobody may wake or move it any more.
    left: bool,
    waker: Option<Waker>,
}

impl Default for Queues {
    fn default() -> Self {
        Queues { buckets: (0..BUCKETS).map(|_| Lock::default()).collect() }
    }
}

impl Queues {
    fn index(key: &FutexKey) -> usize {
        let word = match key.place {
            FutexPlace::Private { space, at } => space.serial.rotate_left(32) ^ at.0,
            FutexPlace::Shared { object, offset } => object.serial.rotate_left(32) ^ offset,
        };
        // Fibonacci hashing: the high bits of the product depend on all bits of the word.
        (word.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % BUCKETS
    }

    /// Joins the queue of `key` if `check`, run under its lock, agrees.
    pub fn join<E>(
        &self,
        key: FutexKey,
        bitset: u32,
        lock: Option<FutexKey>,
        check: impl FnOnce() -> Result<(), E>,
    ) -> Result<Waiting<'_>, E> {
        let mut bucket = self.buckets[Self::index(&key)].lock();
        check()?;
        let waiter =
            Arc::new(Waiter { bitset, lock, state: Lock::new(State { key, woken: false, left: false, waker: None }) });
        bucket.entry(key).or_default().push_back(waiter.clone());
        Ok(Waiting { queues: self, waiter, done: false })
    }

    /// EINVAL if one of those meant can only be requeued.
    pub fn wake(&self, key: &FutexKey, count: u32, bitset: u32) -> Result<u32, Errno> {
        let mut wakers = Vec::new();
        {
            let mut bucket = self.buckets[Self::index(key)].lock();
            check_locks(&bucket, key, count, bitset, None)?;
            take(&mut bucket, key, count, bitset, true, |waiter| wakers.push(waiter));
        }
        let woken = wakers.len() as u32;
        wakers.iter().for_each(wake_up);
        Ok(woken)
    }

    /// FUTEX_CMP_REQUEUE_PI: wakes up to `count` waiters, which then ask for `lock`; how many. EINVAL if one waits for
    /// something else.
    pub fn wake_for_lock(
        &self,
        from: &FutexKey,
        lock: &FutexKey,
        count: u32,
        check: impl FnOnce() -> Result<(), Option<Errno>>,
    ) -> Result<u32, Option<Errno>> {
        let mut woken = Vec::new();
        {
            let mut bucket = self.buckets[Self::index(from)].lock();
            check()?;
            check_locks(&bucket, from, count, u32::MAX, Some(lock))?;
            take(&mut bucket, from, count, u32::MAX, true, |waiter| woken.push(waiter));
        }
        woken.iter().for_each(wake_up);
        Ok(woken.len() as u32)
    }

    /// FUTEX_WAKE_OP: does `change`, and wakes up to so many waiters of the first word and, if it says so, of the second. Nobody joins or
    /// wakes either queue in between.
    pub fn wake_op(
        &self,
        first: Option<(&FutexKey, u32)>,
        second: (&FutexKey, u32),
        change: impl FnOnce() -> Result<bool, Option<Errno>>,
    ) -> Result<u32, Option<Errno>> {
        let mut woken = Vec::new();
        let done = {
            // Two locks of a kind: always the lower one first.
            let indices = [first.unwrap_or(second).0, second.0].map(Self::index);
            let lower = indices[0].min(indices[1]);
            let mut low = self.buckets[lower].lock();
            let mut high = (indices[0] != indices[1]).then(|| self.buckets[indices[0].max(indices[1])].lock());
            let meets = change()?;
            first.into_iter().chain(meets.then_some(second)).try_for_each(|(key, count)| {
                let bucket = match &mut high {
                    Some(high) if Self::index(key) != lower => &mut **high,
                    _ => &mut *low,
                };
                check_locks(bucket, key, count, u32::MAX, None)?;
                take(bucket, key, count, u32::MAX, true, |waiter| woken.push(waiter));
                Ok(())
            })
        };
        woken.iter().for_each(wake_up);
        done.map(|()| woken.len() as u32).map_err(Some)
    }

    /// Wakes and moves waiters if `check` agrees; with no target, those to be moved are woken too.
    pub fn requeue(
        &self,
        from: &FutexKey,
        to: Option<FutexKey>,
        wake: u32,
        requeue: u32,
        check: impl FnOnce() -> Result<(), Option<Errno>>,
    ) -> Result<(u32, u32), Option<Errno>> {
        let (mut woken, mut moved) = (Vec::new(), Vec::new());
        {
            let mut source = self.buckets[Self::index(from)].lock();
            check()?;
            check_locks(&source, from, wake.saturating_add(requeue), u32::MAX, None)?;
            take(&mut source, from, wake, u32::MAX, true, |waiter| woken.push(waiter));
            // Out of the source, and soon in the target: in between, a wake of the target misses them as if it
            // had come first. One that gives up meanwhile says so in `left` and is not queued again.
            take(&mut source, from, requeue, u32::MAX, to.is_none(), |waiter| moved.push(waiter));
        }
        let result = (woken.len() as u32, moved.len() as u32);
        woken.iter().for_each(wake_up);
        match to {
            None => moved.iter().for_each(wake_up),
            Some(to) => {
                let mut target = self.buckets[Self::index(&to)].lock();
                for waiter in moved {
                    let mut state = waiter.state.lock();
                    if !state.left {
                        state.key = to;
                        target.entry(to).or_default().push_back(waiter.clone());
                    }
                }
            }
        }
        Ok(result)
    }

    pub fn len(&self) -> usize {
        self.buckets.iter().map(|bucket| bucket.lock().values().map(VecDeque::len).sum::<usize>()).sum()
    }
}

/// Do the first `count` matching waiters all want `lock` (none of them any, if None)? EINVAL.
fn check_locks(bucket: &Bucket, key: &FutexKey, count: u32, bitset: u32, lock: Option<&FutexKey>) -> Result<(), Errno> {
    let queue = bucket.get(key).into_iter().flatten();
    let mut meant = queue.filter(|waiter| waiter.bitset & bitset != 0).take(count as usize);
    match meant.all(|waiter| waiter.lock.as_ref() == lock) {
        true => Ok(()),
        false => Err(Errno::EINVAL),
    }
}

/// Takes up to `count` matching waiters out of a queue, oldest first. With `wake` they count as woken from here
/// on: one that gives up at this moment either is skipped, or sees it and passes the wake on.
fn take(bucket: &mut Bucket, key: &FutexKey, count: u32, bitset: u32, wake: bool, mut each: impl FnMut(Arc<Waiter>)) {
    let Some(queue) = bucket.get_mut(key) else { return };
    let mut left = count;
    queue.retain(|waiter| {
        if left == 0 || waiter.bitset & bitset == 0 {
            return true;
        }
        let mut state = waiter.state.lock();
        if state.left {
            return true;
        }
        state.woken = wake;
        drop(state);
        left -= 1;
        each(waiter.clone());
        false
    });
    if queue.is_empty() {
        bucket.remove(key);
    }
}

fn wake_up(waiter: &Arc<Waiter>) {
    let waker = waiter.state.lock().waker.take();
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// A place in a queue; dropping it leaves the queue. A wake that came but was not seen before the drop (the
/// wait was interrupted at the same moment) is passed on to the next waiter, so that it is not lost.
pub(crate) struct Waiting<'a> {
    queues: &'a Queues,
    waiter: Arc<Waiter>,
    done: bool,
}

impl Future for Waiting<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let woken = {
            let mut state = self.waiter.state.lock();
            if !state.woken {
                state.waker = Some(context.waker().clone());
            }
            state.woken
        };
        self.done = woken;
        if woken {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        let (woken, key) = {
            let mut state = self.waiter.state.lock();
            state.left = true;
            (state.woken, state.key)
        };
        if woken {
            // Those behind wait for the same kind of wake.
            let _ = match self.waiter.lock {
                None => self.queues.wake(&key, 1, self.waiter.bitset),
                Some(_) => Ok(0),
            };
            return;
        }
        let mut bucket = self.queues.buckets[Queues::index(&key)].lock();
        if let Some(queue) = bucket.get_mut(&key) {
            queue.retain(|waiter| !Arc::ptr_eq(waiter, &self.waiter));
            if queue.is_empty() {
                bucket.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::{KernelId, SpaceId, UserAddr};

    fn key(at: u64) -> FutexKey {
        let place = FutexPlace::Private { space: SpaceId { home: KernelId(0), serial: 1 }, at: UserAddr(at) };
        FutexKey { kernel: KernelId(0), place }
    }

    fn join(queues: &Queues, at: u64) -> Waiting<'_> {
        queues.join(key(at), u32::MAX, None, || Ok::<(), ()>(())).unwrap_or_else(|()| unreachable!())
    }

    fn is_woken(waiting: &mut Waiting<'_>) -> bool {
        Pin::new(waiting).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn the_oldest_is_woken_first_and_leaving_empties_the_queue() {
        let queues = Queues::default();
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
        let queues = Queues::default();
        let (first, mut second) = (join(&queues, 4), join(&queues, 4));
        assert_eq!(queues.wake(&key(4), 1, u32::MAX), Ok(1));
        drop(first);
        assert!(is_woken(&mut second));
    }

    #[test]
    fn moved_waiters_are_woken_at_their_new_word_only() {
        let queues = Queues::default();
        let (mut first, mut second) = (join(&queues, 4), join(&queues, 4));
        assert_eq!(queues.requeue(&key(4), Some(key(8)), 1, 9, || Ok(())), Ok((1, 1)));
        assert!(is_woken(&mut first));
        assert_eq!(queues.wake(&key(4), 9, u32::MAX), Ok(0));
        assert_eq!(queues.wake(&key(8), 9, u32::MAX), Ok(1));
        assert!(is_woken(&mut second));
    }

    #[test]
    fn a_word_is_changed_and_wakes_in_one_step() {
        let queues = Queues::default();
        // Words of the same lock and of others.
        for at in (8..8 + 4 * 2 * BUCKETS as u64).step_by(4) {
            let (mut first, mut second) = (join(&queues, 4), join(&queues, at));
            let none = queues.wake_op(Some((&key(4), 0)), (&key(at), 9), || Ok(false));
            assert_eq!((none, is_woken(&mut second)), (Ok(0), false));
            let failed = queues.wake_op(Some((&key(4), 9)), (&key(at), 9), || Err(Some(Errno::ENOSYS)));
            assert_eq!((failed, is_woken(&mut first)), (Err(Some(Errno::ENOSYS)), false));
            assert_eq!(queues.wake_op(None, (&key(at), 9), || Ok(true)), Ok(1));
            assert!(is_woken(&mut second) && !is_woken(&mut first));
            // Who can only be requeued is no reason to forget who was woken before.
            let _stays = queues.join(key(at), u32::MAX, Some(key(0)), || Ok::<(), ()>(()));
            let refused = queues.wake_op(Some((&key(4), 9)), (&key(at), 9), || Ok(true));
            assert_eq!((refused, is_woken(&mut first)), (Err(Some(Errno::EINVAL)), true));
        }
        let (mut first, mut second) = (join(&queues, 4), join(&queues, 4));
        assert_eq!(queues.wake_op(Some((&key(4), 1)), (&key(4), 1), || Ok(true)), Ok(2));
        assert!(is_woken(&mut first) && is_woken(&mut second));
    }

    #[test]
    fn a_bitset_picks_its_waiters() {
        let queues = Queues::default();
        let mut odd = queues.join(key(4), 1, None, || Ok::<(), ()>(())).unwrap_or_else(|()| unreachable!());
        assert_eq!(queues.wake(&key(4), 9, 2), Ok(0));
        assert_eq!(queues.wake(&key(4), 9, 3), Ok(1));
        assert!(is_woken(&mut odd));
    }
}
