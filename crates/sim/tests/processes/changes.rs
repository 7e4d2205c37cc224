//! Changes of what threads share, made at once on several kernels while others are just joining: crates/process/src/change.rs.

use crate::{born, shape, wander};
use sim::{
    life::model::{Id, USR1},
    nodes::{
        machine::Nodes,
        user::{action, call, clone_thread, Arg, Command},
    },
};

const THREADS: usize = 6;
const DIRECTORIES: [&[u8]; 3] = [b"/a\0", b"/b\0", b"/c\0"];

fn some_change(nodes: &Nodes) -> Command {
    let rng = &nodes.world.rng;
    match rng.below(3) {
        0 => {
            let arguments = [Arg::Value(USR1.into()), Arg::Input, Arg::Value(0), Arg::Value(8)];
            Command::new(call::SIGACTION, &arguments).input(action(rng.below(3) as u64))
        }
        1 => Command::plain(call::UMASK, &[rng.below(0o777) as u64]),
        _ => Command::new(call::CHDIR, &[Arg::Input]).input(*rng.pick(&DIRECTORIES)),
    }
}

/// What each kernel that has the process believes.
fn beliefs(nodes: &Nodes, process: Id) -> Vec<String> {
    let mut beliefs = Vec::new();
    for node in &nodes.nodes {
        let Some(process) = node.node.system.process(machine::Pid(process)) else { continue };
        let action = process.with_shared(|shared| shared.actions.get(abi::signal::Signal::new(USR1.into()).unwrap()));
        let umask = process.with_shared(|shared| shared.umask);
        let path = nodes.run(node.id, async move { process.directories().await.unwrap().cwd.path().await });
        beliefs.push(format!("{action:?}, {umask:o}, {}", String::from_utf8_lossy(&path)));
    }
    beliefs
}

#[test]
fn changes_at_once_end_the_same_on_all_kernels() {
    for seed in 1..120 {
        let nodes = Nodes::new(shape(seed, 2 + seed as usize % 3));
        let first = nodes.boot(0);
        for directory in DIRECTORIES {
            nodes.user.tell(first, Command::new(call::MKDIR, &[Arg::Input, Arg::Value(0o755)]).input(directory));
            nodes.settle();
        }
        nodes.user.events();
        for round in 0..4 {
            // A new process is on one kernel: its threads' first moves make the replicas.
            let child = born(&nodes, first, Command::plain(call::FORK, &[]));
            let mut threads: Vec<Id> =
                (1..THREADS as u64).map(|slot| born(&nodes, child, clone_thread(slot))).collect();
            threads.push(child);
            for step in 0..4 {
                for thread in &threads {
                    let commands = match nodes.world.rng.below(3) {
                        0 => vec![wander(&nodes)],
                        1 => vec![wander(&nodes), some_change(&nodes)],
                        _ => vec![some_change(&nodes), some_change(&nodes)],
                    };
                    nodes.user.tell_all(*thread, commands);
                }
                nodes.settle();
                nodes.user.events();
                let beliefs = beliefs(&nodes, child);
                assert!(beliefs.windows(2).all(|two| two[0] == two[1]), "seed {seed}, {round}.{step}: {beliefs:#?}");
            }
        }
        nodes.end_all();
    }
}
