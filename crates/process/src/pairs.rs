//! Who talks much comes together.
//!
//! Problem: two programs that talk through a pipe or a socket start on two kernels, for each was placed when it was alone. From then on all they say
//! is messages, doorbells and CPUs that wake from a halt, though one kernel has the time for both.
//!
//! Idea: a pipe stays on the kernel that made it, and an end of a connection where its program is. So a kernel that has one sees the two talk,
//! wherever they are: its scheduler counts how often one wakes the other (`sched/src/talk.rs`). While there are counts it looks at them ten times a
//! second, and has come who of the two is elsewhere: one, or both.
//!
//! What a wake costs depends on the CPU that it is for. If that has halted, a doorbell has to wake it ([`WAKE_NS`]); if it looks out for messages, the
//! message is cheap ([`MESSAGE_NS`]). On a kernel of one CPU the two would have to share it, and switch for each wake ([`SWITCH_NS`]). So such a
//! kernel has who wakes halted CPUs come, and leaves apart who talks so fast that both CPUs mostly look out: apart, those are faster.
//!
//! Both are guesses: where a host gives a CPU its turn late, a message costs what it takes. Of two that mostly wait for each other it is seen how long they wait, and where
//! there are CPUs for both that is what their wakes cost, if it is more ([`waited`]).
//!
//! That pays only if what the wakes cost is more than what the CPUs here would lack for one more ([`saves`]). The difference
//! adds up from look to look, is taken off again while they are better off apart (most programs wake halted CPUs when they start), and when it has
//! reached the cost of the move the thread comes (as in renting skis: at most twice as bad as knowing how long they will talk). So where two kernels have something that the two talk through, the one with fewer touched pages moves,
//! for its move is earned first; and where the CPUs are saturated they stay apart.
//!
//! A thread does not come that would leave behind what it waits for: sockets and epolls that can't follow it (`Files::stay_behind`; those that
//! it alone has follow, `files/follow.rs`), or pipes, if it waits more for others than for who it is to come to ([`mostly_talks`]). Nearly every
//! program has a pipe that it never reads: its standard input. Nor does one come of a process whose other threads work, too: they were spread to use
//! more CPUs, and share its memory. Those come together, or not at all (guests.rs).
//!
//! Dangerous: two deciders. [`System::balance`] relieves this kernel, and the wakes bring the thread here again, for ever. So both of a pair that came
//! together are marked ([`Gathered`]), and the marks travel with them: neither is relieved, and neither comes to another, for [`AGAIN_NS`] after its last move, twice
//! as long each time the thread has come ([`stay`]). The other two are kernels that decide at the same moment:
//!
//! ```text
//!   K1 has a pipe: b is to come        K2 has another: a is to come
//!   b leaves                           a leaves                    <- they have changed places
//! ```
//!
//! So the one that is here is marked first, and does not leave. If both kernels do so before either asks, nobody comes to anybody. Then both take their marks
//! back ([`MarkedThread`]). The one with the lower number decides again at its next look; the other begins its sum anew, and needs two looks at least.

use crate::{balance::cost_of_move, guests::Guests, System, Thread};
use alloc::{sync::Arc, vec::Vec};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use machine::{sync::Lock, Actor, KernelId, Pid};
use messages::process::{AskTalker, Gather, Gathered, Talker};
use sched::Pair;

/// Time between two looks at the counts.
pub(crate) const LOOK_NS: u64 = 100_000_000;
/// Wakes from one look to the next that are worth a question.
const LEAST_WAKES: u32 = 10;
/// What a wake costs for each of the two that is elsewhere, if it wakes a CPU that has halted: as much as a borrowed page (balance.rs).
const WAKE_NS: u64 = 200_000;
/// The same if the CPU looks out for messages.
const MESSAGE_NS: u64 = 10_000;
/// A wake costs no more, however long the two have waited: the rest of the time they may have wanted to.
const LONGEST_WAKE_NS: u64 = 1_000_000;
/// What a switch from one process to another costs, and the translations that it loses (under TCG 30 to 150 us were measured).
const SWITCH_NS: u64 = 50_000;
/// Least time that a thread stays where it has come together with another, and before it goes to another again.
const AGAIN_NS: u64 = 10_000_000_000;
/// The stay doubles so often: up to eleven minutes.
const MOST_DOUBLED: u64 = 6;
/// Pairs that are remembered from one look to the next.
const MOST_KNOWN: usize = 16;
/// The other threads of a process do little if they have used no more than this part of what the thread has.
const LITTLE: u64 = 4;

/// The pairs that this kernel has seen talk.
#[derive(Default)]
pub(crate) struct Pairs {
    next_look: AtomicU64,
    /// A look is under way.
    looks: AtomicBool,
    known: Lock<Vec<KnownPair>>,
    /// Processes with threads on this kernel and others that talk through something of this one.
    pub(crate) guests: Guests,
}

/// A thread of this kernel that was marked before another was asked to come to it, and what is needed to take the mark back.
pub(crate) struct MarkedThread {
    thread: Pid,
    mark: Gathered,
    /// The mark that it had.
    before: Gathered,
}

/// What was seen of a pair at the last look.
struct KnownPair {
    of: [Actor; 2],
    seen: PairSample,
    /// What it would have saved so far if who is elsewhere had come, ns.
    saved: u64,
}

/// What a look sees, beside the wakes.
#[derive(Clone, Copy)]
struct PairSample {
    at: u64,
    /// CPU time that the two have used.
    used: [u64; 2],
    /// How often they have waited.
    waits: [u64; 2],
    /// CPU time that all threads have used on this kernel.
    all: u64,
    /// How often this kernel has woken a CPU of another with a doorbell.
    rung: u64,
}

/// What so many wakes and requests cost from kernel to kernel, ns, less what the wakes would cost on this one, which has so many CPUs and has rung `rung`
/// doorbells. The other kernel will have rung as often for CPUs here.
pub(crate) fn cost_of_talk(wakes: u64, requests: u64, rung: u64, cpus: usize) -> i64 {
    let halted = (wakes + requests).min(2 * rung);
    match cpus {
        // A request that wakes nobody would need no switch.
        1 => (halted * WAKE_NS + requests.saturating_sub(halted) * MESSAGE_NS) as i64 - (wakes * SWITCH_NS) as i64,
        _ => (halted * WAKE_NS + (wakes + requests - halted) * MESSAGE_NS) as i64,
    }
}

/// What threads save that come here, in thousandths of a CPU, as are its arguments: what the wakes cost (`talk`), less what the CPUs here
/// would lack.
fn saves(talk: i64, capacity: u64, all: u64, used: u64) -> i64 {
    talk - lack(capacity, all, used) as i64
}

/// What the CPUs here (`capacity`) would lack for what is used here (`all`) and by threads that came (`used`).
pub(crate) fn lack(capacity: u64, all: u64, used: u64) -> u64 {
    (all + used).saturating_sub(capacity)
}

/// Whether a thread that has waited so often did so mostly for the other one, with as many wakes of the two. Half of these are its own, or all,
/// and both are counted at moments a little apart.
fn mostly_talks(wakes: u32, waits: u64) -> bool {
    2 * u64::from(wakes) >= waits
}

/// How long two threads have waited for each other in `passed` ns, of which they have worked `used`, with so many wakes of the two.
fn waited(passed: u64, used: [u64; 2], wakes: u32) -> u64 {
    passed.saturating_sub(used[0] + used[1]).min(u64::from(wakes) * LONGEST_WAKE_NS)
}

/// How long a thread stays where it has come together with others.
fn stay(gathered: Gathered) -> u64 {
    AGAIN_NS << gathered.times.saturating_sub(1).min(MOST_DOUBLED)
}

/// Whether a thread may come together with another: it never has, or has not moved lately.
fn may_gather(gathered: Gathered, here_since: u64, now: u64) -> bool {
    gathered.times == 0 || now.saturating_sub(gathered.at.max(here_since)) >= stay(gathered)
}

/// Whether a thread that has come together with another stays for that.
pub(crate) fn stays_gathered(gathered: Gathered, now: u64) -> bool {
    gathered.times > 0 && now.saturating_sub(gathered.at) < stay(gathered)
}

impl Pairs {
    /// What is known of the pair. Of one that has not talked for two looks nothing is: it begins anew.
    fn take(&self, of: [Actor; 2], now: u64) -> Option<KnownPair> {
        let mut known = self.known.lock();
        known.retain(|pair| now.saturating_sub(pair.seen.at) < 3 * LOOK_NS);
        known.iter().position(|pair| pair.of == of).map(|at| known.swap_remove(at))
    }

    fn note(&self, pair: KnownPair) {
        let mut known = self.known.lock();
        if known.len() < MOST_KNOWN {
            known.push(pair);
        }
    }
}

impl System {
    /// Called by a CPU between two tasks: looks at who has talked, if it is time.
    pub fn look_for_pairs(self: &Arc<Self>) {
        let talk = self.scheduler.talk();
        if talk.is_quiet() {
            return;
        }
        let now = self.now();
        let due = self.placing.pairs.next_look.load(Relaxed);
        if now < due || self.placing.pairs.next_look.compare_exchange(due, now + LOOK_NS, Relaxed, Relaxed).is_err() {
            return;
        }
        // Marks that one look has made are taken back, or stay, before the next one makes some.
        if self.placing.pairs.looks.swap(true, Acquire) {
            return;
        }
        let (pairs, guests) = talk.take(LEAST_WAKES);
        if pairs.is_empty() && guests.is_empty() {
            self.placing.pairs.looks.store(false, Release);
            return;
        }
        let system = self.clone();
        self.scheduler.spawn(async move {
            for pair in pairs {
                system.weigh(pair).await;
            }
            system.weigh_guests(guests).await;
            system.placing.pairs.looks.store(false, Release);
        });
    }

    /// Looks at a pair: the second time in a row at the earliest, who of them is elsewhere comes.
    async fn weigh(&self, pair: Pair) {
        let [first, second] = pair.of;
        let (Some(one), Some(two)) = (self.ask_talker(first).await, self.ask_talker(second).await) else { return };
        if one.process == two.process {
            return;
        }
        let talkers = [one, two];
        let now = self.now();
        let before = self.placing.pairs.take(pair.of, now);
        let waited = |at: usize| Some(talkers[at].waits.saturating_sub(before.as_ref()?.seen.waits[at]));
        let comes = |&at: &usize| {
            let talker = talkers[at];
            let leaves_much =
                || talker.leaves_pipes && !waited(at).is_some_and(|waits| mostly_talks(pair.wakes, waits));
            pair.of[at].kernel() != self.kernel && talker.may_come && !leaves_much()
        };
        let movers: Vec<usize> = (0..2).filter(comes).collect();
        let (used, waits) = (talkers.map(|talker| talker.used_ns), talkers.map(|talker| talker.waits));
        let seen =
            PairSample { at: now, used, waits, all: self.threads_ns(now), rung: self.endpoint.stats().doorbells_rung };
        let saved = before.map_or(0, |before| self.saved(&before, pair, &movers, seen));
        self.placing.pairs.note(KnownPair { of: pair.of, seen, saved });
        let costs: u64 = movers.iter().map(|&at| cost_of_move(talkers[at].pages)).sum();
        if movers.is_empty() || saved < costs {
            return;
        }
        // First the one that is here: see the head of this file.
        let here = pair.of.iter().filter(|talker| talker.kernel() == self.kernel);
        let Some(kept) = here.map(|talker| self.keep_gathered(talker.thread())).collect::<Option<Vec<MarkedThread>>>()
        else {
            return;
        };
        let movers: Vec<Actor> = movers.into_iter().map(|at| pair.of[at]).collect();
        if self.gather(&movers, kept, false).await {
            self.placing.pairs.take(pair.of, now);
        }
    }

    /// Has threads come here to talk with those that are kept for them: with others of their process, or else only those that work alone. If none comes,
    /// the marks are taken back. True: what was summed up begins anew; false: it stays, and this kernel decides again at its next look (see the head of this file).
    pub(crate) async fn gather(&self, movers: &[Actor], kept: Vec<MarkedThread>, with_others: bool) -> bool {
        let mut refused = Vec::new();
        for mover in movers {
            let thread = mover.thread();
            match self.endpoint.call(mover.kernel(), Gather { thread, with_others }).await {
                Ok(true) => log::debug!("thread {thread} comes here to talk"),
                _ => refused.push(mover.kernel()),
            }
        }
        if refused.len() < movers.len() {
            return true;
        }
        kept.into_iter().for_each(|kept| self.unmark(kept));
        refused.into_iter().any(|other| other < self.kernel)
    }

    pub(crate) async fn ask_talker(&self, talker: Actor) -> Option<Talker> {
        self.endpoint.call(talker.kernel(), AskTalker { thread: talker.thread() }).await.ok()?
    }

    /// What it would have saved up to this look if `movers` of the pair had come, ns.
    fn saved(&self, before: &KnownPair, pair: Pair, movers: &[usize], seen: PairSample) -> u64 {
        let passed = seen.at.saturating_sub(before.seen.at).max(1);
        let thousandths = |now: u64, before: u64| now.saturating_sub(before) * 1000 / passed;
        let cpus = self.cpu.cpus().len();
        let wakes = cost_of_talk(u64::from(pair.wakes), 0, seen.rung.saturating_sub(before.seen.rung), cpus);
        let mut talk = wakes * movers.len() as i64;
        let since = |now: [u64; 2], before: [u64; 2]| [0, 1].map(|at| now[at].saturating_sub(before[at]));
        let waits = since(seen.waits, before.seen.waits);
        if cpus > 1 && !movers.is_empty() && waits.into_iter().all(|waits| mostly_talks(pair.wakes, waits)) {
            talk = talk.max(waited(passed, since(seen.used, before.seen.used), pair.wakes) as i64);
        }
        let talk = talk * 1000 / passed as i64;
        let used = movers.iter().map(|&at| thousandths(seen.used[at], before.seen.used[at])).sum();
        let capacity = cpus as u64 * 1000;
        let saves = saves(talk, capacity, thousandths(seen.all, before.seen.all), used);
        before.saved.saturating_add_signed(saves * passed as i64 / 1000)
    }

    /// Serves [`AskTalker`] of kernel `from`.
    pub(crate) fn talker_here(&self, thread: Pid, from: KernelId) -> Option<Talker> {
        let thread = self.thread(thread).filter(|thread| !thread.is_away())?;
        let usage = thread.usage();
        let may_come = thread.may_leave_for(from);
        Some(Talker {
            process: thread.process.id,
            used_ns: usage.cpu_ns(),
            waits: usage.voluntary_switches,
            pages: usage.minor_faults,
            may_come: may_come && thread.works_alone(usage.cpu_ns()),
            may_come_with_others: may_come,
            leaves_pipes: thread.process.files().leave_pipes(),
        })
    }

    /// Serves [`Gather`] of kernel `to`.
    pub(crate) fn send_gathered(&self, thread: Pid, with_others: bool, to: KernelId) -> bool {
        let may_go = |thread: &Arc<Thread>| {
            thread.may_leave_for(to) && (with_others || thread.works_alone(thread.usage().cpu_ns()))
        };
        let Some(thread) = self.thread(thread).filter(may_go) else { return false };
        let now = self.now();
        {
            let mut state = thread.state.lock();
            state.gathered = Gathered { at: now, times: state.gathered.times + 1 };
        }
        thread.send_gathered(to);
        true
    }

    /// The thread stays, for another comes to it; None if it leaves.
    pub(crate) fn keep_gathered(&self, thread: Pid) -> Option<MarkedThread> {
        let here = self.thread(thread).filter(|thread| thread.is_at_rest())?;
        let now = self.now();
        let mut state = here.state.lock();
        let before = state.gathered;
        state.gathered = Gathered { at: now, times: before.times.max(1) };
        Some(MarkedThread { thread, mark: state.gathered, before })
    }

    /// Takes the mark back, unless the thread was marked again meanwhile.
    fn unmark(&self, kept: MarkedThread) {
        let Some(thread) = self.thread(kept.thread) else { return };
        let mut state = thread.state.lock();
        if state.gathered == kept.mark {
            state.gathered = kept.before;
        }
    }
}

impl Thread {
    /// Whether it is here, may go elsewhere, and was told to go nowhere.
    pub(crate) fn is_at_rest(&self) -> bool {
        !self.is_away() && !self.is_reserved() && self.destination.lock().is_none()
    }

    /// Whether it may go to `to`, where it talks with others.
    fn may_leave_for(&self, to: KernelId) -> bool {
        let system = &self.process.system;
        let may = {
            let state = self.state.lock();
            may_gather(state.gathered, self.here_since.load(Relaxed), system.now())
                && system.reaches(to, &state.affinity)
        };
        may && self.is_at_rest() && !self.process.files().stay_behind(true)
    }

    /// Whether the other threads of its process here do little.
    fn works_alone(&self, used: u64) -> bool {
        let threads = self.process.local_threads();
        let others = threads.iter().filter(|thread| thread.tid != self.tid && !thread.is_away());
        others.map(|thread| thread.usage().cpu_ns()).sum::<u64>() <= used / LITTLE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const MOVE: u64 = 105 * MS;

    #[test]
    fn a_thread_comes_where_there_is_time_for_it() {
        assert_eq!(saves(200, 1000, 300, 300), 200);
        assert_eq!(saves(200, 1000, 600, 500), 100);
        assert_eq!(saves(200, 1000, 1000, 300), -100);
        assert_eq!(saves(200, 2000, 1000, 300), 200);
        // Talking can cost more than a CPU that is missing.
        assert_eq!(saves(1000, 1000, 900, 900), 200);
    }

    #[test]
    fn a_wake_costs_little_where_cpus_look_out() {
        let (wake, switch, message) = (WAKE_NS as i64, SWITCH_NS as i64, MESSAGE_NS as i64);
        assert_eq!(cost_of_talk(1000, 0, 500, 1), 1000 * (wake - switch));
        assert_eq!(cost_of_talk(1000, 0, 100, 1), 200 * wake - 1000 * switch);
        assert_eq!(cost_of_talk(1000, 0, 0, 1), -1000 * switch);
        assert_eq!(cost_of_talk(1000, 0, 5000, 2), 1000 * wake);
        assert_eq!(cost_of_talk(1000, 0, 0, 2), 1000 * message);
        // Requests that wake nobody.
        assert_eq!(cost_of_talk(0, 1000, 100, 1), 200 * wake + 800 * message);
        assert_eq!(cost_of_talk(1000, 0, 100, 2), 200 * wake + 800 * message);
    }

    #[test]
    fn who_waits_long_for_each_other_has_much_to_save() {
        // A host that is busy gives a CPU its turn after milliseconds; or the two are quick.
        assert_eq!(waited(100 * MS, [2 * MS, 3 * MS], 40), 40 * MS);
        assert_eq!(waited(100 * MS, [30 * MS, 20 * MS], 4000), 50 * MS);
        assert_eq!(waited(100 * MS, [80 * MS, 70 * MS], 4000), 0);
    }

    /// A model of two processes on two kernels of a CPU each, which use `used` and wake each other so often in a second while they are apart,
    /// each time a CPU that has halted: both deciders, for ten minutes. `crowded`: the balancer relieves the kernel on which they are together as soon as it may.
    fn moves(used: u64, wakes: u64, crowded: bool) -> Vec<u64> {
        let mut gathered = Gathered::default();
        let (mut together, mut here_since, mut saved, mut moves) = (false, 0, 0, Vec::new());
        for look in 1..6000 {
            let now = look * LOOK_NS;
            if together {
                if crowded && !stays_gathered(gathered, now) {
                    (together, here_since, saved) = (false, now, 0);
                    moves.push(now);
                }
                continue;
            }
            if !may_gather(gathered, here_since, now) {
                continue;
            }
            let saves = saves((wakes * WAKE_NS / MS) as i64, 1000, used, used);
            saved = u64::saturating_add_signed(saved, saves * LOOK_NS as i64 / 1000);
            if saved >= MOVE {
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
            assert!(moves[0] <= 1000 * MS, "{wakes} wakes: {moves:?}");
        }
    }

    #[test]
    fn who_works_much_never_moves() {
        assert!(moves(1000, 5000, true).is_empty());
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
}
