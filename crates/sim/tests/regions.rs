//! What a program is shown of its address space while parts of it get other owners: everything that it has mapped.

use machine::{Access, PageRange, PAGE_SIZE};
use sim::{
    cluster::{Cluster, Shape},
    rng::mix,
};
use std::sync::Arc;
use vm::{MapRequest, Space};

const PAGES: u64 = 40;

#[test]
fn a_region_that_is_handed_over_meanwhile_is_seen() {
    for seed in 0..3000 {
        let kernels = 2 + seed as usize % 3;
        let cluster = Cluster::new(Shape { scarce: false, frames: 1000, ..Shape::of(seed, kernels) });
        let space = cluster.kernels[0].vm.create().unwrap();
        let on = |kernel: usize| cluster.kernels[kernel].vm.attach(space.id()).unwrap();
        let mut mapped: Vec<_> = (0..kernels)
            .map(|kernel| {
                let space = on(kernel);
                let request = MapRequest::anonymous(PAGES * PAGE_SIZE as u64, Access::READ);
                cluster.run(async move { space.map(request).await }).unwrap().page()
            })
            .collect();
        mapped.sort();
        for round in 0..4 {
            for kernel in 0..kernels {
                let space = on(kernel);
                let chance = mix(&[seed, round, kernel as u64]);
                cluster.start(async move { space.steal_for_test(chance).await });
            }
            let seen: Vec<_> = (0..kernels).map(|kernel| cluster.start(regions(on(kernel)))).collect();
            cluster.settle();
            for (kernel, seen) in seen.into_iter().enumerate() {
                let seen = seen.take().unwrap();
                let pages = seen.iter().map(|(start, pages)| (*start, *pages)).collect::<Vec<_>>();
                let missing = mapped.iter().flat_map(|start| (0..PAGES).map(|page| start.add(page))).find(|page| {
                    seen.iter().filter(|(start, pages)| (start.0..start.0 + pages).contains(&page.0)).count() != 1
                });
                assert_eq!(missing, None, "seed {seed} round {round}: kernel {kernel} sees {pages:x?}");
            }
        }
    }
}

async fn regions(space: Arc<Space>) -> Vec<(machine::Page, u64)> {
    let (mut regions, mut seen) = (space.regions(PageRange::user()), Vec::new());
    while let Some(region) = regions.next().await {
        seen.push((region.range.start, region.range.len()));
    }
    seen
}

#[test]
fn more_regions_than_one_answer_holds_are_all_seen_in_order() {
    let cluster = Cluster::new(Shape::of(1, 4));
    let id = cluster.kernels[0].vm.create().unwrap().id();
    let on = |kernel: usize| cluster.kernels[kernel].vm.attach(id).unwrap();
    let mut mapped = Vec::new();
    for round in 0..700 {
        for kernel in 0..3 {
            // Neighbours that differ are two.
            let prot = if round % 2 == 0 { Access::READ } else { Access::READ | Access::WRITE };
            let space = on(kernel);
            let request = MapRequest::anonymous(PAGE_SIZE as u64, prot);
            mapped.push((cluster.run(async move { space.map(request).await }).unwrap().page(), 1));
        }
    }
    mapped.sort();
    for kernel in 0..4 {
        assert_eq!(cluster.run(regions(on(kernel))), mapped, "on kernel {kernel}");
    }
}
