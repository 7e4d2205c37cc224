//! Standard streams of `cob run` when they are files or pipes of the host rather than a terminal: plain
//! bytes over the link, with credit in both directions.

use crate::{
    anonymous::{Identity, StatusFlags},
    file::{ready, Access, Destination, Source, Transfer},
    waiting::attempt,
    Attributes, Caller, Events, File, Kind, OpenFlags, SetAttributes,
};
use alloc::{sync::Arc, vec::Vec};
use core::any::Any;
use machine::{errno::Result, sync::WaitQueue, BoxFuture, Errno};

/// What comes from the host. Ok(0) is the end; EAGAIN: nothing there yet.
pub trait ByteSource: Send + Sync {
    fn read(&self, buf: &mut [u8]) -> Result<usize>;
    /// Would [`ByteSource::read`] answer something other than EAGAIN?
    fn is_ready(&self) -> bool;
    fn changes(&self) -> &WaitQueue;
}

/// What goes to the host. EAGAIN: no credit now; EPIPE: the host's end is closed.
pub trait ByteSink: Send + Sync {
    fn write(&self, buf: &[u8]) -> Result<usize>;
    fn is_ready(&self) -> bool;
    fn changes(&self) -> &WaitQueue;
}

#[derive(Clone)]
enum Direction {
    In(Arc<dyn ByteSource>),
    Out(Arc<dyn ByteSink>),
}

/// One of the three streams. To programs it looks like the end of a pipe.
pub struct StreamFile {
    direction: Direction,
    flags: StatusFlags,
    inode: Arc<Identity>,
}

impl StreamFile {
    pub fn reader(caller: &Caller, source: Arc<dyn ByteSource>) -> Arc<Self> {
        Self::new(caller, Direction::In(source), OpenFlags::empty())
    }

    pub fn writer(caller: &Caller, sink: Arc<dyn ByteSink>) -> Arc<Self> {
        Self::new(caller, Direction::Out(sink), OpenFlags::WRONLY)
    }

    fn new(caller: &Caller, direction: Direction, flags: OpenFlags) -> Arc<Self> {
        let inode = Arc::new(Identity::new(Kind::Fifo, 0o600, caller));
        Arc::new(StreamFile { direction, flags: StatusFlags::new(flags), inode })
    }
}

impl File for StreamFile {
    fn read_into<'a>(&'a self, to: Destination<'a>, access: Access<'a>) -> Transfer<'a> {
        let Direction::In(source) = &self.direction else { return Transfer::Done(Err(Errno::EBADF)) };
        let buf = match to.stream_buffer(&access) {
            Ok(buf) => buf,
            Err(error) => return Transfer::Done(Err(error)),
        };
        if buf.is_empty() {
            return Transfer::Done(Ok(0));
        }
        attempt(source.changes(), access.patience.unless(self.flags.nonblocking()), move || source.read(buf))
    }

    fn write_from<'a>(&'a self, from: Source<'a>, access: Access<'a>) -> Transfer<'a> {
        let Direction::Out(sink) = &self.direction else { return Transfer::Done(Err(Errno::EBADF)) };
        let buf = match from.stream_buffer(&access) {
            Ok(buf) => buf,
            Err(error) => return Transfer::Done(Err(error)),
        };
        if buf.is_empty() {
            return Transfer::Done(Ok(0));
        }
        attempt(sink.changes(), access.patience.unless(self.flags.nonblocking()), move || sink.write(buf))
    }

    fn status(&self) -> Option<&StatusFlags> {
        Some(&self.flags)
    }

    fn attributes(&self) -> BoxFuture<'_, Result<Attributes>> {
        ready(Ok(self.inode.attributes()))
    }

    fn set_attributes<'a>(&'a self, caller: &'a Caller, set: SetAttributes) -> BoxFuture<'a, Result<()>> {
        ready(self.inode.set(caller, set))
    }

    fn poll(&self) -> Events {
        match &self.direction {
            Direction::In(source) if source.is_ready() => Events::IN | Events::RDNORM,
            Direction::Out(sink) if sink.is_ready() => Events::OUT | Events::WRNORM,
            _ => Events::empty(),
        }
    }

    fn changes(&self) -> Option<&WaitQueue> {
        Some(match &self.direction {
            Direction::In(source) => source.changes(),
            Direction::Out(sink) => sink.changes(),
        })
    }

    fn path(&self) -> BoxFuture<'_, Vec<u8>> {
        ready(self.inode.path("pipe"))
    }

    /// The host gives each stream in one direction only.
    fn reopen<'a>(&'a self, _caller: &'a Caller, flags: OpenFlags) -> BoxFuture<'a, Result<Arc<dyn File>>> {
        let fits = match self.direction {
            Direction::In(_) => !flags.writable(),
            Direction::Out(_) => !flags.readable(),
        };
        if !fits {
            return ready(Err(Errno::EACCES));
        }
        let (direction, inode) = (self.direction.clone(), self.inode.clone());
        ready(Ok(Arc::new(StreamFile { direction, flags: StatusFlags::new(flags), inode })))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::*;
    use machine::sync::Lock;

    /// Bytes to read and whether more may come; or room to write.
    #[derive(Default)]
    struct Link {
        bytes: Lock<Vec<u8>>,
        ended: Lock<bool>,
        credit: Lock<usize>,
        changes: WaitQueue,
    }

    impl ByteSource for Link {
        fn read(&self, buf: &mut [u8]) -> Result<usize> {
            let mut bytes = self.bytes.lock();
            if bytes.is_empty() && !*self.ended.lock() {
                return Err(Errno::EAGAIN);
            }
            let count = buf.len().min(bytes.len());
            buf[..count].copy_from_slice(&bytes[..count]);
            bytes.drain(..count);
            Ok(count)
        }
        fn is_ready(&self) -> bool {
            !self.bytes.lock().is_empty() || *self.ended.lock()
        }
        fn changes(&self) -> &WaitQueue {
            &self.changes
        }
    }

    impl ByteSink for Link {
        fn write(&self, buf: &[u8]) -> Result<usize> {
            let mut credit = self.credit.lock();
            let count = buf.len().min(*credit);
            *credit -= count;
            if count == 0 {
                Err(Errno::EAGAIN)
            } else {
                Ok(count)
            }
        }
        fn is_ready(&self) -> bool {
            *self.credit.lock() > 0
        }
        fn changes(&self) -> &WaitQueue {
            &self.changes
        }
    }

    #[test]
    fn input_waits_for_bytes_and_ends() {
        let link = Arc::new(Link::default());
        let file = StreamFile::reader(&caller(1), link.clone());
        let mut buf = [0; 4];
        let mut reading = file.read(&mut buf);
        assert!(once(reading.as_mut()).is_none());
        link.bytes.lock().extend(b"hello");
        link.changes.wake_all();
        assert_eq!(once(reading.as_mut()), Some(Ok(4)));
        drop(reading);
        *link.ended.lock() = true;
        assert_eq!(block_on(file.read(&mut buf)), Ok(1));
        assert_eq!(block_on(file.read(&mut buf)), Ok(0));
        assert_eq!(block_on(file.write(b"x")), Err(Errno::EBADF));
    }

    #[test]
    fn output_waits_for_credit() {
        let link = Arc::new(Link::default());
        let file = StreamFile::writer(&caller(1), link.clone());
        assert_eq!(file.poll(), Events::empty());
        let mut writing = file.write(b"hello");
        assert!(once(writing.as_mut()).is_none());
        *link.credit.lock() = 3;
        link.changes.wake_all();
        assert_eq!(once(writing.as_mut()), Some(Ok(3)));
    }
}
