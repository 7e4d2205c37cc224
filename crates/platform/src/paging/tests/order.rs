//! All orders of one flush and two stays:
//! `RUSTFLAGS="--cfg loom" cargo test --release -p platform --lib paging::tests::order`.

use crate::paging::presence::{Generation, Presence};
use alloc::sync::Arc;
use loom::{
    cell::UnsafeCell,
    model,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
};

const TABLE: u64 = 2;

struct Machine {
    /// The page's entry: mapped or not.
    entry: AtomicU64,
    /// Loom fails when a CPU touches it while (or after, without having been waited for) it gets a new
    /// life.
    frame: UnsafeCell<u64>,
    generation: Generation,
    cpu: Presence,
}

#[test]
fn the_frame_of_a_flushed_page_is_not_touched() {
    model(|| {
        let machine = Arc::new(Machine {
            entry: AtomicU64::new(1),
            frame: UnsafeCell::new(0),
            generation: Generation::new(),
            cpu: Presence::new(),
        });
        let user = thread::spawn({
            let machine = machine.clone();
            move || {
                // The translation has been cached by an earlier stay.
                let (mut cached, mut seen) = (1, 0);
                for _ in 0..2 {
                    let now = machine.cpu.enter(TABLE, &machine.generation);
                    if now != seen {
                        (cached, seen) = (0, now);
                    }
                    if cached == 0 {
                        cached = machine.entry.load(Relaxed);
                    }
                    if cached == 1 {
                        machine.frame.with_mut(|_| ());
                    }
                    machine.cpu.leave();
                }
            }
        });
        machine.entry.store(0, Relaxed);
        machine.generation.bump();
        let seen = machine.cpu.look();
        if seen.using == TABLE {
            while !machine.cpu.has_left(seen) {
                thread::yield_now();
            }
        }
        machine.frame.with_mut(|_| ());
        user.join().unwrap();
    });
}

/// membarrier(2) with restartable sequences: a CPU that is in the kernel, with a thread that is inside of one, runs no user code
/// of it once the flush is over.
#[test]
fn a_sequence_is_left_by_who_was_in_the_kernel() {
    model(|| {
        let machine = Arc::new((AtomicBool::new(false), AtomicBool::new(false), Generation::new(), Presence::new()));
        let user = thread::spawn({
            let machine = machine.clone();
            move || {
                let (told, over, generation, cpu) = &*machine;
                cpu.enter(TABLE, generation);
                if !told.load(Relaxed) {
                    assert!(!over.load(Relaxed), "goes on with its sequence");
                }
                cpu.leave();
            }
        });
        let (told, over, generation, cpu) = &*machine;
        told.store(true, Relaxed);
        generation.bump();
        let seen = cpu.look();
        if seen.using == TABLE {
            while !cpu.has_left(seen) {
                thread::yield_now();
            }
        }
        over.store(true, Relaxed);
        user.join().unwrap();
    });
}
