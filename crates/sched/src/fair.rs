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
//! Deciding costs a walk over those with earlier deadlines that are not eligible; queues are short, for they
//! are one CPU's.

use crate::class::{Class, UNIT};
use alloc::collections::BTreeMap;

/// What a task asks for each time, in ns: how long it runs while others wait for its CPU.
pub const SLICE_NS: u64 = 3_000_000;
/// A task that has just begun is not interrupted for another of its class before this (ns).
const GRANULARITY_NS: u64 = 750_000;
/// No task is owed, or owes, more than this of virtual time.
const MOST_LAG: i64 = 2 * SLICE_NS as i64;

/// Virtual time that `ns` of CPU are for a task of this weight.
fn virtual_time(ns: u64, weight: u32) -> i64 {
    (u128::from(ns) * u128::from(UNIT) / u128::from(weight)).min(i64::MAX as u128 / 4) as i64
}

/// What a task is owed after it has slept so long: what it owes is forgiven with time.
pub(crate) fn lag_after(lag: i64, slept: u64) -> i64 {
    match lag < 0 {
        true => lag.saturating_add(slept.min(MOST_LAG as u64) as i64).min(0),
        false => lag,
    }
}

struct Waiting<T> {
    task: T,
    class: Class,
    v: i64,
}

struct Running {
    class: Class,
    v: i64,
    deadline: i64,
    /// CPU time since it was chosen, ns.
    ran: u64,
    /// What is left of the last division: heavy tasks are charged less than one at a time.
    rest: u128,
    /// Its slice is used up.
    exhausted: bool,
}

/// By deadline, then in order of arrival.
type Key = (i64, u64);

pub(crate) struct Fair<T> {
    waiting: BTreeMap<Key, Waiting<T>>,
    running: Option<Running>,
    /// Sum of weights, and of weight * v, of all above.
    weight: i128,
    sum: i128,
    /// V of the last moment when somebody was here.
    last: i64,
    serial: u64,
    /// The one that ran last and has not used up its slice.
    resuming: Option<Key>,
    /// Somebody has come whose turn it is before the one that runs.
    preempt: bool,
}

impl<T> Default for Fair<T> {
    fn default() -> Self {
        Fair {
            waiting: BTreeMap::new(),
            running: None,
            weight: 0,
            sum: 0,
            last: 0,
            serial: 0,
            resuming: None,
            preempt: false,
        }
    }
}

impl<T> Fair<T> {
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// V: where all would stand if they had been served perfectly.
    fn mean(&self) -> i64 {
        match self.weight {
            0 => self.last,
            weight => self.sum.div_euclid(weight) as i64,
        }
    }

    fn is_eligible(&self, v: i64) -> bool {
        i128::from(v) * self.weight <= self.sum
    }

    fn count(&mut self, class: Class, v: i64) {
        self.weight += i128::from(class.weight());
        self.sum += i128::from(class.weight()) * i128::from(v);
    }

    fn uncount(&mut self, class: Class, v: i64) {
        self.last = self.mean();
        self.weight -= i128::from(class.weight());
        self.sum -= i128::from(class.weight()) * i128::from(v);
    }

    fn wait(&mut self, task: T, class: Class, v: i64, deadline: i64) -> Key {
        self.serial += 1;
        let key = (deadline, self.serial);
        self.waiting.insert(key, Waiting { task, class, v });
        key
    }

    /// A task has woken (or comes from another CPU) that was owed `lag`.
    pub fn enqueue(&mut self, task: T, class: Class, lag: i64) {
        let weight = i128::from(class.weight());
        // Its coming moves V towards it, so it must stand further off to be owed the same afterwards.
        let others = self.weight.max(1);
        let lag = i128::from(lag.clamp(-MOST_LAG, MOST_LAG));
        let distance = if self.weight == 0 { lag } else { lag * (others + weight) / others };
        let v = self.mean() - distance.clamp(-(1 << 60), 1 << 60) as i64;
        let deadline = v.saturating_add(virtual_time(SLICE_NS, class.weight()));
        self.count(class, v);
        self.wait(task, class, v, deadline);
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
    }

    /// Who runs next.
    pub fn next(&mut self) -> Option<(T, Class)> {
        let resuming = self.resuming.take().filter(|key| !self.preempt && self.waiting.contains_key(key));
        let first = || self.waiting.iter().find(|(_, task)| self.is_eligible(task.v)).map(|(key, _)| *key);
        // Rounding can make nobody eligible.
        let key = resuming.or_else(first).or_else(|| self.waiting.keys().next().copied())?;
        let Waiting { task, class, v } = self.waiting.remove(&key)?;
        self.preempt = false;
        self.running = Some(Running { class, v, deadline: key.0, ran: 0, rest: 0, exhausted: false });
        Some((task, class))
    }

    /// The running task has used `ns` more.
    pub fn charge(&mut self, ns: u64) {
        let Some(running) = &mut self.running else { return };
        let weight = running.class.weight();
        let due = u128::from(ns) * u128::from(UNIT) + running.rest;
        let step = (due / u128::from(weight)) as i64;
        running.rest = due % u128::from(weight);
        running.v += step;
        running.ran += ns;
        self.sum += i128::from(weight) * i128::from(step);
        if running.v >= running.deadline {
            running.deadline = running.v + virtual_time(SLICE_NS, weight);
            // Alone it may use one slice after the other.
            running.exhausted |= !self.waiting.is_empty();
        }
    }

    /// Is it another's turn? After [`Fair::charge`].
    pub fn must_switch(&self) -> bool {
        let Some(running) = &self.running else { return false };
        let interrupted = self.preempt && (running.ran >= GRANULARITY_NS || running.class == Class::Idle);
        !self.waiting.is_empty() && (running.exhausted || interrupted)
    }

    /// How much longer the running task may have the CPU, in ns; None: as long as it likes.
    pub fn remaining(&self) -> Option<u64> {
        let running = self.running.as_ref().filter(|_| !self.waiting.is_empty())?;
        let weight = u128::from(running.class.weight());
        let slice = ((running.deadline - running.v).max(0) as u128 * weight).div_ceil(u128::from(UNIT));
        let interruption = match self.preempt {
            true => u128::from(GRANULARITY_NS.saturating_sub(running.ran)),
            false => u128::MAX,
        };
        Some(slice.min(interruption).min(u128::from(u64::MAX)) as u64)
    }

    /// The running task waits again. `yields`: by sched_yield, which gives up the rest of its slice.
    pub fn put_back(&mut self, task: T, class: Class, yields: bool) {
        let Some(Running { class: was, mut v, mut deadline, exhausted, .. }) = self.running.take() else {
            return self.enqueue(task, class, 0);
        };
        self.uncount(was, v);
        let slice = virtual_time(SLICE_NS, class.weight());
        if class != was {
            deadline = v + slice;
        }
        if yields && !self.waiting.is_empty() {
            // As Linux since 6.18: otherwise a task that yields in a loop would be chosen again and again.
            v = v.max(deadline);
            deadline = v + slice;
        }
        self.count(class, v);
        let key = self.wait(task, class, v, deadline);
        self.resuming = (!exhausted && !yields).then_some(key);
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
        let key = *self.waiting.iter().find(|(_, waiting)| wanted(&waiting.task))?.0;
        let Waiting { task, class, v } = self.waiting.remove(&key)?;
        let lag = self.mean() - v;
        self.uncount(class, v);
        Some((task, class, lag.clamp(-MOST_LAG, MOST_LAG)))
    }
}
