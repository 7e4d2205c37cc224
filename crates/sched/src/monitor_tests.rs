//! The vectors V1 to V8 of the requirements, on CPUs that tests turn by hand: blocks and unblocks of each CPU.

use crate::{cpu_tests::Bench, Class, Edge, Monitor, TaskRef};
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::{
    future::poll_fn,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    task::{Poll, Waker},
};
use machine::{sync::Lock, yield_now, CpuId};

/// CPUs 4 and 5 are those with index 0 and 1.
const A: u32 = 4;
const B: u32 = 5;
const C: u32 = 6;

#[derive(Default)]
struct Counts {
    of: [[AtomicU32; 2]; 3],
    told: AtomicU32,
    idle_only: bool,
}

impl Monitor for Counts {
    fn count(&self, cpu: usize, edge: Edge) -> bool {
        self.of[cpu][edge as usize].fetch_add(1, Relaxed);
        !self.idle_only || self.ready(cpu) <= 0
    }

    fn tell(&self, cpu: usize) -> bool {
        self.told.fetch_add(1, Relaxed);
        self.idle_only && self.ready(cpu) <= 0
    }
}

impl Counts {
    fn ready(&self, cpu: usize) -> i64 {
        let [blocks, unblocks] = [0, 1].map(|edge: usize| i64::from(self.of[cpu][edge].load(Relaxed)));
        unblocks - blocks
    }

    /// Blocks and unblocks of CPU A, then those of the next.
    fn are(&self) -> [(u32, u32); 3] {
        [0, 1, 2].map(|cpu: usize| (self.of[cpu][0].load(Relaxed), self.of[cpu][1].load(Relaxed)))
    }
}

/// What a thread does next.
#[derive(Clone, Copy, PartialEq)]
enum Step {
    Begin,
    /// Waits until the test wakes it; a second wait in the same call follows if `twice`.
    Wait {
        twice: bool,
    },
    /// Loses its CPU though it could go on.
    Yield,
    /// Goes to another kernel.
    Leave,
    End,
}
use Step::*;

struct Player {
    task: TaskRef,
    waker: Arc<Lock<Option<Waker>>>,
}

impl Player {
    fn wake(&self) {
        let waker = self.waker.lock().take().expect("it waits");
        waker.wake();
    }
}

/// A thread that may use the CPUs of `allowed` and is in user mode between two steps.
fn play(bench: &Bench, counts: &Arc<Counts>, allowed: u64, steps: &[Step]) -> Player {
    let waker = Arc::new(Lock::new(None::<Waker>));
    let slot = Arc::new(Lock::new(None::<TaskRef>));
    let (scheduler, counts, steps) = (bench.scheduler.clone(), counts.clone(), steps.to_vec());
    let (own, waits, hand) = (slot.clone(), waker.clone(), bench.hand.clone());
    let wait = move || {
        let (waits, mut polled) = (waits.clone(), false);
        poll_fn(move |context| match core::mem::replace(&mut polled, true) {
            true => Poll::Ready(()),
            false => {
                *waits.lock() = Some(context.waker().clone());
                Poll::Pending
            }
        })
    };
    let body = async move {
        let task = own.lock().clone().expect("set before the first turn");
        for step in steps {
            match step {
                Begin => scheduler.begin_monitoring(&task, counts.clone()),
                Wait { twice } => {
                    wait().await;
                    if twice {
                        wait().await;
                    }
                }
                Yield => {
                    hand.now.fetch_add(1_000_000, Relaxed);
                    yield_now().await;
                }
                Leave => scheduler.suspend_monitoring(&task),
                End => scheduler.end_monitoring(&task),
            }
            if let Some(told) = scheduler.enters_user(&task) {
                scheduler.tell_here(told);
            }
        }
    };
    let task = bench.scheduler.spawn_thread(Class::Normal(0), allowed, Box::pin(body));
    *slot.lock() = Some(task.clone());
    Player { task, waker }
}

#[test]
fn v1_sleeps_are_pairs_beside_the_first_credit_and_the_end() {
    let (bench, counts) = (Bench::new(1), Arc::new(Counts::default()));
    let sleep = Wait { twice: false };
    let player = play(&bench, &counts, 1, &[Begin, sleep, sleep, sleep, End, Yield, sleep]);
    for sleeps in 1..=3 {
        while bench.turn(A) {}
        assert_eq!(counts.are()[0], (sleeps, sleeps));
        player.wake();
    }
    while bench.turn(A) {}
    assert_eq!(counts.are()[0], (4, 4));
    // Not monitored any more (V8).
    player.wake();
    while bench.turn(A) {}
    assert_eq!(counts.are()[0], (4, 4));
    assert_eq!(counts.told.load(Relaxed), 8);
}

#[test]
fn v2_threads_that_take_the_cpu_from_each_other_are_both_ready() {
    let (bench, counts) = (Bench::new(1), Arc::new(Counts::default()));
    for _ in 0..2 {
        play(&bench, &counts, 1, &[&[Begin][..], &[Yield; 50]].concat());
    }
    for _ in 0..40 {
        assert!(bench.turn(A));
    }
    assert_eq!(counts.are()[0], (0, 2));
}

#[test]
fn v3_who_was_blocked_is_unblocked_where_it_goes_on() {
    let (bench, counts) = (Bench::new(2), Arc::new(Counts::default()));
    let player = play(&bench, &counts, 1, &[Begin, Wait { twice: true }, Yield, Yield]);
    while bench.turn(A) {}
    assert_eq!(counts.are()[..2], [(1, 1), (0, 0)]);
    player.task.set_allowed(2);
    player.wake();
    // Woken, not yet where it can tell (V6).
    assert_eq!(counts.are()[..2], [(1, 1), (0, 0)]);
    assert!(bench.turn(B));
    // It waits again before it is in user mode: nothing.
    assert_eq!(counts.are()[..2], [(1, 1), (0, 0)]);
    player.wake();
    assert!(bench.turn(B) && bench.turn(B));
    assert_eq!(counts.are()[..2], [(1, 1), (0, 1)]);
}

#[test]
fn v4_v5_who_is_moved_although_it_could_go_on_is_counted_where_it_runs() {
    let (bench, counts) = (Bench::new(3), Arc::new(Counts::default()));
    let player = play(&bench, &counts, 1, &[&[Begin][..], &[Yield; 9]].concat());
    assert!(bench.turn(A));
    assert_eq!(counts.are(), [(0, 1), (0, 0), (0, 0)]);
    // It waits for A, and is to go to C: by way of B, where it never runs.
    bench.scheduler.set_allowed(&player.task, 2);
    bench.scheduler.set_allowed(&player.task, 4);
    assert!(!bench.turn(A) && !bench.turn(B));
    assert_eq!(counts.are(), [(0, 1), (0, 0), (0, 0)]);
    assert!(bench.turn(C) && bench.turn(C));
    assert_eq!(counts.are(), [(1, 1), (0, 0), (0, 1)]);
    assert_eq!(bench.scheduler.load(), 1);
}

#[test]
fn who_leaves_for_another_kernel_gives_up_its_cpu_once() {
    let (bench, counts) = (Bench::new(1), Arc::new(Counts::default()));
    play(&bench, &counts, 1, &[Begin, Leave]);
    while bench.turn(A) {}
    assert_eq!(counts.are()[0], (1, 1));
}

#[test]
fn v7_who_ends_leaves_the_cpu() {
    let (bench, counts) = (Bench::new(1), Arc::new(Counts::default()));
    let waits: Vec<Step> = [Begin, Wait { twice: false }].into();
    let player = play(&bench, &counts, 1, &[&waits[..], &[End]].concat());
    while bench.turn(A) {}
    player.wake();
    while bench.turn(A) {}
    assert_eq!(counts.are()[0], (2, 2));
}

#[test]
fn a_cpu_without_threads_is_told_of_when_it_halts_or_has_looked_out_for_long() {
    let bench = Bench::new(2);
    let counts = Arc::new(Counts { idle_only: true, ..Counts::default() });
    let stalls = |cpu: u32, halts: bool| {
        assert!(!bench.turn(cpu));
        bench.scheduler.take_stall(halts)
    };
    let sleep = Wait { twice: false };
    let player = play(&bench, &counts, 1, &[Begin, sleep, sleep, sleep]);
    let other = play(&bench, &counts, 1, &[Begin, sleep]);
    assert!(bench.turn(A));
    // It waits, and the other one does not.
    assert!(bench.turn(A));
    // Now both do.
    assert!(!stalls(A, false) && !stalls(B, true));
    bench.hand.now.fetch_add(150_000, Relaxed);
    assert!(!stalls(A, false));
    bench.hand.now.fetch_add(50_000, Relaxed);
    assert!(stalls(A, false) && !stalls(A, true), "once");
    // A wait that is over before the CPU halts is told to nobody who asks whether threads wait.
    player.wake();
    assert!(bench.turn(A) && !bench.turn(A));
    player.wake();
    assert!(bench.turn(A));
    assert_eq!(counts.ready(0), 0);
    assert!(stalls(A, true));
    player.wake();
    other.wake();
    while bench.turn(A) {}
}

#[test]
fn a_cpu_that_loses_its_last_thread_to_another_is_woken_to_tell() {
    let bench = Bench::new(2);
    let counts = Arc::new(Counts { idle_only: true, ..Counts::default() });
    let player = play(&bench, &counts, 1, &[Begin, Yield, Yield]);
    assert!(bench.turn(A) && !bench.scheduler.take_stall(true));
    bench.scheduler.set_allowed(&player.task, 2);
    bench.kicked();
    assert!(bench.turn(B));
    assert_eq!(bench.kicked(), [CpuId(A)]);
    assert!(!bench.scheduler.take_stall(true), "B has it");
    assert!(!bench.turn(A) && bench.scheduler.take_stall(true));
}
