//! What a kernel has of a descriptor table: at home all of it, elsewhere what it has looked up.

use crate::users::Users;
use alloc::{collections::BTreeMap, sync::Arc, vec::Vec};
use fs::File;
use machine::{errno::Result, Errno, KernelSet};

#[derive(Clone)]
pub struct Descriptor {
    pub file: Arc<dyn File>,
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
    pub fn note_put(&mut self, alone: bool) {
        self.put = if alone { self.put + 1 } else { 0 };
    }
}

#[derive(Default)]
pub(super) struct Table {
    pub slots: Vec<Option<Descriptor>>,
    /// Kernels that may have cached something.
    pub cachers: KernelSet,
    /// Processes that use it.
    pub users: Users,
}

impl Table {
    pub fn get(&self, fd: u32) -> Result<&Descriptor> {
        self.slots.get(fd as usize).and_then(Option::as_ref).ok_or(Errno::EBADF)
    }

    /// Lowest free number from `from` on.
    pub fn free(&self, from: u32) -> u32 {
        let taken = |fd: u32| self.slots.get(fd as usize).is_some_and(Option::is_some);
        (from..).find(|&fd| !taken(fd)).expect("u32 numbers do not run out before the limit")
    }

    pub fn set(&mut self, fd: u32, descriptor: Descriptor) -> Option<Descriptor> {
        let index = fd as usize;
        if self.slots.len() <= index {
            self.slots.resize_with(index + 1, || None);
        }
        self.slots[index].replace(descriptor)
    }
}
