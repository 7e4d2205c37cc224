//! What a monitored task has of its process's counters (monitor.rs).

use crate::sync::{AtomicBool, AtomicUsize, Ordering::*};
use alloc::sync::Arc;
use machine::sync::Lock;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// A thread waits, or has ended.
    Block,
    /// A thread can use the CPU.
    Unblock,
}

/// Counts for a process, for each CPU of this kernel.
pub trait Monitor: Send + Sync {
    /// Counts `edge` on a CPU, by its index. Takes no lock that is held when somebody is woken, and wakes nobody. True: somebody must be [told](Monitor::tell),
    /// by a caller that holds no lock.
    fn count(&self, cpu: usize, edge: Edge) -> bool;

    /// Something was counted on this CPU: wakes who waits for that. True: he wants to hear of it only if the CPU has nothing to run
    /// ([`Scheduler::take_stall`](crate::Scheduler::take_stall)), and no thread that is counted can go on there now.
    fn tell(&self, cpu: usize) -> bool;
}

/// The static key that is on once a thread of this kernel was monitored.
pub(crate) const KEY: u32 = 64;

/// Whether a thread of this kernel was ever monitored. If not, this is an instruction that does nothing.
#[cfg(target_os = "none")]
#[inline(always)]
pub(crate) fn is_used() -> bool {
    static_keys::is_on::<KEY>()
}

#[cfg(not(target_os = "none"))]
pub(crate) fn is_used() -> bool {
    true
}

/// Who must still be told that something was counted, most often nobody: [`Scheduler::tell_here`](crate::Scheduler::tell_here), when no lock is held.
#[must_use]
#[derive(Default)]
pub struct PendingWake(pub(crate) Option<Arc<dyn Monitor>>);

/// What a task has of it.
pub(crate) struct Monitored {
    /// The two below count.
    pub on: AtomicBool,
    /// A CPU runs the task, or has not yet said that it has left it. Only of tasks that are monitored.
    pub on_cpu: AtomicBool,
    pub monitor: Lock<Option<Arc<dyn Monitor>>>,
    /// A block was counted, and its unblock was not.
    pub blocked: AtomicBool,
    /// The CPU that had it last, or has it. It counts it as a thread that can go on, if it is not blocked.
    pub cpu: AtomicUsize,
}

impl Monitored {
    pub fn new() -> Monitored {
        Monitored {
            on: AtomicBool::new(false),
            on_cpu: AtomicBool::new(false),
            monitor: Lock::new(None),
            blocked: AtomicBool::new(false),
            cpu: AtomicUsize::new(0),
        }
    }

    #[inline]
    pub fn is_on(&self) -> bool {
        self.on.load(Relaxed)
    }

    /// Counts `edge` on a CPU. The lock is the task's own: nobody else ever waits for it.
    pub fn count(&self, cpu: usize, edge: Edge) -> PendingWake {
        match &*self.monitor.lock() {
            Some(monitor) if monitor.count(cpu, edge) => PendingWake(Some(monitor.clone())),
            _ => PendingWake(None),
        }
    }
}
