//! Counts of frames that release themselves.
//!
//! [`Memory`] counts the users of a frame. A service that has one in hand between two steps (a fault that copies a page, a write that
//! looks for a place in a file) holds a [`CountedFrame`]: returning early, or dropping the future that holds it, gives the
//! count back. What a service keeps for long are the pages of something, thousands of them: a [`FrameTree`], which knows
//! the memory once for all.
//!
//! A bare [`Frame`] carries a count in an entry of a page table (whoever takes the entry out releases it, once no CPU of any kernel can
//! use it), in a message (the receiver), in a list of what may not be released before others have answered, and as it comes from
//! [`Memory::alloc`] and its kin: the caller takes it over at once ([`CountedFrame::from_raw`]).

use crate::{Frame, KernelId, Memory};
use alloc::{collections::BTreeMap, sync::Arc};
use core::{
    fmt, mem,
    ops::{Deref, Range},
};

/// One count of a frame that this kernel holds: given back when it is dropped, one more when it is cloned.
///
/// It borrows the memory, so that taking and passing on a frame touches no counter but the frame's own.
#[must_use = "the frame is released at once"]
pub struct CountedFrame<'m> {
    memory: &'m dyn Memory,
    frame: Frame,
}

impl<'m> CountedFrame<'m> {
    /// Takes over a count that was kept with the bare frame.
    pub fn from_raw(memory: &'m dyn Memory, frame: Frame) -> Self {
        CountedFrame { memory, frame }
    }

    /// Counts once more a frame that somebody else keeps here meanwhile (the caller holds the lock that sees to that).
    pub fn retain(memory: &'m dyn Memory, frame: Frame) -> Self {
        memory.retain(frame);
        CountedFrame { memory, frame }
    }

    /// The frame, to be read or written. It stays as long as the count.
    pub fn frame(&self) -> Frame {
        self.frame
    }

    /// The count stays with the bare frame; the caller says who releases it.
    pub fn into_raw(self) -> Frame {
        let frame = self.frame;
        mem::forget(self);
        frame
    }

    /// The same count, by another reference to the same memory: for a caller that keeps it longer than what it got it from.
    pub fn by<'n>(self, memory: &'n dyn Memory) -> CountedFrame<'n> {
        debug_assert_eq!(self.memory.kernel(), memory.kernel(), "another kernel's memory");
        CountedFrame::from_raw(memory, self.into_raw())
    }

    /// Gives an own frame without other users to kernel `to`, which counts it from now on ([`Memory::lend`]).
    pub fn lend(self, to: KernelId) -> Frame {
        self.memory.lend(self.frame, to);
        self.into_raw()
    }

    /// Gives the count to kernel `to`, which uses the frame in its place here until it sends it back ([`Memory::pin`]).
    pub fn pin(self, to: KernelId) -> Frame {
        self.memory.pin(self.frame, to);
        self.into_raw()
    }
}

impl Clone for CountedFrame<'_> {
    fn clone(&self) -> Self {
        Self::retain(self.memory, self.frame)
    }
}

impl Drop for CountedFrame<'_> {
    fn drop(&mut self) {
        self.memory.release(self.frame);
    }
}

impl fmt::Debug for CountedFrame<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Counted{:?}", self.frame)
    }
}

/// What a [`FrameTree`] keeps for a page: a frame, or a note why there is none.
pub trait FrameSlot {
    /// The frame that the slot has a count of.
    fn frame(&self) -> Option<Frame>;
}

impl FrameSlot for Frame {
    fn frame(&self) -> Option<Frame> {
        Some(*self)
    }
}

impl FrameSlot for Option<Frame> {
    fn frame(&self) -> Option<Frame> {
        *self
    }
}

/// The pages of something by their number. It has one count of each frame, and releases what is taken out of it, or left in it when it
/// ends.
///
/// Reads are those of a map. A tree, because it grows in small pieces: what it describes may be large.
pub struct FrameTree<S: FrameSlot> {
    memory: Arc<dyn Memory>,
    slots: BTreeMap<u64, S>,
}

impl<S: FrameSlot> FrameTree<S> {
    /// No pages yet.
    pub fn new(memory: Arc<dyn Memory>) -> Self {
        FrameTree { memory, slots: BTreeMap::new() }
    }

    /// Puts in a page: `slot` is made of `frame`, whose count becomes the tree's. True if there was no slot for it before.
    pub fn insert(&mut self, index: u64, frame: CountedFrame<'_>, slot: impl FnOnce(Frame) -> S) -> bool {
        // Released by `discard` or `drop`.
        self.put(index, slot(frame.into_raw()))
    }

    /// Puts in a slot that has no frame. True if there was none for that page before.
    pub fn note(&mut self, index: u64, slot: S) -> bool {
        debug_assert_eq!(slot.frame(), None, "a frame that nobody has counted for the tree");
        self.put(index, slot)
    }

    fn put(&mut self, index: u64, slot: S) -> bool {
        let old = self.slots.insert(index, slot);
        old.as_ref().inspect(|old| self.discard(old)).is_none()
    }

    fn discard(&self, slot: &S) {
        slot.frame().inspect(|frame| self.memory.release(*frame));
    }

    /// A slot, to be changed. Who takes its frame out has the count with it.
    pub fn get_mut(&mut self, index: u64) -> Option<&mut S> {
        self.slots.get_mut(&index)
    }

    /// All slots, to be changed in the same way.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u64, &mut S)> {
        self.slots.iter_mut().map(|(index, slot)| (*index, slot))
    }

    /// Takes out a page. False if there was no slot for it.
    pub fn remove(&mut self, index: u64) -> bool {
        let old = self.slots.remove(&index);
        old.inspect(|old| self.discard(old)).is_some()
    }

    /// Takes out the pages of `range` without releasing them: `taken` gets each bare frame with its count.
    pub fn take_range(&mut self, range: Range<u64>, mut taken: impl FnMut(Frame)) {
        // A map panics at one that ends before it starts.
        let range = range.start..range.end.max(range.start);
        while let Some((&index, _)) = self.slots.range(range.clone()).next() {
            let slot = self.slots.remove(&index);
            slot.and_then(|slot| slot.frame()).into_iter().for_each(&mut taken);
        }
    }

    /// Takes out the pages of `range`.
    pub fn remove_range(&mut self, range: Range<u64>) {
        let memory = self.memory.clone();
        self.take_range(range, |frame| memory.release(frame));
    }

    /// Takes out those pages that `keep` does not keep.
    pub fn retain(&mut self, mut keep: impl FnMut(u64, &S) -> bool) {
        let memory = &self.memory;
        self.slots.retain(|index, slot| {
            let keeps = keep(*index, slot);
            if !keeps {
                slot.frame().inspect(|frame| memory.release(*frame));
            }
            keeps
        });
    }

    /// Takes out the pages from `first` on, as a tree of their own.
    pub fn split_off(&mut self, first: u64) -> Self {
        FrameTree { memory: self.memory.clone(), slots: self.slots.split_off(&first) }
    }
}

impl<S: FrameSlot> Deref for FrameTree<S> {
    type Target = BTreeMap<u64, S>;
    fn deref(&self) -> &Self::Target {
        &self.slots
    }
}

impl<S: FrameSlot> Drop for FrameTree<S> {
    fn drop(&mut self) {
        self.slots.values().for_each(|slot| self.discard(slot));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{sync::Lock, NoMemory, PageTable};
    use alloc::vec::Vec;

    /// Counts, and does nothing else.
    #[derive(Default)]
    struct Counts(Lock<BTreeMap<Frame, u32>>);

    impl Memory for Counts {
        fn kernel(&self) -> KernelId {
            KernelId(0)
        }
        fn alloc(&self) -> Option<Frame> {
            let mut counts = self.0.lock();
            let frame = Frame(counts.len() as u64);
            counts.insert(frame, 1);
            Some(frame)
        }
        fn retain(&self, frame: Frame) {
            let mut counts = self.0.lock();
            let count = counts.get_mut(&frame).filter(|count| **count > 0);
            *count.expect("nobody has it") += 1;
        }
        fn release(&self, frame: Frame) {
            let mut counts = self.0.lock();
            let count = counts.get_mut(&frame).filter(|count| **count > 0);
            *count.expect("released once too often") -= 1;
        }
        fn count(&self, frame: Frame) -> u32 {
            self.0.lock()[&frame]
        }
        fn adopt(&self, _: Frame) {
            unreachable!()
        }
        fn lend(&self, frame: Frame, _: KernelId) {
            assert_eq!(self.count(frame), 1);
        }
        fn pin(&self, _: Frame, _: KernelId) {}
        fn take_home(&self, frame: Frame, _: KernelId) {
            self.release(frame);
        }
        fn take_all_home(&self, _: KernelId) {
            unreachable!()
        }
        fn accept_pin(&self, _: Frame, _: KernelId) {
            unreachable!()
        }
        fn home_of(&self, _: Frame) -> Option<KernelId> {
            unreachable!()
        }
        fn totals(&self) -> (u64, u64) {
            unreachable!()
        }
        fn copy(&self, _: Frame, _: Frame) {
            unreachable!()
        }
        fn zero(&self, _: Frame) {
            unreachable!()
        }
        fn read(&self, _: Frame, _: usize, _: &mut [u8]) {
            unreachable!()
        }
        fn write(&self, _: Frame, _: usize, _: &[u8]) {
            unreachable!()
        }
        fn load_u32(&self, _: Frame, _: usize) -> u32 {
            unreachable!()
        }
        fn compare_exchange_u32(&self, _: Frame, _: usize, _: u32, _: u32) -> Result<u32, u32> {
            unreachable!()
        }
        fn new_table(&self) -> Result<Arc<dyn PageTable>, NoMemory> {
            unreachable!()
        }
    }

    impl Counts {
        fn new_frame(&self) -> CountedFrame<'_> {
            CountedFrame::from_raw(self, self.alloc().unwrap())
        }

        fn all(&self) -> Vec<u32> {
            self.0.lock().values().copied().collect()
        }
    }

    #[test]
    fn a_count_is_given_back_once_whichever_way_it_went() {
        let memory = Counts::default();
        let first = memory.new_frame();
        let second = first.clone();
        assert_eq!(memory.all(), [2]);
        drop(first);
        assert_eq!(memory.all(), [1]);
        let raw = second.into_raw();
        assert_eq!(memory.all(), [1], "the bare frame has it");
        let again = CountedFrame::from_raw(&memory, raw).by(&memory);
        assert_eq!((again.frame(), memory.all()), (raw, [1].into()));
        drop(again);
        assert_eq!(memory.all(), [0]);
    }

    #[test]
    fn what_another_kernel_got_is_released_when_it_comes_home() {
        let memory = Counts::default();
        let lent = memory.new_frame().lend(KernelId(1));
        let kept = memory.new_frame();
        let pinned = kept.clone().pin(KernelId(1));
        assert_eq!(memory.all(), [1, 2]);
        drop(kept);
        memory.take_home(lent, KernelId(1));
        memory.take_home(pinned, KernelId(1));
        assert_eq!(memory.all(), [0, 0]);
    }

    #[test]
    fn a_tree_releases_what_leaves_it() {
        let memory = Arc::new(Counts::default());
        let mut tree: FrameTree<Option<Frame>> = FrameTree::new(memory.clone());
        for index in 0..8 {
            assert!(tree.insert(index, memory.new_frame(), Some));
        }
        assert!(tree.remove(0) && !tree.remove(0));
        assert!(!tree.note(1, None), "takes the place of a frame");
        assert!(!tree.insert(2, memory.new_frame(), Some), "of another one");
        tree.retain(|index, slot| index != 3 || slot.is_none());
        let mut taken = Vec::new();
        (0..2).for_each(|_| tree.take_range(1..5, |frame| taken.push(frame)));
        assert_eq!((taken.len(), tree.len()), (2, 3), "pages 2 and 4: page 1 had none");
        assert_eq!(memory.all(), [0, 0, 0, 0, 1, 1, 1, 1, 1]);
        drop(tree.split_off(6));
        assert_eq!(memory.all(), [0, 0, 0, 0, 1, 1, 0, 0, 1]);
        let kept = tree.iter_mut().find_map(|(_, slot)| slot.take());
        drop(tree);
        assert_eq!(memory.all(), [0, 0, 0, 0, 1, 1, 0, 0, 1], "but what others have");
        taken.into_iter().chain(kept).for_each(|frame| memory.release(frame));
        assert_eq!(memory.all(), [0; 9]);
    }
}
