//! What a thread uses of CPUs, counted at every way into and out of user mode: the CPU that runs the thread writes,
//! without a lock and without a read-modify-write, and others may read at any time.
//!
//! A [`Stopwatch`] is one word, so that a reader never adds a stretch twice or finds it missing:
//!
//! ```text
//!   two words: ns, since               one word: stands at ns, or runs since a point of time
//!   writer: ns += now - since
//!                      reader: ns + (now - since): the stretch twice
//!   writer: since = 0
//! ```
//!
//! The other one is about the clock, which the reader looks at before or after the word:
//!
//! ```text
//!   reader: now                        the host takes the reader's CPU
//!   writer: stops, is read by others, and starts, later than now
//!   reader: word + now                 less than the others saw: time has gone back
//! ```
//!
//! So a reader looks at the words before and after the clock, until they are the same. The writer may lose its CPU there too:
//!
//! ```text
//!   writer: now                        the host takes the writer's CPU
//!                      reader: ns since it runs, up to later than now
//!   writer: stops at now               less than the reader saw
//! ```
//!
//! What a reader was told is therefore kept, and nobody is told less (as Linux does: cputime_adjust).

use core::sync::atomic::{fence, AtomicU64, Ordering::*};
use messages::process::Usage;

/// Bit 0: it runs. The rest: ns it stands at, or, if it runs, that minus the time of the clock when it was started.
#[derive(Default)]
pub(crate) struct Stopwatch(AtomicU64);

const RUNS: u64 = 1;

/// The time that a stopwatch with this word shows.
fn shown(word: u64, now: u64) -> u64 {
    match word & RUNS {
        RUNS => ((word >> 1).wrapping_add(now) << 1) >> 1,
        _ => word >> 1,
    }
}

impl Stopwatch {
    pub fn read(&self, now: u64) -> u64 {
        shown(self.0.load(Relaxed), now)
    }

    /// Starts the stopwatch, which must not run.
    pub fn start(&self, now: u64) {
        let word = self.0.load(Relaxed);
        debug_assert_eq!(word & RUNS, 0);
        self.0.store(word.wrapping_sub(now << 1) | RUNS, Relaxed);
    }

    /// Stops the stopwatch, which must run.
    pub fn stop(&self, now: u64) {
        let word = self.0.load(Relaxed);
        debug_assert_eq!(word & RUNS, RUNS);
        self.0.store((word - RUNS).wrapping_add(now << 1), Relaxed);
    }

    /// What it shows, from which it goes back to zero.
    fn take(&self, now: u64) -> u64 {
        let word = self.0.load(Relaxed);
        self.0.store(if word & RUNS == 0 { 0 } else { 0u64.wrapping_sub(now) << 1 | RUNS }, Relaxed);
        shown(word, now)
    }
}

/// The CPU time of a thread since it was last moved to its usage. (The scheduler counts its switches.)
#[derive(Default)]
pub(crate) struct Account {
    /// While it has a CPU, and of that, while it is in user mode.
    running: Stopwatch,
    user: Stopwatch,
    /// Up to where `user` has been told of (wrapping).
    told: AtomicU64,
    /// The most that readers were told, of user mode and of the rest. Nobody reads while it goes back to zero.
    shown_user: AtomicU64,
    shown_system: AtomicU64,
}

impl Account {
    /// The thread gets the CPU, in the kernel.
    pub fn resumed(&self, now: u64) {
        self.running.start(now);
    }

    /// It loses the CPU. Gives the ns it has been in user mode since this was last asked.
    pub fn suspended(&self, now: u64) -> u64 {
        self.running.stop(now);
        let user = self.user.read(now);
        let told = self.told.load(Relaxed);
        self.told.store(user, Relaxed);
        user.wrapping_sub(told)
    }

    pub fn enters_user(&self, now: u64) {
        self.user.start(now);
    }

    pub fn leaves_user(&self, now: u64) {
        self.user.stop(now);
    }

    /// Adds the times to `usage`. Any CPU may call it, but not during [`Account::move_to`].
    pub fn add_to(&self, usage: &mut Usage, clock: impl Fn() -> u64) {
        let words = || (self.user.0.load(Acquire), self.running.0.load(Acquire));
        let mut before = words();
        let (user, running, now) = loop {
            let now = clock();
            fence(Acquire);
            let after = words();
            if before == after {
                break (after.0, after.1, now);
            }
            before = after;
        };
        let (user, system) = self.at_least_shown(shown(user, now), shown(running, now));
        self.shown_user.store(user, Relaxed);
        self.shown_system.store(system, Relaxed);
        self.add(usage, user, system);
    }

    /// Moves the times to `usage`. Only the CPU that runs the thread may call it, or any if none does.
    pub fn move_to(&self, usage: &mut Usage, now: u64) {
        let taken = self.user.take(now);
        let (user, system) = self.at_least_shown(taken, self.running.take(now));
        self.shown_user.store(0, Relaxed);
        self.shown_system.store(0, Relaxed);
        self.add(usage, user, system);
        self.told.store(self.told.load(Relaxed).wrapping_sub(taken), Relaxed);
    }

    /// ns in user mode and in the kernel.
    fn at_least_shown(&self, user: u64, running: u64) -> (u64, u64) {
        let user = user.max(self.shown_user.load(Relaxed));
        (user, running.saturating_sub(user).max(self.shown_system.load(Relaxed)))
    }

    fn add(&self, usage: &mut Usage, user: u64, system: u64) {
        usage.user_ns += user;
        usage.system_ns += system;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stopwatch_shows_what_it_ran() {
        let watch = Stopwatch::default();
        assert_eq!(watch.read(1 << 50), 0);
        watch.start(1 << 50);
        assert_eq!(watch.read((1 << 50) + 7), 7);
        watch.stop((1 << 50) + 10);
        assert_eq!(watch.read(1 << 51), 10);
        watch.start(1 << 52);
        assert_eq!(watch.read((1 << 52) + 5), 15);
        assert_eq!(watch.take((1 << 52) + 6), 16);
        assert_eq!(watch.read((1 << 52) + 8), 2);
        watch.stop((1 << 52) + 9);
        assert_eq!((watch.take(0), watch.read(0)), (3, 0));
    }

    #[test]
    fn time_is_user_or_system_and_nothing_is_counted_twice() {
        let (account, mut usage) = (Account::default(), Usage::default());
        account.resumed(100);
        account.enters_user(110);
        account.add_to(&mut usage, || 125);
        assert_eq!((usage.user_ns, usage.system_ns), (15, 10));
        account.leaves_user(130);
        let mut usage = Usage::default();
        account.move_to(&mut usage, 131);
        assert_eq!(account.suspended(140), 20);
        account.add_to(&mut usage, || 1000);
        assert_eq!((usage.user_ns, usage.system_ns), (20, 20));
        account.resumed(1000);
        account.enters_user(1000);
        account.leaves_user(1007);
        assert_eq!(account.suspended(1010), 7);
    }

    #[test]
    fn a_reader_whose_clock_is_old_looks_again() {
        let (account, mut usage, looks) = (Account::default(), Usage::default(), core::cell::Cell::new(0));
        account.resumed(0);
        let clock = || {
            looks.set(looks.get() + 1);
            if looks.get() > 1 {
                return 70;
            }
            // The reader has seen 10 and loses its CPU.
            account.suspended(50);
            account.resumed(60);
            10
        };
        account.add_to(&mut usage, clock);
        assert_eq!((usage.cpu_ns(), looks.get()), (60, 2));
    }

    #[test]
    fn a_writer_whose_clock_is_old_takes_nothing_back() {
        let (account, mut usage) = (Account::default(), Usage::default());
        account.resumed(0);
        account.enters_user(10);
        let told = |now| {
            let mut usage = Usage::default();
            account.add_to(&mut usage, || now);
            (usage.user_ns, usage.system_ns)
        };
        assert_eq!(told(100), (90, 10));
        // It looked at the clock before the reader did.
        account.leaves_user(40);
        assert_eq!(told(110), (90, 20));
        account.suspended(60);
        assert_eq!(told(200), (90, 20));
        account.move_to(&mut usage, 300);
        assert_eq!((usage.user_ns, usage.system_ns, told(400)), (90, 20, (0, 0)));
    }
}
