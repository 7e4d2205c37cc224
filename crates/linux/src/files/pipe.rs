//! pipe, pipe2 (man 2 pipe).

use crate::call::{Call, RLIMIT_NOFILE};
use fs::OpenFlags;
use machine::{errno::Result, Errno, UserAddr};

pub(crate) async fn pipe(call: &mut Call<'_>) -> Result<u64> {
    make(call, call.pointer(0), 0).await
}

pub(crate) async fn pipe2(call: &mut Call<'_>) -> Result<u64> {
    make(call, call.pointer(0), call.arg(1) as u32).await
}

/// O_NOTIFICATION_PIPE.
const NOTIFICATION: OpenFlags = OpenFlags::EXCL;

async fn make(call: &Call<'_>, to: UserAddr, flags: u32) -> Result<u64> {
    let flags = OpenFlags::from_bits_retain(flags);
    if flags.contains(OpenFlags::EXCL)
        && (NOTIFICATION | OpenFlags::CLOEXEC | OpenFlags::NONBLOCK | OpenFlags::DIRECT).contains(flags)
    {
        // A queue for a watch: not there, as where Linux is built without.
        return Err(Errno::ENOPKG);
    }
    if !(OpenFlags::CLOEXEC | OpenFlags::NONBLOCK | OpenFlags::DIRECT).contains(flags) {
        return Err(Errno::EINVAL);
    }
    let (read, write) = fs::pipe::pipe(&call.caller(), &call.account(), flags)?;
    let close_on_exec = flags.contains(OpenFlags::CLOEXEC);
    install_two(call, [read, write], close_on_exec, to).await
}

/// Installs both files and tells their numbers; all or nothing.
pub(crate) async fn install_two(
    call: &Call<'_>,
    two: [alloc::sync::Arc<dyn fs::File>; 2],
    close_on_exec: bool,
    to: UserAddr,
) -> Result<u64> {
    let files = call.process().files();
    let (first, second) = files.add_two(two, close_on_exec, call.process().limit(RLIMIT_NOFILE)).await?;
    if let Err(error) = call.put(to, &[first as i32, second as i32]).await {
        files.take(first).await?;
        files.take(second).await?;
        return Err(error);
    }
    Ok(0)
}
