//! The pages that a cache has, charged to the file system whose file it is.

use super::Slot;
use alloc::sync::Arc;
use core::ops::Deref;
use machine::{account::Charge, CountedFrame, FrameTree, Memory};

/// Reads are those of a map. What changes the number of pages changes the charge; whether there is room for one more is asked
/// before its frame is allocated, so that a page that exists is never refused.
pub(super) struct Pages {
    slots: FrameTree<Slot>,
    charge: Charge,
}

impl Deref for Pages {
    type Target = FrameTree<Slot>;
    fn deref(&self) -> &Self::Target {
        &self.slots
    }
}

impl Pages {
    pub fn new(memory: Arc<dyn Memory>, charge: Charge) -> Self {
        Pages { slots: FrameTree::new(memory), charge }
    }

    pub fn get_mut(&mut self, index: &u64) -> Option<&mut Slot> {
        self.slots.get_mut(*index)
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u64, &mut Slot)> {
        self.slots.iter_mut()
    }

    /// Puts in a page that is clean.
    pub fn insert(&mut self, index: u64, frame: CountedFrame<'_>) {
        if self.slots.insert(index, frame, Slot::fresh) {
            self.charge.grow_anyway(1);
        }
    }

    /// Puts in a slot without a frame.
    pub fn note(&mut self, index: u64, slot: Slot) {
        if self.slots.note(index, slot) {
            self.charge.grow_anyway(1);
        }
    }

    pub fn remove(&mut self, index: &u64) {
        if self.slots.remove(*index) {
            self.charge.shrink(1);
        }
    }

    pub fn retain(&mut self, keep: impl FnMut(u64, &Slot) -> bool) {
        let before = self.slots.len();
        self.slots.retain(keep);
        self.charge.shrink(before - self.slots.len());
    }

    /// Takes out those from `first` on.
    pub fn split_off(&mut self, first: u64) -> FrameTree<Slot> {
        let rest = self.slots.split_off(first);
        self.charge.shrink(rest.len());
        rest
    }
}
