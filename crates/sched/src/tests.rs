//! The run queue under a clock of its own: shares, latency, order.

use crate::{
    class::Class,
    fair::{lag_after, SLICE_NS},
    queue::{Kept, Queue},
    realtime::ROUND_ROBIN_NS,
};
use alloc::{collections::BTreeMap, vec, vec::Vec};
use Class::*;

pub const MS: u64 = 1_000_000;
pub const SECOND: u64 = 1000 * MS;

/// Runs `burst` ns, sleeps `sleep` ns, and so on; a sleep of 0: never.
#[derive(Clone, Copy)]
pub struct Behaviour {
    pub class: Class,
    pub burst: u64,
    pub sleep: u64,
}

pub fn hog(class: Class) -> Behaviour {
    Behaviour { class, burst: u64::MAX, sleep: 0 }
}

/// One CPU, driven as the scheduler drives it.
pub(crate) struct Machine {
    pub queue: Queue<usize>,
    now: u64,
    tasks: Vec<Behaviour>,
    kept: Vec<Kept>,
    /// CPU time of each task, and what is left of its burst.
    pub used: Vec<u64>,
    left: Vec<u64>,
    slept: Vec<u64>,
    woken: Vec<u64>,
    /// Longest time from wake-up to CPU.
    latency: Vec<u64>,
    wakeups: BTreeMap<(u64, usize), ()>,
    running: Option<usize>,
    /// Who got the CPU, one after the other.
    order: Vec<usize>,
}

impl Machine {
    pub fn new(tasks: &[Behaviour]) -> Machine {
        let count = tasks.len();
        let mut machine = Machine {
            queue: Queue::default(),
            now: SECOND,
            tasks: tasks.to_vec(),
            kept: vec![Kept::default(); count],
            used: vec![0; count],
            left: tasks.iter().map(|task| task.burst).collect(),
            slept: vec![0; count],
            woken: vec![0; count],
            latency: vec![0; count],
            wakeups: BTreeMap::new(),
            running: None,
            order: Vec::new(),
        };
        for task in 0..count {
            machine.wake(task);
            // What counts is how long it waits later.
            machine.woken[task] = 0;
        }
        machine
    }

    fn wake(&mut self, task: usize) {
        self.woken[task] = self.now;
        let kept = self.kept[task];
        let lag = lag_after(kept.lag, self.now - self.slept[task]);
        self.queue.enqueue(task, self.tasks[task].class, Kept { lag, wakes: true, ..kept }, self.now);
    }

    fn choose(&mut self) {
        self.running = self.queue.next(self.now).map(|(task, _)| task);
        let Some(task) = self.running else { return };
        let waited = self.now - self.woken[task];
        if self.woken[task] != 0 {
            self.latency[task] = self.latency[task].max(waited);
            self.woken[task] = 0;
        }
        if self.order.last() != Some(&task) {
            self.order.push(task);
        }
    }

    pub fn run(&mut self, ns: u64) {
        let end = self.now + ns;
        while self.now < end {
            if self.running.is_none() {
                self.choose();
            }
            let wake = self.wakeups.keys().next().map_or(end, |(at, _)| *at);
            let Some(task) = self.running else {
                let replenished = self.queue.next_replenishment().unwrap_or(end);
                self.now = wake.min(end).min(replenished).max(self.now);
                self.deliver();
                continue;
            };
            let look = self.queue.deadline(false).unwrap_or(end).max(self.now + 1);
            let until = look.min(wake).min(end).min(self.now.saturating_add(self.left[task])).max(self.now);
            self.used[task] += until - self.now;
            self.left[task] -= until - self.now;
            self.now = until;
            self.deliver();
            if self.left[task] == 0 {
                self.block();
            } else if self.queue.must_switch(self.now, false) {
                self.queue.put_back(task, self.tasks[task].class, self.now);
                self.running = None;
            }
        }
    }

    fn block(&mut self) {
        let Some(task) = self.running.take() else { return };
        self.kept[task] = self.queue.block(self.now);
        self.slept[task] = self.now;
        self.left[task] = self.tasks[task].burst;
        if self.tasks[task].sleep > 0 {
            self.wakeups.insert((self.now + self.tasks[task].sleep, task), ());
        }
    }

    fn deliver(&mut self) {
        while let Some(&(at, task)) = self.wakeups.keys().next().filter(|(at, _)| *at <= self.now) {
            self.wakeups.remove(&(at, task));
            self.wake(task);
        }
    }
}

#[test]
fn shares_follow_weights() {
    let classes = [Normal(0), Normal(0), Normal(5), Normal(-5), Batch(10), Idle];
    let mut machine = Machine::new(&classes.map(hog));
    machine.run(20 * SECOND);
    let total: u64 = classes.iter().map(|class| u64::from(class.weight())).sum();
    for (class, used) in classes.iter().zip(&machine.used) {
        let share = 20 * SECOND * u64::from(class.weight()) / total;
        assert!(used.abs_diff(share) <= 2 * SLICE_NS, "{class:?} has {used} instead of {share}");
    }
}

#[test]
fn a_task_that_comes_later_gets_its_share_from_then_on() {
    let mut machine = Machine::new(&[hog(Normal(0)), Behaviour { class: Normal(0), burst: u64::MAX, sleep: 1 }]);
    // The second sleeps for a second before it ever runs.
    machine.run(1);
    machine.queue.remove(|task| *task == 1, machine.now).unwrap();
    machine.run(SECOND);
    let before = machine.used[0];
    machine.wake(1);
    machine.run(SECOND);
    assert!((machine.used[0] - before).abs_diff(machine.used[1]) <= 3 * SLICE_NS, "{:?}", machine.used);
}

#[test]
fn nobody_starves() {
    let mut tasks = vec![hog(Normal(-20)); 3];
    tasks.push(hog(Normal(19)));
    tasks.push(hog(Idle));
    let mut machine = Machine::new(&tasks);
    machine.run(600 * SECOND);
    assert!(machine.used.iter().all(|used| *used > 0), "{:?}", machine.used);
}

#[test]
fn who_needs_little_waits_little() {
    let mut tasks = vec![hog(Normal(0)); 4];
    tasks.push(Behaviour { class: Normal(0), burst: MS / 5, sleep: 10 * MS });
    let mut machine = Machine::new(&tasks);
    machine.run(10 * SECOND);
    // Not the 12 ms that four others with full slices would take.
    assert!(machine.latency[4] <= 2 * SLICE_NS, "{} us", machine.latency[4] / 1000);
    assert!(machine.used[4] >= 10 * SECOND / 53 * 10 / 10 / 2, "{} us", machine.used[4] / 1000);
}

#[test]
fn batch_waits_for_its_turn_and_idle_is_interrupted_at_once() {
    let sleeper = |class| Behaviour { class, burst: MS / 10, sleep: 20 * MS };
    let mut machine = Machine::new(&[hog(Idle), sleeper(Normal(0))]);
    machine.run(5 * SECOND);
    assert_eq!(machine.latency[1], 0);
    let mut machine = Machine::new(&[hog(Normal(0)), sleeper(Batch(0))]);
    machine.run(5 * SECOND);
    assert!(machine.latency[1] > 0 && machine.latency[1] <= SLICE_NS, "{}", machine.latency[1]);
}

#[test]
fn sleeping_earns_nothing() {
    // It could use the whole CPU when it is awake, but half of that is the other's.
    let mut machine = Machine::new(&[hog(Normal(0)), Behaviour { class: Normal(0), burst: 50 * MS, sleep: 500 * MS }]);
    machine.run(60 * SECOND);
    // Each 50 ms of work takes at least 100 - 2 * lag.
    let bursts = machine.used[1] / (50 * MS);
    assert!(bursts <= 60_000 / (500 + 100 - 12) + 1, "{bursts} bursts");
}

#[test]
fn fifo_runs_by_priority_and_in_order_until_it_sleeps() {
    let burst = |class| Behaviour { class, burst: 200 * MS, sleep: 0 };
    let mut machine = Machine::new(&[burst(Fifo(10)), burst(Fifo(10)), burst(Fifo(20)), burst(Normal(0))]);
    machine.run(2 * SECOND);
    assert_eq!(machine.order, [2, 0, 1, 3]);
}

#[test]
fn who_is_interrupted_by_a_higher_priority_stays_first_of_its_own() {
    let mut queue = Queue::default();
    for task in ["a", "b"] {
        queue.enqueue(task, Fifo(5), Kept::default(), 0);
    }
    assert_eq!(queue.next(0).unwrap().0, "a");
    queue.enqueue("urgent", Fifo(6), Kept::default(), 10);
    assert!(queue.must_switch(10, false));
    queue.put_back("a", Fifo(5), 10);
    assert_eq!(queue.next(10).unwrap().0, "urgent");
    queue.block(20);
    assert_eq!(queue.next(20).unwrap().0, "a");
    // sched_yield: behind its equals.
    queue.ask_yield();
    queue.put_back("a", Fifo(5), 30);
    assert_eq!(queue.next(30).unwrap().0, "b");
}

#[test]
fn who_is_lowered_comes_first_of_its_equals_and_who_is_raised_last() {
    let mut queue = Queue::default();
    for (task, priority) in [("high", 9), ("middle", 5), ("low", 1)] {
        queue.enqueue(task, Fifo(priority), Kept::default(), 0);
    }
    assert!(queue.change_waiting(|task| *task == "high", Fifo(5), 0));
    assert!(queue.change_waiting(|task| *task == "low", Fifo(5), 0));
    assert!(!queue.change_waiting(|task| *task == "nobody", Fifo(5), 0));
    for expected in ["high", "middle", "low"] {
        assert_eq!(queue.next(0).unwrap().0, expected);
        queue.block(0);
    }
}

#[test]
fn round_robin_changes_every_slice() {
    let mut machine = Machine::new(&[hog(RoundRobin(3)), hog(RoundRobin(3)), hog(RoundRobin(2))]);
    machine.run(10 * ROUND_ROBIN_NS);
    assert_eq!(machine.used, [5 * ROUND_ROBIN_NS, 5 * ROUND_ROBIN_NS, 0]);
}

#[test]
fn real_time_leaves_a_twentieth_to_others_that_wait() {
    let mut machine = Machine::new(&[hog(Fifo(99)), hog(Normal(0))]);
    machine.run(10 * SECOND);
    assert!(machine.used[1].abs_diff(500 * MS) <= 60 * MS, "{} ms", machine.used[1] / MS);
    let mut machine = Machine::new(&[hog(Fifo(99))]);
    machine.run(10 * SECOND);
    assert_eq!(machine.used[0], 10 * SECOND);
}

#[test]
fn yielding_lets_another_run() {
    let mut queue = Queue::default();
    queue.enqueue("a", Normal(0), Kept::default(), 0);
    queue.enqueue("b", Normal(0), Kept::default(), 0);
    let (first, _) = queue.next(0).unwrap();
    queue.ask_yield();
    queue.put_back(first, Normal(0), 1000);
    let (second, _) = queue.next(1000).unwrap();
    assert_ne!(first, second);
    // Without others it goes on at once.
    let mut queue = Queue::default();
    queue.enqueue("a", Normal(0), Kept::default(), 0);
    queue.next(0).unwrap();
    queue.ask_yield();
    queue.put_back("a", Normal(0), 1000);
    assert_eq!(queue.next(1000).unwrap().0, "a");
}

#[test]
fn an_interrupt_alone_changes_nothing() {
    let mut queue = Queue::default();
    for task in 0..4 {
        queue.enqueue(task, Normal(0), Kept::default(), 0);
    }
    let (first, class) = queue.next(0).unwrap();
    // Every 100 us the CPU looks around, as at an interrupt.
    for step in 1..SLICE_NS / 100_000 {
        queue.put_back(first, class, step * 100_000);
        assert_eq!(queue.next(step * 100_000).unwrap().0, first);
    }
    assert!(queue.must_switch(SLICE_NS, false));
    queue.put_back(first, class, SLICE_NS);
    assert_ne!(queue.next(SLICE_NS).unwrap().0, first);
}

#[test]
fn kernel_work_goes_first_and_a_change_of_class_counts_at_once() {
    let mut queue = Queue::default();
    queue.enqueue("thread", Normal(0), Kept::default(), 0);
    queue.enqueue("idle", Idle, Kept::default(), 0);
    queue.enqueue("work", Kernel, Kept::default(), 0);
    assert_eq!(queue.next(0).unwrap(), ("work", Kernel));
    queue.block(5);
    assert_eq!(queue.next(5).unwrap().0, "thread");
    // What waited with the least weight is made urgent.
    let (task, class, _) = queue.remove(|task| *task == "idle", 10).unwrap();
    assert_eq!(class, Idle);
    queue.enqueue(task, Fifo(1), Kept::default(), 10);
    assert!(queue.must_switch(10, false));
    // The one that runs becomes FIFO, too, and of a higher priority: at once, or when it is put back.
    queue.name_running(7);
    queue.change_running(8, Idle, 10);
    queue.change_running(7, Fifo(3), 10);
    assert!(!queue.must_switch(10, false));
    queue.put_back("thread", Fifo(2), 10);
    assert_eq!(queue.next(10).unwrap(), ("thread", Fifo(2)));
    assert!(!queue.must_switch(20, false));
}

/// A thread was interrupted and waits to go on; one of the real-time class, which ran meanwhile, becomes a fair one and waits.
#[test]
fn two_that_are_to_go_on_are_both_there() {
    let mut queue = Queue::default();
    queue.enqueue("fair", Normal(0), Kept::default(), 0);
    assert_eq!(queue.next(0).unwrap().0, "fair");
    queue.enqueue("urgent", Fifo(1), Kept::default(), 10);
    queue.put_back("fair", Normal(0), 10);
    assert_eq!(queue.next(10).unwrap().0, "urgent");
    queue.name_running(7);
    queue.change_running(7, Normal(0), 20);
    queue.put_back("urgent", Normal(0), 30);
    let first = queue.next(30).unwrap().0;
    queue.block(40);
    assert_eq!(queue.next(40).map(|(second, _)| [first, second].contains(&"fair") && first != second), Some(true));
}

#[test]
fn whatever_is_done_with_the_queue_nothing_is_lost() {
    const CLASSES: [Class; 8] = [Kernel, Fifo(1), Fifo(2), RoundRobin(1), Normal(0), Normal(5), Class::Batch(0), Idle];
    for seed in 0..2000u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut below = |limit: usize| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as usize % limit
        };
        let mut queue = Queue::default();
        let (mut waiting, mut running, mut now) = (Vec::new(), None, 0);
        for task in 1..120usize {
            now += below(2_000_000) as u64;
            let class = CLASSES[below(CLASSES.len())];
            match (below(6), running) {
                (0 | 1, _) => {
                    queue.enqueue(task, class, Kept::default(), now);
                    waiting.push(task);
                }
                (2, Some(_)) => {
                    queue.block(now);
                    running = None;
                }
                (3, Some(task)) => {
                    queue.put_back(task, class, now);
                    waiting.push(task);
                    running = None;
                }
                (4, Some(task)) if class != Kernel => queue.change_running(task, class, now),
                (4, None) if class != Kernel && !waiting.is_empty() => {
                    let one = waiting[below(waiting.len())];
                    queue.change_waiting(|task| *task == one, class, now);
                }
                (5, Some(_)) => queue.ask_yield(),
                (_, None) => {
                    running = queue.next(now).map(|(task, _)| task);
                    waiting.retain(|task| Some(*task) != running);
                    queue.name_running(running.unwrap_or(0));
                }
                _ => {}
            }
        }
        queue.block(now);
        let mut left: Vec<usize> = core::iter::from_fn(|| {
            now += 1_000_000_000;
            let (task, _) = queue.next(now)?;
            queue.block(now);
            Some(task)
        })
        .collect();
        left.sort_unstable();
        waiting.sort_unstable();
        assert_eq!(left, waiting, "seed {seed}");
    }
}
