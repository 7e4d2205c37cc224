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
//! make themselves without changing anything, and a parent only notes what group its child is in. The lock of a
//! sharing group (sharing.rs) is taken before a turn, never in it.

use crate::{sharing::shared_part_of, Files, Process, System};
use abi::signal::{Signal, SignalSet};
use alloc::{boxed::Box, sync::Arc};
use fs::File;
use machine::{errno::Result, sync::AsyncGuard, Errno, KernelId, SpaceId};
use messages::{
    descriptor::TableId,
    process::{ApplyChange, Change, ChangeShared, SharedPart},
};

/// A change with what it needs from other kernels: its directory is open. Each kernel that it goes to is given a reference
/// of its own.
#[derive(Clone)]
pub(crate) enum Step {
    /// The root, or else the current directory.
    Directory {
        directory: Arc<dyn File>,
        root: bool,
    },
    Other(Change),
}

impl System {
    /// Decodes a change that has arrived.
    pub(crate) fn step(&self, change: Change) -> Result<Step> {
        Ok(match change {
            Change::Directory { directory, root } => {
                Step::Directory { directory: self.descriptor_transfer.take(directory)?, root }
            }
            other => Step::Other(other),
        })
    }

    /// Encodes a change for kernel `to`.
    pub(crate) async fn change_for(&self, to: KernelId, step: &Step) -> Result<Change> {
        Ok(match step {
            Step::Directory { directory, root } => {
                Change::Directory { directory: self.descriptor_transfer.give(directory, to).await?, root: *root }
            }
            Step::Other(change) => change.clone(),
        })
    }
}

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
        // Not looked at before: a replica may not have known yet, and the change before this one may have made the sharing group, whose
        // new member took its copy without this.
        if let Some(sharing_group) = shared_part_of(&change).and_then(|part| self.sharing_group(part)) {
            drop(turn);
            return Box::pin(self.system.change_sharing_group(sharing_group, Step::Other(change))).await;
        }
        self.change_in_turn(change, &turn).await
    }

    /// At home: changes this process, not those that it shares something with.
    pub(crate) async fn change_own(self: &Arc<Self>, change: Change) -> Result<()> {
        let turn = self.home().ok_or(Errno::ESRCH)?.changes.lock().await;
        self.change_in_turn(change, &turn).await
    }

    pub(crate) async fn change_in_turn(self: &Arc<Self>, change: Change, turn: &Turn<'_>) -> Result<()> {
        let system = &self.system;
        if let Change::Owner(owner) = change {
            if let Some(home) = self.home() {
                let account = self.account(owner.uid);
                let mut state = home.state.lock();
                state.pending.pay_from(&account);
                state.credentials = owner;
            }
            return Ok(());
        }
        // Two threads may ask at once, or a parent makes it the leader of a group.
        if matches!(change, Change::Session(_)) && system.group_exists(self.id, None).await {
            return Err(Errno::EPERM);
        }
        if matches!(change, Change::Files { from, .. } if from != self.files().id()) {
            return Err(Errno::EAGAIN);
        }
        match change {
            Change::Monitored(true) if self.with_shared(|shared| shared.monitored) => return Err(Errno::EBUSY),
            Change::Monitored(false) => self.drop_counters().await,
            _ => {}
        }
        if let Change::Image { alone: at, .. } = change {
            self.keep_only(at).await;
        }
        let entry_changes = match change {
            Change::Group(_) | Change::Session(_) => true,
            // execve makes the signal of its end SIGCHLD. (With Parent the new parent is told of it when it adopts.)
            Change::Executable { .. } => self.with_shared(|shared| shared.exit_signal != Signal::CHLD.number()),
            _ => false,
        };
        self.apply(change.clone()).await?;
        let replicas = self.replicas();
        if !replicas.is_empty() {
            let change = change.clone();
            system.endpoint.multicast(&replicas, ApplyChange { process: self.id, change }).await;
        }
        if entry_changes {
            self.tell_parent_entry(turn).await;
        }
        Ok(())
    }

    /// On a replica: the home says so. Nobody is asked, so this may run on the high-priority lane.
    pub(crate) async fn follow(self: &Arc<Self>, step: Result<Step>) -> Result<()> {
        match step? {
            Step::Directory { directory, root } => self.set_directory(directory, root),
            Step::Other(change) => self.apply(change).await?,
        }
        Ok(())
    }

    /// Makes a change in this kernel's copy.
    pub(crate) async fn apply(self: &Arc<Self>, change: Change) -> Result<()> {
        let mut shared = match change {
            Change::Image { space, files, .. } => return self.apply_image(space, files).await,
            Change::Files { to, .. } => {
                self.set_files(Files::attach(&self.system, to)?);
                return Ok(());
            }
            _ => self.shared.lock(),
        };
        match change {
            Change::Action { signal, action } => {
                shared.actions.set(signal, action);
                let ignored = shared.actions.ignores(signal);
                drop(shared);
                if ignored {
                    self.discard_own(SignalSet::only(signal));
                    self.local_threads().iter().for_each(|thread| thread.follow_actions());
                }
            }
            Change::ResetActions => shared.actions.reset_for_exec(),
            Change::Umask(umask) => shared.umask = umask & 0o777,
            Change::Limit { resource, limit } => {
                if let Some(slot) = shared.limits.get_mut(resource as usize) {
                    *slot = limit;
                }
            }
            Change::Parent(parent) => {
                shared.parent = parent;
                shared.exit_signal = Signal::CHLD.number();
            }
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
                shared.exit_signal = Signal::CHLD.number();
                *self.survivor.lock() = None;
            }
            Change::Subreaper(on) => shared.child_subreaper = on,
            Change::Dumpable(on) => shared.dumpable = on,
            Change::Monitored(on) => shared.monitored = on,
            Change::NoNewPrivileges => shared.no_new_privileges = true,
            Change::LockFuture(flags) => shared.lock_future = flags,
            Change::Barriers(commands) => shared.barriers |= commands,
            Change::Cgroup(group) => {
                shared.cgroup = group;
                drop(shared);
                self.local_threads().iter().for_each(|thread| thread.set_payer(group));
            }
            Change::Oom { adjust, least } => shared.oom = (adjust, least.unwrap_or(shared.oom.1)),
            Change::SharingGroup { part, sharing_group } => {
                let known = &mut shared.sharing_groups[part as usize];
                if known.is_none() || sharing_group.is_none() {
                    *known = sharing_group;
                }
            }
            // Not sent to replicas.
            Change::Owner(_) => {}
            Change::Directory { .. } => unreachable!("a step of its own"),
            Change::Image { .. } | Change::Files { .. } => unreachable!("returned above"),
        }
        Ok(())
    }

    async fn apply_image(self: &Arc<Self>, space: SpaceId, files: TableId) -> Result<()> {
        let space = self.system.vm.attach(space)?;
        let files = Files::attach(&self.system, files)?;
        // The kernel where execve runs has taken it before.
        if space.id() != self.space().id() {
            self.take_space(space);
        }
        self.set_files(files);
        Ok(())
    }

    /// chdir, fchdir (the current directory), chroot (`root`): the thread's kernel has the directory open.
    pub async fn change_directory(self: &Arc<Self>, directory: Arc<dyn File>, root: bool) -> Result<()> {
        let system = &self.system;
        let step = Step::Directory { directory: directory.clone(), root };
        let Some(home) = self.home() else {
            let ask = ChangeShared { process: self.id, change: system.change_for(self.home, &step).await? };
            return system.endpoint.call(self.home, ask).await.map_err(Errno::from)?;
        };
        let turn = home.changes.lock().await;
        if let Some(sharing_group) = self.sharing_group(SharedPart::Directories) {
            drop(turn);
            return system.change_sharing_group(sharing_group, step).await;
        }
        self.change_directory_in_turn(directory, root, &turn).await
    }

    /// At home: changes a directory of this process, not of those that it shares its directories with.
    pub(crate) async fn change_own_directory(self: &Arc<Self>, directory: Arc<dyn File>, root: bool) -> Result<()> {
        let turn = self.home().ok_or(Errno::ESRCH)?.changes.lock().await;
        self.change_directory_in_turn(directory, root, &turn).await
    }

    async fn change_directory_in_turn(
        self: &Arc<Self>,
        directory: Arc<dyn File>,
        root: bool,
        _turn: &Turn<'_>,
    ) -> Result<()> {
        let system = &self.system;
        self.set_directory(directory.clone(), root);
        let step = Step::Directory { directory, root };
        for kernel in self.replicas().iter() {
            let apply = ApplyChange { process: self.id, change: system.change_for(kernel, &step).await? };
            // With a kernel that has died the process goes, too.
            let _ = system.endpoint.call(kernel, apply).await;
        }
        Ok(())
    }

    /// At home: serves a replica that asks for a change.
    pub(crate) async fn change_asked(self: &Arc<Self>, step: Step) -> Result<()> {
        match step {
            Step::Directory { directory, root } => Box::pin(self.change_directory(directory, root)).await,
            Step::Other(change) => self.change(change).await,
        }
    }
}
