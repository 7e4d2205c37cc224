//! What one access of a thread finds gone, its next one does not find there, whoever takes it away meanwhile.

use machine::{Access, UserAddr, PAGE_SIZE};
use sim::{
    cluster::{Cluster, Shape},
    rng::Rng,
};
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

const FEW: u64 = 3;

/// A page of zeros that another kernel reads, its owner writes and a third thread unmaps: the write takes it back first, and
/// has not got it back when munmap finds it.
#[test]
fn a_page_of_zeros_is_gone_though_a_write_was_taking_it_back() {
    for seed in 1..2000 {
        let cluster = Cluster::new(Shape { scarce: false, ..Shape::of(seed, 3) });
        let rng = Rng::new(seed);
        let home = cluster.kernels[0].vm.create().unwrap();
        let on = |kernel: usize| cluster.kernels[kernel].vm.attach(home.id()).unwrap();
        let (maps, reads) = (home.clone(), on(1));
        let page = |at: UserAddr, index: u64| at.add(index as usize * PAGE_SIZE);
        let at = cluster.run(async move {
            let at =
                maps.map(MapRequest::anonymous(FEW * PAGE_SIZE as u64, Access::READ | Access::WRITE)).await.unwrap();
            for index in 0..FEW {
                maps.read_value::<u64>(page(at, index)).await.unwrap();
                assert_eq!(reads.read_value::<u64>(page(at, index)).await.unwrap(), 0);
            }
            at
        });
        let (writes, unmaps, reads) = (on(rng.below(3)), on(rng.below(3)), on(1));
        let (written, unmapped) = (page(at, rng.below(3) as u64), page(at, rng.below(3) as u64));
        let writer = cluster.start(async move {
            // Unmapped or not.
            let _ = writes.write_value(written, &1u64).await;
        });
        let unmapper = cluster.start(async move {
            unmaps.unmap(unmapped, PAGE_SIZE as u64).await.unwrap();
            reads.read_value::<u64>(unmapped).await
        });
        cluster.settle();
        writer.take().expect("nobody waits for ever");
        let read = unmapper.take().expect("nobody waits for ever");
        assert!(read.is_err(), "seed {seed}: {read:?} was read where nothing is mapped");
        sim::audit::check(&cluster);
        cluster.run(async move { home.destroy().await });
    }
}
