//! A page table and the TLBs of the CPUs that use it.
//!
//! A TLB keeps a translation until it is flushed, whatever happens to the table, and the CPU that makes an access is
//! picked at random: so a missing flush shows as data from a page that is no longer there, and a frame that is
//! freed too early is caught by its count of translations.

use crate::world::World;
use machine::{
    sync::{Lock, LockGuard},
    Access, Frame, KernelId, Mapping, NoMemory, Page, PageRange, PageTable, Soft, Step, UserAddr, UserFault, PAGE_SIZE,
};
use std::{collections::BTreeMap, sync::Arc};

/// Pages of a last-level table.
const TABLE: u64 = 512;

#[derive(Default)]
struct Entries {
    table: BTreeMap<Page, Mapping>,
    /// By CPU.
    tlbs: Vec<BTreeMap<Page, Mapping>>,
}

pub struct SimTable {
    world: Arc<World>,
    pub kernel: KernelId,
    entries: Lock<Entries>,
}

impl SimTable {
    pub fn new(world: Arc<World>, kernel: KernelId) -> Self {
        let tlbs = vec![BTreeMap::new(); world.cpus];
        SimTable { world, kernel, entries: Lock::new(Entries { tlbs, ..Entries::default() }) }
    }

    fn lock(&self) -> LockGuard<'_, Entries> {
        self.entries.lock()
    }

    /// What a TLB remembers that the table does not say any more.
    pub fn stale(&self) -> Option<String> {
        let entries = self.lock();
        let stale = |page: &Page, cached: &Mapping| match entries.table.get(page) {
            Some(now) => now.frame != cached.frame || !now.access.contains(cached.access),
            None => true,
        };
        entries.tlbs.iter().enumerate().find_map(|(cpu, tlb)| {
            let (page, cached) = tlb.iter().find(|(page, cached)| stale(page, cached))?;
            Some(format!("TLB {cpu}: {page:?} is {cached:?}, table {:?}", entries.table.get(page)))
        })
    }

    /// The kernel that has this table is no more.
    pub fn vanish(&self) {
        let mut entries = self.lock();
        let Entries { table, tlbs } = &mut *entries;
        for map in std::iter::once(table).chain(tlbs) {
            std::mem::take(map).values().for_each(|mapping| self.world.untranslate(mapping.frame));
        }
    }

    /// The frame an access by a random CPU reaches.
    fn reach(&self, at: UserAddr, access: Access) -> Result<Frame, UserFault> {
        let fault = UserFault { at, access };
        if at.0 >= machine::USER_END {
            return Err(fault);
        }
        let cpu = self.world.rng.below(self.world.cpus);
        let (page, mut entries) = (at.page(), self.lock());
        let Entries { table, tlbs } = &mut *entries;
        if let Some(cached) = tlbs[cpu].get(&page).filter(|cached| cached.access.contains(access)) {
            return Ok(cached.frame);
        }
        // A miss, or a cached entry that does not allow it: the CPU walks the table and caches the result.
        if let Some(old) = tlbs[cpu].remove(&page) {
            self.world.untranslate(old.frame);
        }
        let mapping = table.get_mut(&page).filter(|mapping| mapping.access.contains(access)).ok_or(fault)?;
        mapping.soft |= Soft::ACCESSED;
        if access.contains(Access::WRITE) {
            mapping.soft |= Soft::DIRTY;
        }
        self.world.translate(mapping.frame);
        tlbs[cpu].insert(page, *mapping);
        Ok(mapping.frame)
    }

    /// Runs `each` for the part of `at..at+bytes` in each page.
    fn touch(
        &self,
        at: UserAddr,
        bytes: usize,
        access: Access,
        mut each: impl FnMut(usize, &mut [u8]),
    ) -> Result<(), UserFault> {
        let mut done = 0;
        while done < bytes {
            let here = at.add(done);
            let part = (PAGE_SIZE - here.offset()).min(bytes - done);
            let frame = self.reach(here, access)?;
            self.world.with_bytes(frame, |page| each(done, &mut page[here.offset()..here.offset() + part]));
            done += part;
        }
        Ok(())
    }
}

impl SimTable {
    /// Whether a page for tables can't be had just now.
    fn is_refused(&self) -> bool {
        self.world.scarce && self.world.rng.one_in(30)
    }

    fn put(&self, page: Page, mapping: Mapping) -> Option<Mapping> {
        self.world.translate(mapping.frame);
        let old = self.lock().table.insert(page, mapping);
        if let Some(old) = old {
            self.world.untranslate(old.frame);
        }
        old
    }
}

impl PageTable for SimTable {
    fn root(&self) -> u64 {
        0
    }

    fn get(&self, page: Page) -> Option<Mapping> {
        self.lock().table.get(&page).copied()
    }

    fn set(&self, page: Page, mapping: Mapping) -> Result<Option<Mapping>, NoMemory> {
        match self.get(page).is_none() && self.is_refused() {
            true => Err(NoMemory),
            false => Ok(self.put(page, mapping)),
        }
    }

    fn clear(&self, page: Page) -> Option<Mapping> {
        let old = self.lock().table.remove(&page);
        if let Some(old) = old {
            self.world.untranslate(old.frame);
        }
        old
    }

    fn fill(
        &self,
        range: PageRange,
        first: Mapping,
        keeps: &mut dyn FnMut(Page, Mapping) -> bool,
    ) -> Result<(), NoMemory> {
        let mut at = range.start;
        while at < range.end {
            let below = PageRange::new(at, range.end.min(Page((at.0 | (TABLE - 1)) + 1)));
            let needs_table = below.pages().any(|page| self.get(page).is_none());
            if needs_table && self.is_refused() {
                return Err(NoMemory);
            }
            for (page, frame) in below.pages().zip(first.frame.add(at.0 - range.start.0).row(below.len())) {
                if !self.get(page).is_some_and(|old| keeps(page, old)) {
                    self.put(page, Mapping { frame, ..first });
                }
            }
            at = below.end;
        }
        Ok(())
    }

    fn walk_runs(&self, range: PageRange, longest: u64, visit: &mut dyn FnMut(PageRange, Mapping) -> Step) {
        let mut seen: Vec<(PageRange, Mapping)> = Vec::new();
        for (page, mapping) in self.lock().table.range(range.start..range.end) {
            match seen.last_mut() {
                Some((pages, first))
                    if pages.end == *page
                        && pages.len() < longest
                        && !page.0.is_multiple_of(TABLE)
                        && Mapping { frame: first.frame.add(pages.len()), ..*first } == *mapping =>
                {
                    pages.end = page.add(1);
                }
                _ => seen.push((PageRange::one(*page), *mapping)),
            }
        }
        for (pages, mapping) in seen {
            match visit(pages, mapping) {
                Step::Keep => {}
                Step::Stop => break,
                Step::Replace(new) => {
                    for (page, frame) in pages.pages().zip(new.frame.row(pages.len())) {
                        self.put(page, Mapping { frame, ..new });
                    }
                }
                Step::Remove => {
                    for page in pages.pages() {
                        self.clear(page);
                    }
                }
            }
        }
    }

    fn flush(&self, range: PageRange) {
        let mut entries = self.lock();
        for tlb in &mut entries.tlbs {
            let pages: Vec<Page> = tlb.range(range.start..range.end).map(|(page, _)| *page).collect();
            for page in pages {
                if let Some(old) = tlb.remove(&page) {
                    self.world.untranslate(old.frame);
                }
            }
        }
    }

    fn read(&self, from: UserAddr, to: &mut [u8]) -> Result<(), UserFault> {
        self.touch(from, to.len(), Access::READ, |done, page| to[done..done + page.len()].copy_from_slice(page))
    }

    fn write(&self, to: UserAddr, from: &[u8]) -> Result<(), UserFault> {
        self.touch(to, from.len(), Access::WRITE, |done, page| page.copy_from_slice(&from[done..done + page.len()]))
    }

    fn write_frame(&self, to: UserAddr, frame: Frame, offset: usize, bytes: usize) -> Result<(), UserFault> {
        let mut data = vec![0; bytes];
        self.world.with_bytes(frame, |page| data.copy_from_slice(&page[offset..offset + bytes]));
        self.write(to, &data)
    }

    fn read_frame(&self, from: UserAddr, frame: Frame, offset: usize, bytes: usize) -> Result<(), UserFault> {
        let mut data = vec![0; bytes];
        let read = self.read(from, &mut data);
        let got = read.as_ref().err().map_or(bytes, |fault| (fault.at.0.saturating_sub(from.0) as usize).min(bytes));
        self.world.with_bytes(frame, |page| page[offset..offset + got].copy_from_slice(&data[..got]));
        read
    }

    fn fill_zero(&self, to: UserAddr, bytes: usize) -> Result<(), UserFault> {
        self.touch(to, bytes, Access::WRITE, |_, page| page.fill(0))
    }

    fn string_length(&self, from: UserAddr, limit: usize) -> Result<Option<usize>, UserFault> {
        for length in 0..limit {
            let mut byte = [0];
            self.read(from.add(length), &mut byte)?;
            if byte[0] == 0 {
                return Ok(Some(length));
            }
        }
        Ok(None)
    }

    fn load_u32(&self, at: UserAddr) -> Result<u32, UserFault> {
        let mut word = [0; 4];
        self.read(at, &mut word)?;
        Ok(u32::from_le_bytes(word))
    }

    fn compare_exchange_u32(&self, at: UserAddr, old: u32, new: u32) -> Result<Result<u32, u32>, UserFault> {
        let mut result = Err(0);
        self.touch(at, 4, Access::WRITE, |_, page| {
            let found = u32::from_le_bytes([page[0], page[1], page[2], page[3]]);
            result = if found == old { Ok(found) } else { Err(found) };
            if result.is_ok() {
                page.copy_from_slice(&new.to_le_bytes());
            }
        })?;
        Ok(result)
    }
}

impl Drop for SimTable {
    fn drop(&mut self) {
        if self.world.is_over() || std::thread::panicking() {
            return;
        }
        self.walk(PageRange::user(), &mut |_, _| Step::Remove);
        self.flush(PageRange::user());
    }
}
