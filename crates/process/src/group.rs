//! Process groups and sessions (man 2 setpgid, setsid). Decided at the process's home.
//!
//! A shell and its child both put the child into its group, and the shell then waits for the group. What finds the child there is
//! the list of children at the parent's home, so the change is not over before that list has it, and nobody finds it done before:
//!
//! ```text
//!   child C's home                     parent P's home               P, elsewhere
//!   setpgid(0, 0): C is in group C
//!                                                                    setpgid(C, C): it is there already
//!                                                                    waitpid(-C): no such child
//!   -- AdoptChild -------------------> the list says group C
//! ```
//!
//! Both have the turn of C (change.rs) from the question to the list's answer. So has a change of parents, which takes the group along.

use crate::{change::Turn, route::Trail, Process, System};
use alloc::sync::Arc;
use machine::{errno::Result, Errno, Pid};
use messages::process::{AdoptChild, AskIgnores, Change, FindGroup, SetGroup, Shared};

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

    pub(crate) async fn set_group_here(
        self: &Arc<Self>,
        pid: Pid,
        group: Pid,
        caller: Pid,
        session: Pid,
    ) -> Result<()> {
        let process = self.process(pid).ok_or(Errno::ESRCH)?;
        let turn = process.home().ok_or(Errno::ESRCH)?.changes.lock().await;
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
            process.change_in_turn(Change::Group(group), &turn).await?;
        }
        Ok(())
    }

    /// Whether a process is in this group (of this session).
    pub async fn group_exists(&self, group: Pid, session: Option<Pid>) -> bool {
        let found = self.session_of_group(group).await;
        found.is_some_and(|found| session.is_none_or(|session| session == found))
    }

    /// The session of a process group; None if there is no such group.
    pub async fn session_of_group(&self, group: Pid) -> Option<Pid> {
        if let Some(session) = self.session_here(group) {
            return Some(session);
        }
        for kernel in self.others() {
            if let Ok(Some(session)) = self.endpoint.call(kernel, FindGroup { group }).await {
                return Some(session);
            }
        }
        None
    }

    pub(crate) fn session_here(&self, group: Pid) -> Option<Pid> {
        let processes = self.processes.lock();
        // A zombie is a member until it is waited for.
        let mut members = processes.values().filter(|process| process.is_home());
        members.find_map(|process| process.with_shared(|shared| (shared.group == group).then_some(shared.session)))
    }

    /// Group and session of a process at home here.
    pub(crate) fn group_here(&self, process: Pid) -> Option<(Pid, Pid)> {
        let process = self.process(process).filter(|process| process.is_home())?;
        Some(process.with_shared(|shared| (shared.group, shared.session)))
    }

    /// Would this thread not notice the signal: ignored by its process or blocked by it? False for one that is gone.
    pub async fn ignores(&self, process: Pid, thread: Pid, signal: abi::signal::Signal) -> bool {
        match self.trail(process, thread).await {
            Trail::Here(thread) => {
                let ignored = |shared: &Shared| shared.actions.get(signal).handler == abi::signal::Action::IGNORE;
                thread.blocked().contains(signal) || thread.process.with_shared(ignored)
            }
            Trail::At(kernel) => {
                self.endpoint.call(kernel, AskIgnores { process, thread, signal }).await.unwrap_or(false)
            }
            Trail::Cold => false,
        }
    }
}

impl Process {
    /// setsid(2).
    pub async fn new_session(self: &Arc<Self>) -> Result<Pid> {
        self.change(Change::Session(self.id)).await?;
        Ok(self.id)
    }

    /// The parent's list of children says which group each is in (wait for a group), and the signal of its end.
    pub(crate) async fn tell_parent_entry(&self, _turn: &Turn<'_>) {
        let (parent, group, exit_signal) = self.with_shared(|shared| (shared.parent, shared.group, shared.exit_signal));
        let adopt = AdoptChild { parent, child: self.id, group, exit_signal, new: false };
        match self.system.origin(parent) {
            Some(kernel) if kernel == self.system.kernel => {
                self.system.child_in_group(&adopt);
            }
            Some(kernel) => {
                let _ = self.system.endpoint.call(kernel, adopt).await;
            }
            None => {}
        }
    }
}

impl System {
    /// A new child, or a known one in another group or with another signal for its end. False: there is no such parent, or no such child.
    pub(crate) fn child_in_group(&self, adopt: &AdoptChild) -> bool {
        let known = self.process(adopt.parent).is_some_and(|parent| {
            let Some(home) = parent.home() else { return false };
            match home.state.lock().children.get_mut(&adopt.child) {
                Some(child) => {
                    (child.group, child.exit_signal) = (adopt.group, adopt.exit_signal);
                    true
                }
                None => false,
            }
        });
        known || adopt.new && self.adopt_here(adopt.parent, adopt.child, adopt.group, 0, adopt.exit_signal)
    }
}
