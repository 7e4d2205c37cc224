//! write, pwrite64, writev, pwritev, pwritev2 (man 2 write, writev).

use super::{
    read::{position, ready_now, takes_nothing, RWF_NOWAIT},
    transfer::{self, AtOnce, Buffer, LazyCaller, ProgramBuffer},
    vector::{self, check_end, gather, single, total, Segment},
};
use crate::call::Call;
use abi::signal::Signal;
use alloc::sync::Arc;
use fs::{
    control::{Control, SocketControl},
    file::{Access, Source, APPEND_AT, NEEDS_BUFFER},
    Events, File, Kind, OpenFlags, Whence,
};
use machine::{errno::Result, Errno, PAGE_SIZE};

const RWF_HIPRI: u32 = 1;
const RWF_DSYNC: u32 = 2;
const RWF_SYNC: u32 = 4;
const RWF_APPEND: u32 = 0x10;
const RLIMIT_FSIZE: usize = 1;

/// The descriptor's file, opened for writing (see `read::readable`).
async fn writable(call: &Call<'_>, offset: Option<u64>) -> Result<Arc<dyn File>> {
    let (file, flags) = call.opened(call.int(0)).await?;
    if offset.is_some() && file.changes().is_some() {
        return Err(Errno::ESPIPE);
    }
    match flags.writable() {
        true => Ok(file),
        false => Err(Errno::EBADF),
    }
}

pub(crate) fn write(call: &mut Call<'_>) -> impl Future<Output = Result<u64>> {
    write_one(call, None)
}

pub(crate) fn pwrite64(call: &mut Call<'_>) -> impl Future<Output = Result<u64>> {
    let offset = call.arg(3);
    write_one(call, Some(offset))
}

/// From one buffer; at the file's position if there is no offset.
async fn write_one(call: &mut Call<'_>, offset: Option<u64>) -> Result<u64> {
    let offset = offset.map(position).transpose()?;
    let (at, bytes) = (call.pointer(1), call.arg(2));
    // One that is synchronous puts its bytes into the cache before it waits: it is begun once. RLIMIT_FSIZE needs a look at the file.
    let is_tried = |flags: OpenFlags| flags.writable() && !flags.intersects(OpenFlags::DSYNC);
    let tried = match call.process().limit(RLIMIT_FSIZE) {
        u64::MAX => transfer::at_once(call, (at, bytes), offset, is_tried, |file, program, access| {
            file.write_from(Source::User(program, bytes as usize), access).done()
        }),
        _ => AtOnce::NotTried,
    };
    let (file, done) = match tried {
        AtOnce::Done(_, written) if written == 0 || written as u64 == bytes => return Ok(written as u64),
        AtOnce::Done(file, written) => (file, written),
        AtOnce::MustWait(file) => (file, 0),
        AtOnce::Failed(error) => return Err(broken(call, error).await),
        AtOnce::NotTried => (writable(call, offset).await?, 0),
    };
    let segments = single(at, bytes)?;
    if bytes == 0 && offset.is_none() && !takes_nothing(&file).await? {
        let caller = call.caller();
        return Ok(call.end_of(&file, file.write_from(Source::Kernel(&[]), Access::by(&caller))).await? as u64);
    }
    rest_from(call, &file, &segments, offset, done).await
}

pub(crate) async fn writev(call: &mut Call<'_>) -> Result<u64> {
    let file = writable(call, None).await?;
    let segments = vector::vector(call, call.pointer(1), call.arg(2)).await?;
    from(call, &file, &segments, None).await
}

pub(crate) async fn pwritev(call: &mut Call<'_>) -> Result<u64> {
    let offset = position(call.arg(3))?;
    let file = writable(call, Some(offset)).await?;
    let segments = vector::vector(call, call.pointer(1), call.arg(2)).await?;
    from(call, &file, &segments, Some(offset)).await
}

pub(crate) async fn pwritev2(call: &mut Call<'_>) -> Result<u64> {
    let offset = match call.arg(3) as i64 {
        -1 => None,
        offset => Some(position(offset as u64)?),
    };
    let file = writable(call, offset).await?;
    let segments = vector::vector(call, call.pointer(1), call.arg(2)).await?;
    if total(&segments) == 0 {
        return Ok(0);
    }
    let flags = call.arg(5) as u32;
    if flags & !(RWF_HIPRI | RWF_DSYNC | RWF_SYNC | RWF_NOWAIT | RWF_APPEND) != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    if flags & RWF_NOWAIT != 0 {
        ready_now(call, &file, Events::OUT).await?;
    }
    let appends = flags & RWF_APPEND != 0 && file.changes().is_none();
    let written = match appends {
        true => from(call, &file, &segments, Some(APPEND_AT)).await?,
        false => from(call, &file, &segments, offset).await?,
    };
    if appends && offset.is_none() && written > 0 {
        // The file's own position follows what was written.
        file.seek(0, Whence::End).await?;
    }
    if flags & (RWF_DSYNC | RWF_SYNC) != 0 {
        match file.sync(flags & RWF_SYNC == 0).await {
            // What can't be synchronized (a device, a pipe) has nothing to synchronize here.
            Err(Errno::EINVAL) => {}
            synchronized => synchronized?,
        }
    }
    Ok(written)
}

/// Writes user memory to a file that is open for it. A stream may take less at a time than it will take in all (see [`File::write_from`]),
/// so this goes on until everything is written or an error comes; the error counts only if nothing was.
pub(crate) async fn from(
    call: &Call<'_>,
    file: &Arc<dyn File>,
    segments: &[Segment],
    offset: Option<u64>,
) -> Result<u64> {
    rest_from(call, file, segments, offset, 0).await
}

/// Goes on with a write of which the first `done` bytes are written.
async fn rest_from(
    call: &Call<'_>,
    file: &Arc<dyn File>,
    segments: &[Segment],
    offset: Option<u64>,
    mut done: usize,
) -> Result<u64> {
    let mut wanted = total(segments);
    if wanted == 0 && file.changes().is_some() {
        return Ok(0);
    }
    check_end(offset.filter(|offset| *offset != APPEND_AT), wanted)?;
    if done > 0 && takes_once(file).await? {
        return Ok(done as u64);
    }
    if done == 0 && call.process().limit(RLIMIT_FSIZE) != u64::MAX {
        wanted = within_limit(call, file, offset, wanted).await?;
    }
    let (space, asking) = (call.space(), LazyCaller::new(call));
    let access = Access { at: offset, ..Access::by(&asking) };
    while done < wanted {
        let (step, _charge) = transfer::step_of_write(call, &**file, wanted - done);
        let mut program = ProgramBuffer::new(&space, segments, done);
        let writing = file.write_from(Source::User(&mut program, step), access.after(done));
        let written = call.end_within(file, true, writing).await;
        match written {
            Err(NEEDS_BUFFER) => break,
            Ok(written) => {
                done += written;
                if done == wanted || written == 0 || written < step && takes_once(file).await? {
                    return Ok(done as u64);
                }
            }
            Err(_) if done > 0 => return Ok(done as u64),
            Err(error) => return Err(broken(call, error).await),
        }
        call.pause().await?;
    }
    let mut buffer = Buffer::for_bytes(call, wanted - done);
    if buffer.is_cut(wanted - done) {
        transfer::check_parts(&**file)?;
    }
    loop {
        let step = buffer.step(wanted - done);
        let asked = step.len();
        let (mut copied, error) = gather(&space, segments, done, step).await;
        if copied < asked && file.changes().is_some() {
            // A stream takes whole pages or nothing: who writes less than one learns that not all of it could be read.
            copied -= copied % PAGE_SIZE;
        }
        if copied < asked && ignores(file).await? {
            copied = asked;
        }
        if copied == 0 && asked > 0 {
            return if done > 0 { Ok(done as u64) } else { Err(first_error(call, file, offset, asked, error).await?) };
        }
        let writing = file.write_from(Source::Kernel(&step[..copied]), access.after(done));
        let written = call.end_within(file, true, writing).await;
        match written {
            Ok(written) => done += written,
            Err(_) if done > 0 => return Ok(done as u64),
            Err(error) => return Err(broken(call, error).await),
        }
        if done == wanted || copied < asked || written == Ok(0) {
            return Ok(done as u64);
        }
        if written.is_ok_and(|written| written < copied) && takes_once(file).await? {
            return Ok(done as u64);
        }
        call.pause().await?;
    }
}

/// An eventfd takes eight bytes of any number, a setting in /proc a line: what they leave they were not given.
async fn takes_once(file: &Arc<dyn File>) -> Result<bool> {
    Ok(match Kind::of_mode(file.attributes().await?.mode) {
        None => true,
        Some(Kind::Regular) => file.object().await.is_err(),
        Some(_) => false,
    })
}

/// Nothing of `asked` bytes could be read from the program. What would have been wrong anyway is told first.
async fn first_error(
    call: &Call<'_>,
    file: &Arc<dyn File>,
    offset: Option<u64>,
    asked: usize,
    error: Errno,
) -> Result<Errno> {
    match Kind::of_mode(file.attributes().await?.mode) {
        // An eventfd, to which zero adds nothing, or one of those that take no bytes at all.
        None => {
            let caller = call.caller();
            let zeros = Source::Kernel(&[0; 16][..asked.min(16)]);
            Ok(file.write_from(zeros, Access::by(&caller)).await.err().unwrap_or(error))
        }
        Some(Kind::Socket) => {
            let peer = file.control(&call.caller(), Control::Socket(SocketControl::PeerName)).await;
            Ok(peer.err().filter(|error| *error == Errno::ENOTCONN).unwrap_or(error))
        }
        // Most texts of /proc take no data at all.
        Some(Kind::Regular) => Ok(file.write_at(&[], offset.unwrap_or(APPEND_AT)).await.err().unwrap_or(error)),
        Some(_) => Ok(error),
    }
}

/// /dev/null, zero and full do not look at what is written to them.
async fn ignores(file: &Arc<dyn File>) -> Result<bool> {
    let attributes = file.attributes().await?;
    Ok(attributes.kind() == Kind::CharDevice && matches!(attributes.rdev, (1, 3 | 5 | 7)))
}

/// SIGPIPE goes with EPIPE.
pub(crate) async fn broken(call: &Call<'_>, error: Errno) -> Errno {
    if error == Errno::EPIPE {
        call.signal_self(Signal::PIPE).await;
    }
    error
}

/// How many of `wanted` bytes RLIMIT_FSIZE lets through; none: SIGXFSZ and EFBIG.
pub(crate) async fn within_limit(
    call: &Call<'_>,
    file: &Arc<dyn File>,
    offset: Option<u64>,
    wanted: usize,
) -> Result<usize> {
    let limit = call.process().limit(RLIMIT_FSIZE);
    if limit == u64::MAX || file.changes().is_some() || wanted == 0 {
        return Ok(wanted);
    }
    let attributes = file.attributes().await?;
    if attributes.kind() != Kind::Regular {
        return Ok(wanted);
    }
    let start = match offset {
        _ if file.flags().contains(OpenFlags::APPEND) => attributes.size,
        Some(APPEND_AT) => attributes.size,
        Some(offset) => offset,
        None => file.seek(0, Whence::Current).await?,
    };
    match limit.saturating_sub(start) {
        0 => {
            call.signal_self(Signal::XFSZ).await;
            Err(Errno::EFBIG)
        }
        room => Ok(wanted.min(usize::try_from(room).unwrap_or(usize::MAX))),
    }
}

/// A file is to be as long as `size`: the same limit.
pub(crate) async fn check_size(call: &Call<'_>, size: u64) -> Result<()> {
    if size > call.process().limit(RLIMIT_FSIZE) {
        call.signal_self(Signal::XFSZ).await;
        return Err(Errno::EFBIG);
    }
    Ok(())
}
