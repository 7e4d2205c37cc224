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
    queues: Vec<Lock<BTreeMap<Key, Waker>>>,
    /// Of each queue: was a timer added since it was last looked at? Written under its lock.
    changed: Vec<AtomicBool>,
    serial: AtomicU64,
}

impl Timers {
    pub(crate) fn new(cpu: Arc<dyn Cpu>) -> Arc<Self> {
        let queues = cpu.cpus().iter().map(|_| Lock::new(BTreeMap::new())).collect();
        let changed = cpu.cpus().iter().map(|_| AtomicBool::new(false)).collect();
        Arc::new(Timers { cpu, queues, changed, serial: AtomicU64::new(0) })
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
            let mut queue = self.queues[cpu].lock();
            match queue.first_entry() {
                Some(entry) if entry.key().0 <= now => {
                    let waker = entry.remove();
                    drop(queue);
                    waker.wake();
                }
                _ => return,
            }
        }
    }

    /// When this CPU next has something to wake.
    pub(crate) fn next(&self, cpu: usize) -> Option<u64> {
        self.queues[cpu].lock().first_key_value().map(|(key, _)| key.0)
    }

    /// ...until a timer is added.
    pub(crate) fn look(&self, cpu: usize) -> Option<u64> {
        let queue = self.queues[cpu].lock();
        self.changed[cpu].store(false, Ordering::Relaxed);
        queue.first_key_value().map(|(key, _)| key.0)
    }

    /// Was a timer added since [`Timers::look`]?
    pub(crate) fn is_changed(&self, cpu: usize) -> bool {
        self.changed[cpu].load(Ordering::Relaxed)
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
            self.timers.queues[cpu].lock().remove(&key);
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
        let mut queue = timers.queues[cpu].lock();
        queue.insert(key, context.waker().clone());
        timers.changed[cpu].store(true, Ordering::Relaxed);
        drop(queue);
        self.armed = Some((cpu, key));
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.disarm();
    }
}
