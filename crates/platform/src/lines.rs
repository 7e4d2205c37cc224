//! Lines that programs make a kernel write to its log (a system call that is missing, a process that is killed): how many, and how they wait for
//! the port. Pure; tested on the host.
//!
//! A program may cause such a line with each system call, and the port may be slow. So such lines are counted, what is more than
//! [`PER_SECOND`] is left out and told as a number, and those that are left wait here for a moment in which a CPU has nothing better to do
//! (`serial::drain`): who causes a line never waits for the port.

use core::fmt;

/// Lines of one kernel in a second of its clock.
pub const PER_SECOND: u32 = 100;
/// Longer lines end there.
const LONGEST: usize = 240;
const BYTES: usize = 16 << 10;
const SECOND_NS: u64 = 1_000_000_000;

/// A line, cut if it is long. Control characters, which a program's name may have, would make it look like several: they become `?`.
pub struct Line {
    bytes: [u8; LONGEST],
    length: usize,
}

impl Line {
    pub fn new(text: fmt::Arguments) -> Line {
        let mut line = Line { bytes: [0; LONGEST], length: 0 };
        // It takes everything.
        let _ = fmt::Write::write_fmt(&mut line, text);
        line
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for character in text.chars() {
            let shown = if character.is_control() { '?' } else { character };
            if self.length + shown.len_utf8() <= LONGEST {
                self.length += shown.encode_utf8(&mut self.bytes[self.length..]).len();
            }
        }
        Ok(())
    }
}

/// What waits for the port, and what was left out.
pub struct Lines {
    ring: [u8; BYTES],
    start: usize,
    length: usize,
    second: u64,
    in_second: u32,
    suppressed: u64,
}

impl Default for Lines {
    fn default() -> Self {
        Lines::new()
    }
}

impl Lines {
    pub const fn new() -> Lines {
        Lines { ring: [0; BYTES], start: 0, length: 0, second: 0, in_second: 0, suppressed: 0 }
    }

    /// Whether a line at this time is one too many; it is then counted.
    pub fn is_too_many(&mut self, now_ns: u64) -> bool {
        if self.second != now_ns / SECOND_NS {
            (self.second, self.in_second) = (now_ns / SECOND_NS, 0);
        }
        let too_many = self.in_second >= PER_SECOND;
        match too_many {
            true => self.suppressed += 1,
            false => self.in_second += 1,
        }
        too_many
    }

    /// Puts a line behind the others, with its end. If there is no room it counts as left out.
    pub fn put(&mut self, line: &Line) {
        self.suppressed += u64::from(!self.try_put(line));
    }

    fn try_put(&mut self, line: &Line) -> bool {
        let bytes = line.as_bytes();
        let fits = self.length + bytes.len() + 2 <= BYTES;
        for &byte in bytes.iter().chain(b"\r\n").filter(|_| fits) {
            self.ring[(self.start + self.length) % BYTES] = byte;
            self.length += 1;
        }
        fits
    }

    /// Puts a line that tells how many were left out in the seconds before this time, if any were. Not within the second in which they
    /// were: more may follow.
    pub fn tell_suppressed(&mut self, now_ns: u64, prefix: fmt::Arguments) {
        if self.suppressed > 0 && self.second != now_ns / SECOND_NS {
            let told = Line::new(format_args!("{prefix}{} lines suppressed", self.suppressed));
            if self.try_put(&told) {
                self.suppressed = 0;
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    pub fn has_suppressed(&self) -> bool {
        self.suppressed > 0
    }

    pub fn pop(&mut self) -> Option<u8> {
        if self.length == 0 {
            return None;
        }
        let byte = self.ring[self.start];
        self.start = (self.start + 1) % BYTES;
        self.length -= 1;
        Some(byte)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{string::String, vec::Vec};

    fn written(lines: &mut Lines) -> String {
        let bytes: Vec<u8> = core::iter::from_fn(|| lines.pop()).collect();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn what_is_too_much_is_counted_and_told_a_second_later() {
        let mut lines = Lines::new();
        let now = 7 * SECOND_NS + 5;
        let kept = (0..1000).filter(|_| !lines.is_too_many(now)).count();
        assert_eq!(kept, PER_SECOND as usize);
        lines.tell_suppressed(now + 1, format_args!("k: "));
        assert!(lines.is_empty() && lines.has_suppressed());
        lines.tell_suppressed(now + SECOND_NS, format_args!("k: "));
        assert_eq!(written(&mut lines), std::format!("k: {} lines suppressed\r\n", 1000 - PER_SECOND));
        assert!(!lines.has_suppressed() && !lines.is_too_many(now + SECOND_NS));
    }

    #[test]
    fn lines_come_out_as_they_went_in_and_never_more_than_there_is_room_for() {
        let mut lines = Lines::new();
        for round in 0..1000 {
            lines.put(&Line::new(format_args!("line {round}")));
            assert_eq!(written(&mut lines), std::format!("line {round}\r\n"));
        }
        let long = Line::new(format_args!("{}", "ü".repeat(500)));
        assert_eq!(long.as_bytes().len(), LONGEST);
        (0..1000).for_each(|_| lines.put(&long));
        let text = written(&mut lines);
        assert!(text.len() <= BYTES && text.len() > BYTES - LONGEST - 2 && text.ends_with("\r\n"));
        assert!(lines.has_suppressed());
    }

    #[test]
    fn a_name_cannot_forge_a_line() {
        assert_eq!(Line::new(format_args!("a{}b", "\n\u{1b}[0m\r")).as_bytes(), b"a??[0m?b");
    }
}
