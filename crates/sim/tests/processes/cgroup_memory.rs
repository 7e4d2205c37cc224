//! A control group whose memory is on several kernels: crates/process/src/cgroup/reclaim.rs.

use crate::{born, shape, wander};
use machine::{account::Charge, BoxFuture, GroupId, KernelId, Pid, SpaceId, PAGE_SIZE};
use messages::cgroup::Reclaim;
use process::{
    cgroup::{Controllers, Ownership},
    System,
};
use sim::nodes::{
    machine::Nodes,
    user::{call, Command},
};
use std::sync::{
    atomic::{AtomicUsize, Ordering::SeqCst},
    Arc, Mutex,
};
use vm::Relief;

/// What a kernel does for a group that is full. It has no files whose pages could go.
struct Grants(Arc<System>);

impl Relief for Grants {
    fn machine_pages(&self) -> u64 {
        u64::MAX
    }

    fn reclaim(&self) -> usize {
        0
    }

    fn room_in_group(&self, group: GroupId, thread: Pid) -> BoxFuture<'_, bool> {
        Box::pin(self.0.room_in_cgroup(group, thread))
    }

    fn end_one(&self, _space: SpaceId) -> BoxFuture<'_, bool> {
        Box::pin(async { false })
    }
}

/// Kernels draw what they charge groups with: else their processes would end at the first page.
pub(crate) fn grant_to_groups(nodes: &Nodes) {
    for node in &nodes.nodes {
        node.node.system.vm.set_relief(Arc::new(Grants(node.node.system.clone())));
    }
}

/// MAP_PRIVATE, ANONYMOUS, POPULATE; readable and writable.
fn populate(pages: u64) -> Command {
    Command::plain(call::MMAP, &[0, pages * PAGE_SIZE as u64, 3, 0x8022, u64::MAX, 0])
}

const MOST: u64 = 120;

#[test]
fn the_limit_holds_for_all_kernels_together() {
    for seed in 1..40 {
        let nodes = Nodes::new(shape(seed, 1 + seed as usize % 4));
        let first = nodes.boot(0);
        nodes.user.events();
        grant_to_groups(&nodes);
        let system = nodes.nodes[0].node.system.clone();
        let group = system.with_cgroups(|tree| {
            tree.enable(GroupId::ROOT, Controllers::MEMORY, Controllers::empty()).unwrap();
            let owner = Ownership { mode: 0o755, uid: 0, gid: 0 };
            let group = tree.make(GroupId::ROOT, b"a", owner, Charge::FREE).unwrap();
            tree.change(group).unwrap().memory.max = Some(MOST);
            group
        });
        let mut processes = Vec::new();
        for _ in 0..3 {
            let process = born(&nodes, first, Command::plain(call::FORK, &[]));
            let system = system.clone();
            nodes.run(KernelId(0), async move { system.attach_to_cgroup(Pid(process), group).await.unwrap() });
            nodes.user.tell(process, wander(&nodes));
            processes.push(process);
        }
        nodes.settle();
        let charged = |nodes: &Nodes| -> u64 {
            let ledgers = nodes.nodes.iter().filter_map(|node| node.node.system.memory.ledgers());
            ledgers.map(|ledgers| ledgers.usage(&[group]).iter().sum::<u64>()).sum()
        };
        for process in &processes {
            let pages = 10 + nodes.world.rng.below(50) as u64;
            nodes.user.tell_all(*process, vec![populate(pages), wander(&nodes), populate(pages)]);
        }
        for _ in 0..20 {
            nodes.steps(nodes.world.rng.below(200));
            assert!(charged(&nodes) <= MOST, "seed {seed}: {} pages", charged(&nodes));
        }
        nodes.settle();
        assert!(charged(&nodes) <= MOST, "seed {seed}: {} pages", charged(&nodes));
        let kills = system.with_cgroups(|tree| tree.get(group).unwrap().memory.events.oom_kill);
        let living = processes.iter().filter(|process| nodes.idle().contains(process)).count();
        assert!(living + kills as usize >= processes.len(), "seed {seed}: {living} live, {kills} were killed");
        nodes.end_all();
        for node in &nodes.nodes {
            let system = node.node.system.clone();
            nodes.run(node.id, async move { system.return_to_cgroups() });
        }
        assert_eq!(charged(&nodes), 0, "seed {seed}: nobody is left that could be charged");
        let removed = system.with_cgroups(|tree| {
            tree.remove(group).unwrap();
            tree.get(GroupId::ROOT).unwrap().descendants()
        });
        assert_eq!(removed, (0, 0), "seed {seed}: all grants were given back");
    }
}

/// A kernel that has so many pages of files that can go, of one kind, and remembers what it was asked for.
struct Pages {
    kind: Reclaim,
    left: AtomicUsize,
    asked: Mutex<Vec<Reclaim>>,
}

impl Relief for Pages {
    fn machine_pages(&self) -> u64 {
        u64::MAX
    }

    fn reclaim(&self) -> usize {
        0
    }

    fn reclaim_of<'a>(&'a self, _groups: &'a [GroupId], which: Reclaim) -> BoxFuture<'a, usize> {
        self.asked.lock().unwrap().push(which);
        let dropped = if which == self.kind { self.left.swap(0, SeqCst) } else { 0 };
        Box::pin(async move { dropped })
    }

    fn end_one(&self, _space: SpaceId) -> BoxFuture<'_, bool> {
        Box::pin(async { false })
    }
}

#[test]
fn what_is_in_use_on_a_kernel_goes_only_if_there_is_nothing_better_on_any() {
    use Reclaim::{Unmapped, Unused, Used};
    let cases: [(Reclaim, &[Reclaim]); 3] =
        [(Unmapped, &[Unmapped]), (Unused, &[Unmapped, Unused]), (Used, &[Unmapped, Unused, Used])];
    for (kind, expected) in cases {
        let nodes = Nodes::new(shape(1, 3));
        nodes.boot(0);
        let system = nodes.nodes[0].node.system.clone();
        let group = system.with_cgroups(|tree| {
            tree.enable(GroupId::ROOT, Controllers::MEMORY, Controllers::empty()).unwrap();
            tree.make(GroupId::ROOT, b"a", Ownership { mode: 0o755, uid: 0, gid: 0 }, Charge::FREE).unwrap()
        });
        // The last one has them.
        let all = nodes.nodes.iter().enumerate().map(|(number, node)| {
            let left = AtomicUsize::new(if number == 2 { 100 } else { 0 });
            let pages = Arc::new(Pages { kind, left, asked: Mutex::default() });
            node.node.system.vm.set_relief(pages.clone());
            pages
        });
        let all: Vec<_> = all.collect();
        nodes.run(KernelId(0), async move { system.reclaim_in_cgroup(group, 100).await.unwrap() });
        all.iter().for_each(|pages| assert_eq!(*pages.asked.lock().unwrap(), expected));
        nodes.end_all();
    }
}
