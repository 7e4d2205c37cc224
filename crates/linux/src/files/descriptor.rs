//! close, close_range, dup, dup2, dup3: what a descriptor number means (man 2 close, dup).

use super::check_flags;
use crate::call::{Call, RLIMIT_NOFILE};
use alloc::sync::Arc;
use fs::{File, OpenFlags};
use machine::{errno::Result, Errno};

const CLOSE_RANGE_UNSHARE: u64 = 2;
const CLOSE_RANGE_CLOEXEC: u64 = 4;

pub(crate) async fn close(call: &mut Call<'_>) -> Result<u64> {
    close_one(call, call.arg(0) as u32).await?;
    Ok(0)
}

async fn close_one(call: &Call<'_>, fd: u32) -> Result<()> {
    let file = call.process().files().take(fd).await?;
    fs::file::close_descriptor(file, &call.caller()).await;
    Ok(())
}

pub(crate) async fn close_range(call: &mut Call<'_>) -> Result<u64> {
    let (first, last, flags) = (call.arg(0) as u32, call.arg(1) as u32, call.arg(2));
    check_flags(flags, CLOSE_RANGE_UNSHARE | CLOSE_RANGE_CLOEXEC)?;
    if first > last {
        return Err(Errno::EINVAL);
    }
    if flags & CLOSE_RANGE_UNSHARE != 0 && call.process().files().is_shared() {
        call.process().unshare_files().await?;
    }
    let files = call.process().files();
    for (fd, _) in files.list().await?.into_iter().filter(|(fd, _)| (first..=last).contains(fd)) {
        let done = match flags & CLOSE_RANGE_CLOEXEC {
            0 => close_one(call, fd).await,
            _ => files.set_close_on_exec(fd, true).await,
        };
        // Another thread was faster: that descriptor is closed, as wanted.
        if !matches!(done, Ok(()) | Err(Errno::EBADF)) {
            done?;
        }
        call.pause().await?;
    }
    Ok(0)
}

pub(crate) async fn dup(call: &mut Call<'_>) -> Result<u64> {
    let file = call.file_or_name(0).await?;
    call.install(file, false).await
}

pub(crate) async fn dup2(call: &mut Call<'_>) -> Result<u64> {
    let file = call.file_or_name(0).await?;
    if call.arg(0) as u32 == call.arg(1) as u32 {
        return Ok(u64::from(call.arg(1) as u32));
    }
    onto(call, file, call.arg(1) as u32, false).await
}

pub(crate) async fn dup3(call: &mut Call<'_>) -> Result<u64> {
    let cloexec = u64::from(OpenFlags::CLOEXEC.bits());
    check_flags(call.arg(2), cloexec)?;
    if call.arg(0) as u32 == call.arg(1) as u32 {
        return Err(Errno::EINVAL);
    }
    let file = call.file_or_name(0).await?;
    onto(call, file, call.arg(1) as u32, call.arg(2) & cloexec != 0).await
}

async fn onto(call: &Call<'_>, file: Arc<dyn File>, fd: u32, close_on_exec: bool) -> Result<u64> {
    let limit = call.process().limit(RLIMIT_NOFILE);
    if u64::from(fd) >= limit {
        return Err(Errno::EBADF);
    }
    let files = call.process().files();
    let replaced = files.get(fd).await.ok();
    let fd = files.replace(file, fd, close_on_exec, limit).await?;
    if let Some(replaced) = replaced {
        fs::file::close_descriptor(replaced, &call.caller()).await;
    }
    Ok(u64::from(fd))
}

/// F_DUPFD, F_DUPFD_CLOEXEC.
pub(crate) async fn from_number(call: &Call<'_>, file: Arc<dyn File>, from: u64, close_on_exec: bool) -> Result<u64> {
    let limit = call.process().limit(RLIMIT_NOFILE);
    match u32::try_from(from) {
        Ok(from) if u64::from(from) < limit => {
            Ok(u64::from(call.process().files().add(file, from, close_on_exec, limit).await?))
        }
        _ => Err(Errno::EINVAL),
    }
}
