//! Threads and kernel work that want one CPU all the time, with a clock that the work moves.

use crate::{cpu_tests::Bench, Class, BURST_NS, MOST_DEBT_NS};
use alloc::{boxed::Box, sync::Arc};
use core::sync::atomic::{AtomicU64, Ordering::*};
use machine::yield_now;

const ALL: u64 = u64::MAX;
const US: u64 = 1000;

/// What somebody has had of the CPU, and the longest time he waited for it.
#[derive(Default)]
struct Had {
    ns: AtomicU64,
    last: AtomicU64,
    longest: AtomicU64,
}

impl Had {
    /// Now, for `ns`.
    fn take(&self, bench: &Bench, ns: u64) {
        let now = bench.hand.now.load(Relaxed);
        self.longest.fetch_max(now - self.last.load(Relaxed), Relaxed);
        bench.hand.now.fetch_add(ns, Relaxed);
        self.last.store(now + ns, Relaxed);
        self.ns.fetch_add(ns, Relaxed);
    }

    fn ns(&self) -> u64 {
        self.ns.load(Relaxed)
    }

    fn longest(&self) -> u64 {
        self.longest.load(Relaxed)
    }
}

/// A thread in user mode: it goes on until the scheduler says that it must let others run.
fn thread(bench: &Arc<Bench>, class: Class, step: u64) -> Arc<Had> {
    let had = Arc::new(Had::default());
    let (bench_, had_) = (bench.clone(), had.clone());
    let body = async move {
        loop {
            had_.take(&bench_, step);
            if bench_.scheduler.should_yield_in_kernel() {
                yield_now().await;
            }
        }
    };
    bench.scheduler.spawn_thread(class, ALL, Box::pin(body));
    had
}

/// Kernel work that is never done.
fn work(bench: &Arc<Bench>, piece: u64) -> Arc<Had> {
    let had = Arc::new(Had::default());
    let (bench_, had_) = (bench.clone(), had.clone());
    bench.scheduler.spawn(async move {
        loop {
            had_.take(&bench_, piece);
            yield_now().await;
        }
    });
    had
}

fn turn_until(bench: &Bench, end: u64) {
    while bench.hand.now.load(Relaxed) < end {
        assert!(bench.scheduler.turn());
    }
}

#[test]
fn kernel_work_without_end_leaves_a_thread_half_of_the_cpu() {
    for class in [Class::Normal(0), Class::Fifo(10), Class::Idle] {
        let bench = Arc::new(Bench::new(1));
        let works: alloc::vec::Vec<_> = (0..1000).map(|_| work(&bench, 50 * US)).collect();
        let had = thread(&bench, class, 10 * US);
        let end = 1_000_000_000;
        turn_until(&bench, end);
        let kernel: u64 = works.iter().map(|work| work.ns()).sum();
        assert!(had.ns().abs_diff(end / 2) < end / 50, "{class:?}: {} and {kernel}", had.ns());
        assert!(had.longest() <= BURST_NS + 50 * US, "{class:?}: {}", had.longest());
    }
}

/// Work in many pieces (`machine::pause`) is no longer a piece than those of which it consists.
#[test]
fn kernel_work_that_pauses_lets_threads_go_first_when_it_owes_them() {
    let bench = Arc::new(Bench::new(1));
    let had = thread(&bench, Class::Normal(0), 10 * US);
    let bench_ = bench.clone();
    bench.scheduler.spawn(async move {
        loop {
            bench_.hand.now.fetch_add(500 * US, Relaxed);
            bench_.scheduler.pause().await;
        }
    });
    turn_until(&bench, 1_000_000_000);
    assert!(had.longest() <= BURST_NS + 500 * US, "{}", had.longest());
}

#[test]
fn one_long_piece_is_not_made_up_for_without_end() {
    let bench = Arc::new(Bench::new(1));
    let had = thread(&bench, Class::Normal(0), 10 * US);
    let slow = work(&bench, 100_000 * US);
    turn_until(&bench, 1_000_000_000);
    assert!(slow.longest() <= MOST_DEBT_NS + 10 * US, "{}", slow.longest());
    assert!(had.longest() <= BURST_NS + 100_000 * US);
}

#[test]
fn work_that_is_little_goes_first_and_so_does_work_that_nobody_waits_for() {
    let bench = Arc::new(Bench::new(1));
    let alone = work(&bench, 10 * US);
    turn_until(&bench, 100_000_000);
    assert_eq!((alone.longest(), bench.scheduler.threads_first()), (1, false));
    let had = thread(&bench, Class::Normal(0), 10 * US);
    turn_until(&bench, 101_000_000);
    assert_eq!(had.ns(), 0, "the burst begins when a thread comes");
}

#[test]
fn messages_wait_for_the_turn_of_threads_and_then_interrupt_them() {
    let bench = Arc::new(Bench::new(1));
    let had = thread(&bench, Class::Normal(0), 10 * US);
    // The CPU's loop: a round of messages, whenever it may, then a turn. There are always more.
    let mut rounds = 0;
    while bench.hand.now.load(Relaxed) < 100_000_000 {
        if !bench.scheduler.threads_first() {
            let began = bench.hand.now.fetch_add(200 * US, Relaxed);
            bench.scheduler.charge_kernel(began);
            rounds += 1;
        }
        bench.scheduler.note_mail(true);
        assert!(!bench.scheduler.prepare_idle());
        bench.scheduler.turn();
    }
    assert!(had.longest() <= BURST_NS + 200 * US, "{}", had.longest());
    assert!((200..300).contains(&rounds), "{rounds} rounds of 200 us, half of the time");
}

/// Sleepers that are all due again at once take turns as threads; waking them is kernel work.
#[test]
fn a_thousand_sleepers_do_not_keep_the_cpu_from_a_thread_that_runs() {
    let bench = Arc::new(Bench::new(1));
    let had = thread(&bench, Class::Normal(0), 10 * US);
    for _ in 0..1000 {
        let bench_ = bench.clone();
        let body = async move {
            loop {
                let now = bench_.hand.now.fetch_add(5 * US, Relaxed);
                bench_.scheduler.sleep_until(now + 6 * US).await;
            }
        };
        bench.scheduler.spawn_thread(Class::Normal(0), ALL, Box::pin(body));
    }
    turn_until(&bench, 1_000_000_000);
    // A thousand and one threads, each of which may have a slice before it is its turn again.
    assert!(had.ns() > 0 && had.longest() < 1000 * 10 * US, "{} {}", had.ns(), had.longest());
}

/// Begins though 1000 pieces of kernel work wait, and the thread that defers it has the CPU before them.
#[test]
fn what_a_thread_defers_begins_before_it_goes_on_or_waits() {
    let bench = Arc::new(Bench::new(1));
    (0..1000).for_each(|_| drop(work(&bench, 50 * US)));
    let begun = Arc::new(AtomicU64::new(0));
    let (bench_, begun_) = (bench.clone(), begun.clone());
    let defer = move |until_waits: bool| {
        let (begun, bench) = (begun_.clone(), bench_.clone());
        bench_.scheduler.defer(Box::pin(async move {
            begun.fetch_add(1, Relaxed);
            // One that waits goes on as a task, and so does what it defers itself.
            if until_waits {
                yield_now().await;
                let inner = begun.clone();
                bench.scheduler.defer(Box::pin(async move {
                    inner.fetch_add(10, Relaxed);
                }));
            }
        }));
    };
    let (bench_, begun_) = (bench.clone(), begun.clone());
    let body = async move {
        defer(false);
        defer(true);
        assert_eq!(begun_.load(Relaxed), 0);
        bench_.scheduler.begin_deferred();
        assert_eq!(begun_.load(Relaxed), 2);
        defer(false);
        yield_now().await;
        assert!(begun_.load(Relaxed) >= 3);
    };
    let actor = machine::Actor::new(machine::Pid(5), machine::KernelId(0));
    bench.scheduler.spawn_thread_for((actor, machine::GroupId::ROOT), Class::Normal(0), ALL, Box::pin(body));
    turn_until(&bench, 1_000_000_000);
    assert_eq!(begun.load(Relaxed), 13);
}
