//! Follows a machine until it has ended: signals of the caller, questions of a person, and whether it makes progress.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use link::{Output, ToGuest};

use crate::prepare::kernel_image;
use crate::qmp::Qmp;
use crate::run::WHERE_MARK;
use crate::session::{Ending, Event, Link};
use crate::terminal::Terminal;
use crate::top::Viewers;
use crate::watch::{Advice, Watch};
use crate::{signals, symbols};

/// So many requests to end within [`PATIENCE`] end the machine, should the program not listen.
const INSISTING: usize = 3;
const PATIENCE: Duration = Duration::from_secs(3);
/// Who asks what the machine does, and hears neither an answer nor a beat for so long, is told where its CPUs are.
const ANSWERS_WITHIN: Duration = Duration::from_secs(3);
/// How long the CPUs have to say it.
const SAYING: Duration = Duration::from_secs(1);

/// How a run ended, the caller's part included.
pub enum Outcome {
    Machine(Ending),
    TimedOut,
    /// The caller asked it to end, by this signal, before the program ran or when it did not listen.
    Broken(u8),
    /// By QEMU itself, which calls its state that.
    Stopped(String),
    /// It made no progress for so long.
    Stuck(Duration),
}

/// What a person waits for who has asked what the machine does.
enum Asked {
    /// An answer, or a beat, until then.
    Machine(Instant),
    /// What the CPUs say until then, in the log from this byte on.
    Cpus(Instant, usize),
}

pub struct Supervisor<'a> {
    link: &'a Link,
    terminal: &'a Terminal,
    qmp: Qmp,
    log: &'a Path,
    deadline: Option<Instant>,
    stats: String,
    is_ready: bool,
    ending: Option<Ending>,
    /// Outputs of which not everything is written yet.
    undrained: usize,
    requests: Vec<(u8, Instant)>,
    watch: Watch,
    last_beat: Instant,
    asked: Option<Asked>,
    viewers: &'a Viewers,
    /// A viewer has asked since the machine was; the machine has not answered yet.
    viewer_waits: bool,
    activity_asked: bool,
}

impl<'a> Supervisor<'a> {
    pub fn new(
        link: &'a Link,
        terminal: &'a Terminal,
        qmp: Qmp,
        log: &'a Path,
        deadline: Option<Instant>,
        viewers: &'a Viewers,
    ) -> Self {
        let now = Instant::now();
        Supervisor {
            link,
            terminal,
            qmp,
            log,
            deadline,
            stats: String::new(),
            is_ready: false,
            ending: None,
            undrained: Output::ALL.len(),
            requests: Vec::new(),
            watch: Watch::new(now),
            last_beat: now,
            asked: None,
            viewers,
            viewer_waits: false,
            activity_asked: false,
        }
    }

    /// The text for `--stats`.
    pub fn stats(self) -> String {
        self.stats
    }

    /// Follows the events until the machine has ended and all its output is written.
    pub fn run(&mut self, events: &Receiver<Event>) -> Outcome {
        loop {
            let outcome = match events.recv_timeout(self.pause(Instant::now())) {
                Ok(event) => self.take(event),
                Err(RecvTimeoutError::Timeout) => self.tick(Instant::now()),
                Err(RecvTimeoutError::Disconnected) => unreachable!("the signal thread keeps the channel"),
            };
            if let Some(outcome) = outcome {
                return outcome;
            }
            if let Some(how) = self.ending.take_if(|_| self.undrained == 0) {
                return Outcome::Machine(how);
            }
        }
    }

    fn pause(&self, now: Instant) -> Duration {
        let asked = self.asked.as_ref().map(|asked| match asked {
            Asked::Machine(until) | Asked::Cpus(until, _) => *until,
        });
        let until = [self.deadline, asked].into_iter().flatten().map(|until| until.saturating_duration_since(now));
        until.fold(self.watch.until_look(now), Duration::min)
    }

    /// Some time has passed.
    fn tick(&mut self, now: Instant) -> Option<Outcome> {
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            return Some(Outcome::TimedOut);
        }
        match self.asked {
            Some(Asked::Machine(until)) if until <= now => {
                let seconds = self.last_beat.elapsed().as_secs();
                self.say(&format!("cob: the machine has not answered for {seconds} s; its CPUs are\n"));
                self.asked = Some(Asked::Cpus(now + SAYING, log_bytes(self.log).len()));
                self.qmp.inject_nmi();
            }
            Some(Asked::Cpus(until, from)) if until <= now => {
                self.asked = None;
                self.say_where(from);
            }
            _ => {}
        }
        // While the output of a machine that has ended is written, nothing beats.
        if self.watch.until_look(now).is_zero() && self.ending.is_none() {
            let answers = |cpu| String::from_utf8_lossy(&log_bytes(self.log)).matches(&answer(cpu)).count();
            match self.watch.look(now, answers) {
                Advice::Nothing => {}
                Advice::Ask => self.qmp.inject_nmi(),
                Advice::Stuck => return Some(Outcome::Stuck(self.last_beat.elapsed())),
            }
        } else if self.ending.is_some() {
            self.watch = Watch::new(now);
        }
        None
    }

    fn take(&mut self, event: Event) -> Option<Outcome> {
        match event {
            Event::Ready => {
                self.is_ready = true;
                self.ask_activity();
            }
            Event::Stats(text) => self.stats.push_str(&text),
            Event::End(how) => self.ending = Some(how),
            Event::Drained(_) => self.undrained -= 1,
            Event::Beat(next) => {
                self.watch.beat(next);
                self.last_beat = Instant::now();
                // An answer will come, or the key was none.
                self.asked.take_if(|asked| matches!(asked, Asked::Machine(_)));
            }
            Event::Report(text) => {
                self.asked = None;
                self.say(&text);
            }
            Event::Viewer => {
                self.viewer_waits = true;
                self.ask_activity();
            }
            Event::Activity(text) => {
                (self.activity_asked, self.viewer_waits) = (false, false);
                self.viewers.show(text);
            }
            Event::StatusKey => self.expect_answer(),
            Event::Stopped(state) => return Some(Outcome::Stopped(state)),
            Event::Signal(signal) => return self.signal(signal),
        }
        None
    }

    fn signal(&mut self, signal: u8) -> Option<Outcome> {
        if signals::is_resize(signal) {
            if let Some(size) = self.terminal.size() {
                self.link.send(&ToGuest::Resize { rows: size.rows, cols: size.cols });
            }
            return None;
        }
        if signals::asks_for_report(signal) {
            match self.is_ready {
                true => self.link.send(&ToGuest::Inspect),
                false => self.say("cob: the machine is starting\n"),
            }
            self.expect_answer();
            return None;
        }
        if signals::asks_to_end(signal) {
            self.requests.retain(|(earlier, at)| *earlier == signal && at.elapsed() < PATIENCE);
            self.requests.push((signal, Instant::now()));
            if !self.is_ready || self.ending.is_some() || self.requests.len() == INSISTING {
                return Some(Outcome::Broken(signal));
            }
        }
        self.link.send(&ToGuest::Signal(signal));
        None
    }

    /// Asks the machine for its viewers: one question at a time, whose answer is for all of them.
    fn ask_activity(&mut self) {
        if self.is_ready && self.viewer_waits && !self.activity_asked {
            self.activity_asked = true;
            self.link.send(&ToGuest::Activity);
        }
    }

    fn expect_answer(&mut self) {
        if self.is_ready && self.asked.is_none() {
            self.asked = Some(Asked::Machine(Instant::now() + ANSWERS_WITHIN));
        }
    }

    /// Shows what the CPUs have said since, with names.
    fn say_where(&self, from: usize) {
        let bytes = log_bytes(self.log);
        let text = String::from_utf8_lossy(bytes.get(from..).unwrap_or_default()).into_owned();
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        let kernel = kernel_image().ok();
        let frames = kernel.as_deref().map(symbols::Frames::of);
        let lines = frames.map_or(lines.clone(), |frames| frames.chains(&lines));
        let is_answer = |line: &&&str| line.contains(WHERE_MARK) || symbols::addresses(line).next().is_some();
        let lines: Vec<&str> = lines.iter().filter(is_answer).copied().collect();
        if lines.is_empty() {
            self.say("cob: silent\n");
        }
        for line in symbols::with_names(kernel.as_deref(), &lines) {
            self.say(&format!("  {line}\n"));
        }
    }

    /// To the person, whose terminal may be raw.
    fn say(&self, text: &str) {
        let text = if self.terminal.descriptors[0] { text.replace('\n', "\r\n") } else { text.to_string() };
        let _ = std::io::stderr().write_all(text.as_bytes());
    }
}

/// How the answer of a CPU of the primary begins (`platform::panic::say_where`).
fn answer(cpu: u32) -> String {
    format!("{WHERE_MARK} 0 cpu {cpu}:")
}

fn log_bytes(log: &Path) -> Vec<u8> {
    fs::read(log).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc::channel;

    /// Runs the events through and gives how it ended, with the statistics.
    fn ended(events: Vec<Event>) -> (Outcome, String) {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let (monitor, _qemu) = UnixStream::pair().unwrap();
        let (sender, receiver) = channel();
        let qmp = Qmp::start(monitor, sender.clone()).unwrap();
        events.into_iter().for_each(|event| sender.send(event).unwrap());
        let link = Link::over(ours);
        let terminal = Terminal::of_caller();
        let (log, viewers) = (Path::new("/nonexistent"), Viewers::default());
        let mut supervisor = Supervisor::new(&link, &terminal, qmp, log, Some(Instant::now()), &viewers);
        (supervisor.run(&receiver), supervisor.stats())
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
        let others = vec![Event::Ready, Event::Signal(12), Event::Signal(12), Event::Signal(12)];
        assert!(matches!(ended(others).0, Outcome::TimedOut));
    }

    /// What the command does about a machine that was asked and says nothing.
    #[test]
    fn cpus_are_asked_when_the_machine_does_not_answer() {
        use std::io::{BufRead, BufReader};
        let (ours, guest) = UnixStream::pair().unwrap();
        let (monitor, qemu) = UnixStream::pair().unwrap();
        let (sender, _events) = channel();
        let (link, terminal) = (Link::over(ours), Terminal::of_caller());
        let qmp = Qmp::start(monitor, sender).unwrap();
        let mut commands = BufReader::new(qemu).lines().map(Result::unwrap);
        assert!(commands.next().unwrap().contains("qmp_capabilities"));
        let viewers = Viewers::default();
        let mut supervisor = Supervisor::new(&link, &terminal, qmp, Path::new("/nonexistent"), None, &viewers);
        let usr1 = nix::sys::signal::Signal::SIGUSR1 as i32 as u8;

        // It does not go to the program.
        supervisor.take(Event::Ready);
        supervisor.take(Event::Signal(usr1));
        let mut sent = [0; 64];
        let length = std::io::Read::read(&mut &guest, &mut sent).unwrap();
        let message = link::Decoder::new().next::<ToGuest>(&mut &sent[..length]).unwrap();
        assert_eq!(message, Some(ToGuest::Inspect));
        // A beat is answer enough for a key that was none.
        supervisor.take(Event::Beat(1));
        assert!(supervisor.asked.is_none());
        supervisor.take(Event::StatusKey);
        supervisor.tick(Instant::now());
        assert!(matches!(supervisor.asked, Some(Asked::Machine(_))));
        supervisor.tick(Instant::now() + ANSWERS_WITHIN);
        assert!(commands.next().unwrap().contains("inject-nmi"));
        assert!(matches!(supervisor.asked, Some(Asked::Cpus(..))));
        supervisor.tick(Instant::now() + ANSWERS_WITHIN + SAYING);
        assert!(supervisor.asked.is_none());
    }
    #[test]
    fn viewers_share_one_question() {
        let (ours, guest) = UnixStream::pair().unwrap();
        let (monitor, _qemu) = UnixStream::pair().unwrap();
        let (link, terminal, viewers) = (Link::over(ours), Terminal::of_caller(), Viewers::default());
        let qmp = Qmp::start(monitor, channel().0).unwrap();
        let mut supervisor = Supervisor::new(&link, &terminal, qmp, Path::new("/nonexistent"), None, &viewers);
        guest.set_nonblocking(true).unwrap();
        let questions = || {
            let mut sent = [0; 64];
            let length = std::io::Read::read(&mut &guest, &mut sent).unwrap_or(0);
            assert!(sent[..length].chunks(link::HEADER).all(|frame| frame == [0x09, 0, 0, 0, 0]));
            length / link::HEADER
        };
        // A machine that is starting is asked when it can answer.
        supervisor.take(Event::Viewer);
        assert_eq!(questions(), 0);
        supervisor.take(Event::Ready);
        supervisor.take(Event::Viewer);
        supervisor.take(Event::Viewer);
        assert_eq!(questions(), 1);
        supervisor.take(Event::Activity("all".to_string()));
        assert_eq!(questions(), 0);
        supervisor.take(Event::Viewer);
        assert_eq!(questions(), 1);
    }
}
