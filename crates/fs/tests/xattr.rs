//! Extended attributes and ACLs: who pays for them, what of them is copied up, and who may do what. What Linux answers to what is compared in
//! tests/guest/xattr.c.
#![allow(clippy::disallowed_methods)]

mod common;

use common::{block_on, server::Server, user, Kernel, Process, Scratch};
use fs::{
    inode::acl::AclKind,
    ninep::{Options, Share},
    tmpfs::{TmpMounter, Tmpfs},
    union::Union,
    FileSystem, OpenFlags, PathAnswer, PathOp, SetWhen, XattrOp,
};
use machine::{errno::Result, Errno};
use std::sync::Arc;

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";

fn xattr(process: &Process, path: &str, op: XattrOp) -> Result<Vec<u8>> {
    match process.run(PathOp::Xattr { path: path.into(), follow: true, op })? {
        PathAnswer::Bytes(bytes) => Ok(bytes),
        _ => panic!("no bytes"),
    }
}

fn set(process: &Process, path: &str, name: &str, value: &[u8]) -> Result<()> {
    let op = XattrOp::Set { name: name.into(), value: value.into(), when: SetWhen::ALWAYS };
    xattr(process, path, op).map(|bytes| assert!(bytes.is_empty()))
}

fn get(process: &Process, path: &str, name: &str) -> Result<Vec<u8>> {
    xattr(process, path, XattrOp::Get { name: name.into() })
}

fn remove(process: &Process, path: &str, name: &str) -> Result<()> {
    xattr(process, path, XattrOp::Remove { name: name.into() }).map(drop)
}

fn names(process: &Process, path: &str) -> String {
    String::from_utf8(xattr(process, path, XattrOp::List).unwrap()).unwrap().replace('\0', " ")
}

/// An ACL as system calls have it.
fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend_from_slice(&tag.to_le_bytes());
        bytes.extend_from_slice(&permissions.to_le_bytes());
        bytes.extend_from_slice(&id.to_le_bytes());
    }
    bytes
}

/// The user 7 may read and write, whoever else may not.
fn for_seven() -> Vec<u8> {
    acl(&[(1, 6, u32::MAX), (2, 6, 7), (4, 0, u32::MAX), (16, 6, u32::MAX), (32, 0, u32::MAX)])
}

fn at(process: &Process, uid: u32) -> Process {
    Process { caller: user(uid), ..process.clone() }
}

fn free_files(process: &Process, path: &str) -> u64 {
    match process.run(PathOp::StatFs { path: path.into() }).unwrap() {
        PathAnswer::FileSystem(info) => info.files_free,
        _ => panic!("no numbers"),
    }
}

#[test]
fn the_file_system_pays_and_gets_it_back() {
    let kernel = Kernel::new(1000);
    let process = Process::new(&kernel, Tmpfs::new(&kernel.services, 0o755));
    process.paths.register_kind("tmpfs", Arc::new(TmpMounter { services: kernel.services.clone() }));
    process.mkdir("/m").unwrap();
    process.mount("/m", "nr_inodes=10").unwrap();
    process.write("/m/f", b"").unwrap();
    assert_eq!(free_files(&process, "/m"), 9);
    set(&process, "/m/f", "user.a", b"1").unwrap();
    set(&process, "/m/f", "user.b", &[1; 700]).unwrap();
    assert_eq!(free_files(&process, "/m"), 8, "both are less than a KiB");
    set(&process, "/m/f", "user.b", &[1; 3000]).unwrap();
    assert_eq!(free_files(&process, "/m"), 5);
    assert_eq!(set(&process, "/m/f", "user.c", &[1; 6000]), Err(Errno::ENOSPC));
    assert_eq!(set(&process, "/m/f", "user.b", &[1; 10000]), Err(Errno::ENOSPC));
    assert_eq!(
        (get(&process, "/m/f", "user.b").unwrap().len(), names(&process, "/m/f")),
        (3000, "user.b user.a ".into())
    );
    let mut long = for_seven();
    (0..1000).for_each(|_| long.splice(12..12, [2, 0, 6, 0, 9, 0, 0, 0]).for_each(drop));
    assert_eq!(set(&process, "/m/f", ACCESS, &long), Err(Errno::ENOSPC));
    set(&process, "/m/f", "user.b", b"").unwrap();
    assert_eq!(free_files(&process, "/m"), 8);
    set(&process, "/m/f", ACCESS, &for_seven()).unwrap();
    remove(&process, "/m/f", "user.b").unwrap();
    remove(&process, "/m/f", "user.a").unwrap();
    assert_eq!((free_files(&process, "/m"), names(&process, "/m/f")), (8, format!("{ACCESS} ")));
    remove(&process, "/m/f", ACCESS).unwrap();
    assert_eq!((free_files(&process, "/m"), names(&process, "/m/f")), (9, String::new()));
    set(&process, "/m/f", "user.b", &[1; 3000]).unwrap();
    process.unlink("/m/f").unwrap();
    assert_eq!(free_files(&process, "/m"), 10);
}

/// A union over a tmpfs whose files have attributes.
fn union(kernel: &Kernel) -> (Process, Process) {
    let lower = Tmpfs::new(&kernel.services, 0o755);
    let below = Process::new(kernel, lower.clone());
    below.mkdir("/d").unwrap();
    below.write("/d/f", b"contents").unwrap();
    for (path, name, value) in
        [("/d", "user.d", &b"of a directory"[..]), ("/d/f", "user.f", b"below"), ("/d/f", "trusted.f", b"t")]
    {
        set(&below, path, name, value).unwrap();
    }
    set(&below, "/d/f", ACCESS, &for_seven()).unwrap();
    set(&below, "/d", DEFAULT, &for_seven()).unwrap();
    let upper = Tmpfs::new(&kernel.services, 0o755);
    (below, Process::new(kernel, Union::new(&kernel.services, lower, upper).unwrap()))
}

#[test]
fn a_copy_has_the_attributes_of_what_it_was_copied_from() {
    let kernel = Kernel::new(1000);
    let (below, process) = union(&kernel);
    let all = || {
        assert_eq!(get(&process, "/d/f", "user.f").unwrap(), b"below");
        assert_eq!(get(&process, "/d", "user.d").unwrap(), b"of a directory");
        assert_eq!(get(&process, "/d", DEFAULT).unwrap(), for_seven());
        assert_eq!(get(&process, "/d/f", ACCESS).unwrap(), for_seven());
        assert_eq!(names(&process, "/d/f"), format!("{ACCESS} user.f trusted.f "));
        at(&process, 7).open("/d/f", OpenFlags::RDWR).unwrap();
        assert_eq!(at(&process, 8).open("/d/f", OpenFlags::RDWR).err(), Some(Errno::EACCES));
        process.stat("/d/f", true).unwrap().mode & 0o777
    };
    // What is not there is looked for and removed without a copy.
    assert_eq!(remove(&process, "/d/f", "user.none"), Err(Errno::ENODATA));
    assert_eq!(get(&process, "/d/f", "user.none"), Err(Errno::ENODATA));
    assert_eq!(remove(&process, "/d", ACCESS), Ok(()));
    assert_eq!(process.stat("/d", true).unwrap().nlink, 2, "a copied directory shows 1");
    assert_eq!(all(), 0o660);
    process.write("/d/f", b"written").unwrap();
    assert_eq!(all(), 0o660);
    set(&process, "/d/f", "user.f", b"above").unwrap();
    set(&process, "/d", "user.d", b"above").unwrap();
    assert_eq!(get(&process, "/d/f", "user.f").unwrap(), b"above");
    assert_eq!(get(&below, "/d/f", "user.f").unwrap(), b"below");
    // The directory's default list is that of its copy, too.
    process.write("/d/new", b"").unwrap();
    assert_eq!(get(&process, "/d/new", ACCESS).unwrap(), for_seven());
}

#[test]
fn a_share_has_none_and_a_union_over_it_has() {
    let (kernel, scratch) = (Kernel::new(1000), Scratch::new());
    std::fs::write(scratch.at("f"), b"").unwrap();
    let server = Arc::new(Server::new(&scratch.0));
    let share: Arc<dyn FileSystem> = block_on(Share::attach(server, &kernel.services, Options::default())).unwrap();
    let plain = Process::new(&kernel, share.clone());
    assert_eq!(set(&plain, "/f", "user.a", b"1"), Err(Errno::EOPNOTSUPP));
    assert_eq!(get(&plain, "/f", "user.a"), Err(Errno::EOPNOTSUPP));
    assert_eq!(get(&plain, "/f", ACCESS), Err(Errno::EOPNOTSUPP));
    assert_eq!(names(&plain, "/f"), "");
    let upper = Tmpfs::new(&kernel.services, 0o755);
    let process = Process::new(&kernel, Union::new(&kernel.services, share, upper).unwrap());
    assert_eq!(get(&process, "/f", "user.a"), Err(Errno::ENODATA));
    assert_eq!(get(&process, "/f", "user."), Err(Errno::EINVAL));
    assert_eq!(get(&process, "/f", ACCESS), Err(Errno::ENODATA));
    assert_eq!(remove(&process, "/f", "user.a"), Err(Errno::ENODATA));
    assert_eq!(set(&process, "/f", "user.a", b"1"), Ok(()));
    assert_eq!(get(&process, "/f", "user.a").unwrap(), b"1");
}

#[test]
fn a_list_decides_for_whom_it_names_on_the_whole_path() {
    let kernel = Kernel::new(1000);
    let root = Process::new(&kernel, Tmpfs::new(&kernel.services, 0o755));
    root.mkdir("/d").unwrap();
    root.write("/d/f", b"").unwrap();
    root.chmod("/d", 0o700).unwrap();
    root.chmod("/d/f", 0o666).unwrap();
    let reads = |uid| at(&root, uid).open("/d/f", OpenFlags::empty()).map(drop);
    assert_eq!((reads(7), reads(8)), (Err(Errno::EACCES), Err(Errno::EACCES)));
    let search = [(1, 7, u32::MAX), (2, 1, 7), (4, 0, u32::MAX), (16, 1, u32::MAX), (32, 0, u32::MAX)];
    set(&root, "/d", ACCESS, &acl(&search)).unwrap();
    assert_eq!((reads(7), reads(8)), (Ok(()), Err(Errno::EACCES)));
    assert_eq!(at(&root, 7).write("/d/g", b""), Err(Errno::EACCES));
    root.chmod("/d", 0o770).unwrap();
    assert_eq!((reads(7), at(&root, 7).write("/d/g", b"")), (Ok(()), Err(Errno::EACCES)), "the mask is no right");
    root.chmod("/d", 0o705).unwrap();
    assert_eq!((reads(7), reads(8)), (Ok(()), Ok(())), "without a mask the list is not looked at");
    assert_eq!(set(&at(&root, 7), "/d/f", ACCESS, &for_seven()), Err(Errno::EPERM));
    assert_eq!(AclKind::of_name(DEFAULT.as_bytes()), Some(AclKind::Default));
    // Times may be set to now by who may write.
    root.write("/own", b"").unwrap();
    set(&root, "/own", ACCESS, &for_seven()).unwrap();
    assert_eq!(at(&root, 7).truncate("/own", 5), Ok(()));
    assert_eq!(at(&root, 8).truncate("/own", 5), Err(Errno::EACCES));
}

#[test]
fn what_cannot_be_written_keeps_its_attributes() {
    let kernel = Kernel::new(1000);
    let process = Process::new(&kernel, Tmpfs::new(&kernel.services, 0o755));
    process.paths.register_kind("tmpfs", Arc::new(TmpMounter { services: kernel.services.clone() }));
    process.mkdir("/m").unwrap();
    process.mount("/m", "").unwrap();
    process.write("/m/f", b"").unwrap();
    set(&process, "/m/f", "user.a", b"1").unwrap();
    let op = PathOp::Mount {
        source: Vec::new(),
        path: b"/m".to_vec(),
        kind: Vec::new(),
        flags: fs::namespace::mount::flags::REMOUNT | fs::namespace::mount::flags::RDONLY,
        data: Vec::new(),
    };
    process.run(op).unwrap();
    for name in ["user.a", "trusted.a", "other.a", ACCESS] {
        assert_eq!(set(&process, "/m/f", name, b""), Err(Errno::EROFS), "{name}");
        assert_eq!(remove(&process, "/m/f", name), Err(Errno::EROFS), "{name}");
    }
    assert_eq!(get(&process, "/m/f", "user.a").unwrap(), b"1");
}
