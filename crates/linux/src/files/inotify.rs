//! inotify_init, inotify_init1, inotify_add_watch, inotify_rm_watch (man 7 inotify). Who watches what is known
//! where the files are (`fs::inotify`).

use crate::call::{Call, AT_FDCWD};
use fs::{control::Control, inotify, OpenFlags, PathAnswer, PathOp};
use machine::{errno::Result, Errno};

pub(crate) async fn inotify_init(call: &mut Call<'_>) -> Result<u64> {
    make(call, OpenFlags::empty()).await
}

pub(crate) async fn inotify_init1(call: &mut Call<'_>) -> Result<u64> {
    make(call, OpenFlags::from_bits_retain(call.arg(0) as u32)).await
}

async fn make(call: &Call<'_>, flags: OpenFlags) -> Result<u64> {
    match call.at_path(AT_FDCWD, b"", PathOp::Notify { flags }).await? {
        PathAnswer::File(file) => call.install(file, flags.contains(OpenFlags::CLOEXEC)).await,
        _ => Err(Errno::EIO),
    }
}

pub(crate) async fn inotify_add_watch(call: &mut Call<'_>) -> Result<u64> {
    let mask = call.arg(2) as u32;
    if !inotify::bits_are_known(mask) {
        return Err(Errno::EINVAL);
    }
    let collector = call.file(0).await?;
    if !inotify::bits_go_together(mask) {
        return Err(Errno::EINVAL);
    }
    let path = call.path(1).await?;
    let mut base = call.base_of(AT_FDCWD, &path).await?;
    base.to = Some(collector);
    match call.system().paths.run(&call.caller(), &base, PathOp::Watch { path, mask }).await? {
        PathAnswer::Number(watch) => Ok(watch as u64),
        _ => Err(Errno::EIO),
    }
}

pub(crate) async fn inotify_rm_watch(call: &mut Call<'_>) -> Result<u64> {
    let file = call.file(0).await?;
    file.control(&call.caller(), Control::Unwatch(call.int(1))).await?;
    Ok(0)
}
