//! Timers of a process, which live at its home, and barriers between its threads.

use machine::{errno, Pid, SpaceId};
use serde::{Deserialize, Serialize};

/// Which timer of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum TimerId {
    /// One that timer_create(2) made.
    Posix(i32),
    /// The three of setitimer(2).
    Real,
    /// ITIMER_VIRTUAL.
    Virtual,
    /// ITIMER_PROF.
    Profiling,
    /// RLIMIT_CPU.
    Limit,
}

/// What a timer counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TimerClock {
    /// CLOCK_REALTIME: follows changes of the clock.
    Realtime,
    /// CLOCK_MONOTONIC.
    Monotonic,
    /// User and system time of all threads.
    Process,
    /// User time of all threads.
    ProcessUser,
    /// User and system time of one thread of the process.
    Thread(Pid),
    /// The CPU time of another process.
    Other(Pid),
}

/// What happens when it expires (man 3type sigevent).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Notify {
    /// SIGEV_NONE.
    None,
    /// `value` None: the timer's number.
    Signal {
        /// Signal number.
        number: u8,
        /// SIGEV_THREAD_ID; None: the process gets it.
        thread: Option<Pid>,
        /// `sigev_value`.
        value: Option<u64>,
    },
}

/// What is asked of a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TimerOp {
    /// timer_create(2). Answers its number.
    Create {
        /// What it counts.
        clock: TimerClock,
        /// What happens when it expires.
        notify: Notify,
    },
    /// ns; a value of 0 disarms. Answers what held before.
    Set {
        /// The timer that is armed or disarmed.
        id: TimerId,
        /// `value` is a time of its clock (TIMER_ABSTIME), not a distance from now.
        absolute: bool,
        /// First expiration.
        value: u64,
        /// Distance between further expirations; 0: it expires once.
        interval: u64,
    },
    /// timer_gettime(2), getitimer(2).
    Get {
        /// The timer whose remaining time is asked for.
        id: TimerId,
    },
    /// timer_getoverrun(2): the expirations that the last signal stood for beside its own.
    Overrun {
        /// The timer whose signal came last.
        id: TimerId,
    },
    /// A thread has taken the timer's signal from its queue.
    Taken {
        /// The timer that sent the signal.
        id: TimerId,
        /// What timer_getoverrun(2) is to answer until the next signal.
        overrun: i32,
    },
    /// timer_delete(2).
    Delete {
        /// The timer that goes.
        id: TimerId,
    },
    /// execve: deletes the timers of timer_create, and keeps those of setitimer.
    DeleteAll,
}

/// What a [`TimerOp`] answers; fields that it is not about are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimerState {
    /// The number a new timer got.
    pub number: i32,
    /// ns until it expires; 0: disarmed.
    pub left: u64,
    /// ns between further expirations; 0: it expires once.
    pub interval: u64,
    /// timer_getoverrun(2).
    pub overrun: i32,
}

messages! {
    "timer" 0x600;

    /// Makes, sets or asks a timer of a process, at its home.
    timer: TimerCall {
        /// The process whose timer it is.
        process: Pid,
        /// What is to be done.
        op: TimerOp,
    } -> errno::Result<TimerState>, Low;

    /// membarrier(2): answered once every CPU of the receiver that runs in the space (or, without one, in any
    /// space) has been in the kernel since the question; with `aborts`, also out of the restartable sequence it was in.
    barrier: Barrier {
        /// The address space; None: any.
        space: Option<SpaceId>,
        /// MEMBARRIER_CMD_*_RSEQ.
        aborts: bool,
    } -> (), High;

    /// pidfd_open(2) on another kernel: answered when the process, which is at home here, has ended.
    ended: AwaitEnd {
        /// The process that the pidfd stands for.
        process: Pid,
    } -> errno::Result<()>, Low;
}
