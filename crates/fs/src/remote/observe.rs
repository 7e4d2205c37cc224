//! Files of other kernels that an epoll watches.
//!
//! Problem: an epoll does not keep the files open that it watches; the last close of a file takes it out of all epolls.
//! A stand-in does keep its file open. An epoll that held one would keep a pipe's writer alive, and its reader waiting.
//!
//! Idea: the epoll's kernel has an [`ObservedFile`], which names the file by its number at the owner but holds no
//! reference. The owner has an [`Observation`] for it, also without a reference, that tells of each change and of
//! the file's close. The file keeps its number as long as it is observed, so that EPOLL_CTL_MOD and DEL, which come with
//! a stand-in of their own, name the same entry.
//!
//! These messages come late. A program that writes and then calls epoll_wait, even with a timeout of 0, expects to find what it has
//! written; and what it has read already must not be reported again. So epoll_wait asks an owner which of the files that are observed there
//! are ready, if that has told of one, if this kernel has done anything there since it asked last ([`Observed::deeds`]), and before it ends with
//! nothing. The danger is an edge that is reported twice:
//!
//! ```text
//! owner                                     epoll's kernel
//! change 5: readable
//!   tells of it -----.
//!                     \   <---- what is ready?
//!   readable ----------\----->  reports the edge
//!                       '---->  reports the edge again
//! ```
//!
//! So the owner numbers changes, and the epoll's kernel ignores a message whose number is not newer than the last. The owner takes
//! the number before it asks the file: a change in between is told again, never lost.
//!
//! The end of an observation and the beginning of the next one for the same file must reach the owner in this order. So the end is
//! sent under the lock of the table of observed files, and the next one is entered there before it is sent.

use super::Remote;
use crate::{
    epoll::{check_below, is_epoll, ways_up, EpollsElsewhere, FarWatchers, Ways},
    file::{ready, Observed},
    Attributes, Events, File, FileRef,
};
use alloc::{
    boxed::Box,
    sync::{Arc, Weak},
    vec::Vec,
};
use core::{
    any::Any,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};
use machine::{
    errno::Result,
    sync::{Lock, WaitQueue},
    BoxFuture, Errno, KernelId,
};
use messages::fs::{EpollAbove, EpollBelow, FileObserve, FileObserved, FileUnobserve, FilesReady, Readiness};

/// A file of another kernel, as an epoll sees it.
pub struct ObservedFile {
    remote: Arc<Remote>,
    name: FileRef,
    /// It is an epoll itself.
    nested: AtomicBool,
    state: Lock<Known>,
    changes: WaitQueue,
}

/// The last that the owner has told.
#[derive(Default)]
struct Known {
    /// Number of the last change.
    change: u64,
    events: Events,
    gone: bool,
    /// [`Observed::deeds`] when the owner was asked last.
    deeds: u64,
}

impl Observed for ObservedFile {
    fn name(&self) -> FileRef {
        self.name
    }

    fn is_gone(&self) -> bool {
        self.state.lock().gone
    }

    fn is_nested(&self) -> bool {
        self.nested.load(Ordering::Relaxed)
    }

    fn hear(&self, ready: Option<Readiness>) {
        let news = {
            let mut known = self.state.lock();
            match ready {
                None => !core::mem::replace(&mut known.gone, true),
                Some(ready) if ready.change < known.change => false,
                Some(ready) => {
                    known.events = ready.events;
                    core::mem::replace(&mut known.change, ready.change) != ready.change
                }
            }
        };
        if news {
            self.changes.wake_all();
        }
    }

    fn ask(&self, ids: Vec<u64>) -> BoxFuture<'_, Vec<Option<Readiness>>> {
        let message = FilesReady { ids };
        Box::pin(async move { self.remote.endpoint.call(self.name.owner, message).await.unwrap_or_default() })
    }

    fn deeds(&self) -> u64 {
        self.remote.deeds(self.name.owner)
    }

    fn was_asked_at(&self, deeds: u64) -> bool {
        self.state.lock().deeds == deeds
    }

    fn answered(&self, deeds: u64) {
        self.state.lock().deeds = deeds;
    }

    fn check_nesting(&self, root: Option<FileRef>, above: u32) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            if Some(self.name) == root {
                return Err(Errno::ELOOP);
            }
            self.remote.endpoint.call(self.name.owner, EpollBelow { id: self.name.id, root, above }).await?
        })
    }

    fn name_here(&self, address: usize) -> Option<FileRef> {
        let id = self.remote.exports.number(address)?;
        Some(FileRef { owner: self.remote.me(), id })
    }
}

impl Drop for ObservedFile {
    fn drop(&mut self) {
        let mut table = self.remote.observed.lock();
        if table.get(&self.name).is_some_and(|there| there.strong_count() == 0) {
            table.remove(&self.name);
            // Fails if the owner is dead.
            let _ = self.remote.endpoint.send(self.name.owner, FileUnobserve { id: self.name.id });
        }
    }
}

impl File for ObservedFile {
    fn attributes(&self) -> BoxFuture<'_, Result<Attributes>> {
        ready(Err(Errno::EBADF))
    }

    fn poll(&self) -> Events {
        self.state.lock().events
    }

    fn changes(&self) -> Option<&WaitQueue> {
        Some(&self.changes)
    }

    fn path(&self) -> BoxFuture<'_, Vec<u8>> {
        ready(Vec::new())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Remote {
    /// Begins to observe a file for the epolls of this kernel. The caller has a stand-in for it, which keeps it open.
    pub(super) async fn observe(&self, name: FileRef) -> Result<Arc<ObservedFile>> {
        let observed = {
            let mut table = self.observed.lock();
            match table.get(&name).and_then(Weak::upgrade) {
                Some(there) => there,
                None => {
                    let observed = Arc::new(ObservedFile {
                        remote: self.shared(),
                        name,
                        nested: AtomicBool::new(false),
                        state: Lock::default(),
                        changes: WaitQueue::new(),
                    });
                    table.insert(name, Arc::downgrade(&observed));
                    observed
                }
            }
        };
        let deeds = self.deeds(name.owner);
        let (now, nested) = self.endpoint.call(name.owner, FileObserve { id: name.id }).await??;
        observed.nested.store(nested, Ordering::Relaxed);
        observed.hear(Some(now));
        observed.answered(deeds);
        Ok(observed)
    }

    fn hear_of(&self, name: FileRef, ready: Option<Readiness>) {
        let observed = self.observed.lock().get(&name).and_then(Weak::upgrade);
        if let Some(observed) = observed {
            observed.hear(ready);
        }
    }

    /// Called when `kernel` has died: its files count as closed.
    pub(super) fn observed_died(&self, kernel: KernelId) {
        let all = FileRef { owner: kernel, id: 0 }..=FileRef { owner: kernel, id: u64::MAX };
        let observed: Vec<_> = self.observed.lock().range(all).filter_map(|(_, file)| file.upgrade()).collect();
        for file in observed {
            file.hear(None);
        }
    }
}

/// At the owner: epolls of another kernel watch a file of this one.
pub struct Observation {
    file: Weak<dyn File>,
    state: Arc<State>,
    subscription: u64,
}

#[derive(Default)]
struct State {
    /// Number of the last change.
    changes: AtomicU64,
    /// The file is closed.
    over: AtomicBool,
    /// The other kernel does not watch the file any more.
    unwanted: AtomicBool,
    woken: WaitQueue,
}

/// The epolls of the other kernel (`holder`), as a subscriber of the file's wait queue. It is dropped with the file, if the queue
/// is the file's own.
struct HoldersEpolls {
    state: Arc<State>,
    remote: Weak<Remote>,
    file: FileRef,
    holder: KernelId,
}

impl EpollsElsewhere for HoldersEpolls {
    fn changed(&self) {
        self.state.changes.fetch_add(1, Ordering::AcqRel);
        self.state.woken.wake_all();
    }

    fn ways_up<'a>(&'a self, nests: u32, ways: &'a mut Ways) -> BoxFuture<'a, Result<u32>> {
        Box::pin(async move {
            let Some(remote) = self.remote.upgrade() else { return Ok(0) };
            let message = EpollAbove { file: self.file, nests, ways: ways.0.to_vec() };
            // Fails if the holder has died, with its epolls.
            let Ok(answer) = remote.endpoint.call(self.holder, message).await else { return Ok(0) };
            let (counted, longest) = answer?;
            ways.0 = counted.try_into().map_err(|_| Errno::EIO)?;
            Ok(longest)
        })
    }
}

impl Drop for HoldersEpolls {
    fn drop(&mut self) {
        self.state.over.store(true, Ordering::Release);
        self.state.woken.wake_all();
    }
}

impl Observation {
    pub fn start(remote: &Arc<Remote>, file: &Arc<dyn File>, name: FileRef, holder: KernelId) -> Arc<Self> {
        // Greater than the numbers of earlier observations, of which a message may still be under way to the same kernel.
        let first = remote.observations.fetch_add(1, Ordering::Relaxed) << 32;
        let state = Arc::new(State { changes: AtomicU64::new(first), ..State::default() });
        let epolls =
            Box::new(HoldersEpolls { state: state.clone(), remote: Arc::downgrade(remote), file: name, holder });
        let subscription = file.changes().map_or(0, |queue| queue.subscribe(Arc::new(FarWatchers(epolls)), false));
        let observation = Observation { file: Arc::downgrade(file), state: state.clone(), subscription };
        remote.spawn(tell(remote.clone(), observation.file.clone(), name, holder, state, first));
        Arc::new(observation)
    }

    /// What is ready now, and the number of the last change. None: the file is closed.
    pub fn ready(&self) -> Option<Readiness> {
        look(&self.file, &self.state)
    }
}

fn look(file: &Weak<dyn File>, state: &State) -> Option<Readiness> {
    let change = state.changes.load(Ordering::Acquire);
    Some(Readiness { change, events: file.upgrade()?.poll() })
}

impl Drop for Observation {
    fn drop(&mut self) {
        self.state.unwanted.store(true, Ordering::Release);
        if let Some(file) = self.file.upgrade()
            && let Some(queue) = file.changes()
        {
            queue.unsubscribe(self.subscription);
        }
        self.state.woken.wake_all();
    }
}

/// The task of an observation: tells the holder of changes, until the file is closed or the holder does not watch it any more.
/// `first` is the number that stands for no change yet.
async fn tell(
    remote: Arc<Remote>,
    file: Weak<dyn File>,
    name: FileRef,
    holder: KernelId,
    state: Arc<State>,
    first: u64,
) {
    let mut told = first;
    loop {
        let news = || {
            let unwanted = state.unwanted.load(Ordering::Acquire);
            let changed = state.changes.load(Ordering::Acquire) != told || state.over.load(Ordering::Acquire);
            (unwanted || changed).then_some(unwanted)
        };
        if state.woken.wait_until(news).await {
            return;
        }
        let ready = look(&file, &state);
        match &ready {
            Some(ready) => told = ready.change,
            None => drop(remote.exports.end_observed(name.id)),
        }
        let gone = ready.is_none();
        if remote.endpoint.call(holder, FileObserved { file: name, ready }).await.is_err() || gone {
            return;
        }
    }
}

/// Registers the handlers of the messages about observed files.
pub(super) fn register(remote: &Arc<Remote>) {
    let serve = remote.endpoint.serve(remote);
    serve.on(|remote, from, FileObserve { id }| {
        let name = FileRef { owner: remote.me(), id };
        // Entered before anything is awaited, so that a `FileUnobserve` that follows finds it.
        let begun = remote.exports.observe(id, from, |file| Observation::start(&remote, file, name, from));
        async move {
            let (file, observation) = begun?;
            // A socket whose other half is on a third kernel asks there.
            file.watch().await?;
            Ok((observation.ready().ok_or(Errno::EBADF)?, is_epoll(&*file)))
        }
    });
    serve.on_sync(|remote, from, FileUnobserve { id }| drop(remote.exports.unobserve(id, from)));
    serve.on::<FilesReady, _, _>(|remote, from, FilesReady { ids }| async move {
        let mut all = Vec::new();
        for id in ids {
            if let Ok(file) = remote.exports.get(id) {
                // An error is not reported here: `poll` of the file shows it.
                let _ = file.watch().await;
            }
            all.push(remote.exports.observation(id, from).and_then(|observation| observation.ready()));
        }
        all
    });
    serve.on_sync(|remote, _, FileObserved { file, ready }| remote.hear_of(file, ready));
    serve.on::<EpollBelow, _, _>(|remote, _, EpollBelow { id, root, above }| async move {
        let file = remote.exports.get(id)?;
        let root_here = root.filter(|root| root.owner == remote.me()).and_then(|root| remote.exports.get(root.id).ok());
        check_below(root_here, root, file, above).await
    });
    serve.on::<EpollAbove, _, _>(|remote, _, EpollAbove { file, nests, ways }| async move {
        let mut ways = Ways(ways.try_into().map_err(|_| Errno::EINVAL)?);
        let Some(observed) = remote.observed.lock().get(&file).and_then(Weak::upgrade) else {
            return Ok((ways.0.to_vec(), 0));
        };
        let longest = ways_up(&observed.changes, nests, &mut ways).await?;
        Ok((ways.0.to_vec(), longest))
    });
}
