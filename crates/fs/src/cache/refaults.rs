//! Whether memory is too small for what programs use of their files.
//!
//! Problem: pages that programs map can always go, and come back at the next touch. Where the rest of memory is full of what can't go (anonymous memory; there is no swap), each page that is needed
//! costs one that is needed just as much: programs only read their own code from the disk, over and over, and nobody is ever ended for want of memory.
//!
//! That is called thrashing.
//!
//! Idea (Linux's refault distance, mm/workingset.c): when a page is taken from programs, a note is made of its name and of how many have gone so far. If it is read again before an eighth of
//! memory has gone after it, it should not have gone. Of the pages that went while a quarter of memory did, more than a third should not have gone: then the kernel thrashes. A program that
//! reads a mapped file from one end to the other, or over and over a file larger than memory, does not look so. (An eighth is 256 MiB at most; a kernel that thrashes with more than that is not noticed.)
//!
//! The notes are a table of fixed size, made at boot: a word for each eighth page of memory. Two pages may want one place; the later has it, so refaults are counted too low rather than too high.

use crate::ObjectId;
use alloc::boxed::Box;
use core::{
    iter::repeat_with,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};
use machine::Memory;

/// At most so many notes (256 KiB).
const MOST: usize = 1 << 16;
/// Bits of a note that are the page's number among those that have gone. The others are of the hash of its name.
const NUMBER_BITS: u32 = 20;
const NUMBER: u32 = (1 << NUMBER_BITS) - 1;

/// Pages of files that have gone from a kernel, its own files' and copies of other kernels'.
pub struct Refaults {
    notes: Box<[AtomicU32]>,
    gone: AtomicU32,
    /// `gone` when the count of those that were back at once began.
    since: AtomicU32,
    back_at_once: AtomicU32,
}

impl Refaults {
    /// With notes for an eighth of `memory`.
    pub fn new(memory: &dyn Memory) -> Self {
        let notes = (memory.totals().0 as usize / 8).clamp(1, MOST);
        Refaults {
            notes: repeat_with(AtomicU32::default).take(notes).collect(),
            gone: AtomicU32::new(1),
            since: AtomicU32::new(1),
            back_at_once: AtomicU32::new(0),
        }
    }

    /// Where the note of a page is, and what of its hash is in it.
    fn note(&self, object: ObjectId, page: u64) -> (&AtomicU32, u32) {
        // Fibonacci hashing: the upper bits are well mixed.
        const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
        let name = (object.serial ^ u64::from(object.owner.0) << 48).wrapping_mul(ODD);
        let hash = (name ^ page).wrapping_mul(ODD);
        (&self.notes[(hash >> 32) as usize % self.notes.len()], hash as u32 & !NUMBER)
    }

    /// A page was taken from the programs that mapped it, and has gone.
    pub(crate) fn gone(&self, object: ObjectId, page: u64) {
        let (note, hash) = self.note(object, page);
        let number = self.gone.fetch_add(1, Relaxed);
        note.store(hash | number & NUMBER, Relaxed);
    }

    /// A page was read.
    pub(crate) fn back(&self, object: ObjectId, page: u64) {
        let (note, hash) = self.note(object, page);
        let noted = note.load(Relaxed);
        if noted == 0 || noted & !NUMBER != hash {
            return;
        }
        let distance = self.gone.load(Relaxed).wrapping_sub(noted) & NUMBER;
        note.store(0, Relaxed);
        if distance as usize <= self.notes.len() {
            self.back_at_once.fetch_add(1, Relaxed);
        }
    }

    /// Whether the kernel thrashes, so that a process has to end. Each time that a quarter of memory has gone this counts anew: whoever hears yes has to see to it.
    pub fn take_thrashing(&self) -> bool {
        let gone = self.gone.load(Relaxed);
        let went = gone.wrapping_sub(self.since.load(Relaxed));
        if (went as usize) < 2 * self.notes.len() {
            return false;
        }
        self.since.store(gone, Relaxed);
        self.back_at_once.swap(0, Relaxed) > went / 3
    }
}
