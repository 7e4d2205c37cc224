//! Parents and children: birth, end, and waiting for it; process groups and sessions.

use super::{PendingSet, RoundSignal, Rounds, Usage};
use abi::signal::{Signal, SignalSet};
use alloc::vec::Vec;
use machine::{errno, KernelSet, Pid};
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

/// The answer of the parent's home to [`BeginFork`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct BeginForkReply {
    /// Signals that wait for the process. If the forking thread does not block one of them, it handles that before it forks.
    pub pending: PendingSet,
    /// The rounds of signals for many that had reached the parent; the child begins with these. None: the fork may not begin.
    pub rounds: Option<Rounds>,
}

/// What a new child is to have of its parent beside what it was made with: the answer to [`EndFork`].
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

messages! {
    "family" 0x260;

    /// A thread asks the parent's home whether it may fork: not while a signal waits that it does not block.
    begin_fork: BeginFork {
        /// The parent.
        process: Pid,
        /// The id that the child will have.
        child: Pid,
        /// Signals that the forking thread blocks.
        blocked: SignalSet,
    } -> errno::Result<BeginForkReply>, Low;

    /// The kernel that forked tells the parent's home that the fork is over and the child can be found. The home answers what
    /// the child is to have of its parent beside what it was made with.
    end_fork: EndFork {
        /// The parent.
        process: Pid,
        /// The child.
        child: Pid,
    } -> EndForkReply, Low;

    /// A child at home on the sender has ended, stopped or continued. The parent's home wakes its waiters and sends SIGCHLD, and
    /// answers whether the child may be reaped at once, since nobody will wait for it. `order` numbers a child's changes: the
    /// parent's home drops one that arrives after a later one, and whatever arrives after the end.
    child: ChildChanged {
        /// The parent, at home on the receiver.
        parent: Pid,
        /// The child.
        child: Pid,
        /// The child's process group.
        group: Pid,
        /// The child's real user id (`si_uid`).
        uid: u32,
        /// What happened to it.
        event: ChildEvent,
        /// Counts the child's changes.
        order: u64,
        /// What it has used, with its own children.
        usage: Usage,
    } -> bool, Low;

    /// Enters a `new` child at the parent's home; answers false if the parent is ending and has given its children away already.
    /// Without `new`: changes the process group of a child, if it still has it.
    adopt: AdoptChild {
        /// The parent, at home on the receiver.
        parent: Pid,
        /// The child.
        child: Pid,
        /// Its process group, for waits for a group.
        group: Pid,
        /// Signal that the parent gets when it ends; 0: none.
        exit_signal: u8,
        /// A new child, not a known one that is in another group now.
        new: bool,
    } -> bool, Low;

    /// wait4, waitid: waits at the parent's home until a child has something to report. None: `poll` is set and no child
    /// has. ECHILD: there is no such child.
    wait: Wait {
        /// The process that waits.
        parent: Pid,
        /// By id or group.
        which: WaitFor,
        /// By the signal of their end.
        kind: WaitKind,
        /// WEXITED.
        exited: bool,
        /// WSTOPPED (WUNTRACED).
        stopped: bool,
        /// WCONTINUED.
        continued: bool,
        /// WNOWAIT: it stays waitable.
        keep: bool,
        /// WNOHANG.
        poll: bool,
    } -> errno::Result<Option<WaitAnswer>>, Low;

    /// Tells a child's home that the child has been waited for, and that its record may go.
    reap: Reap {
        /// The child that was waited for.
        child: Pid,
    } -> (), Low;

    /// Gives a child another parent, because its own is ending.
    reparent: Reparent {
        /// The child, at home on the receiver.
        child: Pid,
        /// Its new parent.
        parent: Pid,
    } -> Reparented, Low;

    /// A process ends and somebody must adopt its children: asks whether an ancestor, at home on the receiver, is alive and a
    /// subreaper, and whose child it is. None: it is gone.
    ask_heir: AskHeir {
        /// Who would adopt them.
        process: Pid,
    } -> Option<(bool, Pid)>, Low;

    /// setpgid: puts a process into a process group, at its home.
    set_group: SetGroup {
        /// The process that gets a new group.
        process: Pid,
        /// The group; equal to `process`: a new one.
        group: Pid,
        /// The process that asks.
        caller: Pid,
        /// Its session.
        session: Pid,
    } -> errno::Result<()>, Low;

    /// Asks a kernel for the session of a process group, if a member is at home there. Every kernel is asked.
    find_group: FindGroup {
        /// The process group.
        group: Pid,
    } -> Option<Pid>, Low;

    /// Asks the home of a process for its group and session.
    group_of: GroupOf {
        /// The process (thread group) that this is about.
        process: Pid,
    } -> Option<(Pid, Pid)>, Low;

    /// Asks for the parents of those processes of a group that are at home on the receiver, and whether one of these processes is
    /// stopped (for orphaned process groups).
    parents: GroupParents {
        /// The process group.
        group: Pid,
    } -> (Vec<Pid>, bool), Low;
}
