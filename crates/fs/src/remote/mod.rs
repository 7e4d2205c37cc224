//! Files of other kernels.
//!
//! A file lives on the kernel that made it. Elsewhere a [`RemoteFile`] stands in for it: there is at most
//! one per file and kernel, and its operations are calls to the owner. [`Remote`] is one kernel's side of
//! this: the table of its own files that others know (exports.rs), the stand-ins it has (here), the
//! services that answer (serve.rs, watch.rs, observe.rs), and paths run on the kernel that owns the root (paths.rs).
//!
//! # Who keeps a file alive
//!
//! The owner counts references per holding kernel. Every time a reference is put into a message the
//! count goes up first; a stand-in collects the counts that arrive for it and gives all of them back when
//! it is dropped. So a reference that crosses a release on its way is harmless:
//!
//! ```text
//! owner                                       kernel 1
//! count 1                                     has a stand-in (1)
//! puts a reference into a message: count 2
//!                                             drops the stand-in: releases 1
//!                                             the message arrives: a new stand-in (1)
//! count 1                                     <- the file lives
//! ```
//!
//! If references were a set instead of counts, the release would have closed the file.
//! A count that went up for a message which is never sent goes down again (counted.rs).
//!
//! A kernel that hands on a file of a third one does not wait for that count: it tells the owner (`FileRetain`) and sends its message.
//! The receiver tells the owner as well (`FileArrived`), before anything else about the file, and whichever word comes first counts:
//!
//! ```text
//! K1: stand-in (1)          owner: K1 holds 1              K2
//! -- FileRetain for K2 --.
//! -- the reference ------ \ ----------------------------> a stand-in
//! drops its own           \     K2 holds 1 <------------- FileArrived from K1
//! -- FileRelease ---------. \    K2 holds 0 <------------- FileRelease
//!                          \ '-> counted already
//!                           '-> K1 holds 0: closed
//! ```
//!
//! The file stays open in between, for K1's own release is behind its word in one lane.
//!
//! # Waiting
//!
//! A read of a pipe or socket waits at its owner, who answers when there is something: one message and its answer. A signal
//! cancels it, and the reader stays until it knows whether the owner had answered before (ask.rs).
//!
//! Everything else that may have to wait is tried at the owner. Where it would wait there, the stand-in waits here for the owner's
//! word that something has changed, and tries again; a signal thus interrupts a wait that holds nothing.

mod ask;
mod balance;
mod convert;
mod counted;
mod exports;
mod file;
mod leased;
pub mod loan;
mod moves;
mod names;
mod object;
mod observe;
mod paths;
mod pipe;
mod serve;
mod shared;
mod unix;
mod watch;

pub use balance::disagreements;
pub use counted::Counted;
pub use file::RemoteFile;
pub use paths::RemotePaths;
pub use shared::OwnObjects;

use crate::{
    event::SignalSources,
    file::{sigio, Signaller},
    lease::Recall,
    socket::UnixNames,
    Caller, File, FileRef, Mappers, ObjectId, Paths,
};
use abi::{FileOwner, OwnerChange};
use alloc::{
    boxed::Box,
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Weak},
    vec::Vec,
};
use core::sync::atomic::AtomicU64;
use exports::Exports;
use fabric::Endpoint;
use machine::{errno::Result, sync::Lock, BoxFuture, Errno, KernelId, KernelSet, Memory, Spawner};
use messages::fs::{FileArrived, FileRetain, FilesLost, NamesRecall, Opened, WaitPlace};
use names::Names;
use object::Foreign;
use observe::ObservedFile;
use pipe::Holds;
use shared::Handle;

/// Mapped files whose pages are kept though nobody maps them at the moment.
const OBJECTS_KEPT: usize = 32;

/// One kernel's side of the files that cross kernels.
pub struct Remote {
    endpoint: Arc<Endpoint>,
    memory: Arc<dyn Memory>,
    spawner: Arc<dyn Spawner>,
    exports: Exports,
    /// Pipes of this kernel that others hold.
    holds: Holds,
    stand_ins: Lock<BTreeMap<FileRef, Weak<RemoteFile>>>,
    observed: Lock<BTreeMap<FileRef, Weak<ObservedFile>>>,
    /// Observations begun here, for others.
    observations: AtomicU64,
    /// Objects of other kernels that are in use here, and those that are kept in use.
    foreign: Lock<BTreeMap<ObjectId, Weak<Foreign>>>,
    objects: Lock<VecDeque<Arc<Foreign>>>,
    own_objects: Lock<Option<Arc<OwnObjects>>>,
    signals: Lock<Option<Arc<dyn SignalSources>>>,
    signaller: Lock<Option<Arc<dyn Signaller>>>,
    /// Objects of this kernel that others use.
    handles: Lock<BTreeMap<ObjectId, Weak<Handle>>>,
    /// Who said that nothing more of a dead kernel arrives there, before its death was known here.
    lost_early: Lock<Vec<(KernelId, KernelId)>>,
    /// What this kernel has handed to itself and not accepted yet.
    aside: Lock<BTreeMap<u64, Arc<dyn File>>>,
    mappers: Lock<Option<Arc<dyn Mappers>>>,
    /// What the owner of the root has answered about paths.
    names: Names,
    /// Sockets of this kernel.
    sockets: Lock<Weak<UnixNames>>,
    /// On the kernel that owns the root: how paths are run there.
    paths: Option<Arc<dyn Paths>>,
    this: Weak<Remote>,
}

impl Remote {
    /// `paths`: set on the kernel that owns the root file system. Registers all handlers of the subject.
    pub fn new(
        endpoint: Arc<Endpoint>,
        memory: Arc<dyn Memory>,
        spawner: Arc<dyn Spawner>,
        paths: Option<Arc<dyn Paths>>,
    ) -> Arc<Self> {
        let remote = Arc::new_cyclic(|this: &Weak<Remote>| Remote {
            endpoint,
            exports: Exports::new(&*memory),
            holds: Holds::new(&*memory),
            memory,
            spawner,
            stand_ins: Lock::new(BTreeMap::new()),
            observed: Lock::new(BTreeMap::new()),
            observations: AtomicU64::new(1),
            foreign: Lock::new(BTreeMap::new()),
            objects: Lock::new(VecDeque::new()),
            own_objects: Lock::new(None),
            signals: Lock::new(None),
            signaller: Lock::new(None),
            handles: Lock::new(BTreeMap::new()),
            lost_early: Lock::default(),
            aside: Lock::default(),
            mappers: Lock::new(None),
            names: Names::default(),
            sockets: Lock::default(),
            paths,
            this: this.clone(),
        });
        serve::register(&remote);
        pipe::register(&remote);
        shared::register(&remote);
        observe::register(&remote);
        moves::register(&remote);
        remote
    }

    pub fn me(&self) -> KernelId {
        self.endpoint.me()
    }

    /// Says who must hear of lost pages of other kernels' objects.
    pub fn set_mappers(&self, mappers: Arc<dyn Mappers>) {
        *self.mappers.lock() = Some(mappers);
    }

    fn shared(&self) -> Arc<Remote> {
        self.this.upgrade().expect("someone is calling its method")
    }

    /// Where stand-ins of signalfds find the signals of who reads.
    pub fn set_signals(&self, sources: Arc<dyn SignalSources>) {
        *self.signals.lock() = Some(sources);
    }

    /// Who signals the owners of files of this kernel.
    pub fn set_signaller(&self, signaller: Arc<dyn Signaller>) {
        *self.signaller.lock() = Some(signaller);
    }

    fn signaller(&self) -> Option<Arc<dyn Signaller>> {
        self.signaller.lock().clone()
    }

    fn sources(&self) -> Option<Arc<dyn SignalSources>> {
        self.signals.lock().clone()
    }

    /// A reference in a question to `holder`, which becomes the owner of one count. The caller keeps the file until it is answered.
    pub async fn hand_to(&self, holder: KernelId, file: &Arc<dyn File>) -> Result<Counted> {
        if holder == self.me() {
            return Ok(self.put_aside(file.clone()));
        }
        let file = &leased::settle(file).await?;
        match file.remote() {
            // Its own file: it knows it by number, and our stand-in keeps it there.
            Some(there) if there.owner == holder => Ok(Counted::new(self, holder, stand_in(file)?.opened())),
            _ => self.count_anywhere(holder, file),
        }
    }

    /// A reference in an answer to `holder`, which becomes the owner of one count. Our stand-in may have gone before the answer
    /// arrives, so that the file is counted for its own kernel, too.
    pub async fn hand_over(&self, holder: KernelId, file: &Arc<dyn File>) -> Result<Counted> {
        if holder == self.me() {
            return Ok(self.put_aside(file.clone()));
        }
        self.count_anywhere(holder, &leased::settle(file).await?)
    }

    fn count_anywhere(&self, holder: KernelId, file: &Arc<dyn File>) -> Result<Counted> {
        let Some(there) = file.remote() else {
            return Ok(Counted::new(self, holder, self.count_for(holder, file)?));
        };
        let opened = Opened { giver: Some(self.me()), ..stand_in(file)?.opened() };
        // A dead owner counts nothing: the file answers EIO wherever it is. What else is in the message is not lost with it.
        let _ = self.endpoint.send(there.owner, FileRetain { id: there.id, holder });
        Ok(Counted::new(self, holder, opened))
    }

    /// A file of this kernel: one reference more for `holder`. EIO if that has died: what it held may have been released
    /// before this, and nobody would release it again.
    fn count_for(&self, holder: KernelId, file: &Arc<dyn File>) -> Result<Opened> {
        let opened = self.exports.add(self.me(), file, holder);
        if self.endpoint.is_alive(holder) {
            return Ok(opened);
        }
        drop(self.exports.release(opened.file.id, holder, 1));
        Err(Errno::EIO)
    }

    /// `giver` sends `holder` a file of this kernel.
    fn count_given(&self, id: u64, holder: KernelId, giver: KernelId) {
        self.exports.given(id, holder, giver);
        // As above: it does not get it.
        if !self.endpoint.is_alive(holder) {
            drop(self.exports.unsent(id, holder, giver));
        }
    }

    fn uncount_given(&self, id: u64, holder: KernelId, giver: KernelId) {
        // What a dead one was to get was taken off for itself, or is with all that it held.
        if self.endpoint.is_alive(holder) {
            drop(self.exports.unsent(id, holder, giver));
        }
    }

    /// A reference for this kernel itself: nobody counts it, whoever owns the file.
    fn put_aside(&self, file: Arc<dyn File>) -> Counted {
        let (flags, me) = (file.flags(), self.me());
        let mut aside = self.aside.lock();
        let id = aside.last_key_value().map_or(0, |(last, _)| last + 1);
        aside.insert(id, file);
        drop(aside);
        let file = FileRef { owner: me, id };
        Counted::new(self, me, Opened { file, flags, waiting: WaitPlace::Never, pollable: false, giver: Some(me) })
    }

    fn take_aside(&self, id: u64) -> Option<Arc<dyn File>> {
        self.aside.lock().remove(&id)
    }

    /// The file of a reference that was handed to this kernel.
    pub fn accept(&self, opened: Opened) -> Result<Arc<dyn File>> {
        let Opened { file: FileRef { owner, id }, giver, .. } = opened;
        if owner == self.me() {
            return match giver {
                Some(giver) if giver == owner => self.take_aside(id).ok_or(Errno::EBADF),
                Some(giver) => self.exports.come_home(id, owner, giver),
                None => self.exports.get(id),
            };
        }
        if let Some(giver) = giver {
            // A dead owner counts nothing.
            let _ = self.endpoint.send(owner, FileArrived { id, giver });
        }
        let mut stand_ins = self.stand_ins.lock();
        if let Some(there) = stand_ins.get(&opened.file).and_then(Weak::upgrade) {
            there.count_one_more();
            return Ok(there);
        }
        let file = Arc::new(RemoteFile::new(self.shared(), opened.clone()));
        stand_ins.insert(opened.file, Arc::downgrade(&file));
        drop(stand_ins);
        // It may have come from somebody who did not know.
        if !self.endpoint.is_alive(owner) {
            file.owner_died();
        }
        Ok(file)
    }

    /// The last user of a stand-in is gone.
    fn forget(&self, file: FileRef) {
        {
            let mut stand_ins = self.stand_ins.lock();
            // Another one may have taken the place already.
            if stand_ins.get(&file).is_some_and(|there| there.strong_count() == 0) {
                stand_ins.remove(&file);
            }
        }
    }

    /// `kernel` died: the pipes it held are free, and who waits for its files is woken to find out.
    pub fn kernel_died(&self, kernel: KernelId) {
        self.holds.release_all(kernel);
        let there = FileRef { owner: kernel, id: 0 }..=FileRef { owner: kernel, id: u64::MAX };
        let orphans: alloc::vec::Vec<_> =
            self.stand_ins.lock().range(there).filter_map(|(_, file)| file.upgrade()).collect();
        for file in orphans {
            file.owner_died();
        }
        self.objects_died(kernel);
        self.observed_died(kernel);
    }

    /// Nothing of `dead` arrives here any more. What it had counted for this kernel at others, and did not send, they take back;
    /// and what it had counted here for those that have said the same.
    pub async fn mourn(&self, dead: KernelId) {
        let early: Vec<_> = {
            let mut lost = self.lost_early.lock();
            lost.extract_if(.., |(_, giver)| *giver == dead).collect()
        };
        for (holder, _) in early {
            drop(self.exports.lost(holder, dead));
        }
        drop(self.exports.lost(self.me(), dead));
        self.endpoint.multicast(&self.endpoint.others(), FilesLost { dead }).await;
    }

    /// `from` gets nothing more of `dead`.
    fn files_lost(&self, from: KernelId, dead: KernelId) {
        if self.endpoint.is_alive(dead) {
            // Something that it counts for that kernel may yet come out of its lane.
            self.lost_early.lock().push((from, dead));
        }
        drop(self.exports.lost(from, dead));
    }

    /// All survivors have said what they got of `dead` (they have [mourned](Self::mourn)), so that it is counted for them: what it
    /// held itself is released.
    pub fn release_of(&self, dead: KernelId) {
        drop(self.exports.release_all(dead));
    }

    /// Files of this kernel that others hold.
    pub fn exported(&self) -> usize {
        self.exports.len()
    }

    fn spawn(&self, task: impl core::future::Future<Output = ()> + Send + 'static) {
        let task: BoxFuture<'static, ()> = Box::pin(task);
        self.spawner.spawn(task);
    }
}

impl Recall for Remote {
    fn recall_names(self: Arc<Self>, from: KernelSet, tokens: Vec<u64>, watched: bool) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            for (kernel, released) in self.endpoint.multicast(&from, NamesRecall { tokens, watched }).await {
                // Who died keeps nothing.
                for (id, count) in released.unwrap_or_default() {
                    drop(self.exports.release(id, kernel, count));
                }
            }
        })
    }

    fn run(&self, task: BoxFuture<'static, ()>) {
        self.spawner.spawn(task);
    }
}

/// Changes whom an open file description signals, wherever that lives: F_SETOWN, F_SETSIG, O_ASYNC. The answer is its owner as it is then.
pub async fn change_owner(
    file: &Arc<dyn File>,
    caller: &Caller,
    change: OwnerChange,
    signaller: &Arc<dyn Signaller>,
) -> Result<FileOwner> {
    let file = leased::settle(file).await?;
    match file.as_any().downcast_ref::<RemoteFile>() {
        Some(there) => there.change_owner(caller, change).await,
        None => sigio::change(&file, caller, change, signaller).await,
    }
}

fn stand_in(file: &Arc<dyn File>) -> Result<&RemoteFile> {
    file.as_any().downcast_ref::<RemoteFile>().ok_or(Errno::EBADF)
}

#[cfg(test)]
pub(crate) mod tests;
