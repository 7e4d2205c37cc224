//! Threads that are not let in where they go: crates/process/src/migrate.rs.

use crate::{born, go_to, shape};
use sim::{
    life::model::{Id, RT},
    nodes::{
        machine::Nodes,
        user::{action, call, Arg, Command, Event},
    },
};

/// Events of the round.
fn round(nodes: &Nodes, tells: &[(Id, Vec<Command>)]) -> Vec<Event> {
    for (thread, commands) in tells {
        nodes.user.tell_all(*thread, commands.clone());
    }
    nodes.settle();
    nodes.user.events()
}

#[test]
fn signals_that_follow_a_refused_thread_come_back_with_it() {
    const SIGNALS: usize = 4;
    for seed in 1..200 {
        let nodes = Nodes::new(shape(seed, 2 + seed as usize % 2));
        let thread = nodes.boot(0);
        nodes.user.events();
        let handler = Command::new(call::SIGACTION, &[Arg::Value(RT.into()), Arg::Input, Arg::Value(0), Arg::Value(8)]);
        round(&nodes, &[(thread, vec![handler.input(action(2))])]);
        let sender = born(&nodes, thread, Command::plain(call::FORK, &[]));
        nodes.world.fill(nodes.nodes[1].id);
        let cpu = |kernel: usize| nodes.nodes[kernel].cpu.cpus[0].0 as usize;
        round(&nodes, &[(sender, vec![go_to(cpu((seed as usize % 2) * 2))])]);
        for _ in 0..6 {
            let send = Command::plain(call::TGKILL, &[thread.into(), thread.into(), RT.into()]);
            let events = round(&nodes, &[(thread, vec![go_to(cpu(1))]), (sender, vec![send; SIGNALS])]);
            let handled = events.iter().filter(|event| matches!(event, Event::Handled { .. })).count();
            assert_eq!(handled, SIGNALS, "seed {seed}: {events:#?}");
        }
        nodes.end_all();
    }
}
