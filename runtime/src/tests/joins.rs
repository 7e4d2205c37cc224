//! Halves of joins in which tasks are made and waited for.

use super::*;

fn one_worker() -> Runtime {
    Builder::default().mode(Some(Mode::Baseline)).cpus(vec![0]).workers_per_cpu(1).build().unwrap()
}

#[test]
fn taskwait_in_a_half_of_a_join_waits_for_what_that_half_has_made() {
    for runtime in [one_worker(), runtime(Policy::Fifo), monitored(64)] {
        runtime.run(|| join(|| (), taskwait));
        runtime.run(|| join(taskwait, || ()));
        let ran = AtomicUsize::new(0);
        let half = || {
            let one = Arc::new(AtomicUsize::new(0));
            for _ in 0..2 {
                let counted = one.clone();
                spawn(move || _ = counted.fetch_add(1, SeqCst));
                taskwait();
            }
            assert_eq!(one.load(SeqCst), 2);
            join(taskwait, taskwait);
            ran.fetch_add(1, SeqCst);
        };
        for _ in 0..100 {
            runtime.run(|| join(half, half));
        }
        assert_eq!(ran.into_inner(), 200);
    }
}

#[test]
fn taskwait_in_the_first_half_does_not_wait_for_the_second() {
    let order = Arc::new(Mutex::new(Vec::new()));
    let say = |what: &'static str| order.lock().unwrap().push(what);
    one_worker().run(|| {
        join(
            || {
                let order = order.clone();
                spawn(move || order.lock().unwrap().push("child"));
                taskwait();
                say("first");
            },
            || say("second"),
        )
    });
    assert_eq!(*order.lock().unwrap(), ["child", "first", "second"]);
}

#[test]
fn taskwait_in_a_half_that_another_worker_has_taken_leaves_its_cpu_to_the_children() {
    let runtime = monitored(64);
    for _ in 0..50 {
        let (begun, wait) = std::sync::mpsc::channel();
        let child_ran = runtime.run(|| {
            let first = move || waiting(|| wait.recv().unwrap());
            let second = move || {
                begun.send(()).unwrap();
                let (send, receive) = std::sync::mpsc::channel();
                spawn(move || send.send(()).unwrap());
                taskwait();
                receive.try_recv().is_ok()
            };
            join(first, second).1
        });
        assert!(child_ran);
    }
}

#[test]
fn children_of_a_half_end_before_its_join_and_their_panics_come_out_of_it() {
    let runtime = runtime(Policy::Lifo);
    for _ in 0..50 {
        let ended = Arc::new(AtomicUsize::new(0));
        let half = |panics: bool| {
            let ended = ended.clone();
            move || {
                spawn(move || {
                    ended.fetch_add(1, SeqCst);
                    if panics {
                        std::panic::resume_unwind(Box::new("child"));
                    }
                });
            }
        };
        runtime.run(|| {
            join(half(false), half(false));
            assert_eq!(ended.load(SeqCst), 2);
            let panic = catch_unwind(AssertUnwindSafe(|| join(half(false), half(true)))).unwrap_err();
            assert_eq!((panic.downcast_ref::<&str>(), ended.load(SeqCst)), (Some(&"child"), 4));
        });
    }
}
