//! Open directories.

use super::{dentry::Location, files::Opened, walk::attributes, xattr};
use crate::{
    anonymous::StatusFlags,
    control::{Control, ControlAnswer},
    file::{Access, Destination, Source, Transfer},
    inode::listing::{Listing, Scan, FIRST},
    Attributes, Caller, DirEntry, File, Kind, OpenFlags, Services, SetAttributes, Whence, XattrOp,
};
use abi::{LockConflict, LockOp};
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::any::Any;
use machine::{errno::Result, sync::AsyncLock, BoxFuture, Errno};

/// A directory, open for reading or as a place (O_PATH): a base for paths.
pub struct DirFile {
    opened: Opened,
    scan: AsyncLock<Scan>,
}

impl DirFile {
    pub(super) fn new(services: &Services, at: Location, flags: OpenFlags) -> Arc<DirFile> {
        Arc::new(DirFile { opened: Opened::new(services, at, flags), scan: AsyncLock::default() })
    }

    async fn read(&self, budget: usize) -> Result<Vec<DirEntry>> {
        let at = &self.opened.at;
        if self.opened.flags().contains(OpenFlags::PATH) {
            return Err(Errno::EBADF);
        }
        let mut scan = self.scan.lock().await;
        if at.dentry.is_removed() {
            return Err(Errno::ENOENT);
        }
        let mut listing = Listing::new(*scan, budget);
        if scan.position < FIRST {
            let above = at.up().map_or(at.inode().ino(), |above| above.inode().ino());
            let dots: [(u64, &[u8]); FIRST as usize] = [(at.inode().ino(), b"."), (above, b"..")];
            for (next, (ino, name)) in (1..).zip(dots).skip(scan.position as usize) {
                listing.add(ino, next, Kind::Directory.d_type(), name);
            }
            listing.scan.position = FIRST;
        }
        if !listing.is_full() {
            // Reading was permitted when the directory was opened.
            at.inode().list(&crate::file::SYSTEM, &mut listing).await?;
        }
        if listing.is_full() && listing.is_empty() {
            return Err(Errno::EINVAL);
        }
        scan.began = listing.scan.began;
        let entries = listing.into_entries();
        scan.position = entries.last().map_or(scan.position, |last| last.next);
        at.dentry.tell(crate::inotify::ACCESS);
        Ok(entries)
    }
}

impl File for DirFile {
    fn read_into<'a>(&'a self, _to: Destination<'a>, _access: Access<'a>) -> Transfer<'a> {
        Transfer::Done(Err(self.unreadable()))
    }

    fn write_from<'a>(&'a self, _from: Source<'a>, _access: Access<'a>) -> Transfer<'a> {
        Transfer::Done(Err(Errno::EBADF))
    }

    fn seek(&self, offset: i64, whence: Whence) -> BoxFuture<'_, Result<u64>> {
        Box::pin(async move {
            if self.opened.flags().contains(OpenFlags::PATH) {
                return Err(Errno::EBADF);
            }
            let mut scan = self.scan.lock().await;
            let inode = self.opened.at.inode();
            // Those of /proc are 0 bytes long.
            let has_end = inode.is_closed();
            let to = match whence {
                // Positions that are negative as an offset are the file system's to allow.
                Whence::Set => Some(offset as u64),
                Whence::Current => scan.position.checked_add_signed(offset),
                Whence::End if has_end => u64::try_from(offset).ok(),
                Whence::Data | Whence::Hole if has_end => return Err(Errno::ENXIO),
                _ => None,
            };
            scan.position = to.filter(|to| *to <= inode.last_position()).ok_or(Errno::EINVAL)?;
            Ok(scan.position)
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

    fn read_dir(&self, budget: usize) -> BoxFuture<'_, Result<Vec<DirEntry>>> {
        Box::pin(self.read(budget))
    }

    fn sync(&self, data_only: bool) -> BoxFuture<'_, Result<()>> {
        self.opened.at.inode().sync(data_only)
    }

    fn lock<'a>(&'a self, caller: &'a Caller, op: LockOp) -> BoxFuture<'a, Result<Option<LockConflict>>> {
        Box::pin(self.opened.lock(caller, op))
    }

    fn control<'a>(&'a self, _caller: &'a Caller, control: Control) -> BoxFuture<'a, Result<ControlAnswer>> {
        crate::file::ready(match (&control, self.opened.at.inode().process()) {
            (Control::ProcessDirectory, Some(process)) => Ok(ControlAnswer::Number(i64::from(process.0))),
            _ => Err(crate::file::lacks(&control)),
        })
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

impl DirFile {
    fn unreadable(&self) -> Errno {
        if self.opened.flags().contains(OpenFlags::PATH) {
            Errno::EBADF
        } else {
            Errno::EISDIR
        }
    }
}
