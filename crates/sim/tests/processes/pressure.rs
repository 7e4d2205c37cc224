//! A kernel whose heap grows without room: crates/process/src/pressure.rs.

use crate::{born, go_to, results, shape, wander};
use machine::{KernelId, PAGE_SIZE};
use process::System;
use sim::{
    life::model::Id,
    nodes::{
        machine::Nodes,
        user::{call, clone_thread, Command},
    },
};
use std::sync::Arc;

/// MAP_PRIVATE, ANONYMOUS, POPULATE; readable and writable.
fn populate(pages: u64) -> Command {
    Command::plain(call::MMAP, &[0, pages * PAGE_SIZE as u64, 3, 0x8022, u64::MAX, 0])
}

/// Two processes of two threads, with so much in their memory, which is of `kernel`. They have been on some others.
fn two_processes(nodes: &Nodes, first: Id, kernel: KernelId, pages: [u64; 2]) -> Vec<Id> {
    let mut processes = Vec::new();
    let cpu = nodes.nodes[kernel.index()].cpu.cpus[0].0 as usize;
    for (slot, pages) in pages.into_iter().enumerate() {
        let process = born(nodes, first, Command::plain(call::FORK, &[]));
        let thread = born(nodes, process, clone_thread(slot as u64 + 1));
        assert!(results(nodes, process, vec![go_to(cpu), populate(pages)])[1] > 0);
        results(nodes, process, vec![wander(nodes)]);
        results(nodes, thread, vec![wander(nodes)]);
        processes.push(process);
    }
    processes
}

/// The task that makes room on `kernel`.
fn relieve(nodes: &Nodes, kernel: KernelId) -> Arc<System> {
    let system = nodes.nodes[kernel.index()].node.system.clone();
    let relieves = system.clone();
    nodes.nodes[kernel.index()].scheduler.spawn(async move { relieves.relieve().await });
    system
}

#[test]
fn only_one_process_goes_if_that_is_enough() {
    for seed in 1..400 {
        let kernels = 1 + seed as usize % 4;
        let (nodes, kernel) = (Nodes::new(shape(seed, kernels)), KernelId(0));
        let first = nodes.boot(0);
        nodes.user.events();
        let processes = two_processes(&nodes, first, kernel, [60, 30]);
        let system = relieve(&nodes, kernel);
        // Somebody else's, who gives them back meanwhile.
        let mut buffers: Vec<_> = (0..20).map(|_| system.memory.alloc().unwrap()).collect();
        let wanted = system.memory.totals().1 + 40;
        nodes.world.keep_free(kernel, wanted);
        while nodes.world.grow_heap(kernel) {
            system.notice_shortage();
            nodes.steps(nodes.world.rng.below(20));
            buffers.pop().into_iter().for_each(|frame| system.memory.release(frame));
            // There may be room for a moment, and then what is on its way takes it.
            if nodes.world.rng.one_in(2) {
                nodes.world.keep_free(kernel, 0);
                nodes.steps(nodes.world.rng.below(2000));
                nodes.world.keep_free(kernel, wanted);
            }
        }
        buffers.into_iter().for_each(|frame| system.memory.release(frame));
        nodes.settle();
        let living = nodes.idle();
        assert!(living.contains(&first) && living.contains(&processes[1]), "seed {seed}: {living:?} of {processes:?}");
        assert!(!living.contains(&processes[0]), "seed {seed}");
        nodes.end_all();
    }
}

/// A kernel knows of a process that is ending until what it has of its memory has gone.
#[test]
fn no_process_goes_while_the_end_of_another_makes_room() {
    for seed in 1..100 {
        let kernels = 1 + seed as usize % 4;
        let (nodes, kernel) = (Nodes::new(shape(seed, kernels)), KernelId(kernels as u16 - 1));
        let first = nodes.boot(0);
        nodes.user.events();
        let processes = two_processes(&nodes, first, kernel, [120, 30]);
        let system = relieve(&nodes, kernel);
        let wanted = system.memory.totals().1 + 80;
        nodes.user.tell(processes[0], Command::plain(call::EXIT_GROUP, &[0]));
        nodes.steps(nodes.world.rng.below(400));
        nodes.world.keep_free(kernel, wanted);
        while nodes.world.grow_heap(kernel) {
            system.notice_shortage();
            nodes.steps(nodes.world.rng.below(20));
        }
        nodes.settle();
        let living = nodes.idle();
        assert!(living.contains(&first) && living.contains(&processes[1]), "seed {seed}: {living:?} of {processes:?}");
        nodes.end_all();
    }
}
