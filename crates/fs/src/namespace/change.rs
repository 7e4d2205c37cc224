//! Making, linking, renaming and removing names.
//!
//! The problem: a change reads a directory ("is there such a name? is it empty?") and then alters it,
//! and waits in between for the host. The rule: who changes or fills a directory holds its `changing`.
//! unlink of a directory also holds the victim's, so nothing is made in it meanwhile. rename holds two,
//! and both locks of a pair are only ever waited for under `renaming`, ancestor first, otherwise by
//! address. Without `renaming`, A/x -> B/y beside B -> A/x/B could cut a loop out of the tree.

use super::{
    dentry::{Dentry, Location},
    open::new_node,
    permission::{self, EXEC, WRITE},
    walk::{attributes, place_of, Last, Walk},
    LocalPaths,
};
use crate::{inode::NewNode, inotify, lease, Base, Caller, Inode, Kind};
use alloc::{borrow::Cow, sync::Arc, vec::Vec};
use core::sync::atomic::Ordering;
use machine::{errno::Result, sync::AsyncGuard, Errno};

const RENAME_NOREPLACE: u32 = 1;
const RENAME_EXCHANGE: u32 = 2;

/// The name at the end of a path that is to be made.
fn new_name(last: Last<'_>) -> Result<(Cow<'_, [u8]>, bool)> {
    match last {
        Last::Name { name, slash } => Ok((name, slash)),
        Last::Here | Last::Up | Last::File(_) => Err(Errno::EEXIST),
    }
}

impl LocalPaths {
    async fn create(&self, caller: &Caller, base: &Base, path: &[u8], new: NewNode) -> Result<()> {
        let mut walk = Walk::new(self, caller, base, path, false)?;
        let (name, slash) = new_name(walk.parent(path).await?)?;
        if slash && new.kind != Kind::Directory {
            // `mknod x/`: EEXIST if x is there, else ENOENT.
            let found = walk.last(&name, slash).await?;
            return Err(if found.is_some() { Errno::EEXIST } else { Errno::ENOENT });
        }
        self.make(&walk, &name, new).await.map(drop)
    }

    pub(super) async fn make_dir(&self, caller: &Caller, base: &Base, path: &[u8], mode: u32) -> Result<()> {
        // The set-id bits of a new directory come from its parent only.
        self.create(caller, base, path, new_node(Kind::Directory, mode & 0o1777)).await
    }

    pub(super) async fn make_node(
        &self,
        caller: &Caller,
        base: &Base,
        path: &[u8],
        mode: u32,
        rdev: (u32, u32),
    ) -> Result<()> {
        let kind = match mode & 0o170000 {
            0 => Kind::Regular,
            _ => Kind::of_mode(mode).ok_or(Errno::EINVAL)?,
        };
        match kind {
            Kind::Directory => return Err(Errno::EPERM),
            Kind::Symlink => return Err(Errno::EINVAL),
            _ => {}
        }
        self.create(caller, base, path, NewNode { rdev, ..new_node(kind, mode) }).await
    }

    pub(super) async fn symlink(&self, caller: &Caller, base: &Base, target: Vec<u8>, path: &[u8]) -> Result<()> {
        if target.is_empty() {
            return Err(Errno::ENOENT);
        }
        if target.len() >= 4096 {
            return Err(Errno::ENAMETOOLONG);
        }
        self.create(caller, base, path, NewNode { target, ..new_node(Kind::Symlink, 0o777) }).await
    }

    pub(super) async fn link(
        &self,
        caller: &Caller,
        base: &Base,
        from: &[u8],
        to: &[u8],
        follow: bool,
        empty_ok: bool,
    ) -> Result<()> {
        let source = match place_of(&*base.at) {
            Some(location) if from.is_empty() && empty_ok => location.clone(),
            _ => Walk::new(self, caller, base, from, false)?.place_or_file(from, follow).await?,
        };
        let mut walk = Walk::new(self, caller, base, to, true)?;
        let (name, slash) = new_name(walk.parent(to).await?)?;
        let directory = walk.at.dentry.clone();
        let _changing = directory.changing.lock().await;
        if self.dentry_locked(caller, &directory, &name).await?.is_some() {
            return Err(Errno::EEXIST);
        }
        if slash || directory.is_removed() || directory.inode.is_closed() {
            return Err(Errno::ENOENT);
        }
        if !Arc::ptr_eq(&source.mount, &walk.at.mount) {
            return Err(Errno::EXDEV);
        }
        if source.inode().kind() == Kind::Directory {
            return Err(Errno::EPERM);
        }
        walk.at.mount.check_writable()?;
        let above = attributes(&directory.inode).await?;
        permission::may_on(&caller.credentials, &directory.inode, &above, WRITE | EXEC)?;
        let _names = lease::change(&directory.inode, &[lease::OWN, lease::name(&name)]).await;
        let _links = lease::change(source.inode(), &[lease::OWN]).await;
        directory.inode.link(&name, source.inode()).await?;
        directory.learn(&name, Some(source.inode().clone()), &self.names, self.now());
        inotify::itself(source.inode(), inotify::ATTRIB);
        inotify::in_directory(&directory.inode, &name, source.inode(), inotify::CREATE, 0);
        Ok(())
    }

    /// May `caller` take `dentry` out of `directory`?
    async fn check_remove(&self, caller: &Caller, directory: &Location, dentry: &Arc<Dentry>) -> Result<()> {
        directory.mount.check_writable()?;
        let above = attributes(directory.inode()).await?;
        permission::may_use(&caller.credentials, directory.inode(), &above, WRITE | EXEC)?;
        // What can't be changed can't be removed; EACCES is about the names in it.
        if dentry.inode.write_refused() == Some(Errno::EPERM) {
            return Err(Errno::EPERM);
        }
        permission::may_remove(&caller.credentials, &above, &attributes(&dentry.inode).await?)?;
        if dentry.mounts.load(Ordering::Acquire) > 0 {
            return Err(Errno::EBUSY);
        }
        Ok(())
    }

    pub(super) async fn unlink(&self, caller: &Caller, base: &Base, path: &[u8], directory: bool) -> Result<()> {
        let mut walk = Walk::new(self, caller, base, path, false)?;
        let (name, slash) = match walk.parent(path).await? {
            Last::Name { name, slash } => (name, slash),
            last if directory => return Err(self.no_rmdir(path, &last)),
            _ => return Err(Errno::EISDIR),
        };
        let above = &walk.at.dentry;
        let _changing = above.changing.lock().await;
        let dentry = self.dentry_locked(caller, above, &name).await?.ok_or(Errno::ENOENT)?;
        let is_directory = dentry.inode.kind() == Kind::Directory;
        if slash && !directory {
            return Err(if is_directory { Errno::EISDIR } else { Errno::ENOTDIR });
        }
        self.check_remove(caller, &walk.at, &dentry).await?;
        match (directory, is_directory) {
            (true, false) => return Err(Errno::ENOTDIR),
            (false, true) => return Err(Errno::EISDIR),
            _ => {}
        }
        let victim = match is_directory {
            true => Some(dentry.changing.lock().await),
            false => None,
        };
        let last = ends_file(&dentry).await;
        let _names = lease::change(&above.inode, &[lease::OWN, lease::name(&name)]).await;
        let inode = dentry.inode.clone();
        let _links = lease::change(&inode, &[lease::OWN]).await;
        above.inode.unlink(&name, &dentry.inode).await?;
        if !is_directory {
            inotify::itself(&dentry.inode, inotify::ATTRIB);
        }
        self.removed(above, &name, &dentry, last);
        drop(victim);
        // The end of the file itself is told before the end of its name.
        drop(dentry);
        inotify::in_directory(&above.inode, &name, &inode, inotify::DELETE, 0);
        Ok(())
    }

    /// `name`, which was `dentry`, is no more.
    fn removed(&self, above: &Arc<Dentry>, name: &[u8], dentry: &Arc<Dentry>, last: bool) {
        if last {
            dentry.is_last();
        }
        above.forget(name, &self.names, self.now());
    }

    fn no_rmdir(&self, path: &[u8], last: &Last<'_>) -> Errno {
        match last {
            Last::Up => Errno::ENOTEMPTY,
            // "." is EINVAL, "/" is EBUSY (man 2 rmdir).
            _ if path.iter().all(|byte| *byte == b'/') => Errno::EBUSY,
            _ => Errno::EINVAL,
        }
    }

    pub(super) async fn rename(&self, caller: &Caller, base: &Base, from: &[u8], to: &[u8], flags: u32) -> Result<()> {
        if flags & (RENAME_NOREPLACE | RENAME_EXCHANGE) == RENAME_NOREPLACE | RENAME_EXCHANGE {
            return Err(Errno::EINVAL);
        }
        let mut source = Walk::new(self, caller, base, from, false)?;
        let mut target = Walk::new(self, caller, base, to, true)?;
        let source_last = source.parent(from).await?;
        let target_last = target.parent(to).await?;
        if !Arc::ptr_eq(&source.at.mount, &target.at.mount) {
            return Err(Errno::EXDEV);
        }
        let Last::Name { name: old_name, slash: old_slash } = source_last else { return Err(Errno::EBUSY) };
        let Last::Name { name: new_name, slash: new_slash } = target_last else {
            return Err(if flags & RENAME_NOREPLACE != 0 { Errno::EEXIST } else { Errno::EBUSY });
        };
        let names = Names { old: old_name, new: new_name, slashes: (old_slash, new_slash) };
        let _renaming = self.renaming.lock().await;
        let _locks = lock_pair(&source.at.dentry, &target.at.dentry).await;
        self.rename_locked(caller, &source.at, &target.at, &names, flags).await
    }

    async fn rename_locked(
        &self,
        caller: &Caller,
        source: &Location,
        target: &Location,
        names: &Names<'_>,
        flags: u32,
    ) -> Result<()> {
        let (above, below) = (&source.dentry, &target.dentry);
        let dentry = self.dentry_locked(caller, above, &names.old).await?.ok_or(Errno::ENOENT)?;
        let replaced = self.dentry_locked(caller, below, &names.new).await?;
        let exchange = flags & RENAME_EXCHANGE != 0;
        match &replaced {
            Some(_) if flags & RENAME_NOREPLACE != 0 => return Err(Errno::EEXIST),
            None if exchange || below.inode.is_closed() => return Err(Errno::ENOENT),
            _ => {}
        }
        let is_directory = dentry.inode.kind() == Kind::Directory;
        let replaces_directory = replaced.as_ref().map(|dentry| dentry.inode.kind() == Kind::Directory);
        let ends_directory = if exchange { replaces_directory == Some(true) } else { is_directory };
        if names.slashes.0 && !is_directory || names.slashes.1 && !ends_directory && !is_directory {
            return Err(Errno::ENOTDIR);
        }
        if below.is_within(&dentry) {
            return Err(Errno::EINVAL);
        }
        if replaced.as_ref().is_some_and(|replaced| above.is_within(replaced)) {
            return Err(if exchange { Errno::EINVAL } else { Errno::ENOTEMPTY });
        }
        if below.is_removed() {
            return Err(Errno::ENOENT);
        }
        // Two names of one file: nothing to do (man 2 rename).
        let same = match &replaced {
            // What is in /proc is found anew each time.
            Some(replaced) if below.inode.is_closed() => {
                attributes(&replaced.inode).await?.ino == attributes(&dentry.inode).await?.ino
            }
            Some(replaced) => crate::inode::same(&replaced.inode, &dentry.inode),
            None => false,
        };
        if flags & !(RENAME_NOREPLACE | RENAME_EXCHANGE) != 0 && !same {
            // RENAME_WHITEOUT is for file systems on top of others: as where it is not supported.
            return Err(Errno::EINVAL);
        }
        if same {
            return Ok(());
        }
        self.check_remove(caller, source, &dentry).await?;
        match &replaced {
            Some(replaced) => self.check_remove(caller, target, replaced).await?,
            None => {
                let now = attributes(target.inode()).await?;
                permission::may_on(&caller.credentials, target.inode(), &now, WRITE | EXEC)?;
            }
        }
        if is_directory && !Arc::ptr_eq(above, below) {
            // Its `..` changes, which is a write to it.
            permission::may_on(&caller.credentials, &dentry.inode, &attributes(&dentry.inode).await?, WRITE)?;
        }
        match (is_directory, replaces_directory) {
            _ if exchange => {}
            (true, Some(false)) => return Err(Errno::ENOTDIR),
            (false, Some(true)) => return Err(Errno::EISDIR),
            _ => {}
        }
        let _old = lease::change(&above.inode, &[lease::OWN, lease::name(&names.old)]).await;
        let _new = lease::change(&below.inode, &[lease::OWN, lease::name(&names.new)]).await;
        // ACCESS: its `..` may be another one.
        let inode = dentry.inode.clone();
        let _moved = lease::change(&inode, &[lease::OWN, lease::ACCESS]).await;
        let other = replaced.as_ref().map(|replaced| replaced.inode.clone());
        let _replaced = match &other {
            Some(other) => lease::change(other, &[lease::OWN, lease::ACCESS]).await,
            None => None,
        };
        let now = self.now();
        if let (true, Some(other)) = (exchange, &replaced) {
            above.inode.exchange(&names.old, &dentry.inode, &below.inode, &names.new, &other.inode).await?;
            above.adopt(&names.old, other.clone(), &self.names, now);
            below.adopt(&names.new, dentry.clone(), &self.names, now);
            tell_of_move((above, &names.old), (below, &names.new), &dentry.inode);
            inotify::itself(&dentry.inode, inotify::MOVE_SELF);
            tell_of_move((below, &names.new), (above, &names.old), &other.inode);
            inotify::itself(&other.inode, inotify::MOVE_SELF);
            return Ok(());
        }
        let _victim = match &replaced {
            Some(victim) if replaces_directory == Some(true) => Some(victim.changing.lock().await),
            _ => None,
        };
        let last = match &replaced {
            Some(replaced) => ends_file(replaced).await,
            None => false,
        };
        let old = replaced.as_ref().map(|replaced| &replaced.inode);
        above.inode.rename(&names.old, &dentry.inode, &below.inode, &names.new, old).await?;
        tell_of_move((above, &names.old), (below, &names.new), &dentry.inode);
        if let Some(replaced) = &replaced {
            inotify::itself(&replaced.inode, inotify::ATTRIB);
            self.removed(below, &names.new, replaced, last);
        }
        inotify::itself(&dentry.inode, inotify::MOVE_SELF);
        below.adopt(&names.new, dentry, &self.names, now);
        // Not `forget`: the dentry lives on under its new name.
        above.learn(&names.old, None, &self.names, now);
        Ok(())
    }
}

/// Is this the file's last name? Asked before it is removed.
async fn ends_file(dentry: &Dentry) -> bool {
    let links = attributes(&dentry.inode).await.map_or(1, |attributes| attributes.nlink);
    dentry.inode.kind() == Kind::Directory || links <= 1
}

fn tell_of_move(from: (&Dentry, &[u8]), to: (&Dentry, &[u8]), inode: &Arc<dyn Inode>) {
    let cookie = inotify::cookie();
    inotify::in_directory(&from.0.inode, from.1, inode, inotify::MOVED_FROM, cookie);
    inotify::in_directory(&to.0.inode, to.1, inode, inotify::MOVED_TO, cookie);
}

struct Names<'p> {
    old: Cow<'p, [u8]>,
    new: Cow<'p, [u8]>,
    slashes: (bool, bool),
}

/// Both directories' `changing`, in the order given above. Only under `renaming`.
async fn lock_pair<'a>(a: &'a Arc<Dentry>, b: &'a Arc<Dentry>) -> (AsyncGuard<'a, ()>, Option<AsyncGuard<'a, ()>>) {
    if Arc::ptr_eq(a, b) {
        return (a.changing.lock().await, None);
    }
    let b_first = a.is_within(b) || (!b.is_within(a) && Arc::as_ptr(b) < Arc::as_ptr(a));
    let (first, second) = if b_first { (b, a) } else { (a, b) };
    let outer = first.changing.lock().await;
    (outer, Some(second.changing.lock().await))
}
