//! What a runtime counts (table 4.3 of the thesis: opportunity, task, thread).

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

#[derive(Debug, Default)]
pub struct Statistics {
    /// Workers whose threads have begun.
    pub(crate) begun: AtomicUsize,
    pub(crate) tasks: AtomicU64,
    pub(crate) workers: AtomicU64,
    pub(crate) surrenders: AtomicU64,
    pub(crate) looks: AtomicU64,
    pub(crate) stalls: AtomicU64,
    pub(crate) had_task: AtomicU64,
    pub(crate) had_worker: AtomicU64,
}

impl Statistics {
    /// Tasks that have run.
    pub fn tasks(&self) -> u64 {
        self.tasks.load(Relaxed)
    }

    /// Workers that were ever begun.
    pub fn workers(&self) -> u64 {
        self.workers.load(Relaxed)
    }

    /// How often a worker went into the pool because its CPU had more than one that could go on.
    pub fn surrenders(&self) -> u64 {
        self.surrenders.load(Relaxed)
    }

    /// How often a leader looked at a CPU, and how many of these stalled; how often there was a task for a CPU, and then a worker.
    pub fn leaders(&self) -> [u64; 4] {
        [&self.looks, &self.stalls, &self.had_task, &self.had_worker].map(|count| count.load(Relaxed))
    }
}
