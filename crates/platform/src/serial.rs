//! COM1, the log's way out: polled, so that it works from any context, a panic included.

use crate::{board, clock};
use core::fmt::{self, Write};
use machine::KernelId;
use x86_64::instructions::port::Port;

const COM1: u16 = 0x3f8;
const LINE_STATUS: u16 = COM1 + 5;
const ROOM: u8 = 1 << 5;

/// 115200 baud, 8N1, FIFOs on. Once, by the primary.
pub fn init() {
    for (offset, value) in [(1, 0x00), (3, 0x80), (0, 0x01), (1, 0x00), (3, 0x03), (2, 0xc7), (4, 0x03)] {
        out(COM1 + offset, value);
    }
}

fn out(port: u16, value: u8) {
    // SAFETY: the UART's ports; writing them touches no memory.
    unsafe { Port::<u8>::new(port).write(value) }
}

fn put(byte: u8) {
    // A missing or stuck UART must not stop the kernel.
    for _ in 0..10_000 {
        // SAFETY: reading the line status has no side effect that matters.
        if unsafe { Port::<u8>::new(LINE_STATUS).read() } & ROOM != 0 {
            break;
        }
    }
    out(COM1, byte);
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

/// Prints one line, prefixed with time and kernel, whole: no other kernel's characters in between
/// (unless one holds the console for too long).
pub fn line(kernel: KernelId, text: fmt::Arguments) {
    static LOCAL: machine::sync::Lock<()> = machine::sync::Lock::new(());
    let give_up = clock::now() + PATIENCE_NS;
    // The CPUs of one kernel first: the board knows only kernels.
    let mut local = LOCAL.try_lock();
    while local.is_none() && clock::now() < give_up {
        local = LOCAL.try_lock();
    }
    let lock = &board::header().console.0;
    let held = board::acquire(lock, kernel, || clock::now() < give_up);
    let now = clock::now() / 1000;
    let _ = writeln!(Wire, "[{:5}.{:06}] [k{}] {}", now / 1_000_000, now % 1_000_000, kernel.0, text);
    if held {
        board::release(lock, kernel);
    }
}

/// Prints before there is a board (only the primary, alone).
pub fn early(text: fmt::Arguments) {
    let _ = writeln!(Wire, "[    0.000000] [k0] {text}");
}
