//! What was under way when a kernel dies.

use machine::{Access, Errno, KernelId, UserAddr, PAGE_SIZE};
use sim::cluster::{Cluster, Shape};
use vm::{MapRequest, Place};

const BASE: u64 = 0x4000_0000;
const PAGES: u64 = 8;

/// The machine panics if a frame is freed while a table leads to it.
#[test]
fn what_a_dying_owner_was_offered_is_not_used_again() {
    let mut unanswered = 0;
    for seed in 1..400 {
        let cluster = Cluster::new(Shape { scarce: false, frames: 1 << 12, ..Shape::of(seed, 3) });
        let home = cluster.kernels[0].vm.create().unwrap();
        let away = [1, 2].map(|kernel: usize| cluster.kernels[kernel].vm.attach(home.id()).unwrap());
        let map = home.clone();
        cluster.run(async move {
            let all = MapRequest::anonymous(PAGES * PAGE_SIZE as u64, Access::READ.union(Access::WRITE));
            map.map(all.at(Place::Fixed(UserAddr(BASE)))).await.unwrap();
        });
        // One page after the other, which makes the offers more, while the third kernel looks at them.
        let at = |page: u64| UserAddr(BASE + page * PAGE_SIZE as u64);
        let mut work = Vec::new();
        for (index, space) in away.iter().enumerate() {
            let space = space.clone();
            work.push(cluster.start(async move {
                for page in 0..PAGES {
                    match index {
                        0 => space.write(at(page), &[1]).await?,
                        _ => drop(space.read_value::<u8>(at(page)).await?),
                    }
                }
                Ok::<_, Errno>(())
            }));
        }
        for _ in 0..cluster.world.rng.below(100) {
            cluster.step();
        }
        unanswered += u32::from(cluster.kernels[1].endpoint.outstanding().0 > 0);
        cluster.kill(KernelId(0));
        for survivor in [1, 2] {
            cluster.declare_dead(KernelId(survivor), KernelId(0));
        }
        cluster.settle();
        assert!(work.iter().all(|work| work.take().is_some()), "seed {seed}: a survivor waits for the dead");
        cluster.world.give_up();
    }
    assert!(unanswered > 20, "only {unanswered} deaths met a question");
}
