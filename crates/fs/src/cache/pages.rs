//! The pages that a cache has, charged to the file system whose file it is.

use super::Slot;
use alloc::collections::BTreeMap;
use core::ops::Deref;
use machine::account::Charge;

/// Reads are those of a map. What changes the number of pages changes the charge; whether there is room for one more is asked
/// before its frame is allocated, so that a page that exists is never refused.
pub(super) struct Pages {
    slots: BTreeMap<u64, Slot>,
    charge: Charge,
}

impl Deref for Pages {
    type Target = BTreeMap<u64, Slot>;
    fn deref(&self) -> &Self::Target {
        &self.slots
    }
}

impl Pages {
    pub fn new(charge: Charge) -> Self {
        Pages { slots: BTreeMap::new(), charge }
    }

    pub fn get_mut(&mut self, index: &u64) -> Option<&mut Slot> {
        self.slots.get_mut(index)
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&u64, &mut Slot)> {
        self.slots.iter_mut()
    }

    pub fn insert(&mut self, index: u64, slot: Slot) {
        if self.slots.insert(index, slot).is_none() {
            self.charge.grow_anyway(1);
        }
    }

    pub fn remove(&mut self, index: &u64) -> Option<Slot> {
        let slot = self.slots.remove(index)?;
        self.charge.shrink(1);
        Some(slot)
    }

    pub fn retain(&mut self, keep: impl FnMut(&u64, &mut Slot) -> bool) {
        let before = self.slots.len();
        self.slots.retain(keep);
        self.charge.shrink(before - self.slots.len());
    }

    /// Takes out those from `first` on.
    pub fn split_off(&mut self, first: u64) -> BTreeMap<u64, Slot> {
        let rest = self.slots.split_off(&first);
        self.charge.shrink(rest.len());
        rest
    }
}
