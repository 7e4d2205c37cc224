//! A runtime: its CPUs, workers, leaders and ready tasks.
//!
//! Who may use a CPU:
//!
//! ```text
//! baseline   one worker at a time. It leaves when there is no ready task, when the task in which it waits (taskwait) has no child that it could run, or when
//!            a worker comes that owns a started task
//! UMT        as many as there are, of which one can go on and the others wait in the kernel. When none can go on, the CPU *stalls*: the leader, or who
//!            makes a task ready, wakes a worker of the pool there, or makes one. When more than one can go on, the first that ends its task goes into the
//!            pool
//! ```
//!
//! All of that changes under one lock ([`Central`]); what has to be woken is woken after it.

use crate::{
    cpu::Cpu,
    leader,
    monitor::Monitor,
    schedule::{Fifo, Lifo, Locality, Ready, Schedule},
    statistics::Statistics,
    sys,
    task::{lock, Task},
    topology,
    worker::{current, within, Wake, Worker},
};
use std::{
    collections::VecDeque,
    io::{self, Write},
    os::fd::OwnedFd,
    panic::resume_unwind,
    sync::{
        atomic::{AtomicBool, Ordering::*},
        Arc, Condvar, Mutex, PoisonError,
    },
    thread::JoinHandle,
};

/// Whether the kernel tells of threads that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It does not, or is not asked to.
    Baseline,
    /// It does (user-monitored threads).
    Umt,
}

/// Which of the schedulers that come with the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    Fifo,
    Lifo,
    Locality,
}

/// How a runtime is made.
pub struct Builder {
    mode: Option<Mode>,
    policy: Policy,
    own: Option<Box<dyn Schedule>>,
    cpus: Option<Vec<usize>>,
    workers_per_cpu: usize,
}

impl Default for Builder {
    fn default() -> Self {
        Builder { mode: None, policy: Policy::Fifo, own: None, cpus: None, workers_per_cpu: 64 }
    }
}

impl Builder {
    /// What the environment says: COB_TASKS (`baseline` or `umt`), COB_TASKS_SCHEDULER (`fifo`, `lifo` or `locality`), COB_TASKS_WORKERS_PER_CPU.
    pub fn from_environment() -> Builder {
        let variable = |name: &str| std::env::var(name).unwrap_or_default();
        let mut builder = Builder::default();
        match variable("COB_TASKS").as_str() {
            "baseline" => builder.mode = Some(Mode::Baseline),
            "umt" => builder.mode = Some(Mode::Umt),
            "" => {}
            other => eprintln!("cob-tasks: COB_TASKS={other}: expected baseline or umt"),
        }
        match variable("COB_TASKS_SCHEDULER").as_str() {
            "lifo" => builder.policy = Policy::Lifo,
            "locality" => builder.policy = Policy::Locality,
            "fifo" | "" => {}
            other => eprintln!("cob-tasks: COB_TASKS_SCHEDULER={other}: expected fifo, lifo or locality"),
        }
        match variable("COB_TASKS_WORKERS_PER_CPU").as_str() {
            "" => {}
            most => match most.parse() {
                Ok(most) => builder.workers_per_cpu = most,
                Err(_) => eprintln!("cob-tasks: COB_TASKS_WORKERS_PER_CPU={most}: expected a number"),
            },
        }
        builder
    }

    /// None, and nothing in the environment: user-monitored threads where there are any.
    pub fn mode(mut self, mode: Option<Mode>) -> Builder {
        self.mode = mode;
        self
    }

    pub fn policy(mut self, policy: Policy) -> Builder {
        self.policy = policy;
        self
    }

    /// A scheduler of the program's own.
    pub fn scheduler(mut self, scheduler: Box<dyn Schedule>) -> Builder {
        self.own = Some(scheduler);
        self
    }

    /// The CPUs that get workers, by their numbers; otherwise all that the thread may use.
    pub fn cpus(mut self, cpus: Vec<usize>) -> Builder {
        self.cpus = Some(cpus);
        self
    }

    /// The most workers that are bound to one CPU, at least one.
    pub fn workers_per_cpu(mut self, most: usize) -> Builder {
        self.workers_per_cpu = most;
        self
    }

    /// Starts it: a worker on each CPU, and with user-monitored threads a leader for each kernel.
    pub fn build(self) -> io::Result<Runtime> {
        let numbers = match self.cpus {
            Some(cpus) => cpus,
            None => sys::allowed_cpus()?,
        };
        let (mode, counters) = match self.mode {
            Some(Mode::Baseline) => (Mode::Baseline, Vec::new()),
            wanted => match sys::umt_enable() {
                Ok(counters) => (Mode::Umt, counters),
                Err(error) => {
                    if wanted.is_some() {
                        eprintln!("cob-tasks: no user-monitored threads here ({error}): threads that wait leave their CPUs idle");
                    }
                    (Mode::Baseline, Vec::new())
                }
            },
        };
        let monitor = if mode == Mode::Umt { Monitor::Kernel } else { Monitor::Nobody };
        Runtime::start(monitor, numbers, counters, self.policy, self.own, self.workers_per_cpu.max(1))
    }
}

/// What has to be done after the lock of [`Central`].
pub(crate) enum Waking {
    Worker(Arc<Worker>, Wake),
    /// A worker that has no thread yet.
    New(Arc<Worker>, Wake),
}

pub(crate) struct Central {
    pub queue: Box<dyn Schedule>,
    /// Workers whose taskwait is over, and that have no CPU.
    pub resumable: VecDeque<Arc<Worker>>,
    /// Workers without anything to do.
    pub pool: Vec<Arc<Worker>>,
    /// For each CPU: workers that have it, and have not given it back. A worker that waits in the kernel has it.
    pub busy: Vec<usize>,
    /// For each CPU: workers bound to it.
    pub bound: Vec<usize>,
    pub exiting: bool,
}

pub(crate) struct Shared {
    pub mode: Mode,
    pub cpus: Vec<Cpu>,
    pub central: Mutex<Central>,
    pub statistics: Statistics,
    workers_per_cpu: usize,
    pub monitor: Monitor,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Tells leaders that the runtime ends.
    pub exit: Option<OwnedFd>,
    pub exiting: AtomicBool,
    /// Root tasks that have ended.
    over: Mutex<u64>,
    over_changed: Condvar,
}

/// Workers that run tasks on some CPUs.
pub struct Runtime {
    pub(crate) shared: Arc<Shared>,
}

impl Runtime {
    /// [`Builder::from_environment`], built.
    pub fn new() -> io::Result<Runtime> {
        Builder::from_environment().build()
    }

    pub(crate) fn start(
        monitor: Monitor,
        numbers: Vec<usize>,
        counters: Vec<OwnedFd>,
        policy: Policy,
        own: Option<Box<dyn Schedule>>,
        workers_per_cpu: usize,
    ) -> io::Result<Runtime> {
        if numbers.is_empty() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no CPUs"));
        }
        let mode = if monitor == Monitor::Nobody { Mode::Baseline } else { Mode::Umt };
        let groups = topology::groups(&numbers);
        let mut counters: Vec<Option<OwnedFd>> = counters.into_iter().map(Some).collect();
        let mut counter = |number: usize| counters.get_mut(number).and_then(Option::take);
        let cpus = numbers.iter().zip(&groups).map(|(number, group)| Cpu::new(*number, *group, counter(*number), monitor));
        let cpus = cpus.collect::<io::Result<Vec<Cpu>>>()?;
        let queue: Box<dyn Schedule> = match (own, policy) {
            (Some(own), _) => own,
            (None, Policy::Fifo) => Box::new(Fifo::default()),
            (None, Policy::Lifo) => Box::new(Lifo::default()),
            (None, Policy::Locality) => Box::new(Locality::new(groups.clone())),
        };
        let count = cpus.len();
        let central = Central {
            queue,
            resumable: VecDeque::new(),
            pool: Vec::new(),
            busy: vec![1; count],
            bound: vec![1; count],
            exiting: false,
        };
        let shared = Arc::new(Shared {
            mode,
            cpus,
            central: Mutex::new(central),
            statistics: Statistics::default(),
            workers_per_cpu,
            monitor,
            threads: Mutex::default(),
            exit: if mode == Mode::Umt { Some(sys::event_fd()?) } else { None },
            exiting: AtomicBool::new(false),
            over: Mutex::new(0),
            over_changed: Condvar::new(),
        });
        let runtime = Runtime { shared: shared.clone() };
        if mode == Mode::Umt {
            for group in 0..=groups.iter().copied().max().unwrap_or(0) {
                let leader = leader::Leader::new(shared.clone(), group)?;
                shared.spawn(format!("leader {group}"), move || leader.live())?;
            }
        }
        for cpu in 0..count {
            shared.begin(Worker::new(cpu), None)?;
        }
        Ok(runtime)
    }

    /// Whether the kernel tells it of threads that wait.
    pub fn mode(&self) -> Mode {
        self.shared.mode
    }

    /// How many CPUs have workers.
    pub fn cpus(&self) -> usize {
        self.shared.cpus.len()
    }

    /// What it has done so far.
    pub fn statistics(&self) -> &Statistics {
        &self.shared.statistics
    }

    /// Runs `main` as a task, and returns when that and all its children have ended. If one has panicked, this panics with that.
    pub fn run<T: Send>(&self, main: impl FnOnce() -> T + Send) -> T {
        if let Some((shared, worker, task)) = current() {
            if Arc::ptr_eq(&shared, &self.shared) {
                return shared.nested(&worker, &task, main);
            }
        }
        let result = Mutex::new(None);
        let body = || *lock(&result) = Some(main());
        let body: Box<dyn FnOnce() + Send + '_> = Box::new(body);
        // SAFETY: the body is called, or dropped, before the task has ended, and this returns after that: what it borrows lives longer.
        let body: crate::task::Body = unsafe { std::mem::transmute(body) };
        let root = Task::new(None, 0, Some(body));
        self.shared.submit(root.clone(), 0);
        self.shared.wait_until_over(&root);
        if let Some(panic) = root.take_panic() {
            resume_unwind(panic);
        }
        let result = lock(&result).take();
        result.expect("a task that has not panicked has returned")
    }
}

impl Drop for Runtime {
    /// Ends its threads.
    fn drop(&mut self) {
        let shared = &self.shared;
        let pool = {
            let mut central = lock(&shared.central);
            central.exiting = true;
            std::mem::take(&mut central.pool)
        };
        pool.into_iter().for_each(|worker| worker.wake(Wake::Exit));
        // Workers first: what they count at their end is read by leaders.
        let is_leader = |thread: &JoinHandle<()>| thread.thread().name().is_some_and(|name| name.starts_with("leader"));
        let (leaders, workers): (Vec<_>, Vec<_>) =
            std::mem::take(&mut *lock(&shared.threads)).into_iter().partition(is_leader);
        for worker in workers {
            // What it panics with is a task's, and was told to who runs that.
            let _ = worker.join();
        }
        shared.exiting.store(true, SeqCst);
        if let Some(exit) = &shared.exit {
            sys::add(exit, 1);
        }
        for leader in leaders {
            let _ = leader.join();
        }
        if cfg!(debug_assertions) && shared.mode == Mode::Umt {
            for cpu in &shared.cpus {
                assert_eq!(cpu.refresh(), 0, "ready workers of CPU {} when all have ended", cpu.number);
            }
        }
    }
}

impl Shared {
    fn spawn(&self, name: String, live: impl FnOnce() + Send + 'static) -> io::Result<()> {
        // Held over both: who ends the runtime finds it.
        let mut threads = lock(&self.threads);
        threads.push(std::thread::Builder::new().name(name).spawn(live)?);
        Ok(())
    }

    /// Gives a worker its thread.
    fn begin(self: &Arc<Self>, worker: Arc<Worker>, wake: Option<Wake>) -> io::Result<()> {
        let shared = self.clone();
        self.statistics.workers.fetch_add(1, Relaxed);
        self.spawn(format!("worker {}", worker.cpu()), move || worker.live(shared, wake))
    }

    /// Reads the counter of a CPU. How many of its workers can go on.
    pub fn refresh(&self, cpu: usize) -> i64 {
        self.cpus[cpu].refresh()
    }

    /// A task was entered by a thread on this CPU.
    pub fn submit(self: &Arc<Self>, task: Arc<Task>, cpu: usize) {
        if !task.unblock() {
            return;
        }
        let mut wakings = Vec::new();
        lock(&self.central).submit(self, Ready(task), cpu, &mut wakings);
        self.wake_all(wakings);
    }

    pub fn wake_all(self: &Arc<Self>, wakings: Vec<Waking>) {
        for waking in wakings {
            match waking {
                Waking::Worker(worker, wake) => worker.wake(wake),
                Waking::New(worker, wake) => {
                    let task = match &wake {
                        Wake::Run(task) => Some(task.clone()),
                        _ => None,
                    };
                    let cpu = worker.cpu();
                    if let Err(error) = self.begin(worker, Some(wake)) {
                        // No more threads: the task waits for a worker that there is.
                        {
                            let mut central = lock(&self.central);
                            central.busy[cpu] -= 1;
                            central.bound[cpu] -= 1;
                            if let Some(task) = task {
                                central.queue.push(Ready(task), cpu);
                            }
                        }
                        self.cpus[cpu].note_arrived();
                        let _ = writeln!(io::stderr(), "cob-tasks: no new worker: {error}");
                    }
                }
            }
        }
    }

    /// A task without a parent has ended.
    pub fn note_over(&self) {
        *lock(&self.over) += 1;
        self.over_changed.notify_all();
    }

    fn wait_until_over(&self, root: &Task) {
        let mut over = lock(&self.over);
        while !root.has_ended() {
            over = self.over_changed.wait(over).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Runs `work` as if it were a task of its own, whose children end before this returns.
    pub fn nested<T>(self: &Arc<Self>, worker: &Arc<Worker>, parent: &Arc<Task>, work: impl FnOnce() -> T) -> T {
        let task = Task::new(Some(parent.clone()), 0, None);
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| within(&task, work)));
        worker.wait_for_children(self, &task);
        let panic = task.take_panic();
        self.close(&task, worker.cpu());
        match (result, panic) {
            (Err(panic), _) | (Ok(_), Some(panic)) => resume_unwind(panic),
            (Ok(value), None) => value,
        }
    }
}

impl Central {
    /// A CPU that could do with another worker.
    fn free_cpu(&self, shared: &Shared, preferred: usize) -> Option<usize> {
        let free = |&cpu: &usize| self.busy[cpu] == 0 || shared.cpus[cpu].stalls();
        Some(preferred).filter(free).or_else(|| (0..self.busy.len()).find(free))
    }

    /// A task can begin: on a CPU that has nothing to do, if there is one.
    pub fn submit(&mut self, shared: &Shared, task: Ready, cpu: usize, wakings: &mut Vec<Waking>) {
        // Who comes later must not overtake what waits.
        let free = if self.queue.is_empty() { self.free_cpu(shared, cpu) } else { None };
        match free.and_then(|free| Some((free, self.choose(shared, free)?))) {
            Some((free, chosen)) => self.assign(shared, free, chosen, task, wakings),
            None => self.queue.push(task, cpu),
        }
    }

    /// The taskwait of this worker is over.
    pub fn resume(&mut self, shared: &Shared, worker: Arc<Worker>, wakings: &mut Vec<Waking>) {
        match self.free_cpu(shared, worker.cpu()) {
            Some(cpu) => {
                self.place(shared, &worker, cpu);
                shared.cpus[cpu].note_scheduled();
                wakings.push(Waking::Worker(worker, Wake::Resume));
            }
            None => self.resumable.push_back(worker),
        }
    }

    /// A sleeping worker gets a CPU.
    pub fn place(&mut self, shared: &Shared, worker: &Arc<Worker>, cpu: usize) {
        let old = worker.cpu.swap(cpu, SeqCst);
        if old != cpu {
            self.bound[old] -= 1;
            self.bound[cpu] += 1;
            worker.bind(&shared.cpus[cpu]);
        }
        self.busy[cpu] += 1;
    }

    /// The worker for a task on this CPU: one of the pool, those that are bound to the CPU first, or a new one. None: there are too many.
    fn choose(&self, shared: &Shared, cpu: usize) -> Option<Chosen> {
        let own = self.pool.iter().rposition(|worker| worker.cpu() == cpu);
        match (own, self.pool.len().checked_sub(1)) {
            (Some(own), _) => Some(Chosen::OfPool(own)),
            _ if self.bound[cpu] >= shared.workers_per_cpu => None,
            (None, Some(other)) => Some(Chosen::OfPool(other)),
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
                self.busy[cpu] += 1;
                wakings.push(Waking::New(Worker::new(cpu), wake));
            }
        }
        shared.cpus[cpu].note_scheduled();
    }

    /// Gives a CPU something to do, if nobody has it and there is something.
    pub fn fill(&mut self, shared: &Shared, cpu: usize, wakings: &mut Vec<Waking>) {
        if self.busy[cpu] > 0 && !shared.cpus[cpu].stalls() {
            return;
        }
        if let Some(owner) = self.resumable.pop_front() {
            self.place(shared, &owner, cpu);
            shared.cpus[cpu].note_scheduled();
            return wakings.push(Waking::Worker(owner, Wake::Resume));
        }
        if self.queue.is_empty() {
            return;
        }
        shared.statistics.had_task.fetch_add(1, Relaxed);
        let Some(chosen) = self.choose(shared, cpu) else { return };
        if let Some(task) = self.queue.pop(cpu) {
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
