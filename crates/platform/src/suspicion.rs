//! Does a kernel hang? One observer's evidence, look by look.
//!
//! Problem: a kernel that spins with interrupts off answers nobody and never will, and nobody can see into it.
//! But silence is no proof. On a slow host (the machine is emulated, 16 CPUs share 2) a CPU may get no time for
//! seconds, or the observer itself gets none.
//!
//! Idea: every kernel beats once a second, idle or busy (one timer interrupt), and the next one in the ring
//! watches. Three things must come together before it is condemned:
//!
//! 1. The beat does not change over [`PATIENCE`] seconds in which the *observer* had its CPU on time. A second
//!    that came late says nothing.
//! 2. Then it is probed, ten times a second, by an interrupt that can't be masked. The handler counts on the
//!    board and does nothing else: an answer proves that the CPU has executed since the last look. One that the
//!    host has taken off does not answer, however long that lasts, and is never condemned.
//! 3. [`PROOFS`] answers at different looks, and still no beat. So it is the CPU's own time that is counted: on a
//!    quiet host that is 6 s, and on one that gives the CPU an eighth of its time, many times that. A kernel that is
//!    well beats within that time, for nothing that it does without looking at its timers takes nearly as long.
//!
//! ```text
//!   observer                               watched, slow host          watched, hangs
//!   same beat, 3 seconds
//!   probe -------------------------------> (no CPU)                    answers
//!   same beat, no answer: probe again      gets the CPU: answers,      spins
//!                                          takes the timer, beats
//!   new beat: begin anew                                               answers ... 60 times
//!                                                                      condemned
//! ```

/// Seconds without a beat before the first probe.
const PATIENCE: u32 = 3;
/// Looks since the last beat at which a probe had been answered.
const PROOFS: u32 = 60;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Well,
    /// Too early to say.
    Wait,
    /// Interrupt it, and look again after a tenth of a second.
    Probe,
    /// The same, for the first time since its last beat.
    Suspect,
    /// It hangs.
    Hangs,
}

#[derive(Debug, Default)]
pub struct Suspicion {
    beat: u64,
    missed: u32,
    answered: u32,
    proofs: u32,
}

impl Suspicion {
    /// Once a second: what the board says now. `on_time`: the observer itself was not held up meanwhile.
    pub fn look(&mut self, beat: u64, answered: u32, on_time: bool) -> Verdict {
        if beat != self.beat {
            *self = Suspicion { beat, missed: 0, answered, proofs: 0 };
            return Verdict::Well;
        }
        if !on_time {
            self.answered = answered;
            // It proves nothing, but goes on: else a slow host makes a second of each tenth.
            return if self.missed > PATIENCE { Verdict::Probe } else { Verdict::Wait };
        }
        self.missed += 1;
        // Only an answer to a probe of this silence proves anything.
        if answered != self.answered && self.missed > PATIENCE + 1 {
            self.proofs += 1;
        }
        self.answered = answered;
        if self.proofs >= PROOFS {
            // It ends. Who is seen there next was booted since, may have beaten as often, and is under no suspicion.
            *self = Suspicion { beat, answered, ..Suspicion::default() };
            return Verdict::Hangs;
        }
        match self.missed > PATIENCE {
            true if self.missed == PATIENCE + 1 => Verdict::Suspect,
            true => Verdict::Probe,
            false => Verdict::Wait,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Suspicion, Verdict::*, PATIENCE, PROOFS};

    #[test]
    fn a_kernel_that_executes_but_does_not_beat_hangs() {
        let mut suspicion = Suspicion::default();
        assert_eq!(suspicion.look(7, 0, true), Well);
        let mut answered = 0;
        let mut verdicts = std::vec::Vec::new();
        for _ in 0..PATIENCE + 1 + PROOFS {
            let verdict = suspicion.look(7, answered, true);
            // Every probe is answered before the next look.
            answered += u32::from(matches!(verdict, Suspect | Probe));
            verdicts.push(verdict);
        }
        assert_eq!(verdicts[..5], [Wait, Wait, Wait, Suspect, Probe]);
        assert_eq!(verdicts.iter().filter(|verdict| **verdict == Probe).count(), PROOFS as usize - 1);
        assert_eq!(verdicts.last(), Some(&Hangs));
        // It was ended, and who is there now was booted since and has just beaten as often.
        assert_eq!(suspicion.look(7, answered, true), Wait);
    }

    #[test]
    fn a_cpu_that_the_host_has_taken_away_is_never_condemned() {
        let mut suspicion = Suspicion::default();
        suspicion.look(7, 0, true);
        for _ in 0..1000 {
            assert!(matches!(suspicion.look(7, 0, true), Wait | Suspect | Probe));
        }
        // It gets a moment, in which it answers what has piled up, and beats a moment later.
        assert_eq!(suspicion.look(7, 1, true), Probe);
        assert_eq!(suspicion.look(8, 2, true), Well);
    }

    #[test]
    fn an_observer_that_was_held_up_has_seen_nothing() {
        let mut suspicion = Suspicion::default();
        suspicion.look(7, 0, true);
        for answered in 0..1000 {
            assert_eq!(suspicion.look(7, answered, false), Wait);
        }
        assert_eq!(suspicion.look(7, 1000, true), Wait);
    }

    /// Half of the looks at a kernel that hangs come late: they prove nothing, and cost no more than their own time.
    #[test]
    fn late_looks_neither_prove_nor_start_anew() {
        let mut suspicion = Suspicion::default();
        suspicion.look(7, 0, true);
        let mut looks = 0;
        while suspicion.look(7, looks, looks % 2 == 0) != Hangs {
            looks += 1;
            assert!(looks < 3 * (PATIENCE + PROOFS));
        }
        assert!(looks >= 2 * PROOFS);
    }

    #[test]
    fn beats_now_and_then_are_enough() {
        let mut suspicion = Suspicion::default();
        for second in 0..1000u64 {
            assert_ne!(suspicion.look(second / 5, second as u32, true), Hangs);
        }
    }
}
