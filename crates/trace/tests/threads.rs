//! On the host, each thread has its own points.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use trace::{Point, Sink};

struct Counted(AtomicU64);

impl Sink for Counted {
    fn record(&self, point: Point, _words: &[u64]) {
        assert_eq!(point, Point::SchedProcessExit);
        self.0.fetch_add(1, SeqCst);
    }
}

#[test]
fn points_that_one_thread_switches_on_are_off_in_another() {
    static SINK: Counted = Counted(AtomicU64::new(0));
    trace::set_sink(&SINK);
    assert!(trace::enable(Point::SchedProcessExit.bit()));
    trace::sched_process_exit(1);
    let other = std::thread::spawn(|| {
        trace::sched_process_exit(2);
        trace::enabled()
    });
    assert_eq!(other.join().unwrap(), 0);
    trace::sched_process_fork(1, 2, 2);
    assert_eq!((SINK.0.load(SeqCst), trace::enabled()), (1, Point::SchedProcessExit.bit()));
}
