//! Parents and children: birth, end, and waiting for it.

use super::{PendingSet, RoundSignal, Rounds, Usage};
use abi::signal::Signal;
use alloc::vec::Vec;
use machine::{KernelSet, Pid};
use serde::{Deserialize, Serialize};

/// How a process ended, as wait(2) reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExitStatus {
    Code(u8),
    Signal { signal: Signal, core: bool },
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

/// How a fork begins; without rounds it does not.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct BirthStart {
    pub pending: PendingSet,
    pub rounds: Option<Rounds>,
}

/// What a parent's home has for its child: the kernels that are to hear of its end, and the signals for many that came during the
/// fork.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct BirthNews {
    pub ipc: KernelSet,
    pub signals: Vec<RoundSignal>,
}

/// What came of giving a child a new parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reparented {
    /// It is in this group of this session.
    Done {
        group: Pid,
        session: Pid,
    },
    /// The new parent has handed out its own children meanwhile.
    HeirGone,
    NoSuchChild,
}

/// What happened to a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChildEvent {
    Exited(ExitStatus),
    Stopped(Signal),
    Continued,
}

/// Which children a wait is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WaitFor {
    Any,
    Process(Pid),
    Group(Pid),
}

/// Which children a wait is about, by the signal that their end sends (man 2 wait, "Linux notes").
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
    pub process: Pid,
    pub uid: u32,
    pub event: ChildEvent,
    pub usage: Usage,
}
