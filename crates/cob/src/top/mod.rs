//! `cob top`: on the host, while a machine runs, what `cobctl top` shows inside, as bars.
//!
//! | file | subject |
//! |---|---|
//! | mod.rs | finds the machine, asks it again and again, and shows what it says until somebody has had enough |
//! | viewers.rs | the run's side: a socket for those who look, which must not disturb the run |
//! | sample.rs | what the text of the machine says, and what happened between two of them |
//! | screen.rs | the picture |

mod sample;
mod screen;
mod viewers;

use std::fs;
use std::io::{self, ErrorKind, IsTerminal, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};
use link::{Decoder, Message, ToGuest, ToHost};
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::socket::{getsockopt, sockopt};
use nix::unistd::geteuid;

use crate::cli::TopOptions;
use crate::terminal::{RawMode, Terminal};
use crate::vm;
use sample::{printable, Sample, View};
use screen::{draw, Style};
pub use viewers::Viewers;

/// The first picture on a screen comes after so long, if the interval is longer.
const FIRST: Duration = Duration::from_millis(250);
/// A machine that has not answered for so long is said not to answer. Without a screen that is the end.
const LATE: Duration = Duration::from_secs(3);
const GIVE_UP: Duration = Duration::from_secs(20);
/// How wide and high the picture is where there is no terminal.
const PAGE: (usize, usize) = (110, 40);

const CTRL_C: u8 = 3;

pub fn main(options: TopOptions) -> Result<u8> {
    let machine = choose(running(), options.machine)?;
    // Before anything is drawn: every way out leads through the code that puts the terminal in order.
    let ends = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGWINCH];
    let set: SigSet = ends.into_iter().collect();
    set.thread_block()?;
    let signals = SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
    let terminal = Terminal::of_caller();
    let draws = io::stdout().is_terminal() && !options.once && variable("TERM") != "dumb";
    let screen = draws.then(|| Screen::enter(&terminal));
    let mut looking = Looking::new(machine, &options, screen, Box::new(io::stdout()));
    let end = looking.run(&signals);
    drop(looking);
    match end? {
        End::Enough(status) => Ok(status),
        End::OfMachine if options.once => bail!("the machine has ended before there was anything to show"),
        End::OfMachine => {
            eprintln!("cob: the machine has ended");
            Ok(0)
        }
    }
}

/// A machine of this user that runs.
struct Machine {
    /// The process id of its command.
    pid: i32,
    command: String,
    stream: UnixStream,
}

/// All of them, by process id.
fn running() -> Vec<Machine> {
    let mut all: Vec<Machine> = Vec::new();
    for place in vm::private_places() {
        for entry in fs::read_dir(place).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(vm::PRIVATE_PREFIX) {
                all.extend(connect(&entry.path()));
            }
        }
    }
    all.sort_by_key(|machine| machine.pid);
    all.dedup_by_key(|machine| machine.pid);
    all
}

/// The machine whose private directory this is; None if it is gone, or not this user's: what others put there is not for this terminal.
fn connect(directory: &Path) -> Option<Machine> {
    let about = fs::symlink_metadata(directory).ok()?;
    if !about.is_dir() || about.uid() != geteuid().as_raw() || about.mode() & 0o077 != 0 {
        return None;
    }
    let stream = UnixStream::connect(directory.join(viewers::SOCKET)).ok()?;
    let peer = getsockopt(&stream, sockopt::PeerCredentials).ok()?;
    Some(Machine { pid: peer.pid(), command: command_of(peer.pid()), stream })
}

/// What the user typed, more or less.
fn command_of(pid: i32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let mut words = text.split_terminator('\0');
    let program = words.next().map(|word| word.rsplit('/').next().unwrap_or(word)).unwrap_or_default();
    let words: Vec<&str> = std::iter::once(program).chain(words).collect();
    printable(&words.join(" "))
}

fn choose(mut all: Vec<Machine>, wanted: Option<i32>) -> Result<Machine> {
    if let Some(pid) = wanted {
        let found = all.iter().position(|machine| machine.pid == pid);
        return found.map(|at| all.swap_remove(at)).with_context(|| format!("process {pid} runs no machine of yours"));
    }
    match all.len() {
        0 => bail!("no machine of yours runs (./cob run starts one)"),
        1 => Ok(all.remove(0)),
        _ => {
            let lines: Vec<String> =
                all.iter().map(|machine| format!("\n  {:>7}  {}", machine.pid, machine.command)).collect();
            bail!("several machines run; --machine PID chooses one:{}", lines.concat())
        }
    }
}

/// The terminal as a screen that goes away again.
struct Screen<'a> {
    terminal: &'a Terminal,
    _raw: Option<RawMode>,
}

impl<'a> Screen<'a> {
    fn enter(terminal: &'a Terminal) -> Self {
        let raw = terminal.raw();
        // The alternate screen, without a cursor (xterm's ctlseqs, modes 1049 and 25).
        let _ = io::stdout().write_all(b"\x1b[?1049h\x1b[?25l").and_then(|()| io::stdout().flush());
        Screen { terminal, _raw: raw }
    }

    fn size(&self) -> (usize, usize) {
        let size = self.terminal.size().filter(|size| size.rows > 0 && size.cols > 0);
        size.map_or((80, 24), |size| (usize::from(size.cols), usize::from(size.rows)))
    }
}

impl Drop for Screen<'_> {
    fn drop(&mut self) {
        let _ = io::stdout().write_all(b"\x1b[?25h\x1b[?1049l").and_then(|()| io::stdout().flush());
    }
}

/// Why nobody looks any more.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// With this status.
    Enough(u8),
    OfMachine,
}

struct Looking<'a> {
    machine: Machine,
    screen: Option<Screen<'a>>,
    out: Box<dyn Write>,
    style: Style,
    interval: Duration,
    once: bool,
    decoder: Decoder,
    /// When it was asked what it has not answered yet.
    asked: Option<Instant>,
    /// When to ask next.
    next: Instant,
    last: Option<Sample>,
    view: Option<View>,
    printed: bool,
}

impl<'a> Looking<'a> {
    fn new(machine: Machine, options: &TopOptions, screen: Option<Screen<'a>>, out: Box<dyn Write>) -> Self {
        let style = Style { colour: screen.is_some() && variable("NO_COLOR").is_empty(), blocks: has_blocks() };
        Looking {
            machine,
            screen,
            out,
            style,
            interval: Duration::from_secs_f64(options.interval),
            once: options.once,
            decoder: Decoder::new(),
            asked: None,
            next: Instant::now(),
            last: None,
            view: None,
            printed: false,
        }
    }

    fn run(&mut self, signals: &SignalFd) -> Result<End> {
        let mut keys = self.screen.as_ref().is_some_and(|screen| screen.terminal.descriptors[0]);
        loop {
            let now = Instant::now();
            if self.asked.is_none() && now >= self.next {
                let mut question = Vec::new();
                ToGuest::Activity.encode(&mut question);
                if self.machine.stream.write_all(&question).is_err() {
                    return Ok(End::OfMachine);
                }
                self.asked = Some(now);
            }
            let [signalled, typed, told] = self.wait(signals, keys)?;
            // A resize only has the screen drawn anew, which follows.
            let signal = if signalled { signals.read_signal()? } else { None };
            if let Some(signal) = signal.filter(|signal| signal.ssi_signo != Signal::SIGWINCH as u32) {
                return Ok(End::Enough(128 + signal.ssi_signo as u8));
            }
            if typed {
                let mut typed = [0; 64];
                let length = io::stdin().read(&mut typed).unwrap_or(0);
                keys = length > 0;
                match typed[..length].iter().find(|key| b"qQ\x03".contains(key)) {
                    Some(&CTRL_C) => return Ok(End::Enough(128 + Signal::SIGINT as u8)),
                    Some(_) => return Ok(End::Enough(0)),
                    None => {}
                }
            }
            if told {
                if !self.hear()? {
                    return Ok(End::OfMachine);
                }
            }
            if self.screen.is_none() && self.silence() > GIVE_UP {
                bail!("the machine has not answered for {} s", GIVE_UP.as_secs());
            }
            match self.show() {
                Ok(()) if self.once && self.printed => return Ok(End::Enough(0)),
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(End::Enough(0)),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Waits for signals, keys, the machine, or the time to do something else.
    fn wait(&self, signals: &SignalFd, keys: bool) -> Result<[bool; 3]> {
        let stdin = io::stdin();
        let mut wanted = vec![PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
        wanted.push(PollFd::new(self.machine.stream.as_fd(), PollFlags::POLLIN));
        if keys {
            wanted.push(PollFd::new(stdin.as_fd(), PollFlags::POLLIN));
        }
        let until = match self.asked {
            None => self.next.saturating_duration_since(Instant::now()),
            // To say how long it has not answered.
            Some(_) => Duration::from_secs(1),
        };
        // A millisecond more, for what is cut off.
        let timeout = PollTimeout::try_from(until + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX);
        match poll(&mut wanted, timeout) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready = |at: usize| wanted.get(at).is_some_and(|fd| fd.any().unwrap_or(false));
        Ok([ready(0), ready(2), ready(1)])
    }

    /// Takes in what the machine says. False: it has ended.
    fn hear(&mut self) -> Result<bool> {
        let mut buffer = vec![0; 64 * 1024];
        let length = match self.machine.stream.read(&mut buffer) {
            Ok(length) => length,
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(true),
            Err(_) => 0,
        };
        let mut input = &buffer[..length];
        while let Some(message) = self.decoder.next::<ToHost>(&mut input).context("the machine sends nonsense")? {
            let ToHost::Activity(text) = message else { bail!("the machine sends what nobody has asked for") };
            self.take(&text);
        }
        Ok(length > 0)
    }

    fn take(&mut self, text: &str) {
        let sample = Sample::of(text);
        let asked = self.asked.take().unwrap_or_else(Instant::now);
        let first = self.last.is_none() && self.screen.is_some();
        self.next = asked + if first { self.interval.min(FIRST) } else { self.interval };
        if let Some(last) = &self.last {
            self.view = Some(View::between(last, &sample));
            self.printed = false;
        }
        self.last = Some(sample);
    }

    /// How long an answer has been waited for.
    fn silence(&self) -> Duration {
        self.asked.map_or(Duration::ZERO, |asked| asked.elapsed())
    }

    /// Draws the screen anew, or prints what has not been printed yet.
    fn show(&mut self) -> io::Result<()> {
        let title = format!("{} {}", self.machine.pid, self.machine.command);
        let note = match self.silence() {
            silence if silence > LATE => format!("  no answer for {} s", silence.as_secs()),
            _ => String::new(),
        };
        let out = &mut self.out;
        match (&self.screen, &self.view) {
            (Some(screen), view) => {
                let nothing = View::default();
                let title = format!("(q: quit) {title}");
                let lines = draw(view.as_ref().unwrap_or(&nothing), &title, &note, screen.size(), self.style);
                // From the top; what was there before goes with the end of each line and of the screen.
                let text = format!("\x1b[H{}\x1b[K\x1b[J", lines.join("\x1b[K\r\n"));
                out.write_all(text.as_bytes())?;
            }
            (None, Some(view)) if !self.printed => {
                for line in draw(view, &title, &note, PAGE, self.style) {
                    writeln!(out, "{}", line.trim_end())?;
                }
                if !self.once {
                    writeln!(out)?;
                }
                self.printed = true;
            }
            _ => {}
        }
        out.flush()
    }
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}

/// Whether characters are in UTF-8 here (man 7 locale: the first of these that is set).
fn has_blocks() -> bool {
    let set = ["LC_ALL", "LC_CTYPE", "LANG"].map(variable).into_iter().find(|value| !value.is_empty());
    let set = set.unwrap_or_default().to_ascii_lowercase();
    set.ends_with("utf-8") || set.ends_with("utf8")
}

#[cfg(test)]
mod tests;
