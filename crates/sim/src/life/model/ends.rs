//! Ends of processes, and what parents hear.

use super::*;

impl Model {
    /// States after one process that is to end is gone, or one parent has heard news. `busy`: threads that will
    /// still be seen to do something.
    pub fn news(&self, busy: &BTreeSet<Id>) -> Vec<Model> {
        let mut after = Vec::new();
        for (&id, process) in &self.processes {
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
        process.pending = Signals::default();
        let status = process.ending.expect("it is to end");
        for thread in std::mem::take(&mut process.threads) {
            self.threads.remove(&thread);
        }
        let orphans: Vec<Id> = self.processes.iter().filter(|(_, p)| p.parent == id).map(|(id, _)| *id).collect();
        for orphan in orphans {
            let process = self.processes.get_mut(&orphan).expect("one of them");
            process.parent = INIT;
            if process.zombie.is_some() {
                self.processes.remove(&orphan);
            }
        }
        self.report(id, status);
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
