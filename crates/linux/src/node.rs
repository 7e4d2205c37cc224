//! One kernel's services, put together in the order of the layers, and the small adapters between them.
//!
//! What they stand on is given: memory, CPUs, an endpoint among the other kernels. So crate `kernel` builds a node on
//! the machine it runs on and `sim` builds many in one process, and both run the same services.

use alloc::{
    boxed::Box,
    sync::{Arc, Weak},
    vec::Vec,
};
use core::ops::Range;
use fabric::Endpoint;
use fs::network::list::SocketLists;
use fs::remote::{AllPaths, Remote};
use fs::socket::{AllSockets, NetNamespace};
use fs::{
    Caller, Fetched, File, LeftFile, LocalPaths, Lost, Mappers, MappingUse, Object, ObjectId, Onwards, PathAnswer,
    PathOp, Paths, Services, Timestamp,
};
use futex::{Futexes, Words};
use machine::{
    errno::Result, sync::WaitQueue, Access, BoxFuture, Cpu, Errno, Frame, GroupId, KernelId, KernelSet, Memory, Pid,
    Spawner, PAGE_SIZE,
};
use messages::fs::Opened;
use messages::vm::{FutexKey, FutexPlace};
use process::{Abi, DescriptorTransfer, Parts, Placement, System};
use sched::Scheduler;
use vm::{Objects, Vm};

/// What a node is built on.
pub struct Ground {
    /// Kernels of the machine, also those that do not run (yet).
    pub kernels: usize,
    /// The kernel that owns the root of the machine.
    pub root: KernelId,
    pub cpu: Arc<dyn Cpu>,
    pub memory: Arc<dyn Memory>,
    pub endpoint: Arc<Endpoint>,
    pub scheduler: Arc<Scheduler>,
    pub spawner: Arc<dyn Spawner>,
    pub placement: Arc<dyn Placement>,
    /// Threads that run or wait on another kernel, as it last said.
    pub board_load: fn(KernelId) -> usize,
    /// Fault injection, if `cob.shake` asks for it.
    pub injector: Option<Arc<process::FaultInjector>>,
    pub abi: Arc<dyn Abi>,
}

/// The services of a kernel.
pub struct Node {
    pub system: Arc<System>,
    pub endpoint: Arc<Endpoint>,
    pub services: Arc<Services>,
    /// Set by the kernel that owns the root; waits until then.
    pub paths: Arc<LatePaths>,
    /// The file systems of a kernel that does not own the root.
    pub trees: Option<Arc<LocalPaths>>,
    pub remote: Arc<Remote>,
}

impl Node {
    pub fn new(ground: Ground) -> Node {
        let Ground { kernels, root, cpu, memory, endpoint, scheduler, spawner, placement, board_load, injector, abi } =
            ground;
        let kernel = endpoint.me();
        let clock = Arc::new(FileClock::default());
        let services = Services::new(memory.clone(), clock.clone(), spawner.clone());
        let late = Arc::new(LatePaths::default());
        let trees = (kernel != root).then(|| crate::tree::without_root(&services));
        let served: Arc<dyn Paths> = match &trees {
            Some(trees) => trees.clone(),
            None => late.clone(),
        };
        let remote =
            Remote::new(endpoint.clone(), memory.clone(), spawner.clone(), services.refaults.clone(), Some(served));
        let paths: Arc<dyn Paths> = Arc::new(AllPaths::new(remote.clone(), root, clock.clone()));
        let objects = Arc::new(MappedObjects(remote.clone()));
        let vm =
            Vm::new(memory.clone(), endpoint.clone(), spawner, objects).expect("a kernel that has no frame can't live");
        let mappers = Arc::new(Spaces(Arc::downgrade(&vm)));
        services.set_mappers(mappers.clone());
        remote.set_mappers(mappers);
        let own = Arc::new(OwnObjects { services: services.clone(), vm: vm.clone() });
        let of = Arc::downgrade(&own);
        remote.serve_objects(Arc::new(move |id| of.upgrade()?.find(id)));
        let futexes = Futexes::new(endpoint.clone(), Arc::new(FutexWords { own, memory: memory.clone() }));
        let system = System::new(Parts {
            kernel,
            kernels: kernels as u32,
            cpu,
            memory,
            accounts: services.accounts.clone(),
            services: services.clone(),
            endpoint: endpoint.clone(),
            scheduler,
            vm,
            futexes,
            paths,
            descriptor_transfer: Arc::new(Exchange { remote: remote.clone(), services: services.clone() }),
            placement,
            board_load,
            injector,
            abi,
        });
        system.provide_vdso();
        remote.set_signals(Arc::new(crate::files::signalfd::Processes(Arc::downgrade(&system))));
        remote.set_signaller(Arc::new(crate::files::sigio::Owners(Arc::downgrade(&system))));
        let names = system.extension::<NetNamespace>();
        names.set_accounts(&services.accounts);
        names.set_clock(services.clock.clone());
        names.set_timers(Arc::new(crate::tree::FileTimers(system.scheduler.timers().clone())));
        remote.join_sockets(&names, root);
        system.extension::<SocketLists>().set(Arc::new(AllSockets(names)));
        ipc::start(&system, &services);
        clock.0.call_once(|| Arc::downgrade(&system));
        Node { system, endpoint, services, paths: late, trees, remote }
    }
}

/// Ends sockets of all kernels that hold each other and that nobody can reach. On the kernel that has the root.
pub async fn collect_sockets(system: &System) {
    // A kernel that died meanwhile, or has no memory to look: they are found another time.
    let _ = system.extension::<NetNamespace>().collect().await;
}

/// What a survivor does at once when `dead` is no more: nobody calls it or waits for it any longer. False if it was done
/// before. Then `System::kernel_died` ends the processes that had something there.
pub fn detach(system: &Arc<System>, remote: &Remote, dead: KernelId) -> bool {
    if !system.begin_mourning(dead) {
        return false;
    }
    system.endpoint.declare_dead(dead);
    system.remove_kernel(dead);
    remote.kernel_died(dead);
    system.extension::<NetNamespace>().kernel_died(dead);
    true
}

/// The paths of the kernel that owns the root, once there is a root: whoever comes earlier waits.
#[derive(Default)]
pub struct LatePaths {
    paths: spin::Once<Arc<dyn Paths>>,
    there: WaitQueue,
}

impl LatePaths {
    pub fn set(&self, paths: Arc<dyn Paths>) {
        self.paths.call_once(|| paths);
        self.there.wake_all();
    }

    async fn get(&self) -> &Arc<dyn Paths> {
        self.there.wait_until(|| self.paths.get()).await
    }
}

impl Paths for LatePaths {
    fn run<'a>(&'a self, caller: &'a fs::Caller, base: &'a fs::Base, op: PathOp) -> BoxFuture<'a, Result<PathAnswer>> {
        match self.paths.get() {
            Some(paths) => paths.run(caller, base, op),
            None => Box::pin(async move { self.get().await.run(caller, base, op).await }),
        }
    }

    fn run_onwards<'a>(
        &'a self,
        caller: &'a fs::Caller,
        base: &'a fs::Base,
        op: PathOp,
        onwards: &'a dyn Onwards,
    ) -> BoxFuture<'a, Result<PathAnswer>> {
        match self.paths.get() {
            Some(paths) => paths.run_onwards(caller, base, op, onwards),
            None => Box::pin(async move { self.get().await.run_onwards(caller, base, op, onwards).await }),
        }
    }

    fn root(&self) -> BoxFuture<'_, Result<Arc<dyn File>>> {
        Box::pin(async move { self.get().await.root().await })
    }

    fn drop_unused(&self) -> BoxFuture<'_, ()> {
        match self.paths.get() {
            Some(paths) => paths.drop_unused(),
            None => Box::pin(async {}),
        }
    }
}

/// The clocks of file systems.
#[derive(Default)]
struct FileClock(spin::Once<Weak<System>>);

impl FileClock {
    fn read(&self, which: impl Fn(&System) -> u64) -> u64 {
        self.0.get().and_then(Weak::upgrade).map_or(0, |system| which(&system))
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

    fn at(&self, ns: u64) -> Option<BoxFuture<'static, ()>> {
        let scheduler = self.0.get()?.upgrade()?.scheduler.clone();
        Some(Box::pin(async move { scheduler.sleep_until(ns).await }))
    }
}

/// Files on their way to other kernels.
struct Exchange {
    remote: Arc<Remote>,
    services: Arc<Services>,
}

impl DescriptorTransfer for Exchange {
    fn give<'a>(&'a self, file: &'a Arc<dyn File>, to: KernelId) -> BoxFuture<'a, Result<Opened>> {
        Box::pin(async move { Ok(self.remote.hand_to(to, file).await?.send()) })
    }

    fn give_away<'a>(&'a self, file: &'a Arc<dyn File>, to: KernelId) -> BoxFuture<'a, Result<Opened>> {
        Box::pin(async move { Ok(self.remote.hand_over(to, file).await?.send()) })
    }

    fn take(&self, opened: Opened) -> Result<Arc<dyn File>> {
        self.remote.accept(opened)
    }

    fn fetch<'a>(&'a self, files: &'a [LeftFile], caller: &'a Caller) -> BoxFuture<'a, Vec<Fetched>> {
        Box::pin(self.remote.fetch(files, caller))
    }

    fn mourn(&self, dead: KernelId) -> BoxFuture<'_, ()> {
        Box::pin(self.remote.mourn(dead))
    }

    fn lose_objects(&self, dead: KernelId) -> BoxFuture<'_, ()> {
        Box::pin(self.remote.lose_objects(dead))
    }

    fn lose_frames(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.services.lose_frames())
    }

    fn release_of(&self, dead: KernelId) {
        self.remote.release_of(dead);
    }

    fn give_back_locks(&self, process: Pid) -> BoxFuture<'_, ()> {
        Box::pin(self.remote.give_back_locks(process))
    }

    fn end_locks<'a>(&'a self, ended: &'a (dyn Fn(Pid) -> bool + Sync)) -> BoxFuture<'a, ()> {
        Box::pin(self.services.end_locks(ended))
    }
}

/// Mapped objects by name, of any kernel.
struct MappedObjects(Arc<Remote>);

impl Objects for MappedObjects {
    fn resolve(&self, id: ObjectId) -> BoxFuture<'_, Result<Arc<dyn Object>>> {
        Box::pin(self.0.resolve(id))
    }

    fn recall(&self, others: KernelSet, lost: Lost) -> BoxFuture<'_, KernelSet> {
        Box::pin(async move { self.0.recall(&others, lost).await })
    }
}

/// Who hears of lost pages: the address spaces, which don't keep what they map alive.
pub struct Spaces(pub Weak<Vm>);

impl Mappers for Spaces {
    fn lost(&self, lost: Lost) -> BoxFuture<'_, ()> {
        let vm = self.0.upgrade();
        Box::pin(async move {
            if let Some(vm) = vm {
                vm.lost(lost).await;
            }
        })
    }

    fn recall(&self, others: KernelSet, lost: Lost) -> BoxFuture<'_, KernelSet> {
        let vm = self.0.upgrade();
        Box::pin(async move {
            match vm {
                Some(vm) => vm.recall(others, lost).await,
                None => others,
            }
        })
    }

    fn unmap(&self, object: ObjectId, pages: Range<u64>, used: bool) -> BoxFuture<'_, ()> {
        let vm = self.0.upgrade();
        Box::pin(async move {
            if let Some(vm) = vm {
                vm.unmap(object, pages, used).await;
            }
        })
    }

    fn borrow(&self, must: bool) -> BoxFuture<'_, bool> {
        let vm = self.0.upgrade();
        Box::pin(async move {
            match vm {
                Some(vm) => vm.borrow(must).await,
                None => false,
            }
        })
    }

    fn room_in_group(&self, group: GroupId) -> BoxFuture<'_, bool> {
        let vm = self.0.upgrade();
        Box::pin(async move {
            match vm {
                Some(vm) => vm.room_in_group(group).await,
                None => false,
            }
        })
    }

    fn uses(&self, object: ObjectId, usage: MappingUse) -> BoxFuture<'_, u64> {
        let vm = self.0.upgrade();
        Box::pin(async move {
            match vm {
                Some(vm) => vm.uses(object, usage).await,
                None => 0,
            }
        })
    }
}

/// What this kernel has that can be mapped: pages of files, and memory without a file.
struct OwnObjects {
    services: Arc<Services>,
    vm: Arc<Vm>,
}

impl OwnObjects {
    fn find(&self, id: ObjectId) -> Option<Arc<dyn Object>> {
        match self.services.object(id) {
            Some(file) => Some(file),
            None => Some(self.vm.shared_memory(id)?),
        }
    }
}

/// Futex words through address spaces and objects.
struct FutexWords {
    own: Arc<OwnObjects>,
    memory: Arc<dyn Memory>,
}

impl FutexWords {
    /// Does `act` to the frame and offset of a word, if it is in memory.
    fn with<T>(&self, key: &FutexKey, write: bool, act: impl FnOnce(Frame, usize) -> T) -> Option<T> {
        match key.place {
            FutexPlace::Private { space, at } => {
                let mapping = self.own.vm.find(space)?.table().get(at.page())?;
                mapping.access.contains(wanted(write)).then(|| act(mapping.frame, at.offset()))
            }
            FutexPlace::Shared { object, offset } => {
                let object = self.own.find(object)?;
                let (index, offset) = (offset / PAGE_SIZE as u64, (offset % PAGE_SIZE as u64) as usize);
                // It stays while we look.
                let frame = object.resident(index)?;
                // Not while other kernels have copies.
                (!write || object.write(index)).then(|| act(frame.frame(), offset))
            }
        }
    }
}

fn wanted(write: bool) -> Access {
    if write {
        Access::WRITE
    } else {
        Access::READ
    }
}

impl Words for FutexWords {
    fn load(&self, key: &FutexKey) -> Option<u32> {
        self.with(key, false, |frame, offset| self.memory.load_u32(frame, offset))
    }

    fn compare_exchange(&self, key: &FutexKey, old: u32, new: u32) -> Option<core::result::Result<u32, u32>> {
        self.with(key, true, |frame, offset| self.memory.compare_exchange_u32(frame, offset, old, new))
    }

    fn make_resident<'a>(&'a self, key: &'a FutexKey, write: bool) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            match key.place {
                FutexPlace::Private { space, at } => {
                    let space = self.own.vm.find(space).ok_or(Errno::EFAULT)?;
                    space.fault(at, wanted(write)).await.map_err(|_| Errno::EFAULT)
                }
                FutexPlace::Shared { object, offset } => {
                    let object = self.own.find(object).ok_or(Errno::EFAULT)?;
                    let index = offset / PAGE_SIZE as u64;
                    drop(object.page(index).await.map_err(|_| Errno::EFAULT)?);
                    if write {
                        object.take_back(index).await.map_err(|_| Errno::EFAULT)?;
                    }
                    Ok(())
                }
            }
        })
    }
}
