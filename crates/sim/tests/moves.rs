//! Threads that are not let in where they go: crates/process/src/migrate.rs.

use sim::{
    life::model::{Id, RT},
    nodes::{
        machine::Nodes,
        user::{action, call, Arg, Command, Event},
    },
    shape::Shape,
};

fn go_to(nodes: &Nodes, kernel: usize) -> Command {
    let cpu = nodes.nodes[kernel].cpu.cpus[0].0 as usize;
    let mask: Vec<u8> = (0..16).map(|byte| if byte == cpu / 8 { 1 << (cpu % 8) } else { 0 }).collect();
    Command::new(call::SETAFFINITY, &[Arg::Value(0), Arg::Value(16), Arg::Input]).input(mask)
}

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
        let nodes = Nodes::new(Shape { scarce: false, frames: 1 << 13, ..Shape::of(seed, 2 + seed as usize % 2) });
        let thread = nodes.boot(0);
        nodes.user.events();
        let handler = Command::new(call::SIGACTION, &[Arg::Value(RT.into()), Arg::Input, Arg::Value(0), Arg::Value(8)]);
        let events = round(&nodes, &[(thread, vec![handler.input(action(2)), Command::plain(call::FORK, &[])])]);
        let born = events.into_iter().find_map(|event| match event {
            Event::Born { thread, .. } => Some(thread),
            _ => None,
        });
        let sender = born.expect("there is room");
        nodes.world.fill(nodes.nodes[1].id);
        round(&nodes, &[(sender, vec![go_to(&nodes, (seed as usize % 2) * 2)])]);
        for _ in 0..6 {
            let send = Command::plain(call::TGKILL, &[thread.into(), thread.into(), RT.into()]);
            let events = round(&nodes, &[(thread, vec![go_to(&nodes, 1)]), (sender, vec![send; SIGNALS])]);
            let handled = events.iter().filter(|event| matches!(event, Event::Handled { .. })).count();
            assert_eq!(handled, SIGNALS, "seed {seed}: {events:#?}");
        }
        nodes.end_all();
    }
}
