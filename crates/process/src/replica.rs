//! How a kernel comes to hold a replica of a process: it asks the home for one, or is sent one before a thread. migrate.rs draws both, and
//! what is dangerous about them.

use crate::{home::HomeState, Files, Process, System};
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::sync::atomic::Ordering::SeqCst;
use machine::{
    errno::Result,
    sync::{Lock, WaitQueue},
    Access, Errno, HashMap, KernelId, Page, Pid,
};
use messages::{
    process::{Join, PendingSet, PushReplica, Replica},
    vm::Touch,
};

/// Replicas of other kernels' processes that this kernel is about to hold.
#[derive(Default)]
pub(crate) struct Replicas {
    /// The processes, with the newest report of their pending signals, if one came.
    pub joining: Lock<HashMap<Pid, Option<PendingSet>>>,
    /// Woken when one of them is done.
    pub joined: WaitQueue,
    /// Pages that will come with threads: [`PushReplica`] has named them.
    pub expected: Lock<HashMap<Pid, vm::Expected>>,
}

impl Process {
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
        // A replica that never faults must also be told when the space ends.
        space.expect(kernel);
        Replica {
            shared: self.shared(),
            space: space.id(),
            in_parents_space: self.is_in_parents_space(),
            files: self.files().id(),
            ending: *self.ending.lock(),
            survivor: *self.survivor.lock(),
            stop_state: state.stop_state(),
            pending: state.pending_set(),
        }
    }

    /// Called when `thread` is about to leave for `kernel`, where it will touch `pages` first. If the process is at home here and that kernel
    /// has no replica of it, this sends one. Answers those of the pages that are to go with the thread. From now on they may be revoked.
    pub(crate) fn send_replica(&self, thread: Pid, kernel: KernelId, pages: &[(Page, Access)]) -> Vec<Touch> {
        let Some(home) = self.home() else { return Vec::new() };
        let mut state = home.state.lock();
        if state.replicas.contains(kernel) {
            return Vec::new();
        }
        let replica = Box::new(self.count_replica(&mut state, kernel));
        let touches = self.space().first_touches(pages);
        let hold = PushReplica { process: self.id, thread, replica, touches: touches.clone() };
        // Under the lock: what a replica is told, or asked to give back, follows it in its lane. If the kernel is dead, the thread will hear of it.
        let _ = self.system.endpoint.send(kernel, hold);
        touches
    }
}

impl System {
    /// The replica of a process on this kernel, made if it is not here yet.
    pub(crate) async fn join(self: &Arc<Self>, process: Pid, home: KernelId) -> Result<Arc<Process>> {
        loop {
            let first = {
                let mut joining = self.replicas.joining.lock();
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
            let mut joining = self.replicas.joining.lock();
            if let (Some(Some(pending)), Ok(made)) = (joining.remove(&process), &made) {
                made.set_pending(pending);
            }
        }
        self.replicas.joined.wake_all();
        made
    }

    /// [`PushReplica`]: the home sends a replica before a thread that comes from there. It is ignored if this kernel has one already, or is
    /// asking for one. If it can't be made, the thread asks for one when it arrives.
    pub(crate) fn push_replica(self: &Arc<Self>, home: KernelId, ask: PushReplica) {
        let PushReplica { process, thread, replica, touches } = ask;
        let joining = self.replicas.joining.lock();
        if joining.contains_key(&process) || self.process(process).is_some() {
            return;
        }
        let space = self.vm.attach(replica.space).ok().filter(|_| !touches.is_empty());
        if let Some(expected) = space.map(|space| space.expect_first(&touches)) {
            // Before the process is here: from then on the thread may arrive.
            self.replicas.expected.lock().insert(thread, expected);
        }
        let made = self.make_replica(process, home, *replica);
        drop(joining);
        if let Err(error) = made {
            log::warn!("no replica of process {process} on kernel {}: {error:?}", self.kernel);
            drop(self.expected_for(thread));
        }
    }

    /// Takes out what [`PushReplica`] announced: the pages that come with `thread`.
    pub(crate) fn expected_for(&self, thread: Pid) -> Option<vm::Expected> {
        self.replicas.expected.lock().remove(&thread)
    }

    /// Forgets pages that `dead` was to send with threads.
    pub(crate) fn forget_expected(&self, dead: KernelId) {
        let is_lost = |expected: &vm::Expected| expected.space().home == dead;
        let lost: Vec<_> = self.replicas.expected.lock().extract_if(|_, expected| is_lost(expected)).collect();
        // Dropped outside the lock, since it wakes threads that wait for the pages.
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
        made.set_stop_state(replica.stop_state);
        Ok(made)
    }

    pub(crate) async fn while_joining(&self, process: Pid) {
        self.replicas.joined.wait_until(|| (!self.replicas.joining.lock().contains_key(&process)).then_some(())).await;
    }

    /// The replica that a message of the home is about. If this kernel is still asking for it, this waits until it is there.
    pub(crate) async fn replica(&self, process: Pid) -> Option<Arc<Process>> {
        self.while_joining(process).await;
        self.process(process)
    }

    /// Takes the home's report of which signals wait.
    pub(crate) fn pending_told(&self, process: Pid, pending: PendingSet) {
        if let Some(last) = self.replicas.joining.lock().get_mut(&process) {
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
