//! read, pread64, readv, preadv, preadv2, lseek (man 2 read, readv, lseek).

use super::{
    room,
    transfer::{self, AtOnce, Buffer, LazyCaller, ProgramBuffer},
    vector::{self, check_end, scatter, single, total, Segment},
};
use crate::{call::Call, process::pidfd};
use alloc::sync::Arc;
use fs::{
    file::{Access, Destination, NEEDS_BUFFER},
    Events, File, Kind, OpenFlags, Whence,
};
use machine::{block::SECTOR, errno::Result, Errno};

/// A hint that changes nothing here.
const RWF_HIPRI: u32 = 1;
pub(super) const RWF_NOWAIT: u32 = 8;
/// DSYNC, SYNC, APPEND, NOAPPEND, DONTCACHE, NOSIGNAL: nothing to a read.
const RWF_OF_WRITES: u32 = 0x1b6;

/// The descriptor's file, opened for reading. With an offset: one that has places (ESPIPE), which is looked at first.
async fn readable(call: &Call<'_>, offset: Option<u64>) -> Result<Arc<dyn File>> {
    let (file, flags) = call.opened(call.int(0)).await?;
    // A text that tells of its changes (cgroup.events) has places all the same.
    if offset.is_some()
        && file.changes().is_some()
        && Kind::of_mode(file.attributes().await?.mode) != Some(Kind::Regular)
    {
        return Err(Errno::ESPIPE);
    }
    match flags.readable() {
        true => Ok(file),
        false => Err(Errno::EBADF),
    }
}

/// What is no stream either (eventfd and its kin) has something to say about a transfer of nothing.
pub(super) async fn takes_nothing(file: &Arc<dyn File>) -> Result<bool> {
    Ok(file.changes().is_none() || Kind::of_mode(file.attributes().await?.mode).is_some())
}

pub(crate) fn read(call: &mut Call<'_>) -> impl Future<Output = Result<u64>> {
    read_one(call, None)
}

pub(crate) fn pread64(call: &mut Call<'_>) -> impl Future<Output = Result<u64>> {
    let offset = call.arg(3);
    read_one(call, Some(offset))
}

/// Into one buffer; at the file's position if there is no offset.
async fn read_one(call: &mut Call<'_>, offset: Option<u64>) -> Result<u64> {
    let offset = offset.map(position).transpose()?;
    let (at, bytes) = (call.pointer(1), call.arg(2));
    let tried = transfer::at_once(call, (at, bytes), offset, OpenFlags::readable, |file, program, access| {
        file.read_into(Destination::User(program, bytes as usize), access).done()
    });
    let file = match tried {
        AtOnce::Done(_, read) => return Ok(read as u64),
        AtOnce::MustWait(file) => file,
        AtOnce::Failed(error) => return Err(error),
        AtOnce::NotTried => readable(call, offset).await?,
    };
    let segments = single(at, bytes)?;
    if bytes == 0 && offset.is_none() && !takes_nothing(&file).await? {
        let caller = call.caller();
        let nothing = file.read_into(Destination::Kernel(&mut []), Access::by(&caller));
        return Ok(call.end_of(&file, nothing).await? as u64);
    }
    into(call, &file, &segments, offset).await
}

pub(crate) async fn readv(call: &mut Call<'_>) -> Result<u64> {
    let file = readable(call, None).await?;
    let segments = vector::vector(call, call.pointer(1), call.arg(2)).await?;
    some_into(call, &file, &segments, None).await
}

pub(crate) async fn preadv(call: &mut Call<'_>) -> Result<u64> {
    let offset = position(call.arg(3))?;
    let file = readable(call, Some(offset)).await?;
    let segments = vector::vector(call, call.pointer(1), call.arg(2)).await?;
    some_into(call, &file, &segments, Some(offset)).await
}

pub(crate) async fn preadv2(call: &mut Call<'_>) -> Result<u64> {
    // Offset -1: the file's own position.
    let offset = match call.arg(3) as i64 {
        -1 => None,
        offset => Some(position(offset as u64)?),
    };
    let file = readable(call, offset).await?;
    let segments = vector::vector(call, call.pointer(1), call.arg(2)).await?;
    let flags = call.arg(5) as u32;
    if total(&segments) == 0 {
        return Ok(0);
    }
    if flags & !(RWF_HIPRI | RWF_NOWAIT | RWF_OF_WRITES) != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    if flags & RWF_NOWAIT != 0 {
        ready_now(call, &file, Events::IN).await?;
    }
    into(call, &file, &segments, offset).await
}

/// RWF_NOWAIT: EAGAIN for what a program would wait on. A regular file counts as being there.
pub(super) async fn ready_now(call: &Call<'_>, file: &Arc<dyn File>, wanted: Events) -> Result<()> {
    if file.changes().is_some() && fs::poll::now(&call.caller(), &[(file.clone(), wanted)]).await?[0].is_empty() {
        return Err(Errno::EAGAIN);
    }
    Ok(())
}

/// An offset argument. EINVAL if negative.
pub(crate) fn position(raw: u64) -> Result<u64> {
    if raw as i64 >= 0 {
        Ok(raw)
    } else {
        Err(Errno::EINVAL)
    }
}

/// A vector of nothing is nothing to any file that can be read.
async fn some_into(call: &Call<'_>, file: &Arc<dyn File>, segments: &[Segment], offset: Option<u64>) -> Result<u64> {
    match total(segments) {
        0 => Ok(0),
        _ => into(call, file, segments, offset).await,
    }
}

/// Reads into user memory, from a file that is open for it. One that may wait is asked once, so that what came before a signal
/// or before an empty pipe is not held back; a regular file is read until it ends.
pub(crate) async fn into(
    call: &Call<'_>,
    file: &Arc<dyn File>,
    segments: &[Segment],
    offset: Option<u64>,
) -> Result<u64> {
    let mut wanted = total(segments);
    check_end(offset, wanted)?;
    if wanted == 0 && file.changes().is_some() {
        return Ok(0);
    }
    let (space, asking, mut done) = (call.space(), LazyCaller::new(call), 0);
    let access = Access { at: offset, ..Access::by(&asking) };
    // What is read directly is whole sectors.
    let is_direct = wanted >= SECTOR as usize && file.flags().contains(OpenFlags::DIRECT);
    while done < wanted {
        let step = transfer::step_of(&**file, wanted - done);
        if is_direct {
            transfer::make_present(&space, segments, done, step).await;
        }
        let mut program = ProgramBuffer::new(&space, segments, done);
        let reading = file.read_into(Destination::User(&mut program, step), access.after(done));
        let read = match call.end_within(file, false, reading).await {
            Ok(read) => read,
            Err(NEEDS_BUFFER) => break,
            Err(_) if done > 0 => return Ok(done as u64),
            Err(error) => return Err(error),
        };
        done += read;
        if read < step || done == wanted || file.changes().is_some() {
            return Ok(done as u64);
        }
        call.pause().await?;
    }
    let stream = file.changes().is_some();
    if stream && offset.is_none() {
        let is_stream = room::is_stream(&**file);
        wanted = room::for_bytes(call, file, segments, 0, wanted, false, is_stream).await?;
    }
    let mut buffer = Buffer::for_reading(call, &**file, wanted - done);
    if buffer.is_cut(wanted - done) {
        transfer::check_parts(&**file)?;
    }
    loop {
        let step = buffer.step(wanted - done);
        let asked = step.len();
        let reading = file.read_into(Destination::Kernel(step), access.after(done));
        let read = call.end_within(file, false, reading).await;
        let read = match read {
            Err(_) if done > 0 => return Ok(done as u64),
            read => read?,
        };
        let (copied, error) = scatter(&space, segments, done, &buffer.step(wanted - done)[..read]).await;
        done += copied;
        if copied < read {
            if offset.is_none() && !stream && file.object().await.is_ok() {
                // What did not arrive has not been read. A text of /proc is left alone: a seek would make it anew.
                let back = file.seek(copied as i64 - read as i64, Whence::Current).await;
                back.or_else(|error| if error == Errno::ESPIPE { Ok(0) } else { Err(error) })?;
            }
            // A datagram, or the number of an eventfd or timerfd, comes whole or is lost.
            let whole = stream && (read == size_of::<u64>() || file.socket().is_some());
            return if done > 0 && !whole { Ok(done as u64) } else { Err(error) };
        }
        if stream || read < asked || done == wanted {
            return Ok(done as u64);
        }
        call.pause().await?;
    }
}

pub(crate) async fn lseek(call: &mut Call<'_>) -> Result<u64> {
    let file = call.file(0).await?;
    let whence = match call.arg(2) as u32 {
        0 => Whence::Set,
        1 => Whence::Current,
        2 => Whence::End,
        3 => Whence::Data,
        4 => Whence::Hole,
        _ => return Err(Errno::EINVAL),
    };
    match file.seek(call.arg(1) as i64, whence).await {
        // What epoll, eventfd and their kin have instead of places: always at the start. (Linux: noop_llseek.)
        Err(Errno::ESPIPE) if !takes_nothing(&file).await? && pidfd::of(call, &file).await.is_err() => Ok(0),
        at => at,
    }
}
