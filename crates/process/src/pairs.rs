//! Who talks much comes together.
//!
//! Problem: two programs that talk through a pipe or a socket start on two kernels, for each was placed when it was alone. From then on every request
//! is messages, doorbells and CPUs that wake from a halt, though one kernel has the time for both.
//!
//! The scheduler counts wakes between two threads of two kernels (`sched/src/talk.rs`), on the kernel where they happen: where the pipe is, or where the
//! message arrives. That kernel looks at the counts five times a second, while there are any, and asks the kernels of the two what each has used of a
//! CPU, what others use there, and what its move would cost. Apart, they lose what the wakes cost ([`WAKE_NS`] each); together, what the CPUs
//! there lack for both ([`Side`]). The difference adds up, and when it has reached the cost of the cheaper move, that thread moves (as in renting
//! skis: at most twice as bad as knowing how long they will talk). So where CPUs are saturated the two stay apart, and [`System::balance`] takes them
//! apart later.
//!
//! Dangerous: two deciders. [`System::balance`] relieves the kernel where the pair is now, and the wakes bring it together again, for ever. So both of a pair
//! that came together are marked, and the marks travel with them: neither is relieved for [`AGAIN_NS`], twice as long each time it comes together,
//! and neither is asked again within [`AGAIN_NS`] of its last move. The other two are kernels that both count wakes of a pair (each end of a connection on its
//! own), and decide at the same moment:
//!
//! ```text
//!   K1: a is to come to K2             K2: b is to come to K1
//!   a leaves                           b leaves                    <- they have changed places
//! ```
//!
//! Both see the same costs and so choose the same thread; and the one that stays is marked first, so that it does not go.
//!
//! Only two processes are brought together. Threads of one process were spread for its program to use more CPUs.

use crate::{
    balance::{cost_of_move, Destination},
    placement::Candidate,
    System, Thread,
};
use alloc::{sync::Arc, vec::Vec};
use core::sync::atomic::{AtomicU64, Ordering::*};
use machine::{sync::Lock, Actor, KernelId, Pid};
use messages::process::{AskTalker, Gather, Gathered, Talker};
use sched::Pair;

/// Time between two looks at the counts.
const LOOK_NS: u64 = 200_000_000;
/// Wakes from one look to the next that are worth a question.
const LEAST_WAKES: u32 = 20;
/// What a wake of a thread on another kernel costs: two messages, as a borrowed page takes (balance.rs), and a CPU that mostly has halted.
const WAKE_NS: u64 = 200_000;
/// Least time that a thread stays where it has come together with another, and before it goes to another again.
const AGAIN_NS: u64 = 10_000_000_000;
/// The stay doubles so often: up to eleven minutes.
const MOST_DOUBLED: u64 = 6;
/// Pairs that are remembered from one look to the next.
const MOST_KNOWN: usize = 16;

/// The pairs that a kernel has seen talking.
#[derive(Default)]
pub(crate) struct Pairs {
    next_look: AtomicU64,
    next_pack: AtomicU64,
    known: Lock<Vec<KnownPair>>,
}

/// What was seen of a pair at the last look.
struct KnownPair {
    of: [Actor; 2],
    at: u64,
    talkers: [Talker; 2],
    /// What they would have saved so far, ns.
    saved: u64,
}

/// One of a pair, and the kernel that it is on, from one look to the next. Times are in thousandths of a CPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Side {
    /// What the thread has used.
    pub used: u64,
    /// What the other threads of its kernel have used.
    pub others: u64,
    /// What the kernel has.
    pub capacity: u64,
    /// What it would cost to move the thread, ns.
    pub cost: u64,
    /// It may go to the other's kernel.
    pub may_go: bool,
}

/// What is best for a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    /// Which of the two moves.
    pub mover: usize,
    /// What that saves, in thousandths of a CPU.
    pub saves: u64,
}

/// Who of a pair should go to the other, if wakes take `talk` thousandths of a CPU; None: they stay apart.
pub(crate) fn choose(sides: &[Side; 2], talk: u64) -> Option<Choice> {
    let together = sides[0].used + sides[1].used;
    let choices = (0..2).filter(|&mover| sides[mover].may_go).filter_map(|mover| {
        let there = &sides[1 - mover];
        let lacking = (there.others + together).saturating_sub(there.capacity);
        Some(Choice { mover, saves: talk.checked_sub(lacking).filter(|saves| *saves > 0)? })
    });
    choices.min_by_key(|choice| sides[choice.mover].cost)
}

/// Whether a thread may come together with another: it never has, or has not moved lately.
fn may_gather(gathered: Gathered, here_since: u64, now: u64) -> bool {
    gathered.times == 0 || now.saturating_sub(gathered.at.max(here_since)) >= AGAIN_NS
}

/// Whether a thread that has come together with another stays for that.
pub(crate) fn stays_gathered(gathered: Gathered, now: u64) -> bool {
    let doubled = gathered.times.saturating_sub(1).min(MOST_DOUBLED);
    gathered.times > 0 && now.saturating_sub(gathered.at) < AGAIN_NS << doubled
}

impl System {
    /// Called by a CPU between two tasks: looks at who has talked, if it is time.
    pub fn look_for_pairs(self: &Arc<Self>) {
        let talk = self.scheduler.talk();
        if talk.is_quiet() {
            return;
        }
        let now = self.now();
        let due = self.pairs.next_look.load(Relaxed);
        if now < due || self.pairs.next_look.compare_exchange(due, now + LOOK_NS, Relaxed, Relaxed).is_err() {
            return;
        }
        let pairs = talk.take(LEAST_WAKES);
        if pairs.is_empty() {
            return;
        }
        let system = self.clone();
        self.scheduler.spawn(async move {
            for pair in pairs {
                system.weigh(pair).await;
            }
        });
    }

    /// Looks at a pair: the second time in a row it may be brought together.
    async fn weigh(&self, pair: Pair) {
        let [first, second] = pair.of;
        let (Some(one), Some(two)) = (self.ask_talker(first, second).await, self.ask_talker(second, first).await)
        else {
            return;
        };
        if one.process == two.process {
            return;
        }
        let now = self.now();
        let Some((choice, saved, cost)) = self.compare(pair, [one, two], now) else { return };
        if saved < cost {
            return;
        }
        let (mover, stayer) = (pair.of[choice.mover], pair.of[1 - choice.mover]);
        let to = stayer.kernel();
        // The one that stays first: see the head of this file.
        if self.tell(stayer, to).await && self.tell(mover, to).await {
            log::debug!("thread {} talks with thread {}: it goes to kernel {to}", mover.thread(), stayer.thread());
        }
        self.pairs.known.lock().retain(|known| known.of != pair.of);
    }

    async fn ask_talker(&self, talker: Actor, other: Actor) -> Option<Talker> {
        self.endpoint.call(talker.kernel(), AskTalker { thread: talker.thread(), other: other.kernel() }).await.ok()?
    }

    async fn tell(&self, talker: Actor, to: KernelId) -> bool {
        self.endpoint.call(talker.kernel(), Gather { thread: talker.thread(), to }).await.unwrap_or(false)
    }

    /// Holds what is known of a pair now against the last look: what is best for it, what that would have saved by now, and what it costs.
    fn compare(&self, pair: Pair, talkers: [Talker; 2], now: u64) -> Option<(Choice, u64, u64)> {
        let mut all = self.pairs.known.lock();
        // Who has not talked for two looks has begun anew.
        all.retain(|known| now.saturating_sub(known.at) < 3 * LOOK_NS);
        let before = all.iter().position(|known| known.of == pair.of).map(|at| all.swap_remove(at));
        let mut known = KnownPair { of: pair.of, at: now, talkers, saved: 0 };
        let choice = before.and_then(|before| {
            let passed = now.saturating_sub(before.at).max(1);
            let sides = [0, 1].map(|at| side(&before.talkers[at], &known.talkers[at], passed));
            let choice = choose(&sides, u64::from(pair.wakes) * WAKE_NS * 1000 / passed)?;
            known.saved = before.saved + choice.saves * passed / 1000;
            Some((choice, known.saved, sides[choice.mover].cost))
        });
        if all.len() < MOST_KNOWN {
            all.push(known);
        }
        choice
    }

    /// Serves [`AskTalker`].
    pub(crate) fn talker_here(&self, thread: Pid, other: KernelId) -> Option<Talker> {
        let now = self.now();
        let thread = self.thread(thread).filter(|thread| !thread.is_away())?;
        let usage = thread.usage();
        Some(Talker {
            process: thread.process.id,
            used_ns: usage.cpu_ns(),
            pages: usage.minor_faults,
            may_go: thread.may_gather(now) && self.reaches(other, &thread.state.lock().affinity),
            threads_ns: self.threads_ns(now),
            cpus: self.cpu.cpus().len() as u16,
        })
    }

    /// Serves [`Gather`].
    pub(crate) fn gather_here(&self, thread: Pid, to: KernelId) -> bool {
        let now = self.now();
        let Some(thread) = self.thread(thread).filter(|thread| thread.may_gather(now)) else { return false };
        {
            let mut state = thread.state.lock();
            if to != self.kernel && !self.reaches(to, &state.affinity) {
                return false;
            }
            state.gathered = Gathered { at: now, times: state.gathered.times + 1 };
        }
        thread.send_to(to);
        true
    }

    /// Called by a CPU on which no thread waits, where the policy gathers: a thread of this kernel may go to a fuller one.
    pub(crate) fn pack(&self) {
        let now = self.now();
        let due = self.pairs.next_pack.load(Relaxed);
        if now < due || self.pairs.next_pack.compare_exchange(due, now + LOOK_NS, Relaxed, Relaxed).is_err() {
            return;
        }
        let threads: Vec<Arc<Thread>> = {
            let threads = self.threads.lock();
            threads.values().filter(|thread| !thread.is_away() && thread.is_settled(now)).cloned().collect()
        };
        let wants = |thread: &&Arc<Thread>| {
            let affinity = thread.state.lock().affinity.clone();
            self.fuller(thread, &affinity).is_some()
        };
        if let Some(thread) = threads.iter().filter(wants).min_by_key(|thread| thread.state.lock().usage.minor_faults) {
            thread.go_later(Destination::Gathering);
        }
    }

    /// Where the policy gathers a thread of this kernel.
    pub(crate) fn fuller(&self, thread: &Thread, affinity: &abi::CpuSet) -> Option<KernelId> {
        let gather = |all: &[Candidate<'_>]| self.placement.gather(self.kernel, all);
        self.with_candidates(affinity, thread.class().worth(), gather).flatten().filter(|&to| to != self.kernel)
    }
}

impl Thread {
    fn may_gather(&self, now: u64) -> bool {
        let is_settled = !self.is_away() && self.destination.lock().is_none();
        is_settled && may_gather(self.state.lock().gathered, self.here_since.load(Relaxed), now)
    }
}

/// What a talker and its kernel have used in `passed` ns.
fn side(before: &Talker, now: &Talker, passed: u64) -> Side {
    let thousandths = |ns: u64| ns * 1000 / passed;
    let used = now.used_ns.saturating_sub(before.used_ns);
    let all = now.threads_ns.saturating_sub(before.threads_ns);
    Side {
        used: thousandths(used),
        others: thousandths(all.saturating_sub(used)),
        capacity: u64::from(now.cpus) * 1000,
        cost: cost_of_move(now.pages),
        may_go: now.may_go,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn lazy() -> Side {
        Side { used: 300, others: 0, capacity: 1000, cost: 100 * MS, may_go: true }
    }

    #[test]
    fn the_cheaper_of_two_that_fit_moves() {
        let sides = [lazy(), Side { cost: 99 * MS, ..lazy() }];
        assert_eq!(choose(&sides, 200), Some(Choice { mover: 1, saves: 200 }));
        let stays = Side { may_go: false, ..sides[1] };
        assert_eq!(choose(&[sides[0], stays], 200), Some(Choice { mover: 0, saves: 200 }));
        assert_eq!(choose(&[stays, stays], 200), None, "an affinity wins");
        // Where the cheaper one would go somebody has the CPU.
        let crowded = Side { others: 1000, ..sides[0] };
        assert_eq!(choose(&[crowded, sides[1]], 200), Some(Choice { mover: 0, saves: 200 }));
    }

    #[test]
    fn who_needs_more_than_a_cpu_stays_apart_unless_talking_costs_more() {
        let busy = Side { used: 900, ..lazy() };
        assert_eq!(choose(&[busy, busy], 700), None);
        assert_eq!(choose(&[busy, busy], 800), None);
        assert_eq!(choose(&[busy, busy], 1000), Some(Choice { mover: 0, saves: 200 }));
        let wide = Side { capacity: 2000, ..busy };
        assert_eq!(choose(&[wide, wide], 50), Some(Choice { mover: 0, saves: 50 }));
    }

    /// A model of two processes on two kernels of a CPU each: wakes and use as they are, both deciders, for ten minutes.
    fn moves(used: u64, wakes_apart: u64, crowded_when_together: bool) -> Vec<u64> {
        let mut gathered = Gathered::default();
        let (mut together, mut here_since, mut saved, mut moves) = (false, 0, 0, Vec::new());
        for look in 1..3000 {
            let now = look * LOOK_NS;
            if together {
                // The balancer would relieve the kernel as soon as it may.
                if crowded_when_together && !stays_gathered(gathered, now) {
                    (together, here_since, saved) = (false, now, 0);
                    moves.push(now);
                }
                continue;
            }
            let sides = [Side { used, may_go: may_gather(gathered, here_since, now), ..lazy() }; 2];
            let Some(choice) = choose(&sides, wakes_apart * WAKE_NS / MS) else { continue };
            saved += choice.saves * LOOK_NS / 1000;
            if saved >= sides[0].cost {
                (here_since, together) = (now, true);
                gathered = Gathered { at: now, times: gathered.times + 1 };
                moves.push(now);
            }
        }
        moves
    }

    #[test]
    fn a_pair_is_together_within_a_second_and_stays() {
        for wakes in [1000, 2000, 20_000] {
            let moves = moves(400, wakes, false);
            assert_eq!(moves.len(), 1, "{wakes} wakes: {moves:?}");
            assert!(moves[0] <= 1_000_000_000, "{wakes} wakes: {moves:?}");
        }
    }

    #[test]
    fn who_talks_little_or_works_much_never_moves() {
        assert!(moves(1000, 500, true).is_empty());
        assert!(moves(950, 4000, true).is_empty());
    }

    #[test]
    fn two_deciders_that_disagree_move_nobody_twice_in_ten_seconds() {
        let moves = moves(600, 3000, true);
        assert!(moves.len() > 2 && moves.len() < 20, "{moves:?}");
        assert!(moves.windows(2).all(|two| two[1] - two[0] >= AGAIN_NS), "{moves:?}");
        // Less and less often.
        let stays: Vec<u64> = moves.chunks_exact(2).map(|two| two[1] - two[0]).collect();
        assert!(stays.windows(2).all(|two| two[1] > two[0]), "{stays:?}");
    }

    #[test]
    fn what_was_used_is_told_apart_from_what_others_use() {
        let before = Talker { process: Pid(1), used_ns: 500, pages: 10, may_go: true, threads_ns: 10_000, cpus: 2 };
        let now = Talker { used_ns: 800, threads_ns: 11_000, ..before };
        let side = side(&before, &now, 1000);
        assert_eq!((side.used, side.others, side.capacity), (300, 700, 2000));
        assert_eq!(side.cost, cost_of_move(10));
    }
}
