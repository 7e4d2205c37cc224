//! Ends of processes, and what parents hear.

use super::*;

impl Model {
    /// States after one process that is to end is gone, or one parent has heard news. `busy`: threads that will
    /// still be seen to do something.
    pub fn news(&self, busy: &BTreeSet<Id>) -> Vec<Model> {
        let mut after = Vec::new();
        for (&id, process) in self.processes.iter() {
            if process.ending.is_some() && process.zombie.is_none() && process.threads.is_disjoint(busy) {
                let mut next = self.clone();
                next.finish(id);
                after.push(next);
            }
            if !process.reports.is_empty() {
                let mut next = self.clone();
                let status = next.processes.get_mut(&id).expect("seen").reports.remove(0);
                next.report(id, status);
                after.push(next);
            }
        }
        after
    }

    pub(super) fn finish(&mut self, id: Id) {
        let process = self.processes.get_mut(&id).expect("seen");
        process.zombie = process.ending;
        process.reports.clear();
        process.counted = false;
        process.pending = Signals::default();
        let status = process.ending.expect("it is to end");
        for thread in std::mem::take(&mut process.threads) {
            self.threads.remove(&thread);
        }
        let orphans: Vec<Id> = self.processes.iter().filter(|(_, p)| p.parent == id).map(|(id, _)| *id).collect();
        // Groups that may have had their last tie in this process: with its children, and with its parent.
        let mut cut: BTreeSet<Id> =
            orphans.iter().filter(|&&child| self.is_tie(id, child)).map(|child| self.processes[child].group).collect();
        let parent = self.processes[&id].parent;
        if self.processes.contains_key(&parent) && self.is_tie(parent, id) {
            cut.insert(self.processes[&id].group);
        }
        for orphan in orphans {
            let process = self.processes.get_mut(&orphan).expect("one of them");
            process.parent = INIT;
            if process.zombie.is_some() {
                self.processes.remove(&orphan);
            }
        }
        for group in cut {
            self.hang_up_orphaned(group);
        }
        self.report(id, status);
    }

    /// Is the parent in another group of the child's session?
    fn is_tie(&self, parent: Id, child: Id) -> bool {
        let (parent, child) = (&self.processes[&parent], &self.processes[&child]);
        parent.group != child.group && parent.session == child.session
    }

    /// exit(2), POSIX: what becomes orphaned with a stopped member.
    fn hang_up_orphaned(&mut self, group: Id) {
        let members: Vec<Id> = self.processes.iter().filter(|(_, p)| p.group == group).map(|(id, _)| *id).collect();
        let living = || members.iter().filter(|id| self.processes[id].zombie.is_none());
        let tied = living().any(|id| {
            let parent = self.processes[id].parent;
            parent != INIT && self.is_tie(parent, *id)
        });
        if tied || !living().any(|id| self.processes[id].stopped && self.processes[id].ending.is_none()) {
            return;
        }
        for signal in [HUP, CONT] {
            for &member in &members {
                self.send(member, None, signal);
            }
        }
    }

    pub(super) fn report(&mut self, id: Id, status: Status) {
        let parent = self.processes[&id].parent;
        let alive = self.processes.get(&parent).is_some_and(|parent| parent.zombie.is_none());
        let unwanted = parent == INIT || !alive || self.action(parent, CHLD) == 1;
        if is_exit(status) && unwanted {
            self.processes.remove(&id);
        } else {
            self.processes.get_mut(&id).expect("the caller has looked").event = Some(status);
        }
        if alive {
            self.send(parent, None, CHLD);
        }
    }
}
