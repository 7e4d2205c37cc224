//! Changes of what the threads of a process share.
//!
//! The home applies a change, tells every replica, and answers when all have it; so a thread that made a
//! change and then talks to another thread finds the change there. Two changes from two kernels are
//! ordered by the home, and the lanes keep that order on the way to each replica.

use crate::{sharing::facet_of, Files, Process};
use alloc::{boxed::Box, sync::Arc};
use machine::{errno::Result, Errno};
use messages::process::{ApplyChange, Change, ChangeCircle, ChangeShared, Facet};

impl Process {
    /// Changes the process everywhere.
    pub async fn change(self: &Arc<Self>, change: Change) -> Result<()> {
        let system = &self.system;
        if !self.is_home() {
            let ask = ChangeShared { process: self.id, change };
            return system.endpoint.call(self.home, ask).await.map_err(Errno::from)?;
        }
        // Looked at here as well: a replica may not have known yet.
        if let Some(circle) = facet_of(&change).and_then(|facet| self.circle(facet)) {
            return Box::pin(system.change_circle(ChangeCircle { circle, change })).await;
        }
        self.change_own(change).await
    }

    /// At home: changes this process, not those that it shares something with.
    pub(crate) async fn change_own(self: &Arc<Self>, change: Change) -> Result<()> {
        let system = &self.system;
        if let Change::Owner(owner) = change {
            if let Some(home) = self.home() {
                home.state.lock().credentials = owner;
            }
            return Ok(());
        }
        if let Change::Image { alone: Some(at), .. } = change {
            self.keep_only(at).await;
        }
        self.apply(change.clone()).await?;
        let replicas = self.replicas();
        if !replicas.is_empty() {
            system.endpoint.multicast(&replicas, ApplyChange { process: self.id, change }).await;
        }
        Ok(())
    }

    /// Takes a change over into this kernel's copy: at home, or because the home said so. Opening a
    /// directory by its name asks no other kernel, so this may run on the high-priority lane.
    pub(crate) async fn apply(self: &Arc<Self>, change: Change) -> Result<()> {
        let mut shared = match change {
            Change::Cwd(_) | Change::Root(_) | Change::Image { .. } => return self.apply_opening(change).await,
            _ => self.shared.lock(),
        };
        match change {
            Change::Action { signal, action } => {
                shared.actions.set(signal, action);
            }
            Change::ResetActions => shared.actions.reset_for_exec(),
            Change::Umask(umask) => shared.umask = umask & 0o777,
            Change::Limit { resource, limit } => {
                if let Some(slot) = shared.limits.get_mut(resource as usize) {
                    *slot = limit;
                }
                drop(shared);
                self.apply_limits_to_space();
            }
            Change::Parent(parent) => shared.parent = parent,
            Change::Group(group) => shared.group = group,
            Change::Session(session) => {
                shared.session = session;
                shared.group = session;
            }
            Change::Executable { path, layout } => {
                // A registration belongs to the memory that execve replaced.
                shared.barriers = 0;
                shared.lock_future = 0;
                shared.executable = path;
                shared.layout = layout;
                shared.executed = true;
                *self.survivor.lock() = None;
            }
            Change::Subreaper(on) => shared.child_subreaper = on,
            Change::Dumpable(on) => shared.dumpable = on,
            Change::NoNewPrivileges => shared.no_new_privileges = true,
            Change::LockFuture(flags) => shared.lock_future = flags,
            Change::Barriers(commands) => shared.barriers |= commands,
            Change::Circle { facet, circle } => {
                let known = &mut shared.circles[facet as usize];
                if known.is_none() || circle.is_none() {
                    *known = circle;
                }
            }
            // Not sent to replicas.
            Change::Owner(_) => {}
            Change::Cwd(_) | Change::Root(_) | Change::Image { .. } => unreachable!("returned above"),
        }
        Ok(())
    }

    async fn apply_opening(self: &Arc<Self>, change: Change) -> Result<()> {
        let system = &self.system;
        match change {
            Change::Cwd(name) => {
                let cwd = system.directory.open(name).await?;
                self.set_directories(|directories| directories.cwd = cwd);
            }
            Change::Root(name) => {
                let root = system.directory.open(name).await?;
                self.set_directories(|directories| directories.root = root);
            }
            Change::Image { space, files, .. } => {
                let space = system.vm.attach(space)?;
                let files = Files::attach(system, files).await?;
                self.set_space(space);
                self.leave_parents_space();
                self.set_files(files);
            }
            _ => {}
        }
        Ok(())
    }

    /// chdir, fchdir (`cwd`), chroot (`root`): the thread's kernel has the directory open.
    pub async fn change_directory(self: &Arc<Self>, directory: Arc<dyn fs::File>, root: bool) -> Result<()> {
        if let Some(circle) = self.circle(Facet::Directories) {
            let name = self.system.directory.name(&directory).await?;
            let change = if root { Change::Root(name) } else { Change::Cwd(name) };
            return self.system.change_circle(ChangeCircle { circle, change }).await;
        }
        self.change_own_directory(directory, root).await
    }

    pub(crate) async fn change_own_directory(self: &Arc<Self>, directory: Arc<dyn fs::File>, root: bool) -> Result<()> {
        let kept = directory.clone();
        self.set_directories(|directories| match root {
            true => directories.root = kept,
            false => directories.cwd = kept,
        });
        if self.is_home() && self.replicas().is_empty() {
            return Ok(());
        }
        // Each replica needs a name of its own: a name opens once.
        self.spread_directory(&directory, root).await
    }

    async fn spread_directory(self: &Arc<Self>, directory: &Arc<dyn fs::File>, root: bool) -> Result<()> {
        let system = &self.system;
        let change = |name| if root { Change::Root(name) } else { Change::Cwd(name) };
        if !self.is_home() {
            let name = system.directory.name(directory).await?;
            let ask = ChangeShared { process: self.id, change: change(name) };
            return system.endpoint.call(self.home, ask).await.map_err(Errno::from)?;
        }
        for kernel in self.replicas().iter() {
            let name = system.directory.name(directory).await?;
            let apply = ApplyChange { process: self.id, change: change(name) };
            system.endpoint.call(kernel, apply).await.map_err(Errno::from)?;
        }
        Ok(())
    }

    /// At home: a replica asks for a change.
    pub(crate) async fn change_asked(self: &Arc<Self>, change: Change) -> Result<()> {
        let (name, root) = match change {
            Change::Cwd(name) => (name, false),
            Change::Root(name) => (name, true),
            other => return self.change(other).await,
        };
        let directory = self.system.directory.open(name).await?;
        Box::pin(self.change_directory(directory, root)).await
    }
}
