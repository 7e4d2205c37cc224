//! How bytes move between a file and whoever reads or writes it: one way in, one way out, wherever the bytes lie.
//!
//! A read goes to a [`Destination`] and a write takes from a [`Source`]: memory of the kernel, frames that another kernel has lent, or the
//! memory of a program. A file moves bytes straight there while it holds its own lock, so it never waits for them: the memory of a program
//! may not be there just now (not mapped yet, or on another kernel). Then the file answers [`NEEDS_BUFFER`], as if nothing had been
//! read or written; so does a file that can use memory of the kernel only. Its caller comes again with a buffer of the kernel's, and moves the
//! bytes between that and the program by itself.
//!
//! The answer is a [`Transfer`]: most often the file has done it already, and no future is made.

use super::{waiting::Patience, APPEND_AT};
use abi::Caller;
use core::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};
use machine::{errno::Result, BoxFuture, Errno, Frame, Memory, Shield, PAGE_SIZE};

/// The file can't move these bytes from or to where they lie; it can if they lie in a buffer of the kernel ([`Source::Kernel`],
/// [`Destination::Kernel`]). The position has not moved and a stream has lost nothing, but some of the bytes may be where they belong already: what
/// is done again with a buffer puts the same bytes in the same places. No program sees this number.
pub const NEEDS_BUFFER: Errno = Errno(541);

/// Bytes moved at a time from frame to frame.
const PIECE: usize = 256;

/// A read or write: done, or a future that does it. Dropping it abandons what has not been done, and no byte is lost.
pub enum Transfer<'a, T = usize> {
    /// It is done, or refused.
    Done(Result<T>),
    /// It waits for something.
    Later(BoxFuture<'a, Result<T>>),
}

impl<'a, T> Transfer<'a, T> {
    /// By a future.
    pub fn later(future: impl Future<Output = Result<T>> + Send + 'a) -> Self {
        Transfer::Later(alloc::boxed::Box::pin(future))
    }

    /// What came of it, if it is done.
    pub fn done(self) -> Option<Result<T>> {
        match self {
            Transfer::Done(result) => Some(result),
            Transfer::Later(_) => None,
        }
    }

    /// Pinned, to be polled by hand. (It may be moved afterwards all the same: the future in it is in a box.)
    pub fn as_mut(&mut self) -> Pin<&mut Self>
    where
        T: Unpin,
    {
        Pin::new(self)
    }

    /// Lets `see` look at the result.
    pub fn inspect(self, see: impl FnOnce(&T) + Send + 'a) -> Self
    where
        T: Send + 'a,
    {
        match self {
            Transfer::Done(result) => Transfer::Done(result.inspect(see)),
            Transfer::Later(moving) => Transfer::later(async move { moving.await.inspect(see) }),
        }
    }
}

impl<T: Unpin> Future for Transfer<'_, T> {
    type Output = Result<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        match self.get_mut() {
            Transfer::Done(result) => Poll::Ready(core::mem::replace(result, Err(Errno::EIO))),
            Transfer::Later(future) => future.as_mut().poll(context),
        }
    }
}

/// For whom something is read or written.
pub trait Requester: Sync {
    /// The thread's process, and what it may. It may be made only when it is asked for, for few files ask.
    fn caller(&self) -> &Caller;
}

impl Requester for Caller {
    fn caller(&self) -> &Caller {
        self
    }
}

/// Where in the file, for whom, and what happens if it has to wait.
#[derive(Clone, Copy)]
pub struct Access<'a> {
    /// At this offset, and the position stays ([`APPEND_AT`]: a write at the end). None: at the position, which moves on.
    pub at: Option<u64>,
    /// For this thread: a terminal asks whether it is in its foreground, a socket sends its credentials along. None: the kernel itself.
    pub requester: Option<&'a dyn Requester>,
    /// What it does if it can't go on. O_NONBLOCK is obeyed beside it.
    pub patience: Patience,
}

impl<'a> Access<'a> {
    /// By the kernel, at the position.
    pub const KERNEL: Access<'static> = Access { at: None, requester: None, patience: Patience::Waits };

    /// By the kernel, at an offset.
    pub fn at(offset: u64) -> Self {
        Access { at: Some(offset), ..Access::KERNEL }
    }

    /// For a thread, at the position.
    pub fn by(requester: &'a dyn Requester) -> Self {
        Access { requester: Some(requester), ..Access::KERNEL }
    }

    /// The same with so much patience.
    pub fn with(self, patience: Patience) -> Self {
        Access { patience, ..self }
    }

    /// The same transfer, `done` bytes further on.
    pub fn after(self, done: usize) -> Self {
        let at = self.at.map(|at| if at == APPEND_AT { at } else { at + done as u64 });
        Access { at, ..self }
    }

    /// Who the thread is, if there is one.
    pub fn caller(&self) -> Option<&'a Caller> {
        self.requester.map(Requester::caller)
    }

    /// What interrupts the thread.
    pub fn shield(&self) -> &'a Shield {
        self.caller().map_or(&Shield::NONE, |caller| &caller.shield)
    }

    /// ESPIPE if it names an offset: for a file that has none.
    pub fn check_stream(&self) -> Result<()> {
        match self.at {
            Some(_) => Err(Errno::ESPIPE),
            None => Ok(()),
        }
    }
}

/// The memory of a program, from where a transfer has got to. Each operation moves on by as many bytes as can be moved without waiting, and
/// says how many that was; a frame (`bytes` bytes at `offset` of it) can't change its owner meanwhile.
pub trait UserBuffer: Send {
    /// Bytes for the program.
    fn put(&mut self, from: &[u8]) -> usize;
    /// The same, out of a frame.
    fn put_frame(&mut self, from: Frame, offset: usize, bytes: usize) -> usize;
    /// Zeros for the program.
    fn put_zeros(&mut self, bytes: usize) -> usize;
    /// Bytes from the program.
    fn take(&mut self, to: &mut [u8]) -> usize;
    /// The same, into a frame.
    fn take_frame(&mut self, to: Frame, offset: usize, bytes: usize) -> usize;
    /// Whether the next `bytes` bytes lie in buffers that begin at multiples of `at` and have multiples of `length` bytes: a disk reads and writes no others.
    fn is_aligned(&self, _bytes: usize, _at: usize, _length: usize) -> bool {
        true
    }
}

/// Bytes in frames, page behind page: frames that another kernel has lent until the transfer is over, or those of a page cache.
#[derive(Clone, Copy)]
pub struct Frames<'a> {
    memory: &'a dyn Memory,
    frames: &'a [Frame],
    start: usize,
    end: usize,
}

impl<'a> Frames<'a> {
    /// The first `bytes` bytes, at most what the frames hold.
    pub fn new(memory: &'a dyn Memory, frames: &'a [Frame], bytes: usize) -> Self {
        Frames { memory, frames, start: 0, end: bytes.min(frames.len() * PAGE_SIZE) }
    }

    /// How many bytes they are.
    pub fn len(&self) -> usize {
        self.end - self.start
    }

    /// Whether they are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// `bytes` of the bytes, or as many as there are, from byte `from` on.
    pub fn part(&self, from: usize, bytes: usize) -> Frames<'a> {
        let start = self.end.min(self.start + from);
        Frames { start, end: self.end.min(start + bytes), ..*self }
    }

    /// The same, and all that follows in the last of the pages.
    pub fn whole(&self) -> Frames<'a> {
        Frames { end: self.end.next_multiple_of(PAGE_SIZE), ..*self }
    }

    /// The pieces of pages that they are, in their order: frame, offset in it, and length.
    pub fn pieces(&self) -> impl Iterator<Item = (Frame, usize, usize)> + 'a {
        let Frames { frames, mut start, end, .. } = *self;
        core::iter::from_fn(move || {
            let within = start % PAGE_SIZE;
            let bytes = (end - start).min(PAGE_SIZE - within);
            let frame = (bytes > 0).then(|| frames[start / PAGE_SIZE])?;
            start += bytes;
            Some((frame, within, bytes))
        })
    }

    /// Puts bytes there, and moves on.
    pub fn put(&mut self, from: &[u8]) {
        self.advance(from.len(), |memory, frame, within, part| memory.write(frame, within, &from[part]))
    }

    /// Takes bytes from there, and moves on.
    pub fn take(&mut self, to: &mut [u8]) {
        self.advance(to.len(), |memory, frame, within, part| memory.read(frame, within, &mut to[part]))
    }

    /// Goes through the next `bytes` bytes: `each` gets a frame, an offset in it, and which of the bytes lie there.
    fn advance(&mut self, bytes: usize, mut each: impl FnMut(&dyn Memory, Frame, usize, core::ops::Range<usize>)) {
        let mut done = 0;
        while done < bytes {
            let within = self.start % PAGE_SIZE;
            let part = (bytes - done).min(PAGE_SIZE - within);
            each(self.memory, self.frames[self.start / PAGE_SIZE], within, done..done + part);
            done += part;
            self.start += part;
        }
    }
}

/// Moves `bytes` bytes from one frame to another, with offsets in both.
fn copy_part(memory: &dyn Memory, (from, source): (Frame, usize), (to, place): (Frame, usize), bytes: usize) {
    if bytes == PAGE_SIZE {
        return memory.copy(from, to);
    }
    let mut piece = [0; PIECE];
    for done in (0..bytes).step_by(PIECE) {
        let piece = &mut piece[..PIECE.min(bytes - done)];
        memory.read(from, source + done, piece);
        memory.write(to, place + done, piece);
    }
}

/// Where a read puts its bytes. It moves on by what was put.
pub enum Destination<'a> {
    /// A buffer of this kernel.
    Kernel(&'a mut [u8]),
    /// Frames that another kernel has lent.
    Frames(Frames<'a>),
    /// The memory of a program: at most so many bytes.
    User(&'a mut (dyn UserBuffer + 'a), usize),
}

impl<'a> Destination<'a> {
    /// Bytes that are still wanted.
    pub fn len(&self) -> usize {
        match self {
            Destination::Kernel(buf) => buf.len(),
            Destination::Frames(frames) => frames.len(),
            Destination::User(_, bytes) => *bytes,
        }
    }

    /// Whether nothing more is wanted.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// See [`UserBuffer::is_aligned`]; any memory but a program's is.
    pub fn is_aligned(&self, at: usize, length: usize) -> bool {
        match self {
            Destination::User(user, bytes) => user.is_aligned(*bytes, at, length),
            _ => true,
        }
    }

    /// The buffer, for a file that can use nothing else. Errors: [`NEEDS_BUFFER`].
    pub fn buffer(self) -> Result<&'a mut [u8]> {
        match self {
            Destination::Kernel(buf) => Ok(buf),
            _ => Err(NEEDS_BUFFER),
        }
    }

    /// The buffer of a transfer without an offset, for a file that has none. Errors: ESPIPE, [`NEEDS_BUFFER`].
    pub fn stream_buffer(self, access: &Access<'_>) -> Result<&'a mut [u8]> {
        access.check_stream()?;
        self.buffer()
    }

    /// The same destination, for a shorter time. What one try has put there the next overwrites, but the memory of a program has moved on.
    pub fn reborrow(&mut self) -> Destination<'_> {
        match self {
            Destination::Kernel(buf) => Destination::Kernel(buf),
            Destination::Frames(frames) => Destination::Frames(*frames),
            Destination::User(user, bytes) => Destination::User(&mut **user, *bytes),
        }
    }

    /// Puts bytes that are wanted. Errors: [`NEEDS_BUFFER`].
    pub fn put(&mut self, from: &[u8]) -> Result<()> {
        match self {
            Destination::Kernel(buf) => next_of(buf, from.len()).copy_from_slice(from),
            Destination::Frames(frames) => frames.put(from),
            Destination::User(user, left) => {
                *left -= from.len();
                return all_of(user.put(from), from.len());
            }
        }
        Ok(())
    }

    /// Puts `bytes` bytes at `offset` of a frame of `memory`. Errors: [`NEEDS_BUFFER`].
    pub fn put_frame(&mut self, memory: &dyn Memory, from: Frame, offset: usize, bytes: usize) -> Result<()> {
        match self {
            Destination::Kernel(buf) => memory.read(from, offset, next_of(buf, bytes)),
            Destination::Frames(frames) => frames.advance(bytes, |memory, frame, within, part| {
                copy_part(memory, (from, offset + part.start), (frame, within), part.len())
            }),
            Destination::User(user, left) => {
                *left -= bytes;
                return all_of(user.put_frame(from, offset, bytes), bytes);
            }
        }
        Ok(())
    }

    /// Puts zeros. Errors: [`NEEDS_BUFFER`].
    pub fn put_zeros(&mut self, bytes: usize) -> Result<()> {
        match self {
            Destination::Kernel(buf) => next_of(buf, bytes).fill(0),
            Destination::Frames(frames) => frames.advance(bytes, |memory, frame, within, part| {
                for done in part.clone().step_by(PIECE) {
                    memory.write(frame, within + done - part.start, &[0; PIECE][..PIECE.min(part.end - done)]);
                }
            }),
            Destination::User(user, left) => {
                *left -= bytes;
                return all_of(user.put_zeros(bytes), bytes);
            }
        }
        Ok(())
    }
}

/// Whence a write takes its bytes. It moves on by what was taken.
pub enum Source<'a> {
    /// A buffer of this kernel.
    Kernel(&'a [u8]),
    /// Frames that another kernel has lent.
    Frames(Frames<'a>),
    /// The memory of a program: so many bytes.
    User(&'a mut (dyn UserBuffer + 'a), usize),
}

impl<'a> Source<'a> {
    /// Bytes that are still to be written.
    pub fn len(&self) -> usize {
        match self {
            Source::Kernel(buf) => buf.len(),
            Source::Frames(frames) => frames.len(),
            Source::User(_, bytes) => *bytes,
        }
    }

    /// Whether nothing more is to be written.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// See [`UserBuffer::is_aligned`]; any memory but a program's is.
    pub fn is_aligned(&self, at: usize, length: usize) -> bool {
        match self {
            Source::User(user, bytes) => user.is_aligned(*bytes, at, length),
            _ => true,
        }
    }

    /// The buffer, for a file that can use nothing else. Errors: [`NEEDS_BUFFER`].
    pub fn buffer(self) -> Result<&'a [u8]> {
        match self {
            Source::Kernel(buf) => Ok(buf),
            _ => Err(NEEDS_BUFFER),
        }
    }

    /// The buffer of a transfer without an offset, for a file that has none. Errors: ESPIPE, [`NEEDS_BUFFER`].
    pub fn stream_buffer(self, access: &Access<'_>) -> Result<&'a [u8]> {
        access.check_stream()?;
        self.buffer()
    }

    /// The same source, for a shorter time. What one try has taken the next takes again, but the memory of a program has moved on.
    pub fn reborrow(&mut self) -> Source<'_> {
        match self {
            Source::Kernel(buf) => Source::Kernel(buf),
            Source::Frames(frames) => Source::Frames(*frames),
            Source::User(user, bytes) => Source::User(&mut **user, *bytes),
        }
    }

    /// Only the first `bytes` bytes of it.
    pub fn limit(&mut self, bytes: usize) {
        match self {
            Source::Kernel(buf) => *buf = &buf[..buf.len().min(bytes)],
            Source::Frames(frames) => frames.end = frames.end.min(frames.start + bytes),
            Source::User(_, left) => *left = bytes.min(*left),
        }
    }

    /// Takes the next bytes, as many as `to` has. Errors: [`NEEDS_BUFFER`].
    pub fn take(&mut self, to: &mut [u8]) -> Result<()> {
        match self {
            Source::Kernel(buf) => {
                let (taken, rest) = buf.split_at(to.len());
                to.copy_from_slice(taken);
                *buf = rest;
            }
            Source::Frames(frames) => frames.take(to),
            Source::User(user, left) => {
                *left -= to.len();
                return all_of(user.take(to), to.len());
            }
        }
        Ok(())
    }

    /// Takes the next `bytes` bytes to `offset` of a frame of `memory`. Errors: [`NEEDS_BUFFER`]; then some of them may be there.
    pub fn take_frame(&mut self, memory: &dyn Memory, to: Frame, offset: usize, bytes: usize) -> Result<()> {
        match self {
            Source::Kernel(buf) => {
                let (taken, rest) = buf.split_at(bytes);
                memory.write(to, offset, taken);
                *buf = rest;
            }
            Source::Frames(frames) => frames.advance(bytes, |memory, frame, within, part| {
                copy_part(memory, (frame, within), (to, offset + part.start), part.len())
            }),
            Source::User(user, left) => {
                *left -= bytes;
                return all_of(user.take_frame(to, offset, bytes), bytes);
            }
        }
        Ok(())
    }
}

/// Cuts the first `bytes` bytes off.
fn next_of<'b>(buf: &mut &'b mut [u8], bytes: usize) -> &'b mut [u8] {
    let (next, rest) = core::mem::take(buf).split_at_mut(bytes);
    *buf = rest;
    next
}

fn all_of(moved: usize, wanted: usize) -> Result<()> {
    if moved == wanted {
        Ok(())
    } else {
        Err(NEEDS_BUFFER)
    }
}
