//! The scheduler on CPUs that tests turn by hand.

use crate::{Class, Scheduler};
use alloc::{boxed::Box, sync::Arc, vec, vec::Vec};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};
use machine::{sync::Lock, yield_now, Cpu, CpuId, FpuState, PageTable, Registers, Trap};

pub(crate) struct Hand {
    cpus: Vec<CpuId>,
    current: AtomicU32,
    pub now: AtomicU64,
    kicked: Lock<Vec<CpuId>>,
}

impl Cpu for Hand {
    fn current(&self) -> CpuId {
        CpuId(self.current.load(Relaxed))
    }
    fn cpus(&self) -> &[CpuId] {
        &self.cpus
    }
    fn run_user(&self, _: &mut Registers, _: &dyn PageTable, _: &AtomicBool) -> Trap {
        Trap::Interrupt
    }
    fn fpu_size(&self) -> usize {
        0
    }
    fn fpu_load(&self, _: &FpuState) {}
    fn fpu_save(&self, _: &mut FpuState) {}
    fn now(&self) -> u64 {
        self.now.load(Relaxed)
    }
    fn set_alarm(&self, _: Option<u64>) {}
    fn kick(&self, cpu: CpuId) {
        self.kicked.lock().push(cpu);
    }
    fn capabilities(&self) -> (u64, u64) {
        (0, 0)
    }
    fn random(&self, _: &mut [u8]) {}
}

pub(crate) struct Bench {
    pub hand: Arc<Hand>,
    pub scheduler: Arc<Scheduler>,
    /// Who was polled, and on which CPU.
    ran: Arc<Lock<Vec<(usize, u32)>>>,
    over: Arc<AtomicBool>,
}

const ALL: u64 = u64::MAX;
const STEP: u64 = 1_000_000;

impl Bench {
    /// CPUs 4, 5, ... of the machine.
    pub fn new(cpus: u32) -> Bench {
        let hand = Arc::new(Hand {
            cpus: (4..4 + cpus).map(CpuId).collect(),
            current: AtomicU32::new(4),
            now: AtomicU64::new(1),
            kicked: Lock::new(vec![]),
        });
        let scheduler = Scheduler::new(hand.clone(), machine::KernelId(0));
        Bench { hand, scheduler, ran: Arc::default(), over: Arc::default() }
    }

    /// A thread that uses a millisecond at a time, as long as it may.
    fn hog(&self, name: usize, class: Class, allowed: u64) -> crate::TaskRef {
        let (hand, scheduler) = (self.hand.clone(), self.scheduler.clone());
        let (ran, over) = (self.ran.clone(), self.over.clone());
        let body = async move {
            while !over.load(Relaxed) {
                ran.lock().push((name, hand.current().0));
                hand.now.fetch_add(STEP, Relaxed);
                scheduler.should_yield();
                yield_now().await;
            }
        };
        self.scheduler.spawn_thread(class, allowed, Box::pin(body))
    }

    pub fn turn(&self, cpu: u32) -> bool {
        self.hand.current.store(cpu, Relaxed);
        self.scheduler.turn()
    }

    /// CPUs that were woken since this was last asked.
    pub fn kicked(&self) -> Vec<CpuId> {
        core::mem::take(&mut *self.hand.kicked.lock())
    }

    fn took(&self) -> Vec<(usize, u32)> {
        core::mem::take(&mut *self.ran.lock())
    }
}

#[test]
fn threads_get_idle_cpus_and_keep_them() {
    let bench = Bench::new(2);
    bench.hog(0, Class::Normal(0), ALL);
    bench.hog(1, Class::Normal(0), ALL);
    assert_eq!(bench.scheduler.load(), 2);
    for _ in 0..20 {
        assert!(bench.turn(4) && bench.turn(5));
    }
    let ran = bench.took();
    assert!(ran.iter().all(|(name, cpu)| *cpu == 4 + *name as u32), "{ran:?}");
    bench.over.store(true, Relaxed);
    assert!(bench.turn(4) && bench.turn(5));
    assert_eq!(bench.scheduler.load(), 0);
    assert!(!bench.turn(4) && !bench.turn(5));
}

#[test]
fn an_idle_cpu_takes_what_waits_elsewhere_if_it_may_come() {
    let bench = Bench::new(2);
    // Both may only use the first CPU; then one may come over.
    let _first = bench.hog(0, Class::Normal(0), 1);
    let second = bench.hog(1, Class::Normal(0), 1);
    for _ in 0..10 {
        assert!(bench.turn(4) && !bench.turn(5));
    }
    assert!(second.is_waiting());
    second.set_allowed(ALL);
    bench.took();
    while !bench.turn(5) {
        assert!(bench.turn(4));
    }
    assert_eq!(bench.took().last(), Some(&(1, 5)));
    // One that may no longer stay goes when it is next put back.
    second.set_allowed(1);
    bench.turn(5);
    assert!(!bench.turn(5));
    assert_eq!(bench.scheduler.load(), 2);
}

#[test]
fn a_class_counts_at_once_wherever_the_task_is() {
    let bench = Bench::new(1);
    bench.hog(0, Class::Normal(0), ALL);
    let low = bench.hog(1, Class::Idle, ALL);
    // A slice of its own at most, of fifty turns.
    for _ in 0..50 {
        bench.turn(4);
    }
    assert!(bench.took().iter().filter(|(name, _)| *name == 1).count() <= 4);
    // It waits: now it is first.
    bench.scheduler.set_class(&low, Class::Fifo(1));
    for _ in 0..50 {
        bench.turn(4);
    }
    assert!(bench.took().iter().all(|(name, _)| *name == 1));
    bench.scheduler.set_class(&low, Class::Idle);
    for _ in 0..50 {
        bench.turn(4);
    }
    assert!(bench.took().iter().filter(|(name, _)| *name == 1).count() <= 4);
}

#[test]
fn a_busy_cpu_evens_out_when_it_is_asked_to() {
    let bench = Bench::new(2);
    let pinned: Vec<_> = (0..4).map(|name| bench.hog(name, Class::Normal(0), 1)).collect();
    bench.hog(9, Class::Normal(0), 2);
    bench.turn(5);
    pinned.iter().for_each(|task| task.set_allowed(ALL));
    for _ in 0..5 {
        bench.hand.current.store(4, Relaxed);
        bench.scheduler.even_out();
    }
    bench.took();
    for _ in 0..100 {
        bench.turn(4);
        bench.turn(5);
    }
    let mut on_five: Vec<usize> = bench.took().into_iter().filter(|(_, cpu)| *cpu == 5).map(|(name, _)| name).collect();
    on_five.sort();
    on_five.dedup();
    // 4 and 1 become 3 and 2, and that is even enough.
    assert_eq!(on_five.len(), 2, "{on_five:?}");
}

#[test]
fn sleeping_threads_are_no_load_and_pinned_work_stays() {
    let bench = Bench::new(2);
    let (hand, scheduler, ran) = (bench.hand.clone(), bench.scheduler.clone(), bench.ran.clone());
    bench.scheduler.spawn_on(1, async move {
        loop {
            ran.lock().push((7, hand.current().0));
            scheduler.sleep_until(hand.now() + 10 * STEP).await;
        }
    });
    assert_eq!(bench.scheduler.load(), 0);
    assert!(!bench.turn(4) && bench.turn(5));
    for _ in 0..5 {
        assert!(!bench.turn(4) && !bench.turn(5));
        bench.hand.now.fetch_add(10 * STEP, Relaxed);
        assert!(!bench.turn(4) && bench.turn(5));
    }
    assert!(bench.took().iter().all(|ran| *ran == (7, 5)));
    assert_eq!(bench.scheduler.changed_worth(0), Some(0));
    assert_eq!(bench.scheduler.changed_worth(0), None);
}

#[test]
fn work_that_a_thread_starts_here_interrupts_no_other_cpu() {
    for here in [true, false] {
        let bench = Bench::new(2);
        let (hand, ran) = (bench.hand.clone(), bench.ran.clone());
        let tasks = crate::KernelTasks(bench.scheduler.clone());
        let work = async move { ran.lock().push((7, hand.current().0)) };
        let thread = async move {
            match here {
                true => machine::Spawner::spawn_here(&tasks, Box::pin(work)),
                false => machine::Spawner::spawn(&tasks, Box::pin(work)),
            }
        };
        bench.scheduler.spawn_thread(Class::Normal(0), ALL, Box::pin(thread));
        assert!(bench.turn(4));
        assert_eq!(bench.kicked().is_empty(), here);
        assert_eq!((bench.turn(4), bench.turn(5)), (here, !here));
        assert_eq!(bench.took(), [(7, if here { 4 } else { 5 })]);
    }
}

#[test]
fn a_switch_is_a_wait_or_a_preemption_by_another_thread() {
    let bench = Bench::new(1);
    let one = bench.hog(0, Class::Normal(0), ALL);
    // Kernel work comes between, too, which takes nothing from anybody.
    bench.scheduler.spawn(async { yield_now().await });
    for _ in 0..10 {
        bench.turn(4);
    }
    assert_eq!(one.switches(), (0, 0));
    let two = bench.hog(1, Class::Normal(0), ALL);
    for _ in 0..100 {
        bench.turn(4);
    }
    let changes = bench.took().chunk_by(|one, other| one.0 == other.0).count() as u64 - 1;
    let (first, second) = (one.switches(), two.switches());
    assert_eq!((first.0, second.0), (0, 0));
    // The first time that somebody gets the CPU he had none before.
    assert_eq!(first.1 + second.1, changes - 1);
    assert_eq!((one.take_switches(), one.switches()), (first, (0, 0)));
    let (hand, scheduler) = (bench.hand.clone(), bench.scheduler.clone());
    let body = async move {
        for _ in 0..3 {
            scheduler.sleep_until(hand.now() + STEP).await;
        }
        core::future::pending::<()>().await;
    };
    let sleeper = bench.scheduler.spawn_thread(Class::Normal(0), ALL, Box::pin(body));
    for _ in 0..100 {
        bench.turn(4);
    }
    assert_eq!(sleeper.switches().0, 4);
    bench.over.store(true, Relaxed);
    while bench.turn(4) {}
}

/// What is left to do of a thread that has ended keeps nobody from starting here.
#[test]
fn a_thread_that_ends_is_no_load() {
    let bench = Bench::new(1);
    let (task, end) = (Arc::new(Lock::new(None::<crate::TaskRef>)), Arc::new(AtomicBool::new(false)));
    let (scheduler, mine, ends) = (bench.scheduler.clone(), task.clone(), end.clone());
    let body = async move {
        yield_now().await;
        let me = mine.lock().clone();
        scheduler.discount(&me.expect("it has been started"));
        while !ends.load(Relaxed) {
            yield_now().await;
        }
    };
    *task.lock() = Some(bench.scheduler.spawn_thread(Class::Normal(0), ALL, Box::pin(body)));
    assert!(bench.turn(4));
    assert_eq!(bench.scheduler.load(), 1);
    bench.hog(7, Class::Normal(0), ALL);
    while bench.scheduler.load() > 1 {
        bench.turn(4);
    }
    end.store(true, Relaxed);
    bench.over.store(true, Relaxed);
    while bench.turn(4) {}
    assert_eq!(bench.scheduler.load(), 0);
}

/// What a thread is worth as load follows its priority, also when that changes while it runs, waits or comes to another CPU.
#[test]
fn threads_of_low_priority_are_little_load() {
    let bench = Bench::new(2);
    let tasks: Vec<_> = (0..4).map(|name| bench.hog(name, Class::Idle, ALL)).collect();
    let unit = crate::UNIT as usize;
    assert_eq!((bench.scheduler.load(), bench.scheduler.worth()), (4, 4 * Class::Idle.worth()));
    bench.hog(9, Class::Normal(-20), ALL);
    bench.hog(9, Class::Fifo(3), 1);
    assert_eq!((bench.scheduler.load(), bench.scheduler.worth()), (6, 2 * unit + 4 * Class::Idle.worth()));
    tasks.iter().for_each(|task| bench.scheduler.set_class(task, Class::Normal(19)));
    bench.over.store(true, Relaxed);
    while bench.turn(4) | bench.turn(5) {}
    assert_eq!((bench.scheduler.load(), bench.scheduler.worth()), (0, 0));
}

#[test]
fn a_running_thread_that_is_given_another_priority_is_other_load_at_its_next_turn() {
    let bench = Bench::new(1);
    let task = bench.hog(1, Class::Normal(0), ALL);
    bench.hog(2, Class::Normal(0), ALL);
    assert!(bench.turn(4));
    bench.scheduler.set_class(&task, Class::Idle);
    for _ in 0..8 {
        bench.hand.now.fetch_add(10 * STEP, Relaxed);
        bench.turn(4);
    }
    assert_eq!(bench.scheduler.load(), 2);
    assert!(bench.scheduler.worth() <= crate::UNIT as usize + Class::Idle.worth());
    bench.over.store(true, Relaxed);
    while bench.turn(4) {}
    assert_eq!(bench.scheduler.worth(), 0);
}

/// Work in many pieces lets others go first in time, and the CPU look around though nobody waits: it does not know of messages.
#[test]
fn work_in_pieces_pauses() {
    let bench = Bench::new(1);
    let (scheduler, done) = (bench.scheduler.clone(), Arc::new(AtomicU32::new(0)));
    let (hand, pieces) = (bench.hand.clone(), done.clone());
    let body = async move {
        loop {
            pieces.fetch_add(1, Relaxed);
            hand.now.fetch_add(STEP, Relaxed);
            scheduler.pause().await;
        }
    };
    bench.scheduler.spawn_thread(Class::Normal(0), ALL, Box::pin(body));
    assert!(bench.turn(4));
    assert_eq!(done.swap(0, Relaxed), 16);
    assert!(bench.turn(4));
    assert_eq!(done.swap(0, Relaxed), 16);
    // Kernel work waits: it need not wait for more than the piece that is being done.
    let scheduler = bench.scheduler.clone();
    bench.scheduler.spawn(async move { scheduler.sleep_until(scheduler.timers().now() + STEP).await });
    assert!(bench.turn(4) && bench.turn(4));
    assert_eq!(done.load(Relaxed), 1);
}

/// Threads that compute for ever, each with 60 % of a CPU reserved, on fewer CPUs, beside one without: each gets what it has reserved, wherever it waits.
#[test]
fn reservations_are_kept_on_several_cpus() {
    for (cpus, threads) in [(2, 3), (3, 4), (4, 6)] {
        let bench = Bench::new(cpus);
        let reservation = crate::Reservation { runtime: 6 * STEP, deadline: 10 * STEP, period: 10 * STEP };
        for name in 0..threads {
            bench.hog(name, Class::Deadline(reservation), ALL);
        }
        bench.hog(threads, Class::Normal(0), ALL);
        // Time passes on all CPUs at once: a step is over when the last has had its turn.
        let began = bench.hand.now.load(Relaxed);
        for step in 0..2000 {
            for cpu in 4..4 + cpus {
                bench.hand.now.store(began + step * STEP, Relaxed);
                bench.turn(cpu);
            }
        }
        let ran = bench.took();
        let shares: Vec<usize> = (0..=threads).map(|name| ran.iter().filter(|(who, _)| *who == name).count()).collect();
        assert!(shares[..threads].iter().all(|share| (1180..=1220).contains(share)), "{cpus} CPUs: {shares:?} of 2000");
        assert!(shares[threads] > 300, "{cpus} CPUs: {shares:?} of 2000");
    }
}
