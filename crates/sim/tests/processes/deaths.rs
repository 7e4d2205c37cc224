//! What was under way when a kernel dies.

use crate::{born, go_to, results, shape, wander};
use machine::{Access, Errno, KernelId, UserAddr, PAGE_SIZE};
use sim::{
    cluster::{Cluster, Shape},
    life::model::{Id, CHLD, KILL, RT, TERM, USR1},
    nodes::{
        elf::stack_top,
        machine::{Nodes, PROGRAM},
        user::{action, call, clone_thread, Arg, Command, Event},
    },
};
use std::collections::{BTreeMap, BTreeSet};
use vm::{MapAddress, MapRequest};

const BASE: u64 = 0x4000_0000;
const PAGES: u64 = 8;

/// The machine panics if a frame is freed while a table leads to it.
#[test]
fn what_a_dying_owner_was_offered_is_not_used_again() {
    let mut unanswered = 0;
    for seed in 1..400 {
        let cluster = Cluster::new(Shape { scarce: false, frames: 1 << 12, ..Shape::of(seed, 3) });
        let home = cluster.kernels[0].vm.create().unwrap();
        let away = [1, 2].map(|kernel: usize| cluster.kernels[kernel].vm.attach(home.id()).unwrap());
        let map = home.clone();
        cluster.run(async move {
            let all = MapRequest::anonymous(PAGES * PAGE_SIZE as u64, Access::READ.union(Access::WRITE));
            map.map(all.at(MapAddress::Fixed(UserAddr(BASE)))).await.unwrap();
        });
        // One page after the other, which makes the offers more, while the third kernel looks at them.
        let at = |page: u64| UserAddr(BASE + page * PAGE_SIZE as u64);
        let mut work = Vec::new();
        for (index, space) in away.iter().enumerate() {
            let space = space.clone();
            work.push(cluster.start(async move {
                for page in 0..PAGES {
                    match index {
                        0 => space.write(at(page), &[1]).await?,
                        _ => drop(space.read_value::<u8>(at(page)).await?),
                    }
                }
                Ok::<_, Errno>(())
            }));
        }
        for _ in 0..cluster.world.rng.below(100) {
            cluster.step();
        }
        unanswered += u32::from(cluster.kernels[1].endpoint.outstanding().0 > 0);
        cluster.kill(KernelId(0));
        for survivor in [1, 2] {
            cluster.declare_dead(KernelId(survivor), KernelId(0));
        }
        cluster.settle();
        assert!(work.iter().all(|work| work.take().is_some()), "seed {seed}: a survivor waits for the dead");
        cluster.world.give_up();
    }
    assert!(unanswered > 20, "only {unanswered} deaths met a question");
}

/// Threads of a machine that do this and that.
struct Crowd {
    nodes: Nodes,
    threads: BTreeSet<Id>,
    stacks: u64,
    /// Processes share memory, descriptors and directories, too.
    shares: bool,
    /// What was told and has not returned: (thread, call) by number.
    told: BTreeMap<u64, (Id, u64)>,
}

impl Crowd {
    fn tell(&mut self, thread: Id, command: Command) {
        let made = command.call;
        let number = self.nodes.user.tell(thread, command);
        self.told.insert(number, (thread, made));
    }

    fn look(&mut self) {
        for event in self.nodes.user.events() {
            match event {
                Event::Returned { number, .. } => drop(self.told.remove(&number)),
                Event::Born { thread, .. } => drop(self.threads.insert(thread)),
                Event::Executed { thread } => {
                    self.threads.insert(thread);
                    // Whoever called it; and what the main thread was told that is no more.
                    self.told.retain(|_, (told, made)| *made != call::EXECVE && *told != thread);
                }
                Event::Handled { .. } => {}
            }
        }
    }

    fn something(&mut self, thread: Id) -> Command {
        let rng = &self.nodes.world.rng;
        let all: Vec<Id> = self.threads.iter().copied().collect();
        let some = u64::from(*rng.pick(&all));
        let few = self.threads.len() < 14;
        match rng.below(12) {
            1 if few && self.shares => {
                // CLONE_VM, with a stack of its own, CLONE_FS, CLONE_FILES: some of them.
                self.stacks += 1;
                let (shares, stack) = *rng.pick(&[(0x600, 0), (0x400, 0), (0x100, stack_top(self.stacks))]);
                Command::plain(call::CLONE, &[shares | u64::from(CHLD), stack])
            }
            0 | 1 if few => Command::plain(call::FORK, &[]),
            2 if few => {
                self.stacks += 1;
                clone_thread(self.stacks)
            }
            3..=5 => wander(&self.nodes),
            6 => Command::plain(call::KILL, &[some, (*rng.pick(&[USR1, RT, TERM, KILL])).into()]),
            7 => Command::new(call::EXECVE, &[Arg::Input]).input([PROGRAM, b"\0"].concat()),
            8 => Command::new(call::WAIT4, &[Arg::Value(u64::MAX), Arg::Output, Arg::Value(rng.below(2) as u64)]),
            9 => {
                let signal = *rng.pick(&[USR1, RT, CHLD]);
                let arguments = [Arg::Value(signal.into()), Arg::Input, Arg::Value(0), Arg::Value(8)];
                Command::new(call::SIGACTION, &arguments).input(action(2))
            }
            10 if thread.is_multiple_of(3) => Command::plain(call::EXIT, &[0]),
            _ => Command::plain(call::KILL, &[u64::from(thread), USR1.into()]),
        }
    }
}

#[test]
fn survivors_come_to_rest_and_answer() {
    kernels_die(false);
}

#[test]
fn survivors_that_shared_come_to_rest_and_answer() {
    kernels_die(true);
}

fn kernels_die(shares: bool) {
    let seeds = std::env::var("SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(2000);
    let from = std::env::var("FROM").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    for seed in from..from + seeds {
        println!("seed {seed}");
        let kernels = 3 + seed as usize % 2;
        let nodes = Nodes::new(shape(seed, kernels));
        let first = nodes.boot(seed as usize % kernels);
        let mut crowd = Crowd { nodes, threads: BTreeSet::from([first]), stacks: 0, shares, told: BTreeMap::new() };
        crowd.look();
        for signal in [USR1, RT] {
            let arguments = [Arg::Value(signal.into()), Arg::Input, Arg::Value(0), Arg::Value(8)];
            crowd.tell(first, Command::new(call::SIGACTION, &arguments).input(action(2)));
            crowd.nodes.settle();
        }
        for _ in 0..12 {
            crowd.look();
            for thread in crowd.nodes.idle() {
                let command = crowd.something(thread);
                crowd.tell(thread, command);
            }
            crowd.nodes.settle();
        }
        crowd.look();
        for thread in crowd.nodes.idle() {
            let command = crowd.something(thread);
            crowd.tell(thread, command);
        }
        let rng = &crowd.nodes.world.rng;
        crowd.nodes.steps(rng.below(600));
        let dead = KernelId(1 + rng.below(kernels - 1) as u16);
        crowd.nodes.kill(dead);
        let mut mourners: Vec<KernelId> = crowd.nodes.alive();
        let mut mourning = Vec::new();
        while !mourners.is_empty() {
            crowd.nodes.steps(rng.below(100));
            let survivor = mourners.swap_remove(rng.below(mourners.len()));
            mourning.push(crowd.nodes.mourn(survivor, dead));
        }
        crowd.nodes.settle();
        crowd.look();
        assert!(
            mourning.iter().all(|done| done.take().is_some()),
            "seed {seed}: a survivor is not through with {dead}"
        );
        if let Some(mapping) = crowd.nodes.world.haunted(dead) {
            panic!("seed {seed}: {mapping}, though {dead} is dead");
        }
        // Who is left waits for a child, or for a command.
        let idle = crowd.nodes.idle();
        let there = |thread: &Id| {
            crowd.nodes.nodes.iter().any(|node| {
                node.id != dead
                    && node.node.system.thread(machine::Pid(*thread)).is_some_and(|thread| !thread.is_away())
            })
        };
        for (thread, made) in crowd.told.values().filter(|(thread, _)| there(thread) && !idle.contains(thread)) {
            assert_eq!(*made, call::WAIT4, "seed {seed}: {thread} has no answer");
        }
        // They answer.
        for thread in &idle {
            crowd.nodes.user.tell(*thread, Command::plain(call::GETPPID, &[]));
        }
        crowd.nodes.settle();
        let answered = crowd.nodes.user.events().iter().filter(|event| matches!(event, Event::Returned { .. })).count();
        assert_eq!(answered, idle.len(), "seed {seed}");
        crowd.nodes.end_all();
    }
}

/// The home dies when what its thread finds at its destination is there, and the thread is not.
#[test]
fn a_replica_that_came_before_its_thread_goes_with_the_home() {
    for seed in 1..60 {
        let nodes = Nodes::new(shape(seed, 3));
        let first = nodes.boot(0);
        let thread = born(&nodes, first, Command::plain(call::FORK, &[]));
        let cpu = |kernel: usize| nodes.nodes[kernel].cpu.cpus[0].0 as usize;
        // One that is at home on the kernel which dies.
        nodes.user.tell(thread, go_to(cpu(1)));
        nodes.settle();
        let child = born(&nodes, thread, Command::plain(call::FORK, &[]));
        let is_move = |_: KernelId, to: KernelId, packet: &[u8]| {
            to == KernelId(2) && fabric::describe(packet).starts_with("migrate Request")
        };
        nodes.network.hold(Box::new(is_move));
        nodes.user.tell(child, go_to(cpu(2)));
        nodes.settle();
        let there = &nodes.nodes[2].node.system;
        assert!(there.process(machine::Pid(child)).is_some(), "seed {seed}: the replica is there before the thread");
        nodes.kill(KernelId(1));
        let mourning: Vec<_> = nodes.alive().into_iter().map(|survivor| nodes.mourn(survivor, KernelId(1))).collect();
        nodes.settle();
        assert!(mourning.iter().all(|done| done.take().is_some()), "seed {seed}: a survivor is not through");
        assert!(there.process(machine::Pid(child)).is_none(), "seed {seed}: the replica is still there");
        nodes.end_all();
    }
}

/// A process that has counters of the dead kernel's CPUs, mapped and touched or not, and no thread there goes on without them.
#[test]
fn counters_of_a_dead_kernel_take_nobody_with_them() {
    for seed in 1..150 {
        let nodes = Nodes::new(shape(seed, 3));
        let first = nodes.boot(0);
        let cpu = |kernel: usize| nodes.nodes[kernel].cpu.cpus[0].0;
        let cpus = u64::from(nodes.cpus());
        let enable = Command::new(call::UMT_ENABLE, &[Arg::Output, Arg::Value(cpus), Arg::Value(0)]);
        nodes.user.tell(first, enable.output(4 * cpus as usize));
        nodes.settle();
        let fds = nodes.user.events().into_iter().find_map(|event| match event {
            Event::Returned { output, .. } => Some(output),
            _ => None,
        });
        let place = 4 * cpu(2) as usize;
        let fd = u32::from_ne_bytes(fds.expect("it has returned")[place..place + 4].try_into().unwrap());
        let map = Command::plain(call::MMAP, &[0, PAGE_SIZE as u64, 1, 1, fd.into(), 0]);
        // Also from a kernel that is not its home.
        let by = go_to(cpu(seed as usize % 2) as usize);
        let at = results(&nodes, first, vec![by, map])[1];
        assert!(at > 0, "seed {seed}: mmap: {at}");
        let touch = Command::plain(call::SIGACTION, &[USR1.into(), at as u64, 0, 8]);
        if seed % 3 == 0 {
            assert_eq!(results(&nodes, first, vec![touch.clone()]), [0], "seed {seed}");
        }
        nodes.steps(nodes.world.rng.below(100));
        nodes.kill(KernelId(2));
        let mourning: Vec<_> = nodes.alive().into_iter().map(|survivor| nodes.mourn(survivor, KernelId(2))).collect();
        nodes.settle();
        assert!(mourning.iter().all(|done| done.take().is_some()), "seed {seed}: a survivor is not through");
        assert_eq!(nodes.world.haunted(KernelId(2)), None, "seed {seed}");
        let read = Command::new(call::READ, &[Arg::Value(fd.into()), Arg::Output, Arg::Value(8)]);
        let gone = [Errno::EFAULT, Errno::EIO].map(|error| -i64::from(error.0));
        assert_eq!(results(&nodes, first, vec![touch, read]), gone, "seed {seed}");
        nodes.end_all();
    }
}
