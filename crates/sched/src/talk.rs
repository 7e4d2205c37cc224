//! Who wakes whom, where the two are on two kernels.
//!
//! Everything that runs on a CPU works for somebody ([`Actor`]): a thread for itself, the handler of a message for the thread that sent it. Where
//! a task is made runnable, the scheduler so knows who woke whom: a load of each and a comparison, and nothing more is done for two of one
//! kernel. A wake over kernels, which costs messages in any case, is counted in a table of few places. A pair that finds another in its
//! place takes one from that one's count, and the place when nothing is left (Boyer and Moore's majority vote): pairs that talk much stay, and the
//! table does not grow. CPUs that count at the same moment may lose a count, or leave it to the wrong pair; the table is an estimate.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use machine::Actor;

const PLACES: usize = 32;

/// Two threads of two kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The two, in the order of their words.
    pub of: [Actor; 2],
    /// How often one has woken the other since the last look, about.
    pub wakes: u32,
}

#[derive(Default)]
struct Place {
    pair: AtomicU64,
    wakes: AtomicU32,
}

/// The table of one kernel.
#[derive(Default)]
pub struct Talk {
    places: [Place; PLACES],
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
    /// `by` has woken `woken`.
    #[cold]
    pub(crate) fn note(&self, by: Actor, woken: Actor) {
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
    use machine::{KernelId, Pid};

    fn actor(thread: u32, kernel: u16) -> Actor {
        Actor::new(Pid(thread), KernelId(kernel))
    }

    #[test]
    fn a_pair_is_counted_in_both_directions() {
        let (talk, a, b) = (Talk::default(), actor(5, 0), actor(4_000_000, 299));
        assert!(talk.is_quiet());
        (0..10).for_each(|_| talk.note(a, b));
        (0..7).for_each(|_| talk.note(b, a));
        assert!(!talk.is_quiet());
        assert_eq!(talk.take(10), [Pair { of: [a, b], wakes: 17 }]);
        assert!(talk.is_quiet() && talk.take(0).is_empty());
    }

    #[test]
    fn who_talks_much_stays_among_thousands_that_talk_little() {
        let (talk, a, b) = (Talk::default(), actor(5, 0), actor(6, 1));
        for other in 0..10_000 {
            talk.note(actor(100 + other, 2), actor(50_000 + other, 3));
            talk.note(a, b);
        }
        let taken = talk.take(5_000);
        assert_eq!(taken.iter().map(|pair| pair.of).collect::<Vec<_>>(), [[a, b]]);
    }

    #[test]
    fn only_two_threads_of_two_kernels_are_apart() {
        assert!(actor(5, 0).is_apart_from(actor(6, 1)));
        assert!(!actor(5, 1).is_apart_from(actor(6, 1)));
        // It has moved.
        assert!(!actor(5, 0).is_apart_from(actor(5, 1)));
        assert!(!actor(5, 0).is_apart_from(Actor::NOBODY) && !Actor::NOBODY.is_apart_from(actor(5, 1)));
        // Work of kernel 1 for nobody.
        assert!(!actor(5, 0).is_apart_from(actor(0, 1)));
        assert_eq!(
            (actor(4_194_303, 1023).thread(), actor(4_194_303, 1023).kernel()),
            (Pid(4_194_303), KernelId(1023))
        );
    }
}
