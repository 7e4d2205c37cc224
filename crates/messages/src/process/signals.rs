//! What a process's home says of the signals that were sent to it, and signals for many processes.

use abi::signal::{SignalInfo, SignalSet};
use alloc::vec::Vec;
use machine::{KernelId, Pid};
use serde::{Deserialize, Serialize};

/// Whether a process is stopped, as its home has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopState {
    /// Its threads wait at their next user boundary until SIGCONT.
    pub stopped: bool,
    /// How often it was stopped or continued. A replica drops a report with a lower number than it has seen.
    pub order: u64,
    /// How many SIGCONTs it was sent.
    pub continues: u64,
}

/// Which process-directed signals wait at the home. The version grows with each change: a report may be overtaken by an answer, or
/// by what another CPU of the home sends, and a replica keeps the one with the highest version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingSet {
    /// The signals.
    pub set: SignalSet,
    /// Grows with each change.
    pub version: u64,
}

/// A signal for many processes, on its way to all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Round {
    /// The kernel whose process sent it.
    pub from: KernelId,
    /// Counts that kernel's rounds, ascending.
    pub number: u64,
}

/// The signal that a round carries, and for whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoundSignal {
    /// The round: a process takes no round twice.
    pub round: Round,
    /// The process group; None: everybody.
    pub group: Option<Pid>,
    /// Signal and sender.
    pub info: SignalInfo,
}

/// The last round of each kernel that has reached a process. A kernel sends one round after the other, so earlier ones have reached
/// it too, or were not for it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Rounds(Vec<Round>);

impl Rounds {
    /// Whether this round, or a later one of the same kernel, has come.
    pub fn know(&self, round: Round) -> bool {
        self.0.iter().any(|known| known.from == round.from && known.number >= round.number)
    }

    /// Notes that a round has come; false if it had come before.
    pub fn enter(&mut self, round: Round) -> bool {
        if self.know(round) {
            return false;
        }
        match self.0.iter_mut().find(|known| known.from == round.from) {
            Some(known) => *known = round,
            None => self.0.push(round),
        }
        true
    }
}
