//! Signals that wait for a thread on its way while their process begins to ignore them: man 2 sigaction, and
//! crates/process/src/thread.rs (`push_signal`, `follow_actions`).

use crate::{born, results, shape, wander};
use sim::{
    life::model::{Id, RT},
    nodes::{
        machine::Nodes,
        user::{action, call, clone_thread, Arg, Command, Event},
    },
};

fn set_action(handler: u64) -> Command {
    Command::new(call::SIGACTION, &[Arg::Value(RT.into()), Arg::Input, Arg::Value(0), Arg::Value(8)])
        .input(action(handler))
}

/// `how` 0 blocks, 1 unblocks.
fn mask(how: u64) -> Command {
    let set = (1u64 << (RT - 1)).to_le_bytes();
    Command::new(call::SIGPROCMASK, &[Arg::Value(how), Arg::Input, Arg::Value(0), Arg::Value(8)]).input(set)
}

#[test]
fn what_waited_before_it_was_ignored_is_forgotten() {
    for seed in 1..200 {
        let nodes = Nodes::new(shape(seed, 2 + seed as usize % 2));
        let first: Id = nodes.boot(0);
        nodes.user.events();
        let thread = born(&nodes, first, clone_thread(1));
        assert_eq!(results(&nodes, thread, vec![mask(0)]), [0]);
        for round in 0..6 {
            let send = Command::plain(call::TGKILL, &[first.into(), thread.into(), RT.into()]);
            nodes.user.tell_all(thread, vec![wander(&nodes), wander(&nodes)]);
            let sends = [set_action(2), send.clone(), send, set_action(1), set_action(2)];
            nodes.user.tell_all(first, [vec![wander(&nodes)], sends.to_vec()].concat());
            nodes.settle();
            nodes.user.events();
            nodes.user.tell_all(thread, vec![mask(1), mask(0)]);
            nodes.settle();
            let events = nodes.user.events();
            let handled = events.iter().filter(|event| matches!(event, Event::Handled { .. })).count();
            assert_eq!(handled, 0, "seed {seed}, round {round}: {events:#?}");
        }
        nodes.end_all();
    }
}
