//! ext4 as programs write it: files, names and their lasting, seen through paths; e2fsck says whether what is on the disk then is whole.
#![allow(clippy::disallowed_methods)]

mod common;

use common::{block_on, disk::Bytes, Kernel, Process, Random};
use fs::{block::Disks, ext4::Ext4Mounter, inode::Mounter, FileSystem, OpenFlags, ReadAhead, SetAttributes};
use machine::{
    block::{BlockDevice, BlockLimits, BlockOp, Pieces, SECTOR},
    errno::Result,
    BoxFuture, Errno, KernelId,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs as host,
    ops::RangeInclusive,
    os::unix::fs::FileExt,
    process::Command,
    sync::{atomic::Ordering::SeqCst, Arc, Mutex},
};

use tempfile::NamedTempFile;

/// A mounted file system, and the disk that it is on.
struct Mounted {
    kernel: Kernel,
    disk: Arc<Recorder>,
    tree: Arc<dyn FileSystem>,
    process: Process,
}

/// A file for programs that look at a disk. In memory, where there is such a place: e2fsck syncs what it has written.
fn scratch() -> NamedTempFile {
    NamedTempFile::new_in("/dev/shm").or_else(|_| NamedTempFile::new()).unwrap()
}

fn scratch_with(bytes: &[u8]) -> NamedTempFile {
    let file = scratch();
    file.as_file().set_len(bytes.len() as u64).unwrap();
    // Most of a disk is zero.
    for (index, block) in bytes.chunks(BLOCK).enumerate().filter(|(_, block)| **block != ZEROS[..block.len()]) {
        file.as_file().write_all_at(block, (index * BLOCK) as u64).unwrap();
    }
    file
}

const BLOCK: usize = 4096;
static ZEROS: [u8; BLOCK] = [0; BLOCK];

fn image(kib: u32, options: &[&str]) -> Vec<u8> {
    let file = scratch();
    let mut command = Command::new("/usr/sbin/mkfs.ext4");
    command.args(["-q", "-F"]).args(options).arg(file.path()).arg(format!("{kib}k"));
    assert!(command.status().unwrap().success());
    host::read(file.path()).unwrap()
}

fn mount(bytes: Vec<u8>) -> Mounted {
    mount_disk(Arc::new(Recorder::new(bytes)))
}

fn mount_disk(disk: Arc<Recorder>) -> Mounted {
    let kernel = Kernel::new(20_000);
    kernel.tasks.1.store(true, SeqCst);
    let disks = Arc::new(Disks::default());
    block_on(disks.add(&kernel.services, disk.clone()));
    let mounter = Ext4Mounter::new(&kernel.services, &disks);
    let tree = block_on(mounter.mount(b"/dev/vda", b"", false)).unwrap();
    let process = Process::new(&kernel, tree.clone());
    Mounted { kernel, disk, tree, process }
}

impl Mounted {
    fn unmount(self) -> Vec<u8> {
        block_on(self.tree.close()).unwrap();
        let bytes = self.disk.bytes.lock().unwrap().clone();
        check(&bytes);
        bytes
    }
}

fn check(bytes: &[u8]) {
    check_file(&scratch_with(bytes));
}

fn check_file(file: &NamedTempFile) {
    let output = Command::new("/usr/sbin/e2fsck").arg("-fn").arg(file.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn what_is_written_is_there_after_unmounting() {
    for options in [&["-b", "4096"][..], &["-b", "1024"]] {
        let mounted = mount(image(32 << 10, options));
        let process = &mounted.process;
        let text: Vec<u8> = (0..100_000u32).flat_map(u32::to_le_bytes).collect();
        process.mkdir("/etc").unwrap();
        process.write("/etc/words", &text).unwrap();
        process.symlink("words", "/etc/link").unwrap();
        process.link("/etc/words", "/etc/again").unwrap();
        process.rename("/etc/again", "/other").unwrap();
        process.write("/gone", b"x").unwrap();
        process.unlink("/gone").unwrap();
        assert_eq!(process.stat("/other", true).unwrap().nlink, 2);
        let again = mount(mounted.unmount());
        let process = &again.process;
        assert_eq!(process.read("/etc/link").unwrap(), text);
        assert_eq!(process.read("/other").unwrap(), text);
        assert_eq!(process.stat("/gone", true).map(drop), Err(Errno::ENOENT));
        let mut names = process.list("/").unwrap();
        names.sort();
        assert_eq!(names, ["etc", "lost+found", "other"]);
        again.unmount();
    }
}

/// A disk that remembers each write and flush, in order.
struct Recorder {
    limits: BlockLimits,
    bytes: Mutex<Vec<u8>>,
    log: Mutex<Vec<Logged>>,
}

#[derive(Clone)]
enum Logged {
    Write(usize, Vec<u8>),
    Flush,
}

impl Recorder {
    fn new(bytes: Vec<u8>) -> Recorder {
        let sectors = bytes.len() as u64 / SECTOR;
        Recorder {
            limits: BlockLimits { most_bytes: 1 << 18, sectors, ..Bytes::new(Vec::new()).limits },
            bytes: Mutex::new(bytes),
            log: Mutex::default(),
        }
    }

    fn len(&self) -> usize {
        self.log.lock().unwrap().len()
    }

    /// What the disk may have if the power fails after so many entries of the log: all that was flushed, and of the rest what chance wants, in any order.
    /// A block of the file system is written as a whole or not at all, as disks do.
    fn cut(&self, start: &[u8], at: usize, block: usize, random: &mut Random) -> Vec<u8> {
        let log = self.log.lock().unwrap();
        let flushed = log[..at].iter().rposition(|entry| matches!(entry, Logged::Flush)).unwrap_or(0);
        let mut bytes = start.to_vec();
        let mut put = |entry: &Logged, blocks: &mut dyn FnMut() -> bool| {
            if let Logged::Write(from, data) = entry {
                for (index, part) in data.chunks(block).enumerate().filter(|_| blocks()) {
                    bytes[from + index * block..][..part.len()].copy_from_slice(part);
                }
            }
        };
        log[..flushed].iter().for_each(|entry| put(entry, &mut || true));
        let mut rest: Vec<&Logged> = log[flushed..at].iter().filter(|_| random.below(2) == 0).collect();
        for index in 1..rest.len() {
            rest.swap(index, random.below(index as u64 + 1) as usize);
        }
        // A write may be torn between two blocks.
        let whole = random.below(2) == 0;
        rest.iter().for_each(|entry| put(entry, &mut || whole || random.below(2) == 0));
        bytes
    }
}

impl BlockDevice for Recorder {
    fn limits(&self) -> Arc<BlockLimits> {
        Arc::new(self.limits.clone())
    }

    fn submit(&self, op: BlockOp, sector: u64, pages: Pieces) -> BoxFuture<'_, Result<()>> {
        let (mut bytes, from) = (self.bytes.lock().unwrap(), (sector * SECTOR) as usize);
        match op {
            BlockOp::Read => pages.copy_from(&bytes[from..from + pages.len()]),
            BlockOp::Write => {
                let mut written = Vec::new();
                pages.copy_to(&mut written);
                bytes[from..from + written.len()].copy_from_slice(&written);
                self.log.lock().unwrap().push(Logged::Write(from, written));
            }
            _ => self.log.lock().unwrap().push(Logged::Flush),
        }
        Box::pin(std::future::ready(Ok(())))
    }
}

/// A file that was synced: from which entry of the log on it must be there with these bytes, and until which.
struct Confirmed {
    from: usize,
    until: usize,
    path: String,
    bytes: Vec<u8>,
}

#[test]
fn what_fsync_has_confirmed_survives_a_power_cut_anywhere() {
    cut_power(1..=4, 40);
}

/// 20,000 cuts in ten parts, a minute each: `cargo test --release -p fs --test ext4_write -- --ignored power_cuts`. `cob test --long` runs them one by one.
macro_rules! power_cuts {
    ($($name:ident: $first:literal),*) => {$(
        #[test]
        #[ignore = "takes a minute; the test above does the same with fewer seeds"]
        fn $name() {
            cut_power($first..=$first + 19, 100);
        }
    )*};
}

power_cuts! {
    power_cuts_0: 5, power_cuts_1: 25, power_cuts_2: 45, power_cuts_3: 65, power_cuts_4: 85,
    power_cuts_5: 105, power_cuts_6: 125, power_cuts_7: 145, power_cuts_8: 165, power_cuts_9: 185
}

/// Runs random programs, and looks at so many disks of each as they would be after a power cut.
fn cut_power(seeds: RangeInclusive<u64>, cuts: usize) {
    let mut least = usize::MAX;
    for seed in seeds {
        let mut random = Random::new(seed);
        let block = if seed % 2 == 0 { "1024" } else { "4096" };
        let start = image(10 << 10, &["-b", block, "-J", "size=4"]);
        let disk = Arc::new(Recorder::new(start.clone()));
        let mounted = mount_disk(disk.clone());
        let process = &mounted.process;
        let mut files: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        let mut confirmed: Vec<Confirmed> = Vec::new();
        // fdatasync promises nothing of a new name.
        let mut renamed_to = BTreeSet::new();
        process.mkdir("/d").unwrap();
        let end = |confirmed: &mut Vec<Confirmed>, path: &str, now: usize| {
            confirmed.iter_mut().filter(|one| one.path == path).for_each(|one| one.until = one.until.min(now));
        };
        for step in 0..250 {
            let path = format!("{}{}", ["/", "/d/"][random.below(2) as usize], random.below(12));
            let now = disk.len();
            // What is dirty becomes old after 30 s, what has changed after 5.
            mounted.kernel.clock.advance(random.below(6) * 1_000_000_000);
            mounted.kernel.tasks.run_now();
            match random.below(8) {
                0..3 => {
                    end(&mut confirmed, &path, now);
                    let bytes: Vec<u8> = (0..random.below(60_000)).map(|at| (at ^ step) as u8).collect();
                    process.write(&path, &bytes).unwrap();
                    files.insert(path, bytes);
                }
                3 => {
                    end(&mut confirmed, &path, now);
                    let file = process.open(&path, OpenFlags::WRONLY | OpenFlags::CREAT | OpenFlags::APPEND).unwrap();
                    let more = vec![step as u8; random.below(9000) as usize];
                    assert_eq!(block_on(file.write(&more)).unwrap(), more.len());
                    files.entry(path).or_default().extend(more);
                }
                4 => {
                    end(&mut confirmed, &path, now);
                    assert_eq!(process.unlink(&path).is_ok(), files.remove(&path).is_some());
                }
                5 => {
                    let to = format!("/{}", random.below(12));
                    end(&mut confirmed, &path, now);
                    end(&mut confirmed, &to, now);
                    let renamed = process.rename(&path, &to).is_ok();
                    assert_eq!(renamed, files.contains_key(&path));
                    renamed_to.insert(to.clone());
                    if renamed && path != to {
                        let bytes = files.remove(&path).unwrap();
                        files.insert(to, bytes);
                    }
                }
                6 if files.contains_key(&path) => {
                    end(&mut confirmed, &path, now);
                    let size = random.below(40_000);
                    process.truncate(&path, size).unwrap();
                    files.get_mut(&path).unwrap().resize(size as usize, 0);
                }
                _ if files.contains_key(&path) => {
                    let data_only = !renamed_to.contains(&path) && random.below(2) == 0;
                    block_on(process.open(&path, OpenFlags::empty()).unwrap().sync(data_only)).unwrap();
                    renamed_to.remove(&path);
                    end(&mut confirmed, &path, now);
                    let bytes = files[&path].clone();
                    confirmed.push(Confirmed { from: disk.len(), until: usize::MAX, path, bytes });
                }
                _ => {}
            }
        }
        least = least.min(confirmed.len());
        for (path, bytes) in &files {
            assert!(process.read(path).unwrap() == *bytes, "{path}");
        }
        for cut in 0..cuts {
            let at = random.below(disk.len() as u64 + 1) as usize;
            let bytes = disk.cut(&start, at, block.parse().unwrap(), &mut random);
            preen(&bytes);
            let again = mount(bytes);
            for one in confirmed.iter().filter(|one| (one.from..=one.until).contains(&at)) {
                let read = again.process.read(&one.path);
                assert!(
                    read.as_ref() == Ok(&one.bytes),
                    "seed {seed}, cut {cut} at {at}: {} {:?}",
                    one.path,
                    read.map(|read| read.len())
                );
            }
            again.unmount();
        }
    }
    assert!(least > 3, "a program that confirmed next to nothing");
}

/// e2fsck -p is content with what it finds, or puts it right by itself.
fn preen(bytes: &[u8]) {
    let file = scratch_with(bytes);
    let output = Command::new("/usr/sbin/e2fsck").arg("-fp").arg(file.path()).output().unwrap();
    match output.status.code() {
        // It has looked at everything, and found nothing.
        Some(0) => {}
        Some(1) => check_file(&file),
        code => panic!("{code:?} {}", String::from_utf8_lossy(&output.stdout)),
    }
}

#[test]
fn fsync_commits_what_the_flusher_has_written_before() {
    let disk = Arc::new(Recorder::new(image(10 << 10, &[])));
    let mounted = mount_disk(disk.clone());
    mounted.process.write("/file", &[7; 9000]).unwrap();
    // The file is committed without its bytes; then these are old enough, but their transaction is not.
    for seconds in [6, 26] {
        mounted.kernel.clock.advance(seconds * 1_000_000_000);
        mounted.kernel.tasks.run_now();
    }
    block_on(mounted.process.open("/file", OpenFlags::empty()).unwrap().sync(false)).unwrap();
    let after = mount(disk.bytes.lock().unwrap().clone());
    assert!(after.process.read("/file").unwrap() == [7; 9000]);
}

#[test]
fn a_file_that_has_lost_its_name_is_a_file_until_it_is_closed() {
    let mounted = mount(image(8 << 10, &["-b", "1024"]));
    let process = &mounted.process;
    let free = || block_on(mounted.tree.root().info()).unwrap().blocks_free;
    let before = free();
    let file = process.open("/file", OpenFlags::RDWR | OpenFlags::CREAT).unwrap();
    process.unlink("/file").unwrap();
    assert_eq!(block_on(file.write(&[1; 9000])).unwrap(), 9000);
    block_on(file.sync(false)).unwrap();
    let shorter = SetAttributes { size: Some(100), ..SetAttributes::default() };
    block_on(file.set_attributes(&process.caller, shorter)).unwrap();
    // Another one does not get its inode, and what it writes has room.
    process.write("/other", &[2; 5000]).unwrap();
    assert_eq!(block_on(file.write_at(&[3; 4096], 0)).unwrap(), 4096);
    block_on(file.sync(false)).unwrap();
    assert!(process.read("/other").unwrap() == [2; 5000]);
    drop(file);
    process.unlink("/other").unwrap();
    block_on(mounted.tree.sync()).unwrap();
    assert_eq!(free(), before, "nothing stays set aside");
    mounted.unmount();
}

/// Whoever writes back or syncs has all caches in hand for a while, also that of a file that goes meanwhile.
#[test]
fn a_file_that_gets_the_inode_of_another_has_nothing_of_it() {
    let mounted = mount(image(8 << 10, &[]));
    let process = &mounted.process;
    process.write("/old", &[1; 9000]).unwrap();
    let number = process.stat("/old", false).unwrap().ino;
    let file = process.open("/old", OpenFlags::RDWR).unwrap();
    let object = block_on(file.object()).unwrap();
    let held = mounted.kernel.services.object(object.id()).expect("it is in use");
    // Another kernel has a copy of its first page.
    drop(block_on(object.lend(0, KernelId(1), false, ReadAhead::Normal)).unwrap());
    drop(object);
    process.unlink("/old").unwrap();
    drop(file);
    mounted.kernel.tasks.run_now();
    process.write("/new", &[2; 5000]).unwrap();
    assert_eq!(process.stat("/new", false).unwrap().ino, number);
    assert!(process.read("/new").unwrap() == [2; 5000]);
    block_on(mounted.tree.sync()).unwrap();
    drop(held);
    mounted.kernel.tasks.run_now();
    assert!(process.read("/new").unwrap() == [2; 5000]);
    let after = mount(mounted.unmount());
    assert!(after.process.read("/new").unwrap() == [2; 5000]);
}

#[test]
fn what_was_answered_has_its_room_whatever_is_allocated_meanwhile() {
    let mounted = mount(image(10 << 10, &[]));
    let process = &mounted.process;
    let bytes = vec![7; 2 << 20];
    process.write("/file", &bytes).unwrap();
    let greedy = process.open("/greedy", OpenFlags::RDWR | OpenFlags::CREAT).unwrap();
    assert_eq!(block_on(greedy.allocate(0, 0, 9 << 20)), Err(Errno::ENOSPC));
    assert!(mount(mounted.unmount()).process.read("/file").unwrap() == bytes);
}

#[test]
fn msync_makes_what_a_mapping_has_written_last() {
    let disk = Arc::new(Recorder::new(image(10 << 10, &[])));
    let mounted = mount_disk(disk.clone());
    mounted.process.write("/file", &[7; 5000]).unwrap();
    let file = mounted.process.open("/file", OpenFlags::RDWR).unwrap();
    let object = block_on(file.object()).unwrap();
    block_on(object.sync(0, 8192)).unwrap();
    let after = mount(disk.bytes.lock().unwrap().clone());
    assert!(after.process.read("/file").unwrap() == [7; 5000]);
}

/// FALLOC_FL_KEEP_SIZE, with FALLOC_FL_PUNCH_HOLE.
const PUNCH: u32 = 1 | 2;

/// Random reads and writes of a file through the cache and past it, among truncations, holes and blocks that were allocated ahead: all see the same bytes, and so does who mounts the disk again.
#[test]
fn direct_and_cached_transfers_agree_with_a_model() {
    for seed in 1..=24 {
        let mut random = Random::new(seed);
        let block = ["1024", "4096"][seed as usize % 2];
        let mounted = mount(image(16 << 10, &["-b", block]));
        let process = &mounted.process;
        let cached = process.open("/f", OpenFlags::RDWR | OpenFlags::CREAT).unwrap();
        let direct = process.open("/f", OpenFlags::RDWR | OpenFlags::DIRECT).unwrap();
        let appends = process.open("/f", OpenFlags::WRONLY | OpenFlags::DIRECT | OpenFlags::APPEND).unwrap();
        let mut model: Vec<u8> = Vec::new();
        let put = |model: &mut Vec<u8>, at: usize, bytes: &[u8]| {
            model.resize(model.len().max(at + bytes.len()), 0);
            model[at..at + bytes.len()].copy_from_slice(bytes);
        };
        for step in 0..150u64 {
            let what = format!("seed {seed} step {step}");
            let (at, count) = (random.below(200 << 10), 1 + random.below(40_000));
            let sectors = |count: u64| (count / 512).max(1) as usize * 512;
            let text = |count: usize| vec![1 + (step % 255) as u8; count];
            mounted.kernel.clock.advance(random.below(8) * 1_000_000_000);
            mounted.kernel.tasks.run_now();
            match random.below(12) {
                0..2 => {
                    let text = text(count as usize);
                    assert_eq!(block_on(cached.write_at(&text, at)), Ok(text.len()), "{what}");
                    put(&mut model, at as usize, &text);
                }
                // Whole sectors, whole blocks, or what begins at the end of the file.
                2..5 => {
                    let unit = [512, 4096][random.below(2) as usize];
                    let (at, text) = (at / unit * unit, text(sectors(count).next_multiple_of(unit as usize)));
                    assert_eq!(block_on(direct.write_at(&text, at)), Ok(text.len()), "{what}");
                    put(&mut model, at as usize, &text);
                }
                5 => {
                    let text = text(sectors(count));
                    let expected = if model.len().is_multiple_of(512) { Ok(text.len()) } else { Err(Errno::EINVAL) };
                    assert_eq!(block_on(appends.write(&text)), expected, "{what}");
                    if expected.is_ok() {
                        model.extend(text);
                    }
                }
                6..8 => {
                    let (file, at, count) = match random.below(2) {
                        0 => (&cached, at, count as usize),
                        _ => (&direct, at / 512 * 512, sectors(count)),
                    };
                    let mut found = vec![0xee; count];
                    let read = block_on(file.read_at(&mut found, at)).unwrap();
                    let (from, end) = (model.len().min(at as usize), model.len().min(at as usize + count));
                    assert!(found[..read] == model[from..end], "{what}: {read} bytes at {at}");
                }
                8 => {
                    let size = [at, at / 512 * 512, at / 4096 * 4096][random.below(3) as usize];
                    let set = SetAttributes { size: Some(size), ..Default::default() };
                    block_on(cached.set_attributes(&process.caller, set)).unwrap();
                    model.resize(size as usize, 0);
                }
                9 => {
                    let mode = random.below(2) as u32;
                    block_on(cached.allocate(mode, at, count)).unwrap();
                    if mode == 0 {
                        let end = model.len().max((at + count) as usize);
                        model.resize(end, 0);
                    }
                }
                10 => {
                    block_on(cached.allocate(PUNCH, at, count)).unwrap();
                    let (from, end) = (model.len().min(at as usize), model.len().min((at + count) as usize));
                    model[from..end].fill(0);
                }
                _ => block_on(cached.sync(false)).unwrap(),
            }
            let size = block_on(cached.attributes()).unwrap().size;
            assert_eq!(size as usize, model.len(), "{what}");
        }
        for (at, count) in [(100, 512), (512, 100), (1, 1)] {
            assert_eq!(block_on(direct.write_at(&vec![1; count], at)), Err(Errno::EINVAL));
        }
        drop((cached, direct, appends));
        let again = mount(mounted.unmount());
        assert!(again.process.read("/f").unwrap() == model, "seed {seed}: mounted again");
        again.unmount();
    }
}
