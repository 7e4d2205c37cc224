//! The one program of a simulated machine, as the bytes of a static executable: a page of text that names where
//! [`User`](super::user::User) finds itself, and memory for the stacks of threads.

use machine::PAGE_SIZE;

/// Where the program starts.
pub const ENTRY: u64 = 0x40_0100;
/// Its only `syscall` instruction (two bytes).
pub const SYSCALL: u64 = 0x40_0200;
/// Where its signal handler starts.
pub const HANDLER: u64 = 0x40_0300;
/// The restorer, which calls rt_sigreturn.
pub const RESTORER: u64 = 0x40_0400;
/// Stacks of threads other than the first.
const STACKS: u64 = 0x60_0000;
const STACK_SIZE: u64 = 0x8000;
pub const STACK_COUNT: u64 = 256;

/// The top of the stack in slot `index`.
pub fn stack_top(index: u64) -> u64 {
    STACKS + (index % STACK_COUNT + 1) * STACK_SIZE
}

/// One program header: type PT_LOAD.
pub fn segment(flags: u32, at: u64, file_size: u64, memory_size: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(1u32.to_le_bytes());
    bytes.extend(flags.to_le_bytes());
    for word in [0, at, at, file_size, memory_size, PAGE_SIZE as u64] {
        bytes.extend(word.to_le_bytes());
    }
    bytes
}

/// The file.
pub fn image() -> Vec<u8> {
    file(&[segment(5, 0x40_0000, PAGE_SIZE as u64, PAGE_SIZE as u64), segment(6, STACKS, 0, STACK_COUNT * STACK_SIZE)])
}

/// A file of these segments, which all begin with its first page.
pub fn file(segments: &[Vec<u8>]) -> Vec<u8> {
    let mut file = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    file.extend(2u16.to_le_bytes()); // ET_EXEC
    file.extend(62u16.to_le_bytes()); // x86-64
    file.extend(1u32.to_le_bytes());
    for word in [ENTRY, 64, 0] {
        file.extend(word.to_le_bytes());
    }
    file.extend(0u32.to_le_bytes());
    for half in [64u16, 56, segments.len() as u16, 64, 0, 0] {
        file.extend(half.to_le_bytes());
    }
    segments.iter().for_each(|segment| file.extend(segment));
    file.resize(PAGE_SIZE, 0xcc);
    file
}
