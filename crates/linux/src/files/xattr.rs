//! Extended attributes: no file system here has any (man 7 xattr). A file has an empty list of them, and
//! reading or writing one is refused as Linux does for a file system without support.

use super::{AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW};
use crate::call::{Call, AT_FDCWD};
use alloc::vec::Vec;
use fs::{Kind, PathAnswer, PathOp};
use machine::{errno::Result, Errno};

const XATTR_NAME_MAX: usize = 255;
const XATTR_SIZE_MAX: u64 = 65536;

async fn find(call: &Call<'_>, flags: u64) -> Result<Kind> {
    if flags & AT_EMPTY_PATH != 0 {
        return Ok(call.file(0).await?.attributes().await?.kind());
    }
    let path = call.path(0).await?;
    let op = PathOp::Stat { path: path.clone(), follow: flags & AT_SYMLINK_NOFOLLOW == 0, empty_ok: false };
    match call.at_path(AT_FDCWD, &path, op).await? {
        PathAnswer::Attributes(attributes) => Ok(attributes.kind()),
        _ => Err(Errno::EIO),
    }
}

/// What is wrong with the name is told before anything about the file.
async fn name_of(call: &Call<'_>) -> Result<Vec<u8>> {
    match call.space().read_c_string(call.pointer(1), XATTR_NAME_MAX + 1).await {
        Ok(name) if name.is_empty() => Err(Errno::ERANGE),
        Ok(name) => Ok(name),
        Err(Errno::ENAMETOOLONG) => Err(Errno::ERANGE),
        Err(error) => Err(error),
    }
}

async fn one(call: &Call<'_>, flags: u64, write: bool) -> Result<u64> {
    let name = name_of(call).await?;
    let kind = find(call, flags).await?;
    // Only files and directories can have attributes of users (man 7 xattr), whatever the file system.
    let special = !matches!(kind, Kind::Regular | Kind::Directory);
    Err(match (name.starts_with(b"user.") && special, write) {
        (true, true) => Errno::EPERM,
        (true, false) => Errno::ENODATA,
        (false, _) => Errno::EOPNOTSUPP,
    })
}

async fn set(call: &Call<'_>, flags: u64) -> Result<u64> {
    super::check_flags(call.arg(4), 3)?;
    name_of(call).await?;
    if call.arg(3) > XATTR_SIZE_MAX {
        return Err(Errno::E2BIG);
    }
    call.bytes(call.pointer(2), call.arg(3) as usize, XATTR_SIZE_MAX as usize).await?;
    one(call, flags, true).await
}

async fn list(call: &Call<'_>, flags: u64) -> Result<u64> {
    find(call, flags).await?;
    Ok(0)
}

pub(crate) async fn setxattr(call: &mut Call<'_>) -> Result<u64> {
    set(call, 0).await
}

pub(crate) async fn lsetxattr(call: &mut Call<'_>) -> Result<u64> {
    set(call, AT_SYMLINK_NOFOLLOW).await
}

pub(crate) async fn fsetxattr(call: &mut Call<'_>) -> Result<u64> {
    set(call, AT_EMPTY_PATH).await
}

pub(crate) async fn getxattr(call: &mut Call<'_>) -> Result<u64> {
    one(call, 0, false).await
}

pub(crate) async fn lgetxattr(call: &mut Call<'_>) -> Result<u64> {
    one(call, AT_SYMLINK_NOFOLLOW, false).await
}

pub(crate) async fn fgetxattr(call: &mut Call<'_>) -> Result<u64> {
    one(call, AT_EMPTY_PATH, false).await
}

pub(crate) async fn listxattr(call: &mut Call<'_>) -> Result<u64> {
    list(call, 0).await
}

pub(crate) async fn llistxattr(call: &mut Call<'_>) -> Result<u64> {
    list(call, AT_SYMLINK_NOFOLLOW).await
}

pub(crate) async fn flistxattr(call: &mut Call<'_>) -> Result<u64> {
    list(call, AT_EMPTY_PATH).await
}

pub(crate) async fn removexattr(call: &mut Call<'_>) -> Result<u64> {
    one(call, 0, true).await
}

pub(crate) async fn lremovexattr(call: &mut Call<'_>) -> Result<u64> {
    one(call, AT_SYMLINK_NOFOLLOW, true).await
}

pub(crate) async fn fremovexattr(call: &mut Call<'_>) -> Result<u64> {
    one(call, AT_EMPTY_PATH, true).await
}
