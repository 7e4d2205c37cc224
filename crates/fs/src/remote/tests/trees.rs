//! File systems of several kernels in one tree of mounts: whatever kernel asks must be told what one kernel that had them all would say.

use super::{objects::Asking, *};
use crate::{
    devfs::Devices,
    tmpfs::{TmpMounter, Tmpfs},
    Base, Caller, Kind, LocalPaths, Services, SetAttributes,
};
use alloc::{format, string::String};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

const KERNELS: usize = 4;
/// How many random trees are tried, and operations on each.
const SEEDS: u64 = 60;
const OPERATIONS: usize = 350;

#[derive(Default)]
pub(super) struct Ticks(Arc<AtomicU64>, AtomicBool);

impl Ticks {
    /// Who waits until a time is woken at it from now on; nobody is in tests that know nothing of time.
    pub fn wakes(&self) {
        self.1.store(true, SeqCst);
    }

    pub fn advance(&self, ns: u64) {
        self.0.fetch_add(ns, SeqCst);
    }
}

impl crate::Clock for Ticks {
    fn realtime(&self) -> crate::Timestamp {
        crate::Timestamp { seconds: self.0.fetch_add(1, SeqCst) as i64, nanoseconds: 0 }
    }
    fn monotonic(&self) -> u64 {
        self.0.fetch_add(1, SeqCst)
    }
    fn at(&self, ns: u64) -> Option<BoxFuture<'static, ()>> {
        let now = self.0.clone();
        let comes = core::future::poll_fn(move |_| match now.load(SeqCst) >= ns {
            true => core::task::Poll::Ready(()),
            false => core::task::Poll::Pending,
        });
        self.1.load(SeqCst).then(|| Box::pin(comes) as BoxFuture<'static, ()>)
    }
}

/// Kernels with a root on kernel 0, and the paths of each.
pub(super) struct World {
    pub machine: Machine,
    pub paths: Vec<Arc<dyn Paths>>,
    pub roots: Vec<Arc<dyn File>>,
    pub tree: Arc<LocalPaths>,
    /// Of each kernel.
    pub parts: Vec<(Arc<Services>, Arc<LocalPaths>)>,
    pub clock: Arc<Ticks>,
}

pub(super) fn world(kernels: usize) -> World {
    let (ram, tasks, clock) = (Arc::<Mutex<Ram>>::default(), Arc::<Tasks>::default(), Arc::<Ticks>::default());
    let mut all = Vec::new();
    let machine = Machine::each(kernels, ram.clone(), tasks.clone(), |me| {
        let services = Services::new(Arc::new(TestMemory(me, ram.clone())), clock.clone(), tasks.clone());
        let paths = match me {
            KernelId(0) => {
                LocalPaths::new(services.clone(), Tmpfs::new(&services, 0o755), Arc::new(Devices::default()))
            }
            _ => LocalPaths::without_root(services.clone()),
        };
        paths.register_kind("tmpfs", Arc::new(TmpMounter { services: services.clone() }));
        all.push((services, paths.clone()));
        Some(paths)
    });
    for ((services, _), kernel) in all.iter().zip(&machine.kernels) {
        services.set_mappers(Arc::new(Asking(kernel.clone(), Mutex::default())));
    }
    let tree = all[0].1.clone();
    tree.set_trees(RemoteTrees::new(&machine.kernels[0]));
    let of =
        |kernel: &Arc<Remote>| Arc::new(AllPaths::new(kernel.clone(), KernelId(0), clock.clone())) as Arc<dyn Paths>;
    let paths: Vec<_> = machine.kernels.iter().map(of).collect();
    let roots = paths.iter().map(|paths| machine.run(paths.root()).unwrap()).collect();
    World { machine, paths, roots, tree, parts: all, clock }
}

impl World {
    pub fn run(&self, kernel: usize, who: &Caller, base: &Base, op: PathOp) -> Result<PathAnswer> {
        self.machine.run(self.paths[kernel].run(who, base, op))
    }

    pub fn base(&self, kernel: usize) -> Base {
        Base::new(self.roots[kernel].clone(), self.roots[kernel].clone())
    }

    pub fn root(&self, kernel: usize, op: PathOp) -> Result<PathAnswer> {
        self.run(kernel, &caller(1), &self.base(kernel), op)
    }

    pub fn open(&self, kernel: usize, path: &str, flags: OpenFlags) -> Result<Arc<dyn File>> {
        match self.root(kernel, open_of(path.as_bytes(), flags))? {
            PathAnswer::File(file) => Ok(file),
            _ => panic!("no file"),
        }
    }

    pub fn mount(&self, kernel: usize, path: &str, on: u16) -> Result<()> {
        self.root(kernel, mount_of(path, &format!("kernel={on}"))).map(drop)
    }

    pub fn unmount(&self, kernel: usize, path: &str) -> Result<()> {
        self.root(kernel, PathOp::Unmount { path: path.into(), flags: 0 }).map(drop)
    }

    pub fn close(&self, file: Arc<dyn File>) {
        self.machine.run(file.close_descriptor(&caller(7)));
    }

    /// What a kernel sends while `act`ing for the third time.
    fn messages<T>(&self, kernel: usize, mut act: impl FnMut() -> T) -> u64 {
        act();
        act();
        self.machine.settle();
        let before = self.machine.kernels[kernel].endpoint.stats().messages_sent();
        act();
        self.machine.kernels[kernel].endpoint.stats().messages_sent() - before
    }
}

fn open_of(path: &[u8], flags: OpenFlags) -> PathOp {
    PathOp::Open { path: path.into(), flags, mode: 0o644, resolve: 0 }
}

pub(super) fn mount_of(path: &str, data: &str) -> PathOp {
    let (source, kind) = (b"none".to_vec(), b"tmpfs".to_vec());
    PathOp::Mount { source, path: path.into(), kind, flags: 0, data: data.into() }
}

pub(super) fn make_dir(path: &str) -> PathOp {
    PathOp::MakeDir { path: path.into(), mode: 0o755 }
}

#[test]
fn files_of_a_mount_cost_its_kernel_nothing_and_others_a_message_a_call() {
    let world = world(3);
    world.root(0, make_dir("/mnt")).unwrap();
    world.root(0, make_dir("/mnt/d")).unwrap();
    world.mount(1, "/mnt/d", 2).unwrap();
    world.root(2, make_dir("/mnt/d/sub")).unwrap();
    for kernel in 0..3 {
        let name = format!("/mnt/d/sub/{kernel}");
        let make = || {
            let file = world.open(kernel, &name, OpenFlags::CREAT | OpenFlags::RDWR).unwrap();
            assert_eq!(world.machine.run(file.write(b"some")), Ok(4));
            world.close(file);
        };
        // open, write and close; the close of who may have locks is told.
        assert_eq!(world.messages(kernel, make), if kernel == 2 { 0 } else { 3 }, "kernel {kernel}");
        let rename = || {
            let (from, to) = (name.clone().into_bytes(), format!("{name}.new").into_bytes());
            world.root(kernel, PathOp::Rename { from: from.clone(), to: to.clone(), flags: 0 }).unwrap();
            world.root(kernel, PathOp::Rename { from: to, to: from, flags: 0 }).unwrap();
        };
        assert_eq!(world.messages(kernel, rename), if kernel == 2 { 0 } else { 2 }, "kernel {kernel}");
        let file = world.open(kernel, &name, OpenFlags::empty()).unwrap();
        assert_eq!(world.machine.run(file.path()), name.as_bytes());
        world.close(file);
    }
    let shown = world.tree.mounts().iter().map(|mount| mount.file_system.kind()).collect::<Vec<_>>();
    assert_eq!(shown, ["tmpfs", "tmpfs"]);
    world.unmount(1, "/mnt/d").unwrap();
    assert_eq!(world.open(2, "/mnt/d/sub", OpenFlags::empty()).err(), Some(Errno::ENOENT));
}

#[test]
fn a_mount_in_use_on_any_kernel_is_busy_and_what_its_kernel_had_dies_with_it() {
    let world = world(4);
    world.root(0, make_dir("/d")).unwrap();
    world.mount(0, "/d", 2).unwrap();
    let file = world.open(3, "/d/f", OpenFlags::CREAT | OpenFlags::RDWR).unwrap();
    world.machine.run(file.write(b"lost")).unwrap();
    for kernel in 0..4 {
        assert_eq!(world.unmount(kernel, "/d"), Err(Errno::EBUSY));
    }
    let directory = world.open(1, "/d", OpenFlags::PATH | OpenFlags::DIRECTORY).unwrap();
    let read = world.open(1, "/d/f", OpenFlags::empty()).unwrap();
    assert_eq!(world.machine.run(read.read_at(&mut [0; 9], 0)), Ok(4));
    world.machine.dies(2, &[0, 1, 3]);
    world.machine.is_mourned(2, &[0, 1, 3]);
    assert_eq!(world.machine.run(file.write(b"more")), Err(Errno::EIO));
    assert_eq!(world.machine.run(read.read_at(&mut [0; 9], 0)), Err(Errno::EIO));
    for kernel in [0, 1, 3] {
        let stat = PathOp::Stat { path: b"/d/f".to_vec(), follow: true, empty_ok: false };
        assert_eq!(world.root(kernel, stat).err(), Some(Errno::EIO), "kernel {kernel}");
        assert_eq!(world.open(kernel, "/d/g", OpenFlags::CREAT | OpenFlags::RDWR).err(), Some(Errno::EIO));
        let base = Base::new(world.roots[kernel].clone(), directory.clone());
        if kernel == 1 {
            assert_eq!(world.run(1, &caller(1), &base, make_dir("x")).err(), Some(Errno::EIO));
        }
    }
    drop((file, read, directory));
    world.unmount(3, "/d").unwrap();
    world.root(1, make_dir("/d/below")).unwrap();
    world.mount(1, "/d", 3).unwrap();
    world.root(0, make_dir("/d/above")).unwrap();
    world.unmount(0, "/d").unwrap();
    world.machine.settle();
    assert_eq!(world.machine.kernels[3].exported(), 0);
}

/// A generator of numbers (Marsaglia's xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % limit
    }

    fn one_in(&mut self, chances: usize) -> bool {
        self.below(chances) == 0
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    fn path(&mut self) -> Vec<u8> {
        let mut path = Vec::new();
        if !self.one_in(3) {
            path.push(b'/');
        }
        for index in 0..1 + self.below(4) {
            if index > 0 {
                path.push(b'/');
            }
            path.extend(self.pick(&["a", "b", "c", "d", "e", "l", "d", "..", "."]).bytes());
        }
        if self.one_in(8) {
            path.push(b'/');
        }
        path
    }

    fn operation(&mut self) -> PathOp {
        let (path, follow) = (self.path(), self.one_in(2));
        let access = OpenFlags::CREAT | OpenFlags::RDWR;
        match self.below(22) {
            0..6 => {
                let flags = [
                    OpenFlags::empty(),
                    access,
                    access,
                    access | OpenFlags::EXCL,
                    OpenFlags::RDWR,
                    OpenFlags::RDWR | OpenFlags::TRUNC,
                    OpenFlags::DIRECTORY,
                    OpenFlags::NOFOLLOW,
                    OpenFlags::PATH,
                    OpenFlags::PATH | OpenFlags::DIRECTORY,
                ];
                let resolve = if self.one_in(6) { self.pick(&[1, 4, 8, 16]) } else { 0 };
                PathOp::Open { path, flags: self.pick(&flags), mode: 0o644, resolve }
            }
            6..9 => PathOp::Stat { path, follow, empty_ok: false },
            9 => PathOp::Access { path, mode: self.below(8) as u32, effective: true, follow, empty_ok: false },
            10 => PathOp::ReadLink { path, empty_ok: false },
            11..14 => PathOp::MakeDir { path, mode: self.pick(&[0o755, 0o700]) },
            14 => PathOp::Symlink { target: self.path(), path },
            15 => PathOp::Link { from: path, to: self.path(), follow, empty_ok: false },
            16 | 17 => PathOp::Rename { from: path, to: self.path(), flags: self.pick(&[0, 0, 1, 2]) },
            18 => PathOp::Unlink { path, directory: self.one_in(2) },
            19 => {
                let set = SetAttributes { mode: Some(self.pick(&[0o600, 0o755, 0o777])), ..SetAttributes::default() };
                PathOp::SetAttributes { path, follow: true, empty_ok: false, set }
            }
            20 => PathOp::Unmount { path: self.pick(&["/d", "/e", "d"]).into(), flags: 0 },
            _ => PathOp::StatFs { path },
        }
    }
}

/// A file that is open here and there.
struct Pair {
    kernel: usize,
    model: Arc<dyn File>,
    file: Arc<dyn File>,
    is_directory: bool,
}

/// What of an answer does not depend on numbers of file systems.
fn described(world: &World, file: &Arc<dyn File>) -> String {
    let about = world.machine.run(file.attributes());
    let about =
        about.map(|found| (found.mode, found.uid, found.size, found.kind() == Kind::Directory || found.nlink > 0));
    let path = String::from_utf8(world.machine.run(file.path())).unwrap();
    let mut data = vec![0; 100];
    let read = world.machine.run(file.read_at(&mut data, 0)).map(|count| data[..count].to_vec());
    let mut names: Vec<_> = match world.machine.run(file.read_dir(4096)) {
        Ok(entries) => entries.into_iter().map(|entry| (entry.name, entry.d_type)).collect(),
        Err(error) => vec![(format!("{error:?}").into(), 0)],
    };
    names.sort();
    format!("{about:?} {path} {read:?} {names:?}")
}

fn shown(world: &World, answer: &Result<PathAnswer>) -> String {
    match answer {
        Err(error) => format!("{error:?}"),
        Ok(PathAnswer::Done) => "done".into(),
        Ok(PathAnswer::File(file)) => described(world, file),
        Ok(PathAnswer::Attributes(found)) => format!("{:o} {} {} {}", found.mode, found.uid, found.size, found.nlink),
        Ok(PathAnswer::FileSystem(info)) => format!("{:x}", info.kind),
        Ok(PathAnswer::Bytes(bytes)) => format!("{bytes:?}"),
        Ok(PathAnswer::Number(number)) => format!("{number}"),
        Ok(PathAnswer::GoesOn(_)) => "goes on".into(),
    }
}

fn compare(seed: u64) {
    let (world, model, mut random) = (world(KERNELS), world(1), Random(seed * 2654435761 + 88172645463325252));
    for (path, on) in [("/d", 2), ("/e", 3)] {
        world.root(0, make_dir(path)).unwrap();
        model.root(0, make_dir(path)).unwrap();
        world.mount(0, path, on).unwrap();
        model.mount(0, path, 0).unwrap();
    }
    let mut open: Vec<Pair> = Vec::new();
    for step in 0..OPERATIONS {
        let kernel = random.below(KERNELS);
        let (mut base, mut wanted) = (world.base(kernel), model.base(0));
        for place in 0..3 {
            let directories: Vec<_> = open.iter().filter(|pair| pair.kernel == kernel && pair.is_directory).collect();
            if directories.is_empty() || !random.one_in(if place == 0 { 8 } else { 2 }) {
                continue;
            }
            let pair = directories[random.below(directories.len())];
            match place {
                0 => (base.root, wanted.root) = (pair.file.clone(), pair.model.clone()),
                1 => (base.at, wanted.at) = (pair.file.clone(), pair.model.clone()),
                _ => (base.to, wanted.to) = (Some(pair.file.clone()), Some(pair.model.clone())),
            }
        }
        let who = if random.one_in(4) { user(7, 1000) } else { caller(7) };
        let mut op = random.operation();
        if let PathOp::Unmount { path, .. } = &op
            && random.one_in(2)
        {
            let path = String::from_utf8(path.clone()).unwrap();
            op = mount_of(&path, "");
        }
        let there = match &op {
            PathOp::Mount { path, .. } => mount_of(core::str::from_utf8(path).unwrap(), "kernel=2"),
            op => op.clone(),
        };
        let (got, want) = (world.run(kernel, &who, &base, there), model.run(0, &who, &wanted, op.clone()));
        // A mount that would lie on another kernel's directory is refused.
        if got.as_ref().err() == Some(&Errno::EOPNOTSUPP) && matches!(op, PathOp::Mount { .. }) && want.is_ok() {
            let path = op.path(false).unwrap().clone();
            model.run(0, &who, &wanted, PathOp::Unmount { path, flags: 0 }).unwrap();
            continue;
        }
        let (got_text, want_text) = (shown(&world, &got), shown(&model, &want));
        assert_eq!(got_text, want_text, "seed {seed}, step {step}, kernel {kernel}: {op:?}");
        if let (Ok(PathAnswer::File(file)), Ok(PathAnswer::File(model_file))) = (got, want) {
            let is_directory = world.machine.run(file.attributes()).unwrap().kind() == Kind::Directory;
            if random.one_in(2) {
                let data = [step as u8; 3];
                let written = world.machine.run(file.write(&data));
                assert_eq!(written, model.machine.run(model_file.write(&data)), "seed {seed}, step {step}");
            }
            open.push(Pair { kernel, model: model_file, file, is_directory });
        }
        while open.len() > 6 || !open.is_empty() && random.one_in(4) {
            let pair = open.swap_remove(random.below(open.len()));
            let (got, want) = (described(&world, &pair.file), described(&model, &pair.model));
            assert_eq!(got, want, "seed {seed}, step {step}: an open file on kernel {}", pair.kernel);
            world.close(pair.file);
            model.close(pair.model);
        }
    }
    for pair in open {
        world.close(pair.file);
    }
    for path in ["/d", "/e"] {
        while world.unmount(1, path).is_ok() {}
    }
    world.machine.settle();
    for kernel in [2, 3] {
        assert_eq!(world.machine.kernels[kernel].exported(), 0, "seed {seed}: kernel {kernel}");
    }
}

#[test]
fn all_kernels_see_one_tree() {
    (1..=SEEDS).for_each(compare);
}

type Program = core::pin::Pin<Box<dyn core::future::Future<Output = Result<Ended>>>>;

/// What a program at /d did, until it was through or /d's kernel was dead.
#[derive(PartialEq)]
enum Ended {
    Through,
    Lost,
}

/// A program with names of its own in /d, which locks a file with the others to count in it. Whatever the others do, each call has one right answer; or EIO.
async fn work(paths: Arc<dyn Paths>, root: Arc<dyn File>, number: u32, rounds: usize, seed: u64) -> Result<Ended> {
    // A process of its own: the waits of all tests for locks are in one list.
    let (who, base) = (caller(1_000_000 + seed as u32 * 16 + number), Base::new(root.clone(), root));
    let own = format!("/d/own{number}");
    let run = async |base: &Base, op: PathOp| paths.run(&who, base, op).await;
    let open = async |base: &Base, path: &str, flags| match run(base, open_of(path.as_bytes(), flags)).await? {
        PathAnswer::File(file) => Ok::<_, Errno>(file),
        _ => panic!("no file"),
    };
    let expect = |answer: Result<PathAnswer>, wanted: Errno| match answer.err() {
        Some(Errno::EIO) => Err(Errno::EIO),
        error => {
            assert_eq!(error, Some(wanted));
            Ok(())
        }
    };
    let make = OpenFlags::CREAT | OpenFlags::RDWR;
    for round in 0..rounds {
        let file = open(&base, &own, make | OpenFlags::EXCL).await?;
        expect(run(&base, make_dir(&own)).await, Errno::EEXIST)?;
        file.write(&[1; 7][..1 + round % 7]).await?;
        file.close_descriptor(&who).await;
        let directory = open(&base, "/d/../d", OpenFlags::PATH | OpenFlags::DIRECTORY).await?;
        let here = Base::new(base.root.clone(), directory);
        let (from, to) = (own.clone().into_bytes(), format!("sub/moved{number}").into_bytes());
        run(&here, PathOp::Rename { from, to: to.clone(), flags: 0 }).await?;
        let stat = |path: &[u8]| PathOp::Stat { path: path.into(), follow: true, empty_ok: false };
        match run(&here, stat(&to)).await? {
            PathAnswer::Attributes(found) => assert_eq!(found.size, 1 + round as u64 % 7),
            _ => panic!("no attributes"),
        }
        expect(run(&base, stat(own.as_bytes())).await, Errno::ENOENT)?;
        let far = format!("/e/far{number}").into_bytes();
        expect(run(&here, PathOp::Rename { from: to.clone(), to: far.clone(), flags: 0 }).await, Errno::EXDEV)?;
        let link = PathOp::Link { from: to.clone(), to: far, follow: false, empty_ok: false };
        expect(run(&here, link).await, Errno::EXDEV)?;
        // Through a link of the root, from below.
        run(&here, stat(format!("../into/moved{number}").as_bytes())).await?;
        run(&here, PathOp::Unlink { path: to.clone(), directory: false }).await?;
        expect(run(&here, stat(&to)).await, Errno::ENOENT)?;
        drop(here);
        let file = open(&base, "/d/counter", make).await?;
        let lock = |mode| abi::LockOp::Set {
            range: abi::LockRange { start: 0, end: u64::MAX },
            mode,
            wait: true,
            description: false,
        };
        file.lock(&who, lock(abi::LockMode::Exclusive)).await?;
        let mut count = [0];
        file.read_at(&mut count, 0).await?;
        file.write_at(&[count[0] + 1], 0).await?;
        file.lock(&who, lock(abi::LockMode::Unlock)).await?;
        file.close_descriptor(&who).await;
    }
    Ok(Ended::Through)
}

/// Programs on all kernels, every message and task a step, in an order that the seed gives; in every second one the kernel of /d dies.
fn storm(seed: u64) {
    const ROUNDS: usize = 3;
    let (world, mut random) = (world(KERNELS), Random(seed * 2654435761 + 88172645463325252));
    let dies = seed.is_multiple_of(2);
    for (path, on) in [("/d", 2), ("/e", 3)] {
        world.root(0, make_dir(path)).unwrap();
        world.mount(0, path, on).unwrap();
    }
    world.root(3, make_dir("/d/sub")).unwrap();
    world.root(1, PathOp::Symlink { target: b"/d/sub".into(), path: b"/into".into() }).unwrap();
    let mut programs: Vec<_> = (0..KERNELS)
        .map(|kernel| {
            let (paths, root) = (world.paths[kernel].clone(), world.roots[kernel].clone());
            let work: Program = Box::pin(work(paths, root, kernel as u32, ROUNDS, seed));
            (kernel, Some(work))
        })
        .collect();
    let mut ended = Vec::new();
    let (mut to_die, mut steps) = (200 + random.below(3000), 0);
    let mut survivors: Vec<usize> = vec![0, 1, 3];
    let mut unaware: Vec<usize> = Vec::new();
    while programs.iter().any(|(_, work)| work.is_some()) {
        steps += 1;
        assert!(steps < 2_000_000, "seed {seed}: something hangs");
        if dies && steps == to_die {
            programs[2].1 = None;
            unaware = survivors.clone();
            to_die = 0;
        }
        if !unaware.is_empty() && random.one_in(50) {
            let by = unaware.swap_remove(random.below(unaware.len()));
            world.machine.kernels[by].endpoint.declare_dead(KernelId(2));
            world.machine.kernels[by].kernel_died(KernelId(2));
        }
        match random.below(3) {
            0 => {
                let kernel = random.below(KERNELS);
                if kernel != 2 || to_die > 0 {
                    world.machine.kernels[kernel].endpoint.drain(1 + random.below(3));
                }
            }
            1 => {
                let task = {
                    let mut tasks = world.machine.tasks.0.lock().unwrap();
                    let count = tasks.len();
                    (count > 0).then(|| tasks.swap_remove(random.below(count)))
                };
                if let Some(mut task) = task
                    && once(task.as_mut()).is_none()
                {
                    world.machine.tasks.0.lock().unwrap().push(task);
                }
            }
            _ => {
                let (_, program) = &mut programs[random.below(KERNELS)];
                let Some(work) = program else { continue };
                if let Some(result) = once(work.as_mut()) {
                    *program = None;
                    ended.push(match result {
                        Ok(ended) => ended,
                        Err(error) => {
                            assert_eq!((error, dies && to_die == 0), (Errno::EIO, true), "seed {seed}");
                            Ended::Lost
                        }
                    });
                }
            }
        }
    }
    let died = dies && to_die == 0;
    if died {
        world.machine.dies(2, &unaware);
        world.machine.is_mourned(2, &survivors);
    } else {
        survivors.push(2);
        assert!(ended.iter().all(|ended| *ended == Ended::Through));
        let file = world.open(1, "/d/counter", OpenFlags::empty()).unwrap();
        let mut count = [0];
        world.machine.run(file.read_at(&mut count, 0)).unwrap();
        assert_eq!(usize::from(count[0]), KERNELS * ROUNDS, "seed {seed}: a lock was nobody's");
        world.close(file);
    }
    world.machine.settle();
    for path in ["/d", "/e"] {
        assert_eq!(world.unmount(1, path), Ok(()), "seed {seed}: {path}");
    }
    world.machine.settle();
    for kernel in survivors.into_iter().filter(|kernel| *kernel != 0) {
        assert_eq!(world.machine.kernels[kernel].exported(), 0, "seed {seed}: kernel {kernel}");
    }
}

#[test]
fn programs_on_all_kernels_have_right_answers_in_any_order_and_a_death_ends_none_of_the_others() {
    (1..=SEEDS * 2).for_each(storm);
}
