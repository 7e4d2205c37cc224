//! Tasks of all kernels on one thread; the seed picks which goes on.

use crate::{recorder::Recorder, rng::Rng};
use machine::{sync::Lock, Actor, BoxFuture, GroupId, KernelId, Spawner};
use sched::Scheduler;
use slab::Slab;
use std::{
    collections::BTreeMap,
    future::{poll_fn, Future},
    sync::{
        atomic::{AtomicBool, AtomicU32, Ordering},
        Arc, Weak,
    },
    task::{Context, Wake, Waker},
};

/// As many pieces of work as a task does on hardware before the CPU looks around.
const MOST_PIECES: u32 = 16;

/// Tasks that can go on, by their place in the table.
type Ready = Lock<Vec<usize>>;

struct TaskWaker {
    task: usize,
    /// In `ready`. A task is there once, and its place is not given away before it is out again.
    queued: AtomicBool,
    ready: Arc<Ready>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.swap(true, Ordering::Relaxed) {
            self.ready.lock().push(self.task);
        }
    }
}

struct Task {
    kernel: Option<KernelId>,
    /// Not here while it is polled.
    future: Option<BoxFuture<'static, ()>>,
    state: Arc<TaskWaker>,
    waker: Waker,
}

/// All tasks.
#[derive(Default)]
pub struct Executor {
    tasks: Lock<Slab<Task>>,
    ready: Arc<Ready>,
    /// Those that run threads, by kernel.
    pub schedulers: Lock<BTreeMap<KernelId, Weak<Scheduler>>>,
}

impl Executor {
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// A task of `kernel`, or of nobody.
    pub fn spawn(&self, kernel: Option<KernelId>, future: BoxFuture<'static, ()>) {
        let mut tasks = self.tasks.lock();
        let entry = tasks.vacant_entry();
        let task = entry.key();
        let state = Arc::new(TaskWaker { task, queued: AtomicBool::new(true), ready: self.ready.clone() });
        let waker = Waker::from(state.clone());
        entry.insert(Task { kernel, future: Some(future), state, waker });
        self.ready.lock().push(task);
    }

    /// Starts `work` on `kernel`; its result appears in the handle.
    pub fn start<T: Send + 'static>(
        &self,
        kernel: Option<KernelId>,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Handle<T> {
        let slot = Arc::new(Lock::new(None));
        let result = slot.clone();
        self.spawn(
            kernel,
            Box::pin(async move {
                let value = work.await;
                *result.lock() = Some(value);
            }),
        );
        Handle(slot)
    }

    /// Tasks that could go on now.
    pub fn ready(&self) -> usize {
        self.ready.lock().len()
    }

    /// Polls one of them; what it does its kernel does.
    pub fn step(&self, rng: &Rng, recorder: &Arc<Recorder>) {
        let number = {
            let mut ready = self.ready.lock();
            let index = rng.below(ready.len());
            ready.swap_remove(index)
        };
        let (mut future, waker, kernel) = {
            let mut tasks = self.tasks.lock();
            let task = &mut tasks[number];
            task.state.queued.store(false, Ordering::Relaxed);
            (task.future.take(), task.waker.clone(), task.kernel)
        };
        // Outside the lock: it may spawn. Gone if it has ended, and something woke it late.
        let mut poll =
            || future.as_mut().is_some_and(|it| it.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        let pending = match kernel {
            Some(kernel) => recorder.during(kernel, poll),
            None => poll(),
        };
        let mut tasks = self.tasks.lock();
        if pending {
            tasks[number].future = future;
            return;
        }
        // Its place may be reused only when nobody can wake it by its number.
        let queued = tasks[number].state.queued.swap(true, Ordering::Relaxed);
        if !queued {
            let task = tasks.remove(number);
            drop((tasks, task));
        }
    }

    /// Drops every task, in no order.
    pub fn clear(&self) {
        self.drop_tasks(|_| true);
    }

    /// Drops all tasks of a kernel.
    pub fn kill(&self, kernel: KernelId) {
        self.drop_tasks(|task| task.kernel == Some(kernel));
    }

    fn drop_tasks(&self, gone: impl Fn(&Task) -> bool) {
        // What is dropped may wake others, and its own place must not be taken before that.
        let futures: Vec<_> = {
            let mut tasks = self.tasks.lock();
            tasks.iter_mut().filter(|(_, task)| gone(task)).map(|(_, task)| task.future.take()).collect()
        };
        drop(futures);
    }
}

/// The result of a started task.
pub struct Handle<T>(Arc<Lock<Option<T>>>);

impl<T> Handle<T> {
    /// The result, if it is there.
    pub fn take(&self) -> Option<T> {
        self.0.lock().take()
    }
}

/// For whom a kernel's task works, and who pays for the pages that it makes.
type WorksFor = (Actor, GroupId);

/// Spawns for one kernel.
pub struct SimSpawner {
    executor: Arc<Executor>,
    kernel: KernelId,
    /// Pieces of work that were done without a pause.
    pieces: AtomicU32,
    /// Of the task that runs. Of a thread the scheduler knows.
    works_for: Arc<Lock<WorksFor>>,
}

impl SimSpawner {
    fn scheduler(&self) -> Option<Arc<Scheduler>> {
        self.executor.schedulers.lock().get(&self.kernel)?.upgrade()
    }

    pub fn new(executor: Arc<Executor>, kernel: KernelId) -> Self {
        SimSpawner { executor, kernel, pieces: AtomicU32::new(0), works_for: Arc::default() }
    }
}

impl Spawner for SimSpawner {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.executor.spawn(Some(self.kernel), task);
    }

    fn spawn_for(&self, actor: Actor, payer: GroupId, mut task: BoxFuture<'static, ()>) {
        let works_for = self.works_for.clone();
        self.spawn(Box::pin(poll_fn(move |context| {
            let before = std::mem::replace(&mut *works_for.lock(), (actor, payer));
            let polled = task.as_mut().poll(context);
            *works_for.lock() = before;
            polled
        })));
    }

    fn actor(&self) -> Actor {
        match self.works_for.lock().0 {
            Actor::NOBODY => self.scheduler().map_or(Actor::NOBODY, |scheduler| scheduler.actor()),
            actor => actor,
        }
    }

    fn set_actor(&self, actor: Actor) -> Actor {
        std::mem::replace(&mut self.works_for.lock().0, actor)
    }

    fn payer(&self) -> GroupId {
        match self.works_for.lock().1 {
            GroupId::ROOT => self.scheduler().map_or(GroupId::ROOT, |scheduler| scheduler.payer()),
            payer => payer,
        }
    }

    fn set_payer(&self, payer: GroupId) -> GroupId {
        std::mem::replace(&mut self.works_for.lock().1, payer)
    }

    fn is_turn_over(&self) -> bool {
        self.pieces.fetch_add(1, Ordering::Relaxed) % MOST_PIECES == MOST_PIECES - 1
    }
}
