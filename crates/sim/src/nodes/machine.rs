//! Nodes put together, with a root file system and a first program; and the order of their steps.

use super::{
    cpu::SimCpu,
    elf,
    user::{User, UserMode},
};
use crate::{executor::Handle, machine::Machine, rng::Rng, shape::Shape};
use ::machine::{errno::Result, sync::Lock, BoxFuture, Cpu, CpuId, KernelId, Pid};
use abi::Credentials;
use fs::{
    ext4::Ext4Mounter,
    remote::RemoteTrees,
    tmpfs::{TmpMounter, Tmpfs},
    Base, Caller, File, LocalPaths, OpenFlags, PathAnswer, PathOp, Paths,
};
use linux::{
    node::{Ground, Node},
    tree::Tree,
    Linux,
};
use messages::process::{Shared, ThreadState, RESOURCES};
use process::{Candidate, Placement, Program};
use sched::Scheduler;
use std::{
    collections::BTreeSet,
    future::Future,
    sync::{
        atomic::{AtomicU64, Ordering::SeqCst},
        Arc,
    },
};

/// Where the program is.
pub const PROGRAM: &[u8] = b"/program";
/// A step takes this long, in ns.
const STEP_NS: u64 = 1000;
/// Timers that are due within this time are waited for.
const PATIENCE_NS: u64 = 1_000_000_000;
const MOST_STEPS: usize = 4_000_000;
/// man 2 getrlimit.
const RLIMIT_NOFILE: usize = 7;

/// One kernel.
pub struct SimNode {
    pub id: KernelId,
    pub cpu: Arc<SimCpu>,
    pub scheduler: Arc<Scheduler>,
    pub node: Node,
}

/// A machine of nodes.
pub struct Nodes<U = User> {
    machine: Machine,
    pub user: Arc<U>,
    pub nodes: Vec<SimNode>,
    clock: Arc<AtomicU64>,
    /// How often each kernel gets a turn, compared with the others.
    weights: Vec<usize>,
    /// Frames in use before the first program, by kernel.
    frames: Vec<usize>,
    root: Arc<Root>,
}

/// The tree that programs find. Its /proc and its terminals hold the kernel that they tell of, and the kernel this: [`Nodes`] takes it out in the end.
#[derive(Default)]
struct Root(Lock<Option<Arc<dyn Paths>>>);

impl Root {
    fn get(&self) -> Arc<dyn Paths> {
        self.0.lock().clone().expect("nobody asks for a path when the machine ends")
    }
}

impl Paths for Root {
    fn run<'a>(&'a self, caller: &'a Caller, base: &'a Base, op: PathOp) -> BoxFuture<'a, Result<PathAnswer>> {
        let paths = self.get();
        Box::pin(async move { paths.run(caller, base, op).await })
    }

    fn root(&self) -> BoxFuture<'_, Result<Arc<dyn File>>> {
        let paths = self.get();
        Box::pin(async move { paths.root().await })
    }

    fn drop_unused(&self) -> BoxFuture<'_, ()> {
        let paths = self.get();
        Box::pin(async move { paths.drop_unused().await })
    }
}

impl<U> Drop for Nodes<U> {
    fn drop(&mut self) {
        let root = self.root.0.lock().take();
        drop(root);
    }
}

fn system_caller() -> Caller {
    Caller {
        credentials: Credentials::default(),
        process: Pid(0),
        thread: Pid(0),
        group: Pid(0),
        session: Pid(0),
        umask: 0,
        shield: machine::Shield::NONE,
    }
}

/// What the root holds beside the program.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Furniture {
    Nothing,
    /// /dev, /proc, /sys, and a /tmp for everybody.
    All,
}

/// How the first program starts.
pub struct Start {
    pub credentials: Credentials,
    pub directory: &'static [u8],
    pub descriptors: u64,
}

impl Nodes {
    /// Kernels that know each other; the root is on kernel 0, and holds the program.
    pub fn new(shape: Shape) -> Self {
        Nodes::with(shape, Arc::default(), &elf::image(), Furniture::Nothing)
    }
}

impl<U: UserMode + 'static> Nodes<U> {
    /// The same with another program.
    pub fn with(shape: Shape, user: Arc<U>, image: &[u8], furniture: Furniture) -> Self {
        let machine = Machine::new(shape);
        let clock = Arc::new(AtomicU64::new(STEP_NS));
        machine.recorder.start(Some(clock.clone()));
        let nodes = machine.nodes().iter().map(|place| node(place, &machine, user.clone(), &clock)).collect();
        let weights = machine.nodes().iter().map(|_| 1 + machine.world.rng.below(4)).collect();
        let mut nodes = Nodes { machine, user, nodes, clock, weights, frames: Vec::new(), root: Arc::default() };
        for node in &nodes.nodes {
            let others = nodes.nodes.iter().filter(|other| other.id != node.id);
            others.for_each(|other| node.node.system.add_kernel(other.id, other.cpu.cpus.clone()));
        }
        nodes.mount(image.to_vec(), furniture);
        nodes.frames = nodes.nodes.iter().map(|node| nodes.frames_in_use(node)).collect();
        nodes
    }

    fn mount(&self, image: Vec<u8>, furniture: Furniture) {
        let root = &self.nodes[0];
        let (system, services) = (root.node.system.clone(), root.node.services.clone());
        let (late, held) = (root.node.paths.clone(), self.root.clone());
        let trees = RemoteTrees::new(&root.node.remote);
        self.run(root.id, async move {
            let tmpfs = Tmpfs::new(&services, 0o755);
            let tree = (furniture == Furniture::All).then(|| {
                Tree::new(&system, &services, tmpfs.clone(), Arc::new(Ext4Mounter::new(&services, &Arc::default())))
            });
            let paths = match &tree {
                Some(tree) => tree.paths.clone(),
                None => LocalPaths::new(services.clone(), tmpfs, Arc::default()),
            };
            paths.set_trees(trees);
            paths.register_kind("tmpfs", Arc::new(TmpMounter { services: services.clone() }));
            let root = paths.root().await.expect("a fresh tree has a root");
            let base = Base::new(root.clone(), root);
            let flags = OpenFlags::CREAT | OpenFlags::RDWR;
            let open = PathOp::Open { path: PROGRAM.into(), flags, mode: 0o755, resolve: 0 };
            let file = match paths.run(&system_caller(), &base, open).await {
                Ok(PathAnswer::File(file)) => file,
                other => panic!("{:?}", other.err()),
            };
            file.write(&image).await.expect("a small file fits");
            if let Some(tree) = tree {
                for (name, mode) in [("/dev", 0o755), ("/proc", 0o555), ("/sys", 0o555), ("/tmp", 0o1777)] {
                    let make = PathOp::MakeDir { path: name.into(), mode };
                    paths.run(&system_caller(), &base, make).await.expect("a fresh tree has room");
                }
                tree.mount(&system_caller()).await.expect("a fresh kernel has room for its devices");
            }
            *held.0.lock() = Some(paths);
            late.set(held);
        });
    }

    /// Kernels and the CPUs each has.
    pub fn cpus(&self) -> u32 {
        self.nodes.iter().map(|node| node.cpu.cpus.len() as u32).sum()
    }

    /// CPUs of kernels that live.
    pub fn living_cpus(&self) -> Vec<CpuId> {
        self.living().flat_map(|node| node.cpu.cpus.iter().copied()).collect()
    }

    /// Has no kernel that lives this thread?
    pub fn is_gone(&self, thread: u32) -> bool {
        let runs = |node: &SimNode| node.node.system.thread(Pid(thread)).is_some_and(|thread| !thread.is_away());
        !self.living().any(runs)
    }

    /// The CPU that a thread last had, on the kernel that it is on.
    pub fn cpu_of(&self, thread: u32) -> Option<CpuId> {
        let here = self.living().filter_map(|node| node.node.system.thread(Pid(thread)));
        here.filter(|thread| !thread.is_away()).map(|thread| thread.last_cpu()).next()
    }

    /// Starts the program as process 1's first child on a kernel; its id.
    pub fn boot(&self, kernel: usize) -> u32 {
        self.boot_as(kernel, Start { credentials: Credentials::default(), directory: b"/", descriptors: 1024 })
    }

    pub fn boot_as(&self, kernel: usize, start: Start) -> u32 {
        let system = self.nodes[kernel].node.system.clone();
        let cpus: Vec<CpuId> = (0..self.cpus()).map(CpuId).collect();
        self.run(KernelId(kernel as u16), async move {
            let root = system.paths.root().await.expect("the root is mounted");
            let mut limits = [(u64::MAX, u64::MAX); RESOURCES];
            limits[RLIMIT_NOFILE] = (start.descriptors, start.descriptors.max(4096));
            let shared = Shared::first(limits, PROGRAM.into());
            let state = ThreadState::first(start.credentials, cpus.into_iter().collect(), system.now());
            let directory = open(&*system.paths, root.clone(), start.directory).await;
            let thread = system.first_process(shared, root.clone(), directory, state).await.expect("room for one");
            let file = open(&*system.paths, root, PROGRAM).await;
            let program = Program {
                file,
                path: PROGRAM.into(),
                closes: false,
                arguments: vec![PROGRAM.into()],
                environment: vec![],
            };
            let registers = system.load_first(&thread, program).await.expect("the program is good");
            system.launch_first(&thread, registers);
            thread.tid.0
        })
    }

    /// Runs one piece of work of a kernel to its end, and the machine to rest.
    pub fn run<T: Send + 'static>(&self, kernel: KernelId, work: impl Future<Output = T> + Send + 'static) -> T {
        let handle = self.machine.start_on(kernel, work);
        self.settle();
        handle.take().expect("deadlock: at rest, but the work is not done")
    }

    /// One turn of a CPU of this kernel; false if it only found threads that have nothing to do.
    fn turn(&self, node: &SimNode, cpu: usize) -> bool {
        self.clock.fetch_add(STEP_NS, SeqCst);
        node.cpu.current.store(cpu, SeqCst);
        self.recorder.set_cpu(node.id, cpu);
        let (spins, steps) = self.user.turns();
        let ran = self.recorder.during(node.id, || {
            let ran = node.scheduler.turn();
            if !ran {
                node.node.system.vm.send_frames_home(1);
            }
            ran || node.scheduler.take_stall(true) && node.node.system.tell_stalls()
        });
        self.recorder.judge();
        if !ran {
            return false;
        }
        let (spun, stepped) = self.user.turns();
        stepped != steps || spun != spins + 1
    }

    fn living(&self) -> impl Iterator<Item = &SimNode> {
        let alive = self.machine.alive();
        self.nodes.iter().filter(move |node| alive.contains(&node.id))
    }

    /// A kernel dies between two steps. The others do not know yet.
    pub fn kill(&self, kernel: KernelId) {
        self.machine.kill(kernel);
        self.user.forget_idle();
    }

    /// `survivor` notices the death, as crate `kernel` does; the handle says when it is through with it.
    pub fn mourn(&self, survivor: KernelId, dead: KernelId) -> Handle<()> {
        let node = &self.nodes[survivor.index()].node;
        self.recorder.during(survivor, || linux::node::detach(&node.system, &node.remote, dead));
        let system = node.system.clone();
        self.machine.start_on(survivor, async move { system.kernel_died(dead).await })
    }

    /// So many steps, which may leave things half done.
    pub fn steps(&self, count: usize) {
        for _ in 0..count {
            if self.has_work() && self.machine.world.rng.one_in(2) {
                self.machine.step();
                continue;
            }
            self.machine.network.tick();
            let node = self.some_node();
            self.turn(node, self.machine.world.rng.below(node.cpu.cpus.len()));
        }
    }

    /// Messages or tasks that belong to no thread wait.
    fn has_work(&self) -> bool {
        self.machine.executor.ready() > 0 || self.living().any(|node| self.machine.network.has_work(node.id))
    }

    /// A kernel, those of more weight more often.
    fn some_node(&self) -> &SimNode {
        let weight = |node: &SimNode| self.weights[node.id.index()];
        let mut ticket = self.machine.world.rng.below(self.living().map(weight).sum());
        for node in self.living() {
            match ticket.checked_sub(weight(node)) {
                Some(left) => ticket = left,
                None => return node,
            }
        }
        unreachable!("a ticket is below the sum")
    }

    /// Steps in a random order until nothing is left to do but what threads are told.
    pub fn settle(&self) {
        assert!(self.settle_within(MOST_STEPS), "the machine does not come to rest: {}", self.unrest());
    }

    /// What each kernel still has to run.
    fn unrest(&self) -> String {
        let of = |node: &SimNode| {
            let records: Vec<_> = node.node.system.records().into_iter().filter(|(_, count)| *count > 0).collect();
            format!("{:?}: load {}, {records:?}", node.id, node.scheduler.load())
        };
        let mut all: Vec<String> = self.living().map(of).collect();
        all.push(self.user.last());
        all.join("; ")
    }

    /// The same for so many steps; false if that was not enough.
    pub fn settle_within(&self, most: usize) -> bool {
        let (rng, mut quiet) = (&self.machine.world.rng, 0);
        for _ in 0..most {
            if self.has_work() && rng.one_in(2) {
                self.machine.step();
                quiet = 0;
                continue;
            }
            self.machine.network.tick();
            let node = self.some_node();
            quiet = if self.turn(node, rng.below(node.cpu.cpus.len())) { 0 } else { quiet + 1 };
            if quiet > 2 * self.nodes.len() && !self.has_work() && self.is_at_rest() && !self.pass_time() {
                return true;
            }
        }
        false
    }

    /// Turns enough that every task that could go on had one (a thread that has had more than its share waits until the others
    /// have had two slices), and none did.
    fn is_at_rest(&self) -> bool {
        self.user.forget_idle();
        let load = || self.living().map(|node| node.scheduler.load()).sum::<usize>();
        let before = load();
        for node in self.living() {
            for cpu in 0..node.cpu.cpus.len() {
                // One that ends is no load.
                for _ in 0..=3 * (node.scheduler.load() + 1) {
                    if self.turn(node, cpu) {
                        return false;
                    }
                }
            }
        }
        // A timer may have woken a thread that stands behind those which had a turn.
        !self.has_work() && load() == before && self.user.idle().len() == before
    }

    /// At rest: goes on to the next message that arrives, or to the next timer. False if there is none.
    fn pass_time(&self) -> bool {
        if self.machine.network.skip_to_arrival() {
            return true;
        }
        let now = self.clock.load(SeqCst);
        let next = self.living().filter_map(|node| node.scheduler.timers().earliest()).min();
        match next.filter(|at| *at <= now + PATIENCE_NS) {
            Some(at) => {
                self.clock.fetch_max(at, SeqCst);
                true
            }
            None => false,
        }
    }

    /// Nothing happens for so long.
    pub fn pass(&self, ns: u64) {
        self.clock.fetch_add(ns, SeqCst);
    }

    /// Every kernel looks at who has talked, before any of them goes on.
    pub fn look_for_pairs(&self) {
        for node in self.living() {
            self.recorder.during(node.id, || node.node.system.look_for_pairs());
        }
    }

    /// Kills all processes.
    pub fn kill_all(&self) {
        for node in self.living() {
            let system = node.node.system.clone();
            let kill = abi::signal::SignalInfo::kernel(abi::signal::Signal::KILL);
            self.run(node.id, async move {
                // Where there is nobody left: ESRCH.
                let _ = system.signal(process::Target::All, Some(kill), None, Pid(0)).await;
            });
        }
        assert_eq!(self.idle(), BTreeSet::new(), "threads that outlived SIGKILL");
    }

    /// But for pages of files, which may stay.
    fn frames_in_use(&self, node: &SimNode) -> usize {
        let in_files = |of: &SimNode| of.node.services.pages().get(&node.id).copied().unwrap_or_default();
        self.world.used_of(node.id) - self.living().map(in_files).sum::<u64>() as usize
    }

    /// Gives back whatever is only kept in case it is wanted again, or because nobody has looked.
    fn tidy(&self) {
        if let Some(root) = self.living().find(|node| node.id == KernelId(0)) {
            let system = root.node.system.clone();
            self.run(root.id, async move { linux::node::collect_sockets(&system).await });
            self.settle();
        }
        for node in self.living() {
            self.recorder.during(node.id, || {
                node.node.services.reclaim(usize::MAX);
                node.node.remote.reclaim();
                node.node.system.vm.send_frames_home(1);
            });
        }
        self.settle();
    }

    /// Kills all processes; then no kernel knows any of them any more.
    pub fn end_all(&self) {
        self.kill_all();
        self.tidy();
        for node in self.living() {
            let left = node.node.system.records();
            assert!(left.iter().all(|(_, count)| *count == 0), "left on {:?}: {left:?}", node.id);
            assert_eq!(node.node.system.futexes.waiting(), 0, "waiters on {:?}", node.id);
            let spaces: Vec<_> = node.node.system.vm.spaces().iter().map(|space| space.id()).collect();
            assert!(spaces.is_empty(), "spaces that outlived their processes on {:?}: {spaces:?}", node.id);
            let (before, now) = (self.frames[node.id.index()], self.frames_in_use(node));
            assert_eq!(before, now, "frames in use on {:?}: {:?}", node.id, self.world.used());
        }
        self.recorder.finish();
    }

    /// Threads that wait for a command. The machine is at rest.
    pub fn idle(&self) -> BTreeSet<u32> {
        self.user.idle()
    }
}

/// A node is a machine with more on it.
impl<U> std::ops::Deref for Nodes<U> {
    type Target = Machine;
    fn deref(&self) -> &Machine {
        &self.machine
    }
}

/// Threads are born, and programs begin, on any kernel; where they are then they stay.
struct Anywhere(Rng);

impl Placement for Anywhere {
    fn choose(&self, _here: KernelId, candidates: &[Candidate<'_>]) -> KernelId {
        self.0.pick(candidates).kernel
    }

    fn relieve(&self, _here: KernelId, _candidates: &[Candidate<'_>]) -> Option<KernelId> {
        None
    }
}

fn node(place: &crate::machine::Node, machine: &Machine, user: Arc<dyn UserMode>, clock: &Arc<AtomicU64>) -> SimNode {
    let crate::machine::Node { id, memory, spawner, endpoint } = place.clone();
    let shape = machine.shape;
    let first = (id.index() * shape.cpus) as u32;
    let cpus = (first..first + shape.cpus as u32).map(CpuId).collect();
    let (clock, world) = (clock.clone(), machine.world.clone());
    let cpu = Arc::new(SimCpu { cpus, current: Default::default(), clock, user, world });
    let scheduler = Scheduler::new(cpu.clone() as Arc<dyn Cpu>, id);
    machine.executor.schedulers.lock().insert(id, Arc::downgrade(&scheduler));
    let rng = Rng::new(shape.seed ^ id.index() as u64);
    let node = Node::new(Ground {
        kernels: shape.kernels,
        root: KernelId(0),
        cpu: cpu.clone(),
        memory,
        endpoint,
        scheduler: scheduler.clone(),
        spawner,
        placement: Arc::new(Anywhere(rng)),
        board_load: |_| 0,
        injector: None,
        abi: Arc::new(Linux::default()),
    });
    SimNode { id, cpu, scheduler, node }
}

async fn open(paths: &dyn Paths, root: Arc<dyn File>, path: &[u8]) -> Arc<dyn File> {
    let base = Base::new(root.clone(), root);
    let open = PathOp::Open { path: path.into(), flags: OpenFlags::empty(), mode: 0, resolve: 0 };
    match paths.run(&system_caller(), &base, open).await {
        Ok(PathAnswer::File(file)) => file,
        other => panic!("{}: {:?}", path.escape_ascii(), other.err()),
    }
}
