//! Tasks of all kernels on one thread; the seed picks which goes on.

use crate::world::World;
use machine::{BoxFuture, KernelId, Spawner};
use std::{
    collections::HashMap,
    future::Future,
    sync::{
        atomic::{AtomicU64, Ordering},
        Arc, Mutex,
    },
    task::{Context, Wake, Waker},
};

/// Tasks that can go on, by number.
#[derive(Default)]
struct Ready(Mutex<Vec<u64>>);

struct TaskWaker {
    task: u64,
    ready: Arc<Ready>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        let mut ready = self.ready.0.lock().expect("no panic while queueing");
        if !ready.contains(&self.task) {
            ready.push(self.task);
        }
    }
}

/// All tasks.
#[derive(Default)]
pub struct Executor {
    tasks: Mutex<HashMap<u64, BoxFuture<'static, ()>>>,
    ready: Arc<Ready>,
    next: AtomicU64,
}

impl Executor {
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    pub fn spawn(&self, task: BoxFuture<'static, ()>) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.tasks.lock().expect("no panic while spawning").insert(number, task);
        self.ready.0.lock().expect("no panic while queueing").push(number);
    }

    /// Starts `work`; its result appears in the handle.
    pub fn start<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> Handle<T> {
        let slot = Arc::new(Mutex::new(None));
        let result = slot.clone();
        self.spawn(Box::pin(async move {
            let value = work.await;
            *result.lock().expect("no panic while storing") = Some(value);
        }));
        Handle(slot)
    }

    /// Tasks that could go on now.
    pub fn ready(&self) -> usize {
        self.ready.0.lock().expect("no panic while queueing").len()
    }

    /// Polls one of them.
    pub fn step(&self, world: &World) {
        let number = {
            let mut ready = self.ready.0.lock().expect("no panic while queueing");
            let index = world.rng.below(ready.len());
            ready.swap_remove(index)
        };
        // Taken out while it runs: it may spawn.
        let Some(mut task) = self.tasks.lock().expect("no panic while polling").remove(&number) else { return };
        let waker = Waker::from(Arc::new(TaskWaker { task: number, ready: self.ready.clone() }));
        if task.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
            self.tasks.lock().expect("no panic while polling").insert(number, task);
        }
    }

    /// Drops every task, in no order.
    pub fn clear(&self) {
        let tasks = std::mem::take(&mut *self.tasks.lock().expect("no panic while clearing"));
        drop(tasks);
    }
}

/// The result of a started task.
pub struct Handle<T>(Arc<Mutex<Option<T>>>);

impl<T> Handle<T> {
    /// The result, if it is there.
    pub fn take(&self) -> Option<T> {
        self.0.lock().expect("no panic while taking").take()
    }
}

/// Spawns for one kernel.
pub struct SimSpawner {
    pub executor: Arc<Executor>,
    pub kernel: KernelId,
}

impl Spawner for SimSpawner {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.executor.spawn(task);
    }
}
