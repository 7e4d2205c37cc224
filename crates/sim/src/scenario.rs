//! A kind of random program, and one run of it.
//!
//! A run is determined by its [`Plan`]. Every step draws what it does from random numbers of its own, which follow from
//! the seed and the *number* of the step, and so does the schedule while it lasts: a step that is left out changes the
//! others only through what it did. That is what makes a failing run shrink (shrink.rs), and what makes the list of
//! steps that remain all it takes to replay it.

use crate::{
    machine::Machine,
    rng::{mix, Rng},
    shape::Shape,
};
use fabric::describe;
use std::{
    cell::RefCell,
    fmt,
    panic::{catch_unwind, AssertUnwindSafe},
    sync::Once,
};

/// The operations of a step that are done: those that run at the same time have numbers from 0 to 7.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Acts(pub u8);

impl Acts {
    pub const ALL: Acts = Acts(u8::MAX);

    pub fn contains(self, act: usize) -> bool {
        self.0 & 1 << act != 0
    }
}

/// A kind of random program.
pub trait Scenario: Sized {
    /// What it is called on the command line.
    const NAME: &'static str;
    /// Steps of a run.
    const STEPS: u32;

    /// The machine and what is on it before the first step.
    fn new(shape: Shape) -> Self;

    fn machine(&self) -> &Machine;

    /// Does some of the operations of a step, waits until they have ended, and panics unless all is as it should be.
    /// All that is random in it comes from `rng`; the same numbers must be drawn whatever `step.acts` says.
    fn step(&mut self, step: Step, rng: &Rng, log: &Log);

    /// Ends everything; panics if anything is left over.
    fn finish(&mut self, log: &Log);

    /// Operations so far.
    fn operations(&self) -> u64;
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    pub number: u32,
    pub acts: Acts,
}

impl Step {
    /// What some of the `idle` threads do in this step, `most` of them at most. `draw` is asked for all that the step could
    /// have, so that what is left out changes nothing of the rest.
    pub fn draw<T, A>(self, most: usize, mut idle: Vec<T>, rng: &Rng, mut draw: impl FnMut(&T) -> A) -> Vec<(T, A)> {
        let mut acts = Vec::new();
        for act in 0..1 + rng.below(most) {
            if idle.is_empty() {
                break;
            }
            let thread = idle.swap_remove(rng.below(idle.len()));
            let drawn = draw(&thread);
            if self.acts.contains(act) {
                acts.push((thread, drawn));
            }
        }
        acts
    }
}

/// `17`, or `17ac` for its first and third operation alone.
impl fmt::Display for Step {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.number)?;
        let some = (0..8u8).filter(|act| self.acts != Acts::ALL && self.acts.contains(usize::from(*act)));
        some.map(|act| char::from(b'a' + act)).try_for_each(|act| write!(out, "{act}"))
    }
}

impl std::str::FromStr for Step {
    type Err = String;
    fn from_str(text: &str) -> Result<Step, String> {
        let digits = text.trim_end_matches(|c: char| ('a'..='h').contains(&c));
        let number = digits.parse().map_err(|_| format!("{text} is no step"))?;
        let acts = text[digits.len()..].bytes().fold(0, |acts, letter| acts | 1 << (letter - b'a'));
        Ok(Step { number, acts: if acts == 0 { Acts::ALL } else { Acts(acts) } })
    }
}

/// All that a run follows from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    pub seed: u64,
    pub kernels: usize,
    /// Another schedule of the same steps.
    pub luck: u64,
    /// No delays, lots of room, one CPU.
    pub calm: bool,
    pub steps: Vec<Step>,
}

impl Plan {
    pub fn new(seed: u64, kernels: usize, steps: u32) -> Self {
        let steps = (0..steps).map(|number| Step { number, acts: Acts::ALL }).collect();
        Plan { seed, kernels, luck: 0, calm: false, steps }
    }

    pub fn shape(&self) -> Shape {
        let shape = Shape::of(self.seed, self.kernels);
        if self.calm {
            shape.calm()
        } else {
            shape
        }
    }

    fn seed_of(&self, step: u32, salt: u64) -> u64 {
        mix(&[self.seed, u64::from(step), salt])
    }
}

/// What a run did.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Tally {
    pub operations: u64,
    pub messages: u64,
}

/// What is printed while a run goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Log {
    Nothing,
    Operations,
    /// Messages too.
    Messages,
    /// Operations, and every event of the trace.
    Events,
}

impl Log {
    pub fn on(self) -> bool {
        self != Log::Nothing
    }

    /// The text is made only if somebody reads it.
    pub fn line<T: fmt::Display>(self, text: impl FnOnce() -> T) {
        if self.on() {
            eprintln!("{}", text());
        }
    }
}

/// A kind of program without its type.
#[derive(Clone, Copy)]
pub struct Kind {
    pub name: &'static str,
    pub steps: u32,
    /// `Err`: what was wrong.
    pub run: fn(&Plan, Log) -> Result<Tally, String>,
}

impl Kind {
    pub const fn of<S: Scenario>() -> Kind {
        Kind { name: S::NAME, steps: S::STEPS, run: run::<S> }
    }
}

fn run<S: Scenario>(plan: &Plan, log: Log) -> Result<Tally, String> {
    let mut program = caught(|| S::new(plan.shape()))?;
    let verdict = caught(|| {
        if log == Log::Messages {
            let watcher = |from: machine::KernelId, to: machine::KernelId, packet: &[u8]| {
                eprintln!("        k{} > k{}  {}", from.0, to.0, describe(packet));
            };
            program.machine().network.watch(Box::new(watcher));
        }
        program.machine().recorder.print(log == Log::Events);
        let rng = Rng::new(0);
        for step in &plan.steps {
            rng.reseed(plan.seed_of(step.number, u64::MAX));
            program.machine().world.rng.reseed(plan.seed_of(step.number, plan.luck));
            program.step(*step, &rng, &log);
        }
        program.machine().world.rng.reseed(plan.seed_of(u32::MAX, plan.luck));
        program.finish(&log);
        program.machine().recorder.finish();
        Tally { operations: program.operations(), messages: program.machine().messages() }
    });
    if verdict.is_err() {
        program.machine().world.give_up();
    }
    // What goes wrong while it is taken apart is a failure too, unless there was one already.
    let end = caught(move || drop(program));
    verdict.and_then(|tally| end.map(|()| tally))
}

thread_local! {
    /// The last panic of this thread, while it is one that `caught` catches.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
    static CATCHING: RefCell<bool> = const { RefCell::new(false) };
}

/// Runs `work`; a panic is an error with its message and place, and is not printed.
pub fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !CATCHING.with_borrow(|catching| *catching) {
                return usual(info);
            }
            let place = info.location().map(|at| format!(" ({}:{})", at.file(), at.line())).unwrap_or_default();
            let text = info.payload_as_str().unwrap_or("a panic without words");
            // The first is the cause.
            PANIC.with_borrow_mut(|panic| panic.get_or_insert_with(|| format!("{text}{place}")).truncate(2000));
        }));
    });
    PANIC.set(None);
    let before = CATCHING.replace(true);
    let result = catch_unwind(AssertUnwindSafe(work));
    CATCHING.set(before);
    result.map_err(|_| PANIC.take().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_read_as_they_are_written() {
        for text in ["0", "17", "17ac", "3b"] {
            assert_eq!(text.parse::<Step>().unwrap().to_string(), text);
        }
        assert!("x".parse::<Step>().is_err());
        assert!("3z".parse::<Step>().is_err());
    }
}
