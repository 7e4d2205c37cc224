//! One contiguous range of the partition: its frames' state words and its buddy.

use crate::{
    buddy::{Buddy, MAX_BLOCK, MAX_ORDER},
    carve::Carve,
};
use core::{
    ops::Range,
    sync::atomic::{fence, AtomicU16, AtomicU32, Ordering},
};
use machine::{group::Tag, sync::Lock, Frame, KernelId};

/// State words: 0 is free, up to [`MAX_COUNT`] a reference count, above it one of these.
const FREE: u32 = 0;
const MAX_COUNT: u32 = 0x7fff_ffff;
/// Part of a contiguous run (heap, DMA), which has one user.
const RUN: u32 = 0x8000_0000;
/// The kernel image, these tables, or whatever else was here before the allocator.
const RESERVED: u32 = 0x8000_0001;
/// Lent, with the number of the kernel that has it.
const LENT: u32 = 0xc000_0000;

fn lent_to(kernel: KernelId) -> u32 {
    LENT | u32::from(kernel.0)
}

pub struct Zone {
    /// Frame numbers.
    range: Range<u64>,
    /// Frame of the buddy's index 0: `range.start` rounded down to the largest block, so that a block
    /// is aligned in physical memory too.
    origin: u64,
    states: &'static [AtomicU32],
    /// To whom the frames that are counted are charged ([`machine::group::Tag`]).
    tags: &'static [AtomicU16],
    buddy: Lock<Buddy>,
}

impl Zone {
    fn span(range: &Range<u64>) -> (u64, usize) {
        let origin = range.start / MAX_BLOCK as u64 * MAX_BLOCK as u64;
        (origin, ((range.end - origin) as usize).next_multiple_of(MAX_BLOCK))
    }

    /// Upper bound of the bytes that [`Zone::new`] carves.
    pub fn cost(range: &Range<u64>) -> usize {
        let padding = 64 * (crate::MAX_ORDER + 1);
        let words = Buddy::words_for(Self::span(range).1);
        let frames = (range.end - range.start) as usize;
        Carve::cost::<AtomicU32>(frames) + Carve::cost::<AtomicU16>(frames) + Carve::cost::<u64>(words) + padding
    }

    /// All frames are reserved at first.
    pub fn new(range: Range<u64>, carve: &mut Carve) -> Self {
        let (origin, span) = Self::span(&range);
        let states = carve.fill((range.end - range.start) as usize, |_| AtomicU32::new(RESERVED));
        let tags = carve.fill(states.len(), |_| AtomicU16::new(0));
        Zone { origin, states, tags, buddy: Lock::new(Buddy::new(span, carve)), range }
    }

    pub fn range(&self) -> &Range<u64> {
        &self.range
    }

    pub fn contains(&self, frame: Frame) -> bool {
        self.range.contains(&frame.0)
    }

    fn state(&self, frame: Frame) -> &AtomicU32 {
        &self.states[(frame.0 - self.range.start) as usize]
    }

    fn tag_word(&self, frame: Frame) -> &AtomicU16 {
        &self.tags[(frame.0 - self.range.start) as usize]
    }

    /// Of a frame that is counted. Relaxed: its users agree on who sets it, and the last one has seen what the others did.
    pub fn tag(&self, frame: Frame) -> Tag {
        Tag(self.tag_word(frame).load(Ordering::Relaxed))
    }

    pub fn set_tag(&self, frame: Frame, tag: Tag) {
        self.tag_word(frame).store(tag.0, Ordering::Relaxed);
    }

    fn index(&self, frame: u64) -> usize {
        (frame - self.origin) as usize
    }

    /// Gives reserved frames to the allocator.
    pub fn give(&self, frames: Range<u64>) {
        let states = (frames.start - self.range.start) as usize..(frames.end - self.range.start) as usize;
        self.states[states].iter().for_each(|state| {
            let old = state.swap(FREE, Ordering::Relaxed);
            assert_eq!(old, RESERVED, "only what is reserved can be given");
        });
        self.buddy.lock().put_range(self.index(frames.start), self.index(frames.end));
    }

    pub fn free_count(&self) -> usize {
        self.buddy.lock().free_count()
    }

    /// Up to `count` single frames, still in state free, of as few blocks as there are.
    pub fn take(&self, count: usize, mut each: impl FnMut(Frame)) {
        let mut buddy = self.buddy.lock();
        let (mut left, mut most) = (count, MAX_ORDER);
        while let Some(order) = left.checked_ilog2().map(|order| most.min(order as usize)) {
            match buddy.take(order) {
                Some(first) => {
                    (first..first + (1 << order)).for_each(|index| each(Frame(self.origin + index as u64)));
                    left -= 1 << order;
                }
                None if order == 0 => return,
                None => most = order - 1,
            }
        }
    }

    /// Frames in state free go back into the buddy.
    pub fn put(&self, frames: impl Iterator<Item = Frame>) {
        let mut buddy = self.buddy.lock();
        frames.for_each(|frame| buddy.put(self.index(frame.0), 0));
    }

    pub fn take_run(&self, order: usize) -> Option<Frame> {
        let index = self.buddy.lock().take(order)?;
        let first = Frame(self.origin + index as u64);
        self.each_of_run(first, order, |state| {
            let old = state.swap(RUN, Ordering::Relaxed);
            assert_eq!(old, FREE, "free list is corrupt at {first:?}");
        });
        Some(first)
    }

    pub fn put_run(&self, first: Frame, order: usize) {
        self.each_of_run(first, order, |state| {
            let old = state.swap(FREE, Ordering::Relaxed);
            assert_eq!(old, RUN, "double or foreign free of run {first:?}");
        });
        self.buddy.lock().put(self.index(first.0), order);
    }

    fn each_of_run(&self, first: Frame, order: usize, each: impl Fn(&AtomicU32)) {
        let start = (first.0 - self.range.start) as usize;
        self.states[start..start + (1 << order)].iter().for_each(each);
    }

    /// The first user of a frame that just came out of the free lists. Relaxed: the frame is the
    /// caller's alone until it publishes it.
    pub fn first_user(&self, frame: Frame) {
        let state = self.state(frame);
        assert_eq!(state.load(Ordering::Relaxed), FREE, "free list is corrupt at {frame:?}");
        state.store(1, Ordering::Relaxed);
    }

    pub fn retain(&self, frame: Frame) {
        // Relaxed: a new user can only come from one that is there already (as with Arc).
        let old = self.state(frame).fetch_add(1, Ordering::Relaxed);
        assert!((1..MAX_COUNT).contains(&old), "{frame:?} is used but not counted ({old:#x})");
    }

    /// True if that was the last user: the frame is in state free now and the caller's.
    pub fn release(&self, frame: Frame) -> bool {
        // Release: pairs with the Acquire fence below, so that what the other users did with the
        // frame happened before its next boot generation.
        let old = self.state(frame).fetch_sub(1, Ordering::Release);
        assert!((1..=MAX_COUNT).contains(&old), "double free of {frame:?} ({old:#x})");
        if old == 1 {
            fence(Ordering::Acquire);
        }
        old == 1
    }

    pub fn count(&self, frame: Frame) -> u32 {
        match self.state(frame).load(Ordering::Relaxed) {
            count @ 0..=MAX_COUNT => count,
            _ => 0,
        }
    }

    pub fn is_lent(&self, frame: Frame) -> bool {
        self.state(frame).load(Ordering::Relaxed) & LENT == LENT
    }

    pub fn lend(&self, frame: Frame, to: KernelId) {
        // Release: the message that carries the frame away orders it for the receiver; Relaxed on
        // failure, which panics.
        let done = self.state(frame).compare_exchange(1, lent_to(to), Ordering::Release, Ordering::Relaxed);
        assert!(done.is_ok(), "{frame:?} is lent while it has {done:?} users here");
    }

    /// False if the frame was not lent to `from`.
    pub fn take_home(&self, frame: Frame, from: KernelId) -> bool {
        // Acquire: pairs with the release of the message that brought the frame back.
        self.state(frame).compare_exchange(lent_to(from), FREE, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Frames that are lent to `kernel`.
    pub fn all_lent_to(&self, kernel: KernelId) -> impl Iterator<Item = Frame> + '_ {
        let lent = lent_to(kernel);
        let all = self.range.clone().zip(self.states);
        all.filter(move |(_, state)| state.load(Ordering::Relaxed) == lent).map(|(frame, _)| Frame(frame))
    }

    /// The lent frame comes back with something in it: it is in use again, by one user.
    pub fn adopt(&self, frame: Frame) {
        // Acquire: as in `take_home`.
        let old = self.state(frame).swap(1, Ordering::Acquire);
        assert!(old & LENT == LENT, "{frame:?} is adopted but was not lent ({old:#x})");
    }
}
