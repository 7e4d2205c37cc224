//! Pages of a file on a disk that are taken out of page tables and dropped while kernels map, read and write them: no write is lost, and every mapping shows the file.

mod common;

use common::{Run, RW};
use fs::{
    cache::Store,
    file::{Destination, Frames, Source as Bytes},
    Object, PageCache, ReadAhead,
};
use machine::{errno::Result, sync::Lock, BoxFuture, UserAddr, PAGE_SIZE};
use sim::{
    cluster::{Cluster, Shape},
    object::Later,
    rng::Rng,
};
use std::sync::Arc;
use vm::{MapRequest, Source, Space};

const PAGES: u64 = 12;
const BYTES: usize = PAGES as usize * PAGE_SIZE;
/// Bytes of each page that are written, far enough apart.
const PLACES: usize = 8;

struct Disk(Lock<Vec<u8>>);

impl Store for Disk {
    fn read<'a>(&'a self, offset: u64, mut to: Frames<'a>) -> BoxFuture<'a, Result<usize>> {
        Box::pin(async move {
            Later(false).await;
            let at = offset as usize;
            let part = self.0.lock()[at..BYTES.min(at + to.len())].to_vec();
            to.put(&part);
            Later(false).await;
            Ok(part.len())
        })
    }

    fn write<'a>(&'a self, offset: u64, mut from: Frames<'a>) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            Later(false).await;
            let mut bytes = vec![0; from.len()];
            from.take(&mut bytes);
            Later(false).await;
            self.0.lock()[offset as usize..][..bytes.len()].copy_from_slice(&bytes);
            Ok(())
        })
    }
}

fn new_run(seed: u64) -> Run {
    let rng = Rng::new(seed ^ 0x7ec1a1);
    let kernels = 1 + rng.below(4);
    let disk = Arc::new(Disk(Lock::new(vec![0; BYTES])));
    Run::with((seed, rng), kernels, BYTES as u64, 2, |files| PageCache::over(files, BYTES as u64, disk))
}

/// What happens to the file.
trait Happens {
    fn start_reclaim(&self, deeply: bool);
    /// `wanted` is what each place of the file is to hold: it is written once a round at most, so the last write is known.
    fn start_something(&self, wanted: &mut [Vec<u8>], written: &mut Vec<(usize, usize)>, value: u8);
    fn check(&self, wanted: &[Vec<u8>], seed: u64, round: u8);
}

impl Happens for Run {
    fn start_reclaim(&self, deeply: bool) {
        let (files, remote) = {
            let kernel = if self.rng.one_in(2) { &self.cluster.kernels[self.owner] } else { self.some() };
            (kernel.objects.files.clone(), kernel.objects.remote.clone())
        };
        drop(self.cluster.start(async move {
            if deeply {
                files.reclaim_any().await;
            } else {
                files.reclaim_mapped().await;
            }
            remote.reclaim_mapped().await
        }));
    }

    fn start_something(&self, wanted: &mut [Vec<u8>], written: &mut Vec<(usize, usize)>, value: u8) {
        let (page, place) = (self.rng.below(PAGES as usize), self.rng.below(PLACES));
        let offset = page * PAGE_SIZE + place * (PAGE_SIZE / PLACES);
        let mapping = self.rng.pick(&self.mappings).clone();
        let space = self.some().vm.attach(mapping.space.id()).unwrap();
        let (at, file) = (mapping.at.add(offset), self.file.clone());
        let writes = !written.contains(&(page, place));
        match self.rng.below(12) {
            0..=2 => drop(self.cluster.start(async move { space.read_value::<u8>(at).await.unwrap() })),
            3..=5 if writes && mapping.shared => {
                written.push((page, place));
                wanted[page][place] = value;
                drop(self.cluster.start(async move { space.write(at, &[value]).await.unwrap() }))
            }
            6 if writes => {
                written.push((page, place));
                wanted[page][place] = value;
                drop(self.cluster.start(async move {
                    file.write(Bytes::Kernel(&[value]), Some(offset as u64), |_, _| Ok(())).await.unwrap()
                }))
            }
            7 if self.rng.one_in(3) => drop(self.cluster.start(async move { space.fork().await })),
            8 => drop(self.cluster.start(async move { file.write_back(0, BYTES as u64).await.unwrap() })),
            9 | 10 => self.start_reclaim(false),
            _ => self.start_reclaim(true),
        }
    }

    fn check(&self, wanted: &[Vec<u8>], seed: u64, round: u8) {
        for (page, places) in wanted.iter().enumerate() {
            for (place, byte) in places.iter().enumerate() {
                let offset = page * PAGE_SIZE + place * (PAGE_SIZE / PLACES);
                for (number, mapping) in self.mappings.iter().enumerate() {
                    let space = self.some().vm.attach(mapping.space.id()).unwrap();
                    let at = mapping.at.add(offset);
                    let seen = self.cluster.run(async move { space.read_value::<u8>(at).await });
                    let shared = mapping.shared;
                    assert_eq!(
                        seen,
                        Ok(*byte),
                        "seed {seed}, round {round}, mapping {number} (shared {shared}), page {page}, place {place}"
                    );
                }
                let file = self.file.clone();
                let there = self.cluster.run(async move {
                    let mut byte = [0];
                    file.read(Destination::Kernel(&mut byte), offset as u64, ReadAhead::Normal).await.unwrap();
                    byte[0]
                });
                assert_eq!(there, *byte, "seed {seed}, round {round}, page {page}, place {place} of the file");
            }
        }
    }
}

#[test]
fn no_write_is_lost_when_mapped_pages_go() {
    let seeds = std::env::var("SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(200);
    for seed in 0..seeds {
        let run = new_run(seed);
        let mut wanted = vec![vec![0; PLACES]; PAGES as usize];
        for round in 1..7 {
            let mut written = Vec::new();
            for _ in 0..1 + run.rng.below(20) {
                run.start_something(&mut wanted, &mut written, round);
            }
            run.cluster.settle();
            run.check(&wanted, seed, round);
        }
        sim::audit::check(&run.cluster);
        // What the mappings and the cache show is on the disk as well.
        let (cluster, file, owner) = run.end_mappings();
        let files = cluster.kernels[owner].objects.files.clone();
        let written = file.clone();
        cluster.run(async move { written.write_back(0, BYTES as u64).await.unwrap() });
        files.reclaim(usize::MAX);
        assert_eq!(file.frames(), 0, "seed {seed}: pages are still in use");
        drop(file);
        cluster.settle();
        assert_eq!(cluster.world.used_count(), cluster.kernels.len(), "seed {seed}: {:?}", cluster.world.used());
    }
}

/// One mapping of the file on the kernel that has it, shared, of whose pages all have been read.
fn read_all(cluster: &Cluster, locked: bool) -> (Arc<PageCache>, Arc<Space>, UserAddr) {
    let disk = Arc::new(Disk(Lock::new(vec![7; BYTES])));
    let file = PageCache::over(&cluster.kernels[0].objects.files, BYTES as u64, disk);
    let (space, object) = (cluster.kernels[0].vm.create().unwrap(), file.clone());
    let of = space.clone();
    let at = cluster.run(async move {
        let source = Source::Object { object, offset: 0, label: (*b"/f").into(), limit: RW };
        let request = MapRequest { shared: true, source, locked, ..MapRequest::anonymous(BYTES as u64, RW) };
        let at = of.map(request).await.unwrap();
        for page in 0..PAGES as usize {
            of.read_value::<u8>(at.add(page * PAGE_SIZE)).await.unwrap();
        }
        at
    });
    (file, space, at)
}

#[test]
fn clean_mapped_pages_go_dirty_ones_when_written_and_locked_ones_never() {
    let cluster = Cluster::new(Shape { scarce: false, frames: 4096, ..Shape::of(1, 1).calm() });
    let files = cluster.kernels[0].objects.files.clone();
    let reclaim = |any: bool| {
        let files = files.clone();
        cluster.run(async move {
            if any {
                files.reclaim_any().await
            } else {
                files.reclaim_mapped().await
            }
        })
    };
    let (file, space, at) = read_all(&cluster, false);
    assert_eq!((files.reclaim(usize::MAX), file.frames()), (0, PAGES), "all are in use");
    let of = space.clone();
    cluster.run(async move { of.write(at, &[9]).await.unwrap() });
    // The first look clears the marks, the second takes them.
    assert_eq!((reclaim(false), file.frames()), (PAGES as usize - 1, 1), "but for the dirty one");
    assert_eq!((reclaim(true), file.frames()), (1, 0));
    let of = space.clone();
    assert_eq!(cluster.run(async move { of.read_value::<u8>(at).await }), Ok(9));
    cluster.run(async move { space.destroy().await });
    drop(file);
    let (file, space, _) = read_all(&cluster, true);
    assert_eq!((reclaim(false), reclaim(true), file.frames()), (0, 0, PAGES));
    cluster.run(async move { space.destroy().await });
}

#[test]
fn a_page_that_is_used_again_and_again_goes_last() {
    let cluster = Cluster::new(Shape { scarce: false, frames: 4096, ..Shape::of(1, 1).calm() });
    let files = cluster.kernels[0].objects.files.clone();
    let (file, space, at) = read_all(&cluster, false);
    let id = Object::id(&*file);
    let look = || {
        let vm = cluster.kernels[0].vm.clone();
        cluster.run(async move { fs::Mappers::unmap(&*vm, id, 0..PAGES, false).await });
        files.reclaim(usize::MAX)
    };
    assert_eq!(look(), 0, "all were read");
    // As a CPU that has forgotten where the page is.
    space.table().flush(machine::PageRange::one(at.page()));
    let of = space.clone();
    cluster.run(async move { of.read_value::<u8>(at).await.unwrap() });
    assert_eq!((look(), file.frames()), (PAGES as usize - 1, 1));
    cluster.run(async move { space.destroy().await });
}
