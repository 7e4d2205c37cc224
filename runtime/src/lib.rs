//! Tasks on every CPU, also while they wait in the kernel.
//!
//! A task is a closure with what it reads and writes ([`task`]); the runtime runs it when the tasks before it that use the same have ended. A worker thread is bound to
//! each CPU. Where the kernel tells a process of threads that wait (user-monitored threads, Cob: docs/umt.md), another worker takes the CPU while a task waits for a file, a
//! page or a lock; elsewhere the CPU idles, as with other runtimes, and everything else is the same.
//!
//! ```
//! let runtime = cob_tasks::Runtime::new().unwrap();
//! let sum = runtime.run(|| {
//!     let (a, b) = cob_tasks::join(|| (1..1000u64).sum::<u64>(), || (1000..2000u64).sum::<u64>());
//!     a + b
//! });
//! assert_eq!(sum, (1..2000).sum());
//! ```
//!
//! The environment chooses: see [`Builder::from_environment`].

mod bpf;
mod builder;
mod c;
mod central;
mod cpu;
mod fork;
mod guard;
mod leader;
mod local;
mod monitor;
mod process;
mod region;
mod runtime;
mod schedule;
mod scope;
mod statistics;
mod sys;
mod task;
#[cfg(test)]
mod tests;
mod topology;
mod worker;

pub use builder::{Builder, Mode, Policy};
pub use region::{Access, Region};
pub use runtime::{Handle, Runtime};
pub use schedule::{Fifo, Lifo, Locality, Ready, Schedule};
pub use scope::{for_each, join, join_context, scope, Scope};
pub use statistics::Statistics;

use task::{Body, Task};

/// A task that is about to be made, as a child of the one that runs.
#[derive(Default)]
pub struct TaskBuilder {
    uses: Vec<(Region, Access)>,
    priority: i32,
}

/// Begins to describe a task.
pub fn task() -> TaskBuilder {
    TaskBuilder::default()
}

impl TaskBuilder {
    /// It reads the region.
    pub fn reads(self, region: impl Into<Region>) -> TaskBuilder {
        self.uses(region, Access::In)
    }

    /// It writes the region.
    pub fn writes(self, region: impl Into<Region>) -> TaskBuilder {
        self.uses(region, Access::Out)
    }

    /// It reads and writes the region.
    pub fn changes(self, region: impl Into<Region>) -> TaskBuilder {
        self.uses(region, Access::InOut)
    }

    /// It uses the region so.
    pub fn uses(mut self, region: impl Into<Region>, access: Access) -> TaskBuilder {
        self.uses.push((region.into(), access));
        self
    }

    /// Of ready tasks those of higher priority go first; 0 if nothing is said.
    pub fn priority(mut self, priority: i32) -> TaskBuilder {
        self.priority = priority;
        self
    }

    /// Makes the task.
    ///
    /// # Panics
    /// Outside of a task: [`Runtime::run`] makes the first.
    pub fn spawn(self, body: impl FnOnce() + Send + 'static) {
        let (shared, worker, parent) =
            worker::current_parent().expect("tasks are made by tasks: Runtime::run makes the first");
        let body: Body = Box::new(body);
        let task = Task::new(Some(parent.clone()), self.priority, Some(body));
        if !self.uses.is_empty() {
            let mut domain = task::lock(&parent.domain);
            for (region, access) in self.uses {
                domain.enter(&task, region, access, |other| task.wait_for(other));
            }
            domain.forget_at_times(Task::has_ended);
        }
        shared.submit(task, worker.cpu());
    }
}

/// Makes a task that uses nothing that others use.
pub fn spawn(body: impl FnOnce() + Send + 'static) {
    task().spawn(body);
}

/// The number of the worker that runs the calling task, below [`Runtime::most_workers`]. None: the caller is no task.
pub fn worker_number() -> Option<usize> {
    Some(worker::current()?.1.number())
}

/// Runs one ready task, if there is one. None: the caller is no task.
pub fn run_another() -> Option<bool> {
    let (shared, worker, _) = worker::current()?;
    let ready = task::lock(&shared.central).pop(&shared, worker.cpu());
    let Some(Ready(task)) = ready else { return Some(false) };
    shared.execute(&worker, &task);
    shared.refresh(worker.cpu());
    Some(true)
}

/// Waits until all children that the running task has made have ended. Meanwhile the worker runs children that can begin. Each closure of a [`join`] counts as a task.
pub fn taskwait() {
    // A closure of a join that has made no task has none to wait for.
    if let Some((shared, worker, task)) = worker::current().filter(|(.., task)| !task.is_join) {
        worker.wait_for_children(&shared, &task);
    }
}
