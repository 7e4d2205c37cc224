//! When threads and programs are placed, and how a thread that waits for a CPU comes to another kernel.
//!
//! - A **thread** is placed when it is born: it has no memory of its own yet.
//! - A **program** is placed by execve, as Linux does it (sched_exec): that is the moment when a process is at
//!   its smallest. The thread moves first, by the migration that exists, and repeats the call there; so the new
//!   address space and the descriptor table are made on the kernel that the program runs on, and everything it
//!   does with them is local. At fork it would be too early: parent and child share all their memory.
//!   What stays at the parent's kernel is the home of the process (its id says so): waiting for it and
//!   signalling it cost its parent no message. A process is sent away once at most, and only by another thread
//!   that wants the CPU here just now: a shell that waits for its command keeps it.
//!
//! - A thread that **waits** for a CPU here, while it could have one elsewhere, is moved by [`System::balance`].
//!   Moving costs it its memory: every page it uses is fetched, or borrowed from then on. Whether it will
//!   run long enough to be worth that, nobody knows; so one goes when threads have waited here about as long as the move
//!   costs (as in renting skis: at most twice as bad as knowing). A thread that came to a kernel stays for a while, and goes
//!   only where it is better off by a whole thread; so two kernels never pass one to and fro.
//!
//! - A thread that **talks** much with another goes where what they talk through is (pairs.rs).
//!
//! The board shows loads a moment late. Dangerous: ten programs started in that moment all see the same idle
//! kernel. So what is on its way to a kernel from here is counted as if it were there (`under_way`).

use crate::{pairs::stays_gathered, placement::Candidate, process::Flags, System, Thread};
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use machine::{sync::Lock, HashMap, KernelId};
use sched::UNIT;

/// Time between two checks for threads that wait.
const LOOK_NS: u64 = 10_000_000;
/// Least time that a thread stays on a kernel it has come to.
const STAY_NS: u64 = 500_000_000;
/// What a move costs, and what each page costs that the thread has touched (a borrowed page takes two messages).
const MOVE_NS: u64 = 100_000_000;
const PAGE_NS: u64 = 50_000;
/// A thread that has waited so long is sent to an idle CPU.
const PATIENCE_NS: u64 = 3_000_000_000;
/// Where threads wait, a CPU looks whose turn it is more often than this. If it has not, it was held up itself (by the
/// host, or by long work of the kernel), and nobody knows what happened meanwhile.
const HELD_UP_NS: u64 = 10_000_000;

/// Where a thread goes at its next user boundary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    /// To this kernel, where it is counted as under way.
    Placed(KernelId),
    /// The same, to who it talks with (pairs.rs), unless it would leave there what it waits for.
    Gathered(KernelId),
    /// To the kernel that the policy names by then, to have a CPU.
    Relief,
    /// To the kernel that the policy names by then, to leave this one empty (packing.rs).
    Packing,
}

/// What the balancer remembers.
#[derive(Default)]
pub(crate) struct Balance {
    /// Threads on their way to a kernel whose load on the board does not show them yet.
    under_way: Lock<HashMap<KernelId, usize>>,
    next_look: AtomicU64,
    pressure: Lock<Pressure>,
    /// `pressure` is not zero, or grows: who finds nobody waiting need not take the lock to see that.
    pressed: AtomicBool,
}

/// For how long somebody has waited here for a CPU, ns. Time in which nobody did is taken off again: a parent and the
/// child it starts want the CPU together for a moment, again and again, and neither has waited long for that.
#[derive(Default)]
struct Pressure {
    waited: u64,
    at: u64,
    waits: bool,
}

impl Pressure {
    /// Notes whether threads wait for a CPU now.
    fn note(&mut self, now: u64, waits: bool) -> u64 {
        let passed = now.saturating_sub(self.at);
        self.waited = match self.waits {
            true => self.waited + passed.min(HELD_UP_NS),
            false => self.waited.saturating_sub(passed),
        };
        (self.at, self.waits) = (now, waits);
        self.waited
    }
}

/// What the move of a thread costs that has touched so many pages, ns.
pub(crate) fn cost_of_move(pages: u64) -> u64 {
    MOVE_NS + pages * PAGE_NS
}

impl System {
    /// Whether `kernel` has a CPU of this affinity.
    pub(crate) fn reaches(&self, kernel: KernelId, affinity: &abi::CpuSet) -> bool {
        let machine = self.machine.lock();
        let cpus = machine.iter().find(|(known, _)| *known == kernel);
        cpus.is_some_and(|(_, cpus)| cpus.iter().any(|&cpu| affinity.contains(cpu)))
    }

    /// The kernel for a thread with this affinity, by the placement policy; None if no kernel has such a CPU.
    pub(crate) fn place(&self, affinity: &abi::CpuSet) -> Option<KernelId> {
        self.with_candidates(affinity, 0, |candidates| self.placement.choose(self.kernel, candidates))
    }

    /// Shows `ask` the kernels that this affinity allows; `own` of the load here is the one in question.
    pub(crate) fn with_candidates<T>(
        &self,
        affinity: &abi::CpuSet,
        own: usize,
        ask: impl FnOnce(&[Candidate<'_>]) -> T,
    ) -> Option<T> {
        let machine = self.machine.lock();
        let here = self.cpu.current();
        let candidates: alloc::vec::Vec<_> = machine
            .iter()
            .filter(|(_, cpus)| cpus.iter().any(|&cpu| affinity.contains(cpu)))
            .map(|(kernel, cpus)| Candidate {
                kernel: *kernel,
                cpus,
                load: self.expected_load(*kernel, own),
                distance: cpus.first().map_or(0, |cpu| self.cpu_distance(here, *cpu)),
            })
            .collect();
        (!candidates.is_empty()).then(|| ask(&candidates))
    }

    /// Load of a kernel as the board says, and what is on its way there from here: in threads. Those of low priority count for the
    /// part of a CPU that they would take from another thread (none, of SCHED_IDLE), and nobody moves for less than half a thread.
    fn expected_load(&self, kernel: KernelId, own: usize) -> usize {
        let under_way = self.placing.balance.under_way.lock().get(&kernel).copied().unwrap_or(0);
        let worth = match kernel == self.kernel {
            // The board is told only now and then.
            true => self.scheduler.worth().saturating_sub(own),
            false => (self.board_load)(kernel),
        };
        under_way + (worth + UNIT as usize / 2) / UNIT as usize
    }

    /// Called by a CPU on which threads wait: may send one of them to another kernel.
    pub fn balance(&self, now: u64) {
        let balance = &self.placing.balance;
        balance.pressed.store(true, Relaxed);
        let waited = balance.pressure.lock().note(now, true);
        let due = balance.next_look.load(Relaxed);
        let looks = |next: u64| balance.next_look.compare_exchange(due, next, Relaxed, Relaxed).is_ok();
        if now < due || !looks(now + LOOK_NS) {
            return;
        }
        self.scheduler.even_out();
        let better = match self.is_crowded() {
            true => self.cheapest_to_move(now),
            false => None,
        };
        match better {
            Some((_, cost, _)) if waited < cost.min(PATIENCE_NS) => return,
            Some((thread, _, to)) => {
                log::debug!("thread {} waits for a CPU: it goes to kernel {to}", thread.tid);
                thread.go_later(Destination::Relief);
            }
            None => {}
        }
        balance.pressure.lock().waited = 0;
    }

    /// Called by a CPU on which no thread waits: notes that nobody here needs relief, unless a sibling CPU is crowded.
    pub fn relax(&self) {
        self.pack();
        let balance = &self.placing.balance;
        if !balance.pressed.load(Relaxed) || self.is_crowded() {
            return;
        }
        if balance.pressure.lock().note(self.now(), false) == 0 {
            // A sibling that sees somebody waiting this moment says so again at its next turn.
            balance.pressed.store(false, Relaxed);
        }
    }

    /// Whether more threads want a CPU here than there are CPUs.
    fn is_crowded(&self) -> bool {
        self.thread_load() > self.cpu.cpus().len()
    }

    /// The waiting thread that is better off on another kernel and is moved most cheaply: what it costs, and where.
    fn cheapest_to_move(&self, now: u64) -> Option<(Arc<Thread>, u64, KernelId)> {
        let waiting: alloc::vec::Vec<Arc<Thread>> = {
            let threads = self.threads.lock();
            threads.values().filter(|thread| thread.waits_for_cpu()).cloned().collect()
        };
        let costs = waiting.iter().filter(|thread| thread.is_settled(now)).filter_map(|thread| {
            let (affinity, pages) = {
                let state = thread.state.lock();
                (state.affinity.clone(), state.usage.minor_faults)
            };
            let relieve = |all: &[Candidate<'_>]| self.placement.relieve(self.kernel, all);
            let to = self.with_candidates(&affinity, thread.class().worth(), relieve).flatten()?;
            (to != self.kernel).then(|| (thread.clone(), cost_of_move(pages), to))
        });
        costs.min_by_key(|(_, cost, _)| *cost)
    }

    /// A thread has been told to go to `kernel` (`true`), or has arrived or given up (`false`).
    pub(crate) fn note_under_way(&self, kernel: KernelId, leaves: bool) {
        let mut under_way = self.placing.balance.under_way.lock();
        let count = under_way.entry(kernel).or_default();
        *count = if leaves { *count + 1 } else { count.saturating_sub(1) };
    }
}

impl Thread {
    /// A new thread, before it runs: it starts where the policy says.
    pub(crate) fn place_at_birth(&self) {
        let affinity = self.state.lock().affinity.clone();
        if let Some(kernel) = self.process.system.place(&affinity) {
            self.send_to(kernel);
        }
    }

    /// execve asks, when it has found the program: true if the thread is to go to another kernel first and
    /// repeat the call there. It goes at its user boundary.
    pub fn place_program(&self) -> bool {
        let process = &self.process;
        let system = &process.system;
        let Some(home) = process.home().filter(|_| !process.has(Flags::PLACED)) else { return false };
        let alone = {
            let state = home.state.lock();
            state.members.len() == 1 && state.replicas.is_empty()
        };
        if !alone {
            return false;
        }
        let affinity = self.state.lock().affinity.clone();
        let own = self.class().worth();
        let choice = system.with_candidates(&affinity, own, |all| system.placement.choose(system.kernel, all));
        match choice {
            Some(kernel) if kernel != system.kernel => {
                process.set_flags(Flags::PLACED, true);
                self.send_to(kernel);
                true
            }
            _ => false,
        }
    }

    /// Whether it has been here long enough to be sent elsewhere.
    pub(crate) fn is_settled(&self, now: u64) -> bool {
        let stays = now.saturating_sub(self.here_since.load(Relaxed)) < STAY_NS;
        !stays && self.is_at_rest() && !stays_gathered(self.state.lock().gathered, now)
    }

    /// At its next user boundary the thread goes where the policy says then.
    pub(crate) fn go_later(&self, destination: Destination) {
        *self.destination.lock() = Some(destination);
        self.misplaced.store(true, SeqCst);
    }

    /// The thread goes to `kernel` at its next user boundary.
    pub(crate) fn send_to(&self, kernel: KernelId) {
        if kernel != self.process.system.kernel {
            self.send(kernel, Destination::Placed(kernel));
        }
    }

    /// The same for who is to come together with another.
    pub(crate) fn send_gathered(&self, kernel: KernelId) {
        self.send(kernel, Destination::Gathered(kernel));
        self.wake();
    }

    fn send(&self, kernel: KernelId, destination: Destination) {
        self.process.system.note_under_way(kernel, true);
        let before = self.destination.lock().replace(destination);
        self.drop_destination(before);
        self.misplaced.store(true, SeqCst);
    }

    /// At the user boundary: where it goes now, counted as under way there.
    pub(crate) fn decide(&self, destination: Destination, affinity: &abi::CpuSet) -> Option<KernelId> {
        let system = &self.process.system;
        match destination {
            // An affinity that was set since wins.
            Destination::Placed(kernel) if system.reaches(kernel, affinity) => Some(kernel),
            Destination::Gathered(kernel)
                if system.reaches(kernel, affinity) && !self.process.files().stay_behind(false) =>
            {
                self.state.lock().left_files = self.process.files().may_follow(fs::MOST_FETCHED);
                Some(kernel)
            }
            Destination::Placed(kernel) | Destination::Gathered(kernel) => {
                system.note_under_way(kernel, false);
                None
            }
            Destination::Relief => {
                // It may have slept for hours since.
                let relieve = |all: &[Candidate<'_>]| system.placement.relieve(system.kernel, all);
                let to = system.with_candidates(affinity, self.class().worth(), relieve).flatten();
                let to = to.filter(|&kernel| kernel != system.kernel)?;
                system.note_under_way(to, true);
                Some(to)
            }
            Destination::Packing => {
                let to = system.fuller(self, affinity)?;
                system.note_under_way(to, true);
                Some(to)
            }
        }
    }

    /// The thread ends: takes back the order to move.
    pub(crate) fn forget_destination(&self) {
        let destination = self.destination.lock().take();
        self.drop_destination(destination);
    }

    fn drop_destination(&self, destination: Option<Destination>) {
        if let Some(Destination::Placed(kernel) | Destination::Gathered(kernel)) = destination {
            self.process.system.note_under_way(kernel, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Pressure;

    const MS: u64 = 1_000_000;

    #[test]
    fn pressure_is_the_time_that_somebody_waits() {
        let mut pressure = Pressure::default();
        pressure.note(1000 * MS, true);
        for turn in 1..=20 {
            assert_eq!(pressure.note((1000 + 3 * turn) * MS, true), 3 * turn * MS);
        }
    }

    #[test]
    fn moments_of_waiting_do_not_add_up_while_the_cpu_is_mostly_free() {
        let mut pressure = Pressure::default();
        for command in 0..1000 {
            let began = command * 40 * MS;
            pressure.note(began, true);
            assert!(pressure.note(began + 5 * MS, false) <= 5 * MS);
        }
    }

    #[test]
    fn short_sleeps_of_those_that_wait_mostly_only_slow_it_down() {
        let mut pressure = Pressure::default();
        for turn in 0..100 {
            pressure.note(turn * 8 * MS, true);
            pressure.note((turn * 8 + 6) * MS, false);
        }
        assert!(pressure.waited >= 300 * MS);
    }

    #[test]
    fn a_cpu_that_was_held_up_has_seen_little() {
        let mut pressure = Pressure::default();
        pressure.note(MS, true);
        assert_eq!(pressure.note(5000 * MS, true), 10 * MS);
    }
}
