//! The runtime without a kernel that helps it. With one: tests/guest (tasks.c).

mod ends;
mod joins;
mod limit;

use crate::{
    central::Guarded,
    cpu::{Counter, Cpu},
    for_each, join, join_context,
    monitor::{Monitor, BLOCK, UNBLOCK},
    run_another,
    runtime::Limits,
    scope, spawn, sys, task, taskwait, worker, worker_number, Builder, Fifo, Mode, Policy, Ready, Region, Runtime,
    Schedule,
};
use std::{
    panic::{catch_unwind, AssertUnwindSafe},
    sync::{
        atomic::{AtomicUsize, Ordering::SeqCst},
        Arc, Mutex,
    },
};

fn runtime(policy: Policy) -> Runtime {
    Builder::default().mode(Some(Mode::Baseline)).policy(policy).build().unwrap()
}

#[test]
fn tasks_of_tasks_have_all_run_when_run_returns() {
    for policy in [Policy::Fifo, Policy::Lifo, Policy::Locality] {
        let runtime = runtime(policy);
        let ran = Arc::new(AtomicUsize::new(0));
        for round in 1..=3 {
            let counted = ran.clone();
            let answer = runtime.run(move || {
                for _ in 0..100 {
                    let counted = counted.clone();
                    spawn(move || {
                        for _ in 0..10 {
                            let counted = counted.clone();
                            spawn(move || _ = counted.fetch_add(1, SeqCst));
                        }
                    });
                }
                round
            });
            assert_eq!((answer, ran.load(SeqCst)), (round, 1000 * round));
        }
        assert_eq!(runtime.statistics().tasks(), 3 * 1101);
    }
}

#[test]
fn who_reads_comes_after_who_writes() {
    let runtime = runtime(Policy::Lifo);
    let data = Arc::new(Mutex::new(vec![0u64; 64]));
    let result = data.clone();
    runtime.run(move || {
        let at = |place: usize| Region::new(0x1000 + place * 8, 8);
        for _step in 0..50 {
            for place in 1..64 {
                let data = data.clone();
                // A wave front: each one needs its left neighbour of this step and itself of the step before.
                task().reads(at(place - 1)).changes(at(place)).spawn(move || {
                    let mut data = data.lock().unwrap();
                    data[place] = data[place].wrapping_mul(3).wrapping_add(data[place - 1] + 1) % 1_000_003;
                });
            }
        }
        taskwait();
    });
    let mut expected = vec![0u64; 64];
    for _step in 0..50 {
        for place in 1..64 {
            expected[place] = expected[place].wrapping_mul(3).wrapping_add(expected[place - 1] + 1) % 1_000_003;
        }
    }
    assert_eq!(*result.lock().unwrap(), expected);
}

#[test]
fn taskwait_waits_for_children_and_their_children() {
    let runtime = runtime(Policy::Fifo);
    let depth_reached = runtime.run(|| {
        fn dive(depth: usize, reached: Arc<AtomicUsize>) {
            if depth == 0 {
                reached.fetch_add(1, SeqCst);
                return;
            }
            let mine = Arc::new(AtomicUsize::new(0));
            for _ in 0..3 {
                let mine = mine.clone();
                spawn(move || dive(depth - 1, mine));
            }
            taskwait();
            reached.fetch_add(mine.load(SeqCst), SeqCst);
        }
        let reached = Arc::new(AtomicUsize::new(0));
        dive(6, reached.clone());
        reached.load(SeqCst)
    });
    assert_eq!(depth_reached, 729);
}

#[test]
fn scopes_borrow_and_join_answers() {
    let runtime = runtime(Policy::Lifo);
    fn fibonacci(n: u64) -> u64 {
        match n {
            0 | 1 => n,
            _ => {
                let (a, b) = join(|| fibonacci(n - 1), || fibonacci(n - 2));
                a + b
            }
        }
    }
    let numbers: Vec<u64> = (0..1000).collect();
    let sum = AtomicUsize::new(0);
    let answer = runtime.run(|| {
        for_each(&numbers, 10, |number| _ = sum.fetch_add(*number as usize, SeqCst));
        let mut parts = [0; 4];
        scope(|scope| {
            for (place, part) in parts.iter_mut().enumerate() {
                scope.spawn(move |_| *part = place + 1);
            }
        });
        assert_eq!(parts, [1, 2, 3, 4]);
        fibonacci(15)
    });
    assert_eq!((answer, sum.into_inner()), (610, 499_500));
}

#[test]
fn a_panic_comes_out_of_run_and_the_others_run() {
    let runtime = runtime(Policy::Fifo);
    let ran = Arc::new(AtomicUsize::new(0));
    let counted = ran.clone();
    let run = || {
        runtime.run(move || {
            for number in 0..20 {
                let counted = counted.clone();
                spawn(move || match number {
                    7 => std::panic::resume_unwind(Box::new("seven")),
                    _ => _ = counted.fetch_add(1, SeqCst),
                });
            }
        });
    };
    let panic = catch_unwind(AssertUnwindSafe(run)).unwrap_err();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"seven"));
    assert_eq!(ran.load(SeqCst), 19);
    assert_eq!(runtime.run(|| 5), 5);
}

#[test]
fn more_workers_than_cpus_are_made_where_tasks_wait_for_tasks() {
    let runtime = runtime(Policy::Fifo);
    // Each waits for its child in another task's place: with one worker a CPU they would stop.
    runtime.run(|| {
        for _ in 0..20 {
            spawn(|| {
                spawn(|| std::thread::sleep(std::time::Duration::from_millis(1)));
                taskwait();
            });
        }
    });
    assert_eq!(runtime.statistics().tasks(), 41);
}

fn counted(cpus: usize) -> Vec<Arc<Cpu>> {
    let counter = || Counter { file: sys::event_fd().unwrap(), sums: sys::Sums::new(), ring: None };
    (0..cpus).map(|number| Arc::new(Cpu::new(number, 0, Some(counter())))).collect()
}

/// A runtime on these CPUs whose threads a test counts as the kernel would.
fn monitored_on(cpus: Vec<Arc<Cpu>>, workers_per_cpu: usize) -> Runtime {
    let limits = Limits { workers_per_cpu, threads_per_cpu: 1 };
    Runtime::start(Monitor::Test, cpus, Guarded(Box::new(Fifo::default())), limits, None).unwrap()
}

fn monitored(workers_per_cpu: usize) -> Runtime {
    monitored_on(counted(2), workers_per_cpu)
}

/// What a task does that waits in the kernel.
fn waiting<T>(work: impl FnOnce() -> T) -> T {
    let (shared, worker, _) = worker::current().unwrap();
    shared.cpus[worker.cpu()].count(BLOCK);
    let result = work();
    shared.cpus[worker.cpu()].count(UNBLOCK);
    result
}

#[test]
fn as_many_tasks_wait_at_once_as_there_may_be_workers() {
    for (workers, tasks) in [(64, 100), (4, 8)] {
        let runtime = monitored(workers);
        assert_eq!(runtime.mode(), Mode::Umt);
        // All must wait before one may go on.
        let barrier = Arc::new(std::sync::Barrier::new(tasks));
        runtime.run(move || {
            for _ in 0..tasks {
                let barrier = barrier.clone();
                spawn(move || _ = waiting(|| barrier.wait()));
            }
        });
        assert_eq!(runtime.statistics().tasks(), tasks as u64 + 1);
        assert!((tasks as u64..=2 * workers as u64).contains(&runtime.statistics().workers()));
        let [looks, stalls, had_task, had_worker] = runtime.statistics().leaders();
        assert!(looks >= stalls && stalls >= had_task && had_task >= had_worker);
        // Dropped, it finds that all counters come to nothing.
    }
}

#[test]
fn who_ends_its_task_beside_others_goes_into_the_pool() {
    let runtime = monitored(64);
    for _ in 0..3 {
        runtime.run(|| {
            for _ in 0..50 {
                spawn(|| {
                    waiting(|| std::thread::sleep(std::time::Duration::from_millis(1)));
                    for _ in 0..3 {
                        spawn(|| _ = std::hint::black_box((0..1000).sum::<u64>()));
                    }
                    taskwait();
                });
            }
        });
    }
    assert_eq!(runtime.statistics().tasks(), 3 * 201);
}

#[test]
fn a_task_that_waits_for_a_lock_of_a_task_that_waits_does_not_stop_the_others() {
    let runtime = monitored(64);
    let lock = Arc::new(Mutex::new(0));
    let counted = lock.clone();
    runtime.run(move || {
        for _ in 0..30 {
            let lock = counted.clone();
            spawn(move || {
                let mut held = waiting(|| lock.lock().unwrap());
                waiting(std::thread::yield_now);
                *held += 1;
            });
        }
    });
    assert_eq!(*lock.lock().unwrap(), 30);
}

#[test]
fn a_runtime_in_itself_and_waits_for_grandchildren_need_one_worker() {
    let runtime = Builder::default().mode(Some(Mode::Baseline)).cpus(vec![0]).workers_per_cpu(1).build().unwrap();
    fn dive(depth: u64) {
        if depth > 0 {
            spawn(move || spawn(move || dive(depth - 1)));
            taskwait();
        }
    }
    assert_eq!(runtime.run(|| runtime.run(|| 7)), 7);
    runtime.run(|| dive(20));
    assert_eq!(runtime.statistics().workers(), 1);
}

#[test]
fn a_long_chain_of_tasks_ends_without_a_deep_stack_and_leaves_nothing() {
    let runtime = runtime(Policy::Fifo);
    fn chain(left: usize, _held: Arc<()>) {
        if left > 0 {
            task().changes(0x1000..0x1008).spawn(move || chain(left - 1, _held));
        }
    }
    let held = Arc::new(());
    let ours = held.clone();
    runtime.run(move || chain(100_000, ours));
    drop(runtime);
    assert_eq!(Arc::strong_count(&held), 1);
}

#[test]
fn who_is_woken_before_it_sleeps_leaves_no_cpu_idle() {
    // The root may be given to a worker that has not gone to sleep yet. The pipe is written by a task that needs the same CPU.
    for _ in 0..50 {
        let runtime = monitored_on(counted(1), 8);
        runtime.run(|| {
            let (send, receive) = std::sync::mpsc::channel();
            spawn(move || send.send(1).unwrap());
            assert_eq!(waiting(|| receive.recv().unwrap()), 1);
        });
    }
}

#[test]
fn two_runtimes_on_the_same_counters_both_get_on() {
    let cpus = counted(2);
    let (one, other) = (monitored_on(cpus.clone(), 64), monitored_on(cpus.clone(), 64));
    // Each task of the one waits for one of the other: all of both must be begun.
    let barrier = std::sync::Barrier::new(40);
    std::thread::scope(|threads| {
        for runtime in [&one, &other] {
            let barrier = &barrier;
            threads.spawn(move || {
                runtime.run(|| {
                    scope(|scope| {
                        for _ in 0..20 {
                            scope.spawn(|_| _ = waiting(|| barrier.wait()));
                        }
                    });
                });
            });
        }
    });
    assert_eq!((one.statistics().tasks(), other.statistics().tasks()), (21, 21));
    drop(one);
    assert_eq!(other.run(|| join(|| 1, || 2)), (1, 2));
    drop(other);
    assert!(cpus.iter().all(|cpu| cpu.refresh() == 0));
}

#[test]
fn tasks_run_where_no_thread_can_be_made() {
    for cpus in [1, 2] {
        let runtime = Builder::default().mode(Some(Mode::Baseline)).cpus(vec![0; cpus]).build().unwrap();
        runtime.shared.most_threads.store(cpus, SeqCst);
        fn dive(depth: usize) -> usize {
            if depth == 0 {
                return 1;
            }
            let made = AtomicUsize::new(0);
            scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|_| _ = made.fetch_add(dive(depth - 1), SeqCst));
                }
            });
            let (one, two) = join(|| 1, || 1);
            made.into_inner() * one * two
        }
        for _ in 0..20 {
            assert_eq!(runtime.run(|| dive(5)), 243);
        }
        assert_eq!(runtime.statistics().workers(), cpus as u64);
    }
}

/// Who takes part in a test of the end of a process.
fn ends_with(name: &str) -> (bool, String) {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("tests::{name}"), "--nocapture"]).env("COB_TASKS_TEST_CHILD", name);
    let output = command.output().unwrap();
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn is_child(name: &str) -> bool {
    std::env::var("COB_TASKS_TEST_CHILD").is_ok_and(|child| child == name)
}

#[test]
fn a_scheduler_that_panics_ends_the_process() {
    struct Panics(Fifo);
    impl Schedule for Panics {
        fn push(&mut self, task: Ready, cpu: usize) {
            self.0.push(task, cpu);
        }
        fn pop(&mut self, cpu: usize) -> Option<Ready> {
            self.0.pop(cpu)
        }
        fn take(&mut self, _wanted: &mut dyn FnMut(&Ready) -> bool) -> Option<Ready> {
            panic!("no more")
        }
        fn is_empty(&self) -> bool {
            self.0.is_empty()
        }
    }
    let name = "a_scheduler_that_panics_ends_the_process";
    if !is_child(name) {
        let (good, said) = ends_with(name);
        assert!(!good && said.contains("the scheduler of the program has panicked"), "{said}");
        return;
    }
    let runtime = Builder::default()
        .mode(Some(Mode::Baseline))
        .cpus(vec![0])
        .scheduler(Box::new(Panics(Fifo::default())))
        .build()
        .unwrap();
    // A caller that goes on after the panic would free what the lost task borrows.
    let run = || {
        runtime.run(|| {
            let lent = [1; 64];
            scope(|scope| (0..4).for_each(|_| scope.spawn(|_| assert_eq!(lent, [1; 64]))));
        });
    };
    let _ = catch_unwind(AssertUnwindSafe(run));
    std::process::exit(0);
}

#[test]
fn a_panic_in_either_half_comes_after_both_have_ended() {
    let runtime = monitored(8);
    for both in [false, true] {
        let ended = AtomicUsize::new(0);
        let run = || {
            runtime.run(|| {
                join(
                    || {
                        ended.fetch_add(1, SeqCst);
                        std::panic::resume_unwind(Box::new("first"));
                    },
                    || {
                        scope(|scope| scope.spawn(|_| _ = ended.fetch_add(1, SeqCst)));
                        if both {
                            std::panic::resume_unwind(Box::new("second"));
                        }
                    },
                );
            });
        };
        let panic = catch_unwind(AssertUnwindSafe(run)).unwrap_err();
        assert_eq!((panic.downcast_ref::<&str>(), ended.into_inner()), (Some(&"first"), 2));
    }
    assert_eq!(runtime.run(|| 5), 5);
}

#[test]
fn halves_that_wait_leave_their_cpu_to_others() {
    let runtime = monitored(64);
    fn pairs(depth: usize, barrier: &std::sync::Barrier) {
        if depth == 0 {
            waiting(|| barrier.wait());
        } else {
            join(|| pairs(depth - 1, barrier), || pairs(depth - 1, barrier));
        }
    }
    for _ in 0..20 {
        let barrier = std::sync::Barrier::new(32);
        runtime.run(|| pairs(5, &barrier));
    }
    let moved = runtime.run(|| {
        let barrier = std::sync::Barrier::new(2);
        join_context(
            |moved| {
                waiting(|| barrier.wait());
                moved
            },
            |moved| {
                waiting(|| barrier.wait());
                moved && worker_number().unwrap() < 128
            },
        )
    });
    assert_eq!(moved, (false, true));
}

#[test]
fn tasks_nobody_waits_for_and_scopes_from_outside_end() {
    let ran = Arc::new(AtomicUsize::new(0));
    let runtime = runtime(Policy::Fifo);
    for _ in 0..10 {
        let ran = ran.clone();
        runtime.spawn(move || _ = ran.fetch_add(1, SeqCst));
    }
    let mut parts = [0; 8];
    runtime.scope_here(|scope| {
        for part in &mut parts {
            scope.spawn(move |_| *part = 1);
        }
    });
    assert_eq!(parts, [1; 8]);
    assert_eq!((worker_number(), run_another()), (None, None));
    drop(runtime);
    assert_eq!(ran.load(SeqCst), 10);
}

#[test]
fn more_threads_a_cpu_run_as_many_tasks_at_once() {
    let runtime = Builder::default().mode(Some(Mode::Baseline)).cpus(vec![0]).threads_per_cpu(8).build().unwrap();
    let barrier = std::sync::Barrier::new(8);
    runtime.run(|| {
        scope(|scope| {
            for _ in 0..7 {
                scope.spawn(|_| _ = barrier.wait());
            }
            barrier.wait();
        });
    });
}
