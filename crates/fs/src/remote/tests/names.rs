//! Answers about paths that other kernels keep, and files they open by themselves.

use super::{objects::Asking, *};
use crate::{
    devfs::Devices,
    inode::{Inode, NewNode},
    lease::Sharers,
    tmpfs::Tmpfs,
    Attributes, Base, Caller, Clock, FileSystem, FileSystemInfo, Kind, LocalPaths, Services, SetAttributes, SetWhen,
    Timestamp, Whence, WriteErrors, XattrOp,
};
use core::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// Goes on by a second whenever it is read.
#[derive(Default)]
struct Seconds(AtomicU64);

impl Clock for Seconds {
    fn realtime(&self) -> Timestamp {
        Timestamp { seconds: self.0.fetch_add(1, SeqCst) as i64, nanoseconds: 0 }
    }
    fn monotonic(&self) -> u64 {
        self.0.load(SeqCst) * 1_000_000_000
    }
}

/// A tree that takes its time: attributes are on their way for a while after they were looked at, as from a host.
struct Slow {
    inner: Arc<dyn Inode>,
    sharers: Sharers,
    errors: WriteErrors,
}

struct SlowTree(Arc<dyn Inode>);

fn slow(inner: Arc<dyn Inode>) -> Arc<dyn Inode> {
    Arc::new(Slow { inner, sharers: Sharers::default(), errors: WriteErrors::default() })
}

fn under(node: &Arc<dyn Inode>) -> &Arc<dyn Inode> {
    &(**node).as_any().downcast_ref::<Slow>().unwrap().inner
}

/// Lets others have a turn.
async fn turn() {
    let mut over = false;
    core::future::poll_fn(|_| match core::mem::replace(&mut over, true) {
        true => core::task::Poll::Ready(()),
        false => core::task::Poll::Pending,
    })
    .await
}

impl Inode for Slow {
    fn as_any(&self) -> &dyn core::any::Any {
        self
    }
    fn kind(&self) -> Kind {
        self.inner.kind()
    }
    fn ino(&self) -> u64 {
        self.inner.ino()
    }
    fn attributes(&self) -> BoxFuture<'_, Result<Attributes>> {
        Box::pin(async move {
            let found = self.inner.attributes().await;
            turn().await;
            found
        })
    }
    fn set(&self, set: SetAttributes) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            turn().await;
            self.inner.set(set).await
        })
    }
    fn info(&self) -> BoxFuture<'_, Result<FileSystemInfo>> {
        self.inner.info()
    }
    fn sharers(&self) -> Option<&Sharers> {
        Some(&self.sharers)
    }
    fn write_errors(&self) -> Option<&WriteErrors> {
        Some(&self.errors)
    }
    fn lookup<'a>(&'a self, caller: &'a Caller, name: &'a [u8]) -> BoxFuture<'a, Result<Arc<dyn Inode>>> {
        Box::pin(async move { Ok(slow(self.inner.lookup(caller, name).await?)) })
    }
    fn create<'a>(&'a self, name: &'a [u8], new: NewNode) -> BoxFuture<'a, Result<Arc<dyn Inode>>> {
        Box::pin(async move {
            turn().await;
            Ok(slow(self.inner.create(name, new).await?))
        })
    }
    fn unlink<'a>(&'a self, name: &'a [u8], node: &'a Arc<dyn Inode>) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.inner.unlink(name, under(node)).await })
    }
}

impl FileSystem for SlowTree {
    fn kind(&self) -> &'static str {
        "slow"
    }
    fn root(&self) -> Arc<dyn Inode> {
        self.0.clone()
    }
}

/// A tree on kernel 0, and paths of all kernels.
pub(super) struct World {
    pub machine: Machine,
    pub services: Arc<Services>,
    paths: Vec<Arc<dyn Paths>>,
    bases: Vec<Base>,
}

pub(super) fn world(kernels: usize) -> World {
    world_over(kernels, |tree| tree)
}

fn world_over(kernels: usize, over: impl FnOnce(Arc<dyn FileSystem>) -> Arc<dyn FileSystem>) -> World {
    let clock = Arc::new(Seconds::default());
    let mut made = None;
    let machine = Machine::with(kernels, |ram, tasks| {
        let memory = Arc::new(TestMemory(KernelId(0), ram.clone()));
        let services = Services::new(memory, clock.clone(), tasks.clone());
        let tree = LocalPaths::new(services.clone(), over(Tmpfs::new(&services, 0o755)), Arc::new(Devices::default()));
        made = Some((services, tree.clone()));
        tree
    });
    let (services, tree) = made.unwrap();
    services.set_mappers(Arc::new(Asking(machine.kernels[0].clone(), Mutex::default())));
    let remote = |kernel: &Arc<Remote>| Arc::new(AllPaths::new(kernel.clone(), KernelId(0), clock.clone())) as _;
    let mut paths: Vec<Arc<dyn Paths>> = vec![tree.clone()];
    paths.extend(machine.kernels[1..].iter().map(remote));
    let bases = paths
        .iter()
        .map(|paths| {
            let root = machine.run(paths.root()).unwrap();
            Base::new(root.clone(), root)
        })
        .collect();
    World { machine, services, paths, bases }
}

fn stat_of(path: &str) -> PathOp {
    PathOp::Stat { path: path.into(), follow: true, empty_ok: false }
}

impl World {
    fn run(&self, kernel: usize, who: &Caller, op: PathOp) -> Result<PathAnswer> {
        self.machine.run(self.paths[kernel].run(who, &self.bases[kernel], op))
    }

    pub fn root(&self, kernel: usize, op: PathOp) -> Result<PathAnswer> {
        self.run(kernel, &caller(1), op)
    }

    pub fn stat(&self, kernel: usize, path: &str) -> Result<Attributes> {
        match self.root(kernel, stat_of(path))? {
            PathAnswer::Attributes(found) => Ok(*found),
            _ => panic!("no attributes"),
        }
    }

    pub fn open(&self, kernel: usize, path: &str, flags: OpenFlags) -> Result<Arc<dyn File>> {
        match self.root(kernel, PathOp::Open { path: path.into(), flags, mode: 0o644, resolve: 0 })? {
            PathAnswer::File(file) => Ok(file),
            _ => panic!("no file"),
        }
    }

    pub fn put(&self, path: &str, data: &[u8]) {
        let file = self.open(0, path, OpenFlags::CREAT | OpenFlags::RDWR).unwrap();
        assert_eq!(self.machine.run(file.write(data)), Ok(data.len()));
        // Read once, so that the next read notes nothing.
        assert_eq!(self.machine.run(file.read_at(&mut [0; 1], 0)), Ok(data.len().min(1)));
    }

    pub fn close(&self, file: Arc<dyn File>) {
        self.machine.run(async {
            file.closed(&caller(1)).await;
            crate::file::close(file).await;
        });
    }

    fn contents(&self, file: &Arc<dyn File>) -> Vec<u8> {
        let mut data = [0; 100];
        let count = self.machine.run(file.read_at(&mut data, 0)).unwrap();
        data[..count].to_vec()
    }

    /// What kernel 1 sends while `act`ing for the second time.
    pub fn messages<T>(&self, mut act: impl FnMut() -> T) -> u64 {
        act();
        self.machine.settle();
        let before = self.machine.kernels[1].endpoint.stats().messages_sent();
        act();
        self.machine.settle();
        self.machine.kernels[1].endpoint.stats().messages_sent() - before
    }
}

#[test]
fn what_nobody_changes_is_asked_for_once() {
    let world = world(2);
    world.root(0, PathOp::MakeDir { path: "/d".into(), mode: 0o755 }).unwrap();
    world.root(0, PathOp::Symlink { target: "f".into(), path: "/d/l".into() }).unwrap();
    world.put("/d/f", b"hello");
    assert_eq!(world.messages(|| world.stat(1, "/d/f").unwrap().size), 0);
    assert_eq!(world.messages(|| world.stat(1, "d/l").unwrap().size), 0);
    assert_eq!(world.messages(|| world.stat(1, "/d/none").err()), 0);
    assert_eq!(world.messages(|| world.stat(1, "/d/f/none").err()), 0);
    let may = || PathOp::Access { path: "/d/f".into(), mode: 1, effective: true, follow: true, empty_ok: false };
    let nobody = user(1, 5);
    assert_eq!(world.messages(|| world.run(1, &nobody, may()).err()), 0);
    assert_eq!(world.run(1, &nobody, may()).err(), Some(Errno::EACCES));
    let link = || PathOp::ReadLink { path: "/d/l".into(), empty_ok: false };
    assert_eq!(world.messages(|| world.root(1, link()).is_ok()), 0);
    let reads = || {
        let file = world.open(1, "/d/f", OpenFlags::empty()).unwrap();
        let mut part = [0; 3];
        assert_eq!(world.machine.run(file.read(&mut part)), Ok(3));
        assert_eq!(world.machine.run(file.seek(-2, Whence::Current)), Ok(1));
        assert_eq!(world.machine.run(file.seek(0, Whence::End)), Ok(5));
        assert_eq!(world.machine.run(file.write(b"x")), Err(Errno::EBADF));
        assert_eq!(world.contents(&file), b"hello");
        assert_eq!(world.machine.run(file.attributes()).unwrap().size, 5);
        drop(file);
    };
    reads();
    assert_eq!(world.messages(reads), 0);
    let opens = || world.close(world.open(1, "/d/f", OpenFlags::RDWR).unwrap());
    opens();
    assert_eq!(world.messages(opens), 0);
    let opens = || world.close(world.open(1, "/d/l", OpenFlags::empty()).unwrap());
    assert_eq!(world.messages(opens), 0);
    world.machine.kernels[1].reclaim();
    world.machine.settle();
    assert_eq!(world.machine.kernels[0].exported(), 1, "the root directory");
}

#[test]
fn attributes_of_other_kernels_cost_a_message_and_change_what_was_kept() {
    let world = world(2);
    world.put("/f", b"hello");
    let run = |kernel, op| match world.root(kernel, PathOp::Xattr { path: "/f".into(), follow: true, op }) {
        Ok(PathAnswer::Bytes(bytes)) => Ok(bytes),
        Ok(_) => panic!("no bytes"),
        Err(error) => Err(error),
    };
    let get = |kernel, name: &str| run(kernel, XattrOp::Get { name: name.into() });
    let set = |kernel, name: &str, value: &[u8]| {
        run(kernel, XattrOp::Set { name: name.into(), value: value.into(), when: SetWhen::ALWAYS }).map(drop)
    };
    // So much goes in pieces, which are told as one message.
    let long = vec![7; 65536];
    assert_eq!(world.messages(|| set(1, "user.a", &long).unwrap()), 1);
    assert_eq!(world.messages(|| assert_eq!(get(1, "user.a").as_ref(), Ok(&long))), 1);
    let file = world.open(1, "/f", OpenFlags::empty()).unwrap();
    let by_file = || world.machine.run(file.xattr(&caller(1), XattrOp::List)).unwrap();
    assert_eq!(world.messages(|| assert_eq!(by_file(), b"user.a\0")), 1);
    assert_eq!(get(0, "user.a"), Ok(long));
    assert_eq!(get(1, "user.none"), Err(Errno::ENODATA));
    let acl = |user: u16| {
        let entries = [[1, 6, !0, !0], [2, 4, user, 0], [4, 0, !0, !0], [16, 4, !0, !0], [32, 0, !0, !0]];
        [2, 0].iter().chain(entries.as_flattened()).flat_map(|half: &u16| half.to_le_bytes()).collect::<Vec<u8>>()
    };
    let may = |uid| {
        let mut caller = user(1, uid);
        (caller.credentials.fsuid, caller.credentials.fsgid) = (uid, 99);
        world
            .run(1, &caller, PathOp::Open { path: "/f".into(), flags: OpenFlags::empty(), mode: 0, resolve: 0 })
            .is_ok()
    };
    for _ in 0..2 {
        world.stat(1, "/f").unwrap();
        let before = world.stat(1, "/f").unwrap();
        set(0, "user.a", b"short").unwrap();
        let after = world.stat(1, "/f").unwrap();
        assert!(after.changed > before.changed && after.mode == before.mode);
        set(0, "system.posix_acl_access", &acl(7)).unwrap();
        assert_eq!((world.stat(1, "/f").unwrap().mode & 0o777, may(7), may(8)), (0o640, true, false));
        set(0, "system.posix_acl_access", &acl(8)).unwrap();
        assert_eq!((may(7), may(8)), (false, true));
        run(1, XattrOp::Remove { name: "system.posix_acl_access".into() }).unwrap();
        assert_eq!((may(7), may(8)), (false, false));
    }
}

#[test]
fn every_change_is_seen() {
    let world = world(3);
    let sees = |path: &str| {
        let seen: Vec<_> = (0..3).map(|kernel| world.stat(kernel, path)).collect();
        let again: Vec<_> = (0..3).map(|kernel| world.stat(kernel, path)).collect();
        assert_eq!(seen, again);
        assert_eq!((&seen[0], &seen[0]), (&seen[1], &seen[2]), "{path}");
        seen[0].clone()
    };
    let all = |path: &str| ["/", "/d", "/d/f", "/d/g", "/e/f", "/d/l", "/d/../x"].map(&sees).len() + path.len();
    let op = |by: usize, op: PathOp| {
        all("");
        world.root(by, op).unwrap();
        all("");
    };
    for by in [0, 1] {
        op(by, PathOp::MakeDir { path: "/d".into(), mode: 0o755 });
        op(by, PathOp::MakeNode { path: "/d/f".into(), mode: 0o644, rdev: (0, 0) });
        let set = |set| PathOp::SetAttributes { path: "/d/f".into(), follow: true, empty_ok: false, set };
        op(by, set(SetAttributes { mode: Some(0o600), ..SetAttributes::default() }));
        op(by, set(SetAttributes { uid: Some(7), ..SetAttributes::default() }));
        op(by, PathOp::Link { from: "/d/f".into(), to: "/d/g".into(), follow: false, empty_ok: false });
        op(by, PathOp::Unlink { path: "/d/g".into(), directory: false });
        op(by, PathOp::Symlink { target: "f".into(), path: "/d/l".into() });
        op(by, PathOp::Rename { from: "/d/f".into(), to: "/d/g".into(), flags: 0 });
        op(by, PathOp::Symlink { target: "g".into(), path: "/d/n".into() });
        op(by, PathOp::Rename { from: "/d/n".into(), to: "/d/l".into(), flags: 0 });
        op(by, PathOp::Rename { from: "/d/g".into(), to: "/d/f".into(), flags: 0 });
        op(by, PathOp::Rename { from: "/d".into(), to: "/e".into(), flags: 0 });
        op(by, PathOp::Rename { from: "/e".into(), to: "/d".into(), flags: 0 });
        let file = world.open(by, "/d/f", OpenFlags::RDWR).unwrap();
        all("");
        assert_eq!(world.machine.run(file.write(b"12345")), Ok(5));
        all("");
        world.machine.run(file.allocate(0, 0, 9000)).unwrap();
        all("");
        assert_eq!(world.machine.run(file.read_at(&mut [0], 0)), Ok(1));
        all("");
        drop(world.open(by, "/d/f", OpenFlags::RDWR | OpenFlags::TRUNC).unwrap());
        all("");
        drop(file);
        op(by, PathOp::Unlink { path: "/d/f".into(), directory: false });
        op(by, PathOp::Unlink { path: "/d/l".into(), directory: false });
        op(by, PathOp::Unlink { path: "/d".into(), directory: true });
    }
    // Permission to search is part of an answer, and belongs to who asked.
    world.root(0, PathOp::MakeDir { path: "/d".into(), mode: 0o755 }).unwrap();
    world.put("/d/f", b"x");
    let nobody = user(1, 5);
    let mut nobody = nobody;
    nobody.credentials.fsuid = 5;
    assert!(world.run(1, &nobody, stat_of("/d/f")).is_ok());
    let set = SetAttributes { mode: Some(0o700), ..SetAttributes::default() };
    world.root(0, PathOp::SetAttributes { path: "/d".into(), follow: true, empty_ok: false, set }).unwrap();
    assert_eq!(world.run(1, &nobody, stat_of("/d/f")).err(), Some(Errno::EACCES));
    assert!(world.stat(1, "/d/f").is_ok());
}

#[test]
fn an_open_file_sees_what_is_done_to_it() {
    let world = world(2);
    world.put("/f", b"first");
    let warm = || world.open(1, "/f", OpenFlags::empty()).unwrap();
    drop((warm(), warm()));
    let (file, other) = (warm(), warm());
    assert_eq!(world.contents(&file), b"first");
    let mut part = [0; 2];
    assert_eq!(world.machine.run(file.read(&mut part)), Ok(2));
    world.put("/f", b"FIRST, and longer");
    assert_eq!(world.contents(&file), b"FIRST, and longer");
    assert_eq!(world.machine.run(file.attributes()).unwrap().size, 17);
    assert_eq!(world.machine.run(file.read(&mut part)), Ok(2));
    assert_eq!(&part, b"RS", "from where it was");
    assert_eq!(world.machine.run(other.seek(0, Whence::End)), Ok(17));
    // A file lives as long as it is open, whatever its name.
    let kept = warm();
    world.root(0, PathOp::Unlink { path: "/f".into(), directory: false }).unwrap();
    assert_eq!(world.contents(&kept), b"FIRST, and longer");
    assert_eq!(world.machine.run(kept.attributes()).unwrap().nlink, 0);
    for file in [file, other, kept] {
        world.close(file);
    }
    world.machine.kernels[1].reclaim();
    world.machine.settle();
    assert_eq!(world.machine.kernels[0].exported(), 1, "the root directory");
}

#[test]
fn what_is_only_kept_keeps_nothing_alive() {
    let world = world(2);
    let before = world.machine.frames();
    world.put("/f", &[7; 5000]);
    let opens = || world.close(world.open(1, "/f", OpenFlags::empty()).unwrap());
    opens();
    opens();
    assert_eq!(world.machine.kernels[0].exported(), 2);
    world.root(0, PathOp::Unlink { path: "/f".into(), directory: false }).unwrap();
    assert_eq!(world.machine.kernels[0].exported(), 1, "given back with the recall's answer");
    assert_eq!(world.machine.frames(), before);
}

#[test]
fn the_file_that_another_kernel_gets_is_the_same_description() {
    let world = world(3);
    world.put("/f", b"abcdef");
    drop(world.open(1, "/f", OpenFlags::empty()));
    let file = world.open(1, "/f", OpenFlags::empty()).unwrap();
    let mut part = [0; 2];
    assert_eq!(world.machine.run(file.read(&mut part)), Ok(2));
    let far = world.machine.pass(1, 2, &file);
    assert_eq!(far.remote().unwrap().owner, KernelId(0));
    assert_eq!(far.remote(), file.remote());
    assert_eq!(world.machine.run(far.read(&mut part)), Ok(2));
    assert_eq!(&part, b"cd");
    assert_eq!(world.machine.run(file.read(&mut part)), Ok(2));
    assert_eq!(&part, b"ef");
}

/// Next of a sequence of numbers that look random.
pub(super) fn random(state: &mut u64, below: u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state % below
}

/// Readers on two kernels beside a writer on one of the three: in any order of steps nobody sees a state that was over
/// before he asked.
fn interleave(seed: u64) {
    let world = world_over(3, |tree| match seed % 2 {
        0 => tree,
        _ => Arc::new(SlowTree(slow(tree.root()))),
    });
    world.root(0, PathOp::MakeNode { path: "/f".into(), mode: 0o644, rdev: (0, 0) }).unwrap();
    let set = |seconds: u64| {
        let modified = Some(Timestamp { seconds: seconds as i64, nanoseconds: 0 });
        let set = SetAttributes { modified, ..SetAttributes::default() };
        PathOp::SetAttributes { path: "/f".into(), follow: true, empty_ok: false, set }
    };
    world.root(0, set(0)).unwrap();
    let machine = &world.machine;
    let mut rng = seed * 0x9e37_79b9 + 1;
    let who = caller(1);
    let run = |kernel: usize, op: PathOp| world.paths[kernel].run(&who, &world.bases[kernel], op);
    // Times that were set: begun and done; the name is there if the number is odd.
    let (mut begun, mut done) = (0u64, 0u64);
    let by = random(&mut rng, 3) as usize;
    let mut writing: Option<BoxFuture<'_, Result<PathAnswer>>> = None;
    let mut named: Option<BoxFuture<'_, Result<PathAnswer>>> = None;
    type Look<'a> = (u64, u64, bool, BoxFuture<'a, Result<PathAnswer>>);
    let mut reading: Vec<Option<Look<'_>>> = (0..4).map(|_| None).collect();
    for _ in 0..1500 {
        match random(&mut rng, 8) {
            0 => match (&mut writing, &mut named) {
                (Some(work), _) => {
                    if let Some(answer) = once(work.as_mut()) {
                        assert!(answer.is_ok());
                        writing = None;
                        let op = match begun % 2 {
                            1 => PathOp::MakeDir { path: "/n".into(), mode: 0o755 },
                            _ => PathOp::Unlink { path: "/n".into(), directory: true },
                        };
                        named = Some(run(by, op));
                    }
                }
                (None, Some(work)) => {
                    if let Some(answer) = once(work.as_mut()) {
                        assert!(answer.is_ok(), "{:?}", answer.err());
                        named = None;
                        done = begun;
                    }
                }
                (None, None) => {
                    begun += 1;
                    writing = Some(run(by, set(begun)));
                }
            },
            1..=3 => {
                let index = random(&mut rng, 4) as usize;
                let Some((from, was_begun, name, work)) = &mut reading[index] else {
                    let name = random(&mut rng, 2) == 0;
                    let op = stat_of(if name { "/n" } else { "/f" });
                    reading[index] = Some((done, begun, name, run(index % 3, op)));
                    continue;
                };
                let Some(answer) = once(work.as_mut()) else { continue };
                match (name, answer) {
                    (false, Ok(PathAnswer::Attributes(found))) => {
                        let seen = found.modified.seconds as u64;
                        assert!((*from..=begun).contains(&seen), "{seen} is seen after {from}, seed {seed}")
                    }
                    // Only if nothing changed meanwhile is it known what he sees.
                    (true, answer) if *from == *was_begun && begun == *from => {
                        assert_eq!(answer.is_ok(), begun % 2 == 1, "name after {from}, seed {seed}")
                    }
                    (true, _) => {}
                    (false, other) => panic!("{:?}", other.err()),
                }
                reading[index] = None;
            }
            4..=5 => {
                let kernel = random(&mut rng, 3) as usize;
                machine.kernels[kernel].endpoint.drain(1);
            }
            _ => {
                let task = {
                    let mut tasks = machine.tasks.0.lock().unwrap();
                    let index = random(&mut rng, tasks.len().max(1) as u64) as usize;
                    if tasks.is_empty() {
                        None
                    } else {
                        Some(tasks.swap_remove(index))
                    }
                };
                if let Some(mut task) = task
                    && once(task.as_mut()).is_none()
                {
                    machine.tasks.0.lock().unwrap().push(task);
                }
            }
        }
    }
    assert!(begun > 3, "nothing happened under seed {seed}");
}

#[test]
fn nobody_sees_the_past_in_any_order() {
    (1..200).for_each(interleave);
}

#[test]
fn a_file_that_another_kernel_has_opened_by_itself_hears_of_errors_of_before_its_description() {
    let world = world_over(2, |tree| Arc::new(SlowTree(slow(tree.root()))));
    let made = world.open(0, "/f", OpenFlags::CREAT | OpenFlags::RDWR).unwrap();
    let open = || world.open(1, "/f", OpenFlags::empty()).unwrap();
    drop((open(), open()));
    let (first, second) = (open(), open());
    assert!(first.remote().is_none() && second.remote().is_none(), "no description at the owner");
    let at = made.location().unwrap().downcast_ref::<crate::Location>().unwrap().clone();
    let node = at.inode().as_any().downcast_ref::<Slow>().unwrap();
    node.errors.note();
    for file in [&made, &first, &second] {
        assert_eq!(world.machine.run(file.sync(false)), Err(Errno::EIO));
        assert_eq!(world.machine.run(file.sync(false)), Ok(()));
    }
    // As ext4 does it, so that who opens it now is told nothing.
    drop(world.machine.run(node.sharers.change(&[crate::lease::OWN])));
    let later = open();
    assert_eq!(world.machine.run(later.sync(false)), Ok(()));
}
