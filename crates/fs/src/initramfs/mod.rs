//! An initramfs becomes a tree: every entry of the archive is made through [`Paths`], as if a program did
//! it, so links on the way are followed and the rules are those of the system calls (Linux, init/initramfs.c).

pub mod cpio;

use crate::{file::SYSTEM, Base, Kind, OpenFlags, PathAnswer, PathOp, Paths, SetAttributes, Timestamp};
use alloc::{collections::BTreeMap, vec::Vec};
use core::fmt;
use cpio::{Broken, Entry, Item, Reader};
use machine::{errno::Result, Errno};

/// Why an initramfs is no root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    Archive(Broken),
    /// There is no room for this name's contents.
    Room(Vec<u8>, Errno),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Failure::Archive(broken) => write!(f, "the initramfs is {broken}"),
            Failure::Room(name, error) => {
                write!(f, "the initramfs does not fit into memory: {}: {error:?}", name.escape_ascii())
            }
        }
    }
}

/// What Linux's own, always present initramfs holds (usr/default_cpio_list).
const BUILT_IN: [(&[u8], u32, (u32, u32)); 3] =
    [(b"/dev", 0o040755, (0, 0)), (b"/dev/console", 0o020600, (5, 1)), (b"/root", 0o040700, (0, 0))];

/// Makes the tree, and says how many names the archive had. A name that cannot be made (its directory is missing, say) is left
/// out with a line in the log, where Linux says nothing.
pub async fn unpack(paths: &dyn Paths, archive: &[u8]) -> core::result::Result<usize, Failure> {
    let root = paths.root().await.map_err(|error| Failure::Room(b"/".to_vec(), error))?;
    let base = Base { to: Some(root.clone()), ..Base::new(root.clone(), root) };
    let mut tree = Tree { paths, base, files: BTreeMap::new(), directories: Vec::new() };
    for (name, mode, rdev) in BUILT_IN {
        let (identity, data) = ((0, 0, 0), &[][..]);
        let entry = Entry { mode, uid: 0, gid: 0, links: 1, modified: 0, identity, rdev, name, data };
        tree.report(&entry).await?;
    }
    let mut reader = Reader::new(archive);
    let mut names = 0;
    while let Some(item) = reader.item().map_err(Failure::Archive)? {
        match item {
            Item::Entry(entry) => tree.report(&entry).await?,
            Item::End => tree.files.clear(),
        }
        names += usize::from(item != Item::End);
    }
    for (path, time) in core::mem::take(&mut tree.directories) {
        let set = SetAttributes { accessed: Some(time), modified: Some(time), ..SetAttributes::default() };
        // It may have been replaced since by something else.
        let _ = tree.run(PathOp::SetAttributes { path, follow: false, empty_ok: false, set }).await;
    }
    Ok(names)
}

struct Tree<'a> {
    paths: &'a dyn Paths,
    /// Everything starts at the root.
    base: Base,
    /// The first name of each file that said it has several, by identity and type.
    files: BTreeMap<(u32, u32, u32, u32), Vec<u8>>,
    /// Times of directories: set last, because what is made in them changes them.
    directories: Vec<(Vec<u8>, Timestamp)>,
}

impl Tree<'_> {
    async fn report(&mut self, entry: &Entry<'_>) -> core::result::Result<(), Failure> {
        match self.make(entry).await {
            Ok(()) => Ok(()),
            Err(error @ (Errno::ENOSPC | Errno::ENOMEM)) => Err(Failure::Room(entry.name.to_vec(), error)),
            Err(error) => {
                log::warn!("initramfs: {} is left out: {error:?}", entry.name.escape_ascii());
                Ok(())
            }
        }
    }

    async fn make(&mut self, entry: &Entry<'_>) -> Result<()> {
        let kind = Kind::of_mode(entry.mode).ok_or(Errno::EINVAL)?;
        let path = entry.name.to_vec();
        self.clear(&path, kind).await?;
        if kind != Kind::Directory && kind != Kind::Symlink && self.is_link(entry, kind, &path).await? {
            // The contents come with any of the names, usually the last.
            if kind == Kind::Regular && !entry.data.is_empty() {
                self.write(path.clone(), entry.data, OpenFlags::TRUNC).await?;
            }
            return self.dress(path, entry, kind).await;
        }
        match kind {
            Kind::Regular => self.write(path.clone(), entry.data, OpenFlags::CREAT | OpenFlags::TRUNC).await?,
            Kind::Directory => {
                match self.run(PathOp::MakeDir { path: path.clone(), mode: entry.mode & 0o7777 }).await {
                    Ok(_) | Err(Errno::EEXIST) => {}
                    Err(error) => return Err(error),
                }
            }
            Kind::Symlink => {
                self.run(PathOp::Symlink { target: entry.data.to_vec(), path: path.clone() }).await?;
            }
            _ => {
                self.run(PathOp::MakeNode { path: path.clone(), mode: entry.mode, rdev: entry.rdev }).await?;
            }
        }
        self.dress(path, entry, kind).await
    }

    /// Takes away what has the name and is of another type. A link is never kept: it would be followed.
    async fn clear(&self, path: &[u8], kind: Kind) -> Result<()> {
        let stat = PathOp::Stat { path: path.to_vec(), follow: false, empty_ok: false };
        let Ok(PathAnswer::Attributes(there)) = self.run(stat).await else { return Ok(()) };
        if there.kind() == kind && matches!(kind, Kind::Regular | Kind::Directory) {
            return Ok(());
        }
        let directory = there.kind() == Kind::Directory;
        self.run(PathOp::Unlink { path: path.to_vec(), directory }).await.map(drop)
    }

    /// A further name of a file that has been made already becomes a hard link to it.
    async fn is_link(&mut self, entry: &Entry<'_>, kind: Kind, path: &[u8]) -> Result<bool> {
        if entry.links < 2 {
            return Ok(false);
        }
        let (major, minor, number) = entry.identity;
        let key = (major, minor, number, kind as u32);
        let Some(first) = self.files.get(&key).cloned() else {
            self.files.insert(key, path.to_vec());
            return Ok(false);
        };
        // A name that is there from an earlier archive gives way.
        if kind == Kind::Regular {
            let _ = self.run(PathOp::Unlink { path: path.to_vec(), directory: false }).await;
        }
        self.run(PathOp::Link { from: first, to: path.to_vec(), follow: false, empty_ok: false }).await?;
        Ok(true)
    }

    async fn write(&self, path: Vec<u8>, mut data: &[u8], how: OpenFlags) -> Result<()> {
        let flags = OpenFlags::WRONLY | OpenFlags::LARGEFILE | how;
        let PathAnswer::File(file) = self.run(PathOp::Open { path, flags, mode: 0o600, resolve: 0 }).await? else {
            return Err(Errno::EIO);
        };
        while !data.is_empty() {
            let written = file.write(data).await?;
            data = &data[written..];
        }
        Ok(())
    }

    /// Owner, permissions, times; in this order, because a change of owner clears set-user-id.
    async fn dress(&mut self, path: Vec<u8>, entry: &Entry<'_>, kind: Kind) -> Result<()> {
        let time = Timestamp { seconds: i64::from(entry.modified), nanoseconds: 0 };
        if kind == Kind::Directory {
            self.directories.push((path.clone(), time));
        }
        let modified = Some(time);
        let owner = SetAttributes { uid: Some(entry.uid), gid: Some(entry.gid), ..SetAttributes::default() };
        let mode = (kind != Kind::Symlink).then_some(entry.mode & 0o7777);
        let rest = SetAttributes { mode, accessed: modified, modified, ..SetAttributes::default() };
        for set in [owner, rest] {
            self.run(PathOp::SetAttributes { path: path.clone(), follow: false, empty_ok: false, set }).await?;
        }
        Ok(())
    }

    async fn run(&self, op: PathOp) -> Result<PathAnswer> {
        self.paths.run(&SYSTEM, &self.base, op).await
    }
}
