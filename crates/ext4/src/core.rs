//! What is in memory of a file system that is mounted: blocks of metadata, the running transaction, and what of the space is promised. It waits for nothing and knows no device.
//!
//! A block of metadata is in one state after the other:
//!
//! | state | the newest bytes are | it may be forgotten |
//! |---|---|---|
//! | clean | at home on the disk | yes |
//! | running | in memory only, changed by operations | no |
//! | committing | on their way to the journal; a change makes it running again, with a copy | no |
//! | committed | in the journal; a checkpoint writes them home | no |

use crate::{superblock::OnError, Bytes, Error, Result, Superblock};
use ::core::{cell::Cell, mem, ops::Range};
use alloc::{
    collections::{BTreeMap, BTreeSet},
    vec::Vec,
};

/// What an operation has changed.
#[derive(Default)]
pub(crate) struct Changes {
    /// New contents of blocks of metadata.
    pub blocks: BTreeMap<u64, Vec<u8>>,
    /// Blocks that were metadata and are free now: nothing older may be replayed over what they become.
    pub revoked: Vec<u64>,
    /// Blocks that nobody may use before this has been committed.
    pub freed: Vec<Range<u64>>,
    /// Blocks that were promised ([`Core::claim`]) and are in use now.
    pub settled: Vec<Range<u64>>,
    /// What is added to the numbers of free blocks and inodes.
    pub free_blocks: i64,
    pub free_inodes: i64,
    /// Inodes that go to the list of orphans, and that leave it, in order.
    pub orphans: Vec<(u32, bool)>,
}

/// A block's bytes as the cache and transactions share them.
pub(crate) fn shared(bytes: Vec<u8>) -> Bytes {
    Bytes::new(bytes)
}

/// Blocks that one more name or attribute takes at most: leaves and nodes of an index that are split, the file's own, and where those are.
const NAME_BLOCKS: u64 = 16;

struct Cached {
    bytes: Bytes,
    /// It has been looked at whether it can be.
    holds: Cell<bool>,
    /// Since the hand came by.
    used: Cell<bool>,
}

/// A transaction: changes that become lasting together.
#[derive(Default)]
struct Running {
    blocks: BTreeSet<u64>,
    revoked: BTreeSet<u64>,
    freed: Vec<Range<u64>>,
    /// Something has been changed in it.
    used: bool,
}

/// A transaction that goes to the journal.
pub(crate) struct Committing {
    /// Its number.
    pub id: u32,
    /// Blocks as they are to be.
    pub blocks: Vec<(u64, Bytes)>,
    /// See [`Changes::revoked`].
    pub revoked: Vec<u64>,
    freed: Vec<Range<u64>>,
}

/// See the module.
pub(crate) struct Core {
    pub superblock: Superblock,
    cache: BTreeMap<u64, Cached>,
    /// Blocks that are on their way from the disk.
    loading: BTreeMap<u64, u64>,
    loads: u64,
    hand: u64,
    running: Running,
    /// The number of the running transaction.
    id: u32,
    /// The number of the newest transaction that is in the journal and stays there.
    done: u32,
    committing: BTreeSet<u64>,
    committed: BTreeMap<u64, Bytes>,
    /// Blocks in memory, at most, if all are clean.
    kept: usize,
    /// Blocks of a transaction at most.
    most: usize,
    /// Blocks that are free in the bitmaps and may not be used: freed ones that are not committed, and those that are promised; first and end.
    busy: BTreeMap<u64, u64>,
    /// Freed blocks among those.
    pending: u64,
    /// Blocks that pages in memory will need.
    reserved: u64,
    /// Orphans, the newest last; the head of the list on the disk is the last of these.
    orphans: Vec<u32>,
    /// Nobody changes anything: mounted so, or damage or a failed journal has stopped it.
    pub read_only: bool,
    /// The journal could not be written, or damage was found: nothing is ever written again. [`Core::read_only`] is set, too.
    failed: bool,
    /// What damage does.
    pub on_error: OnError,
    /// Errors that the superblock does not tell of yet, and what the last of them was.
    pub errors: (u32, &'static str),
}

impl Core {
    pub fn new(superblock: Superblock, memory: usize) -> Core {
        Core {
            on_error: superblock.on_error,
            errors: (0, ""),
            kept: (memory / 4 / superblock.block_bytes as usize).max(64),
            superblock,
            cache: BTreeMap::new(),
            loading: BTreeMap::new(),
            loads: 0,
            hand: 0,
            running: Running::default(),
            id: 1,
            done: 0,
            committing: BTreeSet::new(),
            committed: BTreeMap::new(),
            most: 0,
            busy: BTreeMap::new(),
            pending: 0,
            reserved: 0,
            orphans: Vec::new(),
            read_only: true,
            failed: false,
        }
    }

    /// From now on it may be changed. `id`: of the first transaction; `most`: blocks of one.
    pub fn open(&mut self, id: u32, most: usize) {
        (self.id, self.done) = (id, id.wrapping_sub(1));
        (self.most, self.read_only) = (most, false);
    }

    /// An error was found, which the superblock is to tell of.
    pub fn note_error(&mut self, what: &'static str) {
        self.errors = (self.errors.0.saturating_add(1), what);
    }

    /// The journal could not be written, or there is damage after which nothing is to be.
    pub fn fail(&mut self) {
        (self.failed, self.read_only) = (true, true);
    }

    /// See [`Core::fail`].
    pub fn has_failed(&self) -> bool {
        self.failed
    }

    /// See [`crate::handle::Handle::checked`].
    pub fn cached(&self, block: u64, what: &'static str, holds: impl FnOnce(&[u8]) -> bool) -> Result<&[u8]> {
        if block >= self.superblock.blocks {
            return Err(Error::Corrupt("a block past the end"));
        }
        let cached = self.cache.get(&block).ok_or(Error::Missing(block))?;
        cached.used.set(true);
        if !what.is_empty() && !cached.holds.get() {
            if !holds(&cached.bytes) {
                return Err(Error::Corrupt(what));
            }
            cached.holds.set(true);
        }
        Ok(&cached.bytes)
    }

    /// Which blocks the caller is to read, and under which number: `block` and those around it in `window` that are not in memory. None: somebody else reads `block`.
    pub fn begin_load(&mut self, block: u64, window: Range<u64>) -> Option<(Range<u64>, u64)> {
        if self.loading.contains_key(&block) {
            return None;
        }
        let is_absent = |block: &u64| !self.loading.contains_key(block) && !self.cache.contains_key(block);
        let start = (window.start..block).rev().take_while(is_absent).last().unwrap_or(block);
        let end = (block + 1..window.end).take_while(is_absent).last().unwrap_or(block) + 1;
        self.loads += 1;
        self.loading.extend((start..end).map(|block| (block, self.loads)));
        Some((start..end, self.loads))
    }

    /// Whether a block is in memory.
    pub fn has(&self, block: u64) -> bool {
        self.cache.contains_key(&block)
    }

    /// Whether somebody reads it.
    pub fn is_loading(&self, block: u64) -> bool {
        self.loading.contains_key(&block)
    }

    /// That load has come to its end.
    pub fn end_load(&mut self, block: u64, load: u64) {
        if self.loading.get(&block) == Some(&load) {
            self.loading.remove(&block);
        }
    }

    /// A block that was read. What is here already is newer, and so was what was written since the load began.
    pub fn insert(&mut self, block: u64, bytes: Vec<u8>, load: u64) {
        if self.loading.get(&block) != Some(&load) {
            return;
        }
        self.make_room();
        let cached = Cached { bytes: shared(bytes), holds: Cell::new(false), used: Cell::new(true) };
        self.cache.entry(block).or_insert(cached);
    }

    fn is_clean(&self, block: u64) -> bool {
        !self.running.blocks.contains(&block)
            && !self.committing.contains(&block)
            && !self.committed.contains_key(&block)
    }

    /// Forgets a block, unless it has been changed: somebody has changed it on the disk.
    pub fn forget_clean(&mut self, block: u64) {
        if self.is_clean(block) {
            self.cache.remove(&block);
        }
    }

    /// Forgets clean blocks that were not used lately, if there are many.
    fn make_room(&mut self) {
        let changed = self.running.blocks.len() + self.committed.len();
        if self.cache.len().saturating_sub(changed) <= self.kept {
            return;
        }
        // Goes on where it stopped; a few at a time.
        let mut looked = 0;
        let mut gone = Vec::new();
        for (block, cached) in self.cache.range(self.hand..) {
            looked += 1;
            if !cached.used.replace(false) && self.is_clean(*block) {
                gone.push(*block);
            }
            self.hand = *block + 1;
            if looked == 64 || gone.len() == 4 {
                break;
            }
        }
        if looked < 64 && gone.len() < 4 {
            self.hand = 0;
        }
        gone.iter().for_each(|block| drop(self.cache.remove(block)));
    }

    /// Makes all of an operation's changes, or none. [`Error::Full`]: the running transaction must be committed first.
    pub fn apply(&mut self, changes: Changes) -> Result<()> {
        if changes.blocks.is_empty() && changes.revoked.is_empty() {
            return Ok(());
        }
        if self.read_only {
            return Err(Error::ReadOnly);
        }
        let more = changes.blocks.keys().filter(|block| !self.running.blocks.contains(block)).count();
        // A block of the journal has room for some hundred revoked ones.
        let revoked = (self.running.revoked.len() + changes.revoked.len()) / 64;
        if self.running.blocks.len() + more + revoked > self.most {
            return Err(if self.running.used { Error::Full } else { Error::NoSpace });
        }
        for (block, bytes) in changes.blocks {
            self.loading.remove(&block);
            self.running.blocks.insert(block);
            self.running.revoked.remove(&block);
            let cached = Cached { bytes: shared(bytes), holds: Cell::new(true), used: Cell::new(true) };
            self.cache.insert(block, cached);
        }
        for block in changes.revoked {
            self.running.blocks.remove(&block);
            self.running.revoked.insert(block);
            self.cache.remove(&block);
        }
        for range in changes.settled {
            self.unmark(range);
        }
        for range in changes.freed {
            self.pending += range.end - range.start;
            self.mark(range.clone());
            self.running.freed.push(range);
        }
        let superblock = &mut self.superblock;
        superblock.free_blocks = superblock.free_blocks.saturating_add_signed(changes.free_blocks);
        superblock.free_inodes = superblock.free_inodes.saturating_add_signed(changes.free_inodes as i32);
        for (inode, orphan) in changes.orphans {
            match orphan {
                true => self.orphans.push(inode),
                false => self.orphans.retain(|other| *other != inode),
            }
        }
        self.running.used = true;
        Ok(())
    }

    /// The number of the running transaction.
    pub fn running(&self) -> u32 {
        self.id
    }

    /// Whether transaction `id` is in the journal and stays there. Numbers start over, so that of two the one less than half of all ahead is the newer.
    pub fn has_committed(&self, id: u32) -> bool {
        self.done.wrapping_sub(id) as i32 >= 0
    }

    /// Whether there is something to commit.
    pub fn has_changes(&self) -> bool {
        self.running.used
    }

    /// Ends the running transaction, which goes to the journal, and begins the next one. None: nothing has changed. The one before must have ended.
    pub fn begin_commit(&mut self) -> Option<Committing> {
        if !self.running.used {
            return None;
        }
        let running = mem::take(&mut self.running);
        let block = |block: &u64| Some((*block, self.cache.get(block)?.bytes.clone()));
        let blocks: Vec<_> = running.blocks.iter().filter_map(block).collect();
        let committing =
            Committing { id: self.id, blocks, revoked: running.revoked.into_iter().collect(), freed: running.freed };
        self.committing = running.blocks;
        self.id = self.id.wrapping_add(1);
        Some(committing)
    }

    /// The transaction is in the journal and stays there.
    pub fn end_commit(&mut self, transaction: Committing) {
        self.committing.clear();
        self.done = transaction.id;
        for block in transaction.revoked {
            self.committed.remove(&block);
        }
        // Also what has been freed since: until that is committed, a replay must find it as it was.
        for (block, bytes) in transaction.blocks {
            self.committed.insert(block, bytes);
        }
        for range in transaction.freed {
            self.pending -= range.end - range.start;
            self.unmark(range);
        }
    }

    /// Bytes of the blocks that are in the journal and not at home yet.
    pub fn checkpoint_bytes(&self) -> usize {
        self.committed.len() * self.superblock.block_bytes as usize
    }

    /// Blocks that are in the journal and not at home yet.
    pub fn to_checkpoint(&self) -> Vec<(u64, Bytes)> {
        self.committed.iter().map(|(block, bytes)| (*block, bytes.clone())).collect()
    }

    /// They are at home.
    pub fn checkpointed(&mut self) {
        self.committed.clear();
    }

    fn mark(&mut self, range: Range<u64>) {
        self.busy.insert(range.start, range.end);
    }

    /// What was marked as one may be unmarked in parts, and what was marked in parts as one.
    fn unmark(&mut self, range: Range<u64>) {
        while let Some((&start, &end)) = self.busy.range(..range.end).next_back() {
            if end <= range.start {
                return;
            }
            self.busy.remove(&start);
            if range.end < end {
                self.busy.insert(range.end, end);
            }
            if start < range.start {
                self.busy.insert(start, range.start);
                return;
            }
        }
    }

    /// The parts of `range` that may not be used though they are free.
    pub fn busy(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let before = self.busy.range(..range.start).next_back();
        let all = before.into_iter().chain(self.busy.range(range.start..range.end));
        all.map(move |(start, end)| (*start).max(range.start)..(*end).min(range.end)).filter(|part| !part.is_empty())
    }

    /// Blocks that will be free when the running transaction has been committed.
    pub fn pending(&self) -> u64 {
        self.pending
    }

    /// Free blocks are given to somebody who writes into them before he says what they are: nobody else gets them.
    pub fn claim(&mut self, range: Range<u64>) {
        self.mark(range);
    }

    /// He did not use them.
    pub fn unclaim(&mut self, range: Range<u64>) {
        self.unmark(range);
    }

    /// Free blocks that files may get. Not those that pages in memory will take, not those that are kept for root, and not some for the trees that say where blocks are.
    pub fn room(&self) -> u64 {
        let spare = (self.superblock.blocks / 50).min(4096);
        self.superblock.free_blocks.saturating_sub(self.reserved + self.superblock.reserved_blocks + spare)
    }

    /// Sets blocks aside that pages in memory will take.
    pub fn reserve(&mut self, blocks: u64) -> Result<()> {
        self.check_room(blocks)?;
        self.reserved += blocks;
        Ok(())
    }

    /// Whether so many blocks may be taken that were not set aside. [`Error::Full`]: not before the next commit.
    pub fn check_room(&self, blocks: u64) -> Result<()> {
        self.check(blocks <= self.room())
    }

    /// The same for names and attributes, which may take what is kept from files, but nothing that was set aside.
    pub fn check_room_for_names(&self) -> Result<()> {
        self.check(NAME_BLOCKS <= self.available())
    }

    fn check(&self, has_room: bool) -> Result<()> {
        match has_room {
            true => Ok(()),
            false if self.pending > 0 => Err(Error::Full),
            false => Err(Error::NoSpace),
        }
    }

    /// They took them, or need them no more.
    pub fn unreserve(&mut self, blocks: u64) {
        self.reserved = self.reserved.saturating_sub(blocks);
    }

    /// Free blocks that nobody has been promised.
    pub fn available(&self) -> u64 {
        self.superblock.free_blocks.saturating_sub(self.reserved)
    }

    /// The list of orphans as the disk has it, the newest last.
    pub fn set_orphans(&mut self, orphans: Vec<u32>) {
        self.orphans = orphans;
    }

    /// The numbers of free blocks and inodes as the groups have them.
    pub fn set_counts(&mut self, blocks: u64, inodes: u32) {
        (self.superblock.free_blocks, self.superblock.free_inodes) = (blocks, inodes);
    }

    /// The orphans, the newest last.
    pub fn orphans(&self) -> &[u32] {
        &self.orphans
    }
}
