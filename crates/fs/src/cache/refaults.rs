//! Whether memory is too small for what programs use of their files.
//!
//! Problem: pages that programs map can always go, and come back at the next touch. Where the rest of memory is full of what can't go (anonymous memory; there is no swap), each page that is needed
//! costs one that is needed just as much: programs only read their own code from the disk, over and over, and nobody is ever ended for want of memory.
//!
//! Idea (Linux's refault distance, mm/workingset.c): when a page is taken from programs, its name and the number of such pages so far are noted. If it is read again before an eighth of
//! memory has gone after it, it should not have gone. If of the last quarter of memory's pages that went more than a third should not have gone, memory is too small. A program that reads a
//! mapped file from one end to the other, or over and over a file larger than memory, does not look so.
//!
//! The notes are a table of fixed size, made at boot. Two pages may want one place; the later has it, so refaults are counted too low rather than too high.

use crate::ObjectId;
use alloc::boxed::Box;
use core::{
    iter::repeat_with,
    sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
};
use machine::Memory;

/// At most so many notes (512 KiB).
const MOST: usize = 1 << 16;

pub(crate) struct Refaults {
    /// Of a page that has gone: 32 bits of its name's hash, and its number. 0: none.
    notes: Box<[AtomicU64]>,
    /// Pages that have gone.
    gone: AtomicU32,
    /// `gone` when the count of those that were back at once began.
    since: AtomicU32,
    back_at_once: AtomicU32,
}

impl Refaults {
    pub fn new(memory: &dyn Memory) -> Self {
        let notes = (memory.totals().0 as usize / 8).clamp(1, MOST);
        Refaults {
            notes: repeat_with(AtomicU64::default).take(notes).collect(),
            gone: AtomicU32::new(1),
            since: AtomicU32::new(1),
            back_at_once: AtomicU32::new(0),
        }
    }

    fn note(&self, object: ObjectId, page: u64) -> (&AtomicU64, u32) {
        // Fibonacci hashing: the upper bits are well mixed.
        const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
        let name = (object.serial ^ u64::from(object.owner.0) << 48).wrapping_mul(ODD);
        let hash = ((name ^ page).wrapping_mul(ODD) >> 16) as usize;
        (&self.notes[(hash >> 16) % self.notes.len()], hash as u32)
    }

    /// A page was taken from the programs that mapped it, and has gone.
    pub fn gone(&self, object: ObjectId, page: u64) {
        let (note, hash) = self.note(object, page);
        let number = self.gone.fetch_add(1, Relaxed);
        note.store(u64::from(hash) << 32 | u64::from(number), Relaxed);
    }

    /// A page was read.
    pub fn back(&self, object: ObjectId, page: u64) {
        let (note, hash) = self.note(object, page);
        let noted = note.load(Relaxed);
        if noted == 0 || noted >> 32 != u64::from(hash) {
            return;
        }
        let distance = self.gone.load(Relaxed).wrapping_sub(noted as u32);
        note.store(0, Relaxed);
        if distance as usize <= self.notes.len() {
            self.back_at_once.fetch_add(1, Relaxed);
        }
    }

    /// Whether memory is too small for what programs use: a process has to end. Whoever hears so sees to it; the count begins anew then.
    pub fn are_too_many(&self) -> bool {
        let gone = self.gone.load(Relaxed);
        let went = gone.wrapping_sub(self.since.load(Relaxed));
        if (went as usize) < 2 * self.notes.len() {
            return false;
        }
        self.since.store(gone, Relaxed);
        self.back_at_once.swap(0, Relaxed) > went / 3
    }
}
