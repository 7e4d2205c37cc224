//! A generated text, open.

use super::{Content, Made, Style, MOST_BYTES};
use crate::{
    anonymous::StatusFlags,
    file::{ready, Access, Destination, Source, Transfer, APPEND_AT},
    Attributes, Caller, Events, File, Object, OpenFlags, Whence,
};
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::{
    any::Any,
    sync::atomic::{AtomicU64, Ordering},
};
use machine::{
    errno::Result,
    sync::{AsyncLock, WaitQueue},
    BoxFuture, Errno, PAGE_SIZE,
};

#[derive(Default)]
struct Reading {
    made: Option<Made>,
    /// Where the rest begins ([`Content::extend`]).
    mark: Option<u64>,
    position: u64,
}

pub(super) struct TextFile {
    content: Arc<dyn Content>,
    /// Who opened it: whose view of the text it is, whoever reads (man 5 proc, /proc/self).
    opener: Caller,
    style: Style,
    attributes: Attributes,
    flags: StatusFlags,
    reading: AsyncLock<Reading>,
    /// Version of the text that was read last ([`Changes`]).
    seen: AtomicU64,
}

impl TextFile {
    pub(super) fn new(
        content: &Arc<dyn Content>,
        style: Style,
        opener: &Caller,
        attributes: Attributes,
        flags: OpenFlags,
    ) -> Self {
        let (content, opener, flags) = (content.clone(), opener.clone(), StatusFlags::new(flags));
        TextFile {
            content,
            opener,
            style,
            attributes,
            flags,
            reading: AsyncLock::new(Reading::default()),
            seen: AtomicU64::new(0),
        }
    }

    /// May be written at all.
    fn check_writable(&self) -> Result<()> {
        match (self.flags.get().writable(), self.content.takes_writes()) {
            (false, _) => Err(Errno::EBADF),
            (true, true) => Ok(()),
            (true, false) if self.style == Style::Machine => Err(Errno::EIO),
            (true, false) => Err(Errno::EINVAL),
        }
    }

    async fn copy(&self, reading: &mut Reading, buf: &mut [u8], at: u64) -> Result<usize> {
        if !self.flags.get().readable() {
            return Err(Errno::EBADF);
        }
        if at == 0 || reading.made.is_none() || self.style == Style::Bytes {
            (reading.made, reading.mark) = (None, Some(0));
        }
        let made = reading.made.get_or_insert_default();
        let end = at.saturating_add(buf.len() as u64);
        if let Some(changes) = self.content.changes() {
            self.seen.store(changes.version(), Ordering::Relaxed);
        }
        // The beginning also for who reads nothing: some files have an error in place of a text.
        while let Some(mark) = reading.mark.filter(|mark| *mark == 0 || (made.text.len() as u64) < end) {
            reading.mark = self.content.extend(&self.opener, made, mark).await?;
        }
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        let rest = made.text.get(at..).unwrap_or_default();
        let part = rest.len().min(buf.len()).min(whole_records(&made.ends, at));
        buf[..part].copy_from_slice(&rest[..part]);
        Ok(part)
    }
}

/// How many bytes from `at` on are records that fit into a page, or one that does not.
fn whole_records(ends: &[usize], at: usize) -> usize {
    let next = ends.partition_point(|end| *end <= at);
    let fitting = ends.partition_point(|end| *end <= at.saturating_add(PAGE_SIZE));
    match ends.get(next.max(fitting.saturating_sub(1))) {
        Some(end) => end - at,
        None => usize::MAX,
    }
}

impl File for TextFile {
    fn read_into<'a>(&'a self, to: Destination<'a>, access: Access<'a>) -> Transfer<'a> {
        let buf = match to.buffer() {
            Ok(buf) => buf,
            Err(error) => return Transfer::Done(Err(error)),
        };
        Transfer::later(async move {
            let mut reading = self.reading.lock().await;
            let at = access.at.unwrap_or(reading.position);
            let read = self.copy(&mut reading, buf, at).await?;
            if access.at.is_none() {
                reading.position += read as u64;
            }
            Ok(read)
        })
    }

    fn write_from<'a>(&'a self, from: Source<'a>, access: Access<'a>) -> Transfer<'a> {
        let buf = match from.buffer() {
            Ok(buf) => buf,
            Err(error) => return Transfer::Done(Err(error)),
        };
        Transfer::later(async move {
            // A sequence has no places to write at.
            let placed = access.at.is_some_and(|at| at != APPEND_AT);
            if placed && matches!(self.style, Style::Machine | Style::Process) {
                return Err(Errno::ESPIPE);
            }
            self.check_writable()?;
            if access.at.is_some() && buf.is_empty() {
                return Ok(0);
            }
            let written = self.content.write(&self.opener, buf).await?;
            if access.at.is_none() {
                self.reading.lock().await.position += written as u64;
            }
            Ok(written)
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
                reading.made = None;
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

    fn poll(&self) -> Events {
        let always = Events::IN | Events::OUT | Events::RDNORM | Events::WRNORM;
        match self.content.changes() {
            Some(changes) if changes.version() != self.seen.load(Ordering::Relaxed) => {
                always | Events::PRI | Events::ERR
            }
            _ => always,
        }
    }

    fn changes(&self) -> Option<&WaitQueue> {
        self.content.changes().map(|changes| &changes.queue)
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

/// F_SETFL.
pub(super) fn change(own: &StatusFlags, flags: OpenFlags) -> Result<()> {
    if flags.contains(OpenFlags::DIRECT) {
        return Err(Errno::EINVAL);
    }
    own.set(flags);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        testing::{block_on, caller},
        Timestamp,
    };
    use alloc::format;
    use core::sync::atomic::{AtomicU64, Ordering::SeqCst};

    /// A hundred lines of ten bytes, and how many of them have been made.
    struct Lines(AtomicU64);

    impl Content for Lines {
        fn read<'a>(&'a self, _caller: &'a Caller) -> BoxFuture<'a, Result<Vec<u8>>> {
            unreachable!("it is made line by line")
        }

        fn extend<'a>(
            &'a self,
            _caller: &'a Caller,
            made: &'a mut Made,
            mark: u64,
        ) -> BoxFuture<'a, Result<Option<u64>>> {
            self.0.fetch_add(1, SeqCst);
            made.text.extend(format!("line {mark:4}\n").bytes());
            ready(Ok((mark < 99).then_some(mark + 1)))
        }
    }

    #[test]
    fn a_long_text_is_made_as_far_as_it_is_read() {
        let lines = Arc::new(Lines(AtomicU64::new(0)));
        let content: Arc<dyn Content> = lines.clone();
        let never = Timestamp::default();
        let attributes = Attributes {
            dev: (0, 1),
            ino: 1,
            mode: 0o100444,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: (0, 0),
            size: 0,
            block_size: 1024,
            blocks: 0,
            accessed: never,
            modified: never,
            changed: never,
        };
        let file = TextFile::new(&content, Style::Process, &caller(1), attributes, OpenFlags::empty());
        let made = || lines.0.swap(0, SeqCst);
        let mut buf = [0; 25];
        assert_eq!((block_on(file.read(&mut buf)), made()), (Ok(25), 3));
        assert_eq!(&buf, b"line    0\nline    1\nline ");
        assert_eq!((block_on(file.read(&mut buf)), made()), (Ok(25), 2));
        assert_eq!(&buf[..15], b"   2\nline    3\n");
        // From its start it is made anew; what lies behind the end is nothing.
        assert_eq!((block_on(file.read_at(&mut buf, 0)), made()), (Ok(25), 3));
        assert_eq!((block_on(file.read_at(&mut buf, 990)), made()), (Ok(10), 97));
        assert_eq!(&buf[..10], b"line   99\n");
        assert_eq!((block_on(file.read_at(&mut buf, 1000)), made()), (Ok(0), 0));
    }

    #[test]
    fn a_read_gives_whole_records_that_fit_into_a_page() {
        let ends = [1000, 3000, 4096, 10000, 10001, 14097];
        let given = [0, 1, 999, 1000, 4096, 5000, 9999, 10000, 14097].map(|at| whole_records(&ends, at));
        assert_eq!(given, [4096, 4095, 3097, 3096, 5904, 5000, 2, 1, usize::MAX]);
        assert_eq!(whole_records(&[], 5), usize::MAX);
    }
}
