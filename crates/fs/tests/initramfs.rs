//! Archives become trees: written by hand for what tools do not make, and by busybox for what they do.
#![allow(clippy::disallowed_methods)]

mod common;

use common::{block_on, Kernel, Process, Scratch};
use fs::initramfs::{
    cpio::{Broken, Item, Reader},
    unpack, Failure,
};
use fs::tmpfs::Tmpfs;
use machine::Errno;
use std::{
    fs as host,
    os::unix::fs::{symlink, MetadataExt, PermissionsExt},
    path::Path,
    process::{Command, Stdio},
};

/// An archive in the making.
#[derive(Default)]
struct Writer(Vec<u8>);

struct Node<'a> {
    name: &'a [u8],
    mode: u32,
    ino: u32,
    links: u32,
    rdev: (u32, u32),
    data: &'a [u8],
}

const PLAIN: Node = Node { name: b"", mode: 0o100644, ino: 0, links: 1, rdev: (0, 0), data: b"" };

impl Writer {
    fn add(&mut self, node: Node) -> &mut Self {
        let Node { name, mode, ino, links, rdev, data } = node;
        let size = data.len() as u32;
        let fields = [ino, mode, 7, 8, links, 1_000_000, size, 3, 1, rdev.0, rdev.1, name.len() as u32 + 1, 0];
        self.0.extend_from_slice(b"070701");
        fields.iter().for_each(|field| self.0.extend_from_slice(format!("{field:08X}").as_bytes()));
        self.0.extend_from_slice(name);
        self.0.push(0);
        self.pad();
        self.0.extend_from_slice(data);
        self.pad();
        self
    }

    fn end(&mut self) -> &mut Self {
        self.add(Node { name: b"TRAILER!!!", mode: 0, ..PLAIN })
    }

    fn pad(&mut self) {
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }
}

fn empty() -> (Kernel, Process) {
    let kernel = Kernel::new(1000);
    let process = Process::new(&kernel, Tmpfs::new(&kernel.services, 0o755));
    (kernel, process)
}

fn unpacked(archive: &[u8]) -> Process {
    let (_kernel, process) = empty();
    block_on(unpack(&*process.paths, archive)).unwrap();
    process
}

fn failure(archive: &[u8]) -> Failure {
    let (_kernel, process) = empty();
    block_on(unpack(&*process.paths, archive)).unwrap_err()
}

#[test]
fn every_kind_of_file_with_its_attributes() {
    let mut archive = Writer::default();
    archive
        .add(Node { name: b"bin", mode: 0o040751, ..PLAIN })
        .add(Node { name: b"bin/tool", mode: 0o104755, data: &[42; 5001], ..PLAIN })
        .add(Node { name: b"sbin", mode: 0o120777, data: b"bin", ..PLAIN })
        // Through the link.
        .add(Node { name: b"sbin/other", data: b"abc", ..PLAIN })
        .add(Node { name: b"dev/null", mode: 0o020666, rdev: (1, 3), ..PLAIN })
        .add(Node { name: b"dev/disk", mode: 0o060640, rdev: (254, 260), ..PLAIN })
        .add(Node { name: b"queue", mode: 0o010600, ..PLAIN })
        .add(Node { name: b"no/such/directory", ..PLAIN })
        .add(Node { name: b"\xff\xfe", ..PLAIN })
        .end();
    let process = unpacked(&archive.0);
    let stat = |path: &str| process.stat(path, false).unwrap();
    let tool = stat("/bin/tool");
    assert_eq!((tool.mode, tool.uid, tool.gid, tool.size), (0o104755, 7, 8, 5001));
    assert_eq!(tool.modified.seconds, 1_000_000);
    assert_eq!(process.read("/bin/tool").unwrap(), [42; 5001]);
    assert_eq!(stat("/bin").mode, 0o040751);
    assert_eq!(process.readlink("/sbin").unwrap(), b"bin");
    assert_eq!(process.read("/bin/other").unwrap(), b"abc");
    assert_eq!((stat("/dev/null").mode, stat("/dev/null").rdev), (0o020666, (1, 3)));
    assert_eq!((stat("/dev/disk").mode, stat("/dev/disk").rdev), (0o060640, (254, 260)));
    assert_eq!(stat("/queue").mode, 0o010600);
    assert_eq!(process.stat("/no", false).err(), Some(Errno::ENOENT));
    // What Linux has without an archive.
    assert_eq!((stat("/dev/console").mode, stat("/dev/console").rdev), (0o020600, (5, 1)));
    assert_eq!(stat("/root").mode, 0o040700);
}

#[test]
fn hard_links_share_one_file_whichever_name_carries_the_data() {
    let link = |name, data| Node { name, ino: 5, links: 3, data, ..PLAIN };
    let mut archive = Writer::default();
    archive.add(link(b"a", b"")).add(link(b"b", b"")).add(link(b"c", b"last")).end();
    // Another archive knows other files by the same numbers.
    archive.add(link(b"x", b"first")).add(link(b"y", b"")).end();
    let process = unpacked(&archive.0);
    let inode = |path: &str| process.stat(path, false).unwrap().ino;
    assert!(inode("/a") == inode("/b") && inode("/b") == inode("/c"));
    assert_eq!(process.stat("/a", false).unwrap().nlink, 3);
    assert_eq!(process.read("/a").unwrap(), b"last");
    assert!(inode("/x") == inode("/y") && inode("/x") != inode("/a"));
    assert_eq!(process.read("/y").unwrap(), b"first");
}

#[test]
fn a_later_archive_replaces_what_an_earlier_one_made() {
    let mut archive = Writer::default();
    archive
        .add(Node { name: b"kernel", mode: 0o040755, ..PLAIN })
        .add(Node { name: b"file", data: b"long old text", ..PLAIN })
        .add(Node { name: b"target", data: b"kept", ..PLAIN })
        .add(Node { name: b"link", mode: 0o120777, data: b"target", ..PLAIN })
        .end();
    archive.0.resize(archive.0.len() + 512, 0);
    archive
        .add(Node { name: b".", mode: 0o040711, ..PLAIN })
        .add(Node { name: b"./file", data: b"new", ..PLAIN })
        // Not through the link: the link is replaced.
        .add(Node { name: b"link", data: b"own", ..PLAIN })
        .add(Node { name: b"kernel", mode: 0o040700, ..PLAIN })
        .end();
    let process = unpacked(&archive.0);
    assert_eq!(process.read("/file").unwrap(), b"new");
    assert_eq!(process.read("/target").unwrap(), b"kept");
    assert_eq!(process.read("/link").unwrap(), b"own");
    assert_eq!(process.stat("/kernel", false).unwrap().mode, 0o040700);
    assert_eq!(process.stat("/", false).unwrap().mode, 0o040711);
}

#[test]
fn what_is_no_archive_is_named() {
    assert_eq!(failure(b"\x1f\x8b\x08\0"), Failure::Archive(Broken::Compressed("gzip")));
    assert_eq!(failure(b"\x28\xb5\x2f\xfd...."), Failure::Archive(Broken::Compressed("zstd")));
    assert_eq!(failure(b"\0\0\0\0hello"), Failure::Archive(Broken::Format(4)));
    assert!(failure(b"\x1f\x8b\x08\0").to_string().contains("gzip"));
    let mut archive = Writer::default();
    archive.add(Node { name: b"file", data: &[1; 100], ..PLAIN }).end();
    let mut summed = archive.0.clone();
    summed[5] = b'2';
    assert_eq!(failure(&summed), Failure::Archive(Broken::Checksum(0)));
    // However it is cut, it is an error and no panic; but for the cut between the entries.
    let whole = archive.0.len();
    let file_end = whole - 124;
    for length in 1..whole {
        let mut reader = Reader::new(&archive.0[..length]);
        let mut items = 0;
        let outcome = loop {
            match reader.item() {
                Ok(Some(Item::Entry(_) | Item::End)) => items += 1,
                Ok(None) => break Ok(items),
                Err(error) => break Err(error),
            }
        };
        let expected = if length == file_end { Ok(1) } else { Err(()) };
        if length < whole - 1 {
            assert_eq!(outcome.map_err(drop), expected, "{length} of {whole}");
        }
    }
}

#[test]
fn what_does_not_fit_into_memory_is_an_error() {
    let kernel = Kernel::new(10);
    let process = Process::new(&kernel, Tmpfs::new(&kernel.services, 0o755));
    let mut archive = Writer::default();
    archive.add(Node { name: b"large", data: &[1; 1 << 20], ..PLAIN }).end();
    assert!(matches!(block_on(unpack(&*process.paths, &archive.0)), Err(Failure::Room(..))));
}

/// A tree of the host through busybox's cpio, compared name by name.
#[test]
fn busybox_packs_and_we_unpack() {
    if !Path::new("/bin/busybox").exists() {
        return; // ./cob installs it
    }
    let scratch = Scratch::new();
    host::create_dir_all(scratch.at("etc/deep/er")).unwrap();
    host::write(scratch.at("etc/deep/er/file"), vec![7; 12345]).unwrap();
    host::write(scratch.at("script"), "#!/bin/sh\n").unwrap();
    host::set_permissions(scratch.at("script"), host::Permissions::from_mode(0o751)).unwrap();
    host::hard_link(scratch.at("script"), scratch.at("etc/again")).unwrap();
    symlink("deep/er/file", scratch.at("etc/link")).unwrap();
    let names = ["etc", "etc/deep", "etc/deep/er", "etc/deep/er/file", "script", "etc/again", "etc/link"];
    let mut pack = Command::new("/bin/busybox")
        .args(["cpio", "-o", "-H", "newc"])
        .current_dir(&scratch.0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut pack.stdin.take().unwrap(), names.join("\n").as_bytes()).unwrap();
    let process = unpacked(&pack.wait_with_output().unwrap().stdout);
    for name in names {
        let (ours, theirs) =
            (process.stat(&format!("/{name}"), false).unwrap(), host::symlink_metadata(scratch.at(name)).unwrap());
        assert_eq!((ours.mode, ours.uid, ours.gid), (theirs.mode(), theirs.uid(), theirs.gid()), "{name}");
        assert_eq!(ours.modified.seconds, theirs.mtime(), "{name}");
        if theirs.is_file() {
            assert_eq!(u64::from(ours.nlink), theirs.nlink(), "{name}");
            assert_eq!(process.read(&format!("/{name}")).unwrap(), host::read(scratch.at(name)).unwrap());
        }
    }
    assert_eq!(process.readlink("/etc/link").unwrap(), b"deep/er/file");
}
