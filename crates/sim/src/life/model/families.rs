//! Process groups, sessions, and waiting for children.

use super::*;

impl Model {
    /// man 2 setpgid; group 0 is the process's own id.
    pub(super) fn setpgid(&mut self, caller: Id, target: Id, group: Id) -> i64 {
        let group = if group == 0 { target } else { group };
        let Some(process) = self.processes.get(&target) else { return ESRCH };
        let session = self.processes[&caller].session;
        if target != caller {
            if process.parent != caller {
                return ESRCH;
            }
            if process.session != session {
                return EPERM;
            }
            if process.executed {
                return EACCES;
            }
        }
        let known = self.processes.values().any(|other| other.group == group && other.session == session);
        if process.session == target || group != target && !known {
            return EPERM;
        }
        self.processes.get_mut(&target).expect("seen").group = group;
        0
    }

    pub(super) fn setsid(&mut self, caller: Id, result: i64) -> bool {
        if self.processes.values().any(|other| other.group == caller) {
            return result == EPERM;
        }
        let process = self.processes.get_mut(&caller).expect("a thread has one");
        (process.group, process.session) = (caller, caller);
        result == i64::from(caller)
    }

    pub(super) fn wanted(&self, parent: Id, which: i64) -> Vec<Id> {
        let meant = |id: &Id, process: &Process| {
            process.parent == parent
                && match which {
                    -1 => true,
                    0 => process.group == self.processes[&parent].group,
                    which if which < 0 => i64::from(process.group) == -which,
                    which => which == i64::from(*id),
                }
        };
        self.processes.iter().filter(|(id, process)| meant(id, process)).map(|(id, _)| *id).collect()
    }

    pub(super) fn taken(&self, child: Id, options: u64) -> bool {
        match self.processes[&child].event {
            None => false,
            Some(CONTINUED) => options & WCONTINUED != 0,
            Some(status) => is_exit(status) || options & WUNTRACED != 0,
        }
    }

    pub(super) fn wait(&mut self, parent: Id, which: i64, options: u64, result: i64, output: &[u8]) -> bool {
        let children = self.wanted(parent, which);
        let ready = children.iter().any(|child| self.taken(*child, options));
        match result {
            ECHILD => children.is_empty(),
            0 => options & WNOHANG != 0 && !children.is_empty() && !ready,
            child if child > 0 && children.contains(&(child as Id)) && self.taken(child as Id, options) => {
                let child = child as Id;
                let process = self.processes.get_mut(&child).expect("one of the children");
                let status = process.event.take().expect("it is taken");
                if is_exit(status) {
                    self.processes.remove(&child);
                }
                output == status.to_le_bytes()
            }
            _ => false,
        }
    }
}
