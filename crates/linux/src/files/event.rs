//! eventfd, timerfd, memfd (man 2 eventfd, timerfd_create, memfd_create).

use crate::{
    call::Call,
    time::{clock::is_alarm, Itimerspec, Timespec},
};
use alloc::{boxed::Box, sync::Arc};
use fs::{
    control::{Control, ControlAnswer},
    event::{EventFd, TimerFd, Timers},
    OpenFlags,
};
use machine::{errno::Result, BoxFuture, Errno};
use process::System;
use sched::KernelTasks;

const TFD_TIMER_ABSTIME: u64 = 1;
const TFD_TIMER_CANCEL_ON_SET: u64 = 2;
const MFD_CLOEXEC: u32 = 1;
const MFD_HUGETLB: u32 = 4;
const MFD_NOEXEC_SEAL: u32 = 8;
const MFD_EXEC: u32 = 0x10;
const MFD_KNOWN: u32 = 0x1f;
/// What may go with MFD_HUGETLB.
const MFD_HUGE_SIZE: u32 = 0x3f << 26;
/// Longest name of a memfd, without its prefix.
const MEMFD_NAME_MAX: usize = 249;

pub(crate) async fn eventfd(call: &mut Call<'_>) -> Result<u64> {
    call.install(EventFd::new(call.arg(0) as u32, 0)?, false).await
}

pub(crate) async fn eventfd2(call: &mut Call<'_>) -> Result<u64> {
    let flags = call.arg(1) as u32;
    let close_on_exec = flags & OpenFlags::CLOEXEC.bits() != 0;
    call.install(EventFd::new(call.arg(0) as u32, flags)?, close_on_exec).await
}

/// A clock of the machine, for one timer.
struct SystemTimers {
    system: Arc<System>,
    realtime: bool,
}

impl SystemTimers {
    /// What this clock is ahead of the monotonic one.
    fn ahead(&self) -> u64 {
        if self.realtime {
            self.system.realtime_offset()
        } else {
            0
        }
    }
}

impl Timers for SystemTimers {
    fn now(&self) -> u64 {
        self.system.now() + self.ahead()
    }

    fn at(&self, ns: u64) -> BoxFuture<'static, ()> {
        let scheduler = self.system.scheduler.clone();
        let at = ns.saturating_sub(self.ahead());
        Box::pin(async move { scheduler.sleep_until(at).await })
    }
}

pub(crate) async fn timerfd_create(call: &mut Call<'_>) -> Result<u64> {
    let flags = OpenFlags::from_bits_retain(call.arg(1) as u32);
    // Only what can be slept on: realtime, monotonic, boottime, and their alarm kinds.
    if !matches!(call.int(0), 0 | 1 | 7 | 8 | 9) || !(OpenFlags::CLOEXEC | OpenFlags::NONBLOCK).contains(flags) {
        return Err(Errno::EINVAL);
    }
    if is_alarm(call.int(0)) && !call.can(abi::capability::WAKE_ALARM) {
        return Err(Errno::EPERM);
    }
    let system = call.system();
    let timers = Arc::new(SystemTimers { system: system.clone(), realtime: matches!(call.int(0), 0 | 8) });
    let timer = TimerFd::new(timers, Arc::new(KernelTasks(system.scheduler.clone())), flags)?;
    call.install(timer, flags.contains(OpenFlags::CLOEXEC)).await
}

pub(crate) async fn timerfd_settime(call: &mut Call<'_>) -> Result<u64> {
    let flags = call.arg(1);
    let new: Itimerspec = call.get(call.pointer(2)).await?;
    super::check_flags(flags, TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET)?;
    let (value, interval) = (new.value.to_ns()?, new.interval.to_ns()?);
    let file = call.file(0).await?;
    let absolute = flags & TFD_TIMER_ABSTIME != 0;
    let old = file.control(&call.caller(), Control::TimerSet { absolute, value, interval }).await?;
    if !call.pointer(3).is_null() {
        call.put(call.pointer(3), &told(old)?).await?;
    }
    Ok(0)
}

pub(crate) async fn timerfd_gettime(call: &mut Call<'_>) -> Result<u64> {
    let file = call.file(0).await?;
    let now = file.control(&call.caller(), Control::TimerGet).await?;
    call.put(call.pointer(1), &told(now)?).await?;
    Ok(0)
}

fn told(answer: ControlAnswer) -> Result<Itimerspec> {
    match answer {
        ControlAnswer::Timer { value, interval } => {
            Ok(Itimerspec { interval: Timespec::from_ns(interval), value: Timespec::from_ns(value) })
        }
        _ => Err(Errno::EIO),
    }
}

pub(crate) async fn memfd_create(call: &mut Call<'_>) -> Result<u64> {
    let flags = call.arg(1) as u32;
    if flags & !(MFD_KNOWN | if flags & MFD_HUGETLB != 0 { MFD_HUGE_SIZE } else { 0 }) != 0
        || flags & MFD_NOEXEC_SEAL != 0 && flags & MFD_EXEC != 0
    {
        return Err(Errno::EINVAL);
    }
    let name = call.space().read_c_string(call.pointer(0), MEMFD_NAME_MAX + 1).await.map_err(|error| match error {
        Errno::ENAMETOOLONG => Errno::EINVAL,
        error => error,
    })?;
    if flags & MFD_HUGETLB != 0 {
        // As Linux without huge pages in the pool.
        return Err(Errno::ENOMEM);
    }
    let file = fs::memfd(&call.system().services, &name, flags)?;
    call.install(file, flags & MFD_CLOEXEC != 0).await
}
