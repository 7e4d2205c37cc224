//! Open directories.

use super::{dentry::Location, files::Opened, walk::attributes};
use crate::{
    control::{Control, ControlAnswer},
    file::{Access, Destination, Source, Transfer},
    inode::Listed,
    synthetic::MOST_BYTES,
    Attributes, Caller, DirEntry, File, Kind, OpenFlags, Services, SetAttributes, Whence,
};
use abi::{LockConflict, LockOp};
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::any::Any;
use machine::{errno::Result, sync::AsyncLock, BoxFuture, Errno};

/// Bytes of `struct linux_dirent64` before the name.
const HEADER: usize = 19;

/// A directory, open for reading or as a place (O_PATH): a base for paths.
pub struct DirFile {
    opened: Opened,
    reading: AsyncLock<Reading>,
}

/// The names are listed once, when reading starts, and again after a rewind: POSIX leaves open whether
/// later changes are seen, and so positions stay valid while others remove what they have read.
struct Reading {
    listed: Option<Vec<Listed>>,
    position: u64,
}

impl DirFile {
    pub(super) fn new(services: &Services, at: Location, flags: OpenFlags) -> Arc<DirFile> {
        let reading = AsyncLock::new(Reading { listed: None, position: 0 });
        Arc::new(DirFile { opened: Opened::new(services, at, flags), reading })
    }

    async fn read(&self, budget: usize) -> Result<Vec<DirEntry>> {
        let at = &self.opened.at;
        if self.opened.flags().contains(OpenFlags::PATH) {
            return Err(Errno::EBADF);
        }
        let mut reading = self.reading.lock().await;
        if at.dentry.is_removed() {
            return Err(Errno::ENOENT);
        }
        if reading.listed.is_none() {
            // Reading was permitted when the directory was opened.
            reading.listed = Some(at.inode().list(&crate::file::SYSTEM).await?);
        }
        let listed = reading.listed.as_deref().unwrap_or_default();
        let above = at.up().map_or(at.inode().ino(), |above| above.inode().ino());
        let directory = Kind::Directory.d_type();
        let mut entries = Vec::new();
        let mut used = 0;
        let mut position = reading.position;
        loop {
            let entry = |ino, d_type, name: &[u8]| DirEntry { ino, next: position + 1, d_type, name: name.to_vec() };
            let entry = match position {
                0 => entry(at.inode().ino(), directory, b"."),
                1 => entry(above, directory, b".."),
                _ => match listed.get(position as usize - 2) {
                    Some(listed) => entry(listed.ino, listed.d_type, &listed.name),
                    None => break,
                },
            };
            let size = (HEADER + entry.name.len() + 1).next_multiple_of(8);
            if used + size > budget {
                if entries.is_empty() {
                    return Err(Errno::EINVAL);
                }
                break;
            }
            used += size;
            position += 1;
            entries.push(entry);
        }
        reading.position = position;
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
            let mut reading = self.reading.lock().await;
            // Those of /proc are 0 bytes long.
            let has_end = self.opened.at.inode().is_closed();
            let start = match whence {
                Whence::Set => 0,
                Whence::Current => reading.position,
                Whence::End if has_end => 0,
                Whence::Data | Whence::Hole if has_end => return Err(Errno::ENXIO),
                _ => return Err(Errno::EINVAL),
            };
            let to = start.checked_add_signed(offset).ok_or(Errno::EINVAL)?;
            if has_end && to > MOST_BYTES {
                return Err(Errno::EINVAL);
            }
            if to == 0 {
                reading.listed = None;
            }
            reading.position = to;
            Ok(to)
        })
    }

    fn flags(&self) -> OpenFlags {
        self.opened.flags()
    }

    fn set_flags(&self, flags: OpenFlags) -> BoxFuture<'_, Result<()>> {
        self.opened.set_flags(flags);
        crate::file::ready(Ok(()))
    }

    fn attributes(&self) -> BoxFuture<'_, Result<Attributes>> {
        Box::pin(attributes(self.opened.at.inode()))
    }

    fn set_attributes<'a>(&'a self, caller: &'a Caller, set: SetAttributes) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.opened.set_attributes(caller, set))
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
        crate::file::ready(self.opened.at.path())
    }

    fn closed<'a>(&'a self, caller: &'a Caller) -> BoxFuture<'a, ()> {
        self.opened.closed(caller);
        crate::file::ready(())
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
