//! stat, statfs, readlink, access, and changing attributes by path.

use super::{
    mount::flags,
    permission,
    walk::{attributes, location_of, place_of, Target, Walk, PATH_MAX},
    xattr, LocalPaths,
};
use crate::{
    file, inotify, inotify::Inotify, lease, Attributes, Base, Caller, Credentials, File, FileSystemInfo, Kind,
    OpenFlags, SetAttributes,
};
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use machine::{errno::Result, Errno};

/// What a link of /proc leads to, and has no name here. Like a descriptor it is closed before the answer: who closes the program's own
/// afterwards finds that to be the last.
async fn attributes_of(file: Arc<dyn File>) -> Result<Attributes> {
    let attributes = file.attributes().await;
    file::close(file).await;
    attributes
}

async fn set_nameless(caller: &Caller, file: &Arc<dyn File>, set: SetAttributes) -> Result<()> {
    if set.size.is_none() {
        return file.set_attributes(caller, set).await;
    }
    if file.attributes().await?.kind() != Kind::Regular {
        return Err(Errno::EINVAL);
    }
    // truncate(2) asks for rights of its own, not for the descriptor's.
    let own = file.reopen(caller, OpenFlags::WRONLY).await?;
    let done = own.set_attributes(caller, set).await;
    file::close(own).await;
    done
}

/// What an operation is on that has no path, which may mean where it starts.
pub(super) fn start_of(base: &Base, path: &[u8], empty_ok: bool) -> Option<Target> {
    if !path.is_empty() || !empty_ok {
        return None;
    }
    Some(match place_of(&*base.at) {
        Some(location) => Target::At(location.clone()),
        None => Target::File(base.at.clone()),
    })
}

/// stat(2) of what a walk has found.
pub(super) async fn attributes_at(base: &Base, found: Target) -> Result<Box<Attributes>> {
    let location = match found {
        Target::At(location) => location,
        Target::File(file) => return Box::pin(attributes_of(file)).await.map(Box::new),
    };
    let inode = location.inode();
    if let Some(lease) = &base.lease {
        lease.note(inode, lease::OWN);
        lease.limit(inode.lasts());
        if inode.is_sparse() {
            lease.refuse();
        }
    }
    match inode.attributes_now() {
        Some(attributes) => Ok(Box::new(attributes)),
        None => inode.attributes().await.map(Box::new),
    }
}

impl LocalPaths {
    pub(super) async fn target(
        &self,
        caller: &Caller,
        base: &Base,
        path: &[u8],
        follow: bool,
        empty_ok: bool,
    ) -> Result<Target> {
        match start_of(base, path, empty_ok) {
            Some(start) => Ok(start),
            None => Walk::new(self, caller, base, path, false)?.target(path, follow).await,
        }
    }

    pub(super) async fn stat_fs(&self, caller: &Caller, base: &Base, path: &[u8]) -> Result<FileSystemInfo> {
        match self.target(caller, base, path, true, true).await? {
            Target::At(location) => {
                let mut info = location.inode().info().await?;
                // ST_* equal the MS_* flags of the low bits; ST_RELATIME is 4096, ST_VALID 32.
                let flags = location.mount.flags();
                let relatime = if flags & super::mount::flags::RELATIME != 0 { 4096 } else { 0 };
                info.flags |= flags & 0x40f | relatime | 32;
                Ok(info)
            }
            // Pipes, sockets and their kin live on internal mounts; the numbers of pipefs.
            Target::File(_) => {
                Ok(FileSystemInfo { kind: 0x5049_5045, block_size: 4096, name_max: 255, ..FileSystemInfo::default() })
            }
        }
    }

    pub(super) async fn sync_fs(&self, caller: &Caller, base: &Base, path: &[u8]) -> Result<()> {
        match self.target(caller, base, path, true, true).await? {
            Target::At(location) => location.mount.file_system.sync().await,
            // What those have is in memory only.
            Target::File(_) => Ok(()),
        }
    }

    pub(super) async fn read_link(&self, caller: &Caller, base: &Base, path: &[u8], empty_ok: bool) -> Result<Vec<u8>> {
        match self.target(caller, base, path, false, empty_ok).await? {
            Target::At(location) if location.inode().kind() == Kind::Symlink => {
                if let Some(lease) = &base.lease {
                    // What it says never changes, but there must be such a thing as "the same link".
                    lease.note(location.inode(), lease::ACCESS);
                    lease.limit(location.inode().lasts());
                }
                let path = location.inode().read_link(caller).await?;
                match path.len() < PATH_MAX {
                    true => Ok(path),
                    // A link of /proc to a file with a longer path.
                    false => Err(Errno::ENAMETOOLONG),
                }
            }
            // readlinkat(fd, "") of something else: ENOENT (man 2 readlink).
            Target::At(_) if path.is_empty() => Err(Errno::ENOENT),
            _ => Err(Errno::EINVAL),
        }
    }

    #[allow(clippy::too_many_arguments)]
    pub(super) async fn access(
        &self,
        caller: &Caller,
        base: &Base,
        path: &[u8],
        mode: u32,
        effective: bool,
        follow: bool,
        empty_ok: bool,
    ) -> Result<()> {
        if mode & !7 != 0 {
            return Err(Errno::EINVAL);
        }
        let own = &caller.credentials;
        let credentials = match effective {
            true => own.clone(),
            false => Credentials {
                euid: own.uid,
                egid: own.gid,
                fsuid: own.uid,
                fsgid: own.gid,
                effective: if own.uid == 0 { own.effective } else { abi::CapabilitySet::NONE },
                ..own.clone()
            },
        };
        let caller = Caller { credentials, ..caller.clone() };
        let (now, location) = match self.target(&caller, base, path, follow, empty_ok).await? {
            Target::At(location) => {
                if let Some(lease) = &base.lease {
                    lease.note(location.inode(), lease::ACCESS);
                    lease.limit(location.inode().lasts());
                }
                let now = attributes(location.inode()).await?;
                if mode & 1 != 0 && now.kind() == Kind::Regular && location.mount.flags() & flags::NOEXEC != 0 {
                    return Err(Errno::EACCES);
                }
                (now, Some(location))
            }
            Target::File(file) => (attributes_of(file).await?, None),
        };
        match &location {
            Some(location) => permission::may_use(&caller.credentials, location.inode(), &now, mode)?,
            None => permission::may(&caller.credentials, &now, mode)?,
        }
        let stored = matches!(now.kind(), Kind::Regular | Kind::Directory | Kind::Symlink);
        match location {
            Some(location) if mode & permission::WRITE != 0 && stored => location.mount.check_writable(),
            Some(location)
                if mode & permission::EXEC != 0
                    && now.kind() == Kind::Regular
                    && location.mount.flags() & super::mount::flags::NOEXEC != 0 =>
            {
                Err(Errno::EACCES)
            }
            _ => Ok(()),
        }
    }

    pub(super) async fn set_attributes(
        &self,
        caller: &Caller,
        base: &Base,
        path: &[u8],
        follow: bool,
        empty_ok: bool,
        set: SetAttributes,
    ) -> Result<()> {
        let location = match self.target(caller, base, path, follow, empty_ok).await? {
            Target::At(location) => location,
            Target::File(file) if path.is_empty() => return file.set_attributes(caller, set).await,
            Target::File(file) => {
                let done = set_nameless(caller, &file, set).await;
                file::close(file).await;
                return done;
            }
        };
        let now = attributes(location.inode()).await?;
        if set.size.is_some() && now.kind() == Kind::Regular {
            permission::may_use(&caller.credentials, location.inode(), &now, permission::WRITE)?;
        }
        location.mount.check_writable()?;
        if set.size.is_some() {
            super::open::check_not_executed(&self.services, location.inode()).await?;
        }
        // chmod of a symbolic link is not supported (man 2 fchmodat, AT_SYMLINK_NOFOLLOW).
        if set.mode.is_some() && now.kind() == Kind::Symlink {
            return Err(Errno::EOPNOTSUPP);
        }
        let event = inotify::of_change(&set);
        let set = permission::check_set(caller, location.inode(), &now, set, false)?;
        let _changing = lease::change(location.inode(), lease::of_change(&set)).await;
        xattr::drop_by(location.inode(), &set).await?;
        location.inode().set(set).await?;
        location.dentry.tell(event);
        Ok(())
    }

    /// inotify_add_watch(2): the watch's number.
    pub(super) async fn watch(&self, caller: &Caller, base: &Base, path: &[u8], mask: u32) -> Result<i64> {
        let collector = base.to.as_ref().ok_or(Errno::EINVAL)?;
        let collector = match collector.as_any().downcast_ref::<Inotify>() {
            Some(collector) => collector,
            // It is on the kernel that owns the root. ENOSPC: who gets it looks for changes by himself.
            None if collector.remote().is_some() && collector.path().await == inotify::PATH => {
                log::warn!("inotify: {}: not of another kernel's file systems", path.escape_ascii());
                return Err(Errno::ENOSPC);
            }
            None => return Err(Errno::EINVAL),
        };
        let follow = mask & inotify::DONT_FOLLOW == 0;
        let location = match self.target(caller, base, path, follow, false).await? {
            Target::At(location) => location,
            Target::File(file) => location_of(&file)?,
        };
        let now = attributes(location.inode()).await?;
        permission::may_on(&caller.credentials, location.inode(), &now, permission::READ)?;
        if mask & inotify::ONLY_DIRECTORY != 0 && now.kind() != Kind::Directory {
            return Err(Errno::ENOTDIR);
        }
        // Whoever opens and reads the file by itself is to do it here from now on.
        let _changing = lease::change(location.inode(), &[lease::OWN, lease::OPENS]).await;
        Ok(i64::from(collector.add(location.inode(), mask)?))
    }
}
