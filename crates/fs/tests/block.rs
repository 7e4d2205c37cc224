//! Disks over a device of bytes in memory: their partitions, their page caches, what reaches the device and when, and what its errors become.
#![allow(clippy::disallowed_methods)]

mod common;

use common::{block_on, disk::Bytes, user, Kernel, Process};
use fs::{
    block::{BlockFile, Disks, Volume},
    devfs::{devtmpfs, Devices},
    file::Access,
    tmpfs::Tmpfs,
    File, LocalPaths, OpenFlags, Whence,
};
use linux_raw_sys::ioctl as raw;
use machine::{block::BlockOp, errno::Result, Errno};
use std::sync::{atomic::Ordering::SeqCst, Arc};

struct Disk {
    kernel: Kernel,
    device: Arc<Bytes>,
    disks: Disks,
}

impl Disk {
    fn new(bytes: Vec<u8>) -> Disk {
        Disk::over(Bytes::new(bytes))
    }

    fn over(device: Bytes) -> Disk {
        let (kernel, device, disks) = (Kernel::new(1000), Arc::new(device), Disks::default());
        kernel.tasks.1.store(true, SeqCst);
        block_on(disks.add(&kernel.services, device.clone()));
        device.taken();
        Disk { kernel, device, disks }
    }

    /// What is dirty becomes old.
    fn flush_old(&self) {
        for _ in 0..3 {
            self.kernel.clock.advance(40_000_000_000);
            self.kernel.tasks.run_now();
        }
    }

    fn volume(&self, name: &str) -> Arc<Volume> {
        self.disks.list().into_iter().find(|volume| volume.name() == name).unwrap_or_else(|| panic!("no {name}"))
    }

    fn open(&self, name: &str, flags: OpenFlags) -> Arc<BlockFile> {
        BlockFile::open(&self.volume(name), flags, None).unwrap()
    }
}

fn read(file: &BlockFile, offset: u64, bytes: usize) -> Result<Vec<u8>> {
    let mut to = vec![0; bytes];
    let read = block_on(file.read_at(&mut to, offset))?;
    to.truncate(read);
    Ok(to)
}

fn request(file: &BlockFile, request: u32, data: &[u8]) -> Result<Vec<u8>> {
    let mut data = data.to_vec();
    block_on(file.ioctl(&user(0), request, &mut data)).map(|_| data)
}

/// A disk of so many sectors, each filled with its number.
fn numbered(sectors: usize) -> Vec<u8> {
    (0..sectors).flat_map(|sector| [sector as u8; 512]).collect()
}

fn entry(kind: u8, start: u32, sectors: u32) -> Vec<u8> {
    [&[0, 0, 0, 0, kind, 0, 0, 0][..], &start.to_le_bytes(), &sectors.to_le_bytes()].concat()
}

fn put_record(disk: &mut [u8], sector: usize, entries: &[Vec<u8>]) {
    let record = &mut disk[sector * 512..(sector + 1) * 512];
    record.fill(0);
    for (at, entry) in entries.iter().enumerate() {
        record[446 + at * 16..][..16].copy_from_slice(entry);
    }
    record[510..].copy_from_slice(&[0x55, 0xaa]);
}

#[test]
fn partitions_of_a_boot_record_and_the_logical_ones_behind() {
    let mut bytes = numbered(200);
    put_record(&mut bytes, 0, &[entry(0x83, 10, 20), entry(0, 0, 0), entry(0x05, 50, 100), entry(0x83, 190, 100)]);
    put_record(&mut bytes, 50, &[entry(0x83, 5, 10), entry(0x05, 40, 60)]);
    put_record(&mut bytes, 90, &[entry(0x83, 2, 8)]);
    let disk = Disk::new(bytes);
    let list: Vec<_> =
        disk.disks.list().iter().map(|it| (it.name().to_string(), it.number(), it.sectors(), it.partition())).collect();
    let name = |name: &str| name.to_string();
    assert_eq!(
        list,
        [
            (name("vda"), (254, 0), 200, None),
            (name("vda1"), (254, 1), 20, Some((1, 10))),
            // An extended one is shown as two sectors; the fourth reaches past the end.
            (name("vda3"), (254, 3), 2, Some((3, 50))),
            (name("vda5"), (254, 5), 10, Some((5, 55))),
            (name("vda6"), (254, 6), 8, Some((6, 92))),
        ]
    );
    let file = disk.open("vda1", OpenFlags::empty());
    assert_eq!(read(&file, 512, 2), Ok(vec![11, 11]));
    assert_eq!(read(&file, 19 * 512 + 510, 100), Ok(vec![29, 29]));
    assert_eq!(read(&file, 20 * 512, 100), Ok(vec![]));
}

#[test]
fn a_chain_of_records_that_goes_in_a_circle_ends() {
    let mut bytes = numbered(100);
    put_record(&mut bytes, 0, &[entry(0x0f, 10, 80)]);
    put_record(&mut bytes, 10, &[entry(0x83, 1, 2), entry(0x05, 10, 20)]);
    put_record(&mut bytes, 20, &[entry(0x83, 1, 2), entry(0x05, 0, 20)]);
    assert_eq!(Disk::new(bytes).disks.list().len(), 4);
}

fn crc32(bytes: &[u8]) -> u32 {
    let table: Vec<u32> = (0..256u32)
        .map(|byte| (0..8).fold(byte, |sum, _| if sum & 1 == 1 { sum >> 1 ^ 0xedb8_8320 } else { sum >> 1 }))
        .collect();
    !bytes.iter().fold(!0, |sum: u32, byte| sum >> 8 ^ table[usize::from(sum as u8 ^ byte)])
}

#[test]
fn partitions_of_a_gpt_are_found_if_its_sums_are_right() {
    assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    let made = || {
        let mut bytes = numbered(200);
        put_record(&mut bytes, 0, &[entry(0xee, 1, 199)]);
        let mut table = vec![0; 128 * 4];
        for (at, first, last) in [(0, 40u64, 59u64), (2, 60, 60)] {
            table[at * 128..at * 128 + 16].fill(9);
            table[at * 128 + 32..][..8].copy_from_slice(&first.to_le_bytes());
            table[at * 128 + 40..][..8].copy_from_slice(&last.to_le_bytes());
        }
        let mut header = vec![0; 92];
        header[..8].copy_from_slice(b"EFI PART");
        header[12..16].copy_from_slice(&92u32.to_le_bytes());
        header[72..80].copy_from_slice(&2u64.to_le_bytes());
        header[80..84].copy_from_slice(&4u32.to_le_bytes());
        header[84..88].copy_from_slice(&128u32.to_le_bytes());
        header[88..92].copy_from_slice(&crc32(&table).to_le_bytes());
        let sum = crc32(&header);
        header[16..20].copy_from_slice(&sum.to_le_bytes());
        bytes[512..512 + 92].copy_from_slice(&header);
        bytes[1024..1024 + 512].copy_from_slice(&table);
        bytes
    };
    let partitions =
        |bytes| -> Vec<_> { Disk::new(bytes).disks.list().iter().filter_map(|it| it.partition()).collect() };
    assert_eq!(partitions(made()), [(1, 40), (3, 60)]);
    for damaged in [512 + 20, 1024 + 33] {
        let mut bytes = made();
        bytes[damaged] ^= 1;
        assert_eq!(partitions(bytes), []);
    }
}

#[test]
fn what_is_written_reaches_the_device_in_whole_pages_and_is_kept_by_a_flush() {
    let disk = Disk::new(numbered(64));
    let file = disk.open("vda", OpenFlags::RDWR);
    assert_eq!(block_on(file.write_at(b"hello", 5000)), Ok(5));
    assert_eq!(read(&file, 4998, 9), Ok([vec![9, 9], b"hello".to_vec(), vec![9, 9]].concat()));
    // Nothing is written until somebody does: the flusher, or fsync.
    assert!(disk.device.taken().iter().all(|(op, ..)| *op == BlockOp::Read));
    block_on(file.sync(false)).unwrap();
    assert_eq!(disk.device.taken(), [(BlockOp::Write, 8, 4096), (BlockOp::Flush, 0, 0)]);
    assert_eq!(&disk.device.bytes.lock().unwrap()[4999..5006], b"\x09hello\x09");
    // Nothing has changed since the flush.
    block_on(file.sync(true)).unwrap();
    assert_eq!(disk.device.taken(), []);
    block_on(file.write_at(b"again", 5000)).unwrap();
    disk.flush_old();
    assert_eq!(disk.device.taken(), [(BlockOp::Write, 8, 4096)]);
    let counted = disk.volume("vda").stats().numbers();
    assert_eq!((counted[4], counted[6], counted[8], counted[15]), (2, 16, 0, 1));
}

#[test]
fn the_end_of_a_disk_is_the_end() {
    // Not a whole number of pages.
    let disk = Disk::new(numbered(9));
    let file = disk.open("vda", OpenFlags::RDWR);
    assert_eq!(block_on(file.write_at(&[1; 100], 9 * 512 - 10)), Ok(10));
    assert_eq!(block_on(file.write_at(&[1; 100], 9 * 512)), Err(Errno::ENOSPC));
    assert_eq!(block_on(file.write_at(&[1; 100], 1 << 40)), Err(Errno::ENOSPC));
    assert_eq!(block_on(file.seek(0, Whence::End)), Ok(9 * 512));
    assert_eq!(block_on(file.seek(1, Whence::Current)), Err(Errno::EINVAL));
    block_on(file.sync(false)).unwrap();
    assert!(disk.device.taken().contains(&(BlockOp::Write, 8, 512)));
    assert_eq!(disk.device.bytes.lock().unwrap()[9 * 512 - 11..], [vec![8], vec![1; 10]].concat());
}

#[test]
fn a_disk_gets_the_size_that_its_device_gets() {
    let mut device = Bytes::new(numbered(64));
    device.sectors = Some(16.into());
    let disk = Disk::over(device);
    let (file, volume) = (disk.open("vda", OpenFlags::RDWR), disk.volume("vda"));
    let becomes = |sectors: u64| {
        disk.device.sectors.as_ref().unwrap().store(sectors, SeqCst);
        disk.device.resized.wake_all();
        disk.kernel.tasks.run_now();
        assert_eq!(volume.sectors(), sectors);
        assert_eq!(request(&file, raw::BLKGETSIZE64, &[0; 8]).unwrap(), (sectors * 512).to_ne_bytes());
    };
    becomes(16);
    assert_eq!(read(&file, 16 * 512, 1).unwrap(), []);
    becomes(48);
    assert_eq!(read(&file, 47 * 512, 600).unwrap(), [47; 512]);
    assert_eq!(block_on(file.write_at(b"there", 40 * 512)), Ok(5));
    block_on(file.sync(false)).unwrap();
    assert_eq!(&disk.device.bytes.lock().unwrap()[40 * 512..][..6], b"there\x28");
    becomes(20);
    assert_eq!(read(&file, 19 * 512, 600).unwrap(), [19; 512]);
    assert_eq!(block_on(file.write_at(b"past", 40 * 512)), Err(Errno::ENOSPC));
    becomes(64);
    assert_eq!(read(&file, 40 * 512, 5).unwrap(), b"there");
}

#[test]
fn each_description_hears_once_that_bytes_could_not_be_written() {
    let disk = Disk::new(numbered(64));
    let (one, other) = (disk.open("vda", OpenFlags::RDWR), disk.open("vda", OpenFlags::empty()));
    block_on(one.write_at(&[1; 4096], 0)).unwrap();
    disk.device.fails.store(true, SeqCst);
    disk.flush_old();
    disk.device.fails.store(false, SeqCst);
    let late = disk.open("vda", OpenFlags::empty());
    assert_eq!(block_on(one.sync(false)), Err(Errno::EIO));
    assert_eq!(block_on(one.sync(false)), Ok(()));
    assert_eq!(block_on(other.sync(false)), Err(Errno::EIO));
    // As on Linux: nobody had heard of it when this one was opened.
    assert_eq!(block_on(late.sync(false)), Err(Errno::EIO));
    assert_eq!(block_on(disk.open("vda", OpenFlags::empty()).sync(false)), Ok(()));
    // And the bytes are not lost.
    assert_eq!(disk.device.bytes.lock().unwrap()[..4096], [1; 4096]);
    disk.device.fails.store(true, SeqCst);
    assert_eq!(read(&one, 20 * 512, 1), Err(Errno::EIO));
}

#[test]
fn writing_through_waits_for_the_device() {
    let disk = Disk::new(numbered(64));
    let file = disk.open("vda", OpenFlags::RDWR | OpenFlags::DSYNC);
    block_on(file.write_at(&[1; 4096], 0)).unwrap();
    assert_eq!(disk.device.taken(), [(BlockOp::Write, 0, 4096), (BlockOp::Flush, 0, 0)]);
    let direct = disk.open("vda", OpenFlags::RDWR | OpenFlags::DIRECT);
    block_on(direct.write_at(&[2; 4096], 4096)).unwrap();
    assert_eq!(disk.device.taken(), [(BlockOp::Write, 8, 4096)]);
    assert_eq!(block_on(direct.write_at(&[2; 100], 0)), Err(Errno::EINVAL));
    assert_eq!(block_on(direct.write_at(&[2; 512], 100)), Err(Errno::EINVAL));
    assert_eq!(read(&direct, 100, 512), Err(Errno::EINVAL));
    assert_eq!(read(&direct, 4096, 512), Ok(vec![2; 512]));
}

#[test]
fn ioctls_say_what_the_disk_is_and_clear_it() {
    let disk = Disk::new(numbered(64));
    let file = disk.open("vda", OpenFlags::RDWR);
    let long = |value: u64| value.to_ne_bytes().to_vec();
    let int = |value: u32| value.to_ne_bytes().to_vec();
    assert_eq!(request(&file, raw::BLKGETSIZE64, &[]), Ok(long(64 * 512)));
    assert_eq!(request(&file, raw::BLKGETSIZE, &[]), Ok(long(64)));
    assert_eq!(request(&file, raw::BLKSSZGET, &[]), Ok(int(512)));
    assert_eq!(request(&file, raw::BLKPBSZGET, &[]), Ok(int(4096)));
    assert_eq!(request(&file, raw::BLKROGET, &[]), Ok(int(0)));
    assert_eq!(request(&file, raw::BLKBSZSET, &int(1000)), Err(Errno::EINVAL));
    assert_eq!(request(&file, raw::BLKDISCARD, &[long(0), long(512)].concat()), Err(Errno::EOPNOTSUPP));
    assert_eq!(request(&file, raw::TCGETS, &[]), Err(Errno::ENOTTY));
    block_on(file.write_at(&[7; 512], 30 * 512)).unwrap();
    assert_eq!(request(&file, raw::BLKZEROOUT, &[long(20 * 512), long(12 * 512)].concat()).map(drop), Ok(()));
    assert_eq!(read(&file, 19 * 512 + 511, 2), Ok(vec![19, 0]));
    assert_eq!(read(&file, 31 * 512 + 511, 2), Ok(vec![0, 32]));
    assert!(disk.device.bytes.lock().unwrap()[20 * 512..32 * 512].iter().all(|byte| *byte == 0));
    // Also while something else is not written back yet.
    assert_eq!(read(&file, 40 * 512, 1), Ok(vec![40]));
    block_on(file.write_at(&[7], 60 * 512)).unwrap();
    request(&file, raw::BLKZEROOUT, &[long(36 * 512), long(8 * 512)].concat()).unwrap();
    assert_eq!(read(&file, 35 * 512 + 511, 2), Ok(vec![35, 0]));
    assert_eq!(read(&file, 43 * 512 + 511, 2), Ok(vec![0, 44]));
    assert_eq!(disk.device.bytes.lock().unwrap()[36 * 512..44 * 512], [0; 8 * 512]);
    for (start, bytes) in [(1, 512), (0, 100), (0, 65 * 512), (u64::MAX - 511, 1024)] {
        let asked = request(&file, raw::BLKZEROOUT, &[long(start), long(bytes)].concat());
        assert_eq!(asked, Err(Errno::EINVAL), "{start} {bytes}");
    }
}

#[test]
fn a_disk_that_nobody_may_write_is_not_opened_to_be_written() {
    let mut device = Bytes::new(numbered(8));
    device.limits.read_only = true;
    let disk = Disk::over(device);
    assert_eq!(BlockFile::open(&disk.volume("vda"), OpenFlags::RDWR, None).map(drop), Err(Errno::EACCES));
    let file = disk.open("vda", OpenFlags::empty());
    assert_eq!(block_on(file.write_from(fs::file::Source::Kernel(b"x"), Access::KERNEL)), Err(Errno::EBADF));
}

#[test]
fn disks_are_found_by_what_they_are_called() {
    let image = tempfile::NamedTempFile::new().unwrap();
    let uuid = "01234567-89ab-cdef-0123-456789abcdef";
    let mut make = std::process::Command::new("/usr/sbin/mkfs.ext4");
    make.args(["-q", "-F", "-L", "my disk", "-U", uuid]).arg(image.path()).arg("8m");
    assert!(make.status().unwrap().success());
    let mut bytes = numbered(2048);
    bytes.extend(std::fs::read(image.path()).unwrap());
    put_record(&mut bytes, 0, &[entry(0x83, 2048, 16384)]);
    bytes[440..444].copy_from_slice(&0x1234_abcd_u32.to_le_bytes());
    let mut device = Bytes::new(bytes);
    device.limits.serial = b"ser/1".to_vec();
    let (kernel, disks, devices) = (Kernel::new(10_000), Arc::new(Disks::default()), Arc::new(Devices::default()));
    block_on(disks.add(&kernel.services, Arc::new(device)));
    fs::block::register(&kernel.services, &disks, &devices);
    let tree = block_on(devtmpfs(&kernel.services, &devices)).unwrap();
    let process = Process::new(&kernel, tree);
    for (name, target) in [
        ("by-uuid/01234567-89ab-cdef-0123-456789abcdef", "vda1"),
        ("by-label/my\\x20disk", "vda1"),
        ("by-partuuid/1234abcd-01", "vda1"),
        ("by-id/virtio-ser\\x2f1", "vda"),
        ("by-id/virtio-ser\\x2f1-part1", "vda1"),
    ] {
        let found = process.readlink(&format!("/disk/{name}"));
        assert_eq!(found, Ok(format!("../../{target}").into_bytes()), "{name}");
    }
}

#[test]
fn a_table_of_partitions_is_read_again_when_a_program_has_written_it() {
    let mut bytes = numbered(64);
    put_record(&mut bytes, 0, &[entry(0x83, 8, 8)]);
    let (kernel, disks, devices) = (Kernel::new(10_000), Arc::new(Disks::default()), Arc::new(Devices::default()));
    kernel.tasks.1.store(true, SeqCst);
    block_on(disks.add(&kernel.services, Arc::new(Bytes::new(bytes.clone()))));
    fs::block::register(&kernel.services, &disks, &devices);
    let tree = block_on(devtmpfs(&kernel.services, &devices)).unwrap();
    let paths = LocalPaths::new(kernel.services.clone(), Tmpfs::new(&kernel.services, 0o755), devices.clone());
    let process = Process::with(&kernel, paths.clone());
    process.mkdir("/dev").unwrap();
    block_on(paths.attach(&user(0), b"/dev", tree, b"devtmpfs", 0)).unwrap();
    let open = |name: &str, flags| BlockFile::open(&disks.find(name.as_bytes()).unwrap(), flags, None).unwrap();
    let disk = open("vda", OpenFlags::RDWR);
    put_record(&mut bytes, 0, &[entry(0x83, 8, 4), entry(0x83, 16, 16)]);
    // It is in the disk's pages only.
    assert_eq!(block_on(disk.write_at(&bytes[..512], 0)), Ok(512));
    let part = open("vda1", OpenFlags::RDWR);
    assert_eq!(request(&disk, raw::BLKRRPART, &[]), Err(Errno::EBUSY));
    assert_eq!(read(&part, 0, 1), Ok(vec![8]));
    block_on(part.write_at(b"kept", 0)).unwrap();
    drop(part);
    assert_eq!(block_on(disk.ioctl(&user(1), raw::BLKRRPART, &mut Vec::new())), Err(Errno::EACCES));
    assert_eq!(request(&disk, raw::BLKRRPART, &[]), Ok(vec![]));
    let rdev = |name: &str| process.stat(&format!("/dev/{name}"), true).map(|it| it.rdev);
    assert_eq!([rdev("vda1"), rdev("vda2"), rdev("vda3")], [Ok((254, 1)), Ok((254, 2)), Err(Errno::ENOENT)]);
    let [one, two] = ["vda1", "vda2"].map(|name| open(name, OpenFlags::RDWR));
    assert_eq!([&one, &two].map(|part| block_on(part.seek(0, Whence::End))), [Ok(4 * 512), Ok(16 * 512)]);
    assert_eq!((read(&one, 0, 4), read(&two, 0, 1)), (Ok(b"kept".to_vec()), Ok(vec![16])));
    assert_eq!(request(&one, raw::BLKRRPART, &[]), Err(Errno::EINVAL));
    drop((one, two));
    put_record(&mut bytes, 0, &[]);
    assert_eq!(block_on(disk.write_at(&bytes[..512], 0)), Ok(512));
    assert_eq!(request(&disk, raw::BLKRRPART, &[]), Ok(vec![]));
    assert_eq!((rdev("vda1"), rdev("vda2")), (Err(Errno::ENOENT), Err(Errno::ENOENT)));
}
