//! What the owner of the tree grants to kernels, takes back, and has end for a group that is full.

use super::{
    memory::Event,
    tree::{Group, Tree},
};
use alloc::{sync::Arc, vec::Vec};
use fs::synthetic::Changes;
use machine::{
    group::{GivenBack, TRANCHE},
    GroupId, KernelId, Pid,
};
use messages::cgroup::Drawn;

/// Times that who waits for the memory of one that has ended asks again.
const LOOKS: u32 = 100;

impl Tree {
    /// A kernel wants to charge a page more. `kernels`: how many there are.
    pub fn draw(&mut self, group: GroupId, kernel: KernelId, kernels: usize) -> Drawn {
        // A group that is no more: what is still charged to it nobody pays.
        if !self.groups.contains_key(&group) || group.is_root() {
            return Drawn { pages: TRANCHE as u32, full: None, high: None };
        }
        let room = |id: &GroupId| {
            let memory = &self.groups[id].memory;
            memory.max.map_or(u64::MAX, |max| max.saturating_sub(memory.granted))
        };
        let least = self.chain(group).map(|id| room(&id)).min().unwrap_or(u64::MAX);
        if least == 0 {
            return Drawn { pages: 0, full: self.chain(group).find(|id| room(id) == 0), high: None };
        }
        // Near the limit less, or one kernel would have what another lacks.
        let pages = (least / kernels.max(1) as u64).clamp(1, TRANCHE as u64);
        let is_high = |id: &GroupId| {
            let memory = &self.groups[id].memory;
            memory.high.is_some_and(|high| memory.granted >= high)
        };
        let high = self.chain(group).find(is_high);
        self.for_chain(group, |id, group| {
            // Who draws has used all it had.
            let now = group.memory.granted + 1;
            group.memory.peak(now);
            group.memory.granted += pages;
            if high == Some(id) {
                group.memory.events_here.high += 1;
            }
        });
        if let Some(group) = self.groups.get_mut(&group) {
            *group.memory.by_kernel.entry(kernel).or_default() += pages;
        }
        if let Some(high) = high {
            self.for_chain(high, |_, group| group.memory.events.high += 1);
        }
        Drawn { pages: pages as u32, full: None, high }
    }

    /// What a kernel gives back.
    pub fn give_back(&mut self, kernel: KernelId, given: &[GivenBack]) {
        for GivenBack { group, pages, peak, granted } in given.iter().copied() {
            let Some(had) = self.groups.get_mut(&group).and_then(|group| group.memory.by_kernel.get_mut(&kernel))
            else {
                continue;
            };
            let pages = pages.min(*had);
            *had -= pages;
            let none = *had == 0;
            self.for_chain(group, |_, group| {
                let most = (group.memory.granted + peak).saturating_sub(granted);
                group.memory.peak(most);
                group.memory.granted -= pages;
            });
            if none {
                if let Some(group) = self.groups.get_mut(&group) {
                    group.memory.by_kernel.remove(&kernel);
                }
                self.drop_unused(group);
            }
        }
    }

    /// A kernel has died, and what it had charged went with it.
    pub(super) fn forget_grants(&mut self, dead: KernelId) {
        let all = |(id, group): (&GroupId, &Group)| {
            let pages = *group.memory.by_kernel.get(&dead)?;
            Some(GivenBack { group: *id, pages, peak: pages, granted: pages })
        };
        let given: Vec<GivenBack> = self.groups.iter().filter_map(all).collect();
        self.give_back(dead, &given);
    }

    /// Whether a group may be granted a page more; or, with `within`, has no more than it may.
    pub(super) fn has_room(&self, group: GroupId, within: bool) -> bool {
        let Some(group) = self.groups.get(&group) else { return true };
        let memory = &group.memory;
        memory.max.is_none_or(|max| memory.granted < max || within && memory.granted == max)
    }

    /// The group, and all below it, those included that were removed; ascending.
    pub fn all_below(&self, of: GroupId) -> Vec<GroupId> {
        let mut all = alloc::vec![of];
        let mut next = 0;
        while let Some(id) = all.get(next) {
            if let Some(group) = self.groups.get(id) {
                all.extend(group.children.values().chain(&group.kept_children));
            }
            next += 1;
        }
        all.sort_unstable();
        all
    }

    /// Counts an event of `group` for it and those above it.
    pub(super) fn count_event(&mut self, group: GroupId, event: Event) {
        self.for_chain(group, |id, above| {
            *event(&mut above.memory.events) += 1;
            if id == group {
                *event(&mut above.memory.events_here) += 1;
            }
        });
        let told = self.chain(group).filter_map(|id| self.groups.get(&id)).map(|group| group.memory.changes.clone());
        let mut told: Vec<Arc<Changes>> = told.collect();
        told.extend(self.groups.get(&group).map(|group| group.memory.changes_here.clone()));
        self.note_changed(told);
    }

    /// Whether a process of the group is about to end for its memory: until it has ended, and a little longer, for pages come back behind it.
    pub(super) fn waits_for_victim(&mut self, group: GroupId) -> bool {
        let Some((victim, looks)) = self.groups.get(&group).and_then(|group| group.memory.victim) else { return false };
        let looks = if self.is_alive(victim) { looks } else { looks + 1 };
        let next = (looks < LOOKS).then_some((victim, looks));
        if let Some(group) = self.groups.get_mut(&group) {
            group.memory.victim = next;
        }
        next.is_some()
    }

    /// `process` is to end for `group`. Answers the group of which all are to end.
    pub(super) fn choose_victim(&mut self, group: GroupId, process: Pid) -> Option<GroupId> {
        let of = self.group_of(process);
        // The topmost below the limit, or at it.
        let mut all = None;
        for id in self.chain(of) {
            if self.groups[&id].memory.all_end {
                all = Some(id);
            }
            if id == group {
                break;
            }
        }
        self.count_event(of, |events| &mut events.oom_kill);
        if let Some(all) = all {
            self.count_event(all, |events| &mut events.oom_group_kill);
        }
        self.mark_killed(process);
        if let Some(group) = self.groups.get_mut(&group) {
            group.memory.victim = Some((process, 0));
        }
        all
    }
}
