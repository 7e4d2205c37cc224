//! The fair class of one CPU: earliest eligible virtual deadline first (Stoica and Abdel-Wahab 1995; Linux
//! since 6.6).
//!
//! Problem: tasks are to get CPU time in proportion to their weights, and one that needs the CPU seldom and
//! briefly is not to wait for all the others each time.
//!
//! Idea: every task has a virtual time `v`, which runs faster for light tasks: after d ns, by d * 1024 / weight.
//! If all were served perfectly they would be equal; the weighted mean V is what they would be. A task with
//! v <= V has had at most its share: it is *eligible*. Of those the one runs whose *deadline* is first; the
//! deadline is where its v is to be after its next slice. So nobody who has had too much is chosen, and of those
//! who have not, the one that asked first.
//!
//! ```text
//!            v=1   V=2      v=4              A is eligible, though B's deadline is earlier: A runs
//!   A         |-----+--------|------> 7      (after its slice A stands at 4, V at 4: B, which has
//!   B               |        |--> 5           not moved, is eligible, and its 5 is before A's 7)
//! ```
//!
//! What a task that sleeps was owed (its *lag*, V - v) it finds again when it wakes, so neither sleeping nor
//! moving to another CPU gains anything. What it owes is forgiven with the time it sleeps.
//!
//! Deciding costs a walk over those with earlier deadlines that are not eligible, and coming a move of those behind: queues are
//! short, for they are one CPU's.

use crate::class::{Class, UNIT};
use alloc::vec::Vec;

/// What a task asks for each time, in ns: how long it runs while others wait for its CPU.
pub const SLICE_NS: u64 = 3_000_000;
/// A task that has just begun is not interrupted for another of its class before this (ns).
const GRANULARITY_NS: u64 = 750_000;
/// No task is owed, or owes, more than this of virtual time.
const MOST_LAG: i64 = 2 * SLICE_NS as i64;
/// A time that is charged at once is less: 104 days, so that it fits into a word as 1024ths of a nanosecond.
const MOST_NS: u64 = 1 << 53;

/// Virtual time that `ns` of CPU are for a task of this weight.
fn virtual_time(ns: u64, weight: u32) -> i64 {
    (ns.min(MOST_NS) * u64::from(UNIT) / u64::from(weight)) as i64
}

/// What a task is owed after it has slept so long: what it owes is forgiven with time.
pub(crate) fn lag_after(lag: i64, slept: u64) -> i64 {
    match lag < 0 {
        true => lag.saturating_add(slept.min(MOST_LAG as u64) as i64).min(0),
        false => lag,
    }
}

struct WaitingTask<T> {
    task: T,
    class: Class,
    v: i64,
    deadline: i64,
}

struct Running {
    class: Class,
    v: i64,
    deadline: i64,
    /// CPU time since it was chosen, ns.
    ran: u64,
    /// What is left of the last division: heavy tasks are charged less than one at a time.
    rest: u64,
    /// Its slice is used up.
    exhausted: bool,
}

pub(crate) struct Fair<T> {
    /// By deadline, the first at the end; of the same deadline who came first.
    waiting: Vec<WaitingTask<T>>,
    running: Option<Running>,
    /// Sum of all weights, and of weight * (v - base). `base` follows V, so that the sum stays small.
    weight: i64,
    sum: i128,
    base: i64,
    /// The one that ran last and has not used up its slice. It waits, too.
    resuming: Option<WaitingTask<T>>,
    /// Somebody has come whose turn it is before the one that runs.
    preempt: bool,
}

impl<T> Default for Fair<T> {
    fn default() -> Self {
        Fair { waiting: Vec::new(), running: None, weight: 0, sum: 0, base: 0, resuming: None, preempt: false }
    }
}

impl<T> Fair<T> {
    pub fn len(&self) -> usize {
        self.waiting.len() + usize::from(self.resuming.is_some())
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// V: where all would stand if they had been served perfectly.
    fn mean(&mut self) -> i64 {
        if self.weight != 0 {
            // A division of 128 bits costs as much as all else here, and is needed only after very long times.
            let step = match i64::try_from(self.sum) {
                Ok(sum) => sum.div_euclid(self.weight),
                Err(_) => self.sum.div_euclid(self.weight.into()) as i64,
            };
            self.base += step;
            self.sum -= i128::from(step) * i128::from(self.weight);
        }
        self.base
    }

    fn is_eligible(&self, v: i64) -> bool {
        i128::from(v - self.base) * i128::from(self.weight) <= self.sum
    }

    fn count(&mut self, class: Class, v: i64) {
        self.weight += i64::from(class.weight());
        self.sum += i128::from(class.weight()) * i128::from(v - self.base);
    }

    fn uncount(&mut self, class: Class, v: i64) {
        // The last one leaves V where it was.
        self.mean();
        self.weight -= i64::from(class.weight());
        self.sum -= i128::from(class.weight()) * i128::from(v - self.base);
        if self.weight == 0 {
            self.sum = 0;
        }
    }

    fn wait(&mut self, waiting: WaitingTask<T>) {
        let place = self.waiting.partition_point(|other| other.deadline > waiting.deadline);
        self.waiting.insert(place, waiting);
    }

    /// A task has woken (or comes from another CPU) that was owed `lag`. True if its turn is before that of the one that runs, as
    /// nobody's was until now.
    pub fn enqueue(&mut self, task: T, class: Class, lag: i64) -> bool {
        let lag = lag.clamp(-MOST_LAG, MOST_LAG);
        // Its coming moves V towards it, so it must stand further off to be owed the same afterwards.
        let distance = match self.weight {
            0 => lag,
            others => lag * (others + i64::from(class.weight())) / others,
        };
        let v = self.mean() - distance;
        let deadline = v + virtual_time(SLICE_NS, class.weight());
        self.count(class, v);
        self.wait(WaitingTask { task, class, v, deadline });
        let before = self.preempt;
        if let Some(running) = &self.running {
            let urgent = match (class, running.class) {
                (Class::Idle, _) => false,
                (_, Class::Idle) => true,
                // Batch tasks never interrupt.
                (Class::Batch(_), _) => false,
                _ => deadline < running.deadline && self.is_eligible(v),
            };
            self.preempt |= urgent;
        }
        self.preempt && !before
    }

    /// Who runs next.
    pub fn next(&mut self) -> Option<(T, Class)> {
        let next = match self.resuming.take() {
            Some(resuming) if !self.preempt => resuming,
            resuming => {
                resuming.into_iter().for_each(|waiting| self.wait(waiting));
                let eligible = self.waiting.iter().rposition(|waiting| self.is_eligible(waiting.v));
                // Rounding can make nobody eligible.
                self.waiting.remove(eligible.or(self.waiting.len().checked_sub(1))?)
            }
        };
        let WaitingTask { task, class, v, deadline } = next;
        self.preempt = false;
        self.running = Some(Running { class, v, deadline, ran: 0, rest: 0, exhausted: false });
        Some((task, class))
    }

    /// The running task has used `ns` more.
    pub fn charge(&mut self, ns: u64) {
        let alone = self.is_empty();
        let Some(running) = &mut self.running else { return };
        let weight = running.class.weight();
        let due = ns.min(MOST_NS) * u64::from(UNIT) + running.rest;
        let step = (due / u64::from(weight)) as i64;
        running.rest = due % u64::from(weight);
        running.v += step;
        running.ran += ns;
        self.sum += i128::from(weight) * i128::from(step);
        if running.v >= running.deadline {
            running.deadline = running.v + virtual_time(SLICE_NS, weight);
            // Alone it may use one slice after the other.
            running.exhausted |= !alone;
        }
    }

    /// Is it another's turn? After [`Fair::charge`].
    pub fn must_switch(&self) -> bool {
        let Some(running) = &self.running else { return false };
        let interrupted = self.preempt && (running.ran >= GRANULARITY_NS || running.class == Class::Idle);
        !self.is_empty() && (running.exhausted || interrupted)
    }

    /// How much longer the running task may have the CPU, in ns; None: as long as it likes.
    pub fn remaining(&self) -> Option<u64> {
        let running = self.running.as_ref().filter(|_| !self.is_empty())?;
        let left = (running.deadline - running.v).max(0) as u64;
        let slice = left.saturating_mul(running.class.weight().into()).div_ceil(UNIT.into());
        let interruption = match self.preempt {
            true => GRANULARITY_NS.saturating_sub(running.ran),
            false => u64::MAX,
        };
        Some(slice.min(interruption))
    }

    /// The running task waits again. `yields`: by sched_yield, which gives up the rest of its slice.
    pub fn put_back(&mut self, task: T, class: Class, yields: bool) {
        let Some(Running { class: was, mut v, mut deadline, exhausted, .. }) = self.running.take() else {
            self.enqueue(task, class, 0);
            return;
        };
        self.uncount(was, v);
        let slice = virtual_time(SLICE_NS, class.weight());
        if class != was {
            deadline = v + slice;
        }
        if yields && !self.is_empty() {
            // As Linux since 6.18: otherwise a task that yields in a loop would be chosen again and again.
            v = v.max(deadline);
            deadline = v + slice;
        }
        self.count(class, v);
        let waiting = WaitingTask { task, class, v, deadline };
        if exhausted || yields {
            return self.wait(waiting);
        }
        // There is one already if this one came into the class while it ran.
        if let Some(earlier) = self.resuming.replace(waiting) {
            self.wait(earlier);
        }
    }

    /// The running task has come into this class, owed `lag`.
    pub fn adopt(&mut self, class: Class, lag: i64) {
        let v = self.mean() - lag;
        self.count(class, v);
        let deadline = v + virtual_time(SLICE_NS, class.weight());
        self.running = Some(Running { class, v, deadline, ran: 0, rest: 0, exhausted: false });
    }

    /// The running task sleeps, ends or goes elsewhere: what it is owed.
    pub fn take_running(&mut self) -> i64 {
        let Some(running) = self.running.take() else { return 0 };
        let lag = self.mean() - running.v;
        self.uncount(running.class, running.v);
        lag.clamp(-MOST_LAG, MOST_LAG)
    }

    /// Takes out the first waiting task that `wanted` accepts, with what it is owed.
    pub fn remove(&mut self, mut wanted: impl FnMut(&T) -> bool) -> Option<(T, Class, i64)> {
        let waiting = match self.waiting.iter().rposition(|waiting| wanted(&waiting.task)) {
            Some(place) => self.waiting.remove(place),
            None => self.resuming.take_if(|resuming| wanted(&resuming.task))?,
        };
        let lag = self.mean() - waiting.v;
        self.uncount(waiting.class, waiting.v);
        Some((waiting.task, waiting.class, lag.clamp(-MOST_LAG, MOST_LAG)))
    }
}
