//! The ring of one CPU: words of 64 bits, written by that CPU, read by the host.
//!
//! Both count words since the beginning; the ring keeps word N at N modulo its capacity. The writer puts a record in and then says so (`head`, Release); the
//! reader takes records out and then says so (`tail`, Release). So each sees the other's words whole:
//!
//! ```text
//!           tail            head
//!   --------|===============|--------------
//!           to be read       to be written
//! ```
//!
//! A record is its header (point, length, time) and its words. None lies across the border of a block, an eighth of the ring, which ends with
//! a filler instead; so a reader that was overtaken goes on at a border.
//!
//! If the ring is full, the writer loses the new event (and counts it), or, if it was told to overwrite, the oldest: then it does not look at `tail`, and a reader
//! that has copied words looks at `head` once more, and drops what may have been written meanwhile.

use crate::Point;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering::*};

/// Words before the records.
pub const RING_HEADER_WORDS: usize = 64;
const MAGIC: u64 = u64::from_le_bytes(*b"COBRING1");
const DIRECTORY_MAGIC: u64 = u64::from_le_bytes(*b"COBTRACE");

// Words of the header. Those that change are in cache lines of their own.
const AT_MAGIC: usize = 0;
const AT_CAPACITY: usize = 1;
const AT_OWNER: usize = 2;
const AT_OVERWRITE: usize = 3;
const AT_HEAD: usize = 8;
const AT_LOST: usize = 9;
const AT_TAIL: usize = 16;

const TIME_BITS: u32 = 48;
const FILLER: u8 = u8::MAX;

/// What stands before a record: its point, its length and its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// None: a filler.
    pub point: Option<Point>,
    /// Words of the record, with this one.
    pub words: usize,
    /// Nanoseconds since the machine started, modulo 2^48 (78 hours).
    pub time: u64,
}

impl Header {
    fn encode(number: u8, words: usize, time: u64) -> u64 {
        u64::from(number) | (words as u64 & 0xff) << 8 | time << (64 - TIME_BITS)
    }

    /// None if no record begins so.
    pub fn decode(word: u64) -> Option<Header> {
        let (number, words) = (word as u8, usize::from((word >> 8) as u8));
        let point = Point::from_number(number);
        (words > 0 && (point.is_some() || number == FILLER)).then_some(Header {
            point,
            words,
            time: word >> (64 - TIME_BITS),
        })
    }
}

/// Whose a ring is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The kernel.
    pub kernel: u16,
    /// Which boot of that kernel.
    pub boot_generation: u32,
    /// The CPU of the machine.
    pub cpu: u16,
    /// Words for records.
    pub capacity: u64,
    /// The oldest events are lost when it is full, not the newest.
    pub overwrite: bool,
}

/// The writer's end.
pub struct Ring {
    header: &'static [AtomicU64; RING_HEADER_WORDS],
    records: &'static [AtomicU64],
    mask: u64,
    /// Words of a block, a power of two.
    block: u64,
    overwrite: bool,
}

impl Ring {
    /// A ring of `records`, which are a power of two of at least 2048, with a header of [`RING_HEADER_WORDS`]. Both are zero. None: they are not so many.
    pub fn new(header: &'static [AtomicU64], records: &'static [AtomicU64], layout: Layout) -> Option<Ring> {
        let capacity = layout.capacity;
        let header = header.first_chunk()?;
        if records.len() as u64 != capacity || !is_capacity(capacity) {
            return None;
        }
        let owner = u64::from(layout.kernel) | u64::from(layout.cpu) << 16 | u64::from(layout.boot_generation) << 32;
        header[AT_CAPACITY].store(capacity, Relaxed);
        header[AT_OWNER].store(owner, Relaxed);
        header[AT_OVERWRITE].store(layout.overwrite.into(), Relaxed);
        header[AT_MAGIC].store(MAGIC, Release);
        Some(Ring { header, records, mask: capacity - 1, block: capacity / 8, overwrite: layout.overwrite })
    }

    /// So many words from number `from` on, which lie in one block.
    #[inline(always)]
    fn words(&self, from: u64, count: u64) -> &[AtomicU64] {
        let from = (from & self.mask) as usize;
        &self.records[from..from + count as usize]
    }

    /// Keeps a record, or counts it as lost. Only the CPU that the ring is of calls it, and nothing that could call it interrupts it.
    #[inline]
    pub fn push(&self, point: Point, time: u64, fields: &[u64]) {
        let head = self.header[AT_HEAD].load(Relaxed);
        let needed = 1 + fields.len() as u64;
        let fits = (head & (self.block - 1)) + needed <= self.block && self.has_room(head + needed);
        if !fits || self.header[AT_LOST].load(Relaxed) & LOST_COUNT != 0 {
            return self.push_otherwise(point, time, fields);
        }
        self.put(head, point, time, fields);
        self.header[AT_HEAD].store(head + needed, Release);
    }

    /// Whether the reader has taken what the ring has no room for if it is written up to `end`.
    #[inline(always)]
    fn has_room(&self, end: u64) -> bool {
        self.overwrite || end - self.header[AT_TAIL].load(Acquire) <= self.mask + 1
    }

    /// A record at word `at`; it lies in one block.
    #[inline(always)]
    fn put(&self, at: u64, point: Point, time: u64, fields: &[u64]) {
        if let [header, rest @ ..] = self.words(at, 1 + fields.len() as u64) {
            header.store(Header::encode(point as u8, 1 + fields.len(), time), Relaxed);
            rest.iter().zip(fields).for_each(|(word, field)| word.store(*field, Relaxed));
        }
    }

    /// The same at the end of a block, in a full ring, or after events that were lost.
    #[cold]
    #[inline(never)]
    fn push_otherwise(&self, point: Point, time: u64, fields: &[u64]) {
        let head = self.header[AT_HEAD].load(Relaxed);
        let lost = self.header[AT_LOST].load(Relaxed) & LOST_COUNT;
        let report = if lost > 0 { 2 } else { 0 };
        let needed = 1 + fields.len() as u64 + report;
        let left = self.block - head % self.block;
        let filler = if needed > left { left } else { 0 };
        let end = head + filler + needed;
        if !self.has_room(end) {
            // The count is of those that no record tells of yet; above it is that of all.
            let lost = self.header[AT_LOST].load(Relaxed);
            return self.header[AT_LOST].store(lost + 1 + (1 << 32), Relaxed);
        }
        let mut at = head;
        if filler > 0 {
            self.fill(at, filler, time);
            at += filler;
        }
        if report > 0 {
            let words = self.words(at, 2);
            words[0].store(Header::encode(Point::LostEvents as u8, 2, time), Relaxed);
            words[1].store(lost, Relaxed);
            self.header[AT_LOST].fetch_and(!LOST_COUNT, Relaxed);
            at += 2;
        }
        self.put(at, point, time, fields);
        self.header[AT_HEAD].store(end, Release);
    }

    /// The rest of a block. A filler has as many words as its header says, or the 255 that this can say; several follow each other.
    fn fill(&self, from: u64, words: u64, time: u64) {
        let mut at = from;
        while at < from + words {
            let part = (from + words - at).min(0xff);
            self.words(at, 1)[0].store(Header::encode(FILLER, part as usize, time), Relaxed);
            at += part;
        }
    }
}

const LOST_COUNT: u64 = 0xffff_ffff;

fn is_capacity(words: u64) -> bool {
    words.is_power_of_two() && (2048..1 << 40).contains(&words)
}

/// Memory with a ring in it, as the reader gets at it: the words of the header, and those of the records behind them. The words of one call may be read in any order, but before those of the next.
pub trait RingMemory {
    /// Reads words from number `from` on; None if there are none.
    fn read(&self, from: usize, words: &mut [u64]) -> Option<()>;
    /// Writes word `at`.
    fn write(&self, at: usize, word: u64) -> Option<()>;
}

/// The reader's end.
pub struct Reader<M> {
    memory: M,
    layout: Layout,
    tail: u64,
}

impl<M: RingMemory> Reader<M> {
    /// None if there is no ring in `memory`.
    pub fn new(memory: M) -> Option<Self> {
        let mut header = [0; RING_HEADER_WORDS];
        memory.read(0, &mut header)?;
        let (owner, capacity) = (header[AT_OWNER], header[AT_CAPACITY]);
        if header[AT_MAGIC] != MAGIC || !is_capacity(capacity) {
            return None;
        }
        memory.read(RING_HEADER_WORDS + capacity as usize - 1, &mut [0])?;
        let layout = Layout {
            kernel: owner as u16,
            cpu: (owner >> 16) as u16,
            boot_generation: (owner >> 32) as u32,
            capacity,
            overwrite: header[AT_OVERWRITE] != 0,
        };
        Some(Reader { memory, layout, tail: header[AT_TAIL] })
    }

    /// Whose it is.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Events that were lost since the beginning because the ring was full.
    pub fn lost(&self) -> u64 {
        self.header(AT_LOST) >> 32
    }

    /// Whether the memory is still that of the ring: its kernel may have been booted again since.
    fn is_there(&self) -> bool {
        let mut header = [0; AT_OWNER + 1];
        let owner = u64::from(self.layout.kernel)
            | u64::from(self.layout.cpu) << 16
            | u64::from(self.layout.boot_generation) << 32;
        self.memory.read(0, &mut header).is_some() && header[AT_MAGIC] == MAGIC && header[AT_OWNER] == owner
    }

    fn header(&self, at: usize) -> u64 {
        // Twice the same: a copy need not have been made in one piece.
        loop {
            let mut twice = [[0]; 2];
            twice.iter_mut().for_each(|word| _ = self.memory.read(at, word));
            if twice[0] == twice[1] {
                return twice[0][0];
            }
        }
    }

    /// What an overwriting writer that is at `head` leaves to be read.
    fn oldest(&self, head: u64) -> u64 {
        let block = self.layout.capacity / 8;
        match self.layout.overwrite && head > self.layout.capacity - block {
            // A block is left for the record that is written just now.
            true => (head + block - self.layout.capacity).next_multiple_of(block),
            false => 0,
        }
    }

    /// Adds to `taken` the words that have been written since the last call: whole records, fillers too. Returns how many words an overwriting
    /// writer has taken back before they could be read.
    pub fn take(&mut self, taken: &mut Vec<u64>) -> u64 {
        let capacity = self.layout.capacity;
        if !self.is_there() {
            return 0;
        }
        let head = self.header(AT_HEAD);
        if head <= self.tail {
            return 0;
        }
        let from = self.tail.max(self.oldest(head)).min(head);
        let start = taken.len();
        let mut at = from;
        let mut piece = [0; 512];
        while at < head {
            let place = at & (capacity - 1);
            let words = (head - at).min(capacity - place).min(piece.len() as u64) as usize;
            let piece = &mut piece[..words];
            if self.memory.read(RING_HEADER_WORDS + place as usize, piece).is_none() {
                break;
            }
            taken.extend_from_slice(piece);
            at += words as u64;
        }
        // What may have been overwritten while it was copied.
        let valid = self.oldest(self.header(AT_HEAD)).clamp(from, at);
        taken.drain(start..start + (valid - from) as usize);
        let missed = valid - self.tail;
        self.tail = at;
        if !self.layout.overwrite && self.is_there() {
            self.memory.write(AT_TAIL, at);
        }
        missed
    }
}

/// Set in the CPU's number of a [`Layout`]: the ring has the CPU's samples (`cob profile`), which are taken while it may be in the middle of writing to its other ring.
pub const SAMPLES: u16 = 1 << 15;

/// Physical address of the page on the board where the host finds each kernel's directory (x86-64): word K is [`Directory::word`] of kernel K; 0: it has none.
pub const DIRECTORIES_PHYS: u64 = 0x14_f000;

/// Physical address of the word in the same page that counts how often the host has asked for a sample of every CPU. The host adds one before each of its interrupts.
pub const ASKED_PHYS: u64 = DIRECTORIES_PHYS + 511 * 8;

/// Where the rings of one kernel lie: a page of its memory. A magic word, a count, and for each ring the physical addresses of header and records.
pub struct Directory;

impl Directory {
    /// Rings that a page has room for.
    pub const MOST_RINGS: usize = 255;

    /// Writes a directory into a page of zeroes.
    pub fn write(page: &[AtomicU64], rings: impl Iterator<Item = [u64; 2]>) {
        let mut count = 0;
        for (slot, [header, records]) in page[2..].chunks_exact(2).zip(rings) {
            slot[0].store(header, Relaxed);
            slot[1].store(records, Relaxed);
            count += 1;
        }
        page[1].store(count, Relaxed);
        page[0].store(DIRECTORY_MAGIC, Release);
    }

    /// The word on the board: the physical address of the page, and in the bits that are zero there which boot of the kernel it is of. So a reader sees that another
    /// boot has put its directory into the same page.
    pub fn word(phys: u64, boot_generation: u32) -> u64 {
        phys | u64::from(boot_generation) & 0xfff
    }

    /// The physical address of the page that such a word names.
    pub fn address(word: u64) -> u64 {
        word & !0xfff
    }

    /// Reads one: the physical addresses of each ring's header and records. None if there is none.
    pub fn read(page: &[u64]) -> Option<impl Iterator<Item = [u64; 2]> + '_> {
        let count = *page.get(1)? as usize;
        (page[0] == DIRECTORY_MAGIC).then(|| page[2..].chunks_exact(2).take(count).map(|slot| [slot[0], slot[1]]))
    }
}
