//! How a thread is scheduled.

use abi::CpuSet;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// What sched_setaffinity, setpriority and sched_setscheduler change of a thread, and what prctl (PR_SET_NAME) or a write to
/// /proc/PID/comm does, which goes the same way.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum SchedulingChange {
    /// sched_setaffinity. EINVAL if none of the CPUs is there.
    Affinity(CpuSet),
    /// setpriority: from -20 to 19.
    Nice(i8),
    /// sched_setscheduler: SCHED_* and the real-time priority.
    Policy(u32, u32),
    /// sched_setattr with SCHED_DEADLINE: the policy word, which may have SCHED_RESET_ON_FORK, and what is reserved.
    Deadline(u32, DeadlineParameters),
    /// The thread's name, which /proc/PID/comm shows.
    Name(Vec<u8>),
    /// Changes nothing; the answer tells what holds.
    Read,
}

/// What sched_setattr reserves for a thread: `runtime` <= `deadline` <= `period`, in ns. All zero: nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadlineParameters {
    /// It may run for so long in each period.
    pub runtime: u64,
    /// By so long after the beginning of the period it is to have had that.
    pub deadline: u64,
    /// From the beginning of one period to that of the next.
    pub period: u64,
    /// SCHED_FLAG_DL_OVERRUN: it gets SIGXCPU when it has used up its runtime.
    pub overrun_signal: bool,
}

/// How a thread is scheduled.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Scheduling {
    /// sched_getaffinity.
    pub affinity: CpuSet,
    /// getpriority: from -20 to 19.
    pub nice: i8,
    /// sched_getscheduler and sched_getparam: SCHED_*, with SCHED_RESET_ON_FORK if that is set, and the real-time priority.
    pub policy: (u32, u32),
    /// Of SCHED_DEADLINE.
    pub deadline: DeadlineParameters,
}

/// Scheduling parameters of a main thread that has exited: as long as its process exists, sched_getaffinity and its like
/// read and set them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LastSchedulingParameters {
    /// Its real user id, for the permission to change it.
    pub uid: u32,
    /// Its effective user id, for the same.
    pub euid: u32,
    /// sched_getaffinity.
    pub affinity: CpuSet,
    /// getpriority: from -20 to 19.
    pub nice: i8,
    /// sched_getscheduler and sched_getparam: SCHED_* and the real-time priority.
    pub policy: (u32, u32),
}
