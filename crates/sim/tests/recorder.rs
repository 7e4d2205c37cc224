//! What kernels trace goes through the checker of traces: programs whose trace is falsified fail, and say by what.
#![forbid(unsafe_code)]

use sim::{
    life,
    machine::Machine,
    memory, order,
    recorder::Spoiler,
    rng::Rng,
    scenario::{Kind, Log, Plan, Scenario, Step},
    shape::Shape,
};
use std::marker::PhantomData;
use trace::{Packer, Point};
use traces::Event;

/// A way to falsify a trace.
trait Falsehood {
    fn spoiler() -> Spoiler;
}

/// The programs of `S`, whose trace is falsified.
struct False<S, F>(S, PhantomData<F>);

impl<S: Scenario, F: Falsehood> Scenario for False<S, F> {
    const NAME: &'static str = S::NAME;
    const STEPS: u32 = S::STEPS;

    fn new(shape: Shape) -> Self {
        let program = S::new(shape);
        program.machine().recorder.spoil(F::spoiler());
        False(program, PhantomData)
    }

    fn machine(&self) -> &Machine {
        self.0.machine()
    }

    fn step(&mut self, step: Step, rng: &Rng, log: &Log) {
        self.0.step(step, rng, log);
    }

    fn finish(&mut self, log: &Log) {
        self.0.finish(log);
    }

    fn operations(&self) -> u64 {
        self.0.operations()
    }
}

/// True for the `count`th event of `point`.
fn is_nth(point: Point, count: u32) -> impl FnMut(&Event) -> bool + Send {
    let mut left = count;
    move |event| {
        left -= u32::from(event.point == point && left > 0);
        let is_it = event.point == point && left == 0;
        left = if is_it { u32::MAX } else { left };
        is_it
    }
}

/// It says nothing of one message that it sends.
struct ForgetsToSend;

impl Falsehood for ForgetsToSend {
    fn spoiler() -> Spoiler {
        let mut is_it = is_nth(Point::MessageSend, 50);
        Box::new(move |event| !is_it(event))
    }
}

/// It says nothing of one message that has come.
struct ForgetsToReceive;

impl Falsehood for ForgetsToReceive {
    fn spoiler() -> Spoiler {
        let mut is_it = is_nth(Point::MessageReceive, 50);
        Box::new(move |event| !is_it(event))
    }
}

/// A switch is another CPU's.
struct SwitchesElsewhere;

impl Falsehood for SwitchesElsewhere {
    fn spoiler() -> Spoiler {
        let mut is_it = is_nth(Point::SchedSwitch, 51);
        Box::new(move |event| {
            if is_it(event) {
                event.place.cpu += 1;
            }
            true
        })
    }
}

/// A thread arrives with another move than it left with.
struct ArrivesTwice;

impl Falsehood for ArrivesTwice {
    fn spoiler() -> Spoiler {
        let mut is_it = is_nth(Point::ThreadArrive, 2);
        Box::new(move |event| {
            if is_it(event) {
                let [tid, moves, from] = event.numbers(["tid", "moves", "from"]);
                let mut packer = <Packer>::default();
                packer.put(tid, 32);
                packer.put(moves + 1, 32);
                packer.put(from, 16);
                event.words = packer.words().to_vec();
            }
            true
        })
    }
}

/// What is wrong with seed 3 on four kernels.
fn error<S: Scenario, F: Falsehood>() -> String {
    let plan = Plan::new(3, 4, S::STEPS);
    assert_eq!((Kind::of::<S>().run)(&plan, Log::Nothing).err(), None, "the true trace passes");
    let kind = Kind::of::<False<S, F>>();
    let error = (kind.run)(&plan, Log::Nothing).expect_err("a falsehood was believed");
    assert_eq!((kind.run)(&plan, Log::Nothing), Err(error.clone()), "it is found again");
    error
}

#[test]
fn a_message_that_was_not_sent() {
    for error in [error::<memory::Program, ForgetsToSend>(), error::<life::Program, ForgetsToSend>()] {
        assert!(error.contains("which was not sent"), "{error}");
        assert!(error.contains("message_receive"), "the event is shown: {error}");
    }
}

#[test]
fn a_message_that_did_not_come() {
    let error = error::<memory::Program, ForgetsToReceive>();
    assert!(error.contains("which was not received"), "{error}");
}

#[test]
fn a_switch_on_the_wrong_cpu() {
    let error = error::<life::Program, SwitchesElsewhere>();
    assert!(error.contains("CPU") && error.contains("sched_switch"), "{error}");
}

#[test]
fn a_thread_that_arrives_otherwise_than_it_left() {
    let error = error::<order::Program<order::Futex>, ArrivesTwice>();
    assert!(error.contains("arrives at kernel") && error.contains("thread_leave"), "{error}");
}

#[test]
fn much_is_recorded() {
    let mut program = order::Program::<order::Futex>::new(Shape::of(3, 4));
    let rng = Rng::new(3);
    for number in 0..20 {
        program.step(Step { number, acts: sim::scenario::Acts::ALL }, &rng, &Log::Nothing);
    }
    let (events, joined) = program.machine().recorder.counts();
    assert!(events > 1000 && joined > 100, "{events} events, {joined} messages");
}
