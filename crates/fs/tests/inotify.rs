//! Random operations on watched trees: tmpfs and the union tell what the host tells, in the same order.
#![allow(clippy::disallowed_methods)]

mod common;

use common::{block_on, server::Server, Kernel, Process, Random, Scratch};
use fs::{file::File, ninep, ninep::Share, tmpfs::Tmpfs, union::Union, FileSystem, OpenFlags, PathAnswer, PathOp};
use machine::Errno;
use rustix::fs::{inotify, AtFlags, Mode, OFlags, RenameFlags, CWD};
use std::{os::fd::OwnedFd, sync::Arc};

const WATCH_ALL: u32 = 0xfff;
const PLACES: [&str; 9] = ["a", "b", "a/x", "a/y", "b/x", "b/y", "a/d", "b/d", "a/d/x"];

#[derive(Debug, PartialEq, Eq)]
struct Event {
    watch: i32,
    mask: u32,
    cookie: u32,
    name: Vec<u8>,
}

/// The bytes of read(2) on an inotify descriptor; cookies are numbered from the first on.
fn parse(bytes: &[u8], cookies: &mut Vec<u32>) -> Vec<Event> {
    let mut events = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let word = |index: usize| u32::from_ne_bytes(rest[index * 4..index * 4 + 4].try_into().unwrap());
        let end = 16 + word(3) as usize;
        let name = rest[16..end].split(|&byte| byte == 0).next().unwrap_or_default().to_vec();
        let cookie = match word(2) {
            0 => 0,
            raw => {
                if !cookies.contains(&raw) {
                    cookies.push(raw);
                }
                cookies.iter().position(|&known| known == raw).unwrap() as u32 + 1
            }
        };
        events.push(Event { watch: word(0) as i32, mask: word(1), cookie, name });
        rest = &rest[end..];
    }
    events
}

struct Host {
    scratch: Scratch,
    collector: OwnedFd,
    open: Option<OwnedFd>,
    cookies: Vec<u32>,
}

struct Own {
    process: Process,
    collector: Arc<dyn File>,
    open: Option<Arc<dyn File>>,
    cookies: Vec<u32>,
}

#[derive(Clone, Debug)]
enum Op {
    Watch(&'static str, u32),
    Write(&'static str),
    Read(&'static str),
    List(&'static str),
    Chmod(&'static str),
    Truncate(&'static str),
    Link(&'static str, &'static str),
    Unlink(&'static str),
    MakeDir(&'static str),
    RemoveDir(&'static str),
    Rename(&'static str, &'static str, u32),
    Hold(&'static str),
    LetGo,
}

fn random_op(random: &mut Random) -> Op {
    let (one, other) = (random.pick(&PLACES), random.pick(&PLACES));
    match random.below(16) {
        0 => Op::Watch(one, WATCH_ALL),
        1 => Op::Watch(one, WATCH_ALL & random.below(4096) as u32 | 0x8000_0000),
        2 => Op::Watch(one, 0x4 | 0x400_0000 | (0x2000_0000 * random.below(2) as u32)),
        3..=4 => Op::Write(one),
        5 => Op::Read(one),
        6 => Op::Chmod(one),
        7 => Op::Truncate(one),
        8 => Op::Link(one, other),
        9 => Op::Unlink(one),
        10 => Op::MakeDir(one),
        11 => Op::RemoveDir(one),
        12..=13 => Op::Rename(one, other, random.below(3) as u32),
        14 => Op::Hold(one),
        _ if random.below(2) == 0 => Op::List(one),
        _ => Op::LetGo,
    }
}

impl Host {
    fn run(&mut self, op: &Op) -> std::result::Result<i64, u16> {
        let at = |path: &str| self.scratch.at(path);
        let errno = |error: rustix::io::Errno| error.raw_os_error() as u16;
        let open = |path: &str, flags| rustix::fs::open(at(path), flags, Mode::from_raw_mode(0o644)).map_err(errno);
        let mut buf = [0; 64];
        match op {
            Op::Watch(path, mask) => {
                let flags = inotify::WatchFlags::from_bits_retain(*mask);
                return inotify::add_watch(&self.collector, at(path), flags).map(i64::from).map_err(errno);
            }
            Op::Write(path) => {
                let file = open(path, OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC)?;
                rustix::io::write(&file, b"data").map_err(errno)?;
            }
            Op::Read(path) => {
                let file = open(path, OFlags::RDONLY)?;
                rustix::io::read(&file, &mut buf[..]).map_err(errno)?;
            }
            Op::List(path) => {
                let file = open(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
                let mut room = [std::mem::MaybeUninit::uninit(); 4096];
                let mut entries = rustix::fs::RawDir::new(&file, &mut room);
                while let Some(entry) = entries.next() {
                    entry.map_err(errno)?;
                }
            }
            Op::Chmod(path) => rustix::fs::chmod(at(path), Mode::from_raw_mode(0o755)).map_err(errno)?,
            Op::Truncate(path) => {
                let file = open(path, OFlags::WRONLY)?;
                rustix::fs::ftruncate(&file, 2).map_err(errno)?;
            }
            Op::Link(from, to) => {
                rustix::fs::linkat(CWD, at(from), CWD, at(to), AtFlags::empty()).map_err(errno)?;
            }
            Op::Unlink(path) => rustix::fs::unlink(at(path)).map_err(errno)?,
            Op::MakeDir(path) => rustix::fs::mkdir(at(path), Mode::from_raw_mode(0o755)).map_err(errno)?,
            Op::RemoveDir(path) => rustix::fs::rmdir(at(path)).map_err(errno)?,
            Op::Rename(from, to, flags) => {
                let flags = RenameFlags::from_bits_retain(*flags);
                rustix::fs::renameat_with(CWD, at(from), CWD, at(to), flags).map_err(errno)?;
            }
            Op::Hold(path) => {
                let file = open(path, OFlags::RDWR)?;
                self.open = Some(file);
            }
            Op::LetGo => self.open = None,
        }
        Ok(0)
    }

    fn events(&mut self) -> Vec<Event> {
        let mut buf = vec![0; 65536];
        let count = rustix::io::read(&self.collector, &mut buf[..]).unwrap_or(0);
        parse(&buf[..count], &mut self.cookies)
    }
}

impl Own {
    fn new(kernel: &Kernel, root: Arc<dyn FileSystem>) -> Own {
        let mut process = Process::new(kernel, root);
        let Ok(PathAnswer::File(collector)) = process.run(PathOp::Notify { flags: OpenFlags::NONBLOCK }) else {
            panic!("no descriptor")
        };
        process.base.to = Some(collector.clone());
        Own { process, collector, open: None, cookies: Vec::new() }
    }

    fn run(&mut self, op: &Op) -> std::result::Result<i64, u16> {
        let process = &self.process;
        let mut names = process.clone();
        names.base.to = None;
        let mut buf = [0; 64];
        let done = match op {
            Op::Watch(path, mask) => match process.run(PathOp::Watch { path: (*path).into(), mask: *mask }) {
                Ok(PathAnswer::Number(watch)) => return Ok(watch),
                Ok(_) => panic!("no number"),
                Err(error) => Err(error),
            },
            Op::Write(path) => process.write(path, b"data"),
            Op::Read(path) => {
                process.open(path, OpenFlags::empty()).and_then(|file| block_on(file.read(&mut buf)).map(drop))
            }
            Op::List(path) => process.open(path, OpenFlags::DIRECTORY).and_then(|file| {
                while !block_on(file.read_dir(4096))?.is_empty() {}
                Ok(())
            }),
            Op::Chmod(path) => process.chmod(path, 0o755),
            Op::Truncate(path) => process.open(path, OpenFlags::WRONLY).and_then(|file| {
                let set = fs::SetAttributes { size: Some(2), ..Default::default() };
                block_on(file.set_attributes(&process.caller, set))
            }),
            Op::Link(from, to) => names.link(from, to),
            Op::Unlink(path) => process.unlink(path),
            Op::MakeDir(path) => process.mkdir(path),
            Op::RemoveDir(path) => process.rmdir(path),
            Op::Rename(from, to, flags) => names.rename_how(from, to, *flags),
            Op::Hold(path) => process.open(path, OpenFlags::RDWR).map(|file| self.open = Some(file)),
            Op::LetGo => {
                self.open = None;
                Ok(())
            }
        };
        done.map(|()| 0).map_err(|error: Errno| error.0)
    }

    fn events(&mut self) -> Vec<Event> {
        let mut buf = vec![0; 65536];
        let count = block_on(self.collector.read(&mut buf)).unwrap_or(0);
        parse(&buf[..count], &mut self.cookies)
    }
}

fn compare(seed: u64, kernel: &Kernel, root: Arc<dyn FileSystem>, scratch: Scratch, allowed: fn(&Op) -> bool) {
    let mut own = Own::new(kernel, root);
    let collector = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
    let mut host = Host { scratch, collector, open: None, cookies: Vec::new() };
    let mut random = Random::new(seed);
    let start = [Op::MakeDir("a"), Op::MakeDir("b"), Op::Watch("a", WATCH_ALL), Op::Watch("b", WATCH_ALL)];
    let mut trace = Vec::new();
    for step in 0..300 {
        let op = start.get(step).cloned().unwrap_or_else(|| random_op(&mut random));
        if !allowed(&op) {
            continue;
        }
        trace.push(op.clone());
        kernel.tasks.run();
        let (there, here) = (host.run(&op), own.run(&op));
        assert_eq!(here, there, "seed {seed}: {trace:#?}");
        let (there, here) = (host.events(), own.events());
        assert_eq!(here, there, "seed {seed}: {trace:#?}");
    }
}

#[test]
fn tmpfs_tells_what_the_host_tells() {
    for seed in 0..60 {
        let kernel = Kernel::new(4000);
        let root = Tmpfs::new(&kernel.services, 0o755);
        compare(seed, &kernel, root, Scratch::new(), |_| true);
    }
}

#[test]
fn the_union_tells_of_files_below_as_of_its_own() {
    for seed in 0..40 {
        let kernel = Kernel::new(4000);
        let (lower, scratch) = (Scratch::new(), Scratch::new());
        for root in [&lower, &scratch] {
            for directory in ["a", "b"] {
                std::fs::create_dir(root.at(directory)).unwrap();
                std::fs::write(root.at(&format!("{directory}/x")), b"below").unwrap();
            }
        }
        let server = Arc::new(Server::new(&lower.0));
        let options = ninep::Options { msize: 64 * 1024, believed: 1_000_000_000 };
        let share = block_on(Share::attach(server.clone(), &kernel.services, options)).unwrap();
        let union = Union::new(&kernel.services, share, Tmpfs::new(&kernel.services, 0o755)).unwrap();
        // A directory that exists below can't be renamed.
        compare(seed, &kernel, union, scratch, |op| match op {
            Op::Rename(from, to, _) => from.len() > 1 && to.len() > 1,
            _ => true,
        });
    }
}
