//! Listing a directory piece by piece: what an open directory keeps is where it is, never the names.
//!
//! A directory answers [`Inode::list`](super::Inode::list) with names from a *position* on, each with the position behind it
//! (`d_off` of getdents64, which telldir gives and seekdir takes). 0 is before `.`, 1 before `..`, [`FIRST`] before the first name;
//! all others are the directory's own. It chooses them so that a name which is there through a whole scan comes exactly once,
//! whatever is added and removed between two calls: a position says *which* names are left, never how many came before.

use crate::DirEntry;
use alloc::vec::Vec;

/// Position of the first name: behind `.` and `..`.
pub const FIRST: u64 = 2;

/// Bytes of `struct linux_dirent64` before the name.
const HEADER: usize = 19;

/// How far an open directory has been read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scan {
    /// Where the next entry is looked for.
    pub position: u64,
    /// For the directory that is listed: what it noted when this scan was at its first name ([`crate::union`]).
    pub began: Option<u64>,
}

/// A piece of a directory in the making: entries of at most so many bytes, as getdents64 counts them.
pub struct Listing {
    /// Where the piece begins; a directory that makes notes changes them.
    pub scan: Scan,
    entries: Vec<DirEntry>,
    room: usize,
    full: bool,
}

impl Listing {
    /// Room for `room` bytes of what follows in `scan`.
    pub fn new(scan: Scan, room: usize) -> Self {
        Listing { scan, entries: Vec::new(), room, full: false }
    }

    /// Adds an entry, if there is room for it: false says that the piece ends before it. `next` is the position behind it.
    pub fn add(&mut self, ino: u64, next: u64, d_type: u8, name: &[u8]) -> bool {
        let size = (HEADER + name.len() + 1).next_multiple_of(8);
        match self.room.checked_sub(size) {
            Some(room) if !self.full => self.room = room,
            _ => {
                self.full = true;
                return false;
            }
        }
        self.entries.push(DirEntry { ino, next, d_type, name: name.to_vec() });
        true
    }

    /// Bytes that are left.
    pub fn room(&self) -> usize {
        self.room
    }

    /// Whether an entry was refused for lack of room.
    pub fn is_full(&self) -> bool {
        self.full
    }

    /// Whether it has no entry so far.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The entries, in the order in which they were added.
    pub fn into_entries(self) -> Vec<DirEntry> {
        self.entries
    }
}
