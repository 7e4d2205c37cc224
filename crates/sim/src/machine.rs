//! A machine without services: kernels with memory, an endpoint and tasks, and the loop that runs them.
//!
//! A world of services is built on it: see cluster.rs for one.

use crate::{
    executor::{Executor, Handle, SimSpawner},
    port::{Network, SimPort},
    recorder::Recorder,
    shape::Shape,
    world::{SimMemory, World},
};
use fabric::Endpoint;
use machine::{sync::Lock, KernelId, Memory, Spawner};
use std::{
    future::{poll_fn, Future},
    sync::{atomic::Ordering, Arc},
};

/// More steps than any run needs that comes to rest.
const TOO_MANY_STEPS: u32 = 1_000_000;

/// A kernel as every service finds it.
#[derive(Clone)]
pub struct Node {
    pub id: KernelId,
    pub memory: Arc<dyn Memory>,
    pub spawner: Arc<dyn Spawner>,
    pub endpoint: Arc<Endpoint>,
}

/// What a kernel does when it has nothing to do.
type Idle = Box<dyn Fn() + Send + Sync>;

pub struct Machine {
    pub shape: Shape,
    pub world: Arc<World>,
    pub network: Arc<Network>,
    pub executor: Arc<Executor>,
    /// What the kernels trace.
    pub recorder: Arc<Recorder>,
    nodes: Vec<Node>,
    idle: Lock<Vec<(KernelId, Idle)>>,
    /// Kernels that are there.
    alive: Lock<Vec<KernelId>>,
}

impl Machine {
    pub fn new(shape: Shape) -> Self {
        let world = World::new(shape);
        let network = Network::new(world.clone(), shape.kernels, shape.weather);
        let executor = Executor::new();
        let recorder = Recorder::new(shape, network.clone());
        let alive: Vec<KernelId> = (0..shape.kernels as u16).map(KernelId).collect();
        let node = |&id: &KernelId| {
            let port = SimPort { network: network.clone(), me: id };
            let spawner: Arc<dyn Spawner> = Arc::new(SimSpawner::new(executor.clone(), id));
            let endpoint = Endpoint::new(id, shape.kernels, Box::new(port), spawner.clone());
            Node { id, memory: SimMemory::new(world.clone(), id), spawner, endpoint }
        };
        let nodes: Vec<Node> = alive.iter().map(node).collect();
        for node in &nodes {
            alive.iter().filter(|other| **other != node.id).for_each(|other| node.endpoint.add_peer(*other));
        }
        Machine { shape, world, network, executor, recorder, nodes, idle: Lock::default(), alive: Lock::new(alive) }
    }

    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// `work` is done by `kernel` now and then, as by its idle loop.
    pub fn on_idle(&self, kernel: KernelId, work: impl Fn() + Send + Sync + 'static) {
        self.idle.lock().push((kernel, Box::new(work)));
    }

    /// Starts work of no kernel, which none takes along when it dies.
    pub fn start<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> Handle<T> {
        self.executor.start(None, work)
    }

    /// Starts work of `kernel`.
    pub fn start_on<T: Send + 'static>(
        &self,
        kernel: KernelId,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Handle<T> {
        self.executor.start(Some(kernel), work)
    }

    /// `work` of `kernel`, for a task of nobody: the trace says who did it.
    pub fn at<T: 'static>(
        &self,
        kernel: KernelId,
        work: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = T> + Send + 'static {
        let (recorder, mut work) = (self.recorder.clone(), Box::pin(work));
        poll_fn(move |context| recorder.during(kernel, || work.as_mut().poll(context)))
    }

    /// One thing happens somewhere: a task goes on, or a kernel looks at its lanes. False: nothing is left to do.
    pub fn step(&self) -> bool {
        self.network.tick();
        let (ready, alive) = (self.executor.ready(), self.alive.lock());
        let working = alive.iter().filter(|kernel| self.network.has_work(**kernel)).count();
        if ready + working == 0 {
            return self.network.skip_to_arrival();
        }
        let choice = self.world.rng.below(ready + working);
        let kernel = alive.iter().copied().filter(|kernel| self.network.has_work(*kernel)).nth(choice);
        drop(alive);
        match kernel {
            Some(kernel) => {
                self.network.draining(kernel);
                let endpoint = &self.nodes[kernel.index()].endpoint;
                self.recorder.during(kernel, || endpoint.drain(1 + self.world.rng.below(3)));
            }
            None => self.executor.step(&self.world.rng, &self.recorder),
        }
        self.recorder.judge();
        true
    }

    /// Steps in a random order until nothing is left to do.
    pub fn settle(&self) {
        let mut step = 0;
        while self.step() {
            step += 1;
            if step % 64 == 0 {
                self.idle_somewhere();
            }
            assert!(step < TOO_MANY_STEPS, "the machine does not come to rest");
        }
    }

    fn idle_somewhere(&self) {
        let kernel = *self.world.rng.pick(&self.alive.lock());
        let idle = self.idle.lock();
        let of_kernel = idle.iter().filter(|(of, _)| *of == kernel);
        self.recorder.during(kernel, || of_kernel.for_each(|(_, work)| work()));
    }

    /// Runs one piece of work to its end.
    pub fn run<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> T {
        let handle = self.start(work);
        self.settle();
        handle.take().expect("deadlock: at rest, but the work is not done")
    }

    /// `kernel` stops between two steps, for ever: its tasks, and what is under way from and to it, are gone. The
    /// others do not know yet: see [`Machine::declare_dead`].
    pub fn kill(&self, kernel: KernelId) {
        self.alive.lock().retain(|other| *other != kernel);
        self.network.disconnect(kernel);
        self.world.end_life(kernel);
        self.recorder.kernel_died(kernel);
        self.executor.kill(kernel);
    }

    /// `by` learns that `kernel` is dead.
    pub fn declare_dead(&self, by: KernelId, kernel: KernelId) {
        self.recorder.during(by, || self.nodes[by.index()].endpoint.declare_dead(kernel));
    }

    pub fn alive(&self) -> Vec<KernelId> {
        self.alive.lock().clone()
    }

    /// Messages that all kernels have sent so far.
    pub fn messages(&self) -> u64 {
        self.network.sent.load(Ordering::Relaxed)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.recorder.stop();
        // Tasks own what owns the executor.
        self.executor.clear();
        self.idle.lock().clear();
    }
}
