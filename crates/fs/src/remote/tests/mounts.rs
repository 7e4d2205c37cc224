//! Taking away file systems of other kernels: what fails there, what is in use there, and who stops waiting.

use super::{
    objects::Asking,
    trees::{make_dir, world, World},
    *,
};
use crate::{
    inode::{Lent, Mounter, Placed},
    tmpfs::Tmpfs,
    FileSystem, Inode, Lost, MappingUse, Services,
};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

const SECOND: u64 = 1_000_000_000;
const DETACH: u32 = 2;

/// What becomes of a file system on kernel 2, whose disk kernel 0 has lent to it.
#[derive(Default)]
struct Disk {
    /// What is written to it fails.
    fails: AtomicBool,
    synced: AtomicU64,
    closed: AtomicU64,
    returned: AtomicU64,
}

impl Disk {
    /// How often the file system was closed, and the disk returned.
    fn ends(&self) -> (u64, u64) {
        (self.closed.load(SeqCst), self.returned.load(SeqCst))
    }
}

struct Loan(Arc<Disk>);

impl Lent for Loan {
    fn returned(self: Arc<Self>) -> BoxFuture<'static, ()> {
        self.0.returned.fetch_add(1, SeqCst);
        crate::file::ready(())
    }
}

struct OnDisk(Arc<Tmpfs>, Arc<Disk>);

impl FileSystem for OnDisk {
    fn kind(&self) -> &'static str {
        "disk"
    }

    fn root(&self) -> Arc<dyn Inode> {
        self.0.root()
    }

    fn sync(&self) -> BoxFuture<'_, Result<()>> {
        self.1.synced.fetch_add(1, SeqCst);
        crate::file::ready(if self.1.fails.load(SeqCst) { Err(Errno::EIO) } else { Ok(()) })
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        self.1.closed.fetch_add(1, SeqCst);
        self.sync()
    }
}

struct DiskMounter(Arc<Services>, Arc<Disk>);

impl Mounter for DiskMounter {
    fn place<'a>(&'a self, _source: &'a [u8], _data: &'a [u8]) -> BoxFuture<'a, Result<Option<Placed>>> {
        let lent: Arc<dyn Lent> = Arc::new(Loan(self.1.clone()));
        crate::file::ready(Ok(Some(Placed { kernel: KernelId(2), disk: None, lent: Some(lent) })))
    }

    fn mount<'a>(
        &'a self,
        _source: &'a [u8],
        _data: &'a [u8],
        _read_only: bool,
    ) -> BoxFuture<'a, Result<Arc<dyn FileSystem>>> {
        let mounted: Arc<dyn FileSystem> = Arc::new(OnDisk(Tmpfs::new(&self.0, 0o755), self.1.clone()));
        crate::file::ready(Ok(mounted))
    }
}

/// Four kernels; the third has a disk, which is mounted at `path`.
fn with_disk(path: &str) -> (World, Arc<Disk>) {
    let (world, disk) = (world(4), Arc::<Disk>::default());
    world.clock.wakes();
    for (services, paths) in &world.parts {
        paths.register_kind("disk", Arc::new(DiskMounter(services.clone(), disk.clone())));
    }
    world.root(0, make_dir(path)).unwrap();
    mount(&world, path).unwrap();
    (world, disk)
}

fn mount(world: &World, path: &str) -> Result<()> {
    let (source, kind) = (b"/dev/disk".to_vec(), b"disk".to_vec());
    world.root(1, PathOp::Mount { source, path: path.into(), kind, flags: 0, data: Vec::new() }).map(drop)
}

fn make(world: &World, kernel: usize, path: &str) -> Arc<dyn File> {
    world.open(kernel, path, OpenFlags::CREAT | OpenFlags::RDWR).unwrap()
}

fn find(world: &World, kernel: usize, path: &str) -> Option<Errno> {
    world.open(kernel, path, OpenFlags::PATH).map(|file| world.close(file)).err()
}

fn seconds_pass(world: &World) {
    for _ in 0..3 {
        world.clock.advance(SECOND);
        world.machine.settle();
    }
}

#[test]
fn what_is_busy_keeps_its_disk_and_what_can_not_be_written_back_is_taken_away_all_the_same() {
    let (world, disk) = with_disk("/d");
    let file = make(&world, 3, "/d/f");
    disk.fails.store(true, SeqCst);
    for kernel in 0..4 {
        assert_eq!(world.unmount(kernel, "/d"), Err(Errno::EBUSY));
        assert_eq!((find(&world, kernel, "/d/f"), disk.ends()), (None, (0, 0)), "kernel {kernel}");
    }
    world.close(file);
    world.unmount(1, "/d").unwrap();
    assert_eq!(disk.ends(), (1, 1));
    assert_eq!(find(&world, 3, "/d/f"), Some(Errno::ENOENT));
    world.machine.settle();
    assert_eq!(world.machine.kernels[2].exported(), 0);
}

#[test]
fn a_busy_one_that_is_detached_is_closed_after_its_last_use_and_its_disk_returned() {
    for hangs_on_another in [false, true] {
        let (world, disk) = with_disk("/d");
        let (mut path, mut top) = ("/d", "/d");
        if hangs_on_another {
            world.unmount(0, "/d").unwrap();
            disk.closed.store(0, SeqCst);
            disk.returned.store(0, SeqCst);
            world.mount(0, "/d", 0).unwrap();
            world.root(0, make_dir("/d/in")).unwrap();
            mount(&world, "/d/in").unwrap();
            (path, top) = ("/d/in", "/d");
        }
        let name = alloc::format!("{path}/f");
        let file = make(&world, 3, &name);
        world.root(1, PathOp::Unmount { path: top.into(), flags: DETACH }).unwrap();
        for kernel in 0..4 {
            assert_eq!(find(&world, kernel, &name), Some(Errno::ENOENT), "kernel {kernel}");
        }
        assert_eq!(world.unmount(0, top), Err(Errno::EINVAL));
        seconds_pass(&world);
        // From then on it is only looked whether it is busy still.
        let synced = disk.synced.load(SeqCst);
        seconds_pass(&world);
        assert_eq!(disk.synced.load(SeqCst), synced);
        assert_eq!(world.machine.run(file.write(b"works")), Ok(5));
        assert_eq!(disk.ends(), (0, 0));
        world.close(file);
        seconds_pass(&world);
        assert_eq!(disk.ends(), (1, 1));
        assert_eq!(world.machine.kernels[2].exported(), 0);
        assert_eq!(mount(&world, "/d"), Ok(()));
    }
}

struct Maps(Asking, Arc<AtomicU64>);

impl Mappers for Maps {
    fn lost(&self, lost: Lost) -> BoxFuture<'_, ()> {
        self.0.lost(lost)
    }
    fn recall(&self, others: KernelSet, lost: Lost) -> BoxFuture<'_, KernelSet> {
        self.0.recall(others, lost)
    }
    fn uses(&self, _: ObjectId, _: MappingUse) -> BoxFuture<'_, u64> {
        crate::file::ready(self.1.load(SeqCst))
    }
}

#[test]
fn a_mapping_of_a_closed_file_keeps_its_mount_on_the_kernel_that_has_it() {
    let (world, disk) = with_disk("/d");
    let maps = Arc::new(AtomicU64::new(0));
    let asking = Asking(world.machine.kernels[2].clone(), Mutex::default());
    world.parts[2].0.set_mappers(Arc::new(Maps(asking, maps.clone())));
    let file = make(&world, 2, "/d/f");
    let object = world.machine.run(file.object()).unwrap();
    world.close(file);
    maps.store(1, SeqCst);
    assert_eq!(world.unmount(1, "/d"), Err(Errno::EBUSY));
    maps.store(0, SeqCst);
    drop(object);
    world.unmount(1, "/d").unwrap();
    assert_eq!(disk.ends(), (1, 1));
}

#[test]
fn a_program_that_is_killed_while_it_unmounts_leaves_it_mounted_or_not() {
    for steps in 0..12 {
        let (world, disk) = with_disk("/d");
        world.close(make(&world, 3, "/d/f"));
        {
            let (who, base) = (caller(1), world.base(0));
            let mut unmounting = world.paths[0].run(&who, &base, PathOp::Unmount { path: b"/d".into(), flags: 0 });
            for step in 0..steps {
                let _ = once(unmounting.as_mut());
                world.machine.kernels[[2, 0][step % 2]].endpoint.drain(1000);
                world.machine.run_tasks();
            }
        }
        world.machine.settle();
        let (mounted, ends) = (world.tree.mounts().len() == 2, disk.ends());
        assert_eq!(ends, if mounted { (0, 0) } else { (1, 1) }, "{steps} steps");
        let wanted = if mounted { None } else { Some(Errno::ENOENT) };
        assert_eq!(find(&world, 1, "/d/f"), wanted, "{steps} steps");
    }
}

#[test]
fn nothing_is_mounted_on_what_hangs_nowhere() {
    let world = world(2);
    world.root(0, make_dir("/d")).unwrap();
    world.mount(0, "/d", 0).unwrap();
    world.root(0, make_dir("/d/in")).unwrap();
    let inside = world.open(0, "/d", OpenFlags::PATH | OpenFlags::DIRECTORY).unwrap();
    world.root(0, PathOp::Unmount { path: b"/d".into(), flags: DETACH }).unwrap();
    let base = crate::Base::new(world.roots[0].clone(), inside);
    // As on Linux.
    let op = super::trees::mount_of("in", "");
    assert_eq!(world.run(0, &caller(1), &base, op).err(), Some(Errno::ENOENT));
}
