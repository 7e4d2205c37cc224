//! The memory of a program, of which only a beginning is there.

use fs::{
    file::{Access, Destination, Source, Transfer, UserBuffer},
    File,
};
use machine::{Frame, Memory};
use std::sync::Arc;

pub struct Program {
    pub memory: Arc<dyn Memory>,
    /// What was put there; what is taken from there.
    pub bytes: Vec<u8>,
    /// Bytes that can still be moved.
    pub room: usize,
}

impl Program {
    fn advance(&mut self, bytes: usize) -> usize {
        let moved = bytes.min(self.room);
        self.room -= moved;
        moved
    }
}

fn access(at: Option<u64>) -> Access<'static> {
    Access { at, ..Access::KERNEL }
}

fn now(transfer: Transfer<'_>) -> Option<usize> {
    match transfer {
        Transfer::Done(result) => result.ok(),
        Transfer::Later(_) => None,
    }
}

/// A read that is done at once, if all of the memory is there that it needs.
pub fn read_now(file: &dyn File, at: Option<u64>, bytes: usize, program: &mut Program) -> Option<usize> {
    now(file.read_into(Destination::User(program, bytes), access(at)))
}

/// The same for a write.
pub fn write_now(file: &dyn File, at: Option<u64>, bytes: usize, program: &mut Program) -> Option<usize> {
    now(file.write_from(Source::User(program, bytes), access(at)))
}

impl UserBuffer for Program {
    fn put(&mut self, from: &[u8]) -> usize {
        let moved = self.advance(from.len());
        self.bytes.extend_from_slice(&from[..moved]);
        moved
    }
    fn put_frame(&mut self, from: Frame, offset: usize, bytes: usize) -> usize {
        let mut part = vec![0; bytes];
        self.memory.read(from, offset, &mut part);
        self.put(&part)
    }
    fn put_zeros(&mut self, bytes: usize) -> usize {
        self.put(&vec![0; bytes])
    }
    fn take(&mut self, to: &mut [u8]) -> usize {
        let moved = self.advance(to.len());
        for (place, byte) in to.iter_mut().zip(self.bytes.drain(..moved)) {
            *place = byte;
        }
        moved
    }
    fn take_frame(&mut self, to: Frame, offset: usize, bytes: usize) -> usize {
        let mut part = vec![0; bytes];
        let moved = self.take(&mut part);
        self.memory.write(to, offset, &part[..moved]);
        moved
    }
}
