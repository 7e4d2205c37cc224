//! From a path to a place (man 7 path_resolution).

use super::{
    dentry::{Cached, Dentry, Location},
    permission::{self, EXEC},
    LocalPaths,
};
use crate::{
    inode::{Followed, FOREVER},
    lease::{self, Lease},
    Attributes, Base, Caller, File, Inode, Kind,
};
use alloc::{borrow::Cow, sync::Arc, vec::Vec};
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
pub(super) enum Last {
    Name {
        name: Vec<u8>,
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

/// What a path leads to.
pub(super) enum Target {
    At(Location),
    /// A file without a name, through a link of /proc/PID/fd.
    File(Arc<dyn File>),
}

pub(super) struct Walk<'a> {
    pub paths: &'a LocalPaths,
    pub caller: &'a Caller,
    root: Location,
    pub at: Location,
    links: u32,
    resolve: u64,
    /// Where what the walk looks at is noted.
    lease: Option<Arc<Lease>>,
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
    pub fn new(paths: &'a LocalPaths, caller: &'a Caller, base: &Base, path: &[u8], second: bool) -> Result<Self> {
        if path.len() >= PATH_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        let root = location_of(&base.root)?;
        let start = if second { base.to.as_ref().unwrap_or(&base.at) } else { &base.at };
        let at = match path.first() {
            // An absolute path does not care what the descriptor is.
            Some(b'/') => root.clone(),
            _ => location_of(start)?,
        };
        let lease = base.lease.clone();
        if let Some(lease) = &lease {
            lease.note_in(&paths.everything, lease::OWN);
        }
        Ok(Walk { paths, caller, root, at, links: 0, resolve: 0, lease })
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
        if flags & (resolve::BENEATH | resolve::IN_ROOT) != 0 {
            self.root = location_of(&base.at)?;
            self.at = self.root.clone();
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
            let found = self.child(&name).await?.ok_or(Errno::ENOENT)?;
            if found.inode().kind() == Kind::Symlink && (follow || slash) {
                last = self.follow(&found, if slash { b"/" } else { b"" }).await?;
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

    /// Walks all but the last component; afterwards `self.at` is the directory that holds it, and may be
    /// searched.
    pub async fn parent(&mut self, path: &[u8]) -> Result<Last> {
        if path.is_empty() {
            return Err(Errno::ENOENT);
        }
        // From `end` on it is to be walked yet.
        let (mut rest, mut end) = (Cow::Borrowed(path), 0);
        if path[0] == b'/' {
            self.jump(self.root.clone())?;
        }
        loop {
            let Some(start) = rest[end..].iter().position(|byte| *byte != b'/').map(|at| end + at) else {
                return Ok(Last::Here);
            };
            end = rest[start..].iter().position(|byte| *byte == b'/').map_or(rest.len(), |at| start + at);
            let name = &rest[start..end];
            let slash = end < rest.len();
            let more = rest[end..].iter().any(|byte| *byte != b'/');
            self.check_search().await?;
            if name.len() > NAME_MAX {
                return Err(Errno::ENAMETOOLONG);
            }
            match name {
                b"." if !more => return Ok(Last::Here),
                b"." => {}
                b".." => {
                    self.up()?;
                    if !more {
                        return Ok(Last::Up);
                    }
                }
                _ if !more => return Ok(Last::Name { name: name.to_vec(), slash }),
                _ => {
                    let found = self.child(name).await?.ok_or(Errno::ENOENT)?;
                    if found.inode().kind() == Kind::Symlink {
                        match self.read(&found).await? {
                            Followed::Path(mut target) => {
                                if target.first() == Some(&b'/') {
                                    self.jump(self.root.clone())?;
                                }
                                target.extend_from_slice(&rest[end..]);
                                (rest, end) = (Cow::Owned(target), 0);
                                continue;
                            }
                            Followed::File(file) => self.jump(location_of(&file)?)?,
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

    /// Goes on at the end of the symbolic link `link`, `tail` ("" or "/") after it.
    pub async fn follow(&mut self, link: &Location, tail: &[u8]) -> Result<Last> {
        match self.read(link).await? {
            Followed::Path(mut path) => {
                path.extend_from_slice(tail);
                // Boxed: the walk of a link is a walk.
                alloc::boxed::Box::pin(self.parent(&path)).await
            }
            Followed::File(file) => match place_of(&*file).cloned() {
                None if !tail.is_empty() => Err(Errno::ENOTDIR),
                Some(location) if !tail.is_empty() && location.inode().kind() != Kind::Directory => Err(Errno::ENOTDIR),
                Some(location) => {
                    self.jump(location)?;
                    Ok(Last::Here)
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
        if let Some(lease) = &self.lease {
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

    fn up(&mut self) -> Result<()> {
        if self.at.same(&self.root) {
            return if self.resolve & resolve::BENEATH != 0 { Err(Errno::EXDEV) } else { Ok(()) };
        }
        if let Some(above) = self.at.up() {
            // A mount may lie on the parent itself.
            let above = self.paths.cover(above);
            self.check_mount(&above)?;
            self.at = above;
        }
        Ok(())
    }

    async fn check_search(&self) -> Result<()> {
        let inode = self.at.inode();
        if inode.kind() != Kind::Directory {
            return Err(Errno::ENOTDIR);
        }
        if let Some(lease) = &self.lease {
            lease.note(inode, lease::ACCESS);
            lease.limit(inode.lasts());
        }
        if self.caller.credentials.can(abi::capability::DAC_OVERRIDE) {
            return Ok(());
        }
        permission::may_on(&self.caller.credentials, inode, &attributes(inode).await?, EXEC)
    }

    /// The child `name` of `self.at`, with what is mounted on it.
    pub async fn child(&self, name: &[u8]) -> Result<Option<Location>> {
        let directory = self.at.inode();
        if let Some(lease) = &self.lease {
            lease.note(directory, lease::name(name));
        }
        let dentry = self.paths.dentry(self.caller, &self.at.dentry, name).await?;
        if let Some(lease) = &self.lease {
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

    pub(super) async fn dentry(
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
        let _changing = match believed {
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
