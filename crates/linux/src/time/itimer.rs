//! alarm, setitimer, getitimer (man 2 setitimer). The timers themselves are crate `process`'s.

use super::{Timeval, SECOND};
use crate::call::Call;
use machine::{errno::Result, Errno};
use messages::timer::{TimerId, TimerOp, TimerState};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// `struct itimerval`.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Itimerval {
    interval: Timeval,
    value: Timeval,
}

async fn set(call: &Call<'_>, id: TimerId, value: u64, interval: u64) -> Result<TimerState> {
    call.process().timer(TimerOp::Set { id, absolute: false, value, interval }).await
}

/// Whole seconds left of the old alarm, rounded to the nearest but never to 0.
pub(crate) async fn alarm(call: &mut Call<'_>) -> Result<u64> {
    let seconds = u64::from(call.arg(0) as u32);
    let old = set(call, TimerId::Real, seconds * SECOND, 0).await?;
    Ok(match old.left {
        0 => 0,
        left => ((left + SECOND / 2) / SECOND).max(1),
    })
}

pub(crate) async fn setitimer(call: &mut Call<'_>) -> Result<u64> {
    let new: Itimerval = match call.pointer(1) {
        at if at.is_null() => Itimerval::default(),
        at => call.get(at).await?,
    };
    let (value, interval) = (new.value.to_ns()?, new.interval.to_ns()?);
    let old = set(call, which(call)?, value, interval).await?;
    put(call, 2, old).await
}

pub(crate) async fn getitimer(call: &mut Call<'_>) -> Result<u64> {
    let id = which(call)?;
    let now = call.process().timer(TimerOp::Get { id }).await?;
    if call.pointer(1).is_null() {
        return Err(Errno::EFAULT);
    }
    put(call, 1, now).await
}

fn which(call: &Call<'_>) -> Result<TimerId> {
    match call.int(0) {
        0 => Ok(TimerId::Real),
        1 => Ok(TimerId::Virtual),
        2 => Ok(TimerId::Profiling),
        _ => Err(Errno::EINVAL),
    }
}

async fn put(call: &Call<'_>, index: usize, state: TimerState) -> Result<u64> {
    // A timer that is armed never says 0, which would mean the opposite.
    let left = if state.left == 0 { 0 } else { state.left.max(1000) };
    let report = Itimerval { interval: Timeval::from_ns(state.interval), value: Timeval::from_ns(left) };
    call.put_if(call.pointer(index), &report).await?;
    Ok(0)
}
