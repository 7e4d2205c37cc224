//! The end of threads and processes.
//!
//! A thread that ends tells the home, which knows who is left. The last one makes the process a zombie: its
//! memory and files go, replicas are dropped, the parent hears of it. Ending the group (exit_group, a deadly
//! signal) is decided once, at home, and every thread ends itself at its next user boundary; until then it is
//! a member, so nothing that it uses can go before it.

use crate::{orphan::is_tie, process::Flags, thread::Presence, wait::LAST, Process, System, Thread};
use alloc::{collections::BTreeSet, sync::Arc, vec::Vec};
use core::sync::atomic::Ordering::*;
use machine::{KernelId, Pid};
use messages::process::{
    ChildChanged, ChildEvent, DropReplica, EndLocks, EndProcess, EndShadow, EndThreads, ExitStatus,
    LastSchedulingParameters, Reparented, SharedPart, Survivor, ThreadGone, Unthread,
};
use vm::Space;

/// What a call answers whose thread has ended: the thread's future is over, and must not touch user space any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended;

/// The process id of init, which adopts orphans.
pub(crate) const INIT: Pid = Pid(1);

impl Process {
    /// Decides how the process ends, if that is not decided yet, and makes all threads end. At home this waits for nobody, so that a
    /// thread that kills many processes does so without giving up its CPU, as on Linux.
    pub async fn end(self: &Arc<Self>, status: ExitStatus) {
        if !self.is_home() {
            // The local threads need not wait for the home's word.
            self.end_local(status, None);
            let end = EndProcess { process: self.id, status };
            if self.system.endpoint.call(self.home, end).await.is_err() {
                log::warn!("process {}: its home, kernel {}, is gone", self.id, self.home);
            }
            return;
        }
        if !self.end_local(status, None) {
            return;
        }
        self.tell_end(status, None);
    }

    /// At home: tells the replicas. Whoever must know that their threads are gone waits for the members to change.
    fn tell_end(&self, status: ExitStatus, survivor: Option<Survivor>) {
        for replica in self.replicas().iter() {
            // A kernel that is dead has no threads.
            let _ = self.system.endpoint.send(replica, EndThreads { process: self.id, status, survivor });
        }
    }

    /// Makes the local threads (all but `survivor`) end; false if that was decided before.
    pub(crate) fn end_local(&self, status: ExitStatus, survivor: Option<Survivor>) -> bool {
        if let Some(survivor) = survivor {
            *self.survivor.lock() = Some(survivor);
            for thread in self.local_threads() {
                if thread.tid != survivor.thread {
                    thread.doomed.store(true, SeqCst);
                    thread.wake();
                }
            }
            // Threads of a stopped process wait for this.
            self.changed.wake_all();
            return true;
        }
        {
            let mut ending = self.ending.lock();
            if ending.is_some() {
                return false;
            }
            *ending = Some(status);
        }
        self.set_flags(Flags::ENDING, true);
        true
    }

    /// execve in a process of several threads: ends all others, here and elsewhere, and waits until they are
    /// gone. The caller continues as the only member.
    pub async fn become_single(self: &Arc<Self>, survivor: &Arc<Thread>) -> machine::errno::Result<()> {
        if !self.is_home() {
            let ask = Unthread { process: self.id, survivor: survivor.tid };
            return self.system.endpoint.call(self.home, ask).await.map_err(machine::Errno::from)?;
        }
        self.unthread(survivor.tid).await
    }

    pub(crate) async fn unthread(self: &Arc<Self>, survivor: Pid) -> machine::errno::Result<()> {
        let home = self.home().ok_or(machine::Errno::ESRCH)?;
        let status = ExitStatus::Code(0);
        if home.state.lock().members.len() > 1 {
            // Of two threads that call execve the first goes on; the other ends like the rest, and must not wait for
            // the first to end.
            if self.survivor.lock().is_some_and(|other| other.thread != survivor) {
                return Err(machine::Errno::EINTR);
            }
            let survivor = Survivor { thread: survivor, at: self.system.now() };
            self.end_local(status, Some(survivor));
            self.tell_end(status, Some(survivor));
        }
        let alone = || {
            let state = home.state.lock();
            (state.members.len() == 1 || self.has(Flags::ENDING)).then_some(())
        };
        home.members_changed.wait_until(alone).await;
        if self.has(Flags::ENDING) {
            return Err(machine::Errno::EINTR);
        }
        // The survivor goes on under the process's own id.
        let mut state = home.state.lock();
        if let Some(member) = state.members.remove(&survivor) {
            state.members.insert(self.id, member);
        }
        Ok(())
    }

    /// At home: takes a thread that has ended off the list of members.
    pub(crate) async fn member_gone(self: &Arc<Self>, gone: ThreadGone) {
        let ThreadGone { thread, name, usage, visited, status, last, .. } = gone;
        let Some(home) = self.home() else { return };
        let (last, watchers, fewer) = {
            let mut state = home.state.lock();
            if state.members.remove(&thread).is_none() {
                return;
            }
            state.usage.add(&usage);
            if thread == self.id {
                // What a zombie is called.
                state.name = name;
                state.last_scheduling = last.or(state.last_scheduling.take());
            }
            let last = state.members.is_empty();
            let fewer = (state.counted.in_group && !last).then(|| state.count_threads());
            (last, state.watchers.remove(&thread).unwrap_or_default(), fewer)
        };
        if let Some(fewer) = fewer {
            self.tell_fewer_threads(fewer).await;
        }
        self.tell_watchers(thread, watchers);
        for kernel in visited.iter() {
            if kernel == self.system.kernel {
                self.system.end_shadow(thread);
            } else {
                // A dead kernel has no shadow left.
                let _ = self.system.endpoint.send(kernel, EndShadow { process: self.id, thread });
            }
        }
        home.members_changed.wake_all();
        if last {
            let status = self.ending.lock().unwrap_or(status);
            self.finish(status).await;
        }
    }

    /// At home, from execve: the only thread is on kernel `at`. Drops the replicas on all other kernels, so that the process does not die
    /// with one of them, and changes need not be told there. One that has died before it answered may have had record locks of the process:
    /// it stays in the list, and the process dies with it.
    ///
    /// A signal that follows the thread from kernel to kernel may come to one that has no replica any more. Then it is sent on from here
    /// ([`System::route_to_thread`]), where the shadow knows where the thread is.
    pub(crate) async fn keep_only(&self, at: KernelId) {
        let Some(home) = self.home() else { return };
        let gone = {
            let mut gone = home.state.lock().replicas.clone();
            gone.remove(at);
            gone
        };
        if gone.is_empty() {
            return;
        }
        if let Some(shadow) = self.system.thread(self.id) {
            if let Presence::Away(to) = &mut *shadow.presence.lock() {
                *to = at;
            }
        }
        let answers = self.system.endpoint.multicast(&gone, DropReplica { process: self.id }).await;
        let mut state = home.state.lock();
        for (kernel, _) in answers.iter().filter(|(_, answer)| answer.is_ok()) {
            state.replicas.remove(*kernel);
        }
    }

    /// At home: ends the process, after its last thread.
    pub(crate) async fn finish(self: &Arc<Self>, status: ExitStatus) {
        let system = self.system.clone();
        *self.ending.lock() = Some(status);
        self.set_flags(Flags::ENDING, true);
        if let Some(home) = self.home() {
            home.timers.end();
        }
        self.note_peak(&self.space()).await;
        // Memory first: a kernel that has none left waits for a process that is ending, before it kills another one.
        system.release_space(&self.space(), self.home).await;
        let replicas = self.replicas();
        if !replicas.is_empty() {
            system.endpoint.multicast(&replicas, DropReplica { process: self.id }).await;
        }
        // A thread that died with its kernel during an execve has not ended the shadows of its old id.
        system.end_shadows(self.id);
        self.drop_counters().await;
        self.end_ipc().await;
        for part in SharedPart::ALL {
            // A sharing group whose keeper is dead is over.
            let _ = self.leave_sharing_group(part).await;
        }
        if self.files().release(self.home, Some(self.id)).await.is_err() {
            // Any kernel may have files that were in it, with locks of this process.
            let ended = EndLocks { process: self.id };
            system.endpoint.multicast(&system.endpoint.present(), ended).await;
        }
        self.orphan_children().await;
        let Some(home) = self.home() else { return };
        {
            let mut state = home.state.lock();
            state.zombie = Some(status);
            state.pending.settle();
        }
        home.members_changed.wake_all();
        self.space_released.wake_all();
        self.end_in_cgroup().await;
        self.end_as_member().await;
        self.tell_parent_of_end().await;
    }

    /// At home: tells the parent of a zombie, also if it may have been told before. If nobody will wait for it, it goes.
    pub(crate) async fn tell_parent_of_end(&self) {
        let Some(home) = self.home() else { return };
        let (parent, group) = self.with_shared(|shared| (shared.parent, shared.group));
        let event = {
            let state = home.state.lock();
            let Some(status) = state.zombie else { return };
            let mut usage = state.usage;
            usage.add(&state.children_usage);
            let (uid, event) = (state.credentials.uid, ChildEvent::Exited(status));
            ChildChanged { parent, child: self.id, group, uid, event, order: LAST, usage }
        };
        if self.system.child_changed(event).await {
            self.system.forget(self.id);
        }
    }

    /// At home: getrusage counts the peak of `space`, which the process is about to leave.
    async fn note_peak(&self, space: &Space) {
        let Some(home) = self.home() else { return };
        let peak = space.peak().await;
        home.state.lock().usage.note_resident(peak.resident);
    }

    /// The children get a new parent: the nearest subreaper, else init. See heir.rs.
    async fn orphan_children(self: &Arc<Self>) {
        let Some(home) = self.home() else { return };
        let children: Vec<Pid> = {
            let mut state = home.state.lock();
            let children: Vec<Pid> = core::mem::take(&mut state.children).into_keys().collect();
            state.handed_out = Some(children.iter().copied().collect());
            children
        };
        if children.is_empty() {
            return;
        }
        let mut heir = self.system.subreaper_of(self).await;
        let own = self.with_shared(|shared| (shared.group, shared.session));
        let mut cut = BTreeSet::new();
        for child in children {
            loop {
                match self.system.reparent(child, heir).await {
                    Reparented::Done { group, session } => {
                        cut.extend(Some((group, session)).filter(|place| is_tie(own, *place)));
                        break;
                    }
                    Reparented::NoSuchChild => break,
                    Reparented::HeirGone => heir = self.system.subreaper_of(self).await,
                }
            }
        }
        for (group, session) in cut {
            self.system.tie_cut(group, session).await;
        }
    }
}

impl Thread {
    /// The thread ends here, with `status` if it is the last one. User space has been told already (the
    /// futex at clear_child_tid, robust futexes: crate `linux`).
    pub async fn exit(self: &Arc<Self>, status: ExitStatus) -> Ended {
        let process = &self.process;
        let system = process.system.clone();
        trace::sched_process_exit(self.tid.0);
        // The id that the home knows it by: during execve it is the process's.
        let thread = if self.executing.load(SeqCst) { process.id } else { self.tid };
        process.threads.lock().remove(&self.tid);
        let last = self.stop_being_here(thread == process.id);
        system.threads.lock().remove(&self.tid);
        self.forget_destination();
        self.release_reservation();
        let (name, usage, visited) = {
            let mut state = self.state.lock();
            let visited = core::mem::take(&mut state.visited);
            self.settle_account(&mut state);
            state.pending.settle();
            (state.name.clone(), state.usage, visited)
        };
        // Whoever hears of the end finds nobody of this id any more, on no CPU either.
        self.ends();
        system.forget_birth(self.tid, process.id);
        let gone = ThreadGone { process: process.id, thread, name, usage, visited, status, last };
        if process.is_home() {
            process.member_gone(gone).await;
        } else {
            // If the home is dead, this kernel ends the process's threads by itself.
            let _ = system.endpoint.call(process.home, gone).await;
        }
        Ended
    }

    /// Takes the thread out of this kernel's tables. Answers how a main thread was scheduled, if its home does not know that yet: from then
    /// on the home answers questions about it.
    fn stop_being_here(&self, is_main: bool) -> Option<LastSchedulingParameters> {
        // Under this lock a thread that changes the scheduling does so before, or finds that the thread has ended.
        let mut presence = self.presence.lock();
        *presence = Presence::Ended;
        let last = is_main.then(|| self.state.lock().scheduling_parameters())?;
        match self.process.home() {
            Some(home) => {
                home.state.lock().last_scheduling = Some(last);
                None
            }
            None => Some(last),
        }
    }
}

impl System {
    /// [`EndShadow`]: ends the shadow of a thread that has ended on another kernel. It does nothing if the thread is here: after an execve
    /// another thread goes on under the main thread's id, and may arrive before this message about the old one.
    pub(crate) fn end_shadow(&self, thread: Pid) {
        if let Some(shadow) = self.thread(thread) {
            let mut presence = shadow.presence.lock();
            if !matches!(*presence, Presence::Away(_)) {
                return;
            }
            *presence = Presence::Ended;
            drop(presence);
            self.threads.lock().remove(&thread);
            shadow.presence_changed.wake_all();
        }
        // The main thread's id is the process's, and stays with it: after an execve it names another thread.
        if !self.process(thread).is_some_and(|process| process.is_home()) {
            self.born_here.lock().remove(&thread);
        }
    }

    /// Ends the shadows of all threads of a process on this kernel.
    fn end_shadows(&self, process: Pid) {
        let shadows: Vec<Pid> = {
            let threads = self.threads.lock();
            threads.values().filter(|thread| thread.process.id == process).map(|thread| thread.tid).collect()
        };
        shadows.into_iter().for_each(|tid| self.end_shadow(tid));
    }

    pub(crate) fn forget_birth(&self, thread: Pid, process: Pid) {
        if thread != process {
            self.born_here.lock().remove(&thread);
        }
    }

    /// [`DropReplica`]: drops the replica, with the shadows of threads that passed through. The process has ended, or has executed a
    /// program on another kernel.
    pub(crate) async fn drop_replica(&self, process: Pid) {
        // A thread may be arriving from a kernel that has died, while its home believes that it died there.
        self.while_joining(process).await;
        let replica = self.processes.lock().remove(&process);
        drop(replica);
        self.end_shadows(process);
        self.descriptor_transfer.give_back_locks(process).await;
        // The address space of the replica goes with the space itself: `Space::destroy` at its home asks
        // every kernel that has it.
        log::trace!("process {process}: replica dropped");
    }

    /// Drops a zombie that was waited for, or that nobody will wait for.
    pub(crate) fn forget(&self, process: Pid) {
        let record = self.processes.lock().remove(&process);
        if record.is_some_and(|process| process.home().is_some_and(|home| home.state.lock().counted.in_group)) {
            self.tell_cgroup_gone(process);
        }
        self.born_here.lock().remove(&process);
        self.threads.lock().remove(&process);
    }
}
