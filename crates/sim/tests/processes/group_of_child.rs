//! The group of a child, by which its parent waits for it: crates/process/src/group.rs.

use crate::{born, results, shape, wander};
use sim::{
    life::model::{Id, KILL, WNOHANG},
    nodes::{
        machine::Nodes,
        user::{call, clone_thread, Arg, Command, Event},
    },
};

/// A machine and its first process.
fn boot(seed: u64) -> (Nodes, Id) {
    let nodes = Nodes::new(shape(seed, 1 + seed as usize % 6));
    let first = nodes.boot(0);
    nodes.user.events();
    (nodes, first)
}

/// A process on some kernel.
fn process(nodes: &Nodes, parent: Id) -> Id {
    nodes.user.tell(parent, wander(nodes));
    nodes.settle();
    nodes.user.events();
    born(nodes, parent, Command::plain(call::FORK, &[]))
}

fn set_group(process: Id, group: Id) -> Command {
    Command::plain(call::SETPGID, &[process.into(), group.into()])
}

/// 0 if there is such a child that lives, ECHILD if there is none.
fn wait_for(group: Id) -> Command {
    let which = Arg::Value(-i64::from(group) as u64);
    Command::new(call::WAIT4, &[which, Arg::Output, Arg::Value(WNOHANG)])
}

/// Its parent waits for it by the group that it says it is in.
fn check(nodes: &Nodes, parent: Id, child: Id, what: &str) {
    let group = results(nodes, child, vec![Command::plain(call::GETPGID, &[0])])[0];
    assert!(group > 0, "{what}");
    assert_eq!(results(nodes, parent, vec![wait_for(group as Id)]), [0], "{what}: group {group}");
}

#[test]
fn a_parent_waits_for_the_group_that_it_or_the_child_has_made() {
    for seed in 1..800 {
        let (nodes, parent) = boot(seed);
        let child = process(&nodes, parent);
        results(&nodes, parent, vec![wander(&nodes)]);
        nodes.user.tell(child, set_group(0, 0));
        let results = results(&nodes, parent, vec![set_group(child, child), wait_for(child)]);
        assert_eq!(results, [0, 0], "seed {seed}: (setpgid, wait4)");
        nodes.end_all();
    }
}

#[test]
fn a_parent_knows_the_last_group_of_its_child() {
    for seed in 1..800 {
        let (nodes, parent) = boot(seed);
        let child = process(&nodes, parent);
        results(&nodes, parent, vec![wander(&nodes)]);
        results(&nodes, child, vec![wander(&nodes)]);
        let new_session = Command::plain(call::SETSID, &[]);
        let own = if nodes.world.rng.one_in(2) { new_session } else { set_group(0, 0) };
        nodes.user.tell(child, own);
        results(&nodes, parent, vec![set_group(child, parent)]);
        check(&nodes, parent, child, &format!("seed {seed}"));
        // A session's leader is the leader of its group.
        let ids = results(&nodes, child, vec![Command::plain(call::GETSID, &[0]), Command::plain(call::GETPGID, &[0])]);
        assert!(ids[0] != child.into() || ids[1] == child.into(), "seed {seed}: session and group {ids:?} of {child}");
        nodes.end_all();
    }
}

#[test]
fn of_many_that_make_a_leader_one_succeeds() {
    for seed in 1..400 {
        let (nodes, parent) = boot(seed);
        let child = process(&nodes, parent);
        let mut threads = vec![child];
        threads.extend((1..4).map(|slot| born(&nodes, child, clone_thread(slot))));
        for thread in threads.iter().chain([&parent]) {
            results(&nodes, *thread, vec![wander(&nodes)]);
        }
        for thread in &threads {
            nodes.user.tell(*thread, Command::plain(call::SETSID, &[]));
        }
        nodes.user.tell(parent, set_group(child, child));
        nodes.settle();
        let events = nodes.user.events();
        let succeeded = |event: &&Event| matches!(event, Event::Returned { result, .. } if *result >= 0);
        assert_eq!(events.iter().filter(succeeded).count(), 1, "seed {seed}: {events:?}");
        nodes.end_all();
    }
}

#[test]
fn an_heir_knows_the_last_group_of_its_child() {
    for seed in 1..800 {
        let (nodes, heir) = boot(seed);
        results(&nodes, heir, vec![Command::plain(call::PRCTL, &[36, 1])]);
        let parent = process(&nodes, heir);
        let child = process(&nodes, parent);
        results(&nodes, child, vec![wander(&nodes)]);
        nodes.user.tell(child, set_group(0, 0));
        results(&nodes, heir, vec![Command::plain(call::KILL, &[parent.into(), KILL.into()])]);
        check(&nodes, heir, child, &format!("seed {seed}"));
        nodes.end_all();
    }
}
