//! How a main thread is scheduled is told at every moment of its process: it ends before the others, or another thread
//! executes a program and goes on in its place. crates/process/src/inspect.rs (`change_scheduling`).

use crate::{born, shape, wander};
use sim::{
    life::model::Id,
    nodes::{
        machine::{Nodes, PROGRAM},
        user::{call, clone_thread, Arg, Command, Event},
    },
};

const GETPRIORITY: u64 = 140;
const SETPRIORITY: u64 = 141;

/// `ends` is what the main thread (true) or the other one does meanwhile.
fn asked_while(seed: u64, of_main: bool, ends: &Command) -> Vec<i64> {
    let nodes = Nodes::new(shape(seed, 2 + seed as usize % 3));
    let asker: Id = nodes.boot(0);
    nodes.user.events();
    let main = born(&nodes, asker, Command::plain(call::FORK, &[]));
    let thread = born(&nodes, main, clone_thread(1));
    for one in [asker, main, thread] {
        nodes.user.tell_all(one, vec![wander(&nodes); 2]);
    }
    nodes.settle();
    nodes.user.events();
    let set = |nice: u64| Command::plain(SETPRIORITY, &[0, main.into(), nice]);
    let get = Command::plain(GETPRIORITY, &[0, main.into()]);
    nodes.user.tell_all(asker, (1..=12).flat_map(|nice| [set(nice), get.clone()]));
    nodes.user.tell(if of_main { main } else { thread }, ends.clone());
    nodes.settle();
    let told = |event| match event {
        Event::Returned { thread, result, .. } if thread == asker => Some(result),
        _ => None,
    };
    let told = nodes.user.events().into_iter().filter_map(told).collect();
    nodes.end_all();
    told
}

#[test]
fn a_main_thread_is_scheduled_as_it_was_told_when_it_has_ended() {
    let wanted: Vec<i64> = (1..=12).flat_map(|nice| [0, 20 - nice]).collect();
    for seed in 1..400 {
        assert_eq!(asked_while(seed, true, &Command::plain(call::EXIT, &[0])), wanted, "seed {seed}");
    }
}

#[test]
fn a_process_is_there_while_another_thread_executes() {
    for seed in 1..400 {
        let execute = Command::new(call::EXECVE, &[Arg::Input]).input([PROGRAM, b"\0"].concat());
        let told = asked_while(seed, false, &execute);
        assert!(told.len() == 24 && told.iter().all(|result| *result >= 0), "seed {seed}: {told:?}");
    }
}
