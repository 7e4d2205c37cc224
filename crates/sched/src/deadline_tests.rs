//! The deadline class under a clock of its own: deadlines are met, and nobody gets more than he has reserved.

use crate::{
    class::Class::*,
    deadline::Reservation,
    queue::{Kept, Queue},
    tests::{hog, Behaviour, Machine, MS, SECOND},
};
use alloc::{vec, vec::Vec};

fn reserve(runtime: u64, deadline: u64, period: u64) -> Reservation {
    Reservation { runtime: runtime * MS, deadline: deadline * MS, period: period * MS }
}

struct Random(u64);

impl Random {
    /// From `low` to `high`.
    fn within(&mut self, low: u64, high: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        low + (self.0 >> 33) % (high - low + 1)
    }
}

#[test]
fn who_computes_for_longer_than_reserved_gets_what_is_reserved() {
    let reserved = Deadline(reserve(2, 6, 6));
    for others in [vec![], vec![hog(Normal(-20))], vec![hog(Fifo(99)), hog(Normal(0))]] {
        let tasks: Vec<Behaviour> = [hog(reserved)].into_iter().chain(others.clone()).collect();
        let mut machine = Machine::new(&tasks);
        machine.run(6 * SECOND);
        assert_eq!(machine.used[0] / MS, 2000, "beside {}", others.len());
        if others.len() == 1 {
            assert_eq!(machine.used[1] / MS, 4000, "the rest is the other's");
        }
    }
}

/// Its program goes on, though seldom.
#[test]
fn a_budget_that_is_too_small_is_saved_up() {
    let class = Deadline(Reservation { runtime: 1024, deadline: MS, period: MS });
    let mut machine = Machine::new(&[hog(class), hog(Normal(0))]);
    machine.run(10 * SECOND);
    assert!((9_000_000..11_000_000).contains(&machine.used[0]), "{} ns of 10 s", machine.used[0]);
}

/// Whoever sleeps for some time in between, and whatever else he computes.
#[test]
fn sleeping_gains_nothing() {
    let mut random = Random(1);
    for _ in 0..300 {
        let period = random.within(4, 40);
        let deadline = random.within(2, period);
        let runtime = random.within(1, deadline.min(period / 2));
        let (burst, sleep) = (random.within(1, 3 * runtime * MS), random.within(1, 2 * period * MS));
        let class = Deadline(reserve(runtime, deadline, period));
        let mut machine = Machine::new(&[Behaviour { class, burst, sleep }, hog(Normal(0))]);
        machine.run(2 * SECOND);
        // What is left over from one period and what comes early of another.
        let most = 2 * SECOND / period * runtime + 2 * runtime * MS;
        assert!(machine.used[0] <= most, "{runtime}/{deadline}/{period}, {burst} and {sleep}: {}", machine.used[0]);
    }
}

/// A task that gets work at the beginning of each of its periods.
struct Periodic {
    reservation: Reservation,
    kept: Kept,
    next_release: u64,
    /// What is left of the work, and by when it must be done.
    job: Option<(u64, u64)>,
}

/// Random sets of tasks that use at most the whole CPU, beside one that computes for ever with what is left, and threads of the other classes.
#[test]
fn all_deadlines_are_met() {
    for seed in 0..200 {
        let mut random = Random(seed);
        let mut tasks: Vec<Periodic> = Vec::new();
        let (mut queue, mut left) = (Queue::<usize>::default(), 1000);
        while tasks.len() < 6 && left > 100 {
            let period = random.within(2, 60);
            let share = random.within(50, left - 20);
            // In thousandths of the period.
            let runtime = period * MS * share / 1000;
            left -= share;
            let reservation = Reservation { runtime, deadline: period * MS, period: period * MS };
            let next_release = random.within(0, period) * MS;
            tasks.push(Periodic { reservation, kept: Kept::default(), next_release, job: None });
        }
        let (greedy, fair, urgent) = (tasks.len(), tasks.len() + 1, tasks.len() + 2);
        let rest = Reservation { runtime: (left - 5) * MS / 20, deadline: 50 * MS, period: 50 * MS };
        queue.enqueue(greedy, Deadline(rest), Kept::default(), 0);
        queue.enqueue(fair, Normal(0), Kept::default(), 0);
        queue.enqueue(urgent, Fifo(50), Kept::default(), 0);
        let class = |tasks: &[Periodic], task: usize| match task {
            _ if task == greedy => Deadline(rest),
            _ if task == fair => Normal(0),
            _ if task == urgent => Fifo(50),
            _ => Deadline(tasks[task].reservation),
        };
        let (mut now, mut running) = (0, None::<usize>);
        while now < SECOND {
            for (name, task) in tasks.iter_mut().enumerate().filter(|(_, task)| task.next_release <= now) {
                let due = task.next_release + task.reservation.period;
                assert_eq!(task.job, None, "seed {seed}: {name} has not finished by {now}");
                task.job = Some((task.reservation.runtime, due));
                task.next_release = due;
                queue.enqueue(name, Deadline(task.reservation), Kept { wakes: true, ..task.kept }, now);
            }
            if let Some(task) = running.take_if(|_| queue.must_switch(now, false)) {
                queue.put_back(task, class(&tasks, task), now);
            }
            let task = *running.get_or_insert_with(|| queue.next(now).expect("two never sleep").0);
            let release = tasks.iter().map(|task| task.next_release).min().unwrap_or(u64::MAX);
            let look = queue.deadline(false).unwrap_or(u64::MAX).min(release).max(now + 1);
            let Some(Periodic { job: Some((work, due)), kept, .. }) = tasks.get_mut(task) else {
                now = look;
                continue;
            };
            let ran = (*work).min(look - now);
            (now, *work) = (now + ran, *work - ran);
            if *work == 0 {
                // Rounding to whole nanoseconds.
                assert!(now <= *due + 10, "seed {seed}: {task} is done at {now}, which was due at {due}");
                *kept = queue.block(now);
                tasks[task].job = None;
                running = None;
            }
        }
    }
}

#[test]
fn who_yields_has_the_next_budget_in_the_next_period() {
    let mut queue = Queue::default();
    let class = Deadline(reserve(5, 10, 10));
    queue.enqueue("a", class, Kept::default(), 0);
    assert_eq!(queue.next(0).unwrap().0, "a");
    queue.ask_yield();
    assert!(!queue.put_back("a", class, MS), "it has not used up what it had");
    assert_eq!((queue.next(9 * MS), queue.threads(), queue.next_replenishment()), (None, 0, Some(10 * MS)));
    assert_eq!(queue.next(10 * MS).unwrap().0, "a");
    assert_eq!(queue.deadline(false), Some(15 * MS), "a whole budget");
    assert!(!queue.must_switch(14 * MS, false));
    assert!(queue.must_switch(15 * MS, false) && queue.put_back("a", class, 15 * MS), "used up");
}

#[test]
fn another_class_is_found_and_left_also_while_throttled() {
    let mut queue = Queue::default();
    let class = Deadline(reserve(1, 10, 10));
    queue.enqueue("a", class, Kept::default(), 0);
    queue.next(0);
    assert!(queue.put_back("a", class, 2 * MS));
    assert_eq!(queue.next(3 * MS), None);
    assert!(queue.change_waiting(|task| *task == "a", Normal(0), 3 * MS));
    assert_eq!(queue.next(3 * MS).unwrap(), ("a", Normal(0)));
    queue.name_running(7);
    queue.change_running(7, class, 4 * MS);
    assert_eq!(queue.deadline(false), Some(5 * MS), "it runs on with a budget");
    // A class that changes on the way into the queue.
    queue.put_back("a", Fifo(1), 4 * MS);
    assert_eq!(queue.next(4 * MS).unwrap(), ("a", Fifo(1)));
    queue.put_back("a", class, 5 * MS);
    assert!(matches!(queue.next(5 * MS), Some(("a", Deadline(_)))));
}

/// Also of one whose deadline has passed, or that has used little for long.
#[test]
fn who_goes_to_another_queue_or_is_changed_keeps_budget_and_deadline() {
    for (deadline, period) in [(100, 100), (100, 200)] {
        let class = Deadline(reserve(30, deadline, period));
        let mut queue = Queue::default();
        queue.enqueue("a", class, Kept::default(), 0);
        for now in [60 * MS, 99 * MS, 110 * MS] {
            let (task, class, kept) = queue.remove(|_| true, now).unwrap();
            queue.enqueue(task, class, kept, now);
            assert!(queue.change_waiting(|_| true, class, now));
            assert_eq!((queue.first_due(), queue.next_replenishment()), (Some(100 * MS), None));
        }
        queue.next(110 * MS);
        queue.name_running(3);
        queue.change_running(3, class, 115 * MS);
        assert_eq!((queue.due(), queue.deadline(false)), (Some(100 * MS), Some(140 * MS)));
    }
}

#[test]
fn the_first_deadline_goes_first_and_before_all_priorities() {
    let mut queue = Queue::default();
    queue.enqueue("fifo", Fifo(99), Kept::default(), 0);
    assert_eq!(queue.next(0).unwrap().0, "fifo");
    queue.enqueue("late", Deadline(reserve(5, 50, 50)), Kept::default(), 0);
    assert!(queue.must_switch(0, false));
    queue.put_back("fifo", Fifo(99), 0);
    assert_eq!(queue.next(0).unwrap().0, "late");
    queue.enqueue("early", Deadline(reserve(5, 20, 20)), Kept::default(), MS);
    assert!(queue.must_switch(MS, false));
    queue.put_back("late", Deadline(reserve(5, 50, 50)), MS);
    assert_eq!(queue.next(MS).unwrap().0, "early");
    queue.block(2 * MS);
    assert_eq!(queue.next(2 * MS).unwrap().0, "late");
    assert_eq!(queue.deadline(false), Some(6 * MS), "it has used one of five");
}
