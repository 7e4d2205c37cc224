//! Random programs of one subject on whole kernels: threads that call, are born, fork, and are moved about meanwhile.

use super::{
    search::{explain, Act, Pending, Seen, State},
    Id, Subject,
};
use crate::{
    machine::Machine,
    nodes::{
        machine::Nodes,
        user::{action, call, clone_thread, Arg, Command, Event},
    },
    rng::Rng,
    scenario::{Log, Scenario, Step},
    shape::Shape,
};
use ::machine::KernelId;
use std::{collections::BTreeSet, fmt::Debug};

const MOST_ACTS: usize = 3;
/// One step in so many is an upheaval.
const RARE: usize = 10;
const SIGPIPE: u64 = 13;

pub struct Program<S: Subject> {
    pub(super) nodes: Nodes,
    pub(super) states: Vec<State<S>>,
    /// The one that never waits, so that somebody can always go on.
    first: Id,
    pub(super) threads: BTreeSet<Id>,
    stacks: u64,
    operations: u64,
}

impl<S: Subject> Scenario for Program<S> {
    const NAME: &'static str = S::NAME;
    const STEPS: u32 = S::STEPS;

    fn new(shape: Shape) -> Self {
        // Scarce memory is another scenario's subject.
        let nodes = Nodes::new(Shape { scarce: false, frames: 1 << 12, ..shape });
        let first = nodes.boot(nodes.world.rng.below(shape.kernels));
        let model = S::new(first, &mut |command| {
            let cpu = nodes.world.rng.below(nodes.cpus() as usize);
            alone(&nodes, first, move_to(first, cpu as u32));
            (alone(&nodes, first, command), KernelId((cpu / shape.cpus) as u16))
        });
        let ignored = [Arg::Value(SIGPIPE), Arg::Input, Arg::Value(0), Arg::Value(8)];
        alone(&nodes, first, Command::new(call::SIGACTION, &ignored).input(action(1)));
        let states = vec![State { model, pending: Vec::new() }];
        Program { nodes, states, first, threads: [first].into(), stacks: 0, operations: 0 }
    }

    fn machine(&self) -> &Machine {
        &self.nodes
    }

    fn step(&mut self, step: Step, rng: &Rng, log: &Log) {
        if S::FORKS && rng.one_in(RARE) {
            log.line(|| format!("step {}", step.number));
            self.operations += 1;
            return self.upheaval(rng, log);
        }
        let idle = self.nodes.idle().into_iter().collect();
        let acts = step.draw(MOST_ACTS, idle, rng, |thread| self.draw(*thread, rng));
        if !acts.is_empty() {
            log.line(|| format!("step {}", step.number));
            self.operations += acts.len() as u64;
            self.perform(&acts, log);
        }
    }

    fn finish(&mut self, log: &Log) {
        log.line(|| "all are killed");
        self.nodes.end_all();
    }

    fn operations(&self) -> u64 {
        self.operations
    }
}

/// Makes one call while nothing else happens.
fn alone(nodes: &Nodes, thread: Id, command: Command) -> i64 {
    nodes.user.tell(thread, command);
    nodes.settle();
    let returned = nodes.user.events().into_iter().find_map(|event| match event {
        Event::Returned { result, .. } => Some(result),
        _ => None,
    });
    returned.expect("a call that prepares returns")
}

fn move_to(thread: Id, cpu: u32) -> Command {
    let mask: Vec<u8> = (0..16).map(|byte| if byte == cpu / 8 { 1 << (cpu % 8) } else { 0 }).collect();
    Command::new(call::SETAFFINITY, &[Arg::Value(thread.into()), Arg::Value(16), Arg::Input]).input(mask)
}

impl<S: Subject> Program<S> {
    fn draw(&mut self, thread: Id, rng: &Rng) -> Act<S::Op> {
        let threads: Vec<Id> = self.threads.iter().copied().collect();
        match rng.below(10) {
            0..=2 if threads.len() < S::THREADS => {
                self.stacks += 1;
                Act::Birth(self.stacks, S::FORKS && rng.one_in(4))
            }
            0..=1 => Act::Move(*rng.pick(&threads), rng.pick(&self.nodes.living_cpus()).0),
            _ => Act::Call(self.states[0].model.draw(thread, thread != self.first, rng)),
        }
    }

    fn perform(&mut self, acts: &[(Id, Act<S::Op>)], log: &Log) {
        for &(thread, act) in acts {
            let number = self.nodes.user.tell(thread, self.command(act));
            log.line(|| format!("  {number}: {thread} {act:?}"));
            self.states.iter_mut().for_each(|state| state.pending.push(Pending::new(number, thread, act)));
        }
        self.nodes.settle();
        let (events, idle) = (self.nodes.user.events(), self.nodes.idle());
        events.iter().for_each(|event| log.line(|| format!("      {event:?}")));
        let mut seen = Seen { replies: Default::default(), ended: Vec::new() };
        for event in events {
            match event {
                Event::Returned { number, result, output, .. } => drop(seen.replies.insert(number, (result, output))),
                Event::Born { thread, .. } => drop(self.threads.insert(thread)),
                strange => panic!("nobody asked for {strange:?}"),
            }
        }
        let silent = |(thread, _): &&(Id, Act<S::Op>)| !idle.contains(thread);
        seen.ended = acts.iter().filter(silent).map(|(thread, _)| *thread).collect();
        let before = std::mem::take(&mut self.states);
        self.conclude(before, &seen, &idle, &format_args!("{acts:?}"));
    }

    /// Keeps what explains `seen`.
    pub(super) fn conclude(&mut self, before: Vec<State<S>>, seen: &Seen, idle: &BTreeSet<Id>, what: &dyn Debug) {
        let left = before.first().map(|state| format!("{:?}", state.model));
        self.states = explain(before, seen);
        assert!(!self.states.is_empty(), "no order of {what:?} explains {:?}; before: {left:?}", seen.replies);
        // Where nothing is pending in any explanation, the thread waits for commands, or is no more.
        let waits = |thread: &Id| self.states[0].pending.iter().any(|call| call.thread == *thread);
        self.threads = self.threads.iter().copied().filter(|thread| idle.contains(thread) || waits(thread)).collect();
    }

    fn command(&self, act: Act<S::Op>) -> Command {
        match act {
            Act::Call(op) => self.states[0].model.command(op),
            Act::Birth(_, true) => Command::plain(call::FORK, &[]),
            Act::Birth(slot, false) => clone_thread(slot),
            Act::Move(thread, cpu) => move_to(thread, cpu),
        }
    }
}
