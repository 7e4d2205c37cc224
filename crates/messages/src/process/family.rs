//! Parents and children: birth, end, and waiting for it.

use super::{PendingSet, RoundSignal, Rounds, Usage};
use abi::signal::Signal;
use alloc::vec::Vec;
use machine::{KernelSet, Pid};
use serde::{Deserialize, Serialize};

/// How a process ended, as wait(2) reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExitStatus {
    /// WIFEXITED: exit(2) with this status.
    Code(u8),
    /// WIFSIGNALED.
    Signal {
        /// The signal that ended it.
        signal: Signal,
        /// Whether WCOREDUMP says that there is a core dump.
        core: bool,
    },
}

impl ExitStatus {
    /// `wstatus` of wait4(2).
    pub fn to_wait(self) -> i32 {
        match self {
            ExitStatus::Code(code) => i32::from(code) << 8,
            ExitStatus::Signal { signal, core } => i32::from(signal.number()) | i32::from(core) << 7,
        }
    }
}

/// The answer of the parent's home to [`BeginFork`](super::BeginFork).
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct BeginForkReply {
    /// Signals that wait for the process. If the forking thread does not block one of them, it handles that before it forks.
    pub pending: PendingSet,
    /// The rounds of signals for many that had reached the parent; the child begins with these. None: the fork may not begin.
    pub rounds: Option<Rounds>,
}

/// What a new child is to have of its parent beside what it was made with: the answer to [`EndFork`](super::EndFork).
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct EndForkReply {
    /// Kernels with System V objects that must hear of the child's end.
    pub ipc: KernelSet,
    /// Signals for many that reached the parent during the fork, which the child gets as well.
    pub signals: Vec<RoundSignal>,
}

/// What came of giving a child a new parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reparented {
    /// The child has the new parent.
    Done {
        /// Its process group.
        group: Pid,
        /// Its session.
        session: Pid,
    },
    /// The new parent is ending, too, and has given its children away already: another one must be found.
    HeirGone,
    /// The child has ended and been reaped.
    NoSuchChild,
}

/// What happened to a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChildEvent {
    /// It has ended (CLD_EXITED, CLD_KILLED, CLD_DUMPED).
    Exited(ExitStatus),
    /// This signal stopped it (CLD_STOPPED).
    Stopped(Signal),
    /// SIGCONT let it go on (CLD_CONTINUED).
    Continued,
}

/// Which children a wait is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WaitFor {
    /// Every child (P_ALL).
    Any,
    /// The child with this id (P_PID).
    Process(Pid),
    /// Children in this process group (P_PGID).
    Group(Pid),
}

/// Which children a wait is about, by the signal that they send when they end (man 2 wait, "Linux notes").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WaitKind {
    /// Those whose end sends SIGCHLD.
    Usual,
    /// __WCLONE: the others.
    Clone,
    /// __WALL.
    All,
}

/// What wait4 and waitid report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitAnswer {
    /// The child.
    pub process: Pid,
    /// The child's real user id (`si_uid`).
    pub uid: u32,
    /// What is reported.
    pub event: ChildEvent,
    /// What the child has used, with its own children (wait4's `rusage`).
    pub usage: Usage,
}
