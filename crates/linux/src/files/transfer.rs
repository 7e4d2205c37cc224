//! Between a file and user memory: at once where nothing has to be waited for, else through a buffer of the kernel's, which
//! for small transfers takes none of the heap.

use super::vector::Segment;
use crate::call::Call;
use alloc::{boxed::Box, sync::Arc, vec};
use fs::{
    file::{UserBuffer, APPEND_AT},
    File,
};
use machine::{Frame, UserAddr, PAGE_SIZE};
use process::System;
use vm::Space;

/// Up to this many bytes go through the call's own frame.
const SMALL: usize = 256;
/// Longer transfers go in steps of at most this.
pub(crate) const STEP: usize = 256 * 1024;

pub(crate) struct Buffer<'a> {
    system: &'a System,
    small: [u8; SMALL],
    large: Option<Box<[u8]>>,
}

impl<'a> Buffer<'a> {
    /// For steps of a transfer of `total` bytes. What is in it at first is not for programs.
    pub fn for_bytes(system: &'a System, total: usize) -> Self {
        let large = match total {
            0..=SMALL => None,
            _ if total <= PAGE_SIZE => Some(system.take_page_buffer()),
            _ => Some(vec![0; total.min(STEP)].into()),
        };
        Buffer { system, small: [0; SMALL], large }
    }

    /// Room for a step that has `left` bytes to go.
    pub fn step(&mut self, left: usize) -> &mut [u8] {
        let room = self.large.as_deref_mut().unwrap_or(&mut self.small);
        let len = left.min(room.len());
        &mut room[..len]
    }
}

impl Drop for Buffer<'_> {
    fn drop(&mut self) {
        if let Some(buffer) = self.large.take().filter(|buffer| buffer.len() == PAGE_SIZE) {
            self.system.give_page_buffer(buffer);
        }
    }
}

/// One buffer of the program's, from where a transfer has got to.
struct Direct {
    space: Arc<Space>,
    at: UserAddr,
}

impl Direct {
    fn moved(&mut self, bytes: usize) -> usize {
        self.at = self.at.add(bytes);
        bytes
    }
}

impl UserBuffer for Direct {
    fn put(&mut self, from: &[u8]) -> usize {
        self.moved(self.space.put_bytes(self.at, from))
    }
    fn put_frame(&mut self, from: Frame, offset: usize, bytes: usize) -> usize {
        self.moved(self.space.put_frame(self.at, from, offset, bytes))
    }
    fn put_zeros(&mut self, bytes: usize) -> usize {
        self.moved(self.space.put_zeros(self.at, bytes))
    }
    fn take(&mut self, to: &mut [u8]) -> usize {
        self.moved(self.space.take_bytes(self.at, to))
    }
    fn take_frame(&mut self, to: Frame, offset: usize, bytes: usize) -> usize {
        self.moved(self.space.take_frame(self.at, to, offset, bytes))
    }
}

/// How many of the next `left` bytes are moved at once without waiting. What a stream has is not much, and comes in one piece.
pub(crate) fn step_now(file: &dyn File, left: usize) -> usize {
    match left > STEP && file.changes().is_none() {
        true => STEP,
        false => left,
    }
}

/// A read of `len` bytes, to byte `done` of a buffer and on, that needs not wait (see [`File::read_now`]).
pub(crate) fn read_now(
    call: &Call<'_>,
    file: &dyn File,
    segments: &[Segment],
    done: usize,
    len: usize,
    offset: Option<u64>,
) -> Option<usize> {
    let &[Segment { at, .. }] = segments else { return None };
    let offset = offset.map(|offset| offset + done as u64);
    file.read_now(offset, len, &mut Direct { space: call.space(), at: at.add(done) })
}

/// The same for a write (see [`File::write_now`]): as many of its first bytes as need not wait.
pub(crate) fn write_now(
    call: &Call<'_>,
    file: &dyn File,
    segments: &[Segment],
    done: usize,
    len: usize,
    offset: Option<u64>,
) -> Option<usize> {
    let &[Segment { at, .. }] = segments else { return None };
    let offset = offset.map(|offset| if offset == APPEND_AT { offset } else { offset + done as u64 });
    file.write_now(offset, len, &mut Direct { space: call.space(), at: at.add(done) })
}
