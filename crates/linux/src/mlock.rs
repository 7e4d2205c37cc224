//! mlock and its kin (man 2 mlock, mlockall). There is no swap, so a locked page stays as any other does; what locking means is that
//! pages are there afterwards, RLIMIT_MEMLOCK, and what other calls do about locked memory.
//!
//! What later mappings are to be (MCL_FUTURE) is known to all kernels of the process, as its limits are.

use crate::call::Call;
use abi::capability;
use machine::{errno::Result, Errno, PageRange, UserAddr, PAGE_BITS, PAGE_SIZE, USER_END};
use messages::process::Change;

const RLIMIT_MEMLOCK: usize = 8;
const MLOCK_ONFAULT: u64 = 1;
const MCL_CURRENT: u32 = 1;
const MCL_FUTURE: u32 = 2;
const MCL_ONFAULT: u32 = 4;

/// How many pages the process may have locked.
fn most(call: &Call<'_>) -> u64 {
    match call.can(capability::IPC_LOCK) {
        true => u64::MAX,
        false => call.process().limit(RLIMIT_MEMLOCK) >> PAGE_BITS,
    }
}

/// Who may not lock a byte gets EPERM. (Linux: can_do_mlock.)
pub(crate) fn may_lock(call: &Call<'_>) -> Result<()> {
    match call.process().limit(RLIMIT_MEMLOCK) == 0 && !call.can(capability::IPC_LOCK) {
        true => Err(Errno::EPERM),
        false => Ok(()),
    }
}

/// EAGAIN if `pages` more locked pages are too many.
pub(crate) async fn check_room(call: &Call<'_>, pages: u64) -> Result<()> {
    let most = most(call);
    if most == u64::MAX || call.space().statistics().await.locked.saturating_add(pages) <= most {
        return Ok(());
    }
    Err(Errno::EAGAIN)
}

/// What new mappings are to be: locked, and there at once.
pub(crate) fn future(call: &Call<'_>) -> (bool, bool) {
    let flags = call.process().with_shared(|shared| shared.lock_future);
    (flags & MCL_FUTURE != 0, flags & (MCL_FUTURE | MCL_ONFAULT) == MCL_FUTURE)
}

/// The heap has grown.
pub(crate) async fn lock_heap(call: &Call<'_>, from: UserAddr, to: UserAddr) {
    let (from, to) = (whole_pages(from.0), whole_pages(to.0));
    if from < to {
        // Another thread may have given it back already.
        let _ = lock_range(call, UserAddr(from), to - from, future(call).1).await;
    }
}

/// Rounded up; nearly all of the address space becomes nothing, as on Linux.
pub(crate) fn whole_pages(length: u64) -> u64 {
    length.wrapping_add(PAGE_SIZE as u64 - 1) & !(PAGE_SIZE as u64 - 1)
}

/// The pages that an address and a length mean, as bytes. EINVAL if they wrap around.
fn range(call: &Call<'_>) -> Result<(UserAddr, u64)> {
    let (start, length) = (call.arg(0), call.arg(1));
    let offset = start % PAGE_SIZE as u64;
    let (start, length) = (start - offset, whole_pages(length.wrapping_add(offset)));
    start.checked_add(length).ok_or(Errno::EINVAL)?;
    Ok((UserAddr(start), length))
}

async fn lock(call: &Call<'_>, populate: bool) -> Result<u64> {
    may_lock(call)?;
    let most = most(call);
    if most != u64::MAX {
        // Pages that are locked already don't count twice.
        let wanted = whole_pages(call.arg(1).wrapping_add(call.arg(0) % PAGE_SIZE as u64)) >> PAGE_BITS;
        let (first, _) = range(call).unwrap_or((UserAddr(0), 0));
        let there = call.space().locked(first, wanted).await;
        if call.space().statistics().await.locked.saturating_add(wanted) - there > most {
            return Err(Errno::ENOMEM);
        }
    }
    let (start, length) = range(call)?;
    if length > 0 {
        lock_range(call, start, length, populate).await?;
    }
    Ok(0)
}

/// Locks pages; `populate` makes them present.
async fn lock_range(call: &Call<'_>, start: UserAddr, length: u64, populate: bool) -> Result<()> {
    let space = call.space();
    let range = space.lock_pages(start, length, true).await?;
    match populate {
        true => call.unless_killed(space.populate_locked(range)).await,
        false => Ok(()),
    }
}

pub(crate) async fn mlock(call: &mut Call<'_>) -> Result<u64> {
    lock(call, true).await
}

pub(crate) async fn mlock2(call: &mut Call<'_>) -> Result<u64> {
    if call.arg(2) as u32 as u64 & !MLOCK_ONFAULT != 0 {
        return Err(Errno::EINVAL);
    }
    lock(call, call.arg(2) & MLOCK_ONFAULT == 0).await
}

pub(crate) async fn munlock(call: &mut Call<'_>) -> Result<u64> {
    let (start, length) = range(call)?;
    if length > 0 {
        call.space().lock_pages(start, length, false).await?;
    }
    Ok(0)
}

pub(crate) async fn mlockall(call: &mut Call<'_>) -> Result<u64> {
    let flags = call.arg(0) as u32;
    if flags & !(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT) != 0 || flags & (MCL_CURRENT | MCL_FUTURE) == 0 {
        return Err(Errno::EINVAL);
    }
    may_lock(call)?;
    let most = most(call);
    if flags & MCL_CURRENT != 0 && most != u64::MAX && call.space().statistics().await.mapped > most {
        return Err(Errno::ENOMEM);
    }
    let future = if flags & MCL_FUTURE != 0 { flags & (MCL_FUTURE | MCL_ONFAULT) } else { 0 };
    call.process().change(Change::LockFuture(future)).await?;
    if flags & MCL_CURRENT != 0 {
        lock_everything(call, true, flags & MCL_ONFAULT == 0).await?;
    }
    Ok(0)
}

pub(crate) async fn munlockall(call: &mut Call<'_>) -> Result<u64> {
    call.process().change(Change::LockFuture(0)).await?;
    lock_everything(call, false, false).await?;
    Ok(0)
}

async fn lock_everything(call: &Call<'_>, on: bool, populate: bool) -> Result<()> {
    let space = call.space();
    let mut regions = space.regions(PageRange::user());
    while let Some(region) = regions.next().await {
        let start = region.range.start.address();
        let length = (region.range.len() << PAGE_BITS).min(USER_END - start.0);
        // What another thread unmaps meanwhile is not locked.
        let _ = match on {
            true => lock_range(call, start, length, populate).await,
            false => space.lock_pages(start, length, false).await.map(drop),
        };
        call.pause().await?;
    }
    Ok(())
}
