//! Does the machine make progress, seen from the host?
//!
//! Kernels watch each other (`platform/src/suspicion.rs`); who watches the only one, or all at once? The primary beats over the link once a second, each
//! time another of its CPUs, and says whose turn is next. Silence alone proves nothing: a busy host gives a CPU no time. As between kernels,
//! three things must come together:
//!
//! 1. No beat for [`PATIENCE`] looks, a second apart, at which this command itself was on time.
//! 2. Then QEMU interrupts all CPUs, by an interrupt that can't be masked. Its handler writes to the log where the CPU is (`WHERE kernel K cpu C`): so
//!    that CPU executes.
//! 3. The CPU whose turn it is has answered [`PROOFS`] times, each time [`PAUSE`] looks after the question, and still no beat.
//!
//! Then nothing will come any more, and the machine ends, with what its CPUs said.

use std::time::{Duration, Instant};

/// From look to look.
pub const SECOND: Duration = Duration::from_secs(1);
/// A look that comes later says nothing.
const LATE: Duration = Duration::from_millis(1500);
/// Looks without a beat before the first question, from question to question, and answered questions that are enough.
const PATIENCE: u32 = 10;
const PAUSE: u32 = 5;
const PROOFS: u32 = 3;

/// What to do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advice {
    Nothing,
    /// Interrupt the CPUs, so that they say where they are.
    Ask,
    /// It makes no progress.
    Stuck,
}

/// The evidence.
#[derive(Debug)]
pub struct Watch {
    last_look: Instant,
    /// The CPU that has to beat; None: the machine has not begun to.
    turn: Option<u32>,
    silent: u32,
    proofs: u32,
    /// Answers of that CPU in the log when it was last asked.
    answers: Option<usize>,
}

impl Watch {
    pub fn new(now: Instant) -> Watch {
        Watch { last_look: now, turn: None, silent: 0, proofs: 0, answers: None }
    }

    /// A beat came, and this CPU has to send the next one.
    pub fn beat(&mut self, next: u32) {
        *self = Watch { turn: Some(next), ..Watch::new(self.last_look) };
    }

    /// How long until the next look.
    pub fn until_look(&self, now: Instant) -> Duration {
        (self.last_look + SECOND).saturating_duration_since(now)
    }

    /// A look, once [`Watch::until_look`] has passed. `answered` counts the answers of a CPU in the log.
    pub fn look(&mut self, now: Instant, answered: impl Fn(u32) -> usize) -> Advice {
        let on_time = now.saturating_duration_since(self.last_look) < LATE;
        self.last_look = now;
        let Some(cpu) = self.turn.filter(|_| on_time) else { return Advice::Nothing };
        self.silent += 1;
        if self.silent < PATIENCE || !(self.silent - PATIENCE).is_multiple_of(PAUSE) {
            return Advice::Nothing;
        }
        let count = answered(cpu);
        self.proofs += u32::from(self.answers.is_some_and(|before| count > before));
        self.answers = Some(count);
        if self.proofs == PROOFS {
            return Advice::Stuck;
        }
        Advice::Ask
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the watch advises, look by look, about a machine whose CPU 3 answers each question (or not).
    fn advices(watch: &mut Watch, looks: u32, every: Duration, answers: bool) -> Vec<Advice> {
        let mut asked = 0;
        let mut look = || {
            let now = watch.last_look + every;
            let advice = watch.look(now, |cpu| if cpu == 3 && answers { asked } else { 0 });
            asked += usize::from(advice == Advice::Ask);
            advice
        };
        (0..looks).map(|_| look()).collect()
    }

    #[test]
    fn cpus_that_execute_and_do_not_beat_are_stuck() {
        let mut watch = Watch::new(Instant::now());
        assert!(
            advices(&mut watch, 1000, SECOND, true).iter().all(|advice| *advice == Advice::Nothing),
            "it has not begun"
        );
        watch.beat(3);
        let all = advices(&mut watch, PATIENCE + PROOFS * PAUSE, SECOND, true);
        assert_eq!(all.iter().position(|advice| *advice == Advice::Ask), Some(PATIENCE as usize - 1));
        assert_eq!(all.iter().filter(|advice| **advice == Advice::Ask).count(), PROOFS as usize);
        assert_eq!(
            all.iter().position(|advice| *advice == Advice::Stuck),
            Some((PATIENCE + PROOFS * PAUSE) as usize - 1)
        );
    }

    #[test]
    fn cpus_that_the_host_gives_no_time_are_not() {
        let mut watch = Watch::new(Instant::now());
        watch.beat(3);
        assert!(!advices(&mut watch, 1000, SECOND, false).contains(&Advice::Stuck));
    }

    #[test]
    fn a_command_that_was_held_up_has_seen_nothing() {
        let mut watch = Watch::new(Instant::now());
        watch.beat(3);
        assert!(advices(&mut watch, 1000, 2 * SECOND, true).iter().all(|advice| *advice == Advice::Nothing));
    }
}
