//! One run, from the command line to the exit status.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use link::{Output, ToGuest};

use crate::cli::{MachineOptions, RunOptions};
use crate::prepare::{kernel_image, prepare};
use crate::session::{self, Ending, Event, Link, Streams};
use crate::terminal::Terminal;
use crate::vm::{self, Vm};
use crate::{signals, status, symbols};

/// How much of the kernels' log is shown when they fail.
const LOG_TAIL: usize = 30;

/// How a kernel begins its report of a panic (`platform::panic`), and how long such a report may be.
const PANIC_MARK: &str = "PANIC kernel";
const PANIC_LINES: usize = 80;
/// How what `--audit` has found begins (`kernel/src/audit.rs`).
const AUDIT_MARK: &str = "audit:";

/// So many requests to end within [`PATIENCE`] end the machine, should the program not listen.
const INSISTING: usize = 3;
const PATIENCE: Duration = Duration::from_secs(3);

pub fn program(options: RunOptions) -> Result<u8> {
    execute(&options.machine, options.program, Terminal::of_caller())
}

pub fn shell(options: MachineOptions) -> Result<u8> {
    let argv = ["busybox", "sh"].map(OsString::from).to_vec();
    execute(&options, argv, Terminal::of_caller())
}

fn execute(options: &MachineOptions, argv: Vec<OsString>, terminal: Terminal) -> Result<u8> {
    let started = Instant::now();
    let (config, mut machine) = prepare(options, argv, &terminal)?;
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
    let (mut vm, stream) = Vm::start(&machine, files)?;
    let link = session::start(stream, Streams::of_caller(terminal.output())?, &sender)?;
    config.iter().for_each(|part| link.send(part));

    let raw = terminal.raw();
    let deadline = options.timeout.map(|seconds| started + Duration::from_secs_f64(seconds));
    let mut stats = String::new();
    let outcome = supervise(&events, &link, &terminal, deadline, &mut stats);
    vm.end();
    drop(raw);
    eprint!("{stats}");
    Ok(report(outcome, options, &machine.log, &vm))
}

/// How a run ended, the caller's part included.
enum Outcome {
    Machine(Ending),
    TimedOut,
    /// The caller asked it to end, by this signal, before the program ran or when it did not listen.
    Broken(u8),
}

/// Follows the events until the machine has ended and all its output is written.
fn supervise(
    events: &Receiver<Event>,
    link: &Link,
    terminal: &Terminal,
    deadline: Option<Instant>,
    stats: &mut String,
) -> Outcome {
    let mut ready = false;
    let mut ending = None;
    let mut undrained = Output::ALL.len();
    let mut requests: Vec<(u8, Instant)> = Vec::new();
    loop {
        let wait = deadline.map_or(Duration::MAX, |deadline| deadline.saturating_duration_since(Instant::now()));
        let event = match events.recv_timeout(wait) {
            Ok(event) => event,
            Err(RecvTimeoutError::Timeout) => return Outcome::TimedOut,
            Err(RecvTimeoutError::Disconnected) => {
                unreachable!("the signal thread keeps the channel")
            }
        };
        match event {
            Event::Ready => ready = true,
            Event::Stats(text) => stats.push_str(&text),
            Event::End(how) => ending = Some(how),
            Event::Drained(_) => undrained -= 1,
            Event::Signal(signal) if signals::is_resize(signal) => {
                if let Some(size) = terminal.size() {
                    link.send(&ToGuest::Resize { rows: size.rows, cols: size.cols });
                }
            }
            Event::Signal(signal) => {
                if signals::asks_to_end(signal) {
                    requests.retain(|(earlier, at)| *earlier == signal && at.elapsed() < PATIENCE);
                    requests.push((signal, Instant::now()));
                    if !ready || ending.is_some() || requests.len() == INSISTING {
                        return Outcome::Broken(signal);
                    }
                }
                link.send(&ToGuest::Signal(signal));
            }
        }
        if let Some(how) = ending.take_if(|_| undrained == 0) {
            return Outcome::Machine(how);
        }
    }
}

/// Says on stderr what went wrong, if anything did, and gives the exit status.
fn report(outcome: Outcome, options: &MachineOptions, log: &Path, vm: &Vm) -> u8 {
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
            match vm.complaints() {
                complaints if complaints.is_empty() => eprintln!("cob: {why}"),
                complaints => eprintln!("cob: {why}: {complaints}"),
            }
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
        Some(kernel) if lines.iter().any(|line| line.contains(PANIC_MARK)) => {
            symbols::Frames::of(kernel).chains(&lines)
        }
        _ => lines,
    };
    let shown = excerpt(&lines);
    let what = if shown[0].contains(PANIC_MARK) {
        "kernel panic; the kernels' log from there"
    } else {
        "the end of the kernels' log"
    };
    let hint = if options.log.is_some() { "" } else { " (--log FILE keeps all of it)" };
    eprintln!("cob: {what}{hint}:");
    let names = kernel.map(|kernel| symbols::name(&kernel, shown)).unwrap_or_default();
    for line in shown {
        match symbols::addresses(line).next().and_then(|address| names.get(address)) {
            Some(name) => eprintln!("  {line}  {name}"),
            None => eprintln!("  {line}"),
        }
    }
}

/// A later panic is often only the consequence of the first.
fn excerpt<'a, 'b>(lines: &'a [&'b str]) -> &'a [&'b str] {
    match lines.iter().position(|line| line.contains(PANIC_MARK)) {
        Some(first) => &lines[first..lines.len().min(first + PANIC_LINES)],
        None => &lines[lines.len().saturating_sub(LOG_TAIL)..],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the events through and gives how it ended, with the statistics.
    fn ended(events: Vec<Event>) -> (Outcome, String) {
        let (ours, _theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let (sender, receiver) = channel();
        events.into_iter().for_each(|event| sender.send(event).unwrap());
        let mut stats = String::new();
        let link = Link::over(ours);
        let terminal = Terminal::of_caller();
        (supervise(&receiver, &link, &terminal, Some(Instant::now()), &mut stats), stats)
    }

    #[test]
    fn the_end_waits_for_all_output() {
        let exit = Ending::Exit(link::ExitStatus::Exited(5));
        let mut events = vec![Event::Ready, Event::Stats("a".into()), Event::Stats("b".into()), Event::End(exit)];
        events.extend(Output::ALL.map(Event::Drained));
        let (outcome, stats) = ended(events.clone());
        assert!(matches!(outcome, Outcome::Machine(Ending::Exit(link::ExitStatus::Exited(5)))));
        assert_eq!(stats, "ab");
        events.pop();
        assert!(matches!(ended(events).0, Outcome::TimedOut));
    }

    #[test]
    fn signals_go_to_the_program_until_the_caller_insists() {
        // Before the program runs there is nobody else to ask.
        assert!(matches!(ended(vec![Event::Signal(2)]).0, Outcome::Broken(2)));
        let twice = vec![Event::Ready, Event::Signal(2), Event::Signal(2)];
        assert!(matches!(ended(twice.clone()).0, Outcome::TimedOut));
        let thrice = [twice, vec![Event::Signal(2)]].concat();
        assert!(matches!(ended(thrice).0, Outcome::Broken(2)));
        let others = vec![Event::Ready, Event::Signal(10), Event::Signal(10), Event::Signal(10)];
        assert!(matches!(ended(others).0, Outcome::TimedOut));
    }

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
