//! COM1.

use x86_64::instructions::port::Port;

const COM1: u16 = 0x3f8;
const LINE_STATUS: u16 = COM1 + 5;
const ROOM: u8 = 1 << 5;

/// Bytes that the port takes at once when it has room.
pub const FIFO: usize = 16;

/// 115200 baud, 8N1, FIFOs on. Once, by the primary.
pub fn init() {
    for (offset, value) in [(1, 0x00), (3, 0x80), (0, 0x01), (1, 0x00), (3, 0x03), (2, 0xc7), (4, 0x03)] {
        out(COM1 + offset, value);
    }
}

/// Whether the port takes [`FIFO`] bytes.
pub fn has_room() -> bool {
    // SAFETY: reading the line status has no side effect that matters.
    unsafe { Port::<u8>::new(LINE_STATUS).read() & ROOM != 0 }
}

pub fn write_byte(byte: u8) {
    out(COM1, byte);
}

fn out(port: u16, value: u8) {
    // SAFETY: the UART's ports; writing them touches no memory.
    unsafe { Port::<u8>::new(port).write(value) }
}
