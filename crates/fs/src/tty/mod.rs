//! Terminals: the line discipline, pseudoterminals, the console.
//!
//! A [`Tty`] is a terminal; programs open it as a [`TtyFile`]. What is on its other side is a
//! [`Master`] that a program holds, or a [`TtyDriver`] (the console). Sessions and process groups belong
//! to crate `process`, which is asked through [`JobControl`].
//!
//! Terminals live on the kernel that has the devices; all controlling terminals of the machine are
//! therefore known in one place, [`Terminals`], and /dev/tty is opened there.

pub mod devpts;
mod discipline;
mod echo;
mod file;
mod ioctl;
mod master;
mod read;
mod sessions;
mod termios;

pub use discipline::{Discipline, Effects};
pub use file::TtyFile;
pub use master::Master;
pub use sessions::Terminals;
pub(crate) use sessions::PTS_MAJOR;
pub use termios::Termios;

use crate::{anonymous::Identity, event::Timers, Caller};
use abi::signal::Signal;
use alloc::{collections::VecDeque, format, sync::Arc, vec::Vec};
use machine::{
    errno::Result,
    sync::{Lock, WaitQueue},
    BoxFuture, Errno, Pid,
};

/// The side of a terminal that is not a program.
pub trait TtyDriver: Send + Sync {
    /// Takes as much of the output as it has room for; calls [`Tty::drain`] when it has room again. Must
    /// not call the terminal from within.
    fn write(&self, bytes: &[u8]) -> usize;
}

/// What became of a background process that touched its terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Background {
    /// It ignores or blocks the signal.
    Ignored,
    /// Its process group is orphaned: nobody could continue it.
    Orphaned,
    /// The signal is on its way to its process group.
    Signalled,
}

/// What terminals need from crate `process`.
pub trait JobControl: Send + Sync {
    fn signal_group(&self, group: Pid, signal: Signal);
    fn signal_process(&self, process: Pid, signal: Signal);
    /// The caller is in the background: sends SIGTTIN or SIGTTOU to its group if that makes sense.
    fn background<'a>(&'a self, caller: &'a Caller, signal: Signal) -> BoxFuture<'a, Background>;
    /// Session of a process group; None if there is no such group.
    fn session_of(&self, group: Pid) -> BoxFuture<'_, Option<Pid>>;
}

/// Output that may wait for the other side; input that may wait for the discipline.
const QUEUE_SIZE: usize = 16 * 1024;
/// Output that a flush leaves alone: Linux has moved so much to the reader's side already.
const DELIVERED: usize = 4096;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WindowSize {
    pub rows: u16,
    pub columns: u16,
    pub x_pixels: u16,
    pub y_pixels: u16,
}

pub(crate) struct State {
    line: Discipline,
    /// From programs and echo to the other side.
    out: VecDeque<u8>,
    /// From the other side, not yet taken by the discipline.
    pending: VecDeque<u8>,
    window: WindowSize,
    session: Option<Pid>,
    foreground: Option<Pid>,
    /// Files open on the terminal; and whether there ever was one.
    opens: usize,
    was_open: bool,
    /// Hang-ups so far: a file opened before the last one is dead.
    hangups: u64,
    exclusive: bool,
    /// Pseudoterminals: not yet unlocked; the master is closed; packet mode and what it has to tell.
    locked: bool,
    master_closed: bool,
    packet: bool,
    packet_status: u8,
}

pub struct Tty {
    state: Lock<State>,
    /// For files on the terminal: more input, more room, hang-up.
    changes: WaitQueue,
    /// For the master: more output, more room, slave closed.
    master_changes: WaitQueue,
    driver: Option<Arc<dyn TtyDriver>>,
    jobs: Arc<dyn JobControl>,
    timers: Arc<dyn Timers>,
    /// Number of a pseudoterminal.
    number: Option<u32>,
    inode: Identity,
}

impl Tty {
    fn new(
        number: Option<u32>,
        termios: Termios,
        driver: Option<Arc<dyn TtyDriver>>,
        terminals: &Terminals,
        inode: Identity,
    ) -> Arc<Self> {
        Arc::new(Tty {
            state: Lock::new(State {
                line: Discipline::new(termios),
                out: VecDeque::new(),
                pending: VecDeque::new(),
                window: WindowSize::default(),
                session: None,
                foreground: None,
                opens: 0,
                was_open: false,
                hangups: 0,
                exclusive: false,
                locked: number.is_some(),
                master_closed: false,
                packet: false,
                packet_status: 0,
            }),
            changes: WaitQueue::new(),
            master_changes: WaitQueue::new(),
            driver,
            jobs: terminals.jobs.clone(),
            timers: terminals.timers.clone(),
            number,
            inode,
        })
    }

    pub fn path(&self) -> Vec<u8> {
        match self.number {
            Some(number) => format!("/dev/pts/{number}").into_bytes(),
            None => b"/dev/console".to_vec(),
        }
    }

    /// Bytes from the keyboard.
    pub fn input(&self, bytes: &[u8]) {
        self.state.lock().pending.extend(bytes);
        self.pump();
    }

    /// Whether it edits lines and makes signals of keys: what BSD asks before Ctrl-T is anything but a byte.
    pub fn edits_lines(&self) -> bool {
        let state = self.state.lock();
        state.line.canonical() && state.line.makes_signals()
    }

    /// Bytes that [`Tty::input`] can take before it should be left alone.
    pub fn input_room(&self) -> usize {
        QUEUE_SIZE.saturating_sub(self.state.lock().pending.len())
    }

    /// Waits until there is room for input; gives how much.
    pub async fn wait_for_input_room(&self) -> usize {
        self.master_changes.wait_until(|| Some(self.input_room()).filter(|room| *room > 0)).await
    }

    /// Gives pending input to the discipline, as far as it has room, and lets its effects happen.
    fn pump(&self) {
        let mut effects = Effects::default();
        let foreground = {
            let mut state = self.state.lock();
            while state.line.has_room() {
                let Some(byte) = state.pending.pop_front() else { break };
                let stopped = state.line.is_stopped();
                let State { line, out, .. } = &mut *state;
                line.receive(byte, out, &mut effects);
                if stopped != state.line.is_stopped() {
                    state.packet_flow(stopped);
                }
            }
            let State { line, out, .. } = &mut *state;
            line.end_batch(out);
            if effects.flushed {
                state.flush_output();
            }
            state.foreground
        };
        self.signal(foreground, &effects);
        self.changed();
    }

    fn signal(&self, foreground: Option<Pid>, effects: &Effects) {
        for &signal in &effects.signals {
            if let Some(group) = foreground {
                self.jobs.signal_group(group, signal);
            }
        }
    }

    /// Something may have become possible on either side.
    fn changed(&self) {
        self.drain();
        self.changes.wake_all();
        self.master_changes.wake_all();
    }

    /// Hands output to the driver.
    pub fn drain(&self) {
        let Some(driver) = &self.driver else { return };
        let mut moved = false;
        {
            let mut state = self.state.lock();
            loop {
                let count = match state.out.as_slices().0 {
                    [] => break,
                    bytes => driver.write(bytes),
                };
                if count == 0 {
                    break;
                }
                state.out.drain(..count);
                moved = true;
            }
        }
        if moved {
            self.changes.wake_all();
        }
    }

    /// A program writes. EAGAIN: no room.
    fn try_write(&self, hangups: u64, bytes: &[u8]) -> Result<usize> {
        let count = {
            let mut state = self.state.lock();
            if state.hangups != hangups || state.master_closed {
                return Err(Errno::EIO);
            }
            let State { line, out, .. } = &mut *state;
            match line.is_stopped() {
                true => 0,
                false => line.print(bytes, out, QUEUE_SIZE),
            }
        };
        if count == 0 && !bytes.is_empty() {
            return Err(Errno::EAGAIN);
        }
        self.drain();
        self.master_changes.wake_all();
        Ok(count)
    }

    /// The other side is gone for good, or the session has ended: what is open now is dead, the leader
    /// gets SIGHUP.
    pub fn hang_up(&self) {
        let session = {
            let mut state = self.state.lock();
            state.hangups += 1;
            state.line.clear_input();
            state.pending.clear();
            state.foreground = None;
            state.session.take()
        };
        if let Some(leader) = session {
            self.jobs.signal_process(leader, Signal::HUP);
            self.jobs.signal_process(leader, Signal::CONT);
        }
        self.changed();
    }

    /// Job control (man 4 tty_ioctl): may `caller` use the terminal now? `signal` is TTIN to read, TTOU to
    /// write or change.
    async fn check_foreground(&self, caller: &Caller, signal: Signal) -> Result<()> {
        {
            let state = self.state.lock();
            if state.session != Some(caller.session) || state.foreground.is_none_or(|group| group == caller.group) {
                return Ok(());
            }
        }
        match self.jobs.background(caller, signal).await {
            Background::Ignored if signal == Signal::TTOU => Ok(()),
            Background::Ignored | Background::Orphaned => Err(Errno::EIO),
            Background::Signalled => Err(Errno::RESTART),
        }
    }

    fn is_controlling(&self, caller: &Caller) -> bool {
        self.state.lock().session == Some(caller.session)
    }
}

impl State {
    fn flush_output(&mut self) {
        self.out.truncate(DELIVERED);
        self.tell_master(linux_raw_sys::general::TIOCPKT_FLUSHREAD | linux_raw_sys::general::TIOCPKT_FLUSHWRITE);
    }

    /// Output was stopped or started: packet mode tells the master.
    fn packet_flow(&mut self, was_stopped: bool) {
        use linux_raw_sys::general::{TIOCPKT_START, TIOCPKT_STOP};
        let (set, clear) = if was_stopped { (TIOCPKT_START, TIOCPKT_STOP) } else { (TIOCPKT_STOP, TIOCPKT_START) };
        self.packet_status &= !(clear as u8);
        self.tell_master(set);
    }

    fn tell_master(&mut self, status: u32) {
        if self.packet {
            self.packet_status |= status as u8;
        }
    }
}

#[cfg(test)]
mod tests;
