//! What a trace knows of threads: for whom a CPU works, and what threads are called.

use crate::{System, Thread};
use core::sync::atomic::Ordering::Relaxed;
use machine::{Actor, GroupId, SpaceId};

/// Samples of this CPU are of a thread in this space from now on.
#[cold]
pub(crate) fn sample_space(space: SpaceId) {
    if let Some(here) = trace::position() {
        here.set_space(space.serial, space.home.0);
    }
}

impl Thread {
    /// Whom a CPU works for that runs it.
    pub(crate) fn actor(&self) -> Actor {
        Actor::new(self.tid, self.process.system.kernel)
    }

    /// Its future works for `actor` from now on: for the thread, or for nobody while it is the shadow of the thread.
    pub(crate) fn act_for(&self, actor: Actor) {
        // Cloned first: the scheduler may look at this thread.
        let task = self.task.lock().clone();
        if let Some(task) = task {
            self.process.system.scheduler.act_for(&task, actor);
        }
        // It may have been moved while it was away.
        self.set_payer(self.process.cgroup());
    }

    /// Who pays for the pages that it makes from now on.
    pub(crate) fn set_payer(&self, payer: GroupId) {
        let task = self.task.lock().clone();
        if let Some(task) = task {
            task.set_payer(payer);
        }
        // It may be running: then it pays as before until it goes to user mode.
        self.regrouped.store(true, Relaxed);
        self.note_descheduled();
    }

    /// What its future still does the kernel does.
    pub(crate) fn ends(&self) {
        self.end_monitoring();
        let task = self.task.lock().clone();
        if let Some(task) = task {
            self.process.system.scheduler.thread_ends(&task);
        }
    }

    /// Has the trace know what it is called.
    #[cold]
    pub fn trace_name(&self) {
        let state = self.state.lock();
        trace::thread_name(self.tid.0, self.process.id.0, &state.name);
    }
}

impl System {
    /// Has the trace know what the threads of this kernel are called.
    pub fn trace_names(&self) {
        self.threads.lock().values().for_each(|thread| thread.trace_name());
    }
}
