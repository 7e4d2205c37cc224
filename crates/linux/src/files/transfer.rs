//! Between a file and user memory: straight ([`ProgramBuffer`]) where the file can do that and the memory is there, else through a buffer
//! of the kernel's, which for small transfers takes none of the heap.
//!
//! Who waits keeps its buffer. So one of more than a page is charged to the caller, whose user may have a part of the kernel's memory in
//! such buffers; beyond that, and where memory is short, a transfer goes page by page, and a stream gives or takes a page at a time.
//! What a read lends to another kernel while it waits there is charged with it.

use super::{
    socket::timeout::{self, Direction},
    vector::{check_end, single, Segment},
};
use crate::call::Call;
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::ops::Range;
use fs::{
    file::{Access, Patience, Requester, Transfer, UserBuffer, MUST_WAIT, NEEDS_BUFFER},
    remote::loan::Loan,
    Caller, File, OpenFlags,
};
use machine::{
    account::{Charge, OverLimit, Resource},
    collections::try_filled,
    errno::Result,
    Errno, Frame, PageRange, UserAddr, PAGE_SIZE,
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

/// The same without the bytes, for who gets them from elsewhere.
pub(super) fn charge(call: &Call<'_>, bytes: usize, read: Option<&dyn File>) -> Result<Charge> {
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
pub(super) fn check_parts(file: &dyn File) -> Result<()> {
    match file.socket() {
        Some(socket) if !socket.is_stream() => Err(Errno::ENOBUFS),
        _ => Ok(()),
    }
}

/// The buffers of a program, from where a transfer has got to.
pub(crate) struct ProgramBuffer<'a> {
    space: &'a Space,
    /// What is left of the buffer that is being moved.
    at: UserAddr,
    left: usize,
    /// The buffers behind it.
    rest: &'a [Segment],
}

impl<'a> ProgramBuffer<'a> {
    /// From byte `done` of the whole on.
    pub fn new(space: &'a Space, segments: &'a [Segment], mut done: usize) -> Self {
        let mut rest = segments;
        while let Some((first, others)) = rest.split_first() {
            rest = others;
            if done < first.len {
                return ProgramBuffer { space, at: first.at.add(done), left: first.len - done, rest };
            }
            done -= first.len;
        }
        ProgramBuffer { space, at: UserAddr(0), left: 0, rest }
    }

    /// Moves the next `bytes` bytes: `each` is given an address and which of them belong there, and says how many it has moved.
    #[inline(always)]
    fn advance(&mut self, bytes: usize, mut each: impl FnMut(&Space, UserAddr, Range<usize>) -> usize) -> usize {
        let mut done = 0;
        loop {
            let part = self.left.min(bytes - done);
            let moved = each(self.space, self.at, done..done + part);
            self.at = self.at.add(moved);
            self.left -= moved;
            done += moved;
            if done == bytes || moved < part {
                return done;
            }
            let Some((next, rest)) = self.rest.split_first() else { return done };
            (self.at, self.left, self.rest) = (next.at, next.len, rest);
        }
    }
}

/// What came of [`at_once`].
pub(super) enum AtOnce {
    /// So many bytes were moved.
    Done(Arc<dyn File>, usize),
    /// It has to wait, needs a buffer of the kernel, or was not tried because it is long or O_DIRECT. The file is open for it.
    MustWait(Arc<dyn File>),
    /// It has failed, and is not tried again: each write that a pipe refuses signals its reader (O_ASYNC).
    Failed(Errno),
    /// Nothing was tried. The caller looks the descriptor up, and reports its errors in Linux's order.
    NotTried,
}

/// Tries a read or write of `bytes` bytes at `at` without waiting and without a future: of a file that this kernel knows by its descriptor,
/// and at most [`STEP`] bytes of memory that is mapped here. A file that answers with a future has begun nothing that to begin anew would do twice.
/// `is_open` says whether a file with these flags is tried, and `begin` begins it with the file, the memory and the access.
#[inline]
pub(super) fn at_once(
    call: &Call<'_>,
    (at, bytes): (UserAddr, u64),
    offset: Option<u64>,
    is_open: impl FnOnce(OpenFlags) -> bool,
    begin: impl FnOnce(&dyn File, &mut ProgramBuffer<'_>, Access<'_>) -> Option<Result<usize>>,
) -> AtOnce {
    let Some((file, flags)) = call.opened_here(call.int(0)).filter(|(_, flags)| is_open(*flags)) else {
        return AtOnce::NotTried;
    };
    let Ok(segments) = single(at, bytes) else { return AtOnce::NotTried };
    // Nothing at all may be an error, and a stream has no places.
    if bytes == 0 || check_end(offset, bytes as usize).is_err() || offset.is_some() && file.changes().is_some() {
        return AtOnce::NotTried;
    }
    // What is read or written directly may need more (`make_present`).
    if bytes > STEP as u64 || flags.contains(OpenFlags::DIRECT) {
        return AtOnce::MustWait(file);
    }
    let (space, asking) = (call.space(), LazyCaller::new(call));
    let mut program = ProgramBuffer::new(&space, &segments, 0);
    let access = Access { at: offset, patience: Patience::Tries, ..Access::by(&asking) };
    match begin(&*file, &mut program, access) {
        Some(Ok(moved)) => AtOnce::Done(file, moved),
        None | Some(Err(NEEDS_BUFFER | MUST_WAIT)) => AtOnce::MustWait(file),
        Some(Err(error)) => AtOnce::Failed(error),
    }
}

/// Makes the memory present that the next `bytes` bytes from byte `done` of the buffers on are to be put to, as far as there is such memory: a disk that is read past the cache would be
/// asked twice if that was found missing afterwards.
pub(super) async fn make_present(space: &Arc<Space>, segments: &[Segment], done: usize, bytes: usize) {
    let mut before = 0;
    for segment in segments {
        let (start, end) = (done.max(before), (done + bytes).min(before + segment.len));
        if start < end {
            let first = segment.at.add(start - before);
            let range = PageRange::new(first.page(), first.add(end - start - 1).page().add(1));
            space.populate(range, machine::Access::WRITE).await;
        }
        before += segment.len;
    }
}

impl UserBuffer for ProgramBuffer<'_> {
    fn put(&mut self, from: &[u8]) -> usize {
        self.advance(from.len(), |space, at, part| space.put_bytes(at, &from[part]))
    }
    fn put_frame(&mut self, from: Frame, offset: usize, bytes: usize) -> usize {
        self.advance(bytes, |space, at, part| space.put_frame(at, from, offset + part.start, part.len()))
    }
    fn put_zeros(&mut self, bytes: usize) -> usize {
        self.advance(bytes, |space, at, part| space.put_zeros(at, part.len()))
    }
    fn take(&mut self, to: &mut [u8]) -> usize {
        self.advance(to.len(), |space, at, part| space.take_bytes(at, &mut to[part]))
    }
    fn take_frame(&mut self, to: Frame, offset: usize, bytes: usize) -> usize {
        self.advance(bytes, |space, at, part| space.take_frame(at, to, offset + part.start, part.len()))
    }
    fn is_aligned(&self, bytes: usize, at: usize, length: usize) -> bool {
        let mut left = bytes;
        let mut next = |start: UserAddr, len: usize| {
            let part = len.min(left);
            left -= part;
            part == 0 || (start.0 as usize).is_multiple_of(at) && part.is_multiple_of(length)
        };
        next(self.at, self.left) && self.rest.iter().all(|segment| next(segment.at, segment.len))
    }
}

/// The caller of a system call, made when a file asks for it first: it takes two locks and a copy, and few files ask.
pub(super) struct LazyCaller<'a> {
    call: &'a Call<'a>,
    caller: spin::Once<Caller>,
}

impl<'a> LazyCaller<'a> {
    pub fn new(call: &'a Call<'a>) -> Self {
        LazyCaller { call, caller: spin::Once::new() }
    }
}

impl Requester for LazyCaller<'_> {
    fn caller(&self) -> &Caller {
        self.caller.call_once(|| self.call.caller())
    }
}

/// How many of the next `left` bytes are moved in one piece between a file and a program's memory: regular files give others a chance now and
/// then; what a stream has is not much, and comes in one piece.
pub(super) fn step_of(file: &dyn File, left: usize) -> usize {
    match left > STEP && file.changes().is_none() {
        true => STEP,
        false => left,
    }
}

/// The same for a write. What is written to a stream of another kernel lies in frames while it waits for room there, and what is written to a socket in a
/// message. So it is charged: as much as one message between kernels brings, or a page.
pub(super) fn step_of_write(call: &Call<'_>, file: &dyn File, left: usize) -> (usize, Charge) {
    let is_kept = || file.is_elsewhere() || file.socket().is_some_and(|socket| socket.is_stream());
    if left > PAGE_SIZE && file.changes().is_some() && is_kept() {
        let wanted = left.min(Loan::LARGEST);
        return match charge(call, wanted, None) {
            Ok(charge) => (wanted, charge),
            Err(_) => (PAGE_SIZE, Charge::FREE),
        };
    }
    (step_of(file, left), Charge::FREE)
}

impl Call<'_> {
    /// The same for what a socket's timeouts are for.
    pub(crate) async fn end_within(&self, file: &Arc<dyn File>, sends: bool, transfer: Transfer<'_>) -> Result<usize> {
        let direction = if sends { Direction::Send } else { Direction::Receive };
        match transfer {
            Transfer::Done(result) => result,
            Transfer::Later(moving) => timeout::wait(self, file, direction, moving).await,
        }
    }

    /// The end of a read or write of `file`; waits as [`Call::wait_for`] does.
    pub(crate) async fn end_of(&self, file: &Arc<dyn File>, transfer: Transfer<'_>) -> Result<usize> {
        match transfer {
            Transfer::Done(result) => result,
            Transfer::Later(moving) => self.wait_for(file, moving).await,
        }
    }
}
