//! A runtime: its CPUs, workers, leaders and ready tasks.
//!
//! Who may use a CPU:
//!
//! ```text
//! baseline   one worker at a time (or as many as the program has asked for). It leaves when there is no ready task, when the task in which it waits (taskwait) has no
//!            child that it could run, or when a worker comes that owns a started task
//! UMT        as many as there are, of which one can go on and the others wait in the kernel. When none can go on, the CPU *stalls*: the leader, or who
//!            makes a task ready, wakes a worker of the pool there, or makes one. When more than one can go on, the first that ends its task goes into the
//!            pool
//! ```
//!
//! All of that changes under one lock (`central.rs`); what has to be woken is woken after it.

use crate::{
    builder::{Builder, Mode},
    central::{Central, Guarded},
    cpu::Cpu,
    fork, leader,
    local::Local,
    monitor::Monitor,
    process,
    schedule::Ready,
    statistics::Statistics,
    sys,
    task::{lock, Body, Task},
    worker::{current, is_needed_by, wait_elsewhere, Wake, Worker},
};
use std::{
    any::Any,
    collections::BTreeSet,
    io::{self, Write},
    os::fd::OwnedFd,
    panic::{catch_unwind, resume_unwind, AssertUnwindSafe},
    sync::{
        atomic::{AtomicBool, AtomicUsize, Ordering::*},
        Arc, Condvar, Mutex, PoisonError,
    },
    thread::JoinHandle,
};

/// What has to be done after the lock of [`Central`].
pub(crate) enum Waking {
    Worker(Arc<Worker>, Wake),
    /// A worker that has no thread yet.
    New(Arc<Worker>, Wake),
}

/// How many workers a CPU has at most, and without user-monitored threads how many of these at a time.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    pub workers_per_cpu: usize,
    pub threads_per_cpu: usize,
}

pub(crate) type OnPanic = Box<dyn Fn(Box<dyn Any + Send>) + Send + Sync>;

pub(crate) struct Shared {
    pub mode: Mode,
    pub cpus: Vec<Arc<Cpu>>,
    pub central: Mutex<Central>,
    pub local: Local,
    /// For each CPU: workers that have it, and have not given it back. A worker that waits in the kernel has it. Changes under the lock of [`Central`].
    pub busy: Vec<AtomicUsize>,
    pub statistics: Statistics,
    pub limits: Limits,
    pub monitor: Monitor,
    /// Whose threads the workers are: the process's id, and as `fork` counts.
    process: u32,
    forks: u32,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Tells leaders that the runtime ends.
    pub exit: Option<OwnedFd>,
    pub exiting: AtomicBool,
    /// Is told what tasks panic with for which nobody waits.
    on_panic: Option<OnPanic>,
    /// Somebody was told that there are no more threads.
    complained: AtomicBool,
    /// A task without a parent has ended. Waits under the lock of [`Central`].
    over: Condvar,
    /// As if the system had no more.
    #[cfg(test)]
    pub most_threads: AtomicUsize,
}

/// Workers that run tasks on some CPUs.
///
/// A process may have several. With user-monitored threads they use the same counters: on each CPU every one of them that has tasks keeps one worker that can go on, and the
/// operating system divides the CPU among these.
pub struct Runtime {
    handle: Handle,
}

/// What can be asked of a runtime. It ends when the [`Runtime`] is dropped, however many handles there are; then `run`, `spawn` and
/// `scope_here` panic.
#[derive(Clone)]
pub struct Handle {
    pub(crate) shared: Arc<Shared>,
}

impl std::ops::Deref for Runtime {
    type Target = Handle;

    fn deref(&self) -> &Handle {
        &self.handle
    }
}

impl Runtime {
    /// [`Builder::from_environment`], built.
    pub fn new() -> io::Result<Runtime> {
        Builder::from_environment().build()
    }

    pub(crate) fn start(
        monitor: Monitor,
        cpus: Vec<Arc<Cpu>>,
        queue: Guarded,
        limits: Limits,
        on_panic: Option<OnPanic>,
    ) -> io::Result<Runtime> {
        if cpus.is_empty() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no CPUs"));
        }
        let mode = if monitor == Monitor::Nobody { Mode::Baseline } else { Mode::Umt };
        let count = cpus.len();
        let shared = Arc::new(Shared {
            mode,
            cpus,
            central: Mutex::new(Central::new(queue, count)),
            local: Local::new(count),
            busy: (0..count).map(|_| AtomicUsize::new(1)).collect(),
            statistics: Statistics::default(),
            limits,
            monitor,
            process: std::process::id(),
            forks: fork::watch()?,
            threads: Mutex::default(),
            exit: if mode == Mode::Umt { Some(sys::event_fd()?) } else { None },
            exiting: AtomicBool::new(false),
            on_panic,
            complained: AtomicBool::new(false),
            over: Condvar::new(),
            #[cfg(test)]
            most_threads: AtomicUsize::new(usize::MAX),
        });
        if mode == Mode::Umt {
            process::enter(&shared);
        }
        let runtime = Runtime { handle: Handle { shared: shared.clone() } };
        if mode == Mode::Umt {
            for group in shared.cpus.iter().map(|cpu| cpu.group).collect::<BTreeSet<_>>() {
                let leader = leader::Leader::new(shared.clone(), group)?;
                shared.spawn(format!("leader {group}"), move || leader.live())?;
            }
        }
        for cpu in 0..count {
            shared.begin(Worker::new(cpu), None)?;
        }
        Ok(runtime)
    }

    /// For who must not end it.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }
}

impl Handle {
    /// A thread is about to make a task without a parent: from now on the runtime does not end before that has.
    pub(crate) fn enter(&self) {
        assert_eq!(self.shared.process, std::process::id(), "a child of fork has no threads of its parent's runtime");
        let mut central = lock(&self.shared.central);
        assert!(!central.exiting, "the runtime has ended");
        central.roots += 1;
    }

    /// Whether the kernel tells it of threads that wait.
    pub fn mode(&self) -> Mode {
        self.shared.mode
    }

    /// How many CPUs have workers.
    pub fn cpus(&self) -> usize {
        self.shared.cpus.len()
    }

    /// The most workers that there can be, those that wait in the kernel or in taskwait among them.
    pub fn most_workers(&self) -> usize {
        self.shared.most_workers()
    }

    /// What it has done so far.
    pub fn statistics(&self) -> &Statistics {
        &self.shared.statistics
    }

    /// Whether the caller is one of its tasks.
    pub fn is_current(&self) -> bool {
        current().is_some_and(|(shared, ..)| Arc::ptr_eq(&shared, &self.shared))
    }

    /// Runs `main` as a task, and returns when that and all its children have ended. If one has panicked, this panics with that.
    pub fn run<T: Send>(&self, main: impl FnOnce() -> T + Send) -> T {
        if let Some((shared, worker, task)) = current() {
            if Arc::ptr_eq(&shared, &self.shared) {
                return shared.nested(&worker, &task, |_| main());
            }
        }
        self.enter();
        let result = Mutex::new(None);
        let body = || *lock(&result) = Some(main());
        let body: Box<dyn FnOnce() + Send + '_> = Box::new(body);
        // SAFETY: the body is called, or dropped, before the task has ended, and this returns after that: what it borrows lives longer.
        let body: Body = unsafe { std::mem::transmute(body) };
        let root = Task::new(None, 0, Some(body));
        self.shared.submit(root.clone(), 0);
        self.shared.wait_until_over(&root);
        if let Some(panic) = root.take_panic() {
            resume_unwind(panic);
        }
        let result = lock(&result).take();
        result.expect("a task that has not panicked has returned")
    }

    /// Makes a task for which nobody waits, from any thread. The runtime does not end before it has. If it panics, [`Builder::on_panic`] is told.
    pub fn spawn(&self, body: impl FnOnce() + Send + 'static) {
        self.enter();
        let shared = self.shared.clone();
        let told = move || match (catch_unwind(AssertUnwindSafe(body)), &shared.on_panic) {
            (Err(panic), Some(told)) => told(panic),
            (Err(panic), None) => resume_unwind(panic),
            (Ok(()), _) => {}
        };
        self.shared.submit(Task::new(None, 0, Some(Box::new(told))), 0);
    }

    /// That of the calling task.
    pub fn current() -> Option<Handle> {
        let (shared, ..) = current()?;
        Some(Handle { shared })
    }
}

impl Drop for Runtime {
    /// Waits for all tasks, also those that other threads wait for or that nobody does ([`Handle::spawn`]), and ends its threads. In one of its own tasks or scopes it does not
    /// wait: the runtime ends when this task and the others have. In a child of fork it does nothing.
    fn drop(&mut self) {
        let shared = self.handle.shared.clone();
        if shared.process != std::process::id() {
            // Its locks may be held by threads that are not here.
            std::mem::forget(shared);
        } else if is_needed_by(&shared) {
            let end = move || shared.end();
            if let Err(error) = std::thread::Builder::new().name("end".into()).spawn(end) {
                let _ = writeln!(io::stderr(), "cob-tasks: no thread to end the runtime, its workers stay: {error}");
            }
        } else {
            wait_elsewhere(|| shared.end());
        }
    }
}

impl Shared {
    fn end(self: &Arc<Self>) {
        let shared = self;
        let pool = {
            let mut central = lock(&shared.central);
            while central.roots > 0 {
                central = shared.over.wait(central).unwrap_or_else(PoisonError::into_inner);
            }
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
        if shared.mode == Mode::Umt {
            process::leave(shared, |cpu| {
                debug_assert_eq!(cpu.refresh(), 0, "ready workers of CPU {} when all have ended", cpu.number);
            });
        }
    }
}

impl Shared {
    fn spawn(&self, name: String, live: impl FnOnce() + Send + 'static) -> io::Result<()> {
        // Held over both: who ends the runtime finds it.
        let mut threads = lock(&self.threads);
        #[cfg(test)]
        if threads.len() >= self.most_threads.load(SeqCst) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        threads.push(std::thread::Builder::new().name(name).spawn(live)?);
        Ok(())
    }

    /// Gives a worker its thread.
    fn begin(self: &Arc<Self>, worker: Arc<Worker>, wake: Option<Wake>) -> io::Result<()> {
        let shared = self.clone();
        self.statistics.workers.fetch_add(1, Relaxed);
        self.spawn(format!("worker {}", worker.cpu()), move || worker.live(shared, wake))
    }

    /// Whether its threads are this process's.
    pub fn is_of_this_process(&self) -> bool {
        self.forks == fork::count()
    }

    /// A closure that was called in a task or a scope has returned: ends the process if that was in a child of fork.
    pub fn end_child_of_fork(&self) {
        if !self.is_of_this_process() {
            let _ = writeln!(io::stderr(), "cob-tasks: a child of fork has returned from a task of its parent");
            std::process::abort();
        }
    }

    /// The most workers that there can be.
    pub fn most_workers(&self) -> usize {
        self.limits.workers_per_cpu * self.cpus.len()
    }

    pub fn shares_a_cpu(&self, other: &Shared) -> bool {
        self.cpus.iter().any(|cpu| other.cpus.iter().any(|theirs| Arc::ptr_eq(cpu, theirs)))
    }

    /// Whether a CPU could do with another worker.
    pub fn is_free(&self, cpu: usize) -> bool {
        self.busy[cpu].load(SeqCst) < self.limits.threads_per_cpu || self.cpus[cpu].stalls()
    }

    /// A CPU that could do with another worker.
    pub fn free_cpu(&self, preferred: usize) -> Option<usize> {
        let free = |&cpu: &usize| self.is_free(cpu);
        Some(preferred).filter(free).or_else(|| (0..self.cpus.len()).find(free))
    }

    /// Whether nobody has any CPU.
    pub fn all_free(&self) -> bool {
        self.busy.iter().all(|busy| busy.load(SeqCst) == 0)
    }

    /// A worker that has this CPU is about to sleep. Under the lock of [`Central`].
    pub fn leave(&self, cpu: usize) {
        self.busy[cpu].fetch_sub(1, SeqCst);
    }

    /// Reads the counter of a CPU. How many workers there can go on.
    pub fn refresh(&self, cpu: usize) -> i64 {
        let ready = self.cpus[cpu].refresh();
        process::tell_others(self, &self.cpus[cpu]);
        ready
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

    /// A half was put on this CPU's list: another CPU may be free.
    pub fn offer(self: &Arc<Self>, cpu: usize) {
        if let Some(free) = self.free_cpu(cpu) {
            self.fill(free);
        }
    }

    pub fn fill(self: &Arc<Self>, cpu: usize) {
        let mut wakings = Vec::new();
        lock(&self.central).fill(self, cpu, &mut wakings);
        self.wake_all(wakings);
    }

    /// Another runtime has seen that this CPU stalls.
    pub fn fill_counted(self: &Arc<Self>, cpu: &Arc<Cpu>) {
        if let Some(index) = self.cpus.iter().position(|own| Arc::ptr_eq(own, cpu)) {
            self.fill(index);
        }
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
                        self.do_without(cpu, task, &error);
                    }
                }
            }
        }
    }

    /// There is no thread for a new worker on this CPU: its task waits for a worker that there is.
    fn do_without(self: &Arc<Self>, cpu: usize, task: Option<Arc<Task>>, error: &io::Error) {
        self.statistics.workers.fetch_sub(1, Relaxed);
        if !self.complained.swap(true, SeqCst) {
            let _ = writeln!(io::stderr(), "cob-tasks: no new worker: {error}");
        }
        let mut central = lock(&self.central);
        self.leave(cpu);
        central.bound[cpu] -= 1;
        self.cpus[cpu].note_arrived();
        let Some(task) = task else { return };
        match central.stand_in(self, &task) {
            Some(worker) => {
                central.place(self, &worker, cpu);
                self.cpus[cpu].note_scheduled();
                drop(central);
                worker.wake(Wake::Run(task));
            }
            None => central.queue.push(Ready(task), cpu),
        }
    }

    /// A task without a parent has ended.
    pub fn note_over(&self) {
        lock(&self.central).roots -= 1;
        self.over.notify_all();
    }

    /// For who is no task of this runtime.
    pub fn wait_until_over(&self, root: &Task) {
        wait_elsewhere(|| {
            let mut central = lock(&self.central);
            while !root.has_ended() {
                central = self.over.wait(central).unwrap_or_else(PoisonError::into_inner);
            }
        });
    }
}
