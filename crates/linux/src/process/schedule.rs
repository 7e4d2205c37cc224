//! Scheduling and affinity (man 7 sched, man 2 sched_setaffinity).

use crate::call::Call;
use abi::CpuSet;
use alloc::{sync::Arc, vec::Vec};
use machine::{errno::Result, Errno, Pid};
use messages::{
    inspect::{Inspect, Inspection, ProcessView},
    process::{DeadlineParameters, Scheduling, SchedulingChange},
};
use process::RESET_ON_FORK;
use sched::{Class, Scheduler};
use zerocopy::{FromBytes, Immutable, IntoBytes};

const OTHER: u32 = 0;
const FIFO: u32 = 1;
const RR: u32 = 2;
const BATCH: u32 = 3;
const IDLE: u32 = 5;
const DEADLINE: u32 = 6;
/// SCHED_FLAG_* of sched_setattr. Not SCHED_FLAG_RECLAIM: nobody gets what others have reserved.
const FLAG_RESET_ON_FORK: u64 = 1;
const FLAG_OVERRUN: u64 = 4;
const FLAG_KEEP_POLICY: u64 = 8;
const FLAG_KEEP_PARAMETERS: u64 = 16;
const FLAGS: u64 = FLAG_RESET_ON_FORK | FLAG_OVERRUN | FLAG_KEEP_POLICY | FLAG_KEEP_PARAMETERS;
/// What a period may be, in us (`sched_deadline_period_min_us` and its like).
const PERIOD_US: core::ops::RangeInclusive<u64> = 100..=1 << 22;
/// Less run time is no reservation (ns).
const LEAST_RUNTIME: u64 = 1 << 10;

/// The thread a pid argument means; 0 is the caller.
fn thread_of(call: &Call<'_>, pid: i32) -> Result<Pid> {
    match pid {
        0 => Ok(call.thread.tid),
        pid if pid < 0 => Err(Errno::EINVAL),
        pid => Ok(Pid(pid as u32)),
    }
}

async fn change_scheduling(call: &Call<'_>, thread: Pid, change: SchedulingChange) -> Result<Scheduling> {
    let sender = call.thread.state.lock().credentials.clone();
    Arc::clone(call.system()).change_scheduling(thread, change, sender).await
}

pub(crate) async fn sched_setaffinity(call: &mut Call<'_>) -> Result<u64> {
    let len = (call.arg(1) as u32 as usize).min(8192);
    let mask = call.bytes(call.pointer(2), len, 8192).await?;
    let thread = thread_of(call, call.int(0)).map_err(|_| Errno::ESRCH)?;
    change_scheduling(call, thread, SchedulingChange::Affinity(CpuSet::from_bytes(&mask))).await?;
    Ok(0)
}

/// Answers the bytes written, at least a mask word.
pub(crate) async fn sched_getaffinity(call: &mut Call<'_>) -> Result<u64> {
    // An unsigned int counts the bits.
    let len = call.arg(1) as u32 as usize;
    let highest = call.system().all_cpus().iter().last().map_or(0, |cpu| cpu.0 as usize);
    if (len as u32).wrapping_mul(8) as usize <= highest || !len.is_multiple_of(8) {
        return Err(Errno::EINVAL);
    }
    let thread = thread_of(call, call.int(0)).map_err(|_| Errno::ESRCH)?;
    let Scheduling { affinity, .. } = change_scheduling(call, thread, SchedulingChange::Read).await?;
    let size = len.min((highest / 64 + 1) * 8);
    let mask = affinity.intersect(&call.system().all_cpus()).to_bytes(size);
    call.space().write(call.pointer(2), &mask).await?;
    Ok(size as u64)
}

pub(crate) async fn sched_yield(call: &mut Call<'_>) -> Result<u64> {
    call.system().scheduler.yield_thread().await;
    Ok(0)
}

fn check_policy(policy: u32, priority: u32) -> Result<()> {
    match (policy, priority) {
        (OTHER | BATCH | IDLE, 0) | (FIFO | RR, 1..=99) => Ok(()),
        _ => Err(Errno::EINVAL),
    }
}

async fn set_policy(call: &Call<'_>, pid: i32, policy: u32, priority: u32) -> Result<u64> {
    let thread = thread_of(call, pid)?;
    // Who is meant comes before what is asked for.
    change_scheduling(call, thread, SchedulingChange::Read).await?;
    check_policy(policy & !RESET_ON_FORK, priority)?;
    change_scheduling(call, thread, SchedulingChange::Policy(policy, priority)).await?;
    Ok(0)
}

pub(crate) async fn sched_setscheduler(call: &mut Call<'_>) -> Result<u64> {
    if call.pointer(2).is_null() {
        return Err(Errno::EINVAL);
    }
    if call.int(1) < 0 || call.int(0) < 0 {
        return Err(Errno::EINVAL);
    }
    let priority: u32 = call.get(call.pointer(2)).await?;
    set_policy(call, call.int(0), call.arg(1) as u32, priority).await
}

pub(crate) async fn sched_setparam(call: &mut Call<'_>) -> Result<u64> {
    if call.pointer(1).is_null() || call.int(0) < 0 {
        return Err(Errno::EINVAL);
    }
    let priority: u32 = call.get(call.pointer(1)).await?;
    let thread = thread_of(call, call.int(0))?;
    let Scheduling { policy: (policy, _), .. } = change_scheduling(call, thread, SchedulingChange::Read).await?;
    set_policy(call, call.int(0), policy, priority).await
}

pub(crate) async fn sched_getscheduler(call: &mut Call<'_>) -> Result<u64> {
    let thread = thread_of(call, call.int(0))?;
    let Scheduling { policy: (policy, _), .. } = change_scheduling(call, thread, SchedulingChange::Read).await?;
    Ok(u64::from(policy))
}

pub(crate) async fn sched_getparam(call: &mut Call<'_>) -> Result<u64> {
    if call.pointer(1).is_null() {
        return Err(Errno::EINVAL);
    }
    let thread = thread_of(call, call.int(0))?;
    let Scheduling { policy: (_, priority), .. } = change_scheduling(call, thread, SchedulingChange::Read).await?;
    call.put(call.pointer(1), &priority).await?;
    Ok(0)
}

/// What SCHED_DEADLINE reserves, if it can be (man 7 sched).
fn reserved(attr: &SchedAttr) -> Result<DeadlineParameters> {
    let SchedAttr { runtime, deadline, period, .. } = *attr;
    let period = if period == 0 { deadline } else { period };
    let is_in_order = runtime >= LEAST_RUNTIME && runtime <= deadline && deadline <= period;
    let is_allowed = (PERIOD_US.start() * 1000..=PERIOD_US.end() * 1000).contains(&period);
    match attr.priority == 0 && deadline != 0 && is_in_order && is_allowed {
        true => Ok(DeadlineParameters { runtime, deadline, period, overrun_signal: attr.flags & FLAG_OVERRUN != 0 }),
        false => Err(Errno::EINVAL),
    }
}

/// `struct sched_attr`, version 0.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// A structure of any size since the first; what is longer than ours must be zero there. E2BIG tells ours.
async fn attributes(call: &Call<'_>) -> Result<SchedAttr> {
    const OURS: usize = core::mem::size_of::<SchedAttr>();
    let at = call.pointer(1);
    let size = match call.get::<u32>(at).await? {
        // Of the first version, which is ours.
        0 => OURS,
        size => size as usize,
    };
    if (OURS..=machine::PAGE_SIZE).contains(&size) {
        let rest = call.bytes(at.add(OURS), size - OURS, machine::PAGE_SIZE).await?;
        if rest.iter().all(|&byte| byte == 0) {
            return call.get(at).await;
        }
    }
    call.put(at, &(OURS as u32)).await?;
    Err(Errno::E2BIG)
}

pub(crate) async fn sched_setattr(call: &mut Call<'_>) -> Result<u64> {
    if call.pointer(1).is_null() || call.int(0) < 0 || call.arg(2) as u32 != 0 {
        return Err(Errno::EINVAL);
    }
    let mut attr = attributes(call).await?;
    if attr.policy > i32::MAX as u32 {
        return Err(Errno::EINVAL);
    }
    let thread = thread_of(call, call.int(0))?;
    let now = change_scheduling(call, thread, SchedulingChange::Read).await?;
    if attr.flags & !FLAGS != 0 {
        return Err(Errno::EINVAL);
    }
    let mut flag = if attr.flags & FLAG_RESET_ON_FORK != 0 { RESET_ON_FORK } else { 0 };
    if attr.flags & FLAG_KEEP_PARAMETERS != 0 {
        match now.policy.0 & !RESET_ON_FORK {
            DEADLINE => {
                let DeadlineParameters { runtime, deadline, period, overrun_signal } = now.deadline;
                (attr.runtime, attr.deadline, attr.period) = (runtime, deadline, period);
                attr.flags &= !FLAG_OVERRUN;
                attr.flags |= if overrun_signal { FLAG_OVERRUN } else { 0 };
            }
            FIFO | RR => attr.priority = now.policy.1,
            _ => attr.nice = now.nice.into(),
        }
    }
    if attr.flags & FLAG_KEEP_POLICY != 0 {
        (attr.policy, flag) = (now.policy.0 & !RESET_ON_FORK, now.policy.0 & RESET_ON_FORK);
    }
    if attr.policy == DEADLINE {
        let change = SchedulingChange::Deadline(DEADLINE | flag, reserved(&attr)?);
        change_scheduling(call, thread, change).await?;
        return Ok(0);
    }
    set_policy(call, call.int(0), attr.policy | flag, attr.priority).await?;
    if matches!(attr.policy, OTHER | BATCH) {
        let nice = SchedulingChange::Nice(attr.nice.clamp(-20, 19) as i8);
        // EACCES is setpriority's.
        change_scheduling(call, thread, nice).await.map_err(|error| {
            if error == Errno::EACCES {
                Errno::EPERM
            } else {
                error
            }
        })?;
    }
    Ok(0)
}

pub(crate) async fn sched_getattr(call: &mut Call<'_>) -> Result<u64> {
    if call.pointer(1).is_null() {
        return Err(Errno::EINVAL);
    }
    let size = core::mem::size_of::<SchedAttr>();
    let room = call.arg(2) as u32 as usize;
    if room < size || room > machine::PAGE_SIZE || call.arg(3) as u32 != 0 {
        return Err(Errno::EINVAL);
    }
    let thread = thread_of(call, call.int(0))?;
    let now = change_scheduling(call, thread, SchedulingChange::Read).await?;
    let (policy, priority) = now.policy;
    let DeadlineParameters { runtime, deadline, period, overrun_signal } = now.deadline;
    let flag = |is_set, flag| if is_set { flag } else { 0 };
    let flags = flag(policy & RESET_ON_FORK != 0, FLAG_RESET_ON_FORK) | flag(overrun_signal, FLAG_OVERRUN);
    let (policy, nice) = (policy & !RESET_ON_FORK, now.nice.into());
    let attr = SchedAttr { size: size as u32, policy, flags, nice, priority, runtime, deadline, period };
    call.put(call.pointer(1), &attr).await?;
    Ok(0)
}

pub(crate) async fn sched_get_priority_max(call: &mut Call<'_>) -> Result<u64> {
    match call.arg(0) as u32 {
        FIFO | RR => Ok(99),
        OTHER | BATCH | IDLE | DEADLINE => Ok(0),
        _ => Err(Errno::EINVAL),
    }
}

pub(crate) async fn sched_get_priority_min(call: &mut Call<'_>) -> Result<u64> {
    match call.arg(0) as u32 {
        FIFO | RR => Ok(1),
        OTHER | BATCH | IDLE | DEADLINE => Ok(0),
        _ => Err(Errno::EINVAL),
    }
}

pub(crate) async fn sched_rr_get_interval(call: &mut Call<'_>) -> Result<u64> {
    let thread = thread_of(call, call.int(0))?;
    let now = change_scheduling(call, thread, SchedulingChange::Read).await?;
    let interval = match now.policy.0 & !RESET_ON_FORK {
        FIFO | DEADLINE => 0,
        RR => Scheduler::interval(Class::RoundRobin(now.policy.1 as u8)),
        _ => Scheduler::interval(Class::Normal(now.nice)),
    };
    call.put(call.pointer(1), &[0, interval]).await?;
    Ok(0)
}

/// `which` of a process group.
const PRIO_PGRP: i32 = 1;

/// The threads that getpriority and setpriority mean: PRIO_PROCESS 0, PGRP 1, USER 2.
async fn meant(call: &Call<'_>) -> Result<Vec<Pid>> {
    let who = call.int(1);
    match (call.arg(0) as u32, who) {
        (0, who) => Ok([thread_of(call, who).map_err(|_| Errno::ESRCH)?].into()),
        (1, who) => {
            let group = match who {
                0 => call.process().with_shared(|shared| shared.group),
                who => Pid(who as u32),
            };
            Ok(all_threads(call, |process| process.shared.group == group).await)
        }
        (2, who) => {
            let uid = match who {
                0 => call.caller().credentials.uid,
                who => who as u32,
            };
            Ok(all_threads(call, |process| process.credentials.uid == uid).await)
        }
        _ => Err(Errno::EINVAL),
    }
}

/// The threads of the processes that `wanted` says, of all kernels; the oldest process first.
async fn all_threads(call: &Call<'_>, wanted: impl Fn(&ProcessView) -> bool) -> Vec<Pid> {
    let mut processes = Vec::new();
    for process in call.system().list().await {
        let sees = call.caller().credentials;
        // One that has ended meanwhile has none.
        if let Ok(Inspection::View(view)) = call.system().inspect(process, Inspect::View, sees).await {
            if wanted(&view) {
                let mut threads: Vec<Pid> = view.threads.iter().map(|thread| thread.thread).collect();
                // The main thread counts also when it has ended.
                if !threads.contains(&process) {
                    threads.push(process);
                }
                // Ids don't tell the age: each kernel gives its own.
                let started = view.threads.iter().map(|thread| thread.started).min();
                processes.push((started.unwrap_or(0), threads));
            }
        }
    }
    processes.sort_by_key(|(started, _)| *started);
    processes.into_iter().flat_map(|(_, threads)| threads).collect()
}

/// Answers 20 - nice, as the raw call does.
pub(crate) async fn getpriority(call: &mut Call<'_>) -> Result<u64> {
    let mut best: Option<i64> = None;
    for thread in meant(call).await? {
        if let Ok(Scheduling { nice, .. }) = change_scheduling(call, thread, SchedulingChange::Read).await {
            best = best.max(Some(20 - i64::from(nice)));
        }
    }
    best.map(|value| value as u64).ok_or(Errno::ESRCH)
}

pub(crate) async fn setpriority(call: &mut Call<'_>) -> Result<u64> {
    let nice = call.int(2).clamp(-20, 19) as i8;
    let mut threads = meant(call).await?;
    if call.int(0) == PRIO_PGRP {
        // Of several refusals the last one counts, and Linux has the youngest member of a group first.
        threads.reverse();
    }
    let mut result = Err(Errno::ESRCH);
    for thread in threads {
        match change_scheduling(call, thread, SchedulingChange::Nice(nice)).await {
            // Of several the last refusal is told, though others were changed.
            Ok(_) if result == Err(Errno::ESRCH) => result = Ok(0),
            Ok(_) | Err(Errno::ESRCH) => {}
            Err(error) => result = Err(error),
        }
    }
    result
}
