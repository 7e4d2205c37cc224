//! The serial port, the log's way out: polled, so that it works from any context, a panic included.

use crate::arch::uart::{has_room, write_byte, FIFO};
use crate::lines::{Line, Lines};
use crate::{board, clock};
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use machine::{sync::Lock, KernelId};

fn put(byte: u8) {
    // A missing or stuck UART must not stop the kernel.
    let _ = (0..10_000).find(|_| has_room());
    write_byte(byte);
}

/// Writes a program's bytes, as a terminal would show them.
pub fn write(bytes: &[u8]) {
    let kernel = crate::kernel();
    let lock = &board::header().console.0;
    let give_up = clock::now() + PATIENCE_NS;
    let held = board::acquire(lock, kernel, || clock::now() < give_up);
    for &byte in bytes {
        if byte == b'\n' {
            put(b'\r');
        }
        put(byte);
    }
    if held {
        board::release(lock, kernel);
    }
}

struct Wire;

impl Write for Wire {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            if byte == b'\n' {
                put(b'\r');
            }
            put(byte);
        }
        Ok(())
    }
}

/// How long a line waits for the console of another kernel.
const PATIENCE_NS: u64 = 100_000_000;

/// The port, as the CPUs of this kernel take turns at it: true in the middle of a line of [`LINES`]. Then the console of the board
/// is this kernel's, too.
static PORT: Lock<bool> = Lock::new(false);
static LINES: Lock<Lines> = Lock::new(Lines::new());
static PENDING: AtomicBool = AtomicBool::new(false);

/// Time and kernel, before each line.
struct Prefix(KernelId, u64);

impl fmt::Display for Prefix {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        let us = self.1 / 1000;
        write!(out, "[{:5}.{:06}] [k{}] ", us / 1_000_000, us % 1_000_000, self.0 .0)
    }
}

/// Prints one line, prefixed with time and kernel, whole: no other kernel's characters in between
/// (unless one holds the console for too long).
pub fn line(kernel: KernelId, text: fmt::Arguments) {
    let give_up = clock::now() + PATIENCE_NS;
    // The CPUs of one kernel first: the board knows only kernels.
    let mut port = PORT.try_lock();
    while port.is_none() && clock::now() < give_up {
        port = PORT.try_lock();
    }
    if let Some(in_line) = &mut port {
        finish_line(in_line);
    }
    let lock = &board::header().console.0;
    let held = board::acquire(lock, kernel, || clock::now() < give_up);
    let _ = writeln!(Wire, "{}{text}", Prefix(kernel, clock::now()));
    if held {
        board::release(lock, kernel);
    }
}

/// A line that a program has caused: it is one of so many in a second (lines.rs), and waits for [`drain`].
pub fn line_of_program(kernel: KernelId, text: fmt::Arguments) {
    let now = clock::now();
    let mut lines = LINES.lock();
    PENDING.store(true, Relaxed);
    if !lines.is_too_many(now) {
        lines.put(&Line::new(format_args!("{}{text}", Prefix(kernel, now))));
    }
}

/// Gives the port what waits for it, as much as it takes without waiting. True if something is left.
pub fn drain() -> bool {
    if !PENDING.load(Relaxed) {
        return false;
    }
    let (kernel, now) = (crate::kernel(), clock::now());
    LINES.lock().tell_suppressed(now, format_args!("{}", Prefix(kernel, now)));
    let Some(mut in_line) = PORT.try_lock() else { return true };
    while has_room() {
        for _ in 0..FIFO {
            if !*in_line {
                let lines = LINES.lock();
                if lines.is_empty() {
                    // What was left out is told after the next heartbeat.
                    PENDING.store(lines.has_suppressed(), Relaxed);
                    return false;
                }
                *in_line = board::acquire(&board::header().console.0, kernel, || false);
            }
            if !*in_line {
                return true;
            }
            put_next(&mut in_line);
        }
    }
    true
}

/// Everything that waits, however long that takes: the machine, or this kernel, ends.
pub fn flush() {
    let Some(mut in_line) = PORT.try_lock() else { return };
    match LINES.try_lock() {
        // Nothing will be left out any more.
        Some(mut lines) => lines.tell_suppressed(u64::MAX, format_args!("{}", Prefix(crate::kernel(), clock::now()))),
        None => return, // this CPU may have been interrupted with it
    }
    finish_line(&mut in_line);
    while let Some(byte) = LINES.lock().pop() {
        put(byte);
    }
}

/// Writes the next byte of a line that waits. At the end of the line the console is free.
fn put_next(in_line: &mut bool) {
    let byte = LINES.lock().pop();
    if let Some(byte) = byte {
        write_byte(byte);
    }
    if matches!(byte, None | Some(b'\n')) {
        *in_line = false;
        board::release(&board::header().console.0, crate::kernel());
    }
}

fn finish_line(in_line: &mut bool) {
    while *in_line {
        let _ = (0..10_000).find(|_| has_room());
        put_next(in_line);
    }
}

/// Prints before there is a board (only the primary, alone).
pub fn early(text: fmt::Arguments) {
    let _ = writeln!(Wire, "[    0.000000] [k0] {text}");
}
