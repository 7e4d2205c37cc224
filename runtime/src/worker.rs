//! Workers: threads bound to a CPU that run tasks, one after the other, and sleep in the pool when there is nothing to do.

use crate::{
    cpu::Cpu,
    guard::or_abort,
    runtime::{Shared, Waking},
    schedule::Ready,
    sys,
    task::{lock, Task},
};
use std::{
    cell::RefCell,
    panic::{catch_unwind, resume_unwind, AssertUnwindSafe},
    sync::{
        atomic::{AtomicI32, AtomicUsize, Ordering::*},
        Arc, Condvar, Mutex, PoisonError,
    },
};

/// What a sleeping worker is woken for.
pub(crate) enum Wake {
    /// To run this task.
    Run(Arc<Task>),
    /// To go on with the task in which it waits (taskwait).
    Resume,
    /// To end.
    Exit,
}

pub(crate) struct Worker {
    /// Index of the CPU that it is bound to. Changes while it sleeps, under the lock of [`Central`].
    pub cpu: AtomicUsize,
    /// Its thread's id; 0: it has not begun yet.
    thread: AtomicI32,
    /// Counted from 0 as workers begin.
    number: AtomicUsize,
    /// The CPU where it was last counted as one that can go on. (The kernel knows; a test counts as it would.)
    counted: AtomicUsize,
    wake: Mutex<Option<Wake>>,
    woken: Condvar,
}

thread_local! {
    /// The runtime, worker and task of this thread. The innermost task last: in taskwait a worker runs children.
    static CURRENT: RefCell<Option<Current>> = const { RefCell::new(None) };
    /// Other runtimes in whose scopes it is (`Handle::scope_here`).
    static GUEST_OF: RefCell<Vec<Arc<Shared>>> = const { RefCell::new(Vec::new()) };
}

struct Current {
    shared: Arc<Shared>,
    worker: Arc<Worker>,
    tasks: Vec<Arc<Task>>,
}

impl Current {
    /// The innermost task. None in a child of fork, which has this memory and is no worker.
    fn task(&self) -> Option<&Arc<Task>> {
        self.tasks.last().filter(|_| self.shared.is_of_this_process())
    }
}

/// The runtime and the task that this thread works for.
pub(crate) fn current() -> Option<(Arc<Shared>, Arc<Worker>, Arc<Task>)> {
    CURRENT.with_borrow(|current| {
        let current = current.as_ref()?;
        Some((current.shared.clone(), current.worker.clone(), current.task()?.clone()))
    })
}

/// The same for who is about to make a task. A closure of a join becomes a task of its own with that: what it makes and waits for is not the other closure's.
pub(crate) fn current_parent() -> Option<(Arc<Shared>, Arc<Worker>, Arc<Task>)> {
    let (shared, worker, task) = current()?;
    if !task.is_join {
        return Some((shared, worker, task));
    }
    let closure = Task::new(Some(task.clone()), task.priority, None);
    CURRENT.with_borrow_mut(|current| current.as_mut().map(|current| current.tasks.push(closure.clone())));
    Some((shared, worker, closure))
}

/// Whether the runtime can't end before the calling thread has returned from where it is: it is a worker, or in a scope.
pub(crate) fn is_needed_by(shared: &Arc<Shared>) -> bool {
    CURRENT.with_borrow(|current| current.as_ref().is_some_and(|current| Arc::ptr_eq(&current.shared, shared)))
        || GUEST_OF.with_borrow(|others| others.iter().any(|other| Arc::ptr_eq(other, shared)))
}

/// This thread is in a scope of a runtime that it does not work for while `work` runs. A panic of that is the answer.
pub(crate) fn as_guest<T>(shared: &Arc<Shared>, work: impl FnOnce() -> T) -> std::thread::Result<T> {
    GUEST_OF.with_borrow_mut(|others| others.push(shared.clone()));
    let result = catch_unwind(AssertUnwindSafe(work));
    shared.end_child_of_fork();
    GUEST_OF.with_borrow_mut(|others| others.pop());
    result
}

/// This thread works for `task` while `work` runs. A panic of that is the answer.
pub(crate) fn within<T>(task: &Arc<Task>, work: impl FnOnce() -> T) -> std::thread::Result<T> {
    CURRENT.with_borrow_mut(|current| current.as_mut().map(|current| current.tasks.push(task.clone())));
    let result = catch_unwind(AssertUnwindSafe(work));
    let closure = CURRENT.with_borrow_mut(|current| {
        let Current { shared, worker, tasks } = current.as_mut()?;
        shared.end_child_of_fork();
        let closure = tasks.pop_if(|last| !Arc::ptr_eq(last, task));
        tasks.pop();
        Some((shared.clone(), worker.clone(), closure?))
    });
    if let Some((shared, worker, closure)) = closure {
        or_abort("the runtime", || shared.close(&closure, worker.cpu()));
    }
    result
}

/// Waits for another runtime. If the calling thread is a worker, its CPU is free meanwhile: the other runtime may wait for tasks of this one.
pub(crate) fn wait_elsewhere(wait: impl FnOnce()) {
    match current() {
        Some((shared, worker, _)) => worker.wait_outside(&shared, wait),
        None => wait(),
    }
}

impl Worker {
    pub fn new(cpu: usize) -> Arc<Worker> {
        Arc::new(Worker {
            cpu: AtomicUsize::new(cpu),
            thread: AtomicI32::new(0),
            number: AtomicUsize::new(0),
            counted: AtomicUsize::new(cpu),
            wake: Mutex::new(None),
            woken: Condvar::new(),
        })
    }

    pub fn cpu(&self) -> usize {
        self.cpu.load(SeqCst)
    }

    /// Its place among the workers of its runtime: less than `Runtime::most_workers`.
    pub fn number(&self) -> usize {
        self.number.load(SeqCst)
    }

    /// Binds its thread to a CPU; one that has not begun binds itself.
    pub fn bind(&self, cpu: &Cpu) {
        let thread = self.thread.load(SeqCst);
        if thread != 0 {
            // A CPU that has gone: then it stays where it is.
            let _ = sys::set_cpus(thread, &[cpu.number]);
        }
    }

    /// Wakes it. It sleeps, or is about to.
    pub fn wake(&self, wake: Wake) {
        *lock(&self.wake) = Some(wake);
        self.woken.notify_one();
    }

    fn sleep(&self, shared: &Shared) -> Wake {
        let mut wake = lock(&self.wake);
        let mut slept = false;
        loop {
            if let Some(wake) = wake.take() {
                let (old, new) = (self.counted.swap(self.cpu(), SeqCst), self.cpu());
                if !slept && old != new {
                    // It was woken, and with that moved, before it slept.
                    shared.monitor.sleeps(&shared.cpus[old], true);
                }
                if slept || old != new {
                    shared.monitor.sleeps(&shared.cpus[new], false);
                }
                // It may have been woken before it slept, and then no unblock says that it is here.
                shared.cpus[new].note_arrived();
                return wake;
            }
            if !slept {
                shared.monitor.sleeps(&shared.cpus[self.counted.load(SeqCst)], true);
                slept = true;
            }
            wake = self.woken.wait(wake).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The life of a worker. Only tasks may panic.
    pub fn live(self: Arc<Self>, shared: Arc<Shared>, first: Option<Wake>) {
        or_abort("the runtime", || self.work(shared, first));
    }

    fn work(self: Arc<Self>, shared: Arc<Shared>, first: Option<Wake>) {
        self.number.store(shared.statistics.begun.fetch_add(1, SeqCst), SeqCst);
        self.thread.store(sys::thread_id(), SeqCst);
        self.bind(&shared.cpus[self.cpu()]);
        shared.monitor.begin();
        shared.monitor.watch(&shared.cpus[self.cpu()], true);
        shared.cpus[self.cpu()].note_arrived();
        CURRENT.set(Some(Current { shared: shared.clone(), worker: self.clone(), tasks: Vec::new() }));
        let mut wake = first;
        loop {
            match wake.take() {
                Some(Wake::Exit) => break,
                Some(Wake::Run(task)) => {
                    shared.execute(&self, &task);
                    drop(task);
                    if shared.refresh(self.cpu()) > 1 {
                        wake = self.surrender(&shared);
                        if wake.is_some() {
                            continue;
                        }
                    }
                }
                // Only a worker in taskwait is woken for that.
                Some(Wake::Resume) | None => {}
            }
            wake = Some(self.next(&shared));
        }
        CURRENT.set(None);
        shared.monitor.watch(&shared.cpus[self.cpu()], false);
    }

    /// Finds something to do, or sleeps in the pool until somebody has.
    fn next(self: &Arc<Self>, shared: &Arc<Shared>) -> Wake {
        let cpu = self.cpu();
        let mut wakings = Vec::new();
        {
            let mut central = lock(&shared.central);
            if central.exiting {
                return Wake::Exit;
            }
            if let Some(owner) = central.resumable.pop_front() {
                // Who owns a started task takes this CPU, and this worker goes into the pool.
                central.place(shared, &owner, cpu);
                central.rest(shared, self);
                wakings.push(Waking::Worker(owner, Wake::Resume));
            } else if let Some(Ready(task)) = central.pop(shared, cpu) {
                return Wake::Run(task);
            } else {
                central.rest(shared, self);
                // A half may have come meanwhile, whose owner has not seen that this CPU is free (local.rs).
                central.fill(shared, cpu, &mut wakings);
            }
        }
        shared.wake_all(wakings);
        self.sleep(shared)
    }

    /// Other workers of its CPU can go on: this one, which has no task, goes into the pool. Not if it is the only one of this runtime there: the others are
    /// another's.
    fn surrender(self: &Arc<Self>, shared: &Arc<Shared>) -> Option<Wake> {
        {
            let mut central = lock(&shared.central);
            if central.exiting {
                return Some(Wake::Exit);
            }
            if shared.busy[self.cpu()].load(SeqCst) < 2 {
                return None;
            }
            central.rest(shared, self);
        }
        shared.statistics.surrenders.fetch_add(1, Relaxed);
        Some(self.sleep(shared))
    }

    /// Leaves its CPU while it waits for something that is not of its runtime.
    fn wait_outside(self: &Arc<Self>, shared: &Arc<Shared>, wait: impl FnOnce()) {
        let mut wakings = Vec::new();
        {
            let mut central = lock(&shared.central);
            shared.leave(self.cpu());
            central.fill(shared, self.cpu(), &mut wakings);
        }
        shared.wake_all(wakings);
        let cpu = &shared.cpus[self.cpu()];
        shared.monitor.sleeps(cpu, true);
        wait();
        shared.monitor.sleeps(cpu, false);
        let mut wakings = Vec::new();
        {
            let mut central = lock(&shared.central);
            central.resumable.push_back(self.clone());
            if let Some(free) = shared.free_cpu(self.cpu()) {
                central.fill(shared, free, &mut wakings);
            }
        }
        shared.wake_all(wakings);
        // Nobody gives a task to who is neither in the pool nor parked: this is Wake::Resume.
        self.sleep(shared);
    }

    /// taskwait: runs children of `task`, and theirs, and sleeps while the last ones run elsewhere.
    pub fn wait_for_children(self: &Arc<Self>, shared: &Arc<Shared>, task: &Arc<Task>) {
        while !task.has_only_its_body() {
            let mut wakings = Vec::new();
            {
                let mut central = lock(&shared.central);
                let child = central.queue.take_below(task).or_else(|| shared.local.take(|half| half.0.is_below(task)));
                if let Some(Ready(child)) = child {
                    drop(central);
                    shared.execute(self, &child);
                    shared.refresh(self.cpu());
                    continue;
                }
                if !task.set_waiter(self) {
                    return;
                }
                central.park(shared, self, task);
                central.fill(shared, self.cpu(), &mut wakings);
            }
            shared.wake_all(wakings);
            // Something else only if nobody else can do it: `Central::stand_in`.
            if let Wake::Run(other) = self.sleep(shared) {
                shared.execute(self, &other);
                shared.refresh(self.cpu());
            }
        }
    }
}

impl Shared {
    /// Runs a task, and makes ready what waited for its end.
    pub fn execute(self: &Arc<Self>, worker: &Arc<Worker>, task: &Arc<Task>) {
        if let Some(body) = task.take_body() {
            self.statistics.tasks.fetch_add(1, Relaxed);
            if let Err(panic) = within(task, body) {
                task.note_panic(panic);
            }
        }
        self.close(task, worker.cpu());
    }

    /// The body of a task, or of a scope, is over.
    pub fn close(self: &Arc<Self>, task: &Arc<Task>, cpu: usize) {
        let (mut ready, mut resume) = (Vec::new(), Vec::new());
        let is_over = task.close(&mut ready, &mut resume);
        if !ready.is_empty() || !resume.is_empty() {
            let mut wakings = Vec::new();
            {
                let mut central = lock(&self.central);
                for worker in &resume {
                    central.resume(self, worker, &mut wakings);
                }
                for task in ready {
                    central.submit(self, Ready(task), cpu, &mut wakings);
                }
            }
            self.wake_all(wakings);
        }
        if is_over {
            self.note_over();
        }
    }

    /// Runs `work` as if it were a task of its own, whose children end before this returns.
    pub fn nested<T>(
        self: &Arc<Self>,
        worker: &Arc<Worker>,
        parent: &Arc<Task>,
        work: impl FnOnce(&Arc<Task>) -> T,
    ) -> T {
        let task = Task::new(Some(parent.clone()), 0, None);
        let result = within(&task, || work(&task));
        or_abort("the runtime", || worker.wait_for_children(self, &task));
        let panic = task.take_panic();
        or_abort("the runtime", || self.close(&task, worker.cpu()));
        match (result, panic) {
            (Err(panic), _) | (Ok(_), Some(panic)) => resume_unwind(panic),
            (Ok(value), None) => value,
        }
    }
}
