//! The run queue of one CPU: kernel work (as far as it may go first, see turns.rs), then the deadline class, the real-time class, then the fair class. It knows the task
//! that runs, and the time, but neither CPUs nor futures, so tests drive it with a clock of their own.

use crate::{
    class::Class,
    deadline::{Budget, Deadline},
    fair::Fair,
    realtime::Realtime,
    turns::Turns,
};
use alloc::collections::VecDeque;

/// What a task keeps of its class while it is in no queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kept {
    /// What the fair class owes it.
    pub lag: i64,
    pub budget: Budget,
    /// It has waited for something else than a CPU.
    pub wakes: bool,
}

pub(crate) struct Queue<T> {
    kernel: VecDeque<T>,
    deadline: Deadline<T>,
    realtime: Realtime<T>,
    fair: Fair<T>,
    turns: Turns,
    /// Class of the task that runs, and since when its time is not charged.
    running: Option<Class>,
    since: u64,
    /// It has called sched_yield.
    yields: bool,
    /// Which task it is, as the scheduler names it; 0: none.
    token: usize,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Queue {
            kernel: VecDeque::new(),
            deadline: Deadline::default(),
            realtime: Realtime::default(),
            fair: Fair::default(),
            turns: Turns::default(),
            running: None,
            since: 0,
            yields: false,
            token: 0,
        }
    }
}

impl<T> Queue<T> {
    /// A task has become runnable. `kept`: what it had when it went to sleep. False if whoever runs need not hear of it, for its time ends when it
    /// would have ended anyway.
    pub fn enqueue(&mut self, task: T, class: Class, kept: Kept, now: u64) -> bool {
        self.charge(now);
        // Its coming may bring a deadline: the end of a slice, or of what the real-time class may have.
        let first = self.fair.is_empty();
        match class {
            Class::Kernel => self.kernel.push_back(task),
            Class::Deadline(reservation) => {
                self.deadline.enqueue(task, reservation, (kept.budget, kept.wakes), now);
            }
            Class::Fifo(_) | Class::RoundRobin(_) => self.realtime.enqueue(task, class),
            Class::Normal(_) | Class::Batch(_) | Class::Idle => {
                return self.fair.enqueue(task, class, kept.lag) || first
            }
        }
        true
    }

    /// Gives the waiting task that `wanted` accepts another class; false if it does not wait here.
    pub fn change_waiting(&mut self, mut wanted: impl FnMut(&T) -> bool, class: Class, now: u64) -> bool {
        let found = self.remove(&mut wanted, now).or_else(|| self.remove_throttled(wanted));
        let Some((task, was, kept)) = found else { return false };
        match class.priority() {
            Some(_) => self.realtime.change(task, was, class),
            None => _ = self.enqueue(task, class, kept, now),
        }
        true
    }

    /// Takes the task that is to run now; nothing is running.
    pub fn next(&mut self, now: u64) -> Option<(T, Class)> {
        self.since = now;
        let kernel = if self.threads_first() { None } else { self.kernel.pop_front() };
        let next = match kernel {
            Some(task) => Some((task, Class::Kernel)),
            None if self.has_due(now) => {
                self.deadline.next().map(|(task, reservation)| (task, Class::Deadline(reservation)))
            }
            None if self.realtime_first(now) => self.realtime.next(),
            None => self.fair.next(),
        };
        self.running = next.as_ref().map(|(_, class)| *class);
        next
    }

    /// Names the task that [`Queue::next`] gave.
    pub fn name_running(&mut self, token: usize) {
        self.token = token;
    }

    /// Gives the running task another class, if it is the one with this name.
    pub fn change_running(&mut self, token: usize, class: Class, now: u64) {
        if self.token != token || self.running.is_none() {
            return;
        }
        self.charge(now);
        let kept = self.leave();
        self.running = Some(class);
        match (class, class.priority()) {
            (Class::Deadline(reservation), _) => self.deadline.adopt(reservation, kept.budget, now),
            (_, Some(_)) => self.realtime.adopt(class),
            (_, None) => self.fair.adopt(class, kept.lag),
        }
    }

    /// Does somebody of the deadline class wait for the CPU?
    fn has_due(&mut self, now: u64) -> bool {
        self.deadline.replenish(now);
        !self.deadline.is_empty()
    }

    /// May the real-time class run before the fair one?
    fn realtime_first(&mut self, now: u64) -> bool {
        !self.realtime.is_empty() && (self.fair.is_empty() || !self.realtime.is_throttled(now))
    }

    fn charge(&mut self, now: u64) {
        let ns = now.saturating_sub(self.since);
        // A CPU's loop may have looked at the clock before somebody else was charged.
        self.since = self.since.max(now);
        match self.running {
            None => {}
            Some(Class::Kernel) if self.threads() > 0 => self.turns.borrow(ns),
            Some(Class::Kernel) => {}
            Some(_) => {
                self.turns.pay(ns);
                match (self.deadline.is_running(), self.realtime.is_running()) {
                    (true, _) => self.deadline.charge(ns),
                    (_, true) => self.realtime.charge(ns),
                    _ => self.fair.charge(ns),
                }
            }
        }
    }

    /// Kernel work that is no task was done from `began` to `now`. A thread that runs has not had that time.
    pub fn charge_kernel(&mut self, began: u64, now: u64) {
        self.charge(began);
        self.since = self.since.max(now);
        if self.threads() > 0 || self.running.is_some_and(|class| class != Class::Kernel) {
            self.turns.borrow(now.saturating_sub(began));
        }
    }

    /// Must kernel work wait for threads?
    pub fn threads_first(&self) -> bool {
        self.threads() > 0 && self.turns.threads_first()
    }

    /// Must the running task let another run? `work`: there is kernel work that is no task (messages, timers).
    pub fn must_switch(&mut self, now: u64, work: bool) -> bool {
        let has_due = self.has_due(now);
        if self.waiting() == 0 && !work && !self.deadline.is_running() {
            return false;
        }
        self.charge(now);
        if self.running == Some(Class::Kernel) {
            return work || !self.kernel.is_empty() || self.threads_first();
        }
        if (work || !self.kernel.is_empty()) && !self.turns.threads_first() {
            return true;
        }
        if self.deadline.is_running() {
            return self.deadline.must_switch();
        }
        if has_due {
            return true;
        }
        if self.threads() == 0 {
            return false;
        }
        match self.realtime.is_running() {
            true => self.realtime.must_switch() || !self.fair.is_empty() && self.realtime.is_throttled(now),
            false => self.fair.must_switch() || !self.realtime.is_empty() && !self.realtime.is_throttled(now),
        }
    }

    /// When [`Queue::must_switch`] has to be asked again, if nothing happens before; None: never.
    pub fn deadline(&self, work: bool) -> Option<u64> {
        if self.running == Some(Class::Kernel) {
            return (self.threads() > 0).then(|| self.since.saturating_add(self.turns.credit()));
        }
        let kernel = (work || !self.kernel.is_empty()).then(|| self.since.saturating_add(self.turns.left()));
        kernel.into_iter().chain(self.thread_deadline()).chain(self.deadline.next_replenishment()).min()
    }

    /// When somebody of the deadline class waits for the CPU who waits for time to pass now; None: nobody does.
    pub fn next_replenishment(&self) -> Option<u64> {
        self.deadline.next_replenishment()
    }

    /// The deadline of the task that runs, if it has one.
    pub fn due(&self) -> Option<u64> {
        self.deadline.running_due()
    }

    /// The same for other threads.
    fn thread_deadline(&self) -> Option<u64> {
        if let Some(left) = self.deadline.remaining() {
            return Some(self.since.saturating_add(left));
        }
        if self.threads() == 0 {
            return None;
        }
        let remaining = match self.realtime.is_running() {
            true => self.realtime.remaining(!self.fair.is_empty()),
            false => self.fair.remaining(),
        };
        let own = remaining.map(|ns| self.since.saturating_add(ns));
        // The fair class runs though others wait: they have had their part of this period.
        let throttled = !self.realtime.is_running() && !self.realtime.is_empty();
        match (own, throttled) {
            (Some(own), true) => Some(own.min(self.realtime.period_end())),
            (None, true) => Some(self.realtime.period_end()),
            (own, false) => own,
        }
    }

    /// The running thread lets others of its class run when it is next put back.
    pub fn ask_yield(&mut self) {
        self.yields = true;
    }

    /// The running task goes back into the queue, with the class it has now. True: what it has reserved is used up.
    pub fn put_back(&mut self, task: T, class: Class, now: u64) -> bool {
        self.charge(now);
        let was = self.running.take();
        self.token = 0;
        let yields = core::mem::take(&mut self.yields);
        if let (Some(Class::Deadline(_)), Class::Deadline(reservation)) = (was, class) {
            return self.deadline.put_back(task, reservation, yields, now);
        }
        let is_reserved = |class| matches!(class, Class::Deadline(_));
        match (was.and_then(Class::priority), class.priority()) {
            _ if class == Class::Kernel || was == Some(Class::Kernel) => {
                _ = self.enqueue(task, class, Kept::default(), now);
            }
            _ if was.is_some_and(is_reserved) || is_reserved(class) => self.enqueue_left(task, class, now),
            (Some(_), Some(_)) => self.realtime.put_back(task, class, yields),
            (None, None) => self.fair.put_back(task, class, yields),
            _ => self.enqueue_left(task, class, now),
        }
        false
    }

    /// The running task has another class than it had when it was chosen.
    fn enqueue_left(&mut self, task: T, class: Class, now: u64) {
        let kept = self.leave();
        self.enqueue(task, class, kept, now);
    }

    /// The running task sleeps, ends or goes elsewhere: what it keeps.
    pub fn block(&mut self, now: u64) -> Kept {
        self.charge(now);
        self.running = None;
        self.token = 0;
        self.yields = false;
        self.leave()
    }

    fn leave(&mut self) -> Kept {
        self.realtime.take_running();
        Kept { budget: self.deadline.take_running(), lag: self.fair.take_running(), wakes: false }
    }

    /// Takes out a waiting thread (no kernel work) that `wanted` accepts, the most urgent first.
    pub fn remove(&mut self, mut wanted: impl FnMut(&T) -> bool, now: u64) -> Option<(T, Class, Kept)> {
        self.charge(now);
        if let Some(urgent) = self.remove_due(&mut wanted) {
            return Some(urgent);
        }
        if let Some((task, class)) = self.realtime.remove(&mut wanted) {
            return Some((task, class, Kept::default()));
        }
        let (task, class, lag) = self.fair.remove(wanted)?;
        Some((task, class, Kept { lag, ..Kept::default() }))
    }

    /// The same of the deadline class alone.
    pub fn remove_due(&mut self, wanted: impl FnMut(&T) -> bool) -> Option<(T, Class, Kept)> {
        let (task, reservation, budget) = self.deadline.remove(wanted)?;
        Some((task, Class::Deadline(reservation), Kept { budget, ..Kept::default() }))
    }

    /// Takes out a thread of the deadline class that waits for its next period.
    fn remove_throttled(&mut self, wanted: impl FnMut(&T) -> bool) -> Option<(T, Class, Kept)> {
        let (task, reservation, budget) = self.deadline.remove_throttled(wanted)?;
        Some((task, Class::Deadline(reservation), Kept { budget, ..Kept::default() }))
    }

    /// The first deadline of a thread that waits for this CPU.
    pub fn first_due(&self) -> Option<u64> {
        self.deadline.first_due()
    }

    /// The class of the task that runs.
    pub fn running(&self) -> Option<Class> {
        self.running
    }

    /// Threads that wait for the CPU.
    pub fn threads(&self) -> usize {
        self.deadline.len() + self.realtime.len() + self.fair.len()
    }

    /// Tasks of the kernel that wait.
    pub fn kernel_tasks(&self) -> usize {
        self.kernel.len()
    }

    /// Tasks that wait.
    pub fn waiting(&self) -> usize {
        self.kernel.len() + self.threads()
    }
}
