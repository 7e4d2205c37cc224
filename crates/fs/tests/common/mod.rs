//! A kernel's worth of services for tests, and paths as functions.
#![allow(dead_code)]

pub mod disk;
pub mod memory;
#[allow(dead_code)]
pub mod program;
pub mod server;
pub mod slow;

use fs::{
    Base, Caller, Clock, Credentials, File, FileSystem, LocalPaths, OpenFlags, PathAnswer, PathOp, Paths, Services,
    SetAttributes, Timestamp,
};
use machine::{errno::Result, BoxFuture, Pid, Spawner};
use memory::FakeMemory;
use std::{
    future::Future,
    pin::pin,
    sync::{
        atomic::{AtomicBool, AtomicU64, Ordering},
        Arc, Mutex,
    },
    task::{Context, Poll, Waker},
};

/// Everything here is ready sooner or later without anybody else: poll until it is.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..1_000_000 {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
    }
    panic!("the future waits for something that nobody does");
}

/// A clock that goes on by a microsecond whenever it is read, or as the test says.
#[derive(Default)]
pub struct FakeClock(Arc<AtomicU64>);

impl FakeClock {
    pub fn advance(&self, ns: u64) {
        self.0.fetch_add(ns, Ordering::SeqCst);
    }
}

impl Clock for FakeClock {
    fn realtime(&self) -> Timestamp {
        let now = self.0.fetch_add(1000, Ordering::SeqCst);
        Timestamp { seconds: 1_700_000_000 + (now / 1_000_000_000) as i64, nanoseconds: (now % 1_000_000_000) as u32 }
    }

    fn monotonic(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    fn at(&self, ns: u64) -> Option<BoxFuture<'static, ()>> {
        let now = self.0.clone();
        Some(Box::pin(std::future::poll_fn(move |_| match now.load(Ordering::SeqCst) >= ns {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })))
    }
}

/// Tasks wait here until the test runs them; or, if they are eager, they run as far as they can at once.
#[derive(Default)]
pub struct Tasks(Mutex<Vec<BoxFuture<'static, ()>>>, pub AtomicBool);

impl Spawner for Tasks {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.0.lock().unwrap().push(task);
        if self.1.load(Ordering::SeqCst) {
            self.run_now();
        }
    }
}

impl Tasks {
    /// Goes on with all that wait, once.
    pub fn run_now(&self) {
        let tasks = std::mem::take(&mut *self.0.lock().unwrap());
        let mut context = Context::from_waker(Waker::noop());
        let left = tasks.into_iter().filter_map(|mut task| match task.as_mut().poll(&mut context) {
            Poll::Ready(()) => None,
            Poll::Pending => Some(task),
        });
        let left: Vec<_> = left.collect();
        self.0.lock().unwrap().extend(left);
    }

    pub fn run(&self) {
        for _ in 0..100_000 {
            if self.0.lock().unwrap().is_empty() {
                return;
            }
            self.run_now();
        }
        panic!("a task waits for something that nobody does");
    }
}

pub struct Kernel {
    pub memory: Arc<FakeMemory>,
    pub clock: Arc<FakeClock>,
    pub tasks: Arc<Tasks>,
    pub services: Arc<Services>,
}

impl Kernel {
    pub fn new(frames: usize) -> Kernel {
        let (memory, clock, tasks) =
            (Arc::new(FakeMemory::new(frames)), Arc::new(FakeClock::default()), Arc::new(Tasks::default()));
        let services = Services::new(memory.clone(), clock.clone(), tasks.clone());
        Kernel { memory, clock, tasks, services }
    }

    /// As [`block_on`], and tasks go on meanwhile.
    pub fn run<T>(&self, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        for _ in 0..1_000_000 {
            if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                return value;
            }
            self.tasks.run_now();
        }
        panic!("the future waits for something that nobody does");
    }
}

pub fn user(uid: u32) -> Caller {
    let credentials = Credentials {
        uid,
        euid: uid,
        suid: uid,
        fsuid: uid,
        gid: uid,
        egid: uid,
        sgid: uid,
        fsgid: uid,
        groups: Vec::new(),
        effective: abi::Capabilities::of_user(uid).permitted,
    };
    let (one, shield) = (Pid(1), machine::Shield::NONE);
    Caller { credentials, process: one, thread: one, group: one, session: one, umask: 0o022, shield }
}

/// A process with a root, a working directory and credentials.
#[derive(Clone)]
pub struct Process {
    pub paths: Arc<LocalPaths>,
    pub memory: Arc<FakeMemory>,
    pub tasks: Arc<Tasks>,
    pub caller: Caller,
    pub base: Base,
}

impl Process {
    pub fn new(kernel: &Kernel, root: Arc<dyn FileSystem>) -> Process {
        Process::with(kernel, LocalPaths::new(kernel.services.clone(), root, Arc::default()))
    }

    pub fn with(kernel: &Kernel, paths: Arc<LocalPaths>) -> Process {
        let root = block_on(paths.root()).unwrap();
        let base = Base::new(root.clone(), root);
        let (memory, tasks) = (kernel.memory.clone(), kernel.tasks.clone());
        Process { paths, memory, tasks, caller: user(0), base }
    }

    pub fn run(&self, op: PathOp) -> Result<PathAnswer> {
        let mut answer = self.paths.run(&self.caller, &self.base, op);
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..1_000_000 {
            if let Poll::Ready(answer) = answer.as_mut().poll(&mut context) {
                return answer;
            }
            // It may wait for a task.
            self.tasks.run_now();
        }
        panic!("a call waits for something that nobody does");
    }

    pub fn open_how(&self, path: &str, flags: OpenFlags, mode: u32, resolve: u64) -> Result<Arc<dyn File>> {
        match self.run(PathOp::Open { path: path.into(), flags, mode, resolve })? {
            PathAnswer::File(file) => Ok(file),
            _ => panic!("not a file"),
        }
    }

    pub fn open(&self, path: &str, flags: OpenFlags) -> Result<Arc<dyn File>> {
        self.open_how(path, flags, 0o666, 0)
    }

    pub fn stat(&self, path: &str, follow: bool) -> Result<fs::Attributes> {
        match self.run(PathOp::Stat { path: path.into(), follow, empty_ok: false })? {
            PathAnswer::Attributes(attributes) => Ok(*attributes),
            _ => panic!("no attributes"),
        }
    }

    pub fn mkdir(&self, path: &str) -> Result<()> {
        self.run(PathOp::MakeDir { path: path.into(), mode: 0o777 }).map(drop)
    }

    pub fn unlink(&self, path: &str) -> Result<()> {
        self.run(PathOp::Unlink { path: path.into(), directory: false }).map(drop)
    }

    pub fn rmdir(&self, path: &str) -> Result<()> {
        self.run(PathOp::Unlink { path: path.into(), directory: true }).map(drop)
    }

    pub fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.rename_how(from, to, 0)
    }

    pub fn rename_how(&self, from: &str, to: &str, flags: u32) -> Result<()> {
        self.run(PathOp::Rename { from: from.into(), to: to.into(), flags }).map(drop)
    }

    pub fn link(&self, from: &str, to: &str) -> Result<()> {
        self.run(PathOp::Link { from: from.into(), to: to.into(), follow: false, empty_ok: false }).map(drop)
    }

    pub fn symlink(&self, target: &str, path: &str) -> Result<()> {
        self.run(PathOp::Symlink { target: target.into(), path: path.into() }).map(drop)
    }

    pub fn readlink(&self, path: &str) -> Result<Vec<u8>> {
        match self.run(PathOp::ReadLink { path: path.into(), empty_ok: false })? {
            PathAnswer::Bytes(bytes) => Ok(bytes),
            _ => panic!("no bytes"),
        }
    }

    /// A tmpfs on `path`.
    pub fn mount(&self, path: &str, options: &str) -> Result<()> {
        let op = PathOp::Mount {
            source: Vec::new(),
            path: path.into(),
            kind: b"tmpfs".to_vec(),
            flags: 0,
            data: options.into(),
        };
        self.run(op).map(drop)
    }

    pub fn chmod(&self, path: &str, mode: u32) -> Result<()> {
        let set = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
        self.run(PathOp::SetAttributes { path: path.into(), follow: true, empty_ok: false, set }).map(drop)
    }

    pub fn truncate(&self, path: &str, size: u64) -> Result<()> {
        let set = SetAttributes { size: Some(size), ..SetAttributes::default() };
        self.run(PathOp::SetAttributes { path: path.into(), follow: true, empty_ok: false, set }).map(drop)
    }

    pub fn list(&self, path: &str) -> Result<Vec<String>> {
        let directory = self.open(path, OpenFlags::DIRECTORY)?;
        let mut names = Vec::new();
        loop {
            // Little room, so that several calls are needed.
            let entries = block_on(directory.read_dir(300))?;
            if entries.is_empty() {
                break;
            }
            names.extend(entries.into_iter().map(|entry| String::from_utf8(entry.name).unwrap()));
        }
        assert_eq!(names[..2], [".", ".."]);
        names.drain(..2);
        names.sort();
        Ok(names)
    }

    pub fn read(&self, path: &str) -> Result<Vec<u8>> {
        read_all(&self.open(path, OpenFlags::empty())?)
    }

    pub fn write(&self, path: &str, data: &[u8]) -> Result<()> {
        let file = self.open(path, OpenFlags::WRONLY | OpenFlags::CREAT | OpenFlags::TRUNC)?;
        assert_eq!(block_on(file.write(data))?, data.len());
        Ok(())
    }
}

pub fn read_all(file: &Arc<dyn File>) -> Result<Vec<u8>> {
    let mut data = Vec::new();
    let mut buf = vec![0; 5000];
    loop {
        let read = block_on(file.read(&mut buf))?;
        if read == 0 {
            return Ok(data);
        }
        data.extend_from_slice(&buf[..read]);
    }
}

/// A directory on the host that goes away.
pub struct Scratch(pub std::path::PathBuf);

impl Scratch {
    pub fn new() -> Scratch {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!("cob-fs-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::SeqCst));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Scratch(path)
    }

    pub fn at(&self, path: &str) -> std::path::PathBuf {
        // Not `join`, which would normalise nothing but would take an absolute path for itself.
        format!("{}/{path}", self.0.display()).into()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Small, fast, and the same everywhere (xorshift64*).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % limit
    }

    pub fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len() as u64) as usize]
    }
}
