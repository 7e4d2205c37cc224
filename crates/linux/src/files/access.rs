//! access, faccessat, faccessat2 (man 2 access).

use super::{check_flags, AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW};
use crate::call::{Call, AT_FDCWD};
use fs::PathOp;
use machine::{errno::Result, Errno};

const AT_EACCESS: u64 = 0x200;

pub(crate) async fn access(call: &mut Call<'_>) -> Result<u64> {
    check(call, AT_FDCWD, 0, call.arg(1), 0).await
}

pub(crate) async fn faccessat(call: &mut Call<'_>) -> Result<u64> {
    check(call, call.int(0), 1, call.arg(2), 0).await
}

pub(crate) async fn faccessat2(call: &mut Call<'_>) -> Result<u64> {
    let flags = call.arg(3);
    check_flags(flags, AT_EACCESS | AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH)?;
    check(call, call.int(0), 1, call.arg(2), flags).await
}

/// The path is argument `index`.
async fn check(call: &Call<'_>, fd: i32, index: usize, mode: u64, flags: u64) -> Result<u64> {
    let mode = mode as u32;
    if mode & !7 != 0 {
        return Err(Errno::EINVAL);
    }
    let path = call.path_with(index, flags & AT_EMPTY_PATH != 0).await?;
    let op = PathOp::Access {
        path: path.clone(),
        mode,
        effective: flags & AT_EACCESS != 0,
        follow: flags & AT_SYMLINK_NOFOLLOW == 0,
        empty_ok: flags & AT_EMPTY_PATH != 0,
    };
    call.at_path(fd, &path, op).await?;
    Ok(0)
}
