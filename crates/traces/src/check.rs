//! What can't be in a trace. One that says it has lost nothing is checked strictly; where a ring has lost events, what is missing there is forgiven.
//!
//! - No thread is on two CPUs at once, and a CPU leaves whom it had.
//! - A thread runs only after it could: it was woken, preempted, or has come from another kernel; and one that has ended does not run.
//! - A thread arrives as often as it left, from where it left.
//! - Every message that was received had been sent before.
//! - Of each handler the end follows the beginning.

use crate::{file::Trace, states::is_thread, Event};
use anyhow::Result;
use std::collections::{hash_map::Entry, BTreeSet, HashMap};
use trace::Point;

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

/// A message as both ends name it: sender, receiver, kind, role and number.
type Letter = (u16, u16, u16, u8, u64);

/// Looks at events in the order of time.
#[derive(Default)]
pub struct Checker {
    /// Kernels of which events are missing, or that do not record.
    gaps: BTreeSet<u16>,
    /// Kernels that the trace has events of.
    seen: BTreeSet<u16>,
    threads: HashMap<ThreadId, State>,
    woken: BTreeSet<ThreadId>,
    /// Whom a CPU has, and in which boot of its kernel.
    cpus: HashMap<u16, (u32, ThreadId)>,
    sent: HashMap<Letter, u64>,
    handling: HashMap<(u16, u16, u16, u64), u64>,
    found: Vec<Violation>,
    /// Events that were looked at.
    pub events: u64,
    /// Messages whose sending and receiving were both there.
    pub joined: u64,
}

/// More are not kept.
const MOST_FOUND: usize = 100;

impl Checker {
    /// For a whole file. Where recording was switched off and on, what is missing is forgiven everywhere: kernels do not switch at the same moment.
    pub fn of(trace: &Trace) -> Result<Checker> {
        let kernels = || trace.places().map(|(place, _)| place.kernel);
        let mut switched = false;
        for event in trace.events()? {
            switched |= event?.point == Point::Recording;
        }
        let lost = trace.places().filter(|(_, lost)| *lost > 0 || switched).map(|(place, _)| place.kernel);
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
                match self.threads.get(&tid) {
                    // It is about to be left by that CPU.
                    Some(State::Runs(_)) => {
                        self.woken.insert(tid);
                    }
                    Some(State::Ready) if !self.gaps.contains(&kernel) => {
                        self.wrong(event.time, format!("thread {tid} is woken, though it waits for a CPU already"));
                    }
                    Some(State::Ended) => self.wrong(event.time, format!("thread {tid} is woken, which has ended")),
                    _ => _ = self.threads.insert(tid, State::Ready),
                }
            }
            // By execve another thread has become the main one, under its id.
            Point::ThreadName => {
                let state = self.threads.entry(event.tid("tid")).or_insert(State::Waits);
                if *state == State::Ended {
                    *state = State::Waits;
                }
            }
            Point::SchedProcessFork => _ = self.threads.insert(event.tid("child_tid"), State::Waits),
            Point::ThreadLeave => {
                let (tid, moves, to) = (event.tid("tid"), event.number("moves") as u32, event.number("to") as u16);
                self.threads.insert(tid, State::Moves(to, moves));
            }
            Point::ThreadArrive => {
                let (tid, moves) = (event.tid("tid"), event.number("moves") as u32);
                let from = event.number("from") as u16;
                let known = self.threads.get(&tid).copied();
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
            Point::HandlerBegin => *self.handling.entry(handler(event)).or_default() += 1,
            Point::HandlerEnd if event.number("outcome") != 1 => self.handled(event),
            Point::HandlerDone => self.handled(event),
            _ => {}
        }
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
        let (prev, next) = (event.tid("prev_tid"), event.tid("next_tid"));
        let whole = self.is_whole(kernel);
        let generation = event.place.boot_generation;
        let before = self.cpus.insert(cpu, (generation, next));
        // A kernel that was booted again begins anew: who was on its CPUs has died.
        if let Some((_, had)) = before.filter(|(of, had)| whole && *of == generation && *had != prev) {
            self.wrong(time, format!("CPU {cpu} leaves {prev}, but it had {had}"));
        }
        if is_thread(prev) {
            let woken = self.woken.remove(&prev);
            let after = match event.number("prev_state") {
                0 => State::Ready,
                16 => State::Ended,
                _ if woken => State::Ready,
                _ => State::Waits,
            };
            self.threads.insert(prev, after);
        }
        if is_thread(next) {
            match self.threads.insert(next, State::Runs(cpu)) {
                Some(State::Runs(other)) if other != cpu => {
                    self.wrong(time, format!("thread {next} is on CPUs {other} and {cpu} at once"));
                }
                Some(before @ (State::Waits | State::Ended)) if whole => {
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
    (from, to, event.number("kind") as u16, event.number("role") as u8, event.number("id"))
}

fn handler(event: &Event) -> (u16, u16, u16, u64) {
    (event.place.kernel, event.number("from") as u16, event.number("kind") as u16, event.number("id"))
}
