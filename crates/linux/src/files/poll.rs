//! poll, ppoll (man 2 poll), and what all calls that wait for readiness share.

use crate::{
    call::{Call, RLIMIT_NOFILE},
    process::signals::check_size,
    time::Timespec,
};
use abi::signal::SignalSet;
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::future::Future;
use fs::{epoll::Wait, Events, File};
use machine::{collections::try_filled, errno::Result, BoxFuture, Errno, UserAddr, USER_END};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// `struct pollfd`.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct PollFd {
    fd: i32,
    events: u16,
    found: u16,
}

/// At most what waiting for one file takes of the heap: its place in the lists of [`run`] and `fs::poll::wait`, and in the file's queue.
pub(super) const WAIT_BYTES: usize = 192;

/// When a wait is to end: at a time of the machine's clock, or never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Deadline(Option<u64>);

impl Deadline {
    pub const NEVER: Deadline = Deadline(None);

    pub fn after(call: &Call<'_>, ns: u64) -> Self {
        Deadline(Some(call.system().now().saturating_add(ns)))
    }

    /// Milliseconds; negative is forever.
    pub fn after_ms(call: &Call<'_>, ms: i32) -> Self {
        match u64::try_from(ms) {
            Ok(ms) => Self::after(call, ms * 1_000_000),
            Err(_) => Self::NEVER,
        }
    }

    /// From a `struct timespec`; NULL is forever.
    pub async fn from_timespec(call: &Call<'_>, at: UserAddr) -> Result<Self> {
        if at.is_null() {
            return Ok(Self::NEVER);
        }
        let time: Timespec = call.get(at).await?;
        Ok(Self::after(call, time.to_ns()?))
    }

    /// For epoll_wait.
    pub fn wait(self, call: &Call<'_>) -> Wait<'static> {
        match (self.left(call), self.future(call)) {
            (None, _) => Wait::ForEver,
            (Some(0), _) | (_, None) => Wait::No,
            (_, Some(over)) => Wait::Until(over),
        }
    }

    pub fn left(self, call: &Call<'_>) -> Option<u64> {
        self.0.map(|at| at.saturating_sub(call.system().now()))
    }

    pub fn future(self, call: &Call<'_>) -> Option<BoxFuture<'static, ()>> {
        let at = self.0?;
        if at <= call.system().now() {
            return Some(fs::file::ready(()));
        }
        let scheduler = call.system().scheduler.clone();
        Some(Box::pin(async move { scheduler.sleep_until(at).await }))
    }
}

/// Waits; interrupted, the call is restarted only if no handler ran (man 7 signal).
pub(crate) async fn until_ready<T>(call: &Call<'_>, wait: impl Future<Output = Result<T>>) -> Result<T> {
    or_interrupted(call, wait, Errno::RESTART_NO_HANDLER).await
}

/// Waits; `interrupted` is the answer if something interrupts that.
pub(crate) async fn or_interrupted<T>(
    call: &Call<'_>,
    wait: impl Future<Output = Result<T>>,
    interrupted: Errno,
) -> Result<T> {
    call.thread.interruptible(wait).await.unwrap_or(Err(interrupted))
}

/// Waits with another signal mask, if `mask` is not NULL. The old one comes back at once, or after the
/// handler of the signal that interrupted.
pub(crate) async fn with_mask<T>(
    call: &Call<'_>,
    mask: UserAddr,
    size: u64,
    wait: impl Future<Output = Result<T>>,
) -> Result<T> {
    if mask.is_null() {
        return wait.await;
    }
    check_size(size)?;
    let mask: u64 = call.get(mask).await?;
    call.thread.set_temporary_mask(SignalSet(mask));
    let result = wait.await;
    if !matches!(result, Err(Errno::RESTART_NO_HANDLER | Errno::RESTART_UNTOUCHED)) {
        if let Some(mask) = call.thread.take_saved_mask() {
            call.thread.set_blocked(mask);
        }
    }
    result
}

pub(crate) async fn poll(call: &mut Call<'_>) -> Result<u64> {
    let deadline = Deadline::after_ms(call, call.int(2));
    run(call, deadline).await
}

pub(crate) async fn ppoll(call: &mut Call<'_>) -> Result<u64> {
    let deadline = Deadline::from_timespec(call, call.pointer(2)).await?;
    let result = with_mask(call, call.pointer(3), call.arg(4), run(call, deadline)).await;
    if let Some(left) = deadline.left(call) {
        // Linux tells the time left, but does not mind memory that can't be written.
        let _ = call.put(call.pointer(2), &Timespec::from_ns(left)).await;
    }
    result
}

async fn run(call: &Call<'_>, deadline: Deadline) -> Result<u64> {
    let (at, count) = (call.pointer(0), call.arg(1) as u32);
    if u64::from(count) > call.process().limit(RLIMIT_NOFILE) {
        return Err(Errno::EINVAL);
    }
    if at.0 > USER_END {
        // Even where there is nothing to look at.
        return Err(Errno::EFAULT);
    }
    let _room = call.room_for(count as usize * WAIT_BYTES)?;
    let mut list = try_filled(count as usize, PollFd::default())?;
    call.space().read(at, list.as_mut_slice().as_mut_bytes()).await?;

    let mut files: Vec<(Arc<dyn File>, Events)> = Vec::new();
    let mut places = Vec::new();
    let mut invalid = false;
    for (index, entry) in list.iter_mut().enumerate() {
        entry.found = 0;
        if entry.fd < 0 {
            continue;
        }
        match call.file_at(entry.fd).await {
            Ok(file) => {
                files.push((file, Events::from_bits_truncate(u32::from(entry.events))));
                places.push(index);
            }
            Err(Errno::EBADF) => {
                entry.found = Events::NVAL.bits() as u16;
                invalid = true;
            }
            Err(error) => return Err(error),
        }
    }
    let caller = call.caller();
    let found = match invalid {
        true => fs::poll::now(&caller, &files).await?,
        false => until_ready(call, fs::poll::wait(&caller, &files, deadline.future(call))).await?,
    };
    for (index, events) in places.into_iter().zip(found) {
        list[index].found = events.bits() as u16;
    }
    // Only the answers: another thread may be changing the rest.
    for (index, entry) in list.iter().enumerate() {
        call.put(at.add(index * size_of::<PollFd>() + 6), &entry.found).await?;
    }
    Ok(list.iter().filter(|entry| entry.found != 0).count() as u64)
}
