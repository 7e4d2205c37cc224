//! Threads that go from the queue of one CPU to that of another: taken by a CPU without work, given away by one with too much, or sent by their affinity.

use crate::{
    class::{Class, DEADLINE_LEVEL},
    load::threads,
    queue::Kept,
    sync::{fence, in_one_order, Ordering::*},
    task::{Runnable, TaskRef},
    Scheduler,
};
use alloc::sync::Arc;

impl Scheduler {
    /// Takes a waiting thread from the sibling where most wait; false if nobody waits that may come here.
    pub(crate) fn steal(&self, here: usize) -> bool {
        let busiest = (0..self.locals.len())
            .filter(|&cpu| cpu != here && threads(self.locals[cpu].load.load(Relaxed)) >= 2)
            .max_by_key(|&cpu| self.locals[cpu].load.load(Relaxed));
        busiest.is_some_and(|from| self.pull(from, here))
    }

    /// Moves one waiting thread between queues.
    fn pull(&self, from: usize, to: usize) -> bool {
        let may = |task: &Runnable| task.metadata().may_run_on(to) && task.metadata().share() != 0;
        let other = &self.locals[from];
        let Some((runnable, class, kept)) = other.queue().remove(may, self.cpu.now()) else { return false };
        self.take_over(runnable, class, kept, (from, to));
        true
    }

    /// A task that was taken out of the queue of CPU `from` goes into that of CPU `to`.
    fn take_over(&self, runnable: Runnable, class: Class, kept: Kept, (from, to): (usize, usize)) {
        let share = runnable.metadata().share();
        self.trace_move(runnable.metadata(), from, to);
        self.locals[from].load.fetch_sub(share, Relaxed);
        let local = &self.locals[to];
        let mut queue = local.queue();
        runnable.metadata().cpu.store(to, SeqCst);
        in_one_order();
        if !runnable.metadata().may_run_on(to) {
            // It was forbidden to come meanwhile.
            drop(queue);
            return self.push_from(from, runnable, kept);
        }
        local.load.fetch_add(share, Relaxed);
        let class = if class == Class::Kernel { class } else { runnable.metadata().class() };
        queue.enqueue(runnable, class, kept, self.cpu.now());
    }

    /// On a kernel on which a thread has a deadline: before this CPU takes what comes next, it looks whether one waits elsewhere whose deadline is before all that wait here, unless kernel work goes first
    /// here. And if more of them wait here than can run, one goes where nobody runs who has one ([`Scheduler::spread_due`]). So those run whose deadlines are first, but for what changes meanwhile.
    #[cold]
    pub(crate) fn gather_due(&self, here: usize) {
        // One queue is looked at after the other, and none is held while another is changed.
        let first_due = |cpu: usize| self.locals[cpu].queue.lock().first_due();
        let work_first = {
            let queue = self.locals[here].queue.lock();
            queue.kernel_tasks() > 0 && !queue.threads_first()
        };
        if work_first {
            return;
        }
        let others = (0..self.locals.len()).filter(|&cpu| cpu != here);
        let Some((due, from)) = others.filter_map(|cpu| Some((first_due(cpu)?, cpu))).min() else { return };
        if first_due(here).is_some_and(|own| own <= due) {
            return;
        }
        let may = |task: &Runnable| task.metadata().may_run_on(here);
        let found = self.locals[from].queue().remove_due(may);
        if let Some((runnable, class, kept)) = found {
            self.take_over(runnable, class, kept, (from, here));
        }
    }

    /// The other half of [`Scheduler::gather_due`].
    #[cold]
    pub(crate) fn spread_due(&self, here: usize) {
        let runs_none = |&cpu: &usize| cpu != here && self.locals[cpu].level.load(Relaxed) < DEADLINE_LEVEL;
        while self.locals[here].queue.lock().first_due().is_some() {
            let Some(to) = (0..self.locals.len()).find(runs_none) else { return };
            let may = |task: &Runnable| task.metadata().may_run_on(to);
            let Some((runnable, class, kept)) = self.locals[here].queue().remove_due(may) else { return };
            self.take_over(runnable, class, kept, (here, to));
            // Until it has looked, it counts as taken.
            self.locals[to].level.store(DEADLINE_LEVEL, Relaxed);
            // As in `push`.
            fence(SeqCst);
            self.cpu.kick(self.cpu.cpus()[to]);
        }
    }

    /// Restricts a task to CPUs of this kernel whose index bit is set. A thread that waits for another CPU goes to one of these at once, however long the
    /// threads there want to go on; one that runs goes when it next gives up its CPU, and one that is on its way into a queue takes another one (the head of
    /// scheduler.rs).
    pub fn set_allowed(&self, task: &TaskRef, mask: u64) {
        let entity = &task.0;
        task.set_allowed(mask);
        fence(SeqCst);
        let from = entity.cpu.load(SeqCst);
        if entity.may_run_on(from) {
            return;
        }
        let found = self.locals[from].queue().remove(|waiting| Arc::ptr_eq(waiting.metadata(), entity), self.cpu.now());
        let Some((runnable, _, kept)) = found else { return };
        self.locals[from].load.fetch_sub(entity.share(), Relaxed);
        self.push_from(from, runnable, kept);
    }

    /// Puts a task that was taken from the queue of CPU `from` where it may run.
    fn push_from(&self, from: usize, runnable: Runnable, kept: Kept) {
        let entity = runnable.metadata().clone();
        entity.keep(kept, self.cpu.now());
        let to = self.place(&entity);
        self.trace_move(&entity, from, to);
        self.push(runnable, to, false);
    }

    /// Called now and then by a CPU on which threads wait: if a sibling has two threads less, gives it one of them. (Not the
    /// sibling takes one: nobody waits there, so it has no reason to look.)
    pub fn even_out(&self) {
        let here = self.here();
        let load = |cpu: usize| threads(self.locals[cpu].load.load(Relaxed));
        let least = (0..self.locals.len()).filter(|&cpu| cpu != here).min_by_key(|&cpu| load(cpu));
        let Some(to) = least.filter(|&cpu| load(cpu) + 2 <= load(here)) else { return };
        if self.pull(here, to) {
            // As in `push`.
            fence(SeqCst);
            self.cpu.kick(self.cpu.cpus()[to]);
        }
    }
}
