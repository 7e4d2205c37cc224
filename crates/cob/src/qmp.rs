//! QEMU's own line of commands and events (QMP; QEMU's docs/interop/qmp-spec): how the command hears that QEMU has stopped the machine, and
//! interrupts its CPUs.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::sync::mpsc::Sender;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{bail, Result};
use serde::Deserialize;
use serde_json::Value;

use crate::session::Event;

/// States of a machine that runs, or that somebody has paused through QEMU's monitor and will let go on.
const WELL: [&str; 5] = ["running", "paused", "debug", "suspended", "shutdown"];

/// How long QEMU may take for an answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// The sending side.
pub struct Qmp {
    stream: UnixStream,
    /// Commands that were sent, less those that QEMU has answered, by whichever sender.
    unanswered: Arc<AtomicI64>,
}

/// What is of interest in what QEMU says: an event, or the answer to `query-status`.
#[derive(Debug, Deserialize)]
struct Said {
    event: Option<String>,
    #[serde(rename = "return")]
    answer: Option<Answer>,
    error: Option<serde::de::IgnoredAny>,
}

impl Said {
    fn is_answer(&self) -> bool {
        self.answer.is_some() || self.error.is_some()
    }
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Answer {
    Status { status: String },
    Other(serde::de::IgnoredAny),
}

impl Qmp {
    /// Begins to listen: [`Event::Stopped`] comes when QEMU itself stops the machine.
    pub fn start(stream: UnixStream, events: Sender<Event>) -> io::Result<Qmp> {
        let mut qmp = Qmp { stream: stream.try_clone()?, unanswered: Arc::default() };
        let mut asker = qmp.another()?;
        qmp.command("qmp_capabilities");
        thread::spawn(move || {
            for line in BufReader::new(stream).lines() {
                let Ok(line) = line else { return };
                let said = said(&line);
                if said.as_ref().is_some_and(Said::is_answer) {
                    asker.unanswered.fetch_sub(1, Relaxed);
                }
                match said {
                    Some(Said { event: Some(event), .. }) if event == "STOP" => asker.command("query-status"),
                    Some(Said { answer: Some(Answer::Status { status }), .. }) if !WELL.contains(&status.as_str()) => {
                        if events.send(Event::Stopped(status)).is_err() {
                            return;
                        }
                    }
                    _ => {}
                }
            }
        });
        Ok(qmp)
    }

    /// Another sender to the same QEMU.
    pub fn another(&self) -> io::Result<Qmp> {
        Ok(Qmp { stream: self.stream.try_clone()?, unanswered: self.unanswered.clone() })
    }

    /// Commands that QEMU has not answered yet.
    pub fn unanswered(&self) -> i64 {
        self.unanswered.load(Relaxed)
    }

    /// Interrupts all CPUs of the machine, also where they take no interrupts.
    pub fn inject_nmi(&mut self) {
        self.command("inject-nmi");
    }

    /// An error means that QEMU is gone; the link tells that.
    fn command(&mut self, name: &str) {
        self.unanswered.fetch_add(1, Relaxed);
        let _ = self.stream.write_all(format!("{{\"execute\": \"{name}\"}}\n").as_bytes());
    }
}

/// A client of QMP for whom nothing else happens on the line: it asks and waits for the answer. Events pass by.
pub struct Questions {
    stream: BufReader<UnixStream>,
    is_ready: bool,
}

impl Questions {
    pub fn start(stream: UnixStream) -> io::Result<Questions> {
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Questions { stream: BufReader::new(stream), is_ready: false })
    }

    /// The answer to a command without arguments.
    pub fn ask(&mut self, command: &str) -> Result<Value> {
        if !std::mem::replace(&mut self.is_ready, true) {
            self.ask("qmp_capabilities")?;
        }
        writeln!(self.stream.get_mut(), "{{\"execute\": \"{command}\"}}")?;
        loop {
            let mut line = String::new();
            if self.stream.read_line(&mut line)? == 0 {
                bail!("QEMU is gone");
            }
            let mut said: Value = serde_json::from_str(&line)?;
            if let Some(error) = said.get("error") {
                bail!("QEMU: {command}: {error}");
            }
            if let Some(answer) = said.get_mut("return") {
                return Ok(answer.take());
            }
        }
    }
}

fn said(line: &str) -> Option<Said> {
    serde_json::from_str(line).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn a_machine_that_qemu_has_stopped_is_told() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (sender, events) = channel();
        let mut qmp = Qmp::start(ours, sender).unwrap();
        let mut commands = BufReader::new(theirs.try_clone().unwrap()).lines().map(Result::unwrap);
        let mut qemu = theirs;
        let mut say = |line: &str| qemu.write_all(format!("{line}\n").as_bytes()).unwrap();
        say(
            r#"{"QMP": {"version": {"qemu": {"micro": 0, "minor": 2, "major": 7}, "package": ""}, "capabilities": ["oob"]}}"#,
        );
        assert_eq!(commands.next().unwrap(), r#"{"execute": "qmp_capabilities"}"#);
        say(r#"{"return": {}}"#);
        say(r#"{"timestamp": {"seconds": 1, "microseconds": 2}, "event": "STOP"}"#);
        assert_eq!(commands.next().unwrap(), r#"{"execute": "query-status"}"#);
        say(r#"{"return": {"status": "paused", "singlestep": false, "running": false}}"#);
        say(r#"{"timestamp": {"seconds": 1, "microseconds": 2}, "event": "STOP"}"#);
        assert_eq!(commands.next().unwrap(), r#"{"execute": "query-status"}"#);
        say(r#"{"return": {"status": "internal-error", "singlestep": false, "running": false}}"#);
        assert_eq!(events.recv().unwrap(), Event::Stopped("internal-error".to_string()));
        qmp.inject_nmi();
        assert_eq!(commands.next().unwrap(), r#"{"execute": "inject-nmi"}"#);
    }
}
