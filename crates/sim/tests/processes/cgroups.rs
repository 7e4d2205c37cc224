//! Control groups beside forks, births, ends and moves of their processes: crates/process/src/cgroup.

use crate::{born, cgroup_memory::grant_to_groups, shape, wander};
use machine::{account::Charge, Errno, GroupId, KernelId, Pid};
use process::cgroup::{Controllers, Ownership};
use sim::{
    life::model::Id,
    nodes::{
        machine::Nodes,
        user::{call, clone_thread, Command},
    },
};
use std::{collections::BTreeMap, sync::Arc};

struct Herd {
    nodes: Nodes,
    groups: Vec<GroupId>,
    /// Threads and their processes; the first is in no group, and makes and waits for nothing.
    threads: BTreeMap<Id, Id>,
    shepherd: Id,
}

impl Herd {
    /// Some processes of some threads in the first of two groups, on any kernels.
    fn new(seed: u64) -> Herd {
        let nodes = Nodes::new(shape(seed, 1 + seed as usize % 4));
        let shepherd = nodes.boot(0);
        nodes.user.events();
        grant_to_groups(&nodes);
        let system = nodes.nodes[0].node.system.clone();
        let groups = system.with_cgroups(|tree| {
            tree.enable(GroupId::ROOT, Controllers::PIDS, Controllers::empty()).unwrap();
            let owner = Ownership { mode: 0o755, uid: 0, gid: 0 };
            ["a", "b"].map(|name| tree.make(GroupId::ROOT, name.as_bytes(), owner, Charge::FREE).unwrap()).to_vec()
        });
        let mut herd = Herd { nodes, groups, threads: BTreeMap::new(), shepherd };
        for slot in 0..3 {
            let process = born(&herd.nodes, shepherd, Command::plain(call::FORK, &[]));
            herd.threads.insert(process, process);
            let to = herd.groups[0];
            herd.nodes.run(KernelId(0), {
                let system = system.clone();
                async move { system.attach_to_cgroup(Pid(process), to).await.unwrap() }
            });
            if herd.nodes.world.rng.one_in(2) {
                let thread = born(&herd.nodes, process, clone_thread(slot + 1));
                herd.threads.insert(thread, process);
            }
        }
        for thread in herd.threads.keys() {
            herd.nodes.user.tell(*thread, wander(&herd.nodes));
        }
        herd.nodes.settle();
        herd.nodes.user.events();
        herd
    }

    fn system(&self) -> Arc<process::System> {
        self.nodes.nodes[0].node.system.clone()
    }

    /// All threads do something at once: fork, make a thread, end.
    fn stir(&self, ends: bool) {
        let rng = &self.nodes.world.rng;
        for (slot, thread) in self.threads.keys().enumerate() {
            let mut commands = vec![Command::plain(call::FORK, &[]); 1 + rng.below(2)];
            if rng.one_in(2) {
                commands.push(clone_thread(4 + slot as u64 % 3));
            }
            if ends && rng.one_in(3) {
                commands.push(Command::plain(call::EXIT, &[0]));
            }
            self.nodes.user.tell_all(*thread, commands);
        }
    }

    /// What a group's record says is what its processes say. (Of those that have ended each counts one more.)
    fn check_counts(&self, seed: u64, all_live: bool) {
        for group in self.groups.iter().copied() {
            let system = self.system();
            let members = self.nodes.run(KernelId(0), async move { system.cgroup_members(group).await });
            let threads: usize = members.iter().map(|(_, threads)| threads.len()).sum();
            let (current, populated) = self.system().with_cgroups(|tree| {
                let group = tree.get(group).unwrap();
                (group.pids.current as usize, group.is_populated())
            });
            assert!(current >= threads, "seed {seed}: {group:?} counts {current} of {members:?}");
            assert!(!all_live || current == threads, "seed {seed}: {group:?} counts {current} of {members:?}");
            assert_eq!(populated, !members.is_empty(), "seed {seed}: {group:?}");
        }
    }

    fn end(self) {
        self.nodes.end_all();
        let system = self.system();
        for group in &self.groups {
            let current = system.with_cgroups(|tree| tree.get(*group).unwrap().pids.current);
            assert_eq!(current, 0, "all are gone");
        }
    }
}

#[test]
fn no_child_slips_through_a_kill() {
    for seed in 1..100 {
        let herd = Herd::new(seed);
        herd.stir(false);
        herd.nodes.steps(herd.nodes.world.rng.below(200));
        let (system, group) = (herd.system(), herd.groups[0]);
        herd.nodes.nodes[0].scheduler.spawn(async move { system.kill_cgroup(group).await });
        herd.nodes.settle();
        let idle: Vec<Id> = herd.nodes.idle().into_iter().filter(|thread| *thread != herd.shepherd).collect();
        assert_eq!(idle, [], "seed {seed}: live on");
        let populated = herd.system().with_cgroups(|tree| tree.get(group).unwrap().is_populated());
        assert!(!populated, "seed {seed}");
        herd.check_counts(seed, false);
        herd.end();
    }
}

#[test]
fn a_process_that_is_moved_is_counted_once() {
    for seed in 1..100 {
        let herd = Herd::new(seed);
        let all_live = seed % 2 == 0;
        herd.stir(!all_live);
        for round in 0..4 {
            for process in herd.threads.values().copied() {
                let to = match herd.nodes.world.rng.below(3) {
                    0 => GroupId::ROOT,
                    which => herd.groups[which - 1],
                };
                let system = herd.system();
                herd.nodes.nodes[0].scheduler.spawn(async move {
                    let moved = system.attach_to_cgroup(Pid(process), to).await;
                    assert!(matches!(moved, Ok(()) | Err(Errno::ESRCH)), "seed {seed}, round {round}: {moved:?}");
                });
            }
            herd.nodes.steps(herd.nodes.world.rng.below(100));
        }
        herd.nodes.settle();
        herd.check_counts(seed, all_live);
        herd.end();
    }
}
