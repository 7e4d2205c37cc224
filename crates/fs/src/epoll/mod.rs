//! epoll(7).
//!
//! Every entry keeps a waker in the queue of its file for as long as it lives. A change of the file puts
//! the entry on the ready list, at most once, and wakes those who wait in epoll_wait; they take entries
//! from the list and ask the file what is really there. So a wait costs what is ready, not what is
//! watched, and an edge that falls between two waits is kept.
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
//! it. A stand-in for another kernel's file is held strongly, for it lives nowhere else: such an entry
//! stays until EPOLL_CTL_DEL.

mod entry;

use crate::{
    anonymous::{Identity, StatusFlags},
    control::{Control, ControlAnswer, EpollControl, EpollInterest},
    file::ready,
    poll, Attributes, Caller, Events, File, OpenFlags,
};
use alloc::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Weak},
    vec::Vec,
};
use core::any::Any;
use entry::Entry;
use machine::{
    errno::Result,
    sync::{Lock, WaitQueue},
    BoxFuture, Errno,
};

/// Bits of `epoll_event.events` that are no poll events.
pub const EXCLUSIVE: u32 = 1 << 28;
pub const WAKEUP: u32 = 1 << 29;
pub const ONESHOT: u32 = 1 << 30;
pub const EDGE: u32 = 1 << 31;

/// How deep epolls may watch epolls (Linux's EP_MAX_NESTS).
const MAX_NESTS: usize = 4;

/// Taken to add an epoll to an epoll, so that two cannot close a circle at once.
static NESTING: Lock<()> = Lock::new(());

/// An entry's name: descriptor number and description. The address stays taken as long as the entry
/// holds a reference, weak or strong.
type Key = (i32, usize);

struct Shared {
    entries: Lock<BTreeMap<Key, Arc<Entry>>>,
    ready: Lock<VecDeque<Arc<Entry>>>,
    changes: WaitQueue,
}

pub struct Epoll {
    shared: Arc<Shared>,
    flags: StatusFlags,
    inode: Identity,
}

fn address(file: &Arc<dyn File>) -> usize {
    Arc::as_ptr(file).cast::<()>() as usize
}

impl Epoll {
    /// epoll_create1(2).
    pub fn new(flags: OpenFlags) -> Result<Arc<Self>> {
        if !OpenFlags::CLOEXEC.contains(flags) {
            return Err(Errno::EINVAL);
        }
        let shared = Shared {
            entries: Lock::new(BTreeMap::new()),
            ready: Lock::new(VecDeque::new()),
            changes: WaitQueue::new(),
        };
        Ok(Arc::new(Epoll {
            shared: Arc::new(shared),
            flags: StatusFlags::new(flags | OpenFlags::RDWR),
            inode: Identity::untyped(),
        }))
    }

    /// epoll_ctl(2). EBADF and EFAULT are the system call's.
    pub async fn change(&self, control: EpollControl) -> Result<()> {
        let file = match &control {
            EpollControl::Add { file, .. } | EpollControl::Modify { file, .. } | EpollControl::Delete { file, .. } => {
                file
            }
        };
        let inner = file.as_any().downcast_ref::<Epoll>();
        if inner.is_some_and(|inner| Arc::ptr_eq(&inner.shared, &self.shared)) {
            return Err(Errno::EINVAL);
        }
        let nested = inner.is_some();
        match control {
            EpollControl::Add { fd, file, interest } => {
                check_exclusive(&interest, nested, true)?;
                if file.changes().is_none() {
                    return Err(Errno::EPERM);
                }
                file.watch().await?;
                self.add((fd, address(&file)), &file, interest)
            }
            EpollControl::Modify { fd, file, interest } => {
                let entry = self.find((fd, address(&file)))?;
                check_exclusive(&interest, nested, false)?;
                entry.modify(interest)?;
                entry.list_if_ready();
                Ok(())
            }
            EpollControl::Delete { fd, file } => {
                let entry = self.shared.entries.lock().remove(&(fd, address(&file)));
                entry.ok_or(Errno::ENOENT)?.close();
                Ok(())
            }
        }
    }

    fn find(&self, key: Key) -> Result<Arc<Entry>> {
        self.shared.entries.lock().get(&key).cloned().ok_or(Errno::ENOENT)
    }

    fn add(&self, key: Key, file: &Arc<dyn File>, interest: EpollInterest) -> Result<()> {
        let entry = {
            let nesting = file.as_any().downcast_ref::<Epoll>().map(|inner| (NESTING.lock(), inner));
            if let Some((_, inner)) = &nesting {
                if inner.depth_without(self, 0).ok_or(Errno::ELOOP)? > MAX_NESTS {
                    return Err(Errno::ELOOP);
                }
            }
            let mut entries = self.shared.entries.lock();
            if entries.get(&key).is_some_and(|entry| entry.file().is_some()) {
                return Err(Errno::EEXIST);
            }
            let entry = Entry::new(key, file, interest, &self.shared);
            entries.insert(key, entry.clone());
            entry
        };
        entry.watch(file);
        entry.list_if_ready();
        Ok(())
    }

    /// Levels of epolls from this one down; None if `root` is among them.
    fn depth_without(&self, root: &Epoll, above: usize) -> Option<usize> {
        if Arc::ptr_eq(&self.shared, &root.shared) {
            return None;
        }
        if above > MAX_NESTS {
            return Some(above);
        }
        let watched: Vec<Arc<dyn File>> =
            self.shared.entries.lock().values().filter_map(|entry| entry.file()).collect();
        let mut deepest = above + 1;
        for file in &watched {
            if let Some(inner) = file.as_any().downcast_ref::<Epoll>() {
                deepest = deepest.max(inner.depth_without(root, above + 1)?);
            }
        }
        Some(deepest)
    }

    /// Up to `max` events that are ready now. Level-triggered entries go to the end of the list, so that
    /// all get their turn.
    pub fn take(&self, max: usize) -> Vec<EpollInterest> {
        let mut events = Vec::new();
        let mut again = Vec::new();
        let listed = self.shared.ready.lock().len();
        for _ in 0..listed {
            if events.len() >= max {
                break;
            }
            let Some(entry) = self.shared.ready.lock().pop_front() else { break };
            entry.unmark();
            let Some(file) = entry.file() else {
                self.forget(&entry);
                continue;
            };
            let Some((event, stays)) = entry.report(&file) else { continue };
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
        let mut entries = self.shared.entries.lock();
        if entries.get(&entry.key).is_some_and(|there| Arc::ptr_eq(there, entry)) {
            entries.remove(&entry.key);
        }
    }
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

/// epoll_wait(2) on an epoll of any kernel: at least one event, or none after `timeout` (None: forever).
pub async fn wait(
    epoll: &Arc<dyn File>,
    caller: &Caller,
    max: u32,
    timeout: Option<BoxFuture<'_, ()>>,
) -> Result<Vec<EpollInterest>> {
    if max == 0 || max > i32::MAX as u32 / 12 {
        return Err(Errno::EINVAL);
    }
    let files = [(epoll.clone(), Events::IN)];
    let mut timeout = timeout;
    loop {
        if let ControlAnswer::Events(events) = epoll.control(caller, Control::EpollTake(max)).await? {
            if !events.is_empty() {
                return Ok(events);
            }
        }
        let limit = timeout.as_mut().map(|timeout| -> BoxFuture<'_, ()> { alloc::boxed::Box::pin(timeout.as_mut()) });
        if poll::wait(&files, limit).await?[0].is_empty() {
            return Ok(Vec::new());
        }
    }
}

impl Drop for Epoll {
    fn drop(&mut self) {
        let entries = core::mem::take(&mut *self.shared.entries.lock());
        for entry in entries.into_values() {
            entry.close();
        }
    }
}

impl File for Epoll {
    fn flags(&self) -> OpenFlags {
        self.flags.get()
    }

    fn set_flags(&self, flags: OpenFlags) -> BoxFuture<'_, Result<()>> {
        self.flags.set(flags);
        ready(Ok(()))
    }

    fn attributes(&self) -> BoxFuture<'_, Result<Attributes>> {
        ready(Ok(self.inode.attributes()))
    }

    fn control<'a>(&'a self, _caller: &'a Caller, control: Control) -> BoxFuture<'a, Result<ControlAnswer>> {
        match control {
            Control::Epoll(control) => {
                alloc::boxed::Box::pin(async move { self.change(control).await.map(|()| ControlAnswer::Done) })
            }
            Control::EpollTake(max) => ready(Ok(ControlAnswer::Events(self.take(max as usize)))),
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

    fn path(&self) -> BoxFuture<'_, Vec<u8>> {
        ready(b"anon_inode:[eventpoll]".to_vec())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// A file as an entry holds it.
enum Held {
    Local(Weak<dyn File>),
    StandIn(Arc<dyn File>),
}

impl Held {
    fn new(file: &Arc<dyn File>) -> Self {
        match file.remote() {
            None => Held::Local(Arc::downgrade(file)),
            Some(_) => Held::StandIn(file.clone()),
        }
    }

    fn get(&self) -> Option<Arc<dyn File>> {
        match self {
            Held::Local(file) => file.upgrade(),
            Held::StandIn(file) => Some(file.clone()),
        }
    }
}

#[cfg(test)]
mod tests;
