//! Signals for a group while its members fork, on other kernels: crates/process/src/births.rs.

use crate::{shape, wander};
use sim::{
    life::model::{Id, CONT, KILL, RT, STOP, TERM},
    nodes::{
        machine::Nodes,
        user::{action, call, clone_thread, Arg, Command, Event},
    },
};
use std::collections::BTreeMap;

struct Family {
    nodes: Nodes,
    /// Not in the group.
    killer: Id,
    group: Id,
    /// Threads of the group and their processes.
    members: BTreeMap<Id, Id>,
}

impl Family {
    fn new(seed: u64, kernels: usize) -> Self {
        let nodes = Nodes::new(shape(seed, kernels));
        let killer = nodes.boot(0);
        nodes.user.events();
        let mut family = Family { nodes, killer, group: 0, members: BTreeMap::new() };
        let leader = family.born(killer, Command::plain(call::FORK, &[]));
        family.group = leader;
        let handler = Command::new(call::SIGACTION, &[Arg::Value(RT.into()), Arg::Input, Arg::Value(0), Arg::Value(8)]);
        family.nodes.user.tell_all(leader, [Command::plain(call::SETPGID, &[0, 0]), handler.input(action(2))]);
        family.nodes.settle();
        for slot in 0..3 {
            let process = if slot == 0 { leader } else { family.born(leader, Command::plain(call::FORK, &[])) };
            family.members.insert(process, process);
            if family.nodes.world.rng.one_in(2) {
                let thread = family.born(process, clone_thread(slot + 1));
                family.members.insert(thread, process);
            }
        }
        for thread in family.members.keys() {
            family.nodes.user.tell(*thread, wander(&family.nodes));
        }
        family.nodes.settle();
        family.nodes.user.events();
        family
    }

    fn born(&self, parent: Id, command: Command) -> Id {
        crate::born(&self.nodes, parent, command)
    }

    fn kill(&self, signal: u8) {
        let group = -i64::from(self.group);
        self.nodes.user.tell(self.killer, Command::plain(call::KILL, &[group as u64, signal.into()]));
    }

    /// All members fork while the signal is sent. What was seen.
    fn fork_under(&mut self, signal: u8) -> Vec<Event> {
        for thread in self.members.keys() {
            let forks = 1 + self.nodes.world.rng.below(2);
            self.nodes.user.tell_all(*thread, vec![Command::plain(call::FORK, &[]); forks]);
        }
        self.kill(signal);
        self.nodes.settle();
        self.look()
    }

    fn look(&mut self) -> Vec<Event> {
        let events = self.nodes.user.events();
        for event in &events {
            if let Event::Born { thread, .. } = event {
                self.members.insert(*thread, *thread);
            }
        }
        events
    }

    /// Members that wait for a command.
    fn idle(&self) -> Vec<Id> {
        self.nodes.idle().into_iter().filter(|thread| *thread != self.killer).collect()
    }

    /// A process gets the signal once. So does a child, if the thread that made it had the signal afterwards. (If another thread had it,
    /// that may have taken it before the fork began, and come to its handler late.)
    fn check_handled(&self, seed: u64, events: &[Event]) {
        let mut handled: BTreeMap<Id, Vec<(Id, usize)>> = BTreeMap::new();
        let mut born: BTreeMap<Id, (Id, usize)> = BTreeMap::new();
        for (at, event) in events.iter().enumerate() {
            match event {
                Event::Handled { thread, .. } => handled.entry(self.members[thread]).or_default().push((*thread, at)),
                Event::Returned { thread, result, .. } if *result > 0 => {
                    born.insert(*result as Id, (*thread, at));
                }
                _ => {}
            }
        }
        for process in self.members.values() {
            let times = handled.get(process).map_or(0, Vec::len);
            let at_least = match born.get(process) {
                Some((parent, forked)) => {
                    let mut by_parent = handled.get(&self.members[parent]).into_iter().flatten();
                    by_parent.any(|(by, at)| by == parent && at > forked)
                }
                None => true,
            };
            assert!(times <= 1 && times >= usize::from(at_least), "seed {seed}: {process} {times} times: {events:#?}");
        }
    }
}

fn families(signal: u8, check: impl Fn(u64, &mut Family, Vec<Event>)) {
    for seed in 1..100 {
        let mut family = Family::new(seed, 1 + seed as usize % 4);
        let events = family.fork_under(signal);
        check(seed, &mut family, events);
        family.nodes.end_all();
    }
}

#[test]
fn nobody_slips_through_a_signal_that_ends() {
    for signal in [KILL, TERM] {
        families(signal, |seed, family, _| assert_eq!(family.idle(), [], "seed {seed}: live on after {signal}"));
    }
}

#[test]
fn nobody_slips_through_a_stop() {
    families(STOP, |seed, family, _| {
        assert_eq!(family.idle(), [], "seed {seed}: not stopped");
        family.kill(CONT);
        family.nodes.settle();
        family.look();
        assert_eq!(family.idle().len(), family.members.len(), "seed {seed}: not continued");
    });
}

#[test]
fn who_is_born_meanwhile_gets_the_signal_once() {
    families(RT, |seed, family, events| family.check_handled(seed, &events));
}
