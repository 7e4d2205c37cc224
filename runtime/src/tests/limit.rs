//! The limit on workers.

use super::*;
use crate::task::lock;

/// Who comes to a step sets it; others wait for it.
static STEP: AtomicUsize = AtomicUsize::new(0);

fn reach(step: usize) {
    STEP.store(step, SeqCst);
}

fn wait_for(step: usize) {
    until(|| STEP.load(SeqCst) >= step);
}

fn until(holds: impl Fn() -> bool) {
    while !holds() {
        std::thread::yield_now();
    }
}

/// So many workers sleep in taskwait.
fn wait_for_parked(count: usize) {
    let (shared, ..) = worker::current().unwrap();
    until(|| lock(&shared.central).parked.len() == count);
}

/// Workers 0 and 2 belong to CPU 0, 1 and 3 to CPU 1, which is all that there may be. The task of worker 0 goes on on CPU 1. Then no worker is awake on CPU 0, to which one
/// worker is bound: a task that comes must not get a fifth one.
#[test]
fn a_worker_that_has_moved_makes_no_room_for_another() {
    let runtime = Builder::default().mode(Some(Mode::Baseline)).cpus(vec![0; 2]).workers_per_cpu(2).build().unwrap();
    let shared = runtime.shared.clone();
    until(|| lock(&shared.central).pool.len() == 2);
    runtime.spawn(a);
    wait_for(1);
    runtime.spawn(b);
    wait_for(8);
    runtime.spawn(c);
    wait_for(14);
    until(|| lock(&shared.central).parked.len() == 3);
    assert_eq!(lock(&shared.central).bound, [1, 3]);
    let number = Arc::new(AtomicUsize::new(usize::MAX));
    let ours = number.clone();
    runtime.spawn(move || ours.store(worker_number().unwrap(), SeqCst));
    reach(15);
    let most = runtime.most_workers();
    drop(runtime);
    assert!(number.load(SeqCst) < most, "{number:?}");
}

/// On worker 0. Its child is done by worker 1 meanwhile.
fn a() {
    reach(1);
    wait_for(2);
    spawn(a1);
    reach(3);
    wait_for(4);
    taskwait();
    // On CPU 1, which worker 3 has left.
    assert_eq!(run_another(), Some(true));
}

/// On worker 1.
fn b() {
    reach(2);
    wait_for(3);
    spawn(b1);
    assert_eq!(run_another(), Some(true));
    taskwait();
}

/// On worker 1, above b.
fn a1() {
    reach(4);
    wait_for_parked(1);
    wait_for(5);
    spawn(a2);
    reach(6);
    wait_for(7);
}

/// On worker 2, which was made when worker 0 slept.
fn b1() {
    reach(5);
    wait_for(6);
    assert_eq!(run_another(), Some(true));
    wait_for(12);
    spawn(b2);
    reach(13);
    wait_for(14);
    taskwait();
}

/// On worker 2, above b1. With its end worker 0 can go on.
fn a2() {
    reach(7);
    wait_for_parked(2);
    reach(8);
    wait_for(9);
    assert_eq!(run_another(), Some(true));
}

/// On worker 3, which was made when worker 1 slept.
fn c() {
    spawn(c1);
    reach(9);
    wait_for(10);
    taskwait();
}

/// On worker 2, above a2.
fn c1() {
    reach(10);
    wait_for_parked(3);
    spawn(c2);
}

/// On worker 0, above a.
fn c2() {
    reach(12);
    wait_for(13);
    assert_eq!(run_another(), Some(true));
}

/// On worker 0, above c2.
fn b2() {
    reach(14);
    wait_for(15);
}
