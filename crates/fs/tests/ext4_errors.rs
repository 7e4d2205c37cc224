//! A disk that fails one request, whichever it is, or every one from then on: whoever asks hears of it, nothing that is read is wrong, what fsync confirms is there, and e2fsck
//! can put right what is left.
#![allow(clippy::disallowed_methods)]

mod common;

use common::{block_on, disk::Bytes, Kernel, Process};
use fs::{block::Disks, ext4::Ext4Mounter, inode::Mounter, OpenFlags};
use machine::{
    block::{BlockDevice, BlockLimits, BlockOp, Pieces},
    errno::Result,
    BoxFuture, Errno,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs as host,
    process::Command,
    sync::{
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
        Arc,
    },
};

/// Which requests fail, counted from 0.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Never,
    Once(usize),
    From(usize),
}

struct Faulty {
    disk: Bytes,
    fault: Fault,
    requests: AtomicUsize,
    /// Nothing can be written any more.
    broken: AtomicBool,
}

impl Faulty {
    fn new(bytes: Vec<u8>, fault: Fault) -> Arc<Faulty> {
        let mut disk = Bytes::new(bytes);
        disk.limits.most_bytes = 1 << 12;
        Arc::new(Faulty { disk, fault, requests: AtomicUsize::new(0), broken: AtomicBool::new(false) })
    }

    fn fails(&self) -> bool {
        let number = self.requests.fetch_add(1, SeqCst);
        match self.fault {
            Fault::Never => false,
            Fault::Once(at) => number == at,
            Fault::From(at) => number >= at,
        }
    }

    fn bytes(&self) -> Vec<u8> {
        self.disk.bytes.lock().unwrap().clone()
    }
}

impl BlockDevice for Faulty {
    fn limits(&self) -> Arc<BlockLimits> {
        self.disk.limits()
    }

    fn submit(&self, op: BlockOp, sector: u64, pages: Pieces) -> BoxFuture<'_, Result<()>> {
        match self.fails() || self.broken.load(SeqCst) && op != BlockOp::Read {
            true => Box::pin(std::future::ready(Err(Errno::EIO))),
            false => self.disk.submit(op, sector, pages),
        }
    }
}

fn content(name: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 31 + name * 7 + at / 4096) as u8).collect()
}

/// What a program has been told.
#[derive(Default)]
struct Told {
    /// Calls that failed, and how.
    errors: Vec<(String, Errno)>,
    /// Files as fsync has confirmed them, and that have not been changed since.
    confirmed: BTreeMap<String, Vec<u8>>,
    /// Files that have not been what the program thinks since an error.
    doubtful: BTreeSet<String>,
}

impl Told {
    fn hear(&mut self, what: String, result: Result<()>) -> bool {
        result.map_err(|error| self.errors.push((what, error))).is_ok()
    }

    fn change(&mut self, path: &str, what: &str, result: Result<()>) {
        self.confirmed.remove(path);
        if !self.hear(format!("{what} {path}"), result) {
            self.doubtful.insert(path.into());
        }
    }

    fn write(&mut self, process: &Process, path: &str, bytes: &[u8]) {
        self.change(path, "write", process.write(path, bytes));
    }

    fn sync(&mut self, process: &Process, path: &str, bytes: &[u8]) {
        let synced = process.open(path, OpenFlags::empty()).and_then(|file| block_on(file.sync(false)));
        if !self.hear(format!("sync {path}"), synced) {
            self.doubtful.insert(path.into());
        } else if !self.doubtful.contains(path) {
            self.confirmed.insert(path.into(), bytes.to_vec());
        }
    }

    /// An error, or what is there.
    fn read(&mut self, process: &Process, path: &str, bytes: &[u8]) {
        match process.read(path) {
            Ok(read) if self.doubtful.contains(path) => drop(read),
            Ok(read) => assert!(read == bytes, "{path} is read as something else"),
            Err(error) => self.errors.push((format!("read {path}"), error)),
        }
    }
}

/// A file system with something in it.
fn prepared() -> Vec<u8> {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut command = Command::new("/usr/sbin/mkfs.ext4");
    command.args(["-q", "-F", "-b", "1024", "-J", "size=2"]).arg(file.path()).arg("6144k");
    assert!(command.status().unwrap().success());
    let disk = Faulty::new(host::read(file.path()).unwrap(), Fault::Never);
    let (kernel, process, tree) = mount(&disk).unwrap();
    process.write("/old", &content(0, 90_000)).unwrap();
    process.write("/other", &content(1, 9_000)).unwrap();
    process.mkdir("/many").unwrap();
    for name in 0..120 {
        process.write(&format!("/many/a rather long name {name}"), b"").unwrap();
    }
    block_on(tree.close()).unwrap();
    drop(kernel);
    disk.bytes()
}

type Mount = (Kernel, Process, Arc<dyn fs::FileSystem>);

fn mount(disk: &Arc<Faulty>) -> Result<Mount> {
    mount_so(disk, b"")
}

fn mount_so(disk: &Arc<Faulty>, options: &[u8]) -> Result<Mount> {
    let kernel = Kernel::new(20_000);
    kernel.tasks.1.store(true, SeqCst);
    let disks = Arc::new(Disks::default());
    block_on(disks.add(&kernel.services, disk.clone()));
    let mounter = Ext4Mounter::new(&kernel.services, &disks);
    let tree = block_on(mounter.mount(b"/dev/vda", options, false))?;
    let process = Process::new(&kernel, tree.clone());
    Ok((kernel, process, tree))
}

fn program(disk: &Arc<Faulty>) -> Told {
    let mut told = Told::default();
    let (kernel, process, tree) = match mount(disk) {
        Ok(mounted) => mounted,
        Err(error) => {
            told.errors.push(("mount".into(), error));
            return told;
        }
    };
    let later = |seconds: u64| {
        kernel.clock.advance(seconds * 1_000_000_000);
        kernel.tasks.run_now();
    };
    told.read(&process, "/other", &content(1, 9_000));
    told.hear("list /many".into(), process.list("/many").map(|names| assert_eq!(names.len(), 120)));
    let new = content(2, 40_000);
    told.write(&process, "/new", &new);
    told.sync(&process, "/new", &new);
    told.read(&process, "/old", &content(0, 90_000));
    told.change("/old", "truncate", process.truncate("/old", 50_000));
    told.hear("mkdir /d".into(), process.mkdir("/d"));
    for name in 0..12 {
        told.write(&process, &format!("/d/{name}"), &content(name, 700 * name));
    }
    told.sync(&process, "/d/5", &content(5, 3500));
    later(40);
    told.change("/d/3", "rename", process.rename("/d/3", "/moved"));
    told.change("/moved", "move to", Ok(()));
    told.change("/d/4", "unlink", process.unlink("/d/4"));
    told.hear("link".into(), process.link("/new", "/d/linked"));
    told.hear("symlink".into(), process.symlink("somewhere", "/d/symbolic"));
    told.hear("chmod".into(), process.chmod("/d/6", 0o600));
    for name in (0..120).step_by(3) {
        told.hear("unlink".into(), process.unlink(&format!("/many/a rather long name {name}")));
    }
    told.sync(&process, "/old", &content(0, 90_000)[..50_000]);
    told.write(&process, "/new", &content(3, 20_000));
    later(2);
    told.read(&process, "/d/7", &content(7, 4900));
    for name in [0, 1, 2, 5, 6, 7, 8, 9, 10, 11] {
        told.sync(&process, &format!("/d/{name}"), &content(name, 700 * name));
    }
    told.sync(&process, "/new", &content(3, 20_000));
    told.hear("unmount".into(), kernel.run(tree.close()));
    told
}

fn e2fsck(how: &str, path: &std::path::Path) -> (Option<i32>, String) {
    let output = Command::new("/usr/sbin/e2fsck").arg(how).arg(path).output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

fn at_place(start: &[u8], fault: Fault) -> Told {
    let disk = Faulty::new(start.to_vec(), fault);
    let told = program(&disk);
    let file = tempfile::NamedTempFile::new().unwrap();
    host::write(file.path(), disk.bytes()).unwrap();
    let errors = &told.errors;
    // Without an error that was told there is nothing to be put right.
    let how = if errors.is_empty() { "-fn" } else { "-fp" };
    let (code, text) = e2fsck(how, file.path());
    assert!(matches!(code, Some(0 | 1)), "{fault:?}: {how} {code:?} {text} {errors:?}");
    let (code, text) = e2fsck("-fn", file.path());
    assert_eq!(code, Some(0), "{fault:?}: {text} {errors:?}");
    let (_kernel, process, tree) = mount(&Faulty::new(host::read(file.path()).unwrap(), Fault::Never)).unwrap();
    for (path, bytes) in &told.confirmed {
        let read = process.read(path);
        assert!(read.as_ref() == Ok(bytes), "{fault:?}: {path} {:?} {errors:?}", read.map(|read| read.len()));
    }
    block_on(tree.close()).unwrap();
    told
}

/// Every `step`th place.
fn at_every_place(step: usize) {
    let start = prepared();
    let disk = Faulty::new(start.clone(), Fault::Never);
    let told = program(&disk);
    assert!(told.errors.is_empty(), "{:?}", told.errors);
    assert_eq!(told.confirmed.len(), 12);
    let places = disk.requests.load(SeqCst);
    let mut heard = 0;
    for place in (0..places).step_by(step) {
        heard += usize::from(!at_place(&start, Fault::Once(place)).errors.is_empty());
        if place % 4 == 0 {
            at_place(&start, Fault::From(place));
        }
    }
    assert!(heard > places / step / 3, "of {places} places {heard} were heard of");
}

#[test]
fn a_disk_that_fails_once_loses_nothing_that_was_confirmed() {
    at_every_place(7);
}

/// All of them; a minute: `cargo test --release -p fs --test ext4_errors -- --ignored`.
#[test]
#[ignore = "the test above does the same at fewer places"]
fn a_disk_that_fails_once_anywhere() {
    at_every_place(1);
}

/// Whether the superblock says that errors were found.
fn tells_of_errors(bytes: &[u8]) -> bool {
    bytes[1024 + 0x3a] & 2 != 0
}

#[test]
fn a_file_system_whose_journal_can_not_be_written_is_read_only() {
    let disk = Faulty::new(prepared(), Fault::Never);
    let (kernel, process, tree) = mount(&disk).unwrap();
    let file = process.open("/other", OpenFlags::RDWR).unwrap();
    let object = block_on(file.object()).unwrap();
    block_on(file.write_at(b"new", 0)).unwrap();
    block_on(file.sync(false)).unwrap();
    let clean = block_on(process.open("/many/a rather long name 7", OpenFlags::RDWR).unwrap().object()).unwrap();
    // What was there before, but dirty.
    let dirty = process.open("/old", OpenFlags::RDWR).unwrap();
    block_on(dirty.write_at(&content(0, 3), 0)).unwrap();
    process.chmod("/other", 0o640).unwrap();
    process.mkdir("/lost").unwrap();
    assert!(!block_on(tree.root().info()).unwrap().has_stopped);
    disk.broken.store(true, SeqCst);
    assert_eq!(block_on(file.sync(false)), Err(Errno::EIO));
    // The superblock can't tell of it now, and does when it is unmounted.
    (0..20).for_each(|_| kernel.tasks.run_now());
    for _ in 0..2 {
        assert_eq!(block_on(file.sync(false)), Err(Errno::EROFS));
        assert_eq!(block_on(file.write_at(b"newer", 0)), Err(Errno::EROFS));
        assert!(!object.write(0), "nor by a mapping");
        assert_eq!(block_on(object.take_back(0)), Err(Errno::EROFS));
        assert_eq!(block_on(tree.sync()), Err(Errno::EROFS));
        // msync of pages that are clean.
        assert_eq!(block_on(clean.sync(0, 4096)), Err(Errno::EROFS));
        assert_eq!(process.mkdir("/d"), Err(Errno::EROFS));
        assert_eq!(process.write("/new", b"x"), Err(Errno::EROFS));
        assert_eq!(process.unlink("/old"), Err(Errno::EROFS));
        assert_eq!(process.chmod("/old", 0o600), Err(Errno::EROFS));
        assert_eq!(process.read("/old").unwrap(), content(0, 90_000));
        assert_eq!(process.list("/many").unwrap().len(), 120);
        assert!(block_on(tree.root().info()).unwrap().has_stopped);
        assert_eq!(block_on(tree.remount(false)), Err(Errno::EROFS));
        // A disk that is well again is written no more.
        disk.broken.store(false, SeqCst);
        disk.disk.taken();
        kernel.clock.advance(100_000_000_000);
        (0..20).for_each(|_| kernel.tasks.run_now());
        assert!(disk.disk.taken().iter().all(|(op, ..)| *op == BlockOp::Read));
    }
    assert!(kernel.services.flusher.dirty() > 0);
    drop((file, object, dirty, clean));
    kernel.run(tree.close()).unwrap();
    assert_eq!(kernel.services.flusher.dirty(), 0, "what could not be written is gone");
    assert!(tells_of_errors(&disk.bytes()));
    let (_kernel, process, tree) = mount(&Faulty::new(disk.bytes(), Fault::Never)).unwrap();
    assert_eq!(process.read("/old").unwrap(), content(0, 90_000));
    process.mkdir("/d").unwrap();
    block_on(tree.close()).unwrap();
}

#[test]
fn pages_of_a_file_system_that_has_stopped_keep_no_other_from_being_written() {
    let kernel = Kernel::new(20_000);
    kernel.tasks.1.store(true, SeqCst);
    let disks = Arc::new(Disks::default());
    let [bad, good] = [(); 2].map(|()| Faulty::new(prepared(), Fault::Never));
    block_on(disks.add(&kernel.services, bad.clone()));
    block_on(disks.add(&kernel.services, good.clone()));
    let mounter = Ext4Mounter::new(&kernel.services, &disks);
    let mount = |disk: &[u8]| Process::new(&kernel, block_on(mounter.mount(disk, b"", false)).unwrap());
    let (stopped, healthy) = (mount(b"/dev/vda"), mount(b"/dev/vdb"));
    let write = |process: &Process, path: &str, bytes: &[u8]| {
        let file = process.open(path, OpenFlags::WRONLY).unwrap();
        block_on(file.write_at(bytes, 0)).map(|_| file)
    };
    // Older, and more than one.
    for path in ["/old", "/other"] {
        write(&stopped, path, b"lost").unwrap();
    }
    stopped.chmod("/old", 0o640).unwrap();
    bad.broken.store(true, SeqCst);
    let directory = stopped.open("/many", OpenFlags::DIRECTORY).unwrap();
    stopped.mkdir("/many/d").unwrap();
    assert_eq!(block_on(directory.sync(false)), Err(Errno::EIO));
    kernel.clock.advance(1_000_000);
    assert_eq!(kernel.services.flusher.dirty(), 2);
    // Whatever is dirty is too much.
    kernel.services.flusher.settings.background_ratio.store(0, SeqCst);
    kernel.tasks.1.store(false, SeqCst);
    write(&healthy, "/old", b"this is written").unwrap();
    kernel.clock.advance(1_000_000);
    kernel.tasks.1.store(true, SeqCst);
    (0..20).for_each(|_| kernel.tasks.run_now());
    assert_eq!(kernel.services.flusher.dirty(), 2, "those that can't be");
    assert!(good.bytes().windows(15).any(|bytes| bytes == b"this is written"));
}

#[test]
fn damage_makes_it_read_only_if_it_is_mounted_so() {
    let mut image = prepared();
    let name = b"a rather long name 17";
    // In the journal, too.
    for at in 0..image.len() - name.len() {
        if &image[at..at + name.len()] == name {
            image[at] = b'b';
        }
    }
    for (options, goes_on) in [(&b"errors=remount-ro"[..], false), (b"errors=continue", true), (b"", true)] {
        let disk = Faulty::new(image.clone(), Fault::Never);
        let (kernel, process, tree) = mount_so(&disk, options).unwrap();
        process.mkdir("/before").unwrap();
        assert_eq!(process.list("/many").err(), Some(Errno::EUCLEAN));
        assert_eq!(process.mkdir("/after"), if goes_on { Ok(()) } else { Err(Errno::EROFS) });
        assert_eq!(process.read("/old").unwrap(), content(0, 90_000));
        kernel.run(tree.close()).unwrap();
        assert!(tells_of_errors(&disk.bytes()));
    }
    for unknown in [&b"errors=panic"[..], b"noatime,errors=readonly", b"errors="] {
        assert_eq!(mount_so(&Faulty::new(image.clone(), Fault::Never), unknown).err(), Some(Errno::EINVAL));
    }
}

#[test]
fn each_description_hears_of_an_error_once_and_a_later_one_of_what_nobody_has_heard() {
    let disk = Faulty::new(prepared(), Fault::Never);
    let (_kernel, process, _tree) = mount(&disk).unwrap();
    let open = || process.open("/other", OpenFlags::RDWR).unwrap();
    let (one, two) = (open(), open());
    let object = block_on(one.object()).unwrap();
    block_on(one.write_at(b"new", 0)).unwrap();
    // The data, not the journal.
    disk.broken.store(true, SeqCst);
    assert_eq!(block_on(object.sync(0, 4096)), Err(Errno::EIO));
    disk.broken.store(false, SeqCst);
    let late = open();
    for file in [&one, &two, &late] {
        assert_eq!(block_on(file.sync(false)), Err(Errno::EIO));
        assert_eq!(block_on(file.sync(false)), Ok(()));
    }
    assert_eq!(block_on(open().sync(false)), Ok(()), "all have heard of it");
}
