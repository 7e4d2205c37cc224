//! One run, from the command line to the exit status.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::ExitStatus;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::cli::{MachineOptions, RunOptions};
use crate::prepare::{kernel_image, prepare};
use crate::qmp::Qmp;
use crate::session::{self, Ending, Streams};
use crate::supervise::{Outcome, Supervisor};
use crate::terminal::Terminal;
use crate::top::Viewers;
use crate::trace::{Collected, Recorder};
use crate::vm::{self, Vm};
use crate::{signals, status, symbols};

/// How much of the kernels' log is shown when they fail.
const LOG_TAIL: usize = 30;

/// How a kernel begins its report of a panic (`platform::panic`), and how long such a report may be.
const PANIC_MARK: &str = "PANIC kernel";
const PANIC_LINES: usize = 80;
/// How what `--audit` has found begins (`kernel/src/audit.rs`).
const AUDIT_MARK: &str = "audit:";

/// How a line begins in which a CPU says where it is, and one with the reason why there is no machine (`platform::panic`).
pub const WHERE_MARK: &str = "WHERE kernel";
const REFUSED_MARK: &str = "REFUSED: ";

pub fn program(options: RunOptions) -> Result<u8> {
    execute(&options.machine, options.program, Terminal::of_caller(), None).map(|(status, _)| status)
}

pub fn shell(options: MachineOptions) -> Result<u8> {
    let argv = ["busybox", "sh"].map(OsString::from).to_vec();
    execute(&options, argv, Terminal::of_caller(), None).map(|(status, _)| status)
}

/// One run. `recorder` records the machine's trace; what it has collected comes with the status.
pub fn execute(
    options: &MachineOptions,
    argv: Vec<OsString>,
    terminal: Terminal,
    recorder: Option<Recorder>,
) -> Result<(u8, Option<Collected>)> {
    let started = Instant::now();
    let (config, mut machine) = prepare(options, argv, &terminal)?;
    if let Some(recorder) = &recorder {
        recorder.prepare(&mut machine)?;
    }
    let config = config.to_messages().context("the arguments and the environment are too long")?;
    let files = vm::private_directory()?;
    machine.log = match &options.log {
        Some(log) => std::path::absolute(log)?,
        None => files.path().join("kernel.log"),
    };
    // Told here, in words, rather than by QEMU.
    fs::File::create(&machine.log).with_context(|| machine.log.display().to_string())?;

    let (sender, events) = channel();
    signals::take(sender.clone());
    let viewers = Viewers::listen(files.path(), &sender);
    let (mut vm, stream, monitor) = Vm::start(&machine, files)?;
    let qmp = Qmp::start(monitor, sender.clone())?;
    let collecting = recorder.map(|recorder| recorder.start(&machine, &qmp)).transpose()?;
    let link = session::start(stream, Streams::of_caller(terminal.output())?, &sender)?;
    config.iter().for_each(|part| link.send(part));

    let raw = terminal.raw();
    let deadline = options.timeout.map(|seconds| started + Duration::from_secs_f64(seconds));
    let mut supervisor = Supervisor::new(&link, &terminal, qmp, &machine.log, deadline, &viewers);
    let outcome = supervisor.run(&events);
    viewers.end();
    let stats = supervisor.stats();
    // Why it is gone is in the status of a QEMU that has ended by itself.
    let ended = if matches!(outcome, Outcome::Machine(Ending::Lost(_))) { vm.wait_a_moment() } else { None };
    vm.end();
    drop(raw);
    eprint!("{stats}");
    let collected = collecting.map(|(collecting, sampler)| {
        drop(sampler);
        collecting.end()
    });
    Ok((report(outcome, options, &machine.log, &vm, ended), collected))
}

/// Says on stderr what went wrong, if anything did, and gives the exit status.
fn report(outcome: Outcome, options: &MachineOptions, log: &Path, vm: &Vm, ended: Option<ExitStatus>) -> u8 {
    match outcome {
        Outcome::Machine(Ending::Exit(exit)) => exit.shell_status(),
        Outcome::Machine(Ending::CannotRun { errno, what }) => {
            eprintln!("cob: {what}: {}", nix::errno::Errno::from_raw(i32::from(errno)).desc());
            status::USAGE
        }
        Outcome::Machine(Ending::Panic(text)) => {
            let what = if text.starts_with(AUDIT_MARK) { "" } else { "kernel panic: " };
            eprintln!("cob: {what}{}", text.trim_end());
            show_log(log, options);
            status::PANIC
        }
        Outcome::Machine(Ending::Lost(why)) => {
            if let Some(reason) = refusal(log) {
                eprintln!("cob: {reason}");
                return status::USAGE;
            }
            let ended = ended.map(|status| format!("{why} (QEMU: {status})"));
            complain(&ended.unwrap_or(why), vm);
            show_log(log, options);
            status::PANIC
        }
        Outcome::Stopped(state) => {
            complain(&format!("QEMU has stopped the machine, whose state it calls {state}"), vm);
            show_log(log, options);
            status::PANIC
        }
        Outcome::Stuck(silence) => {
            eprintln!(
                "cob: the machine makes no progress: no sign of life for {} s, though its CPUs execute",
                silence.as_secs()
            );
            show_log(log, options);
            status::PANIC
        }
        Outcome::TimedOut => {
            eprintln!("cob: ended after {} s (--timeout)", options.timeout.unwrap_or_default());
            status::TIMEOUT
        }
        Outcome::Broken(signal) => 128 + signal,
    }
}

/// Says what happened, with what QEMU itself has to say about it.
fn complain(what: &str, vm: &Vm) {
    match vm.complaints() {
        complaints if complaints.is_empty() => eprintln!("cob: {what}"),
        complaints => eprintln!("cob: {what}: {complaints}"),
    }
}

/// Why the primary could not make the machine that it was asked for, if that is how it ended.
fn refusal(log: &Path) -> Option<String> {
    let text = fs::read(log).ok()?;
    let text = String::from_utf8_lossy(&text);
    let (_, reason) = text.lines().find_map(|line| line.split_once(REFUSED_MARK))?;
    Some(reason.trim().to_string())
}

/// Shows what matters of the log: from the first panic on, or its end.
fn show_log(log: &Path, options: &MachineOptions) {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    if lines.is_empty() {
        return eprintln!("cob: the kernels' log is empty");
    }
    let kernel = kernel_image().ok();
    let lines = match &kernel {
        Some(kernel) if lines.iter().any(|line| line.contains(PANIC_MARK) || line.contains(WHERE_MARK)) => {
            symbols::Frames::of(kernel).chains(&lines)
        }
        _ => lines,
    };
    let shown = excerpt(&lines);
    let what = if shown[0].contains(WHERE_MARK) {
        "where its CPUs are"
    } else if shown[0].contains(PANIC_MARK) {
        "kernel panic; the kernels' log from there"
    } else {
        "the end of the kernels' log"
    };
    let hint = if options.log.is_some() { "" } else { " (--log FILE keeps all of it)" };
    eprintln!("cob: {what}{hint}:");
    for line in symbols::with_names(kernel.as_deref(), shown) {
        eprintln!("  {line}");
    }
}

/// A later panic is often only the consequence of the first.
fn excerpt<'a, 'b>(lines: &'a [&'b str]) -> &'a [&'b str] {
    let first = |mark: &str| lines.iter().position(|line| line.contains(mark));
    match first(PANIC_MARK).or_else(|| first(WHERE_MARK)) {
        Some(first) => &lines[first..lines.len().min(first + PANIC_LINES)],
        None => &lines[lines.len().saturating_sub(LOG_TAIL)..],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_log_the_first_panic_matters() {
        let calm: Vec<String> = (0..100).map(|n| format!("line {n}")).collect();
        let mut lines: Vec<&str> = calm.iter().map(String::as_str).collect();
        assert_eq!(excerpt(&lines), &lines[70..]);
        lines[10] = "[2] PANIC kernel 2 cpu 2: oops";
        lines[50] = "[0] PANIC kernel 0 cpu 0: a consequence";
        assert_eq!(excerpt(&lines), &lines[10..90]);
        assert_eq!(excerpt(&["one"]), ["one"]);
    }
}
