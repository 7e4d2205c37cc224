//! Kernels put together.

use crate::{
    executor::{Executor, Handle, SimSpawner},
    object::SimObjects,
    port::{Network, SimPort, Weather},
    world::{SimMemory, World},
};
use fabric::Endpoint;
use fs::remote::Remote;
use machine::{KernelId, Memory, Spawner};
use std::{future::Future, sync::Arc};
use vm::Vm;

/// Pages of every mapped object.
pub const OBJECT_PAGES: u64 = 6;

/// One kernel.
pub struct Kernel {
    pub id: KernelId,
    pub memory: Arc<dyn Memory>,
    pub spawner: Arc<dyn Spawner>,
    pub endpoint: Arc<Endpoint>,
    pub objects: Arc<SimObjects>,
    pub vm: Arc<Vm>,
}

/// The machine.
pub struct Cluster {
    pub world: Arc<World>,
    pub network: Arc<Network>,
    pub executor: Arc<Executor>,
    pub kernels: Vec<Kernel>,
}

/// What a run looks like; all of it follows from the seed unless the caller says otherwise.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub seed: u64,
    pub kernels: usize,
    pub cpus: usize,
    pub frames: u64,
    /// So few frames that allocations fail, of page tables too.
    pub scarce: bool,
    pub weather: Weather,
}

impl Shape {
    pub fn of(seed: u64, kernels: usize) -> Self {
        let rng = crate::rng::Rng::new(seed ^ 0xc0b);
        let scramble = rng.one_in(3);
        let longest = if scramble { 1 << 20 } else { *rng.pick(&[64, 256, 4096]) };
        let weather = Weather { room: *rng.pick(&[1, 2, 4, 1000]), longest, delay: *rng.pick(&[0, 3, 20]), scramble };
        let (cpus, scarce) = (1 + rng.below(3), rng.one_in(5));
        let frames = if scarce { 60 } else { 4096 };
        Shape { seed, kernels, cpus, frames, scarce, weather }
    }
}

impl Cluster {
    pub fn new(shape: Shape) -> Self {
        let world = World::new(shape);
        let network = Network::new(world.clone(), shape.weather);
        let executor = Executor::new();
        let kernels: Vec<Kernel> = (0..shape.kernels as u16)
            .map(|id| {
                let id = KernelId(id);
                let port = SimPort { network: network.clone(), me: id };
                let spawner: Arc<dyn Spawner> = Arc::new(SimSpawner { executor: executor.clone(), kernel: id });
                let endpoint = Endpoint::new(id, shape.kernels, Box::new(port), spawner.clone());
                let memory: Arc<dyn Memory> = SimMemory::new(world.clone(), id);
                let remote = Remote::new(endpoint.clone(), memory.clone(), spawner.clone(), None);
                let objects = SimObjects::new(memory.clone(), remote, OBJECT_PAGES);
                let vm = Vm::new(memory.clone(), endpoint.clone(), spawner.clone(), objects.clone())
                    .expect("a fresh kernel has a frame");
                objects.serve(&vm);
                Kernel { id, memory, spawner, endpoint, objects, vm }
            })
            .collect();
        for kernel in &kernels {
            let others = kernels.iter().filter(|other| other.id != kernel.id);
            others.for_each(|other| kernel.endpoint.add_peer(other.id));
        }
        Cluster { world, network, executor, kernels }
    }

    pub fn start<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> Handle<T> {
        self.executor.start(work)
    }

    /// Steps in a random order until nothing is left to do.
    pub fn settle(&self) {
        for step in 0.. {
            if step % 64 == 63 {
                // As the idle loop does.
                self.world.rng.pick(&self.kernels).vm.send_frames_home(1);
            }
            assert!(step < 2_000_000, "the machine does not come to rest");
            self.network.tick();
            let has_work = |kernel: &&Kernel| kernel.endpoint.has_mail() || kernel.endpoint.has_backlog();
            let working: Vec<&Kernel> = self.kernels.iter().filter(has_work).collect();
            let choices = self.executor.ready() + working.len();
            if choices == 0 {
                if self.network.skip_to_arrival() {
                    continue;
                }
                return;
            }
            match self.world.rng.below(choices) {
                choice if choice < working.len() => {
                    working[choice].endpoint.drain(1 + self.world.rng.below(3));
                }
                _ => self.executor.step(&self.world),
            }
        }
    }

    /// Runs one piece of work to its end.
    pub fn run<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> T {
        let handle = self.start(work);
        self.settle();
        handle.take().expect("deadlock: at rest, but the work is not done")
    }

    /// Messages that all kernels have sent so far.
    pub fn messages(&self) -> u64 {
        self.network.sent.load(std::sync::atomic::Ordering::Relaxed)
    }
}
