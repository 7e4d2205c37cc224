//! vmsplice: between a pipe and memory of the program. Linux may map the pages instead of copying them; nobody can tell.

use super::{
    splice::{hold, is_pipe, wait_for_room, wait_until, SPLICE_KNOWN, SPLICE_NONBLOCK},
    transfer::Buffer,
    vector::{self, Segment},
    write::broken,
};
use crate::call::Call;
use alloc::sync::Arc;
use fs::{pipe, Events, File};
use machine::{errno::Result, Errno, PAGE_SIZE};

/// Whether it may wait is said by the call alone, not by the descriptor.
pub(crate) async fn vmsplice(call: &mut Call<'_>) -> Result<u64> {
    super::check_flags(call.arg(3), SPLICE_KNOWN)?;
    let file = call.file(0).await?;
    if !file.flags().readable() && !file.flags().writable() {
        return Err(Errno::EBADF);
    }
    let segments = vector::vector(call, call.pointer(1), call.arg(2)).await?;
    if vector::total(&segments) == 0 {
        return Ok(0);
    }
    if !is_pipe(call, &file).await {
        return Err(Errno::EBADF);
    }
    let nonblocking = call.arg(3) & SPLICE_NONBLOCK != 0;
    match file.flags().writable() {
        true => memory_to_a_pipe(call, &file, &segments, nonblocking).await,
        false => a_pipe_to_memory(call, &file, &segments, nonblocking).await,
    }
}

/// Waits for room once, then puts in what fits, by pages of the program's: one goes in whole or not.
async fn memory_to_a_pipe(
    call: &Call<'_>,
    pipe: &Arc<dyn File>,
    segments: &[Segment],
    nonblocking: bool,
) -> Result<u64> {
    let (caller, space) = (call.caller(), call.space());
    let mut buffer = Buffer::for_bytes(call, PAGE_SIZE);
    let mut done = 0;
    while done == 0 {
        wait_for_room(call, pipe, nonblocking).await?;
        for piece in segments.iter().flat_map(Segment::pieces) {
            let bytes = buffer.step(piece.len);
            let (copied, error) = vector::gather(&space, &[piece], 0, bytes).await;
            let offered = match copied == piece.len {
                true => call.wait_for(pipe, pipe::offer(pipe, &caller, bytes)).await,
                // A pipe that is broken is told first.
                false => pipe::offer(pipe, &caller, &[]).await.and(Err(error)),
            };
            match offered {
                Ok(written) => done += written as u64,
                // Another writer was faster.
                Err(Errno::EAGAIN) if !nonblocking || done > 0 => break,
                Err(_) if done > 0 => break,
                Err(error) => return Err(broken(call, error).await),
            }
        }
    }
    Ok(done)
}

/// Waits for bytes once, then takes what is there.
async fn a_pipe_to_memory(
    call: &Call<'_>,
    pipe: &Arc<dyn File>,
    segments: &[Segment],
    nonblocking: bool,
) -> Result<u64> {
    let held = loop {
        wait_until(call, pipe, Events::IN, nonblocking).await?;
        match hold(call, pipe, vector::total(segments), true).await {
            // Another reader was faster.
            Err(Errno::EAGAIN) if !nonblocking => {}
            held => break held?,
        }
    };
    let Some(held) = held else { return Ok(0) };
    let (copied, error) = vector::scatter(&call.space(), segments, 0, &held.bytes).await;
    if copied < held.bytes.len() {
        return Err(error);
    }
    held.take(copied).await;
    Ok(copied as u64)
}
