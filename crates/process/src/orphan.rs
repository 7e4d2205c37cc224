//! Orphaned process groups (POSIX 3.264; exit(2)).
//!
//! A group is orphaned if no member's parent is in another group of the same session: no shell is left that could continue
//! it. The signals of a terminal do not stop such a group, and one that becomes orphaned with a stopped member gets SIGHUP and
//! SIGCONT, else it would stand still for ever. A *tie* of a group is a member with such a parent. The end of either cuts it;
//! whoever ends then asks all kernels whether a tie is left, and whether a member is stopped.
//!
//! On Linux one lock is held meanwhile. Here the state is at many homes, and three can meet:
//!
//! ```text
//!   parent P ends (tie of member A)     parent Q ends (tie of member B)    member C takes SIGTSTP
//!   A's parent := init                                                     is there a tie? yes
//!                                       B's parent := init
//!   is there a tie?                     is there a tie?                    C is stopped
//!   is somebody stopped?                is somebody stopped?               is there a tie? ...
//! ```
//!
//! Everybody changes his own state at its home first (answered), and asks afterwards. So of two who end, the one that asks last sees
//! both ties cut; and of one who ends and one who stops, at least one sees the other. Both may, and then two SIGHUPs are sent, of which
//! the second is lost in the first unless that was taken already. A SIGSTOP does not ask: to a group orphaned already it is
//! just a stop. What is stopped between the cutting and the question is counted as stopped before.

use crate::{exit::INIT, process::Flags, Process, System, Target};
use abi::signal::{Signal, SignalInfo};
use alloc::{sync::Arc, vec::Vec};
use machine::Pid;
use messages::process::{GroupOf, GroupParents};

/// Group and session of a process.
type Place = (Pid, Pid);

/// Whether a parent at one place is a tie of a child at the other.
pub(crate) fn is_tie(parent: Place, child: Place) -> bool {
    parent.0 != child.0 && parent.1 == child.1
}

impl System {
    /// Whether the process group is orphaned now. Asks all kernels.
    pub async fn is_orphaned(&self, group: Pid, session: Pid) -> bool {
        let (parents, _) = self.ask_members(group).await;
        !self.holds_tie(&parents, (group, session)).await
    }

    /// A tie of this group may have been cut: if it was the last one, and a member is stopped, the group is told.
    pub(crate) async fn tie_cut(self: &Arc<Self>, group: Pid, session: Pid) {
        let (parents, stopped) = self.ask_members(group).await;
        if !stopped || self.holds_tie(&parents, (group, session)).await {
            return;
        }
        for signal in [Signal::HUP, Signal::CONT] {
            // A group that is gone needs no signal.
            let _ = self.signal(Target::Group(group), Some(SignalInfo::kernel(signal)), None, Pid(0)).await;
        }
    }

    /// Asks all kernels for the parents of a group's members, and whether a member is stopped.
    async fn ask_members(&self, group: Pid) -> (Vec<Pid>, bool) {
        let (mut parents, mut stopped) = self.members_here(group);
        for (_, there) in self.endpoint.multicast(&self.endpoint.others(), GroupParents { group }).await {
            // The processes of a kernel that died are gone.
            let (more, stands) = there.unwrap_or_default();
            parents.extend(more);
            stopped |= stands;
        }
        (parents, stopped)
    }

    /// Whether one of these parents is a tie.
    async fn holds_tie(&self, parents: &[Pid], place: Place) -> bool {
        for &parent in parents {
            if self.place_of(parent).await.is_some_and(|other| is_tie(other, place)) {
                return true;
            }
        }
        false
    }

    /// None also for init, which is no process.
    async fn place_of(&self, process: Pid) -> Option<Place> {
        match self.origin(process)? {
            _ if process == INIT => None,
            home if home == self.kernel => self.group_here(process),
            home => self.endpoint.call(home, GroupOf { process }).await.ok().flatten(),
        }
    }

    /// The same for the members that are at home here.
    pub(crate) fn members_here(&self, group: Pid) -> (Vec<Pid>, bool) {
        let processes = self.processes.lock();
        let members = processes.values().filter(|process| process.is_home() && !process.has_ended());
        let mut stopped = false;
        let parents = members.filter_map(|process| {
            let parent = process.with_shared(|shared| (shared.group == group).then_some(shared.parent))?;
            stopped |= process.has(Flags::STOPPED) && !process.has(Flags::ENDING);
            Some(parent)
        });
        (parents.collect(), stopped)
    }
}

impl Process {
    /// At home: it has just become a zombie, and is a tie of its group no more.
    pub(crate) async fn end_as_member(&self) {
        let (parent, place) = self.with_shared(|shared| (shared.parent, (shared.group, shared.session)));
        // Most processes are in the group of their parent, which is at home here as a rule: then nobody is asked.
        if self.system.place_of(parent).await.is_some_and(|other| is_tie(other, place)) {
            self.system.tie_cut(place.0, place.1).await;
        }
    }
}
