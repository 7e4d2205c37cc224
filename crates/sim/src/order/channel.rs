//! What is behind descriptors: files with an offset, pipes, eventfds. man 7 pipe, man 2 eventfd, man 2 lseek.

use super::{Reply, EAGAIN, EBADF, EINVAL, EIO, EPIPE, ESPIPE};
use std::collections::VecDeque;

/// An open file description.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Description {
    pub kind: Kind,
    pub nonblocking: bool,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// Which file.
    File {
        file: usize,
        offset: usize,
        append: bool,
    },
    /// Which pipe.
    ReadEnd(usize),
    WriteEnd(usize),
    Event {
        count: u64,
        semaphore: bool,
    },
    /// Its interests are the model's.
    Poll,
    /// Its kernel has died. How it was opened is still known.
    Dead {
        reads: bool,
        writes: bool,
    },
}

/// What descriptions lead to.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Store {
    pub files: [Vec<u8>; 2],
    /// None: gone with its last end.
    pub pipes: Vec<Option<VecDeque<u8>>>,
}

/// Who else has an end of a pipe.
#[derive(Clone, Copy)]
pub struct Ends {
    pub readers: bool,
    pub writers: bool,
}

pub const EPOLLIN: u32 = 1;
pub const EPOLLOUT: u32 = 4;
pub const EPOLLERR: u32 = 8;
pub const EPOLLHUP: u32 = 16;

fn plain(result: i64) -> Option<Reply> {
    Some((result, Vec::new()))
}

impl Description {
    /// None: it must wait.
    pub fn read(&mut self, store: &mut Store, ends: Ends, bytes: usize) -> Option<Reply> {
        let waits = if self.nonblocking { plain(EAGAIN) } else { None };
        match &mut self.kind {
            Kind::File { file, offset, .. } => {
                let rest = store.files[*file].get(*offset..).unwrap_or(&[]);
                let read = rest[..bytes.min(rest.len())].to_vec();
                *offset += read.len();
                Some((read.len() as i64, read))
            }
            Kind::ReadEnd(pipe) => {
                let buffer = store.pipes[*pipe].as_mut().expect("it has this end");
                let read: Vec<u8> = buffer.drain(..bytes.min(buffer.len())).collect();
                match read.is_empty() {
                    true if ends.writers => waits,
                    _ => Some((read.len() as i64, read)),
                }
            }
            Kind::Event { .. } if bytes < 8 => plain(EINVAL),
            Kind::Event { count: 0, .. } => waits,
            Kind::Event { count, semaphore } => {
                let taken = if *semaphore { 1 } else { *count };
                *count -= taken;
                Some((8, taken.to_le_bytes().into()))
            }
            Kind::WriteEnd(_) => plain(EBADF),
            Kind::Poll => plain(EINVAL),
            Kind::Dead { reads, .. } => plain(if *reads { EIO } else { EBADF }),
        }
    }

    /// A pipe never gets full here, nor an eventfd.
    pub fn write(&mut self, store: &mut Store, ends: Ends, bytes: &[u8]) -> Reply {
        match &mut self.kind {
            Kind::File { file, offset, append } => {
                let content = &mut store.files[*file];
                if *append {
                    *offset = content.len();
                }
                let end = *offset + bytes.len();
                content.resize(content.len().max(end), 0);
                content[*offset..end].copy_from_slice(bytes);
                *offset = end;
            }
            Kind::WriteEnd(_) if !ends.readers => return (EPIPE, Vec::new()),
            Kind::WriteEnd(pipe) => store.pipes[*pipe].as_mut().expect("it has this end").extend(bytes),
            Kind::Event { count, .. } => match bytes.try_into() {
                Ok(value) => {
                    *count += u64::from_le_bytes(value);
                    return (8, Vec::new());
                }
                Err(_) => return (EINVAL, Vec::new()),
            },
            Kind::ReadEnd(_) => return (EBADF, Vec::new()),
            Kind::Poll => return (EINVAL, Vec::new()),
            Kind::Dead { writes, .. } => return (if *writes { EIO } else { EBADF }, Vec::new()),
        }
        (bytes.len() as i64, Vec::new())
    }

    /// SEEK_SET, or (none) SEEK_END.
    pub fn seek(&mut self, store: &Store, to: Option<usize>) -> i64 {
        match &mut self.kind {
            Kind::File { file, offset, .. } => {
                *offset = to.unwrap_or(store.files[*file].len());
                *offset as i64
            }
            // noop_llseek: they have no position, and say so by not moving it.
            Kind::Event { .. } | Kind::Poll => 0,
            Kind::Dead { .. } => EIO,
            Kind::ReadEnd(_) | Kind::WriteEnd(_) => ESPIPE,
        }
    }

    /// Its kernel dies.
    pub fn lose(&mut self) {
        let (reads, writes) = match self.kind {
            Kind::ReadEnd(_) => (true, false),
            Kind::WriteEnd(_) => (false, true),
            _ => (true, true),
        };
        self.kind = Kind::Dead { reads, writes };
    }

    pub fn ready(&self, store: &Store, ends: Ends) -> u32 {
        let bit = |bit, set| if set { bit } else { 0 };
        match &self.kind {
            Kind::File { .. } | Kind::Poll | Kind::Dead { .. } => 0,
            Kind::ReadEnd(pipe) => {
                let filled = store.pipes[*pipe].as_ref().is_some_and(|buffer| !buffer.is_empty());
                bit(EPOLLIN, filled) | bit(EPOLLHUP, !ends.writers)
            }
            Kind::WriteEnd(_) => EPOLLOUT | bit(EPOLLERR, !ends.readers),
            Kind::Event { count, .. } => EPOLLOUT | bit(EPOLLIN, *count > 0),
        }
    }
}
