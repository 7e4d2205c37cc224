//! A machine that is thrown away leaves nothing behind: no service and its endpoint keep each other alive. A million
//! seeds are a million machines.

use sim::{
    cluster::Cluster,
    nodes::{
        elf,
        machine::{Furniture, Nodes},
        user::User,
    },
    shape::Shape,
};
use std::sync::Arc;

#[test]
fn a_cluster_goes_as_a_whole() {
    let cluster = Cluster::new(Shape::of(5, 3));
    let world = Arc::downgrade(&cluster.world);
    drop(cluster);
    assert_eq!(world.strong_count(), 0);
}

#[test]
fn nodes_go_as_a_whole() {
    go_as_a_whole(Nodes::new(Shape::of(5, 3)));
}

#[test]
fn nodes_with_proc_and_terminals_go_as_a_whole() {
    go_as_a_whole(Nodes::with(Shape::of(5, 3), Arc::<User>::default(), &elf::image(), Furniture::All));
}

fn go_as_a_whole(nodes: Nodes) {
    let world = Arc::downgrade(&nodes.world);
    let of_node = |node: &sim::nodes::machine::SimNode| {
        (Arc::downgrade(&node.node.system), Arc::downgrade(&node.node.services), Arc::downgrade(&node.node.remote))
    };
    let kept: Vec<_> = nodes.nodes.iter().map(of_node).collect();
    drop(nodes);
    for (system, services, remote) in kept {
        assert_eq!((system.strong_count(), services.strong_count(), remote.strong_count()), (0, 0, 0));
    }
    assert_eq!(world.strong_count(), 0);
}
