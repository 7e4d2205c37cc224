//! Workers: threads bound to a CPU that run tasks, one after the other, and sleep in the pool when there is nothing to do.

use crate::{
    cpu::Cpu,
    runtime::{Central, Shared, Waking},
    schedule::Ready,
    sys,
    task::{lock, Task},
};
use std::{
    cell::RefCell,
    panic::{catch_unwind, AssertUnwindSafe},
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
    wake: Mutex<Option<Wake>>,
    woken: Condvar,
}

thread_local! {
    /// The runtime, worker and task of this thread. The innermost task last: in taskwait a worker runs children.
    static CURRENT: RefCell<Option<Current>> = const { RefCell::new(None) };
}

struct Current {
    shared: Arc<Shared>,
    worker: Arc<Worker>,
    tasks: Vec<Arc<Task>>,
}

/// The runtime and the task that this thread works for.
pub(crate) fn current() -> Option<(Arc<Shared>, Arc<Worker>, Arc<Task>)> {
    CURRENT.with_borrow(|current| {
        let Current { shared, worker, tasks } = current.as_ref()?;
        Some((shared.clone(), worker.clone(), tasks.last()?.clone()))
    })
}

/// This thread works for `task` while `work` runs.
pub(crate) fn within<T>(task: &Arc<Task>, work: impl FnOnce() -> T) -> T {
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            CURRENT.with_borrow_mut(|current| current.as_mut().map(|current| current.tasks.pop()));
        }
    }
    CURRENT.with_borrow_mut(|current| current.as_mut().map(|current| current.tasks.push(task.clone())));
    let _leave = Leave;
    work()
}

impl Worker {
    pub fn new(cpu: usize) -> Arc<Worker> {
        Arc::new(Worker {
            cpu: AtomicUsize::new(cpu),
            thread: AtomicI32::new(0),
            wake: Mutex::new(None),
            woken: Condvar::new(),
        })
    }

    pub fn cpu(&self) -> usize {
        self.cpu.load(SeqCst)
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
                let cpu = &shared.cpus[self.cpu()];
                if slept {
                    shared.monitor.sleeps(cpu, false);
                }
                // It may have been woken before it slept, and then no unblock says that it is here.
                cpu.note_arrived();
                return wake;
            }
            if !slept {
                shared.monitor.sleeps(&shared.cpus[self.cpu()], true);
                slept = true;
            }
            wake = self.woken.wait(wake).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The life of a worker.
    pub fn live(self: Arc<Self>, shared: Arc<Shared>, first: Option<Wake>) {
        self.thread.store(sys::thread_id(), SeqCst);
        self.bind(&shared.cpus[self.cpu()]);
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
                        wake = Some(self.surrender(&shared));
                        continue;
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
            } else if let Some(Ready(task)) = central.queue.pop(cpu) {
                return Wake::Run(task);
            } else {
                central.rest(shared, self);
            }
        }
        shared.wake_all(wakings);
        self.sleep(shared)
    }

    /// Other workers of its CPU can go on: this one, which has no task, goes into the pool.
    fn surrender(self: &Arc<Self>, shared: &Arc<Shared>) -> Wake {
        shared.statistics.surrenders.fetch_add(1, Relaxed);
        {
            let mut central = lock(&shared.central);
            if central.exiting {
                return Wake::Exit;
            }
            central.rest(shared, self);
        }
        self.sleep(shared)
    }

    /// taskwait: runs children of `task`, and theirs, and sleeps while the last ones run elsewhere.
    pub fn wait_for_children(self: &Arc<Self>, shared: &Arc<Shared>, task: &Arc<Task>) {
        while !task.has_only_its_body() {
            let mut wakings = Vec::new();
            {
                let mut central = lock(&shared.central);
                if let Some(Ready(child)) = central.queue.take(&mut |ready| ready.0.is_below(task)) {
                    drop(central);
                    shared.execute(self, &child);
                    shared.refresh(self.cpu());
                    continue;
                }
                if !task.set_waiter(self) {
                    return;
                }
                central.leave(shared, self.cpu());
                central.fill(shared, self.cpu(), &mut wakings);
            }
            shared.wake_all(wakings);
            self.sleep(shared);
        }
    }
}

impl Shared {
    /// Runs a task, and makes ready what waited for its end.
    pub fn execute(self: &Arc<Self>, worker: &Arc<Worker>, task: &Arc<Task>) {
        if let Some(body) = task.take_body() {
            self.statistics.tasks.fetch_add(1, Relaxed);
            if let Err(panic) = within(task, || catch_unwind(AssertUnwindSafe(body))) {
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
                for worker in resume {
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
}

impl Central {
    /// The worker leaves its CPU and sleeps in the pool.
    fn rest(&mut self, shared: &Shared, worker: &Arc<Worker>) {
        self.leave(shared, worker.cpu());
        self.pool.push(worker.clone());
    }

    /// A worker that has this CPU is about to sleep.
    fn leave(&mut self, _shared: &Shared, cpu: usize) {
        self.busy[cpu] -= 1;
    }
}
