//! What only the home kernel knows of a process: its members, its children, and how it ended.

use crate::{Files, Process, System};
use abi::{signal::Pending, Credentials};
use alloc::{
    boxed::Box,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    vec::Vec,
};
use core::sync::atomic::Ordering::SeqCst;
use machine::{
    errno::Result, sync::AsyncLock, sync::Lock, sync::WaitQueue, Access, Errno, KernelId, KernelSet, Page, Pid,
};
use messages::process::{
    ChildEvent, ExitStatus, HoldReplica, Join, LastTuning, Moved, PendingSet, PendingSignals, Replica, RoundSignal,
    Rounds, Standing, ThreadBorn, Usage,
};
use messages::vm::Touch;

#[derive(Default)]
pub(crate) struct Home {
    pub state: Lock<HomeState>,
    /// wait4 callers of this process.
    pub children_changed: WaitQueue,
    /// Woken when a member goes.
    pub members_changed: WaitQueue,
    /// Held by the change that is under way (change.rs).
    pub changes: AsyncLock<()>,
    /// Woken when the home has done what a signal does (births.rs).
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
    /// The process has ended, and these children of its have new parents, or are about to: it takes no more.
    pub handed_out: Option<BTreeSet<Pid>>,
    /// Kernels where it has System V semaphores to undo or attached memory.
    pub ipc: KernelSet,
    /// Kernels that want to hear of a member's end, because threads there wait for a lock that it may hold.
    pub watchers: BTreeMap<Pid, KernelSet>,
    pub pending: Pending,
    /// Changes of `pending` so far.
    pub pending_version: u64,
    /// Of the threads that are gone.
    pub usage: Usage,
    /// Of the children that were waited for.
    pub children_usage: Usage,
    /// Set when the last thread has gone.
    pub zombie: Option<ExitStatus>,
    pub credentials: Credentials,
    /// Name of the main thread, for ps when it is gone.
    pub name: Vec<u8>,
    /// Of the main thread when it is gone.
    pub last_tuning: Option<LastTuning>,
    /// The signal that stopped it.
    pub stop_signal: Option<abi::signal::Signal>,
    /// How often it was stopped or continued.
    pub stops: u64,
    /// Signals for many that came to it (births.rs).
    pub rounds: Rounds,
    /// Forks under way, and the signals for many that came meanwhile.
    pub births: BTreeMap<Pid, Vec<RoundSignal>>,
    /// Signals whose effect on the process is being decided.
    pub deciding: u32,
}

/// Where a thread of the process is, by the newest word of it.
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

    /// Has the process ended, and this child of its may not have its new parent yet?
    pub fn is_handing_out(&self, child: Pid) -> bool {
        self.zombie.is_none() && self.handed_out.as_ref().is_some_and(|children| children.contains(&child))
    }

    pub fn standing(&self) -> Standing {
        Standing { stopped: self.stop_signal.is_some(), order: self.stops, continues: self.pending.continues() }
    }
}

impl Process {
    /// Kernels other than this one that hold a replica. Only at home.
    pub(crate) fn replicas(&self) -> KernelSet {
        self.home().map(|home| home.state.lock().replicas.clone()).unwrap_or_default()
    }

    /// Makes `kernel` a replica holder and tells it everything. Only at home.
    pub(crate) fn replica_for(&self, kernel: KernelId) -> Result<Replica> {
        let home = self.home().ok_or(Errno::ESRCH)?;
        let mut state = home.state.lock();
        match state.zombie.is_some() {
            true => Err(Errno::ESRCH),
            false => Ok(self.count_replica(&mut state, kernel)),
        }
    }

    fn count_replica(&self, state: &mut HomeState, kernel: KernelId) -> Replica {
        // Entered first: a change from now on reaches the replica, after this.
        state.replicas.insert(kernel);
        let space = self.space();
        // Also a replica that never faults must hear of the end.
        space.expect(kernel);
        Replica {
            shared: self.shared(),
            space: space.id(),
            in_parents_space: self.is_in_parents_space(),
            files: self.files().id(),
            ending: *self.ending.lock(),
            survivor: *self.survivor.lock(),
            standing: state.standing(),
            pending: state.pending_set(),
        }
    }

    /// `thread` is about to leave for `kernel`, and will touch `pages` there first: if the process is at home here and that kernel has no
    /// replica of it, sends one. Gives those of the pages that are to go with the thread: from now on they may be taken back.
    pub(crate) fn send_replica(&self, thread: Pid, kernel: KernelId, pages: &[(Page, Access)]) -> Vec<Touch> {
        let Some(home) = self.home() else { return Vec::new() };
        let mut state = home.state.lock();
        if state.replicas.contains(kernel) {
            return Vec::new();
        }
        let replica = Box::new(self.count_replica(&mut state, kernel));
        let touches = self.space().first_touches(pages);
        let hold = HoldReplica { process: self.id, thread, replica, touches: touches.clone() };
        // Under the lock: what a replica is told, or asked to give back, follows it in its lane. If the kernel is dead, the thread will hear of it.
        let _ = self.system.endpoint.send(kernel, hold);
        touches
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
            return self.member_born(thread, system.kernel);
        }
        let born = ThreadBorn { process: self.id, thread, at: system.kernel };
        system.endpoint.call(self.home, born).await.map_err(Errno::from)?
    }

    pub(crate) fn member_born(&self, thread: Pid, at: KernelId) -> Result<()> {
        let home = self.home().ok_or(Errno::ESRCH)?;
        let mut state = home.state.lock();
        // A thread born after the end was decided would be missed by it. So would one that the home hears of after an
        // execve has told all kernels to end their threads, and the execve would wait for it for ever; its parent
        // ends before it sees the error.
        if self.has(crate::Flags::ENDING) || self.survivor.lock().is_some() {
            return Err(Errno::EAGAIN);
        }
        state.members.insert(thread, Member { at, moves: 0 });
        Ok(())
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

impl System {
    /// The replica of a process on this kernel, made if it is not here yet.
    pub(crate) async fn join(self: &Arc<Self>, process: Pid, home: KernelId) -> Result<Arc<Process>> {
        loop {
            let first = {
                let mut joining = self.joining.lock();
                if joining.contains_key(&process) {
                    false
                } else if let Some(known) = self.process(process) {
                    return Ok(known);
                } else {
                    // Before the home counts us: see migrate.rs.
                    joining.insert(process, None);
                    true
                }
            };
            if first {
                break;
            }
            self.while_joining(process).await;
        }
        let replica = self.endpoint.call(home, Join { process }).await.map_err(Errno::from).and_then(|answer| answer);
        let made = replica.and_then(|replica| self.make_replica(process, home, replica));
        {
            let mut joining = self.joining.lock();
            if let (Some(Some(pending)), Ok(made)) = (joining.remove(&process), &made) {
                made.set_pending(pending);
            }
        }
        self.joined.wake_all();
        made
    }

    /// The home sends a replica before a thread that comes from there; unless this kernel is asking for one, or has it, for another. If it
    /// can't be made, the thread that comes will ask.
    pub(crate) fn hold_replica(self: &Arc<Self>, home: KernelId, ask: HoldReplica) {
        let HoldReplica { process, thread, replica, touches } = ask;
        let joining = self.joining.lock();
        if joining.contains_key(&process) || self.process(process).is_some() {
            return;
        }
        let space = self.vm.attach(replica.space).ok().filter(|_| !touches.is_empty());
        if let Some(expected) = space.map(|space| space.expect_first(&touches)) {
            // Before the process is here: from then on the thread may arrive.
            self.expected.lock().insert(thread, expected);
        }
        let made = self.make_replica(process, home, *replica);
        drop(joining);
        if let Err(error) = made {
            log::warn!("no replica of process {process} on kernel {}: {error:?}", self.kernel);
            drop(self.expected_for(thread));
        }
    }

    /// The pages that come with a thread.
    pub(crate) fn expected_for(&self, thread: Pid) -> Option<vm::Expected> {
        self.expected.lock().remove(&thread)
    }

    /// Threads that come from `dead` do not.
    pub(crate) fn forget_expected(&self, dead: KernelId) {
        let is_lost = |expected: &vm::Expected| expected.space().home == dead;
        let lost: Vec<_> = self.expected.lock().extract_if(|_, expected| is_lost(expected)).collect();
        // Not under the lock: who waits for the pages goes on.
        drop(lost);
    }

    fn make_replica(self: &Arc<Self>, process: Pid, home: KernelId, replica: Replica) -> Result<Arc<Process>> {
        let space = self.vm.attach(replica.space)?;
        // After an execve on a third kernel the space is at home there, and the process's home can't count us in. The thread does
        // not wait for it: if the space is gone, what ended it comes to this process as well, and the replica of the space ends itself.
        if space.id().home != home {
            let space = space.clone();
            self.scheduler.spawn(async move {
                let _ = space.join_home().await;
            });
        }
        let files = Files::attach(self, replica.files)?;
        let made = Process::new(self, process, home, replica.shared, None, space, files);
        made.in_parents_space.store(replica.in_parents_space, SeqCst);
        made.bound_space();
        made.enter();
        made.set_pending(replica.pending);
        *made.survivor.lock() = replica.survivor;
        if let Some(status) = replica.ending {
            *made.ending.lock() = Some(status);
            made.set_flags(crate::Flags::ENDING, true);
        }
        made.stand(replica.standing);
        Ok(made)
    }

    pub(crate) async fn while_joining(&self, process: Pid) {
        self.joined.wait_until(|| (!self.joining.lock().contains_key(&process)).then_some(())).await;
    }

    /// The process that its home speaks of: if this kernel is about to hold a replica, that.
    pub(crate) async fn replica(&self, process: Pid) -> Option<Arc<Process>> {
        self.while_joining(process).await;
        self.process(process)
    }

    /// The home says which signals wait.
    pub(crate) fn pending_told(&self, process: Pid, pending: PendingSet) {
        if let Some(last) = self.joining.lock().get_mut(&process) {
            if last.is_none_or(|last| last.version < pending.version) {
                *last = Some(pending);
            }
            return;
        }
        if let Some(process) = self.process(process) {
            process.set_pending(pending);
            process.rouse(process.pending());
        }
    }
}
