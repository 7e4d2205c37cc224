//! What open files cost between kernels: crates/process/src/files.rs.

use crate::{go_to, shape};
use fs::{event::EventFd, File};
use machine::{KernelId, Pid};
use process::Files;
use sim::nodes::machine::Nodes;
use std::sync::Arc;

/// Questions and notices that all kernels have sent.
fn sent(nodes: &Nodes) -> u64 {
    nodes.nodes.iter().flat_map(|node| node.node.system.message_types()).map(|(_, sent, _)| sent).sum()
}

fn exported(nodes: &Nodes) -> Vec<usize> {
    nodes.nodes.iter().map(|node| node.node.remote.exported()).collect()
}

#[test]
fn a_descriptor_looked_up_elsewhere_costs_one_question() {
    let nodes = Nodes::new(shape(1, 2));
    let first = nodes.boot(0);
    nodes.user.tell(first, go_to(nodes.nodes[1].cpu.cpus[0].0 as usize));
    nodes.settle();
    let files = |kernel: usize| nodes.nodes[kernel].node.system.process(Pid(first)).expect("it has it").files();
    let put = |kernel: usize, files: Arc<Files>| {
        let file: Arc<dyn File> = EventFd::new(0, 0).unwrap();
        nodes.run(KernelId(kernel as u16), async move { files.add(file, 0, false, 64).await.unwrap() })
    };
    let look_up = |files: &Arc<Files>, fd: u32| {
        let (before, files) = (sent(&nodes), files.clone());
        drop(nodes.run(KernelId(1), async move { files.get(fd).await.unwrap() }));
        sent(&nodes) - before
    };
    let before = exported(&nodes);
    let (home, away) = (files(0), files(1));
    let fd = put(0, home);
    assert_eq!([look_up(&away, fd), look_up(&away, fd)], [1, 0]);
    let before_put = sent(&nodes);
    let own = put(1, away.clone());
    assert_eq!(sent(&nodes) - before_put, 1);
    // Its own file: it is counted there before the answer comes.
    assert_eq!(look_up(&away, own), 2);
    let close = async move {
        for fd in [fd, own] {
            drop(away.take(fd).await.unwrap());
        }
    };
    nodes.run(KernelId(1), close);
    assert_eq!(exported(&nodes), before);
    nodes.end_all();
}
