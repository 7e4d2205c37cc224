//! Queues that are held by an operation on words of two kernels, and waiters that it brings along; across.rs says why.

use super::{wake_all, Bucket, Obstacle, QueuedWaiter, Queues, Waiter};
use alloc::{
    collections::{BTreeSet, VecDeque},
    vec::Vec,
};
use core::{
    future::poll_fn,
    sync::atomic::Ordering,
    task::{Poll, Waker},
};
use machine::{Errno, KernelId};
use messages::{
    futex::{MovedWaiter, Ticket, Waited},
    vm::FutexKey,
};

/// A queue that an operation of `holder` holds.
pub(super) struct Hold {
    holder: KernelId,
    /// Waiters on their way here that have given up.
    left: BTreeSet<Ticket>,
    waiting: Vec<Waker>,
}

/// What became of a waiter that was moved here.
pub(crate) enum Claim<'a> {
    Here(QueuedWaiter<'a>),
    /// It may be on its way: its new queue is held.
    NotYet,
    /// It never came: who moved it has died.
    Gone,
}

impl Queues {
    /// FUTEX_REQUEUE to a word of another kernel: wakes waiters (how many), and takes out those who are to be moved, for whom `join` is
    /// then called. The caller holds both queues; without (`held`), only if there is nobody to be moved.
    pub fn take_across(
        &self,
        me: KernelId,
        (from, to): (&FutexKey, &FutexKey),
        (wake, requeue): (u32, u32),
        held: bool,
        check: impl FnOnce() -> Result<(), Obstacle>,
        join: &mut dyn FnMut(Vec<MovedWaiter>),
    ) -> Result<u32, Obstacle> {
        let (mut woken, mut moved, mut joining) = (Vec::new(), Vec::new(), Vec::new());
        {
            let mut source = self.bucket(from).lock();
            source.check_free(from, held)?;
            check()?;
            source.check_locks(from, wake.saturating_add(requeue), u32::MAX, None)?;
            let standing = source.queues.get(from).map_or(0, VecDeque::len);
            if !held && requeue > 0 && standing > wake as usize {
                return Err(Obstacle::MustHold);
            }
            source.take(from, wake, u32::MAX, || Some(Waited::Woken), |waiter, _| woken.push(waiter));
            let ticket = || Ticket { by: me, serial: self.tickets.fetch_add(1, Ordering::Relaxed) };
            source.take(
                from,
                requeue,
                u32::MAX,
                || Some(Waited::Moved { to: *to, ticket: ticket() }),
                |waiter, end| {
                    if let Some(Waited::Moved { ticket, .. }) = end {
                        joining.push(MovedWaiter { ticket, of: waiter.of, bitset: waiter.bitset });
                    }
                    moved.push(waiter);
                },
            );
        }
        let woken = wake_all(woken);
        join(joining);
        wake_all(moved);
        Ok(woken)
    }

    /// Waiters from another kernel's queue join that of `key`, which its operation holds. Those whose thread's kernel has died don't.
    pub fn arrive(&self, key: &FutexKey, waiters: &[MovedWaiter], is_alive: impl Fn(KernelId) -> bool) {
        let mut bucket = self.bucket(key).lock();
        let mut arrived = self.arrived.lock();
        let Bucket { queues, held, .. } = &mut *bucket;
        // Without a hold its operation's kernel has died, and nobody waits for them to arrive.
        let Some(hold) = held.get(key) else { return };
        for moved in waiters.iter().filter(|moved| !hold.left.contains(&moved.ticket) && is_alive(moved.of)) {
            let waiter = Waiter::new(moved.of, *key, moved.bitset, None);
            arrived.insert(moved.ticket, waiter.clone());
            queues.entry(*key).or_default().push_back(waiter);
        }
    }

    /// The kernel of a moved waiter's thread asks for it.
    pub fn claim(&self, key: &FutexKey, ticket: Ticket) -> Claim<'_> {
        let bucket = self.bucket(key).lock();
        match self.arrived.lock().remove(&ticket) {
            Some(waiter) => Claim::Here(QueuedWaiter { queues: self, waiter, done: false }),
            None if bucket.held.contains_key(key) => Claim::NotYet,
            None => Claim::Gone,
        }
    }

    /// A waiter gives up that was moved to the queue of `key`, or is on its way there.
    pub fn forget(&self, key: &FutexKey, ticket: Ticket) {
        let gone = {
            let mut bucket = self.bucket(key).lock();
            let waiter = self.arrived.lock().remove(&ticket);
            if let (None, Some(hold)) = (&waiter, bucket.held.get_mut(key)) {
                hold.left.insert(ticket);
            }
            waiter
        };
        drop(gone.map(|waiter| QueuedWaiter { queues: self, waiter, done: false }));
    }

    /// Holds the queue of `key` for an operation of `holder`, if nobody does and `check`, run under its lock, agrees.
    pub fn hold(
        &self,
        key: &FutexKey,
        holder: KernelId,
        check: impl FnOnce() -> Result<(), Obstacle>,
    ) -> Result<(), Obstacle> {
        let mut bucket = self.bucket(key).lock();
        bucket.check_free(key, false)?;
        check()?;
        bucket.held.insert(*key, Hold { holder, left: BTreeSet::new(), waiting: Vec::new() });
        Ok(())
    }

    /// The operation is over, and the last it does is to wake up to `count`; how many it were.
    pub fn release(&self, key: &FutexKey, holder: KernelId, count: u32) -> Result<u32, Errno> {
        let (woken, hold) = {
            let mut bucket = self.bucket(key).lock();
            if bucket.held.get(key).is_none_or(|hold| hold.holder != holder) {
                return Ok(0);
            }
            let woken = bucket.wake(key, count, u32::MAX);
            (woken, bucket.held.remove(key))
        };
        hold.into_iter().flat_map(|hold| hold.waiting).for_each(Waker::wake);
        woken.map(wake_all)
    }

    /// Returns when nobody holds the queue of `key`.
    pub async fn until_free(&self, key: &FutexKey) {
        poll_fn(|context| match self.bucket(key).lock().held.get_mut(key) {
            None => Poll::Ready(()),
            Some(hold) => {
                hold.waiting.push(context.waker().clone());
                Poll::Pending
            }
        })
        .await
    }

    /// Releases what operations of a kernel hold that has died, and takes out whom nobody will claim: its threads, and those that it has
    /// moved here and may not have told.
    pub fn release_of(&self, dead: KernelId) {
        let mut waiting = Vec::new();
        for bucket in &self.buckets {
            bucket.lock().held.retain(|_, hold| {
                let over = hold.holder == dead;
                if over {
                    waiting.append(&mut hold.waiting);
                }
                !over
            });
        }
        waiting.into_iter().for_each(Waker::wake);
        let gone: Vec<Ticket> = {
            let arrived = self.arrived.lock();
            let unclaimed = arrived.iter().filter(|(ticket, waiter)| [waiter.of, ticket.by].contains(&dead));
            unclaimed.map(|(ticket, _)| *ticket).collect()
        };
        for ticket in gone {
            let waiter = self.arrived.lock().remove(&ticket);
            drop(waiter.map(|waiter| QueuedWaiter { queues: self, waiter, done: false }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::tests::*;

    #[test]
    fn who_was_moved_here_is_claimed_or_forgotten() {
        let (other, queues) = (KernelId(1), queues());
        let waiters: Vec<_> = (0..4).map(|serial| Ticket { by: other, serial }).collect();
        let claim = |ticket| match queues.claim(&key(4), ticket) {
            Claim::Here(waiting) => Some(waiting),
            Claim::NotYet | Claim::Gone => None,
        };
        assert!(matches!(queues.claim(&key(4), waiters[0]), Claim::Gone));
        assert_eq!(queues.hold(&key(4), other, || Ok(())), Ok(()));
        assert_eq!(queues.wake(&key(4), 1, u32::MAX), Err(Obstacle::Held(key(4))));
        assert_eq!(queues.requeue(&key(8), &key(4), 1, 1, || Ok(())), Err(Obstacle::Held(key(4))));
        assert!(matches!(queues.claim(&key(4), waiters[0]), Claim::NotYet));
        queues.forget(&key(4), waiters[0]);
        let moved = |ticket| MovedWaiter { ticket, of: KernelId(2), bitset: u32::MAX };
        let moved: Vec<_> = waiters.iter().copied().map(moved).collect();
        queues.arrive(&key(4), &moved, |_| true);
        assert_eq!(queues.release(&key(4), other, 0), Ok(0));
        // The first has given up. The second is woken before it is claimed, the third moved on and then forgotten; the last one's kernel dies.
        assert!(matches!(queues.claim(&key(4), waiters[0]), Claim::Gone));
        assert_eq!(queues.wake(&key(4), 1, u32::MAX), Ok(1));
        assert!(is_woken(&mut claim(waiters[1]).unwrap()));
        assert_eq!(queues.requeue(&key(4), &key(8), 0, 1, || Ok(())), Ok((0, 1)));
        queues.forget(&key(4), waiters[2]);
        assert_eq!((queues.wake(&key(8), 9, u32::MAX), queues.len()), (Ok(0), 1));
        queues.release_of(KernelId(2));
        assert_eq!(queues.len(), 0);
        // What a dead kernel held is free, and nobody arrives from it.
        assert_eq!(queues.hold(&key(4), other, || Ok(())), Ok(()));
        queues.release_of(other);
        queues.arrive(&key(4), &moved, |_| true);
        assert_eq!(queues.wake(&key(4), 9, u32::MAX), Ok(0));
    }
}
