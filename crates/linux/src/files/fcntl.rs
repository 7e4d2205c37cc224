//! fcntl, flock (man 2 fcntl, flock).

use super::{descriptor::from_number, sigio};
use crate::call::Call;
use abi::{LockConflict, LockMode, LockOp, LockRange};
use alloc::sync::Arc;
use fs::{
    control::{Control, ControlAnswer},
    File, Kind, OpenFlags, Whence,
};
use machine::{errno::Result, Errno};
use zerocopy::{FromBytes, Immutable, IntoBytes};

const F_DUPFD: u32 = 0;
const F_GETFD: u32 = 1;
const F_SETFD: u32 = 2;
const F_GETFL: u32 = 3;
const F_SETFL: u32 = 4;
const F_GETLK: u32 = 5;
const F_SETLK: u32 = 6;
const F_SETLKW: u32 = 7;
const F_SETOWN: u32 = 8;
const F_GETOWN: u32 = 9;
const F_SETSIG: u32 = 10;
const F_GETSIG: u32 = 11;
const F_SETOWN_EX: u32 = 15;
const F_GETOWN_EX: u32 = 16;
const F_SEAL_SEAL: u32 = 1;
const F_GETOWNER_UIDS: u32 = 17;
const F_OFD_GETLK: u32 = 36;
const F_OFD_SETLK: u32 = 37;
const F_OFD_SETLKW: u32 = 38;
const F_GETLEASE: u32 = 1025;
const F_DUPFD_CLOEXEC: u32 = 1030;
const F_SETPIPE_SZ: u32 = 1031;
const F_GETPIPE_SZ: u32 = 1032;
const F_ADD_SEALS: u32 = 1033;
const F_GET_SEALS: u32 = 1034;
const FD_CLOEXEC: u64 = 1;

const F_RDLCK: i16 = 0;
const F_WRLCK: i16 = 1;
const F_UNLCK: i16 = 2;

/// `struct flock`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Flock {
    kind: i16,
    whence: i16,
    padding: u32,
    start: i64,
    len: i64,
    pid: i32,
    tail: u32,
}

pub(crate) async fn fcntl(call: &mut Call<'_>) -> Result<u64> {
    let (command, argument) = (call.arg(1) as u32, call.arg(2));
    let file = call.file_or_name(0).await?;
    let files = call.process().files();
    let fd = call.arg(0) as u32;
    match command {
        F_DUPFD => return from_number(call, file, argument, false).await,
        F_DUPFD_CLOEXEC => return from_number(call, file, argument, true).await,
        F_GETFD => return Ok(u64::from(files.descriptor(fd).await?.close_on_exec)),
        F_SETFD => {
            files.set_close_on_exec(fd, argument & FD_CLOEXEC != 0).await?;
            return Ok(0);
        }
        F_GETFL => return Ok(u64::from(file.current_flags().await?.shown())),
        _ if file.flags().contains(OpenFlags::PATH) => return Err(Errno::EBADF),
        _ => {}
    }
    match command {
        F_SETFL => {
            let direct = argument & u64::from(OpenFlags::DIRECT.bits()) != 0;
            if direct && file.attributes().await?.kind() == Kind::Directory {
                return Err(Errno::EINVAL);
            }
            let flags = OpenFlags::from_bits_retain(argument as u32);
            file.set_flags(flags).await?;
            if file.flags().contains(OpenFlags::ASYNC) != flags.contains(OpenFlags::ASYNC) {
                sigio::set_async(call, &file, flags.contains(OpenFlags::ASYNC)).await.or_else(sigio::without_it)?;
            }
            Ok(0)
        }
        F_GETLK | F_OFD_GETLK => get_lock(call, &file, command == F_OFD_GETLK).await,
        F_SETLK | F_SETLKW => set_lock(call, &file, command == F_SETLKW, false).await,
        F_OFD_SETLK | F_OFD_SETLKW => set_lock(call, &file, command == F_OFD_SETLKW, true).await,
        F_SETOWN => sigio::set_owner(call, &file, call.int(2)).await.map(|()| 0),
        F_GETOWN => sigio::owner(call, &file).await.map(|owner| i64::from(owner) as u64),
        F_SETOWN_EX => sigio::set_owner_of_kind(call, &file).await.map(|()| 0),
        F_GETOWN_EX => sigio::owner_of_kind(call, &file).await.map(|()| 0),
        F_GETOWNER_UIDS => sigio::owner_ids(call, &file).await.map(|()| 0),
        F_SETSIG => sigio::set_signal(call, &file).await.map(|()| 0),
        F_GETSIG => sigio::signal(call, &file).await.map(u64::from),
        // Nobody can have taken one.
        F_GETLEASE => Ok(F_UNLCK as u64),
        F_GETPIPE_SZ | F_SETPIPE_SZ if file.attributes().await?.kind() != Kind::Fifo => Err(Errno::EBADF),
        F_GETPIPE_SZ => number(file.control(&call.caller(), Control::PipeSize).await?),
        F_SETPIPE_SZ => {
            let size = u64::from(argument as u32);
            number(file.control(&call.caller(), Control::SetPipeSize(size)).await?)
        }
        F_ADD_SEALS if !file.flags().writable() => Err(Errno::EPERM),
        F_ADD_SEALS => {
            // To add none needs a file that may be sealed, too.
            let there = file.seal(argument as u32).await?;
            if argument as u32 == 0 && there & F_SEAL_SEAL != 0 {
                Err(Errno::EPERM)
            } else {
                Ok(0)
            }
        }
        F_GET_SEALS => Ok(u64::from(file.seal(0).await?)),
        _ => Err(Errno::EINVAL),
    }
}

fn number(answer: ControlAnswer) -> Result<u64> {
    match answer {
        ControlAnswer::Number(number) => Ok(number as u64),
        _ => Err(Errno::EIO),
    }
}

fn mode_of(kind: i16) -> Result<LockMode> {
    match kind {
        F_RDLCK => Ok(LockMode::Shared),
        F_WRLCK => Ok(LockMode::Exclusive),
        F_UNLCK => Ok(LockMode::Unlock),
        _ => Err(Errno::EINVAL),
    }
}

/// The bytes that `start` (from `base`) and `len` mean: a negative length lies before the start, zero goes
/// to the end of the file wherever it will be.
fn range_of(base: u64, start: i64, len: i64) -> Result<LockRange> {
    let start = i64::try_from(base).ok().and_then(|base| base.checked_add(start)).ok_or(Errno::EOVERFLOW)?;
    let end = start.checked_add(len).ok_or(Errno::EOVERFLOW)?;
    let (first, end) = match len {
        0 => (start, u64::MAX),
        1.. => (start, end as u64),
        _ => (end, start as u64),
    };
    match u64::try_from(first) {
        Ok(first) if start >= 0 => Ok(LockRange { start: first, end }),
        _ => Err(Errno::EINVAL),
    }
}

async fn range(file: &Arc<dyn File>, lock: &Flock) -> Result<LockRange> {
    let base = match lock.whence {
        0 => 0,
        1 => file.seek(0, Whence::Current).await?,
        2 => file.attributes().await?.size,
        _ => return Err(Errno::EINVAL),
    };
    range_of(base, lock.start, lock.len)
}

async fn get_lock(call: &Call<'_>, file: &Arc<dyn File>, description: bool) -> Result<u64> {
    let at = call.pointer(2);
    let lock: Flock = call.get(at).await?;
    let mode = mode_of(lock.kind)?;
    if mode == LockMode::Unlock || description && lock.pid != 0 {
        return Err(Errno::EINVAL);
    }
    let range = range(file, &lock).await?;
    let caller = call.caller();
    let conflict = call.unless_killed(file.lock(&caller, LockOp::Get { range, mode, description })).await??;
    let answer = match conflict {
        None => Flock { kind: F_UNLCK, ..lock },
        Some(conflict) => told(&conflict),
    };
    call.put(at, &answer).await?;
    Ok(0)
}

fn told(conflict: &LockConflict) -> Flock {
    let LockRange { start, end } = conflict.range;
    Flock {
        kind: if conflict.mode == LockMode::Shared { F_RDLCK } else { F_WRLCK },
        start: start as i64,
        len: if end == u64::MAX { 0 } else { (end - start) as i64 },
        pid: conflict.process.map_or(-1, |process| process.0 as i32),
        ..Flock::default()
    }
}

async fn set_lock(call: &Call<'_>, file: &Arc<dyn File>, wait: bool, description: bool) -> Result<u64> {
    let lock: Flock = call.get(call.pointer(2)).await?;
    let range = range(file, &lock).await?;
    let mode = mode_of(lock.kind)?;
    let open = match mode {
        LockMode::Shared => file.flags().readable(),
        LockMode::Exclusive => file.flags().writable(),
        LockMode::Unlock => true,
    };
    if !open {
        return Err(Errno::EBADF);
    }
    if description && lock.pid != 0 {
        return Err(Errno::EINVAL);
    }
    let caller = call.caller();
    let done = file.lock(&caller, LockOp::Set { range, mode, wait, description });
    locked(call, wait && mode != LockMode::Unlock, done).await
}

/// What does not wait for a lock is not interrupted by a signal: it may still wait for another kernel, of which the program knows nothing.
async fn locked(call: &Call<'_>, waits: bool, done: impl Future<Output = Result<Option<LockConflict>>>) -> Result<u64> {
    match waits {
        true => call.interruptible(done).await?,
        false => call.unless_killed(done).await??,
    };
    Ok(0)
}

pub(crate) async fn flock(call: &mut Call<'_>) -> Result<u64> {
    const NONBLOCK: u32 = 4;
    const MANDATORY: u32 = 32;
    let operation = call.arg(1) as u32;
    if operation & MANDATORY != 0 {
        // As Linux since 5.18: nothing is locked, and nothing is said.
        return Ok(0);
    }
    let mode = match operation & !NONBLOCK {
        1 => LockMode::Shared,
        2 => LockMode::Exclusive,
        8 => LockMode::Unlock,
        _ => return Err(Errno::EINVAL),
    };
    let file = call.file(0).await?;
    let caller = call.caller();
    let wait = operation & NONBLOCK == 0;
    let done = file.lock(&caller, LockOp::Flock { mode, wait });
    locked(call, wait && mode != LockMode::Unlock, done).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use linux_raw_sys::general as raw;

    #[test]
    fn a_lock_is_laid_out_as_linux_has_it() {
        assert_eq!(size_of::<Flock>(), size_of::<raw::flock>());
        assert_eq!(core::mem::offset_of!(Flock, pid), core::mem::offset_of!(raw::flock, l_pid));
    }

    #[test]
    fn ranges_go_forward_backward_and_to_the_end() {
        assert_eq!(range_of(10, 5, 3), Ok(LockRange { start: 15, end: 18 }));
        assert_eq!(range_of(10, 0, -4), Ok(LockRange { start: 6, end: 10 }));
        assert_eq!(range_of(0, 7, 0), Ok(LockRange { start: 7, end: u64::MAX }));
        assert_eq!(range_of(0, -1, 0), Err(Errno::EINVAL));
        assert_eq!(range_of(0, 2, -3), Err(Errno::EINVAL));
        assert_eq!(range_of(1, i64::MAX, 0), Err(Errno::EOVERFLOW));
        let conflict =
            LockConflict { range: LockRange { start: 7, end: u64::MAX }, mode: LockMode::Shared, process: None };
        let told = told(&conflict);
        assert_eq!((told.start, told.len, told.pid), (7, 0, -1));
    }
}
