//! Every order of what two CPUs of one kernel do to each other: queueing and halting, stealing, giving away, changes of class, timers that fire and are
//! cancelled. Locks are points of decision like atomics (`loom_locks`).
//!
//! ```text
//! RUSTFLAGS="--cfg loom --cfg loom_locks" cargo test -p sched --release --test loom
//! ```
#![cfg(loom)]

use loom::{
    sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst},
    thread,
};
use machine::{Cpu, CpuId, FpuState, PageTable, Registers, Trap};
use sched::{Class, Edge, Monitor, Scheduler, TaskRef};
use std::{
    cell::Cell,
    future::{poll_fn, Future},
    sync::{atomic, Arc, Mutex},
    task::{Poll, Waker},
};

loom::thread_local! {
    /// The CPU that this thread of the model is.
    static HERE: Cell<u32> = Cell::new(0);
}

/// This thread of the model is that CPU.
fn be(cpu: u32) {
    HERE.with(|here| here.set(cpu));
}

/// Two CPUs, whose clock stands still unless a test moves it.
struct Two {
    cpus: [CpuId; 2],
    now: AtomicU64,
    kicked: [AtomicBool; 2],
}

impl Cpu for Two {
    fn current(&self) -> CpuId {
        CpuId(HERE.with(Cell::get))
    }
    fn cpus(&self) -> &[CpuId] {
        &self.cpus
    }
    fn run_user(&self, _: &mut Registers, _: &dyn PageTable, _: &atomic::AtomicBool) -> Trap {
        Trap::Interrupt
    }
    fn fpu_size(&self) -> usize {
        0
    }
    fn fpu_load(&self, _: &FpuState) {}
    fn fpu_save(&self, _: &mut FpuState) {}
    fn now(&self) -> u64 {
        self.now.load(SeqCst)
    }
    fn set_alarm(&self, _: Option<u64>) {}
    fn kick(&self, cpu: CpuId) {
        self.kicked[cpu.0 as usize].store(true, SeqCst);
    }
    fn capabilities(&self) -> (u64, u64) {
        (0, 0)
    }
    fn random(&self, _: &mut [u8]) {}
}

struct Machine {
    hardware: Arc<Two>,
    scheduler: Arc<Scheduler>,
}

impl Machine {
    fn new() -> Arc<Machine> {
        let hardware = Arc::new(Two {
            cpus: [CpuId(0), CpuId(1)],
            now: AtomicU64::new(1),
            kicked: [AtomicBool::new(false), AtomicBool::new(false)],
        });
        Arc::new(Machine { scheduler: Scheduler::new(hardware.clone(), machine::KernelId(0)), hardware })
    }

    /// A thread that runs once: queued for one CPU, and then allowed on those of `allowed`.
    fn start(&self, cpu: u32, allowed: u64) -> Arc<AtomicUsize> {
        let ran = Arc::new(AtomicUsize::new(0));
        let counted = ran.clone();
        let body = async move {
            counted.fetch_add(1, SeqCst);
        };
        self.scheduler.spawn_thread(Class::Normal(0), 1 << cpu, Box::pin(body)).set_allowed(allowed);
        ran
    }

    /// All that is left to do on either CPU.
    fn finish(&self) {
        for cpu in [0, 1, 0] {
            be(cpu);
            while self.scheduler.turn() {}
        }
        assert_eq!(self.scheduler.load(), 0);
    }

    /// What CPU `cpu` does until it halts. True: it is halted, and was not kicked after it had said that it would.
    fn work_until_halted(&self, cpu: u32) -> bool {
        be(cpu);
        loop {
            self.hardware.kicked[cpu as usize].store(false, SeqCst);
            if self.scheduler.turn() {
                continue;
            }
            if self.scheduler.prepare_idle() {
                return !self.hardware.kicked[cpu as usize].load(SeqCst);
            }
        }
    }
}

/// Tries all orders with up to three preemptions.
fn model(check: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.max_branches = 20_000;
    let orders = Arc::new(atomic::AtomicUsize::new(0));
    let counted = orders.clone();
    builder.check(move || {
        counted.fetch_add(1, atomic::Ordering::Relaxed);
        check()
    });
    // Where there is one order the CPUs do nothing to each other, and the model says nothing.
    let orders = orders.load(atomic::Ordering::Relaxed);
    println!("{orders} orders");
    assert!(orders > 10);
}

/// Nobody sleeps on a thread that only he may run.
#[test]
fn a_thread_that_is_queued_for_a_cpu_that_halts_is_seen_or_kicks() {
    model(|| {
        let machine = Machine::new();
        let other = machine.clone();
        let halting = thread::spawn(move || other.work_until_halted(1));
        let ran = machine.start(1, 0b10);
        halting.join().unwrap();
        let kicked = machine.hardware.kicked[1].load(SeqCst);
        assert!(ran.load(SeqCst) == 1 || kicked, "it waits for a CPU that sleeps");
        machine.finish();
        assert_eq!(ran.load(SeqCst), 1);
    });
}

/// Nor on one that is given to him.
#[test]
fn a_thread_that_is_given_to_a_cpu_that_halts_is_seen_or_kicks() {
    model(|| {
        let machine = Machine::new();
        let ran = [machine.start(0, 0b01), machine.start(0, 0b10)];
        let other = machine.clone();
        let halting = thread::spawn(move || other.work_until_halted(1));
        machine.scheduler.even_out();
        halting.join().unwrap();
        let kicked = machine.hardware.kicked[1].load(SeqCst);
        assert!(ran[1].load(SeqCst) == 1 || kicked, "it waits for a CPU that sleeps");
        machine.finish();
        assert_eq!(ran.map(|ran| ran.load(SeqCst)), [1, 1]);
    });
}

/// Each thread runs once, and no load is lost or left.
#[test]
fn a_thread_that_is_stolen_runs_once() {
    model(|| {
        let machine = Machine::new();
        let ran = [machine.start(0, 0b11), machine.start(0, 0b01), machine.start(0, 0b11)];
        let other = machine.clone();
        let thief = thread::spawn(move || {
            be(1);
            other.scheduler.turn();
        });
        machine.scheduler.turn();
        thief.join().unwrap();
        machine.finish();
        assert_eq!(ran.map(|ran| ran.load(SeqCst)), [1, 1, 1]);
    });
}

/// A thread sleeps on CPU 0 and is woken on CPU 1, where it cancels its timer, which fires or not. It goes on once, and the timer is gone.
#[test]
fn a_timer_that_is_cancelled_while_it_fires_wakes_nobody_twice_and_is_gone() {
    model(|| {
        let machine = Machine::new();
        let (scheduler, done) = (machine.scheduler.clone(), Arc::new(AtomicUsize::new(0)));
        let wake = Arc::new((AtomicBool::new(false), Mutex::new(None::<Waker>)));
        let (counted, waits) = (done.clone(), wake.clone());
        let body = async move {
            let (mut sleep, mut later) = (Box::pin(scheduler.sleep_until(10)), Box::pin(scheduler.sleep_until(1000)));
            poll_fn(|context| {
                assert!(later.as_mut().poll(context).is_pending());
                *waits.1.lock().unwrap() = Some(context.waker().clone());
                match waits.0.load(SeqCst) {
                    true => Poll::Ready(()),
                    false => sleep.as_mut().poll(context),
                }
            })
            .await;
            drop((sleep, later));
            counted.fetch_add(1, SeqCst);
        };
        let sleeper = machine.scheduler.spawn_thread(Class::Normal(0), 0b01, Box::pin(body));
        machine.scheduler.turn();
        sleeper.set_allowed(0b10);
        let other = machine.clone();
        let waker = thread::spawn(move || {
            be(1);
            wake.0.store(true, SeqCst);
            let waker = wake.1.lock().unwrap().clone();
            waker.unwrap().wake();
            other.scheduler.turn();
        });
        machine.hardware.now.store(20, SeqCst);
        machine.scheduler.turn();
        waker.join().unwrap();
        machine.finish();
        assert_eq!((done.load(SeqCst), machine.scheduler.timers().earliest()), (1, None));
    });
}

/// The second danger at the head of scheduler.rs: a thread last ran on CPU 1, is woken for CPU 0, and becomes urgent meanwhile.
#[test]
fn a_thread_that_is_given_a_class_while_it_is_queued_has_it() {
    model(|| {
        let machine = Machine::new();
        let first = Arc::new(AtomicUsize::new(0));
        let waker = Arc::new(Mutex::new(None::<Waker>));
        let (ran, waits) = (first.clone(), waker.clone());
        let mut begun = false;
        let body = poll_fn(move |context| {
            *waits.lock().unwrap() = Some(context.waker().clone());
            if !std::mem::replace(&mut begun, true) {
                return Poll::Pending;
            }
            _ = ran.compare_exchange(0, 1, SeqCst, SeqCst);
            Poll::Ready(())
        });
        let urgent = machine.scheduler.spawn_thread(Class::Normal(0), 0b10, Box::pin(body));
        be(1);
        machine.scheduler.turn();
        urgent.set_allowed(0b01);
        be(0);
        let ran = first.clone();
        let body = async move { _ = ran.compare_exchange(0, 2, SeqCst, SeqCst) };
        machine.scheduler.spawn_thread(Class::Normal(0), 0b01, Box::pin(body));
        let queuing = thread::spawn(move || {
            be(1);
            let waker = waker.lock().unwrap().clone();
            waker.unwrap().wake();
        });
        machine.scheduler.set_class(&urgent, Class::Fifo(1));
        queuing.join().unwrap();
        machine.finish();
        assert_eq!(first.load(SeqCst), 1, "it waits as what it was");
    });
}

/// A thread that may use both CPUs is woken, and forbidden the one that it last had; the same while it gives up the CPU for a moment, or is stolen. Wherever it
/// is on its way, it does not wait for a CPU that it may not use.
#[test]
fn a_thread_that_is_forbidden_a_cpu_while_it_is_queued_does_not_wait_for_it() {
    model(|| {
        let machine = Machine::new();
        let ran = Arc::new(Mutex::new(Vec::new()));
        let waker = Arc::new(Mutex::new(None::<Waker>));
        let (ran_on, waits) = (ran.clone(), waker.clone());
        let mut begun = false;
        let body = poll_fn(move |context| {
            *waits.lock().unwrap() = Some(context.waker().clone());
            if !std::mem::replace(&mut begun, true) {
                return Poll::Pending;
            }
            ran_on.lock().unwrap().push(HERE.with(Cell::get));
            Poll::Ready(())
        });
        let task = machine.scheduler.spawn_thread(Class::Normal(0), 0b10, Box::pin(body));
        be(1);
        machine.scheduler.turn();
        task.set_allowed(0b11);
        be(0);
        let other = machine.clone();
        let queuing = thread::spawn(move || {
            be(0);
            let waker = waker.lock().unwrap().clone();
            waker.unwrap().wake();
            other.scheduler.turn();
        });
        machine.scheduler.set_allowed(&task, 0b01);
        queuing.join().unwrap();
        // CPU 1 has nothing that it may run.
        be(1);
        machine.scheduler.turn();
        assert!(!ran.lock().unwrap().contains(&1), "it waited for a CPU that it may not use");
        machine.finish();
        assert_eq!(*ran.lock().unwrap(), [0]);
    });
}

/// A thread waits for CPU 0, which is busy. CPU 1 steals it while it is forbidden CPU 1.
#[test]
fn a_thread_that_is_forbidden_a_cpu_while_it_is_stolen_does_not_wait_for_it() {
    model(|| {
        let machine = Machine::new();
        let ran = Arc::new(Mutex::new(Vec::new()));
        let _first = machine.start(0, 0b01);
        let ran_on = ran.clone();
        let body = async move { ran_on.lock().unwrap().push(HERE.with(Cell::get)) };
        let task = machine.scheduler.spawn_thread(Class::Normal(0), 0b01, Box::pin(body));
        task.set_allowed(0b11);
        let (other, forbidden, noted) = (machine.clone(), Arc::new(AtomicBool::new(false)), ran.clone());
        let known = forbidden.clone();
        let thief = thread::spawn(move || {
            be(1);
            let before = known.load(SeqCst);
            other.scheduler.turn();
            // It may have run here before it was forbidden to, not after.
            assert!(!before || !noted.lock().unwrap().contains(&1));
        });
        machine.scheduler.set_allowed(&task, 0b01);
        forbidden.store(true, SeqCst);
        thief.join().unwrap();
        let early = ran.lock().unwrap().clone();
        be(1);
        machine.scheduler.turn();
        assert_eq!(*ran.lock().unwrap(), early, "it waited for a CPU that it may not use");
        machine.finish();
        assert_eq!(ran.lock().unwrap().len(), 1);
    });
}

/// Counts blocks and unblocks of both CPUs together.
#[derive(Default)]
struct Counts([atomic::AtomicUsize; 2]);

impl Monitor for Counts {
    fn count(&self, _: usize, edge: Edge) -> bool {
        self.0[edge as usize].fetch_add(1, atomic::Ordering::Relaxed);
        true
    }
    fn tell(&self, _: usize) -> bool {
        false
    }
}

/// A monitored thread waits on CPU 0 and is woken by CPU 1, which may take it before CPU 0 has counted: there are as many blocks as unblocks, each one
/// or, if it was woken before it had left, none beside those of its beginning and end.
#[test]
fn a_block_and_its_unblock_are_both_counted_or_neither() {
    model(|| {
        let machine = Machine::new();
        let counts = Arc::new(Counts::default());
        // A mutex of the model: that of async-task, by which who wakes a task has seen what it did, is none.
        let wake = Arc::new((AtomicBool::new(false), loom::sync::Mutex::new(None::<Waker>)));
        let task = Arc::new(Mutex::new(None::<TaskRef>));
        let (scheduler, waits, own, monitor) = (machine.scheduler.clone(), wake.clone(), task.clone(), counts.clone());
        let body = async move {
            let task = own.lock().unwrap().clone().unwrap();
            scheduler.begin_monitoring(&task, monitor);
            poll_fn(|context| {
                *waits.1.lock().unwrap() = Some(context.waker().clone());
                match waits.0.load(SeqCst) {
                    true => Poll::Ready(()),
                    false => Poll::Pending,
                }
            })
            .await;
            let told = scheduler.enters_user(&task).expect("it is monitored");
            scheduler.tell_here(told);
            scheduler.end_monitoring(&task);
        };
        *task.lock().unwrap() = Some(machine.scheduler.spawn_thread(Class::Normal(0), 0b11, Box::pin(body)));
        let other = machine.clone();
        let waker = thread::spawn(move || {
            be(1);
            wake.0.store(true, SeqCst);
            let waker = wake.1.lock().unwrap().take();
            if let Some(waker) = waker {
                waker.wake();
            }
            other.scheduler.turn();
        });
        machine.scheduler.turn();
        waker.join().unwrap();
        machine.finish();
        let [blocks, unblocks] = [0, 1].map(|edge: usize| counts.0[edge].load(atomic::Ordering::Relaxed));
        assert_eq!(blocks, unblocks);
        assert!((1..=3).contains(&blocks), "{blocks}");
    });
}
