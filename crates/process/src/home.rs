//! What only the home kernel knows of a process: its members, its children, and how it ended.

use crate::{cgroup::Counted, Process};
use abi::{signal::Pending, Credentials};
use alloc::{
    collections::{BTreeMap, BTreeSet},
    vec::Vec,
};
use machine::{errno::Result, sync::AsyncLock, sync::Lock, sync::WaitQueue, Errno, KernelId, KernelSet, Pid};
use messages::cgroup::ThreadCount;
use messages::process::{
    ChildEvent, ExitStatus, LastSchedulingParameters, Moved, PendingSet, PendingSignals, RoundSignal, Rounds,
    StopState, ThreadBorn, Usage,
};

#[derive(Default)]
pub(crate) struct Home {
    pub state: Lock<HomeState>,
    /// wait4 callers of this process.
    pub children_changed: WaitQueue,
    /// Woken when a member goes.
    pub members_changed: WaitQueue,
    /// Serialises changes: the one under way holds it (change.rs).
    pub changes: AsyncLock<()>,
    /// Woken when the home has performed what a signal does (births.rs).
    pub decided: WaitQueue,
    pub timers: crate::timer::Timers,
}

#[derive(Default)]
pub(crate) struct HomeState {
    /// Live threads and where they are.
    pub members: BTreeMap<Pid, Member>,
    /// Kernels that hold a replica.
    pub replicas: KernelSet,
    pub children: BTreeMap<Pid, Child>,
    /// Set when the process has ended and its children have new parents, or are about to: it takes no more children.
    pub handed_out: Option<BTreeSet<Pid>>,
    /// Kernels where it has System V semaphores to undo or attached memory.
    pub ipc: KernelSet,
    /// Kernels that want to hear of a member's end, because threads there wait for a lock that it may hold.
    pub watchers: BTreeMap<Pid, KernelSet>,
    pub pending: Pending,
    /// Changes of `pending` so far.
    pub pending_version: u64,
    /// What the threads that have ended have used.
    pub usage: Usage,
    /// What the children that were waited for have used.
    pub children_usage: Usage,
    /// Set when the last thread has gone.
    pub zombie: Option<ExitStatus>,
    pub credentials: Credentials,
    /// Name of the main thread, for ps when it is gone.
    pub name: Vec<u8>,
    /// Scheduling parameters of the last main thread that exited; sched_getaffinity and its like read them until execve has
    /// made a new one.
    pub last_scheduling: Option<LastSchedulingParameters>,
    /// The signal that stopped it.
    pub stop_signal: Option<abi::signal::Signal>,
    /// How often it was stopped or continued.
    pub stops: u64,
    /// Signals for many that came to it (births.rs).
    pub rounds: Rounds,
    /// Forks under way, and the signals for many that came meanwhile.
    pub forks: BTreeMap<Pid, Vec<RoundSignal>>,
    /// For its control group (cgroup/mod.rs).
    pub counted: Counted,
    /// How many signals' effects on the process are being decided ([`Deciding`](crate::births::Deciding)).
    pub deciding: u32,
}

/// Where a thread of the process is, by the newest report.
pub(crate) struct Member {
    pub at: KernelId,
    pub moves: u64,
}

pub(crate) struct Child {
    pub group: Pid,
    pub uid: u32,
    pub exit_signal: u8,
    /// The newest thing to report, until it is waited for.
    pub event: Option<ChildEvent>,
    /// Number of the newest change that was told ([`messages::process::ChildChanged`]).
    pub order: u64,
    pub usage: Usage,
}

impl HomeState {
    pub fn pending_set(&self) -> PendingSet {
        PendingSet { set: self.pending.set(), version: self.pending_version }
    }

    /// Whether the process has ended and this child of it may not have its new parent yet.
    pub fn is_handing_out(&self, child: Pid) -> bool {
        self.zombie.is_none() && self.handed_out.as_ref().is_some_and(|children| children.contains(&child))
    }

    /// Threads that live, and those that are being born.
    pub fn count_threads(&mut self) -> ThreadCount {
        self.counted.version += 1;
        ThreadCount { threads: self.members.len() as u32 + self.counted.births, version: self.counted.version }
    }

    pub fn stop_state(&self) -> StopState {
        StopState { stopped: self.stop_signal.is_some(), order: self.stops, continues: self.pending.continues() }
    }
}

impl Process {
    /// Kernels other than this one that hold a replica. Only at home.
    pub(crate) fn replicas(&self) -> KernelSet {
        self.home().map(|home| home.state.lock().replicas.clone()).unwrap_or_default()
    }

    /// Tells replicas which signals wait. Does not wait for them: a hint that is late costs a question.
    pub(crate) fn tell_pending(&self, pending: PendingSet) {
        for kernel in self.replicas().iter() {
            // A dead kernel has no thread that could take them.
            let _ = self.system.endpoint.send(kernel, PendingSignals { process: self.id, pending });
        }
    }

    /// A thread of the process starts on this kernel: makes it a member.
    pub(crate) async fn add_member(&self, thread: Pid) -> Result<()> {
        let system = &self.system;
        if self.home().is_some() {
            return self.admit_member(thread, system.kernel).await;
        }
        let born = ThreadBorn { process: self.id, thread, at: system.kernel };
        system.endpoint.call(self.home, born).await.map_err(Errno::from)?
    }

    /// None: the process is in a control group, which has not been asked (`admitted`).
    pub(crate) fn member_born(&self, thread: Pid, at: KernelId, admitted: bool) -> Option<Result<()>> {
        let Some(home) = self.home() else { return Some(Err(Errno::ESRCH)) };
        let mut state = home.state.lock();
        match admitted {
            true => state.counted.births -= 1,
            false if state.counted.in_group => return None,
            false => {}
        }
        // A thread born after the end was decided would be missed by it. So would one that the home hears of after an
        // execve has told all kernels to end their threads, and the execve would wait for it for ever; its parent
        // ends before it sees the error.
        if self.has(crate::Flags::ENDING) || self.survivor.lock().is_some() {
            return Some(Err(Errno::EAGAIN));
        }
        state.members.insert(thread, Member { at, moves: 0 });
        Some(Ok(()))
    }

    /// At home: the thread that a new process begins with.
    pub(crate) fn first_member(&self, thread: Pid) {
        if let Some(home) = self.home() {
            home.state.lock().members.insert(thread, Member { at: self.system.kernel, moves: 0 });
        }
    }

    pub(crate) fn member_moved(&self, thread: Pid, at: KernelId, moves: u64) {
        if let Some(home) = self.home() {
            if let Some(known) = home.state.lock().members.get_mut(&thread).filter(|known| known.moves < moves) {
                *known = Member { at, moves };
            }
        }
    }

    /// Tells the home where a thread is now.
    pub(crate) fn tell_moved(&self, thread: Pid, to: KernelId, moves: u64) {
        match self.home() {
            Some(_) => self.member_moved(thread, to, moves),
            None => {
                let moved = Moved { process: self.id, thread, to, moves };
                // If the home is dead the process is about to be killed.
                let _ = self.system.endpoint.send(self.home, moved);
            }
        }
    }

    /// Where a member is. Only at home.
    pub(crate) fn member_at(&self, thread: Pid) -> Option<KernelId> {
        self.home()?.state.lock().members.get(&thread).map(|member| member.at)
    }
}
