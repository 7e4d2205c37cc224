//! The kernel's buffer between a file and user memory: small transfers use none of the heap.

use alloc::{boxed::Box, vec};
use machine::PAGE_SIZE;
use process::System;

/// Up to this many bytes go through the call's own frame.
const SMALL: usize = 256;
/// Longer transfers go in steps of at most this.
pub(crate) const STEP: usize = 256 * 1024;

pub(crate) struct Buffer<'a> {
    system: &'a System,
    small: [u8; SMALL],
    large: Option<Box<[u8]>>,
}

impl<'a> Buffer<'a> {
    /// For steps of a transfer of `total` bytes. What is in it at first is not for programs.
    pub fn for_bytes(system: &'a System, total: usize) -> Self {
        let large = match total {
            0..=SMALL => None,
            _ if total <= PAGE_SIZE => Some(system.take_page_buffer()),
            _ => Some(vec![0; total.min(STEP)].into()),
        };
        Buffer { system, small: [0; SMALL], large }
    }

    /// Room for a step that has `left` bytes to go.
    pub fn step(&mut self, left: usize) -> &mut [u8] {
        let room = self.large.as_deref_mut().unwrap_or(&mut self.small);
        let len = left.min(room.len());
        &mut room[..len]
    }
}

impl Drop for Buffer<'_> {
    fn drop(&mut self) {
        if let Some(buffer) = self.large.take().filter(|buffer| buffer.len() == PAGE_SIZE) {
            self.system.give_page_buffer(buffer);
        }
    }
}
