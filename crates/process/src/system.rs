//! [`System`]: what one kernel knows of the machine above the hardware: its processes, threads and services.

use crate::{
    account::Stopwatch, load::LoadAverage, placement::Placement, scratch::Scratch, Context, FaultInjector, Process,
    Thread,
};
use abi::CpuSet;
use alloc::{
    boxed::Box,
    sync::{Arc, Weak},
    vec::Vec,
};
use core::any::{Any, TypeId};
use core::ops::Deref;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use fabric::Endpoint;
use fs::{Caller, Fetched, File, LeftFile, Paths, Services};
use futex::Futexes;
use machine::{
    account::Accounts,
    errno::Result,
    sync::{AsyncLock, Lock, WaitQueue},
    BoxFuture, Cpu, CpuId, HashMap, KernelId, KernelSet, Memory, Pid, Serials,
};
use messages::{fs::Opened, process::Facts, Request};
use sched::Scheduler;
use vm::Vm;

/// The system call layer above: runs a thread until it ends.
pub trait Abi: Send + Sync {
    /// Runs the thread from `context` on; done when the thread has ended, here or elsewhere.
    fn run(self: Arc<Self>, thread: Arc<Thread>, context: Context) -> BoxFuture<'static, ()>;
    /// A thread is about to leave its memory for another (execve): what it owes those who share the old one.
    fn leave_memory<'a>(&'a self, _thread: &'a Arc<Thread>) -> BoxFuture<'a, ()> {
        Box::pin(async {})
    }
}

/// Told of the end of a process that has something on these kernels, before its parent is (crate `ipc`).
pub trait AtEnd: Send + Sync {
    /// Called when `process` has ended. The parent is told when this returns.
    fn ended(&self, process: Pid, kernels: KernelSet) -> BoxFuture<'_, ()>;
    /// Called when `dead` has died and all processes that were at home there have ended; [`AtEnd::ended`] is not called for them.
    fn lost(&self, dead: KernelId) -> BoxFuture<'_, ()>;
}

/// Sends open files to other kernels, and receives them. Crate `fs` counts the references.
pub trait DescriptorTransfer: Send + Sync {
    /// Makes a reference that goes to `to` in a question. The caller keeps the file until the answer.
    fn give<'a>(&'a self, file: &'a Arc<dyn File>, to: KernelId) -> BoxFuture<'a, Result<Opened>>;
    /// Makes a reference that goes to `to` in an answer. The caller need not keep the file.
    fn give_away<'a>(&'a self, file: &'a Arc<dyn File>, to: KernelId) -> BoxFuture<'a, Result<Opened>>;
    /// Takes the reference that a message has brought, and gives its file. Call it before anything that waits: the owner has counted the
    /// reference, and it must not be lost.
    fn take(&self, opened: Opened) -> Result<Arc<dyn File>>;
    /// Of these files, of which a process of one thread has each once, those come here that no other process has and that can.
    fn fetch<'a>(&'a self, files: &'a [LeftFile], caller: &'a Caller) -> BoxFuture<'a, Vec<Fetched>>;
    /// Called when a kernel has died and none of its messages is under way any more.
    fn mourn(&self, dead: KernelId) -> BoxFuture<'_, ()>;
    /// Takes pages of files of a dead kernel out of all page tables here: who touches one again gets SIGBUS.
    fn lose_objects(&self, dead: KernelId) -> BoxFuture<'_, ()>;
    /// Drops pages of files in memory that lay in frames of a dead kernel; returns when no program has them mapped.
    fn lose_frames(&self) -> BoxFuture<'_, ()>;
    /// Called when all survivors have finished their part of a death: releases the references that `dead` held on this kernel's files.
    fn release_of(&self, dead: KernelId);
    /// This kernel has dropped its replica of a process that may live on without it: record locks of it that this kernel keeps for others
    /// go back to them. Returns when they have arrived.
    fn give_back_locks(&self, process: Pid) -> BoxFuture<'_, ()>;
    /// Drops the record locks on this kernel's files of processes that have ended without closing them.
    fn end_locks<'a>(&'a self, ended: &'a (dyn Fn(Pid) -> bool + Sync)) -> BoxFuture<'a, ()>;
}

/// What `cob run --stats` prints beside the fabric's own counters.
#[derive(Default)]
pub struct Counters {
    /// Threads that have started here, those that moved here included.
    pub threads_started: AtomicU64,
    /// Threads that have arrived from other kernels.
    pub migrations_in: AtomicU64,
    /// Threads that have left for other kernels.
    pub migrations_out: AtomicU64,
    /// Time in user mode, by the index of the CPU, which alone writes it.
    pub user_ns: Vec<AtomicU64>,
    /// Whose extended state was last loaded ([`Thread`]'s serial), by the index of the CPU, which alone uses it.
    pub(crate) fpu_owners: Vec<AtomicU64>,
}

/// What decides on which kernel threads run, beside [`Parts::placement`].
#[derive(Default)]
pub(crate) struct Placing {
    pub balance: crate::balance::Balance,
    pub pairs: crate::pairs::Pairs,
    pub packing: crate::packing::Packing,
}

/// What a kernel knows of processes. What it is made of ([`Parts`]) are fields of it, too.
pub struct System {
    parts: Parts,
    /// CPUs of every kernel that runs, in kernel order; grows as kernels join.
    pub machine: Lock<Vec<(KernelId, Vec<CpuId>)>>,
    pub(crate) at_end: Lock<Option<Arc<dyn AtEnd>>>,
    machine_changed: WaitQueue,
    pub(crate) placing: Placing,
    /// The time that threads have had each CPU, by its index.
    pub(crate) threads_time: Vec<Stopwatch>,
    /// For `cob run --stats`.
    pub counters: Counters,
    pub(crate) load_average: LoadAverage,
    pub(crate) processes: Lock<HashMap<Pid, Arc<Process>>>,
    /// Live threads here and shadows of threads that went away.
    pub(crate) threads: Lock<HashMap<Pid, Arc<Thread>>>,
    pub(crate) arrivals: crate::migrate::Arrivals,
    pub(crate) replicas: crate::replica::Replicas,
    pub(crate) pressure: crate::pressure::Pressure,
    pub(crate) cgroups: crate::cgroup::Cgroups,
    /// Which process each thread id of our range belongs to.
    pub(crate) born_here: Lock<HashMap<Pid, Pid>>,
    pub(crate) tables: crate::files::Tables,
    pub(crate) deaths: crate::death::Deaths,
    /// Counters of monitored threads, by process (monitor.rs).
    pub(crate) monitors: Lock<HashMap<Pid, Arc<crate::monitor::CpuCounters>>>,
    pub(crate) sharing: crate::sharing::Sharing,
    pub(crate) clock: crate::vdso::WallClock,
    /// Serial numbers of descriptor tables, sharing groups and rounds.
    pub(crate) serials: Serials,
    /// Held while this kernel sends a signal to many.
    pub(crate) rounds: AsyncLock<()>,
    /// What the layer above keeps per kernel, by type.
    extensions: Lock<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>,
    pub(crate) scratch: Scratch,
    /// See facts.rs.
    pub(crate) facts: Lock<Facts>,
    pub(crate) nodes: Lock<crate::nodes::Nodes>,
    /// Sum of what threads have reserved (reservation.rs).
    pub(crate) reserved: Lock<u64>,
    ids: Ids,
}

/// Everything a [`System`] is made from.
pub struct Parts {
    /// This kernel.
    pub kernel: KernelId,
    /// Most kernels that the machine can have: ids are divided among so many.
    pub kernels: u32,
    /// Its CPUs.
    pub cpu: Arc<dyn Cpu>,
    /// Its memory.
    pub memory: Arc<dyn Memory>,
    /// Who pays for what this kernel keeps.
    pub accounts: Arc<Accounts>,
    /// What files of this kernel take from it.
    pub services: Arc<Services>,
    /// Its end of the fabric.
    pub endpoint: Arc<Endpoint>,
    /// Its run queues.
    pub scheduler: Arc<Scheduler>,
    /// Its address spaces.
    pub vm: Arc<Vm>,
    /// Its futex queues.
    pub futexes: Arc<Futexes>,
    /// The names of files, wherever they are kept.
    pub paths: Arc<dyn Paths>,
    /// Sends and receives open files.
    pub descriptor_transfer: Arc<dyn DescriptorTransfer>,
    /// Says where threads run.
    pub placement: Arc<dyn Placement>,
    /// Fault injection (inject.rs), if `cob.shake` asks for it.
    pub injector: Option<Arc<FaultInjector>>,
    /// What the threads that run or wait on another kernel are worth as load ([`sched::Scheduler::worth`]), from its entry on the board.
    pub board_load: fn(KernelId) -> usize,
    /// The system call layer, which runs each thread.
    pub abi: Arc<dyn Abi>,
}

impl Deref for System {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.parts
    }
}

impl System {
    /// Asks `to` for what has files in it. They are taken as the answer arrives, so that none stays counted for a caller that
    /// has gone.
    pub async fn ask_for<M, T>(
        &self,
        to: KernelId,
        message: M,
        take: impl FnOnce(&dyn DescriptorTransfer, M::Reply) -> T + Send + 'static,
    ) -> Result<T>
    where
        M: Request,
        T: Send + 'static,
    {
        let transfer = self.descriptor_transfer.clone();
        Ok(self.endpoint.call_then(to, message, move |reply| take(&*transfer, reply)).await?)
    }

    /// A kernel without processes, which answers no message yet.
    pub fn new(parts: Parts) -> Arc<System> {
        let each_cpu = || parts.cpu.cpus().iter().map(|_| AtomicU64::new(0)).collect();
        let counters = Counters { user_ns: each_cpu(), fpu_owners: each_cpu(), ..Counters::default() };
        let threads_time = parts.cpu.cpus().iter().map(|_| Stopwatch::default()).collect();
        let system = Arc::new(System {
            ids: Ids::new(parts.kernel, parts.kernels, parts.memory.boot_generation()),
            serials: Serials::new(&*parts.memory),
            rounds: AsyncLock::new(()),
            machine: Lock::new(alloc::vec![(parts.kernel, parts.cpu.cpus().to_vec())]),
            machine_changed: WaitQueue::new(),
            at_end: Lock::default(),
            monitors: Lock::default(),
            scratch: Scratch::new(parts.cpu.cpus().len()),
            parts,
            placing: Default::default(),
            threads_time,
            counters,
            load_average: LoadAverage::default(),
            processes: Lock::default(),
            threads: Lock::default(),
            arrivals: Default::default(),
            replicas: Default::default(),
            pressure: Default::default(),
            cgroups: Default::default(),
            born_here: Lock::default(),
            tables: Default::default(),
            deaths: Default::default(),
            sharing: Default::default(),
            clock: Default::default(),
            extensions: Lock::default(),
            facts: Lock::default(),
            nodes: Lock::default(),
            reserved: Lock::default(),
        });
        let owners: Weak<System> = Arc::downgrade(&system);
        system.futexes.set_owners(owners);
        crate::service::register(&system);
        system
    }

    /// A kernel has joined the machine.
    pub fn add_kernel(&self, kernel: KernelId, cpus: Vec<CpuId>) {
        let mut machine = self.machine.lock();
        if !machine.iter().any(|(known, _)| *known == kernel) {
            machine.push((kernel, cpus));
            machine.sort_by_key(|(kernel, _)| *kernel);
        }
        drop(machine);
        self.machine_changed.wake_all();
    }

    /// A kernel has died.
    pub fn remove_kernel(&self, kernel: KernelId) {
        self.machine.lock().retain(|(known, _)| *known != kernel);
        self.machine_changed.wake_all();
    }

    /// Waits until `done`, which is evaluated again whenever a kernel has joined or died.
    pub async fn wait_for_kernels(&self, done: impl Fn(&[KernelId]) -> bool) {
        self.machine_changed.wait_until(|| done(&self.kernels()).then_some(())).await;
    }

    /// Threads and tasks that run or wait for a CPU here.
    pub fn thread_load(&self) -> usize {
        self.scheduler.load()
    }

    /// How many records of each kind there are: all must go with the processes they are of.
    pub fn records(&self) -> [(&'static str, usize); 7] {
        [
            ("processes", self.processes.lock().len()),
            ("threads and shadows", self.threads.lock().len()),
            ("threads arriving", self.arrivals.arriving.lock().len()),
            ("replicas being made", self.replicas.joining.lock().len()),
            ("threads whose pages come first", self.replicas.expected.lock().len()),
            ("thread ids in use", self.born_here.lock().len()),
            ("descriptor tables", self.tables.home.lock().len() + self.tables.cached.lock().len()),
        ]
    }

    /// Kernels that run, this one included.
    pub fn kernels(&self) -> Vec<KernelId> {
        self.machine.lock().iter().map(|(kernel, _)| *kernel).collect()
    }

    /// Kernels that run, but this one.
    pub fn others(&self) -> Vec<KernelId> {
        self.kernels().into_iter().filter(|&kernel| kernel != self.kernel).collect()
    }

    /// All CPUs of the machine.
    pub fn all_cpus(&self) -> CpuSet {
        self.machine.lock().iter().flat_map(|(_, cpus)| cpus.iter().copied()).collect()
    }

    /// The kernel that runs on `cpu`.
    pub fn kernel_of(&self, cpu: CpuId) -> Option<KernelId> {
        let machine = self.machine.lock();
        machine.iter().find(|(_, cpus)| cpus.contains(&cpu)).map(|(kernel, _)| *kernel)
    }

    /// Whether a thread with this affinity may run here.
    pub fn admits(&self, affinity: &CpuSet) -> bool {
        self.cpu.cpus().iter().any(|&cpu| affinity.contains(cpu))
    }

    /// The bits of this kernel's CPUs (by index) that `affinity` has. All if it has none of them: who is to leave has to run to do
    /// that, and whose CPUs have all died with their kernels runs anywhere, as on Linux.
    pub(crate) fn local_mask(&self, affinity: &CpuSet) -> u64 {
        let cpus = self.cpu.cpus().iter().enumerate().take(64);
        match cpus.filter(|&(_, &cpu)| affinity.contains(cpu)).fold(0, |mask, (index, _)| mask | 1 << index) {
            0 => u64::MAX,
            mask => mask,
        }
    }

    /// An id of this kernel's range that no process or thread has.
    pub fn new_pid(&self) -> Pid {
        loop {
            let pid = self.ids.next();
            let taken = self.processes.lock().contains_key(&pid) || self.born_here.lock().contains_key(&pid);
            if !taken {
                return pid;
            }
        }
    }

    /// The kernel whose range `pid` is in: where it was made.
    pub fn origin(&self, pid: Pid) -> Option<KernelId> {
        self.ids.origin(pid)
    }

    /// What this kernel has of a process; None also for one that is only on other kernels.
    pub fn process(&self, pid: Pid) -> Option<Arc<Process>> {
        self.processes.lock().get(&pid).cloned()
    }

    /// A live thread or shadow here.
    pub fn thread(&self, tid: Pid) -> Option<Arc<Thread>> {
        self.threads.lock().get(&tid).cloned()
    }

    /// Live threads here.
    pub fn thread_count(&self) -> usize {
        self.threads.lock().values().filter(|thread| !thread.is_away()).count()
    }

    /// ns since the machine started, the same on every kernel.
    pub fn now(&self) -> u64 {
        self.cpu.now()
    }

    /// The one `T` of this kernel, made when first asked for.
    pub fn extension<T: Any + Send + Sync + Default>(&self) -> Arc<T> {
        let mut extensions = self.extensions.lock();
        let entry = extensions.entry(TypeId::of::<T>()).or_insert_with(|| Arc::new(T::default()));
        entry.clone().downcast().unwrap_or_default()
    }
}

/// Ids of this kernel's range. The ranges split Linux's largest pid_max (2^22) evenly.
struct Ids {
    first: u32,
    count: u32,
    next: AtomicU32,
}

const PID_MAX: u32 = 1 << 22;

impl Ids {
    fn new(kernel: KernelId, kernels: u32, boot_generation: u32) -> Self {
        let count = PID_MAX / kernels.max(1);
        // Id 0 is nobody, and 1 is init (see `init.rs` of crate `kernel`).
        let skip = if kernel == KernelId::PRIMARY { 2 } else { 0 };
        // A kernel that is booted again does not begin with the ids of its last boot generation: somebody may wait for those.
        let begin = boot_generation.saturating_sub(1).wrapping_mul((count / 64).max(1)) % count;
        Ids { first: u32::from(kernel.0) * count, count, next: AtomicU32::new(skip + begin) }
    }

    fn next(&self) -> Pid {
        let serial = self.next.fetch_add(1, Relaxed) % self.count;
        let low = if self.first == 0 { serial.max(2) } else { serial };
        Pid(self.first + low)
    }

    fn origin(&self, pid: Pid) -> Option<KernelId> {
        (pid.0 > 0 && pid.0 < PID_MAX).then(|| KernelId((pid.0 / self.count) as u16))
    }
}
