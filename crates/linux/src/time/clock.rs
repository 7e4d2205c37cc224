//! Clocks (man 2 clock_gettime, gettimeofday).

use super::{Timespec, Timeval, SECOND};
use crate::call::Call;
use machine::{errno::Result, Errno, Pid};
use messages::process::Usage;

/// What a clock id of clock_gettime(2) reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clock {
    Realtime,
    Monotonic,
    ProcessCpu(Option<Pid>),
    ThreadCpu(Option<Pid>),
    /// Time in user mode only.
    ProcessUser(Option<Pid>),
    ThreadUser(Option<Pid>),
}

/// CLOCK_REALTIME_ALARM and CLOCK_BOOTTIME_ALARM, which would wake a sleeping machine: as on one whose clock can't, only timerfd has them.
pub(crate) fn is_alarm(id: i32) -> bool {
    matches!(id, 8 | 9)
}

impl Clock {
    pub fn of(id: i32) -> Result<Clock> {
        Ok(match id {
            0 | 5 | 11 => Clock::Realtime,
            1 | 4 | 6 | 7 => Clock::Monotonic,
            2 => Clock::ProcessCpu(None),
            3 => Clock::ThreadCpu(None),
            // clock_getcpuclockid, pthread_getcpuclockid: ~pid << 3, bit 2 for a thread, and which time: 0 and 2 all of it
            // (CPUCLOCK_PROF, in ticks on Linux, and CPUCLOCK_SCHED), 1 in user mode (CPUCLOCK_VIRT).
            id if id < 0 => {
                let pid = Some(Pid(!(id >> 3) as u32)).filter(|pid| pid.0 != 0);
                match id & 7 {
                    0 | 2 => Clock::ProcessCpu(pid),
                    1 => Clock::ProcessUser(pid),
                    4 | 6 => Clock::ThreadCpu(pid),
                    5 => Clock::ThreadUser(pid),
                    _ => return Err(Errno::EINVAL),
                }
            }
            _ => return Err(Errno::EINVAL),
        })
    }

    /// Nanoseconds on this clock.
    pub async fn now(self, call: &Call<'_>) -> Result<u64> {
        Ok(match self {
            Clock::Monotonic => call.system().now(),
            Clock::Realtime => call.system().realtime(),
            Clock::ProcessCpu(pid) => process_usage(call, pid).await?.cpu_ns(),
            Clock::ProcessUser(pid) => process_usage(call, pid).await?.user_ns,
            Clock::ThreadCpu(tid) => thread_usage(call, tid).await?.cpu_ns(),
            Clock::ThreadUser(tid) => thread_usage(call, tid).await?.user_ns,
        })
    }

    /// EINVAL if it is the clock of a process or thread that is not there.
    pub async fn check(self, call: &Call<'_>) -> Result<()> {
        match self {
            Clock::Realtime | Clock::Monotonic => Ok(()),
            _ => self.now(call).await.map(drop),
        }
    }
}

async fn process_usage(call: &Call<'_>, pid: Option<Pid>) -> Result<Usage> {
    let pid = pid.unwrap_or(call.process().id);
    Ok(call.system().usage_of(pid, None).await.map_err(|_| Errno::EINVAL)?.0)
}

async fn thread_usage(call: &Call<'_>, tid: Option<Pid>) -> Result<Usage> {
    match tid {
        None => Ok(call.thread.usage()),
        // Only threads of one's own process have clocks.
        Some(tid) => Ok(call.system().usage_of(call.process().id, Some(tid)).await.map_err(|_| Errno::EINVAL)?.0),
    }
}

pub(crate) async fn clock_gettime(call: &mut Call<'_>) -> Result<u64> {
    let now = Clock::of(call.int(0))?.now(call).await?;
    call.put(call.pointer(1), &Timespec::from_ns(now)).await?;
    Ok(0)
}

pub(crate) async fn clock_getres(call: &mut Call<'_>) -> Result<u64> {
    Clock::of(call.int(0))?.check(call).await?;
    // The coarse clocks are no coarser than the others.
    call.put_if(call.pointer(1), &Timespec { seconds: 0, nanoseconds: 1 }).await?;
    Ok(0)
}

/// Setting the machine's clock would not reach the other kernels: refused to everybody.
pub(crate) async fn clock_settime(call: &mut Call<'_>) -> Result<u64> {
    let clock = Clock::of(call.int(0))?;
    if call.int(0) > 0 {
        return Err(Errno::EINVAL);
    }
    let time: Timespec = call.get(call.pointer(1)).await?;
    if clock != Clock::Realtime {
        clock.check(call).await?;
        return Err(Errno::EPERM);
    }
    time.to_ns()?;
    can_be_set(time.seconds)?;
    Err(crate::table::unsupported(call, "setting the clock", Errno::EPERM))
}

/// EINVAL for a time that leaves less than thirty years until the clock overflows (Linux's TIME_SETTOD_SEC_MAX).
fn can_be_set(seconds: i64) -> Result<()> {
    if seconds <= 8_277_292_035 {
        Ok(())
    } else {
        Err(Errno::EINVAL)
    }
}

pub(crate) async fn settimeofday(call: &mut Call<'_>) -> Result<u64> {
    /// West or east of Greenwich, in minutes.
    const FARTHEST: i32 = 15 * 60;
    if !call.pointer(0).is_null() {
        let time: Timeval = call.get(call.pointer(0)).await?;
        time.to_ns()?;
        can_be_set(time.seconds)?;
    }
    if !call.pointer(1).is_null() {
        let [west, _]: [i32; 2] = call.get(call.pointer(1)).await?;
        if !(-FARTHEST..=FARTHEST).contains(&west) && call.can(abi::capability::SYS_TIME) {
            return Err(Errno::EINVAL);
        }
    }
    Err(crate::table::unsupported(call, "setting the clock", Errno::EPERM))
}

pub(crate) async fn gettimeofday(call: &mut Call<'_>) -> Result<u64> {
    let now = call.system().realtime();
    call.put_if(call.pointer(0), &Timeval::from_ns(now)).await?;
    // Time zone: UTC.
    call.put_if(call.pointer(1), &[0i32; 2]).await?;
    Ok(0)
}

pub(crate) async fn time(call: &mut Call<'_>) -> Result<u64> {
    let now = call.system().realtime() / SECOND;
    call.put_if(call.pointer(0), &now).await?;
    Ok(now)
}
