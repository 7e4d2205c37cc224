//! What the kernels of a process tell the owner of the tree, and what that asks them.

use crate::{change::Turn, death::KILLED, exit::INIT, home::Home, Process, System, Thread};
use alloc::{collections::BTreeMap, sync::Arc, vec::Vec};
use machine::{errno::Result, to_completion, Errno, GroupId, KernelId, Pid};
use messages::{
    cgroup::{
        CgroupEnter, CgroupFork, CgroupKill, CgroupLife, CgroupMembers, CgroupMove, CgroupThreads, IntoCgroup, Life,
        ThreadCount,
    },
    process::{Change, Shared},
};
use sched::KernelTasks;

/// The kernel that owns the tree.
const OWNER: KernelId = KernelId::PRIMARY;

impl Thread {
    /// Before a fork: the group that the child will be in. `into`: see [`crate::CloneRequest::cgroup`].
    pub(crate) async fn cgroup_for_child(&self, child: Pid, into: Option<u64>) -> Result<GroupId> {
        let process = &self.process;
        if into.is_none() && process.cgroup().is_root() {
            return Ok(GroupId::ROOT);
        }
        let into = into.map(|ino| IntoCgroup { ino, who: self.state.lock().credentials.clone() });
        let ask = CgroupFork { parent: process.id, child, into };
        process.system.endpoint.call(OWNER, ask).await.map_err(Errno::from)?
    }
}

impl Process {
    /// The control group that it is in, as this kernel knows.
    pub fn cgroup(&self) -> GroupId {
        self.with_shared(|shared: &Shared| shared.cgroup)
    }

    /// At home: makes a thread a member, if it may be.
    pub(crate) async fn admit_member(&self, thread: Pid, at: KernelId) -> Result<()> {
        let home = self.home().ok_or(Errno::ESRCH)?;
        if let Some(answer) = self.member_born(thread, at, false) {
            return answer;
        }
        let _turn = home.changes.lock().await;
        let count = {
            let mut state = home.state.lock();
            state.counted.births += 1;
            state.count_threads()
        };
        let admitted = match self.cgroup().is_root() {
            true => Ok(()),
            false => self.tell_threads(count, true).await,
        };
        let born = match admitted {
            Ok(()) => self.member_born(thread, at, true).unwrap_or(Err(Errno::EAGAIN)),
            refused => {
                home.state.lock().counted.births -= 1;
                refused
            }
        };
        if born.is_err() {
            let count = home.state.lock().count_threads();
            self.tell_fewer_threads(count).await;
        }
        born
    }

    async fn tell_threads(&self, count: ThreadCount, asks: bool) -> Result<()> {
        let tell = CgroupThreads { process: self.id, count, asks };
        self.system.endpoint.call(OWNER, tell).await.map_err(Errno::from)?
    }

    /// At home: a thread has ended, and so many are left.
    pub(crate) async fn tell_fewer_threads(&self, count: ThreadCount) {
        let _ = self.tell_threads(count, false).await;
    }

    /// At home: moves the process into another group.
    pub(crate) async fn move_to_cgroup(self: &Arc<Self>, to: GroupId) -> Result<()> {
        let home = self.home().ok_or(Errno::ESRCH)?;
        let turn = home.changes.lock().await;
        self.move_in_turn(home, to, &turn).await
    }

    async fn move_in_turn(self: &Arc<Self>, home: &Home, to: GroupId, turn: &Turn<'_>) -> Result<()> {
        let was_in_group = !self.cgroup().is_root();
        let count = {
            let mut state = home.state.lock();
            // As on Linux it moves no more when it has ended.
            if state.zombie.is_some() || state.members.is_empty() {
                return Ok(());
            }
            state.counted.in_group = true;
            state.count_threads()
        };
        let enter = CgroupEnter { process: self.id, to, count };
        let entered = self.system.endpoint.call(OWNER, enter).await.map_err(Errno::from).flatten();
        let changed = match entered {
            Ok(()) => self.change_in_turn(Change::Cgroup(to), turn).await,
            error => error,
        };
        let is_in_group = if entered.is_ok() { !to.is_root() } else { was_in_group };
        let now = {
            let mut state = home.state.lock();
            state.counted.in_group = is_in_group;
            state.count_threads()
        };
        if is_in_group && now.threads != count.threads {
            // A thread has ended meanwhile, and said so too soon.
            self.tell_fewer_threads(now).await;
        }
        changed
    }

    /// At home of a process whose last thread has ended: the owner of the tree hears of it.
    pub(crate) async fn end_in_cgroup(&self) {
        let Some(home) = self.home() else { return };
        if !home.state.lock().counted.in_group {
            return;
        }
        // Behind a move that has counted it.
        let _turn = home.changes.lock().await;
        self.system.tell_cgroup_life(self.id, Life::Ended).await;
    }
}

impl System {
    /// Returns when the owner of the tree knows.
    pub(crate) async fn tell_cgroup_life(&self, process: Pid, life: Life) {
        let _ = self.endpoint.call(OWNER, CgroupLife { process, life }).await;
    }

    /// The same where nobody can wait for it.
    pub(crate) fn tell_cgroup_gone(&self, process: Pid) {
        let _ = self.endpoint.send(OWNER, CgroupLife { process, life: Life::Gone });
    }

    // ---- at the owner of the tree

    /// Looks at the tree or changes it, and tells who watches cgroup.events.
    pub fn with_cgroups<T>(&self, work: impl FnOnce(&mut super::Tree) -> T) -> T {
        let (answer, changed) = {
            let mut tree = self.cgroups.tree.lock();
            (work(&mut tree), tree.take_changed())
        };
        changed.iter().for_each(|events| events.tell());
        answer
    }

    pub(crate) fn cgroup_life(self: &Arc<Self>, process: Pid, life: Life) {
        if self.with_cgroups(|tree| tree.live(process, life)) {
            let system = self.clone();
            self.scheduler.spawn(async move { system.kill_processes([process].into()).await });
        }
    }

    /// Moves a process into a group. ESRCH.
    pub async fn attach_to_cgroup(self: &Arc<Self>, process: Pid, to: GroupId) -> Result<()> {
        let home = self.origin(process).ok_or(Errno::ESRCH)?;
        if !self.kernels().contains(&home) {
            return Err(Errno::ESRCH);
        }
        self.endpoint.call(home, CgroupMove { process, to }).await.map_err(|_| Errno::ESRCH)?
    }

    /// Kills all processes in a group and below it, also if the thread that asks for it is among them and waits no longer.
    pub async fn kill_cgroup(self: &Arc<Self>, group: GroupId) {
        let meant = self.with_cgroups(|tree| tree.kill(group));
        let system = self.clone();
        to_completion(&KernelTasks(self.scheduler.clone()), async move { system.kill_processes(meant).await }).await
    }

    async fn kill_processes(self: &Arc<Self>, meant: Vec<Pid>) {
        let mut homes: BTreeMap<KernelId, Vec<Pid>> = BTreeMap::new();
        for process in meant {
            if let Some(home) = self.origin(process) {
                homes.entry(home).or_default().push(process);
            }
        }
        for (home, processes) in homes {
            // With a home that has died they are ending anyway.
            let _ = self.endpoint.call(home, CgroupKill { processes }).await;
        }
    }

    /// The processes in a group that have threads, with these; ascending.
    pub async fn cgroup_members(&self, group: GroupId) -> Vec<(Pid, Vec<Pid>)> {
        let mut all = self.cgroup_members_here(group);
        for kernel in self.others() {
            all.extend(self.endpoint.call(kernel, CgroupMembers { group }).await.unwrap_or_default());
        }
        all.sort_unstable();
        all
    }

    /// The processes that were at home on `dead` are no more.
    pub(crate) fn forget_cgroup_members(&self, dead: KernelId) {
        self.with_cgroups(|tree| {
            tree.forget(|process| self.origin(process) == Some(dead));
            tree.forget_grants(dead);
        });
    }

    // ---- at the homes of processes

    pub(crate) async fn kill_here(&self, processes: Vec<Pid>) {
        for process in processes.into_iter().filter(|process| *process != INIT) {
            if let Some(process) = self.process(process) {
                process.end(KILLED).await;
            }
        }
    }

    pub(crate) fn cgroup_members_here(&self, group: GroupId) -> Vec<(Pid, Vec<Pid>)> {
        let processes: Vec<Arc<Process>> = self.processes.lock().values().cloned().collect();
        let threads = |process: Arc<Process>| {
            let home = process.home().filter(|_| process.cgroup() == group)?;
            let threads: Vec<Pid> = home.state.lock().members.keys().copied().collect();
            (!threads.is_empty()).then_some((process.id, threads))
        };
        processes.into_iter().filter_map(threads).collect()
    }
}
