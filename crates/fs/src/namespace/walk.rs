//! From a path to a place (man 7 path_resolution).

use super::{
    dentry::{Cached, Dentry, Location},
    paths::{Onward, GOES_ON},
    permission::{self, EXEC},
    LocalPaths,
};
use crate::{
    inode::{Followed, FOREVER},
    lease::{self, Lease},
    Attributes, Base, Caller, File, Inode, Kind,
};
use alloc::{borrow::Cow, boxed::Box, sync::Arc};
use core::sync::atomic::Ordering;
use machine::{errno::Result, Errno};

/// Including its NUL.
pub(crate) const PATH_MAX: usize = 4096;
const NAME_MAX: usize = 255;
const SYMLINK_LIMIT: u32 = 40;

/// `resolve` of openat2(2).
pub mod resolve {
    pub const NO_XDEV: u64 = 1;
    pub const NO_MAGICLINKS: u64 = 2;
    pub const NO_SYMLINKS: u64 = 4;
    pub const BENEATH: u64 = 8;
    pub const IN_ROOT: u64 = 0x10;
    pub const CACHED: u64 = 0x20;
    pub const ALL: u64 = 0x3f;
}

/// The last component of a path, not looked up yet.
pub(super) enum Last<'p> {
    Name {
        name: Cow<'p, [u8]>,
        /// Followed by a slash: must be a directory.
        slash: bool,
    },
    /// `.` or nothing but slashes: the directory the walk has come to.
    Here,
    /// `..`; the walk has already gone up.
    Up,
    /// A link to an open file ended the walk.
    File(Arc<dyn File>),
}

impl Last<'_> {
    fn owned(self) -> Last<'static> {
        match self {
            Last::Name { name, slash } => Last::Name { name: Cow::Owned(name.into_owned()), slash },
            Last::Here => Last::Here,
            Last::Up => Last::Up,
            Last::File(file) => Last::File(file),
        }
    }
}

/// What a path leads to.
pub(super) enum Target {
    At(Location),
    /// A file without a name, through a link of /proc/PID/fd.
    File(Arc<dyn File>),
}

pub(super) struct Walk<'a> {
    pub paths: &'a LocalPaths,
    pub caller: &'a Caller,
    base: &'a Base,
    second: bool,
    /// None: it is on another kernel, and `..` can't come to it here.
    root: Option<Location>,
    pub at: Location,
    links: u32,
    resolve: u64,
    /// Bytes at the end of the path that are of the path that was given, not of a symbolic link.
    given: usize,
    /// The walk has come to its first directory on another kernel, which has looked at who may.
    crossed: bool,
    /// At the end of the path another kernel's mount is not entered: it is the mount itself that is wanted.
    stays: bool,
    /// Where what the walk looks at is noted.
    lease: Option<&'a Arc<Lease>>,
}

/// Where a file of this kernel was opened, if it has a name.
pub(super) fn place_of(file: &dyn File) -> Option<&Location> {
    file.location()?.downcast_ref()
}

pub(super) fn location_of(file: &Arc<dyn File>) -> Result<Location> {
    place_of(&**file).cloned().ok_or(Errno::ENOTDIR)
}

pub(super) async fn attributes(inode: &Arc<dyn Inode>) -> Result<Attributes> {
    match inode.attributes_now() {
        Some(attributes) => Ok(attributes),
        None => inode.attributes().await,
    }
}

impl<'a> Walk<'a> {
    /// A walk from `base.at`, or `base.to` for the second path of an operation.
    pub fn new(paths: &'a LocalPaths, caller: &'a Caller, base: &'a Base, path: &[u8], second: bool) -> Result<Self> {
        // One that goes on here may have become longer by links.
        let most = if base.continues.is_some() { 2 * PATH_MAX } else { PATH_MAX };
        if path.len() >= most {
            return Err(Errno::ENAMETOOLONG);
        }
        let root = if base.root_is_elsewhere { None } else { place_of(&*base.root).cloned() };
        let start = if second { base.to.as_ref().unwrap_or(&base.at) } else { &base.at };
        let at = match path.first() {
            // An absolute path does not care what the descriptor is.
            Some(b'/') if root.is_some() => root.clone(),
            _ => None,
        };
        let at = match at {
            Some(root) => root,
            None => location_of(start)?,
        };
        let lease = base.lease.as_ref();
        if let Some(lease) = lease {
            lease.note_in(&paths.everything, lease::OWN);
        }
        let (continues, given) = (base.continues.unwrap_or_default(), path.len());
        let (links, crossed) = (continues.links, continues.crossed[usize::from(second)]);
        let walk =
            Walk { paths, caller, base, second, root, at, links, resolve: 0, given, crossed, stays: false, lease };
        // It was on its way here when the mount was taken away: on below it.
        if let Some(above) = paths.mounts.left(&walk.at.mount, start) {
            return Err(walk.go_on(Some(above), b"", path));
        }
        Ok(walk)
    }

    /// For mount(2) and umount(2).
    pub fn of_mount(mut self) -> Self {
        self.stays = true;
        self
    }

    /// What the operation answers when the walk goes on at `at` of another kernel, with these two parts of a path.
    pub(super) fn go_on(&self, at: Option<Arc<dyn File>>, first: &[u8], rest: &[u8]) -> Errno {
        let path = [first, rest].concat();
        let tail = (rest.len() <= self.given).then_some(rest.len());
        let (second, links) = (self.second, self.links);
        *self.base.onward.lock() = Some(Box::new(Onward { second, at, path, links, tail }));
        GOES_ON
    }

    /// Goes on elsewhere if `to` is the root of another kernel's mount.
    fn enter(&self, to: &Location, rest: &[u8]) -> Result<()> {
        match to.mount.entry() {
            Some(entry) => Err(self.go_on(Some(entry.clone()), b".", rest)),
            None => Ok(()),
        }
    }

    pub fn with_resolve(mut self, base: &Base, path: &[u8], flags: u64) -> Result<Self> {
        if flags & !resolve::ALL != 0 || flags & resolve::BENEATH != 0 && flags & resolve::IN_ROOT != 0 {
            return Err(Errno::EINVAL);
        }
        if flags & resolve::CACHED != 0 {
            return Err(Errno::EAGAIN);
        }
        self.resolve = flags;
        if flags & resolve::BENEATH != 0 && path.first() == Some(&b'/') {
            return Err(Errno::EXDEV);
        }
        if flags & (resolve::BENEATH | resolve::IN_ROOT) != 0 && base.continues.is_none() {
            self.at = location_of(&base.at)?;
            self.root = Some(self.at.clone());
        }
        Ok(self)
    }

    /// Walks the whole path.
    pub async fn target(&mut self, path: &[u8], follow: bool) -> Result<Target> {
        let mut last = self.parent(path).await?;
        loop {
            let (name, slash) = match last {
                Last::Here | Last::Up => return Ok(Target::At(self.at.clone())),
                Last::File(file) => return Ok(Target::File(file)),
                Last::Name { name, slash } => (name, slash),
            };
            let found = self.last(&name, slash).await?.ok_or(Errno::ENOENT)?;
            if found.inode().kind() == Kind::Symlink && (follow || slash) {
                last = self.follow(&found, slash).await?;
                continue;
            }
            if slash && found.inode().kind() != Kind::Directory {
                return Err(Errno::ENOTDIR);
            }
            return Ok(Target::At(found));
        }
    }

    /// Like [`Walk::target`], for operations that need a name in the tree.
    pub async fn location(&mut self, path: &[u8], follow: bool) -> Result<Location> {
        match self.target(path, follow).await? {
            Target::At(location) => Ok(location),
            Target::File(file) => location_of(&file),
        }
    }

    /// [`Walk::location`], which goes on at another kernel if a link of /proc ends at an open file of it.
    pub async fn place_or_file(&mut self, path: &[u8], follow: bool) -> Result<Location> {
        match self.target(path, follow).await? {
            Target::At(location) => Ok(location),
            Target::File(file) if file.remote().is_some() => Err(self.go_on(Some(file), b"", b"")),
            Target::File(file) => location_of(&file),
        }
    }

    /// Walks all but the last component; afterwards `self.at` is the directory that holds it, and may be
    /// searched. [`GOES_ON`]: on another kernel, from this walk as from all others.
    pub async fn parent<'p>(&mut self, path: &'p [u8]) -> Result<Last<'p>> {
        if path.is_empty() {
            return Err(Errno::ENOENT);
        }
        // From `end` on it is to be walked yet.
        let (mut rest, mut end) = (Cow::Borrowed(path), 0);
        if path[0] == b'/' {
            self.jump_to_root(path)?;
        }
        loop {
            let Some(start) = rest[end..].iter().position(|byte| *byte != b'/').map(|at| end + at) else {
                return Ok(Last::Here);
            };
            end = rest[start..].iter().position(|byte| *byte == b'/').map_or(rest.len(), |at| start + at);
            let name = &rest[start..end];
            let slash = end < rest.len();
            let more = rest[end..].iter().any(|byte| *byte != b'/');
            let first = core::mem::take(&mut self.crossed) && matches!(name, b"." | b"..");
            self.check_search(first).await?;
            if name.len() > NAME_MAX {
                return Err(Errno::ENAMETOOLONG);
            }
            match name {
                b"." if !more => return Ok(Last::Here),
                b"." => {}
                b".." => {
                    self.up(&rest[end..])?;
                    if !more {
                        return Ok(Last::Up);
                    }
                }
                _ if !more => {
                    let name = match &rest {
                        Cow::Borrowed(path) => Cow::Borrowed(&path[start..end]),
                        Cow::Owned(path) => Cow::Owned(path[start..end].to_vec()),
                    };
                    return Ok(Last::Name { name, slash });
                }
                _ => {
                    let found = self.child(name).await?.ok_or(Errno::ENOENT)?;
                    self.enter(&found, &rest[end..])?;
                    if found.inode().kind() == Kind::Symlink {
                        match self.read(&found).await? {
                            Followed::Path(mut target) => {
                                target.extend_from_slice(&rest[end..]);
                                self.given = self.given.min(rest.len() - end);
                                if target.first() == Some(&b'/') {
                                    self.jump_to_root(&target)?;
                                }
                                (rest, end) = (Cow::Owned(target), 0);
                                continue;
                            }
                            Followed::File(file) => match place_of(&*file).cloned() {
                                Some(location) => self.jump(location)?,
                                None => return Err(self.enter_file(file, &rest[end..])?),
                            },
                        }
                    } else {
                        self.at = found;
                    }
                    if self.at.inode().kind() != Kind::Directory {
                        return Err(Errno::ENOTDIR);
                    }
                }
            }
        }
    }

    /// Goes on at the end of the symbolic link `link`, with a slash after it or without.
    pub async fn follow(&mut self, link: &Location, slash: bool) -> Result<Last<'static>> {
        let tail: &[u8] = if slash { b"/" } else { b"" };
        match self.read(link).await? {
            Followed::Path(mut path) => {
                path.extend_from_slice(tail);
                self.given = self.given.min(tail.len());
                // Boxed: the walk of a link is a walk.
                Box::pin(self.parent(&path)).await.map(Last::owned)
            }
            Followed::File(file) => match place_of(&*file).cloned() {
                None if slash && file.remote().is_none() => Err(Errno::ENOTDIR),
                Some(location) if !tail.is_empty() && location.inode().kind() != Kind::Directory => Err(Errno::ENOTDIR),
                Some(location) => {
                    self.jump(location)?;
                    Ok(Last::Here)
                }
                // A directory is as if it had been walked to.
                None if file.remote().is_some() && file.attributes().await?.kind() == Kind::Directory => {
                    Err(self.enter_file(file, tail)?)
                }
                None => Ok(Last::File(file)),
            },
        }
    }

    async fn read(&mut self, link: &Location) -> Result<Followed> {
        self.links += 1;
        if self.links > SYMLINK_LIMIT || self.resolve & resolve::NO_SYMLINKS != 0 {
            return Err(Errno::ELOOP);
        }
        let followed = link.inode().follow(self.caller).await?;
        if let Some(lease) = self.lease {
            match &followed {
                Followed::Path(_) => lease.limit(link.inode().lasts()),
                Followed::File(_) => lease.refuse(),
            }
        }
        match &followed {
            Followed::Path(path) if path.is_empty() => return Err(Errno::ENOENT),
            Followed::File(_) if self.resolve & resolve::NO_MAGICLINKS != 0 => return Err(Errno::ELOOP),
            Followed::File(_) if self.resolve & (resolve::BENEATH | resolve::IN_ROOT) != 0 => return Err(Errno::EXDEV),
            _ => {}
        }
        Ok(followed)
    }

    /// Where `path`, which is absolute, begins.
    fn jump_to_root(&mut self, path: &[u8]) -> Result<()> {
        if self.resolve & resolve::BENEATH != 0 {
            return Err(Errno::EXDEV);
        }
        match self.root.clone() {
            Some(root) => self.jump(root),
            None if self.resolve & resolve::NO_XDEV != 0 => Err(Errno::EXDEV),
            None => Err(self.go_on(None, b"", path)),
        }
    }

    /// Goes on at a directory of another kernel to which a link of /proc leads.
    fn enter_file(&self, file: Arc<dyn File>, rest: &[u8]) -> Result<Errno> {
        match file.remote() {
            None => Err(Errno::ENOTDIR),
            Some(_) if self.resolve & (resolve::BENEATH | resolve::NO_XDEV) != 0 => Err(Errno::EXDEV),
            Some(_) => Ok(self.go_on(Some(file), b".", rest)),
        }
    }

    /// Leaves the tree walked so far: absolute links, links to files.
    fn jump(&mut self, to: Location) -> Result<()> {
        if self.resolve & resolve::BENEATH != 0 {
            return Err(Errno::EXDEV);
        }
        self.check_mount(&to)?;
        self.at = to;
        Ok(())
    }

    fn check_mount(&self, to: &Location) -> Result<()> {
        if self.resolve & resolve::NO_XDEV != 0 && !Arc::ptr_eq(&to.mount, &self.at.mount) {
            return Err(Errno::EXDEV);
        }
        Ok(())
    }

    /// Goes up; `rest` is what the path has after the `..`.
    fn up(&mut self, rest: &[u8]) -> Result<()> {
        if self.root.as_ref().is_some_and(|root| self.at.same(root)) {
            return if self.resolve & resolve::BENEATH != 0 { Err(Errno::EXDEV) } else { Ok(()) };
        }
        if let Some(above) = self.at.up() {
            // A mount may lie on the parent itself.
            let above = self.paths.cover(above);
            self.check_mount(&above)?;
            self.enter(&above, rest)?;
            self.at = above;
        } else if let Some(above) = self.at.above() {
            if self.resolve & resolve::NO_XDEV != 0 {
                return Err(Errno::EXDEV);
            }
            return Err(self.go_on(Some(above), b"..", rest));
        }
        Ok(())
    }

    /// The child `name` at the end of the path, with a slash after it or without.
    pub async fn last(&self, name: &[u8], slash: bool) -> Result<Option<Location>> {
        let found = self.child(name).await?;
        if let (Some(found), false) = (&found, self.stays) {
            self.enter(found, if slash { b"/" } else { b"" })?;
        }
        Ok(found)
    }

    /// `may`: who asks may search it.
    async fn check_search(&self, may: bool) -> Result<()> {
        let inode = self.at.inode();
        if inode.kind() != Kind::Directory {
            return Err(Errno::ENOTDIR);
        }
        if let Some(lease) = self.lease {
            lease.note(inode, lease::ACCESS);
            lease.limit(inode.lasts());
        }
        if may || self.caller.credentials.can(abi::capability::DAC_OVERRIDE) {
            return Ok(());
        }
        permission::may_on(&self.caller.credentials, inode, &attributes(inode).await?, EXEC)
    }

    /// The child `name` of `self.at`, with what is mounted on it.
    async fn child(&self, name: &[u8]) -> Result<Option<Location>> {
        let directory = self.at.inode();
        if let Some(lease) = self.lease {
            lease.note(directory, lease::name(name));
        }
        let dentry = match self.at.dentry.cached(name, &*self.paths.services.clock, directory.believed()) {
            Cached::Is(dentry) => Some(dentry),
            Cached::IsNot => None,
            // In a box: what asks the file system would be part of each walk.
            Cached::Unknown => Box::pin(self.paths.dentry(self.caller, &self.at.dentry, name)).await?,
        };
        if let Some(lease) = self.lease {
            let limit = match &dentry {
                // What covers it is believed whatever is below.
                Some(dentry) if dentry.mounts.load(Ordering::Acquire) > 0 => FOREVER,
                Some(dentry) => dentry.inode.lasts(),
                None => directory.believed(),
            };
            lease.limit(limit);
        }
        let Some(dentry) = dentry else { return Ok(None) };
        let found = self.paths.cover(Location { mount: self.at.mount.clone(), dentry });
        self.check_mount(&found)?;
        Ok(Some(found))
    }
}

impl LocalPaths {
    /// What is to be seen at `at`: the root of the mount that covers it, if one does.
    pub(super) fn cover(&self, mut at: Location) -> Location {
        while let Some(mount) = self.mounts.covering(&at) {
            at = Location { dentry: mount.root.clone(), mount };
        }
        at
    }

    /// The child `name` of `directory`, as the file system says: it has just not been cached.
    async fn dentry(&self, caller: &Caller, directory: &Arc<Dentry>, name: &[u8]) -> Result<Option<Arc<Dentry>>> {
        let _changing = match directory.inode.believed() {
            0 => None,
            _ => Some(directory.changing.lock().await),
        };
        self.dentry_locked(caller, directory, name).await
    }

    /// The same for one who holds the directory's `changing`.
    pub(super) async fn dentry_locked(
        &self,
        caller: &Caller,
        directory: &Arc<Dentry>,
        name: &[u8],
    ) -> Result<Option<Arc<Dentry>>> {
        let believed = directory.inode.believed();
        match directory.cached(name, &*self.services.clock, believed) {
            Cached::Is(dentry) => return Ok(Some(dentry)),
            Cached::IsNot => return Ok(None),
            Cached::Unknown => {}
        }
        if directory.is_removed() {
            return Ok(None);
        }
        let found = match directory.inode.lookup(caller, name).await {
            Ok(inode) => Some(inode),
            Err(Errno::ENOENT) => None,
            Err(error) => return Err(error),
        };
        if believed == 0 {
            return Ok(found.map(|inode| Dentry::new(inode, name.into(), Some(directory.clone()))));
        }
        self.make_room_for_name().await;
        Ok(directory.learn(name, found, &self.names, self.now()))
    }
}
