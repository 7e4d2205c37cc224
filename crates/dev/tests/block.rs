//! A disk against a device of bytes in memory.

#[path = "../../fs/tests/common/memory.rs"]
mod memory;

use dev::block::{queues, Disk, FEATURES};
use machine::{
    block::{BlockDevice, BlockOp, Piece, Pieces},
    errno::Result,
    sync::WaitQueue,
    BoxFuture, Errno, Frame, Memory, PageQueue,
};
use memory::FakeMemory;
use std::{
    future::Future,
    pin::pin,
    sync::{
        atomic::{AtomicU64, Ordering::SeqCst},
        Arc, Mutex,
    },
    task::{Context, Poll, Waker},
};

const OK: u8 = 0;
const READ_ONLY: u64 = 1 << 5;
const QUEUES: u64 = 1 << 12;
// virtio 1.2, 5.2.6.
const READ: u32 = 0;
const WRITE: u32 = 1;
const FLUSH: u32 = 4;
const GET_ID: u32 = 8;
const WRITE_ZEROES: u32 = 13;

/// Answers as a device does that has these bytes.
struct Bytes {
    bytes: Mutex<Vec<u8>>,
    asked: Mutex<Vec<u32>>,
    status: u8,
    sectors: AtomicU64,
    changes: WaitQueue,
}

impl PageQueue for Bytes {
    fn submit(&self, header: Vec<u8>, pieces: Pieces, device_writes: bool) -> BoxFuture<'_, Result<u8>> {
        let word = |at: usize| u32::from_le_bytes(*header[at..].first_chunk().unwrap());
        let sector = |at: usize| u64::from_le_bytes(*header[at..].first_chunk().unwrap()) as usize * 512;
        let mut bytes = self.bytes.lock().unwrap();
        self.asked.lock().unwrap().push(word(0));
        assert_eq!(device_writes, matches!(word(0), READ | GET_ID));
        match word(0) {
            READ => pieces.copy_from(&bytes[sector(8)..sector(8) + pieces.len()]),
            WRITE => {
                let mut written = Vec::new();
                pieces.copy_to(&mut written);
                bytes[sector(8)..sector(8) + written.len()].copy_from_slice(&written);
            }
            WRITE_ZEROES => bytes[sector(16)..sector(16) + word(24) as usize * 512].fill(0),
            GET_ID => pieces.copy_from(b"a disk\0\0\0\0\0\0\0\0\0\0\0\0\0\0"),
            _ => {}
        }
        Box::pin(std::future::ready(Ok(self.status)))
    }

    fn most_segments(&self) -> usize {
        3
    }

    fn changes(&self) -> Option<&WaitQueue> {
        Some(&self.changes)
    }

    fn configuration(&self) -> Vec<u8> {
        self.sectors.load(SeqCst).to_le_bytes().to_vec()
    }
}

fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("the fake answers at once"),
    }
}

/// 8 sectors, blocks of 512 bytes, and what `features` say of the rest.
fn disk(features: u64, status: u8) -> (Arc<Bytes>, Disk) {
    let device = Arc::new(Bytes {
        bytes: Mutex::new(vec![7; 8 * 512]),
        asked: Mutex::default(),
        status,
        sectors: AtomicU64::new(8),
        changes: WaitQueue::new(),
    });
    let mut configuration = vec![0; 60];
    configuration[0] = 8;
    configuration[20..24].copy_from_slice(&512u32.to_le_bytes());
    configuration[24] = 3;
    configuration[34] = 4;
    configuration[36] = 2;
    configuration[48] = 4;
    configuration[12] = 2;
    let memory: Arc<dyn Memory> = Arc::new(FakeMemory::new(1));
    let disk = now(Disk::start(&memory, device.clone(), features, &configuration)).unwrap();
    assert_eq!(memory.alloc().map(drop), Some(()), "no frame stays");
    device.asked.lock().unwrap().clear();
    assert_eq!(queues(features, &configuration), if features & QUEUES != 0 { 4 } else { 1 });
    (device, disk)
}

#[test]
fn a_disk_says_what_it_is() {
    let (_, all) = disk(FEATURES - READ_ONLY, OK);
    let limits = all.limits();
    assert_eq!((limits.sectors, limits.block, limits.physical_block), (8, 512, 4096));
    assert_eq!((limits.most_discarded, limits.most_zeroed, limits.caches_writes), (2, 4, true));
    assert_eq!(limits.serial, b"a disk");
    assert_eq!((limits.most_segments, limits.queues), (2, 1));
    let (_, plain) = disk(0, OK);
    let limits = plain.limits();
    assert_eq!(
        (limits.physical_block, limits.most_discarded, limits.most_zeroed, limits.caches_writes, limits.most_segments),
        (512, 0, 0, false, 3)
    );
}

fn fake_memory() -> (Arc<dyn Memory>, Frame) {
    let memory: Arc<dyn Memory> = Arc::new(FakeMemory::new(4));
    let frame = memory.alloc().unwrap();
    (memory, frame)
}

fn piece(frame: Frame, offset: usize, bytes: usize) -> Piece {
    Piece { frame, offset, bytes }
}

#[test]
fn bytes_go_both_ways_in_pieces_and_no_frame_stays() {
    let (device, disk) = disk(FEATURES - READ_ONLY, OK);
    let (memory, frame) = fake_memory();
    memory.write(frame, 1024, &[1; 512]);
    memory.write(frame, 0, &[2; 512]);
    let pages = || {
        let mut pages = Pieces::none(&memory);
        pages.push(piece(frame, 1024, 512));
        pages.push(piece(frame, 0, 512));
        pages
    };
    now(disk.submit(BlockOp::Write, 3, pages())).unwrap();
    assert_eq!(
        device.bytes.lock().unwrap()[3 * 512 - 1..5 * 512 + 1],
        [vec![7], vec![1; 512], vec![2; 512], vec![7]].concat()
    );
    device.bytes.lock().unwrap()[4 * 512] = 9;
    now(disk.submit(BlockOp::Read, 3, pages())).unwrap();
    let mut read = [0; 2];
    memory.read(frame, 0, &mut read);
    assert_eq!((read, memory.count(frame)), ([9, 2], 1));
    now(disk.submit(BlockOp::WriteZeroes { sectors: 2 }, 3, Pieces::none(&memory))).unwrap();
    assert_eq!(device.bytes.lock().unwrap()[3 * 512..5 * 512], [0; 1024]);
    now(disk.submit(BlockOp::Flush, 0, Pieces::none(&memory))).unwrap();
    assert_eq!(*device.asked.lock().unwrap(), [WRITE, READ, WRITE_ZEROES, FLUSH]);
}

#[test]
fn what_is_not_within_the_limits_never_reaches_the_device() {
    let (device, disk) = disk(FEATURES - READ_ONLY, OK);
    let (memory, frame) = fake_memory();
    let ask = |op, sector, bytes: usize| {
        let mut pages = Pieces::none(&memory);
        if bytes > 0 {
            pages.push(piece(frame, 0, bytes));
        }
        now(disk.submit(op, sector, pages))
    };
    for (op, sector, bytes) in [
        (BlockOp::Read, u64::MAX, 512),
        (BlockOp::Write, 0, 100),
        (BlockOp::Write, 0, 0),
        (BlockOp::Discard { sectors: 3 }, 0, 0),
        (BlockOp::WriteZeroes { sectors: 0 }, 0, 0),
    ] {
        assert_eq!(ask(op, sector, bytes), Err(Errno::EINVAL), "{op:?} {sector} {bytes}");
    }
    // As Linux: it may have become smaller.
    for (op, sector, bytes) in
        [(BlockOp::Read, 8, 512), (BlockOp::Write, 7, 1024), (BlockOp::Discard { sectors: 8 }, 8, 0)]
    {
        assert_eq!(ask(op, sector, bytes), Err(Errno::EIO), "{op:?} {sector} {bytes}");
    }
    let mut pages = Pieces::none(&memory);
    (0..3).for_each(|_| pages.push(piece(frame, 0, 512)));
    assert_eq!(now(disk.submit(BlockOp::Read, 0, pages)), Err(Errno::EINVAL), "more pieces than the device takes");
    assert!(device.asked.lock().unwrap().is_empty());
}

#[test]
fn what_a_disk_cannot_do_is_refused() {
    let (memory, frame) = fake_memory();
    let (device, plain) = disk(0, OK);
    let none = || Pieces::none(&memory);
    assert_eq!(now(plain.submit(BlockOp::Flush, 0, none())), Ok(()));
    assert_eq!(now(plain.submit(BlockOp::Discard { sectors: 1 }, 0, none())), Err(Errno::EOPNOTSUPP));
    assert!(device.asked.lock().unwrap().is_empty());
    let (_, read_only) = disk(FEATURES, OK);
    let mut pages = none();
    pages.push(piece(frame, 0, 512));
    assert_eq!(now(read_only.submit(BlockOp::Write, 0, pages)), Err(Errno::EPERM));
    for (status, errno) in [(1, Errno::EIO), (2, Errno::EOPNOTSUPP), (9, Errno::EIO)] {
        let (_, broken) = disk(0, status);
        let mut pages = none();
        pages.push(piece(frame, 0, 512));
        assert_eq!(now(broken.submit(BlockOp::Read, 0, pages)), Err(errno));
    }
}

#[test]
fn a_disk_that_gets_another_size_says_so() {
    let (device, disk) = disk(FEATURES - READ_ONLY, OK);
    let (memory, frame) = fake_memory();
    let read = |sector: u64| {
        let mut pieces = Pieces::none(&memory);
        pieces.push(piece(frame, 0, 512));
        now(disk.submit(BlockOp::Read, sector, pieces))
    };
    assert_eq!(read(8), Err(Errno::EIO));
    let mut resized = disk.resized(8).unwrap();
    let mut poll = || resized.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(poll().is_pending());
    // Something else has changed.
    device.changes.wake_all();
    assert!(poll().is_pending());
    device.bytes.lock().unwrap().resize(20 * 512, 3);
    device.sectors.store(20, SeqCst);
    device.changes.wake_all();
    assert_eq!(poll(), Poll::Ready(20));
    assert_eq!((disk.limits().sectors, disk.limits().block), (20, 512));
    assert_eq!((read(19), read(20)), (Ok(()), Err(Errno::EIO)));
}
