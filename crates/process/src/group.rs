//! Process groups and sessions (man 2 setpgid, setsid). Decided at the process's home.

use crate::{Process, System};
use alloc::sync::Arc;
use machine::{errno::Result, Errno, Pid};
use messages::process::{AdoptChild, Change, FindGroup, SetGroup};

impl System {
    /// setpgid(process, group) by process `caller` of session `session`.
    pub async fn set_group(self: &Arc<Self>, process: Pid, group: Pid, caller: Pid, session: Pid) -> Result<()> {
        let home = self.origin(process).ok_or(Errno::ESRCH)?;
        if home == self.kernel {
            return self.set_group_here(process, group, caller, session).await;
        }
        if !self.kernels().contains(&home) {
            return Err(Errno::ESRCH);
        }
        let ask = SetGroup { process, group, caller, session };
        self.endpoint.call(home, ask).await.map_err(|_| Errno::ESRCH)?
    }

    pub(crate) async fn set_group_here(self: &Arc<Self>, pid: Pid, group: Pid, caller: Pid, session: Pid) -> Result<()> {
        let process = self.process(pid).filter(|process| process.is_home()).ok_or(Errno::ESRCH)?;
        let (parent, own_session, executed, old) =
            process.with_shared(|shared| (shared.parent, shared.session, shared.executed, shared.group));
        if pid != caller {
            if parent != caller {
                return Err(Errno::ESRCH);
            }
            if own_session != session {
                return Err(Errno::EPERM);
            }
            if executed {
                return Err(Errno::EACCES);
            }
        }
        // A session leader stays the leader of its group.
        if own_session == pid {
            return Err(Errno::EPERM);
        }
        if group != pid && !self.group_exists(group, Some(own_session)).await {
            return Err(Errno::EPERM);
        }
        if group != old {
            process.change(Change::Group(group)).await?;
            process.tell_parent_group(group).await;
        }
        Ok(())
    }

    /// Is there a process of this group (in this session)?
    pub async fn group_exists(&self, group: Pid, session: Option<Pid>) -> bool {
        if self.group_exists_here(group, session) {
            return true;
        }
        for kernel in self.others() {
            if self.endpoint.call(kernel, FindGroup { group, session }).await.unwrap_or(false) {
                return true;
            }
        }
        false
    }

    pub(crate) fn group_exists_here(&self, group: Pid, session: Option<Pid>) -> bool {
        self.processes.lock().values().filter(|process| process.is_home()).any(|process| {
            process.with_shared(|shared| {
                shared.group == group && session.is_none_or(|session| shared.session == session)
            })
        })
    }
}

impl Process {
    /// setsid(2).
    pub async fn new_session(self: &Arc<Self>) -> Result<Pid> {
        let leads_group = self.system.group_exists(self.id, None).await;
        if leads_group {
            return Err(Errno::EPERM);
        }
        self.change(Change::Session(self.id)).await?;
        self.tell_parent_group(self.id).await;
        Ok(self.id)
    }

    /// The parent's list of children says which group each is in (wait for a group).
    async fn tell_parent_group(self: &Arc<Self>, group: Pid) {
        let (parent, exit_signal) = self.with_shared(|shared| (shared.parent, shared.exit_signal));
        let adopt = AdoptChild { parent, child: self.id, group, exit_signal };
        match self.system.origin(parent) {
            Some(kernel) if kernel == self.system.kernel => self.system.child_in_group(&adopt),
            Some(kernel) => {
                let _ = self.system.endpoint.call(kernel, adopt).await;
            }
            None => {}
        }
    }
}

impl System {
    /// A new child, or a known one in another group.
    pub(crate) fn child_in_group(&self, adopt: &AdoptChild) {
        let known = self.process(adopt.parent).is_some_and(|parent| {
            let Some(home) = parent.home() else { return false };
            match home.state.lock().children.get_mut(&adopt.child) {
                Some(child) => {
                    child.group = adopt.group;
                    true
                }
                None => false,
            }
        });
        if !known {
            self.adopt_here(adopt.parent, adopt.child, adopt.group, 0, adopt.exit_signal);
        }
    }
}
