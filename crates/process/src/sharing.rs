//! Processes that share directories and umask (CLONE_FS), signal handlers (CLONE_SIGHAND), or memory and with it oom_score_adj (CLONE_VM).
//!
//! Problem: what the threads of one process share is kept by its home and copied to its replicas (change.rs). Here
//! several processes, with homes on different kernels, must see one value.
//!
//! Idea: they are a *sharing group*, kept by the kernel where it was made. A change goes there, and is applied to one
//! member after the other, through the member's home as any change of a process; it is answered when all have it.
//! A process without sharers has no sharing group and pays nothing.
//!
//! The dangerous interleaving is a change while a process is cloned into the sharing group:
//!
//! ```text
//!   parent's kernel                    sharing group               chdir by a member
//!   child: a copy of the parent
//!                                      parent := /tmp  <---------- chdir /tmp
//!   join(child) ---------------------> members += child            (too late for this change)
//!   child keeps the old directory for ever
//! ```
//!
//! So the child joins first and takes its copy from the parent afterwards, under the locks of both. Changes hold
//! the sharing group's lock from the first member to the last, and the parent stands before the child: a change that
//! the copy missed has not reached the parent yet, so it reaches the child after the copy; one that began before
//! the child joined has reached the parent before.

use crate::{change::Step, process::Directories, Process, System};
use abi::Credentials;
use alloc::{sync::Arc, vec::Vec};
use machine::{
    errno::Result,
    sync::{AsyncLock, Lock},
    Errno, HashMap, KernelId, Pid, SpaceId,
};
use messages::inspect::{Inspect, Inspection};
use messages::process::{Change, ChangeMember, ChangeSharingGroup, SharedPart, SharingGroupId, SharingGroupMember};

/// Objects that several processes use, counted at the home of each.
#[derive(Default)]
pub(crate) struct Sharing {
    /// The users of a space; no entry if it has only one, which is at home here like the space.
    pub space_users: Lock<HashMap<SpaceId, crate::users::Users>>,
    /// Sharing groups kept here, by serial number.
    sharing_groups: Lock<HashMap<u64, SharingGroup>>,
}

/// The members of a sharing group, oldest first.
pub(crate) type SharingGroup = Arc<AsyncLock<Vec<Pid>>>;

/// Which sharing group a change concerns. Changes of a directory have a step of their own.
pub(crate) fn shared_part_of(change: &Change) -> Option<SharedPart> {
    match change {
        Change::Action { .. } => Some(SharedPart::Handlers),
        Change::Umask(_) => Some(SharedPart::Directories),
        _ => None,
    }
}

impl Process {
    pub(crate) fn sharing_group(&self, part: SharedPart) -> Option<SharingGroupId> {
        self.with_shared(|shared| shared.sharing_groups[part as usize])
    }

    /// The sharing group that a new process is to join; made if there is none.
    pub(crate) async fn sharing_group_for_child(self: &Arc<Self>, part: SharedPart) -> Result<SharingGroupId> {
        if let Some(known) = self.sharing_group(part) {
            return Ok(known);
        }
        let made = self.system.new_sharing_group(self.id);
        // Another thread may do the same: the home takes the first.
        self.change(Change::SharingGroup { part, sharing_group: Some(made) }).await?;
        match self.sharing_group(part) {
            Some(sharing_group) => {
                if sharing_group != made {
                    self.system.sharing.sharing_groups.lock().remove(&made.serial);
                }
                Ok(sharing_group)
            }
            None => Err(Errno::EAGAIN),
        }
    }

    /// A new process, at home here and not running yet, joins `parent`'s sharing group.
    pub(crate) async fn join_sharing_group(self: &Arc<Self>, parent: &Arc<Process>, part: SharedPart) -> Result<()> {
        let sharing_group = parent.sharing_group_for_child(part).await?;
        self.shared.lock().sharing_groups[part as usize] = Some(sharing_group);
        self.system.sharing_group_member(SharingGroupMember { sharing_group, process: self.id, joins: true }).await?;
        let mut mine = self.shared.lock();
        match part {
            SharedPart::Directories => {
                mine.umask = parent.with_shared(|shared| shared.umask);
                // The child was made of them.
                if let Some(Directories { root, cwd }) = parent.open_directories() {
                    self.set_directory(root, true);
                    self.set_directory(cwd, false);
                }
            }
            SharedPart::Handlers => mine.actions = parent.with_shared(|shared| shared.actions.clone()),
            SharedPart::Memory => mine.oom = parent.with_shared(|shared| shared.oom),
        }
        Ok(())
    }

    /// At home of a member: makes a change of the sharing group.
    pub(crate) async fn change_member(self: &Arc<Self>, step: Step) -> Result<()> {
        match step {
            Step::Directory { directory, root } => self.change_own_directory(directory, root).await,
            Step::Other(change) => self.change_own(change).await,
        }
    }

    /// Gives the process a descriptor table of its own (unshare, close_range).
    pub async fn unshare_files(self: &Arc<Self>) -> Result<()> {
        loop {
            let old = self.files();
            let own = old.copy(self.home).await?;
            // Two threads may do this at once: only one of them leaves the old table.
            let changed = self.change(Change::Files { from: old.id(), to: own.id() }).await;
            let left = if changed.is_ok() { old } else { own };
            let _ = left.release(self.home, None).await;
            match changed {
                Err(Errno::EAGAIN) if self.files().is_shared() => {}
                Err(Errno::EAGAIN) => return Ok(()),
                done => return done,
            }
        }
    }

    /// If the process has one thread, which is here, and no other process uses its descriptor table: that moves here, so that opening and closing ask
    /// nobody. False: it stays where it is. Who shares memory with its parent (vfork) will have another table soon.
    pub async fn fetch_files(self: &Arc<Self>, sees: Credentials) -> bool {
        if self.is_in_parents_space() {
            return false;
        }
        let owner = self.system.inspect(self.id, Inspect::Owner, sees).await;
        let is_only = matches!(owner, Ok(Inspection::Owner { threads, .. }) if threads.len() == 1);
        is_only && (self.files().id().home == self.system.kernel || self.unshare_files().await.is_ok())
    }

    /// Takes the process out of a sharing group: it keeps what it had in common, and changes it alone from now on (execve, unshare,
    /// exit).
    pub async fn leave_sharing_group(self: &Arc<Self>, part: SharedPart) -> Result<()> {
        let Some(sharing_group) = self.sharing_group(part) else { return Ok(()) };
        // First out of the sharing group, which waits for a change that is under way.
        self.system.sharing_group_member(SharingGroupMember { sharing_group, process: self.id, joins: false }).await?;
        self.change(Change::SharingGroup { part, sharing_group: None }).await
    }
}

impl System {
    fn new_sharing_group(&self, first: Pid) -> SharingGroupId {
        let serial = self.serials.next();
        self.sharing.sharing_groups.lock().insert(serial, Arc::new(AsyncLock::new(alloc::vec![first])));
        SharingGroupId { home: self.kernel, serial }
    }

    fn find_sharing_group(&self, sharing_group: SharingGroupId) -> Result<SharingGroup> {
        self.sharing.sharing_groups.lock().get(&sharing_group.serial).cloned().ok_or(Errno::ESRCH)
    }

    async fn sharing_group_member(&self, ask: SharingGroupMember) -> Result<()> {
        match ask.sharing_group.home == self.kernel {
            true => self.sharing_group_member_here(ask).await,
            false => self.endpoint.call(ask.sharing_group.home, ask).await.map_err(Errno::from)?,
        }
    }

    pub(crate) async fn sharing_group_member_here(&self, ask: SharingGroupMember) -> Result<()> {
        let sharing_group = self.find_sharing_group(ask.sharing_group)?;
        let mut members = sharing_group.lock().await;
        match ask.joins {
            true => members.push(ask.process),
            false => members.retain(|member| *member != ask.process),
        }
        if members.is_empty() {
            self.sharing.sharing_groups.lock().remove(&ask.sharing_group.serial);
        }
        Ok(())
    }

    /// Takes the processes that were at home on `dead` out of all sharing groups.
    pub(crate) async fn forget_members(&self, dead: KernelId) {
        let sharing_groups: Vec<(u64, SharingGroup)> = self
            .sharing
            .sharing_groups
            .lock()
            .iter()
            .map(|(serial, sharing_group)| (*serial, sharing_group.clone()))
            .collect();
        for (serial, sharing_group) in sharing_groups {
            let mut members = sharing_group.lock().await;
            members.retain(|member| self.origin(*member) != Some(dead));
            if members.is_empty() {
                self.sharing.sharing_groups.lock().remove(&serial);
            }
        }
    }

    /// Makes a change in all members, one after the other.
    pub(crate) async fn change_sharing_group(
        self: &Arc<Self>,
        sharing_group: SharingGroupId,
        step: Step,
    ) -> Result<()> {
        if sharing_group.home == self.kernel {
            return self.change_sharing_group_here(sharing_group, step).await;
        }
        let ask = ChangeSharingGroup { sharing_group, change: self.change_for(sharing_group.home, &step).await? };
        self.endpoint.call(sharing_group.home, ask).await.map_err(Errno::from)?
    }

    pub(crate) async fn change_sharing_group_here(
        self: &Arc<Self>,
        sharing_group: SharingGroupId,
        step: Step,
    ) -> Result<()> {
        let sharing_group = self.find_sharing_group(sharing_group)?;
        let members = sharing_group.lock().await;
        for &member in members.iter() {
            let home = self.origin(member).ok_or(Errno::ESRCH)?;
            if home == self.kernel {
                if let Some(process) = self.process(member) {
                    process.change_member(step.clone()).await?;
                }
                continue;
            }
            let change = self.change_for(home, &step).await?;
            // A member whose kernel died has nothing to change any more.
            let _ = self.endpoint.call(home, ChangeMember { process: member, change }).await;
        }
        Ok(())
    }
}
