//! A few free frames of one CPU's own, so that most allocations touch no line that a sibling writes.

use machine::{sync::Lock, Frame};

/// Frames a CPU may hoard: 256 KiB.
pub const CAPACITY: usize = 64;
/// How many move between a cache and the buddy at a time.
pub const BATCH: usize = CAPACITY / 2;

/// Last in, first out: the frame freed last is the warmest. The lock is free unless a sibling that
/// found the buddy empty comes to steal.
#[repr(align(64))]
pub struct CpuCache(pub Lock<Stack>);

impl CpuCache {
    pub const fn new() -> Self {
        CpuCache(Lock::new(Stack { frames: [Frame(0); CAPACITY], len: 0 }))
    }
}

pub struct Stack {
    frames: [Frame; CAPACITY],
    len: usize,
}

impl Stack {
    pub fn len(&self) -> usize {
        self.len
    }

    /// Only while `len` is below [`CAPACITY`].
    pub fn push(&mut self, frame: Frame) {
        self.frames[self.len] = frame;
        self.len += 1;
    }

    pub fn pop(&mut self) -> Option<Frame> {
        self.len = self.len.checked_sub(1)?;
        Some(self.frames[self.len])
    }

    pub fn reverse(&mut self) {
        self.frames[..self.len].reverse();
    }

    /// The `count` coldest frames leave.
    pub fn take_oldest(&mut self, count: usize, mut each: impl FnMut(Frame)) {
        let count = count.min(self.len);
        self.frames[..count].iter().for_each(|frame| each(*frame));
        self.frames.copy_within(count..self.len, 0);
        self.len -= count;
    }
}
