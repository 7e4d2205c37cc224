//! Pages that programs map are dropped: what comes between the moment that they are taken out of page tables and their end.
#![allow(clippy::disallowed_methods)]

mod common;

use common::{slow::Slow, Kernel};
use fs::{
    block::{BlockFile, Disks, Volume},
    File, Lost, Mappers, MappingUse, Object, ObjectId, OpenFlags, Services,
};
use machine::{block::BlockLimits, BoxFuture, Frame, KernelSet, Memory};
use std::{
    collections::BTreeMap,
    future::ready,
    ops::Range,
    sync::{atomic::Ordering::SeqCst, Arc, Mutex},
    task::{Context, Wake, Waker},
};

const PAGE: u64 = 4096;
const PAGES: u64 = 64;

/// What a program does in the moment after pages were taken from it.
type Meanwhile = Box<dyn Fn(&Maps) + Send + Sync>;

/// A program that maps pages of one object: a count of the frame of each.
struct Maps {
    memory: Arc<dyn Memory>,
    object: Arc<dyn Object>,
    pages: Mutex<BTreeMap<u64, Frame>>,
    locked: Range<u64>,
    used: Mutex<Vec<u64>>,
    meanwhile: Mutex<Option<Meanwhile>>,
}

impl Maps {
    fn map(&self, index: u64) -> bool {
        let Some(frame) = self.object.resident(index) else { return false };
        let old = self.pages.lock().unwrap().insert(index, frame.into_raw());
        old.into_iter().for_each(|old| self.memory.release(old));
        true
    }

    fn take(&self, range: Range<u64>, which: impl Fn(u64) -> bool) {
        let mut pages = self.pages.lock().unwrap();
        let taken: Vec<u64> = pages.range(range).map(|(index, _)| *index).filter(|index| which(*index)).collect();
        taken.iter().for_each(|index| self.memory.release(pages.remove(index).unwrap()));
    }
}

impl Mappers for Maps {
    fn lost(&self, lost: Lost) -> BoxFuture<'_, ()> {
        self.take(lost.first..lost.end, |_| true);
        Box::pin(ready(()))
    }

    fn recall(&self, others: KernelSet, _: Lost) -> BoxFuture<'_, KernelSet> {
        Box::pin(ready(others))
    }

    fn unmap(&self, object: ObjectId, pages: Range<u64>, used: bool) -> BoxFuture<'_, ()> {
        assert_eq!(object, self.object.id());
        let mut marks = self.used.lock().unwrap();
        self.take(pages.clone(), |index| !self.locked.contains(&index) && (used || !marks.contains(&index)));
        marks.retain(|index| !pages.contains(index));
        drop(marks);
        if let Some(meanwhile) = self.meanwhile.lock().unwrap().take() {
            meanwhile(self);
        }
        Box::pin(ready(()))
    }

    fn uses(&self, _: ObjectId, _: MappingUse) -> BoxFuture<'_, u64> {
        Box::pin(ready(0))
    }
}

struct World {
    kernel: Kernel,
    device: Arc<Slow>,
    file: Arc<BlockFile>,
    maps: Arc<Maps>,
    _volume: Arc<Volume>,
}

impl World {
    /// A program maps all pages of a disk, each of which begins with its number; it has locked some.
    fn new(locked: Range<u64>) -> World {
        Self::of(PAGES, locked)
    }

    fn of(pages: u64, locked: Range<u64>) -> World {
        Self::in_memory(100_000, pages, locked)
    }

    /// The kernel has so many frames.
    fn in_memory(frames: usize, pages: u64, locked: Range<u64>) -> World {
        let mut bytes = vec![0; (pages * PAGE) as usize];
        bytes.chunks_mut(PAGE as usize).enumerate().for_each(|(number, page)| page[0] = number as u8);
        let limits = BlockLimits { most_bytes: 256 << 10, caches_writes: true, depth: 32, ..BlockLimits::default() };
        let (kernel, device) = (Kernel::new(frames), Arc::new(Slow::new(bytes, limits)));
        kernel.tasks.1.store(true, SeqCst);
        device.at_once.store(true, SeqCst);
        let volume = kernel.run(Disks::default().add(&kernel.services, device.clone())).remove(0);
        let file = BlockFile::open(&volume, OpenFlags::RDWR, None).unwrap();
        let object = kernel.run(file.object()).unwrap();
        let maps = Arc::new(Maps {
            memory: kernel.memory.clone(),
            object,
            pages: Mutex::default(),
            locked,
            used: Mutex::default(),
            meanwhile: Mutex::default(),
        });
        kernel.services.set_mappers(maps.clone());
        let world = World { kernel, device, file, maps, _volume: volume };
        (0..pages).for_each(|index| world.fault(index));
        world
    }

    fn drop_all(&self) {
        self.maps.take(0..u64::MAX, |_| true);
        while self.kernel.services.reclaim(1000) > 0 {}
    }

    fn fault(&self, index: u64) {
        drop(self.kernel.run(self.maps.object.page(index)).unwrap());
        assert!(self.maps.map(index));
    }

    fn mapped(&self) -> Vec<u64> {
        self.maps.pages.lock().unwrap().keys().copied().collect()
    }

    fn reclaim(&self) -> usize {
        self.kernel.run(self.kernel.services.reclaim_any())
    }

    fn is_here(&self, index: u64) -> bool {
        self.maps.object.resident(index).is_some()
    }

    fn byte_on_disk(&self, index: u64) -> u8 {
        self.device.bytes.lock().unwrap()[(index * PAGE) as usize]
    }
}

#[test]
fn pages_in_use_go_and_locked_ones_stay() {
    let world = World::new(8..16);
    assert_eq!(world.kernel.services.reclaim(1000), 0, "all are mapped");
    assert_eq!(world.reclaim(), PAGES as usize - 8);
    assert_eq!(world.mapped(), (8..16).collect::<Vec<_>>());
    assert_eq!(world.reclaim(), 0);
    // One that somebody else holds (a device) stays as well, though no program shows it.
    world.fault(3);
    let held = world.maps.object.resident(3).unwrap().into_raw();
    // What was read ahead with it goes first.
    world.reclaim();
    assert_eq!((world.reclaim(), world.is_here(3), world.mapped().contains(&3)), (0, true, false));
    world.kernel.memory.release(held);
    // Now nobody has it, and it goes as any page that is not mapped.
    assert_eq!((world.reclaim(), world.is_here(3)), (1, false));
}

#[test]
fn used_pages_go_when_nothing_else_is_left() {
    let world = World::new(0..0);
    *world.maps.used.lock().unwrap() = (10..20).collect();
    assert_eq!(world.reclaim(), PAGES as usize - 10);
    assert_eq!(world.mapped(), (10..20).collect::<Vec<_>>());
    *world.maps.used.lock().unwrap() = (10..20).collect();
    assert_eq!(world.reclaim(), 10);
}

/// Memory is full of what can't go, and programs need these pages all the time.
#[test]
fn what_is_read_again_at_once_shows_that_memory_is_too_small() {
    let frames = 4096;
    let world = World::in_memory(frames, PAGES, 0..0);
    let mut gone = 0;
    while !world.kernel.services.refaults.take_thrashing() {
        gone += world.reclaim();
        assert!(gone <= frames, "nobody would ever be ended");
        (0..PAGES).for_each(|index| world.fault(index));
    }
    assert!(gone >= frames / 4, "it is no matter of a moment");
    assert!(!world.kernel.services.refaults.take_thrashing(), "it counts anew");
}

/// It maps a file that is twice as large as what is left of memory, and goes round and round.
#[test]
fn who_reads_much_does_not_look_so() {
    let (frames, pages) = (4096, 4096);
    let world = World::in_memory(2 * frames, pages, 0..0);
    let mut gone = 0;
    for index in (0..pages).cycle().take(4 * frames) {
        if world.mapped().len() >= pages as usize / 2 {
            gone += world.reclaim();
            assert!(!world.kernel.services.refaults.take_thrashing());
        }
        if !world.is_here(index) {
            world.fault(index);
        } else {
            world.maps.map(index);
        }
    }
    assert!(gone > 2 * frames);
}

#[test]
fn a_write_that_comes_meanwhile_is_not_lost() {
    let world = World::new(0..0);
    let write = |byte: u8| -> Meanwhile {
        Box::new(move |maps: &Maps| {
            // As the fault of a shared mapping does it.
            assert!(maps.map(5) && maps.object.write(5));
            let frame = maps.pages.lock().unwrap()[&5];
            maps.memory.write(frame, 0, &[byte]);
        })
    };
    *world.maps.meanwhile.lock().unwrap() = Some(write(100));
    assert_eq!(world.reclaim(), PAGES as usize - 1);
    assert_eq!((world.mapped(), world.byte_on_disk(5)), (vec![5], 5));
    // Written, and unmapped before anybody looks: it is dirty, and stays.
    *world.maps.meanwhile.lock().unwrap() = Some(Box::new(move |maps: &Maps| {
        write(101)(maps);
        maps.take(5..6, |_| true);
    }));
    world.fault(6);
    assert!(world.kernel.run(world.kernel.services.reclaim_mapped()) > 0 && world.is_here(5));
    assert_eq!(world.byte_on_disk(5), 5);
    // When nothing clean is left, it is written back and goes.
    while world.reclaim() > 0 {}
    assert!(!world.is_here(5));
    assert_eq!(world.byte_on_disk(5), 101);
    let mut byte = [0];
    assert_eq!(world.kernel.run(world.file.read_at(&mut byte, 5 * PAGE)), Ok(1));
    assert_eq!(byte, [101]);
}

/// A task that reclaims all it can when it is woken.
struct Greedy(Arc<Services>);

impl Wake for Greedy {
    fn wake(self: Arc<Self>) {
        self.0.reclaim(1000);
    }
}

#[test]
fn a_page_that_has_just_been_read_is_kept_for_who_has_asked_for_it() {
    let world = World::new(0..0);
    world.drop_all();
    world.device.at_once.store(false, SeqCst);
    let (mut reads, mut waits) = (world.maps.object.page(3), world.maps.object.page(3));
    let greedy = Waker::from(Arc::new(Greedy(world.kernel.services.clone())));
    let mut poll = || reads.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(poll().is_pending());
    assert!(waits.as_mut().poll(&mut Context::from_waker(&greedy)).is_pending());
    world.device.answer_all(|| {});
    world.kernel.tasks.run_now();
    assert!(poll().is_ready() && world.device.under_way().is_empty(), "it is read once");
}

#[test]
fn what_was_read_last_does_not_go_first() {
    let world = World::new(0..0);
    world.maps.take(0..PAGES, |_| true);
    assert_eq!(world.kernel.services.reclaim(16), 16);
    let page = world.kernel.run(world.maps.object.page(3)).unwrap();
    drop(page);
    assert_eq!(world.kernel.services.reclaim(16), 16);
    assert!(world.is_here(3) && !world.is_here(31) && world.is_here(32));
}

#[test]
fn one_request_writes_back_no_more_than_a_part() {
    let world = World::of(3 * 2048, 0..0);
    world.maps.take(0..3 * 2048, |_| true);
    let dirty = || world.kernel.services.flusher.dirty();
    for index in 0..3 * 2048 {
        drop(world.kernel.run(world.maps.object.page(index)).unwrap());
        assert!(world.maps.object.write(index));
    }
    assert_eq!(dirty(), 3 * 2048);
    for left in [2, 1] {
        assert!(world.reclaim() > 0);
        assert_eq!(dirty(), left * 2048);
        while world.kernel.services.reclaim(1000) > 0 {}
    }
}

#[test]
fn a_fault_that_comes_meanwhile_keeps_its_page() {
    let world = World::new(0..0);
    *world.maps.meanwhile.lock().unwrap() = Some(Box::new(|maps: &Maps| assert!(maps.map(7))));
    assert_eq!(world.reclaim(), PAGES as usize - 1);
    let here = world.maps.object.resident(7).unwrap();
    assert_eq!(world.maps.pages.lock().unwrap()[&7], here.frame(), "the page that it had");
}
