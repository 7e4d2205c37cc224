//! A machine whose kernels have the memory service and mapped objects.

pub use crate::shape::Shape;
use crate::{machine::Machine, object::SimObjects};
use ::machine::{KernelId, Memory, Spawner};
use fabric::Endpoint;
use fs::{remote::Remote, Services};
use linux::node::Spaces;
use std::{ops::Deref, sync::Arc};
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

/// The machine with its services.
pub struct Cluster {
    machine: Machine,
    pub kernels: Vec<Kernel>,
}

impl Cluster {
    pub fn new(shape: Shape) -> Self {
        let machine = Machine::new(shape);
        let kernel = |node: &crate::machine::Node| {
            let crate::machine::Node { id, memory, spawner, endpoint } = node.clone();
            let files = Services::new(memory.clone(), Arc::new(NoClock), spawner.clone());
            let remote = Remote::new(endpoint.clone(), memory.clone(), spawner.clone(), files.refaults.clone(), None);
            let objects = SimObjects::new(memory.clone(), remote, OBJECT_PAGES, files.clone());
            let vm = Vm::new(memory.clone(), endpoint.clone(), spawner.clone(), objects.clone())
                .expect("a fresh kernel has a frame");
            // What the real machine looks at when a space ends (vm/src/audit.rs).
            vm.start_audits();
            let mappers = Arc::new(Spaces(Arc::downgrade(&vm)));
            files.set_mappers(mappers.clone());
            objects.remote.set_mappers(mappers);
            objects.serve(&vm);
            let home = vm.clone();
            machine.on_idle(id, move || home.send_frames_home(1));
            Kernel { id, memory, spawner, endpoint, objects, vm }
        };
        let kernels = machine.nodes().iter().map(kernel).collect();
        Cluster { machine, kernels }
    }
}

struct NoClock;

impl fs::Clock for NoClock {
    fn realtime(&self) -> fs::Timestamp {
        fs::Timestamp::default()
    }

    fn monotonic(&self) -> u64 {
        0
    }
}

/// A cluster is a machine with more on it.
impl Deref for Cluster {
    type Target = Machine;
    fn deref(&self) -> &Machine {
        &self.machine
    }
}
