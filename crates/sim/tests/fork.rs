//! A fork of a space with several owners is of one moment: a thread that writes x and then y, again and
//! again, is never seen to have written y without x.

use machine::{Access, UserAddr, PAGE_SIZE};
use sim::cluster::{Cluster, Shape};
use std::sync::Arc;
use vm::{MapAddress, MapRequest, Space};

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

/// Pages that several kernels own move one after the other, but no child is born in between.
#[test]
fn a_child_has_moved_pages_all_at_the_old_place_or_all_at_the_new() {
    const SLICE: usize = 64 << 30;
    const TO: UserAddr = UserAddr(0x4000_0000);
    let (mut old, mut new) = (0, 0);
    for seed in 0..300 {
        let cluster = Cluster::new(Shape { scarce: false, frames: 1000, ..Shape::of(seed, 4) });
        let id = cluster.kernels[0].vm.create().unwrap().id();
        let on = |kernel: usize| cluster.kernels[kernel].vm.attach(id).unwrap();
        let map = |kernel: usize, pages: u64, place: MapAddress| {
            let space = on(kernel);
            let request = MapRequest::anonymous(pages * PAGE_SIZE as u64, RW).at(place);
            cluster.run(async move { space.map(request).await }).unwrap()
        };
        let slices = [1, 2].map(|kernel| map(kernel, 1, MapAddress::Hint(UserAddr::NULL)).0 as usize / SLICE);
        assert_eq!(slices[0].abs_diff(slices[1]), 1, "neighbours");
        let from = UserAddr((slices[0].max(slices[1]) * SLICE - PAGE_SIZE) as u64);
        map(3, 2, MapAddress::Fixed(from));
        let writer = on(3);
        cluster.run(async move {
            for page in 0..2 {
                writer.write_value(from.add(page * PAGE_SIZE), &(page as u64 + 1)).await.unwrap();
            }
        });
        let mover = on((seed % 4) as usize);
        let moved = cluster.start(async move {
            let bytes = 2 * PAGE_SIZE as u64;
            // MREMAP_MAYMOVE | MREMAP_FIXED
            mover.remap(from, bytes, bytes, 3, TO, false).await
        });
        let forker = on((seed / 4 % 4) as usize);
        let child = cluster.start(async move {
            for _ in 0..seed % 5 {
                sim::object::Later(false).await;
            }
            forker.fork().await.unwrap()
        });
        cluster.settle();
        assert_eq!(moved.take(), Some(Ok(TO)));
        let child = child.take().unwrap();
        let found = cluster.run(async move {
            let mut found = Vec::new();
            for at in [from, from.add(PAGE_SIZE), TO, TO.add(PAGE_SIZE)] {
                found.push(child.read_value::<u64>(at).await.ok());
            }
            found
        });
        match &found[..] {
            [Some(1), Some(2), None, None] => old += 1,
            [None, None, Some(1), Some(2)] => new += 1,
            _ => panic!("seed {seed}: the child has {found:?}"),
        }
        sim::audit::check(&cluster);
    }
    assert!(old >= 10 && new >= 10, "{old} children before, {new} after");
}
