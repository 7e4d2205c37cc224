//! File locks as values: flock(2), and the record locks of fcntl(2).

use machine::Pid;
use serde::{Deserialize, Serialize};

/// Bytes `start..end`; `end` is `u64::MAX` for "to the end of the file, wherever it will be".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockRange {
    pub start: u64,
    pub end: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LockMode {
    Shared,
    Exclusive,
    Unlock,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LockOp {
    /// flock(2): the whole file, owned by the open file description.
    Flock { mode: LockMode, wait: bool },
    /// F_SETLK, F_SETLKW; with `description` F_OFD_SETLK, F_OFD_SETLKW.
    Set { range: LockRange, mode: LockMode, wait: bool, description: bool },
    /// F_GETLK, F_OFD_GETLK: who is in the way?
    Get { range: LockRange, mode: LockMode, description: bool },
}

/// The answer to [`LockOp::Get`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockConflict {
    pub range: LockRange,
    pub mode: LockMode,
    /// None: an open file description's lock (l_pid is -1).
    pub process: Option<Pid>,
}

/// A record lock of a process, as it travels from kernel to kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordLock {
    pub process: Pid,
    pub range: LockRange,
    pub exclusive: bool,
}
