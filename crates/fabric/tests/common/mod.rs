//! Kernels as threads: each has an endpoint, runs its tasks and drains, as an idle loop does.

use fabric::{local, Endpoint};
use machine::{BoxFuture, KernelId, Spawner};
use std::{
    boxed::Box,
    collections::VecDeque,
    future::Future,
    sync::{Arc, Mutex},
    task::{Context, Poll, Wake, Waker},
    vec::Vec,
};

/// A queue of runnable tasks.
#[derive(Default)]
pub struct Executor {
    runnable: Mutex<VecDeque<Arc<Task>>>,
}

pub struct Task {
    future: Mutex<Option<BoxFuture<'static, ()>>>,
    executor: Arc<Executor>,
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.executor.runnable.lock().unwrap().push_back(self.clone());
    }
}

pub struct Handle(pub Arc<Executor>);

impl Spawner for Handle {
    fn spawn(&self, future: BoxFuture<'static, ()>) {
        let task = Task { future: Mutex::new(Some(future)), executor: self.0.clone() };
        Arc::new(task).wake();
    }
}

impl Executor {
    /// Runs everything runnable; true if there was something.
    pub fn run(&self) -> bool {
        let mut ran = false;
        while self.run_one() {
            ran = true;
        }
        ran
    }

    /// Polls one task; false if none is runnable.
    pub fn run_one(&self) -> bool {
        let Some(task) = self.runnable.lock().unwrap().pop_front() else { return false };
        let waker = Waker::from(task.clone());
        let mut future = task.future.lock().unwrap();
        if let Some(mut pending) = future.take() {
            if pending.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
                *future = Some(pending);
            }
        }
        true
    }
}

/// A kernel that a test steps by hand.
#[derive(Clone)]
pub struct Kernel {
    pub endpoint: Arc<Endpoint>,
    pub executor: Arc<Executor>,
}

#[allow(dead_code)] // Each test file uses some of these.
impl Kernel {
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        Handle(self.executor.clone()).spawn(Box::pin(task));
    }

    pub fn step(&self) -> bool {
        let drained = self.endpoint.drain(usize::MAX) > 0;
        self.executor.run() || drained
    }
}

/// `count` kernels, all connected by lanes of `slots` slots.
#[allow(dead_code)]
pub fn kernels(count: usize, slots: usize) -> Vec<Kernel> {
    let ports = local::ports(count, slots, |_| ());
    let kernels: Vec<Kernel> = ports
        .into_iter()
        .enumerate()
        .map(|(id, port)| {
            let executor = Arc::new(Executor::default());
            let spawner = Arc::new(Handle(executor.clone()));
            let endpoint = Endpoint::new(KernelId(id as u16), count, Box::new(port), spawner);
            Kernel { endpoint, executor }
        })
        .collect();
    for kernel in &kernels {
        (0..count).for_each(|other| kernel.endpoint.add_peer(KernelId(other as u16)));
    }
    kernels
}

/// Steps all kernels until none has anything to do.
#[allow(dead_code)]
pub fn settle(kernels: &[Kernel]) {
    while kernels.iter().fold(false, |busy, kernel| kernel.step() | busy) {}
}

/// The value of a future that needs no more stepping.
#[allow(dead_code)]
pub fn ready<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = std::pin::pin!(future);
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}
