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
//!
//! Where many talk with many no pair stands out. So a second table of the same kind counts for each thread of another kernel how often it wakes somebody
//! through something of this kernel, or is woken, and its requests to read and write what threads talk through: where much is on its way few have to be woken
//! (hackbench: eight messages for a wake), and a request has to be answered all the same.

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

/// A thread of another kernel that talks through something of this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guest {
    /// The thread.
    pub actor: Actor,
    /// How often it has woken another thread or was woken since the last look, about.
    pub wakes: u32,
    /// How often it has asked.
    pub requests: u32,
}

#[derive(Default)]
struct Place {
    key: AtomicU64,
    wakes: AtomicU32,
}

/// A table: the keys that are counted most.
#[derive(Default)]
struct Counts {
    places: [Place; PLACES],
}

/// What one kernel counts.
pub struct Talk {
    kernel: KernelId,
    /// By the words of both.
    pairs: Counts,
    /// By the word of the thread that is elsewhere.
    guests: Counts,
    /// By the same, its requests.
    requests: Counts,
    /// Something was counted since the last look.
    any: AtomicBool,
}

fn word(by: Actor, woken: Actor) -> u64 {
    u64::from(by.min(woken).0) << 32 | u64::from(by.max(woken).0)
}

fn place_of(key: u64) -> usize {
    // Fibonacci hashing: ids of those that talk are mostly neighbours.
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 59) as usize % PLACES
}

impl Counts {
    fn count(&self, key: u64) {
        let place = &self.places[place_of(key)];
        let wakes = place.wakes.load(Relaxed);
        if place.key.load(Relaxed) == key {
            place.wakes.store(wakes.saturating_add(1), Relaxed);
        } else if wakes == 0 {
            place.key.store(key, Relaxed);
            place.wakes.store(1, Relaxed);
        } else {
            place.wakes.store(wakes - 1, Relaxed);
        }
    }

    /// Takes out those that were counted at least so often.
    fn take(&self, least: u32) -> impl Iterator<Item = (u64, u32)> + '_ {
        let taken = self.places.iter().map(|place| (place.key.load(Relaxed), place.wakes.swap(0, Relaxed)));
        taken.filter(move |(_, wakes)| *wakes >= least.max(1))
    }
}

impl Talk {
    pub(crate) fn new(kernel: KernelId) -> Self {
        Talk {
            kernel,
            pairs: Counts::default(),
            guests: Counts::default(),
            requests: Counts::default(),
            any: AtomicBool::new(false),
        }
    }

    /// `by` wakes `woken`.
    #[inline]
    pub fn note(&self, by: Actor, woken: Actor) {
        let both_here = by.kernel() == self.kernel && woken.kernel() == self.kernel;
        if !both_here && by.is_another_thread_than(woken) {
            self.count(by, woken);
        }
    }

    #[cold]
    fn count(&self, by: Actor, woken: Actor) {
        self.pairs.count(word(by, woken));
        for actor in [by, woken].into_iter().filter(|actor| actor.kernel() != self.kernel) {
            self.guests.count(u64::from(actor.0));
        }
        self.note_any();
    }

    /// `by`, if it is a thread of another kernel, asks for something of this one that threads talk through.
    pub(crate) fn note_request(&self, by: Actor) {
        if by != Actor::NOBODY && by.kernel() != self.kernel {
            self.requests.count(u64::from(by.0));
            self.note_any();
        }
    }

    fn note_any(&self) {
        if !self.any.load(Relaxed) {
            self.any.store(true, Relaxed);
        }
    }

    /// Whether nobody has talked since the last look.
    pub fn is_quiet(&self) -> bool {
        !self.any.load(Relaxed)
    }

    /// Takes out the pairs that have woken each other at least so often, and the threads of other kernels that have asked, woken or were woken so often.
    pub fn take(&self, least: u32) -> (Vec<Pair>, Vec<Guest>) {
        self.any.store(false, Relaxed);
        let pair = |(word, wakes)| Pair { of: [Actor((word >> 32) as u32), Actor(word as u32)], wakes };
        let guest = |(word, wakes)| Guest { actor: Actor(word as u32), wakes, requests: 0 };
        let mut guests: Vec<Guest> = self.guests.take(least).map(guest).collect();
        for (word, requests) in self.requests.take(least) {
            let actor = Actor(word as u32);
            match guests.iter_mut().find(|guest| guest.actor == actor) {
                Some(guest) => guest.requests = requests,
                None => guests.push(Guest { actor, wakes: 0, requests }),
            }
        }
        (self.pairs.take(least).map(pair).collect(), guests)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
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
        assert_eq!(
            talk.take(10),
            (vec![Pair { of: [a, b], wakes: 17 }], vec![Guest { actor: b, wakes: 17, requests: 0 }])
        );
        assert!(talk.is_quiet() && talk.take(0) == (vec![], vec![]));
    }

    #[test]
    fn who_talks_much_stays_among_thousands_that_talk_little() {
        let (talk, a, b) = (talk(), actor(5, 0), actor(6, 1));
        for other in 0..10_000 {
            talk.note(actor(100 + other, 2), actor(50_000 + other, 3));
            talk.note(a, b);
        }
        let (taken, _) = talk.take(5_000);
        assert_eq!(taken.iter().map(|pair| pair.of).collect::<Vec<_>>(), [[a, b]]);
    }

    /// Each of twenty talks with each of twenty, half of them elsewhere.
    #[test]
    fn of_many_that_talk_with_many_the_guests_are_known() {
        let talk = talk();
        let thread = |number: u32| actor(5000 + number, (number % 2) as u16);
        for _ in 0..20 {
            for (sender, receiver) in (0..400).map(|at| (at / 20, 20 + at % 20)) {
                talk.note(thread(sender), thread(receiver));
            }
        }
        let (_, guests) = talk.take(10);
        // Each of the twenty was in 400 wakes; two in one place take from each other.
        assert!(guests.len() >= 15, "{guests:?}");
        assert!(guests.iter().all(|guest| guest.actor.kernel() == KernelId(0)), "{guests:?}");
    }

    #[test]
    fn requests_of_other_kernels_threads_are_counted_though_they_wake_nobody() {
        let (talk, here, there) = (talk(), actor(5, 1), actor(6, 0));
        talk.note_request(here);
        talk.note_request(Actor::NOBODY);
        assert!(talk.is_quiet());
        (0..12).for_each(|_| talk.note_request(there));
        assert!(!talk.is_quiet());
        let guest = |wakes, requests| Guest { actor: there, wakes, requests };
        assert_eq!(talk.take(10).1, [guest(0, 12)]);
        (0..15).for_each(|_| talk.note_request(there));
        (0..11).for_each(|_| talk.note(here, there));
        assert_eq!(talk.take(10).1, [guest(11, 15)]);
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
