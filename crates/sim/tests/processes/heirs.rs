//! Processes whose new parent ends, too: crates/process/src/heir.rs.

use crate::{results, shape, wander};
use sim::{
    life::model::{Id, KILL},
    nodes::{
        machine::Nodes,
        user::{call, Arg, Command},
    },
};

const CHILDREN: usize = 4;

/// A child at home on some kernel: where its parent is.
fn born(nodes: &Nodes, parent: Id) -> Id {
    nodes.user.tell(parent, wander(nodes));
    nodes.settle();
    nodes.user.events();
    crate::born(nodes, parent, Command::plain(call::FORK, &[]))
}

#[test]
fn who_loses_two_parents_at_once_has_the_next_subreaper() {
    for seed in 1..400 {
        let nodes = Nodes::new(shape(seed, 1 + seed as usize % 4));
        let reaps = Command::plain(call::PRCTL, &[36, 1]);
        let first = nodes.boot(0);
        nodes.user.events();
        let killers = [born(&nodes, first), born(&nodes, first)];
        let reaper = born(&nodes, first);
        results(&nodes, reaper, vec![reaps.clone()]);
        let heir = born(&nodes, reaper);
        results(&nodes, heir, vec![reaps]);
        let parent = born(&nodes, heir);
        let children: Vec<Id> = (0..CHILDREN).map(|_| born(&nodes, parent)).collect();

        // The last child may end at the same time, too.
        let dying = children[CHILDREN - 1];
        let mut victims = vec![heir, parent];
        victims.extend(Some(dying).filter(|_| nodes.world.rng.one_in(2)));
        for (index, victim) in victims.iter().enumerate() {
            let kill = Command::plain(call::KILL, &[(*victim).into(), KILL.into()]);
            nodes.user.tell([first, killers[0], killers[1]][index], kill);
        }
        nodes.settle();
        nodes.user.events();
        for child in children.iter().filter(|child| !victims.contains(child)) {
            let parents = results(&nodes, *child, vec![Command::plain(call::GETPPID, &[])]);
            assert_eq!(parents, [i64::from(reaper)], "seed {seed}: the parent of {child}");
            results(&nodes, first, vec![Command::plain(call::KILL, &[(*child).into(), KILL.into()])]);
        }
        // It can wait for all of them, and then has no child.
        if victims.len() < 3 {
            results(&nodes, first, vec![Command::plain(call::KILL, &[dying.into(), KILL.into()])]);
        }
        let wait = Command::new(call::WAIT4, &[Arg::Value(u64::MAX), Arg::Output]);
        let mut reaped = results(&nodes, reaper, vec![wait; CHILDREN + 3]);
        assert_eq!(reaped.pop(), Some(-10), "seed {seed}: ECHILD comes last");
        reaped.sort();
        let mut expected: Vec<i64> = children.iter().chain([&heir, &parent]).map(|id| i64::from(*id)).collect();
        expected.sort();
        assert_eq!(reaped, expected, "seed {seed}");
        nodes.end_all();
    }
}
