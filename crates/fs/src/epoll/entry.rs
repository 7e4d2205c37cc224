//! One file that an epoll watches.

use super::{Held, Key, Shared, EDGE, EXCLUSIVE, ONESHOT, WAKEUP};
use crate::{control::EpollInterest, poll::ALWAYS, remote::Observed, Caller, Events, File};
use alloc::{
    sync::{Arc, Weak},
    task::Wake,
};
use core::{
    sync::atomic::{AtomicBool, Ordering},
    task::Waker,
};
use machine::{errno::Result, sync::Lock, Errno};

const BEHAVIOUR: u32 = EXCLUSIVE | WAKEUP | ONESHOT | EDGE;

pub struct Entry {
    pub key: Key,
    held: Lock<Option<Held>>,
    /// What is asked and listened to instead, if the file is another for each who looks: as the process sees it that added it.
    seen: Option<Arc<dyn File>>,
    interest: Lock<EpollInterest>,
    /// Its place in the file's queue of watchers.
    subscription: Lock<Option<usize>>,
    /// Is it on the ready list?
    listed: AtomicBool,
    epoll: Weak<Shared>,
}

/// Kept in the file's queue. Weak, so that an entry ends with its epoll.
struct Notify(Weak<Entry>);

impl Wake for Notify {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if let Some(entry) = self.0.upgrade() {
            if entry.wanted() != Events::empty() {
                entry.list();
            }
        }
    }
}

impl Entry {
    pub fn new(
        key: Key,
        file: &Arc<dyn File>,
        seen: Option<Arc<dyn File>>,
        interest: EpollInterest,
        epoll: &Arc<Shared>,
    ) -> Arc<Self> {
        Arc::new(Entry {
            key,
            held: Lock::new(Some(Held::new(file))),
            seen,
            interest: Lock::new(EpollInterest { events: interest.events & !SPENT, ..interest }),
            subscription: Lock::new(None),
            listed: AtomicBool::new(false),
            epoll: Arc::downgrade(epoll),
        })
    }

    /// The file, unless it is closed.
    pub fn file(&self) -> Option<Arc<dyn File>> {
        self.held.lock().as_ref()?.get()
    }

    /// The file, if it is another kernel's.
    pub fn observed(&self) -> Option<Arc<Observed>> {
        match self.held.lock().as_ref()? {
            Held::Foreign(file) if !file.is_gone() => Some(file.clone()),
            _ => None,
        }
    }

    pub fn watch(self: &Arc<Self>, file: &Arc<dyn File>) {
        let waker = Waker::from(Arc::new(Notify(Arc::downgrade(self))));
        *self.subscription.lock() = self.seen(file).changes().map(|queue| queue.subscribe(waker));
    }

    /// Stops watching.
    pub fn close(&self) {
        let file = self.file();
        let subscription = self.subscription.lock().take();
        if let (Some(file), Some(key)) = (&file, subscription) {
            if let Some(queue) = self.seen(file).changes() {
                queue.unsubscribe(key);
            }
        }
        let held = self.held.lock().take();
        drop(held);
    }

    pub fn modify(&self, interest: EpollInterest) -> Result<()> {
        let mut now = self.interest.lock();
        if now.events & EXCLUSIVE != 0 {
            return Err(Errno::EINVAL);
        }
        *now = EpollInterest { events: interest.events & !SPENT, ..interest };
        Ok(())
    }

    /// Events waited for; none while a oneshot entry is spent.
    fn wanted(&self) -> Events {
        let events = self.interest.lock().events;
        if events & SPENT != 0 {
            return Events::empty();
        }
        Events::from_bits_truncate(events & !BEHAVIOUR) | ALWAYS
    }

    pub fn is_ready(&self, file: &Arc<dyn File>) -> bool {
        self.seen(file).poll().intersects(self.wanted())
    }

    fn seen<'a>(&'a self, file: &'a Arc<dyn File>) -> &'a Arc<dyn File> {
        self.seen.as_ref().unwrap_or(file)
    }

    /// What stands for a file that is another for each who looks.
    pub fn seen_differently(&self) -> Option<&Arc<dyn File>> {
        self.seen.as_ref()
    }

    /// The event to report to `caller`, and whether the entry goes back on the list.
    pub fn report(&self, file: &Arc<dyn File>, caller: &Caller) -> Option<(EpollInterest, bool)> {
        let callers = self.seen.as_ref().and_then(|seen| seen.seen_by(caller.process, Some(caller.thread)));
        let ready = callers.as_ref().unwrap_or(self.seen(file)).poll() & self.wanted();
        if ready.is_empty() {
            return None;
        }
        let mut interest = self.interest.lock();
        let event = EpollInterest { events: ready.bits(), data: interest.data };
        if interest.events & ONESHOT != 0 {
            interest.events = interest.events & BEHAVIOUR | SPENT;
            return Some((event, false));
        }
        Some((event, interest.events & EDGE == 0))
    }

    /// Puts the entry on the ready list unless it is there.
    pub fn list(self: &Arc<Self>) {
        let Some(epoll) = self.epoll.upgrade() else { return };
        // Pairs with `unmark`: whoever finds it listed knows that it will still be asked.
        if !self.listed.swap(true, Ordering::AcqRel) {
            epoll.ready.lock().push_back(self.clone());
        }
        epoll.changes.wake_all();
    }

    pub fn list_if_ready(self: &Arc<Self>) {
        if self.file().is_some_and(|file| self.is_ready(&file)) {
            self.list();
        }
    }

    /// Off the list: the next change lists it again.
    pub fn unmark(&self) {
        self.listed.swap(false, Ordering::AcqRel);
    }
}

/// Set in a oneshot entry that has reported: no event at all, not even HUP, until EPOLL_CTL_MOD.
const SPENT: u32 = 1 << 27;
