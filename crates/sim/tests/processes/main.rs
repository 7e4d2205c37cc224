//! Messages about processes that meet, each drawn in docs/interleavings.md, on whole kernels.

mod asked;
mod cgroup_memory;
mod cgroups;
mod changes;
mod deaths;
mod files;
mod gathered;
mod group_of_child;
mod groups;
mod heirs;
mod ignored;
mod left;
mod lent;
mod move_messages;
mod moves;
mod pressure;
mod record_locks;
mod stops;
mod streams;

use sim::{
    life::model::Id,
    nodes::{
        machine::Nodes,
        user::{call, Arg, Command, Event},
    },
    shape::Shape,
};

/// With plenty of memory.
fn shape(seed: u64, kernels: usize) -> Shape {
    Shape { scarce: false, frames: 1 << 13, ..Shape::of(seed, kernels) }
}

/// The thread or process that `command` of `parent` makes.
fn born(nodes: &Nodes, parent: Id, command: Command) -> Id {
    nodes.user.tell(parent, command);
    nodes.settle();
    let born = nodes.user.events().into_iter().find_map(|event| match event {
        Event::Born { thread, .. } => Some(thread),
        _ => None,
    });
    born.expect("there is room")
}

fn go_to(cpu: usize) -> Command {
    let mask: Vec<u8> = (0..16).map(|byte| if byte == cpu / 8 { 1 << (cpu % 8) } else { 0 }).collect();
    Command::new(call::SETAFFINITY, &[Arg::Value(0), Arg::Value(16), Arg::Input]).input(mask)
}

/// To some CPU.
fn wander(nodes: &Nodes) -> Command {
    go_to(nodes.world.rng.below(nodes.cpus() as usize))
}

/// What a thread's calls return.
fn results(nodes: &Nodes, thread: Id, commands: Vec<Command>) -> Vec<i64> {
    nodes.user.tell_all(thread, commands);
    nodes.settle();
    let returned = |event| match event {
        Event::Returned { thread: who, result, .. } if who == thread => Some(result),
        _ => None,
    };
    nodes.user.events().into_iter().filter_map(returned).collect()
}
