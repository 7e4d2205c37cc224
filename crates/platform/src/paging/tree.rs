//! The tree of tables itself: finding, making and visiting entries, through the direct map.
//!
//! Tables are never freed while the tree lives, so a pointer into one stays good, and the CPUs' caches
//! of upper levels never go stale. They are freed together at the end.

use crate::arch::entry::{self, ACCESSED, DIRTY, LARGE, PRESENT};
use core::sync::atomic::{AtomicU64, Ordering};
use frames::{OwnFrame, Partition, Purpose};
use machine::{Frame, Mapping, NoMemory, Page, PageRange, Step, USER_END};

const LEVEL_BITS: u32 = 9;
const ENTRIES: usize = 1 << LEVEL_BITS;
/// The level of a root's entries; the entries of level 0 map 4 KiB pages.
const TOP: u32 = 3;
/// From here on a root's entries are the kernel's, the same in every root.
const KERNEL_HALF: usize = ENTRIES / 2;

pub struct Tree {
    partition: &'static Partition,
    root: OwnFrame<'static>,
    owned: Owned,
}

/// How many entries map pages of this kernel's own, and the most there have been. Changed, like the entries, under the lock of the
/// replica, so without a read-modify-write; read by anybody.
#[derive(Default)]
struct Owned {
    now: AtomicU64,
    most: AtomicU64,
}

impl Owned {
    fn change(&self, more: u64, fewer: u64) {
        if more != fewer {
            let now = self.now.load(Ordering::Relaxed) + more - fewer;
            self.now.store(now, Ordering::Relaxed);
            if now > self.most.load(Ordering::Relaxed) {
                self.most.store(now, Ordering::Relaxed);
            }
        }
    }
}

/// The entry of `page` in a table of `level`.
fn index(page: u64, level: u32) -> usize {
    (page >> (LEVEL_BITS * level)) as usize % ENTRIES
}

/// The entries of a table that lies in `partition`.
fn slots(partition: &Partition, table: Frame) -> &[AtomicU64; ENTRIES] {
    // SAFETY: the direct map has all of the table's frame, which is this tree's (or the kernel's, which
    // is never freed) and holds 512 aligned words that software only touches atomically.
    unsafe { partition.pointer(table).cast::<[AtomicU64; ENTRIES]>().as_ref() }
}

#[inline]
fn slot(partition: &Partition, table: Frame, index: usize) -> &AtomicU64 {
    &slots(partition, table)[index]
}

/// The table below `entry`; None if there is none.
///
/// Acquire: pairs with the Release that linked the table, so its zeroes are seen. (On the hardware's
/// side, a page walk never runs ahead of the load that led to it.)
fn below(entry: &AtomicU64) -> Option<Frame> {
    let value = entry.load(Ordering::Acquire);
    // A large page would end the walk here; nobody makes one in user space yet.
    debug_assert!(value & PRESENT == 0 || value & LARGE == 0);
    (value & PRESENT != 0).then(|| entry::frame(value))
}

/// The last-level entry of `page` (any half), its tables made with `link` if absent.
pub fn leaf_or_create(
    partition: &Partition,
    root: Frame,
    page: u64,
    link: fn(Frame) -> u64,
) -> Result<&AtomicU64, NoMemory> {
    Ok(slot(partition, table_or_create(partition, root, page, link)?, index(page, 0)))
}

/// The last-level table of `page`.
fn table_or_create(partition: &Partition, root: Frame, page: u64, link: fn(Frame) -> u64) -> Result<Frame, NoMemory> {
    let mut table = root;
    for level in (1..=TOP).rev() {
        let entry = slot(partition, table, index(page, level));
        table = match below(entry) {
            Some(next) => next,
            None => {
                let new = OwnFrame::alloc_for(partition, Purpose::Table).ok_or(NoMemory)?;
                // Somebody else may be as far as we are; Release pairs with `below`.
                match entry.compare_exchange(0, link(new.frame()), Ordering::Release, Ordering::Acquire) {
                    Ok(_) => new.into_frame(),
                    Err(theirs) => entry::frame(theirs),
                }
            }
        };
    }
    Ok(table)
}

impl Tree {
    /// An empty user half under the kernel half of `kernel_root`.
    pub fn new(partition: &'static Partition, kernel_root: Frame) -> Result<Self, NoMemory> {
        // A new process is refused as early as a page of one.
        let root = OwnFrame::alloc_for(partition, Purpose::User).ok_or(NoMemory)?;
        for index in KERNEL_HALF..ENTRIES {
            let shared = slot(partition, kernel_root, index).load(Ordering::Relaxed);
            slot(partition, root.frame(), index).store(shared, Ordering::Relaxed);
        }
        Ok(Tree { partition, root, owned: Owned::default() })
    }

    pub fn root(&self) -> Frame {
        self.root.frame()
    }

    /// See [`machine::PageTable::owned_entries`].
    pub fn owned_entries(&self) -> (u64, u64) {
        (self.owned.now.load(Ordering::Relaxed), self.owned.most.load(Ordering::Relaxed))
    }

    /// See [`machine::PageTable::forget_most_owned`].
    pub fn forget_most_owned(&self) {
        self.owned.most.store(self.owned.now.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    fn leaf(&self, page: Page) -> Option<&AtomicU64> {
        if !PageRange::user().contains(page) {
            return None;
        }
        let down = |table, level| below(slot(self.partition, table, index(page.0, level)));
        let table = (1..=TOP).rev().try_fold(self.root(), down)?;
        Some(slot(self.partition, table, index(page.0, 0)))
    }

    pub fn get(&self, page: Page) -> Option<Mapping> {
        entry::decode(self.leaf(page)?.load(Ordering::Relaxed))
    }

    pub fn set(&self, page: Page, mapping: Mapping) -> Result<Option<Mapping>, NoMemory> {
        assert!(PageRange::user().contains(page), "{page:?} is not in user space ({USER_END:#x})");
        let leaf = leaf_or_create(self.partition, self.root(), page.0, entry::to_table)?;
        // Release: what was written into the frame comes before user code that finds it. Swap, not
        // store: the old entry's DIRTY and ACCESSED are exact.
        let new = entry::encode(mapping);
        let old = leaf.swap(new, Ordering::AcqRel);
        self.owned.change(entry::is_owned(new).into(), entry::is_owned(old).into());
        Ok(entry::decode(old))
    }

    pub fn clear(&self, page: Page) -> Option<Mapping> {
        let leaf = self.leaf(page)?;
        // Looked at first: clearing what is empty should not dirty the line.
        if leaf.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let old = leaf.swap(0, Ordering::AcqRel);
        self.owned.change(0, entry::is_owned(old).into());
        entry::decode(old)
    }

    /// See [`machine::PageTable::fill`].
    pub fn fill(
        &self,
        range: PageRange,
        first: Mapping,
        keeps: &mut dyn FnMut(Page, Mapping) -> bool,
    ) -> Result<(), NoMemory> {
        assert!(range.intersect(PageRange::user()) == range, "{range:?} is not in user space ({USER_END:#x})");
        let mut next = entry::encode(first);
        let mut at = range.start.0;
        while at < range.end.0 {
            let table = table_or_create(self.partition, self.root(), at, entry::to_table)?;
            let end = range.end.0.min((at | (ENTRIES as u64 - 1)) + 1);
            let entries = &slots(self.partition, table)[index(at, 0)..=index(end - 1, 0)];
            let (mut put, mut replaced) = (0, 0);
            for (page, entry) in (at..end).zip(entries) {
                let old = entry.load(Ordering::Relaxed);
                let keep = old != 0 && entry::decode(old).is_some_and(|old| keeps(Page(page), old));
                if !keep {
                    // Release: as in `set`.
                    entry.store(next, Ordering::Release);
                    put += u64::from(entry::is_owned(next));
                    replaced += u64::from(entry::is_owned(old));
                }
                next = entry::nth(next, 1);
            }
            self.owned.change(put, replaced);
            at = end;
        }
        Ok(())
    }

    /// See [`machine::PageTable::walk_runs`].
    pub fn walk_runs(&self, range: PageRange, longest: u64, visit: &mut dyn FnMut(PageRange, Mapping) -> Step) {
        let range = range.intersect(PageRange::user());
        if !range.is_empty() {
            let longest = longest.min(ENTRIES as u64) as usize;
            self.walk_table(self.root(), TOP, range, longest, visit);
        }
    }

    /// Visits `range`, which lies within the reach of `table`; what has no table is skipped whole. False: the visitor
    /// has seen enough.
    fn walk_table(
        &self,
        table: Frame,
        level: u32,
        range: PageRange,
        longest: usize,
        visit: &mut dyn FnMut(PageRange, Mapping) -> Step,
    ) -> bool {
        let (start, end) = (range.start.0, range.end.0);
        let entries = &slots(self.partition, table)[index(start, level)..=index(end - 1, level)];
        if level == 0 {
            return visit_leaves(entries, range.start, longest, &self.owned, visit);
        }
        let reach = 1u64 << (LEVEL_BITS * level);
        let first = start & !(reach - 1);
        for (number, below) in tables(entries) {
            let at = Page(first + number as u64 * reach);
            let part = PageRange::new(at, at.add(reach)).intersect(range);
            if !self.walk_table(below, level - 1, part, longest, visit) {
                return false;
            }
        }
        true
    }

    fn free_below(&self, table: Frame, level: u32, entries: usize) {
        for (_, next) in tables(&slots(self.partition, table)[..entries]) {
            if level > 1 {
                self.free_below(next, level - 1, ENTRIES);
            }
            self.partition.release(next);
        }
    }
}

/// How many entries at the start are empty, as most of most tables are: looks at eight at a time.
#[inline(never)]
fn empty(entries: &[AtomicU64]) -> usize {
    let mut at = 0;
    while let Some(eight) = entries.get(at..at + 8) {
        if eight.iter().fold(0, |all, entry| all | entry.load(Ordering::Relaxed)) != 0 {
            break;
        }
        at += 8;
    }
    at + entries[at..].iter().take_while(|entry| entry.load(Ordering::Relaxed) == 0).count()
}

/// The tables that entries lead to, with their numbers among them.
fn tables(entries: &[AtomicU64]) -> impl Iterator<Item = (usize, Frame)> + '_ {
    let mut at = 0;
    core::iter::from_fn(move || loop {
        let entry = entries.get(at)?;
        at += 1;
        if let Some(table) = below(entry) {
            return Some((at - 1, table));
        }
        at += empty(&entries[at..]);
    })
}

/// The last level of a walk over `entries`, whose first is that of page `first`.
fn visit_leaves(
    entries: &[AtomicU64],
    first: Page,
    longest: usize,
    owned: &Owned,
    visit: &mut dyn FnMut(PageRange, Mapping) -> Step,
) -> bool {
    let mut at = 0;
    while let Some(entry) = entries.get(at) {
        let seen = entry.load(Ordering::Relaxed);
        if seen == 0 {
            at += 1 + empty(&entries[at + 1..]);
            continue;
        }
        let Some(mapping) = entry::decode(seen) else {
            at += 1;
            continue;
        };
        let most = &entries[at..entries.len().min(at + longest)];
        let run = &most[..alike(most, seen)];
        let start = first.add(at as u64);
        let own = |entry: u64| if entry::is_owned(entry) { run.len() as u64 } else { 0 };
        match visit(PageRange::new(start, start.add(run.len() as u64)), mapping) {
            Step::Keep => (),
            Step::Stop => return false,
            Step::Remove => {
                run.iter().for_each(|entry| entry.store(0, Ordering::Release));
                owned.change(0, own(seen));
            }
            Step::Replace(new) => {
                let new = entry::encode(new);
                replace(run, seen, new);
                owned.change(own(new), own(seen));
            }
        }
        at += run.len();
    }
    true
}

/// How many of `entries` are a run, the first of which was seen as `seen`.
fn alike(entries: &[AtomicU64], seen: u64) -> usize {
    let (mut next, mut count) = (seen, 1);
    for entry in &entries[1..] {
        next = entry::nth(next, 1);
        if entry.load(Ordering::Relaxed) != next {
            break;
        }
        count += 1;
    }
    count
}

/// Entries that were seen as `seen` and the following become `new` and the following.
fn replace(run: &[AtomicU64], mut seen: u64, mut new: u64) {
    // What has both marks, or is not there for the hardware, it does not write to.
    if seen & (ACCESSED | DIRTY) == ACCESSED | DIRTY || seen & PRESENT == 0 {
        for entry in run {
            entry.store(new, Ordering::Release);
            new = entry::nth(new, 1);
        }
        return;
    }
    for entry in run {
        let old = entry.swap(new, Ordering::AcqRel);
        // The hardware may have marked the page since the visitor looked: the marks stay with the frame.
        if old != seen && entry::frame(new) == entry::frame(seen) {
            let late = old & !seen & (ACCESSED | DIRTY);
            entry.fetch_or(late, Ordering::Relaxed);
        }
        (seen, new) = (entry::nth(seen, 1), entry::nth(new, 1));
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        self.free_below(self.root(), TOP, KERNEL_HALF);
    }
}
