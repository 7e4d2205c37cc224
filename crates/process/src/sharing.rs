//! Processes that share directories and umask (CLONE_FS), signal handlers (CLONE_SIGHAND), or memory and with it oom_score_adj (CLONE_VM).
//!
//! Problem: what the threads of one process share is kept by its home and copied to its replicas (change.rs). Here
//! several processes, with homes on different kernels, must see one value.
//!
//! Idea: they are a *circle*, kept by the kernel where it was made. A change goes there, and is applied to one
//! member after the other, through the member's home as any change of a process; it is answered when all have it.
//! A process without sharers has no circle and pays nothing.
//!
//! The dangerous interleaving is a change while a process is cloned into the circle:
//!
//! ```text
//!   parent's kernel                    circle                      chdir by a member
//!   child: a copy of the parent
//!                                      parent := /tmp  <---------- chdir /tmp
//!   join(child) ---------------------> members += child            (too late for this change)
//!   child keeps the old directory for ever
//! ```
//!
//! So the child joins first and takes its copy from the parent afterwards, under the locks of both. Changes hold
//! the circle's lock from the first member to the last, and the parent stands before the child: a change that
//! the copy missed has not reached the parent yet, so it reaches the child after the copy; one that began before
//! the child joined has reached the parent before.

use crate::{change::Step, process::Directories, Process, System};
use alloc::{sync::Arc, vec::Vec};
use machine::{
    errno::Result,
    sync::{AsyncLock, Lock},
    Errno, HashMap, KernelId, Pid, SpaceId,
};
use messages::process::{Change, ChangeCircle, ChangeMember, CircleId, CircleMember, Facet};

/// What several processes use, counted where it is at home.
#[derive(Default)]
pub(crate) struct Sharing {
    /// Who uses a space, if it is not one process alone that is at home here, too.
    pub space_users: Lock<HashMap<SpaceId, crate::users::Users>>,
    /// Circles kept here, by serial number.
    circles: Lock<HashMap<u64, Circle>>,
}

/// The members of a circle, oldest first.
pub(crate) type Circle = Arc<AsyncLock<Vec<Pid>>>;

/// What kind of circle a change concerns, beside that of a directory.
pub(crate) fn facet_of(change: &Change) -> Option<Facet> {
    match change {
        Change::Action { .. } => Some(Facet::Handlers),
        Change::Umask(_) => Some(Facet::Directories),
        _ => None,
    }
}

impl Process {
    pub(crate) fn circle(&self, facet: Facet) -> Option<CircleId> {
        self.with_shared(|shared| shared.circles[facet as usize])
    }

    /// The circle that a new process is to join; made if there is none.
    pub(crate) async fn circle_for_child(self: &Arc<Self>, facet: Facet) -> Result<CircleId> {
        if let Some(known) = self.circle(facet) {
            return Ok(known);
        }
        let made = self.system.new_circle(self.id);
        // Another thread may do the same: the home takes the first.
        self.change(Change::Circle { facet, circle: Some(made) }).await?;
        match self.circle(facet) {
            Some(circle) => {
                if circle != made {
                    self.system.sharing.circles.lock().remove(&made.serial);
                }
                Ok(circle)
            }
            None => Err(Errno::EAGAIN),
        }
    }

    /// A new process, at home here and not running yet, joins `parent`'s circle.
    pub(crate) async fn join_circle(self: &Arc<Self>, parent: &Arc<Process>, facet: Facet) -> Result<()> {
        let circle = parent.circle_for_child(facet).await?;
        self.shared.lock().circles[facet as usize] = Some(circle);
        self.system.circle_member(CircleMember { circle, process: self.id, joins: true }).await?;
        let mut mine = self.shared.lock();
        match facet {
            Facet::Directories => {
                mine.umask = parent.with_shared(|shared| shared.umask);
                // The child was made of them.
                if let Some(Directories { root, cwd }) = parent.open_directories() {
                    self.set_directory(root, true);
                    self.set_directory(cwd, false);
                }
            }
            Facet::Handlers => mine.actions = parent.with_shared(|shared| shared.actions.clone()),
            Facet::Memory => mine.oom = parent.with_shared(|shared| shared.oom),
        }
        Ok(())
    }

    /// At home: a change of the circle reaches this member.
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

    /// For a process of one thread, which is here: its descriptor table, which lies on the kernel where the process was born
    /// and which nobody else uses, moves here, so that opening and closing ask nobody. Who shares memory with its parent
    /// (vfork) will have another table soon.
    pub async fn fetch_files(self: &Arc<Self>) -> Result<()> {
        match self.is_in_parents_space() {
            true => Ok(()),
            false => self.unshare_files().await,
        }
    }

    /// Takes the process out of a circle: it keeps what it had in common, and changes it alone from now on (execve, unshare,
    /// exit).
    pub async fn leave_circle(self: &Arc<Self>, facet: Facet) -> Result<()> {
        let Some(circle) = self.circle(facet) else { return Ok(()) };
        // First out of the circle, which waits for a change that is under way.
        self.system.circle_member(CircleMember { circle, process: self.id, joins: false }).await?;
        self.change(Change::Circle { facet, circle: None }).await
    }
}

impl System {
    fn new_circle(&self, first: Pid) -> CircleId {
        let serial = self.serials.next();
        self.sharing.circles.lock().insert(serial, Arc::new(AsyncLock::new(alloc::vec![first])));
        CircleId { home: self.kernel, serial }
    }

    fn find_circle(&self, circle: CircleId) -> Result<Circle> {
        self.sharing.circles.lock().get(&circle.serial).cloned().ok_or(Errno::ESRCH)
    }

    async fn circle_member(&self, ask: CircleMember) -> Result<()> {
        match ask.circle.home == self.kernel {
            true => self.circle_member_here(ask).await,
            false => self.endpoint.call(ask.circle.home, ask).await.map_err(Errno::from)?,
        }
    }

    pub(crate) async fn circle_member_here(&self, ask: CircleMember) -> Result<()> {
        let circle = self.find_circle(ask.circle)?;
        let mut members = circle.lock().await;
        match ask.joins {
            true => members.push(ask.process),
            false => members.retain(|member| *member != ask.process),
        }
        if members.is_empty() {
            self.sharing.circles.lock().remove(&ask.circle.serial);
        }
        Ok(())
    }

    /// The processes that were at home on `dead` are members of nothing any more.
    pub(crate) async fn forget_members(&self, dead: KernelId) {
        let circles: Vec<(u64, Circle)> =
            self.sharing.circles.lock().iter().map(|(serial, circle)| (*serial, circle.clone())).collect();
        for (serial, circle) in circles {
            let mut members = circle.lock().await;
            members.retain(|member| self.origin(*member) != Some(dead));
            if members.is_empty() {
                self.sharing.circles.lock().remove(&serial);
            }
        }
    }

    /// Changes all members.
    pub(crate) async fn change_circle(self: &Arc<Self>, circle: CircleId, step: Step) -> Result<()> {
        if circle.home == self.kernel {
            return self.change_circle_here(circle, step).await;
        }
        let ask = ChangeCircle { circle, change: self.change_for(circle.home, &step).await? };
        self.endpoint.call(circle.home, ask).await.map_err(Errno::from)?
    }

    pub(crate) async fn change_circle_here(self: &Arc<Self>, circle: CircleId, step: Step) -> Result<()> {
        let circle = self.find_circle(circle)?;
        let members = circle.lock().await;
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
