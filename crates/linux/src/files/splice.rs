//! sendfile, copy_file_range, splice, tee: from file to file without user memory in between.
//!
//! Nothing that was taken may be lost when the other side takes less, or a signal comes. So a regular file
//! is read at an offset and its position moved afterwards, by what was written; a pipe is held against other readers
//! until what was written has been taken out (fs/src/pipe/hold.rs).

use super::{
    read,
    transfer::{self, Buffer},
    vector,
    write::{broken, within_limit},
};
use crate::call::Call;
use alloc::sync::Arc;
use fs::{
    control::Control,
    file::{Access, Destination, Source},
    pipe::{self, HeldPipe},
    Events, File, Kind, OpenFlags, Whence,
};
use machine::{errno::Result, Errno, UserAddr};

pub(super) const SPLICE_KNOWN: u64 = 0xf;
pub(super) const SPLICE_NONBLOCK: u64 = 2;
/// Bytes a pipe takes or gives at a time here.
const PIPE_STEP: usize = 64 * 1024;

/// A place in a file: its own position, or one in user memory that the call moves.
struct Cursor {
    file: Arc<dyn File>,
    pointer: UserAddr,
    at: u64,
}

impl Cursor {
    async fn new(call: &Call<'_>, file: Arc<dyn File>, pointer: UserAddr) -> Result<Self> {
        let at = match pointer.is_null() {
            true => file.seek(0, Whence::Current).await?,
            false => read::position(call.get(pointer).await?)?,
        };
        Ok(Cursor { file, pointer, at })
    }

    /// Tells the new position.
    async fn finish(&self, call: &Call<'_>) -> Result<()> {
        match self.pointer.is_null() {
            true => self.file.seek(self.at as i64, Whence::Set).await.map(drop),
            false => call.put(self.pointer, &self.at).await,
        }
    }
}

/// Copies from a place to `out` (at a place, or where `out` itself says) until the source ends.
async fn copy(
    call: &Call<'_>,
    from: &mut Cursor,
    out: &Arc<dyn File>,
    mut to: Option<&mut Cursor>,
    len: usize,
) -> Result<usize> {
    let caller = call.caller();
    let mut buffer = Buffer::for_bytes(call, len);
    let mut done = 0;
    while done < len {
        let step = buffer.step(len - done);
        let result = async {
            let read = call.end_of(&from.file, from.file.read_at(step, from.at)).await?;
            if read == 0 {
                return Ok(0);
            }
            let written = match &to {
                Some(to) => call.end_of(out, out.write_at(&step[..read], to.at)).await?,
                None => {
                    let writing = out.write_from(Source::Kernel(&step[..read]), Access::by(&caller));
                    call.end_of(out, writing).await?
                }
            };
            Ok(written)
        };
        match result.await {
            Ok(0) => break,
            Ok(written) => {
                done += written;
                from.at += written as u64;
                if let Some(to) = &mut to {
                    to.at += written as u64;
                }
                call.pause().await?;
            }
            Err(_) if done > 0 => break,
            Err(error) => return Err(broken(call, error).await),
        }
    }
    Ok(done)
}

/// An offset in user memory, if there is one.
async fn place(call: &Call<'_>, pointer: UserAddr) -> Result<Option<u64>> {
    Ok(match pointer.is_null() {
        true => None,
        false => Some(call.get(pointer).await?),
    })
}

/// EINVAL for bytes that have no places in a file. (Linux: rw_verify_area.)
fn check_area(at: u64, len: u64) -> Result<()> {
    match (i64::try_from(at), i64::try_from(len)) {
        (Ok(at), Ok(len)) if at.checked_add(len).is_some() => Ok(()),
        _ => Err(Errno::EINVAL),
    }
}

/// Files whose bytes can be moved without a program: not directories, not eventfd and its kin, not /dev/null.
async fn gives_bytes(file: &Arc<dyn File>) -> Result<bool> {
    let attributes = file.attributes().await?;
    Ok(match Kind::of_mode(attributes.mode) {
        None | Some(Kind::Directory) => false,
        Some(Kind::CharDevice) => attributes.rdev != (1, 3),
        _ => true,
    })
}

/// The same for files that bytes go to.
async fn takes_bytes(file: &Arc<dyn File>) -> Result<bool> {
    Ok(Kind::of_mode(file.attributes().await?.mode).is_some())
}

pub(crate) async fn sendfile(call: &mut Call<'_>) -> Result<u64> {
    let pointer = call.pointer(2);
    let asked = place(call, pointer).await?;
    let source = call.file(1).await?;
    if !source.flags().readable() {
        return Err(Errno::EBADF);
    }
    if asked.is_some() && source.changes().is_some() {
        return Err(Errno::ESPIPE);
    }
    check_area(asked.unwrap_or(0), call.arg(3))?;
    let out = call.file(0).await?;
    if !out.flags().writable() {
        return Err(Errno::EBADF);
    }
    if asked == Some(i64::MAX as u64) {
        return Err(Errno::EOVERFLOW);
    }
    if out.current_flags().await?.contains(OpenFlags::APPEND) {
        return Err(Errno::EINVAL);
    }
    if call.arg(3) == 0 {
        return Ok(0);
    }
    if !gives_bytes(&source).await? || !takes_bytes(&out).await? {
        return Err(Errno::EINVAL);
    }
    // What can't be read at an offset (pipes, sockets) can't be sent from.
    let mut from = Cursor::new(call, source, pointer).await.map_err(|error| match error {
        Errno::ESPIPE => Errno::EINVAL,
        error => error,
    })?;
    let len = within_limit(call, &out, None, call.arg(3).min(vector::MAX_RW_COUNT as u64) as usize).await?;
    let done = copy(call, &mut from, &out, None, len).await?;
    from.finish(call).await?;
    Ok(done as u64)
}

pub(crate) async fn copy_file_range(call: &mut Call<'_>) -> Result<u64> {
    let (source, out) = (call.file(0).await?, call.file(2).await?);
    let places = [place(call, call.pointer(1)).await?, place(call, call.pointer(3)).await?];
    super::check_flags(call.arg(5), 0)?;
    let (one, other) = (source.attributes().await?, out.attributes().await?);
    match [one.mode, other.mode].map(Kind::of_mode) {
        [Some(Kind::Regular), Some(Kind::Regular)] => {}
        kinds if kinds.contains(&Some(Kind::Directory)) => return Err(Errno::EISDIR),
        _ => return Err(Errno::EINVAL),
    }
    if !source.flags().readable() || !out.flags().writable() || out.current_flags().await?.contains(OpenFlags::APPEND) {
        return Err(Errno::EBADF);
    }
    if one.dev != other.dev {
        return Err(Errno::EXDEV);
    }
    let len = call.arg(4).min(vector::MAX_RW_COUNT as u64);
    if places.into_iter().flatten().any(|at| at.checked_add(call.arg(4)).is_none()) {
        return Err(Errno::EOVERFLOW);
    }
    let mut from = Cursor::new(call, source, call.pointer(1)).await?;
    let mut to = Cursor::new(call, out.clone(), call.pointer(3)).await?;
    if [from.at, to.at].iter().any(|at| at.checked_add(call.arg(4)).is_none()) {
        return Err(Errno::EOVERFLOW);
    }
    if to.at >= i64::MAX as u64 {
        // No file is as long, even if there is nothing to copy.
        return Err(Errno::EFBIG);
    }
    // Beyond the end there is nothing to copy.
    let len = len.min(one.size.saturating_sub(from.at));
    let same = (one.dev, one.ino) == (other.dev, other.ino);
    if same && from.at < to.at.saturating_add(len) && to.at < from.at.saturating_add(len) {
        return Err(Errno::EINVAL);
    }
    let len = within_limit(call, &out, Some(to.at), len as usize).await?;
    let done = copy(call, &mut from, &out, Some(&mut to), len).await?;
    if done == 0 {
        return Ok(0);
    }
    from.finish(call).await?;
    to.finish(call).await?;
    Ok(done as u64)
}

/// The two ends of one pipe, for example.
async fn same_file(one: &Arc<dyn File>, other: &Arc<dyn File>) -> Result<bool> {
    let (one, other) = (one.attributes().await?, other.attributes().await?);
    Ok((one.dev, one.ino) == (other.dev, other.ino))
}

pub(super) async fn is_pipe(call: &Call<'_>, file: &Arc<dyn File>) -> bool {
    file.control(&call.caller(), Control::PipeSize).await.is_ok()
}

/// Would a call that may not wait have to say so of this end?
async fn refuses(file: &Arc<dyn File>) -> Result<bool> {
    Ok(file.current_flags().await?.contains(OpenFlags::NONBLOCK))
}

/// Waits until a pipe takes PIPE_BUF bytes, or breaks.
pub(super) async fn wait_for_room(call: &Call<'_>, pipe: &Arc<dyn File>, nonblocking: bool) -> Result<()> {
    wait_until(call, pipe, Events::OUT, nonblocking).await
}

/// Waits until a pipe has or takes bytes, or breaks. EAGAIN instead if the caller may not wait.
pub(super) async fn wait_until(call: &Call<'_>, pipe: &Arc<dyn File>, wanted: Events, nonblocking: bool) -> Result<()> {
    let (caller, files) = (call.caller(), [(pipe.clone(), wanted)]);
    let found = match nonblocking {
        true => fs::poll::now(&caller, &files).await?,
        false => call.interruptible(fs::poll::wait(&caller, &files, None)).await?,
    };
    if found[0].is_empty() {
        Err(Errno::EAGAIN)
    } else {
        Ok(())
    }
}

/// Holds the first bytes of a pipe; waits for some. None: there never will be any.
pub(super) async fn hold(
    call: &Call<'_>,
    pipe: &Arc<dyn File>,
    len: usize,
    nonblocking: bool,
) -> Result<Option<HeldPipe>> {
    let (len, charge) = transfer::afford(call, &**pipe, len.min(PIPE_STEP));
    call.interruptible(pipe::hold(pipe, &call.caller(), len, charge, !nonblocking)).await
}

pub(crate) async fn splice(call: &mut Call<'_>) -> Result<u64> {
    let (len, flags) = (call.arg(4).min(vector::MAX_RW_COUNT as u64) as usize, call.arg(5));
    if len == 0 {
        return Ok(0);
    }
    super::check_flags(flags, SPLICE_KNOWN)?;
    let (source, out) = (call.file(0).await?, call.file(2).await?);
    let (from_pipe, to_pipe) = (is_pipe(call, &source).await, is_pipe(call, &out).await);
    let (from_at, to_at) = (call.pointer(1), call.pointer(3));
    if from_pipe && !from_at.is_null() || to_pipe && !to_at.is_null() {
        return Err(Errno::ESPIPE);
    }
    let (to_place, from_place) = (place(call, to_at).await?, place(call, from_at).await?);
    if !source.flags().readable() || !out.flags().writable() {
        return Err(Errno::EBADF);
    }
    // A file other than a pipe has places, if they are named, and looks at the length.
    for (file, place, other_is_pipe) in [(&out, to_place, from_pipe), (&source, from_place, to_pipe)] {
        if other_is_pipe && place.is_some() && file.changes().is_some() {
            return Err(Errno::EINVAL);
        }
        if from_pipe != to_pipe && other_is_pipe {
            check_area(place.unwrap_or(0), call.arg(4))?;
        }
    }
    let nonblocking = flags & SPLICE_NONBLOCK != 0;
    let done = match (from_pipe, to_pipe) {
        (true, true) if same_file(&source, &out).await? => return Err(Errno::EINVAL),
        (true, false) if !takes_bytes(&out).await? => return Err(Errno::EINVAL),
        (false, true) if !gives_bytes(&source).await? => return Err(Errno::EINVAL),
        (true, true) => pipe_to_pipe(call, &source, &out, len, nonblocking, true).await?,
        (true, false) => from_a_pipe(call, &source, &out, to_at, len, nonblocking).await?,
        (false, true) => to_a_pipe(call, source, &out, from_at, len, nonblocking).await?,
        (false, false) => return Err(Errno::EINVAL),
    };
    Ok(done as u64)
}

/// What goes into one pipe at once leaves the other, or (tee) stays there.
async fn pipe_to_pipe(
    call: &Call<'_>,
    source: &Arc<dyn File>,
    out: &Arc<dyn File>,
    len: usize,
    nonblocking: bool,
    moves: bool,
) -> Result<usize> {
    let caller = call.caller();
    let nonblocking = nonblocking || refuses(source).await? || refuses(out).await?;
    loop {
        wait_for_room(call, out, nonblocking).await?;
        let held = hold(call, source, len, nonblocking).await?;
        let bytes = held.as_ref().map_or(&[][..], |held| &held.bytes);
        // Nobody waits for room in a pipe while he holds another: whoever makes room may be waiting for this one.
        match call.wait_for(out, pipe::offer(out, &caller, bytes)).await {
            Ok(written) => {
                if let (true, Some(held)) = (moves, held) {
                    held.take(written).await;
                }
                return Ok(written);
            }
            // Another writer was faster.
            Err(Errno::EAGAIN) if !nonblocking => {}
            Err(error) => return Err(broken(call, error).await),
        }
    }
}

async fn from_a_pipe(
    call: &Call<'_>,
    pipe: &Arc<dyn File>,
    out: &Arc<dyn File>,
    to: UserAddr,
    len: usize,
    nonblocking: bool,
) -> Result<usize> {
    if out.current_flags().await?.contains(OpenFlags::APPEND) {
        return Err(Errno::EINVAL);
    }
    let mut cursor = match to.is_null() {
        true => None,
        false => Some(Cursor::new(call, out.clone(), to).await?),
    };
    let Some(held) = hold(call, pipe, len, nonblocking).await? else { return Ok(0) };
    let caller = call.caller();
    let writing = match &cursor {
        None => out.write_from(Source::Kernel(&held.bytes), Access::by(&caller)),
        Some(cursor) => out.write_at(&held.bytes, cursor.at),
    };
    let written = match out.changes() {
        Some(_) => call.interruptible(writing).await,
        // It does not take long, and nobody would know what had been written: not even who is killed leaves before.
        None => writing.await,
    };
    let written = match written {
        Ok(written) => written,
        Err(error) => return Err(broken(call, error).await),
    };
    held.take(written).await;
    if let Some(cursor) = &mut cursor {
        cursor.at += written as u64;
        cursor.finish(call).await?;
    }
    Ok(written)
}

async fn to_a_pipe(
    call: &Call<'_>,
    source: Arc<dyn File>,
    pipe: &Arc<dyn File>,
    from: UserAddr,
    len: usize,
    nonblocking: bool,
) -> Result<usize> {
    let caller = call.caller();
    let nonblocking = nonblocking || refuses(pipe).await?;
    loop {
        wait_for_room(call, pipe, nonblocking).await?;
        let mut cursor = match Cursor::new(call, source.clone(), from).await {
            Err(Errno::ESPIPE) if from.is_null() => return stream_to_a_pipe(call, &source, pipe, len).await,
            cursor => cursor?,
        };
        let mut buffer = Buffer::for_bytes(call, len.min(PIPE_STEP));
        let bytes = buffer.step(len);
        let read = call.end_of(&source, source.read_at(bytes, cursor.at)).await?;
        match call.wait_for(pipe, pipe::offer(pipe, &caller, &bytes[..read])).await {
            Ok(written) => {
                cursor.at += written as u64;
                cursor.finish(call).await?;
                return Ok(written);
            }
            Err(Errno::EAGAIN) if !nonblocking => {}
            Err(error) => return Err(broken(call, error).await),
        }
    }
}

/// From a socket or terminal, into which there is no way back: only what the pipe had room for, and that goes in even if another
/// writer has been faster. Only who is killed does not wait for it.
async fn stream_to_a_pipe(call: &Call<'_>, source: &Arc<dyn File>, pipe: &Arc<dyn File>, len: usize) -> Result<usize> {
    let caller = call.caller();
    let mut buffer = Buffer::for_bytes(call, len.min(pipe::PIPE_BUF));
    let bytes = buffer.step(len);
    let reading = source.read_into(Destination::Kernel(bytes), Access::by(&caller));
    let read = call.end_of(source, reading).await?;
    let room = [(pipe.clone(), Events::OUT)];
    loop {
        match pipe::offer(pipe, &caller, &bytes[..read]).await {
            Ok(written) => return Ok(written),
            Err(Errno::EAGAIN) => {}
            Err(error) => return Err(broken(call, error).await),
        }
        call.thread.unless_killed(fs::poll::wait(&caller, &room, None)).await.unwrap_or(Err(Errno::EINTR))?;
    }
}

pub(crate) async fn tee(call: &mut Call<'_>) -> Result<u64> {
    let (len, flags) = (call.arg(2).min(vector::MAX_RW_COUNT as u64) as usize, call.arg(3));
    super::check_flags(flags, SPLICE_KNOWN)?;
    if len == 0 {
        return Ok(0);
    }
    let (source, out) = (call.file(0).await?, call.file(1).await?);
    if !source.flags().readable() || !out.flags().writable() {
        return Err(Errno::EBADF);
    }
    if !is_pipe(call, &source).await || !is_pipe(call, &out).await || same_file(&source, &out).await? {
        return Err(Errno::EINVAL);
    }
    let nonblocking = flags & SPLICE_NONBLOCK != 0;
    Ok(pipe_to_pipe(call, &source, &out, len, nonblocking, false).await? as u64)
}
