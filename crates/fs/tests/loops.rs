//! Loop devices over files of a tmpfs: what programs set and see of them, file systems on them, and when they give up their files. Answers that Linux gives are those of Linux 6.18.
#![allow(clippy::disallowed_methods)]

mod common;

use common::{block_on, user, Kernel, Process};
use fs::{
    block::{
        loops::{request, INFO_BYTES},
        Disks, Volume,
    },
    devfs::{devtmpfs, Devices},
    ext4::Ext4Mounter,
    tmpfs::Tmpfs,
    Control, File, LocalPaths, Lost, Mappers, MappingUse, ObjectId, OpenFlags, PathOp,
};
use linux_raw_sys::ioctl as raw;
use machine::{errno::Result, BoxFuture, Errno, KernelSet};
use std::{
    process::Command,
    sync::{
        atomic::{AtomicU64, Ordering::SeqCst},
        Arc,
    },
    task::{Context, Poll, Waker},
};

const RDWR: OpenFlags = OpenFlags::RDWR;
const AUTOCLEAR: u32 = 4;
const PARTSCAN: u32 = 8;

/// A root in memory with /dev, and loop devices.
struct World {
    kernel: Kernel,
    process: Process,
    disks: Arc<Disks>,
}

impl World {
    fn new() -> World {
        let kernel = Kernel::new(40_000);
        kernel.tasks.1.store(true, SeqCst);
        let (disks, devices) = (Arc::new(Disks::default()), Arc::new(Devices::default()));
        disks.add_ram(&kernel.services, 1 << 20);
        fs::block::register(&kernel.services, &disks, &devices);
        let paths = LocalPaths::new(kernel.services.clone(), Tmpfs::new(&kernel.services, 0o755), devices.clone());
        paths.register_kind("ext4", Arc::new(Ext4Mounter::new(&kernel.services, &disks)));
        let process = Process::with(&kernel, paths.clone());
        for directory in ["/dev", "/mnt", "/mnt2"] {
            process.mkdir(directory).unwrap();
        }
        let tree = block_on(devtmpfs(&kernel.services, &devices)).unwrap();
        block_on(paths.attach(&user(0), b"/dev", tree, b"devtmpfs", 0)).unwrap();
        World { kernel, process, disks }
    }

    fn image(&self, path: &str, bytes: &[u8]) {
        self.process.write(path, bytes).unwrap();
    }

    fn open(&self, path: &str) -> Arc<dyn File> {
        self.process.open(path, RDWR).unwrap()
    }

    /// What goes on in tasks is done meanwhile.
    fn run<T>(&self, mut work: BoxFuture<'_, T>) -> T {
        let mut context = Context::from_waker(Waker::noop());
        loop {
            match work.as_mut().poll(&mut context) {
                Poll::Ready(done) => return done,
                Poll::Pending => self.kernel.tasks.run_now(),
            }
        }
    }

    fn volume(&self, name: &str) -> Arc<Volume> {
        self.disks.find(name.as_bytes()).unwrap()
    }

    /// What losetup does.
    fn attach(&self, device: &str, image: &str, configuration: Configuration) -> Result<()> {
        let device = self.open(device);
        let answer = attach(&device, self.open(image), configuration);
        close(device);
        answer
    }

    fn detach(&self, device: &str) {
        let device = self.open(device);
        assert_eq!(ask(&device, request::CLR_FD, 0), Ok(0));
        close(device);
    }

    fn mount(&self, source: &str, path: &str) -> Result<()> {
        let (source, path) = (source.into(), path.into());
        self.process.run(PathOp::Mount { source, path, kind: b"ext4".to_vec(), flags: 0, data: Vec::new() }).map(drop)
    }

    fn unmount(&self, path: &str) -> Result<()> {
        let answer = self.process.run(PathOp::Unmount { path: path.into(), flags: 0 }).map(drop);
        self.kernel.tasks.run_now();
        answer
    }

    fn shown(&self, device: &str, name: &str) -> Option<String> {
        let files = self.volume(device).driver()?.shown()?;
        let (_, text) = files.into_iter().find(|(known, _)| *known == name)?;
        Some(String::from_utf8(text).unwrap())
    }
}

#[derive(Clone, Copy, Default)]
struct Configuration {
    block: u32,
    offset: u64,
    most: u64,
    flags: u32,
}

impl Configuration {
    fn info(&self) -> Vec<u8> {
        let mut info = vec![0; INFO_BYTES];
        info[24..32].copy_from_slice(&self.offset.to_ne_bytes());
        info[32..40].copy_from_slice(&self.most.to_ne_bytes());
        info[52..56].copy_from_slice(&self.flags.to_ne_bytes());
        info[56..61].copy_from_slice(b"hello");
        info
    }

    fn bytes(&self) -> Vec<u8> {
        [&9u32.to_ne_bytes()[..], &self.block.to_ne_bytes(), &self.info(), &[0; 64]].concat()
    }
}

fn attach(device: &Arc<dyn File>, file: Arc<dyn File>, configuration: Configuration) -> Result<()> {
    let control = Control::AttachLoop { file, configuration: configuration.bytes() };
    block_on(device.control(&user(0), control)).map(drop)
}

fn close(file: Arc<dyn File>) {
    block_on(fs::file::close(file));
}

fn ask(file: &Arc<dyn File>, request: u32, argument: u64) -> Result<i64> {
    block_on(file.ioctl(&user(0), request, &mut argument.to_ne_bytes().to_vec()))
}

fn set_status(file: &Arc<dyn File>, configuration: Configuration) -> Result<i64> {
    block_on(file.ioctl(&user(0), request::SET_STATUS64, &mut configuration.info()))
}

fn status(file: &Arc<dyn File>) -> Result<Vec<u8>> {
    let mut data = vec![0; INFO_BYTES];
    block_on(file.ioctl(&user(0), request::GET_STATUS64, &mut data)).map(|_| data)
}

fn size(file: &Arc<dyn File>) -> u64 {
    let mut data = Vec::new();
    block_on(file.ioctl(&user(0), raw::BLKGETSIZE64, &mut data)).unwrap();
    u64::from_ne_bytes(*data.first_chunk().unwrap())
}

fn read(file: &Arc<dyn File>, offset: u64, bytes: usize) -> Result<Vec<u8>> {
    let mut to = vec![0; bytes];
    let read = block_on(file.read_at(&mut to, offset))?;
    to.truncate(read);
    Ok(to)
}

fn numbered(sectors: usize) -> Vec<u8> {
    (0..sectors).flat_map(|sector| [sector as u8; 512]).collect()
}

/// An empty ext4, by the host.
fn ext4(kib: u32) -> Vec<u8> {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut command = Command::new("/usr/sbin/mkfs.ext4");
    command.args(["-q", "-F", "-b", "4096"]).arg(file.path()).arg(format!("{kib}k"));
    assert!(command.status().unwrap().success());
    std::fs::read(file.path()).unwrap()
}

fn check(bytes: &[u8]) {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    let output = Command::new("/usr/sbin/e2fsck").arg("-fn").arg(file.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn the_bytes_of_the_device_are_those_of_the_file() {
    let world = World::new();
    world.image("/image", &numbered(41));
    world.attach("/dev/loop0", "/image", Configuration { offset: 512, most: 20 * 512, ..Default::default() }).unwrap();
    let device = world.open("/dev/loop0");
    assert_eq!(size(&device), 20 * 512);
    assert_eq!(read(&device, 511, 2), Ok(vec![1, 2]));
    assert_eq!(read(&device, 19 * 512, 600), Ok(vec![20; 512]));
    block_on(device.write_at(b"hello", 5000)).unwrap();
    block_on(device.sync(false)).unwrap();
    assert_eq!(world.process.read("/image").unwrap()[512 + 5000..][..5], *b"hello");
    let info = status(&device).unwrap();
    assert_eq!((info[24], info[25], &info[56..62]), (0, 2, &b"hello\0"[..]));
    // Zeroes and holes reach the file at once.
    let range = |start: u64, bytes: u64| [start.to_ne_bytes(), bytes.to_ne_bytes()].concat();
    for request in [raw::BLKZEROOUT, raw::BLKDISCARD] {
        world.run(device.ioctl(&user(0), request, &mut range(4096, 4096))).unwrap();
        assert_eq!(world.process.read("/image").unwrap()[512 + 4096..][..4096], [0; 4096]);
    }
    // All of the file, which has grown, but for the half sector at its end.
    set_status(&device, Configuration::default()).unwrap();
    assert_eq!(read(&device, 0, 1), Ok(vec![0]));
    assert_eq!(read(&device, 512, 1), Ok(vec![1]));
    world.process.truncate("/image", 41 * 512 + 700).unwrap();
    assert_eq!(size(&device), 41 * 512);
    assert_eq!(ask(&device, request::SET_CAPACITY, 0), Ok(0));
    assert_eq!(size(&device), 42 * 512);
    // What the file loses is zero.
    world.process.truncate("/image", 10 * 512).unwrap();
    assert_eq!(read(&device, 40 * 512, 1).unwrap().len(), 1);
    set_status(&device, Configuration { offset: 9 * 512, ..Default::default() }).unwrap();
    assert_eq!(size(&device), 512);
    assert_eq!(read(&device, 0, 1), Ok(vec![0]));
}

#[test]
fn errors_are_those_of_linux() {
    let world = World::new();
    let device = world.open("/dev/loop3");
    assert_eq!(read(&device, 0, 10), Ok(vec![]));
    assert_eq!(block_on(device.write_at(b"x", 0)), Err(Errno::ENOSPC));
    for request in [request::CLR_FD, request::SET_CAPACITY, request::SET_DIRECT_IO, request::SET_BLOCK_SIZE] {
        assert_eq!(ask(&device, request, 512), Err(Errno::ENXIO), "{request:x}");
    }
    assert_eq!(status(&device), Err(Errno::ENXIO));
    assert_eq!(set_status(&device, Configuration::default()), Err(Errno::ENXIO));
    assert_eq!(ask(&device, raw::TCGETS, 0), Err(Errno::EINVAL));
    let plain = Configuration::default();
    assert_eq!(attach(&device, device.clone(), plain), Err(Errno::EBADF));
    assert_eq!(attach(&device, world.open("/dev/loop4"), plain), Err(Errno::EINVAL));
    assert_eq!(attach(&device, world.open("/dev/loop-control"), plain), Err(Errno::EINVAL));
    world.image("/image", &numbered(64));
    let image = world.open("/image");
    for (configuration, error) in [
        (Configuration { block: 100, ..plain }, Errno::EINVAL),
        (Configuration { flags: 2, ..plain }, Errno::EINVAL),
        (Configuration { offset: 1 << 63, ..plain }, Errno::EOVERFLOW),
    ] {
        assert_eq!(attach(&device, image.clone(), configuration), Err(error));
    }
    assert_eq!(attach(&device, image.clone(), Configuration { block: 4096, ..plain }), Ok(()));
    assert_eq!(attach(&device, image, plain), Err(Errno::EBUSY));
    assert_eq!(ask(&device, request::SET_BLOCK_SIZE, 1000), Err(Errno::EINVAL));
    assert_eq!(ask(&device, request::SET_BLOCK_SIZE, 1024), Ok(0));
    assert_eq!(ask(&device, raw::BLKRRPART, 0), Err(Errno::EINVAL));
    let reader = world.process.open("/dev/loop3", OpenFlags::empty()).unwrap();
    let by = |uid| block_on(reader.ioctl(&user(uid), request::SET_CAPACITY, &mut vec![0; 8]));
    assert_eq!((by(1000), by(0)), (Err(Errno::EPERM), Ok(0)));
    // A file that is open to be read.
    let device = world.open("/dev/loop5");
    attach(&device, world.process.open("/image", OpenFlags::empty()).unwrap(), plain).unwrap();
    assert_eq!(block_on(device.write_at(&[1; 512], 0)), Err(Errno::EPERM));
    assert_eq!(status(&device).unwrap()[52], 1);
    assert!(world.process.open("/dev/loop5", RDWR).is_ok());
}

#[test]
fn the_file_is_given_up_when_nobody_uses_the_device() {
    let world = World::new();
    world.image("/image", &numbered(64));
    world.attach("/dev/loop0", "/image", Configuration::default()).unwrap();
    assert_eq!(world.shown("loop0", "backing_file").unwrap(), "/image\n");
    let (one, other) = (world.open("/dev/loop0"), world.open("/dev/loop0"));
    block_on(one.write_at(b"late", 0)).unwrap();
    assert_eq!(ask(&one, request::CLR_FD, 0), Ok(0));
    assert_eq!(world.shown("loop0", "autoclear").unwrap(), "1\n");
    close(one);
    assert_eq!(size(&other), 64 * 512);
    block_on(other.write_at(b"later", 512)).unwrap();
    close(other);
    assert_eq!(world.shown("loop0", "autoclear"), None);
    assert_eq!(world.volume("loop0").sectors(), 0);
    let bytes = world.process.read("/image").unwrap();
    assert_eq!((&bytes[..4], &bytes[512..517]), (&b"late"[..], &b"later"[..]));
    // With autoclear from the beginning, also if nobody waits for the end.
    world.attach("/dev/loop0", "/image", Configuration { flags: AUTOCLEAR, ..Default::default() }).unwrap();
    assert_eq!(world.volume("loop0").sectors(), 0);
    let device = world.open("/dev/loop0");
    attach(&device, world.open("/image"), Configuration { flags: AUTOCLEAR, ..Default::default() }).unwrap();
    block_on(device.write_at(b"last", 0)).unwrap();
    drop(device);
    assert_eq!(world.volume("loop0").sectors(), 0);
    assert_eq!(&world.process.read("/image").unwrap()[..4], b"last");
}

#[test]
fn devices_come_and_go() {
    let world = World::new();
    let control = world.open("/dev/loop-control");
    assert_eq!(ask(&control, request::CTL_GET_FREE, 0), Ok(0));
    assert_eq!(ask(&control, request::CTL_ADD, 0), Err(Errno::EEXIST));
    assert_eq!(ask(&control, request::CTL_REMOVE, 200), Err(Errno::ENODEV));
    assert_eq!(ask(&control, request::CTL_REMOVE, u64::from(u32::MAX)), Err(Errno::EINVAL));
    assert_eq!(ask(&control, raw::TCGETS, 0), Err(Errno::ENOSYS));
    assert_eq!(world.process.stat("/dev/loop77", true).map(drop), Err(Errno::ENOENT));
    assert_eq!(ask(&control, request::CTL_ADD, 77), Ok(77));
    assert_eq!(world.process.stat("/dev/loop77", true).unwrap().rdev, (7, 77));
    let device = world.open("/dev/loop77");
    assert_eq!(ask(&control, request::CTL_REMOVE, 77), Err(Errno::EBUSY));
    close(device);
    assert_eq!(ask(&control, request::CTL_REMOVE, 77), Ok(0));
    assert_eq!(world.process.open("/dev/loop77", RDWR).map(drop), Err(Errno::ENOENT));
    world.image("/image", &numbered(8));
    for index in 0..8 {
        world.attach(&format!("/dev/loop{index}"), "/image", Configuration::default()).unwrap();
    }
    assert_eq!(ask(&control, request::CTL_REMOVE, 3), Err(Errno::EBUSY));
    assert_eq!(ask(&control, request::CTL_GET_FREE, 0), Ok(8));
    assert!(world.process.open("/dev/loop8", RDWR).is_ok());
    while ask(&control, request::CTL_ADD, u64::from(u32::MAX)).is_ok() {}
    assert_eq!(ask(&control, request::CTL_ADD, u64::from(u32::MAX)), Err(Errno::ENOSPC));
}

#[test]
fn a_file_system_on_a_device_is_mounted_and_keeps_it() {
    let world = World::new();
    world.image("/image", &ext4(8 << 10));
    let device = world.open("/dev/loop0");
    attach(&device, world.open("/image"), Configuration { flags: AUTOCLEAR, ..Default::default() }).unwrap();
    let exclusive = world.process.open("/dev/loop0", RDWR | OpenFlags::EXCL).unwrap();
    assert_eq!(world.mount("/dev/loop0", "/mnt"), Err(Errno::EBUSY));
    close(exclusive);
    world.mount("/dev/loop0", "/mnt").unwrap();
    assert_eq!(world.process.open("/dev/loop0", RDWR | OpenFlags::EXCL).map(drop), Err(Errno::EBUSY));
    close(device);
    let text: Vec<u8> = (0..100_000u32).flat_map(u32::to_le_bytes).collect();
    world.process.write("/mnt/words", &text).unwrap();
    assert_eq!(world.process.read("/mnt/words").unwrap(), text);
    world.unmount("/mnt").unwrap();
    assert_eq!(world.shown("loop0", "backing_file"), None);
    check(&world.process.read("/image").unwrap());
    world.attach("/dev/loop1", "/image", Configuration::default()).unwrap();
    world.mount("/dev/loop1", "/mnt").unwrap();
    assert_eq!(world.process.read("/mnt/words").unwrap(), text);
    // Also without autoclear it is kept, and goes when that is set and it is unmounted.
    world.detach("/dev/loop1");
    assert_eq!(world.shown("loop1", "autoclear").unwrap(), "1\n");
    world.unmount("/mnt").unwrap();
    assert_eq!(world.shown("loop1", "autoclear"), None);
}

#[test]
fn devices_lie_over_each_other_two_deep() {
    let world = World::new();
    world.image("/image", &ext4(32 << 10));
    world.attach("/dev/loop0", "/image", Configuration::default()).unwrap();
    world.mount("/dev/loop0", "/mnt").unwrap();
    world.process.write("/mnt/inner", &ext4(8 << 10)).unwrap();
    world.attach("/dev/loop1", "/mnt/inner", Configuration::default()).unwrap();
    world.mount("/dev/loop1", "/mnt2").unwrap();
    world.process.write("/mnt2/words", b"words").unwrap();
    world.process.write("/mnt2/innermost", &numbered(64)).unwrap();
    let device = world.open("/dev/loop2");
    assert_eq!(attach(&device, world.open("/mnt2/innermost"), Configuration::default()), Err(Errno::ELOOP));
    assert_eq!(attach(&device, world.open("/dev/loop1"), Configuration::default()), Err(Errno::ELOOP));
    assert_eq!(attach(&device, world.open("/dev/loop0"), Configuration::default()), Ok(()));
    let lowest = world.open("/dev/loop0");
    assert_eq!(attach(&lowest, device.clone(), Configuration::default()), Err(Errno::EBUSY));
    assert_eq!(world.unmount("/mnt"), Err(Errno::EBUSY));
    world.unmount("/mnt2").unwrap();
    world.detach("/dev/loop1");
    check(&world.process.read("/mnt/inner").unwrap());
    world.unmount("/mnt").unwrap();
    check(&world.process.read("/image").unwrap());
}

/// So many mappings there are of any file.
#[derive(Default)]
struct Maps(AtomicU64);

impl Mappers for Maps {
    fn lost(&self, _: Lost) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    fn recall(&self, others: KernelSet, _: Lost) -> BoxFuture<'_, KernelSet> {
        Box::pin(std::future::ready(others))
    }

    fn uses(&self, _: ObjectId, usage: MappingUse) -> BoxFuture<'_, u64> {
        let maps = if usage == MappingUse::Maps { self.0.load(SeqCst) } else { 0 };
        Box::pin(std::future::ready(maps))
    }
}

impl World {
    fn mapped(&self) -> Arc<Maps> {
        let maps = Arc::new(Maps::default());
        self.kernel.services.set_mappers(maps.clone());
        maps
    }

    /// umount -l.
    fn take_away(&self, path: &str) {
        self.process.run(PathOp::Unmount { path: path.into(), flags: 2 }).unwrap();
    }

    fn seconds_pass(&self) {
        for _ in 0..3 {
            self.kernel.clock.advance(1_000_000_000);
            (0..10).for_each(|_| self.kernel.tasks.run_now());
        }
    }

    /// Whether the file system in an image was left as one that was unmounted.
    fn is_closed(&self, image: &str) -> bool {
        block_on(self.process.paths.sync()).unwrap();
        self.process.read(image).unwrap()[1024 + 0x60] & 4 == 0
    }
}

#[test]
fn a_mapping_keeps_its_mount() {
    let (world, maps) = {
        let world = World::new();
        let maps = world.mapped();
        (world, maps)
    };
    world.image("/image", &ext4(8 << 10));
    world.attach("/dev/loop0", "/image", Configuration::default()).unwrap();
    world.mount("/dev/loop0", "/mnt").unwrap();
    world.process.write("/mnt/words", b"words").unwrap();
    let file = world.open("/mnt/words");
    let object = block_on(file.object()).unwrap();
    assert_eq!(world.unmount("/mnt"), Err(Errno::EBUSY), "an open file");
    close(file);
    maps.0.store(1, SeqCst);
    assert_eq!(world.unmount("/mnt"), Err(Errno::EBUSY), "a mapping");
    assert_eq!(world.process.read("/mnt/words").unwrap(), b"words");
    maps.0.store(0, SeqCst);
    // That somebody keeps the pages, to map them again perhaps, is nothing.
    world.unmount("/mnt").unwrap();
    assert!(world.is_closed("/image"));
    drop(object);
    world.mount("/dev/loop0", "/mnt").unwrap();
    maps.0.store(1, SeqCst);
    world.unmount("/mnt").expect("of this mount nothing was mapped");
}

#[test]
fn a_mount_that_was_detached_is_closed_when_nobody_uses_it() {
    let world = World::new();
    let maps = world.mapped();
    world.image("/image", &ext4(8 << 10));
    world.attach("/dev/loop0", "/image", Configuration::default()).unwrap();
    world.mount("/dev/loop0", "/mnt").unwrap();
    world.take_away("/mnt");
    assert!(world.is_closed("/image"), "at once, since nobody uses it");
    world.mount("/dev/loop0", "/mnt").unwrap();
    world.process.mkdir("/mnt/inner").unwrap();
    world.process.write("/mnt/words", b"words").unwrap();
    // What is mounted on it goes with it.
    world.image("/other", &ext4(8 << 10));
    world.attach("/dev/loop1", "/other", Configuration::default()).unwrap();
    world.mount("/dev/loop1", "/mnt/inner").unwrap();
    let (file, directory) = (world.open("/mnt/words"), world.process.open("/mnt", OpenFlags::DIRECTORY).unwrap());
    let object = block_on(file.object()).unwrap();
    world.take_away("/mnt");
    assert!(world.is_closed("/other"), "nobody uses that");
    assert_eq!(world.process.stat("/mnt/words", true).map(drop), Err(Errno::ENOENT));
    assert_eq!(world.process.paths.mounts().len(), 2, "the root and /dev");
    block_on(file.write_at(b"W", 0)).unwrap();
    maps.0.store(1, SeqCst);
    close(file);
    world.seconds_pass();
    assert!(!world.is_closed("/image"), "a directory and a mapping");
    close(directory);
    world.seconds_pass();
    assert!(!world.is_closed("/image"), "a mapping");
    maps.0.store(0, SeqCst);
    world.seconds_pass();
    assert!(world.is_closed("/image"));
    drop(object);
    world.detach("/dev/loop0");
    check(&world.process.read("/image").unwrap());
    world.attach("/dev/loop0", "/image", Configuration::default()).unwrap();
    world.mount("/dev/loop0", "/mnt").unwrap();
    assert_eq!(world.process.read("/mnt/words").unwrap(), b"Words");
    // The machine ends while one is detached and in use.
    let _file = world.open("/mnt/words");
    world.take_away("/mnt");
    block_on(world.process.paths.close()).unwrap();
    assert!(world.is_closed("/image"));
}

#[test]
fn partitions_are_found_if_they_are_asked_for() {
    let world = World::new();
    let mut bytes = numbered(200);
    let entry = |start: u32, sectors: u32| {
        [&[0, 0, 0, 0, 0x83, 0, 0, 0][..], &start.to_le_bytes(), &sectors.to_le_bytes()].concat()
    };
    bytes[..512].fill(0);
    bytes[446..478].copy_from_slice(&[entry(10, 20), entry(40, 100)].concat());
    bytes[510..512].copy_from_slice(&[0x55, 0xaa]);
    world.image("/image", &bytes);
    world.attach("/dev/loop0", "/image", Configuration::default()).unwrap();
    assert!(world.disks.find(b"loop0p1").is_err());
    let device = world.open("/dev/loop0");
    set_status(&device, Configuration { flags: PARTSCAN, ..Default::default() }).unwrap();
    world.attach("/dev/loop1", "/image", Configuration { flags: PARTSCAN, ..Default::default() }).unwrap();
    let number = |name: &str| world.process.stat(&format!("/dev/{name}"), true).map(|it| it.rdev);
    assert_eq!(number("loop0p1"), Ok((259, 0)));
    assert_eq!(number("loop0p2"), Ok((259, 1)));
    assert_eq!(number("loop1p2"), Ok((259, 3)));
    let part = world.open("/dev/loop0p2");
    assert_eq!(read(&part, 0, 1), Ok(vec![40]));
    block_on(part.write_at(b"part", 0)).unwrap();
    assert_eq!(ask(&device, raw::BLKRRPART, 0), Err(Errno::EBUSY));
    // Who has a partition open has the disk.
    world.detach("/dev/loop0");
    close(device);
    assert_eq!(size(&part), 100 * 512);
    close(part);
    assert_eq!(number("loop0p1"), Err(Errno::ENOENT));
    assert_eq!(world.process.read("/image").unwrap()[40 * 512..][..4], *b"part");
    world.attach("/dev/loop0", "/image", Configuration { flags: PARTSCAN, ..Default::default() }).unwrap();
    assert_eq!(number("loop0p2"), Ok((259, 1)));
}

#[test]
fn a_disk_in_memory_has_pages_where_it_was_written() {
    let world = World::new();
    let device = world.open("/dev/ram0");
    assert_eq!(size(&device), 1 << 20);
    assert_eq!(read(&device, 8192, 3), Ok(vec![0; 3]));
    block_on(device.write_at(b"hello", 8190)).unwrap();
    block_on(device.sync(false)).unwrap();
    let range = [0u64.to_ne_bytes(), 8192u64.to_ne_bytes()].concat();
    block_on(device.ioctl(&user(0), raw::BLKDISCARD, &mut range.clone())).unwrap();
    assert_eq!(read(&device, 8188, 7), Ok(b"\0\0\0\0llo".to_vec()));
    block_on(device.ioctl(&user(0), raw::BLKZEROOUT, &mut range.clone())).unwrap();
    assert_eq!(read(&device, 8190, 5), Ok(b"\0\0llo".to_vec()));
}
