//! The real-time class of one CPU (SCHED_FIFO, SCHED_RR; man 7 sched): the highest priority runs, and among
//! equals the one that came first, until it sleeps or yields or, with SCHED_RR, its slice is over. Who is
//! interrupted by a higher priority stays first of its own.
//!
//! So that a runaway thread does not take the machine with it, the class gets 950 ms of each second while
//! others wait (`sched_rt_runtime_us` of Linux).

use crate::class::Class;
use alloc::collections::VecDeque;

/// `sched_rr_timeslice_ms` of Linux.
pub const ROUND_ROBIN_NS: u64 = 100_000_000;
const PERIOD_NS: u64 = 1_000_000_000;
const RUNTIME_NS: u64 = 950_000_000;

struct WaitingTask<T> {
    task: T,
    class: Class,
    /// Left of the slice of SCHED_RR.
    left: u64,
}

struct Running {
    class: Class,
    left: u64,
}

pub(crate) struct Realtime<T> {
    /// By priority, the highest first; equals in the order of their turns.
    waiting: VecDeque<WaitingTask<T>>,
    running: Option<Running>,
    /// The current period began at this time, and the class has used so much of it.
    period: u64,
    used: u64,
}

impl<T> Default for Realtime<T> {
    fn default() -> Self {
        Realtime { waiting: VecDeque::new(), running: None, period: 0, used: 0 }
    }
}

impl<T> Realtime<T> {
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Begins a new period if it is time; true if the class has had its part of this one.
    pub fn is_throttled(&mut self, now: u64) -> bool {
        if now.saturating_sub(self.period) >= PERIOD_NS {
            self.period = now;
            self.used = 0;
        }
        self.used >= RUNTIME_NS
    }

    /// When the class may run again.
    pub fn period_end(&self) -> u64 {
        self.period + PERIOD_NS
    }

    /// After its equals.
    pub fn enqueue(&mut self, task: T, class: Class) {
        let place = self.waiting.partition_point(|other| other.class.priority() >= class.priority());
        self.waiting.insert(place, WaitingTask { task, class, left: ROUND_ROBIN_NS });
    }

    /// Before its equals.
    fn enqueue_first(&mut self, task: T, class: Class, left: u64) {
        let place = self.waiting.partition_point(|other| other.class.priority() > class.priority());
        self.waiting.insert(place, WaitingTask { task, class, left });
    }

    /// A waiting task has this class from now on. Lowered inside the class, it comes first of its new equals; raised, or
    /// come into the class, last (man 7 sched).
    pub fn change(&mut self, task: T, was: Class, class: Class) {
        if was.priority() <= class.priority() {
            return self.enqueue(task, class);
        }
        self.enqueue_first(task, class, ROUND_ROBIN_NS);
    }

    pub fn next(&mut self) -> Option<(T, Class)> {
        let WaitingTask { task, class, left } = self.waiting.pop_front()?;
        self.running = Some(Running { class, left });
        Some((task, class))
    }

    pub fn charge(&mut self, ns: u64) {
        if let Some(running) = &mut self.running {
            running.left = running.left.saturating_sub(ns);
            self.used += ns;
        }
    }

    fn highest(&self) -> u8 {
        self.waiting.front().and_then(|first| first.class.priority()).unwrap_or(0)
    }

    pub fn must_switch(&self) -> bool {
        let Some(running) = &self.running else { return false };
        let priority = running.class.priority().unwrap_or(1);
        let turn_over = matches!(running.class, Class::RoundRobin(_)) && running.left == 0;
        self.highest() > priority || turn_over && self.highest() == priority
    }

    /// How much longer the running task may have the CPU; None: as long as it likes. `others`: the other class
    /// waits.
    pub fn remaining(&self, others: bool) -> Option<u64> {
        let running = self.running.as_ref()?;
        let rotates = matches!(running.class, Class::RoundRobin(_)) && running.class.priority() == Some(self.highest());
        let turn = if rotates { running.left } else { u64::MAX };
        let throttle = if others { RUNTIME_NS.saturating_sub(self.used) } else { u64::MAX };
        Some(turn.min(throttle)).filter(|&ns| ns < u64::MAX)
    }

    /// The running task waits again: first of its priority if it was interrupted, last if it yields or its
    /// turn is over, or (man 7 sched) its priority was raised.
    pub fn put_back(&mut self, task: T, class: Class, yields: bool) {
        let Some(Running { class: was, left }) = self.running.take() else { return self.enqueue(task, class) };
        let turn_over = matches!(class, Class::RoundRobin(_)) && left == 0;
        let raised = class.priority() > was.priority();
        if yields || turn_over || raised {
            return self.enqueue(task, class);
        }
        self.enqueue_first(task, class, left);
    }

    /// The running task has come into this class.
    pub fn adopt(&mut self, class: Class) {
        self.running = Some(Running { class, left: ROUND_ROBIN_NS });
    }

    pub fn take_running(&mut self) {
        self.running = None;
    }

    /// Takes out the most urgent waiting task that `wanted` accepts.
    pub fn remove(&mut self, mut wanted: impl FnMut(&T) -> bool) -> Option<(T, Class)> {
        let place = self.waiting.iter().position(|waiting| wanted(&waiting.task))?;
        let taken = self.waiting.remove(place);
        taken.map(|waiting| (waiting.task, waiting.class))
    }
}
