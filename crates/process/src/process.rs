//! [`Process`]: a thread group as this kernel holds it, at home or as a replica.

use crate::{births::Deciding, death::KILLED, home::Home, limits, DescriptorTransfer, Files, System, Thread};
use abi::signal::{Pending, SignalSet, Taken};
use abi::{Caller, Credentials};
use alloc::{boxed::Box, collections::BTreeMap, sync::Arc, vec::Vec};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};
use fs::File;
use machine::{
    account::Account,
    errno::Result,
    sync::{Lock, WaitQueue},
    Errno, KernelId, Pid,
};
use messages::fs::Opened;
use messages::process::{AskDirectories, ExitStatus, PendingSet, PutBack, Shared, StopState, Survivor, TakeSignal};
use vm::Space;

bitflags::bitflags! {
    /// What is going on with a process, as this kernel knows it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Flags: u32 {
        /// Every thread must end.
        const ENDING = 1;
        /// Stopped by a signal: threads wait at the user boundary.
        const STOPPED = 2;
        /// It was sent to another kernel to execute its program there. It is not sent a second time.
        const PLACED = 4;
    }
}

/// Root and working directory (shared by the threads, man 2 chroot, chdir).
#[derive(Clone)]
pub struct Directories {
    pub root: Arc<dyn File>,
    pub cwd: Arc<dyn File>,
}

/// Those of the two that this kernel has open.
#[derive(Default)]
struct Open {
    root: Option<Arc<dyn File>>,
    cwd: Option<Arc<dyn File>>,
}

/// The address space of a process as one of its threads looked it up, and when.
pub struct KnownSpace {
    space: Arc<Space>,
    images: u32,
}

/// What one kernel has of a process: a replica, and at its home also the parts that exist only once (`home_part`).
pub struct Process {
    /// Process id (the thread group's).
    pub id: Pid,
    /// The kernel that keeps its members, children and signals.
    pub home: KernelId,
    /// The kernel whose replica this is.
    pub system: Arc<System>,
    pub(crate) shared: Lock<Shared>,
    directories: Lock<Open>,
    space: Lock<Arc<Space>>,
    /// How often it has got another address space.
    images: AtomicU32,
    files: Lock<Arc<Files>>,
    /// Live threads on this kernel.
    pub(crate) threads: Lock<BTreeMap<Pid, Arc<Thread>>>,
    flags: AtomicU32,
    /// The newest report of the home on stops and SIGCONT (stop.rs). `Flags::STOPPED` follows it.
    pub(crate) stop_state: Lock<StopState>,
    /// Process-directed signals waiting to be taken: at home the truth, on a replica the last the home said.
    pending: AtomicU64,
    /// The version of the pending set that the home sent last.
    pending_version: Lock<u64>,
    /// Woken when the flags change.
    pub(crate) changed: Arc<WaitQueue>,
    /// How many signals have become pending for it, or for a thread of it here.
    signals_came: AtomicU64,
    /// How the process ends, once that is decided.
    pub(crate) ending: Lock<Option<ExitStatus>>,
    /// From when execve has ended all other threads until the new program is there.
    pub(crate) survivor: Lock<Option<Survivor>>,
    /// Woken when a vfork child gives its parent's memory back, by execve or by its end.
    pub(crate) space_released: WaitQueue,
    /// A child that still runs in its parent's memory (vfork waits for the end of that).
    pub(crate) in_parents_space: AtomicBool,
    /// The account that is charged for what this kernel keeps for the process, with the user that it last acted for.
    account: Lock<Option<(u32, Arc<Account>)>>,
    /// Only at home.
    pub(crate) home_part: Option<Home>,
}

impl Process {
    pub(crate) fn new(
        system: &Arc<System>,
        id: Pid,
        home: KernelId,
        shared: Shared,
        directories: Option<Directories>,
        space: Arc<Space>,
        files: Arc<Files>,
    ) -> Arc<Process> {
        let home_part = (home == system.kernel).then(Home::default);
        let directories = directories
            .map_or_else(Open::default, |Directories { root, cwd }| Open { root: Some(root), cwd: Some(cwd) });
        Arc::new(Process {
            id,
            home,
            system: system.clone(),
            shared: Lock::new(shared),
            directories: Lock::new(directories),
            space: Lock::new(space),
            images: AtomicU32::new(0),
            files: Lock::new(files),
            threads: Lock::default(),
            flags: AtomicU32::new(0),
            stop_state: Lock::default(),
            pending: AtomicU64::new(0),
            pending_version: Lock::new(0),
            changed: Arc::default(),
            signals_came: AtomicU64::new(0),
            ending: Lock::new(None),
            survivor: Lock::new(None),
            space_released: WaitQueue::new(),
            in_parents_space: AtomicBool::new(false),
            account: Lock::new(None),
            home_part,
        })
    }

    /// Enters the process into the tables, so that it can be found.
    pub(crate) fn enter(self: &Arc<Self>) {
        self.system.processes.lock().insert(self.id, self.clone());
    }

    /// Whether this kernel is its home.
    pub fn is_home(&self) -> bool {
        self.home_part.is_some()
    }

    pub(crate) fn home(&self) -> Option<&Home> {
        self.home_part.as_ref()
    }

    /// Its address space now; execve gives it another one.
    pub fn space(&self) -> Arc<Space> {
        self.space.lock().clone()
    }

    /// The same without writing to lines that all its threads use.
    #[inline]
    pub fn known_space<'a>(&self, known: &'a mut Option<KnownSpace>) -> &'a Arc<Space> {
        let images = self.images.load(Acquire);
        if known.as_ref().is_none_or(|known| known.images != images) {
            *known = None;
        }
        &known.get_or_insert_with(|| KnownSpace { space: self.space(), images }).space
    }

    /// The process has a memory of its own from now on, under its own limits: a parent that waits for that (vfork) goes on. Gives the
    /// memory that it had.
    pub(crate) fn take_space(&self, space: Arc<Space>) -> Arc<Space> {
        let old = core::mem::replace(&mut *self.space.lock(), space);
        self.images.fetch_add(1, Release);
        self.in_parents_space.store(false, SeqCst);
        self.bound_space();
        self.space_released.wake_all();
        old
    }

    /// This kernel's replica of the space obeys the process's limits. A child that is still in its parent's memory (vfork) changes
    /// nothing of that.
    pub(crate) fn bound_space(&self) {
        if !self.is_in_parents_space() {
            self.space().set_limits(limits::of_mappings(&self.shared.lock().limits));
        }
    }

    pub(crate) fn is_in_parents_space(&self) -> bool {
        self.in_parents_space.load(SeqCst)
    }

    /// Its descriptor table now.
    pub fn files(&self) -> Arc<Files> {
        self.files.lock().clone()
    }

    /// The file behind one of its descriptors, if this kernel knows without asking.
    #[inline]
    pub fn known_file(&self, fd: u32) -> Option<Arc<dyn File>> {
        self.files.lock().known(fd)
    }

    pub(crate) fn set_files(&self, files: Arc<Files>) -> Arc<Files> {
        core::mem::replace(&mut self.files.lock(), files)
    }

    /// Root and working directory. A replica opens them when they are first used here.
    pub async fn directories(self: &Arc<Self>) -> Result<Directories> {
        if let Some(open) = self.open_directories() {
            return Ok(open);
        }
        let process = self.clone();
        let take = move |from: &dyn DescriptorTransfer, reply: Result<(Opened, Opened)>| -> Result<()> {
            let (root, cwd) = reply?;
            let (root, cwd) = (from.take(root), from.take(cwd));
            process.open(root?, cwd?);
            Ok(())
        };
        self.system.ask_for(self.home, AskDirectories { process: self.id }, take).await??;
        self.open_directories().ok_or(Errno::EIO)
    }

    /// In the drain. What is open is what the home has told since, and newer.
    fn open(&self, root: Arc<dyn File>, cwd: Arc<dyn File>) {
        let mut open = self.directories.lock();
        open.root.get_or_insert_with(|| root.clone());
        open.cwd.get_or_insert_with(|| cwd.clone());
    }

    /// At home: gives the replica on `kernel` references to the directories.
    pub(crate) async fn open_for(self: &Arc<Self>, kernel: KernelId) -> Result<(Opened, Opened)> {
        let Directories { root, cwd } = self.directories().await?;
        let transfer = &self.system.descriptor_transfer;
        Ok((transfer.give_away(&root, kernel).await?, transfer.give_away(&cwd, kernel).await?))
    }

    /// The directories, if they have been used here or the process is at home here.
    pub(crate) fn open_directories(&self) -> Option<Directories> {
        let open = self.directories.lock();
        Some(Directories { root: open.root.clone()?, cwd: open.cwd.clone()? })
    }

    pub(crate) fn set_directory(&self, directory: Arc<dyn File>, root: bool) {
        let mut open = self.directories.lock();
        let old = match root {
            true => open.root.replace(directory),
            false => open.cwd.replace(directory),
        };
        drop(open);
        drop(old);
    }

    /// A copy of what the threads share.
    pub fn shared(&self) -> Shared {
        self.shared.lock().clone()
    }

    /// Reads part of what the threads share; must not block.
    pub fn with_shared<T>(&self, read: impl FnOnce(&Shared) -> T) -> T {
        read(&self.shared.lock())
    }

    /// Soft limit of a resource of getrlimit(2).
    pub fn limit(&self, resource: usize) -> u64 {
        self.shared.lock().limits.get(resource).map_or(u64::MAX, |limit| limit.0)
    }

    /// Whether one of `flags` is set.
    pub fn has(&self, flags: Flags) -> bool {
        self.flags.load(SeqCst) & flags.bits() != 0
    }

    /// Sets or clears flags and gets every local thread's attention.
    pub(crate) fn set_flags(&self, flags: Flags, on: bool) {
        self.change_flags(flags, on);
        self.call_attention();
    }

    pub(crate) fn change_flags(&self, flags: Flags, on: bool) {
        if on {
            self.flags.fetch_or(flags.bits(), SeqCst);
        } else {
            self.flags.fetch_and(!flags.bits(), SeqCst);
        }
    }

    /// Gets every local thread's attention.
    pub(crate) fn call_attention(&self) {
        self.changed.wake_all();
        for thread in self.local_threads() {
            thread.wake();
        }
    }

    /// Its live threads on this kernel.
    pub fn local_threads(&self) -> Vec<Arc<Thread>> {
        self.threads.lock().values().cloned().collect()
    }

    /// The thread here that executes a program, and goes on as the main one, which has ended.
    pub(crate) fn executing(&self) -> Option<Arc<Thread>> {
        self.threads.lock().values().find(|thread| thread.executing.load(SeqCst)).cloned()
    }

    /// Process-directed signals that wait to be taken.
    pub fn pending(&self) -> SignalSet {
        SignalSet(self.pending.load(SeqCst))
    }

    /// Woken when a signal becomes pending for the process or one of its local threads.
    pub fn signal_changes(&self) -> &Arc<WaitQueue> {
        &self.changed
    }

    pub(crate) fn set_pending(&self, told: PendingSet) {
        let mut version = self.pending_version.lock();
        if told.version >= *version {
            *version = told.version;
            self.pending.store(told.set.0, SeqCst);
        }
    }

    /// A signal has become pending for the process or a local thread: for those who wait for it by sigwait or signalfd.
    pub(crate) fn signal_came(&self) {
        self.signals_came.fetch_add(1, SeqCst);
        self.changed.wake_all();
    }

    /// Counts the signals that have come. Whoever reads this before the pending signals may see more in those, never less.
    pub fn signals_came(&self) -> u64 {
        self.signals_came.load(SeqCst)
    }

    /// Wakes a local thread that could take one of `set`, the main thread by preference.
    pub(crate) fn rouse(&self, set: SignalSet) {
        let threads = self.local_threads();
        if let Some(thread) = threads.iter().find(|thread| !set.without(thread.blocked()).is_empty()) {
            thread.wake();
        }
        self.signal_came();
        for thread in threads.iter().filter(|thread| set.without(thread.blocked()).is_empty()) {
            thread.wake();
        }
    }

    /// Takes a process-directed signal of `wanted`, at the home, for somebody who has waited for it.
    pub async fn take_signal(self: &Arc<Self>, wanted: SignalSet) -> Option<Taken> {
        self.take(wanted, false).await
    }

    /// With `acts` it is for a thread that does what the signal's action says.
    pub(crate) async fn take(self: &Arc<Self>, wanted: SignalSet, acts: bool) -> Option<Taken> {
        if !self.is_home() {
            let ask = TakeSignal { process: self.id, wanted, acts };
            let Ok((taken, left)) = self.system.endpoint.call(self.home, ask).await else {
                // The signal would be asked for again at once, and never come: this thread would keep the CPU for itself, also
                // from who looks what the death means. It means this (death.rs).
                if !self.system.endpoint.is_alive(self.home) {
                    self.end_local(KILLED, None);
                }
                return None;
            };
            // Not if the home has said something newer since: a signal that came meanwhile is not forgotten.
            self.set_pending(left);
            return taken;
        }
        self.take_signal_here(wanted, acts).await.0
    }

    /// Puts signals back on the pending queue that [`Process::take_signal`] took for a thread whose wait was interrupted.
    pub fn put_back(self: &Arc<Self>, signals: Vec<Taken>) {
        if self.is_home() {
            return self.put_back_here(signals);
        }
        let process = self.clone();
        self.system.scheduler.spawn(async move {
            let back = PutBack { process: process.id, signals };
            // A dead home has no process left that could want them.
            let _ = process.system.endpoint.call(process.home, back).await;
        });
    }

    pub(crate) fn put_back_here(&self, signals: Vec<Taken>) {
        if let Some(((), waiting)) = self.with_pending(|pending| pending.put_back(signals.into_iter())) {
            self.tell_pending(waiting);
            self.rouse(waiting.set);
        }
    }

    /// At home: takes one of the signals `wanted`; answers also those that are left.
    pub(crate) async fn take_signal_here(
        self: &Arc<Self>,
        wanted: SignalSet,
        acts: bool,
    ) -> (Option<Taken>, PendingSet) {
        let _deciding = self.home().filter(|_| acts).map(Deciding::new);
        let Some((taken, left)) = self.with_pending(|pending| pending.take(wanted)) else { return Default::default() };
        if let Some(taken) = &taken {
            self.tell_pending(left);
            self.note_taken(&taken.info).await;
            if acts {
                Box::pin(self.decide(taken)).await;
            }
        }
        (taken, left)
    }

    /// At home: changes which signals wait, and answers which wait then.
    pub(crate) fn with_pending<T>(&self, change: impl FnOnce(&mut Pending) -> T) -> Option<(T, PendingSet)> {
        let home = self.home()?;
        let (value, left) = {
            let mut state = home.state.lock();
            let uid = state.credentials.uid;
            state.pending.pay(|| self.account(uid));
            let value = change(&mut state.pending);
            state.pending_version += 1;
            (value, state.pending_set())
        };
        self.set_pending(left);
        Some((value, left))
    }

    /// Who pays for what this kernel keeps for the process, which acts for the user with the real id `uid`.
    pub fn account(&self, uid: u32) -> Arc<Account> {
        let mut known = self.account.lock();
        if let Some((_, account)) = known.as_ref().filter(|(of, _)| *of == uid) {
            return account.clone();
        }
        let account = self.system.accounts.of(self.id, uid);
        *known = Some((uid, account.clone()));
        account
    }

    /// The caller for file operations of `thread`: credentials, ids and umask.
    pub fn caller(&self, thread: &Thread) -> Caller {
        let shared = self.shared.lock();
        Caller {
            credentials: thread.state.lock().credentials.clone(),
            process: self.id,
            thread: thread.tid,
            group: shared.group,
            session: shared.session,
            umask: shared.umask,
            shield: thread.shield.clone(),
        }
    }

    /// Credentials of the process, which are those of its main thread. Only at home.
    pub(crate) fn credentials(&self) -> Credentials {
        self.home().map(|home| home.state.lock().credentials.clone()).unwrap_or_default()
    }

    /// At home: whether its last thread has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.home().is_some_and(|home| home.state.lock().zombie.is_some())
    }

    /// Waits for the end of the process. Only at home.
    pub async fn ended(&self) -> ExitStatus {
        match self.home() {
            Some(home) => home.members_changed.wait_until(|| home.state.lock().zombie).await,
            None => core::future::pending().await,
        }
    }
}
