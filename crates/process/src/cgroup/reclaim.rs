//! A group that is full: what a kernel does that may charge it with no more, and what the owner of the tree does about it.
//!
//! ```text
//!   K: a thread of group G wants a page      owner of the tree                    all kernels
//!   draw G --------------------------------> granted to all together = limit
//!          <-------------------------------- full: G
//!   room in G? ----------------------------> give back what you do not need ----> takes it from its ledger
//!                                            (room: again)
//!                                            drop what nobody maps -------------> clean pages go; dirty ones are written first
//!                                            (room: again)
//!                                            drop what is mapped ---------------> what was not used lately; if that is nothing, more
//!                                            (room: again)
//!                                            who is heaviest? ------------------>
//!                                            kills it: its pages come back
//!          <-------------------------------- wait
//!   a millisecond later: draw G
//! ```
//!
//! Dangerous is to wait for the end of a process whose threads wait for a page themselves. So nobody waits inside the owner: each step is
//! answered, and who asks looks between two of them whether it is to end; and one that was chosen is told at once.

use crate::{process::Flags, System};
use alloc::{sync::Arc, vec::Vec};
use machine::{errno::Result, group::GivenBack, to_completion, Errno, GroupId, KernelId, Pid};
use messages::{
    cgroup::{CgroupDraw, CgroupGiveBack, CgroupHeaviest, CgroupReturns, CgroupRoom, CgroupUsage, Reclaim, Room},
    process::{EndHeaviest, Heaviest},
};

const OWNER: KernelId = KernelId::PRIMARY;
/// Between two questions of who waits for a process to end, ns.
const ASK_AGAIN_NS: u64 = 1_000_000;
/// How long one waits for each tranche whose group has more than memory.high, ns.
const THROTTLE_NS: u64 = 20_000_000;
/// How often all kernels may find no page to drop before memory.reclaim gives up, or somebody is ended: pages are in use for moments only.
const IN_VAIN: usize = 3;
/// How often pages are dropped before somebody is ended although some have gone. (Linux: MAX_RECLAIM_RETRIES.)
const ROUNDS: usize = 16;
/// If fewer pages have gone, those that programs map go, too: a few are no sign that there is enough.
const FEW: u64 = 32;
/// How often room is made for a limit that was made lower.
const ATTEMPTS: usize = 1000;

impl System {
    /// `thread` wants a page. This kernel may charge `group` with it when this returns true, if no other thread is faster. False: there is no room, and no way to make
    /// some; or the thread is to end.
    pub async fn room_in_cgroup(self: &Arc<Self>, group: GroupId, thread: Pid) -> bool {
        let (mut first, mut waited) = (true, false);
        loop {
            let memory = self.memory.clone();
            let drawn = self.endpoint.call_then(OWNER, CgroupDraw { group }, move |drawn| {
                // Also if the thread does not wait any more.
                if let Some(ledgers) = memory.ledgers() {
                    ledgers.grant(group, drawn.pages as usize);
                }
                drawn
            });
            let Ok(drawn) = drawn.await else { return false };
            let Some(full) = drawn.full else {
                let Some(high) = drawn.high.filter(|_| !waited) else { return true };
                let ask = CgroupRoom { group: high, thread, first: false, high: true };
                let _ = self.endpoint.call(OWNER, ask).await;
                self.scheduler.sleep_until(self.now() + THROTTLE_NS).await;
                // What was just drawn has been taken back, too.
                waited = true;
                continue;
            };
            let ask = CgroupRoom { group: full, thread, first, high: false };
            match self.endpoint.call(OWNER, ask).await {
                Ok(Room::Again) => {}
                Ok(Room::Wait) => self.scheduler.sleep_until(self.now() + ASK_AGAIN_NS).await,
                Ok(Room::Fail) | Err(_) => return false,
            }
            first = false;
            if self.thread(thread).is_some_and(|thread| thread.process.has(Flags::ENDING)) {
                return false;
            }
        }
    }

    /// For an idle CPU: gives back what is granted to groups and not needed.
    pub fn return_to_cgroups(&self) {
        let Some(ledgers) = self.memory.ledgers().filter(|ledgers| ledgers.has_surplus()) else { return };
        let given = ledgers.give_back(None);
        if !given.is_empty() {
            let _ = self.endpoint.send(OWNER, CgroupReturns { given });
        }
    }

    /// See [`CgroupGiveBack`].
    pub(crate) async fn give_back_here(self: &Arc<Self>, ask: CgroupGiveBack) -> (u64, Vec<GivenBack>) {
        let CgroupGiveBack { groups, reclaim } = ask;
        let dropped = match reclaim {
            Reclaim::None => 0,
            some => self.vm.reclaim_of(&groups, some).await,
        };
        let given = self.memory.ledgers().map(|ledgers| ledgers.give_back(Some(&groups)));
        (dropped as u64, given.unwrap_or_default())
    }

    pub(crate) fn cgroup_usage_here(&self, groups: &[GroupId]) -> [u64; 3] {
        self.memory.ledgers().map(|ledgers| ledgers.usage(groups)).unwrap_or_default()
    }

    pub(crate) fn heaviest_in_cgroups(&self, groups: &[GroupId]) -> Option<Heaviest> {
        self.heaviest_among(|process| groups.binary_search(&process.cgroup()).is_ok()).filter(|one| one.pages > 0)
    }

    // ---- at the owner of the tree

    /// Pages that are charged to a group and those below it on all kernels, by kind.
    pub async fn cgroup_usage(&self, group: GroupId) -> [u64; 3] {
        let groups = self.with_cgroups(|tree| tree.all_below(group));
        let mut sum = self.cgroup_usage_here(&groups);
        for (_, there) in self.endpoint.multicast(&self.endpoint.others(), CgroupUsage { groups }).await {
            sum.iter_mut().zip(there.unwrap_or_default()).for_each(|(sum, pages)| *sum += pages);
        }
        sum
    }

    /// memory.high of the group is another: what kernels were granted before and do not need counts no more.
    pub async fn collect_surplus(self: &Arc<Self>, group: GroupId) {
        let groups = self.with_cgroups(|tree| tree.all_below(group));
        self.collect(&groups, Reclaim::None).await;
    }

    /// Has kernels drop pages of the groups; says how many. What is in use on one goes only if there is nothing better on any.
    async fn drop_pages(self: &Arc<Self>, groups: &[GroupId]) -> u64 {
        let mut dropped = 0;
        for which in [Reclaim::Unmapped, Reclaim::Unused, Reclaim::Used] {
            if dropped >= FEW || which == Reclaim::Used && dropped > 0 {
                break;
            }
            dropped += self.collect(groups, which).await;
        }
        dropped
    }

    /// Takes from all kernels what is granted to the groups and not charged. They drop pages of them before; says how many.
    async fn collect(self: &Arc<Self>, groups: &[GroupId], reclaim: Reclaim) -> u64 {
        let ask = CgroupGiveBack { groups: groups.to_vec(), reclaim };
        let (mut dropped, given) = self.give_back_here(ask.clone()).await;
        self.with_cgroups(|tree| tree.give_back(self.kernel, &given));
        for (kernel, answer) in self.endpoint.multicast(&self.endpoint.others(), ask).await {
            let (there, given) = answer.unwrap_or_default();
            dropped += there;
            self.with_cgroups(|tree| tree.give_back(kernel, &given));
        }
        dropped
    }

    /// See [`CgroupRoom`]. The work is the kernel's own: what it needs nobody pays for, and it comes to its end.
    pub(crate) async fn make_room_in_cgroup(self: &Arc<Self>, ask: CgroupRoom) -> Room {
        let system = self.clone();
        to_completion(&sched::KernelTasks(self.scheduler.clone()), async move { system.make_room(ask).await }).await
    }

    async fn make_room(self: &Arc<Self>, ask: CgroupRoom) -> Room {
        let CgroupRoom { group, thread, first, high } = ask;
        let process = self.process_of(thread).await;
        if process.is_some_and(|process| self.with_cgroups(|tree| tree.is_killed(process))) {
            return Room::Fail;
        }
        if first {
            self.with_cgroups(|tree| tree.count_event(group, |events| &mut events.max));
        }
        let groups = self.with_cgroups(|tree| tree.all_below(group));
        if !high {
            self.collect(&groups, Reclaim::None).await;
            if self.with_cgroups(|tree| tree.has_room(group, false)) {
                return Room::Again;
            }
        }
        // What is dropped another thread may have drawn before this one, and pages are in use for moments only.
        let mut in_vain = 0;
        for _ in 0..ROUNDS {
            let dropped = self.drop_pages(&groups).await;
            if high || self.with_cgroups(|tree| tree.has_room(group, false)) {
                return Room::Again;
            }
            in_vain += usize::from(dropped == 0);
            if in_vain == IN_VAIN {
                break;
            }
        }
        if self.with_cgroups(|tree| tree.waits_for_victim(group)) {
            return Room::Wait;
        }
        self.end_one_in(group, groups, process).await
    }

    async fn end_one_in(self: &Arc<Self>, group: GroupId, groups: Vec<GroupId>, asks: Option<Pid>) -> Room {
        let mut all: Vec<_> = self.heaviest_in_cgroups(&groups).map(|own| (self.kernel, own)).into_iter().collect();
        for (kernel, there) in self.endpoint.multicast(&self.endpoint.others(), CgroupHeaviest { groups }).await {
            all.extend(there.ok().flatten().map(|there| (kernel, there)));
        }
        let heaviest = all.into_iter().max_by_key(|(_, process)| (process.ending, process.points, process.process));
        // Another thread may have found one meanwhile.
        if self.with_cgroups(|tree| tree.waits_for_victim(group)) {
            return Room::Wait;
        }
        self.with_cgroups(|tree| tree.count_event(group, |events| &mut events.oom));
        let Some((kernel, chosen)) = heaviest else { return Room::Fail };
        let all_of = self.with_cgroups(|tree| tree.choose_victim(group, chosen.process));
        match all_of {
            Some(all_of) => self.kill_cgroup(all_of).await,
            None if kernel == self.kernel => drop(self.end_heaviest_here(chosen.process).await),
            None => drop(self.endpoint.call(kernel, EndHeaviest { process: chosen.process }).await),
        }
        match asks {
            Some(asks) if self.with_cgroups(|tree| tree.is_killed(asks)) => Room::Fail,
            _ => Room::Wait,
        }
    }

    /// memory.max was made lower: makes room until the group has no more than it may, as far as that can be done.
    pub async fn shrink_cgroup(self: &Arc<Self>, group: GroupId, thread: Pid) {
        for _ in 0..ATTEMPTS {
            if self.with_cgroups(|tree| tree.has_room(group, true)) {
                return;
            }
            let ask = CgroupRoom { group, thread, first: false, high: false };
            match self.make_room_in_cgroup(ask).await {
                Room::Again => {}
                Room::Wait => self.scheduler.sleep_until(self.now() + ASK_AGAIN_NS).await,
                Room::Fail => return,
            }
        }
    }

    /// memory.reclaim: so many pages go that can be read again; dirty ones are written first. EAGAIN: there were not so many.
    pub async fn reclaim_in_cgroup(self: &Arc<Self>, group: GroupId, pages: u64) -> Result<()> {
        let system = self.clone();
        let work = async move {
            let groups = system.with_cgroups(|tree| tree.all_below(group));
            let (mut dropped, mut in_vain) = (0, 0);
            while dropped < pages {
                match system.drop_pages(&groups).await {
                    0 if in_vain + 1 == IN_VAIN => return Err(Errno::EAGAIN),
                    0 => in_vain += 1,
                    some => (dropped, in_vain) = (dropped + some, 0),
                }
            }
            Ok(())
        };
        // The kernel's own, and to its end, as in `make_room_in_cgroup`.
        to_completion(&sched::KernelTasks(self.scheduler.clone()), work).await
    }

    /// A group was removed: its pages that can be read again go, and what is left its parents have.
    pub async fn empty_cgroup(self: &Arc<Self>, group: GroupId) {
        if self.with_cgroups(|tree| tree.is_kept(group)) {
            self.drop_pages(&[group]).await;
        }
    }
}
