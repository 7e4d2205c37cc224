//! Open descriptions of regular files, and what they have in common with those of directories. Those of other files with names are in named.rs.

use super::{dentry::Location, open::reopen_regular, permission, walk::attributes, xattr};
use crate::{
    anonymous::StatusFlags,
    file::{lacks, Access, Destination, Source, Transfer},
    inode::{held::Owner, Extent, WriteAt},
    inotify, lease,
    locks::{Locked, WHOLE},
    Attributes, Caller, Control, ControlAnswer, File, Inode, Object, OpenFlags, Services, SetAttributes, SyncRange,
    Whence, WriteErrors, XattrOp,
};
use abi::{LockConflict, LockMode, LockOp};
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::{any::Any, sync::atomic::AtomicU64};
use machine::{
    errno::Result,
    sync::{AsyncGuard, AsyncLock},
    BoxFuture, Errno,
};

/// What an open file with a name has in common, whatever it is.
pub(super) struct Opened {
    pub at: Location,
    pub status: StatusFlags,
    /// Names this description as an owner of locks.
    serial: u64,
    locked: Arc<Locked>,
    /// Among those that may write the file ([`lease::Sharers::count_writer`]).
    counted: bool,
    /// Failures of writing back ([`Inode::write_errors`](crate::Inode::write_errors)) that this description has heard of.
    heard: AtomicU64,
}

impl Opened {
    pub fn new(services: &Services, at: Location, flags: OpenFlags) -> Self {
        let (status, serial) = (StatusFlags::new(flags), services.object_id().serial);
        let heard = AtomicU64::new(at.inode().write_errors().map_or(0, WriteErrors::sample));
        Opened { at, status, serial, locked: services.locked.clone(), counted: false, heard }
    }

    /// fsync. EIO: something could not be written back since this was asked last, or since the file was opened (man 2 fsync).
    pub async fn sync(&self, data_only: bool) -> Result<()> {
        let inode = self.at.inode();
        let synced = inode.sync(data_only).await;
        let heard = self.hear(inode);
        synced.and(heard)
    }

    /// EIO: something could not be written back.
    fn hear(&self, inode: &Arc<dyn Inode>) -> Result<()> {
        inode.write_errors().map_or(Ok(()), |errors| errors.check(&self.heard))
    }

    /// sync_file_range(2). EIO as for fsync, if it waits for anything.
    pub async fn sync_range(&self, range: SyncRange) -> Result<()> {
        let inode = self.at.inode();
        let Ok(object) = inode.object(false).await else { return Ok(()) };
        object.sync_range(range).await?;
        match range.waits_before || range.waits_after {
            true => self.hear(inode),
            false => Ok(()),
        }
    }

    pub fn flags(&self) -> OpenFlags {
        self.status.get() | self.at.mount.open_flags()
    }

    pub async fn set_attributes(&self, caller: &Caller, set: SetAttributes) -> Result<()> {
        let flags = self.flags();
        if flags.contains(OpenFlags::PATH) {
            return Err(Errno::EBADF);
        }
        if set.size.is_some() && !flags.writable() {
            return Err(Errno::EINVAL);
        }
        self.at.mount.check_writable()?;
        let now = attributes(self.at.inode()).await?;
        let event = inotify::of_change(&set);
        let set = permission::check_set(caller, self.at.inode(), &now, set, true)?;
        let _changing = lease::change(self.at.inode(), lease::of_change(&set)).await;
        xattr::drop_by(self.at.inode(), &set).await?;
        self.at.inode().set(set).await?;
        self.at.dentry.tell(event);
        Ok(())
    }

    /// So many bytes were read or written.
    pub fn moved(&self, event: u32, bytes: usize) {
        if bytes > 0 {
            self.at.dentry.tell(event);
        }
    }

    pub async fn lock(&self, caller: &Caller, op: LockOp) -> Result<Option<LockConflict>> {
        let table = self.at.inode().locks().ok_or(Errno::ENOLCK)?;
        let flags = self.flags();
        let owner = |description| match description {
            true => Owner::Description(self.serial),
            false => Owner::Process(caller.process),
        };
        if flags.contains(OpenFlags::PATH) {
            return Err(Errno::EBADF);
        }
        match op {
            LockOp::Flock { mode, wait } => {
                table.set(Owner::Flock(self.serial), WHOLE, mode, wait).await?;
                Ok(None)
            }
            LockOp::Set { range, mode, wait, description } => {
                let allowed = match mode {
                    LockMode::Shared => flags.readable(),
                    LockMode::Exclusive => flags.writable(),
                    LockMode::Unlock => true,
                };
                if !allowed {
                    return Err(Errno::EBADF);
                }
                // A kernel that opens the file by itself is to tell of every close from now on.
                let _changing = match mode {
                    LockMode::Unlock => None,
                    _ => lease::change(self.at.inode(), &[lease::OWN]).await,
                };
                table.set(owner(description), range, mode, wait).await?;
                if !description {
                    self.locked.note(self.at.inode());
                }
                Ok(None)
            }
            LockOp::Get { range, mode, description } => Ok(table.test(owner(description), range, mode).await),
        }
    }

    /// A descriptor was closed: the process loses its record locks on the file (man 2 fcntl).
    pub fn closed(&self, caller: &Caller) -> BoxFuture<'_, ()> {
        match self.at.inode().locks() {
            Some(table) if !table.is_empty() => Box::pin(table.end_process(caller.process)),
            _ => crate::file::ready(()),
        }
    }
}

/// The last descriptor of a description is closed.
pub(super) fn tell_of_close(at: &Location, flags: OpenFlags) {
    if !flags.contains(OpenFlags::PATH) {
        at.dentry.tell(if flags.writable() { inotify::CLOSE_WRITE } else { inotify::CLOSE_NOWRITE });
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        tell_of_close(&self.at, self.flags());
        if let (true, Some(sharers)) = (self.counted, self.at.inode().sharers()) {
            sharers.count_writer(false);
        }
        if let Some(table) = self.at.inode().locks() {
            table.release(Owner::Flock(self.serial));
            table.release(Owner::Description(self.serial));
        }
    }
}

/// The pages of a file, for who has opened it, perhaps to map them.
pub(super) async fn object_of(at: &Location, write: bool) -> Result<Arc<dyn Object>> {
    let object = at.inode().object(write).await?;
    at.mount.gives(&object);
    Ok(object)
}

/// An open regular file.
pub struct RegularFile {
    services: Arc<Services>,
    opened: Opened,
    /// Held through a read or write, which makes them atomic to each other (man 2 read, "Bugs", as POSIX
    /// wants it).
    position: AsyncLock<u64>,
}

impl RegularFile {
    pub fn new(services: &Arc<Services>, at: Location, flags: OpenFlags) -> Arc<Self> {
        let heard = at.inode().write_errors().map_or(0, WriteErrors::sample);
        Self::having_heard(services, at, flags, heard)
    }

    /// For who had it open before, and has heard of so many failures of writing back.
    pub fn having_heard(services: &Arc<Services>, at: Location, flags: OpenFlags, heard: u64) -> Arc<Self> {
        let mut opened = Opened::new(services, at, flags);
        opened.heard = AtomicU64::new(heard);
        if let (true, Some(sharers)) = (flags.writable(), opened.at.inode().sharers()) {
            sharers.count_writer(true);
            opened.counted = true;
        }
        Arc::new(RegularFile { services: services.clone(), opened, position: AsyncLock::new(0) })
    }

    /// What memfd_create(2) makes may be written, and is executed all the same, as on Linux.
    pub fn of_memory(services: &Arc<Services>, at: Location, flags: OpenFlags) -> Arc<Self> {
        let opened = Opened::new(services, at, flags);
        Arc::new(RegularFile { services: services.clone(), opened, position: AsyncLock::new(0) })
    }

    /// A read whose place is known, under the lock of the position if it moves on from there.
    #[inline(always)]
    fn read_here<'a>(
        &'a self,
        to: Destination<'a>,
        at: Option<u64>,
        mut position: Option<AsyncGuard<'a, u64>>,
    ) -> Transfer<'a> {
        let offset = at.or_else(|| position.as_deref().copied()).unwrap_or_default();
        let inode = self.opened.at.inode();
        let reading = inode.sharers().map(lease::Sharers::begin);
        if let (true, Some(sharers)) = (inode.notes_read(), inode.sharers()) {
            return Transfer::later(async move {
                let _reading = reading;
                sharers.recall(&[lease::OWN]).await;
                let read = self.read_inode(to, offset).await?;
                Ok(self.have_read(read, position.as_deref_mut()))
            });
        }
        match self.read_inode(to, offset) {
            Transfer::Done(read) => Transfer::Done(read.map(|read| self.have_read(read, position.as_deref_mut()))),
            Transfer::Later(moving) => Transfer::later(async move {
                let _reading = reading;
                let read = moving.await?;
                Ok(self.have_read(read, position.as_deref_mut()))
            }),
        }
    }

    #[inline(always)]
    fn read_inode<'a>(&'a self, to: Destination<'a>, offset: u64) -> Transfer<'a> {
        let flags = self.opened.flags();
        match flags.contains(OpenFlags::DIRECT) {
            true => self.opened.at.inode().read_direct(to, offset),
            false => self.opened.at.inode().read(to, offset, flags.read_ahead()),
        }
    }

    fn have_read(&self, read: usize, position: Option<&mut u64>) -> usize {
        if let Some(position) = position {
            *position += read as u64;
        }
        self.opened.moved(inotify::ACCESS, read);
        read
    }

    /// A write likewise, after [`lease::change`].
    #[inline(always)]
    fn write_here<'a>(
        &'a self,
        from: Source<'a>,
        at: Option<u64>,
        mut position: Option<AsyncGuard<'a, u64>>,
        changing: Option<lease::Changing<'a>>,
        flags: OpenFlags,
    ) -> Transfer<'a> {
        let offset = at.or_else(|| position.as_deref().copied()).unwrap_or_default();
        // Linux appends also in a pwrite if O_APPEND is set (man 2 pwrite, "Bugs").
        let appends = flags.contains(OpenFlags::APPEND) || at == Some(crate::file::APPEND_AT);
        if appends && matches!(from, Source::User(..)) {
            // Half of it may not be there while the rest is fetched.
            return Transfer::Done(Err(crate::file::NEEDS_BUFFER));
        }
        let place = if appends { WriteAt::End } else { WriteAt::Offset(offset) };
        let inode = self.opened.at.inode();
        let moving = match flags.contains(OpenFlags::DIRECT) {
            true => inode.write_direct(from, place),
            false => inode.write(from, place),
        };
        match moving {
            Transfer::Done(Ok(written)) if !flags.intersects(OpenFlags::DSYNC) => {
                Transfer::Done(Ok(self.have_written(written, position.as_deref_mut())))
            }
            Transfer::Done(Err(error)) => Transfer::Done(Err(error)),
            moving => Transfer::later(async move {
                let _changing = changing;
                let written = self.have_written(moving.await?, position.as_deref_mut());
                if flags.intersects(OpenFlags::DSYNC) {
                    inode.sync(!flags.contains(OpenFlags::SYNC)).await?;
                }
                Ok(written)
            }),
        }
    }

    fn have_written(&self, (start, written): (u64, usize), position: Option<&mut u64>) -> usize {
        if let Some(position) = position {
            *position = start + written as u64;
        }
        self.opened.moved(inotify::MODIFY, written);
        written
    }
}

impl File for RegularFile {
    fn read_into<'a>(&'a self, to: Destination<'a>, access: Access<'a>) -> Transfer<'a> {
        if !self.opened.flags().readable() {
            return Transfer::Done(Err(Errno::EBADF));
        }
        match access.at {
            Some(at) if at > crate::cache::MAX_SIZE => Transfer::Done(Err(Errno::EINVAL)),
            Some(_) => self.read_here(to, access.at, None),
            None => match self.position.try_lock() {
                Some(position) => self.read_here(to, None, Some(position)),
                None => Transfer::later(async move {
                    let position = self.position.lock().await;
                    self.read_here(to, None, Some(position)).await
                }),
            },
        }
    }

    fn write_from<'a>(&'a self, from: Source<'a>, access: Access<'a>) -> Transfer<'a> {
        let flags = self.opened.flags();
        if !flags.writable() {
            return Transfer::Done(Err(Errno::EBADF));
        }
        if from.is_empty() {
            return Transfer::Done(Ok(0));
        }
        let inode = self.opened.at.inode();
        let changing = inode.sharers().map(lease::Sharers::begin);
        if !changing.as_ref().is_some_and(lease::Changing::is_shared) && !inode.has_capabilities() {
            if access.at.is_some() {
                return self.write_here(from, access.at, None, changing, flags);
            }
            if let Some(position) = self.position.try_lock() {
                return self.write_here(from, None, Some(position), changing, flags);
            }
        }
        drop(changing);
        Transfer::later(async move {
            let position = match access.at {
                Some(_) => None,
                None => Some(self.position.lock().await),
            };
            let changing = lease::change(inode, &[lease::OWN]).await;
            xattr::drop_capabilities(inode).await?;
            self.write_here(from, access.at, position, changing, flags).await
        })
    }

    fn seek(&self, offset: i64, whence: Whence) -> BoxFuture<'_, Result<u64>> {
        Box::pin(async move {
            let mut position = self.position.lock().await;
            let inode = self.opened.at.inode();
            let start = match whence {
                Whence::Set => 0,
                Whence::Current => *position,
                Whence::End => attributes(inode).await?.size,
                Whence::Data | Whence::Hole => {
                    let from = u64::try_from(offset).map_err(|_| Errno::ENXIO)?;
                    let what = if whence == Whence::Data { Extent::Data } else { Extent::Hole };
                    *position = inode.seek(from, what).await?;
                    return Ok(*position);
                }
            };
            let to = start.checked_add_signed(offset).filter(|to| *to <= crate::cache::MAX_SIZE);
            *position = to.ok_or(Errno::EINVAL)?;
            Ok(*position)
        })
    }

    fn status(&self) -> Option<&StatusFlags> {
        Some(&self.opened.status)
    }

    fn flags(&self) -> OpenFlags {
        self.opened.flags()
    }

    fn attributes(&self) -> BoxFuture<'_, Result<Attributes>> {
        Box::pin(attributes(self.opened.at.inode()))
    }

    fn set_attributes<'a>(&'a self, caller: &'a Caller, set: SetAttributes) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.opened.set_attributes(caller, set))
    }

    fn xattr<'a>(&'a self, caller: &'a Caller, op: XattrOp) -> BoxFuture<'a, Result<Vec<u8>>> {
        Box::pin(xattr::run(caller, &self.opened.at, op))
    }

    fn sync(&self, data_only: bool) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.opened.sync(data_only))
    }

    fn sync_range(&self, range: SyncRange) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.opened.sync_range(range))
    }

    fn allocate(&self, mode: u32, offset: u64, len: u64) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            if !self.opened.flags().writable() {
                return Err(Errno::EBADF);
            }
            if len == 0 {
                return Err(Errno::EINVAL);
            }
            if offset.checked_add(len).is_none_or(|end| end > crate::cache::MAX_SIZE) {
                return Err(Errno::EFBIG);
            }
            let _changing = lease::change(self.opened.at.inode(), &[lease::OWN]).await;
            xattr::drop_capabilities(self.opened.at.inode()).await?;
            self.opened.at.inode().allocate(mode, offset, len).await?;
            self.opened.at.dentry.tell(inotify::MODIFY);
            Ok(())
        })
    }

    fn object(&self) -> BoxFuture<'_, Result<Arc<dyn Object>>> {
        Box::pin(object_of(&self.opened.at, self.opened.flags().writable()))
    }

    fn control<'a>(&'a self, _caller: &'a Caller, control: Control) -> BoxFuture<'a, Result<ControlAnswer>> {
        Box::pin(async move {
            match control {
                Control::Advise(advice) => {
                    let object = self.opened.at.inode().object(false);
                    self.opened.status.advise(advice, object, &*self.services.spawner).await
                }
                control => Err(lacks(&control)),
            }
        })
    }

    fn lock<'a>(&'a self, caller: &'a Caller, op: LockOp) -> BoxFuture<'a, Result<Option<LockConflict>>> {
        Box::pin(self.opened.lock(caller, op))
    }

    fn seal(&self, add: u32) -> BoxFuture<'_, Result<u32>> {
        Box::pin(async move {
            if add != 0 && !self.opened.flags().writable() {
                return Err(Errno::EPERM);
            }
            self.opened.at.inode().seal(add).await
        })
    }

    fn reopen<'a>(&'a self, caller: &'a Caller, flags: OpenFlags) -> BoxFuture<'a, Result<Arc<dyn File>>> {
        Box::pin(reopen_regular(&self.services, caller, &self.opened.at, flags))
    }

    fn path(&self) -> BoxFuture<'_, Vec<u8>> {
        self.opened.at.whole_path()
    }

    fn closed<'a>(&'a self, caller: &'a Caller) -> BoxFuture<'a, ()> {
        self.opened.closed(caller)
    }

    fn location(&self) -> Option<&(dyn Any + Send + Sync)> {
        Some(&self.opened.at)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
