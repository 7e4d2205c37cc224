//! A task: what it does, what it waits for, and who waits for it.

use crate::{region::Domain, worker::Worker};
use std::{
    any::Any,
    sync::{
        atomic::{AtomicUsize, Ordering::SeqCst},
        Arc, Mutex, PoisonError,
    },
};

pub(crate) type Body = Box<dyn FnOnce() + Send>;

/// Locks a mutex whose data are right whenever it is free, also after a panic.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Drops what nobody is told of. That may panic again.
fn discard(panic: Box<dyn Any + Send>) {
    drop(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(panic))));
}

impl Drop for Task {
    /// A task may be the last that holds its parent, and so on: a program decides how deep that goes.
    fn drop(&mut self) {
        if let Some(panic) = self.take_panic() {
            discard(panic);
        }
        let mut above = self.parent.take();
        while let Some(mut unused) = above.and_then(Arc::into_inner) {
            above = unused.parent.take();
        }
    }
}

/// A unit of work. It *ends* when its body has returned and all its children have ended.
pub(crate) struct Task {
    pub priority: i32,
    pub parent: Option<Arc<Task>>,
    /// It is a join: the two closures run in it, and each that makes tasks is a child of it for these (`worker::current_parent`).
    pub is_join: bool,
    body: Mutex<Option<Body>>,
    /// Tasks that must end before it begins, and one while it is being entered.
    blockers: AtomicUsize,
    /// Tasks that wait for its end; None: it has ended.
    successors: Mutex<Option<Vec<Arc<Task>>>>,
    /// Its body, if that has not returned, and children that have not ended.
    open: AtomicUsize,
    /// What its children use.
    pub domain: Mutex<Domain<Task>>,
    /// The worker that waits until only its body is open (taskwait).
    waiter: Mutex<Option<Arc<Worker>>>,
    /// What the first of it and its children has panicked with.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

impl Task {
    pub fn new(parent: Option<Arc<Task>>, priority: i32, body: Option<Body>) -> Arc<Task> {
        Task::make(parent, priority, body, false)
    }

    /// The second half of a join. Beside its body, who joins keeps it open, and waits as if he were the body.
    pub fn half(parent: &Arc<Task>, body: Body) -> Arc<Task> {
        Task::make(Some(parent.clone()), parent.priority, Some(body), true)
    }

    fn make(parent: Option<Arc<Task>>, priority: i32, body: Option<Body>, is_join: bool) -> Arc<Task> {
        if let Some(parent) = &parent {
            parent.open.fetch_add(1, SeqCst);
        }
        Arc::new(Task {
            priority,
            parent,
            is_join,
            body: Mutex::new(body),
            blockers: AtomicUsize::new(usize::from(!is_join)),
            successors: Mutex::new(Some(Vec::new())),
            open: AtomicUsize::new(1 + usize::from(is_join)),
            domain: Mutex::default(),
            waiter: Mutex::new(None),
            panic: Mutex::new(None),
        })
    }

    /// Whether it is a child of `other`, or a child's child, and so on.
    pub fn is_below(&self, other: &Arc<Task>) -> bool {
        let mut above = self.parent.as_ref();
        while let Some(task) = above {
            if Arc::ptr_eq(task, other) {
                return true;
            }
            above = task.parent.as_ref();
        }
        false
    }

    /// It must not begin before `other` has ended.
    pub fn wait_for(self: &Arc<Self>, other: &Task) {
        if let Some(successors) = &mut *lock(&other.successors) {
            if successors.last().is_none_or(|last| !Arc::ptr_eq(last, self)) {
                self.blockers.fetch_add(1, SeqCst);
                successors.push(self.clone());
            }
        }
    }

    /// One that it waited for has ended, or it has been entered. True: it can begin.
    pub fn unblock(&self) -> bool {
        self.blockers.fetch_sub(1, SeqCst) == 1
    }

    pub fn take_body(&self) -> Option<Body> {
        lock(&self.body).take()
    }

    pub fn has_ended(&self) -> bool {
        lock(&self.successors).is_none()
    }

    /// No child of it is open, as far as this is asked while its body runs.
    pub fn has_only_its_body(&self) -> bool {
        self.open.load(SeqCst) == 1
    }

    /// The worker waits in taskwait until only the body is open. False: that is so now.
    pub fn set_waiter(&self, worker: &Arc<Worker>) -> bool {
        let mut waiter = lock(&self.waiter);
        *waiter = Some(worker.clone());
        // The last child closes first and looks for the waiter then: one of the two sees the other.
        let waits = !self.has_only_its_body();
        if !waits {
            *waiter = None;
        }
        waits
    }

    pub fn note_panic(&self, panic: Box<dyn Any + Send>) {
        let mut first = lock(&self.panic);
        match *first {
            None => *first = Some(panic),
            Some(_) => discard(panic),
        }
    }

    pub fn take_panic(&self) -> Option<Box<dyn Any + Send>> {
        lock(&self.panic).take()
    }

    /// Its body or a child is closed. If with that it has ended, so may its parent, and so on: gives to `ready` the tasks that can begin, and to `resume` the
    /// workers that waited. Answers whether a task without a parent has ended.
    pub fn close(self: &Arc<Self>, ready: &mut Vec<Arc<Task>>, resume: &mut Vec<Arc<Worker>>) -> bool {
        let mut task = self.clone();
        loop {
            match task.open.fetch_sub(1, SeqCst) {
                1 => {}
                2 => {
                    resume.extend(lock(&task.waiter).take());
                    return false;
                }
                _ => return false,
            }
            let successors = lock(&task.successors).take().unwrap_or_default();
            // It names the children, which name it.
            let domain = std::mem::take(&mut *lock(&task.domain));
            drop(domain);
            ready.extend(successors.into_iter().filter(|successor| successor.unblock()));
            let Some(parent) = task.parent.clone() else { return true };
            if let Some(panic) = task.take_panic() {
                parent.note_panic(panic);
            }
            task = parent;
        }
    }
}
