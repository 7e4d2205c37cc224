//! What a program of data-parallel loops wants: tasks that borrow from who makes them.

use crate::{task::Body, worker, TaskBuilder};
use std::{cell::Cell, marker::PhantomData, sync::Mutex};

/// Makes tasks that may borrow what lives longer than the scope.
pub struct Scope<'scope> {
    _invariant: PhantomData<Cell<&'scope ()>>,
}

impl<'scope> Scope<'scope> {
    /// Makes a task that ends before the scope does.
    pub fn spawn(&self, body: impl FnOnce() + Send + 'scope) {
        let body: Box<dyn FnOnce() + Send + 'scope> = Box::new(body);
        // SAFETY: `scope` returns, also by a panic, only after all tasks made in it have ended: what the body borrows lives longer.
        let body: Body = unsafe { std::mem::transmute(body) };
        TaskBuilder::default().make(body);
    }
}

/// Calls `work` with a scope, and returns when all tasks made there have ended.
///
/// # Panics
/// With what `work` or one of the tasks has panicked with; outside of a task.
pub fn scope<'scope, T>(work: impl FnOnce(&Scope<'scope>) -> T) -> T {
    let (shared, owner, task) = worker::current().expect("in a task: Runtime::run makes the first");
    shared.nested(&owner, &task, || work(&Scope { _invariant: PhantomData }))
}

/// Runs both, if another worker has time at the same time.
pub fn join<A: Send, B: Send>(first: impl FnOnce() -> A + Send, second: impl FnOnce() -> B + Send) -> (A, B) {
    let result = Mutex::new(None);
    let first = scope(|scope| {
        scope.spawn(|| *crate::task::lock(&result) = Some(second()));
        first()
    });
    let second = crate::task::lock(&result).take();
    (first, second.expect("its task has ended"))
}

/// Calls `work` with each item, `grain` items a task.
pub fn for_each<T: Sync>(items: &[T], grain: usize, work: impl Fn(&T) + Sync) {
    scope(|scope| {
        for piece in items.chunks(grain.max(1)) {
            let work = &work;
            scope.spawn(move || piece.iter().for_each(work));
        }
    });
}
