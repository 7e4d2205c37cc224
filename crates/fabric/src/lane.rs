//! A lane: the ring through which one kernel sends to another, in the receiver's memory.
//!
//! # Problem
//!
//! A message should cost one cache-line transfer to the receiver and one back. A ring with shared
//! head and tail indices needs more: the index lines bounce between both sides for every message.
//!
//! # Idea
//!
//! A slot is one cache line and says itself what is in it. Its first word holds a *turn*, which grows by
//! two with every lap around the ring: odd, there is a message to be read in this lap; even, it may be written
//! in that lap. Each side keeps its own position, in its own memory, and never looks at the other's.
//!
//! ```text
//!              slot 0        slot 1        slot 2        slot 3
//!   turn         3             1             1             0
//!            full, lap 1   full, lap 0   full, lap 0   free, lap 0
//!                  not read yet ^ receiver                  ^ not written yet
//! ```
//!
//! The receiver knows by the turn alone whether a slot is new: in lap 1 it waits for a 3, and a 1 left
//! over from lap 0 is not that. So it need not mark every slot it has read. It marks the last slot of
//! every *batch* (a quarter of the ring) when it has passed it, and the sender, which may write up to
//! `limit`, looks at these slots only. In between, both just run: the receiver reads lines and the
//! sender overwrites them.
//!
//! A message longer than a slot takes several in a row; turn and length stand in the first. The sender
//! fills the others before it publishes the first, so the receiver sees all or nothing.
//!
//! # Several CPUs on a side
//!
//! The CPUs of a sending cluster take a ticket: they advance the private `tail` by compare-exchange
//! and then own the slots they passed over. They may publish out of order; the receiver waits at
//! the first unpublished slot, so messages arrive in ticket order. On the receiving side one CPU at a
//! time holds `claimed`; the others do not wait for it, they have no business there meanwhile.
//!
//! Zeroed memory is an empty lane. A turn repeats after 2^47 laps: years of nothing but messages.

use crate::sync::{AtomicBool, AtomicU64, Ordering, UnsafeCell};
use alloc::vec::Vec;
use core::ptr::NonNull;

/// Bytes of a message in each slot.
pub const PAYLOAD: usize = 56;

const LEN_BITS: u32 = 16;

/// One cache line of a lane.
#[repr(C, align(64))]
pub struct Slot {
    /// Turn above, length of the message in the low `LEN_BITS`.
    word: AtomicU64,
    payload: UnsafeCell<[u8; PAYLOAD]>,
}

impl Slot {
    /// An empty slot, as a receiver must find all of them when it attaches.
    #[allow(clippy::new_without_default)] // Loom's atomics are not const; a default invites arrays of it.
    pub fn new() -> Self {
        Slot { word: AtomicU64::new(0), payload: UnsafeCell::new([0; PAYLOAD]) }
    }
}

/// The lane has no room now. It will: the receiver never waits before it frees a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// What both ends know: where the slots are.
struct Ring {
    slots: NonNull<Slot>,
    capacity: u64,
}

impl Ring {
    fn slot(&self, position: u64) -> &Slot {
        let index = (position & (self.capacity - 1)) as usize;
        // SAFETY: `index` < capacity, and whoever attached vouched for that many slots for as
        // long as this ring exists. Slots are only accessed through atomics and `UnsafeCell`.
        unsafe { self.slots.add(index).as_ref() }
    }

    /// The turn of a slot that may be written at `position`; one more means that it may be read.
    fn writable_turn(&self, position: u64) -> u64 {
        (position >> self.capacity.trailing_zeros()) * 2
    }

    /// How many slots the receiver gives back at a time.
    fn batch(&self) -> u64 {
        1 << self.capacity.trailing_zeros().saturating_sub(2)
    }

    /// The largest message that one `try_send` takes. Half the lane, so that a long message does not
    /// have to wait until the lane is quite empty.
    fn max_message(&self) -> usize {
        let half = (self.capacity / 2).max(1) as usize;
        (half * PAYLOAD).min((1 << LEN_BITS) - 1)
    }
}

fn check_region(slots: NonNull<Slot>, count: usize) -> Ring {
    assert!(count.is_power_of_two() && count <= u32::MAX as usize, "a lane has 2^n slots, not {count}");
    Ring { slots, capacity: count as u64 }
}

fn slots_for(len: usize) -> u64 {
    len.div_ceil(PAYLOAD).max(1) as u64
}

/// Copies at most a payload: mostly a whole one, which then takes no call.
///
/// # Safety
///
/// As for [`core::ptr::copy_nonoverlapping`], of `len` bytes.
#[inline]
unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    type Whole = [u64; PAYLOAD / 8];
    // SAFETY: as the caller says.
    unsafe {
        match len {
            PAYLOAD => to.cast::<Whole>().write_unaligned(from.cast::<Whole>().read_unaligned()),
            _ => core::ptr::copy_nonoverlapping(from, to, len),
        }
    }
}

fn turn(word: u64) -> u64 {
    word >> LEN_BITS
}

fn word(turn: u64, len: usize) -> u64 {
    turn << LEN_BITS | len as u64
}

/// The sending end of a lane. Its cursors are in the sender's memory.
pub struct Sender {
    ring: Ring,
    /// The next ticket: position of the first slot that nobody has claimed.
    tail: AtomicU64,
    /// Positions below may be written: whatever was there a lap ago has been read.
    limit: AtomicU64,
}

// SAFETY: the raw pointer is to slots that any thread may reach; a slot's payload is written only by
// the holder of its ticket and read only by the holder of `claimed`, ordered by the slot's word.
unsafe impl Send for Sender {}
// SAFETY: as above.
unsafe impl Sync for Sender {}

impl Sender {
    /// # Safety
    ///
    /// `slots` points to `count` slots that stay valid as long as the sender, that were zero (or
    /// [`Slot::new`]) when the receiver attached, and that no other `Sender` has ever used since.
    pub unsafe fn attach(slots: NonNull<Slot>, count: usize) -> Self {
        let ring = check_region(slots, count);
        let limit = AtomicU64::new(ring.capacity);
        Sender { ring, tail: AtomicU64::new(0), limit }
    }

    /// Bytes of the longest message that the lane takes.
    pub fn max_message(&self) -> usize {
        self.ring.max_message()
    }

    /// Puts `bytes` into the lane, or does nothing. Never waits.
    ///
    /// # Panics
    ///
    /// If `bytes` is longer than [`Self::max_message`].
    #[inline]
    pub fn try_send(&self, bytes: &[u8]) -> Result<(), Full> {
        let count = slots_for(bytes.len());
        assert!(bytes.len() <= self.max_message(), "message of {} bytes", bytes.len());
        let first = self.claim(count)?;
        let (head, rest) = bytes.split_at(bytes.len().min(PAYLOAD));
        for (index, chunk) in rest.chunks(PAYLOAD).enumerate() {
            self.write(first + 1 + index as u64, chunk);
        }
        self.write(first, head);
        let word = word(self.ring.writable_turn(first) + 1, bytes.len());
        // Release: publishes the payload of all slots; pairs with the Acquire in `Receiver::front`.
        self.ring.slot(first).word.store(word, Ordering::Release);
        Ok(())
    }

    /// Takes the ticket for `count` slots and returns the position of the first.
    #[inline]
    fn claim(&self, count: u64) -> Result<u64, Full> {
        let mut first = self.tail.load(Ordering::Relaxed);
        loop {
            let end = first + count;
            // Acquire pairs with the Release in `look_ahead` by another CPU of this cluster: what
            // it learned about free slots is then true for this CPU as well.
            if end > self.limit.load(Ordering::Acquire) && !self.look_ahead(end) {
                return Err(Full);
            }
            // Relaxed: a ticket orders nothing but itself.
            match self.tail.compare_exchange_weak(first, end, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Ok(first),
                Err(now) => first = now,
            }
        }
    }

    /// Moves `limit` on by the batches that the receiver has passed; true if it gets to `end`.
    #[cold]
    fn look_ahead(&self, end: u64) -> bool {
        loop {
            // Acquire as in `claim`.
            let limit = self.limit.load(Ordering::Acquire);
            if end <= limit {
                return true;
            }
            let next = limit + self.ring.batch();
            // Acquire pairs with the Release in `Receiver::pass`: the receiver has read all slots
            // of the batch when we write them again.
            let word = self.ring.slot(next - 1).word.load(Ordering::Acquire);
            if turn(word) != self.ring.writable_turn(next - 1) {
                return false;
            }
            self.limit.fetch_max(next, Ordering::Release);
        }
    }

    #[inline]
    fn write(&self, position: u64, chunk: &[u8]) {
        self.ring.slot(position).payload.with_mut(|payload| {
            let (from, to) = (chunk.as_ptr(), payload.cast::<u8>());
            // SAFETY: this CPU holds the ticket of `position` and the receiver has freed the slot,
            // so nobody else touches the payload. `chunk` is at most PAYLOAD bytes of our own memory.
            unsafe { copy(from, to, chunk.len()) }
        });
    }
}

/// The receiving end of a lane.
pub struct Receiver {
    ring: Ring,
    /// Position of the next message; written by the CPU that holds `claimed`.
    head: AtomicU64,
    claimed: AtomicBool,
}

// SAFETY: see `Sender`; payloads are read only by the CPU that holds `claimed`.
unsafe impl Send for Receiver {}
// SAFETY: as above.
unsafe impl Sync for Receiver {}

impl Receiver {
    /// # Safety
    ///
    /// `slots` points to `count` slots that stay valid as long as the receiver, that are zero (or
    /// [`Slot::new`]), and that no other `Receiver` uses.
    pub unsafe fn attach(slots: NonNull<Slot>, count: usize) -> Self {
        let ring = check_region(slots, count);
        Receiver { ring, head: AtomicU64::new(0), claimed: AtomicBool::new(false) }
    }

    /// Whether a message is there. Cheap: one read of a line that only changes when one arrives.
    #[inline]
    pub fn pending(&self) -> bool {
        self.front(self.head.load(Ordering::Relaxed)).is_some()
    }

    /// Replaces `buffer` by the next message. False if there is none, or if another CPU is receiving.
    #[inline]
    pub fn try_recv(&self, buffer: &mut Vec<u8>) -> bool {
        // Acquire pairs with the Release at the end: `head` and the buffers of this side are ours.
        let claim = || self.claimed.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        if !self.pending() || claim().is_err() {
            return false;
        }
        let position = self.head.load(Ordering::Relaxed);
        let found = self.front(position).filter(|len| *len <= self.ring.max_message());
        if let Some(len) = found {
            self.take(position, len, buffer);
        }
        self.claimed.store(false, Ordering::Release);
        found.is_some()
    }

    /// The length of the message at `position` if it is published.
    #[inline]
    fn front(&self, position: u64) -> Option<usize> {
        // Acquire pairs with the Release in `Sender::try_send`.
        let word = self.ring.slot(position).word.load(Ordering::Acquire);
        let len = word as usize & ((1 << LEN_BITS) - 1);
        (turn(word) == self.ring.writable_turn(position) + 1).then_some(len)
    }

    #[inline]
    fn take(&self, position: u64, len: usize, buffer: &mut Vec<u8>) {
        buffer.clear();
        buffer.reserve(len);
        let end = position + slots_for(len);
        let (mut done, to) = (0, buffer.as_mut_ptr());
        for position in position..end {
            let chunk = (len - done).min(PAYLOAD);
            self.ring.slot(position).payload.with(|payload| {
                // SAFETY: the slot belongs to a published message and this CPU holds `claimed`, so
                // nobody writes it until we pass it; `chunk` is at most PAYLOAD, and the buffer has room for `len` bytes.
                unsafe { copy(payload.cast::<u8>(), to.add(done), chunk) }
            });
            done += chunk;
        }
        // SAFETY: so many have been written.
        unsafe { buffer.set_len(len) };
        self.head.store(end, Ordering::Relaxed);
        self.pass(position, end);
    }

    /// Marks the batches that end between `from` and `to` as free for the next lap.
    #[inline]
    fn pass(&self, from: u64, to: u64) {
        let batch = self.ring.batch();
        let mut end = (from | (batch - 1)) + 1;
        while end <= to {
            let word = word(self.ring.writable_turn(end - 1) + 2, 0);
            // Release: our reads of the payloads are over; pairs with the Acquire in `look_ahead`.
            self.ring.slot(end - 1).word.store(word, Ordering::Release);
            end += batch;
        }
    }
}
