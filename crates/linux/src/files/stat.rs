//! stat, fstat, lstat, newfstatat, statx, statfs, fstatfs (man 2 stat, statx, statfs).

use super::{check_flags, AT_EMPTY_PATH, AT_NO_AUTOMOUNT, AT_SYMLINK_NOFOLLOW};
use crate::arch::Stat;
use crate::call::{Call, AT_FDCWD};
use alloc::{boxed::Box, vec::Vec};
use fs::{Attributes, FileSystemInfo, PathAnswer, PathOp, Timestamp};
use machine::{errno::Result, Errno, UserAddr};
use zerocopy::{Immutable, IntoBytes};

/// AT_STATX_FORCE_SYNC and AT_STATX_DONT_SYNC, which exclude each other.
const AT_STATX_SYNC: u64 = 0x6000;
const STATX_BASIC: u32 = 0x7ff;
const STATX_RESERVED: u32 = 1 << 31;

/// `struct statx_timestamp`.
#[derive(Clone, Copy, Default, IntoBytes, Immutable)]
#[repr(C)]
struct StatxTime {
    seconds: i64,
    nanoseconds: u32,
    padding: u32,
}

impl From<Timestamp> for StatxTime {
    fn from(at: Timestamp) -> Self {
        StatxTime { seconds: at.seconds, nanoseconds: at.nanoseconds, padding: 0 }
    }
}

/// `struct statx`.
#[derive(Clone, Copy, Default, IntoBytes, Immutable)]
#[repr(C)]
struct Statx {
    mask: u32,
    block_size: u32,
    attributes: u64,
    nlink: u32,
    uid: u32,
    gid: u32,
    mode: u16,
    padding: u16,
    ino: u64,
    size: u64,
    blocks: u64,
    attributes_mask: u64,
    accessed: StatxTime,
    created: StatxTime,
    changed: StatxTime,
    modified: StatxTime,
    rdev: [u32; 2],
    dev: [u32; 2],
    mount: u64,
    direct_io: [u32; 2],
    spare: [u64; 12],
}

impl Statx {
    fn of(a: &Attributes) -> Self {
        Statx {
            mask: STATX_BASIC,
            block_size: a.block_size,
            nlink: a.nlink,
            uid: a.uid,
            gid: a.gid,
            mode: a.mode as u16,
            ino: a.ino,
            size: a.size,
            blocks: a.blocks,
            accessed: a.accessed.into(),
            changed: a.changed.into(),
            modified: a.modified.into(),
            rdev: [a.rdev.0, a.rdev.1],
            dev: [a.dev.0, a.dev.1],
            ..Statx::default()
        }
    }
}

/// `struct statfs`.
#[derive(Clone, Copy, Default, IntoBytes, Immutable)]
#[repr(C)]
struct StatFs {
    kind: u64,
    block_size: u64,
    blocks: u64,
    blocks_free: u64,
    blocks_available: u64,
    files: u64,
    files_free: u64,
    id: u64,
    name_max: u64,
    fragment_size: u64,
    flags: u64,
    spare: [u64; 4],
}

impl StatFs {
    fn of(info: &FileSystemInfo) -> Self {
        StatFs {
            kind: info.kind,
            block_size: info.block_size,
            blocks: info.blocks,
            blocks_free: info.blocks_free,
            blocks_available: info.blocks_available,
            files: info.files,
            files_free: info.files_free,
            id: info.id,
            name_max: info.name_max,
            fragment_size: info.block_size,
            flags: info.flags,
            spare: [0; 4],
        }
    }
}

pub(crate) async fn stat(call: &mut Call<'_>) -> Result<u64> {
    by_path(call, 0, true, call.pointer(1)).await
}

pub(crate) async fn lstat(call: &mut Call<'_>) -> Result<u64> {
    by_path(call, 0, false, call.pointer(1)).await
}

async fn by_path(call: &Call<'_>, index: usize, follow: bool, to: UserAddr) -> Result<u64> {
    let path = call.path(index).await?;
    let found = find(call, AT_FDCWD, path, follow, false).await?;
    call.put(to, &Stat::of(&found)).await?;
    Ok(0)
}

pub(crate) async fn fstat(call: &mut Call<'_>) -> Result<u64> {
    let found = call.file_or_name(0).await?.attributes().await?;
    call.put(call.pointer(1), &Stat::of(&found)).await?;
    Ok(0)
}

pub(crate) async fn newfstatat(call: &mut Call<'_>) -> Result<u64> {
    let flags = call.arg(3);
    let path = path_or_none(call, flags).await;
    if !path.as_ref().is_ok_and(|path| path.is_empty()) {
        // Of a descriptor no other flag says anything.
        check_flags(flags, AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH | AT_NO_AUTOMOUNT | AT_STATX_SYNC)?;
    }
    let found = find(call, call.int(0), path?, flags & AT_SYMLINK_NOFOLLOW == 0, flags & AT_EMPTY_PATH != 0).await?;
    call.put(call.pointer(2), &Stat::of(&found)).await?;
    Ok(0)
}

pub(crate) async fn statx(call: &mut Call<'_>) -> Result<u64> {
    let (flags, mask) = (call.arg(2), call.arg(3) as u32);
    check_flags(flags, AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH | AT_NO_AUTOMOUNT | AT_STATX_SYNC)?;
    if mask & STATX_RESERVED != 0 || flags & AT_STATX_SYNC == AT_STATX_SYNC {
        return Err(Errno::EINVAL);
    }
    let path = path_or_none(call, flags).await?;
    let found = find(call, call.int(0), path, flags & AT_SYMLINK_NOFOLLOW == 0, flags & AT_EMPTY_PATH != 0).await?;
    call.put(call.pointer(4), &Statx::of(&found)).await?;
    Ok(0)
}

/// The path argument of a call that may mean its descriptor: then no path at all is as good as an empty one.
async fn path_or_none(call: &Call<'_>, flags: u64) -> Result<Vec<u8>> {
    match flags & AT_EMPTY_PATH != 0 {
        true if call.pointer(1).is_null() => Ok(Vec::new()),
        empty_ok => call.path_with(1, empty_ok).await,
    }
}

async fn find(call: &Call<'_>, fd: i32, path: Vec<u8>, follow: bool, empty_ok: bool) -> Result<Box<Attributes>> {
    if path.is_empty() && empty_ok && fd != AT_FDCWD {
        return call.file_or_name_at(fd).await?.attributes().await.map(Box::new);
    }
    let base = call.base_of(fd, &path).await?;
    match call.system().paths.run(&call.caller(), &base, PathOp::Stat { path, follow, empty_ok }).await? {
        PathAnswer::Attributes(found) => Ok(found),
        _ => Err(Errno::EIO),
    }
}

pub(crate) async fn statfs(call: &mut Call<'_>) -> Result<u64> {
    let path = call.path(0).await?;
    file_system(call, AT_FDCWD, path).await
}

pub(crate) async fn fstatfs(call: &mut Call<'_>) -> Result<u64> {
    file_system(call, call.int(0), Vec::new()).await
}

async fn file_system(call: &Call<'_>, fd: i32, path: Vec<u8>) -> Result<u64> {
    // AT_FDCWD is a number like any other to fstatfs: it is not open.
    if path.is_empty() {
        call.file_or_name_at(fd).await?;
    }
    let base = call.base_of(fd, &path).await?;
    match call.system().paths.run(&call.caller(), &base, PathOp::StatFs { path }).await? {
        PathAnswer::FileSystem(info) => call.put(call.pointer(1), &StatFs::of(&info)).await?,
        _ => return Err(Errno::EIO),
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use linux_raw_sys::general as raw;

    #[test]
    fn structures_have_linux_layout() {
        assert_eq!(size_of::<Statx>(), size_of::<raw::statx>());
        assert_eq!(core::mem::offset_of!(Statx, rdev), core::mem::offset_of!(raw::statx, stx_rdev_major));
        assert_eq!(core::mem::offset_of!(Statx, modified), core::mem::offset_of!(raw::statx, stx_mtime));
        assert_eq!(size_of::<StatFs>(), size_of::<raw::statfs>());
        assert_eq!(core::mem::offset_of!(StatFs, flags), core::mem::offset_of!(raw::statfs, f_flags));
    }
}
