//! One machine that runs a batch of programs, and what became of it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{channel, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use ::fuzz::program::Program;
use anyhow::{bail, Context, Result};

use crate::cli::FuzzOptions;
use crate::status;
use crate::vm::with_parent_death_signal;

/// A machine that begins no other program for so long hangs: one takes at most 2 s, and its end 60 s (executor.c).
const PATIENCE: Duration = Duration::from_secs(120);
/// What the executor ends with when something outlives SIGKILL.
const SURVIVOR: i32 = 3;

/// What was wrong, in a line and in many, and the last program that had begun.
pub struct Found {
    pub kind: String,
    pub why: String,
    pub last: usize,
}

pub struct Fuzzer {
    executor: PathBuf,
    directory: PathBuf,
    kernels: u16,
    shake: Option<u64>,
}

impl Fuzzer {
    /// Builds the program that runs programs.
    pub fn new(options: &FuzzOptions, directory: &Path) -> Result<Fuzzer> {
        let (source, executor) = (directory.join("executor.c"), directory.join("executor"));
        fs::write(&source, ::fuzz::EXECUTOR)?;
        let words = ["-O2", "-Wall", "-static", "-no-pie", "-Wl,--section-start=.fuzz=0x10000000", "-o"];
        let result = Command::new("gcc").args(words).arg(&executor).arg(&source).output().context("gcc")?;
        if !result.status.success() {
            bail!("gcc: {}", String::from_utf8_lossy(&result.stderr));
        }
        let shake = options.shake.then_some(options.seed);
        Ok(Fuzzer { executor, directory: directory.to_path_buf(), kernels: options.kernels, shake })
    }

    pub fn executor(&self) -> &Path {
        &self.executor
    }

    /// The file that the programs are in now.
    pub fn store(&self, programs: &[Program]) -> Result<PathBuf> {
        let batch = self.directory.join("batch");
        super::write(&batch, programs)?;
        Ok(batch)
    }

    /// Runs that file in a machine of its own; how often, and whether with a trace, is still to come.
    pub fn command(&self, batch: &Path, cpus: usize) -> Result<Command> {
        let mut command = with_parent_death_signal("TERM", std::env::current_exe()?);
        command.args(["run", "--audit", "--kernels", &self.kernels.to_string()]);
        command
            .args(["--cpus", &cpus.max(usize::from(self.kernels)).to_string()])
            .arg("--log")
            .arg(self.directory.join("log"));
        if let Some(seed) = self.shake {
            command.args(["--shake", &seed.to_string()]);
        }
        command.arg("--").arg(&self.executor).arg(batch);
        Ok(command)
    }

    /// Runs the programs so many times in a machine of its own: how many calls they made, or what was found.
    pub fn run(&self, programs: &[Program], times: u32) -> Result<Result<u64, Found>> {
        let mut command = self.command(&self.store(programs)?, 4)?;
        command.arg(times.to_string());
        let errors = fs::File::create(self.directory.join("errors"))?;
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors).spawn()?;
        let (last, calls, status) = follow(child)?;
        let last = last % programs.len().max(1);
        let errors = String::from_utf8_lossy(&fs::read(self.directory.join("errors"))?).into_owned();
        let found = |kind: String| {
            let why = format!("{kind}\n{}", errors.trim_end());
            Ok(Err(Found { kind, why, last }))
        };
        match (status, calls) {
            (Some(0), Some(calls)) => Ok(Ok(calls)),
            (None, _) => found(format!("hang: nothing happened for {} s", PATIENCE.as_secs())),
            (Some(SURVIVOR), _) => found("something outlived SIGKILL".to_string()),
            (Some(code), _) if code == i32::from(status::PANIC) => found("panic or leak".to_string()),
            // Who watches has privileges: no program may end it.
            (Some(code), _) => found(format!("the watcher ended with status {code}")),
        }
    }
}

/// What it prints until it ends: the last program begun, calls made, status; no status if it had to be killed.
fn follow(mut child: Child) -> Result<(usize, Option<u64>, Option<i32>)> {
    let output = child.stdout.take().context("no pipe")?;
    let (sender, lines) = channel();
    let reader = thread::spawn(move || {
        let lines = BufReader::new(output).lines().map_while(Result::ok);
        lines.for_each(|line| drop(sender.send(line)));
    });
    let (mut last, mut calls, mut hangs) = (0, None, false);
    loop {
        match lines.recv_timeout(PATIENCE) {
            Ok(line) => match line.split_once(' ') {
                Some(("run", number)) => last = number.parse().unwrap_or(last),
                Some(("calls", number)) => calls = number.parse().ok(),
                _ => {}
            },
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                hangs = true;
                child.kill()?;
                break;
            }
        }
    }
    let status = child.wait()?;
    drop(reader.join());
    Ok((last, calls, (!hangs).then(|| status.code().unwrap_or(-1))))
}
