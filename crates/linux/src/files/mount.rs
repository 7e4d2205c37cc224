//! mount, umount2 (man 2 mount, umount).

use crate::call::{Call, AT_FDCWD, PATH_MAX};
use alloc::vec::Vec;
use fs::PathOp;
use machine::{collections::try_filled, errno::Result, Errno, UserAddr, PAGE_SIZE};

/// The magic number in the high half that programs of the last century set.
const MS_MGC_VAL: u64 = 0xc0ed_0000;
const MS_MGC_MSK: u64 = 0xffff_0000;
const UMOUNT_KNOWN: u64 = 0xf;
const MNT_EXPIRE: u64 = 4;
const UMOUNT_NOFOLLOW: u64 = 8;

pub(crate) async fn mount(call: &mut Call<'_>) -> Result<u64> {
    let kind = optional(call, call.pointer(2)).await?;
    let source = optional(call, call.pointer(0)).await?;
    let path = call.path(1).await?;
    let data = options(call, call.pointer(4)).await?;
    privileged(call, &path, true).await?;
    let raw = call.arg(3);
    let flags = if raw & MS_MGC_MSK == MS_MGC_VAL { raw & !MS_MGC_MSK } else { raw };
    call.at_path(AT_FDCWD, &path.clone(), PathOp::Mount { source, path, kind, flags, data }).await?;
    Ok(0)
}

pub(crate) async fn umount2(call: &mut Call<'_>) -> Result<u64> {
    let flags = call.arg(1);
    super::check_flags(flags, UMOUNT_KNOWN)?;
    let path = call.path(0).await?;
    privileged(call, &path, flags & UMOUNT_NOFOLLOW == 0).await?;
    if flags & MNT_EXPIRE != 0 {
        return Err(crate::table::unsupported(call, "umount2 with MNT_EXPIRE", Errno::EINVAL));
    }
    call.at_path(AT_FDCWD, &path.clone(), PathOp::Unmount { path, flags: flags as u32 }).await?;
    Ok(0)
}

/// EPERM, but what is wrong with the path comes first.
async fn privileged(call: &Call<'_>, path: &[u8], follow: bool) -> Result<()> {
    if call.caller().credentials.is_privileged() {
        return Ok(());
    }
    let op = PathOp::Stat { path: path.to_vec(), follow, empty_ok: false };
    call.at_path(AT_FDCWD, path, op).await?;
    Err(Errno::EPERM)
}

async fn optional(call: &Call<'_>, at: UserAddr) -> Result<Vec<u8>> {
    if at.is_null() {
        return Ok(Vec::new());
    }
    call.space().read_c_string(at, PATH_MAX).await.map_err(|error| match error {
        Errno::ENAMETOOLONG => Errno::EINVAL,
        error => error,
    })
}

/// Up to a page of options, as far as it can be read (copy_mount_options).
async fn options(call: &Call<'_>, at: UserAddr) -> Result<Vec<u8>> {
    if at.is_null() {
        return Ok(Vec::new());
    }
    let mut data = try_filled(PAGE_SIZE, 0)?;
    let (read, error) = call.space().read_some(at, &mut data).await;
    if read == 0 {
        return Err(error);
    }
    let end = data[..read].iter().position(|&byte| byte == 0).unwrap_or(read);
    data.truncate(end);
    Ok(data)
}
