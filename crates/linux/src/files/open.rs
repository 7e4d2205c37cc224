//! open, openat, openat2, creat (man 2 open, openat2).

use crate::call::{Call, AT_FDCWD};
use alloc::{sync::Arc, vec::Vec};
use fs::{control::Control, File, OpenFlags, PathAnswer, PathOp};
use machine::{errno::Result, Errno};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Bits beside the access mode that open(2) looks at; it ignores all others (VALID_OPEN_FLAGS).
const KNOWN: u32 = OpenFlags::all().bits() & !OpenFlags::INTERNAL.bits();
const MODE_BITS: u32 = 0o7777;
/// O_TMPFILE is two bits, one of them O_DIRECTORY.
const TMPFILE_ONLY: u32 = 0o20000000;
/// What openat2 allows with O_PATH.
const WITH_PATH: OpenFlags = OpenFlags::PATH
    .union(OpenFlags::DIRECTORY)
    .union(OpenFlags::NOFOLLOW)
    .union(OpenFlags::CLOEXEC)
    .union(OpenFlags::LARGEFILE);
const RESOLVE_KNOWN: u64 = 0x3f;
const RESOLVE_CACHED: u64 = 0x20;
const RESOLVE_BENEATH: u64 = 0x08;
const RESOLVE_IN_ROOT: u64 = 0x10;

/// `struct open_how`.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct OpenHow {
    flags: u64,
    mode: u64,
    resolve: u64,
}

pub(crate) async fn open(call: &mut Call<'_>) -> Result<u64> {
    classic(call, AT_FDCWD, 0, call.arg(1) as u32, call.arg(2) as u32).await
}

pub(crate) async fn openat(call: &mut Call<'_>) -> Result<u64> {
    classic(call, call.int(0), 1, call.arg(2) as u32, call.arg(3) as u32).await
}

pub(crate) async fn creat(call: &mut Call<'_>) -> Result<u64> {
    let flags = OpenFlags::CREAT | OpenFlags::WRONLY | OpenFlags::TRUNC;
    classic(call, AT_FDCWD, 0, flags.bits(), call.arg(1) as u32).await
}

pub(crate) async fn openat2(call: &mut Call<'_>) -> Result<u64> {
    const SIZE: u64 = size_of::<OpenHow>() as u64;
    let size = call.arg(3);
    if size < SIZE {
        return Err(Errno::EINVAL);
    }
    if size > 4096 {
        return Err(Errno::E2BIG);
    }
    let how: OpenHow = call.get(call.pointer(2)).await?;
    let rest = call.bytes(call.pointer(2).add(SIZE as usize), (size - SIZE) as usize, 4096).await?;
    if rest.iter().any(|&byte| byte != 0) {
        return Err(Errno::E2BIG);
    }
    check_how(&how)?;
    let flags = OpenFlags::from_bits_retain(how.flags as u32 | OpenFlags::LARGEFILE.bits());
    check_flags(flags)?;
    let path = call.path(1).await?;
    if how.resolve & RESOLVE_CACHED != 0 {
        // "Not in the cache" is always a right answer.
        return Err(Errno::EAGAIN);
    }
    run(call, call.int(0), path, flags, how.mode as u32, how.resolve).await
}

/// Unlike open(2), openat2 refuses what it does not know (man 2 openat2, ERRORS).
fn check_how(how: &OpenHow) -> Result<()> {
    let makes = how.flags & u64::from(OpenFlags::CREAT.bits() | TMPFILE_ONLY) != 0;
    let both = RESOLVE_BENEATH | RESOLVE_IN_ROOT;
    let wrong = how.flags & !u64::from(KNOWN) != 0
        || how.resolve & !RESOLVE_KNOWN != 0
        || how.resolve & both == both
        || how.mode & !u64::from(MODE_BITS) != 0
        || how.mode != 0 && !makes
        || how.flags & u64::from(OpenFlags::PATH.bits()) != 0 && how.flags & !u64::from(WITH_PATH.bits()) != 0;
    if wrong {
        Err(Errno::EINVAL)
    } else {
        Ok(())
    }
}

/// The path is argument `index`.
async fn classic(call: &Call<'_>, fd: i32, index: usize, flags: u32, mode: u32) -> Result<u64> {
    let mut flags = OpenFlags::from_bits_retain(flags & KNOWN | OpenFlags::LARGEFILE.bits());
    if flags.contains(OpenFlags::PATH) {
        flags &= WITH_PATH;
    }
    check_flags(flags)?;
    let path = call.path(index).await?;
    let makes = flags.bits() & (OpenFlags::CREAT.bits() | TMPFILE_ONLY) != 0;
    run(call, fd, path, flags, if makes { mode & MODE_BITS } else { 0 }, 0).await
}

/// What does not go together is refused before the path is looked at.
fn check_flags(flags: OpenFlags) -> Result<()> {
    let exclusive = flags.contains(OpenFlags::CREAT | OpenFlags::DIRECTORY);
    if flags.bits() & TMPFILE_ONLY != 0 {
        if !flags.contains(OpenFlags::TMPFILE) || flags.contains(OpenFlags::CREAT) || !flags.writable() {
            return Err(Errno::EINVAL);
        }
    } else if exclusive {
        // Since Linux 6.4: a directory can't be made by opening it.
        return Err(Errno::EINVAL);
    }
    Ok(())
}

async fn run(call: &Call<'_>, fd: i32, path: Vec<u8>, flags: OpenFlags, mode: u32, resolve: u64) -> Result<u64> {
    call.check_descriptors()?;
    let file = open_file(call, fd, path, flags, mode, resolve).await?;
    call.install(file, flags.contains(OpenFlags::CLOEXEC)).await
}

pub(crate) async fn open_file(
    call: &Call<'_>,
    fd: i32,
    path: Vec<u8>,
    flags: OpenFlags,
    mode: u32,
    resolve: u64,
) -> Result<Arc<dyn File>> {
    let base = call.base_of(fd, &path).await?;
    let caller = call.caller();
    // Not interruptible, as with Linux's own file systems: what was created and truncated is not to be begun again.
    let PathAnswer::File(file) =
        call.system().paths.run(&caller, &base, PathOp::Open { path, flags, mode, resolve }).await?
    else {
        return Err(Errno::EIO);
    };
    // It may be a fifo.
    let may_wait = file.changes().is_some() && !flags.intersects(OpenFlags::NONBLOCK | OpenFlags::PATH);
    if !may_wait || flags.readable() == flags.writable() {
        return Ok(file);
    }
    let met = match call.interruptible(file.control(&caller, Control::MeetPartner)).await {
        // The other side may have come at the same moment.
        Err(Errno::RESTART) => match file.control(&caller, Control::GiveUpPartner).await {
            Err(Errno::EAGAIN) => Err(Errno::RESTART),
            met => met,
        },
        met => met,
    };
    match met {
        // EINVAL: it is none.
        Ok(_) | Err(Errno::EINVAL) => Ok(file),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openat2_refuses_what_open_ignores() {
        let how = |flags, mode, resolve| check_how(&OpenHow { flags, mode, resolve });
        assert_eq!(how(0o100, 0o644, 0), Ok(()));
        assert_eq!(how(0, 0o644, 0), Err(Errno::EINVAL));
        assert_eq!(how(1 << 40, 0, 0), Err(Errno::EINVAL));
        assert_eq!(how(0o10000000 | 0o2000, 0, 0), Err(Errno::EINVAL));
        assert_eq!(how(0, 0, RESOLVE_BENEATH | RESOLVE_IN_ROOT), Err(Errno::EINVAL));
    }
}
