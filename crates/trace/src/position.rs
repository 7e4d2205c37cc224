//! Where in its program a thread is. A sample that finds the CPU in the kernel takes the program's part of the call chain from here.
//!
//! A CPU has one, for the thread that it works for; a task of the scheduler keeps its own while it waits. Who is interrupted while it copies one leaves a sample with
//! a wrong chain, and nothing else.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

const WORDS: usize = 7;

/// Words that only the CPU that has the thread writes.
#[derive(Debug, Default)]
pub struct UserPosition([AtomicU64; WORDS]);

impl UserPosition {
    /// Whose it is; 0: nobody's.
    pub fn thread(&self) -> u32 {
        self.0[0].load(Relaxed) as u32
    }

    /// It is this thread's from now on.
    pub fn set_thread(&self, thread: u32) {
        self.0[0].store(thread.into(), Relaxed);
    }

    /// The number of its address space, and the kernel that gave it.
    pub fn space(&self) -> (u64, u16) {
        (self.0[1].load(Relaxed), self.0[2].load(Relaxed) as u16)
    }

    /// The thread has run in this address space.
    pub fn set_space(&self, number: u64, home: u16) {
        self.0[1].store(number, Relaxed);
        self.0[2].store(home.into(), Relaxed);
    }

    /// Physical address of the page table, program counter, stack pointer and frame pointer with which the thread left user mode; all 0: it has not been there.
    pub fn place(&self) -> [u64; 4] {
        [3, 4, 5, 6].map(|word| self.0[word].load(Relaxed))
    }

    /// The thread leaves user mode with these, as [`UserPosition::place`] has them.
    pub fn set_place(&self, place: [u64; 4]) {
        self.0[3..].iter().zip(place).for_each(|(word, value)| word.store(value, Relaxed));
    }

    /// Takes over what `other` says.
    pub fn copy(&self, other: &UserPosition) {
        self.0.iter().zip(&other.0).for_each(|(word, value)| word.store(value.load(Relaxed), Relaxed));
    }

    /// Nobody has the CPU.
    pub fn clear(&self) {
        self.0.iter().for_each(|word| word.store(0, Relaxed));
    }
}
