//! Brings the threads of one process to the kernel whose pipes, sockets or futexes they wake each other through.
//!
//! Problem: each thread is placed when it is born, where it finds a CPU. If they talk through sockets or pipes, these are on one kernel, and all that the
//! others say costs messages. As a rule many talk with many, so no pair stands out (pairs.rs), and that one of them comes is of no use.
//!
//! Idea: the same for all of them together. The kernel that has what they talk through counts how often each thread of another kernel asks to read or write
//! it, wakes somebody there or is woken (`sched/src/talk.rs`): a guest. Where it has threads of the same process itself, it adds up from look to look what
//! that costs, less twice what its CPUs would lack if they came: they were spread to use more CPUs, and have those back only after a while. When
//! that has reached the cost of all the moves, all come that have talked at least ten times in that look and whose affinity and files allow it. A futex, too, is on one kernel, and counts as what is talked through: threads that meet at
//! barriers come together only if they wait most of the time.
//!
//! Dangerous: two deciders, as in pairs.rs. So all threads of the process that are here are marked before the first one is asked to come: the balancer leaves
//! them here, and another kernel that decides the same at this moment gets none of them. If each gets none of the other's, the one with the lower number decides again.

use crate::{
    balance::cost_of_move,
    pairs::{cost_of_talk, lack, LOOK_NS},
    System,
};
use alloc::{collections::BTreeMap, vec::Vec};
use machine::{sync::Lock, Actor, Pid};
use messages::process::Talker;
use sched::Guest;

/// What the move of each thread costs, beside that of its pages.
const THREAD_NS: u64 = 5_000_000;
/// Processes that are remembered from one look to the next.
const MOST_KNOWN: usize = 16;

/// The processes whose threads this kernel has seen talk.
#[derive(Default)]
pub(crate) struct Guests(Lock<Vec<KnownProcess>>);

/// What was seen of a process at the last look.
struct KnownProcess {
    process: Pid,
    at: u64,
    /// CPU time that each of its guests has used.
    used: Vec<(Actor, u64)>,
    /// CPU time that all threads have used on this kernel.
    all: u64,
    /// How often this kernel has woken a CPU of another with a doorbell.
    rung: u64,
    /// What it would have saved so far if the guests had come, ns.
    saved: u64,
}

/// What one look at a process has counted.
#[derive(Clone, Copy)]
struct Passed {
    /// Time since the look before.
    ns: u64,
    /// How often guests have woken or were woken, and have asked.
    wakes: u64,
    requests: u64,
    rung: u64,
    /// CPU time of all threads here.
    all: u64,
    /// CPU time of the guests.
    used: u64,
}

impl Passed {
    /// What it would have saved if the guests had been here, which has so many CPUs, ns.
    fn saves(self, cpus: usize) -> i64 {
        let lack = lack(cpus as u64 * self.ns, self.all, self.used) as i64;
        cost_of_talk(self.wakes, self.requests, self.rung, cpus) - 2 * lack
    }
}

/// CPU time of guests between two looks; of those that only the second has seen, the mean of the others'.
fn used_between(before: &[(Actor, u64)], now: &[(Actor, u64)]) -> u64 {
    let at = |actor: Actor| before.iter().find(|(known, _)| *known == actor).map(|(_, used)| *used);
    let known: Vec<u64> = now.iter().filter_map(|(actor, used)| Some(used.saturating_sub(at(*actor)?))).collect();
    known.iter().sum::<u64>() * now.len() as u64 / known.len().max(1) as u64
}

impl Guests {
    /// What is known of the process. Of one that has not talked for two looks nothing is: it begins anew.
    fn take(&self, process: Pid, now: u64) -> Option<KnownProcess> {
        let mut known = self.0.lock();
        known.retain(|known| now.saturating_sub(known.at) < 3 * LOOK_NS);
        known.iter().position(|known| known.process == process).map(|at| known.swap_remove(at))
    }

    fn note(&self, process: KnownProcess) {
        let mut known = self.0.lock();
        if known.len() < MOST_KNOWN {
            known.push(process);
        }
    }
}

impl System {
    /// Looks at the threads of other kernels that have talked here.
    pub(crate) async fn weigh_guests(&self, guests: Vec<Guest>) {
        let mut processes: BTreeMap<Pid, Vec<(Guest, Talker)>> = BTreeMap::new();
        for guest in guests {
            let Some(talker) = self.ask_talker(guest.actor).await.filter(|talker| talker.may_come_with_others) else {
                continue;
            };
            if self.has_thread_of(talker.process) {
                processes.entry(talker.process).or_default().push((guest, talker));
            }
        }
        for (process, guests) in processes {
            self.weigh_process(process, &guests).await;
        }
    }

    fn has_thread_of(&self, process: Pid) -> bool {
        let process = self.process(process);
        process.is_some_and(|process| process.local_threads().iter().any(|thread| !thread.is_away()))
    }

    /// Looks at a process: the second time in a row at the earliest, its guests come.
    async fn weigh_process(&self, process: Pid, guests: &[(Guest, Talker)]) {
        let now = self.now();
        let before = self.placing.pairs.guests.take(process, now);
        let used = guests.iter().map(|(guest, talker)| (guest.actor, talker.used_ns)).collect();
        let (all, rung) = (self.threads_ns(now), self.endpoint.stats().doorbells_rung);
        let mut seen = KnownProcess { process, at: now, used, all, rung, saved: 0 };
        if let Some(before) = before {
            let passed = Passed {
                ns: now.saturating_sub(before.at),
                wakes: guests.iter().map(|(guest, _)| u64::from(guest.wakes)).sum(),
                requests: guests.iter().map(|(guest, _)| u64::from(guest.requests)).sum(),
                rung: rung.saturating_sub(before.rung),
                all: all.saturating_sub(before.all),
                used: used_between(&before.used, &seen.used),
            };
            seen.saved = before.saved.saturating_add_signed(passed.saves(self.cpu.cpus().len()));
        }
        let pages = guests.iter().map(|(_, talker)| talker.pages).sum();
        if seen.saved < cost_of_move(pages) + guests.len() as u64 * THREAD_NS {
            self.placing.pairs.guests.note(seen);
            return;
        }
        // First those that are here: see the head of this file.
        let Some(process) = self.process(process) else { return };
        let kept = process.local_threads().iter().filter_map(|thread| self.keep_gathered(thread.tid)).collect();
        let movers: Vec<Actor> = guests.iter().map(|(guest, _)| guest.actor).collect();
        if !self.gather(&movers, kept, true).await {
            self.placing.pairs.guests.note(seen);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::KernelId;

    const MS: u64 = 1_000_000;

    fn saves(wakes: u64, rung: u64, all: u64, used: u64, cpus: usize) -> i64 {
        Passed { ns: 100 * MS, wakes, requests: 0, rung, all: all * MS, used: used * MS }.saves(cpus) / MS as i64
    }

    #[test]
    fn threads_that_wake_halted_cpus_all_the_time_come_also_where_a_cpu_is_lacking() {
        // 40 wakes a millisecond, a quarter of them with doorbells; both kernels are full.
        assert!(saves(4000, 1100, 95, 95, 1) >= 50);
        assert!(saves(4000, 1100, 50, 50, 2) >= 400);
    }

    #[test]
    fn requests_that_wake_few_are_saved_and_cost_no_switches() {
        // hackbench: ten requests in a millisecond, and a quarter as many wakes; most find a CPU that looks out.
        let passed = Passed { ns: 100 * MS, wakes: 280, requests: 1000, rung: 160, all: 15 * MS, used: 10 * MS };
        assert!(passed.saves(1) >= 50 * MS as i64 && passed.saves(2) >= 50 * MS as i64);
        // Threads that compute and ask now and then.
        let passed = Passed { ns: 100 * MS, wakes: 20, requests: 200, rung: 100, all: 100 * MS, used: 100 * MS };
        assert!(passed.saves(1) < -100 * MS as i64);
    }

    #[test]
    fn threads_that_compute_stay_apart() {
        // Four threads that meet ten times in a millisecond for a moment, and whose CPUs look out for each other.
        assert!(saves(3000, 20, 100, 300, 1) < -600);
        // And where one wakes three with doorbells, two hundred times in 100 ms.
        assert!(saves(1200, 600, 80, 240, 1) < 0);
        assert!(saves(1200, 600, 160, 240, 2) < 0);
    }

    #[test]
    fn of_guests_that_are_new_the_mean_of_the_others_is_taken() {
        let actor = |thread| Actor::new(Pid(thread), KernelId(1));
        let before = [(actor(1), 100), (actor(2), 100)];
        assert_eq!(used_between(&before, &[(actor(1), 110), (actor(2), 130), (actor(3), 5000)]), 60);
        assert_eq!(used_between(&[], &[(actor(3), 5000)]), 0);
    }
}
