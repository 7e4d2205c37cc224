//! What changes under one lock: which workers have which CPUs, the ready tasks and the sleeping workers.

use crate::{
    guard::or_abort,
    runtime::{Shared, Waking},
    schedule::{Ready, Schedule},
    task::Task,
    worker::{Wake, Worker},
};
use std::{
    collections::VecDeque,
    sync::{
        atomic::Ordering::{Relaxed, SeqCst},
        Arc,
    },
};

/// A scheduler, maybe a program's own. If it panics a task is lost, and who waits for that could not be told.
pub(crate) struct Guarded(pub Box<dyn Schedule>);

impl Guarded {
    const NAME: &str = "the scheduler of the program";

    pub fn push(&mut self, task: Ready, cpu: usize) {
        or_abort(Self::NAME, || self.0.push(task, cpu));
    }

    pub fn pop(&mut self, cpu: usize) -> Option<Ready> {
        or_abort(Self::NAME, || self.0.pop(cpu))
    }

    /// The next one below `task`.
    pub fn take_below(&mut self, task: &Arc<Task>) -> Option<Ready> {
        or_abort(Self::NAME, || self.0.take(&mut |ready| ready.0.is_below(task)))
    }

    pub fn is_empty(&self) -> bool {
        or_abort(Self::NAME, || self.0.is_empty())
    }
}

pub(crate) struct Central {
    pub queue: Guarded,
    /// Workers whose taskwait is over, and that have no CPU.
    pub resumable: VecDeque<Arc<Worker>>,
    /// Workers that sleep in taskwait, and the task whose children they wait for.
    pub parked: Vec<(Arc<Worker>, Arc<Task>)>,
    /// Workers without anything to do.
    pub pool: Vec<Arc<Worker>>,
    /// For each CPU: workers bound to it.
    pub bound: Vec<usize>,
    /// Tasks without a parent that have not ended: somebody waits for each, if only the end of the runtime.
    pub roots: usize,
    pub exiting: bool,
}

impl Central {
    pub fn new(queue: Guarded, cpus: usize) -> Central {
        Central {
            queue,
            resumable: VecDeque::new(),
            parked: Vec::new(),
            pool: Vec::new(),
            bound: vec![1; cpus],
            roots: 0,
            exiting: false,
        }
    }

    /// A task can begin: on a CPU that has nothing to do, if there is one.
    pub fn submit(&mut self, shared: &Shared, task: Ready, cpu: usize, wakings: &mut Vec<Waking>) {
        // Who comes later must not overtake what waits.
        let free = if self.queue.is_empty() { shared.free_cpu(cpu) } else { None };
        match free.and_then(|free| Some((free, self.choose(shared, free)?))) {
            Some((free, chosen)) => self.assign(shared, free, chosen, task, wakings),
            None => self.queue.push(task, cpu),
        }
    }

    /// The next task for a worker of this CPU: what was begun goes before what is new.
    pub fn pop(&mut self, shared: &Shared, cpu: usize) -> Option<Ready> {
        shared.local.pop(cpu).or_else(|| self.queue.pop(cpu)).or_else(|| shared.local.steal(cpu))
    }

    /// A worker sleeps until the children of `task` have ended. The caller has said so to the task, under the same lock.
    pub fn park(&mut self, shared: &Shared, worker: &Arc<Worker>, task: &Arc<Task>) {
        shared.leave(worker.cpu());
        self.parked.push((worker.clone(), task.clone()));
    }

    /// The taskwait of this worker is over.
    pub fn resume(&mut self, shared: &Shared, worker: &Arc<Worker>, wakings: &mut Vec<Waking>) {
        // One that is not there does something else meanwhile (`stand_in`), and looks by itself.
        let Some(place) = self.parked.iter().rposition(|(parked, _)| Arc::ptr_eq(parked, worker)) else { return };
        let (worker, _) = self.parked.swap_remove(place);
        match shared.free_cpu(worker.cpu()) {
            Some(cpu) => {
                self.place(shared, &worker, cpu);
                shared.cpus[cpu].note_scheduled();
                wakings.push(Waking::Worker(worker, Wake::Resume));
            }
            None => self.resumable.push_back(worker),
        }
    }

    /// There can be no thread for a task: a worker that sleeps in taskwait has to do it, on top of the task in which it waits. One that waits for this task does;
    /// another one only if nobody else is awake, who would come to it: the two tasks may use the same lock.
    pub fn stand_in(&mut self, shared: &Shared, task: &Task) -> Option<Arc<Worker>> {
        let waits = |(_, parent): &(_, Arc<Task>)| task.is_below(parent);
        let sleeps = || self.parked.len().checked_sub(1).filter(|_| shared.all_free());
        let place = self.parked.iter().rposition(waits).or_else(sleeps)?;
        Some(self.parked.swap_remove(place).0)
    }

    /// A sleeping worker gets a CPU.
    pub fn place(&mut self, shared: &Shared, worker: &Arc<Worker>, cpu: usize) {
        let old = worker.cpu.swap(cpu, SeqCst);
        if old != cpu {
            self.bound[old] -= 1;
            self.bound[cpu] += 1;
            worker.bind(&shared.cpus[cpu]);
        }
        shared.busy[cpu].fetch_add(1, SeqCst);
    }

    /// The worker leaves its CPU and sleeps in the pool.
    pub fn rest(&mut self, shared: &Shared, worker: &Arc<Worker>) {
        shared.leave(worker.cpu());
        self.pool.push(worker.clone());
    }

    /// The worker for a task on this CPU: one of the pool, those that are bound to the CPU first, or a new one. None: there are too many.
    fn choose(&self, shared: &Shared, cpu: usize) -> Option<Chosen> {
        let own = self.pool.iter().rposition(|worker| worker.cpu() == cpu);
        match (own, self.pool.len().checked_sub(1)) {
            (Some(own), _) => Some(Chosen::OfPool(own)),
            _ if self.bound[cpu] >= shared.limits.workers_per_cpu => None,
            (None, Some(other)) => Some(Chosen::OfPool(other)),
            // Workers move: a CPU may have more than its share, and another less.
            _ if self.bound.iter().sum::<usize>() >= shared.most_workers() => None,
            (None, None) => Some(Chosen::New),
        }
    }

    fn assign(&mut self, shared: &Shared, cpu: usize, chosen: Chosen, task: Ready, wakings: &mut Vec<Waking>) {
        let wake = Wake::Run(task.0);
        match chosen {
            Chosen::OfPool(place) => {
                let worker = self.pool.swap_remove(place);
                self.place(shared, &worker, cpu);
                wakings.push(Waking::Worker(worker, wake));
            }
            Chosen::New => {
                self.bound[cpu] += 1;
                shared.busy[cpu].fetch_add(1, SeqCst);
                wakings.push(Waking::New(Worker::new(cpu), wake));
            }
        }
        shared.cpus[cpu].note_scheduled();
    }

    /// Gives a CPU something to do, if it could do with another worker and there is something.
    pub fn fill(&mut self, shared: &Shared, cpu: usize, wakings: &mut Vec<Waking>) {
        if !shared.is_free(cpu) || self.exiting {
            return;
        }
        if let Some(owner) = self.resumable.pop_front() {
            self.place(shared, &owner, cpu);
            shared.cpus[cpu].note_scheduled();
            return wakings.push(Waking::Worker(owner, Wake::Resume));
        }
        if self.queue.is_empty() && shared.local.is_empty() {
            return;
        }
        shared.statistics.had_task.fetch_add(1, Relaxed);
        let Some(chosen) = self.choose(shared, cpu) else { return };
        if let Some(task) = self.pop(shared, cpu) {
            shared.statistics.had_worker.fetch_add(1, Relaxed);
            self.assign(shared, cpu, chosen, task, wakings);
        }
    }
}

/// A worker for a task.
enum Chosen {
    /// At this place of the pool.
    OfPool(usize),
    New,
}
