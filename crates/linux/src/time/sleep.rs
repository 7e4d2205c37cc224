//! nanosleep and clock_nanosleep.
//!
//! A relative sleep that a signal interrupts is restarted for the rest if no handler ran. The restart runs the
//! same call again, so the time at which the sleep was to end is kept with the thread until it ends.

use super::{
    clock::{is_alarm, Clock},
    Timespec,
};
use crate::call::Call;
use machine::{errno::Result, Errno, UserAddr};

const ABSOLUTE: u64 = 1;

pub(crate) async fn nanosleep(call: &mut Call<'_>) -> Result<u64> {
    let length: Timespec = call.get(call.pointer(0)).await?;
    relative(call, length.to_ns()?, call.pointer(1)).await
}

pub(crate) async fn clock_nanosleep(call: &mut Call<'_>) -> Result<u64> {
    let alarm = is_alarm(call.int(0));
    let clock = if alarm { Ok(Clock::Realtime) } else { Clock::of(call.int(0)) };
    if call.int(0) >= 0 {
        clock?;
    }
    // The raw and coarse clocks can't be slept on, nor a thread's own by its short name.
    if matches!(call.int(0), 3..=6) {
        return Err(Errno::EOPNOTSUPP);
    }
    let time: Timespec = call.get(call.pointer(2)).await?;
    let ns = time.to_ns()?;
    if alarm {
        return Err(Errno::EOPNOTSUPP);
    }
    // A clock of a process's time that is none is told after what is wrong with the time.
    let clock = clock?;
    if !matches!(clock, Clock::Realtime | Clock::Monotonic) {
        clock.check(call).await?;
        return Err(match clock {
            Clock::ThreadCpu(None) | Clock::ThreadUser(None) => Errno::EINVAL,
            _ => Errno::EOPNOTSUPP,
        });
    }
    if call.arg(1) & ABSOLUTE == 0 {
        return relative(call, ns, call.pointer(3)).await;
    }
    let deadline = match clock {
        Clock::Realtime => ns.saturating_sub(call.system().realtime_offset()),
        _ => ns,
    };
    match until(call, deadline).await {
        true => Ok(0),
        false => Err(Errno::RESTART_NO_HANDLER),
    }
}

/// True if the time was reached, false if interrupted.
async fn until(call: &Call<'_>, deadline: u64) -> bool {
    let sleep = call.system().scheduler.sleep_until(deadline);
    call.thread.interruptible(sleep).await.is_ok()
}

async fn relative(call: &Call<'_>, ns: u64, left_at: UserAddr) -> Result<u64> {
    let resumed = call.thread.state.lock().sleep_end.take();
    let deadline = resumed.unwrap_or_else(|| call.system().now().saturating_add(ns));
    if until(call, deadline).await {
        return Ok(0);
    }
    let left = deadline.saturating_sub(call.system().now());
    call.put_if(left_at, &Timespec::from_ns(left)).await?;
    call.thread.state.lock().sleep_end = Some(deadline);
    Err(Errno::RESTART_NO_HANDLER)
}
