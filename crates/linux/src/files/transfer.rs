//! The kernel's buffer between a file and user memory: small transfers use none of the heap.

use alloc::{vec, vec::Vec};

/// Up to this many bytes go through the call's own frame.
const SMALL: usize = 256;
/// Longer transfers go in steps of at most this.
pub(crate) const STEP: usize = 256 * 1024;

pub(crate) struct Buffer {
    small: [u8; SMALL],
    large: Vec<u8>,
}

impl Buffer {
    /// For steps of a transfer of `total` bytes.
    pub fn for_bytes(total: usize) -> Self {
        let large = if total > SMALL { vec![0; total.min(STEP)] } else { Vec::new() };
        Buffer { small: [0; SMALL], large }
    }

    /// Room for a step that has `left` bytes to go.
    pub fn step(&mut self, left: usize) -> &mut [u8] {
        let room: &mut [u8] = if self.large.is_empty() { &mut self.small } else { &mut self.large };
        let len = left.min(room.len());
        &mut room[..len]
    }
}
