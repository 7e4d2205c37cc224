//! What can't be in a trace. One that says it has lost nothing is checked strictly; where a ring has lost events, what is missing there is forgiven.
//!
//! - No thread is on two CPUs at once, and a CPU leaves whom it had.
//! - A thread runs only after it could: it was woken, preempted, or has come from another kernel; and one that has ended does not run.
//! - A thread arrives as often as it left, from where it left.
//! - Every message that was received had been sent before.
//! - A disk answers what it was asked for.
//! - Of each handler the end follows the beginning.

use crate::{file::Trace, levels::Levels, states::is_thread, Event};
use anyhow::Result;
use foldhash::fast::FixedState;
use std::collections::{hash_map::Entry, BTreeSet};
use trace::Point;

/// Without a seed: what is found must not depend on one.
type HashMap<K, V> = std::collections::HashMap<K, V, FixedState>;

/// A thread id.
type ThreadId = u32;

/// Something that can't be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// When, in ns.
    pub time: u64,
    /// What is wrong, in words.
    pub what: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Runs(u16),
    Ready,
    Waits,
    Moves(u16, u32),
    Ended,
}

/// A thread, and the kernel that told of it last.
#[derive(Clone, Copy)]
struct Thread {
    state: State,
    kernel: u16,
}

/// A message as both ends name it: sender, receiver, kind, role and number.
type Letter = (u16, u16, u16, u8, u64);

/// Looks at events in the order of time.
#[derive(Default)]
pub struct Checker {
    /// Kernels of which events are missing, or that do not record.
    gaps: BTreeSet<u16>,
    /// Kernels that the trace has events of.
    seen: BTreeSet<u16>,
    threads: HashMap<ThreadId, Thread>,
    woken: BTreeSet<ThreadId>,
    /// Whom a CPU has, and in which boot of its kernel.
    cpus: HashMap<u16, (u32, ThreadId)>,
    sent: HashMap<Letter, u64>,
    handling: HashMap<(u16, u16, u16, u64), u64>,
    disks: Levels,
    found: Vec<Violation>,
    /// Events that were looked at.
    pub events: u64,
    /// Messages whose sending and receiving were both there.
    pub joined: u64,
}

/// More are not kept.
const MOST_FOUND: usize = 100;

impl Checker {
    /// For a whole file. Where recording was switched off and on or cut off, what is missing is forgiven everywhere: kernels do not switch at the same moment, and rings are not
    /// read at the same moment.
    pub fn of(trace: &Trace) -> Result<Checker> {
        let kernels = || trace.places().map(|(place, _)| place.kernel);
        let mut partial = trace.is_cut();
        for event in trace.events()? {
            partial |= event?.point == Point::Recording;
        }
        let lost = trace.places().filter(|(_, lost)| *lost > 0 || partial).map(|(place, _)| place.kernel);
        Ok(Checker::new(kernels(), lost))
    }

    /// For a trace of these kernels; `gaps` are those of which events may be missing.
    pub fn new(kernels: impl IntoIterator<Item = u16>, gaps: impl IntoIterator<Item = u16>) -> Self {
        Checker { seen: kernels.into_iter().collect(), gaps: gaps.into_iter().collect(), ..Checker::default() }
    }

    fn wrong(&mut self, time: u64, what: String) {
        if self.found.len() < MOST_FOUND {
            self.found.push(Violation { time, what });
        }
    }

    /// The next event.
    pub fn take(&mut self, event: &Event) {
        self.events += 1;
        let kernel = event.place.kernel;
        match event.point {
            Point::Recording => {
                self.threads.clear();
                self.woken.clear();
                self.cpus.clear();
            }
            Point::LostEvents => {
                self.gaps.insert(kernel);
            }
            Point::SchedSwitch => self.switch(event),
            Point::SchedWakeup => {
                let tid = event.tid("tid");
                match self.state(tid) {
                    // It is about to be left by that CPU.
                    Some(State::Runs(_)) => {
                        self.woken.insert(tid);
                    }
                    Some(State::Ready) if !self.gaps.contains(&kernel) => {
                        self.wrong(event.time, format!("thread {tid} is woken, though it waits for a CPU already"));
                    }
                    Some(State::Ended) => self.wrong(event.time, format!("thread {tid} is woken, which has ended")),
                    _ => _ = self.set(tid, kernel, State::Ready),
                }
            }
            // By execve another thread has become the main one, under its id.
            Point::ThreadName => {
                let tid = event.tid("tid");
                if matches!(self.state(tid), None | Some(State::Ended)) {
                    self.set(tid, kernel, State::Waits);
                }
            }
            Point::SchedProcessFork => _ = self.set(event.tid("child_tid"), kernel, State::Waits),
            Point::ThreadLeave => {
                let (tid, moves, to) = (event.tid("tid"), event.number("moves") as u32, event.number("to") as u16);
                self.set(tid, kernel, State::Moves(to, moves));
            }
            Point::ThreadArrive => {
                let (tid, moves) = (event.tid("tid"), event.number("moves") as u32);
                let from = event.number("from") as u16;
                let known = self.state(tid);
                if self.is_whole(from) && known != Some(State::Moves(kernel, moves)) {
                    self.wrong(event.time, format!("thread {tid} arrives at kernel {kernel}, but it is {known:?}"));
                }
            }
            Point::MessageSend => {
                let letter = letter(event, kernel, event.number("to") as u16);
                *self.sent.entry(letter).or_default() += 1;
            }
            Point::MessageReceive => {
                let from = event.number("from") as u16;
                let letter = letter(event, from, kernel);
                match take_one(&mut self.sent, letter) {
                    true => self.joined += 1,
                    false if self.is_whole(from) => {
                        self.wrong(event.time, format!("kernel {kernel} receives {letter:?}, which was not sent"));
                    }
                    false => {}
                }
            }
            Point::BlockRqIssue => self.disks.take(event, &mut |_, _| {}),
            Point::BlockRqComplete => {
                if self.disks.is_unknown(event) && self.is_whole(kernel) {
                    self.wrong(event.time, "a disk answers what it was not asked for".into());
                }
                self.disks.take(event, &mut |_, _| {});
            }
            Point::HandlerBegin => *self.handling.entry(handler(event)).or_default() += 1,
            Point::HandlerEnd if event.number("outcome") != 1 => self.handled(event),
            Point::HandlerDone => self.handled(event),
            _ => {}
        }
    }

    fn state(&self, tid: ThreadId) -> Option<State> {
        self.threads.get(&tid).map(|thread| thread.state)
    }

    /// `kernel` says so. Gives what was known before.
    fn set(&mut self, tid: ThreadId, kernel: u16, state: State) -> Option<Thread> {
        self.threads.insert(tid, Thread { state, kernel })
    }

    /// `kernel` has stopped: its threads may be said to go on elsewhere, or to have ended, and messages from and to it are lost.
    pub fn kernel_died(&mut self, kernel: u16) {
        self.threads.retain(|_, thread| thread.kernel != kernel);
        self.sent.retain(|(from, to, ..), _| *from != kernel && *to != kernel);
        self.handling.retain(|(on, ..), _| *on != kernel);
    }

    /// Messages that were sent and have not been received: sender, receiver, kind, role and number.
    pub fn under_way(&self) -> impl Iterator<Item = (u16, u16, u16, u8, u64)> + '_ {
        self.sent.keys().copied()
    }

    fn is_whole(&self, kernel: u16) -> bool {
        self.seen.contains(&kernel) && !self.gaps.contains(&kernel)
    }

    fn handled(&mut self, event: &Event) {
        let key = handler(event);
        if !take_one(&mut self.handling, key) && self.is_whole(event.place.kernel) {
            self.wrong(event.time, format!("a handler ends that has not begun: {key:?}"));
        }
    }

    fn switch(&mut self, event: &Event) {
        let (time, cpu, kernel) = (event.time, event.place.cpu, event.place.kernel);
        let [prev, next, prev_state] = event.numbers(["prev_tid", "next_tid", "prev_state"]);
        let (prev, next) = (prev as ThreadId, next as ThreadId);
        let whole = self.is_whole(kernel);
        let generation = event.place.boot_generation;
        let before = self.cpus.insert(cpu, (generation, next));
        // A kernel that was booted again begins anew: who was on its CPUs has died.
        if let Some((_, had)) = before.filter(|(of, had)| whole && *of == generation && *had != prev) {
            self.wrong(time, format!("CPU {cpu} leaves {prev}, but it had {had}"));
        }
        if is_thread(prev) {
            let woken = self.woken.remove(&prev);
            let after = match prev_state {
                0 => State::Ready,
                16 => State::Ended,
                _ if woken => State::Ready,
                _ => State::Waits,
            };
            self.set(prev, kernel, after);
        }
        if is_thread(next) {
            match self.set(next, kernel, State::Runs(cpu)) {
                Some(Thread { state: State::Runs(other), kernel: of })
                    if other != cpu && whole && self.is_whole(of) =>
                {
                    self.wrong(time, format!("thread {next} is on CPUs {other} and {cpu} at once"));
                }
                Some(Thread { state: before @ (State::Waits | State::Ended), .. }) if whole => {
                    self.wrong(time, format!("thread {next} runs, but it is {before:?}"));
                }
                _ => {}
            }
        }
    }

    /// What was found, at most a hundred.
    pub fn found(&self) -> &[Violation] {
        &self.found
    }
}

/// Takes one of what was counted; false if there is none.
fn take_one<K: Eq + std::hash::Hash>(counts: &mut HashMap<K, u64>, key: K) -> bool {
    let Entry::Occupied(mut entry) = counts.entry(key) else { return false };
    *entry.get_mut() -= 1;
    if *entry.get() == 0 {
        entry.remove();
    }
    true
}

fn letter(event: &Event, from: u16, to: u16) -> Letter {
    let [kind, role, id] = event.numbers(["kind", "role", "id"]);
    (from, to, kind as u16, role as u8, id)
}

fn handler(event: &Event) -> (u16, u16, u16, u64) {
    let [from, kind, id] = event.numbers(["from", "kind", "id"]);
    (event.place.kernel, from as u16, kind as u16, id)
}
