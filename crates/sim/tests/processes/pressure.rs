//! A kernel whose heap grows without room: crates/process/src/pressure.rs.

use crate::{born, go_to, results, shape, wander};
use machine::{KernelId, PAGE_SIZE};
use sim::{
    life::model::Id,
    nodes::{
        machine::Nodes,
        user::{call, clone_thread, Command},
    },
};

const KERNEL: KernelId = KernelId(0);
/// What each of two processes has in its memory.
const PAGES: [u64; 2] = [60, 30];

/// MAP_PRIVATE, ANONYMOUS, POPULATE; readable and writable.
fn populate(pages: u64) -> Command {
    Command::plain(call::MMAP, &[0, pages * PAGE_SIZE as u64, 3, 0x8022, u64::MAX, 0])
}

#[test]
fn only_one_process_goes_if_that_is_enough() {
    for seed in 1..400 {
        let nodes = Nodes::new(shape(seed, 1 + seed as usize % 4));
        let first = nodes.boot(0);
        nodes.user.events();
        let mut processes: Vec<Id> = Vec::new();
        for (slot, pages) in PAGES.into_iter().enumerate() {
            let process = born(&nodes, first, Command::plain(call::FORK, &[]));
            let thread = born(&nodes, process, clone_thread(slot as u64 + 1));
            assert!(results(&nodes, process, vec![go_to(0), populate(pages)])[1] > 0, "seed {seed}");
            results(&nodes, process, vec![wander(&nodes)]);
            results(&nodes, thread, vec![wander(&nodes)]);
            processes.push(process);
        }
        let system = nodes.nodes[KERNEL.index()].node.system.clone();
        let relieves = system.clone();
        nodes.nodes[KERNEL.index()].scheduler.spawn(async move { relieves.relieve().await });
        // Somebody else's, who gives them back meanwhile.
        let mut buffers: Vec<_> = (0..20).map(|_| system.memory.alloc().unwrap()).collect();
        let wanted = system.memory.totals().1 + 40;
        nodes.world.keep_free(KERNEL, wanted);
        while nodes.world.grow_heap(KERNEL) {
            system.notice_shortage();
            nodes.steps(nodes.world.rng.below(20));
            buffers.pop().into_iter().for_each(|frame| system.memory.release(frame));
            // There may be room for a moment, and then what is on its way takes it.
            if nodes.world.rng.one_in(2) {
                nodes.world.keep_free(KERNEL, 0);
                nodes.steps(nodes.world.rng.below(2000));
                nodes.world.keep_free(KERNEL, wanted);
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
