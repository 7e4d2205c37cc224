//! Standard streams of `cob run` when they are files or pipes of the host rather than a terminal: plain
//! bytes over the link, with credit in both directions.

use crate::{
    anonymous::{Identity, StatusFlags},
    file::ready,
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

enum Direction {
    In(Arc<dyn ByteSource>),
    Out(Arc<dyn ByteSink>),
}

/// One of the three streams. To programs it looks like the end of a pipe.
pub struct StreamFile {
    direction: Direction,
    flags: StatusFlags,
    inode: Identity,
}

impl StreamFile {
    pub fn reader(caller: &Caller, source: Arc<dyn ByteSource>) -> Arc<Self> {
        Self::new(caller, Direction::In(source), OpenFlags::empty())
    }

    pub fn writer(caller: &Caller, sink: Arc<dyn ByteSink>) -> Arc<Self> {
        Self::new(caller, Direction::Out(sink), OpenFlags::WRONLY)
    }

    fn new(caller: &Caller, direction: Direction, flags: OpenFlags) -> Arc<Self> {
        let inode = Identity::new(Kind::Fifo, 0o600, caller);
        Arc::new(StreamFile { direction, flags: StatusFlags::new(flags), inode })
    }
}

impl File for StreamFile {
    fn read<'a>(&'a self, buf: &'a mut [u8]) -> BoxFuture<'a, Result<usize>> {
        let Direction::In(source) = &self.direction else { return ready(Err(Errno::EBADF)) };
        if buf.is_empty() {
            return ready(Ok(0));
        }
        attempt(source.changes(), self.flags.nonblocking(), move || source.read(buf))
    }

    fn write<'a>(&'a self, buf: &'a [u8]) -> BoxFuture<'a, Result<usize>> {
        let Direction::Out(sink) = &self.direction else { return ready(Err(Errno::EBADF)) };
        if buf.is_empty() {
            return ready(Ok(0));
        }
        attempt(sink.changes(), self.flags.nonblocking(), move || sink.write(buf))
    }

    fn flags(&self) -> OpenFlags {
        self.flags.get()
    }

    fn set_flags(&self, flags: OpenFlags) -> BoxFuture<'_, Result<()>> {
        self.flags.set(flags);
        ready(Ok(()))
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

    fn as_any(&self) -> &dyn Any {
        self
    }
}
