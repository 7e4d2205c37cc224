//! epoll(7).
//!
//! Every entry keeps a waker in the queue of its file for as long as it lives. A change of the file puts
//! the entry on the ready list, at most once, and wakes those who wait in epoll_wait; they take entries
//! from the list and ask the file what is really there. So a wait costs what is ready, not what is
//! watched (but for signalfds, all of which are asked about), and an edge that falls between two waits is kept. The owners of other
//! kernels' files tell of changes; when they are asked as well says [`Entry::must_ask`].
//!
//! The dangerous interleaving is a change while its entry is being taken:
//!
//! ```text
//! epoll_wait                                   file
//! takes entry from the list
//!                                              becomes readable; the entry counts as listed: not listed again
//! asks the file before the change: nothing
//! unmarks the entry                            <- the change is lost
//! ```
//!
//! So an entry is unmarked *before* the file is asked: a later change lists it again.
//!
//! An entry holds its file weakly: when the last descriptor is closed the file goes, and the entry with
//! it. Of another kernel's file it holds what `remote/observe.rs` explains, which is no reference either.

mod entry;
mod moves;
mod nesting;
mod watched;

use crate::{
    anonymous::{Identity, StatusFlags},
    control::{Control, ControlAnswer, EpollControl, EpollInterest},
    file::{address_of, ready, SignalView, Watcher},
    poll, Attributes, Caller, Events, File, FileRef, OpenFlags,
};
use abi::signal::SignalSet;
use alloc::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    vec,
    vec::Vec,
};
use core::{any::Any, ops::Bound};
use entry::Entry;
use machine::{
    account::{Account, OverLimit, Resource},
    collections::Queue,
    errno::Result,
    sync::{Lock, WaitQueue},
    BoxFuture, Errno,
};
use messages::fs::{SignalsSeen, WaitPlace};
pub(crate) use nesting::{check_below, count_watchers, is_epoll, ways_up, EpollsElsewhere, FarWatchers, Ways};
use nesting::{is_watched, Below};
use watched::{refresh, Watched};

/// Bits of `epoll_event.events` that are no poll events.
pub const EXCLUSIVE: u32 = 1 << 28;
pub const WAKEUP: u32 = 1 << 29;
pub const ONESHOT: u32 = 1 << 30;
pub const EDGE: u32 = 1 << 31;

/// So many entries that were forgotten may stand on a ready list, whatever its length.
const MOST_FORGOTTEN: usize = 64;

/// An entry's name: descriptor number and description.
type Key = (i32, Description);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Description {
    /// By its address, which stays taken as long as the entry holds a weak reference.
    Here(usize),
    Foreign(FileRef),
}

impl Description {
    fn of(file: &Arc<dyn File>) -> Self {
        file.remote().map_or_else(|| Description::Here(address_of(file)), Description::Foreign)
    }
}

/// What is watched.
#[derive(Default)]
struct Entries {
    all: BTreeMap<Key, Arc<Entry>>,
    /// Those among them that each wait asks about: other kernels' files and signalfds.
    asked: BTreeMap<Key, Arc<Entry>>,
}

impl Entries {
    fn insert(&mut self, entry: &Arc<Entry>) {
        self.remove(&entry.key);
        if entry.observed().is_some() || entry.seen().is_some() {
            self.asked.insert(entry.key, entry.clone());
        }
        self.all.insert(entry.key, entry.clone());
    }

    fn remove(&mut self, key: &Key) {
        self.all.remove(key);
        self.asked.remove(key);
    }
}

struct Shared {
    entries: Lock<Entries>,
    ready: Lock<Queue<Arc<Entry>>>,
    changes: WaitQueue,
}

pub struct Epoll {
    shared: Arc<Shared>,
    /// Of who made it: pays for what it watches.
    account: Arc<Account>,
    flags: StatusFlags,
    inode: Identity,
}

impl Epoll {
    /// epoll_create1(2), by who has this account.
    pub fn new(account: Arc<Account>, flags: OpenFlags) -> Result<Arc<Self>> {
        if !OpenFlags::CLOEXEC.contains(flags) {
            return Err(Errno::EINVAL);
        }
        Ok(Self::of(account, flags | OpenFlags::RDWR))
    }

    fn of(account: Arc<Account>, flags: OpenFlags) -> Arc<Self> {
        let shared = Shared { entries: Lock::default(), ready: Lock::new(Queue::new()), changes: WaitQueue::new() };
        let (shared, flags, inode) = (Arc::new(shared), StatusFlags::new(flags), Identity::untyped());
        Arc::new(Epoll { shared, account, flags, inode })
    }

    /// epoll_ctl(2). EBADF and EFAULT are the system call's.
    pub async fn change(&self, caller: &Caller, control: EpollControl) -> Result<()> {
        let file = match &control {
            EpollControl::Add { file, .. } | EpollControl::Modify { file, .. } | EpollControl::Delete { file, .. } => {
                file
            }
        };
        if file.changes().is_none() {
            return Err(Errno::EPERM);
        }
        let inner = file.as_any().downcast_ref::<Epoll>();
        if inner.is_some_and(|inner| Arc::ptr_eq(&inner.shared, &self.shared)) {
            return Err(Errno::EINVAL);
        }
        let nested = inner.is_some();
        match control {
            EpollControl::Add { fd, file, interest } => {
                check_exclusive(&interest, nested, true)?;
                self.watch_file(caller, fd, &file, interest, Entering::New).await.map(drop)
            }
            EpollControl::Modify { fd, file, interest } => {
                let entry = self.find((fd, Description::of(&file)))?;
                refresh_all(core::slice::from_ref(&entry)).await?;
                check_exclusive(&interest, nested, false)?;
                entry.modify(interest)?;
                entry.list_if_ready();
                Ok(())
            }
            EpollControl::Delete { fd, file } => {
                let entry = self.find((fd, Description::of(&file)))?;
                self.forget(&entry);
                entry.close();
                Ok(())
            }
        }
    }

    async fn watch_file(
        &self,
        caller: &Caller,
        fd: i32,
        file: &Arc<dyn File>,
        interest: EpollInterest,
        entering: Entering,
    ) -> Result<Arc<Entry>> {
        let key = (fd, Description::of(file));
        let seen = file.seen_by(caller.process, None);
        if let Some(seen) = &seen {
            seen.watch().await?;
        }
        let (watched, nested) = match file.observe() {
            Some(observed) => {
                let observed = observed.await?;
                let nested = observed.is_nested();
                (Watched::Elsewhere(observed), nested)
            }
            None => {
                file.watch().await?;
                (Watched::Here(file.clone()), is_epoll(&**file))
            }
        };
        let entered = self.enter(key, &watched, seen, interest, entering)?;
        // Looked at once it is entered: an epoll that this one is being added to sees the entry, or is seen here.
        if entering == Entering::New && (nested || is_watched(&self.shared.changes)) {
            // What is too much here already, with the new entry, is a circle.
            let above = ways_up(&self.shared.changes, 0, &mut Ways::default()).await.map_err(|_| Errno::ELOOP)?;
            Below::new(Some(&self.shared), self.name()).check(&watched, above + 1).await?;
        }
        Ok(entered.begin())
    }

    fn find(&self, key: Key) -> Result<Arc<Entry>> {
        let entry = self.shared.entries.lock().all.get(&key).cloned();
        // A descriptor can lead to a file that is closed: to one of a kernel that has died.
        entry.filter(|entry| entry.file().is_some()).ok_or(Errno::ENOENT)
    }

    /// Enters what is to be watched, before it is looked how epolls are nested then (`nesting.rs`). Left again if it is not begun.
    fn enter(
        &self,
        key: Key,
        watched: &Watched,
        seen: Option<Arc<dyn SignalView>>,
        interest: EpollInterest,
        entering: Entering,
    ) -> Result<Entered<'_>> {
        let mut entries = self.shared.entries.lock();
        if entries.all.get(&key).is_some_and(|entry| entry.file().is_some()) {
            return Err(Errno::EEXIST);
        }
        let mut charge = self.account.nothing(Resource::Watches);
        match entering {
            Entering::New => charge.grow(1).map_err(|OverLimit| Errno::ENOSPC)?,
            Entering::Moved => charge.grow_anyway(1),
        }
        let entry = Entry::new(key, watched, seen, interest, &self.shared, charge);
        entries.insert(&entry);
        drop(entries);
        entry.watch(&*watched.file());
        Ok(Entered { epoll: self, entry, begun: false })
    }

    fn address(&self) -> usize {
        core::ptr::from_ref(self).cast::<()>() as usize
    }

    /// What is known of other kernels' files becomes what is so: of all, or of those that [must be asked](Entry::must_ask) about.
    async fn refresh(&self, all: bool) -> Result<()> {
        let entries: Vec<_> = {
            let entries = self.shared.entries.lock();
            entries.asked.values().filter(|entry| all || entry.must_ask()).cloned().collect()
        };
        refresh_all(&entries).await
    }

    /// The name under which other kernels know it: only through a foreign file could it be watched by itself.
    fn name(&self) -> Option<FileRef> {
        let first = self.shared.entries.lock().asked.values().find_map(|entry| entry.observed())?;
        first.name_here(self.address())
    }

    /// The first entry after the one with this name.
    fn entry_after(&self, key: Option<Key>) -> Option<Arc<Entry>> {
        let from = key.map_or(Bound::Unbounded, Bound::Excluded);
        self.shared.entries.lock().all.range((from, Bound::Unbounded)).next().map(|(_, entry)| entry.clone())
    }

    /// Entries of signalfds, whose files are others for each who looks.
    fn of_signals(&self) -> Vec<Arc<Entry>> {
        self.shared.entries.lock().asked.values().filter(|entry| entry.seen().is_some()).cloned().collect()
    }

    /// Up to `max` events that are ready now for `caller`, who knows of `signals` if it is on another kernel. Level-triggered
    /// entries go to the end of the list, so that all get their turn.
    pub fn take(&self, caller: &Caller, signals: Option<&SignalsSeen>, max: usize) -> Vec<EpollInterest> {
        let mut events = Vec::new();
        let mut again = Vec::new();
        // What it could read is not known here, so these are asked whether they are listed or not. (Listing them for it would not
        // do: who polls the epoll meanwhile takes off the list what is not ready as far as is known here.)
        let mut asked: VecDeque<_> = signals.map_or_else(VecDeque::new, |_| self.of_signals().into());
        let mut listed = self.shared.ready.lock().len();
        while events.len() < max {
            let entry = match asked.pop_front() {
                Some(entry) => entry,
                None if listed == 0 => break,
                None => {
                    listed -= 1;
                    let Some(entry) = self.shared.ready.lock().pop_front() else { break };
                    entry.unmark();
                    if signals.is_some() && entry.seen().is_some() {
                        continue;
                    }
                    entry
                }
            };
            let Some(file) = entry.file() else {
                self.forget(&entry);
                continue;
            };
            let Some((event, stays)) = entry.report(&file, caller, signals) else { continue };
            events.push(event);
            if stays {
                again.push(entry);
            }
        }
        for entry in again {
            entry.list();
        }
        events
    }

    /// The file is closed everywhere.
    fn forget(&self, entry: &Arc<Entry>) {
        let left = {
            let mut entries = self.shared.entries.lock();
            if entries.all.get(&entry.key).is_some_and(|there| Arc::ptr_eq(there, entry)) {
                entries.remove(&entry.key);
            }
            entries.all.len()
        };
        self.drop_forgotten(left);
    }

    /// Of the ready list, when more than half of it is of entries that were forgotten, of which there are `left` otherwise.
    fn drop_forgotten(&self, left: usize) {
        let mut ready = self.shared.ready.lock();
        if ready.len() > 2 * left + MOST_FORGOTTEN {
            for _ in 0..ready.len() {
                let Some(entry) = ready.pop_front() else { break };
                if !entry.is_closed() {
                    ready.push_back(entry);
                }
            }
        }
    }
}

/// Why an entry is made.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Entering {
    /// A program wants it, within fs.epoll.max_user_watches and the limits of nesting.
    New,
    /// It was in an epoll that has moved here, and is so for a moment still: it is within all limits.
    Moved,
}

/// An entry that tells nobody yet.
struct Entered<'a> {
    epoll: &'a Epoll,
    entry: Arc<Entry>,
    begun: bool,
}

impl Entered<'_> {
    fn begin(mut self) -> Arc<Entry> {
        self.begun = true;
        self.entry.begin();
        self.entry.list_if_ready();
        self.entry.clone()
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        if !self.begun {
            self.epoll.forget(&self.entry);
            self.entry.close();
        }
    }
}

async fn refresh_all(entries: &[Arc<Entry>]) -> Result<()> {
    let observed: Vec<_> = entries.iter().filter_map(|entry| entry.observed()).collect();
    refresh(&observed).await;
    for seen in entries.iter().filter_map(|entry| entry.seen()) {
        // A file that is closed has an end, and so has its entry.
        let _ = seen.watch().await;
    }
    Ok(())
}

/// EPOLLEXCLUSIVE: at ADD only, with few other bits, not for epolls (man 2 epoll_ctl).
fn check_exclusive(interest: &EpollInterest, nested: bool, adding: bool) -> Result<()> {
    let allowed = EXCLUSIVE | WAKEUP | EDGE | (Events::IN | Events::OUT | poll::ALWAYS).bits();
    let exclusive = interest.events & EXCLUSIVE != 0;
    if exclusive && (!adding || nested || interest.events & !allowed != 0) {
        return Err(Errno::EINVAL);
    }
    Ok(())
}

/// How long epoll_wait(2) waits for an event.
pub enum Wait<'a> {
    /// Not at all.
    No,
    /// Until this is over.
    Until(BoxFuture<'a, ()>),
    ForEver,
}

/// epoll_wait(2) on an epoll of any kernel: at least one event, or none when the wait is over.
pub async fn wait(epoll: &Arc<dyn File>, caller: &Caller, max: u32, wait: Wait<'_>) -> Result<Vec<EpollInterest>> {
    if max == 0 || max > i32::MAX as u32 / 12 {
        return Err(Errno::EINVAL);
    }
    let (mut sure, mut timeout) = match wait {
        Wait::No => (true, None),
        Wait::Until(over) => (false, Some(over)),
        Wait::ForEver => (false, None),
    };
    loop {
        let signals = epoll.signals_from_now_on(caller);
        let take = Control::EpollTake { most: max, signals: signals.as_ref().map(|(now, _)| *now), sure };
        let ControlAnswer::Events { ready, awaited } = epoll.control(caller, take).await? else {
            return Err(Errno::EINVAL);
        };
        if !ready.is_empty() || sure {
            return Ok(ready);
        }
        let mut files = vec![(epoll.clone(), Events::IN)];
        if let (Some((_, more)), false) = (signals, awaited.is_empty()) {
            files.push((more.only(awaited), Events::IN));
        }
        let limit = timeout.as_mut().map(|timeout| -> BoxFuture<'_, ()> { alloc::boxed::Box::pin(timeout.as_mut()) });
        // What was not told of in time may be there.
        sure = poll::wait(caller, &files, limit).await?.iter().all(|events| events.is_empty());
    }
}

impl Drop for Epoll {
    fn drop(&mut self) {
        let entries = core::mem::take(&mut *self.shared.entries.lock());
        for entry in entries.all.into_values() {
            entry.close();
        }
    }
}

impl File for Epoll {
    /// Its own requests (busy polling of networks) are not there; any other is none at all.
    fn ioctl<'a>(&'a self, _caller: &'a Caller, _request: u32, _data: &'a mut Vec<u8>) -> BoxFuture<'a, Result<i64>> {
        crate::file::ready(Err(Errno::EINVAL))
    }
    fn status(&self) -> Option<&StatusFlags> {
        Some(&self.flags)
    }

    fn attributes(&self) -> BoxFuture<'_, Result<Attributes>> {
        ready(Ok(self.inode.attributes()))
    }

    fn control<'a>(&'a self, caller: &'a Caller, control: Control) -> BoxFuture<'a, Result<ControlAnswer>> {
        match control {
            Control::Epoll(control) => {
                alloc::boxed::Box::pin(async move { self.change(caller, control).await.map(|()| ControlAnswer::Done) })
            }
            Control::EpollTake { most, signals, sure } => alloc::boxed::Box::pin(async move {
                // What a caller on another kernel has done is not known here.
                self.refresh(sure || signals.is_some()).await?;
                let awaited =
                    self.of_signals().iter().fold(SignalSet::default(), |all, entry| all.union(entry.signals()));
                Ok(ControlAnswer::Events { ready: self.take(caller, signals.as_ref(), most as usize), awaited })
            }),
            _ => ready(Err(Errno::EINVAL)),
        }
    }

    /// Readable if an entry on the ready list is really ready; those that are not leave it.
    fn poll(&self) -> Events {
        loop {
            let first = self.shared.ready.lock().front().cloned();
            let Some(entry) = first else { return Events::empty() };
            if entry.file().is_some_and(|file| entry.is_ready(&file)) {
                return Events::IN | Events::RDNORM;
            }
            let mut ready = self.shared.ready.lock();
            if ready.front().is_some_and(|there| Arc::ptr_eq(there, &entry)) {
                ready.pop_front();
            }
            drop(ready);
            entry.unmark();
            // Unmarked after it was asked: look once more, or a change in between is lost.
            match entry.file() {
                Some(_) => entry.list_if_ready(),
                None => self.forget(&entry),
            }
        }
    }

    fn changes(&self) -> Option<&WaitQueue> {
        Some(&self.shared.changes)
    }

    fn watch(&self) -> BoxFuture<'_, Result<()>> {
        alloc::boxed::Box::pin(self.refresh(false))
    }

    fn waiting(&self) -> WaitPlace {
        WaitPlace::Epoll
    }

    fn may_move(&self) -> bool {
        self.can_move()
    }

    fn watcher(&self) -> Option<&dyn Watcher> {
        Some(self)
    }

    fn path(&self) -> BoxFuture<'_, Vec<u8>> {
        ready(b"anon_inode:[eventpoll]".to_vec())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[cfg(test)]
mod tests;
