//! What the terminal shows: output processing (OPOST), and the echo of what is typed and erased.

use super::discipline::Discipline;
use alloc::collections::VecDeque;
use linux_raw_sys::general as raw;

/// Where the cursor is, as far as the discipline knows.
#[derive(Clone, Copy, Default)]
struct Cursor {
    column: usize,
    /// Where the line that is being typed began: what precedes it is a prompt.
    line_column: usize,
}

/// The cursor, and echo on its way. Like Linux, which shows the echo of a batch of keys after the batch:
/// a signal key or STOP in the middle still catches what was typed before it.
#[derive(Default)]
pub struct Printer {
    cursor: Cursor,
    /// Inside a \.../ of ECHOPRT.
    pub(super) erasing: bool,
    echo: VecDeque<u8>,
    /// The cursor without that echo.
    shown: Cursor,
}

/// Echo beyond this is dropped, like that of a Linux whose echo buffer is full.
const ECHO_LIMIT: usize = 4096;

impl Printer {
    /// The echo goes out.
    pub fn release(&mut self, out: &mut VecDeque<u8>) {
        out.append(&mut self.echo);
        self.shown = self.cursor;
    }

    /// The echo never happened.
    pub fn discard(&mut self) {
        self.echo.clear();
        self.cursor = self.shown;
    }
}

fn is_control(byte: u8) -> bool {
    byte < 0x20 || byte == 0x7f
}

/// Letters as Linux's ctype knows them: Latin-1, whatever the terminal thinks it shows.
fn is_upper(byte: u8) -> bool {
    byte.is_ascii_uppercase() || matches!(byte, 0xc0..=0xd6 | 0xd8..=0xde)
}

fn is_lower(byte: u8) -> bool {
    byte.is_ascii_lowercase() || matches!(byte, 0xdf..=0xf6 | 0xf8..=0xff)
}

fn is_word(byte: u8) -> bool {
    byte == b'_' || byte.is_ascii_digit() || is_upper(byte) || is_lower(byte)
}

pub(super) fn to_lower(byte: u8) -> u8 {
    if is_upper(byte) {
        byte + 0x20
    } else {
        byte
    }
}

fn to_upper(byte: u8) -> u8 {
    if is_lower(byte) {
        byte - 0x20
    } else {
        byte
    }
}

impl Discipline {
    fn prints(&self, flag: u32) -> bool {
        self.termios.output & flag != 0
    }

    /// A byte inside a UTF-8 character, which takes no column of its own.
    fn is_continuation(&self, byte: u8) -> bool {
        self.has_input(raw::IUTF8) && byte & 0xc0 == 0x80
    }

    /// Bytes that a program writes; stops when `out` holds `limit`. Says how many were taken.
    pub fn print(&mut self, bytes: &[u8], out: &mut VecDeque<u8>, limit: usize) -> usize {
        self.printer.release(out);
        if !self.prints(raw::OPOST) {
            let count = bytes.len().min(limit.saturating_sub(out.len()));
            out.extend(&bytes[..count]);
            return count;
        }
        for (index, &byte) in bytes.iter().enumerate() {
            if out.len() >= limit {
                return index;
            }
            self.process(byte, out);
        }
        bytes.len()
    }

    /// do_output_char.
    fn process(&mut self, byte: u8, out: &mut VecDeque<u8>) {
        let mut byte = byte;
        match byte {
            b'\n' => {
                if self.prints(raw::ONLRET) {
                    self.printer.cursor.column = 0;
                }
                if self.prints(raw::ONLCR) {
                    self.printer.cursor.column = 0;
                    self.printer.cursor.line_column = 0;
                    out.push_back(b'\r');
                } else {
                    self.printer.cursor.line_column = self.printer.cursor.column;
                }
            }
            b'\r' => {
                if self.prints(raw::ONOCR) && self.printer.cursor.column == 0 {
                    return;
                }
                if self.prints(raw::OCRNL) {
                    byte = b'\n';
                }
                if !self.prints(raw::OCRNL) || self.prints(raw::ONLRET) {
                    self.printer.cursor.column = 0;
                    self.printer.cursor.line_column = 0;
                }
            }
            b'\t' => {
                let spaces = 8 - self.printer.cursor.column % 8;
                self.printer.cursor.column += spaces;
                if self.termios.output & raw::TABDLY == raw::XTABS {
                    out.extend(core::iter::repeat_n(b' ', spaces));
                    return;
                }
            }
            8 => self.printer.cursor.column = self.printer.cursor.column.saturating_sub(1),
            _ if is_control(byte) => {}
            _ => {
                if self.prints(raw::OLCUC) {
                    byte = to_upper(byte);
                }
                if !self.is_continuation(byte) {
                    self.printer.cursor.column += 1;
                }
            }
        }
        out.push_back(byte);
    }

    fn show(&mut self, write: impl FnOnce(&mut Self, &mut VecDeque<u8>)) {
        let mut echo = core::mem::take(&mut self.printer.echo);
        if echo.len() < ECHO_LIMIT {
            write(self, &mut echo);
        }
        self.printer.echo = echo;
    }

    pub(super) fn echo_raw(&mut self, byte: u8) {
        self.show(|line, out| match byte {
            // Linux's own mark in the echo buffer, shown without output processing.
            0xff => {
                out.push_back(byte);
                line.printer.cursor.column += 1;
            }
            _ if line.prints(raw::OPOST) => line.process(byte, out),
            _ => out.push_back(byte),
        });
    }

    /// A typed character; control characters as ^X.
    pub(super) fn echo(&mut self, byte: u8) {
        if !(self.local(raw::ECHOCTL) && is_control(byte) && byte != b'\t') {
            return self.echo_raw(byte);
        }
        self.show(|line, out| {
            out.extend([b'^', byte ^ 0o100]);
            line.printer.cursor.column += 2;
        });
    }

    /// The line that is typed begins here.
    pub(super) fn mark_column(&mut self) {
        if self.unfinished() == 0 {
            self.printer.cursor.line_column = self.printer.cursor.column;
        }
    }

    pub(super) fn finish_erasing(&mut self) {
        if core::mem::take(&mut self.printer.erasing) {
            self.echo_raw(b'/');
        }
    }

    /// ERASE, WERASE and KILL.
    pub(super) fn erase(&mut self, key: u8) {
        if self.unfinished() == 0 {
            return;
        }
        let (one, word) = (self.termios.is(key, raw::VERASE), self.termios.is(key, raw::VWERASE));
        let word = word && !one;
        if !one && !word {
            let keep = self.input.len() - self.unfinished();
            if !self.local(raw::ECHO) {
                return self.input.truncate(keep);
            }
            if !(self.local(raw::ECHOK) && self.local(raw::ECHOKE) && self.local(raw::ECHOE)) {
                self.input.truncate(keep);
                self.finish_erasing();
                self.echo(self.termios.char(raw::VKILL));
                if self.local(raw::ECHOK) {
                    self.echo_raw(b'\n');
                }
                return;
            }
        }
        let mut in_word = false;
        while self.unfinished() > 0 {
            let Some(length) = self.last_character() else { break };
            let at = self.input.len() - length;
            let first = self.input[at].byte;
            if word {
                if is_word(first) {
                    in_word = true;
                } else if in_word {
                    break;
                }
            }
            let character: alloc::vec::Vec<u8> = self.input.drain(at..).map(|cell| cell.byte).collect();
            if self.local(raw::ECHO) {
                self.show_erased(&character, one);
            }
            if one {
                break;
            }
        }
        if self.unfinished() == 0 && self.local(raw::ECHO) {
            self.finish_erasing();
        }
    }

    /// Bytes of the last character typed; None if the line begins in the middle of one.
    fn last_character(&self) -> Option<usize> {
        let typed = self.input.iter().rev().take(self.unfinished());
        typed.enumerate().find(|(_, cell)| !self.is_continuation(cell.byte)).map(|(index, _)| index + 1)
    }

    fn show_erased(&mut self, character: &[u8], one: bool) {
        let first = character[0];
        if self.local(raw::ECHOPRT) {
            if !self.printer.erasing {
                self.echo_raw(b'\\');
                self.printer.erasing = true;
            }
            self.echo(first);
            for &byte in &character[1..] {
                self.echo_raw(byte);
                self.printer.cursor.column = self.printer.cursor.column.saturating_sub(1);
            }
        } else if one && !self.local(raw::ECHOE) {
            self.echo(self.termios.char(raw::VERASE));
        } else if first == b'\t' {
            self.show_erased_tab();
        } else {
            let columns = match is_control(first) {
                true if self.local(raw::ECHOCTL) => 2,
                true => 0,
                false => 1,
            };
            for byte in [8, b' ', 8].into_iter().cycle().take(3 * columns) {
                self.echo_raw(byte);
            }
        }
    }

    /// Moves back over an erased tab: as far as the text before it, back to the tab before or the start
    /// of the line, says.
    fn show_erased_tab(&mut self) {
        let mut columns = 0;
        let mut after_tab = false;
        for cell in self.input.iter().rev().take(self.unfinished()) {
            match cell.byte {
                b'\t' => {
                    after_tab = true;
                    break;
                }
                byte if is_control(byte) => columns += 2 * usize::from(self.local(raw::ECHOCTL)),
                byte => columns += usize::from(!self.is_continuation(byte)),
            }
        }
        if !after_tab {
            columns += self.printer.cursor.line_column;
        }
        let back = 8 - columns % 8;
        self.show(|line, out| {
            out.extend(core::iter::repeat_n(8, back));
            line.printer.cursor.column = line.printer.cursor.column.saturating_sub(back);
        });
    }
}
