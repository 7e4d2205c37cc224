//! When each request may be answered.
//!
//! A request is *served* for the delay, and then it is due. At most `depth` requests are served at the same time; others queue until one of
//! those is answered. A request that has queued is served from the moment when the one before it was due, not from when that was in fact answered: a
//! thread that wakes up late makes one answer late, and not all that come after it.
//!
//! ```text
//! delay 10, depth 1       0         10          20          30
//! A comes at 0            |--served--|due
//! B comes at 1             (queues)  |--served---|due
//! the thread                          A answered at 12
//!                                                 B answered at 21, not at 22 or later
//! ```
//!
//! The clock is the caller's: nothing here waits.

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

pub struct Schedule<T> {
    delay: Duration,
    depth: usize,
    /// With when they are due, the first first: the delay is the same for all.
    served: VecDeque<(Instant, T)>,
    /// With when they came.
    queued: VecDeque<(Instant, T)>,
    /// Due requests that were taken out and are not answered yet: they count as served.
    taken: usize,
}

/// What to do next.
#[derive(Debug, PartialEq, Eq)]
pub enum Next<T> {
    /// Answer this one, and then say so: [`Schedule::answered`] with the moment.
    Answer(Instant, T),
    /// The next request is due then.
    Wait(Instant),
    /// Nothing is served, or all that is was taken out.
    Nothing,
}

impl<T> Schedule<T> {
    pub fn new(delay: Duration, depth: Option<NonZeroUsize>) -> Schedule<T> {
        let depth = depth.map_or(usize::MAX, NonZeroUsize::get);
        Schedule { delay, depth, served: VecDeque::new(), queued: VecDeque::new(), taken: 0 }
    }

    pub fn arrive(&mut self, now: Instant, request: T) {
        self.queued.push_back((now, request));
        self.serve(now);
    }

    pub fn next(&mut self, now: Instant) -> Next<T> {
        match self.served.pop_front_if(|(due, _)| *due <= now) {
            Some((due, request)) => {
                self.taken += 1;
                Next::Answer(due, request)
            }
            None => self.served.front().map_or(Next::Nothing, |(due, _)| Next::Wait(*due)),
        }
    }

    /// The request that was due then has been answered.
    pub fn answered(&mut self, due: Instant) {
        self.taken -= 1;
        self.serve(due);
    }

    /// Whether there is a request that was not taken out.
    pub fn is_empty(&self) -> bool {
        self.served.is_empty() && self.queued.is_empty()
    }

    /// Drops what was not taken out.
    pub fn clear(&mut self) {
        self.served.clear();
        self.queued.clear();
    }

    /// Serves what may be served from `free` on, when there was room for one.
    fn serve(&mut self, free: Instant) {
        while self.served.len() + self.taken < self.depth {
            let Some((came, request)) = self.queued.pop_front() else { return };
            let due = came.max(free) + self.delay;
            // Answers of several threads may come in another order than they were due.
            let due = self.served.back().map_or(due, |(last, _)| due.max(*last));
            self.served.push_back((due, request));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn us(number: u64) -> Duration {
        Duration::from_micros(number)
    }

    #[test]
    fn requests_wait_at_the_same_time() {
        let start = Instant::now();
        let mut schedule = Schedule::new(us(1000), None);
        (0..32).for_each(|n| schedule.arrive(start + us(n), n));
        assert_eq!(schedule.next(start + us(999)), Next::Wait(start + us(1000)));
        for n in 0..32 {
            assert_eq!(schedule.next(start + us(1031)), Next::Answer(start + us(1000 + n), n));
        }
        assert_eq!(schedule.next(start + us(1031)), Next::Nothing);
        assert!(schedule.is_empty());
    }

    #[test]
    fn no_more_than_depth_wait_at_the_same_time() {
        let start = Instant::now();
        let mut schedule = Schedule::new(us(10), NonZeroUsize::new(2));
        (0..5).for_each(|n| schedule.arrive(start, n));
        let late = start + us(1000);
        let first = [schedule.next(late), schedule.next(late)];
        assert_eq!(first, [Next::Answer(start + us(10), 0), Next::Answer(start + us(10), 1)]);
        assert_eq!(schedule.next(late), Next::Nothing, "both are being answered");
        assert!(!schedule.is_empty());
        schedule.answered(start + us(10));
        assert_eq!(schedule.next(late), Next::Answer(start + us(20), 2));
    }

    #[test]
    fn late_answers_do_not_add_up() {
        let start = Instant::now();
        let mut schedule = Schedule::new(us(1000), NonZeroUsize::new(1));
        (0..1000).for_each(|n| schedule.arrive(start, n));
        for n in 1..=1000 {
            // Each thread wakes up 90 us late.
            let Next::Answer(due, _) = schedule.next(start + us(1000 * n + 90)) else { panic!("{n} is not due") };
            assert_eq!(due, start + us(1000 * n));
            schedule.answered(due);
        }
    }

    proptest! {
        /// Whatever the threads do: no answer before its delay has passed, in the order of arrival, never more than `depth` at once.
        #[test]
        fn delays_and_depth_hold(steps in prop::collection::vec((0u64..50, 0u8..3), 1..200), delay in 0u64..100, depth in 1usize..5) {
            let mut now = Instant::now();
            let mut schedule = Schedule::new(us(delay), NonZeroUsize::new(depth));
            let (mut came, mut expected, mut taken) = (Vec::new(), 0, Vec::new());
            for (pause, step) in steps {
                now += us(pause);
                match step {
                    0 => {
                        schedule.arrive(now, came.len());
                        came.push(now);
                    }
                    1 => match schedule.next(now) {
                        Next::Answer(due, n) => {
                            prop_assert_eq!(n, expected);
                            prop_assert!(due <= now && came[n] + us(delay) <= due);
                            expected += 1;
                            taken.push(due);
                            prop_assert!(taken.len() <= depth);
                        }
                        Next::Wait(due) => prop_assert!(due > now),
                        Next::Nothing => prop_assert!(taken.len() == depth || expected == came.len()),
                    },
                    _ => if let Some(due) = (!taken.is_empty()).then(|| taken.swap_remove(0)) {
                        schedule.answered(due);
                    },
                }
            }
        }
    }
}
