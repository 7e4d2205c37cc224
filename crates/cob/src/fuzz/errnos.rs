//! `cob fuzz --errnos`: do calls fail here as on this machine's Linux?
//!
//! Programs of one thread run on both. Of each the first call counts that fails on one and not on the other, or otherwise; what comes
//! after it may follow from it. A program that Linux answers in two ways says nothing. What differs is listed, and is no failure.

use std::collections::BTreeMap;
use std::fmt;
use std::process::{Command, Stdio};

use ::fuzz::{
    describe::Calls,
    draw,
    program::{Program, Step, Word, ARENA},
};
use anyhow::{ensure, Context, Result};
use nix::errno::Errno;

use super::machine::Fuzzer;

/// What a call that never ran has as its result (executor.c).
const NOT_RUN: i64 = -4095;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Answer {
    Done,
    Fails(i32),
    NotRun,
}

impl Answer {
    fn of(result: i64) -> Answer {
        match result {
            NOT_RUN => Answer::NotRun,
            -4094..0 => Answer::Fails(-result as i32),
            _ => Answer::Done,
        }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Answer::Done => to.write_str("done"),
            Answer::Fails(errno) => write!(to, "{:?}", Errno::from_raw(*errno)),
            Answer::NotRun => to.write_str("not reached"),
        }
    }
}

/// Differences: call, Linux's answer and Cob's.
#[derive(Default)]
pub struct Differences(BTreeMap<(String, Answer, Answer), Example>);

/// How many programs had it, and the arguments and place of the first.
struct Example {
    count: u32,
    arguments: String,
    seed: u64,
    step: usize,
}

impl Differences {
    /// Compares programs with these seeds; how many had an answer.
    pub fn compare(&mut self, fuzzer: &Fuzzer, calls: &Calls, seeds: &[u64], length: usize) -> Result<usize> {
        let programs: Vec<Program> = seeds.iter().map(|seed| alone(draw::draw(calls, *seed, length))).collect();
        let batch = fuzzer.store(&programs)?;
        let host = || -> Result<_> {
            // With processes and System V objects of its own: the programs kill and remove what they can. As there, the
            // executor is process 2, of a session of its own.
            let mut command = Command::new("unshare");
            command.args(["--pid", "--fork", "--ipc", "--mount-proc", "--kill-child", "--"]);
            command.args(["timeout", "--foreground", "600", "setsid"]);
            traces(command.arg(fuzzer.executor()).arg(&batch).args(["1", "trace"]), programs.len())
        };
        let (linux, again) = (host()?, host()?);
        let cpus = std::thread::available_parallelism()?.get();
        let cob = traces(fuzzer.command(&batch, cpus)?.args(["1", "trace"]), programs.len())?;
        let mut steady = 0;
        for (index, program) in programs.iter().enumerate() {
            if linux[index] != again[index] {
                continue;
            }
            steady += 1;
            let differs = (0..program.steps.len()).find(|step| linux[index].get(*step) != cob[index].get(*step));
            let Some(step) = differs else { continue };
            let answer = |all: &[Vec<Answer>]| all[index].get(step).copied().unwrap_or(Answer::NotRun);
            let call = &program.steps[step];
            let key = (calls.name_of(call.number).to_string(), answer(&linux), answer(&cob));
            let first = || Example { count: 0, arguments: arguments(call), seed: seeds[index], step };
            self.0.entry(key).or_insert_with(first).count += 1;
        }
        Ok(steady)
    }
}

impl fmt::Display for Differences {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all: Vec<_> = self.0.iter().collect();
        all.sort_by_key(|(_, example)| std::cmp::Reverse(example.count));
        for ((name, linux, cob), Example { count, arguments, seed, step }) in all {
            writeln!(to, "{count:5} {name}: Linux {linux}, Cob {cob}: ({arguments}) (seed {seed}, step {step})")?;
        }
        Ok(())
    }
}

/// What is in memory there is shown up to its first zero.
fn arguments(call: &Step) -> String {
    let text = |address: u64| {
        let at = u32::try_from(address.checked_sub(ARENA)?).ok()?;
        let bytes = &call.writes.iter().find(|write| write.at == at)?.bytes;
        let bytes = bytes.split(|byte| *byte == 0).next()?;
        let shown = &bytes[..bytes.len().min(40)];
        Some(format!("\"{}\"", shown.escape_ascii()))
    };
    let word = |word: &Word| match word {
        Word::Value(value) => text(*value).unwrap_or_else(|| format!("{value:#x}")),
        Word::Slot(slot) => format!("slot {slot}"),
    };
    call.arguments.iter().map(word).collect::<Vec<_>>().join(", ")
}

/// What the first actor does, and nobody else.
pub fn alone(program: Program) -> Program {
    let keep = |step: &Step| step.actor == 0 && step.birth.is_none() && !draw::gives_birth(step.number);
    Program { steps: program.steps.into_iter().filter(keep).collect() }
}

/// What each call of each program answered.
fn traces(command: &mut Command, programs: usize) -> Result<Vec<Vec<Answer>>> {
    let output = command.stdin(Stdio::null()).output().context("the executor")?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    let mut all: Vec<Vec<Answer>> = Vec::with_capacity(programs);
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match (&words[..], all.last_mut()) {
            (["run", _], _) => all.push(Vec::new()),
            ([_, _, result], Some(last)) => last.push(Answer::of(result.parse().context("a result")?)),
            _ => {}
        }
    }
    ensure!(all.len() == programs, "{} programs of {programs} ran", all.len());
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_answers() {
        assert!(
            Answer::of(3) == Answer::Done && Answer::of(-4095) == Answer::NotRun && Answer::of(-4096) == Answer::Done
        );
        assert_eq!(Answer::of(-2).to_string(), "ENOENT");
    }

    #[test]
    fn a_program_alone_begins_nobody() {
        let calls = Calls::new();
        let all = (0..50).map(|seed| alone(draw::draw(&calls, seed, 80)));
        assert!(all.flat_map(|program| program.steps).all(|step| step.actor == 0 && step.birth.is_none()));
    }
}
