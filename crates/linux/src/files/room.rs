//! Room in user memory for what a pipe or a stream socket gives.
//!
//! Problem: what has been read from a stream is no longer in it. Linux copies under the stream's lock, and leaves there what the program's
//! memory does not take (EFAULT). Here the bytes are on their way, perhaps from another kernel, when that is found out.
//!
//! Idea: memory is made ready before. Most often it is mapped, and that is all. Of the rest, as much is made as the first [`PAGE_SIZE`] bytes lie in, for
//! something will be written there; only where that is not enough is the stream asked how much it has, for memory for so much is needed. To ask is dear if
//! another kernel has the stream: that kernel tells of each change from then on (`fs/src/remote/watch.rs`).

use super::vector::{parts, Segment};
use crate::call::Call;
use alloc::sync::Arc;
use core::future::Future;
use fs::{Events, File, Kind, OpenFlags};
use linux_raw_sys::ioctl::FIONREAD;
use machine::{errno::Result, Access, Errno, PAGE_SIZE};
use vm::Space;

/// A file from which bytes are taken in the order in which they came, without borders between them.
pub(crate) async fn is_stream(file: &dyn File) -> Result<bool> {
    Ok(match file.socket() {
        Some(socket) => socket.is_stream(),
        None => Kind::of_mode(file.attributes().await?.mode) == Some(Kind::Fifo),
    })
}

/// As many of the next `wanted` bytes, from byte `from` of the segments on, as can be read from a file that may wait without any being lost.
/// EFAULT: what is there does not fit. Waits for something to be there unless `nonblocking`, or the file is. Asks `is_stream` only if it
/// matters.
pub(crate) async fn for_bytes(
    call: &Call<'_>,
    file: &Arc<dyn File>,
    segments: &[Segment],
    from: usize,
    wanted: usize,
    nonblocking: bool,
    is_stream: impl Future<Output = Result<bool>>,
) -> Result<usize> {
    let space = call.space();
    if mapped(&space, segments, from, wanted) == wanted {
        return Ok(wanted);
    }
    let first = make_ready(call, segments, from, wanted.min(PAGE_SIZE)).await;
    if first > 0 && mapped(&space, segments, from, wanted) == wanted || !is_stream.await? {
        return Ok(wanted);
    }
    if !nonblocking && !file.current_flags().await?.contains(OpenFlags::NONBLOCK) {
        let (caller, files) = (call.caller(), [(file.clone(), Events::IN)]);
        call.wait_for(file, fs::poll::wait(&caller, &files, None)).await?;
    }
    let mut there = alloc::vec::Vec::from([0; 4]);
    if file.ioctl(&call.caller(), FIONREAD, &mut there).await == Err(Errno::ENOTTY) {
        // A stream that leads out of the machine: what it will give is not known before.
        return Ok(wanted);
    }
    let there = u32::from_ne_bytes(there[..].try_into().map_err(|_| Errno::EIO)?) as usize;
    let needed = wanted.min(there);
    match make_ready(call, segments, from, needed).await == needed {
        // What has come meanwhile may be read if there is room for it, too. At the end nothing is read, wherever to.
        true => Ok(mapped(&space, segments, from, wanted).max(needed).max(1)),
        false => Err(Errno::EFAULT),
    }
}

/// How many bytes, from `from` on, are mapped so that the program may write them.
fn mapped(space: &Space, segments: &[Segment], from: usize, wanted: usize) -> usize {
    let mut mapped = 0;
    for part in parts(segments, from, wanted) {
        for page in part.pages() {
            if !space.allows(page, Access::WRITE) {
                return mapped + part.bytes_before(page);
            }
        }
        mapped += part.len;
    }
    mapped
}

/// Makes that so for `wanted` bytes, and says for how many it was possible.
async fn make_ready(call: &Call<'_>, segments: &[Segment], from: usize, wanted: usize) -> usize {
    let space = call.space();
    loop {
        let ready = mapped(&space, segments, from, wanted);
        let Some(next) = parts(segments, from + ready, wanted - ready).next() else { return ready };
        if space.fault(next.at, Access::WRITE).await.is_err() || call.pause().await.is_err() {
            return ready;
        }
    }
}
