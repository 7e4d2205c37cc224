//! What a kernel has of a descriptor table: at home all of it, elsewhere what it has looked up.

use crate::users::Users;
use alloc::{boxed::Box, collections::BTreeMap, sync::Arc, vec::Vec};
use fs::File;
use machine::{errno::Result, Errno, KernelSet};

/// An open descriptor of a table.
#[derive(Clone)]
pub struct Descriptor {
    /// The open file, maybe one of another kernel.
    pub file: Arc<dyn File>,
    /// FD_CLOEXEC: execve closes it.
    pub close_on_exec: bool,
}

#[derive(Default)]
pub(super) struct Cache {
    pub known: BTreeMap<u32, Descriptor>,
    /// Call-backs so far: an answer asked for before the last one may be out of date and isn't kept.
    pub forgotten: u64,
    /// Files put into the table from here while only one process used it, and how many make it worth moving.
    pub put: u32,
    pub worth: u32,
}

impl Cache {
    pub fn note_put(&mut self, alone: bool, worth: u32) {
        self.put = if alone { self.put.saturating_add(worth) } else { 0 };
    }
}

/// Descriptors by number, in pieces of a few: a process may have a million, or a single one of a high number, and what the kernel
/// needs for that at once must stay small. It is no more when they are closed, either: that is how memory comes back.
#[derive(Default)]
pub(super) struct Slots(Vec<Option<Box<[Option<Descriptor>; PIECE]>>>);

const PIECE: usize = 32;

impl Slots {
    fn get(&self, fd: u32) -> Option<&Descriptor> {
        let (piece, index) = place(fd);
        self.0.get(piece)?.as_ref()?[index].as_ref()
    }

    fn slot(&mut self, fd: u32) -> Option<&mut Option<Descriptor>> {
        let (piece, index) = place(fd);
        Some(&mut self.0.get_mut(piece)?.as_mut()?[index])
    }

    fn put(&mut self, fd: u32, descriptor: Descriptor) -> Option<Descriptor> {
        let (piece, index) = place(fd);
        if self.0.len() <= piece {
            self.0.resize_with(piece + 1, || None);
        }
        self.0[piece].get_or_insert_default()[index].replace(descriptor)
    }

    fn iter_from(&self, from: u32) -> impl Iterator<Item = (u32, &Descriptor)> {
        let (skipped, _) = place(from);
        let pieces = (0u32..).step_by(PIECE).zip(&self.0).skip(skipped);
        let pieces = pieces.filter_map(|(first, piece)| Some((first, piece.as_ref()?)));
        let slots = pieces.flat_map(|(first, piece)| (first..).zip(piece.iter())).filter(move |(fd, _)| *fd >= from);
        slots.filter_map(|(fd, slot)| Some((fd, slot.as_ref()?)))
    }

    fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut Descriptor)> {
        let pieces = (0u32..).step_by(PIECE).zip(&mut self.0);
        let pieces = pieces.filter_map(|(first, piece)| Some((first, piece.as_mut()?)));
        let slots = pieces.flat_map(|(first, piece)| (first..).zip(piece.iter_mut()));
        slots.filter_map(|(fd, slot)| Some((fd, slot.as_mut()?)))
    }

    pub fn into_files(self) -> impl Iterator<Item = Arc<dyn File>> {
        let slots = self.0.into_iter().flatten().flat_map(|piece| *piece);
        slots.flatten().map(|descriptor| descriptor.file)
    }
}

fn place(fd: u32) -> (usize, usize) {
    (fd as usize / PIECE, fd as usize % PIECE)
}

#[derive(Default)]
pub(super) struct Table {
    slots: Slots,
    /// All numbers below are taken, so that whoever has many need not look at them all for the next one.
    first_free: u32,
    /// Kernels that may have cached descriptors.
    pub cachers: KernelSet,
    /// Processes that use it.
    pub users: Users,
}

impl Table {
    pub fn new(users: Users) -> Self {
        Table { users, ..Table::default() }
    }

    pub fn get(&self, fd: u32) -> Result<&Descriptor> {
        self.slots.get(fd).ok_or(Errno::EBADF)
    }

    pub fn get_mut(&mut self, fd: u32) -> Result<&mut Descriptor> {
        self.slots.slot(fd).and_then(Option::as_mut).ok_or(Errno::EBADF)
    }

    /// The open descriptors, in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Descriptor)> {
        self.iter_from(0)
    }

    /// The same, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut Descriptor)> {
        self.slots.iter_mut()
    }

    /// The same without those below `from`.
    pub fn iter_from(&self, from: u32) -> impl Iterator<Item = (u32, &Descriptor)> {
        self.slots.iter_from(from)
    }

    /// Lowest free number from `from` on.
    pub fn free(&mut self, from: u32) -> u32 {
        let first = from.max(self.first_free);
        let free =
            (first..).find(|&fd| self.slots.get(fd).is_none()).expect("u32 numbers do not run out before the limit");
        if from <= self.first_free {
            self.first_free = free;
        }
        free
    }

    pub fn set(&mut self, fd: u32, descriptor: Descriptor) -> Option<Descriptor> {
        self.slots.put(fd, descriptor)
    }

    pub fn take(&mut self, fd: u32) -> Result<Descriptor> {
        let taken = self.slots.slot(fd).and_then(Option::take).ok_or(Errno::EBADF)?;
        self.first_free = self.first_free.min(fd);
        Ok(taken)
    }

    pub fn take_all(&mut self) -> Slots {
        self.first_free = 0;
        core::mem::take(&mut self.slots)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use fs::event::EventFd;

    /// Against a set of the numbers that are taken: the next one is the lowest, whatever was closed meanwhile.
    #[test]
    fn the_next_number_is_the_lowest_free_one() {
        let file: Arc<dyn File> = EventFd::new(0, 0).unwrap();
        let (mut table, mut taken) = (Table::default(), BTreeSet::new());
        let mut random = 1u32;
        for _ in 0..20_000 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let number = random >> 8 & 63;
            match random >> 29 {
                0..4 => {
                    let from = if random >> 28 & 1 == 0 { 0 } else { number };
                    let fd = table.free(from);
                    assert_eq!(fd, (from..).find(|fd| !taken.contains(fd)).unwrap());
                    table.set(fd, Descriptor { file: file.clone(), close_on_exec: false });
                    taken.insert(fd);
                }
                4 => {
                    let old = table.set(number, Descriptor { file: file.clone(), close_on_exec: false });
                    assert_eq!(old.is_none(), taken.insert(number));
                }
                5..7 => assert_eq!(table.take(number).is_ok(), taken.remove(&number)),
                _ if number == 0 => {
                    assert_eq!(table.take_all().into_files().count(), taken.len());
                    taken.clear();
                }
                _ => assert!(table.iter_from(number).map(|(fd, _)| fd).eq(taken.range(number..).copied())),
            }
        }
    }
}
