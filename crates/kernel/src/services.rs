//! One kernel's services on this machine: what crate `linux` puts together, on lanes and devices of the platform.

use crate::{inject::DelayedPort, pressure::Pressure};
use alloc::{boxed::Box, sync::Arc};
use core::sync::atomic::Ordering::Relaxed;
use fabric::{Endpoint, LanePort, Port};
use fs::{remote::Remote, LocalPaths, Services};
use linux::{
    node::{Ground, LatePaths, Node},
    Linux,
};
use machine::{Cpu, KernelId, Memory, Spawner};
use platform::{board, lanes::Lanes};
use process::{placement, FaultInjector, Placement, RandomPlacement, System};
use sched::{KernelTasks, Scheduler};

/// A kernel, wired.
pub struct Kernel {
    pub system: Arc<System>,
    pub scheduler: Arc<Scheduler>,
    pub endpoint: Arc<Endpoint>,
    pub lanes: Lanes,
    pub port: Arc<LanePort>,
    pub services: Arc<Services>,
    pub spawner: Arc<dyn Spawner>,
    pub paths: Arc<LatePaths>,
    /// The file systems of a kernel that does not own the root.
    pub trees: Option<Arc<LocalPaths>>,
    pub remote: Arc<Remote>,
    pub plan: &'static platform::plan::Plan,
    /// Leaks and wrong pages are looked for (audit.rs).
    pub audit: bool,
}

impl Kernel {
    pub fn start(boot: &platform::Boot) -> &'static Kernel {
        let cpu: Arc<dyn Cpu> = platform::shared_cpu();
        let memory: Arc<dyn Memory> = platform::shared_memory();
        let scheduler = Scheduler::new(cpu.clone(), boot.kernel);
        let spawner: Arc<dyn Spawner> = Arc::new(KernelTasks(scheduler.clone()));
        let lanes = Lanes::open();
        let port = Arc::new(lanes.port());
        let seed = platform::plan::option(boot.command_line(), "cob.shake").and_then(|seed| seed.parse().ok());
        let injector = seed.map(|seed| FaultInjector::new(seed, boot.kernel));
        let kernels = boot.plan.kernels.len();
        let seen: Box<dyn Port> = match &injector {
            Some(injector) => {
                Box::new(DelayedPort::new(port.clone(), kernels, injector.clone(), cpu.clone(), scheduler.clone()))
            }
            None => Box::new(port.clone()),
        };
        fs::anonymous::number_from(boot.kernel);
        let Node { system, endpoint, services, paths, trees, remote } = Node::new(Ground {
            kernels,
            root: KernelId::PRIMARY,
            cpu,
            memory,
            endpoint: Endpoint::new(boot.kernel, kernels, seen, spawner.clone()),
            scheduler: scheduler.clone(),
            spawner: spawner.clone(),
            placement: placement(boot.plan, &injector),
            board_load: |kernel| board::entry(kernel).pulse.0.load.load(Relaxed) as usize,
            injector,
            abi: Arc::new(Linux::default()),
        });
        let plan = boot.plan;
        let pressure = Pressure::new(services.clone(), remote.clone(), Arc::downgrade(&system), plan);
        system.vm.set_relief(Arc::new(pressure));
        let audit = platform::plan::option(boot.command_line(), "cob.audit") == Some("on");
        if audit {
            system.vm.start_audits();
        }
        Box::leak(Box::new(Kernel {
            system,
            scheduler,
            endpoint,
            lanes,
            port,
            services,
            spawner,
            paths,
            trees,
            remote,
            plan,
            audit,
        }))
    }
}

/// The placement policy that the command line names; `spread` without one, and a random one under `cob.shake`.
fn placement(plan: &platform::plan::Plan, injector: &Option<Arc<FaultInjector>>) -> Arc<dyn Placement> {
    let name = platform::plan::option(&plan.command_line, "cob.placement").unwrap_or("spread");
    let policy = placement::policy(name).unwrap_or_else(|| {
        log::error!("cob.placement={name}: there are spread and pack; spread it is");
        Arc::new(placement::Spread)
    });
    match injector {
        Some(injector) => Arc::new(RandomPlacement { injector: injector.clone(), policy }),
        None => policy,
    }
}
