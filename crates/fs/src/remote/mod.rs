//! Files of other kernels.
//!
//! A file lives on the kernel that made it, its owner. On other kernels a *stand-in* ([`RemoteFile`]) takes its place: there is at most
//! one for each file and kernel, and its operations are calls to the owner. [`Remote`] is one kernel's side of
//! this. It has the table of its own files that other kernels have references to (exports.rs), its stand-ins for files of others (here),
//! the services that answer them (serve.rs, watch.rs, observe.rs), paths that their owners are asked to walk (paths.rs), and file systems of others in the tree of the root's owner (trees.rs).
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
//! A kernel may hand on a file of a third one. It does not wait for the owner to count: it tells the owner (`FileRetain`) and sends its
//! message. The receiver tells the owner as well (`FileArrived`), before it sends anything else about the file. Whichever of the two
//! messages comes first is counted, the other one is not:
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
//! The file stays open in between, since K1's release is behind its `FileRetain` in one lane.
//!
//! # Waiting
//!
//! A read of a pipe or socket waits at its owner, which answers when there is data: one message and its answer. A signal
//! cancels the read. The reader still waits until it knows whether the owner had answered before (ask.rs).
//!
//! Everything else that may block is tried at the owner, which answers at once. If it would block, the stand-in waits on its own kernel
//! until the owner says that something has changed (`FileReady`), and tries again. So a signal interrupts a wait that holds nothing.

mod ask;
mod balance;
mod convert;
mod counted;
mod disk;
mod exports;
mod file;
mod leased;
pub mod loan;
mod locks;
mod moves;
mod names;
mod object;
mod observe;
mod paths;
mod pipe;
mod serve;
mod shared;
mod trees;
mod unix;
mod watch;

pub use balance::disagreements;
pub use counted::Counted;
pub use disk::RemoteDisk;
pub use file::RemoteFile;
pub use paths::AllPaths;
pub use shared::OwnObjects;
pub use trees::RemoteTrees;

use crate::{
    cache::reclaim::Stage,
    event::SignalSources,
    file::{sigio, Signaller},
    lease::Recall,
    socket::NetNamespace,
    Caller, File, FileRef, Mappers, ObjectId, Paths, Refaults,
};
use abi::{FileOwner, OwnerChange};
use alloc::{
    boxed::Box,
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Weak},
    vec::Vec,
};
use core::sync::atomic::{AtomicU64, Ordering::SeqCst};
use disk::DrivenDisks;
use exports::Exports;
use fabric::Endpoint;
use locks::{GivenLocks, KeptLocks};
use machine::{errno::Result, sync::Lock, BoxFuture, Errno, KernelId, KernelSet, Memory, Spawner};
use messages::fs::{FileArrived, FileRetain, FilesLost, NamesRecall, Opened, WaitPlace};
use names::Names;
use object::Foreign;
use observe::ObservedFile;
use pipe::Holds;
use shared::Handle;

/// How many files of other kernels keep their pages on this kernel after the last mapping has gone.
const OBJECTS_KEPT: usize = 32;

/// One kernel's side of the files that cross kernels.
pub struct Remote {
    endpoint: Arc<Endpoint>,
    memory: Arc<dyn Memory>,
    spawner: Arc<dyn Spawner>,
    exports: Exports,
    /// Data in pipes of this kernel that splice and tee on other kernels hold.
    holds: Holds,
    stand_ins: Lock<BTreeMap<FileRef, Weak<RemoteFile>>>,
    /// By kernel: what this one has done there, counted when it was begun and when it was done.
    deeds: Vec<AtomicU64>,
    observed: Lock<BTreeMap<FileRef, Weak<ObservedFile>>>,
    /// How many observations of files of this kernel have begun (observe.rs).
    observations: AtomicU64,
    /// Objects of other kernels that are in use here.
    foreign: Lock<BTreeMap<ObjectId, Weak<Foreign>>>,
    refaults: Arc<Refaults>,
    /// Of which of them pages have gone last, by stage.
    turns: Lock<[Option<ObjectId>; Stage::COUNT]>,
    /// Those that are kept in use in case they are mapped again, the oldest first.
    objects: Lock<VecDeque<Arc<Foreign>>>,
    own_objects: Lock<Option<Arc<OwnObjects>>>,
    signals: Lock<Option<Arc<dyn SignalSources>>>,
    signaller: Lock<Option<Arc<dyn Signaller>>>,
    /// Objects of this kernel that others use.
    handles: Lock<BTreeMap<ObjectId, Weak<Handle>>>,
    /// [`FilesLost`] that came before this kernel knew of the death: sender and dead kernel.
    lost_early: Lock<Vec<(KernelId, KernelId)>>,
    /// Files in references that this kernel has made for itself and not accepted yet.
    aside: Lock<BTreeMap<u64, Arc<dyn File>>>,
    mappers: Lock<Option<Arc<dyn Mappers>>>,
    /// Answers about paths that other kernels have leased to this one.
    names: Names,
    /// Record locks that other kernels keep for this one, and those that this one keeps for them.
    given_locks: GivenLocks,
    locks: KeptLocks,
    /// Disks that this kernel drives for the one that owns the root.
    disks: DrivenDisks,
    /// The sockets of this kernel.
    sockets: Lock<Weak<NetNamespace>>,
    /// The file systems of this kernel.
    paths: Option<Arc<dyn Paths>>,
    this: Weak<Remote>,
}

impl Remote {
    /// Registers the handlers of all messages about files. `refaults`: of [`crate::Services`]. `paths` are the file systems that it has.
    pub fn new(
        endpoint: Arc<Endpoint>,
        memory: Arc<dyn Memory>,
        spawner: Arc<dyn Spawner>,
        refaults: Arc<Refaults>,
        paths: Option<Arc<dyn Paths>>,
    ) -> Arc<Self> {
        let deeds = (0..endpoint.kernels()).map(|_| AtomicU64::new(1)).collect();
        let remote = Arc::new_cyclic(|this: &Weak<Remote>| Remote {
            deeds,
            endpoint,
            exports: Exports::new(&*memory),
            holds: Holds::new(&*memory),
            refaults,
            memory,
            spawner,
            stand_ins: Lock::new(BTreeMap::new()),
            observed: Lock::new(BTreeMap::new()),
            observations: AtomicU64::new(1),
            foreign: Lock::new(BTreeMap::new()),
            turns: Lock::default(),
            objects: Lock::new(VecDeque::new()),
            own_objects: Lock::new(None),
            signals: Lock::new(None),
            signaller: Lock::new(None),
            handles: Lock::new(BTreeMap::new()),
            lost_early: Lock::default(),
            aside: Lock::default(),
            mappers: Lock::new(None),
            names: Names::default(),
            given_locks: GivenLocks::default(),
            locks: KeptLocks::default(),
            disks: DrivenDisks::default(),
            sockets: Lock::default(),
            paths,
            this: this.clone(),
        });
        serve::register(&remote);
        pipe::register(&remote);
        shared::register(&remote);
        observe::register(&remote);
        moves::register(&remote);
        locks::register(&remote);
        disk::register(&remote);
        trees::register(&remote);
        remote
    }

    fn deeds(&self, owner: KernelId) -> u64 {
        self.deeds.get(usize::from(owner.0)).map_or(0, |deeds| deeds.load(SeqCst))
    }

    /// Something may change for files of `owner`: it is about to be sent something, or has answered that.
    fn note_deed(&self, owner: KernelId) {
        if let Some(deeds) = self.deeds.get(usize::from(owner.0)) {
            deeds.fetch_add(1, SeqCst);
        }
    }

    pub fn me(&self) -> KernelId {
        self.endpoint.me()
    }

    /// Sets who is told of pages of other kernels' objects that are lost: the address spaces that may have them mapped.
    pub fn set_mappers(&self, mappers: Arc<dyn Mappers>) {
        *self.mappers.lock() = Some(mappers);
    }

    fn shared(&self) -> Arc<Remote> {
        self.this.upgrade().expect("someone is calling its method")
    }

    /// Sets where stand-ins of signalfds find the signals of the reading process.
    pub fn set_signals(&self, sources: Arc<dyn SignalSources>) {
        *self.signals.lock() = Some(sources);
    }

    /// Sets who sends SIGIO to the owners (F_SETOWN) of files of this kernel.
    pub fn set_signaller(&self, signaller: Arc<dyn Signaller>) {
        *self.signaller.lock() = Some(signaller);
    }

    fn signaller(&self) -> Option<Arc<dyn Signaller>> {
        self.signaller.lock().clone()
    }

    fn sources(&self) -> Option<Arc<dyn SignalSources>> {
        self.signals.lock().clone()
    }

    /// A reference to `file` for a request to `holder`, counted for `holder`. The caller keeps the file until the request is answered.
    pub async fn hand_to(&self, holder: KernelId, file: &Arc<dyn File>) -> Result<Counted> {
        if holder == self.me() {
            return Ok(self.put_aside(file.clone()));
        }
        let file = &leased::settle(file).await?;
        match file.remote() {
            // The receiver's own file. Our stand-in keeps it alive there until the answer.
            Some(there) if there.owner == holder => Ok(Counted::new(self, holder, stand_in(file)?.opened())),
            _ => self.count_anywhere(holder, file),
        }
    }

    /// A reference to `file` for an answer to `holder`, counted for `holder`. It is counted even if `holder` owns the file, since our
    /// stand-in may be dropped before the answer arrives.
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
        // If the owner is dead the file answers EIO on every kernel. The rest of the message is still worth sending.
        let _ = self.endpoint.send(there.owner, FileRetain { id: there.id, holder });
        Ok(Counted::new(self, holder, opened))
    }

    /// Counts one more reference of `holder` to a file of this kernel. EIO if `holder` has died: its references may have been released
    /// already, and nobody would release this one.
    fn count_for(&self, holder: KernelId, file: &Arc<dyn File>) -> Result<Opened> {
        let opened = self.exports.add(self.me(), file, holder);
        if self.endpoint.is_alive(holder) {
            return Ok(opened);
        }
        drop(self.exports.release(opened.file.id, holder, 1));
        Err(Errno::EIO)
    }

    /// [`FileRetain`]: `giver` sends `holder` a reference to a file of this kernel.
    fn count_given(&self, id: u64, holder: KernelId, giver: KernelId) {
        self.exports.given(id, holder, giver);
        // As in `count_for`.
        if !self.endpoint.is_alive(holder) {
            drop(self.exports.unsent(id, holder, giver));
        }
    }

    /// [`FileUnsent`]: `giver` does not send it.
    fn uncount_given(&self, id: u64, holder: KernelId, giver: KernelId) {
        // The references of a dead holder are released all together.
        if self.endpoint.is_alive(holder) {
            drop(self.exports.unsent(id, holder, giver));
        }
    }

    /// A reference for this kernel itself. It is not counted; the file is kept in `aside` until the reference is accepted.
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

    /// Takes a reference out of a message: answers the file of this kernel that it names, or the stand-in for it.
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
            // Fails if the owner is dead.
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
        // `kernel_died` did not find a stand-in that was made after the death.
        if !self.endpoint.is_alive(owner) {
            file.owner_died();
        }
        Ok(file)
    }

    /// Takes a stand-in that is being dropped out of the table.
    fn forget(&self, file: FileRef) {
        {
            let mut stand_ins = self.stand_ins.lock();
            // A new one may have taken its place already.
            if stand_ins.get(&file).is_some_and(|there| there.strong_count() == 0) {
                stand_ins.remove(&file);
            }
        }
    }

    /// Called when `kernel` has died. Releases its holds on pipes, and wakes whoever waits for its files, who then gets EIO.
    pub fn kernel_died(&self, kernel: KernelId) {
        self.holds.release_all(kernel);
        let there = FileRef { owner: kernel, id: 0 }..=FileRef { owner: kernel, id: u64::MAX };
        let orphans: alloc::vec::Vec<_> =
            self.stand_ins.lock().range(there).filter_map(|(_, file)| file.upgrade()).collect();
        for file in orphans {
            file.owner_died();
        }
        self.names.kernel_died(kernel);
        self.locks.owner_died(kernel);
        self.given_locks.keeper_died(kernel);
        self.objects_died(kernel);
        self.observed_died(kernel);
    }

    /// Called when no more messages of `dead` can arrive on this kernel. References that `dead` announced for this kernel
    /// (`FileRetain`) and never sent are uncounted: the owners of the files, which are told with [`FilesLost`], do so, and this kernel
    /// for its own files.
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

    /// [`FilesLost`]: no more messages of `dead` can arrive at `from`.
    fn files_lost(&self, from: KernelId, dead: KernelId) {
        if self.endpoint.is_alive(dead) {
            // A `FileRetain` of `dead` for `from` may still be in the lane to this kernel.
            self.lost_early.lock().push((from, dead));
        }
        drop(self.exports.lost(from, dead));
    }

    /// Releases all references that `dead` held. Called when all survivors have [mourned](Self::mourn): whatever they got from `dead`
    /// is counted for them by then.
    pub fn release_of(&self, dead: KernelId) {
        drop(self.exports.release_all(dead));
        self.given_locks.lose(dead);
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
                // A kernel that has died answers nothing: all it held is released elsewhere.
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

/// F_SETOWN, F_SETSIG, O_ASYNC: changes whom a file of any kernel signals. Answers its owner as it is afterwards.
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
