//! Is there an order of the model's steps that explains what was seen in a round?
//!
//! Seen are, for each thread in its own order, the results of its calls, the signals it handled, and its first
//! moments. Not seen are the moments of signals without a handler, of ends, and of news to parents. So this is a
//! search, depth first, over what could happen next; states that were tried are remembered.

use super::{
    model::{Id, Model, Op, Thread},
    shared::SharedMap,
};
use crate::nodes::user::Event;
use std::{
    collections::{BTreeMap, BTreeSet, HashSet, VecDeque},
    hash::{DefaultHasher, Hash, Hasher},
};

/// What is left to be explained.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Left {
    model: Model,
    seen: SharedMap<VecDeque<Seen>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Seen {
    Result(u64, i64, Vec<u8>),
    Signal(u8),
    Born(u64),
    Executed,
}

/// Most states that one round may leave.
const MOST_STATES: usize = 2000;
const MOST_TRIES: usize = 3_000_000;

/// States the machine may be in.
pub struct States {
    pub possible: Vec<Model>,
    /// There were never more than are kept.
    complete: bool,
}

impl States {
    pub fn one(model: Model) -> Self {
        States { possible: vec![model], complete: true }
    }
}

/// All states at rest that explain a round from one of `states`, or why there is none.
pub fn explain(
    states: &States,
    calls: &BTreeMap<u64, (Id, Op)>,
    events: &[Event],
    idle: &BTreeSet<Id>,
) -> Result<States, String> {
    let seen = by_thread(events);
    let mut search = Search { idle, tried: HashSet::new(), found: BTreeMap::new(), complaint: String::new(), best: 0 };
    for model in &states.possible {
        let mut model = model.clone();
        for (&number, &(thread, op)) in calls {
            model.threads.get_mut(&thread).expect("only who is idle is told anything").told = Some((number, op));
        }
        search.go(Left { model, seen: seen.clone() }, 0);
    }
    let complete = states.complete && !search.gave_up();
    match search.found.is_empty() {
        true if complete => Err(format!("no order of steps explains it: {}", search.complaint)),
        true => Err(format!("undecided, for more states were possible than are kept: {}", search.complaint)),
        false => Ok(States { possible: search.found.into_values().collect(), complete }),
    }
}

fn by_thread(events: &[Event]) -> SharedMap<VecDeque<Seen>> {
    let mut seen: BTreeMap<Id, VecDeque<Seen>> = BTreeMap::new();
    for event in events {
        let (thread, event) = match event {
            Event::Returned { thread, number, result, output } => {
                (*thread, Seen::Result(*number, *result, output.clone()))
            }
            Event::Handled { thread, signal } => (*thread, Seen::Signal(*signal)),
            Event::Born { thread, number, .. } => (*thread, Seen::Born(*number)),
            Event::Executed { thread } => (*thread, Seen::Executed),
        };
        seen.entry(thread).or_default().push_back(event);
    }
    seen.into_iter().collect()
}

/// In place of a state itself, which is long.
fn fingerprint(state: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    state.hash(&mut hasher);
    hasher.finish()
}

struct Search<'a> {
    idle: &'a BTreeSet<Id>,
    tried: HashSet<u64>,
    /// By their fingerprints.
    found: BTreeMap<u64, Model>,
    /// What was missing where the search came farthest.
    complaint: String,
    best: usize,
}

impl Search<'_> {
    fn gave_up(&self) -> bool {
        self.found.len() >= MOST_STATES || self.tried.len() >= MOST_TRIES
    }

    fn go(&mut self, mut left: Left, depth: usize) {
        while left.advance() {}
        if self.gave_up() || !self.tried.insert(fingerprint(&left)) {
            return;
        }
        self.conclude(&left, depth);
        for next in left.next(self.idle) {
            self.go(next, depth + 1);
        }
    }

    /// Is everything explained?
    fn conclude(&mut self, left: &Left, depth: usize) {
        let unexplained = left.seen.iter().find(|(_, events)| !events.is_empty());
        let complaint = match unexplained {
            Some((thread, events)) => format!("{thread}: {:?}", events[0]),
            None => match left.model.unrest() {
                Some(complaint) => complaint,
                None if left.model.idle() != *self.idle => {
                    format!("idle should be {:?}, are {:?}", left.model.idle(), self.idle)
                }
                None => {
                    self.found.insert(fingerprint(&left.model), left.model.clone());
                    return;
                }
            },
        };
        if depth >= self.best {
            self.best = depth;
            self.complaint = format!("{complaint}; model: {:?}", left.model);
        }
    }
}

impl Left {
    /// Takes a step that excludes no other and that no other makes possible, without which the search would go
    /// through all places where it could stand: a result is seen that the model has, a thread is born, a call is made
    /// whose answer does not depend on when. False if there is none.
    fn advance(&mut self) -> bool {
        let model = &mut self.model;
        let mut is_seen = |(thread, events): &(&Id, &VecDeque<Seen>)| match events.front() {
            Some(Seen::Result(number, result, output)) => {
                (model.expects(**thread, *number) || model.ask_about_itself(**thread, *number, *result, output))
                    && model.see(**thread, *number, *result, output)
            }
            Some(Seen::Born(_)) => model.lives(**thread),
            _ => false,
        };
        let Some(thread) = self.seen.iter().find(|next| is_seen(next)).map(|(thread, _)| *thread) else { return false };
        self.seen.get_mut(&thread).and_then(VecDeque::pop_front);
        true
    }

    fn busy(&self) -> BTreeSet<Id> {
        self.seen.iter().filter(|(_, events)| !events.is_empty()).map(|(thread, _)| *thread).collect()
    }

    /// States that may come next.
    fn next(&self, idle: &BTreeSet<Id>) -> Vec<Left> {
        let mut after = Vec::new();
        for (&thread, events) in self.seen.iter() {
            self.consume(thread, events, &mut after);
        }
        self.with_result(&mut after);
        self.without_result(idle, &mut after);
        let with = |model| Left { model, seen: self.seen.clone() };
        after.extend(self.model.defaults().into_iter().map(with));
        after.extend(self.model.news(&self.busy()).into_iter().map(with));
        after
    }

    /// The next thing that was seen of a thread.
    fn consume(&self, thread: Id, events: &VecDeque<Seen>, after: &mut Vec<Left>) {
        // Frames of signals that were taken one after the other are left in the opposite order.
        for (index, event) in events.iter().enumerate() {
            let Seen::Signal(signal) = event else { break };
            let mut next = self.clone();
            if next.model.handle(thread, *signal) {
                next.seen.get_mut(&thread).expect("this one").remove(index);
                after.push(next);
            }
        }
        let mut next = self.clone();
        let event = next.seen.get_mut(&thread).and_then(VecDeque::pop_front);
        let explained = match event {
            Some(Seen::Result(number, result, output)) => next.model.see(thread, number, result, &output),
            // It is there once its parent has made it.
            Some(Seen::Born(_)) => next.model.lives(thread),
            Some(Seen::Executed) => next.model.see_executed(thread) || next.execute(thread),
            Some(Seen::Signal(_)) | None => false,
        };
        if explained {
            after.push(next);
        }
    }

    /// Some thread of process `id` has executed, and is the main one now.
    fn execute(&mut self, id: Id) -> bool {
        let executes = |(_, thread): &(&Id, &Thread)| thread.process == id && thread.executes();
        let Some((&thread, _)) = self.model.threads.iter().find(executes) else { return false };
        let others = &self.model.processes[&id].threads;
        let busy = self.seen.iter().any(|(other, events)| *other != id && others.contains(other) && !events.is_empty());
        !busy && self.model.execute(thread)
    }

    /// The effects of calls whose results were seen: earlier, for a signal that came with the result is handled first.
    fn with_result(&self, after: &mut Vec<Left>) {
        for (&thread, events) in self.seen.iter() {
            for event in events {
                let Seen::Result(number, result, output) = event else { continue };
                let mut next = self.clone();
                if next.model.act(thread, *number, *result, output) {
                    after.push(next);
                }
            }
        }
    }

    /// Calls without a result: they wait, or end their thread, or it did not live to see the result, or is stopped
    /// before it sees it.
    fn without_result(&self, idle: &BTreeSet<Id>, after: &mut Vec<Left>) {
        // Who is idle in the end has been seen to do all it did; unless it is another thread by then, after execve.
        let executes = |thread: &Id| {
            let process = self.model.process(*thread);
            self.model.threads.values().any(|one| Some(one.process) == process && one.executes())
        };
        let mut busy = self.busy();
        busy.retain(|thread| self.seen[thread].front() != Some(&Seen::Executed));
        busy.extend(idle.iter().filter(|thread| !executes(thread)));
        for (&thread, known) in self.model.threads.iter() {
            if known.told.is_some() {
                self.without_result_of(thread, known, &busy, after);
            }
            let mut again = self.model.clone();
            if again.wait_again(thread) {
                after.push(Left { model: again, seen: self.seen.clone() });
            }
            for signal in self.model.handleable(thread).into_iter().filter(|_| !busy.contains(&thread)) {
                let mut next = self.clone();
                if next.model.prepare(thread, signal) {
                    after.push(next);
                }
            }
        }
    }

    fn without_result_of(&self, thread: Id, known: &Thread, busy: &BTreeSet<Id>, after: &mut Vec<Left>) {
        let Some((number, _)) = known.told else { return };
        let with = |model| Left { model, seen: self.seen.clone() };
        let mut waits = self.model.clone();
        if waits.begin_wait(thread) {
            after.push(with(waits));
        }
        if busy.contains(&thread) {
            return;
        }
        let mut leaves = self.model.clone();
        if leaves.leave(thread) {
            after.push(with(leaves));
            return;
        }
        let mut executes = self.model.clone();
        if known.executes() && executes.execute_unseen(thread) {
            after.push(with(executes));
        }
        let born = |(_, events): &(&Id, &VecDeque<Seen>)| events.contains(&Seen::Born(number));
        let child = self.seen.iter().find(born).map(|(child, _)| *child);
        after.extend(self.model.guesses(thread, child).into_iter().map(with));
    }
}
