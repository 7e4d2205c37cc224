//! How fast the time-stamp counter and the APIC's timer run, measured against channel 2 of the interval timer
//! (Intel 8254 data sheet: mode 0, read-back command).
//!
//! Problem: under emulation, or a hypervisor with more to do than it has CPUs, the CPU may be taken away at any moment and for long. The
//! timer counts down from 65536 and over again: it says the same after 15 ms and after 70, and a clock set by that runs at a fifth of its speed as
//! long as the machine lives.
//!
//! Idea: in mode 0 the timer's output goes up when the count is over and stays up, and the read-back command takes output and
//! count at the same moment. A measurement during which the count ran out is none. Both ends are the tightest of several
//! readings, and a measurement whose ends are not tight is made again: the best counts.

/// Of the timer (kHz times 1000).
const HZ: u64 = 1_193_182;
/// About 15 ms: long enough for 1e-4, short against the boot.
const INTERVAL: u16 = 17_900;
const READINGS: usize = 16;
const ATTEMPTS: usize = 64;
/// Ends this tight, as a part of the interval, are good enough.
const TIGHT: u64 = 1000;
/// Half a second even on the fastest CPU: a timer that has not moved by then does not count.
const STANDS_STILL: u64 = 5_000_000_000;

/// What is measured with.
pub trait Instruments {
    /// Both timers start counting down, the interval timer from its highest count.
    fn start(&mut self);
    fn read(&mut self) -> Reading;
}

#[derive(Clone, Copy)]
pub struct Reading {
    /// The time-stamp counter before the timers were read, and after.
    pub before: u64,
    pub after: u64,
    pub apic: u32,
    /// What the interval timer has left. None: it has begun anew, or not begun.
    pub left: Option<u16>,
}

impl Reading {
    fn width(&self) -> u64 {
        self.after.saturating_sub(self.before)
    }

    fn tsc(&self) -> u64 {
        self.before + self.width() / 2
    }
}

struct Measured {
    tsc: u64,
    apic: u64,
    timer: u64,
    /// By how many ticks of the time-stamp counter it may be wrong.
    width: u64,
}

enum Attempt {
    Done(Measured),
    RanOut,
    StandsStill,
}

/// Rates of the time-stamp counter and of the APIC's timer in kHz. None if the interval timer does not count.
pub fn rates(instruments: &mut impl Instruments) -> Option<(u64, u64)> {
    let mut best: Option<Measured> = None;
    for _ in 0..ATTEMPTS {
        match attempt(instruments) {
            Attempt::Done(measured) if best.as_ref().is_none_or(|best| measured.width < best.width) => {
                let is_tight = measured.width < measured.tsc / TIGHT;
                best = Some(measured);
                if is_tight {
                    break;
                }
            }
            Attempt::Done(_) | Attempt::RanOut => {}
            Attempt::StandsStill => return None,
        }
    }
    let best = best?;
    let khz = |ticks: u64| ticks * HZ / best.timer / 1000;
    Some((khz(best.tsc), khz(best.apic)))
}

fn attempt(instruments: &mut impl Instruments) -> Attempt {
    instruments.start();
    let first = tightest(instruments);
    loop {
        let last = tightest(instruments);
        let (Some(from), Some(to)) = (first.left, last.left) else { return Attempt::RanOut };
        let timer = from.saturating_sub(to);
        let tsc = last.tsc().saturating_sub(first.tsc());
        if timer > INTERVAL {
            let apic = u64::from(first.apic.saturating_sub(last.apic));
            return Attempt::Done(Measured { tsc, apic, timer: timer.into(), width: first.width() + last.width() });
        }
        if tsc > STANDS_STILL {
            return Attempt::StandsStill;
        }
    }
}

fn tightest(instruments: &mut impl Instruments) -> Reading {
    let mut best = instruments.read();
    for _ in 1..READINGS {
        let reading = instruments.read();
        if reading.width() < best.width() {
            best = reading;
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    const TSC_MHZ: u64 = 2500;
    const APIC_MHZ: u64 = 1000;

    /// Timers that count truly, read by a CPU that is taken away now and then.
    struct Bench {
        ns: u64,
        started: u64,
        counts: bool,
        readings: usize,
        /// How long the CPU is away before a reading, and within it.
        away: fn(usize) -> (u64, u64),
    }

    impl Instruments for Bench {
        fn start(&mut self) {
            self.ns += 5_000;
            self.started = self.ns;
        }

        fn read(&mut self) -> Reading {
            let (before_it, within) = (self.away)(self.readings);
            self.readings += 1;
            self.ns += before_it;
            let before = self.ns * TSC_MHZ / 1000;
            self.ns += 1_000;
            let run = self.ns - self.started;
            let count = if self.counts { run * HZ / 1_000_000_000 } else { 0 };
            let apic = u32::MAX - (run * APIC_MHZ / 1000) as u32;
            self.ns += within + 1_000;
            let after = self.ns * TSC_MHZ / 1000;
            self.ns += 3_000;
            Reading { before, after, apic, left: u16::try_from(count).ok().map(|count| u16::MAX - count) }
        }
    }

    fn measured(away: fn(usize) -> (u64, u64)) -> Option<(u64, u64)> {
        rates(&mut Bench { ns: 1_000_000, started: 0, counts: true, readings: 0, away })
    }

    #[track_caller]
    fn assert_right(away: fn(usize) -> (u64, u64)) {
        let (tsc, apic) = measured(away).expect("the timer counts");
        assert!(tsc.abs_diff(TSC_MHZ * 1000) <= TSC_MHZ, "{tsc} kHz");
        assert!(apic.abs_diff(APIC_MHZ * 1000) <= APIC_MHZ, "{apic} kHz");
    }

    #[test]
    fn a_cpu_to_itself_measures_right() {
        assert_right(|_| (0, 0));
    }

    #[test]
    fn a_timer_that_has_begun_anew_meanwhile_is_not_believed() {
        // The count is over once, and has come to where it would be after 15 ms.
        assert_right(|reading| if reading == 100 { (70_000_000, 0) } else { (0, 0) });
        // Again and again.
        assert_right(|reading| if reading < 2000 && reading % 40 == 20 { (125_000_000, 0) } else { (0, 0) });
    }

    #[test]
    fn ends_that_are_not_tight_are_measured_again() {
        // Every reading of the first two attempts is torn.
        assert_right(|reading| if reading < 64 { (0, 700_000) } else { (0, 0) });
    }

    #[test]
    fn a_timer_that_does_not_count_is_told() {
        assert_eq!(rates(&mut Bench { ns: 0, started: 0, counts: false, readings: 0, away: |_| (0, 9_000_000) }), None);
        assert_eq!(measured(|_| (90_000_000, 0)), None, "it never gets from one end to the other");
    }
}
