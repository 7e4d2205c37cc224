//! What a program of data-parallel loops wants: tasks that borrow from who makes them.

use crate::{
    guard::or_abort,
    runtime::{Handle, Shared},
    schedule::Ready,
    task::{lock, Body, Task},
    worker::{self, within},
};
use std::{
    marker::PhantomData,
    panic::resume_unwind,
    sync::{Arc, Mutex},
};

/// Makes tasks that may borrow what lives longer than the scope. Its tasks get it, and can make more.
pub struct Scope<'scope> {
    shared: Arc<Shared>,
    /// The parent of the scope's tasks.
    task: Arc<Task>,
    _invariant: PhantomData<fn(&'scope ()) -> &'scope ()>,
}

impl<'scope> Scope<'scope> {
    /// Makes a task that ends before the scope does. May be called by tasks of the scope, and any thread that they know of.
    pub fn spawn(&self, body: impl FnOnce(&Scope<'scope>) + Send + 'scope) {
        assert!(self.shared.is_of_this_process(), "a child of fork has no threads of its parent's runtime");
        let scope = Scope { shared: self.shared.clone(), task: self.task.clone(), _invariant: PhantomData };
        let body: Box<dyn FnOnce() + Send + 'scope> = Box::new(move || body(&scope));
        // SAFETY: the scope returns, also by a panic, only after all tasks made in it have ended: what the body borrows lives longer. Who calls this has a reference to
        // the scope, which nobody has after its end: there is no way to copy one.
        let body: Body = unsafe { std::mem::transmute(body) };
        let cpu = worker::current().filter(|(shared, ..)| Arc::ptr_eq(shared, &self.shared));
        let cpu = cpu.map_or(0, |(_, worker, _)| worker.cpu());
        self.shared.submit(Task::new(Some(self.task.clone()), 0, Some(body)), cpu);
    }

    /// The same. (rayon's is one that keeps the order, which the scheduler of the runtime decides here.)
    pub fn spawn_fifo(&self, body: impl FnOnce(&Scope<'scope>) + Send + 'scope) {
        self.spawn(body);
    }
}

impl std::fmt::Debug for Scope<'_> {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str("Scope")
    }
}

/// Calls `work` with a scope, and returns when all tasks made there have ended.
///
/// # Panics
/// With what `work` or one of the tasks has panicked with; outside of a task.
pub fn scope<'scope, T>(work: impl FnOnce(&Scope<'scope>) -> T) -> T {
    let (shared, owner, task) = worker::current().expect("in a task: Runtime::run makes the first");
    shared.nested(&owner, &task, |task| {
        work(&Scope { shared: shared.clone(), task: task.clone(), _invariant: PhantomData })
    })
}

impl Handle {
    /// As [`scope`], with `work` on the calling thread, whichever that is, and the tasks on this runtime's workers.
    pub fn scope_here<'scope, T>(&self, work: impl FnOnce(&Scope<'scope>) -> T) -> T {
        if self.is_current() {
            return scope(work);
        }
        self.enter();
        let shared = self.shared.clone();
        let task = Task::new(None, 0, None);
        let scope = Scope { shared: shared.clone(), task: task.clone(), _invariant: PhantomData };
        let result = worker::as_guest(&shared, || work(&scope));
        or_abort("the runtime", || {
            shared.close(&task, 0);
            shared.wait_until_over(&task);
        });
        match (result, task.take_panic()) {
            (Err(panic), _) | (Ok(_), Some(panic)) => resume_unwind(panic),
            (Ok(value), None) => value,
        }
    }
}

/// Runs both, if another worker has time at the same time, and then all tasks that they have made. Each is a task of its own, and regions order the children of one
/// task: what the one makes and what the other makes is not ordered.
///
/// # Panics
/// With what one of them has panicked with, after both have ended; outside of a task.
pub fn join<A: Send, B: Send>(first: impl FnOnce() -> A + Send, second: impl FnOnce() -> B + Send) -> (A, B) {
    join_context(|_| first(), |_| second())
}

/// The same; each is told whether another worker than the caller runs it.
pub fn join_context<A: Send, B: Send>(
    first: impl FnOnce(bool) -> A + Send,
    second: impl FnOnce(bool) -> B + Send,
) -> (A, B) {
    let (shared, owner, parent) = worker::current().expect("in a task: Runtime::run makes the first");
    let answer = Mutex::new(None);
    let number = owner.number();
    let body = || {
        let moved = worker::current().is_none_or(|(_, worker, _)| worker.number() != number);
        *lock(&answer) = Some(second(moved));
    };
    let body: Box<dyn FnOnce() + Send + '_> = Box::new(body);
    // SAFETY: this returns, also by a panic, only after the half and all below it have ended: what the body borrows lives longer.
    let body: Body = unsafe { std::mem::transmute(body) };
    // Open as long as its body and the first half, which counts as the body of who waits.
    let half = Task::half(&parent, body);
    let cpu = owner.cpu();
    shared.local.put(cpu, Ready(half.clone()));
    shared.offer(cpu);
    let first = within(&half, || first(false));
    or_abort("the runtime", || {
        if shared.local.take_back(cpu, &half) {
            shared.execute(&owner, &half);
        }
        owner.wait_for_children(&shared, &half);
    });
    let panic = half.take_panic();
    or_abort("the runtime", || shared.close(&half, owner.cpu()));
    match (first, panic) {
        (Err(panic), _) | (Ok(_), Some(panic)) => resume_unwind(panic),
        (Ok(first), None) => {
            let second = lock(&answer).take();
            (first, second.expect("its task has ended"))
        }
    }
}

/// Calls `work` with each item, `grain` items a task.
pub fn for_each<T: Sync>(items: &[T], grain: usize, work: impl Fn(&T) + Sync) {
    scope(|scope| {
        for piece in items.chunks(grain.max(1)) {
            let work = &work;
            scope.spawn(move |_| piece.iter().for_each(work));
        }
    });
}
