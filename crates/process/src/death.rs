//! What this kernel's processes lose when another kernel dies.
//!
//! Problem: threads, slices and frames that were on the dead kernel are gone, and its memory will soon be
//! a later boot's. A process that had any of that there can't go on, and must not map that memory when the
//! kernel is booted again.
//!
//! Idea: every survivor looks at its own processes, kills those that had something there, and answers when
//! none of them is left. Whoever wants to boot the dead kernel collects these answers first (`KernelDied`).
//! Where the home is alive, the end goes its usual way, for calls to the dead fail at once. Where the home was
//! the dead kernel nobody coordinates the end; each survivor ends its threads. A space may have had its home there
//! though its processes have not (execve makes the space where the thread is): each survivor gives up its own part
//! of every such space when its threads are gone ([`vm::Space::abandon`]).
//!
//! Not every survivor that has slices of a space has processes of it, and memory of the dead kernel may have come into any of them:
//! so each looks at its spaces as well, and has the users of those that are condemned killed wherever they are (vm/src/death.rs
//! says which, and why no fork slips through).
//!
//! The dangerous interleaving: one survivor releases frames while the process still runs on another and maps
//! them. So a part first refuses faults, then takes its pages back from the others, and only then frees.
//!
//! What the dead kernel had of a survivor comes back as well: frames that it had adopted or was offered, pins, record locks and
//! semaphore adjustments of processes that were at home there. It had answered others with those frames, so they are
//! mapped on kernels of which the lender knows nothing:
//!
//! ```text
//! K: lent f to D              D (dead)                        K3
//!                             adopted f, lent it on --------> maps f: a page of D's
//! D died: kills, is through   declared dead: none of          has not noticed, and writes f
//! f is free, used anew        its CPUs runs any more                                       <- into K's new page
//! ```
//!
//! So each survivor asks all others whether they are through (`Mourned`), and takes back what is its own when all have said so.
//! The same moment ends locks: until then a doomed process may still take one; and it ends the dead one's references to files,
//! for each of the others has said by then which of them it was given.

use crate::{process::Flags, thread::Presence, wait::LAST, Process, System, Thread};
use abi::signal::Signal;
use alloc::{collections::BTreeSet, sync::Arc, vec::Vec};
use core::sync::atomic::Ordering::SeqCst;
use machine::{
    sync::{AsyncLock, Lock, WaitQueue},
    KernelId, Pid, SpaceId,
};
use messages::process::{ChildChanged, ChildEvent, EndSpace, EndUsers, ExitStatus, Mourned, ThreadLost};

pub(crate) const KILLED: ExitStatus = ExitStatus::Signal { signal: Signal::KILL, core: false };

/// Death is rare: looking now and then costs less than telling somebody at every exit of a thread.
const LOOK_AGAIN_NS: u64 = 5_000_000;

/// Deaths of other kernels that this one is dealing with.
#[derive(Default)]
pub(crate) struct Deaths {
    /// Held while the spaces of a dead kernel are given up.
    abandoning: AsyncLock<()>,
    mourning: Lock<Vec<(KernelId, Mourning)>>,
    /// Woken when `mourning` has changed.
    mourned: WaitQueue,
}

/// How far this kernel is with a death.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mourning {
    /// Programs here may still run in memory that the dead kernel had.
    Begun,
    /// None does here any more. On other kernels programs may still run in memory that this kernel had lent to the dead one.
    Through,
}

impl System {
    /// A kernel has died. True for the first who says so, who goes on with [`System::kernel_died`].
    pub fn begin_mourning(&self, dead: KernelId) -> bool {
        let mut mourning = self.deaths.mourning.lock();
        let first = self.endpoint.is_alive(dead) && !mourning.iter().any(|(of, _)| *of == dead);
        if first {
            mourning.push((dead, Mourning::Begun));
        }
        first
    }

    fn mourning_of(&self, dead: KernelId) -> Option<Mourning> {
        self.deaths.mourning.lock().iter().find(|(of, _)| *of == dead).map(|(_, how)| *how)
    }

    /// Kills what had something on `dead`, and returns when it is gone, and what the dead kernel had of this one is taken back.
    pub async fn kernel_died(self: &Arc<Self>, dead: KernelId) {
        self.end_what_had_something_on(dead).await;
        self.deaths
            .mourning
            .lock()
            .iter_mut()
            .filter(|(of, _)| *of == dead)
            .for_each(|(_, how)| *how = Mourning::Through);
        self.deaths.mourned.wake_all();
        // Each of the others has noticed the death, or will; one that dies meanwhile does not run any more either.
        self.endpoint.multicast(&self.endpoint.others(), Mourned { dead }).await;
        self.tell_of_zombies().await;
        self.take_back(dead).await;
        self.deaths.mourning.lock().retain(|(of, _)| *of != dead);
        self.deaths.mourned.wake_all();
    }

    /// Returns when [`System::kernel_died`] has, if it is under way.
    pub async fn until_over(&self, dead: KernelId) {
        self.deaths.mourned.wait_until(|| self.mourning_of(dead).is_none().then_some(())).await
    }

    /// Returns when nothing here runs in memory that `dead` had. Whoever asks knows of the death; this kernel may not yet. (It
    /// can't be its next boot generation that is alive: it is not booted before who asks has the answer.)
    pub(crate) async fn until_mourned(&self, dead: KernelId) {
        let through = || !self.endpoint.is_alive(dead) && self.mourning_of(dead) != Some(Mourning::Begun);
        self.deaths.mourned.wait_until(|| through().then_some(())).await;
        // Those of the dead one among them, which were pinned for us by who asks, before he takes it for over.
        self.vm.send_frames_home(1);
    }

    /// No kernel runs anything that had something on `dead`: what that had of this one comes back.
    async fn take_back(&self, dead: KernelId) {
        self.memory.take_all_home(dead);
        self.forget_cgroup_members(dead);
        self.descriptor_transfer.release_of(dead);
        self.descriptor_transfer.end_locks(&|process| self.origin(process) == Some(dead)).await;
        self.futexes.kernel_died().await;
        self.drop_counters_of(dead);
        let at_end = self.at_end.lock().clone();
        if let Some(at_end) = at_end {
            at_end.lost(dead).await;
        }
    }

    async fn end_what_had_something_on(self: &Arc<Self>, dead: KernelId) {
        self.endpoint.silence(dead).await;
        // First of all: those that are about to end may be waiting for it.
        self.futexes.release_of(dead);
        self.descriptor_transfer.mourn(dead).await;
        self.vm.stop_waiting_for(dead);
        self.forget_expected(dead);
        // A replica that is being made may be of a process that is at home there.
        let joining: Vec<Pid> = self.replicas.joining.lock().keys().copied().collect();
        let over = || !joining.iter().any(|process| self.replicas.joining.lock().contains_key(process));
        self.replicas.joined.wait_until(|| over().then_some(())).await;
        self.tell_lost_threads(dead).await;
        // Who had only pages of a file there has nothing there any more.
        self.descriptor_transfer.lose_objects(dead).await;
        // Who was about to fork has a child that maps what its parent did: looked for until nobody is new.
        let mut known = BTreeSet::new();
        loop {
            let all: Vec<Arc<Process>> = self.processes.lock().values().cloned().collect();
            let new = all.into_iter().filter(|process| known.insert(process.id));
            let (doomed, others): (Vec<_>, Vec<_>) = new.partition(|process| process.had_something_on(dead));
            for process in &doomed {
                process.kill_after(dead).await;
            }
            for process in &others {
                process.lose_relatives(dead).await;
            }
            for process in &doomed {
                self.wait_until_gone(process, dead).await;
            }
            if doomed.is_empty() {
                break;
            }
        }
        self.forget_users(dead).await;
        self.vm.lose_frames(dead).await;
        self.descriptor_transfer.lose_frames().await;
        self.end_condemned(dead).await;
        // Another death may be at a space that is not in the list any more.
        let _alone = self.deaths.abandoning.lock().await;
        for space in self.vm.spaces().into_iter().filter(|space| space.id().home == dead) {
            space.abandon().await;
        }
        self.vm.give_up_unknown().await;
        // They can't be delivered: the next boot generation must not get the frames of this one.
        self.vm.send_frames_home(1);
    }

    /// Where a thread is its home hears from the kernel that it comes to, by `Moved` or its answer to the home; if that has died before
    /// it said so, from the one that the thread left.
    async fn tell_lost_threads(self: &Arc<Self>, dead: KernelId) {
        let is_there = |thread: &Arc<Thread>| matches!(*thread.presence.lock(), Presence::Away(at) if at == dead);
        let there: Vec<Arc<Thread>> = self.threads.lock().values().filter(|thread| is_there(thread)).cloned().collect();
        for thread in there {
            // One whose move has just failed goes on here.
            while thread.leaving.load(SeqCst) {
                self.scheduler.sleep_until(self.now() + LOOK_AGAIN_NS).await;
            }
            if !is_there(&thread) {
                continue;
            }
            let (process, moves) = (&thread.process, thread.state.lock().moves);
            let lost = ThreadLost { process: process.id, thread: thread.tid, dead, moves };
            match process.is_home() {
                true => self.thread_lost_here(lost).await,
                false => drop(self.endpoint.call(process.home, lost).await),
            }
        }
    }

    /// At home.
    pub(crate) async fn thread_lost_here(self: &Arc<Self>, lost: ThreadLost) {
        let ThreadLost { process, thread, dead, moves } = lost;
        let Some(process) = self.process(process) else { return };
        process.member_moved(thread, dead, moves);
        // Else it will be found there when this kernel looks.
        if !self.endpoint.is_alive(dead) && process.member_at(thread) == Some(dead) {
            process.kill_after(dead).await;
        }
    }

    /// A thread on the dead kernel may have taken a zombie from its parent's list, and not have reaped it any more. Its wait may
    /// even have outlived it, at the parent's home, until that was through with the death.
    async fn tell_of_zombies(self: &Arc<Self>) {
        let all: Vec<Arc<Process>> = self.processes.lock().values().cloned().collect();
        for process in all.iter().filter(|process| process.has_ended()) {
            process.tell_parent_of_end().await;
        }
    }

    /// Until no space here has anything of `dead`. Those that were at home there are given up, which is another matter.
    async fn end_condemned(self: &Arc<Self>, dead: KernelId) {
        loop {
            let mut condemned = self.vm.condemned_by(dead);
            condemned.retain(|space| space.home != dead);
            if condemned.is_empty() {
                return;
            }
            // Those whose home died as well need no word of it: it is the same for all who survived that.
            for spaces in condemned.chunks(vm::MOST_SPACES) {
                self.end_users(spaces).await;
                self.endpoint.multicast(&self.endpoint.others(), EndUsers { spaces: spaces.into() }).await;
            }
            for space in condemned {
                match space.home == self.kernel {
                    true => self.end_space_here(space).await,
                    false => drop(self.endpoint.call(space.home, EndSpace { space }).await),
                }
            }
            self.vm.give_up_unknown().await;
        }
    }

    /// Kills the processes that use these spaces. Who is only about to have one (a fork, an execve) finds it gone.
    pub(crate) async fn end_users(self: &Arc<Self>, spaces: &[SpaceId]) {
        let uses = |process: &Arc<Process>| spaces.contains(&process.space().id());
        let users: Vec<Arc<Process>> =
            self.processes.lock().values().filter(|process| uses(process)).cloned().collect();
        for process in &users {
            if !process.has(Flags::ENDING) {
                log::error!("process {} has memory of a kernel that died: killed", process.id);
            }
            process.end(KILLED).await;
        }
        for process in users.iter().filter(|process| process.is_home()) {
            process.ended().await;
        }
    }

    async fn wait_until_gone(self: &Arc<Self>, process: &Arc<Process>, dead: KernelId) {
        if process.is_home() {
            process.ended().await;
            return;
        }
        while !process.local_threads().is_empty() {
            self.scheduler.sleep_until(self.now() + LOOK_AGAIN_NS).await;
        }
        if process.home != dead {
            return;
        }
        let known = self.processes.lock().remove(&process.id);
        if known.is_none() {
            return;
        }
        let shadows = |tid: &Pid| self.thread(*tid).is_some_and(|thread| thread.process.id == process.id);
        let threads: Vec<Pid> = self.threads.lock().keys().copied().collect();
        for tid in threads.into_iter().filter(shadows) {
            if let Some(shadow) = self.threads.lock().remove(&tid) {
                *shadow.presence.lock() = Presence::Ended;
                shadow.presence_changed.wake_all();
            }
            self.born_here.lock().remove(&tid);
            // One that was just coming back.
            self.arrivals.arriving.lock().remove(&tid);
        }
    }
}

impl Process {
    fn had_something_on(&self, dead: KernelId) -> bool {
        // A zombie has nothing any more, though it still says where it had it; all it needs is somebody who reaps it.
        if self.has_ended() {
            return false;
        }
        let member = |home: &crate::home::Home| {
            let state = home.state.lock();
            state.replicas.contains(dead) || state.members.values().any(|member| member.at == dead)
        };
        self.home == dead
            || self.files().id().home == dead
            || self.with_shared(|shared| {
                shared.sharing_groups.iter().flatten().any(|sharing_group| sharing_group.home == dead)
            })
            || self.home().is_some_and(member)
            || self.space().had_something_on(dead)
    }

    async fn kill_after(self: &Arc<Self>, dead: KernelId) {
        if !self.has(Flags::ENDING) {
            log::error!("process {} had something on kernel {dead}, which died: killed", self.id);
        }
        let Some(home) = self.home() else {
            match self.home == dead {
                true => self.end_local(KILLED, None),
                false => return self.end(KILLED).await,
            };
            return;
        };
        let (emptied, gone) = {
            let mut state = home.state.lock();
            state.replicas.remove(dead);
            let there = state.members.iter().filter(|(_, member)| member.at == dead).map(|(tid, _)| *tid);
            let there: Vec<Pid> = there.collect();
            let mut gone = Vec::with_capacity(there.len());
            for thread in there {
                state.members.remove(&thread);
                gone.push((thread, state.watchers.remove(&thread).unwrap_or_default()));
            }
            (!gone.is_empty() && state.members.is_empty(), gone)
        };
        for (thread, watchers) in gone {
            // Its locks go to those who wait, and its shadow here ends; those elsewhere do with the replicas.
            self.tell_watchers(thread, watchers);
            self.system.end_shadow(thread);
        }
        self.end(KILLED).await;
        home.members_changed.wake_all();
        if emptied {
            self.finish(KILLED).await;
        }
    }

    /// Children that were at home there have ended; a parent that was there is replaced by init.
    async fn lose_relatives(self: &Arc<Self>, dead: KernelId) {
        let Some(home) = self.home() else { return };
        let system = &self.system;
        let lost: Vec<(Pid, Pid, u32)> = {
            let state = home.state.lock();
            let gone = state.children.iter().filter(|(pid, child)| {
                let reported = matches!(child.event, Some(ChildEvent::Exited(_)));
                system.origin(**pid) == Some(dead) && !reported
            });
            gone.map(|(pid, child)| (*pid, child.group, child.uid)).collect()
        };
        for (child, group, uid) in lost {
            let event = ChildEvent::Exited(KILLED);
            let usage = Default::default();
            system
                .child_changed_here(ChildChanged { parent: self.id, child, group, uid, event, order: LAST, usage })
                .await;
        }
        system.give_to_init(self, dead).await;
    }
}
