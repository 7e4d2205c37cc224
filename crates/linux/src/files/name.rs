//! Making, linking, renaming, removing and reading names (man 2 mkdir, mknod, link, symlink, rename, unlink,
//! readlink).

use super::{check_flags, decode_device, AT_EMPTY_PATH, AT_SYMLINK_FOLLOW};
use crate::call::{Call, AT_FDCWD};
use alloc::vec::Vec;
use fs::{Kind, PathAnswer, PathOp};
use machine::{errno::Result, Errno, UserAddr};

const AT_REMOVEDIR: u64 = 0x200;
const RENAME_KNOWN: u64 = 7;
const RENAME_NOREPLACE: u64 = 1;
const RENAME_EXCHANGE: u64 = 2;
const RENAME_WHITEOUT: u64 = 4;

pub(crate) async fn mkdir(call: &mut Call<'_>) -> Result<u64> {
    let path = call.path(0).await?;
    make_dir(call, AT_FDCWD, path, call.arg(1)).await
}

pub(crate) async fn mkdirat(call: &mut Call<'_>) -> Result<u64> {
    let path = call.path(1).await?;
    make_dir(call, call.int(0), path, call.arg(2)).await
}

async fn make_dir(call: &Call<'_>, fd: i32, path: Vec<u8>, mode: u64) -> Result<u64> {
    call.at_path(fd, &path.clone(), PathOp::MakeDir { path, mode: mode as u32 & 0o7777 }).await?;
    Ok(0)
}

pub(crate) async fn mknod(call: &mut Call<'_>) -> Result<u64> {
    make_node(call, AT_FDCWD, 0, call.arg(1), call.arg(2)).await
}

pub(crate) async fn mknodat(call: &mut Call<'_>) -> Result<u64> {
    make_node(call, call.int(0), 1, call.arg(2), call.arg(3)).await
}

/// The path is argument `index`; what kind of node it is to be is looked at first.
async fn make_node(call: &Call<'_>, fd: i32, index: usize, mode: u64, device: u64) -> Result<u64> {
    let mode = mode as u32 & 0o177777;
    match Kind::of_mode(mode) {
        Some(Kind::Directory) => return Err(Errno::EPERM),
        Some(Kind::Symlink) => return Err(Errno::EINVAL),
        None if mode & 0o170000 != 0 => return Err(Errno::EINVAL),
        _ => {}
    }
    let path = call.path(index).await?;
    // No type at all means a regular file.
    let mode = if mode & 0o170000 == 0 { mode | 0o100000 } else { mode };
    let op = PathOp::MakeNode { path: path.clone(), mode, rdev: decode_device(device) };
    call.at_path(fd, &path, op).await?;
    Ok(0)
}

pub(crate) async fn rmdir(call: &mut Call<'_>) -> Result<u64> {
    let path = call.path(0).await?;
    remove(call, AT_FDCWD, path, true).await
}

pub(crate) async fn unlink(call: &mut Call<'_>) -> Result<u64> {
    let path = call.path(0).await?;
    remove(call, AT_FDCWD, path, false).await
}

pub(crate) async fn unlinkat(call: &mut Call<'_>) -> Result<u64> {
    check_flags(call.arg(2), AT_REMOVEDIR)?;
    let path = call.path(1).await?;
    remove(call, call.int(0), path, call.arg(2) & AT_REMOVEDIR != 0).await
}

async fn remove(call: &Call<'_>, fd: i32, path: Vec<u8>, directory: bool) -> Result<u64> {
    call.at_path(fd, &path.clone(), PathOp::Unlink { path, directory }).await?;
    Ok(0)
}

pub(crate) async fn symlink(call: &mut Call<'_>) -> Result<u64> {
    make_symlink(call, AT_FDCWD, 1).await
}

pub(crate) async fn symlinkat(call: &mut Call<'_>) -> Result<u64> {
    make_symlink(call, call.int(1), 2).await
}

async fn make_symlink(call: &Call<'_>, fd: i32, index: usize) -> Result<u64> {
    let target = call.path(0).await?;
    let path = call.path(index).await?;
    call.at_path(fd, &path.clone(), PathOp::Symlink { target, path }).await?;
    Ok(0)
}

/// An operation on two paths, each with a directory of its own.
async fn with_two(call: &Call<'_>, fds: (i32, i32), op: PathOp) -> Result<u64> {
    let (PathOp::Link { from, to, .. } | PathOp::Rename { from, to, .. }) = &op else { return Err(Errno::EINVAL) };
    let mut base = call.base_of(fds.0, from).await?;
    base.to = match call.base_of(fds.1, to).await {
        Ok(base) => Some(base.at),
        Err(error) => return Err(found_first(call, fds.0, &op).await.err().unwrap_or(error)),
    };
    call.system().paths.run(&call.caller(), &base, op).await?;
    Ok(0)
}

/// The new name, given the operation without it. What is wrong with the old one is told first.
async fn new_name(call: &Call<'_>, fd: i32, index: usize, op: impl FnOnce(Vec<u8>) -> PathOp) -> Result<PathOp> {
    match call.path(index).await {
        Ok(to) => Ok(op(to)),
        Err(error) => Err(found_first(call, fd, &op(Vec::new())).await.err().unwrap_or(error)),
    }
}

/// Is there what is to be linked, or the directory of what is to be renamed?
async fn found_first(call: &Call<'_>, fd: i32, op: &PathOp) -> Result<()> {
    let (path, follow, empty_ok) = match op {
        PathOp::Link { from, follow, empty_ok, .. } => (from.clone(), *follow, *empty_ok),
        PathOp::Rename { from, .. } => (directory_of(from), true, false),
        _ => return Ok(()),
    };
    call.at_path(fd, &path.clone(), PathOp::Stat { path, follow, empty_ok }).await.map(drop)
}

fn directory_of(path: &[u8]) -> Vec<u8> {
    let end = path.iter().rposition(|&byte| byte != b'/').map_or(0, |last| last + 1);
    match path[..end].iter().rposition(|&byte| byte == b'/') {
        Some(slash) => path[..=slash].to_vec(),
        None if path.starts_with(b"/") => b"/".to_vec(),
        None => b".".to_vec(),
    }
}

pub(crate) async fn link(call: &mut Call<'_>) -> Result<u64> {
    let from = call.path(0).await?;
    let op = |to| PathOp::Link { from, to, follow: false, empty_ok: false };
    let op = new_name(call, AT_FDCWD, 1, op).await?;
    with_two(call, (AT_FDCWD, AT_FDCWD), op).await
}

pub(crate) async fn linkat(call: &mut Call<'_>) -> Result<u64> {
    let flags = call.arg(4);
    check_flags(flags, AT_SYMLINK_FOLLOW | AT_EMPTY_PATH)?;
    let (follow, empty_ok) = (flags & AT_SYMLINK_FOLLOW != 0, flags & AT_EMPTY_PATH != 0);
    let from = call.path_with(1, empty_ok).await?;
    let op = new_name(call, call.int(0), 3, |to| PathOp::Link { from, to, follow, empty_ok }).await?;
    with_two(call, (call.int(0), call.int(2)), op).await
}

pub(crate) async fn rename(call: &mut Call<'_>) -> Result<u64> {
    let from = call.path(0).await?;
    let op = new_name(call, AT_FDCWD, 1, |to| PathOp::Rename { from, to, flags: 0 }).await?;
    with_two(call, (AT_FDCWD, AT_FDCWD), op).await
}

pub(crate) async fn renameat(call: &mut Call<'_>) -> Result<u64> {
    rename_at(call, 0).await
}

pub(crate) async fn renameat2(call: &mut Call<'_>) -> Result<u64> {
    let flags = call.arg(4);
    check_flags(flags, RENAME_KNOWN)?;
    if flags & RENAME_EXCHANGE != 0 && flags & (RENAME_NOREPLACE | RENAME_WHITEOUT) != 0 {
        return Err(Errno::EINVAL);
    }
    rename_at(call, flags as u32).await
}

async fn rename_at(call: &Call<'_>, flags: u32) -> Result<u64> {
    let from = call.path(1).await?;
    let op = new_name(call, call.int(0), 3, |to| PathOp::Rename { from, to, flags }).await?;
    with_two(call, (call.int(0), call.int(2)), op).await
}

pub(crate) async fn readlink(call: &mut Call<'_>) -> Result<u64> {
    read_link(call, AT_FDCWD, 0, false, call.pointer(1), call.int(2)).await
}

pub(crate) async fn readlinkat(call: &mut Call<'_>) -> Result<u64> {
    read_link(call, call.int(0), 1, true, call.pointer(2), call.int(3)).await
}

/// The path is argument `index`.
async fn read_link(call: &Call<'_>, fd: i32, index: usize, empty_ok: bool, to: UserAddr, size: i32) -> Result<u64> {
    if size <= 0 {
        return Err(Errno::EINVAL);
    }
    let path = call.path_with(index, empty_ok).await?;
    match call.at_path(fd, &path.clone(), PathOp::ReadLink { path, empty_ok }).await? {
        PathAnswer::Bytes(mut target) => {
            // Cut without a word, and without a NUL (man 2 readlink).
            target.truncate(size as usize);
            call.space().write(to, &target).await?;
            Ok(target.len() as u64)
        }
        _ => Err(Errno::EIO),
    }
}
