//! The line discipline: what Linux's n_tty does between a terminal and the programs on it.
//!
//! A state machine without locks, clocks or waiting: bytes from the keyboard go in with
//! [`Discipline::receive`]; what programs write goes in with [`Discipline::print`]; what the terminal is
//! to show comes out in `out`; signals are told to the caller. What it does with each byte follows
//! drivers/tty/n_tty.c step by step, because programs (readline, expect) know it by heart.

use super::{
    echo::{to_lower, Printer},
    termios::Termios,
};
use abi::signal::Signal;
use alloc::{collections::VecDeque, vec::Vec};
use linux_raw_sys::general as raw;

/// Bytes of input that can wait to be read; Linux's N_TTY_BUF_SIZE.
pub const INPUT_SIZE: usize = 4096;

/// What stands for an end of file in a line; Linux's __DISABLED_CHAR.
const END_OF_FILE: u8 = 0;

/// A byte of input, and whether a line ends with it.
#[derive(Clone, Copy)]
pub(super) struct Cell {
    pub byte: u8,
    end: bool,
}

/// What a byte did beside the input queue.
#[derive(Default)]
pub struct Effects {
    pub signals: Vec<Signal>,
    /// Input was thrown away because of a signal: output waiting in the driver is to go, too.
    pub flushed: bool,
}

pub struct Discipline {
    pub termios: Termios,
    pub(super) input: VecDeque<Cell>,
    /// How many cells belong to finished lines (canonical mode).
    lines: usize,
    /// The next byte is taken literally.
    literal_next: bool,
    /// A switch to canonical mode ended a line that was none.
    pushed: bool,
    pub(super) printer: Printer,
    /// Output is stopped by the STOP character, or by TCXONC.
    stopped: bool,
    stopped_by_program: bool,
}

impl Discipline {
    pub fn new(termios: Termios) -> Self {
        Discipline {
            termios,
            input: VecDeque::new(),
            lines: 0,
            literal_next: false,
            pushed: false,
            printer: Printer::default(),
            stopped: false,
            stopped_by_program: false,
        }
    }

    pub(super) fn local(&self, flag: u32) -> bool {
        self.termios.local & flag != 0
    }

    pub(super) fn has_input(&self, flag: u32) -> bool {
        self.termios.input & flag != 0
    }

    pub fn canonical(&self) -> bool {
        self.local(raw::ICANON)
    }

    pub fn makes_signals(&self) -> bool {
        self.local(raw::ISIG)
    }

    pub fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// Can [`Discipline::receive`] take another byte? A full queue holds bytes back, except that an
    /// unfinished line must still be finished or erased: then each byte replaces the last.
    pub fn has_room(&self) -> bool {
        let spare = self.input.len() < INPUT_SIZE - 1;
        spare || self.canonical() && self.lines == 0
    }

    /// A byte from the keyboard. [`Discipline::end_batch`] shows the echo, `out` takes what was stopped.
    pub fn receive(&mut self, byte: u8, out: &mut VecDeque<u8>, effects: &mut Effects) {
        if self.input.len() >= INPUT_SIZE {
            self.input.pop_back();
        }
        let mut byte = byte;
        if self.has_input(raw::ISTRIP) {
            byte &= 0x7f;
        }
        if self.has_input(raw::IUCLC) && self.local(raw::IEXTEN) {
            byte = to_lower(byte);
        }
        if self.local(raw::EXTPROC) {
            self.put(byte, false);
        } else if core::mem::take(&mut self.literal_next) {
            self.receive_plain(byte, true);
        } else if !self.receive_flow(byte, out) && !self.receive_signal(byte, out, effects) {
            self.receive_special(byte, out);
        }
    }

    /// The keys that came together are all received: their echo is shown.
    pub fn end_batch(&mut self, out: &mut VecDeque<u8>) {
        if !self.stopped {
            self.printer.release(out);
        }
    }

    /// START and STOP.
    fn receive_flow(&mut self, byte: u8, out: &mut VecDeque<u8>) -> bool {
        if !self.has_input(raw::IXON) {
            return false;
        }
        if self.termios.is(byte, raw::VSTART) {
            self.start(out);
            true
        } else if self.termios.is(byte, raw::VSTOP) {
            self.stopped = true;
            true
        } else {
            false
        }
    }

    /// INTR, QUIT and SUSP.
    fn receive_signal(&mut self, byte: u8, out: &mut VecDeque<u8>, effects: &mut Effects) -> bool {
        if !self.local(raw::ISIG) {
            return false;
        }
        let signals = [(raw::VINTR, Signal::INT), (raw::VQUIT, Signal::QUIT), (raw::VSUSP, Signal::TSTP)];
        let Some((_, signal)) = signals.into_iter().find(|&(index, _)| self.termios.is(byte, index)) else {
            return false;
        };
        if !self.local(raw::NOFLSH) {
            self.printer.discard();
            self.clear_input();
            effects.flushed = true;
        }
        effects.signals.push(signal);
        if self.has_input(raw::IXON) {
            self.start(out);
        }
        if self.local(raw::ECHO) {
            self.echo(byte);
        }
        true
    }

    fn receive_special(&mut self, byte: u8, out: &mut VecDeque<u8>) {
        if self.stopped && self.has_input(raw::IXON) && self.has_input(raw::IXANY) {
            self.start(out);
        }
        let typed = byte;
        let byte = match byte {
            b'\r' if self.has_input(raw::IGNCR) => return,
            b'\r' if self.has_input(raw::ICRNL) => b'\n',
            b'\n' if self.has_input(raw::INLCR) => b'\r',
            byte => byte,
        };
        if self.canonical() && self.receive_editing(byte) {
            return;
        }
        // A newline that is no line end is echoed as ^J, but one that was typed as CR is not.
        self.receive_plain(byte, typed == byte);
    }

    /// The characters of canonical mode that are more than themselves.
    fn receive_editing(&mut self, byte: u8) -> bool {
        let extended = self.local(raw::IEXTEN);
        let termios = &self.termios;
        let is = |index| termios.is(byte, index);
        if is(raw::VERASE) || is(raw::VKILL) || extended && is(raw::VWERASE) {
            self.erase(byte);
        } else if extended && is(raw::VLNEXT) {
            self.literal_next = true;
            if self.local(raw::ECHO) {
                self.finish_erasing();
                if self.local(raw::ECHOCTL) {
                    self.echo_raw(b'^');
                    self.echo_raw(8);
                }
            }
        } else if extended && self.local(raw::ECHO) && is(raw::VREPRINT) {
            self.finish_erasing();
            self.echo(byte);
            self.echo_raw(b'\n');
            let unfinished: Vec<u8> = self.input.iter().skip(self.lines).map(|cell| cell.byte).collect();
            for byte in unfinished {
                self.echo(byte);
            }
        } else if byte == b'\n' {
            if self.local(raw::ECHO) || self.local(raw::ECHONL) {
                self.echo_raw(b'\n');
            }
            self.put(byte, true);
        } else if is(raw::VEOF) {
            self.put(END_OF_FILE, true);
        } else if is(raw::VEOL) || extended && is(raw::VEOL2) {
            if self.local(raw::ECHO) {
                self.mark_column();
                self.echo(byte);
            }
            self.put_marked(byte);
            self.put(byte, true);
        } else {
            return false;
        }
        true
    }

    fn receive_plain(&mut self, byte: u8, literal: bool) {
        if self.local(raw::ECHO) {
            self.finish_erasing();
            if byte == b'\n' && !literal {
                self.echo_raw(b'\n');
            } else {
                self.mark_column();
                self.echo(byte);
            }
        }
        self.put_marked(byte);
        self.put(byte, false);
    }

    /// With PARMRK, 0377 is doubled, so that it differs from the mark of an error.
    fn put_marked(&mut self, byte: u8) {
        if byte == 0xff && self.has_input(raw::PARMRK) {
            self.put(byte, false);
        }
    }

    fn put(&mut self, byte: u8, end: bool) {
        self.input.push_back(Cell { byte, end });
        if end {
            self.lines = self.input.len();
        }
    }

    /// Bytes of the line that is being typed.
    pub(super) fn unfinished(&self) -> usize {
        self.input.len() - self.lines
    }

    pub fn start(&mut self, out: &mut VecDeque<u8>) {
        if !self.stopped_by_program {
            self.stopped = false;
            self.printer.release(out);
        }
    }

    /// TCXONC with TCOOFF and TCOON.
    pub fn stop_by_program(&mut self, stop: bool, out: &mut VecDeque<u8>) {
        self.stopped_by_program = stop;
        self.stopped = stop;
        if !stop {
            self.printer.release(out);
        }
    }

    /// Throws input away (TCFLSH, signals).
    pub fn clear_input(&mut self) {
        self.input.clear();
        self.lines = 0;
        self.literal_next = false;
        self.pushed = false;
        self.printer.erasing = false;
    }

    /// Changes the settings as n_tty_set_termios: what was typed so far stays readable.
    pub fn set(&mut self, termios: Termios, out: &mut VecDeque<u8>) {
        let old = core::mem::replace(&mut self.termios, termios);
        if (old.local ^ self.termios.local) & (raw::ICANON | raw::EXTPROC) != 0 {
            for cell in &mut self.input {
                cell.end = false;
            }
            let last = self.input.back_mut();
            match last {
                Some(last) if self.termios.local & raw::ICANON != 0 => {
                    last.end = true;
                    self.lines = self.input.len();
                    self.pushed = true;
                }
                _ => {
                    self.lines = 0;
                    self.pushed = false;
                }
            }
            self.printer.erasing = false;
            self.literal_next = false;
        }
        if old.input & raw::IXON != 0 && !self.has_input(raw::IXON) {
            self.start(out);
        }
    }

    /// Bytes that can be read without waiting for more, in either mode (an end of file counts as one).
    pub fn available(&self) -> usize {
        if self.canonical() && !self.local(raw::EXTPROC) {
            self.lines
        } else {
            self.input.len()
        }
    }

    /// What FIONREAD tells.
    pub fn readable_bytes(&self) -> usize {
        let cells = self.input.iter().take(self.available());
        cells.filter(|cell| !(self.canonical() && cell.end && cell.byte == END_OF_FILE)).count()
    }

    /// Takes input: in canonical mode up to the end of the line, which must be available.
    pub fn read(&mut self, buf: &mut [u8]) -> usize {
        let by_line = self.canonical() && !self.local(raw::EXTPROC);
        let limit = self.available();
        let mut count = 0;
        for taken in 0..limit {
            // Even if the buffer is full: an end of file right behind it belongs to this read.
            let end_of_file = by_line && self.input.front().is_some_and(|cell| cell.end && cell.byte == END_OF_FILE);
            if count == buf.len() && !(end_of_file && taken > 0 && !self.pushed) {
                break;
            }
            let Some(cell) = self.input.pop_front() else { break };
            self.lines = self.lines.saturating_sub(1);
            if end_of_file && !self.pushed {
                break;
            }
            buf[count] = cell.byte;
            count += 1;
            if by_line && cell.end {
                self.pushed = false;
                break;
            }
        }
        count
    }
}
