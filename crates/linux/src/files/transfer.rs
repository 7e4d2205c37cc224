//! Between a file and user memory: at once where nothing has to be waited for, else through a buffer of the kernel's, which
//! for small transfers takes none of the heap.
//!
//! Who waits keeps its buffer. So one of more than a page is charged to the caller, whose user may have a part of the kernel's memory in
//! such buffers; beyond that, and where memory is short, a transfer goes page by page, and a stream gives or takes a page at a time.
//! What a read lends to another kernel while it waits there is charged with it.

use super::{socket::message, vector::Segment};
use crate::call::Call;
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use fs::{
    file::{UserBuffer, APPEND_AT},
    remote::loan::Loan,
    File, Kind,
};
use machine::{
    account::{Charge, OverLimit, Resource},
    collections::try_filled,
    errno::Result,
    Errno, Frame, UserAddr, PAGE_SIZE,
};
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
    /// Where `large` is more than a page.
    charge: Charge,
}

impl<'a> Buffer<'a> {
    /// For steps of a transfer of `total` bytes. What is in it at first is not for programs.
    pub fn for_bytes(call: &Call<'a>, total: usize) -> Self {
        Self::charged(call, total, None)
    }

    /// The same to read `file`.
    pub fn for_reading(call: &Call<'a>, file: &dyn File, total: usize) -> Self {
        Self::charged(call, total, Some(file))
    }

    fn charged(call: &Call<'a>, total: usize, read: Option<&dyn File>) -> Self {
        let system = call.system();
        let (large, charge) = match total {
            0..=SMALL => (None, Charge::FREE),
            _ if total <= PAGE_SIZE => (Some(system.take_page_buffer()), Charge::FREE),
            _ => match charged(call, total.min(STEP), read) {
                Ok((large, charge)) => (Some(large.into()), charge),
                Err(_) => (Some(system.take_page_buffer()), Charge::FREE),
            },
        };
        Buffer { system, small: [0; SMALL], large, charge }
    }

    /// Whether the transfer of `total` bytes takes more steps than it would with enough memory. What has to go whole must not.
    pub fn is_cut(&self, total: usize) -> bool {
        total > PAGE_SIZE && self.charge.amount() == 0
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

/// Bytes for a transfer, charged if they are more than a page, with the frames that a read of the file `read` lends to its kernel until
/// they come. ENOBUFS: there is no memory for so many.
pub(crate) fn charged(call: &Call<'_>, bytes: usize, read: Option<&dyn File>) -> Result<(Vec<u8>, Charge)> {
    let charge = charge(call, bytes, read)?;
    Ok((try_filled(bytes, 0).map_err(|_| Errno::ENOBUFS)?, charge))
}

fn charge(call: &Call<'_>, bytes: usize, read: Option<&dyn File>) -> Result<Charge> {
    if bytes <= PAGE_SIZE {
        return Ok(Charge::FREE);
    }
    let lent = read.filter(|file| file.is_elsewhere()).map_or(0, |_| bytes.min(Loan::LARGEST));
    if !call.system().memory.has_room_for(bytes + lent) {
        return Err(Errno::ENOBUFS);
    }
    call.account().charge(Resource::Transfers, bytes + lent).map_err(|OverLimit| Errno::ENOBUFS)
}

/// How much of the next `bytes` bytes of `file` may be kept while its reader waits: all, charged, or a page.
pub(super) fn afford(call: &Call<'_>, file: &dyn File, bytes: usize) -> (usize, Charge) {
    match charge(call, bytes, Some(file)) {
        Ok(charge) => (bytes, charge),
        Err(_) => (bytes.min(PAGE_SIZE), Charge::FREE),
    }
}

/// For a transfer that is [cut](Buffer::is_cut). ENOBUFS: the file is a socket of datagrams, which go whole.
pub(super) async fn check_parts(call: &Call<'_>, file: &Arc<dyn File>) -> Result<()> {
    if Kind::of_mode(file.attributes().await?.mode) != Some(Kind::Socket) || message::is_stream(call, file).await? {
        return Ok(());
    }
    Err(Errno::ENOBUFS)
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
