//! Frames of other kernels, when those of one run out.

use machine::{Access, UserAddr, PAGE_SIZE};
use sim::{
    cluster::{Cluster, Shape},
    port::Weather,
};
use std::sync::Arc;
use vm::{MapRequest, Space};

const RW: Access = Access::READ.union(Access::WRITE);
/// Frames of each kernel; some are in use from the start.
const FRAMES: u64 = 320;

fn cluster(kernels: usize) -> Cluster {
    let weather = Weather { room: 1000, longest: 1 << 20, delay: 0, scramble: false };
    Cluster::new(Shape { seed: 1, kernels, cpus: 1, frames: FRAMES, scarce: false, weather })
}

fn map(cluster: &Cluster, space: &Arc<Space>, pages: usize) -> UserAddr {
    let space = space.clone();
    let request = MapRequest::anonymous((pages * PAGE_SIZE) as u64, RW);
    cluster.run(async move { space.map(request).await }).unwrap()
}

/// Writes to each page, one after the other, until one can't be had; how many could.
fn touch(cluster: &Cluster, space: &Arc<Space>, at: UserAddr, pages: usize) -> usize {
    let space = space.clone();
    cluster.run(async move {
        for page in 0..pages {
            if space.write(at.add(page * PAGE_SIZE), &[page as u8 | 1]).await.is_err() {
                return page;
            }
        }
        pages
    })
}

fn end(cluster: &Cluster, space: Arc<Space>) {
    cluster.run(async move { space.destroy().await });
    for kernel in &cluster.kernels {
        kernel.vm.send_frames_home(1);
    }
    cluster.settle();
}

#[test]
fn a_program_gets_the_memory_of_all_kernels_and_gives_it_back() {
    let cluster = cluster(4);
    let used = cluster.world.used_count();
    let space = cluster.kernels[1].vm.create().unwrap();
    let at = map(&cluster, &space, 2000);
    let before = cluster.messages();
    let had = touch(&cluster, &space, at, 2000) as u64;
    // All but what the lenders keep, a sixteenth each, and a few frames in use before.
    assert!((4 * FRAMES - 3 * FRAMES / 16 - 20..4 * FRAMES).contains(&had), "{had} pages");
    // Two messages for 64 frames, and a few that were in vain.
    assert!(cluster.messages() - before < 100, "{} messages", cluster.messages() - before);
    let reader = space.clone();
    cluster.run(async move {
        for page in 0..had as usize {
            let mut byte = [0];
            reader.read(at.add(page * PAGE_SIZE), &mut byte).await.unwrap();
            assert_eq!(byte[0], page as u8 | 1, "page {page}");
        }
    });
    end(&cluster, space);
    assert_eq!(cluster.world.used_count(), used, "{:?}", cluster.world.used());
}

#[test]
fn nobody_borrows_while_there_is_enough_at_home() {
    let cluster = cluster(4);
    let space = cluster.kernels[1].vm.create().unwrap();
    let at = map(&cluster, &space, 260);
    let before = cluster.messages();
    assert_eq!(touch(&cluster, &space, at, 260), 260);
    assert_eq!(cluster.messages(), before);
}

#[test]
fn a_kernel_alone_uses_all_it_has() {
    let cluster = cluster(1);
    let space = cluster.kernels[0].vm.create().unwrap();
    let at = map(&cluster, &space, 2000);
    let had = touch(&cluster, &space, at, 2000) as u64;
    assert!(had > FRAMES - 10, "{had} pages");
}

/// What was borrowed and not needed goes home when there is plenty again.
#[test]
fn the_stock_goes_home() {
    let cluster = cluster(2);
    let used = cluster.world.used_count();
    let space = cluster.kernels[0].vm.create().unwrap();
    let at = map(&cluster, &space, 305);
    assert_eq!(touch(&cluster, &space, at, 305), 305);
    end(&cluster, space);
    assert_eq!(cluster.world.used_count(), used, "{:?}", cluster.world.used());
}
