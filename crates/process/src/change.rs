//! Changes of what the threads of a process share.
//!
//! The home applies a change, tells every replica, and answers when all have it; so a thread that made a
//! change and then talks to another thread finds the change there.
//!
//! The dangerous interleaving is that of two changes at once. To apply one and to tell it are two steps, and a replica that
//! is just being made takes in what it was told when it is there, in any order:
//!
//! ```text
//!   H, CPU 0: sigaction A    H, CPU 1: sigaction B          K
//!   A is the home's
//!                            B is the home's
//!                            -- ApplyChange B ------------> B
//!   -- ApplyChange A -------------------------------------> A, and the home B: for ever
//! ```
//!
//! So the changes of a process have *turns*, which the home gives: the next one begins when all replicas have answered the last.
//! A process without replicas waits for nobody in its turn. Whoever has a turn asks nobody who could want one: replicas
//! open directories and make themselves without changing anything; the lock of a circle (sharing.rs) is taken before a turn, never in it.

use crate::{sharing::facet_of, Files, Process};
use abi::FileRef;
use alloc::{boxed::Box, sync::Arc};
use machine::{errno::Result, sync::AsyncGuard, Errno};
use messages::process::{ApplyChange, Change, ChangeCircle, ChangeShared, Facet};

/// The right to change a process, until it is dropped. Only its home gives it.
pub(crate) type Turn<'a> = AsyncGuard<'a, ()>;

impl Process {
    /// Changes the process everywhere.
    pub async fn change(self: &Arc<Self>, change: Change) -> Result<()> {
        let Some(home) = self.home() else {
            let ask = ChangeShared { process: self.id, change };
            return self.system.endpoint.call(self.home, ask).await.map_err(Errno::from)?;
        };
        let turn = home.changes.lock().await;
        // Not looked at before: a replica may not have known yet, and the change before this one may have made the circle, whose
        // new member took its copy without this.
        if let Some(circle) = facet_of(&change).and_then(|facet| self.circle(facet)) {
            drop(turn);
            return Box::pin(self.system.change_circle(ChangeCircle { circle, change })).await;
        }
        self.change_in_turn(change, &turn).await
    }

    /// At home: changes this process, not those that it shares something with.
    pub(crate) async fn change_own(self: &Arc<Self>, change: Change) -> Result<()> {
        let turn = self.home().ok_or(Errno::ESRCH)?.changes.lock().await;
        self.change_in_turn(change, &turn).await
    }

    async fn change_in_turn(self: &Arc<Self>, change: Change, _turn: &Turn<'_>) -> Result<()> {
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
        let system = &self.system;
        let Some(home) = self.home() else {
            let change = directory_change(root, system.directory.name(&directory).await?);
            let ask = ChangeShared { process: self.id, change };
            return system.endpoint.call(self.home, ask).await.map_err(Errno::from)?;
        };
        let turn = home.changes.lock().await;
        if let Some(circle) = self.circle(Facet::Directories) {
            drop(turn);
            let change = directory_change(root, system.directory.name(&directory).await?);
            return system.change_circle(ChangeCircle { circle, change }).await;
        }
        self.change_directory_in_turn(directory, root, &turn).await
    }

    /// At home: of this process, not of those that it shares its directories with.
    pub(crate) async fn change_own_directory(self: &Arc<Self>, directory: Arc<dyn fs::File>, root: bool) -> Result<()> {
        let turn = self.home().ok_or(Errno::ESRCH)?.changes.lock().await;
        self.change_directory_in_turn(directory, root, &turn).await
    }

    async fn change_directory_in_turn(
        self: &Arc<Self>,
        directory: Arc<dyn fs::File>,
        root: bool,
        _turn: &Turn<'_>,
    ) -> Result<()> {
        let system = &self.system;
        let kept = directory.clone();
        self.set_directories(|directories| match root {
            true => directories.root = kept,
            false => directories.cwd = kept,
        });
        for kernel in self.replicas().iter() {
            // A name opens once, so each replica needs one of its own.
            let name = system.directory.name(&directory).await?;
            let apply = ApplyChange { process: self.id, change: directory_change(root, name) };
            // With a kernel that has died the process goes, too.
            let _ = system.endpoint.call(kernel, apply).await;
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

pub(crate) fn directory_change(root: bool, name: FileRef) -> Change {
    match root {
        true => Change::Root(name),
        false => Change::Cwd(name),
    }
}
