//! Mapped files that are written, shortened and punched while kernels map them: whatever the order of the messages, when
//! all is quiet every mapping shows the file.

mod common;

use common::{object, Mapping, Run, RW};
use fs::{
    file::{Destination, Source as Bytes},
    Object, PageCache, ReadAhead,
};
use machine::{Access, Errno, UserAddr, PAGE_SIZE};
use sim::{
    cluster::{Cluster, Shape},
    rng::Rng,
};
use std::sync::Arc;
use vm::{MapRequest, Source, Space};

const PAGE: u64 = PAGE_SIZE as u64;
const PAGES: u64 = 10;

fn new_run(seed: u64) -> Run {
    let rng = Rng::new(seed ^ 0x3a99ed);
    let kernels = 2 + rng.below(3);
    Run::with((seed, rng), kernels, PAGES * PAGE, 3, |files| PageCache::memory(files, PAGES * PAGE))
}

/// What happens to the file.
trait Happens {
    /// Something happens to the file, or to a page of a mapping, on a kernel of its own choice.
    fn start_something(&self);
    /// Every mapping, seen from some kernel, is the file.
    fn check(&self, seed: u64, round: u32);
    fn end(self, seed: u64);
}

impl Happens for Run {
    fn start_something(&self) {
        let index = self.rng.below(PAGES as usize) as u64;
        let value = 1 + self.rng.below(200) as u8;
        let mapping = self.rng.pick(&self.mappings).clone();
        let space = self.some().vm.attach(mapping.space.id()).unwrap();
        let (at, file) = (mapping.at.add((index * PAGE) as usize), self.file.clone());
        match self.rng.below(12) {
            0..=4 => drop(self.cluster.start(async move { space.read_value::<u8>(at).await.map(drop) })),
            5..=6 if mapping.shared => drop(self.cluster.start(async move { space.write(at, &[value]).await })),
            5..=6 => drop(self.cluster.start(async move { space.load_u32(at).await.map(drop) })),
            7 => drop(self.cluster.start(async move { space.fork().await })),
            8 => drop(self.cluster.start(async move {
                file.write(Bytes::Kernel(&[value]), Some(index * PAGE), |_, end| {
                    (end <= PAGES * PAGE).then_some(()).ok_or(Errno::EPERM)
                })
                .await
            })),
            9 => {
                let pages = self.rng.below(4) as u64;
                drop(self.cluster.start(async move { file.punch(index * PAGE, (index + pages) * PAGE).await }))
            }
            10 => drop(self.cluster.start(async move { Object::punch(&*file, index, index + 1).await })),
            _ => {
                let bytes = index * PAGE + if value < 100 { 0 } else { 100 };
                drop(self.cluster.start(async move {
                    file.truncate(bytes, |_, _| Ok(()), Box::pin(async { Ok(()) })).await.unwrap();
                    file.truncate(PAGES * PAGE, |_, _| Ok(()), Box::pin(async { Ok(()) })).await
                }))
            }
        }
    }

    fn check(&self, seed: u64, round: u32) {
        for (number, mapping) in self.mappings.iter().enumerate() {
            for page in 0..PAGES {
                let space = self.some().vm.attach(mapping.space.id()).unwrap();
                let (at, file) = (mapping.at.add((page * PAGE) as usize), self.file.clone());
                let (seen, there) = self.cluster.run(async move {
                    let mut byte = [0];
                    let read = file.read(Destination::Kernel(&mut byte), page * PAGE, ReadAhead::Normal).await.unwrap();
                    (space.read_value::<u8>(at).await, if read == 1 { Ok(byte[0]) } else { Err(Errno::EFAULT) })
                });
                let shared = mapping.shared;
                assert_eq!(seen, there, "seed {seed}, round {round}, mapping {number} (shared {shared}), page {page}");
            }
        }
    }

    fn end(self, seed: u64) {
        let (cluster, file, owner) = self.end_mappings();
        let name = Object::id(&*file);
        drop(file);
        cluster.settle();
        assert!(cluster.kernels[owner].objects.files.object(name).is_none(), "seed {seed}: the file is still in use");
        assert_eq!(cluster.world.used_count(), cluster.kernels.len(), "seed {seed}: {:?}", cluster.world.used());
    }
}

#[test]
fn every_mapping_shows_the_file() {
    let seeds = std::env::var("SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(300);
    for seed in 0..seeds {
        let run = new_run(seed);
        for round in 0..6 {
            for _ in 0..1 + run.rng.below(12) {
                run.start_something();
            }
            run.cluster.settle();
            run.check(seed, round);
        }
        sim::audit::check(&run.cluster);
        run.end(seed);
    }
}

#[test]
fn what_was_written_privately_goes_with_the_file_and_stays_with_a_hole() {
    for seed in 0..60 {
        let run = new_run(seed);
        let private: Vec<&Mapping> = run.mappings.iter().filter(|mapping| !mapping.shared).collect();
        let each = |act: &dyn Fn(&Mapping)| private.iter().for_each(|mapping| act(mapping));
        let write = |mapping: &Mapping| {
            let (space, at) = (mapping.space.clone(), mapping.at.add(3 * PAGE_SIZE));
            run.cluster.run(async move { space.write(at, &[7]).await.unwrap() });
        };
        let check = |expected: u8| {
            each(&|mapping| {
                let space = run.some().vm.attach(mapping.space.id()).unwrap();
                let at = mapping.at.add(3 * PAGE_SIZE);
                assert_eq!(
                    run.cluster.run(async move { space.read_value::<u8>(at).await }),
                    Ok(expected),
                    "seed {seed}"
                );
            })
        };
        each(&write);
        check(7);
        let file = run.file.clone();
        run.cluster.run(async move { file.punch(0, PAGES * PAGE).await });
        check(7);
        let file = run.file.clone();
        run.cluster.run(async move {
            file.truncate(3 * PAGE, |_, _| Ok(()), Box::pin(async { Ok(()) })).await.unwrap();
            file.truncate(PAGES * PAGE, |_, _| Ok(()), Box::pin(async { Ok(()) })).await.unwrap()
        });
        check(0);
        drop(private);
        run.end(seed);
    }
}

/// Messages of the common cases.
#[test]
fn who_maps_nothing_is_not_asked() {
    let cluster = Cluster::new(Shape { frames: 4096, ..Shape::of(1, 4).calm() });
    let file = PageCache::memory(&cluster.kernels[0].objects.files, PAGES * PAGE);
    let cost = |work: &dyn Fn()| {
        let before = cluster.messages();
        work();
        cluster.messages() - before
    };
    let write = || {
        let file = file.clone();
        cluster
            .run(async move { file.write(Bytes::Kernel(&[1; 5 * PAGE_SIZE]), Some(0), |_, _| Ok(())).await.unwrap() });
    };
    let truncate = || {
        let file = file.clone();
        cluster.run(async move { file.truncate(0, |_, _| Ok(()), Box::pin(async { Ok(()) })).await.unwrap() })
    };
    assert_eq!(cost(&|| (write(), truncate()).1), 0, "nobody maps it");
    write();
    let space = cluster.kernels[1].vm.create().unwrap();
    let other = cluster.kernels[2].vm.create().unwrap();
    let map = |kernel: usize, space: &Arc<Space>| {
        let (space, file, remote) = (space.clone(), file.clone(), cluster.kernels[kernel].objects.remote.clone());
        cluster.run(async move {
            let object = object((remote, false), file).await;
            let source = Source::Object { object, offset: 0, label: (*b"/f").into(), limit: RW };
            space.map(MapRequest { source, ..MapRequest::anonymous(PAGES * PAGE, Access::READ) }).await.unwrap()
        })
    };
    let (at, there) = (map(1, &space), map(2, &other));
    let read = |space: &Arc<Space>, at: UserAddr| {
        let space = space.clone();
        cluster.run(async move { assert!(space.read_value::<u8>(at).await.is_ok()) })
    };
    assert_eq!(cost(&|| (write(), truncate()).1), 0, "mapped, but no page of it");
    write();
    assert_eq!(cost(&|| read(&space, at)), 2, "a page, and its neighbours with it");
    assert_eq!(cost(&|| (1..5).for_each(|page| read(&space, at.add(page * PAGE_SIZE)))), 0);
    assert_eq!(cost(&truncate), 2, "one kernel has pages");
    write();
    read(&space, at);
    read(&other, there);
    assert_eq!(cost(&write), 4, "copies come back from two kernels");
    assert_eq!(cost(&write), 0, "and are not lent out again");
    read(&space, at);
    assert_eq!(cost(&write), 0, "but the pages themselves are");
    assert_eq!(cost(&truncate), 4);
    let unmap = |space: &Arc<Space>, at| {
        let space = space.clone();
        cluster.run(async move { space.unmap(at, PAGES * PAGE).await.unwrap() });
    };
    unmap(&space, at);
    unmap(&other, there);
    write();
    assert_eq!(cost(&truncate), 4, "asked once more");
    write();
    assert_eq!(cost(&truncate), 0, "and then forgotten");
}
