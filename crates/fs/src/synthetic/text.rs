//! A generated text, open.

use super::{Content, Style, MOST_BYTES};
use crate::{
    file::{ready, APPEND_AT},
    Attributes, Caller, File, Object, OpenFlags, Whence,
};
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::any::Any;
use machine::{
    errno::Result,
    sync::{AsyncLock, Lock},
    BoxFuture, Errno,
};

#[derive(Default)]
struct Reading {
    text: Option<Vec<u8>>,
    position: u64,
}

pub(super) struct TextFile {
    content: Arc<dyn Content>,
    /// Who opened it: whose view of the text it is, whoever reads (man 5 proc, /proc/self).
    opener: Caller,
    style: Style,
    attributes: Attributes,
    flags: Lock<OpenFlags>,
    reading: AsyncLock<Reading>,
}

impl TextFile {
    pub(super) fn new(
        content: &Arc<dyn Content>,
        style: Style,
        opener: &Caller,
        attributes: Attributes,
        flags: OpenFlags,
    ) -> Self {
        let (content, opener, flags) = (content.clone(), opener.clone(), Lock::new(flags));
        TextFile { content, opener, style, attributes, flags, reading: AsyncLock::new(Reading::default()) }
    }

    /// May be written at all.
    fn check_writable(&self) -> Result<()> {
        match (self.flags.lock().writable(), self.content.takes_writes()) {
            (false, _) => Err(Errno::EBADF),
            (true, true) => Ok(()),
            (true, false) if self.style == Style::Machine => Err(Errno::EIO),
            (true, false) => Err(Errno::EINVAL),
        }
    }

    async fn copy(&self, reading: &mut Reading, buf: &mut [u8], at: u64) -> Result<usize> {
        if !self.flags.lock().readable() {
            return Err(Errno::EBADF);
        }
        if at == 0 || reading.text.is_none() || self.style == Style::Bytes {
            reading.text = None;
            reading.text = Some(self.content.read(&self.opener).await?);
        }
        let text = reading.text.as_deref().unwrap_or_default();
        let rest = text.get(at as usize..).unwrap_or_default();
        let part = rest.len().min(buf.len());
        buf[..part].copy_from_slice(&rest[..part]);
        Ok(part)
    }
}

impl File for TextFile {
    fn read<'a>(&'a self, buf: &'a mut [u8]) -> BoxFuture<'a, Result<usize>> {
        Box::pin(async move {
            let mut reading = self.reading.lock().await;
            let at = reading.position;
            let read = self.copy(&mut reading, buf, at).await?;
            reading.position += read as u64;
            Ok(read)
        })
    }

    fn read_at<'a>(&'a self, buf: &'a mut [u8], offset: u64) -> BoxFuture<'a, Result<usize>> {
        Box::pin(async move {
            let mut reading = self.reading.lock().await;
            self.copy(&mut reading, buf, offset).await
        })
    }

    fn write<'a>(&'a self, buf: &'a [u8]) -> BoxFuture<'a, Result<usize>> {
        Box::pin(async move {
            self.check_writable()?;
            let written = self.content.write(&self.opener, buf).await?;
            self.reading.lock().await.position += written as u64;
            Ok(written)
        })
    }

    fn write_at<'a>(&'a self, buf: &'a [u8], offset: u64) -> BoxFuture<'a, Result<usize>> {
        Box::pin(async move {
            // A sequence has no places to write at.
            if offset != APPEND_AT && matches!(self.style, Style::Machine | Style::Process) {
                return Err(Errno::ESPIPE);
            }
            self.check_writable()?;
            if buf.is_empty() {
                return Ok(0);
            }
            self.content.write(&self.opener, buf).await
        })
    }

    fn seek(&self, offset: i64, whence: Whence) -> BoxFuture<'_, Result<u64>> {
        Box::pin(async move {
            let mut reading = self.reading.lock().await;
            let has_end = matches!(self.style, Style::Bytes | Style::Setting);
            let start = match whence {
                _ if self.style == Style::Action => return Ok(reading.position),
                Whence::Set => 0,
                Whence::Current => reading.position,
                Whence::End if has_end => 0,
                Whence::Data | Whence::Hole if has_end => return Err(Errno::ENXIO),
                _ => return Err(Errno::EINVAL),
            };
            let at = start.checked_add_signed(offset).filter(|at| *at <= i64::MAX as u64).ok_or(Errno::EINVAL)?;
            if self.style == Style::Bytes && at > MOST_BYTES {
                return Err(Errno::EINVAL);
            }
            if at != reading.position {
                // The text is made anew, as it is then.
                reading.text = None;
            }
            reading.position = at;
            Ok(at)
        })
    }

    fn allocate(&self, _mode: u32, _offset: u64, _len: u64) -> BoxFuture<'_, Result<()>> {
        ready(Err(Errno::EOPNOTSUPP))
    }

    fn object(&self) -> BoxFuture<'_, Result<Arc<dyn Object>>> {
        ready(Err(if self.style == Style::Machine { Errno::EIO } else { Errno::ENODEV }))
    }

    fn flags(&self) -> OpenFlags {
        *self.flags.lock()
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

/// F_SETFL.
pub(super) fn change(own: &Lock<OpenFlags>, flags: OpenFlags) -> Result<()> {
    if flags.contains(OpenFlags::DIRECT) {
        return Err(Errno::EINVAL);
    }
    let settable = OpenFlags::APPEND | OpenFlags::NONBLOCK;
    let mut own = own.lock();
    *own = (*own - settable) | (flags & settable);
    Ok(())
}
