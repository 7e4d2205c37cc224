//! Programs of system calls that nobody thought of (crate `fuzz`), on whole kernels.
//!
//! Whatever an unprivileged program does, from several threads and processes that move: no kernel may panic; once all are
//! killed every thread has gone, the machine is at rest, and no kernel has more than before. What calls answer is not
//! looked at. Programs that never come to rest (a timer of a nanosecond, a signal handler that faults) are killed
//! after a while like all others.
//!
//! | file | subject |
//! |---|---|
//! | player.rs | user mode: threads that play their parts of a program |

mod player;

use crate::{
    machine::Machine,
    nodes::machine::{Furniture, Nodes, Start},
    rng::{mix, Rng},
    scenario::{self, Log, Scenario, Step},
    shape::Shape,
};
use abi::Credentials;
use fuzz::{describe::Calls, draw::draw, program};
use player::Player;
use std::sync::{Arc, LazyLock};

/// Steps of the machine until the program is killed.
const LONGEST: usize = 60_000;
const NOBODY: u32 = 65534;
/// Descriptors of a process: few, so that numbers meet.
const DESCRIPTORS: u64 = 64;

pub static CALLS: LazyLock<Calls> = LazyLock::new(Calls::new);

/// A machine with a program that has not begun.
struct Stage {
    nodes: Nodes<Player>,
    player: Arc<Player>,
}

impl Stage {
    fn new(shape: Shape) -> Stage {
        let player = Arc::new(Player::default());
        let shape = Shape { scarce: false, frames: 1 << 13, ..shape };
        let nodes = Nodes::with(shape, player.clone(), &player::image(), Furniture::All);
        Stage { nodes, player }
    }

    fn play(&self, program: &program::Program) {
        let capability_free = Credentials {
            uid: NOBODY,
            euid: NOBODY,
            suid: NOBODY,
            fsuid: NOBODY,
            gid: NOBODY,
            egid: NOBODY,
            sgid: NOBODY,
            fsgid: NOBODY,
            groups: Vec::new(),
            effective: abi::Capabilities::of_user(NOBODY).permitted,
        };
        let kernel = self.nodes.world.rng.below(self.nodes.shape.kernels);
        let start = Start { credentials: capability_free, directory: b"/tmp", descriptors: DESCRIPTORS };
        self.nodes.boot_as(kernel, start);
        self.player.begin(program);
        self.nodes.settle_within(LONGEST);
        self.nodes.end_all();
    }
}

/// Runs one program on a machine of its own; how many calls it made, or what was wrong.
pub fn run(program: &program::Program, seed: u64, kernels: usize) -> Result<u64, String> {
    let stage = scenario::caught(|| Stage::new(Shape::of(seed, kernels)))?;
    let verdict = scenario::caught(|| {
        stage.play(program);
        stage.player.calls()
    });
    if verdict.is_err() {
        stage.nodes.world.give_up();
    }
    let end = scenario::caught(move || drop(stage));
    verdict.and_then(|calls| end.map(|()| calls))
}

/// What a program that has no seed runs with: the same each time.
pub fn seed_of(program: &program::Program) -> u64 {
    program
        .encode()
        .chunks(8)
        .fold(0, |mixed, chunk| mix(&[mixed, chunk.iter().fold(0, |word, byte| word << 8 | u64::from(*byte))]))
}

/// Mostly several kernels.
pub fn kernels_of(program: &program::Program) -> usize {
    [1, 2, 3, 4][(seed_of(program) >> 7) as usize % 4]
}

/// Makes a program that fails shorter and writes it in C; `Err`: it does not fail.
pub fn shortened(whole: program::Program) -> Result<String, String> {
    let (seed, kernels) = (seed_of(&whole), kernels_of(&whole));
    let Err(error) = run(&whole, seed, kernels) else { return Err("it does not fail".to_string()) };
    let fails = |program: &program::Program| (0..4).any(|luck| run(program, seed ^ luck, kernels).is_err());
    let short = fuzz::shrink::shrink(whole, 3000, &mut |program| fails(program));
    let error = run(&short, seed, kernels).err().unwrap_or(error);
    Ok(fuzz::c::write(&CALLS, &short, &format!("{error}\nOn {kernels} simulated kernels.")))
}

/// The program of a seed.
pub fn drawn(seed: u64) -> program::Program {
    draw(&CALLS, mix(&[seed, 0xca11]), Program::STEPS as usize)
}

/// These calls of the program of a seed, in C.
pub fn in_c(seed: u64, calls: impl Iterator<Item = usize>, why: &str) -> String {
    let whole = drawn(seed);
    let steps = calls.filter_map(|call| whole.steps.get(call).cloned()).collect();
    fuzz::c::write(&CALLS, &program::Program { steps }, why)
}

/// Random programs; a step is one of its calls.
pub struct Program {
    stage: Stage,
    whole: program::Program,
    /// What is kept of it.
    kept: program::Program,
}

impl Scenario for Program {
    const NAME: &'static str = "calls";
    const STEPS: u32 = 80;

    fn new(shape: Shape) -> Self {
        Program { stage: Stage::new(shape), whole: drawn(shape.seed), kept: program::Program::default() }
    }

    fn machine(&self) -> &Machine {
        &self.stage.nodes
    }

    fn step(&mut self, step: Step, _rng: &Rng, log: &Log) {
        if let Some(call) = self.whole.steps.get(step.number as usize) {
            let name = CALLS.name_of(call.number);
            log.line(|| format!("step {}: actor {} {name} {:x?}", step.number, call.actor, call.arguments));
            self.kept.steps.push(call.clone());
        }
    }

    fn finish(&mut self, log: &Log) {
        self.stage.player.trace(log.on());
        self.stage.play(&self.kept);
    }

    fn operations(&self) -> u64 {
        self.stage.player.calls()
    }
}
