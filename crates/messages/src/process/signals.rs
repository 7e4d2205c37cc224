//! Signals: sending them to a thread, a process or many, taking them from the home, stops.

use abi::{
    signal::{Signal, SignalInfo, SignalSet, Taken},
    Credentials,
};
use alloc::vec::Vec;
use machine::{errno, KernelId, Pid};
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

messages! {
    "signals" 0x240;

    /// A thread has taken a stop signal that was sent after `continues` SIGCONTs. The home stops the process, unless it has been
    /// sent another SIGCONT since.
    stop_process: StopProcess {
        /// The process (thread group) that this is about.
        process: Pid,
        /// The stop signal.
        signal: Signal,
        /// How many SIGCONTs had been sent before it.
        continues: u64,
    } -> (), Low;

    /// The home tells a replica whether the threads of the process are stopped. Stops that were sent before the last SIGCONT
    /// are void from then on.
    set_stopped: SetStopped {
        /// The process (thread group) that this is about.
        process: Pid,
        /// Whether it is stopped.
        stop_state: StopState,
        /// Signals for the process that wait.
        pending: PendingSet,
    } -> (), High;

    /// A kernel is about to send a stop signal or SIGCONT to a thread. The home continues the process if the signal is SIGCONT, and
    /// answers the number of the last SIGCONT.
    sending: Sending {
        /// The process (thread group) that this is about.
        process: Pid,
        /// SIGCONT or a stop signal.
        signal: Signal,
    } -> u64, Low;

    /// Sends a signal to a process, at its home, which checks whether `sender` may. It has high priority, so that a process whose
    /// requests fill the other lane can be killed.
    signal_process: SignalProcess {
        /// The process (thread group) that this is about.
        process: Pid,
        /// The signal; None: only the permission is checked (kill with 0).
        info: Option<SignalInfo>,
        /// Who is checked for permission; None: the kernel itself sends.
        sender: Option<Credentials>,
    } -> errno::Result<()>, High;

    /// Sends a signal to one thread: first to the home of its process, which passes it on to where the thread is. The home
    /// performs the effects of sending (SIGCONT, stops) and fills in `continues`; a kernel with a replica of the process fills in `ignorings`.
    signal_thread: SignalThread {
        /// The process (thread group) that this is about.
        process: Pid,
        /// The thread that gets it.
        thread: Pid,
        /// The signal; None: only the permission is checked (tgkill with 0).
        info: Option<SignalInfo>,
        /// Who is checked for permission; None: the kernel itself sends, or it has been checked.
        sender: Option<Credentials>,
        /// The number of the last SIGCONT; None: the effects of sending are still to come.
        continues: Option<u64>,
        /// How many changes of the handlers had made a signal ignored when it was sent; None: no kernel with a replica has seen it.
        ignorings: Option<u64>,
    } -> errno::Result<()>, Low;

    /// Sends a signal to all processes of a group that are at home on the receiver and that this round has not reached; without a
    /// group, to all processes but init and the sender. Answers how many there were, and how many the sender may signal.
    signal_group: SignalGroup {
        /// The process group; None: all processes.
        group: Option<Pid>,
        /// The signal; None: only the permission is checked (kill with 0).
        signal: Option<RoundSignal>,
        /// Who is checked for permission; None: the kernel itself sends.
        sender: Option<Credentials>,
        /// The sending process, which a signal for all leaves out.
        except: Pid,
    } -> (u32, u32), Low;

    /// The home tells replicas which process-directed signals are waiting to be taken.
    pending: PendingSignals {
        /// The process (thread group) that this is about.
        process: Pid,
        /// Signals for the process that wait.
        pending: PendingSet,
    } -> (), High;

    /// A thread takes one of these process-directed signals from the home, which answers with it and with those that are left. With `acts`
    /// the home has performed the default action on the process by then.
    take_signal: TakeSignal {
        /// The process (thread group) that this is about.
        process: Pid,
        /// Signals that the thread would take.
        wanted: SignalSet,
        /// Whether the home performs the default action: stop, or end of the process.
        acts: bool,
    } -> (Option<Taken>, PendingSet), Low;

    /// Gives signals back to the home: they were taken for a read of a signalfd that was interrupted meanwhile.
    put_back: PutBack {
        /// The process (thread group) that this is about.
        process: Pid,
        /// The signals, with what they carry.
        signals: Vec<Taken>,
    } -> (), Low;

    /// Asks whether one of these threads of a process blocks a signal, so that it must be kept though the process ignores it. Yes
    /// also if one of them is not on the receiver (any more).
    ask_blocked: AskBlocked {
        /// The process (thread group) that this is about.
        process: Pid,
        /// Which of its threads.
        threads: Vec<Pid>,
        /// The signal that they may block.
        signal: Signal,
    } -> bool, High;

    /// Asks whether a thread would not notice a signal, because its process ignores it or the thread blocks it. A kernel that the
    /// thread has left passes the question on.
    ask_ignores: AskIgnores {
        /// The process (thread group) that this is about.
        process: Pid,
        /// The thread that would get it.
        thread: Pid,
        /// The signal that it may ignore.
        signal: Signal,
    } -> bool, Low;
}
