//! One run, from the command line to the exit status.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{anyhow, bail, Context, Result};
use link::{Config, Output, Rlimit, Root, Share, ToGuest, VERSION};
use nix::sys::resource::{getrlimit, Resource};
use nix::sys::stat::{umask, Mode};

use crate::cli::{MachineOptions, RunOptions};
use crate::session::{self, Ending, Event, Link, Streams};
use crate::terminal::Terminal;
use crate::vm::{self, Machine, Vm};
use crate::{program, signals, status, symbols};

/// How much of the kernels' log is shown when they fail.
const LOG_TAIL: usize = 30;

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
    let config = config
        .to_messages()
        .context("the arguments and the environment are too long")?;
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
    let deadline = options
        .timeout
        .map(|seconds| started + Duration::from_secs_f64(seconds));
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
        let wait = deadline.map_or(Duration::MAX, |deadline| {
            deadline.saturating_duration_since(Instant::now())
        });
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
                    link.send(&ToGuest::Resize {
                        rows: size.rows,
                        cols: size.cols,
                    });
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
            eprintln!(
                "cob: {what}: {}",
                nix::errno::Errno::from_raw(i32::from(errno)).desc()
            );
            status::USAGE
        }
        Outcome::Machine(Ending::Panic(text)) => {
            eprintln!("cob: kernel panic: {}", text.trim_end());
            show_tail(log, options);
            status::PANIC
        }
        Outcome::Machine(Ending::Lost(why)) => {
            match vm.complaints() {
                complaints if complaints.is_empty() => eprintln!("cob: {why}"),
                complaints => eprintln!("cob: {why}: {complaints}"),
            }
            show_tail(log, options);
            status::PANIC
        }
        Outcome::TimedOut => {
            eprintln!(
                "cob: ended after {} s (--timeout)",
                options.timeout.unwrap_or_default()
            );
            status::TIMEOUT
        }
        Outcome::Broken(signal) => 128 + signal,
    }
}

fn show_tail(log: &Path, options: &MachineOptions) {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    if lines.is_empty() {
        return eprintln!("cob: the kernels' log is empty");
    }
    let hint = if options.log.is_some() {
        ""
    } else {
        " (--log FILE keeps all of it)"
    };
    eprintln!("cob: the end of the kernels' log{hint}:");
    let tail = &lines[lines.len().saturating_sub(LOG_TAIL)..];
    let names = kernel_image()
        .map(|kernel| symbols::name(&kernel, tail))
        .unwrap_or_default();
    for line in tail {
        match symbols::addresses(line)
            .next()
            .and_then(|address| names.get(address))
        {
            Some(name) => eprintln!("  {line}  {name}"),
            None => eprintln!("  {line}"),
        }
    }
}

/// The kernel image beside this program, where `./cob` builds it.
pub fn kernel_image() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("COB_KERNEL") {
        return Ok(PathBuf::from(path));
    }
    let this = std::env::current_exe().context("where is this program?")?;
    let target = this
        .ancestors()
        .nth(2)
        .context("this program is not in target/")?;
    Ok(target.join("x86_64-unknown-none/release/kernel"))
}

/// From options to what the machine and the guest need; everything that can be wrong is found here.
fn prepare(
    options: &MachineOptions,
    argv: Vec<OsString>,
    terminal: &Terminal,
) -> Result<(Config, Machine)> {
    let (kernels, cpus) = options.shape().map_err(|complaint| anyhow!(complaint))?;
    let root = options.root.as_deref().map(directory).transpose()?;
    let cwd = working_directory(root.as_deref())?;
    let env = environment(&options.env)?;
    let search = env.iter().find_map(|variable| {
        variable
            .as_bytes()
            .strip_prefix(b"PATH=")
            .map(OsStr::from_bytes)
    });
    let program = program::find(&argv[0], root.as_deref(), search, &cwd)?;

    let mut shares = vec![(
        vm::ROOT_TAG.to_string(),
        root.clone().unwrap_or(PathBuf::from("/")),
        false,
    )];
    for (index, share) in options.share.iter().enumerate() {
        shares.push((format!("share{index}"), directory(share)?, true));
    }
    let kernel = kernel_image()?;
    if !kernel.is_file() {
        bail!("no kernel at {}: ./cob builds it", kernel.display());
    }
    let mounts = shares[1..].iter().map(|(tag, path, _)| Share {
        tag: tag.clone().into(),
        path: bytes(path),
    });
    let config = Config {
        version: VERSION,
        program: bytes(program),
        argv: argv.into_iter().map(OsString::into_vec).collect(),
        env: env.into_iter().map(OsString::into_vec).collect(),
        cwd: bytes(cwd),
        tty: terminal.descriptors,
        winsize: terminal.size(),
        termios: terminal.settings(),
        root: Root::NineP {
            tag: vm::ROOT_TAG.into(),
        },
        shares: mounts.collect(),
        stats: options.stats,
        ..caller()?
    };
    let words = options
        .append
        .as_deref()
        .map(|words| format!(" {words}"))
        .unwrap_or_default();
    let machine = Machine {
        kernel,
        append: format!("cob.kernels={kernels}{words}"),
        initrd: None,
        cpus,
        nodes: options.nodes,
        memory: options.memory,
        accel: options.accel,
        shares,
        log: PathBuf::new(),
    };
    Ok((config, machine))
}

/// What the program inherits from the caller without being asked, and nothing to run.
pub fn caller() -> Result<Config> {
    let mask = umask(Mode::empty());
    umask(mask);
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    Ok(Config {
        version: VERSION,
        program: Vec::new(),
        argv: Vec::new(),
        env: Vec::new(),
        cwd: b"/".to_vec(),
        uid: nix::unistd::getuid().as_raw(),
        gid: nix::unistd::getgid().as_raw(),
        groups: nix::unistd::getgroups()?
            .into_iter()
            .map(|group| group.as_raw())
            .collect(),
        umask: mask.bits(),
        hostname: nix::unistd::gethostname()?.into_vec(),
        tty: [false; 3],
        winsize: None,
        termios: None,
        root: Root::Initramfs,
        shares: Vec::new(),
        stats: false,
        rlimits: limits(),
        unix_ns: now.as_nanos() as u64,
    })
}

fn limits() -> Vec<Rlimit> {
    let resources = [
        Resource::RLIMIT_CPU,
        Resource::RLIMIT_FSIZE,
        Resource::RLIMIT_DATA,
        Resource::RLIMIT_STACK,
        Resource::RLIMIT_CORE,
        Resource::RLIMIT_NPROC,
        Resource::RLIMIT_NOFILE,
        Resource::RLIMIT_MEMLOCK,
        Resource::RLIMIT_AS,
    ];
    let limit = |resource: Resource| {
        let (soft, hard) = getrlimit(resource).ok()?;
        Some(Rlimit {
            resource: resource as u32 as u8,
            soft,
            hard,
        })
    };
    resources.into_iter().filter_map(limit).collect()
}

fn bytes(path: impl Into<PathBuf>) -> Vec<u8> {
    path.into().into_os_string().into_vec()
}

fn directory(path: &Path) -> Result<PathBuf> {
    let full = path
        .canonicalize()
        .with_context(|| path.display().to_string())?;
    if !full.is_dir() {
        bail!("{}: not a directory", path.display());
    }
    Ok(full)
}

/// The current directory; with another root its place in there, or `/`.
fn working_directory(root: Option<&Path>) -> Result<PathBuf> {
    let here = std::env::current_dir().context("the current directory")?;
    let Some(root) = root else { return Ok(here) };
    Ok(match here.strip_prefix(root) {
        Ok(inside) => Path::new("/").join(inside),
        Err(_) => PathBuf::from("/"),
    })
}

/// The caller's variables in their order, changed by `--env K=V`.
fn environment(changes: &[OsString]) -> Result<Vec<OsString>> {
    let join = |name: &OsStr, value: &OsStr| {
        let mut variable = name.to_os_string();
        variable.push("=");
        variable.push(value);
        variable
    };
    let mut env: Vec<OsString> = std::env::vars_os()
        .map(|(name, value)| join(&name, &value))
        .collect();
    for change in changes {
        let name = change
            .as_bytes()
            .split(|byte| *byte == b'=')
            .next()
            .unwrap_or_default();
        if name.is_empty() || name.len() == change.len() {
            bail!("--env {}: expected NAME=VALUE", change.display());
        }
        let prefix = [name, b"="].concat();
        match env
            .iter_mut()
            .find(|variable| variable.as_bytes().starts_with(&prefix))
        {
            Some(variable) => *variable = change.clone(),
            None => env.push(change.clone()),
        }
    }
    Ok(env)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_changed_in_place_or_added() {
        let changes = ["PATH=/only", "COB_NEW=a=b"].map(OsString::from);
        let env = environment(&changes).unwrap();
        let named = |name: &str| {
            env.iter()
                .filter(|v| v.as_bytes().starts_with(name.as_bytes()))
                .count()
        };
        assert!(env.contains(&OsString::from("PATH=/only")));
        assert_eq!((named("PATH="), named("COB_NEW=")), (1, 1));
        assert_eq!(env.last(), Some(&OsString::from("COB_NEW=a=b")));
        for bad in ["", "=x", "NAME"] {
            assert!(environment(&[OsString::from(bad)]).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_working_directory_inside_another_root() {
        let here = std::env::current_dir().unwrap();
        assert_eq!(working_directory(None).unwrap(), here);
        assert_eq!(working_directory(Some(&here)).unwrap(), Path::new("/"));
        let parent = here.parent().unwrap();
        let name = here.file_name().unwrap();
        assert_eq!(
            working_directory(Some(parent)).unwrap(),
            Path::new("/").join(name)
        );
        assert_eq!(
            working_directory(Some(Path::new("/proc"))).unwrap(),
            Path::new("/")
        );
    }

    #[test]
    fn what_the_caller_has_survives_the_link() {
        let config = caller().unwrap();
        assert!(config
            .rlimits
            .iter()
            .any(|limit| limit.resource == 7 && limit.soft > 0));
        assert!(config.unix_ns > 1_600_000_000_000_000_000);
        assert!(config.to_messages().is_some());
    }

    /// Runs the events through and gives how it ended, with the statistics.
    fn ended(events: Vec<Event>) -> (Outcome, String) {
        let (ours, _theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let (sender, receiver) = channel();
        events
            .into_iter()
            .for_each(|event| sender.send(event).unwrap());
        let mut stats = String::new();
        let link = Link::over(ours);
        let terminal = Terminal::of_caller();
        (
            supervise(
                &receiver,
                &link,
                &terminal,
                Some(Instant::now()),
                &mut stats,
            ),
            stats,
        )
    }

    #[test]
    fn the_end_waits_for_all_output() {
        let exit = Ending::Exit(link::ExitStatus::Exited(5));
        let mut events = vec![
            Event::Ready,
            Event::Stats("a".into()),
            Event::Stats("b".into()),
            Event::End(exit),
        ];
        events.extend(Output::ALL.map(Event::Drained));
        let (outcome, stats) = ended(events.clone());
        assert!(matches!(
            outcome,
            Outcome::Machine(Ending::Exit(link::ExitStatus::Exited(5)))
        ));
        assert_eq!(stats, "ab");
        events.pop();
        assert!(matches!(ended(events).0, Outcome::TimedOut));
    }

    #[test]
    fn signals_go_to_the_program_until_the_caller_insists() {
        // Before the program runs there is nobody else to ask.
        assert!(matches!(
            ended(vec![Event::Signal(2)]).0,
            Outcome::Broken(2)
        ));
        let twice = vec![Event::Ready, Event::Signal(2), Event::Signal(2)];
        assert!(matches!(ended(twice.clone()).0, Outcome::TimedOut));
        let thrice = [twice, vec![Event::Signal(2)]].concat();
        assert!(matches!(ended(thrice).0, Outcome::Broken(2)));
        let others = vec![
            Event::Ready,
            Event::Signal(10),
            Event::Signal(10),
            Event::Signal(10),
        ];
        assert!(matches!(ended(others).0, Outcome::TimedOut));
    }
}
