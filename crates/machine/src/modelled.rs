//! The mutex of the model checker, in the shape of `spin`'s: `--cfg loom_locks`, for tests that try all orders of what CPUs of one kernel
//! do to each other (sched/tests/loom.rs).

use loom::sync;

#[derive(Default)]
pub struct Mutex<T: ?Sized>(sync::Mutex<T>);

pub type MutexGuard<'a, T> = sync::MutexGuard<'a, T>;

impl<T> Mutex<T> {
    pub fn new(value: T) -> Self {
        Mutex(sync::Mutex::new(value))
    }

    pub fn into_inner(self) -> T {
        self.0.into_inner().expect("no thread of a model goes on after a panic")
    }
}

impl<T: ?Sized> Mutex<T> {
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().expect("no thread of a model goes on after a panic")
    }

    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock().ok()
    }

    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().expect("no thread of a model goes on after a panic")
    }
}
