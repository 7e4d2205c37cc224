//! What one access of a thread finds gone, its next one does not find there, whoever takes it away meanwhile.

use machine::{Access, UserAddr, PAGE_SIZE};
use sim::cluster::{Cluster, Shape};
use vm::MapRequest;

const PAGES: u64 = 10;

/// Two regions side by side. Nobody has touched the first, so there is nothing to be taken back for it; the second is on several kernels.
#[test]
fn a_range_is_unmapped_at_once() {
    let mut gone = 0;
    for seed in 0..1000 {
        let cluster = Cluster::new(Shape { scarce: false, frames: 1000, ..Shape::of(seed, 4) });
        let space = cluster.kernels[0].vm.create().unwrap();
        let on = |kernel: usize| cluster.kernels[kernel].vm.attach(space.id()).unwrap();
        let length = PAGES * PAGE_SIZE as u64;
        let both = Access::READ | Access::WRITE;
        let start = cluster.run({
            let space = on(0);
            async move {
                let start = space.map(MapRequest::anonymous(length, both)).await.unwrap();
                space.protect(start, length / 2, Access::READ).await.unwrap();
                start
            }
        });
        let last = UserAddr(start.0 + length - 8);
        for kernel in [0, 2, 3] {
            let space = on(kernel);
            cluster.run(async move { space.write(last, &[1]).await }).unwrap();
        }
        let (unmaps, looks) = (on(2), on(3));
        cluster.start(async move { unmaps.unmap(start, length).await });
        let looking = cluster.start(async move {
            let first = looks.read(start, &mut [0]).await;
            (first, looks.write(last, &[2]).await)
        });
        cluster.settle();
        let (first, then) = looking.take().unwrap();
        gone += usize::from(first.is_err());
        assert!(first.is_ok() || then.is_err(), "seed {seed}: {first:?}, then {then:?}");
    }
    assert!(gone > 0, "it never came to it");
}
