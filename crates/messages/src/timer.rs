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
    Virtual,
    Profiling,
    /// RLIMIT_CPU.
    Limit,
}

/// What a timer counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TimerClock {
    Realtime,
    Monotonic,
    /// User and system time of all threads.
    Process,
    /// User time of all threads.
    ProcessUser,
    Thread(Pid),
    /// The CPU time of another process.
    Other(Pid),
}

/// What happens when it expires (man 3type sigevent).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Notify {
    None,
    /// `value` None: the timer's number.
    Signal {
        number: u8,
        thread: Option<Pid>,
        value: Option<u64>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TimerOp {
    Create {
        clock: TimerClock,
        notify: Notify,
    },
    /// ns; a value of 0 disarms. Answers what held before.
    Set {
        id: TimerId,
        absolute: bool,
        value: u64,
        interval: u64,
    },
    Get {
        id: TimerId,
    },
    /// Expirations that the last signal stood for beside its own.
    Overrun {
        id: TimerId,
    },
    /// That signal has been taken from the queue of a thread.
    Taken {
        id: TimerId,
        overrun: i32,
    },
    Delete {
        id: TimerId,
    },
    /// execve: those of timer_create go, those of setitimer stay.
    DeleteAll,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimerState {
    /// The number a new timer got.
    pub number: i32,
    /// ns until it expires; 0: disarmed.
    pub left: u64,
    pub interval: u64,
    pub overrun: i32,
}

messages! {
    "timer" 0x600;

    /// Makes, sets or asks a timer of a process, at its home.
    timer: TimerCall { process: Pid, op: TimerOp } -> errno::Result<TimerState>, Low;

    /// membarrier(2): answered once every CPU of the receiver that runs in the space (or, without one, in any
    /// space) has been in the kernel since the question; with `aborts`, also out of the restartable sequence it was in.
    barrier: Barrier { space: Option<SpaceId>, aborts: bool } -> (), High;

    /// pidfd_open(2) on another kernel: answered when the process, which is at home here, has ended.
    ended: AwaitEnd { process: Pid } -> errno::Result<()>, Low;
}
