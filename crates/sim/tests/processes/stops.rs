//! A stop that is on its way when SIGCONT is sent: man 7 signal, and crates/process/src/stop.rs.

use crate::{born, shape, wander};
use sim::{
    life::model::{Id, CONT, STOP, WNOHANG, WUNTRACED},
    nodes::{
        machine::{Nodes, PROGRAM},
        user::{call, clone_thread, Arg, Command, Event},
    },
};

struct Family {
    nodes: Nodes,
    parent: Id,
    child: Id,
    /// A thread of the child beside its first.
    thread: Id,
}

impl Family {
    fn new(seed: u64, kernels: usize) -> Self {
        let nodes = Nodes::new(shape(seed, kernels));
        let parent = nodes.boot(0);
        nodes.user.events();
        let child = born(&nodes, parent, Command::plain(call::FORK, &[]));
        let thread = born(&nodes, child, clone_thread(1));
        Family { nodes, parent, child, thread }
    }

    /// The parent stops the child, continues it, and looks whether it is stopped.
    fn stop_and_continue(&self, stop: Command) {
        let number = |number: u8| u64::from(number);
        let options = WNOHANG | WUNTRACED;
        let commands = [
            stop,
            Command::plain(call::KILL, &[self.child.into(), number(CONT)]),
            Command::new(call::WAIT4, &[Arg::Value(self.child.into()), Arg::Output, Arg::Value(options)]),
        ];
        let first = self.nodes.user.tell_all(self.parent, commands);
        self.nodes.settle();
        let results: Vec<_> = self.nodes.user.events().into_iter().filter_map(|event| returned(event, first)).collect();
        assert_eq!(results, [(0, 0), (1, 0), (2, 0)], "(call, result): wait finds the child stopped");
        let idle = self.nodes.idle();
        assert!(idle.contains(&self.child) && idle.contains(&self.thread), "the child is stopped for ever");
    }
}

fn returned(event: Event, first: u64) -> Option<(u64, i64)> {
    match event {
        Event::Returned { number, result, .. } if number >= first => Some((number - first, result)),
        _ => None,
    }
}

#[test]
fn who_is_continued_is_not_stopped() {
    for seed in 1..150 {
        let family = Family::new(seed, 1 + seed as usize % 3);
        let (child, thread, stop) = (u64::from(family.child), u64::from(family.thread), u64::from(STOP));
        for round in 0..8 {
            println!("seed {seed}, round {round}");
            family.nodes.user.tell(family.child, wander(&family.nodes));
            family.nodes.user.tell(family.thread, wander(&family.nodes));
            // In half of the rounds they are still under way when the stop comes.
            if round % 2 == 0 {
                family.nodes.settle();
                family.nodes.user.events();
            }
            family.stop_and_continue(match round % 4 {
                0 | 1 => Command::plain(call::KILL, &[child, stop]),
                2 => Command::plain(call::TGKILL, &[child, child, stop]),
                _ => Command::plain(call::TGKILL, &[child, thread, stop]),
            });
        }
        family.nodes.end_all();
    }
}

#[test]
fn execve_ends_the_threads_that_stand_still() {
    for seed in 1..300 {
        let Family { nodes, parent, child, thread } = Family::new(seed, 1 + seed as usize % 3);
        let third = born(&nodes, child, clone_thread(2));
        for wanderer in [child, thread, third] {
            nodes.user.tell(wanderer, wander(&nodes));
        }
        nodes.settle();
        let program = Command::new(call::EXECVE, &[Arg::Input]).input([PROGRAM, b"\0"].concat());
        nodes.user.tell(thread, program);
        // The stop comes at any moment of it.
        nodes.steps(seed as usize % 101);
        nodes.user.tell(child, Command::plain(call::KILL, &[child.into(), STOP.into()]));
        nodes.settle();
        let mut events = nodes.user.events();
        // Wherever the stop met it, the process has a main thread: the old one, or the one that executes.
        let look = Command::new(call::SETAFFINITY, &[Arg::Value(child.into()), Arg::Value(16), Arg::Input]);
        let first = nodes.user.tell(parent, look.input([0xff; 16]));
        nodes.settle();
        let results: Vec<_> = nodes.user.events().into_iter().filter_map(|event| returned(event, first)).collect();
        assert_eq!(results, [(0, 0)], "seed {seed}");
        nodes.user.tell(parent, Command::plain(call::KILL, &[child.into(), CONT.into()]));
        nodes.settle();
        events.extend(nodes.user.events());
        let executed = events.iter().any(|event| matches!(event, Event::Executed { thread } if *thread == child));
        assert!(executed && nodes.idle().contains(&child), "seed {seed}: {events:?}, idle {:?}", nodes.idle());
        nodes.end_all();
    }
}
