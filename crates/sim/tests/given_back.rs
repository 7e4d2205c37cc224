//! Several threads of a kernel touch the same few pages of another, which that kernel forgets and its owner takes back: who asks for a page with
//! more rights gives it back with the question (`vm/src/remote.rs`, `give_back_first`), while another answer may be bringing it.

use machine::{Access, UserAddr, PAGE_SIZE};
use sim::{
    cluster::{Cluster, Shape},
    object::Later,
    rng::Rng,
};
use std::sync::Arc;
use vm::{MapRequest, Space};

const RW: Access = Access::READ.union(Access::WRITE);
const PAGES: usize = 6;
const MADV_DONTNEED: u32 = 4;

fn some_page(at: UserAddr, rng: &Rng) -> UserAddr {
    at.add(rng.below(PAGES) * PAGE_SIZE)
}

async fn reads(space: Arc<Space>, at: UserAddr, rng: Rng) {
    for _ in 0..60 {
        space.read_value::<u64>(some_page(at, &rng)).await.unwrap();
        Later(false).await;
    }
}

async fn writes(space: Arc<Space>, at: UserAddr, rng: Rng) {
    for _ in 0..60 {
        space.write_value(some_page(at, &rng), &rng.next()).await.unwrap();
        Later(false).await;
    }
}

async fn forgets(space: Arc<Space>, rng: Rng) {
    for _ in 0..120 {
        space.forget_borrowed(|_| rng.one_in(2));
        Later(false).await;
    }
}

/// What the owner takes away is freed: a kernel that still shows it is a failure of the simulated memory.
async fn takes_away(space: Arc<Space>, at: UserAddr, rng: Rng) {
    for _ in 0..60 {
        space.advise(some_page(at, &rng), PAGE_SIZE as u64, MADV_DONTNEED).await.unwrap();
        Later(false).await;
    }
}

#[test]
fn a_page_that_was_given_back_comes_with_no_older_answer() {
    for seed in 1..3000 {
        let cluster = Cluster::new(Shape { scarce: false, ..Shape::of(seed, 3) });
        let home = cluster.kernels[0].vm.create().unwrap();
        let on = |kernel: usize| cluster.kernels[kernel].vm.attach(home.id()).unwrap();
        let maps = home.clone();
        let at = cluster.run(async move {
            let at = maps.map(MapRequest::anonymous((PAGES * PAGE_SIZE) as u64, RW)).await.unwrap();
            // Touched: they stay the home's.
            for page in 0..PAGES {
                maps.write_value(at.add(page * PAGE_SIZE), &1u64).await.unwrap();
            }
            at
        });
        let rng = |part: u64| Rng::new(seed * 100 + part);
        let mut threads = vec![
            cluster.start(forgets(on(1), rng(0))),
            cluster.start(takes_away(on(0), at, rng(1))),
            cluster.start(takes_away(on(2), at, rng(2))),
            cluster.start(writes(on(0), at, rng(3))),
        ];
        threads.extend((4..8).map(|part| cluster.start(reads(on(1), at, rng(part)))));
        threads.extend((8..11).map(|part| cluster.start(writes(on(1), at, rng(part)))));
        cluster.settle();
        threads.into_iter().for_each(|thread| thread.take().expect("nobody waits for ever"));
        sim::audit::check(&cluster);
        cluster.run(async move { home.destroy().await });
    }
}
