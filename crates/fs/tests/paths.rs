//! The rules of paths, where possible compared with what the host's own system calls say.
#![allow(clippy::disallowed_methods)]

mod common;

use common::{block_on, read_all, user, Kernel, Process, Scratch};
use fs::{
    file::File,
    inode::Followed,
    namespace::mount,
    synthetic::{Fixed, Link, Node, Synthetic, Text},
    tmpfs::{TmpMounter, Tmpfs},
    Base, Caller, Object, OpenFlags, PathAnswer, PathOp, Paths,
};
use machine::{errno::Result, BoxFuture, Errno};
use std::{
    fs as host,
    os::unix::fs::OpenOptionsExt,
    sync::{Arc, Mutex},
};

fn tmpfs() -> (Kernel, Process) {
    let kernel = Kernel::new(1000);
    let process = Process::new(&kernel, Tmpfs::new(&kernel.services, 0o755));
    (kernel, process)
}

/// One call, told to both sides.
enum Call {
    Open(&'static str, u32),
    Stat(&'static str),
    MakeDir(&'static str),
    RemoveDir(&'static str),
    Unlink(&'static str),
    Rename(&'static str, &'static str),
    Link(&'static str, &'static str),
    Symlink(&'static str, &'static str),
    ReadLink(&'static str),
}

const CREAT: u32 = 0o100;
const EXCL: u32 = 0o200;
const NOFOLLOW: u32 = 0o400000;
const DIRECTORY: u32 = 0o200000;
const TRUNC: u32 = 0o1000;

#[test]
fn errors_are_those_of_the_host() {
    use Call::*;
    let long: &'static str = Box::leak("x".repeat(256).into_boxed_str());
    let longest: &'static str = Box::leak("d/".repeat(2100).into_boxed_str());
    let calls = [
        MakeDir("d"),
        MakeDir("d/sub"),
        Open("f", 1 | CREAT),
        Symlink("d", "to_d"),
        Symlink("f", "to_f"),
        Symlink("nothing", "dangling"),
        Symlink("loop_b", "loop_a"),
        Symlink("loop_a", "loop_b"),
        Symlink("d/", "to_d_slash"),
        Stat(""),
        Stat("f/"),
        Stat("f/."),
        Stat("f/.."),
        Stat("d/"),
        Stat("d//sub/./../sub/"),
        Stat("to_d/"),
        Stat("to_f/"),
        Stat("to_d_slash"),
        Stat("loop_a"),
        Stat("loop_a/x"),
        Stat("dangling"),
        Stat("nothing/x"),
        Stat(long),
        Stat(longest),
        Open("d", 0),
        Open("d", 1),
        Open("d", 2 | CREAT),
        Open("d/", CREAT),
        Open("new/", 1 | CREAT),
        Open("f/", 0),
        Open("f", 1 | CREAT | EXCL),
        Open("to_f", 1 | CREAT | EXCL),
        Open("dangling", 1 | CREAT | EXCL),
        Open("to_f", NOFOLLOW),
        Open("to_d", NOFOLLOW),
        Open("to_d/", NOFOLLOW),
        Open("to_d/sub", NOFOLLOW | DIRECTORY),
        Open("f", DIRECTORY),
        Open("to_f", DIRECTORY),
        Open("loop_a", CREAT),
        Open("d/.", 1 | CREAT),
        Open("d/..", 1 | CREAT),
        Open("f", 2 | TRUNC),
        Open(long, 1 | CREAT),
        MakeDir("d"),
        MakeDir("d/"),
        MakeDir("d/."),
        MakeDir("d/.."),
        MakeDir("f"),
        MakeDir("f/x"),
        MakeDir("dangling"),
        MakeDir("dangling/"),
        MakeDir("e/"),
        MakeDir("no/where"),
        RemoveDir("d"),
        RemoveDir("d/."),
        RemoveDir("d/sub/.."),
        RemoveDir("f"),
        RemoveDir("to_d"),
        RemoveDir("to_d/"),
        RemoveDir("e/"),
        Unlink("d"),
        Unlink("d/"),
        Unlink("f/"),
        Unlink("nothing"),
        Unlink("d/."),
        Unlink("d/sub/.."),
        Rename("d", "d/sub/x"),
        Rename("d", "d"),
        Rename("d/sub", "d"),
        Rename("d", "f"),
        Rename("f", "d"),
        Rename("f/", "g"),
        Rename("f", "g/"),
        Rename("d/.", "x"),
        Rename("d", "x/."),
        Rename("nothing", "x"),
        Rename("f", "no/where"),
        Link("d", "hard"),
        Link("f", "hard"),
        Link("f", "hard"),
        Link("f", "hard2/"),
        Link("nothing", "hard3"),
        Rename("f", "hard"),
        Stat("f"),
        Stat("hard"),
        Symlink("x", "d"),
        Symlink("x", "new/"),
        Symlink("", "empty"),
        ReadLink("f"),
        ReadLink("to_d"),
        ReadLink("to_d/"),
        Rename("to_d", "moved"),
        ReadLink("moved"),
        Open("dangling", 1 | CREAT),
        Stat("nothing"),
    ];
    let (_kernel, process) = tmpfs();
    let scratch = Scratch::new();
    let at = |path: &str| if path.is_empty() { "".into() } else { scratch.at(path) };
    for (step, call) in calls.iter().enumerate() {
        let (ours, theirs, what) = match call {
            Open(path, flags) => {
                let mut options = host::File::options();
                // Access and creation as std spells them; the rest as it is.
                let writes = flags & 3 != 0;
                options.read(flags & 3 != 1).write(writes).custom_flags((flags & !3) as i32);
                let ours = process.open(path, OpenFlags::from_bits_retain(*flags));
                (ours.map(drop), options.open(at(path)).map(drop), format!("open {path} {flags:o}"))
            }
            Stat(path) => {
                (process.stat(path, true).map(drop), host::metadata(at(path)).map(drop), format!("stat {path}"))
            }
            MakeDir(path) => (process.mkdir(path), host::create_dir(at(path)), format!("mkdir {path}")),
            RemoveDir(path) => (process.rmdir(path), host::remove_dir(at(path)), format!("rmdir {path}")),
            Unlink(path) => (process.unlink(path), host::remove_file(at(path)), format!("unlink {path}")),
            Rename(from, to) => {
                (process.rename(from, to), host::rename(at(from), at(to)), format!("rename {from} {to}"))
            }
            Link(from, to) => (process.link(from, to), host::hard_link(at(from), at(to)), format!("link {from} {to}")),
            Symlink(target, path) => (
                process.symlink(target, path),
                std::os::unix::fs::symlink(target, at(path)),
                format!("symlink {target} {path}"),
            ),
            ReadLink(path) => {
                (process.readlink(path).map(drop), host::read_link(at(path)).map(drop), format!("readlink {path}"))
            }
        };
        let theirs = theirs.map_err(|error| Errno(error.raw_os_error().unwrap_or(0) as u16));
        assert_eq!(ours, theirs, "step {step}: {}", &what[..what.len().min(60)]);
    }
}

#[test]
fn forty_links_are_followed_and_no_more() {
    let (_kernel, process) = tmpfs();
    process.write("0", b"end").unwrap();
    for link in 1..=41 {
        process.symlink(&format!("{}", link - 1), &format!("{link}")).unwrap();
    }
    assert_eq!(process.read("40").unwrap(), b"end");
    assert_eq!(process.read("41").err(), Some(Errno::ELOOP));
}

#[test]
fn permissions_and_the_sticky_bit_stop_other_users() {
    let (_kernel, mut process) = tmpfs();
    process.mkdir("closed").unwrap();
    process.write("closed/file", b"x").unwrap();
    process.chmod("closed", 0o700).unwrap();
    process.mkdir("tmp").unwrap();
    process.chmod("tmp", 0o1777).unwrap();
    process.write("tmp/roots", b"x").unwrap();
    process.caller = user(1000);
    assert_eq!(process.stat("closed/file", true).err(), Some(Errno::EACCES));
    assert_eq!(process.write("new", b"x"), Err(Errno::EACCES));
    assert_eq!(process.unlink("tmp/roots"), Err(Errno::EPERM));
    assert_eq!(process.write("tmp/roots", b"y"), Err(Errno::EACCES));
    assert_eq!(process.chmod("tmp/roots", 0o666), Err(Errno::EPERM));
    process.write("tmp/mine", b"x").unwrap();
    let mine = process.stat("tmp/mine", true).unwrap();
    assert_eq!((mine.mode & 0o777, mine.uid), (0o644, 1000));
    process.unlink("tmp/mine").unwrap();
}

#[test]
fn a_removed_file_lives_until_it_is_closed_and_a_removed_directory_takes_nothing() {
    let (kernel, mut process) = tmpfs();
    let file = process.open("f", OpenFlags::RDWR | OpenFlags::CREAT).unwrap();
    block_on(file.write(&[7; 10_000])).unwrap();
    process.unlink("f").unwrap();
    assert_eq!(block_on(file.attributes()).unwrap().nlink, 0);
    assert_eq!(block_on(file.path()), b"/f (deleted)");
    block_on(file.seek(0, fs::Whence::Set)).unwrap();
    assert_eq!(read_all(&file).unwrap().len(), 10_000);
    assert_eq!(kernel.memory.used(), 3);
    drop(file);
    assert_eq!(kernel.memory.used(), 0);

    process.mkdir("d").unwrap();
    process.base.at = process.open("d", OpenFlags::DIRECTORY).unwrap();
    process.rmdir("../d").unwrap();
    assert_eq!(process.write("x", b""), Err(Errno::ENOENT));
    assert_eq!(process.list("."), Err(Errno::ENOENT));
    process.stat("..", true).unwrap();
}

#[test]
fn an_unnamed_file_gets_a_name_by_linking_it() {
    let (_kernel, mut process) = tmpfs();
    process.mkdir("d").unwrap();
    assert_eq!(process.open("d", OpenFlags::TMPFILE).err(), Some(Errno::EINVAL));
    let file = process.open("d", OpenFlags::TMPFILE | OpenFlags::RDWR).unwrap();
    block_on(file.write(b"text")).unwrap();
    assert!(process.list("d").unwrap().is_empty());
    let root = process.base.at.clone();
    (process.base.at, process.base.to) = (file, Some(root.clone()));
    process.run(PathOp::Link { from: Vec::new(), to: "d/named".into(), follow: false, empty_ok: true }).unwrap();
    process.base.at = root;
    assert_eq!(process.read("d/named").unwrap(), b"text");
    assert_eq!(process.stat("d/named", true).unwrap().nlink, 1);
}

#[test]
fn rename_keeps_exchanges_and_refuses_as_asked() {
    let (_kernel, process) = tmpfs();
    process.write("a", b"A").unwrap();
    process.mkdir("d").unwrap();
    process.write("d/b", b"B").unwrap();
    assert_eq!(process.rename_how("a", "d/b", 1), Err(Errno::EEXIST));
    process.rename_how("a", "d/b", 2).unwrap();
    assert_eq!((process.read("a").unwrap(), process.read("d/b").unwrap()), (b"B".to_vec(), b"A".to_vec()));
    assert_eq!(process.rename_how("a", "missing", 2), Err(Errno::ENOENT));
    assert_eq!(process.rename_how("a", "d/b", 3), Err(Errno::EINVAL));
    assert_eq!(process.rename_how("a", "x", 4), Err(Errno::EINVAL));
    assert_eq!(process.rename_how("d", "d/x", 2), Err(Errno::ENOENT));
    process.rename_how("a", "d", 2).unwrap();
    assert_eq!(process.list("a").unwrap(), ["b"]);
}

#[test]
fn openat2_holds_a_walk_below_its_base() {
    let (_kernel, mut process) = tmpfs();
    process.write("outside", b"o").unwrap();
    process.mkdir("jail").unwrap();
    process.write("jail/inside", b"i").unwrap();
    process.symlink("/inside", "jail/absolute").unwrap();
    process.symlink("../outside", "jail/up").unwrap();
    process.base.at = process.open("jail", OpenFlags::PATH).unwrap();
    let open = |path: &str, resolve| process.open_how(path, OpenFlags::empty(), 0, resolve);
    use fs::namespace::resolve;
    assert_eq!(open("../outside", resolve::BENEATH).err(), Some(Errno::EXDEV));
    assert_eq!(open("up", resolve::BENEATH).err(), Some(Errno::EXDEV));
    assert_eq!(open("absolute", resolve::BENEATH).err(), Some(Errno::EXDEV));
    assert_eq!(open("/x", resolve::BENEATH).err(), Some(Errno::EXDEV));
    open("inside", resolve::BENEATH).unwrap();
    open("absolute", resolve::IN_ROOT).unwrap();
    open("/../../inside", resolve::IN_ROOT).unwrap();
    assert_eq!(open("up", resolve::IN_ROOT).err(), Some(Errno::ENOENT));
    assert_eq!(open("up", resolve::NO_SYMLINKS).err(), Some(Errno::ELOOP));
    assert_eq!(open("inside", 1 << 40).err(), Some(Errno::EINVAL));
}

#[test]
fn mounts_cover_and_dot_dot_leads_out_of_them() {
    let (kernel, process) = tmpfs();
    process.paths.register_kind("tmpfs", Arc::new(TmpMounter { services: kernel.services.clone() }));
    process.mkdir("m").unwrap();
    process.write("m/hidden", b"h").unwrap();
    let mount = |source: &str, path: &str, kind: &str, flags| {
        let (source, path, kind) = (source.into(), path.into(), kind.into());
        process.run(PathOp::Mount { source, path, kind, flags, data: b"mode=755".to_vec() }).map(drop)
    };
    mount("none", "m", "tmpfs", 0).unwrap();
    assert!(process.list("m").unwrap().is_empty());
    process.mkdir("m/sub").unwrap();
    assert_eq!(process.list("m/sub/../..").unwrap(), ["m"]);
    assert_eq!(process.rmdir("m"), Err(Errno::EBUSY));
    assert_eq!(process.link("m/sub", "x"), Err(Errno::EXDEV));
    assert_eq!(block_on(process.open("m/sub", OpenFlags::DIRECTORY).unwrap().path()), b"/m/sub");
    process.mkdir("b").unwrap();
    mount("m/sub", "b", "", mount::flags::BIND).unwrap();
    process.write("b/seen", b"s").unwrap();
    assert_eq!(process.read("m/sub/seen").unwrap(), b"s");
    assert_eq!(process.rename("b/seen", "m/sub/seen2"), Err(Errno::EXDEV));
    mount("", "b", "", mount::flags::REMOUNT | mount::flags::RDONLY).unwrap();
    assert_eq!(process.write("b/seen", b"x"), Err(Errno::EROFS));
    process.write("m/sub/seen", b"x").unwrap();
    let unmount = |path: &str| process.run(PathOp::Unmount { path: path.into(), flags: 0 }).map(drop);
    unmount("b").unwrap();
    let held = process.open("m/sub/seen", OpenFlags::empty()).unwrap();
    assert_eq!(unmount("m"), Err(Errno::EBUSY));
    drop(held);
    unmount("m").unwrap();
    assert_eq!(unmount("m"), Err(Errno::EINVAL));
    assert_eq!(process.read("m/hidden").unwrap(), b"h");
}

struct ToFile(Arc<Mutex<Option<Arc<dyn File>>>>);

impl Link for ToFile {
    fn follow<'a>(&'a self, _caller: &'a Caller) -> BoxFuture<'a, Result<Followed>> {
        let file = self.0.lock().unwrap().clone();
        fs::file::ready(file.map(Followed::File).ok_or(Errno::ENOENT))
    }
}

#[test]
fn generated_text_is_read_in_one_piece_and_links_lead_to_open_files() {
    let (kernel, process) = tmpfs();
    let held = Arc::new(Mutex::new(None));
    let mut asked = 0;
    let count = Mutex::new(move || {
        asked += 1;
        format!("asked {asked}\n").into_bytes()
    });
    let root = Fixed::default()
        .with("count", Node::file(2, Text(move |_: &Caller| (count.lock().unwrap())())))
        .with("fd", Node::link(3, ToFile(held.clone())));
    let tree = Synthetic::new(&kernel.services, "proc", 0x9fa0, Node::directory(1, root));
    process.mkdir("proc").unwrap();
    block_on(process.paths.attach(&process.caller, b"/proc", tree, b"proc", 0)).unwrap();
    let text = process.open("proc/count", OpenFlags::empty()).unwrap();
    let mut part = [0; 5];
    block_on(text.read(&mut part)).unwrap();
    assert_eq!(read_all(&text).unwrap(), b" 1\n");
    assert_eq!(process.read("proc/count").unwrap(), b"asked 2\n");
    assert_eq!(process.write("proc/new", b""), Err(Errno::ENOENT));

    let file = process.open("f", OpenFlags::RDWR | OpenFlags::CREAT).unwrap();
    block_on(file.write(b"through the link")).unwrap();
    process.unlink("f").unwrap();
    *held.lock().unwrap() = Some(file);
    assert_eq!(process.read("proc/fd").unwrap(), b"through the link");
    assert_eq!(process.readlink("proc/fd").unwrap(), b"/f (deleted)");
    assert_eq!(process.stat("proc/fd", true).unwrap().size, 16);
    let open = process.open_how("proc/fd", OpenFlags::empty(), 0, fs::namespace::resolve::NO_MAGICLINKS);
    assert_eq!(open.err(), Some(Errno::ELOOP));
    *held.lock().unwrap() = None;
}

#[test]
fn mappings_reads_and_writes_see_the_same_bytes() {
    let (kernel, process) = tmpfs();
    let file = process.open("f", OpenFlags::RDWR | OpenFlags::CREAT).unwrap();
    block_on(file.write_at(b"hello", 4096)).unwrap();
    let object: Arc<dyn Object> = block_on(file.object()).unwrap();
    let frame = block_on(object.page(1)).unwrap();
    use machine::Memory;
    kernel.memory.write(frame.frame(), 0, b"J");
    let mut buf = [0; 5];
    block_on(file.read_at(&mut buf, 4096)).unwrap();
    assert_eq!(&buf, b"Jello");
    assert_eq!(block_on(object.page(2)).err(), Some(Errno::EFAULT));
    drop(frame);
    assert_eq!(block_on(file.seek(0, fs::Whence::Data)).unwrap(), 4096);
    process.truncate("f", 4098).unwrap();
    process.truncate("f", 8192).unwrap();
    block_on(file.read_at(&mut buf, 4096)).unwrap();
    assert_eq!(&buf, b"Je\0\0\0");
}

#[test]
fn a_sealed_memfd_stays_as_it_is() {
    let kernel = Kernel::new(100);
    let file = fs::memfd(&kernel.services, b"shm", 2).unwrap();
    block_on(file.write(b"fixed")).unwrap();
    assert_eq!(block_on(file.path()), b"/memfd:shm (deleted)");
    use fs::tmpfs::seals;
    assert_eq!(block_on(file.seal(seals::SHRINK | seals::GROW | seals::WRITE)), Ok(14));
    assert_eq!(block_on(file.write_at(b"x", 0)), Err(Errno::EPERM));
    let size = |size| fs::SetAttributes { size: Some(size), ..Default::default() };
    assert_eq!(block_on(file.set_attributes(&user(0), size(1))), Err(Errno::EPERM));
    block_on(file.seal(seals::SEAL)).unwrap();
    assert_eq!(block_on(file.seal(seals::EXEC)), Err(Errno::EPERM));
    let plain = fs::memfd(&kernel.services, b"plain", 0).unwrap();
    assert_eq!(block_on(plain.seal(seals::WRITE)), Err(Errno::EPERM));
    drop((file, plain));
    assert_eq!(kernel.memory.used(), 0);
}

#[test]
fn the_root_of_a_process_is_as_high_as_it_gets() {
    let (_kernel, mut process) = tmpfs();
    process.mkdir("jail").unwrap();
    process.mkdir("jail/in").unwrap();
    process.write("secret", b"s").unwrap();
    let jail = process.open("jail", OpenFlags::DIRECTORY).unwrap();
    process.base = Base::new(jail.clone(), jail);
    assert_eq!(process.list("/../in/../..").unwrap(), ["in"]);
    assert_eq!(process.read("../secret").err(), Some(Errno::ENOENT));
    let PathAnswer::File(root) = block_on(async { process.paths.root().await.map(PathAnswer::File) }).unwrap() else {
        panic!()
    };
    assert_eq!(block_on(root.path()), b"/");
}

#[test]
fn nodes_of_dev_open_what_was_registered_under_their_number() {
    let (kernel, process) = tmpfs();
    let services = kernel.services.clone();
    let opener: fs::devfs::Opener = Arc::new(move |opening: fs::devfs::Opening<'_>| {
        assert_eq!(opening.rdev, (1, 3));
        fs::file::ready(fs::memfd(&services, b"stand-in", 0))
    });
    let devices = &process.paths.devices;
    devices.register("null", fs::Kind::CharDevice, (1, 3), 0o666, opener.clone());
    devices.register("misc/deep", fs::Kind::CharDevice, (1, 4), 0o600, opener);
    process.mkdir("dev").unwrap();
    let tree = block_on(fs::devfs::devtmpfs(&kernel.services, devices)).unwrap();
    block_on(process.paths.attach(&process.caller, b"/dev", tree, b"devtmpfs", 0)).unwrap();
    let null = process.open("dev/null", OpenFlags::RDWR).unwrap();
    assert_eq!(block_on(null.path()), b"/dev/null");
    let attributes = block_on(null.attributes()).unwrap();
    assert_eq!((attributes.mode, attributes.rdev), (0o020666, (1, 3)));
    assert_eq!(process.stat("dev/misc/deep", true).unwrap().mode, 0o020600);
    assert_eq!(process.readlink("dev/stdin").unwrap(), b"/proc/self/fd/0");
    let missing = PathOp::MakeNode { path: "none".into(), mode: 0o020666, rdev: (77, 7) };
    process.run(missing).unwrap();
    assert_eq!(process.open("none", OpenFlags::empty()).err(), Some(Errno::ENXIO));
}

#[test]
fn locks_belong_to_processes_or_descriptions_and_end_with_them() {
    use abi::{LockMode, LockOp, LockRange};
    let (_kernel, process) = tmpfs();
    process.write("f", b"x").unwrap();
    let open = || process.open("f", OpenFlags::RDWR).unwrap();
    let (one, two) = (open(), open());
    let (first, mut second) = (user(0), user(0));
    second.process = machine::Pid(2);
    let flock = LockOp::Flock { mode: LockMode::Exclusive, wait: false };
    block_on(one.lock(&first, flock)).unwrap();
    assert_eq!(block_on(two.lock(&first, flock)).err(), Some(Errno::EAGAIN));
    drop(one);
    block_on(two.lock(&first, flock)).unwrap();
    let range = LockRange { start: 0, end: 10 };
    let record = LockOp::Set { range, mode: LockMode::Exclusive, wait: false, description: false };
    block_on(two.lock(&first, record)).unwrap();
    assert_eq!(block_on(two.lock(&second, record)).err(), Some(Errno::EAGAIN));
    let get = LockOp::Get { range, mode: LockMode::Shared, description: false };
    assert_eq!(block_on(two.lock(&second, get)).unwrap().unwrap().process, Some(first.process));
    let third = open();
    block_on(third.closed(&first));
    block_on(two.lock(&second, record)).unwrap();
}
