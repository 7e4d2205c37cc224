//! POSIX timers: timer_create and its kin (man 2 timer_create). The timers themselves are crate `process`'s.

use super::{
    clock::{is_alarm, Clock},
    Itimerspec, Timespec,
};
use crate::call::Call;
use abi::signal::Signal;
use machine::{errno::Result, Errno, Pid};
use messages::timer::{Notify, TimerClock, TimerId, TimerOp, TimerState};
use zerocopy::{FromBytes, IntoBytes};

const SIGEV_SIGNAL: i32 = 0;
const SIGEV_NONE: i32 = 1;
const SIGEV_THREAD: i32 = 2;
const SIGEV_THREAD_ID: i32 = 4;
const TIMER_ABSTIME: u64 = 1;

/// `struct sigevent`.
#[derive(Clone, Copy, FromBytes, IntoBytes)]
#[repr(C)]
struct SigEvent {
    value: u64,
    signal: i32,
    notify: i32,
    thread: i32,
    padding: [i32; 11],
}

impl SigEvent {
    fn to_notify(self) -> Result<Notify> {
        let thread = match self.notify {
            SIGEV_NONE => return Ok(Notify::None),
            // glibc makes the thread of SIGEV_THREAD by itself, with SIGEV_THREAD_ID.
            SIGEV_SIGNAL | SIGEV_THREAD => None,
            notify if notify == SIGEV_SIGNAL | SIGEV_THREAD_ID => {
                Some(Pid(u32::try_from(self.thread).map_err(|_| Errno::EINVAL)?))
            }
            _ => return Err(Errno::EINVAL),
        };
        let signal = u64::try_from(self.signal).ok().and_then(Signal::new).ok_or(Errno::EINVAL)?;
        Ok(Notify::Signal { number: signal.number(), thread, value: Some(self.value) })
    }
}

pub(crate) async fn timer_create(call: &mut Call<'_>) -> Result<u64> {
    let event: Option<SigEvent> = match call.pointer(1) {
        at if at.is_null() => None,
        at => Some(call.get(at).await?),
    };
    let clock = timer_clock(call).await;
    if call.int(0) >= 0 && !is_alarm(call.int(0)) {
        clock.as_ref().map_err(|error| *error)?;
    }
    let notify = match event {
        None => Notify::Signal { number: Signal::ALRM.number(), thread: None, value: None },
        Some(event) => event.to_notify()?,
    };
    if clock.is_err() {
        // The timer's number is told before the clock of a process is looked at.
        call.put(call.pointer(2), &0u32).await?;
    }
    let made = call.process().timer(TimerOp::Create { clock: clock?, notify }).await?;
    if let Err(error) = call.put(call.pointer(2), &made.number).await {
        call.process().timer(TimerOp::Delete { id: TimerId::Posix(made.number) }).await?;
        return Err(error);
    }
    Ok(0)
}

async fn timer_clock(call: &Call<'_>) -> Result<TimerClock> {
    if is_alarm(call.int(0)) {
        return Err(Errno::EOPNOTSUPP);
    }
    Ok(match (call.int(0), Clock::of(call.int(0))?) {
        (0 | 11, _) => TimerClock::Realtime,
        (1 | 7, _) => TimerClock::Monotonic,
        (_, Clock::ProcessCpu(pid)) if pid.is_none_or(|pid| pid == call.process().id) => TimerClock::Process,
        (_, Clock::ProcessUser(pid)) if pid.is_none_or(|pid| pid == call.process().id) => TimerClock::ProcessUser,
        (_, Clock::ThreadCpu(tid)) => TimerClock::Thread(tid.unwrap_or(call.thread.tid)),
        (_, clock @ Clock::ProcessCpu(pid)) => {
            clock.check(call).await?;
            TimerClock::Other(pid.unwrap_or(call.process().id))
        }
        // The raw and the coarse clocks have no timers.
        _ => return Err(Errno::EOPNOTSUPP),
    })
}

fn id(call: &Call<'_>) -> TimerId {
    TimerId::Posix(call.int(0))
}

fn told(state: TimerState) -> Itimerspec {
    Itimerspec { interval: Timespec::from_ns(state.interval), value: Timespec::from_ns(state.left) }
}

pub(crate) async fn timer_settime(call: &mut Call<'_>) -> Result<u64> {
    if call.pointer(2).is_null() {
        return Err(Errno::EINVAL);
    }
    let new: Itimerspec = call.get(call.pointer(2)).await?;
    let (value, interval) = (new.value.to_ns()?, new.interval.to_ns()?);
    let absolute = call.arg(1) & TIMER_ABSTIME != 0;
    let old = call.process().timer(TimerOp::Set { id: id(call), absolute, value, interval }).await?;
    call.put_if(call.pointer(3), &told(old)).await?;
    Ok(0)
}

pub(crate) async fn timer_gettime(call: &mut Call<'_>) -> Result<u64> {
    let now = call.process().timer(TimerOp::Get { id: id(call) }).await?;
    call.put(call.pointer(1), &told(now)).await?;
    Ok(0)
}

pub(crate) async fn timer_getoverrun(call: &mut Call<'_>) -> Result<u64> {
    let state = call.process().timer(TimerOp::Overrun { id: id(call) }).await?;
    Ok(state.overrun as u64)
}

pub(crate) async fn timer_delete(call: &mut Call<'_>) -> Result<u64> {
    call.process().timer(TimerOp::Delete { id: id(call) }).await?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sigevent_needs_a_signal_and_a_way_that_exists() {
        let event = SigEvent { value: 7, signal: 10, notify: SIGEV_SIGNAL, thread: 5, padding: [0; 11] };
        let signal = |thread| Ok(Notify::Signal { number: 10, thread, value: Some(7) });
        assert_eq!(event.to_notify(), signal(None));
        assert_eq!(SigEvent { notify: SIGEV_THREAD_ID, ..event }.to_notify(), signal(Some(Pid(5))));
        assert_eq!(SigEvent { notify: SIGEV_NONE, signal: 0, ..event }.to_notify(), Ok(Notify::None));
        for signal in [-1, 0, 65] {
            assert_eq!(SigEvent { signal, ..event }.to_notify(), Err(Errno::EINVAL));
        }
        assert_eq!(SigEvent { notify: 3, ..event }.to_notify(), Err(Errno::EINVAL));
        assert_eq!(SigEvent { notify: SIGEV_THREAD_ID, thread: -1, ..event }.to_notify(), Err(Errno::EINVAL));
    }
}
