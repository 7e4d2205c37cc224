//! Timers of one kernel: a queue per CPU, so that a CPU's own sleeps touch nobody else's lines.

use crate::sync::{AtomicBool, AtomicU64, Ordering};
use alloc::{collections::BTreeMap, sync::Arc, vec::Vec};
use core::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, Waker},
};
use machine::{sync::Lock, Cpu};

type Key = (u64, u64);

/// Sleepers that a CPU wakes before it looks whose turn it is.
const MOST_WAKES: usize = 256;

pub struct Timers {
    cpu: Arc<dyn Cpu>,
    queues: Vec<TimerQueue>,
    serial: AtomicU64,
}

/// One CPU's. Only that CPU adds timers; any may take one out.
struct TimerQueue {
    wakers: Lock<BTreeMap<Key, Waker>>,
    /// When the first one is due, u64::MAX if there is none. Written under the lock.
    first: AtomicU64,
    /// Was a timer added since this CPU last looked?
    changed: AtomicBool,
}

impl TimerQueue {
    fn new() -> TimerQueue {
        TimerQueue {
            wakers: Lock::new(BTreeMap::new()),
            first: AtomicU64::new(u64::MAX),
            changed: AtomicBool::new(false),
        }
    }

    fn note_first(&self, wakers: &BTreeMap<Key, Waker>) {
        self.first.store(wakers.first_key_value().map_or(u64::MAX, |(key, _)| key.0), Ordering::Relaxed);
    }

    /// Takes out the first that is due at `now`.
    fn take_due(&self, now: u64) -> Option<Waker> {
        let mut wakers = self.wakers.lock();
        let entry = wakers.first_entry().filter(|entry| entry.key().0 <= now)?;
        let waker = entry.remove();
        self.note_first(&wakers);
        Some(waker)
    }
}

impl Timers {
    pub(crate) fn new(cpu: Arc<dyn Cpu>) -> Arc<Self> {
        let queues = cpu.cpus().iter().map(|_| TimerQueue::new()).collect();
        Arc::new(Timers { cpu, queues, serial: AtomicU64::new(0) })
    }

    /// Completes at `at` (ns of [`Cpu::now`]) or soon after; u64::MAX is never.
    pub fn sleep_until(self: &Arc<Self>, at: u64) -> Sleep {
        Sleep { timers: self.clone(), at, armed: None }
    }

    pub fn now(&self) -> u64 {
        self.cpu.now()
    }

    /// Wakes what is due on this CPU, [`MOST_WAKES`] at most.
    pub(crate) fn fire(&self, cpu: usize) {
        let now = self.cpu.now();
        for _ in 0..MOST_WAKES {
            let Some(waker) = self.queues[cpu].take_due(now) else { return };
            waker.wake();
        }
    }

    /// When this CPU next has something to wake.
    pub(crate) fn next(&self, cpu: usize) -> Option<u64> {
        Some(self.queues[cpu].first.load(Ordering::Relaxed)).filter(|&at| at != u64::MAX)
    }

    /// ...until a timer is added.
    pub(crate) fn look(&self, cpu: usize) -> Option<u64> {
        self.queues[cpu].changed.store(false, Ordering::Relaxed);
        self.next(cpu)
    }

    /// Was a timer added since [`Timers::look`]?
    pub(crate) fn is_changed(&self, cpu: usize) -> bool {
        self.queues[cpu].changed.load(Ordering::Relaxed)
    }

    /// When any CPU of this kernel next has something to wake.
    pub fn earliest(&self) -> Option<u64> {
        (0..self.queues.len()).filter_map(|cpu| self.next(cpu)).min()
    }
}

/// A wait for a point in time.
pub struct Sleep {
    timers: Arc<Timers>,
    at: u64,
    /// The queue and key it stands under.
    armed: Option<(usize, Key)>,
}

impl Sleep {
    fn disarm(&mut self) {
        if let Some((cpu, key)) = self.armed.take() {
            let queue = &self.timers.queues[cpu];
            let mut wakers = queue.wakers.lock();
            wakers.remove(&key);
            queue.note_first(&wakers);
        }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.at <= self.timers.now() {
            self.disarm();
            return Poll::Ready(());
        }
        if self.at == u64::MAX {
            return Poll::Pending;
        }
        // The task may be polled on another CPU than before: the timer follows it.
        self.disarm();
        let timers = &self.timers;
        let current = timers.cpu.current();
        let cpu = timers.cpu.cpus().iter().position(|&cpu| cpu == current).unwrap_or(0);
        let key = (self.at, timers.serial.fetch_add(1, Ordering::Relaxed));
        let queue = &timers.queues[cpu];
        let mut wakers = queue.wakers.lock();
        wakers.insert(key, context.waker().clone());
        queue.note_first(&wakers);
        queue.changed.store(true, Ordering::Relaxed);
        drop(wakers);
        self.armed = Some((cpu, key));
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.disarm();
    }
}
