//! A fork of a space with several owners is of one moment: a thread that writes x and then y, again and
//! again, is never seen to have written y without x.

use machine::{Access, UserAddr, PAGE_SIZE};
use sim::cluster::{Cluster, Shape};
use std::sync::Arc;
use vm::{MapRequest, Space};

const RW: Access = Access::READ.union(Access::WRITE);

async fn word(space: &Arc<Space>, at: UserAddr) -> u64 {
    space.read_value::<u64>(at).await.unwrap()
}

#[test]
fn a_child_is_of_one_moment() {
    for seed in 0..300 {
        let cluster = Cluster::new(Shape { scarce: false, frames: 1000, ..Shape::of(seed, 4) });
        let id = cluster.kernels[0].vm.create().unwrap().id();
        let on = |kernel: usize| cluster.kernels[kernel].vm.attach(id).unwrap();
        let map = |kernel: usize| {
            let space = on(kernel);
            let request = MapRequest::anonymous(PAGE_SIZE as u64, RW);
            cluster.run(async move { space.map(request).await }).unwrap()
        };
        // x and y belong to different owners, in either order; the writer is on a third kernel.
        let (x, y) = if seed % 2 == 0 { (map(1), map(2)) } else { (map(2), map(0)) };
        let writer = on(3);
        cluster.start(async move {
            for round in 1..40u64 {
                writer.write_value(x, &round).await.unwrap();
                sim::object::Later(false).await;
                writer.write_value(y, &round).await.unwrap();
                sim::object::Later(false).await;
            }
        });
        let forker = on(seed as usize % 4);
        let child = cluster.start(async move {
            // Not at once: the writer should be at it.
            for _ in 0..seed % 7 {
                word(&forker, x).await;
                sim::object::Later(false).await;
            }
            forker.fork().await.unwrap()
        });
        cluster.settle();
        let child = child.take().unwrap();
        let (x, y) = cluster.run(async move { (word(&child, x).await, word(&child, y).await) });
        assert!(x == y || x == y + 1, "seed {seed}: the child has x = {x}, y = {y}");
        sim::audit::check(&cluster);
    }
}
