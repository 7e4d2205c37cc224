//! What is being measured, on stderr, for whoever waits: one line that is written over on a terminal, a line each in a file.
//! Nothing in the first two seconds.

use std::cell::Cell;
use std::io::{stderr, IsTerminal, Write};
use std::time::{Duration, Instant};

const QUIET: Duration = Duration::from_secs(2);

pub struct Progress {
    start: Instant,
    terminal: bool,
    shown: Cell<bool>,
}

impl Progress {
    pub fn new() -> Progress {
        Progress { start: Instant::now(), terminal: stderr().is_terminal(), shown: Cell::new(false) }
    }

    pub fn say(&self, what: &str) {
        if self.start.elapsed() < QUIET {
            return;
        }
        let seconds = self.start.elapsed().as_secs();
        self.shown.set(true);
        // Nobody to tell is no reason to stop measuring.
        let _ = match self.terminal {
            true => write!(stderr(), "\r\x1b[K{what} ({seconds} s)"),
            false => writeln!(stderr(), "{what} ({seconds} s)"),
        };
    }
}

/// How much of the work is done, as a bar.
pub fn bar(done: usize, of: usize) -> String {
    let filled = 20 * done / of.max(1);
    format!("[{}{}] {done}/{of}", "#".repeat(filled), ".".repeat(20 - filled))
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.terminal && self.shown.get() {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}
