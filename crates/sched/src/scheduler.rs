//! Tasks and the CPUs that run them.
//!
//! The one dangerous interleaving: CPU A finds its queue empty and is about to halt while CPU B queues a
//! task for it. B pushes, then reads A's `idle` flag; A sets `idle`, then looks into its queue once more
//! (both SeqCst). So either A sees the task or B sees the flag and kicks A out of its halt.

use crate::{
    queue::{Class, Queue},
    timer::{Sleep, Timers},
};
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::{
    future::Future,
    sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*},
    task::Poll,
};
use machine::{sync::Lock, BoxFuture, Cpu, CpuId, Spawner};

/// How long a thread runs while others wait for its CPU, in ns. (Linux: a few ms; sched(7).)
pub const SLICE_NS: u64 = 3_000_000;

pub(crate) type Runnable = async_task::Runnable<Arc<Entity>>;

/// What the scheduler keeps about a task.
pub(crate) struct Entity {
    class: Class,
    /// Index of the CPU it last ran on.
    last: AtomicUsize,
    /// Bit i: may run on CPU i of this kernel. Kernels of more than 64 CPUs take whole words per task
    /// only when someone builds one; see docs/limits.md.
    allowed: AtomicU64,
}

/// A handle on a task's scheduling.
#[derive(Clone)]
pub struct TaskRef(Arc<Entity>);

impl TaskRef {
    /// Restricts the task to CPUs of this kernel whose index bit is set; takes effect when it is next queued.
    pub fn set_allowed(&self, mask: u64) {
        self.0.allowed.store(mask, Relaxed);
    }
}

struct Local {
    queue: Lock<Queue>,
    idle: AtomicBool,
    /// End of the running thread's slice.
    slice_end: AtomicU64,
    idle_ns: AtomicU64,
    /// Tasks it has run.
    turns: AtomicU64,
    /// Tasks queued or running here.
    load: AtomicUsize,
}

pub struct Scheduler {
    cpu: Arc<dyn Cpu>,
    locals: Vec<Local>,
    timers: Arc<Timers>,
}

impl Scheduler {
    pub fn new(cpu: Arc<dyn Cpu>) -> Arc<Self> {
        let local = || Local {
            queue: Lock::new(Queue::default()),
            idle: AtomicBool::new(false),
            slice_end: AtomicU64::new(0),
            idle_ns: AtomicU64::new(0),
            turns: AtomicU64::new(0),
            load: AtomicUsize::new(0),
        };
        let locals = cpu.cpus().iter().map(|_| local()).collect();
        Arc::new(Scheduler { timers: Timers::new(cpu.clone()), cpu, locals })
    }

    pub fn timers(&self) -> &Arc<Timers> {
        &self.timers
    }

    pub fn sleep_until(&self, at: u64) -> Sleep {
        self.timers.sleep_until(at)
    }

    /// Starts a user thread's future. It may run on this kernel's CPUs whose index bit is set in `allowed`.
    pub fn spawn_thread(self: &Arc<Self>, allowed: u64, task: BoxFuture<'static, ()>) -> TaskRef {
        self.start(Class::Thread, allowed, task)
    }

    fn start(self: &Arc<Self>, class: Class, allowed: u64, task: BoxFuture<'static, ()>) -> TaskRef {
        let entity = Arc::new(Entity { class, last: AtomicUsize::new(self.here()), allowed: AtomicU64::new(allowed) });
        let scheduler = Arc::downgrade(self);
        let schedule = move |runnable: Runnable| {
            if let Some(scheduler) = scheduler.upgrade() {
                scheduler.enqueue(runnable);
            }
        };
        let (runnable, task) = async_task::Builder::new().metadata(entity.clone()).spawn(move |_| task, schedule);
        task.detach();
        runnable.schedule();
        TaskRef(entity)
    }

    fn here(&self) -> usize {
        self.cpu.index()
    }

    /// Position of a global CPU number among this kernel's CPUs.
    pub fn index_of(&self, cpu: CpuId) -> Option<usize> {
        self.cpu.cpus().binary_search(&cpu).ok()
    }

    fn enqueue(&self, runnable: Runnable) {
        let entity = runnable.metadata().clone();
        let cpu = self.place(&entity);
        let local = &self.locals[cpu];
        local.load.fetch_add(1, Relaxed);
        local.queue.lock().push(runnable, entity.class);
        // Pairs with the store of `idle` in `prepare_idle` (see the head of this file). A busy sibling is
        // kicked too, so that its running thread yields at the end of its slice.
        core::sync::atomic::fence(SeqCst);
        if cpu != self.here() {
            self.cpu.kick(self.cpu.cpus()[cpu]);
        }
    }

    /// The CPU for a task that became runnable: where it last ran if that is idle, else an idle CPU it may
    /// use, else the least loaded.
    fn place(&self, entity: &Entity) -> usize {
        let last = entity.last.load(Relaxed);
        if self.locals.len() == 1 {
            return 0;
        }
        let allowed = entity.allowed.load(Relaxed);
        let may = |cpu: usize| cpu >= 64 || allowed >> cpu & 1 == 1;
        if may(last) && self.locals[last].load.load(Relaxed) == 0 {
            return last;
        }
        (0..self.locals.len())
            .filter(|&cpu| may(cpu))
            .min_by_key(|&cpu| (self.locals[cpu].load.load(Relaxed), cpu != last))
            .unwrap_or(last)
    }

    /// Wakes due timers and runs one task; false if there was none.
    pub fn turn(&self) -> bool {
        let here = self.here();
        self.timers.fire(here);
        let local = &self.locals[here];
        let next = local.queue.lock().pop();
        let Some((from, runnable)) = next.map(|task| (here, task)).or_else(|| self.steal(here)) else {
            return false;
        };
        runnable.metadata().last.store(here, Relaxed);
        local.slice_end.store(self.cpu.now() + SLICE_NS, Relaxed);
        if from != here {
            self.locals[from].load.fetch_sub(1, Relaxed);
            local.load.fetch_add(1, Relaxed);
        }
        local.turns.fetch_add(1, Relaxed);
        runnable.run();
        local.load.fetch_sub(1, Relaxed);
        true
    }

    fn steal(&self, here: usize) -> Option<(usize, Runnable)> {
        (0..self.locals.len()).filter(|&cpu| cpu != here).find_map(|cpu| {
            let other = &self.locals[cpu];
            if other.load.load(Relaxed) < 2 {
                return None;
            }
            let may = |task: &Runnable| here >= 64 || task.metadata().allowed.load(Relaxed) >> here & 1 == 1;
            other.queue.lock().steal(may).map(|task| (cpu, task))
        })
    }

    /// Called by a thread about to (re-)enter user mode: must it let others run first? Also arms the
    /// alarm that ends its slice, or the next timer if nobody waits.
    pub fn should_yield(&self) -> bool {
        let here = self.here();
        let local = &self.locals[here];
        let timer = self.timers.next(here);
        let now = self.cpu.now();
        if timer.is_some_and(|at| at <= now) {
            return true;
        }
        let (waiting, kernel_work) = {
            let queue = local.queue.lock();
            (queue.len() > 0, queue.has_kernel_work())
        };
        let slice_end = local.slice_end.load(Relaxed);
        if kernel_work || (waiting && now >= slice_end) {
            return true;
        }
        let alarm = match (waiting, timer) {
            (true, Some(at)) => Some(at.min(slice_end)),
            (true, None) => Some(slice_end),
            (false, timer) => timer,
        };
        self.cpu.set_alarm(alarm);
        false
    }

    /// Before halting: announces idleness and arms the alarm. False if work turned up; then do not halt.
    pub fn prepare_idle(&self) -> bool {
        let here = self.here();
        let local = &self.locals[here];
        local.idle.store(true, SeqCst);
        let alarm = self.timers.next(here);
        if local.queue.lock().len() > 0 || alarm.is_some_and(|at| at <= self.cpu.now()) {
            local.idle.store(false, SeqCst);
            return false;
        }
        self.cpu.set_alarm(alarm);
        true
    }

    /// After halting for `ns`.
    pub fn end_idle(&self, ns: u64) {
        let local = &self.locals[self.here()];
        local.idle.store(false, SeqCst);
        local.idle_ns.fetch_add(ns, Relaxed);
    }

    /// Time each CPU of this kernel has been idle, in ns.
    pub fn idle_ns(&self) -> Vec<u64> {
        self.locals.iter().map(|local| local.idle_ns.load(Relaxed)).collect()
    }

    /// How often a task was given a CPU of this kernel.
    pub fn switches(&self) -> u64 {
        self.locals.iter().map(|local| local.turns.load(Relaxed)).sum()
    }

    /// Tasks running or waiting for a CPU, for the load board.
    pub fn load(&self) -> usize {
        self.locals.iter().map(|local| local.load.load(Relaxed)).sum()
    }
}

/// The handle through which services (which know no scheduler) start kernel work.
pub struct KernelTasks(pub Arc<Scheduler>);

impl Spawner for KernelTasks {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.0.start(Class::Kernel, u64::MAX, task);
    }
}

impl Scheduler {
    /// Starts kernel work.
    pub fn spawn(self: &Arc<Self>, task: impl Future<Output = ()> + Send + 'static) {
        self.start(Class::Kernel, u64::MAX, Box::pin(task));
    }
}

/// Goes to the end of the queue once.
pub async fn yield_now() {
    let mut yielded = false;
    core::future::poll_fn(|context| {
        if core::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await
}
