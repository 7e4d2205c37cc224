//! Extended attributes (man 7 xattr): setxattr(2), getxattr(2), listxattr(2), removexattr(2) and their kin.
//!
//! Here are the arguments, in the order in which Linux looks at them. Who may do what is the namespace's to say, and what can be kept the
//! file system's.

use super::{transfer, AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW};
use crate::call::{Call, AT_FDCWD};
use alloc::vec::Vec;
use fs::{PathAnswer, PathOp, SetWhen, XattrOp};
use machine::{account::Charge, errno::Result, Errno};

const XATTR_NAME_MAX: usize = 255;
const XATTR_SIZE_MAX: u64 = 65536;
/// XATTR_LIST_MAX
const LIST_MAX: u64 = 65536;

const XATTR_CREATE: u64 = 1;
const XATTR_REPLACE: u64 = 2;

/// Does `op` to the file that the first argument names.
async fn run(call: &Call<'_>, flags: u64, op: XattrOp) -> Result<Vec<u8>> {
    if flags & AT_EMPTY_PATH != 0 {
        return call.file(0).await?.xattr(&call.caller(), op).await;
    }
    let path = call.path(0).await?;
    let op = PathOp::Xattr { path: path.clone(), follow: flags & AT_SYMLINK_NOFOLLOW == 0, op };
    match call.at_path(AT_FDCWD, &path, op).await? {
        PathAnswer::Bytes(bytes) => Ok(bytes),
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

/// Charges the program for what a call may answer that has room for `size` bytes.
fn charge(call: &Call<'_>, size: u64) -> Result<Charge> {
    transfer::charge(call, size.min(XATTR_SIZE_MAX) as usize, None).map_err(|_| Errno::ENOMEM)
}

/// Gives the program a value or a list: into the buffer that arguments `index` and the next one are, or with size 0 only its length. `most`:
/// what a buffer is looked at for; who gives that much and gets more finds E2BIG.
async fn give(call: &Call<'_>, index: usize, bytes: &[u8], most: u64) -> Result<u64> {
    let (len, size) = (bytes.len() as u64, call.arg(index + 1));
    match size {
        0 => return Ok(len),
        _ if len > size.min(most) => return Err(if size >= most { Errno::E2BIG } else { Errno::ERANGE }),
        _ => {}
    }
    if !bytes.is_empty() {
        call.space().write(call.pointer(index), bytes).await?;
    }
    Ok(len)
}

async fn set(call: &Call<'_>, flags: u64) -> Result<u64> {
    let how = call.arg(4);
    super::check_flags(how, XATTR_CREATE | XATTR_REPLACE)?;
    let name = name_of(call).await?;
    if call.arg(3) > XATTR_SIZE_MAX {
        return Err(Errno::E2BIG);
    }
    let (mut value, _charge) = transfer::charged(call, call.arg(3) as usize, None).map_err(|_| Errno::ENOMEM)?;
    call.space().read(call.pointer(2), &mut value).await?;
    let when = SetWhen { present: how & XATTR_CREATE == 0, missing: how & XATTR_REPLACE == 0 };
    run(call, flags, XattrOp::Set { name, value, when }).await?;
    Ok(0)
}

async fn get(call: &Call<'_>, flags: u64) -> Result<u64> {
    let name = name_of(call).await?;
    let _charge = charge(call, call.arg(3))?;
    let value = run(call, flags, XattrOp::Get { name }).await?;
    give(call, 2, &value, XATTR_SIZE_MAX).await
}

async fn list(call: &Call<'_>, flags: u64) -> Result<u64> {
    let _charge = charge(call, call.arg(2))?;
    let names = run(call, flags, XattrOp::List).await?;
    give(call, 1, &names, LIST_MAX).await
}

async fn remove(call: &Call<'_>, flags: u64) -> Result<u64> {
    let name = name_of(call).await?;
    run(call, flags, XattrOp::Remove { name }).await?;
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
    get(call, 0).await
}

pub(crate) async fn lgetxattr(call: &mut Call<'_>) -> Result<u64> {
    get(call, AT_SYMLINK_NOFOLLOW).await
}

pub(crate) async fn fgetxattr(call: &mut Call<'_>) -> Result<u64> {
    get(call, AT_EMPTY_PATH).await
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
    remove(call, 0).await
}

pub(crate) async fn lremovexattr(call: &mut Call<'_>) -> Result<u64> {
    remove(call, AT_SYMLINK_NOFOLLOW).await
}

pub(crate) async fn fremovexattr(call: &mut Call<'_>) -> Result<u64> {
    remove(call, AT_EMPTY_PATH).await
}
