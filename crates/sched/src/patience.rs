//! How long a CPU with nothing to do looks out for messages before it halts.
//!
//! Leaving a halt takes an interrupt from the sender and, in a virtual machine, the hypervisor's scheduler: more than
//! most answers of another kernel take to come. A CPU that only ever looks, on the other hand, uses power (or a host's CPU)
//! for nothing. So the time to look follows what happened lately, as in Linux's haltpoll governor: it grows when work
//! came soon after a halt, or while it looked, and shrinks when it came late. (haltpoll learns nothing from work that comes
//! while it looks: a CPU that is left alone once between answers that come soon would look less and less, and halt where
//! it should not.) Who has asked another kernel for pages, has sent a thread there or was told that one comes need not guess: the answer, or the thread, mostly
//! comes at once. From devices and the timer, which interrupt a halted CPU as soon as one that looks, nothing is learned but that.
//!
//! Soon is when somebody rang, not when this CPU was awake: waking up may take longer than it pays to look, and two CPUs that
//! wake each other would halt for ever.

/// Work that comes later than this is worth a halt. (Linux: guest_halt_poll_ns.)
pub(crate) const MOST_NS: u64 = 200_000;
/// The first time to look after a short halt, and the last before none.
const LEAST_NS: u64 = 50_000;

#[derive(Debug, Default)]
pub struct Patience {
    ns: u64,
}

impl Patience {
    /// How long to look now, in ns. `expecting`: this kernel has asked for what another one mostly answers at once.
    pub fn ns(&self, expecting: bool) -> u64 {
        match expecting {
            true => MOST_NS,
            false => self.ns,
        }
    }

    /// Work came while the CPU looked.
    pub fn found(&mut self) {
        self.ns = (self.ns * 2).min(MOST_NS);
    }

    /// A device or the timer ended the wait. It interrupts a CPU that looks out as it does one that is halted, so there was nothing to look out for: a virtual machine's disk
    /// even answers later, if the host's CPUs are busy with looking.
    pub fn interrupted(&mut self) {
        self.halted(u64::MAX);
    }

    /// Work came `ns` after the CPU had had nothing to do, and found it halted.
    pub fn halted(&mut self, ns: u64) {
        self.ns = match ns <= MOST_NS {
            true => (self.ns * 2).clamp(LEAST_NS, MOST_NS),
            false if self.ns / 2 < LEAST_NS => 0,
            false => self.ns / 2,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_halt_now_and_then_does_not_outweigh_what_is_found() {
        let mut patience = Patience::default();
        (0..3).for_each(|_| patience.halted(60_000));
        for _ in 0..100 {
            patience.halted(10_000_000);
            patience.found();
        }
        assert_eq!(patience.ns(false), MOST_NS);
    }

    #[test]
    fn nobody_looks_out_for_a_device() {
        let mut patience = Patience::default();
        (0..3).for_each(|_| patience.halted(60_000));
        assert_eq!(patience.ns(false), MOST_NS);
        (0..3).for_each(|_| patience.interrupted());
        assert_eq!(patience.ns(false), 0);
    }

    #[test]
    fn an_answer_is_waited_for_without_a_halt() {
        assert_eq!(Patience::default().ns(true), MOST_NS);
    }

    #[test]
    fn short_halts_make_it_look_and_long_ones_end_that() {
        let mut patience = Patience::default();
        patience.halted(10_000_000);
        assert_eq!(patience.ns(false), 0);
        for _ in 0..10 {
            patience.halted(60_000);
        }
        assert_eq!(patience.ns(false), MOST_NS);
        for _ in 0..3 {
            patience.halted(10_000_000);
        }
        assert_eq!(patience.ns(false), 0);
    }
}
