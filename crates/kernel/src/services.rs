//! One kernel's services, built in the order of the layers.

use alloc::{boxed::Box, sync::Arc};
use fabric::{Endpoint, LanePort};
use fs::remote::{Remote, RemotePaths};
use fs::{File, FileRef, Object, ObjectId, PathAnswer, PathOp, Paths, Services, Timestamp};
use futex::{Futexes, Words};
use linux::Linux;
use machine::{errno::Result, sync::{Lock, WaitQueue}, BoxFuture, Cpu, Errno, KernelId, Memory, Spawner};
use messages::vm::{FutexKey, FutexPlace};
use platform::{board, lanes::Lanes};
use process::{Directory, Parts, Spread, System};
use sched::{KernelTasks, Scheduler, Timers};
use vm::{Objects, Vm};

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
    pub plan: &'static platform::plan::Plan,
}

impl Kernel {
    pub fn start(boot: &platform::Boot) -> &'static Kernel {
        let cpu: Arc<dyn Cpu> = platform::shared_cpu();
        let memory: Arc<dyn Memory> = platform::shared_memory();
        let scheduler = Scheduler::new(cpu.clone());
        let spawner: Arc<dyn Spawner> = Arc::new(KernelTasks(scheduler.clone()));
        let kernels = boot.plan.kernels.len();
        let lanes = Lanes::open().expect("a kernel that can't hold its lanes can't live");
        let port = Arc::new(lanes.port());
        let endpoint = Endpoint::new(boot.kernel, kernels, Box::new(port.clone()), spawner.clone());

        fs::anonymous::number_from(boot.kernel);
        let clock = Arc::new(FileClock(Lock::new(None)));
        let services = Services::new(memory.clone(), clock.clone(), spawner.clone());
        let late = Arc::new(LatePaths::default());
        let owns_root = boot.kernel == KernelId::PRIMARY;
        let served: Option<Arc<dyn Paths>> = owns_root.then(|| late.clone() as Arc<dyn Paths>);
        let remote = Remote::new(endpoint.clone(), memory.clone(), spawner.clone(), served);
        let paths: Arc<dyn Paths> = match owns_root {
            true => late.clone(),
            false => Arc::new(RemotePaths::new(remote.clone(), KernelId::PRIMARY)),
        };
        let objects = Arc::new(MappedObjects { services: services.clone() });
        let vm = Vm::new(memory.clone(), endpoint.clone(), spawner.clone(), objects)
            .expect("a kernel that has no frame can't live");
        let futexes = Futexes::new(endpoint.clone(), Arc::new(FutexWords { vm: vm.clone(), memory: memory.clone() }));
        let system = System::new(Parts {
            kernel: boot.kernel,
            kernels: kernels as u32,
            cpu,
            memory,
            endpoint: endpoint.clone(),
            scheduler: scheduler.clone(),
            vm,
            futexes,
            paths,
            directory: Arc::new(Exchange(remote)),
            placement: Arc::new(Spread::new(|kernel| board::entry(kernel).pulse.0.load.load(core::sync::atomic::Ordering::Relaxed) as usize)),
            abi: Arc::new(Linux::default()),
        });
        linux::set_services(&system, &services);
        *clock.0.lock() = Some(system.clone());
        let plan = boot.plan;
        Box::leak(Box::new(Kernel { system, scheduler, endpoint, lanes, port, services, spawner, paths: late, plan }))
    }
}

/// The paths of the kernel that owns the root, once there is a root: whoever comes earlier waits.
#[derive(Default)]
pub struct LatePaths {
    paths: Lock<Option<Arc<dyn Paths>>>,
    there: WaitQueue,
}

impl LatePaths {
    pub fn set(&self, paths: Arc<dyn Paths>) {
        *self.paths.lock() = Some(paths);
        self.there.wake_all();
    }

    async fn get(&self) -> Arc<dyn Paths> {
        self.there.wait_until(|| self.paths.lock().clone()).await
    }
}

impl Paths for LatePaths {
    fn run<'a>(&'a self, caller: &'a fs::Caller, base: &'a fs::Base, op: PathOp) -> BoxFuture<'a, Result<PathAnswer>> {
        Box::pin(async move { self.get().await.run(caller, base, op).await })
    }

    fn root(&self) -> BoxFuture<'_, Result<Arc<dyn File>>> {
        Box::pin(async move { self.get().await.root().await })
    }
}

/// The clocks of file systems.
struct FileClock(Lock<Option<Arc<System>>>);

impl FileClock {
    fn read(&self, which: impl Fn(&System) -> u64) -> u64 {
        self.0.lock().as_ref().map_or(0, |system| which(system))
    }
}

impl fs::Clock for FileClock {
    fn realtime(&self) -> Timestamp {
        let now = self.read(|system| system.realtime());
        Timestamp { seconds: (now / 1_000_000_000) as i64, nanoseconds: (now % 1_000_000_000) as u32 }
    }

    fn monotonic(&self) -> u64 {
        self.read(|system| system.now())
    }
}

/// Files on their way to other kernels.
struct Exchange(Arc<Remote>);

impl Directory for Exchange {
    fn name<'a>(&'a self, file: &'a Arc<dyn File>) -> BoxFuture<'a, Result<FileRef>> {
        Box::pin(self.0.name(file))
    }

    fn open(&self, name: FileRef) -> BoxFuture<'_, Result<Arc<dyn File>>> {
        Box::pin(self.0.open(name))
    }
}

/// Mapped objects by name.
struct MappedObjects {
    services: Arc<Services>,
}

impl Objects for MappedObjects {
    fn resolve(&self, id: ObjectId) -> BoxFuture<'_, Result<Arc<dyn Object>>> {
        Box::pin(async move {
            let object = self.services.object(id).ok_or(Errno::ESTALE)?;
            Ok(object as Arc<dyn Object>)
        })
    }
}

/// Futex words through address spaces and objects.
struct FutexWords {
    vm: Arc<Vm>,
    memory: Arc<dyn Memory>,
}

impl FutexWords {
    /// Frame and offset of a word, if it is in memory.
    fn place(&self, key: &FutexKey, write: bool) -> Option<(machine::Frame, usize)> {
        match key.place {
            FutexPlace::Private { space, at } => {
                let mapping = self.vm.find(space)?.table().get(at.page())?;
                let wanted = if write { machine::Access::WRITE } else { machine::Access::READ };
                mapping.access.contains(wanted).then_some((mapping.frame, at.offset()))
            }
            FutexPlace::Shared { .. } => None,
        }
    }
}

impl Words for FutexWords {
    fn load(&self, key: &FutexKey) -> Option<u32> {
        let (frame, offset) = self.place(key, false)?;
        Some(self.memory.load_u32(frame, offset))
    }

    fn compare_exchange(&self, key: &FutexKey, old: u32, new: u32) -> Option<core::result::Result<u32, u32>> {
        let (frame, offset) = self.place(key, true)?;
        Some(self.memory.compare_exchange_u32(frame, offset, old, new))
    }

    fn make_resident<'a>(&'a self, key: &'a FutexKey, write: bool) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            match key.place {
                FutexPlace::Private { space, at } => {
                    let space = self.vm.find(space).ok_or(Errno::EFAULT)?;
                    let access = if write { machine::Access::WRITE } else { machine::Access::READ };
                    space.fault(at, access).await.map_err(|_| Errno::EFAULT)
                }
                FutexPlace::Shared { .. } => Err(Errno::EFAULT),
            }
        })
    }
}

/// Timers for terminals and timerfd.
pub struct FileTimers(pub Arc<Timers>);

impl fs::event::Timers for FileTimers {
    fn now(&self) -> u64 {
        self.0.now()
    }

    fn at(&self, ns: u64) -> BoxFuture<'static, ()> {
        Box::pin(self.0.sleep_until(ns))
    }
}
