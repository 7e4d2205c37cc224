//! The link as crate `fs` wants to see it: the three standard streams, and the terminal.
//!
//! Descriptors that are no terminal on the host become `fs::stream::StreamFile`s over [`Stdin`] and [`Sink`]. The others
//! are files on one `fs::tty::Tty` whose driver is a [`Screen`]; [`keyboard`] and [`Screen::run`] are its two tasks.
//! What comes over the link as stdin then belongs to the terminal alone.

use alloc::{sync::Arc, vec};
use core::sync::atomic::{AtomicBool, Ordering};

use fs::stream::{ByteSink, ByteSource};
use fs::tty::{Tty, TtyDriver};
use link::Output;
use machine::errno::Result;
use machine::sync::WaitQueue;
use machine::Errno;

use crate::link::Link;

/// What the terminal takes from the link at a time. A person types less; a paste waits its turn.
const TYPED: usize = 4096;

/// The program's stdin.
pub struct Stdin(pub Arc<Link>);

impl ByteSource for Stdin {
    fn read(&self, buffer: &mut [u8]) -> Result<usize> {
        self.0.try_stdin_read(buffer)
    }

    fn is_ready(&self) -> bool {
        self.0.stdin_ready().map_or(true, |ready| ready.bytes > 0 || ready.end)
    }

    fn changes(&self) -> &WaitQueue {
        self.0.stdin_changes()
    }
}

/// The program's stdout or stderr.
pub struct Sink {
    pub link: Arc<Link>,
    pub output: Output,
}

impl ByteSink for Sink {
    fn write(&self, bytes: &[u8]) -> Result<usize> {
        self.link.try_write(self.output, bytes)
    }

    fn is_ready(&self) -> bool {
        self.link.output_ready(self.output).unwrap_or(true)
    }

    fn changes(&self) -> &WaitQueue {
        self.link.output_changes(self.output)
    }
}

/// What the terminal prints goes to the host's terminal.
///
/// The terminal gives what there is room for and has to be told of more room, by a task that must not be told of
/// it by chance: if it looks for a refused write just before the write is refused, nobody drains. So `waiting` is
/// set *before* each attempt, and the task takes it back only together with the room it waited for. (Both are
/// SeqCst; the window's lock orders attempt and credit.)
pub struct Screen {
    link: Arc<Link>,
    waiting: AtomicBool,
}

impl Screen {
    pub fn new(link: Arc<Link>) -> Arc<Self> {
        Arc::new(Screen { link, waiting: AtomicBool::new(false) })
    }

    /// The task that goes on printing when the host has made room.
    pub async fn run(self: Arc<Self>, tty: Arc<Tty>) {
        loop {
            self.link.output_changes(Output::Tty).wait_until(|| self.room_came()).await;
            tty.drain();
        }
    }

    fn room_came(&self) -> Option<()> {
        let room = self.link.output_ready(Output::Tty) != Ok(false);
        (room && self.waiting.swap(false, Ordering::SeqCst)).then_some(())
    }
}

impl TtyDriver for Screen {
    /// Once the host's terminal is gone, output is taken and forgotten, as a terminal nobody looks at does.
    fn write(&self, bytes: &[u8]) -> usize {
        self.waiting.store(true, Ordering::SeqCst);
        match self.link.try_write(Output::Tty, bytes) {
            Ok(length) => length,
            Err(Errno::EAGAIN) => 0,
            Err(_) => bytes.len(),
        }
    }
}

/// The task that hands what is typed to `tty`, never more than it has room for, and hangs it up at the end.
pub async fn keyboard(link: Arc<Link>, tty: Arc<Tty>) {
    let mut buffer = vec![0; TYPED];
    loop {
        let room = tty.wait_for_input_room().await.min(TYPED);
        match link.stdin_read(&mut buffer[..room]).await {
            Ok(0) | Err(_) => return tty.hang_up(),
            Ok(length) => tty.input(without_status_key(&link, &tty, &mut buffer[..length])),
        }
    }
}

/// Ctrl-T, the status key of BSD's terminals (termios(4): VSTATUS).
const STATUS_KEY: u8 = 0x14;

/// Where a terminal edits lines, Ctrl-T asks what the machine does, and the program does not see it. A program that takes single keys gets
/// it as any other. The host has seen it, too, and interrupts the machine if no answer comes and nothing beats.
fn without_status_key<'a>(link: &Link, tty: &Tty, typed: &'a mut [u8]) -> &'a [u8] {
    if !typed.contains(&STATUS_KEY) || !tty.edits_lines() {
        return typed;
    }
    link.inspect();
    let mut kept = 0;
    for at in 0..typed.len() {
        if typed[at] != STATUS_KEY {
            typed[kept] = typed[at];
            kept += 1;
        }
    }
    &typed[..kept]
}
