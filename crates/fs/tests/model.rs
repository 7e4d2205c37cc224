//! Random operations on our file systems and on the host's: same answers, same trees.
//!
//! COB_FS_SEED=N replays one seed; a failure names it.
#![allow(clippy::disallowed_methods)]

mod common;

use common::{
    block_on,
    program::{read_now, write_now, Program},
    server::Server,
    Kernel, Process, Random, Scratch,
};
use fs::{ninep, ninep::Share, tmpfs::Tmpfs, union::Union, FileSystem, Kind, OpenFlags, Whence};
use machine::errno::Errno;
use std::{
    collections::BTreeMap,
    fs as host,
    os::unix::fs::{FileExt, MetadataExt, PermissionsExt},
    path::Path,
    sync::Arc,
};

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
const STEPS: usize = 400;

fn number(error: std::io::Error) -> u16 {
    error.raw_os_error().unwrap_or(0) as u16
}

/// What a name is and holds. Directories' links are not compared: file systems count them differently.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    mode: u32,
    links: u32,
    content: Vec<u8>,
}

type Tree = BTreeMap<String, Seen>;

fn host_tree(root: &Path, at: &str, tree: &mut Tree) {
    for entry in host::read_dir(root.join(at)).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let path = if at.is_empty() { name } else { format!("{at}/{name}") };
        let full = root.join(&path);
        let metadata = host::symlink_metadata(&full).unwrap();
        let (links, content) = match () {
            _ if metadata.is_dir() => (0, Vec::new()),
            _ if metadata.is_symlink() => {
                (metadata.nlink() as u32, host::read_link(&full).unwrap().into_os_string().into_encoded_bytes())
            }
            _ => (metadata.nlink() as u32, host::read(&full).unwrap()),
        };
        tree.insert(path.clone(), Seen { mode: metadata.mode(), links, content });
        if metadata.is_dir() {
            host_tree(root, &path, tree);
        }
    }
}

fn our_tree(process: &Process, at: &str, tree: &mut Tree) {
    for name in process.list(if at.is_empty() { "." } else { at }).unwrap() {
        let path = if at.is_empty() { name } else { format!("{at}/{name}") };
        let attributes = process.stat(&path, false).unwrap();
        let (links, content) = match attributes.kind() {
            Kind::Directory => (0, Vec::new()),
            Kind::Symlink => (attributes.nlink, process.readlink(&path).unwrap()),
            _ => {
                let content = process.read(&path).unwrap();
                assert_eq!(attributes.size, content.len() as u64, "{path}");
                (attributes.nlink, content)
            }
        };
        tree.insert(path.clone(), Seen { mode: attributes.mode, links, content });
        if attributes.kind() == Kind::Directory {
            our_tree(process, &path, tree);
        }
    }
}

#[derive(Debug)]
enum Op {
    Write { path: String, offset: u64, len: usize, byte: u8, create: bool },
    Append { path: String, byte: u8 },
    Truncate { path: String, size: u64 },
    MakeDir(String),
    RemoveDir(String),
    Unlink(String),
    Rename(String, String),
    Link(String, String),
    Symlink(String, String),
    Chmod(String, u32),
    Read(String),
}

fn path(random: &mut Random) -> String {
    let depth = 1 + random.below(3);
    (0..depth).map(|_| random.pick(&NAMES)).collect::<Vec<_>>().join("/")
}

fn operation(random: &mut Random) -> Op {
    let one = path(random);
    match random.below(15) {
        0..=3 => Op::Write {
            path: one,
            offset: [0, 0, 100, 4095, 5000, 70_000][random.below(6) as usize],
            len: [1, 10, 4096, 5000, 20_000][random.below(5) as usize],
            byte: random.below(255) as u8 + 1,
            create: random.below(3) > 0,
        },
        4 => Op::Append { path: one, byte: random.below(255) as u8 + 1 },
        5 => Op::Truncate { path: one, size: [0, 1, 4096, 5000, 100_000][random.below(5) as usize] },
        6 | 7 => Op::MakeDir(one),
        8 => Op::RemoveDir(one),
        9 => Op::Unlink(one),
        10 | 11 => Op::Rename(one, path(random)),
        12 => Op::Link(one, path(random)),
        13 => match random.below(2) {
            0 => Op::Symlink(random.pick(&["a", "b/c", "c/./a", "."]).to_string(), one),
            _ => Op::Chmod(one, [0o644, 0o600, 0o755][random.below(3) as usize]),
        },
        _ => Op::Read(one),
    }
}

fn on_host(root: &Path, op: &Op) -> Result<Vec<u8>, u16> {
    let at = |path: &String| root.join(path);
    match op {
        Op::Write { path, offset, len, byte, create } => host::File::options()
            .write(true)
            .create(*create)
            .truncate(false)
            .open(at(path))
            .and_then(|file| file.write_all_at(&vec![*byte; *len], *offset)),
        Op::Append { path, byte } => host::File::options()
            .append(true)
            .open(at(path))
            .and_then(|mut file| std::io::Write::write_all(&mut file, &[*byte; 300])),
        Op::Truncate { path, size } => {
            // truncate(2) refuses directories itself; open would, too.
            host::File::options().write(true).open(at(path)).and_then(|file| file.set_len(*size))
        }
        Op::MakeDir(path) => host::create_dir(at(path)),
        Op::RemoveDir(path) => host::remove_dir(at(path)),
        Op::Unlink(path) => host::remove_file(at(path)),
        Op::Rename(from, to) => host::rename(at(from), at(to)),
        Op::Link(from, to) => host::hard_link(at(from), at(to)),
        Op::Symlink(target, path) => std::os::unix::fs::symlink(target, at(path)),
        Op::Chmod(path, mode) => host::set_permissions(at(path), host::Permissions::from_mode(*mode)),
        Op::Read(path) => return host::read(at(path)).map_err(number),
    }
    .map(|()| Vec::new())
    .map_err(number)
}

/// What is in memory can be read without waiting: all of it or nothing, at an offset and at the position.
fn check_read_now(process: &Process, path: &str, data: &[u8]) {
    let file = process.open(path, OpenFlags::empty()).unwrap();
    let read = |at: Option<u64>, bytes: usize, room: usize| {
        let mut program = Program { memory: process.memory.clone(), bytes: Vec::new(), room };
        let read = read_now(&*file, at, bytes, &mut program)?;
        assert_eq!(read, program.bytes.len());
        Some(program.bytes)
    };
    for (at, bytes) in [(0, 10), (0, 1 << 20), (4000, 5000), (data.len() as u64, 1)] {
        let start = data.len().min(at as usize);
        let wanted = &data[start..data.len().min(start + bytes)];
        if let Some(got) = read(Some(at), bytes, usize::MAX) {
            assert_eq!(got, wanted);
        }
    }
    if !data.is_empty() {
        assert_eq!(read(None, data.len(), data.len() - 1), None);
        assert_eq!(block_on(file.seek(0, Whence::Current)), Ok(0));
    }
    if let Some(got) = read(None, 7, usize::MAX) {
        assert_eq!(got, data[..data.len().min(7)]);
        assert_eq!(block_on(file.seek(0, Whence::Current)), Ok(got.len() as u64));
    }
}

/// A write as a program makes it: at once as far as that goes (and not all of its memory may be there), else with patience.
fn write(process: &Process, path: &str, flags: OpenFlags, offset: u64, data: Vec<u8>) -> Result<(), Errno> {
    let file = process.open(path, OpenFlags::WRONLY | flags)?;
    let room = if offset.is_multiple_of(3) { data.len() } else { data.len() * (offset % 100) as usize / 100 };
    let mut program = Program { memory: process.memory.clone(), bytes: data.clone(), room };
    match write_now(&*file, Some(offset), data.len(), &mut program) {
        Some(written) => assert_eq!((written, room), (data.len(), data.len())),
        None => drop(block_on(file.write_at(&data, offset))?),
    }
    Ok(())
}

fn on_ours(process: &Process, op: &Op) -> Result<Vec<u8>, u16> {
    let done = match op {
        Op::Write { path, offset, len, byte, create } => {
            let create = if *create { OpenFlags::CREAT } else { OpenFlags::empty() };
            write(process, path, create, *offset, vec![*byte; *len])
        }
        Op::Append { path, byte } => process
            .open(path, OpenFlags::WRONLY | OpenFlags::APPEND)
            .and_then(|file| block_on(file.write(&[*byte; 300])).map(drop)),
        Op::Truncate { path, size } => process.truncate(path, *size),
        Op::MakeDir(path) => process.mkdir(path),
        Op::RemoveDir(path) => process.rmdir(path),
        Op::Unlink(path) => process.unlink(path),
        Op::Rename(from, to) => process.rename(from, to),
        Op::Link(from, to) => process.link(from, to),
        Op::Symlink(target, path) => process.symlink(target, path),
        Op::Chmod(path, mode) => process.chmod(path, *mode),
        Op::Read(path) => {
            let data = process.read(path).map_err(|error| error.0)?;
            check_read_now(process, path, &data);
            return Ok(data);
        }
    };
    done.map(|()| Vec::new()).map_err(|error| error.0)
}

/// Runs random operations on `process` and `model`; `settle` runs after each.
fn compare(seed: u64, process: &Process, model: &Path, settle: impl Fn(&mut Random)) {
    let mut random = Random::new(seed);
    for step in 0..STEPS {
        let op = operation(&mut random);
        let ours = on_ours(process, &op);
        // What a union may say to the renaming of a directory from below.
        if ours == Err(Errno::EXDEV.0) && matches!(op, Op::Rename(..)) {
            continue;
        }
        if std::env::var("COB_FS_SEED").is_ok() {
            println!("{step}: {op:?} -> {:?}", ours.as_ref().map(Vec::len));
        }
        let theirs = on_host(model, &op);
        assert_eq!(ours, theirs, "COB_FS_SEED={seed}, step {step}: {op:?}");
        settle(&mut random);
        if step % 10 == 0 || step == STEPS - 1 {
            let (mut ours, mut theirs) = (Tree::new(), Tree::new());
            our_tree(process, "", &mut ours);
            host_tree(model, "", &mut theirs);
            for (path, seen) in &theirs {
                assert!(
                    ours.get(path) == Some(seen),
                    "COB_FS_SEED={seed}, step {step}, {op:?}: {path} differs: {:?} / {:?}",
                    ours.get(path).map(|s| (s.mode, s.links, s.content.len())),
                    (seen.mode, seen.links, seen.content.len())
                );
            }
            assert_eq!(ours.len(), theirs.len(), "COB_FS_SEED={seed}, step {step}: too many names");
        }
    }
}

fn seeds() -> Vec<u64> {
    match std::env::var("COB_FS_SEED") {
        Ok(seed) => vec![seed.parse().unwrap()],
        Err(_) => (1..=25).collect(),
    }
}

#[test]
fn tmpfs_does_what_the_host_does_and_loses_no_frame() {
    for seed in seeds() {
        let kernel = Kernel::new(4096);
        let model = Scratch::new();
        let process = Process::new(&kernel, Tmpfs::new(&kernel.services, 0o755));
        compare(seed, &process, &model.0, |_| {});
        drop(process);
        assert_eq!(kernel.memory.used(), 0, "COB_FS_SEED={seed}: frames are lost");
    }
}

fn populate(random: &mut Random, roots: &[&Path]) {
    for _ in 0..40 {
        let op = operation(random);
        let results: Vec<_> = roots.iter().map(|root| on_host(root, &op)).collect();
        assert!(results.windows(2).all(|two| two[0] == two[1]));
    }
}

fn share(kernel: &Kernel, root: &Path, msize: u32) -> (Arc<Server>, Arc<Share>) {
    let server = Arc::new(Server::new(root));
    let options = ninep::Options { msize, believed: 1_000_000_000 };
    let share = block_on(Share::attach(server.clone(), &kernel.services, options)).unwrap();
    (server, share)
}

#[test]
fn a_writable_share_does_what_the_host_does() {
    for seed in seeds() {
        let kernel = Kernel::new(4096);
        kernel.tasks.1.store(true, std::sync::atomic::Ordering::SeqCst);
        let (model, shared) = (Scratch::new(), Scratch::new());
        populate(&mut Random::new(seed + 1000), &[&model.0, &shared.0]);
        let (_server, share) = share(&kernel, &shared.0, 8192 + 24);
        let process = Process::new(&kernel, share.clone());
        compare(seed, &process, &model.0, |random| {
            // Writing back and forgetting happen at any time.
            if random.below(2) == 0 {
                kernel.tasks.run();
            }
            if random.below(3) == 0 {
                kernel.clock.advance(2_000_000_000);
            }
            if random.below(4) == 0 {
                kernel.services.reclaim(10);
            }
        });
        block_on(share.sync()).unwrap();
        let (mut ours, mut theirs) = (Tree::new(), Tree::new());
        host_tree(&shared.0, "", &mut ours);
        host_tree(&model.0, "", &mut theirs);
        assert!(ours == theirs, "COB_FS_SEED={seed}: the host's files are not what was written");
    }
}

#[test]
fn the_union_does_what_the_host_does_and_leaves_the_lower_tree_alone() {
    for seed in seeds() {
        let kernel = Kernel::new(4096);
        let (model, lower, before) = (Scratch::new(), Scratch::new(), Scratch::new());
        populate(&mut Random::new(seed + 2000), &[&model.0, &lower.0, &before.0]);
        let (_server, share) = share(&kernel, &lower.0, 64 * 1024);
        let upper = Tmpfs::new(&kernel.services, 0o755);
        let process = Process::new(&kernel, Union::new(&kernel.services, share, upper).unwrap());
        compare(seed, &process, &model.0, |random| {
            kernel.tasks.run();
            if random.below(3) == 0 {
                kernel.clock.advance(2_000_000_000);
            }
            if random.below(4) == 0 {
                kernel.services.reclaim(10);
            }
        });
        let (mut now, mut then) = (Tree::new(), Tree::new());
        host_tree(&lower.0, "", &mut now);
        host_tree(&before.0, "", &mut then);
        assert!(now == then, "COB_FS_SEED={seed}: the lower tree was changed");
    }
}
