//! A random program, call after call.

use crate::{
    describe::{Call, Calls, Kind, Resource, DESCRIPTORS},
    program::{Program, Step, Take, Word, ACTORS},
    values::Values,
};
use fastrand::Rng;

/// clone(2) of a thread, and processes: what makes actors.
pub const CLONE: u16 = 56;
pub const FORK: u16 = 57;
pub const VFORK: u16 = 58;
pub const CLONE3: u16 = 435;

/// How many calls deep what an argument needs is made first.
const DEPTH: usize = 3;

/// Draws the calls of one program.
pub struct Drawing<'a> {
    pub calls: &'a Calls,
    pub rng: Rng,
    pub program: Program,
    /// What was made so far, and the slot it is in.
    pub made: Vec<(Resource, u8)>,
    next_slot: u8,
    /// Where the next memory of each actor's area is.
    pub cursors: [u64; ACTORS],
    /// Actors that are born, or will be.
    pub born: usize,
}

/// Does a call return twice?
pub fn gives_birth(number: u16) -> bool {
    matches!(number, CLONE | FORK | VFORK | CLONE3)
}

/// Can what is `there` be used as what is `wanted`?
fn serves(there: Resource, wanted: Resource) -> bool {
    let (is, may) = (DESCRIPTORS.contains(&there), DESCRIPTORS.contains(&wanted));
    there == wanted
        || is && wanted == "fd"
        || is && may && matches!((there, wanted), ("memfd", "file") | ("dir", "file"))
}

/// A program of about so many calls.
pub fn draw(calls: &Calls, seed: u64, length: usize) -> Program {
    let mut drawing = Drawing::new(calls, Rng::with_seed(seed));
    // Most programs have company; some calls are only wrong alone.
    let births = [0, 1, 1, 2, 3, 5][drawing.rng.usize(..6)];
    for _ in 0..births {
        let thread = drawing.rng.bool();
        let (number, parent) = (if thread { CLONE } else { FORK }, drawing.rng.usize(..drawing.born));
        let call = calls.calls.iter().position(|call| call.number == number);
        drawing.step(call.expect("clone and fork are described"), parent as u8, 0);
    }
    while drawing.program.steps.len() < length {
        let actor = drawing.rng.usize(..drawing.born.min(ACTORS)) as u8;
        drawing.some_step(actor);
    }
    drawing.program.repair();
    drawing.program
}

impl<'a> Drawing<'a> {
    pub fn new(calls: &'a Calls, rng: Rng) -> Self {
        Drawing {
            calls,
            rng,
            program: Program::default(),
            made: Vec::new(),
            next_slot: 0,
            cursors: [0; ACTORS],
            born: 1,
        }
    }

    /// Goes on with a program that is there.
    pub fn after(calls: &'a Calls, rng: Rng, program: Program) -> Self {
        let mut drawing = Drawing::new(calls, rng);
        let births = program.steps.iter().filter_map(|step| step.birth);
        drawing.born = births.map(|actor| usize::from(actor) + 1).max().unwrap_or(1);
        for step in &program.steps {
            let number = step.number;
            for (index, take) in step.takes.iter().enumerate() {
                let described = calls.calls.iter().find(|call| call.number == number);
                let kind = described.and_then(|call| call.result.or_else(|| news(call).nth(index)));
                drawing.made.push((kind.unwrap_or("fd"), take.slot));
                drawing.next_slot = drawing.next_slot.max(take.slot.wrapping_add(1));
            }
        }
        drawing.program = program;
        drawing
    }

    /// Another call of an actor.
    pub fn some_step(&mut self, actor: u8) {
        let lot = self.rng.usize(..self.calls.lots.len());
        self.step(self.calls.lots[lot], actor, 0);
    }

    fn step(&mut self, index: usize, actor: u8, depth: usize) {
        let calls = self.calls;
        let call = &calls.calls[index];
        let wanted = call.arguments.iter().filter_map(|kind| match kind {
            Kind::Use(resource) => Some(*resource),
            _ => None,
        });
        for resource in wanted {
            let missing = !self.made.iter().any(|(there, _)| serves(there, resource));
            if missing && depth < DEPTH && self.rng.u8(..8) != 0 {
                self.make(resource, actor, depth);
            }
        }
        let (arguments, mut step) = self.arguments(call, actor);
        step.arguments = arguments;
        if let Some(resource) = call.result {
            let slot = self.slot(resource);
            step.takes.push(Take { slot, from: None });
        }
        if gives_birth(call.number) && self.born < ACTORS && usize::from(actor) < self.born {
            step.birth = Some(self.born as u8);
            self.born += 1;
        }
        self.program.steps.push(step);
    }

    /// A call that makes what another needs.
    fn make(&mut self, resource: Resource, actor: u8, depth: usize) {
        let makes = |call: &Call| {
            call.result.is_some_and(|made| serves(made, resource)) || news(call).any(|made| serves(made, resource))
        };
        let makers: Vec<usize> = (0..self.calls.calls.len()).filter(|index| makes(&self.calls.calls[*index])).collect();
        if let Some(maker) = self.rng.choice(&makers) {
            self.step(*maker, actor, depth + 1);
        }
    }

    fn arguments(&mut self, call: &Call, actor: u8) -> ([Word; 6], Step) {
        let step = Step {
            actor,
            number: call.number,
            arguments: [Word::Value(0); 6],
            writes: Vec::new(),
            patches: Vec::new(),
            takes: Vec::new(),
            birth: None,
        };
        let mut values = Values { drawing: self, step };
        let words = values.group(&call.arguments.iter().collect::<Vec<_>>());
        let mut arguments = [Word::Value(0); 6];
        arguments[..words.len()].copy_from_slice(&words);
        (arguments, values.step)
    }

    /// A slot for something new.
    pub fn slot(&mut self, resource: Resource) -> u8 {
        let slot = self.next_slot;
        self.next_slot = slot.wrapping_add(1);
        self.made.push((resource, slot));
        slot
    }

    /// The slot of something that serves; rather what was made late.
    pub fn some(&mut self, resource: Resource) -> Option<u8> {
        let serving = self.made.iter().rev().filter(|(there, _)| serves(there, resource));
        let serving: Vec<u8> = serving.map(|(_, slot)| *slot).collect();
        let bound = if self.rng.bool() { 2 } else { serving.len() };
        serving.get(self.rng.usize(..bound.clamp(1, serving.len().max(1)))).copied()
    }
}

/// What a call writes that later ones use.
fn news(call: &Call) -> impl Iterator<Item = Resource> + '_ {
    let structures = call.arguments.iter().filter_map(|kind| match kind {
        Kind::Memory(memory) => memory.structure.as_ref(),
        _ => None,
    });
    structures.flatten().filter_map(|field| match field.kind {
        Kind::New(resource) => Some(resource),
        _ => None,
    })
}
