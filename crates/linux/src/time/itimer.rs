//! alarm and setitimer (man 2 setitimer). A timer is a kernel task that sleeps and signals; setting it again
//! starts a new one, and the old one finds that its number is no longer the newest.

use super::{Timeval, SECOND};
use crate::call::Call;
use abi::signal::{Signal, SignalInfo};
use alloc::{collections::BTreeMap, sync::Arc};
use machine::{errno::Result, sync::Lock, Errno, Pid};
use process::{System, Target};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// `struct itimerval`.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Itimerval {
    interval: Timeval,
    value: Timeval,
}

#[derive(Clone, Copy, Default)]
struct Setting {
    generation: u64,
    /// ns of the monotonic clock; 0: off.
    next: u64,
    interval: u64,
}

/// ITIMER_REAL of every process that set one on this kernel.
#[derive(Default)]
pub(crate) struct RealTimers(Lock<BTreeMap<Pid, Setting>>);

impl RealTimers {
    /// Sets the timer; answers (time left, interval) of the old one.
    fn set(self: &Arc<Self>, system: &Arc<System>, process: Pid, value: u64, interval: u64) -> (u64, u64) {
        let now = system.now();
        let (old, generation) = {
            let mut timers = self.0.lock();
            let setting = timers.entry(process).or_default();
            let old = *setting;
            let next = if value == 0 { 0 } else { now.saturating_add(value) };
            *setting = Setting { generation: old.generation + 1, next, interval };
            (old, old.generation + 1)
        };
        if value != 0 {
            let (timers, system) = (self.clone(), system.clone());
            system.clone().scheduler.spawn(async move { timers.run(&system, process, generation).await });
        }
        (left(&old, now), old.interval)
    }

    fn get(&self, process: Pid, now: u64) -> (u64, u64) {
        let timers = self.0.lock();
        timers.get(&process).map_or((0, 0), |setting| (left(setting, now), setting.interval))
    }

    async fn run(&self, system: &Arc<System>, process: Pid, generation: u64) {
        loop {
            let next = match self.0.lock().get(&process) {
                Some(setting) if setting.generation == generation && setting.next != 0 => setting.next,
                _ => return,
            };
            system.scheduler.sleep_until(next).await;
            {
                let mut timers = self.0.lock();
                let Some(setting) = timers.get_mut(&process) else { return };
                if setting.generation != generation {
                    return;
                }
                let late = system.now().saturating_sub(next);
                setting.next = match setting.interval {
                    0 => 0,
                    // Periods that were missed are not made up for.
                    interval => next + (late / interval + 1) * interval,
                };
            }
            let info = SignalInfo::kernel(Signal::ALRM);
            if system.signal(Target::Process(process), Some(info), None, process).await.is_err() {
                self.0.lock().remove(&process);
                return;
            }
        }
    }
}

fn left(setting: &Setting, now: u64) -> u64 {
    match setting.next {
        0 => 0,
        // A timer that is due but has not fired yet still has some time.
        next => next.saturating_sub(now).max(1000),
    }
}

/// Whole seconds left of the old alarm, rounded to the nearest but never to 0.
pub(crate) async fn alarm(call: &mut Call<'_>) -> Result<u64> {
    let seconds = u64::from(call.arg(0) as u32);
    let timers = call.system().extension::<RealTimers>();
    let (left, _) = timers.set(call.system(), call.process().id, seconds * SECOND, 0);
    Ok(match left {
        0 => 0,
        left => ((left + SECOND / 2) / SECOND).max(1),
    })
}

pub(crate) async fn setitimer(call: &mut Call<'_>) -> Result<u64> {
    let which = call.int(0);
    let new: Itimerval = match call.pointer(1) {
        at if at.is_null() => Itimerval::default(),
        at => call.get(at).await?,
    };
    let (value, interval) = (new.value.to_ns()?, new.interval.to_ns()?);
    let timers = real(call, which)?;
    let old = timers.set(call.system(), call.process().id, value, interval);
    put(call, 2, old).await
}

pub(crate) async fn getitimer(call: &mut Call<'_>) -> Result<u64> {
    let timers = real(call, call.int(0))?;
    let old = timers.get(call.process().id, call.system().now());
    put(call, 1, old).await
}

/// Only ITIMER_REAL; the two CPU-time timers are missing.
fn real(call: &Call<'_>, which: i32) -> Result<Arc<RealTimers>> {
    match which {
        0 => Ok(call.system().extension::<RealTimers>()),
        1 | 2 => Err(crate::table::unsupported(call, "a CPU-time itimer", Errno::EINVAL)),
        _ => Err(Errno::EINVAL),
    }
}

async fn put(call: &Call<'_>, index: usize, (left, interval): (u64, u64)) -> Result<u64> {
    let report = Itimerval { interval: Timeval::from_ns(interval), value: Timeval::from_ns(left) };
    call.put_if(call.pointer(index), &report).await?;
    Ok(0)
}
