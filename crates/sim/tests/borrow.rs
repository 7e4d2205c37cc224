//! Frames of other kernels, when those of one run out.

use fs::{
    file::{Destination, Source as Bytes},
    Object, PageCache, ReadAhead,
};
use machine::{Access, Errno, KernelId, Page, UserAddr, PAGE_SIZE};
use sim::{
    cluster::{Cluster, Shape},
    port::Weather,
};
use std::sync::Arc;
use vm::{MapAddress, MapRequest, Objects, Source, Space};

const RW: Access = Access::READ.union(Access::WRITE);
/// Frames of each kernel; some are in use from the start.
const FRAMES: u64 = 320;

fn cluster(kernels: usize) -> Cluster {
    let weather = Weather { room: 1000, longest: 1 << 20, delay: 0, scramble: false };
    Cluster::new(Shape { seed: 1, kernels, cpus: 1, frames: FRAMES, scarce: false, weather })
}

fn map(cluster: &Cluster, space: &Arc<Space>, pages: usize) -> UserAddr {
    map_as(cluster, space, MapRequest::anonymous((pages * PAGE_SIZE) as u64, RW))
}

fn map_as(cluster: &Cluster, space: &Arc<Space>, request: MapRequest) -> UserAddr {
    let space = space.clone();
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
    send_home(cluster);
}

fn send_home(cluster: &Cluster) {
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
    gets_all_and_gives_it_back(&cluster, space, at, used);
}

fn gets_all_and_gives_it_back(cluster: &Cluster, space: Arc<Space>, at: UserAddr, used: usize) {
    let before = cluster.messages();
    let had = touch(cluster, &space, at, 2000) as u64;
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
    end(cluster, space);
    assert_eq!(cluster.world.used_count(), used, "{:?}", cluster.world.used());
}

#[test]
fn so_does_memory_that_is_shared() {
    let cluster = cluster(4);
    let used = cluster.world.used_count();
    let space = cluster.kernels[1].vm.create().unwrap();
    let request = MapRequest { shared: true, ..MapRequest::anonymous((2000 * PAGE_SIZE) as u64, RW) };
    let at = map_as(&cluster, &space, request);
    gets_all_and_gives_it_back(&cluster, space, at, used);
}

/// A file in the memory of kernel 1 that is full: each page says which it is, and how many there are.
fn full_file(cluster: &Cluster) -> (Arc<PageCache>, u64) {
    let file = PageCache::memory(&cluster.kernels[1].objects.files, 0);
    let written = file.clone();
    let pages = cluster.run(async move {
        for page in 0u64.. {
            let mut data = vec![0; PAGE_SIZE];
            data[..8].copy_from_slice(&page.to_le_bytes());
            match written.write(Bytes::Kernel(&data), None, |_, _| Ok(())).await {
                Ok(_) => {}
                Err(error) => {
                    assert_eq!(error, Errno::ENOSPC);
                    return page;
                }
            }
        }
        unreachable!("memory has an end")
    });
    (file, pages)
}

fn read(cluster: &Cluster, file: &Arc<PageCache>, page: u64) -> Result<u64, Errno> {
    let file = file.clone();
    cluster.run(async move {
        let mut number = [0; 8];
        file.read(Destination::Kernel(&mut number), page * PAGE_SIZE as u64, ReadAhead::Normal)
            .await
            .map(|_| u64::from_le_bytes(number))
    })
}

#[test]
fn so_does_a_file_in_memory_and_leaves_something_everywhere() {
    let cluster = cluster(4);
    let used = cluster.world.used_count();
    let before = cluster.messages();
    let (file, pages) = full_file(&cluster);
    let least = FRAMES * 15 / 16 + 3 * (FRAMES * 3 / 4 - 64);
    assert!((least - 20..least + 3 * 64).contains(&pages), "{pages} pages");
    assert!(cluster.messages() - before < 100, "{} messages", cluster.messages() - before);
    for kernel in &cluster.kernels {
        let (all, free) = kernel.memory.totals();
        assert!(free + 1 >= all / if kernel.id == KernelId(1) { 16 } else { 4 }, "{free} are free at {:?}", kernel.id);
    }
    (0..pages).for_each(|page| assert_eq!(read(&cluster, &file, page), Ok(page)));
    drop(file);
    // What it had is there again for the next one.
    send_home(&cluster);
    let (file, again) = full_file(&cluster);
    assert!(again.abs_diff(pages) < 64, "{pages} pages, then {again}");
    file.resize(0);
    send_home(&cluster);
    assert_eq!(cluster.world.used_count(), used, "{:?}", cluster.world.used());
}

/// Maps the file shared in a space of its own on each kernel of `on`, at addresses that are not the file's kernel's.
fn mapped_on(cluster: &Cluster, file: &Arc<PageCache>, pages: u64, on: &[usize]) -> (Vec<Arc<Space>>, UserAddr) {
    let at = UserAddr(0x4000_0000);
    let spaces = on.iter().map(|&kernel| {
        let objects = cluster.kernels[kernel].objects.clone();
        let (id, space) = (file.id(), cluster.kernels[kernel].vm.create().unwrap());
        let object = cluster.run(async move { objects.resolve(id).await }).unwrap();
        let source = Source::Object { object, offset: 0, label: (*b"/f").into(), limit: RW };
        let request = MapRequest { shared: true, source, ..MapRequest::anonymous(pages * PAGE_SIZE as u64, RW) };
        map_as(cluster, &space, request.at(MapAddress::Fixed(at)));
        space
    });
    (spaces.collect(), at)
}

/// Also the kernel in whose memory they lie.
#[test]
fn borrowed_pages_of_a_file_are_shared_with_all_kernels() {
    let cluster = cluster(4);
    let used = cluster.world.used_count();
    let (file, pages) = full_file(&cluster);
    let (spaces, at) = mapped_on(&cluster, &file, pages, &[0, 1, 2, 3]);
    let place = move |page: u64| at.add(page as usize * PAGE_SIZE);
    let mut homes = [0; 4];
    for page in 0..pages {
        for (nth, space) in spaces.iter().cloned().enumerate() {
            let place = place(page);
            cluster.run(async move {
                assert_eq!(space.read_value::<u64>(place).await, Ok(page + nth as u64));
                space.write(place, &(page + nth as u64 + 1).to_le_bytes()).await.unwrap();
            });
        }
        let frame = spaces[0].table().get(Page(place(page).page().0)).unwrap().frame;
        homes[cluster.kernels[0].memory.home_of(frame).unwrap().index()] += 1;
        assert_eq!(read(&cluster, &file, page), Ok(page + 4));
    }
    assert!(homes.iter().all(|pages| *pages > 100), "{homes:?}");
    sim::audit::check(&cluster);
    // The file goes first: its pages live as long as they are mapped.
    drop(file);
    let reader = spaces[2].clone();
    cluster.run(async move { assert_eq!(reader.read_value::<u64>(place(7)).await, Ok(11)) });
    spaces.into_iter().for_each(|space| end(&cluster, space));
    assert_eq!(cluster.world.used_count(), used, "{:?}", cluster.world.used());
}

fn die(cluster: &Cluster, dead: KernelId) {
    cluster.kill(dead);
    for survivor in cluster.alive() {
        cluster.declare_dead(survivor, dead);
        cluster.kernels[survivor.index()].objects.remote.kernel_died(dead);
        cluster.kernels[survivor.index()].vm.stop_waiting_for(dead);
    }
    for survivor in cluster.alive() {
        let kernel = &cluster.kernels[survivor.index()];
        let (vm, files) = (kernel.vm.clone(), kernel.objects.files.clone());
        cluster.run(async move {
            vm.lose_frames(dead).await;
            files.lose_frames().await;
        });
    }
}

/// No table leads there any more, and the file says so; what lay elsewhere is there as before.
#[test]
fn pages_of_a_file_go_with_who_lent_them() {
    let cluster = cluster(4);
    let (file, pages) = full_file(&cluster);
    let (spaces, at) = mapped_on(&cluster, &file, pages, &[1, 2]);
    let shared = MapRequest { shared: true, ..MapRequest::anonymous((20 * PAGE_SIZE) as u64, RW) };
    let there = map_as(&cluster, &spaces[0], shared);
    assert_eq!(touch(&cluster, &spaces[0], there, 20), 20);
    let place = move |page: u64| at.add(page as usize * PAGE_SIZE);
    for space in spaces.clone() {
        cluster.run(async move {
            for page in 0..pages {
                assert_eq!(space.read_value::<u64>(place(page)).await, Ok(page));
            }
        });
    }
    let dead = KernelId(3);
    let lay_there: Vec<bool> = (0..pages)
        .map(|page| {
            let frame = file.resident(page).unwrap().frame();
            cluster.kernels[1].memory.home_of(frame) == Some(dead)
        })
        .collect();
    assert!(lay_there.iter().filter(|there| **there).count() > 100);
    die(&cluster, dead);
    assert_eq!(cluster.world.haunted(dead), None);
    for (page, there) in (0..pages).zip(lay_there) {
        let expected = if there { Err(Errno::EIO) } else { Ok(page) };
        assert_eq!(read(&cluster, &file, page), expected, "page {page}");
        for space in spaces.clone() {
            let found = cluster.run(async move { space.read_value::<u64>(place(page)).await });
            assert_eq!(found.is_err(), there, "page {page}: {found:?}");
        }
        if there && page % 2 == 0 {
            // Written anew as a whole it is a page like any other; in part it is not.
            let write = |bytes: usize| {
                let file = file.clone();
                cluster.run(async move {
                    file.write(Bytes::Kernel(&vec![1; bytes]), Some(page * PAGE_SIZE as u64), |_, _| Ok(()))
                        .await
                        .map(|_| ())
                })
            };
            assert_eq!(write(100), Err(Errno::EIO));
            match write(PAGE_SIZE) {
                Ok(()) => assert_eq!(read(&cluster, &file, page), Ok(0x0101_0101_0101_0101)),
                error => assert_eq!(error, Err(Errno::ENOSPC)),
            }
        }
    }
    cluster.world.give_up();
}

/// Who maps a page that the dead one had borrowed elsewhere and pinned is found, also where the page is at home: it comes back
/// to who lent it, and is used anew.
#[test]
fn who_maps_what_the_dead_borrowed_is_condemned() {
    let cluster = cluster(4);
    let (file, pages) = full_file(&cluster);
    let (spaces, at) = mapped_on(&cluster, &file, pages, &[2, 3]);
    let lenders = [KernelId(0), KernelId(2), KernelId(3)];
    let mut borrowed = (0..pages).filter(|page| {
        let frame = file.resident(*page).unwrap().frame();
        cluster.kernels[1].memory.home_of(frame) != Some(KernelId(1))
    });
    let page = borrowed.next().unwrap();
    for space in spaces.clone() {
        cluster.run(async move { space.read_value::<u64>(at.add(page as usize * PAGE_SIZE)).await.unwrap() });
    }
    die(&cluster, KernelId(1));
    for (space, kernel) in spaces.into_iter().zip([2, 3]) {
        assert_eq!(cluster.kernels[kernel].vm.condemned_by(KernelId(1)), [space.id()]);
        end(&cluster, space);
        assert_eq!(cluster.kernels[kernel].vm.condemned_by(KernelId(1)), []);
    }
    // Panics if a table leads to one of them.
    for lender in lenders {
        cluster.kernels[lender.index()].memory.take_all_home(KernelId(1));
        let (all, free) = cluster.kernels[lender.index()].memory.totals();
        assert!(free > all - 10, "{free} of {all} are free at {lender:?}");
    }
    cluster.world.give_up();
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
