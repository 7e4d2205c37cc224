//! The deadline class of one CPU (SCHED_DEADLINE; man 7 sched; sched-deadline.rst of Linux): a task has reserved so much run time in each period, to be had
//! by a deadline, and of those that wait the one runs whose deadline is first (Liu and Layland 1973).
//!
//! Problem: one that computes for longer than it said must not make the others miss their deadlines.
//!
//! Idea: a budget (the constant bandwidth server of Abeni and Buttazzo 1998). Running uses it up. Who has none left is *throttled*: it waits until its next period begins,
//! and has a new budget and a later deadline then. Who wakes keeps what it had, if it can't use more of the CPU with it until its deadline than it has reserved; else it gets
//! a new budget and a deadline that is counted from now.
//!
//! ```text
//!   reserved: 2 of each 6            computes for 3
//!   |==  ......|=         |          =: runs  .: throttled
//!   0    2     6          12
//! ```

use alloc::vec::Vec;

/// Who was chosen runs for so long (ns), even if less is left of its budget: else it might never come as far as its program. What that is too much is missing in later periods.
const GRANULARITY_NS: u64 = 100_000;

/// What a task has reserved (man 2 sched_setattr), in ns: `runtime` <= `deadline` <= `period`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reservation {
    /// It may run for so long in each period.
    pub runtime: u64,
    /// By so long after the beginning of the period it is to have had that.
    pub deadline: u64,
    /// From the beginning of one period to that of the next.
    pub period: u64,
}

/// What is left of a reservation, and when it must have been had. Of a task that never ran: nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Budget {
    pub left: i64,
    pub due: u64,
}

impl Reservation {
    fn new_budget(self, now: u64) -> Budget {
        Budget { left: self.runtime as i64, due: now.saturating_add(self.deadline) }
    }

    /// When the period after the one that ends with this budget begins.
    fn next_period(self, budget: Budget) -> u64 {
        budget.due.saturating_sub(self.deadline).saturating_add(self.period)
    }

    /// The budget of a task that wakes. If nothing is left of it, the task waits until the next period.
    fn wake(self, budget: Budget, now: u64) -> Budget {
        if budget == Budget::default() {
            return self.new_budget(now);
        }
        let is_constrained = self.deadline < self.period;
        let Budget { left, due } = budget;
        if is_constrained && due < now && now < self.next_period(budget) {
            // Its deadline has passed, and its next period has not begun: it would have more than it has reserved.
            return Budget { left: left.min(0), due };
        }
        if due < now {
            return self.new_budget(now);
        }
        let laxity = u128::from(due - now);
        let too_much = left.max(0) as u128 * u128::from(self.deadline) > laxity * u128::from(self.runtime);
        match (too_much, is_constrained) {
            (false, _) => budget,
            (true, false) => self.new_budget(now),
            (true, true) => {
                let left = laxity * u128::from(self.runtime) / u128::from(self.deadline.max(1));
                Budget { left: left as i64, due }
            }
        }
    }

    /// The budget of a task that goes on elsewhere, or has reserved something else: what it has.
    fn keep(self, budget: Budget, now: u64) -> Budget {
        match budget == Budget::default() {
            true => self.new_budget(now),
            false => Budget { left: budget.left.min(self.runtime as i64), due: budget.due },
        }
    }

    /// The budget when the next period has begun; of a task that ran for too long so many periods later.
    fn replenish(self, budget: Budget, now: u64) -> Budget {
        let runtime = self.runtime.max(1) as i64;
        let periods = match budget.left {
            1.. => 0,
            left => left.saturating_neg() / runtime + 1,
        };
        let left = budget.left.saturating_add(periods.saturating_mul(runtime));
        let due = budget.due.saturating_add(self.period.saturating_mul(periods as u64));
        match due < now {
            true => self.new_budget(now),
            false => Budget { left, due },
        }
    }
}

struct WaitingTask<T> {
    task: T,
    reservation: Reservation,
    budget: Budget,
}

pub(crate) struct Deadline<T> {
    /// By deadline, the first at the end; of equals who came first.
    waiting: Vec<WaitingTask<T>>,
    /// By when they have a budget again, the first at the end.
    throttled: Vec<(u64, WaitingTask<T>)>,
    /// The budget of the one that runs, and for how long it has run since it was chosen.
    running: Option<(Budget, u64)>,
}

impl<T> Default for Deadline<T> {
    fn default() -> Self {
        Deadline { waiting: Vec::new(), throttled: Vec::new(), running: None }
    }
}

impl<T> Deadline<T> {
    /// The deadline that is first among those that wait.
    pub fn first_due(&self) -> Option<u64> {
        self.waiting.last().map(|first| first.budget.due)
    }

    /// Those that wait for the CPU. Who is throttled waits for time to pass.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// The deadline of the one that runs.
    pub fn running_due(&self) -> Option<u64> {
        self.running.map(|(budget, _)| budget.due)
    }

    /// A task has become runnable (`wakes`), or comes from another CPU or class.
    pub fn enqueue(&mut self, task: T, reservation: Reservation, (budget, wakes): (Budget, bool), now: u64) {
        let budget = if wakes { reservation.wake(budget, now) } else { reservation.keep(budget, now) };
        let waiting = WaitingTask { task, reservation, budget };
        match budget.left > 0 {
            true => self.wait(waiting, false),
            false => self.throttle(waiting, now),
        }
    }

    /// Behind its equals, or before them.
    fn wait(&mut self, waiting: WaitingTask<T>, first: bool) {
        let due = waiting.budget.due;
        let place = self.waiting.partition_point(|other| match first {
            true => other.budget.due >= due,
            false => other.budget.due > due,
        });
        self.waiting.insert(place, waiting);
    }

    fn throttle(&mut self, mut waiting: WaitingTask<T>, now: u64) {
        let until = waiting.reservation.next_period(waiting.budget);
        if until <= now {
            waiting.budget = waiting.reservation.replenish(waiting.budget, now);
            return self.wait(waiting, false);
        }
        let place = self.throttled.partition_point(|(other, _)| *other > until);
        self.throttled.insert(place, (until, waiting));
    }

    /// Those whose next period has begun wait for the CPU again.
    pub fn replenish(&mut self, now: u64) {
        while let Some((_, mut waiting)) = self.throttled.pop_if(|(until, _)| *until <= now) {
            waiting.budget = waiting.reservation.replenish(waiting.budget, now);
            self.wait(waiting, false);
        }
    }

    /// When [`Deadline::replenish`] has something to do.
    pub fn next_replenishment(&self) -> Option<u64> {
        self.throttled.last().map(|(until, _)| *until)
    }

    pub fn next(&mut self) -> Option<(T, Reservation)> {
        let WaitingTask { task, reservation, budget } = self.waiting.pop()?;
        self.running = Some((budget, 0));
        Some((task, reservation))
    }

    pub fn charge(&mut self, ns: u64) {
        if let Some((budget, ran)) = &mut self.running {
            budget.left = budget.left.saturating_sub_unsigned(ns);
            *ran = ran.saturating_add(ns);
        }
    }

    pub fn must_switch(&self) -> bool {
        let first = self.first_due().unwrap_or(u64::MAX);
        let is_over = |(budget, ran): (Budget, u64)| budget.left <= 0 && ran >= GRANULARITY_NS || first < budget.due;
        self.running.is_some_and(is_over)
    }

    /// How much longer the running task may have the CPU.
    pub fn remaining(&self) -> Option<u64> {
        self.running.map(|(budget, ran)| (budget.left.max(0) as u64).max(GRANULARITY_NS.saturating_sub(ran)))
    }

    /// The running task waits again, or, if it `yields` or its budget is used up, until its next period. True: it is used up.
    pub fn put_back(&mut self, task: T, reservation: Reservation, yields: bool, now: u64) -> bool {
        let Some((mut budget, _)) = self.running.take() else {
            self.enqueue(task, reservation, (Budget::default(), false), now);
            return false;
        };
        let is_used_up = budget.left <= 0;
        if yields {
            budget.left = budget.left.min(0);
        }
        let waiting = WaitingTask { task, reservation, budget };
        match is_used_up || yields {
            true => self.throttle(waiting, now),
            false => self.wait(waiting, true),
        }
        is_used_up
    }

    /// The running task has come into this class, or has reserved something else.
    pub fn adopt(&mut self, reservation: Reservation, budget: Budget, now: u64) {
        self.running = Some((reservation.keep(budget, now), 0));
    }

    /// The running task sleeps, ends or goes elsewhere: what it has left.
    pub fn take_running(&mut self) -> Budget {
        self.running.take().unwrap_or_default().0
    }

    /// Takes out the most urgent waiting task that `wanted` accepts.
    pub fn remove(&mut self, mut wanted: impl FnMut(&T) -> bool) -> Option<(T, Reservation, Budget)> {
        let place = self.waiting.iter().rposition(|waiting| wanted(&waiting.task))?;
        let WaitingTask { task, reservation, budget } = self.waiting.remove(place);
        Some((task, reservation, budget))
    }

    /// The same of those that are throttled.
    pub fn remove_throttled(&mut self, mut wanted: impl FnMut(&T) -> bool) -> Option<(T, Reservation, Budget)> {
        let place = self.throttled.iter().rposition(|(_, waiting)| wanted(&waiting.task))?;
        let WaitingTask { task, reservation, budget } = self.throttled.remove(place).1;
        Some((task, reservation, budget))
    }
}
