//! How often ext4 asks its disk, and for what: at most as often as Linux does (docs/bench/disk.md).
#![allow(clippy::disallowed_methods)]

mod common;

use common::{block_on, disk::Bytes, Kernel, Process};
use fs::{block::Disks, ext4::Ext4Mounter, inode::Mounter, File, FileAdvice, FileSystem, OpenFlags, ReadAhead};
use machine::block::{BlockLimits, BlockOp};
use std::{
    fs as host,
    future::Future,
    process::Command,
    sync::{atomic::Ordering::SeqCst, Arc},
    task::{Context, Poll, Waker},
};

struct Mounted {
    kernel: Kernel,
    disk: Arc<Bytes>,
    tree: Arc<dyn FileSystem>,
    process: Process,
}

fn image(kib: u32) -> Vec<u8> {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut command = Command::new("/usr/sbin/mkfs.ext4");
    command.args(["-q", "-F", "-b", "4096", "-E", "lazy_itable_init=0"]).arg(file.path()).arg(format!("{kib}k"));
    assert!(command.status().unwrap().success());
    host::read(file.path()).unwrap()
}

fn mount(bytes: Vec<u8>) -> Mounted {
    let mut disk = Bytes::new(bytes);
    disk.limits = BlockLimits { most_bytes: 1 << 18, ..disk.limits };
    mount_disk(disk)
}

fn mount_disk(disk: Bytes) -> Mounted {
    let kernel = Kernel::new(20_000);
    kernel.tasks.1.store(true, SeqCst);
    let disk = Arc::new(disk);
    let disks = Arc::new(Disks::default());
    block_on(disks.add(&kernel.services, disk.clone()));
    let mounter = Ext4Mounter::new(&kernel.services, &disks);
    let tree = block_on(mounter.mount(b"/dev/vda", b"", false)).unwrap();
    let process = Process::new(&kernel, tree.clone());
    Mounted { kernel, disk, tree, process }
}

impl Mounted {
    /// Mounts what is on the disk now, as after a power cut.
    fn after_a_power_cut(&self) -> Mounted {
        mount(self.disk.bytes.lock().unwrap().clone())
    }

    /// Since the last call: the bytes of each write, and flushes.
    fn taken(&self) -> (Vec<usize>, usize) {
        let asked = self.disk.taken();
        let writes = asked.iter().filter(|(op, ..)| matches!(op, BlockOp::Write)).map(|(.., bytes)| *bytes).collect();
        (writes, asked.iter().filter(|(op, ..)| matches!(op, BlockOp::Flush)).count())
    }

    /// Since the last call: the bytes of each read.
    fn reads(&self) -> Vec<usize> {
        self.disk.taken().iter().filter(|(op, ..)| matches!(op, BlockOp::Read)).map(|(.., bytes)| *bytes).collect()
    }

    fn synced_file(&self, path: &str, bytes: &[u8]) -> Arc<dyn File> {
        self.process.write(path, bytes).unwrap();
        block_on(self.tree.sync()).unwrap();
        self.kernel.clock.advance(1_000_000_000);
        self.disk.taken();
        self.process.open(path, OpenFlags::RDWR).unwrap()
    }
}

#[test]
fn ten_writes_into_three_pages_write_three_pages() {
    let mounted = mount(image(10 << 10));
    let file = mounted.synced_file("/file", &[1; 3 * 4096]);
    for at in 0..10 {
        assert_eq!(block_on(file.write_at(&[2; 1000], at * 1100)).unwrap(), 1000);
    }
    block_on(file.sync(true)).unwrap();
    assert_eq!(mounted.taken(), (vec![3 * 4096], 1));
    // The time is still to be written: a descriptor with the inode's block, and a commit block.
    block_on(file.sync(false)).unwrap();
    assert_eq!(mounted.taken(), (vec![2 * 4096, 4096], 2));
}

#[test]
fn parts_of_a_file_that_are_synced_at_the_same_time_are_written_at_the_same_time() {
    let mounted = mount(image(10 << 10));
    let file = mounted.synced_file("/file", &[1; 64 * 4096]);
    let object = block_on(file.object()).unwrap();
    for part in 0..8 {
        assert_eq!(block_on(file.write_at(&[2; 100], part * 8 * 4096)).unwrap(), 100);
    }
    // The first one finds nobody, and the others come meanwhile. If they were written one after the other, they would wait for ever.
    mounted.disk.together.store(8, SeqCst);
    let range = |part: u64| object.sync(part * 8 * 4096, (part * 8 + 1) * 4096);
    let mut all = std::pin::pin!(machine::join_all((0..8).map(range).collect()));
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..10_000 {
        if let Poll::Ready(answers) = all.as_mut().poll(&mut context) {
            assert_eq!(answers, [Ok(()); 8]);
            let (writes, _) = mounted.taken();
            assert!(writes.len() >= 8, "{writes:?}");
            return;
        }
        mounted.kernel.tasks.run_now();
    }
    panic!("writes of one file wait for each other");
}

#[test]
fn msync_of_pages_that_have_blocks_writes_them_and_commits_nothing() {
    let mounted = mount(image(10 << 10));
    let file = mounted.synced_file("/file", &[1; 3 * 4096]);
    let object = block_on(file.object()).unwrap();
    for value in [2, 3] {
        block_on(file.write_at(&[value; 100], 4096)).unwrap();
        block_on(object.sync(4096, 8192)).unwrap();
        assert_eq!(mounted.taken(), (vec![4096], 1));
        assert_eq!(mounted.after_a_power_cut().process.read("/file").unwrap()[4096..][..100], [value; 100]);
        mounted.kernel.clock.advance(1_000_000_000);
    }
}

#[test]
fn fdatasync_of_a_longer_file_commits_its_size() {
    let mounted = mount(image(10 << 10));
    let file = mounted.synced_file("/file", &[1; 100]);
    for size in [5000, 5001] {
        block_on(file.write_at(&[1; 1], size - 1)).unwrap();
        block_on(file.sync(true)).unwrap();
        assert_eq!(mounted.after_a_power_cut().process.read("/file").unwrap().len() as u64, size);
    }
    let shorter = fs::SetAttributes { size: Some(10), ..Default::default() };
    block_on(file.set_attributes(&mounted.process.caller, shorter)).unwrap();
    block_on(file.sync(true)).unwrap();
    assert_eq!(mounted.after_a_power_cut().process.read("/file").unwrap(), [1; 10]);
}

#[test]
fn who_reads_here_and_there_gets_what_he_wants_and_who_reads_on_gets_more() {
    let mounted = mount(image(20 << 10));
    mounted.process.write("/file", &vec![1; 8 << 20]).unwrap();
    block_on(mounted.tree.close()).unwrap();
    let mounted = mounted.after_a_power_cut();
    let file = mounted.process.open("/file", OpenFlags::empty()).unwrap();
    let read = |bytes: usize, page: u64| {
        let mut buffer = vec![0; bytes];
        assert_eq!(block_on(file.read_at(&mut buffer, page * 4096)).unwrap(), bytes);
        mounted.reads()
    };
    read(1, 1000);
    assert_eq!(read(4096, 1800), [4096]);
    assert_eq!(read(4096, 700), [4096]);
    assert_eq!(read(65536, 500), [65536]);
    assert_eq!(read(10, 300), [4096]);
    // What follows is the beginning of more.
    assert_eq!(read(4096, 301), [4 * 4096]);
    assert_eq!(read(4 * 4096, 305), [8 * 4096]);
    assert_eq!(read(65536, 0), [32 * 4096]);
    assert_eq!(read(65536, 32), [64 * 4096]);
}

fn advise(file: &Arc<dyn File>, advice: FileAdvice) {
    let caller = common::user(0);
    block_on(file.control(&caller, fs::Control::Advise(advice))).unwrap();
}

#[test]
fn advice_says_how_much_is_read_ahead() {
    let mounted = mount(image(20 << 10));
    mounted.process.write("/file", &vec![1; 8 << 20]).unwrap();
    block_on(mounted.tree.close()).unwrap();
    let mounted = mounted.after_a_power_cut();
    let open = || mounted.process.open("/file", OpenFlags::empty()).unwrap();
    let read = |file: &Arc<dyn File>, bytes: usize, page: u64| {
        let mut buffer = vec![0; bytes];
        assert_eq!(block_on(file.read_at(&mut buffer, page * 4096)).unwrap(), bytes);
        mounted.reads().iter().sum::<usize>() / 4096
    };
    let (file, other) = (open(), open());
    read(&file, 1, 1000);
    advise(&file, FileAdvice::Reads(ReadAhead::Random));
    assert_eq!([read(&file, 10, 0), read(&file, 10, 1), read(&file, 10, 2), read(&file, 65536, 3)], [1, 1, 1, 16]);
    assert_eq!(file.flags().shown() & OpenFlags::INTERNAL.bits(), 0, "F_GETFL does not show it");
    // Another description of the file has not said so.
    assert_eq!([read(&other, 4096, 100), read(&other, 4096, 101)], [1, 4]);
    advise(&file, FileAdvice::Reads(ReadAhead::Sequential));
    assert_eq!([200, 216, 248, 312, 440].map(|page| read(&file, 65536, page)), [16, 32, 64, 128, 128]);
    advise(&file, FileAdvice::Reads(ReadAhead::Normal));
    assert_eq!([800, 816, 848, 912].map(|page| read(&file, 65536, page)), [16, 32, 64, 64]);
    // Now, and no more than that.
    advise(&file, FileAdvice::WillNeed { first: 1200, end: 1230 });
    (0..50).for_each(|_| mounted.kernel.tasks.run_now());
    assert_eq!(mounted.reads(), [30 * 4096]);
    assert_eq!(read(&file, 30 * 4096, 1200), 0);
    // What a disk takes in a request, as Linux: the task that reads it is the kernel's.
    advise(&file, FileAdvice::WillNeed { first: 1300, end: u64::MAX });
    (0..500).for_each(|_| mounted.kernel.tasks.run_now());
    assert_eq!(mounted.reads().iter().sum::<usize>(), 320 * 4096);
}

#[test]
fn a_fault_reads_as_much_as_its_mapping_was_said_to_need() {
    let mounted = mount(image(20 << 10));
    mounted.process.write("/file", &vec![1; 8 << 20]).unwrap();
    block_on(mounted.tree.close()).unwrap();
    let mounted = mounted.after_a_power_cut();
    let file = mounted.process.open("/file", OpenFlags::empty()).unwrap();
    let object = block_on(file.object()).unwrap();
    drop(block_on(object.page(1500)).unwrap());
    mounted.reads();
    let fault = |page, how| {
        drop(block_on(object.page_advised(page, how)).unwrap());
        mounted.reads().iter().sum::<usize>() / 4096
    };
    assert_eq!(fault(1000, ReadAhead::Normal), 16);
    assert_eq!([700, 701, 702].map(|page| fault(page, ReadAhead::Random)), [1; 3]);
    assert_eq!([200, 263, 264].map(|page| fault(page, ReadAhead::Sequential)), [64, 0, 128]);
}

#[test]
fn what_is_not_needed_is_written_and_what_is_clean_goes() {
    let mounted = mount(image(20 << 10));
    let file = mounted.synced_file("/file", &[1; 10 * 4096 + 100]);
    let object = block_on(file.object()).unwrap();
    let resident = || (0..11).filter(|page| object.resident(*page).is_some()).collect::<Vec<u64>>();
    let mapped = block_on(object.page(4)).unwrap();
    block_on(file.write_at(&[2; 4096], 5 * 4096)).unwrap();
    // Of the first and last page of the range a part is still needed.
    advise(&file, FileAdvice::DontNeed { start: 2 * 4096 + 1, end: 8 * 4096 - 1 });
    (0..50).for_each(|_| mounted.kernel.tasks.run_now());
    assert_eq!(mounted.taken().0, [4096]);
    let after = resident();
    assert!(after == [0, 1, 2, 4, 5, 7, 8, 9, 10] || after == [0, 1, 2, 4, 7, 8, 9, 10], "{after:?}");
    drop(mapped);
    block_on(file.sync(false)).unwrap();
    // To the end of the file: its last page, too, though it is not whole.
    advise(&file, FileAdvice::DontNeed { start: 4 * 4096, end: u64::MAX });
    assert_eq!(resident(), [0, 1, 2]);
    let mut byte = [0];
    block_on(file.read_at(&mut byte, 5 * 4096)).unwrap();
    assert_eq!(byte, [2]);
}

#[test]
fn sync_writes_small_files_together_and_flushes_twice() {
    let mounted = mount(image(20 << 10));
    // The bitmaps are in memory then.
    mounted.synced_file("/first", &[1; 3000]);
    for file in 0..60 {
        mounted.process.write(&format!("/{file}"), &[1; 3000]).unwrap();
    }
    block_on(mounted.tree.sync()).unwrap();
    let (writes, flushes) = mounted.taken();
    // The files; the journal; its commit block.
    assert!(writes.len() <= 4 && writes.contains(&(60 * 4096)), "{writes:?}");
    assert_eq!(flushes, 2);
    block_on(mounted.tree.sync()).unwrap();
    assert_eq!(mounted.taken(), (vec![], 0));
}

#[test]
fn files_that_are_synced_at_the_same_time_are_one_commit() {
    let mounted = mount(image(10 << 10));
    let files: Vec<_> = (0..8).map(|file| mounted.synced_file(&format!("/{file}"), &[1; 4096])).collect();
    let dirty = || files.iter().for_each(|file| assert_eq!(block_on(file.write_at(&[2; 4096], 0)).unwrap(), 4096));
    let mut context = Context::from_waker(Waker::noop());
    // How long a commit takes is known then: the first write of the journal takes a while.
    dirty();
    block_on(files[0].sync(true)).unwrap();
    mounted.disk.together.store(2, SeqCst);
    let mut first = files[0].sync(false);
    while first.as_mut().poll(&mut context).is_pending() {
        mounted.kernel.tasks.run_now();
        mounted.kernel.clock.advance(1000);
    }
    drop(first);
    mounted.disk.together.store(0, SeqCst);
    block_on(mounted.tree.sync()).unwrap();
    mounted.taken();
    dirty();
    // No write is answered before all have come; the two of that commit are counted.
    mounted.disk.together.store(2 + 8, SeqCst);
    let mut all = std::pin::pin!(machine::join_all(files.iter().map(|file| file.sync(false)).collect()));
    for _ in 0..10_000 {
        if let Poll::Ready(answers) = all.as_mut().poll(&mut context) {
            assert_eq!(answers, [Ok(()); 8]);
            let (writes, flushes) = mounted.taken();
            assert_eq!((writes.len(), flushes), (8 + 2, 2), "{writes:?}");
            return;
        }
        mounted.kernel.tasks.run_now();
    }
    panic!("who syncs a file waits for ever");
}

#[test]
fn a_write_of_bytes_that_have_their_place_and_of_such_that_get_one_is_one_request() {
    let mounted = mount(image(10 << 10));
    // As a log of frames of 24 + 4096 bytes grows (sqlite's).
    let file = mounted.synced_file("/log", &[1; 5000]);
    // At first the journal is in small pieces.
    for frame in 0..12 {
        let at = 5000 + frame * 4120;
        assert_eq!(block_on(file.write_at(&[2; 4120], at)).unwrap(), 4120);
        block_on(file.sync(true)).unwrap();
        let (writes, flushes) = mounted.taken();
        assert_eq!((writes[0], flushes), (2 * 4096, 2), "{writes:?}");
        // The file; the journal, and its commit block.
        assert!(frame < 8 || writes.len() == 3, "{writes:?}");
    }
    assert_eq!(mounted.process.read("/log").unwrap(), [vec![1; 5000], vec![2; 12 * 4120]].concat());
}

#[test]
fn long_files_and_transactions_are_written_in_long_requests() {
    let mut disk = Bytes::new(image(64 << 10));
    disk.limits = BlockLimits { most_bytes: 1280 << 10, most_segments: 250, ..disk.limits };
    let mounted = mount_disk(disk);
    mounted.synced_file("/file", &vec![1; 16 << 20]);
    block_on(mounted.process.open("/file", OpenFlags::RDWR).unwrap().write_at(&vec![2; 16 << 20], 0)).unwrap();
    block_on(mounted.tree.sync()).unwrap();
    let (writes, _) = mounted.taken();
    let long = writes.iter().filter(|bytes| **bytes == 1280 << 10).count();
    // What is left over is where the file is in two pieces, and its end; the journal, and its commit block.
    assert!(long >= 11 && writes.len() <= 11 + 6, "{writes:?}");
}
