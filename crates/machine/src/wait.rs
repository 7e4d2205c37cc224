//! Wait queues.

use crate::sync::{constant, Lock};
use alloc::{boxed::Box, collections::BTreeMap, sync::Arc};
use core::{
    any::Any,
    future::Future,
    mem,
    pin::Pin,
    task::{Context, Poll, Waker},
};

/// Tasks waiting for a condition. The condition lives elsewhere; whoever changes it wakes the queue
/// afterwards. A waiter registers *before* it checks, so a change between check and sleep is not lost.
///
/// Waking allocates nothing and a waiter takes a few words, in pieces of less than a page: users decide how many wait.
#[derive(Default)]
pub struct WaitQueue {
    waiters: Lock<Waiters>,
}

#[derive(Default)]
struct Waiters {
    /// What the next waiter is known by.
    next: u64,
    /// Most often nobody waits, or only one task: every lock that is released looks here, and most objects have a queue.
    first: Option<(u64, Waker)>,
    others: Option<Box<Others>>,
}

#[derive(Default)]
struct Others {
    tasks: BTreeMap<u64, Waker>,
    subscribers: BTreeMap<u64, Subscription>,
}

#[derive(Clone)]
struct Subscription {
    subscriber: Arc<dyn Subscriber>,
    exclusive: bool,
}

/// Who is told of every change until it unsubscribes: a watcher that outlives any one wait (epoll).
pub trait Subscriber: Any + Send + Sync {
    /// The condition may have changed. Runs while no lock of the queue is held.
    ///
    /// The answer counts of an exclusive subscriber only: does somebody wake up for this change, so that no other exclusive
    /// subscriber has to be told?
    fn changed(&self) -> bool;

    /// Somebody has tried in vain to change it ([`WaitQueue::refuse`]).
    fn refused(&self) {}
}

impl Subscriber for Waker {
    fn changed(&self) -> bool {
        self.wake_by_ref();
        true
    }
}

impl WaitQueue {
    constant! {
        /// A queue that nobody waits in.
        pub fn new() -> Self {
            WaitQueue { waiters: Lock::new(Waiters { next: 0, first: None, others: None }) }
        }
    }

    /// Wakes the tasks, which register again if they go on waiting, tells all subscribers that are not exclusive, and those that
    /// are until one answers that somebody wakes up.
    pub fn wake_all(&self) {
        // Woken outside the lock: a waker may run code that registers again.
        let (first, tasks, end) = {
            let mut waiters = self.waiters.lock();
            if waiters.first.is_none() && waiters.others.is_none() {
                return;
            }
            let first = waiters.first.take();
            match &mut waiters.others {
                None => (first, None, 0),
                Some(others) => (first, others.take_tasks(), others.end()),
            }
        };
        if let Some((_, waker)) = first {
            waker.wake();
        }
        if let Some(tasks) = tasks {
            tasks.into_values().for_each(Waker::wake);
        }
        let (mut from, mut taken) = (0, false);
        while from < end {
            let Some((key, subscription)) = self.subscription(from).filter(|(key, _)| *key < end) else { break };
            from = key + 1;
            if !(subscription.exclusive && taken) {
                taken |= subscription.subscriber.changed() && subscription.exclusive;
            }
        }
    }

    fn subscription(&self, from: u64) -> Option<(u64, Subscription)> {
        let waiters = self.waiters.lock();
        let (key, there) = waiters.others.as_ref()?.subscribers.range(from..).next()?;
        Some((*key, there.clone()))
    }

    /// The first subscriber that is known by `from` or more, and what it is known by: to go through all of them.
    pub fn subscriber(&self, from: u64) -> Option<(u64, Arc<dyn Subscriber>)> {
        self.subscription(from).map(|(key, there)| (key, there.subscriber))
    }

    /// Tells all subscribers that somebody has tried in vain to change what they watch: there is nothing to wake up for.
    pub fn refuse(&self) {
        let mut from = 0;
        while let Some((key, subscriber)) = self.subscriber(from) {
            subscriber.refused();
            from = key + 1;
        }
    }

    /// Tells `subscriber` of every change until [`WaitQueue::unsubscribe`], of which this is the key. An exclusive one hears
    /// only of what wakes nobody by an earlier exclusive one.
    pub fn subscribe(&self, subscriber: Arc<dyn Subscriber>, exclusive: bool) -> u64 {
        let mut waiters = self.waiters.lock();
        let key = waiters.name();
        waiters.others().subscribers.insert(key, Subscription { subscriber, exclusive });
        key
    }

    /// Drops the subscriber that [`WaitQueue::subscribe`] gave this key.
    pub fn unsubscribe(&self, key: u64) {
        // Dropped outside the lock: a subscriber may own what owns the queue.
        let subscription = self.waiters.lock().others().subscribers.remove(&key);
        drop(subscription);
    }

    /// Whether anybody waits, tasks or subscribers.
    pub fn has_waiters(&self) -> bool {
        let waiters = self.waiters.lock();
        waiters.has_tasks() || waiters.others.as_ref().is_some_and(|others| !others.subscribers.is_empty())
    }

    /// Does a task wait, whatever subscribers there are?
    pub fn has_tasks(&self) -> bool {
        self.waiters.lock().has_tasks()
    }

    /// Waits until `check` gives a value. `check` runs at every wake-up; it must not block.
    pub fn wait_until<T, F: FnMut() -> Option<T>>(&self, check: F) -> WaitUntil<'_, F> {
        WaitUntil { check, registration: Registration::new(self), looked: false }
    }

    /// The same for who has looked just now and found nothing: it registers before `check` runs for the first time.
    pub fn wait_again<T, F: FnMut() -> Option<T>>(&self, check: F) -> WaitUntil<'_, F> {
        WaitUntil { looked: true, ..self.wait_until(check) }
    }
}

impl Waiters {
    fn name(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn others(&mut self) -> &mut Others {
        self.others.get_or_insert_default()
    }

    fn has_tasks(&self) -> bool {
        self.first.is_some() || self.others.as_ref().is_some_and(|others| !others.tasks.is_empty())
    }

    /// The waker known by `key`, if it waits.
    fn task(&mut self, key: u64) -> Option<&mut Waker> {
        match &mut self.first {
            Some((first, waker)) if *first == key => Some(waker),
            _ => self.others.as_mut()?.tasks.get_mut(&key),
        }
    }

    fn remove(&mut self, key: u64) -> Option<Waker> {
        match self.first.take_if(|(first, _)| *first == key) {
            Some((_, waker)) => Some(waker),
            None => self.others.as_mut()?.tasks.remove(&key),
        }
    }

    fn insert(&mut self, key: u64, waker: Waker) {
        if self.has_tasks() {
            self.others().tasks.insert(key, waker);
        } else {
            self.first = Some((key, waker));
        }
    }
}

impl Others {
    fn take_tasks(&mut self) -> Option<BTreeMap<u64, Waker>> {
        (!self.tasks.is_empty()).then(|| mem::take(&mut self.tasks))
    }

    /// Beyond the last subscriber.
    fn end(&self) -> u64 {
        self.subscribers.last_key_value().map_or(0, |(key, _)| key + 1)
    }
}

/// One task's place in a queue, given up when dropped.
pub struct Registration<'a> {
    queue: &'a WaitQueue,
    key: Option<u64>,
}

impl<'a> Registration<'a> {
    /// A place that nothing wakes yet.
    pub fn new(queue: &'a WaitQueue) -> Self {
        Registration { queue, key: None }
    }

    /// The next wake of the queue wakes `waker`. Whoever waits for more than one calls it at each wake-up, before looking.
    pub fn register(&mut self, waker: &Waker) {
        let mut waiters = self.queue.waiters.lock();
        let key = *self.key.get_or_insert_with(|| waiters.name());
        match waiters.task(key) {
            Some(there) => there.clone_from(waker),
            None => waiters.insert(key, waker.clone()),
        }
    }
}

impl Drop for Registration<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            // Dropped outside the lock.
            let waker = self.queue.waiters.lock().remove(key);
            drop(waker);
        }
    }
}

pub struct WaitUntil<'a, F> {
    check: F,
    registration: Registration<'a>,
    /// What there was before it registers has been looked at.
    looked: bool,
}

impl<F> Unpin for WaitUntil<'_, F> {}

impl<T, F: FnMut() -> Option<T>> Future for WaitUntil<'_, F> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        if !mem::take(&mut self.looked) {
            if let Some(value) = (self.check)() {
                return Poll::Ready(value);
            }
        }
        self.registration.register(context.waker());
        match (self.check)() {
            Some(value) => Poll::Ready(value),
            None => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use alloc::{task::Wake, vec::Vec};
    use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::sync::Mutex;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    /// Notes that it was told, and answers as it was made.
    struct Told(&'static str, bool, Arc<Mutex<Vec<&'static str>>>);

    impl Subscriber for Told {
        fn changed(&self) -> bool {
            self.2.lock().unwrap().push(self.0);
            self.1
        }
    }

    #[test]
    fn a_task_is_woken_once_for_each_time_it_registers() {
        let queue = WaitQueue::new();
        let counts: Vec<Arc<Count>> = (0..100).map(|_| Arc::default()).collect();
        let wakers: Vec<Waker> = counts.iter().map(|count| Waker::from(count.clone())).collect();
        let woken = || counts.iter().map(|count| count.0.load(Relaxed)).collect::<Vec<_>>();
        let mut all: Vec<_> = (0..100).map(|_| Registration::new(&queue)).collect();
        for _ in 0..2 {
            all.iter_mut().zip(&wakers).for_each(|(task, waker)| task.register(waker));
        }
        queue.wake_all();
        queue.wake_all();
        assert_eq!(woken(), [1; 100]);
        assert!(!queue.has_waiters());
        all.iter_mut().zip(&wakers).rev().for_each(|(task, waker)| task.register(waker));
        all.truncate(50);
        queue.wake_all();
        assert_eq!(woken()[..50], [2; 50]);
        assert_eq!(woken()[50..], [1; 50]);
        all.iter_mut().zip(&wakers).for_each(|(task, waker)| task.register(waker));
        assert!(queue.has_tasks());
        drop(all);
        assert!(!queue.has_waiters());
    }

    #[test]
    fn of_exclusive_subscribers_those_are_told_until_one_wakes_somebody() {
        let (queue, told) = (WaitQueue::new(), Arc::new(Mutex::new(Vec::new())));
        let subscriber = |name, wakes| Arc::new(Told(name, wakes, told.clone()));
        queue.subscribe(subscriber("sleeps", false), true);
        let wakes = queue.subscribe(subscriber("wakes", true), true);
        queue.subscribe(subscriber("always", true), false);
        queue.subscribe(subscriber("wakes too", true), true);
        let wake = || {
            queue.wake_all();
            mem::take(&mut *told.lock().unwrap())
        };
        assert_eq!(wake(), ["sleeps", "wakes", "always"]);
        queue.unsubscribe(wakes);
        assert_eq!(wake(), ["sleeps", "always", "wakes too"]);
        assert!(queue.has_waiters() && !queue.has_tasks());
    }
}
