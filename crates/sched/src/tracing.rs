//! What the scheduler tells the trace. A CPU is always shown with somebody: a thread, the kernel's own work, or idle.
//!
//! Dangerous: a trace that shows a thread on two CPUs at once. Another CPU can have the task before this one has said that it has left it:
//!
//! ```text
//!   CPU A                              CPU B
//!   the task's future says Pending
//!                                      wakes it, takes it, says: it runs here
//!   says: it does not run here         <- too late
//! ```
//!
//! So B waits for A, which is about to say so and waits for nobody. (Linux waits at this place whether it traces or not: `on_cpu`.)

use crate::{
    monitored::PendingWake,
    sync::{spin, Ordering::*},
    task::{Entity, Runnable, TaskRef},
    Scheduler,
};
use alloc::sync::Arc;
use machine::Actor;

/// States as Linux numbers them.
const RUNNABLE: u8 = 0;
const WAITS: u8 = 1;
const ENDED: u8 = 16;

impl Scheduler {
    /// Samples of this CPU are of the task from now on.
    fn sample_enter(&self, entity: &Entity) {
        if let Some(here) = trace::position() {
            here.copy(&entity.position);
            here.set_thread(entity.traced());
        }
    }

    /// Samples of this CPU are no longer of the task. Before anybody else can run it.
    fn sample_left(&self, entity: &Entity) {
        if let Some(here) = trace::position() {
            entity.position.copy(here);
            here.clear();
        }
    }

    /// This CPU goes on with `next`, of this priority, if it is at something else, which is left in this state.
    #[inline]
    pub(crate) fn trace_switch(&self, here: usize, (next, priority): (u32, u8), state: u8) {
        let traced = &self.locals[here].traced;
        let before = traced.load(Relaxed);
        if before != next {
            trace::sched_switch(before, next, priority, state);
            traced.store(next, Relaxed);
        }
    }

    /// [`Self::run_task`] while switches are recorded or samples taken, or both: what is said when it begins is said when it ends, whatever is switched meanwhile.
    #[cold]
    #[inline(never)]
    pub(crate) fn run_traced(&self, here: usize, runnable: Runnable, entity: &Arc<Entity>) -> (bool, PendingWake) {
        let (traced, sampled) = (trace::on::sched_switch(), trace::on::sample());
        if traced {
            self.trace_enter(here, entity);
        }
        if sampled {
            self.sample_enter(entity);
        }
        let ran = self.run_task(here, runnable, entity);
        if sampled {
            self.sample_left(entity);
        }
        if traced {
            self.trace_left(here, entity, ran.0);
        }
        ran
    }

    /// The task is about to run on this CPU.
    fn trace_enter(&self, here: usize, entity: &Entity) {
        while entity.traced_here.swap(true, Acquire) {
            spin();
        }
        self.trace_switch(here, entity.traced_with_priority(), RUNNABLE);
    }

    /// The task has just run on this CPU.
    fn trace_left(&self, here: usize, entity: &Entity, could_go_on: bool) {
        let left_as = if could_go_on { RUNNABLE } else { WAITS };
        self.trace_switch(here, (trace::KERNEL_WORK, 0), left_as);
        entity.traced_here.store(false, Release);
    }

    /// This CPU does the kernel's own work now, which is no task: it looks after messages.
    pub fn begin_kernel_work(&self) {
        if trace::on::sched_switch() {
            self.trace_switch(self.here(), (trace::KERNEL_WORK, 0), RUNNABLE);
        }
    }

    /// The task is about to be queued for CPU `to`, by index.
    #[cold]
    pub(crate) fn trace_wakeup(&self, entity: &Entity, to: usize) {
        let thread = entity.traced();
        if thread != trace::KERNEL_WORK {
            trace::sched_wakeup(thread, self.actor().thread().0, self.cpu_number(to));
        }
    }

    /// The task, which waits for a CPU, goes from the queue of one to that of another.
    pub(crate) fn trace_move(&self, entity: &Entity, from: usize, to: usize) {
        if trace::on::sched_migrate_task() {
            trace::sched_migrate_task(entity.traced(), self.cpu_number(from), self.cpu_number(to));
        }
    }

    fn cpu_number(&self, index: usize) -> u16 {
        self.cpu.cpus()[index].0 as u16
    }

    /// From now on, who wakes `task` wakes `actor`, and what it does `actor` does; nobody's, if it is the shadow of a thread that is elsewhere. The task itself
    /// calls this.
    pub fn act_for(&self, task: &TaskRef, actor: Actor) {
        let entity = &task.0;
        entity.actor.store(actor.0, Relaxed);
        self.set_actor(actor);
        if trace::on::sched_switch() {
            self.trace_switch(self.here(), entity.traced_with_priority(), RUNNABLE);
        }
    }

    /// The thread of `task` has ended. What is left of the task is the kernel's own work: another thread may be given the id at once, when it has executed a
    /// program, and must not be seen beside this one. The task itself calls this.
    pub fn thread_ends(&self, task: &TaskRef) {
        task.0.actor.store(Actor::NOBODY.0, Relaxed);
        if trace::on::sched_switch() {
            self.trace_switch(self.here(), (trace::KERNEL_WORK, 0), ENDED);
        }
    }
}
