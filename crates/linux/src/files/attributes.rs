//! chmod, chown, utimes, truncate and their kin, umask (man 2 chmod, chown, utimensat, truncate, umask).

use super::{check_flags, read::position, write::check_size, AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW};
use crate::{
    call::{Call, AT_FDCWD},
    time::{Timespec, Timeval},
};
use alloc::{sync::Arc, vec::Vec};
use fs::{File, Kind, PathOp, SetAttributes, Timestamp};
use machine::{errno::Result, Errno, UserAddr};
use messages::process::Change;

const UTIME_NOW: i64 = 0x3fff_ffff;
const UTIME_OMIT: i64 = 0x3fff_fffe;

async fn by_path(call: &Call<'_>, fd: i32, path: Vec<u8>, flags: u64, set: SetAttributes) -> Result<u64> {
    let (follow, empty_ok) = (flags & AT_SYMLINK_NOFOLLOW == 0, flags & AT_EMPTY_PATH != 0);
    let of_descriptor = path.is_empty();
    match call.at_path(fd, &path.clone(), PathOp::SetAttributes { path, follow, empty_ok, set }).await {
        Err(Errno::EINVAL) if of_descriptor => Err(without_inode(&call.file_or_name_at(fd).await?).await?),
        done => done.map(|_| 0),
    }
}

/// What has no inode of its own (eventfd and its kin) has no attributes to set.
async fn without_inode(file: &Arc<dyn File>) -> Result<Errno> {
    Ok(match Kind::of_mode(file.attributes().await?.mode) {
        None => Errno::EOPNOTSUPP,
        Some(_) => Errno::EINVAL,
    })
}

async fn by_descriptor(call: &Call<'_>, fd: i32, set: SetAttributes) -> Result<u64> {
    let file = call.file_at(fd).await?;
    match file.set_attributes(&call.caller(), set).await {
        Err(Errno::EINVAL) => Err(without_inode(&file).await?),
        done => done.map(|()| 0),
    }
}

fn mode(raw: u64) -> SetAttributes {
    SetAttributes { mode: Some(raw as u32 & 0o7777), ..SetAttributes::default() }
}

/// -1 leaves the id as it is.
fn owner(uid: u64, gid: u64) -> SetAttributes {
    let id = |raw: u64| Some(raw as u32).filter(|&id| id != u32::MAX);
    SetAttributes { uid: id(uid), gid: id(gid), ..SetAttributes::default() }
}

fn size(size: u64) -> SetAttributes {
    SetAttributes { size: Some(size), ..SetAttributes::default() }
}

pub(crate) async fn chmod(call: &mut Call<'_>) -> Result<u64> {
    let path = call.path(0).await?;
    by_path(call, AT_FDCWD, path, 0, mode(call.arg(1))).await
}

pub(crate) async fn fchmod(call: &mut Call<'_>) -> Result<u64> {
    by_descriptor(call, call.int(0), mode(call.arg(1))).await
}

pub(crate) async fn fchmodat(call: &mut Call<'_>) -> Result<u64> {
    let path = call.path(1).await?;
    by_path(call, call.int(0), path, 0, mode(call.arg(2))).await
}

pub(crate) async fn fchmodat2(call: &mut Call<'_>) -> Result<u64> {
    check_flags(call.arg(3), AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH)?;
    let path = call.path_with(1, call.arg(3) & AT_EMPTY_PATH != 0).await?;
    by_path(call, call.int(0), path, call.arg(3), mode(call.arg(2))).await
}

pub(crate) async fn chown(call: &mut Call<'_>) -> Result<u64> {
    let path = call.path(0).await?;
    by_path(call, AT_FDCWD, path, 0, owner(call.arg(1), call.arg(2))).await
}

pub(crate) async fn lchown(call: &mut Call<'_>) -> Result<u64> {
    let path = call.path(0).await?;
    by_path(call, AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, owner(call.arg(1), call.arg(2))).await
}

pub(crate) async fn fchown(call: &mut Call<'_>) -> Result<u64> {
    by_descriptor(call, call.int(0), owner(call.arg(1), call.arg(2))).await
}

pub(crate) async fn fchownat(call: &mut Call<'_>) -> Result<u64> {
    check_flags(call.arg(4), AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH)?;
    let path = call.path_with(1, call.arg(4) & AT_EMPTY_PATH != 0).await?;
    by_path(call, call.int(0), path, call.arg(4), owner(call.arg(2), call.arg(3))).await
}

pub(crate) async fn truncate(call: &mut Call<'_>) -> Result<u64> {
    let length = position(call.arg(1))?;
    let path = call.path(0).await?;
    check_size(call, length).await?;
    by_path(call, AT_FDCWD, path, 0, size(length)).await
}

pub(crate) async fn ftruncate(call: &mut Call<'_>) -> Result<u64> {
    let length = position(call.arg(1))?;
    let file = call.file(0).await?;
    if !file.flags().writable() {
        return Err(Errno::EINVAL);
    }
    check_size(call, length).await?;
    file.set_attributes(&call.caller(), size(length)).await?;
    Ok(0)
}

/// Access and modification time; both None is a call that does nothing.
fn times(accessed: Option<Timestamp>, modified: Option<Timestamp>) -> SetAttributes {
    SetAttributes { accessed, modified, ..SetAttributes::default() }
}

fn now() -> SetAttributes {
    times(Some(Timestamp::NOW), Some(Timestamp::NOW))
}

pub(crate) async fn utimensat(call: &mut Call<'_>) -> Result<u64> {
    let flags = call.arg(3);
    // Times that are none are told after what is wrong with the file.
    let set = match call.pointer(2) {
        at if at.is_null() => Ok(now()),
        at => {
            let [accessed, modified]: [Timespec; 2] = [call.get(at).await?, call.get(at.add(16)).await?];
            of_timespec(accessed).and_then(|accessed| Ok(times(accessed, of_timespec(modified)?)))
        }
    };
    if set == Ok(SetAttributes::default()) {
        return Ok(0);
    }
    if call.pointer(1).is_null() && call.int(0) != AT_FDCWD {
        // futimens(3).
        check_flags(flags, 0)?;
        call.file(0).await?;
        return by_descriptor(call, call.int(0), set?).await;
    }
    check_flags(flags, AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH)?;
    let (follow, empty_ok) = (flags & AT_SYMLINK_NOFOLLOW == 0, flags & AT_EMPTY_PATH != 0);
    let path = call.path_with(1, empty_ok).await?;
    if set.is_err() {
        call.at_path(call.int(0), &path.clone(), PathOp::Stat { path: path.clone(), follow, empty_ok }).await?;
    }
    by_path(call, call.int(0), path, flags, set?).await
}

fn of_timespec(time: Timespec) -> Result<Option<Timestamp>> {
    match time.nanoseconds {
        UTIME_NOW => Ok(Some(Timestamp::NOW)),
        UTIME_OMIT => Ok(None),
        0..=999_999_999 => Ok(Some(Timestamp { seconds: time.seconds, nanoseconds: time.nanoseconds as u32 })),
        _ => Err(Errno::EINVAL),
    }
}

fn of_timeval(time: Timeval) -> Result<Option<Timestamp>> {
    match time.microseconds {
        0..=999_999 => Ok(Some(Timestamp { seconds: time.seconds, nanoseconds: time.microseconds as u32 * 1000 })),
        _ => Err(Errno::EINVAL),
    }
}

async fn timevals(call: &Call<'_>, at: UserAddr) -> Result<SetAttributes> {
    if at.is_null() {
        return Ok(now());
    }
    let [accessed, modified]: [Timeval; 2] = [call.get(at).await?, call.get(at.add(16)).await?];
    Ok(times(of_timeval(accessed)?, of_timeval(modified)?))
}

pub(crate) async fn utimes(call: &mut Call<'_>) -> Result<u64> {
    let set = timevals(call, call.pointer(1)).await?;
    let path = call.path(0).await?;
    by_path(call, AT_FDCWD, path, 0, set).await
}

pub(crate) async fn futimesat(call: &mut Call<'_>) -> Result<u64> {
    let set = timevals(call, call.pointer(2)).await?;
    if call.pointer(1).is_null() {
        return by_descriptor(call, call.int(0), set).await;
    }
    let path = call.path(1).await?;
    by_path(call, call.int(0), path, 0, set).await
}

pub(crate) async fn utime(call: &mut Call<'_>) -> Result<u64> {
    let set = match call.pointer(1) {
        at if at.is_null() => now(),
        at => {
            let [accessed, modified]: [i64; 2] = call.get(at).await?;
            let time = |seconds| Some(Timestamp { seconds, nanoseconds: 0 });
            times(time(accessed), time(modified))
        }
    };
    let path = call.path(0).await?;
    by_path(call, AT_FDCWD, path, 0, set).await
}

pub(crate) async fn umask(call: &mut Call<'_>) -> Result<u64> {
    let old = call.process().with_shared(|shared| shared.umask);
    call.process().change(Change::Umask(call.arg(0) as u32 & 0o777)).await?;
    Ok(u64::from(old))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_may_be_left_or_be_now() {
        let time = |seconds, nanoseconds| of_timespec(Timespec { seconds, nanoseconds });
        assert_eq!(time(0, UTIME_OMIT), Ok(None));
        assert_eq!(time(5, UTIME_NOW), Ok(Some(Timestamp::NOW)));
        assert_eq!(time(-5, 1), Ok(Some(Timestamp { seconds: -5, nanoseconds: 1 })));
        assert_eq!(time(0, 1_000_000_000), Err(Errno::EINVAL));
        assert_eq!(of_timeval(Timeval { seconds: 0, microseconds: -1 }), Err(Errno::EINVAL));
    }

    #[test]
    fn minus_one_leaves_an_owner() {
        assert_eq!(owner(u64::MAX, 5), SetAttributes { gid: Some(5), ..SetAttributes::default() });
        assert_eq!(owner(u64::from(u32::MAX), 0).uid, None);
    }
}
