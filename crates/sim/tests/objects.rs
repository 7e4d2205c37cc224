//! Objects mapped shared where their owner is not the owner of the addresses: one frame a page, pinned as long as
//! it is mapped anywhere, and not longer.

use abi::ObjectId;
use machine::{Access, UserAddr, PAGE_SIZE};
use sim::{
    cluster::{Cluster, Shape},
    object::Later,
};
use std::sync::Arc;
use vm::{MapAddress, MapRequest, Objects, Source, Space};

const RW: Access = Access::READ.union(Access::WRITE);
const PAGE: u64 = PAGE_SIZE as u64;

fn cluster(seed: u64) -> Cluster {
    Cluster::new(Shape { scarce: false, frames: 1000, ..Shape::of(seed, 4) })
}

/// Maps page 1 of `id` shared, in `space`, where `place` says.
async fn map(objects: Arc<sim::object::SimObjects>, space: Arc<Space>, id: ObjectId, place: MapAddress) -> UserAddr {
    let object = objects.resolve(id).await.unwrap();
    let source = Source::Object { object, offset: PAGE, label: (*b"/f").into(), limit: RW };
    let request = MapRequest { shared: true, source, ..MapRequest::anonymous(PAGE, RW) };
    space.map(request.at(place)).await.unwrap()
}

async fn increment(space: Arc<Space>, at: UserAddr, times: u32) {
    for _ in 0..times {
        let mut old = space.load_u32(at).await.unwrap();
        while let Err(found) = space.compare_exchange_u32(at, old, old.wrapping_add(1)).await.unwrap() {
            old = found;
        }
        Later(false).await;
    }
}

/// All frames and references are back, but for the object's own.
fn check_end(cluster: &Cluster, owner: usize) {
    for kernel in &cluster.kernels {
        kernel.vm.send_frames_home(1);
    }
    cluster.settle();
    let object = &cluster.kernels[owner].objects;
    assert_eq!(object.remote.exported(), 0);
    object.clear();
    assert_eq!(cluster.world.used_count(), cluster.kernels.len(), "{:?}", cluster.world.used());
}

#[test]
fn counting_through_mappings_of_three_owners_loses_nothing() {
    for seed in 0..200 {
        let cluster = cluster(seed);
        let id = ObjectId { owner: cluster.kernels[2].id, serial: 1 };
        let (one, two) = (cluster.kernels[0].vm.create().unwrap(), cluster.kernels[3].vm.create().unwrap());
        let on = |kernel: usize, space: &Arc<Space>| cluster.kernels[kernel].vm.attach(space.id()).unwrap();
        let mapped = |kernel: usize, space: &Arc<Space>, place| {
            let objects = cluster.kernels[kernel].objects.clone();
            cluster.run(map(objects, on(kernel, space), id, place))
        };
        let room = |kernel: usize, space: &Arc<Space>| {
            let space = on(kernel, space);
            let request = MapRequest::anonymous(PAGE, RW);
            MapAddress::Fixed(cluster.run(async move { space.map(request).await }).unwrap())
        };
        // In slices of kernels 0, 1 and 2, and of 3 in the other space; asked for by their owners and others.
        let at = [
            mapped(0, &one, room(0, &one)),
            mapped(3, &one, room(1, &one)),
            mapped(1, &one, MapAddress::Hint(UserAddr::NULL)),
        ];
        let other = mapped(1, &two, room(3, &two));
        let first = cluster.run({
            let space = on(3, &one);
            async move { space.load_u32(at[1]).await.unwrap() }
        });
        for kernel in 0..4 {
            cluster.start(increment(on(kernel, &one), at[kernel % 3], 10));
            cluster.start(increment(on(kernel, &two), other, 10));
        }
        // Meanwhile one mapping comes and goes.
        let (objects, space, place) = (cluster.kernels[1].objects.clone(), on(1, &two), room(1, &two));
        let coming = cluster.start(async move {
            for _ in 0..5 {
                let at = map(objects.clone(), space.clone(), id, place).await;
                increment(space.clone(), at, 2).await;
                space.unmap(at, PAGE).await.unwrap();
            }
        });
        cluster.settle();
        coming.take().unwrap();
        sim::audit::check(&cluster);
        for at in at {
            let space = on(seed as usize % 4, &one);
            assert_eq!(
                cluster.run(async move { space.load_u32(at).await.unwrap() }),
                first.wrapping_add(90),
                "seed {seed}"
            );
        }
        assert!(cluster.kernels[2].objects.get(id).dirty.lock().contains(&1));
        for space in [one, two] {
            cluster.run(async move { space.destroy().await });
        }
        check_end(&cluster, 2);
    }
}

#[test]
fn the_owner_counts_as_long_as_others_map() {
    let cluster = cluster(5);
    let owner = &cluster.kernels[1];
    let id = ObjectId { owner: owner.id, serial: 1 };
    let space = cluster.kernels[0].vm.create().unwrap();
    let place = MapAddress::Fixed(UserAddr(0x4000_0000));
    let at = cluster.run(map(cluster.kernels[0].objects.clone(), space.clone(), id, place));
    let user = space.clone();
    cluster.run(async move { user.write(at, &[7]).await.unwrap() });
    let frame = space.table().get(at.page()).unwrap().frame;
    assert_eq!(owner.memory.home_of(frame), Some(owner.id));
    assert_eq!(owner.memory.count(frame), 2, "the object's and ours");
    // Nobody at the owner uses it any more, but it lives as long as it is mapped.
    owner.objects.clear();
    assert_eq!(owner.objects.remote.exported(), 1);
    let user = space.clone();
    assert_eq!(cluster.run(async move { user.read_value::<u8>(at).await.unwrap() }), 7);
    let user = space.clone();
    cluster.run(async move { user.unmap(at, PAGE).await.unwrap() });
    cluster.run(async move { space.destroy().await });
    check_end(&cluster, 1);
}

#[test]
fn shared_memory_moves_to_another_owner_and_stays_shared() {
    for seed in 0..50 {
        let cluster = cluster(seed);
        let parent = cluster.kernels[0].vm.create().unwrap();
        let away = cluster.kernels[1].vm.attach(parent.id()).unwrap();
        let child = cluster.run(async move {
            let request = MapRequest { shared: true, ..MapRequest::anonymous(2 * PAGE, RW) };
            let from = away.map(request).await.unwrap();
            away.write(from, &[1]).await.unwrap();
            let child = away.fork().await.unwrap();
            // Into the slices of its home.
            let to = UserAddr(0x4000_0000);
            assert_eq!(away.remap(from, 2 * PAGE, 2 * PAGE, 3, to, false).await, Ok(to));
            assert_eq!(away.read_value::<u8>(to).await, Ok(1));
            away.write(to, &[2]).await.unwrap();
            assert_eq!(child.read_value::<u8>(from).await, Ok(2));
            child.write(from.add(PAGE_SIZE), &[3]).await.unwrap();
            assert_eq!(away.read_value::<u8>(to.add(PAGE_SIZE)).await, Ok(3));
            child
        });
        sim::audit::check(&cluster);
        for space in [parent, cluster.kernels[child.id().home.index()].vm.attach(child.id()).unwrap()] {
            cluster.run(async move { space.destroy().await });
        }
        check_end(&cluster, 1);
    }
}
