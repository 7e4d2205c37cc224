//! Buffers of a page for system calls that copy: to make a fresh one costs as much as to fill it.
//!
//! What is left in one from an earlier call is not for the next: who takes a buffer reads only what it has written.

use crate::System;
use alloc::{boxed::Box, vec, vec::Vec};
use machine::{sync::Lock, PAGE_SIZE};

/// Kept for each CPU; calls that wait hold theirs meanwhile.
const KEPT: usize = 2;

#[repr(align(64))]
#[derive(Default)]
struct Stack(Lock<Vec<Box<[u8]>>>);

pub(crate) struct Scratch(Box<[Stack]>);

impl Scratch {
    pub fn new(cpus: usize) -> Self {
        Scratch((0..cpus).map(|_| Stack::default()).collect())
    }
}

impl System {
    /// A buffer of one page. It still holds what its last user left in it.
    pub fn take_page_buffer(&self) -> Box<[u8]> {
        let kept = self.scratch.0.get(self.cpu.index()).and_then(|stack| stack.0.lock().pop());
        kept.unwrap_or_else(|| vec![0; PAGE_SIZE].into())
    }

    /// Puts such a buffer back when it is not needed any more.
    pub fn give_page_buffer(&self, buffer: Box<[u8]>) {
        if let Some(stack) = self.scratch.0.get(self.cpu.index()) {
            let mut stack = stack.0.lock();
            if stack.len() < KEPT {
                stack.push(buffer);
            }
        }
    }
}
