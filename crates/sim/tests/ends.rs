//! The end of a space that somebody still asks for.

use machine::{Access, Errno, KernelId, PAGE_SIZE};
use sim::cluster::{Cluster, Shape};
use std::{future::poll_fn, task::Poll};
use vm::MapRequest;

const RW: Access = Access::READ.union(Access::WRITE);
const PAGES: usize = 8;

/// A thread that comes here has its first pages fetched, and may have ended with its process before they are here. The machine
/// panics if a frame is freed while a table leads to it.
#[test]
fn who_asks_too_late_gets_nothing() {
    for seed in 1..200 {
        let cluster = Cluster::new(Shape { scarce: false, frames: 1 << 12, ..Shape::of(seed, 3) });
        let home = cluster.kernels[0].vm.create().unwrap();
        let [asks, owns] = [1, 2].map(|kernel: usize| cluster.kernels[kernel].vm.attach(home.id()).unwrap());
        let (late, owner) = (asks.clone(), owns.clone());
        let at = cluster.run(async move {
            let at = owner.map(MapRequest::anonymous((PAGES * PAGE_SIZE) as u64, RW)).await.unwrap();
            for page in 0..PAGES {
                owner.write(at.add(page * PAGE_SIZE), &[1]).await.unwrap();
            }
            asks.read_value::<u8>(at).await.unwrap();
            at
        });
        let ends = cluster.start(async move { home.destroy().await });
        // On and on, with or without a page.
        let asked = cluster.start(async move {
            while late.fault(at, Access::READ).await.is_ok() {
                yield_now().await;
            }
        });
        cluster.settle();
        assert!(ends.take().is_some() && asked.take().is_some());
    }
}

/// A thread comes to a kernel that is through with the death of its space's home, from one that has not noticed it.
#[test]
fn a_space_without_a_home_comes_to_no_kernel() {
    let cluster = Cluster::new(Shape { scarce: false, frames: 1 << 12, ..Shape::of(1, 2) });
    let home = cluster.kernels[1].vm.create().unwrap().id();
    cluster.kill(KernelId(1));
    cluster.declare_dead(KernelId(0), KernelId(1));
    assert_eq!(cluster.kernels[0].vm.attach(home).err(), Some(Errno::EIO));
    assert!(cluster.kernels[0].vm.spaces().is_empty());
    cluster.world.give_up();
}

async fn yield_now() {
    let mut yielded = false;
    poll_fn(|context| {
        if core::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await
}
