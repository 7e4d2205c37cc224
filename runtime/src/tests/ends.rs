//! The end of a runtime while others use it, and runtimes that wait for each other.

use super::*;
use crate::{c, task::lock, Handle};
use std::{ffi::c_void, sync::mpsc::channel};

/// With one CPU.
fn small(workers: usize) -> Runtime {
    Builder::default().mode(Some(Mode::Baseline)).cpus(vec![0]).workers_per_cpu(workers).build().unwrap()
}

fn refuses(work: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(work)).is_err()
}

/// Whether all entrances to it are shut.
fn is_shut(handle: &Handle) -> bool {
    refuses(|| handle.run(|| ()))
        && refuses(|| handle.spawn(|| ()))
        && refuses(|| handle.scope_here(|scope| scope.spawn(|_| ())))
}

#[test]
fn a_runtime_ends_after_what_other_threads_run_there() {
    let runtime = small(1);
    let handle = runtime.handle();
    let ((begun, has_begun), (open, gate)) = (channel(), channel());
    std::thread::scope(|threads| {
        let first = handle.clone();
        let first = threads.spawn(move || {
            first.run(move || {
                begun.send(()).unwrap();
                gate.recv().unwrap();
                join(|| 1, || 2)
            })
        });
        has_begun.recv().unwrap();
        let second = threads.spawn(|| handle.run(|| 3));
        while lock(&handle.shared.central).queue.is_empty() {
            std::thread::yield_now();
        }
        let (say, is_last) = channel();
        let guest = handle.clone();
        let third = threads.spawn(move || {
            let mut lent = 0;
            guest.scope_here(|scope| {
                scope.spawn(|_| lent = 4);
                say.send(()).unwrap();
                drop(runtime);
            });
            lent
        });
        is_last.recv().unwrap();
        // A runtime that does not wait ends now.
        for _ in 0..10_000 {
            if lock(&handle.shared.central).exiting {
                break;
            }
            std::thread::yield_now();
        }
        open.send(()).unwrap();
        assert_eq!((first.join().unwrap(), second.join().unwrap(), third.join().unwrap()), ((1, 2), 3, 4));
    });
}

#[test]
fn a_task_that_was_accepted_runs_though_the_runtime_ends() {
    for _ in 0..100 {
        let (ran, accepted) = (Arc::new(AtomicUsize::new(0)), AtomicUsize::new(0));
        let runtime = runtime(Policy::Fifo);
        let handle = runtime.handle();
        std::thread::scope(|threads| {
            for _ in 0..2 {
                threads.spawn(|| {
                    for _ in 0..200 {
                        let ran = ran.clone();
                        if refuses(|| handle.spawn(move || _ = ran.fetch_add(1, SeqCst))) {
                            break;
                        }
                        accepted.fetch_add(1, SeqCst);
                    }
                });
            }
            drop(runtime);
        });
        assert_eq!(ran.load(SeqCst), accepted.into_inner());
        assert!(is_shut(&handle));
    }
}

#[test]
fn a_task_may_drop_its_runtime() {
    for monitored in [false, true] {
        let runtime = if monitored { monitored_on(counted(1), 8) } else { small(8) };
        let shared = Arc::downgrade(&runtime.shared);
        let runtime = Arc::new(runtime);
        let ours = runtime.clone();
        let ((open, gate), (say, said)) = (channel(), channel());
        runtime.spawn(move || {
            waiting(|| gate.recv().unwrap());
            drop(ours);
            spawn(move || say.send(1).unwrap());
        });
        drop(runtime);
        open.send(()).unwrap();
        assert_eq!(said.recv(), Ok(1));
        // All its threads end.
        while shared.strong_count() > 0 {
            std::thread::yield_now();
        }
    }
}

#[test]
fn runtimes_that_call_each_other_give_their_cpus_away_while_they_wait() {
    fn to_and_fro(one: &Handle, other: &Handle, depth: usize) -> usize {
        if depth == 0 {
            return 0;
        }
        let (mut deeper, also) = (0, AtomicUsize::new(0));
        one.scope_here(|scope| scope.spawn(|_| deeper = 1 + to_and_fro(other, one, depth - 1)));
        one.run(|| scope(|scope| (0..3).for_each(|_| scope.spawn(|_| _ = also.fetch_add(1, SeqCst)))));
        assert_eq!(also.into_inner(), 3);
        deeper
    }
    let cpus = counted(1);
    let pairs = [
        (small(64), small(64)),
        (monitored_on(cpus.clone(), 64), monitored_on(cpus, 64)),
        (monitored_on(counted(1), 64), monitored_on(counted(1), 64)),
    ];
    for (one, other) in pairs {
        assert_eq!(one.run(|| other.run(|| one.run(|| 7))), 7);
        for _ in 0..20 {
            assert_eq!(to_and_fro(&one, &other, 12), 12);
        }
        // Who ends a runtime waits for it, too.
        let back = other.handle();
        let ran = Arc::new(AtomicUsize::new(0));
        let counted = ran.clone();
        other.run(move || {
            one.spawn(move || back.run(move || _ = counted.fetch_add(1, SeqCst)));
            drop(one);
        });
        assert_eq!(ran.load(SeqCst), 1);
    }
}

extern "C" fn nothing(_: *mut c_void) {}

/// In a task. The child finds that it is none.
extern "C" fn forks(_: *mut c_void) {
    let runtime = small(4);
    let handle = runtime.handle();
    spawn(|| ());
    // SAFETY: the child calls this library and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let none = std::ptr::null_mut();
        // SAFETY: no uses.
        let refused = unsafe { c::cob_task(nothing, none, none.cast(), 0, 0) };
        c::cob_taskwait();
        let all = [c::cob_tasks_run(nothing, none), refused] == [-1, -1]
            && (worker_number(), run_another()) == (None, None)
            && Handle::current().is_none()
            && is_shut(&handle);
        drop(runtime);
        // SAFETY: it ends the process.
        unsafe { libc::_exit(if all { 7 } else { 8 }) };
    }
    assert_eq!(status(child), 7 << 8);
    taskwait();
    // SAFETY: the child does nothing but return.
    let child = unsafe { libc::fork() };
    if child == 0 {
        return;
    }
    assert_eq!(status(child), libc::SIGABRT);
}

/// What waitpid says of a child, without the bit for a core dump.
fn status(child: i32) -> i32 {
    let mut status = 0;
    // SAFETY: the kernel writes a number.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    status & !0x80
}

#[test]
fn a_child_that_a_task_forks_is_no_task() {
    let name = "ends::a_child_that_a_task_forks_is_no_task";
    if is_child(name) {
        let code = c::cob_tasks_run(forks, std::ptr::null_mut());
        std::process::exit(code);
    }
    let (good, said) = ends_with(name);
    assert!(good && said.contains("has returned from a task"), "{said}");
}
