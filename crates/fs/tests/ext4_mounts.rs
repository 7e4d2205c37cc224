//! A disk that is mounted twice or unmounted while something can't be written, and directories that are searched while they change.
#![allow(clippy::disallowed_methods)]

mod common;

use common::{block_on, slow::Slow, user, Kernel, Process};
use fs::{
    block::Disks,
    ext4::Ext4Mounter,
    inode::{Mounter, NewNode},
    tmpfs::Tmpfs,
    FileSystem, Kind, LocalPaths, OpenFlags, PathOp,
};
use machine::{block::BlockLimits, Errno};
use std::{
    collections::BTreeSet,
    fs as host,
    future::Future,
    pin::pin,
    process::Command,
    sync::{atomic::Ordering::SeqCst, Arc},
    task::{Context, Poll, Waker},
};

fn image() -> Vec<u8> {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut command = Command::new("/usr/sbin/mkfs.ext4");
    command.args(["-q", "-F", "-b", "1024", "-J", "size=2"]).arg(file.path()).arg("6144k");
    assert!(command.status().unwrap().success());
    host::read(file.path()).unwrap()
}

/// Whether the superblock says that errors were found.
fn tells_of_errors(bytes: &[u8]) -> bool {
    bytes[1024 + 0x3a] & 2 != 0
}

struct Machine {
    kernel: Kernel,
    disk: Arc<Slow>,
    mounter: Arc<Ext4Mounter>,
}

impl Machine {
    fn new(bytes: Vec<u8>) -> Machine {
        let kernel = Kernel::new(20_000);
        kernel.tasks.1.store(true, SeqCst);
        let disk = Arc::new(Slow::new(
            bytes,
            BlockLimits { caches_writes: true, most_bytes: 1 << 16, ..BlockLimits::default() },
        ));
        disk.at_once.store(true, SeqCst);
        let disks = Arc::new(Disks::default());
        block_on(disks.add(&kernel.services, disk.clone()));
        let mounter = Arc::new(Ext4Mounter::new(&kernel.services, &disks));
        Machine { kernel, disk, mounter }
    }

    fn mount(&self) -> Arc<dyn FileSystem> {
        block_on(self.mounter.mount(b"/dev/vda", b"", false)).unwrap()
    }

    fn bytes(&self) -> Vec<u8> {
        self.disk.bytes.lock().unwrap().clone()
    }
}

fn new(kind: Kind) -> NewNode {
    NewNode { kind, mode: 0o755, uid: 0, gid: 0, rdev: (0, 0), target: Vec::new() }
}

/// The names of `/many`, in the order of the disk.
fn listed(process: &Process) -> Vec<String> {
    let directory = process.open("/many", OpenFlags::DIRECTORY).unwrap();
    let mut names = Vec::new();
    loop {
        let entries = block_on(directory.read_dir(4096)).unwrap();
        if entries.is_empty() {
            return names.split_off(2);
        }
        names.extend(entries.into_iter().map(|entry| String::from_utf8(entry.name).unwrap()));
    }
}

/// A listing waits for the disk in the middle; meanwhile others make the directory longer than it was when the listing looked at its inode.
#[test]
fn a_listing_that_others_overtake_is_right_and_notes_no_damage() {
    let start = Machine::new(image());
    let tree = start.mount();
    let process = Process::new(&start.kernel, tree.clone());
    process.mkdir("/many").unwrap();
    (0..120).for_each(|name| process.mkdir(&format!("/many/a rather long name {name}")).unwrap());
    // The names with the highest hashes, which lie in other blocks than the lowest.
    let mut first = listed(&process);
    let last = first.split_off(80);
    last.iter().for_each(|name| process.rmdir(&format!("/many/{name}")).unwrap());
    block_on(tree.close()).unwrap();
    let image = start.bytes();
    let mut overtaken = 0;
    for wait in 0..8 {
        let machine = Machine::new(image.clone());
        let tree = machine.mount();
        let process = Process::new(&machine.kernel, tree.clone());
        let directory = process.open("/many", OpenFlags::DIRECTORY).unwrap();
        let many = block_on(tree.root().lookup(&user(0), b"many")).unwrap();
        machine.disk.at_once.store(false, SeqCst);
        let mut context = Context::from_waker(Waker::noop());
        let mut listing = pin!(directory.read_dir(1 << 16));
        let mut answer = listing.as_mut().poll(&mut context);
        for _ in 0..wait {
            machine.disk.answer_all(|| {});
            if answer.is_pending() {
                answer = listing.as_mut().poll(&mut context);
            }
        }
        machine.disk.at_once.store(true, SeqCst);
        for name in &last {
            let mut making = pin!(many.create(name.as_bytes(), new(Kind::Directory)));
            let mut made = making.as_mut().poll(&mut context);
            overtaken += usize::from(made.is_ready() && answer.is_pending());
            while made.is_pending() {
                // It waits for what the listing reads.
                machine.disk.answer_all(|| {});
                machine.kernel.tasks.run_now();
                if answer.is_pending() {
                    answer = listing.as_mut().poll(&mut context);
                }
                made = making.as_mut().poll(&mut context);
            }
        }
        machine.disk.answer_all(|| {});
        let entries = match answer {
            Poll::Ready(answer) => answer.unwrap(),
            Poll::Pending => machine.kernel.run(listing).unwrap(),
        };
        let names: BTreeSet<_> = entries.into_iter().map(|entry| String::from_utf8(entry.name).unwrap()).collect();
        assert!(first.iter().all(|name| names.contains(name)), "{wait}");
        block_on(tree.close()).unwrap();
        assert!(!tells_of_errors(&machine.bytes()), "{wait}");
    }
    assert!(overtaken >= last.len());
}

#[test]
fn a_directory_that_is_gone_is_no_damage() {
    let machine = Machine::new(image());
    let (one, two) = (machine.mount(), machine.mount());
    let root = one.root();
    let gone = block_on(root.create(b"d", new(Kind::Directory))).unwrap();
    let known = block_on(two.root().lookup(&user(0), b"d")).unwrap();
    block_on(root.unlink(b"d", &gone)).unwrap();
    assert_eq!(block_on(known.create(b"x", new(Kind::Regular))).err(), Some(Errno::ENOENT));
    assert_eq!(block_on(known.lookup(&user(0), b"x")).err(), Some(Errno::ENOENT));
    assert_eq!(block_on(root.unlink(b"d", &known)).err(), Some(Errno::ENOENT));
    drop((gone, known, root));
    block_on(one.close()).unwrap();
    block_on(two.close()).unwrap();
    assert!(!tells_of_errors(&machine.bytes()));
}

/// Linux has one tree of names for a file system, wherever it is mounted.
#[test]
fn two_mounts_of_a_disk_have_the_same_names() {
    let machine = Machine::new(image());
    let paths =
        LocalPaths::new(machine.kernel.services.clone(), Tmpfs::new(&machine.kernel.services, 0o755), Arc::default());
    paths.register_kind("ext4", machine.mounter.clone());
    let process = Process::with(&machine.kernel, paths);
    let mount = |path: &str, kind: &str, source: &str, flags| {
        let op = PathOp::Mount { source: source.into(), path: path.into(), kind: kind.into(), flags, data: Vec::new() };
        process.run(op).map(drop).unwrap();
    };
    let unmount = |path: &str| process.run(PathOp::Unmount { path: path.into(), flags: 0 }).map(drop);
    ["/a", "/b", "/c"].iter().for_each(|path| process.mkdir(path).unwrap());
    mount("/a", "ext4", "/dev/vda", 0);
    mount("/b", "ext4", "/dev/vda", 0);
    assert_eq!(process.stat("/b/f", false).err(), Some(Errno::ENOENT));
    process.write("/a/f", b"x").unwrap();
    assert_eq!(process.read("/b/f").unwrap(), b"x");
    process.mkdir("/a/d").unwrap();
    process.write("/b/d/inside", b"y").unwrap();
    assert_eq!(process.rmdir("/a/d"), Err(Errno::ENOTEMPTY));
    process.unlink("/a/d/inside").unwrap();
    process.rmdir("/a/d").unwrap();
    assert_eq!(process.write("/b/d/inside", b"y"), Err(Errno::ENOENT));
    process.unlink("/b/f").unwrap();
    assert_eq!(process.read("/a/f").err(), Some(Errno::ENOENT));
    // Also if what is left of it is a part that is bound elsewhere.
    process.mkdir("/a/d").unwrap();
    const BIND: u64 = 4096;
    mount("/c", "", "/a/d", BIND);
    unmount("/a").unwrap();
    unmount("/b").unwrap();
    mount("/b", "ext4", "/dev/vda", 0);
    assert_eq!(process.stat("/b/d/new", false).err(), Some(Errno::ENOENT));
    process.write("/c/new", b"z").unwrap();
    assert_eq!(process.read("/b/d/new").unwrap(), b"z");
    unmount("/c").unwrap();
    unmount("/b").unwrap();
    assert!(!tells_of_errors(&machine.bytes()));
    // It is nobody's any more, and can be mounted again.
    mount("/a", "ext4", "/dev/vda", 0);
    assert_eq!(process.read("/a/d/new").unwrap(), b"z");
    unmount("/a").unwrap();
}

/// As on Linux: errors are told to who syncs.
#[test]
fn a_disk_that_fails_is_unmounted_all_the_same() {
    let machine = Machine::new(image());
    let services = &machine.kernel.services;
    let paths = LocalPaths::new(services.clone(), Tmpfs::new(services, 0o755), Arc::default());
    paths.register_kind("ext4", machine.mounter.clone());
    let process = Process::with(&machine.kernel, paths);
    process.mkdir("/a").unwrap();
    let mount = || PathOp::Mount {
        source: b"/dev/vda".into(),
        path: b"/a".into(),
        kind: b"ext4".into(),
        flags: 0,
        data: Vec::new(),
    };
    process.run(mount()).map(drop).unwrap();
    process.write("/a/f", &[1; 9000]).unwrap();
    machine.disk.bad.lock().unwrap().extend(0..machine.disk.limits.sectors);
    let unmount = || process.run(PathOp::Unmount { path: b"/a".into(), flags: 0 }).map(drop);
    assert_eq!((unmount(), unmount()), (Ok(()), Err(Errno::EINVAL)));
    machine.disk.bad.lock().unwrap().clear();
    process.run(mount()).map(drop).unwrap();
    unmount().unwrap();
}

/// Linux drops them, too: the disk may be another's by then.
#[test]
fn what_could_not_be_written_when_a_disk_was_unmounted_never_is() {
    let machine = Machine::new(image());
    let tree = machine.mount();
    let process = Process::new(&machine.kernel, tree.clone());
    let old = b"only here".repeat(400);
    process.write("/f", &old).unwrap();
    block_on(tree.sync()).unwrap();
    let place = machine.bytes().windows(1024).position(|bytes| *bytes == old[..1024]).unwrap();
    let file = process.open("/f", OpenFlags::WRONLY).unwrap();
    block_on(file.write_at(b"new", 0)).unwrap();
    drop(file);
    machine.disk.bad.lock().unwrap().push(place as u64 / 512);
    assert_eq!(machine.kernel.run(tree.close()), Err(Errno::EIO));
    assert_eq!(machine.kernel.services.flusher.dirty(), 0);
    machine.disk.bad.lock().unwrap().clear();
    let then = machine.bytes();
    for _ in 0..20 {
        machine.kernel.clock.advance(10_000_000_000);
        machine.kernel.tasks.run_now();
    }
    assert!(machine.bytes() == then);
    let tree = machine.mount();
    let process = Process::new(&machine.kernel, tree.clone());
    assert_eq!(process.read("/f").unwrap(), old);
}
