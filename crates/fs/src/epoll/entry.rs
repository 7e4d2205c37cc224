//! One file that an epoll watches.

use super::{
    watched::{Held, Watched},
    Key, Shared, EDGE, EXCLUSIVE, ONESHOT, WAKEUP,
};
use crate::{
    control::EpollInterest,
    file::{Observed, SignalView},
    poll::ALWAYS,
    Caller, Events, File,
};
use abi::signal::SignalSet;
use alloc::sync::{Arc, Weak};
use core::sync::atomic::{AtomicBool, Ordering};
use machine::{
    account::Charge,
    errno::Result,
    sync::{Lock, Subscriber},
    Errno, Pid,
};
use messages::fs::{SignalTime, SignalsSeen};

const BEHAVIOUR: u32 = EXCLUSIVE | WAKEUP | ONESHOT | EDGE;

pub struct Entry {
    pub key: Key,
    held: Lock<Option<Held>>,
    /// A signalfd as the process sees it that added it: this is asked and listened to as well.
    seen: Option<Arc<dyn SignalView>>,
    /// A thread of another kernel that it was reported to, and as of when.
    told: Lock<Option<(Pid, SignalTime)>>,
    interest: Lock<EpollInterest>,
    /// Its place in the file's queue of watchers.
    subscription: Lock<Option<u64>>,
    /// And in that of the signals.
    signals: Lock<Option<u64>>,
    /// Until then it is not certain that it stays, and it tells nobody.
    begun: AtomicBool,
    /// Is it on the ready list?
    listed: AtomicBool,
    epoll: Weak<Shared>,
    charge: Lock<Charge>,
}

/// Kept in the file's queue. Weak, so that an entry ends with its epoll.
pub struct Notify(Weak<Entry>);

impl Subscriber for Notify {
    /// Of exclusive entries of several epolls, one is told if somebody waits at its epoll (man 2 epoll_ctl, EPOLLEXCLUSIVE).
    fn changed(&self) -> bool {
        let Some(entry) = self.0.upgrade() else { return false };
        if !entry.begun.load(Ordering::Acquire) || entry.wanted().is_empty() {
            return false;
        }
        let Some(epoll) = entry.epoll.upgrade() else { return false };
        let somebody = epoll.changes.has_tasks();
        entry.list();
        somebody
    }
}

impl Notify {
    /// The epoll whose entry it is.
    pub fn epoll(&self) -> Option<Arc<Shared>> {
        self.0.upgrade()?.epoll.upgrade()
    }
}

impl Entry {
    pub fn new(
        key: Key,
        watched: &Watched,
        seen: Option<Arc<dyn SignalView>>,
        interest: EpollInterest,
        epoll: &Arc<Shared>,
        charge: Charge,
    ) -> Arc<Self> {
        Arc::new(Entry {
            key,
            held: Lock::new(Some(Held::new(watched))),
            seen,
            told: Lock::new(None),
            interest: Lock::new(EpollInterest { events: interest.events & !SPENT, ..interest }),
            subscription: Lock::new(None),
            signals: Lock::new(None),
            begun: AtomicBool::new(false),
            listed: AtomicBool::new(false),
            epoll: Arc::downgrade(epoll),
            charge: Lock::new(charge),
        })
    }

    /// What it watches, unless that is closed.
    pub fn watched(&self) -> Option<Watched> {
        self.held.lock().as_ref()?.get()
    }

    /// The file, unless it is closed.
    pub fn file(&self) -> Option<Arc<dyn File>> {
        self.watched().map(|watched| watched.file())
    }

    /// Does it watch no more?
    pub fn is_closed(&self) -> bool {
        self.held.lock().is_none()
    }

    /// The file, if it is another kernel's.
    pub fn observed(&self) -> Option<Arc<dyn Observed>> {
        match self.watched()? {
            Watched::Elsewhere(file) => Some(file),
            Watched::Here(_) => None,
        }
    }

    pub fn watch(self: &Arc<Self>, file: &dyn File) {
        let notify = Arc::new(Notify(Arc::downgrade(self)));
        let exclusive = self.interest.lock().events & EXCLUSIVE != 0;
        *self.subscription.lock() = file.changes().map(|queue| queue.subscribe(notify.clone(), exclusive));
        let signals = self.seen.as_ref().and_then(|seen| seen.changes());
        *self.signals.lock() = signals.map(|queue| queue.subscribe(notify, exclusive));
    }

    /// It stays.
    pub fn begin(&self) {
        self.begun.store(true, Ordering::Release);
    }

    /// Stops watching.
    pub fn close(&self) {
        let unsubscribe = |file: Option<&dyn File>, subscription: &Lock<Option<u64>>| {
            let subscription = subscription.lock().take();
            if let (Some(queue), Some(key)) = (file.and_then(|file| file.changes()), subscription) {
                queue.unsubscribe(key);
            }
        };
        unsubscribe(self.file().as_deref(), &self.subscription);
        unsubscribe(self.seen.as_deref().map(|seen| seen as &dyn File), &self.signals);
        let held = self.held.lock().take();
        drop(held);
        // It may stand on the ready list for a while.
        *self.charge.lock() = Charge::FREE;
    }

    pub fn modify(&self, interest: EpollInterest) -> Result<()> {
        let mut now = self.interest.lock();
        if now.events & EXCLUSIVE != 0 {
            return Err(Errno::EINVAL);
        }
        *now = EpollInterest { events: interest.events & !SPENT, ..interest };
        Ok(())
    }

    /// Events and data, with what only [`Entry::resume`] understands.
    pub fn interest(&self) -> EpollInterest {
        *self.interest.lock()
    }

    /// It goes on as one that had this [`Entry::interest`].
    pub fn resume(&self, interest: EpollInterest) {
        *self.interest.lock() = interest;
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
        let ready = self.seen.as_ref().map_or_else(|| file.poll(), |seen| seen.poll());
        ready.intersects(self.wanted())
    }

    /// Whether the owner, if that is another kernel, must be asked before who waits is told anything: it has said that there is something to report,
    /// or this kernel has done something there since, which may have made it so.
    pub fn must_ask(&self) -> bool {
        let Some(file) = self.observed() else { return true };
        let may_report = self.interest.lock().events & EDGE == 0 || self.listed.load(Ordering::Acquire);
        file.is_nested() || !file.was_asked_at(file.deeds()) || may_report && file.poll().intersects(self.wanted())
    }

    /// A signalfd, as the process sees it that added it.
    pub fn seen(&self) -> Option<&Arc<dyn SignalView>> {
        self.seen.as_ref()
    }

    /// The signals whose coming may make it ready.
    pub fn signals(&self) -> SignalSet {
        match &self.seen {
            Some(seen) if self.wanted().contains(Events::IN) => seen.wanted(),
            _ => SignalSet::default(),
        }
    }

    /// Has a caller of another kernel signals to be told of? An edge is news only if one has come since it was told.
    fn are_ready(&self, caller: &Caller, signals: &SignalsSeen) -> bool {
        let is_known = *self.told.lock() == Some((caller.thread, signals.as_of));
        signals.pending.0 & self.signals().0 != 0 && !(is_known && self.interest.lock().events & EDGE != 0)
    }

    /// The signals of who asks, at the moment.
    fn signals_ready(&self, seen: &dyn SignalView, caller: &Caller, signals: Option<&SignalsSeen>) -> Events {
        match signals {
            None => seen.seen_by(caller.process, Some(caller.thread)).map_or(Events::empty(), |seen| seen.poll()),
            Some(signals) if self.are_ready(caller, signals) => {
                *self.told.lock() = Some((caller.thread, signals.as_of));
                Events::IN
            }
            Some(_) => Events::empty(),
        }
    }

    /// The event to report to `caller`, and whether the entry goes back on the list.
    pub fn report(
        &self,
        file: &Arc<dyn File>,
        caller: &Caller,
        signals: Option<&SignalsSeen>,
    ) -> Option<(EpollInterest, bool)> {
        let ready = match &self.seen {
            Some(seen) => self.signals_ready(&**seen, caller, signals),
            None => file.poll(),
        } & self.wanted();
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
