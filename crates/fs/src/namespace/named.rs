//! Open descriptions of what has a name and is neither a regular file nor a directory: O_PATH, and the cloak that gives a device, fifo or
//! generated file the name it was opened by.

use super::{dentry::Location, files::tell_of_close, permission, walk::attributes, xattr};
use crate::{
    anonymous::{Open, StatusFlags},
    file::{Access, Destination, Fasync, HeldBytes, Observed, Source, Transfer},
    inotify, lease, Attributes, Caller, Control, ControlAnswer, DirEntry, Events, File, FileRef, Object, OpenFlags,
    SetAttributes, SyncRange, Whence, XattrOp,
};
use abi::{LockConflict, LockOp};
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::any::Any;
use machine::{errno::Result, sync::WaitQueue, BoxFuture, Errno, Shield};
use messages::fs::WaitPlace;

/// O_PATH on anything but a directory: a place, not a file.
pub(super) struct PathFile {
    of: PathTarget,
    flags: OpenFlags,
    _open: Open,
}

impl PathFile {
    pub fn new(of: PathTarget, flags: OpenFlags) -> Arc<Self> {
        Arc::new(PathFile { of, flags, _open: Open::new() })
    }
}

pub(super) enum PathTarget {
    Named(Location),
    /// What has no name here, reached by a link of /proc: a pipe, a memfd of another kernel.
    File(Arc<dyn File>),
}

impl File for PathFile {
    fn read_into<'a>(&'a self, _to: Destination<'a>, _access: Access<'a>) -> Transfer<'a> {
        Transfer::Done(Err(Errno::EBADF))
    }
    fn write_from<'a>(&'a self, _from: Source<'a>, _access: Access<'a>) -> Transfer<'a> {
        Transfer::Done(Err(Errno::EBADF))
    }
    fn seek(&self, _offset: i64, _whence: Whence) -> BoxFuture<'_, Result<u64>> {
        crate::file::ready(Err(Errno::EBADF))
    }
    fn flags(&self) -> OpenFlags {
        self.flags - OpenFlags::CLOEXEC
    }
    fn attributes(&self) -> BoxFuture<'_, Result<Attributes>> {
        match &self.of {
            PathTarget::Named(at) => Box::pin(attributes(at.inode())),
            PathTarget::File(file) => file.attributes(),
        }
    }
    fn set_attributes<'a>(&'a self, _caller: &'a Caller, _set: SetAttributes) -> BoxFuture<'a, Result<()>> {
        crate::file::ready(Err(Errno::EBADF))
    }
    fn xattr<'a>(&'a self, caller: &'a Caller, op: XattrOp) -> BoxFuture<'a, Result<Vec<u8>>> {
        match &self.of {
            PathTarget::Named(_) => crate::file::ready(Err(Errno::EBADF)),
            PathTarget::File(file) => file.xattr(caller, op),
        }
    }
    fn ioctl<'a>(&'a self, _: &'a Caller, _: u32, _: &'a mut Vec<u8>) -> BoxFuture<'a, Result<i64>> {
        crate::file::ready(Err(Errno::EBADF))
    }
    fn sync(&self, _data_only: bool) -> BoxFuture<'_, Result<()>> {
        crate::file::ready(Err(Errno::EBADF))
    }
    fn object(&self) -> BoxFuture<'_, Result<Arc<dyn Object>>> {
        crate::file::ready(Err(Errno::EBADF))
    }
    fn path(&self) -> BoxFuture<'_, Vec<u8>> {
        match &self.of {
            PathTarget::Named(at) => at.whole_path(),
            PathTarget::File(file) => file.path(),
        }
    }
    fn reopen<'a>(&'a self, caller: &'a Caller, flags: OpenFlags) -> BoxFuture<'a, Result<Arc<dyn File>>> {
        match &self.of {
            PathTarget::Named(_) => crate::file::ready(Err(Errno::ENXIO)),
            PathTarget::File(file) => file.reopen(caller, flags),
        }
    }
    fn location(&self) -> Option<&(dyn Any + Send + Sync)> {
        match &self.of {
            PathTarget::Named(at) => Some(at),
            PathTarget::File(file) => file.location(),
        }
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// A file of its own kind (device, fifo, generated text), opened by a name: behaves as `inner`, is
/// called and owned as the name says. Downcasts see `inner`.
pub(super) struct NodeFile {
    inner: Arc<dyn File>,
    at: Location,
    _open: Open,
}

impl NodeFile {
    pub fn wrap(inner: Arc<dyn File>, at: Location) -> Arc<dyn File> {
        Arc::new(NodeFile { inner, at, _open: Open::new() })
    }
}

impl Drop for NodeFile {
    fn drop(&mut self) {
        tell_of_close(&self.at, self.inner.flags());
    }
}

impl NodeFile {
    /// The same for one that is over.
    fn tell(&self, event: u32, moved: usize) {
        if moved > 0 {
            self.at.dentry.tell(event);
        }
    }

    /// A read or write that is told of if it moved anything.
    fn told<'a>(&'a self, event: u32, moving: Transfer<'a>) -> Transfer<'a> {
        match inotify::nobody_watches() {
            true => moving,
            false => moving.inspect(move |moved| self.tell(event, *moved)),
        }
    }
}

impl File for NodeFile {
    fn read_into<'a>(&'a self, to: Destination<'a>, access: Access<'a>) -> Transfer<'a> {
        self.told(inotify::ACCESS, self.inner.read_into(to, access))
    }
    fn write_from<'a>(&'a self, from: Source<'a>, access: Access<'a>) -> Transfer<'a> {
        self.told(inotify::MODIFY, self.inner.write_from(from, access))
    }
    fn control<'a>(&'a self, caller: &'a Caller, control: Control) -> BoxFuture<'a, Result<ControlAnswer>> {
        self.inner.control(caller, control)
    }
    fn seal(&self, add: u32) -> BoxFuture<'_, Result<u32>> {
        self.inner.seal(add)
    }
    fn seek(&self, offset: i64, whence: Whence) -> BoxFuture<'_, Result<u64>> {
        self.inner.seek(offset, whence)
    }
    fn status(&self) -> Option<&StatusFlags> {
        self.inner.status()
    }
    fn fasync(&self) -> Option<Fasync> {
        self.inner.fasync()
    }
    fn flags(&self) -> OpenFlags {
        self.inner.flags() | self.at.mount.open_flags()
    }
    fn set_flags(&self, flags: OpenFlags) -> BoxFuture<'_, Result<()>> {
        self.inner.set_flags(flags)
    }
    fn attributes(&self) -> BoxFuture<'_, Result<Attributes>> {
        Box::pin(attributes(self.at.inode()))
    }
    fn set_attributes<'a>(&'a self, caller: &'a Caller, set: SetAttributes) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            // Truncating a device does nothing to be undone; Linux says EINVAL by descriptor.
            let now = attributes(self.at.inode()).await?;
            let set = permission::check_set(caller, self.at.inode(), &now, set, true)?;
            self.at.mount.check_writable()?;
            let _changing = lease::change(self.at.inode(), lease::of_change(&set)).await;
            self.at.inode().set(set).await
        })
    }
    fn xattr<'a>(&'a self, caller: &'a Caller, op: XattrOp) -> BoxFuture<'a, Result<Vec<u8>>> {
        Box::pin(xattr::run(caller, &self.at, op))
    }
    fn read_dir(&self, budget: usize) -> BoxFuture<'_, Result<Vec<DirEntry>>> {
        self.inner.read_dir(budget)
    }
    fn ioctl<'a>(&'a self, caller: &'a Caller, request: u32, data: &'a mut Vec<u8>) -> BoxFuture<'a, Result<i64>> {
        self.inner.ioctl(caller, request, data)
    }
    fn sync(&self, data_only: bool) -> BoxFuture<'_, Result<()>> {
        self.inner.sync(data_only)
    }
    fn sync_range(&self, range: SyncRange) -> BoxFuture<'_, Result<()>> {
        self.inner.sync_range(range)
    }
    fn allocate(&self, mode: u32, offset: u64, len: u64) -> BoxFuture<'_, Result<()>> {
        self.inner.allocate(mode, offset, len)
    }
    fn waiting(&self) -> WaitPlace {
        self.inner.waiting()
    }
    fn hold<'a>(
        &'a self,
        shield: &'a Shield,
        most: usize,
        wait: bool,
    ) -> BoxFuture<'a, Result<Option<Box<dyn HeldBytes>>>> {
        self.inner.hold(shield, most, wait)
    }
    fn observe(&self) -> Option<BoxFuture<'_, Result<Arc<dyn Observed>>>> {
        self.inner.observe()
    }
    fn poll(&self) -> Events {
        self.inner.poll()
    }
    fn changes(&self) -> Option<&WaitQueue> {
        self.inner.changes()
    }
    fn watch(&self) -> BoxFuture<'_, Result<()>> {
        self.inner.watch()
    }
    fn object(&self) -> BoxFuture<'_, Result<Arc<dyn Object>>> {
        self.inner.object()
    }
    fn path(&self) -> BoxFuture<'_, Vec<u8>> {
        self.at.whole_path()
    }
    fn closed<'a>(&'a self, caller: &'a Caller) -> BoxFuture<'a, ()> {
        self.inner.closed(caller)
    }
    fn remote(&self) -> Option<FileRef> {
        self.inner.remote()
    }
    fn lock<'a>(&'a self, caller: &'a Caller, op: LockOp) -> BoxFuture<'a, Result<Option<LockConflict>>> {
        self.inner.lock(caller, op)
    }
    fn location(&self) -> Option<&(dyn Any + Send + Sync)> {
        Some(&self.at)
    }
    fn close(self: Arc<Self>) -> Option<BoxFuture<'static, ()>> {
        let inner = self.inner.clone();
        drop(self);
        inner.close()
    }
    fn close_descriptor(self: Arc<Self>, caller: &Caller) -> BoxFuture<'static, ()> {
        let inner = self.inner.clone();
        drop(self);
        inner.close_descriptor(caller)
    }
    fn as_any(&self) -> &dyn Any {
        self.inner.as_any()
    }
}
