//! A program like another one: what coverage guidance tries on those that reached something new.

use crate::{
    describe::Calls,
    draw::{draw, Drawing},
    program::{Program, Word, ACTORS},
};
use fastrand::Rng;

/// Changes a program a little; `other` is one that steps may be taken from.
pub fn mutate(calls: &Calls, program: &Program, other: Option<&Program>, seed: u64) -> Program {
    let mut rng = Rng::with_seed(seed);
    let mut program = program.clone();
    for _ in 0..1 + rng.usize(..4) {
        change(calls, &mut program, other, &mut rng);
    }
    program.repair();
    program
}

fn change(calls: &Calls, program: &mut Program, other: Option<&Program>, rng: &mut Rng) {
    let count = program.steps.len();
    if count == 0 {
        *program = draw(calls, rng.u64(..), 10);
        return;
    }
    let at = rng.usize(..count);
    match (rng.u8(..10), other) {
        // New calls, and what they need before them, in the middle or at the end.
        (0..=3, _) => {
            let rest = match rng.bool() {
                true => program.steps.split_off(at),
                false => Vec::new(),
            };
            let mut drawing = Drawing::after(calls, rng.fork(), std::mem::take(program));
            let actor = rng.usize(..drawing.born.min(ACTORS)) as u8;
            drawing.some_step(actor);
            *program = drawing.program;
            program.steps.extend(rest);
        }
        (4, _) => drop(program.steps.remove(at)),
        (5, _) => {
            let again = program.steps[at].clone();
            program.steps.insert(rng.usize(..=count), again);
        }
        (6, Some(other)) if !other.steps.is_empty() => {
            let from = rng.usize(..other.steps.len());
            let to = (from + 1 + rng.usize(..8)).min(other.steps.len());
            program.steps.splice(at..at, other.steps[from..to].iter().cloned());
        }
        (6, _) => program.steps[at].actor = rng.u8(..ACTORS as u8),
        (7, _) => program.steps.swap(at, rng.usize(..count)),
        (8, _) => {
            let argument = &mut program.steps[at].arguments[rng.usize(..6)];
            if let Word::Value(value) = argument {
                *argument = Word::Value(number(*value, rng));
            }
        }
        _ => {
            let writes = &mut program.steps[at].writes;
            if let Some(write) = rng.choice(writes.iter_mut()) {
                let length = write.bytes.len();
                if length > 0 {
                    let place = rng.usize(..length);
                    write.bytes[place] = number(u64::from(write.bytes[place]), rng) as u8;
                }
            }
        }
    }
}

/// A number near another, or with a bit of it changed.
fn number(value: u64, rng: &mut Rng) -> u64 {
    match rng.u8(..5) {
        0 => value ^ 1 << rng.u32(..64),
        1 => value.wrapping_add(1),
        2 => value.wrapping_sub(1),
        3 => value.wrapping_neg(),
        _ => rng.u64(..) >> rng.u32(..64),
    }
}
