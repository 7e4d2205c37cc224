//! Random programs on Popcorn's protocol, one process with threads on all kernels: it must be right, or counting its
//! messages means nothing.

use super::Popcorn;
use crate::{
    acts::{Act, Choices, HEAP},
    executor::Handle,
    machine::Machine,
    memory::explain,
    model::{Model, Operation, Outcome},
    rng::Rng,
    scenario::{Log, Scenario, Step},
    shape::Shape,
};
use machine::{KernelId, SpaceId};
use std::sync::Arc;

pub struct Program {
    machine: Machine,
    popcorn: Arc<Popcorn>,
    states: Vec<Model>,
    space: SpaceId,
    operations: u64,
}

impl Scenario for Program {
    const NAME: &'static str = "popcorn";
    const STEPS: u32 = 80;

    fn new(shape: Shape) -> Self {
        let machine = Machine::new(shape);
        let popcorn = Popcorn::new(&machine);
        let space = SpaceId { home: KernelId(0), serial: 1 };
        let mut model = Model::new(0, false);
        model.add_space(space, HEAP);
        Program { machine, popcorn, states: vec![model], space, operations: 0 }
    }

    fn machine(&self) -> &Machine {
        &self.machine
    }

    fn step(&mut self, step: Step, rng: &Rng, log: &Log) {
        let count = if self.states.len() > 1 { 1 } else { *rng.pick(&[1, 2, 3]) };
        let drawn: Vec<Act> = (0..count).map(|_| self.draw(rng, count == 1)).collect();
        let chosen = drawn.into_iter().enumerate().filter(|(index, _)| step.acts.contains(*index));
        let acts: Vec<Act> = chosen.map(|(_, act)| act).collect();
        let handles: Vec<Handle<Outcome>> = acts.iter().map(|act| self.start(act)).collect();
        self.machine.settle();
        let outcome = |(handle, act): (&Handle<Outcome>, &Act)| match handle.take() {
            Some(outcome) => outcome,
            None => panic!("deadlock: {act} has not ended"),
        };
        let outcomes: Vec<Outcome> = handles.iter().zip(&acts).map(outcome).collect();
        for (act, outcome) in acts.iter().zip(&outcomes) {
            log.line(|| format!("{:>4}  {act} -> {outcome}", step.number));
        }
        self.operations += acts.len() as u64;
        self.states = explain(&self.states, &acts, &outcomes, false);
        self.popcorn.audit();
    }

    fn finish(&mut self, log: &Log) {
        log.line(|| " end  all memory is read and unmapped");
        for (space, page, word, _) in self.states[0].expectations() {
            self.one(Act { kernel: 0, space, operation: Operation::Read { page: page.0, word } });
        }
        for page in self.states[0].pages(self.space) {
            let operation = Operation::Unmap { page, pages: 1 };
            self.one(Act { kernel: page as usize % self.machine.shape.kernels, space: self.space, operation });
        }
        self.popcorn.audit();
    }

    fn operations(&self) -> u64 {
        self.operations
    }
}

impl Program {
    /// An operation that the thesis has.
    fn draw(&self, rng: &Rng, alone: bool) -> Act {
        let (model, kernels) = (&self.states[0], self.machine.shape.kernels);
        let choices = Choices { model, kernels, spaces: 1, scarce: false, focus: None, private: &[], shared: &[] };
        loop {
            let mut act = choices.act(rng, self.space, alone);
            match &mut act.operation {
                Operation::Map { shared: false, object: None, .. }
                | Operation::Unmap { .. }
                | Operation::Remap { to: None, .. }
                | Operation::Read { .. }
                | Operation::Write { .. }
                | Operation::Exchange { .. } => return act,
                Operation::Protect { page, pages, .. } => {
                    // A hole stops Linux; here each kernel changes what it has, and nobody knows of holes in time.
                    let mapped = model.pages(self.space);
                    let whole = (*page..*page + *pages).all(|at| mapped.binary_search(&at).is_ok());
                    *pages = if alone && whole { *pages } else { 1 };
                    return act;
                }
                _ => {}
            }
        }
    }

    fn start(&self, act: &Act) -> Handle<Outcome> {
        let (popcorn, Act { kernel, operation, .. }) = (self.popcorn.clone(), *act);
        self.machine.start(async move { popcorn.perform(kernel, operation).await })
    }

    fn one(&mut self, act: Act) {
        let handle = self.start(&act);
        self.machine.settle();
        let outcome = handle.take().expect("alone, nothing is in its way");
        self.operations += 1;
        self.states = explain(&self.states, &[act], &[outcome], false);
    }
}
