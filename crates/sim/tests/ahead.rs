//! A thread goes through memory in order, so that pages are asked for ahead (`vm/src/window.rs`), and another kernel takes pages
//! back while they are under way.

use machine::{Access, UserAddr, PAGE_SIZE};
use sim::{
    cluster::{Cluster, Shape},
    rng::Rng,
};
use std::sync::Arc;
use vm::{MapRequest, Space};

const RW: Access = Access::READ.union(Access::WRITE);
const PAGES: usize = 1500;
const MADV_DONTNEED: u32 = 4;
/// What a page says is its number, and how often it was written anew.
const AGAIN: u64 = 1 << 32;

async fn read_all(space: Arc<Space>, at: UserAddr) -> Vec<u64> {
    let mut seen = Vec::new();
    for page in 0..PAGES {
        seen.push(space.read_value(at.add(page * PAGE_SIZE)).await.unwrap());
        if page % 16 == 0 {
            sim::object::Later(false).await;
        }
    }
    seen
}

/// Takes pages away and writes some of them anew; what all say in the end.
async fn change(space: Arc<Space>, at: UserAddr, rng: Rng) -> Vec<u64> {
    let mut say: Vec<u64> = (1..=PAGES as u64).collect();
    for round in 1..12 {
        let first = rng.below(PAGES);
        let pages = 1 + rng.below((PAGES - first).min(400));
        space.advise(at.add(first * PAGE_SIZE), (pages * PAGE_SIZE) as u64, MADV_DONTNEED).await.unwrap();
        say[first..first + pages].fill(0);
        for page in (first..first + pages).step_by(1 + rng.below(4)) {
            say[page] = page as u64 + 1 + round * AGAIN;
            space.write_value(at.add(page * PAGE_SIZE), &say[page]).await.unwrap();
        }
        sim::object::Later(false).await;
    }
    say
}

#[test]
fn what_was_taken_back_while_it_was_asked_for_ahead_is_not_seen_again() {
    for seed in 1..50 {
        let cluster = Cluster::new(Shape { scarce: false, frames: 1 << 13, ..Shape::of(seed, 3) });
        let home = cluster.kernels[0].vm.create().unwrap();
        let on = |kernel: usize| cluster.kernels[kernel].vm.attach(home.id()).unwrap();
        let maps = home.clone();
        let at = cluster.run(async move {
            let at = maps.map(MapRequest::anonymous((PAGES * PAGE_SIZE) as u64, RW)).await.unwrap();
            for page in 0..PAGES {
                maps.write_value(at.add(page * PAGE_SIZE), &(page as u64 + 1)).await.unwrap();
            }
            at
        });
        let readers = [cluster.start(read_all(on(1), at)), cluster.start(read_all(on(2), at))];
        // The owner, or a kernel that reads.
        let changes = cluster.start(change(on(2 * (seed as usize % 2)), at, Rng::new(seed)));
        cluster.settle();
        let say = changes.take().expect("nobody waits for ever");
        for reader in readers {
            for (page, seen) in reader.take().expect("nobody waits for ever").into_iter().enumerate() {
                assert!(seen == 0 || seen % AGAIN == page as u64 + 1, "seed {seed}: page {page} says {seen:x}");
            }
        }
        sim::audit::check(&cluster);
        for kernel in 0..3 {
            assert!(cluster.run(read_all(on(kernel), at)) == say, "seed {seed}: kernel {kernel} sees what was");
        }
        cluster.run(async move { home.destroy().await });
    }
}
