//! [`Places`], open.

use super::{text::change, Places};
use crate::{
    anonymous::StatusFlags,
    file::{ready, Access, Destination, Source, Transfer},
    Attributes, File, OpenFlags, Whence,
};
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::any::Any;
use machine::{errno::Result, sync::AsyncLock, BoxFuture, Errno};

pub(super) struct PlacesFile {
    places: Arc<dyn Places>,
    attributes: Attributes,
    flags: StatusFlags,
    position: AsyncLock<u64>,
}

impl PlacesFile {
    pub(super) fn new(places: Arc<dyn Places>, attributes: Attributes, flags: OpenFlags) -> Self {
        PlacesFile { places, attributes, flags: StatusFlags::new(flags), position: AsyncLock::new(0) }
    }
}

impl File for PlacesFile {
    fn read_into<'a>(&'a self, to: Destination<'a>, access: Access<'a>) -> Transfer<'a> {
        let buf = match to.buffer() {
            Ok(buf) if self.flags.get().readable() => buf,
            Ok(_) => return Transfer::Done(Err(Errno::EBADF)),
            Err(error) => return Transfer::Done(Err(error)),
        };
        Transfer::later(async move {
            if let Some(at) = access.at {
                return self.places.read_at(buf, at).await;
            }
            let mut position = self.position.lock().await;
            let read = self.places.read_at(buf, *position).await?;
            *position = position.wrapping_add(read as u64);
            Ok(read)
        })
    }

    fn write_from<'a>(&'a self, from: Source<'a>, access: Access<'a>) -> Transfer<'a> {
        let buf = match from.buffer() {
            Ok(buf) if self.flags.get().writable() => buf,
            Ok(_) => return Transfer::Done(Err(Errno::EBADF)),
            Err(error) => return Transfer::Done(Err(error)),
        };
        Transfer::later(async move {
            if let Some(at) = access.at {
                return self.places.write_at(buf, at).await;
            }
            let mut position = self.position.lock().await;
            let written = self.places.write_at(buf, *position).await?;
            *position = position.wrapping_add(written as u64);
            Ok(written)
        })
    }

    /// Any offset is a place, also those that are negative as a number (mem_lseek).
    fn seek(&self, offset: i64, whence: Whence) -> BoxFuture<'_, Result<u64>> {
        Box::pin(async move {
            let mut position = self.position.lock().await;
            *position = match whence {
                Whence::Set => offset as u64,
                Whence::Current => position.wrapping_add_signed(offset),
                _ => return Err(Errno::EINVAL),
            };
            Ok(*position)
        })
    }

    fn allocate(&self, _mode: u32, _offset: u64, _len: u64) -> BoxFuture<'_, Result<()>> {
        ready(Err(Errno::EOPNOTSUPP))
    }

    fn status(&self) -> Option<&StatusFlags> {
        Some(&self.flags)
    }

    fn set_flags(&self, flags: OpenFlags) -> BoxFuture<'_, Result<()>> {
        ready(change(&self.flags, flags))
    }

    fn attributes(&self) -> BoxFuture<'_, Result<Attributes>> {
        ready(Ok(self.attributes.clone()))
    }

    /// Called by a name only through the cloak that knows it.
    fn path(&self) -> BoxFuture<'_, Vec<u8>> {
        ready(Vec::new())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
