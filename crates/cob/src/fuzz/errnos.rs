//! `cob fuzz --errnos`: do calls fail here as on this machine's Linux?
//!
//! Programs of one thread run on both. Of each the first call counts that fails on one and not on the other, or otherwise; what comes
//! after it may follow from it. A program that Linux answers in two ways says nothing. What differs is listed, and is no failure.

use std::collections::BTreeMap;
use std::fmt;
use std::process::{Command, Stdio};

use ::fuzz::{describe::Calls, draw, program::Program};
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

/// Differences: call, Linux's answer and Cob's; how many programs had it, and the seed and step of one.
#[derive(Default)]
pub struct Differences(BTreeMap<(String, Answer, Answer), (u32, u64, usize)>);

impl Differences {
    /// Compares programs with these seeds; how many had an answer.
    pub fn compare(&mut self, fuzzer: &Fuzzer, calls: &Calls, seeds: &[u64], length: usize) -> Result<usize> {
        let programs: Vec<Program> = seeds.iter().map(|seed| alone(draw::draw(calls, *seed, length))).collect();
        let batch = fuzzer.store(&programs)?;
        let host = || -> Result<_> {
            // With processes and System V objects of its own: the programs kill and remove what they can.
            let mut command = Command::new("unshare");
            command.args(["--pid", "--fork", "--ipc", "--kill-child", "--"]).arg(fuzzer.executor()).arg(&batch);
            traces(command.args(["1", "trace"]), programs.len())
        };
        let (linux, again) = (host()?, host()?);
        let cob = traces(fuzzer.command(&batch)?.args(["1", "trace"]), programs.len())?;
        let mut steady = 0;
        for (index, program) in programs.iter().enumerate() {
            if linux[index] != again[index] {
                continue;
            }
            steady += 1;
            let differs = (0..program.steps.len()).find(|step| linux[index].get(*step) != cob[index].get(*step));
            let Some(step) = differs else { continue };
            let answer = |all: &[Vec<Answer>]| all[index].get(step).copied().unwrap_or(Answer::NotRun);
            let name = calls.name_of(program.steps[step].number).to_string();
            let entry = self.0.entry((name, answer(&linux), answer(&cob))).or_insert((0, seeds[index], step));
            entry.0 += 1;
        }
        Ok(steady)
    }
}

impl fmt::Display for Differences {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all: Vec<_> = self.0.iter().collect();
        all.sort_by_key(|(_, (count, ..))| std::cmp::Reverse(*count));
        for ((name, linux, cob), (count, seed, step)) in all {
            writeln!(to, "{count:5} {name}: Linux {linux}, Cob {cob} (seed {seed}, step {step})")?;
        }
        Ok(())
    }
}

/// What the first actor does, and nobody else.
pub fn alone(program: Program) -> Program {
    let keep =
        |step: &::fuzz::program::Step| step.actor == 0 && step.birth.is_none() && !draw::gives_birth(step.number);
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
