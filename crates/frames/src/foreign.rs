//! Frames of other partitions that this kernel holds.
//!
//! A kernel that owns a page may have got its frame from the kernel that touched the page first (the
//! offered frame of design section 6). It counts the frame's users here, and when the last one is
//! gone the frame waits in the list of its home until the kernel sends the list, so frames go home in
//! batches rather than a message each.
//!
//! A frame that another kernel goes on using, and counts once more for us (it is *pinned*), returns to that kernel, which
//! need not be its home: who holds pages of a file may have borrowed them. It may even be a frame of our own that we have lent.
//!
//! A kernel that dies takes its frames along: what is still in use of them here returns nowhere, or the next boot of
//! that kernel would be given frames that it never lent.

use alloc::{
    collections::btree_map::{BTreeMap, Entry},
    vec::Vec,
};
use core::{
    array,
    sync::atomic::{AtomicUsize, Ordering},
};
use machine::{group::Tag, sync::Lock, Frame, KernelId};

/// CPUs of one kernel that fault on different pages should rarely meet.
const SHARDS: usize = 16;

/// Frames that go home in one message.
const BATCH: usize = 64;

/// Trees, not tables: thousands of frames may be held just when memory is short, and a table that grows needs many pages in
/// a row.
pub struct Foreign {
    uses: [Lock<BTreeMap<Frame, Use>>; SHARDS],
    returns: Lock<Returns>,
    /// Frames in `returns`, to be read often and without the lock.
    waiting: AtomicUsize,
    /// Held, with one user, for the next page that needs one.
    stock: Lock<Vec<Frame>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Use {
    count: u32,
    /// Who gets it back after that.
    giver: KernelId,
    pinned: bool,
    /// That kernel has died: nobody does.
    lost: bool,
    /// To whom it is charged here.
    tag: Tag,
}

/// A frame may be in it twice (a pin and a count).
#[derive(Default)]
struct Returns {
    waiting: BTreeMap<(KernelId, u64), Frame>,
    serial: u64,
}

impl Default for Foreign {
    fn default() -> Self {
        Foreign {
            uses: array::from_fn(|_| Lock::default()),
            returns: Lock::default(),
            waiting: AtomicUsize::new(0),
            stock: Lock::default(),
        }
    }
}

impl Foreign {
    fn shard(&self, frame: Frame) -> &Lock<BTreeMap<Frame, Use>> {
        &self.uses[frame.0 as usize % SHARDS]
    }

    /// `home` gave us `frame` for good: one user.
    pub fn adopt(&self, frame: Frame, home: KernelId) {
        let first = Use { count: 1, giver: home, pinned: false, lost: false, tag: Tag::NONE };
        let old = self.shard(frame).lock().insert(frame, first);
        assert_eq!(old, None, "{frame:?} is adopted twice");
    }

    /// Other kernels gave us zeroed `frames` that have no page yet.
    pub fn stock(&self, frames: &[Frame], home: impl Fn(Frame) -> KernelId) {
        frames.iter().for_each(|frame| self.adopt(*frame, home(*frame)));
        self.stock.lock().extend_from_slice(frames);
    }

    pub fn stocked(&self) -> Vec<Frame> {
        self.stock.lock().clone()
    }

    pub fn has_stock(&self) -> bool {
        !self.stock.lock().is_empty()
    }

    /// One of them, with one user.
    pub fn take_stock(&self) -> Option<Frame> {
        self.stock.lock().pop()
    }

    /// `dead` is no more, and `lies_there` says which frames were its own: none is taken from the stock any more, and those in use
    /// return nowhere, nor do those that it had pinned.
    pub fn forget(&self, dead: KernelId, lies_there: impl Fn(Frame) -> bool) {
        let mut stock = self.stock.lock();
        for frame in stock.extract_if(.., |frame| lies_there(*frame)) {
            self.shard(frame).lock().remove(&frame);
        }
        drop(stock);
        for shard in &self.uses {
            shard.lock().values_mut().filter(|used| used.giver == dead).for_each(|used| used.lost = true);
        }
    }

    /// Whether a frame in use here was forgotten with who gave it.
    pub fn is_lost(&self, frame: Frame) -> bool {
        self.shard(frame).lock().get(&frame).is_some_and(|used| used.lost)
    }

    /// `by`, which goes on using `frame`, counts one user for us: one user more here. It counts us
    /// once, so a second pin goes back at once.
    pub fn accept_pin(&self, frame: Frame, by: KernelId) {
        let known = {
            let mut shard = self.shard(frame).lock();
            let first = Use { count: 0, giver: by, pinned: true, lost: false, tag: Tag::NONE };
            let used = shard.entry(frame).or_insert(first);
            used.count += 1;
            used.count > 1
        };
        if known {
            self.give_back(frame, by);
        }
    }

    /// Who has pinned it for us.
    pub fn pinned_by(&self, frame: Frame) -> Option<KernelId> {
        let used = *self.shard(frame).lock().get(&frame)?;
        used.pinned.then_some(used.giver)
    }

    pub fn retain(&self, frame: Frame) {
        match self.shard(frame).lock().get_mut(&frame) {
            Some(used) => used.count += 1,
            None => panic!("{frame:?} is not held here"),
        }
    }

    /// The last release puts the frame on the list of who gave it.
    pub fn release(&self, frame: Frame) {
        self.release_charged(frame);
    }

    /// The same. Gives the tag of a frame that has no user any more.
    pub fn release_charged(&self, frame: Frame) -> Tag {
        let last = match self.shard(frame).lock().entry(frame) {
            Entry::Vacant(_) => panic!("double free of foreign {frame:?}"),
            Entry::Occupied(entry) if entry.get().count == 1 => entry.remove(),
            Entry::Occupied(mut entry) => {
                entry.get_mut().count -= 1;
                return Tag::NONE;
            }
        };
        if !last.lost {
            self.give_back(frame, last.giver);
        }
        last.tag
    }

    /// To whom a frame that is in use here is charged.
    pub fn tag(&self, frame: Frame) -> Tag {
        self.shard(frame).lock().get(&frame).map_or(Tag::NONE, |used| used.tag)
    }

    pub fn set_tag(&self, frame: Frame, tag: Tag) {
        if let Some(used) = self.shard(frame).lock().get_mut(&frame) {
            used.tag = tag;
        }
    }

    fn give_back(&self, frame: Frame, home: KernelId) {
        let mut returns = self.returns.lock();
        returns.serial += 1;
        let key = (home, returns.serial);
        returns.waiting.insert(key, frame);
        // Relaxed, here and below: written under the lock, and a hint for who reads it without.
        self.waiting.fetch_add(1, Ordering::Relaxed);
    }

    pub fn count(&self, frame: Frame) -> u32 {
        self.shard(frame).lock().get(&frame).map_or(0, |used| used.count)
    }

    /// Foreign frames in use here.
    pub fn held(&self) -> usize {
        self.uses.iter().map(|shard| shard.lock().len()).sum()
    }

    /// Frames waiting to go home: whether a batch is worth a message yet.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// A kernel that has frames waiting here.
    pub fn home_to_serve(&self) -> Option<KernelId> {
        self.returns.lock().waiting.keys().next().map(|(home, _)| *home)
    }

    /// Frames of `home` that nobody uses here any more, as many as go in a message; the caller sends them.
    pub fn drain_returns(&self, home: KernelId) -> Vec<Frame> {
        let mut returns = self.returns.lock();
        let keys: Vec<_> =
            returns.waiting.range((home, 0)..=(home, u64::MAX)).map(|(key, _)| *key).take(BATCH).collect();
        self.waiting.fetch_sub(keys.len(), Ordering::Relaxed);
        keys.into_iter().filter_map(|key| returns.waiting.remove(&key)).collect()
    }
}
