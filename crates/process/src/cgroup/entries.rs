//! The processes in groups, as the owner of the tree has entered them: forks, threads, ends, and kills.

use super::tree::{Member, Tree};
use alloc::{collections::BTreeSet, sync::Arc, vec::Vec};
use fs::synthetic::Changes;
use machine::{errno::Result, Errno, GroupId, Pid};
use messages::cgroup::{IntoCgroup, Life, ThreadCount};

impl Tree {
    /// See [`messages::cgroup::CgroupFork`].
    pub fn fork(&mut self, parent: Pid, child: Pid, into: Option<&IntoCgroup>) -> Result<GroupId> {
        let parent = self.members.get(&parent);
        if parent.is_some_and(|parent| parent.killed) {
            return Err(Errno::EAGAIN);
        }
        let mut group = parent.map(|parent| parent.group).unwrap_or_default();
        if let Some(into) = into {
            let to = self.by_ino(into.ino).ok_or(Errno::ENOENT)?;
            self.may_write_procs(&into.who, to)?;
            self.may_move(&into.who, group, to)?;
            self.admits_processes(to)?;
            group = to;
        }
        if group.is_root() {
            return Ok(group);
        }
        self.admit_threads(group, 1)?;
        let count = ThreadCount { threads: 1, version: 0 };
        self.put(child, Member { group, count, life: None, killed: false });
        Ok(group)
    }

    /// See [`messages::cgroup::CgroupEnter`].
    pub fn enter(&mut self, process: Pid, to: GroupId, count: ThreadCount) -> Result<()> {
        if self.group_of(process) != to {
            self.admits_processes(to)?;
        }
        let old = self.take(process);
        if !to.is_root() {
            let killed = old.is_some_and(|old| old.killed);
            self.put(process, Member { group: to, count, life: Some(Life::Born), killed });
        }
        Ok(())
    }

    /// EAGAIN if the limit of a group does not let it have so many threads more.
    fn admit_threads(&mut self, group: GroupId, more: u32) -> Result<()> {
        let over = |id: &GroupId| {
            let pids = &self.groups[id].pids;
            pids.max.is_some_and(|max| pids.current.saturating_add(more) > max)
        };
        let Some(limiting) = self.chain(group).find(over) else { return Ok(()) };
        self.for_chain(limiting, |id, group| {
            group.pids.refused += 1;
            group.pids.refused_here += u64::from(id == limiting);
        });
        Err(Errno::EAGAIN)
    }

    fn put(&mut self, process: Pid, member: Member) {
        let Member { group, count, life, .. } = member;
        let alive = !matches!(life, Some(Life::Ended));
        self.members.insert(process, member);
        if let Some(group) = self.groups.get_mut(&group) {
            group.entries += 1;
            group.processes += u32::from(alive);
        }
        self.count_threads(group, 0, count.threads);
        if alive {
            self.count_populated(group, true);
        }
    }

    fn take(&mut self, process: Pid) -> Option<Member> {
        let member = self.members.remove(&process)?;
        let alive = !matches!(member.life, Some(Life::Ended));
        if let Some(group) = self.groups.get_mut(&member.group) {
            group.entries -= 1;
            group.processes -= u32::from(alive);
        }
        self.count_threads(member.group, member.count.threads, 0);
        if alive {
            self.count_populated(member.group, false);
        }
        self.drop_unused(member.group);
        Some(member)
    }

    fn count_threads(&mut self, group: GroupId, before: u32, now: u32) {
        self.for_chain(group, |_, group| {
            let pids = &mut group.pids;
            pids.current = pids.current + now - before;
            pids.peak = pids.peak.max(pids.current);
        });
    }

    fn count_populated(&mut self, group: GroupId, more: bool) {
        let mut changed = core::mem::take(&mut self.changed);
        self.for_chain(group, |id, group| {
            let was = group.is_populated();
            group.populated = if more { group.populated + 1 } else { group.populated - 1 };
            if was != group.is_populated() && !changed.contains(&id) {
                changed.push(id);
            }
        });
        self.changed = changed;
    }

    /// Files that have changed since this was last asked.
    pub fn take_changed(&mut self) -> Vec<Arc<Changes>> {
        let changed = core::mem::take(&mut self.changed);
        let mut files = core::mem::take(&mut self.changed_files);
        files.extend(changed.iter().filter_map(|id| Some(self.groups.get(id)?.events.clone())));
        files
    }

    pub(super) fn note_changed(&mut self, files: Vec<Arc<Changes>>) {
        self.changed_files.extend(files);
    }

    /// See [`messages::cgroup::CgroupLife`]. True: it was killed while it could not be found.
    pub fn live(&mut self, process: Pid, life: Life) -> bool {
        if life == Life::Gone {
            self.take(process);
            return false;
        }
        let Some(member) = self.members.get_mut(&process) else { return false };
        let (group, before, was_alive) = (member.group, member.count.threads, member.life != Some(Life::Ended));
        member.life = Some(life);
        if life == Life::Born {
            return member.killed;
        }
        // Its record: nothing that comes late is newer.
        member.count = ThreadCount { threads: 1, version: u64::MAX };
        self.count_threads(group, before, 1);
        if was_alive {
            if let Some(group) = self.groups.get_mut(&group) {
                group.processes -= 1;
            }
            self.count_populated(group, false);
        }
        false
    }

    /// See [`messages::cgroup::CgroupThreads`].
    pub fn set_threads(&mut self, process: Pid, count: ThreadCount, asks: bool) -> Result<()> {
        let Some(member) = self.members.get(&process) else { return Ok(()) };
        if asks && member.killed {
            return Err(Errno::EAGAIN);
        }
        let (group, before) = (member.group, member.count);
        if count.version <= before.version {
            return Ok(());
        }
        if asks && count.threads > before.threads {
            self.admit_threads(group, count.threads - before.threads)?;
        }
        if let Some(member) = self.members.get_mut(&process) {
            member.count = count;
        }
        self.count_threads(group, before.threads, count.threads);
        Ok(())
    }

    /// Marks all processes in a group and below it as killed, and answers those that can be found.
    pub fn kill(&mut self, group: GroupId) -> Vec<Pid> {
        let meant: BTreeSet<GroupId> = self.subtree(group).into_iter().collect();
        let mut found = Vec::new();
        for (process, member) in self.members.iter_mut().filter(|(_, member)| meant.contains(&member.group)) {
            member.killed = true;
            if member.life == Some(Life::Born) {
                found.push(*process);
            }
        }
        found
    }

    /// Whether a process was killed with its group, or for its memory.
    pub fn is_killed(&self, process: Pid) -> bool {
        self.members.get(&process).is_some_and(|member| member.killed)
    }

    /// It is about to be killed for its memory, and makes no more children.
    pub(super) fn mark_killed(&mut self, process: Pid) {
        if let Some(member) = self.members.get_mut(&process) {
            member.killed = true;
        }
    }

    /// Whether a process has not ended yet, as the tree knows.
    pub(super) fn is_alive(&self, process: Pid) -> bool {
        self.members.get(&process).is_some_and(|member| member.life != Some(Life::Ended))
    }

    /// The kernel that processes were at home on has died.
    pub fn forget(&mut self, was_there: impl Fn(Pid) -> bool) {
        let gone: Vec<Pid> = self.members.keys().copied().filter(|process| was_there(*process)).collect();
        for process in gone {
            self.take(process);
        }
    }
}
