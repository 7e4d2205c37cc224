//! The page cache of a disk that answers late, or can't do all: what waits for what, and what an error costs.
#![allow(clippy::disallowed_methods)]

mod common;

use common::{block_on, slow::Slow, Kernel};
use fs::{
    block::{BlockFile, Disks, Volume},
    File, Object, OpenFlags, SyncRange,
};
use machine::{
    block::{BlockLimits, BlockOp},
    errno::Result,
    BoxFuture, CountedFrame, Errno, Memory,
};
use std::{
    sync::{atomic::Ordering::SeqCst, Arc},
    task::{Context, Poll, Waker},
};

const PAGE: u64 = 4096;

struct Disk {
    kernel: Kernel,
    device: Arc<Slow>,
    volume: Arc<Volume>,
}

impl Disk {
    /// Of so many pages; the first byte of each is its number.
    fn new(pages: u64) -> Disk {
        let mut bytes = vec![0; (pages * PAGE) as usize];
        bytes.chunks_mut(PAGE as usize).enumerate().for_each(|(number, page)| page[0] = number as u8);
        let limits = BlockLimits { most_bytes: 256 << 10, caches_writes: true, depth: 32, ..BlockLimits::default() };
        let (kernel, device) = (Kernel::new(20_000), Arc::new(Slow::new(bytes, limits)));
        kernel.tasks.1.store(true, SeqCst);
        device.at_once.store(true, SeqCst);
        let volume = block_on(Disks::default().add(&kernel.services, device.clone())).remove(0);
        Disk { kernel, device, volume }
    }

    /// From now on it answers when it is told.
    fn slowly(self) -> Disk {
        self.device.at_once.store(false, SeqCst);
        self
    }

    fn open(&self, flags: OpenFlags) -> Arc<BlockFile> {
        BlockFile::open(&self.volume, flags, None).unwrap()
    }

    /// The answer of what tasks of the kernel do.
    fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        let mut future = std::pin::pin!(future);
        for _ in 0..10_000 {
            if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                return value;
            }
            self.kernel.tasks.run_now();
        }
        panic!("the future waits for something that nobody does");
    }

    fn answer_all(&self) {
        self.device.answer_all(|| self.kernel.tasks.run_now());
        self.kernel.tasks.run_now();
    }
}

fn poll<T>(future: &mut BoxFuture<'_, T>) -> Option<T> {
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

fn object(file: &BlockFile) -> Arc<dyn Object> {
    block_on(file.object()).unwrap()
}

fn first_byte(disk: &Disk, frame: &CountedFrame<'_>) -> u8 {
    let mut byte = [0];
    disk.kernel.memory.read(frame.frame(), 0, &mut byte);
    byte[0]
}

#[test]
fn while_five_hundred_faults_wait_for_the_disk_another_finds_its_page() {
    let disk = Disk::new(9000);
    let file = disk.open(OpenFlags::RDWR);
    let object = object(&file);
    drop(block_on(object.page(8999)).unwrap());
    let disk = disk.slowly();
    disk.volume.queue().settings.set("read_ahead_kb", 0, &disk.volume.queue().limits()).unwrap();
    let mut faults: Vec<BoxFuture<'_, Result<CountedFrame<'_>>>> =
        (0..500).map(|index| object.page(index * 16 + 3)).collect();
    faults.iter_mut().for_each(|fault| assert!(poll(fault).is_none()));
    // The disk works on what it can, and no more waits in its queue than may.
    assert_eq!((disk.device.under_way().len(), disk.volume.stats().numbers()[8]), (32, 256));
    // Page 501 is here, to be read and to be written; what is written is taken in, too.
    let mut here = object.page(8999);
    assert_eq!(poll(&mut here).map(|page| first_byte(&disk, &page.unwrap())), Some((8999 % 256) as u8));
    assert!(object.resident(8999).is_some() && object.write(8999));
    assert_eq!(block_on(file.write_at(&[7; 4096], 8998 * PAGE)), Ok(4096));
    // One that is given up keeps nobody else waiting.
    drop(faults.remove(250));
    let mut found = 0;
    while !faults.is_empty() {
        disk.answer_all();
        faults.retain_mut(|fault| match poll(fault) {
            Some(page) => {
                first_byte(&disk, &page.unwrap());
                found += 1;
                false
            }
            None => true,
        });
    }
    assert_eq!((found, disk.volume.stats().numbers()[8]), (499, 0));
    let page = block_on(object.page(499 * 16 + 3)).unwrap();
    assert_eq!(first_byte(&disk, &page), ((499 * 16 + 3) % 256) as u8);
}

#[test]
fn a_read_that_is_given_up_keeps_its_frames_until_the_disk_has_answered() {
    let disk = Disk::new(64).slowly();
    let object = object(&disk.open(OpenFlags::empty()));
    let before = disk.kernel.memory.used();
    let mut fault = object.page(5);
    assert!(poll(&mut fault).is_none());
    let taken = disk.kernel.memory.used() - before;
    assert!(taken > 0);
    drop(fault);
    assert_eq!(disk.kernel.memory.used() - before, taken);
    // Whoever asks again reads again, into other frames.
    let mut again = object.page(5);
    assert!(poll(&mut again).is_none());
    disk.answer_all();
    assert_eq!(poll(&mut again).map(|page| first_byte(&disk, &page.unwrap())), Some(5));
}

#[test]
fn a_bad_block_costs_a_reader_its_own_page_only() {
    let disk = Disk::new(64);
    disk.device.bad.lock().unwrap().push(10 * 8 + 3);
    let file = disk.open(OpenFlags::empty());
    let mut byte = [0];
    for page in 0..64 {
        let read = block_on(file.read_at(&mut byte, page * PAGE));
        let expected = if page == 10 { Err(Errno::EIO) } else { Ok(1) };
        assert_eq!(read, expected, "page {page}");
        assert!(page == 10 || byte[0] == page as u8);
    }
}

#[test]
fn a_bad_block_keeps_only_its_own_page_dirty() {
    let disk = Disk::new(512);
    let file = disk.open(OpenFlags::RDWR);
    block_on(file.write_at(&vec![9; 300 * PAGE as usize], 0)).unwrap();
    disk.device.bad.lock().unwrap().extend([100 * 8, 101 * 8 + 7, 299 * 8]);
    assert_eq!(disk.wait(file.sync(false)), Err(Errno::EIO));
    let is_written = |page: u64| disk.device.bytes.lock().unwrap()[(page * PAGE) as usize + 1] == 9;
    for page in 0..300 {
        assert_eq!(is_written(page), ![100, 101, 299].contains(&page), "page {page}");
    }
    // The disk has put other blocks in their place.
    disk.device.bad.lock().unwrap().clear();
    let sectors = disk.volume.stats().numbers()[6];
    assert_eq!(disk.wait(file.sync(false)), Ok(()));
    assert_eq!(disk.volume.stats().numbers()[6] - sectors, 3 * 8);
    assert!((0..300).all(is_written));
}

#[test]
fn parts_of_a_file_are_written_back_at_the_same_time() {
    let disk = Disk::new(400);
    let file = disk.open(OpenFlags::RDWR);
    for index in 0..10 {
        block_on(file.write_at(&[1; 8192], index * 10 * PAGE)).unwrap();
    }
    let disk = disk.slowly();
    let mut sync = file.sync(false);
    assert!(poll(&mut sync).is_none());
    let runs =
        |from: u64, count: u64| (from..from + count).map(|run| (BlockOp::Write, run * 80, 8192)).collect::<Vec<_>>();
    assert_eq!(disk.device.under_way(), runs(0, 8));
    // What changes meanwhile is written again.
    let mut change: BoxFuture<'_, Result<usize>> = Box::pin(async { file.write_at(&[2; 10], 0).await });
    assert_eq!(poll(&mut change), Some(Ok(10)));
    (0..8).for_each(|_| drop(disk.device.answer(0)));
    disk.kernel.tasks.run_now();
    disk.kernel.tasks.run_now();
    assert_eq!(disk.device.under_way(), runs(8, 2));
    disk.answer_all();
    disk.answer_all();
    assert_eq!(poll(&mut sync), None);
    // The flush comes when all has been answered.
    assert_eq!(disk.device.under_way(), [(BlockOp::Flush, 0, 0)]);
    disk.answer_all();
    assert_eq!(poll(&mut sync), Some(Ok(())));
    let mut again = file.sync(false);
    assert!(poll(&mut again).is_none());
    assert_eq!(disk.device.under_way(), [(BlockOp::Write, 0, 4096)]);
}

#[test]
fn direct_transfers_agree_with_the_pages() {
    let disk = Disk::new(64);
    let (cached, direct) = (disk.open(OpenFlags::RDWR), disk.open(OpenFlags::RDWR | OpenFlags::DIRECT));
    let read = |file: &BlockFile, at: u64, bytes: usize| {
        let mut to = vec![0; bytes];
        let read = block_on(file.read_at(&mut to, at))?;
        to.truncate(read);
        Ok::<_, Errno>(to)
    };
    // Dirty pages are written first, those of other places are not.
    block_on(cached.write_at(&[1; 3 * 4096], 0)).unwrap();
    assert_eq!(read(&direct, 4096, 512), Ok(vec![1; 512]));
    let on_disk = |at: usize| disk.device.bytes.lock().unwrap()[at];
    assert_eq!((on_disk(1), on_disk(4097), on_disk(2 * 4096 + 1)), (0, 1, 0));
    // A sector in a page that is dirty, and one in a page that is clean: the rest stays.
    block_on(cached.write_at(&[2; 4096], 8192)).unwrap();
    assert_eq!(block_on(direct.write_at(&[3; 1024], 8192 - 512)), Ok(1024));
    let expected = [vec![1; 3584], vec![3; 1024], vec![2; 3584]].concat();
    assert_eq!(read(&cached, 4096, 8192), Ok(expected.clone()));
    assert_eq!(read(&direct, 4096, 8192), Ok(expected));
    // The end of the disk.
    let end = 64 * 4096;
    assert_eq!(read(&direct, end - 512, 4096).map(|bytes| bytes.len()), Ok(512));
    assert_eq!((read(&direct, end, 512), read(&direct, end + 100, 7)), (Ok(vec![]), Ok(vec![])));
    assert_eq!(block_on(direct.write_at(&[1; 1024], end - 512)), Ok(512));
    assert_eq!(block_on(direct.write_at(&[1; 512], end)), Err(Errno::ENOSPC));
    for (at, bytes) in [(1, 512), (512, 511), (0, 100)] {
        assert_eq!(read(&direct, at, bytes), Err(Errno::EINVAL));
        assert_eq!(block_on(direct.write_at(&vec![0; bytes], at)), Err(Errno::EINVAL));
    }
    // A bad sector is an error, and nobody hears of it later.
    disk.device.bad.lock().unwrap().push(100);
    assert_eq!(block_on(direct.write_at(&[0; 1024], 99 * 512)), Err(Errno::EIO));
    assert_eq!(read(&direct, 100 * 512, 512), Err(Errno::EIO));
    drop((cached, direct));
}

#[test]
fn direct_writes_go_side_by_side_but_not_of_the_same_pages() {
    let disk = Disk::new(64).slowly();
    let direct = disk.open(OpenFlags::RDWR | OpenFlags::DIRECT);
    let write = |byte: u8, page: u64| -> BoxFuture<'_, Result<usize>> {
        let direct = direct.clone();
        Box::pin(async move { direct.write_at(&[byte; 4096], page * PAGE).await })
    };
    let mut all = [write(1, 3), write(2, 7), write(3, 3)];
    all.iter_mut().for_each(|one| assert_eq!(poll(one), None));
    let at = |page: u64| (BlockOp::Write, page * 8, 4096);
    assert_eq!(disk.device.under_way(), [at(3), at(7)]);
    // The first is given up, and still goes before the others of its place: another direct one, and one through the cache that is synced.
    let [first, mut second, mut third] = all;
    drop(first);
    assert_eq!(poll(&mut third), None);
    let cached = disk.open(OpenFlags::RDWR);
    let mut change: BoxFuture<'_, Result<usize>> = Box::pin(async { cached.write_at(&[4; 4096], 3 * PAGE).await });
    assert_eq!(poll(&mut change), Some(Ok(4096)));
    let mut sync = cached.sync(false);
    assert_eq!(poll(&mut sync), None);
    disk.kernel.tasks.run_now();
    assert_eq!(disk.device.under_way(), [at(3), at(7)]);
    drop(disk.device.answer(0));
    disk.kernel.tasks.run_now();
    disk.kernel.tasks.run_now();
    assert_eq!((poll(&mut second), poll(&mut third)), (None, None));
    assert_eq!(disk.device.bytes.lock().unwrap()[3 * 4096], 1);
    for _ in 0..20 {
        disk.answer_all();
        if poll(&mut second).is_some() {
            second = Box::pin(std::future::pending());
        }
        if poll(&mut third).is_some() {
            third = Box::pin(std::future::pending());
        }
        if poll(&mut sync).is_some() {
            sync = Box::pin(std::future::pending());
        }
    }
    let bytes = disk.device.bytes.lock().unwrap();
    assert_eq!(bytes[7 * 4096], 2);
    assert!([3, 4].contains(&bytes[3 * 4096]), "the one that was given up came last");
}

#[test]
fn sync_file_range_writes_its_pages_and_waits_as_it_is_told() {
    let disk = Disk::new(64);
    let file = disk.open(OpenFlags::RDWR);
    let sync = |pages: std::ops::Range<u64>, [waits_before, writes, waits_after]: [bool; 3]| {
        let (start, end) = (pages.start * PAGE, pages.end * PAGE);
        file.sync_range(SyncRange { start, end, waits_before, writes, waits_after })
    };
    block_on(file.write_at(&[1; 4 * PAGE as usize], 0)).unwrap();
    let disk = disk.slowly();
    let write = |page: u64, pages: usize| (BlockOp::Write, page * 8, pages * PAGE as usize);
    // Nothing is asked for, or nothing is on its way: it is done.
    assert_eq!(block_on(sync(0..4, [false; 3])), Ok(()));
    assert_eq!(block_on(sync(0..4, [true, false, true])), Ok(()));
    assert!(disk.device.under_way().is_empty());
    // It is begun, and nobody waits.
    assert_eq!(poll(&mut sync(0..1, [false, true, false])), Some(Ok(())));
    assert_eq!(disk.device.under_way(), [write(0, 1)]);
    // Who asks for more meanwhile waits: there is one task for a file.
    let mut more = sync(1..2, [false, true, false]);
    assert_eq!(poll(&mut more), None);
    let mut before = sync(0..1, [true, false, false]);
    let mut after = sync(0..1, [false, false, true]);
    assert_eq!((poll(&mut before), poll(&mut after)), (None, None));
    disk.answer_all();
    assert_eq!((poll(&mut before), poll(&mut after)), (Some(Ok(())), Some(Ok(()))));
    assert_eq!(poll(&mut more), Some(Ok(())));
    assert_eq!(disk.device.under_way(), [write(1, 1)]);
    disk.answer_all();
    // All three: the rest of the range, and no flush.
    let mut all = sync(0..4, [true; 3]);
    assert_eq!(poll(&mut all), None);
    assert_eq!(disk.device.under_way(), [write(2, 2)]);
    disk.answer_all();
    assert_eq!(poll(&mut all), Some(Ok(())));
    assert!(disk.device.under_way().is_empty());
    // An error is told to who waits, once.
    disk.device.at_once.store(true, SeqCst);
    block_on(file.write_at(&[1; 10], 5 * PAGE)).unwrap();
    disk.device.bad.lock().unwrap().push(40);
    assert_eq!(block_on(sync(5..6, [false, true, false])), Ok(()));
    assert_eq!(block_on(sync(5..6, [false, false, true])), Err(Errno::EIO));
    assert_eq!(block_on(sync(5..6, [false, false, true])), Ok(()));
}
