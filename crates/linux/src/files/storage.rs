//! What concerns the storage behind a file: fsync and its kin, fallocate, advice (man 2 fsync, sync,
//! sync_file_range, fallocate, posix_fadvise, readahead).

use super::{check_flags, write::check_size};
use crate::call::{Call, AT_FDCWD};
use alloc::{sync::Arc, vec::Vec};
use fs::{control::Control, File, FileAdvice, Kind, PathOp, ReadAhead, SyncRange};
use machine::{errno::Result, Errno, PAGE_BITS, PAGE_SIZE};
use messages::inspect::RunState;

const FALLOC_FL_KEEP_SIZE: u32 = 1;
const FALLOC_FL_PUNCH_HOLE: u32 = 2;
const FALLOC_FL_COLLAPSE_RANGE: u32 = 8;
const FALLOC_FL_ZERO_RANGE: u32 = 0x10;
const FALLOC_FL_INSERT_RANGE: u32 = 0x20;
const FALLOC_FL_UNSHARE_RANGE: u32 = 0x40;
/// SYNC_FILE_RANGE_*.
const SYNC_WAIT_BEFORE: u32 = 1;
const SYNC_WRITE: u32 = 2;
const SYNC_WAIT_AFTER: u32 = 4;
/// POSIX_FADV_*.
mod advice {
    pub const NORMAL: i32 = 0;
    pub const RANDOM: i32 = 1;
    pub const SEQUENTIAL: i32 = 2;
    pub const WILLNEED: i32 = 3;
    pub const DONTNEED: i32 = 4;
    pub const NOREUSE: i32 = 5;
}

pub(crate) async fn fsync(call: &mut Call<'_>) -> Result<u64> {
    let _waits = call.thread.waits(RunState::Uninterruptible);
    call.file(0).await?.sync(false).await?;
    Ok(0)
}

pub(crate) async fn fdatasync(call: &mut Call<'_>) -> Result<u64> {
    let _waits = call.thread.waits(RunState::Uninterruptible);
    call.file(0).await?.sync(true).await?;
    Ok(0)
}

pub(crate) async fn sync(call: &mut Call<'_>) -> Result<u64> {
    let _waits = call.thread.waits(RunState::Uninterruptible);
    // It never fails (man 2 sync): whoever wants to know whether something was written asks for that.
    let _ = call.at_path(AT_FDCWD, b"", PathOp::Sync).await;
    Ok(0)
}

pub(crate) async fn syncfs(call: &mut Call<'_>) -> Result<u64> {
    call.file(0).await?;
    let _waits = call.thread.waits(RunState::Uninterruptible);
    call.at_path(call.int(0), b"", PathOp::SyncFs { path: Vec::new() }).await?;
    Ok(0)
}

pub(crate) async fn sync_file_range(call: &mut Call<'_>) -> Result<u64> {
    let file = call.file(0).await?;
    check_flags(call.arg(3), u64::from(SYNC_WAIT_BEFORE | SYNC_WRITE | SYNC_WAIT_AFTER))?;
    let (offset, len) = (call.arg(1) as i64, call.arg(2) as i64);
    if offset < 0 || len < 0 || offset.checked_add(len).is_none() {
        return Err(Errno::EINVAL);
    }
    match Kind::of_mode(file.attributes().await?.mode) {
        Some(Kind::Regular | Kind::Directory | Kind::BlockDevice | Kind::Symlink) => {}
        _ => return Err(Errno::ESPIPE),
    }
    let flags = call.arg(3) as u32;
    let has = |flag: u32| flags & flag != 0;
    let end = if len == 0 { i64::MAX as u64 } else { (offset + len) as u64 };
    let (waits_before, writes, waits_after) = (has(SYNC_WAIT_BEFORE), has(SYNC_WRITE), has(SYNC_WAIT_AFTER));
    let _waits = call.thread.waits(RunState::Uninterruptible);
    file.sync_range(SyncRange { start: offset as u64, end, waits_before, writes, waits_after }).await?;
    Ok(0)
}

pub(crate) async fn fallocate(call: &mut Call<'_>) -> Result<u64> {
    let (mode, offset, len) = (call.arg(1) as u32, call.arg(2) as i64, call.arg(3) as i64);
    let file = call.file(0).await?;
    if offset < 0 || len <= 0 {
        return Err(Errno::EINVAL);
    }
    // A hole changes no size; nothing but the plain mode can do without the flag that says so.
    let size_stays = mode & FALLOC_FL_KEEP_SIZE != 0;
    match mode & !FALLOC_FL_KEEP_SIZE {
        0 | FALLOC_FL_ZERO_RANGE | FALLOC_FL_UNSHARE_RANGE => {}
        FALLOC_FL_PUNCH_HOLE if size_stays => {}
        FALLOC_FL_COLLAPSE_RANGE | FALLOC_FL_INSERT_RANGE if !size_stays => {}
        _ => return Err(Errno::EOPNOTSUPP),
    }
    if !file.flags().writable() {
        return Err(Errno::EBADF);
    }
    match Kind::of_mode(file.attributes().await?.mode) {
        Some(Kind::Fifo) => return Err(Errno::ESPIPE),
        Some(Kind::Directory) => return Err(Errno::EISDIR),
        Some(Kind::Regular | Kind::BlockDevice) => {}
        _ => return Err(Errno::ENODEV),
    }
    let end = offset.checked_add(len).ok_or(Errno::EFBIG)?;
    if mode & FALLOC_FL_KEEP_SIZE == 0 {
        check_size(call, end as u64).await?;
    }
    call.wait_for(&file, file.allocate(mode, offset as u64, len as u64)).await?;
    Ok(0)
}

pub(crate) async fn fadvise64(call: &mut Call<'_>) -> Result<u64> {
    let file = call.file(0).await?;
    let kind = Kind::of_mode(file.attributes().await?.mode);
    if kind == Some(Kind::Fifo) {
        return Err(Errno::ESPIPE);
    }
    let (offset, length, advice) = (call.arg(1), call.arg(2), call.int(3));
    if (length as i64) < 0 || !(advice::NORMAL..=advice::NOREUSE).contains(&advice) {
        return Err(Errno::EINVAL);
    }
    // Any file takes any advice; what has no pages to be read has no use for it.
    if !matches!(kind, Some(Kind::Regular | Kind::BlockDevice)) {
        return Ok(0);
    }
    let end = if length == 0 { u64::MAX } else { offset.saturating_add(length) };
    match advice {
        advice::NORMAL => advise(call, &file, FileAdvice::Reads(ReadAhead::Normal)).await?,
        advice::RANDOM => advise(call, &file, FileAdvice::Reads(ReadAhead::Random)).await?,
        advice::SEQUENTIAL => advise(call, &file, FileAdvice::Reads(ReadAhead::Sequential)).await?,
        advice::WILLNEED => advise(call, &file, will_need(offset, end)).await?,
        advice::DONTNEED => {
            advise(call, &file, FileAdvice::DontNeed { start: offset, end }).await?;
            if file.is_elsewhere()
                && let Ok(object) = file.object().await
            {
                object.not_needed(offset, end).await;
            }
        }
        // Which cached pages go first does not depend on how they were used.
        _ => {}
    }
    Ok(0)
}

pub(crate) async fn readahead(call: &mut Call<'_>) -> Result<u64> {
    let file = call.file(0).await?;
    if !file.flags().readable() {
        return Err(Errno::EBADF);
    }
    match Kind::of_mode(file.attributes().await?.mode) {
        Some(Kind::Regular | Kind::BlockDevice) if call.arg(2) as i64 >= 0 => {}
        _ => return Err(Errno::EINVAL),
    }
    let (offset, length) = (call.arg(1), call.arg(2));
    advise(call, &file, will_need(offset, offset.saturating_add(length))).await?;
    Ok(0)
}

fn will_need(offset: u64, end: u64) -> FileAdvice {
    FileAdvice::WillNeed { first: offset >> PAGE_BITS, end: end.div_ceil(PAGE_SIZE as u64) }
}

/// Any file takes any advice, as on Linux; what has no pages to be read has no use for it.
async fn advise(call: &Call<'_>, file: &Arc<dyn File>, advice: FileAdvice) -> Result<()> {
    match file.control(&call.caller(), Control::Advise(advice)).await {
        Ok(_) | Err(Errno::EOPNOTSUPP) => Ok(()),
        Err(error) => Err(error),
    }
}
