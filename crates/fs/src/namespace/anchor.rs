//! [`Anchor`]: what another kernel holds of a regular file that it opens by itself (remote/leased.rs).

use super::{
    dentry::Location,
    files::{object_of, RegularFile},
    walk::attributes,
    xattr,
};
use crate::{Attributes, Caller, File, Object, OpenFlags, Services, WriteErrors, XattrOp};
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::any::Any;
use machine::{errno::Result, BoxFuture, Errno};

/// Keeps the file, and what the walk and the permission checks have found: opening it again asks nothing more. It is no
/// open description itself: nobody is told of its beginning or end, and it has no position.
pub(super) struct Anchor {
    services: Arc<Services>,
    at: Location,
    flags: OpenFlags,
    /// Of failures of writing back, those that who opens it there need not be told.
    heard: u64,
}

impl Anchor {
    pub fn new(services: &Arc<Services>, at: Location, flags: OpenFlags) -> Arc<Self> {
        let heard = at.inode().write_errors().map_or(0, WriteErrors::sample);
        Arc::new(Anchor { services: services.clone(), at, flags, heard })
    }
}

impl File for Anchor {
    fn flags(&self) -> OpenFlags {
        self.flags
    }

    fn attributes(&self) -> BoxFuture<'_, Result<Attributes>> {
        Box::pin(attributes(self.at.inode()))
    }

    fn xattr<'a>(&'a self, caller: &'a Caller, op: XattrOp) -> BoxFuture<'a, Result<Vec<u8>>> {
        Box::pin(xattr::run(caller, &self.at, op))
    }

    fn object(&self) -> BoxFuture<'_, Result<Arc<dyn Object>>> {
        Box::pin(object_of(&self.at, self.flags.writable()))
    }

    /// A description of its own, with what flags have become of those it was opened with.
    fn reopen<'a>(&'a self, _caller: &'a Caller, flags: OpenFlags) -> BoxFuture<'a, Result<Arc<dyn File>>> {
        let access = OpenFlags::RDWR | OpenFlags::WRONLY;
        if flags & access != self.flags & access {
            return crate::file::ready(Err(Errno::EACCES));
        }
        crate::file::ready(Ok(RegularFile::having_heard(&self.services, self.at.clone(), flags, self.heard)))
    }

    fn path(&self) -> BoxFuture<'_, Vec<u8>> {
        self.at.whole_path()
    }

    /// A process there has closed a descriptor of the file.
    fn closed<'a>(&'a self, caller: &'a Caller) -> BoxFuture<'a, ()> {
        match self.at.inode().locks() {
            Some(table) => Box::pin(table.end_process(caller.process)),
            None => crate::file::ready(()),
        }
    }

    fn location(&self) -> Option<&(dyn Any + Send + Sync)> {
        Some(&self.at)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
