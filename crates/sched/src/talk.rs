//! Who wakes whom, where one of the two is on another kernel.
//!
//! Everything that runs on a CPU works for a thread, or for nobody ([`Actor`]): a thread for itself, the handler of a request for the thread that
//! sent it. So where a task is made runnable the scheduler knows who woke whom, by two loads and a comparison. Two threads of this kernel
//! are nothing new to it. Another wake, which costs messages in any case, is counted, on the kernel that has what the two talk through: a reader on
//! another kernel waits here as a handler, and a writer's request wakes a reader of this kernel. (What only tells another kernel of news is sent for
//! nobody.)
//!
//! The table has few places. A pair that finds another one in its place takes one from that one's count, and the place when nothing is left
//! (Boyer and Moore's majority vote): pairs that talk much stay, and the table does not grow. CPUs that count at the same moment may lose a
//! count, or leave it to the wrong pair; the table is an estimate.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use machine::{Actor, KernelId};

const PLACES: usize = 32;

/// Two threads that talk through something of this kernel. Not both are here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The two, in the order of their words.
    pub of: [Actor; 2],
    /// How often one has woken the other since the last look, about.
    pub wakes: u32,
}

#[derive(Default)]
struct PairCount {
    pair: AtomicU64,
    wakes: AtomicU32,
}

/// The table of one kernel.
pub struct Talk {
    kernel: KernelId,
    places: [PairCount; PLACES],
    /// Something was counted since the last look.
    any: AtomicBool,
}

fn word(by: Actor, woken: Actor) -> u64 {
    u64::from(by.min(woken).0) << 32 | u64::from(by.max(woken).0)
}

fn place_of(pair: u64) -> usize {
    // Fibonacci hashing: ids of a pair are mostly neighbours.
    (pair.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 59) as usize % PLACES
}

impl Talk {
    pub(crate) fn new(kernel: KernelId) -> Self {
        Talk { kernel, places: Default::default(), any: AtomicBool::new(false) }
    }

    /// `by` wakes `woken`.
    #[inline]
    pub(crate) fn note(&self, by: Actor, woken: Actor) {
        let both_here = by.kernel() == self.kernel && woken.kernel() == self.kernel;
        if !both_here && by.is_another_thread_than(woken) {
            self.count(by, woken);
        }
    }

    #[cold]
    fn count(&self, by: Actor, woken: Actor) {
        let pair = word(by, woken);
        let place = &self.places[place_of(pair)];
        let wakes = place.wakes.load(Relaxed);
        if place.pair.load(Relaxed) == pair {
            place.wakes.store(wakes.saturating_add(1), Relaxed);
        } else if wakes == 0 {
            place.pair.store(pair, Relaxed);
            place.wakes.store(1, Relaxed);
        } else {
            place.wakes.store(wakes - 1, Relaxed);
        }
        if !self.any.load(Relaxed) {
            self.any.store(true, Relaxed);
        }
    }

    /// Whether nobody has talked since the last look.
    pub fn is_quiet(&self) -> bool {
        !self.any.load(Relaxed)
    }

    /// Takes out the pairs that have woken each other at least so often.
    pub fn take(&self, least: u32) -> Vec<Pair> {
        self.any.store(false, Relaxed);
        let taken = self.places.iter().map(|place| (place.pair.load(Relaxed), place.wakes.swap(0, Relaxed)));
        let frequent = taken.filter(|(_, wakes)| *wakes >= least.max(1));
        frequent.map(|(pair, wakes)| Pair { of: [Actor((pair >> 32) as u32), Actor(pair as u32)], wakes }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::Pid;

    fn actor(thread: u32, kernel: u16) -> Actor {
        Actor::new(Pid(thread), KernelId(kernel))
    }

    fn talk() -> Talk {
        Talk::new(KernelId(1))
    }

    #[test]
    fn a_pair_is_counted_in_both_directions() {
        let (talk, a, b) = (talk(), actor(5, 1), actor(4_000_000, 299));
        assert!(talk.is_quiet());
        (0..10).for_each(|_| talk.note(a, b));
        (0..7).for_each(|_| talk.note(b, a));
        assert!(!talk.is_quiet());
        assert_eq!(talk.take(10), [Pair { of: [a, b], wakes: 17 }]);
        assert!(talk.is_quiet() && talk.take(0).is_empty());
    }

    #[test]
    fn who_talks_much_stays_among_thousands_that_talk_little() {
        let (talk, a, b) = (talk(), actor(5, 0), actor(6, 1));
        for other in 0..10_000 {
            talk.note(actor(100 + other, 2), actor(50_000 + other, 3));
            talk.note(a, b);
        }
        let taken = talk.take(5_000);
        assert_eq!(taken.iter().map(|pair| pair.of).collect::<Vec<_>>(), [[a, b]]);
    }

    #[test]
    fn wakes_are_counted_where_not_both_threads_are_here() {
        let counts = |by, woken| {
            let talk = talk();
            talk.note(by, woken);
            !talk.is_quiet()
        };
        assert!(counts(actor(5, 0), actor(6, 1)) && counts(actor(5, 1), actor(6, 0)));
        // What they talk through is here, though neither of them is.
        assert!(counts(actor(5, 0), actor(6, 2)) && counts(actor(5, 2), actor(6, 2)));
        assert!(!counts(actor(5, 1), actor(6, 1)));
        // It has moved.
        assert!(!counts(actor(5, 0), actor(5, 1)));
        assert!(!counts(actor(5, 0), Actor::NOBODY) && !counts(Actor::NOBODY, actor(5, 0)));
    }
}
