//! open(2), openat2(2), and making files.

use super::{
    anchor::Anchor,
    dentry::{Dentry, Location},
    directory::DirFile,
    fifo_opener,
    files::RegularFile,
    mount::flags,
    named::{NodeFile, PathFile, PathTarget},
    permission::{self, READ, WRITE},
    walk::{attributes, place_of, Last, Target, Walk},
    xattr, LocalPaths,
};
use crate::{
    file,
    inode::NewNode,
    inotify,
    lease::{self, Anchored, Lease, Sharers},
    namespace::Opening,
    Base, Caller, File, Inode, Kind, MappingUse, OpenFlags, Services, SetAttributes,
};
use alloc::{format, sync::Arc, vec::Vec};
use machine::{errno::Result, Errno};

impl LocalPaths {
    pub(super) async fn open(
        &self,
        caller: &Caller,
        base: &Base,
        path: &[u8],
        mut flags: OpenFlags,
        mode: u32,
        resolve: u64,
    ) -> Result<Arc<dyn File>> {
        if flags.contains(OpenFlags::PATH) {
            flags &= OpenFlags::PATH | OpenFlags::DIRECTORY | OpenFlags::NOFOLLOW | OpenFlags::CLOEXEC;
        }
        if flags.contains(OpenFlags::EXEC) && path.is_empty() {
            return match place_of(&*base.at) {
                Some(at) => self.open_at(caller, at.clone(), flags, false).await,
                None => base.at.reopen(caller, flags).await,
            };
        }
        let mut walk = Walk::new(self, caller, base, path, false)?.with_resolve(base, path, resolve)?;
        if flags.contains(OpenFlags::TMPFILE) {
            return self.open_unnamed(walk, path, flags, mode).await;
        }
        if !flags.contains(OpenFlags::CREAT) {
            let follow = !flags.contains(OpenFlags::NOFOLLOW);
            return match walk.target(path, follow).await? {
                Target::At(location) => match &base.lease {
                    Some(lease) => self.open_for(caller, location, flags, lease).await,
                    None => self.open_at(caller, location, flags, false).await,
                },
                Target::File(file) => reopen(caller, file, flags).await,
            };
        }
        if flags.contains(OpenFlags::DIRECTORY) {
            return Err(Errno::EINVAL);
        }
        let mut last = walk.parent(path).await?;
        loop {
            let (name, slash) = match last {
                Last::Here | Last::Up if flags.contains(OpenFlags::EXCL) => return Err(Errno::EEXIST),
                // Also the end of a link to an open file, which need not be a directory.
                Last::Here | Last::Up => return self.open_at(caller, walk.at.clone(), flags, false).await,
                Last::File(file) => return reopen(caller, file, flags).await,
                Last::Name { name, slash } => (name, slash),
            };
            if slash {
                return Err(Errno::EISDIR);
            }
            if let Some(found) = walk.last(&name, slash).await? {
                if flags.contains(OpenFlags::EXCL) {
                    return Err(Errno::EEXIST);
                }
                if found.inode().kind() == Kind::Symlink && !flags.contains(OpenFlags::NOFOLLOW) {
                    last = walk.follow(&found, false).await?;
                    continue;
                }
                return self.open_at(caller, found, flags, false).await;
            }
            let new = new_node(Kind::Regular, mode);
            match self.make(&walk, &name, new).await {
                Ok(dentry) => {
                    let made = Location { mount: walk.at.mount.clone(), dentry };
                    return self.open_at(caller, made, flags, true).await;
                }
                // Made by somebody else since we looked.
                Err(Errno::EEXIST) if !flags.contains(OpenFlags::EXCL) => {
                    last = Last::Name { name, slash };
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn open_unnamed(
        &self,
        mut walk: Walk<'_>,
        path: &[u8],
        flags: OpenFlags,
        mode: u32,
    ) -> Result<Arc<dyn File>> {
        if !flags.writable() {
            return Err(Errno::EINVAL);
        }
        let at = walk.location(path, true).await?;
        if at.inode().kind() != Kind::Directory {
            return Err(Errno::ENOTDIR);
        }
        let caller = walk.caller;
        let directory = attributes(at.inode()).await?;
        permission::may_use(&caller.credentials, at.inode(), &directory, WRITE | permission::EXEC)?;
        at.mount.check_writable()?;
        let start = permission::inherit(caller, at.inode(), &directory, Kind::Regular, mode)?;
        let (mode, gid) = (start.mode, start.gid);
        let new = NewNode { mode, uid: caller.credentials.fsuid, gid, ..new_node(Kind::Regular, mode) };
        let inode = at.inode().create_unnamed(new).await?;
        start.give(&inode).await?;
        let name = format!("#{}", inode.ino()).into_bytes();
        let dentry = Dentry::unnamed(inode, Some(at.dentry.clone()), name);
        let flags = flags - (OpenFlags::TMPFILE - OpenFlags::DIRECTORY) - OpenFlags::DIRECTORY;
        self.open_at(caller, Location { mount: at.mount, dentry }, flags, true).await
    }

    /// Makes `name` in the walk's directory: permission, then the file system's part.
    pub(super) async fn make(&self, walk: &Walk<'_>, name: &[u8], new: NewNode) -> Result<Arc<Dentry>> {
        let directory = &walk.at.dentry;
        let caller = walk.caller;
        let _changing = directory.changing.lock().await;
        if self.dentry_locked(caller, directory, name).await?.is_some() {
            return Err(Errno::EEXIST);
        }
        if directory.is_removed() {
            return Err(Errno::ENOENT);
        }
        walk.at.mount.check_writable()?;
        let above = attributes(&directory.inode).await?;
        permission::may_on(&caller.credentials, &directory.inode, &above, WRITE | permission::EXEC)?;
        let device = matches!(new.kind, Kind::CharDevice | Kind::BlockDevice);
        if device && !caller.credentials.can(abi::capability::MKNOD) {
            return Err(Errno::EPERM);
        }
        let _names = lease::change(&directory.inode, &[lease::OWN, lease::name(name)]).await;
        let start = permission::inherit(caller, &directory.inode, &above, new.kind, new.mode)?;
        let mode = if new.kind == Kind::Symlink { 0o777 } else { start.mode };
        let new = NewNode { mode, uid: caller.credentials.fsuid, gid: start.gid, ..new };
        let inode = directory.inode.create(name, new).await?;
        if let Err(error) = start.give(&inode).await {
            // A file without the list of its directory would be open to the wrong people.
            directory.inode.unlink(name, &inode).await?;
            return Err(error);
        }
        self.make_room_for_name().await;
        // A directory that believes nothing (a generated tree) makes nothing either, so this is cached.
        let dentry = directory.learn(name, Some(inode), &self.names, self.now()).ok_or(Errno::EIO)?;
        inotify::in_directory(&directory.inode, name, &dentry.inode, inotify::CREATE, 0);
        Ok(dentry)
    }

    /// For another kernel: what it may open again by itself if it can be, else what [`Self::open_at`] opens.
    async fn open_for(
        &self,
        caller: &Caller,
        at: Location,
        flags: OpenFlags,
        lease: &Arc<Lease>,
    ) -> Result<Arc<dyn File>> {
        let inode = at.inode();
        let plain = inode.kind() == Kind::Regular
            && !flags.intersects(OpenFlags::PATH | OpenFlags::TRUNC | OpenFlags::DIRECTORY);
        if let (true, Some(tokens)) = (plain, may_share(&at, flags, lease)) {
            lease.note(inode, lease::ACCESS);
            lease.limit(inode.lasts());
            check_open(caller, &at, flags, false).await?;
            if inode.open(caller, flags).await?.is_none() {
                let (attributes, quiet) = (attributes(inode).await?, !inode.notes_read());
                // Who writes a program is counted here.
                let program = flags.writable() && attributes.mode & 0o111 != 0;
                if !inode.is_sparse() && !lease.is_refused() && !program {
                    lease.anchor(Anchored { attributes, quiet, tokens });
                    return Ok(Anchor::new(&self.services, at, flags));
                }
            }
        }
        lease.refuse();
        self.open_at(caller, at, flags, false).await
    }

    /// Opens what the walk has found. `made`: by this very call, which may thus do what the mode forbids.
    pub(super) async fn open_at(
        &self,
        caller: &Caller,
        at: Location,
        flags: OpenFlags,
        made: bool,
    ) -> Result<Arc<dyn File>> {
        let dentry = at.dentry.clone();
        let file = self.open_found(caller, at, flags, made).await?;
        if !flags.contains(OpenFlags::PATH) {
            dentry.tell(inotify::OPEN);
            if flags.contains(OpenFlags::TRUNC) && !made && dentry.inode.kind() == Kind::Regular {
                dentry.tell(inotify::MODIFY);
            }
        }
        Ok(file)
    }

    async fn open_found(&self, caller: &Caller, at: Location, flags: OpenFlags, made: bool) -> Result<Arc<dyn File>> {
        let inode = at.inode().clone();
        let kind = inode.kind();
        if flags.contains(OpenFlags::DIRECTORY) && kind != Kind::Directory {
            return Err(Errno::ENOTDIR);
        }
        if flags.contains(OpenFlags::PATH) {
            return Ok(match kind {
                Kind::Directory => DirFile::new(&self.services, at, flags),
                _ => PathFile::new(PathTarget::Named(at), flags),
            });
        }
        match kind {
            Kind::Symlink => return Err(Errno::ELOOP),
            Kind::Regular => {}
            _ if flags.contains(OpenFlags::EXEC) => return Err(Errno::EACCES),
            Kind::Directory if flags.writable() || flags.intersects(OpenFlags::CREAT | OpenFlags::TRUNC) => {
                return Err(Errno::EISDIR)
            }
            _ => {}
        }
        let truncate = flags.contains(OpenFlags::TRUNC) && kind == Kind::Regular;
        if !made {
            check_open(caller, &at, flags, truncate).await?;
        }
        match kind {
            Kind::Directory if flags.contains(OpenFlags::DIRECT) => return Err(Errno::EINVAL),
            Kind::Directory => return Ok(DirFile::new(&self.services, at, flags)),
            Kind::Socket => return Err(Errno::ENXIO),
            Kind::CharDevice | Kind::BlockDevice => {
                if at.mount.flags() & flags::NODEV != 0 {
                    return Err(Errno::EACCES);
                }
                let rdev = attributes(&inode).await?.rdev;
                let opening = Opening { caller, accounts: &self.services.accounts, flags, at: &at, rdev };
                let file = self.devices.open(kind, opening).await?;
                return Ok(NodeFile::wrap(file, at));
            }
            Kind::Fifo => {
                let opener = fifo_opener(&self.devices)?;
                let opening = Opening { caller, accounts: &self.services.accounts, flags, at: &at, rdev: (0, 0) };
                let file = opener(opening).await?;
                return Ok(NodeFile::wrap(file, at));
            }
            Kind::Regular | Kind::Symlink => {}
        }
        if let Some(file) = inode.open(caller, flags).await? {
            return Ok(NodeFile::wrap(file, at));
        }
        let file = RegularFile::new(&self.services, at, flags);
        if flags.writable() || flags.contains(OpenFlags::EXEC) {
            check_not_written(&inode, flags).await?;
        }
        if !made && (flags.writable() || truncate) {
            check_not_executed(&self.services, &inode).await?;
        }
        if truncate && !made {
            empty(&inode).await?;
        }
        Ok(file)
    }
}

async fn check_open(caller: &Caller, at: &Location, flags: OpenFlags, truncate: bool) -> Result<()> {
    let now = attributes(at.inode()).await?;
    let mut want = 0;
    if flags.contains(OpenFlags::EXEC) {
        if at.mount.flags() & flags::NOEXEC != 0 {
            return Err(Errno::EACCES);
        }
        want |= permission::EXEC;
    } else if flags.readable() {
        want |= READ;
    }
    if flags.writable() || truncate {
        want |= WRITE;
    }
    // Access mode 3 (Linux: ioctl only) needs both.
    permission::may_use(&caller.credentials, at.inode(), &now, want)?;
    if want & WRITE != 0 && matches!(now.kind(), Kind::Regular | Kind::Directory) {
        at.mount.check_writable()?;
    }
    let owner = caller.credentials.can(abi::capability::FOWNER) || caller.credentials.fsuid == now.uid;
    if flags.contains(OpenFlags::NOATIME) && !owner {
        return Err(Errno::EPERM);
    }
    Ok(())
}

/// May another kernel open the file by itself? Not if anybody is to be told of it, or there are locks that a close
/// ends, or a read would change something here, or its mount says something of it. What it then rests on.
fn may_share(at: &Location, flags: OpenFlags, lease: &Lease) -> Option<Vec<u64>> {
    let (inode, above) = (at.inode(), at.dentry.parent()?);
    let notes = [(inode, lease::OWN), (inode, lease::OPENS), (&above.inode, lease::OPENS)];
    let tokens = notes.into_iter().map(|(inode, slot)| lease.note(inode, slot)).collect::<Option<Vec<u64>>>()?;
    let kept = at.mount.open_flags().is_empty() && !at.mount.is_detached();
    let told = inotify::is_watched(inode) || inotify::is_watched(&above.inode);
    let locked = inode.locks().is_some_and(|table| !table.is_empty());
    let noisy = inode.notes_read() && !flags.writable();
    let written = flags.contains(OpenFlags::EXEC) && inode.sharers().is_some_and(Sharers::is_written);
    (kept && !told && !locked && !noisy && !written).then_some(tokens)
}

/// At the end of a link of /proc to a file that has no name here: its own kernel opens it anew.
async fn reopen(caller: &Caller, file: Arc<dyn File>, flags: OpenFlags) -> Result<Arc<dyn File>> {
    if flags.contains(OpenFlags::DIRECTORY) {
        return Err(Errno::ENOTDIR);
    }
    if flags.contains(OpenFlags::PATH) {
        return Ok(PathFile::new(PathTarget::File(file), flags));
    }
    let opened = file.reopen(caller, flags).await;
    file::close(file).await;
    opened
}

/// The same on that kernel, for a regular file (a memfd) at `at`: with rights, flags and a position of its own.
pub(super) async fn reopen_regular(
    services: &Arc<Services>,
    caller: &Caller,
    at: &Location,
    flags: OpenFlags,
) -> Result<Arc<dyn File>> {
    let truncate = flags.contains(OpenFlags::TRUNC);
    check_open(caller, at, flags, truncate).await?;
    let file = RegularFile::new(services, at.clone(), flags);
    check_not_written(at.inode(), flags).await?;
    if flags.writable() || truncate {
        check_not_executed(services, at.inode()).await?;
    }
    if truncate {
        empty(at.inode()).await?;
    }
    Ok(file)
}

/// ETXTBSY for who has opened a file to execute it that others may write. Who may write it is counted by now, so what other kernels
/// may open by themselves is recalled: of one that executes it and one that opens it to write, one hears of the other.
async fn check_not_written(inode: &Arc<dyn Inode>, flags: OpenFlags) -> Result<()> {
    match inode.sharers() {
        Some(sharers) if flags.contains(OpenFlags::EXEC) && sharers.is_written() => return Err(Errno::ETXTBSY),
        Some(sharers) if flags.writable() => drop(sharers.change(&[lease::OPENS]).await),
        _ => {}
    }
    Ok(())
}

/// ETXTBSY for who is about to write a file, or to change its size, that is a program of some process. Only what may be executed can be: about other
/// files no kernel is asked.
pub(super) async fn check_not_executed(services: &Services, inode: &Arc<dyn Inode>) -> Result<()> {
    let (Some(mappers), true) = (services.mappers(), attributes(inode).await?.mode & 0o111 != 0) else { return Ok(()) };
    let Ok(object) = inode.object(false).await else { return Ok(()) };
    match mappers.uses(object.id(), MappingUse::Executes).await {
        0 => Ok(()),
        _ => Err(Errno::ETXTBSY),
    }
}

/// O_TRUNC.
async fn empty(inode: &Arc<dyn Inode>) -> Result<()> {
    let _changing = lease::change(inode, &[lease::OWN]).await;
    xattr::drop_capabilities(inode).await?;
    inode.set(SetAttributes { size: Some(0), ..SetAttributes::default() }).await
}

/// A node whose owner and final mode [`LocalPaths::make`] decides.
pub(super) fn new_node(kind: Kind, mode: u32) -> NewNode {
    NewNode { kind, mode, uid: 0, gid: 0, rdev: (0, 0), target: Vec::new() }
}
