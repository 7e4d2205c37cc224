//! Fetching mappings on demand (5.7.3, 5.7.4, 5.7.6).

use super::{lock::Scope, Answer, Ask, Entry, Popcorn, Replica, ZERO};
use crate::model::WORDS;
use machine::{errno::Result, Access, Errno};
use std::sync::Arc;

/// Runs of pages in an answer; the thesis measured 1, 4 and 8.
const SLOTS: usize = 8;

impl Popcorn {
    /// Does something with the words of a page, as a thread on `me` may.
    pub(super) async fn access<T>(
        self: &Arc<Self>,
        me: usize,
        page: u64,
        write: bool,
        mut work: impl FnMut(&mut [u64; WORDS]) -> T,
    ) -> Result<T> {
        loop {
            {
                let replica = self.kernels[me].lock();
                let entry = replica.pages.get(&page).filter(|entry| !(write && entry.cow));
                if let (Some(entry), Ok(())) = (entry, replica.allows(page, write)) {
                    let mut memory = self.memory.lock();
                    return Ok(work(memory.get_mut(&entry.frame).expect("a mapped frame is there")));
                }
            }
            self.fault(me, page, write).await?;
        }
    }

    async fn fault(self: &Arc<Self>, me: usize, page: u64, write: bool) -> Result<()> {
        let stamp = self.lock(me, Scope::Page(page)).await;
        let answers = self.ask_all(me, Ask::Mapping(page)).await;
        let result = {
            let mut replica = self.kernels[me].lock();
            // Area and page, or else an area alone.
            let best = answers.into_iter().max_by_key(|answer| (!answer.pages.is_empty(), !answer.areas.is_empty()));
            replica.install(best.unwrap_or_default());
            self.handle_locally(me, &mut replica, page, write)
        };
        self.unlock(me, stamp, Scope::Page(page));
        result
    }

    /// The ordinary fault handler.
    fn handle_locally(&self, me: usize, replica: &mut Replica, page: u64, write: bool) -> Result<()> {
        replica.allows(page, write)?;
        let entry = match replica.pages.get(&page).copied() {
            Some(Entry { frame, cow: true }) if write => Entry { frame: self.allocate(me, replica, frame), cow: false },
            Some(entry) => entry,
            None if write => Entry { frame: self.allocate(me, replica, ZERO), cow: false },
            None => Entry { frame: ZERO, cow: true },
        };
        replica.pages.insert(page, entry);
        Ok(())
    }

    /// What `me` knows of a page, and of its neighbours in the same area.
    pub(super) fn mapping(&self, me: usize, page: u64) -> Answer {
        let mut replica = self.kernels[me].lock();
        let Some(prot) = replica.areas.get(&page).copied() else { return Answer::default() };
        self.break_copy(me, &mut replica, page);
        let same = |(at, here): (&u64, &Access), expected: u64| *at == expected && *here == prot;
        let up = replica.areas.range(page..).zip(page..).take_while(|(area, at)| same(*area, *at)).count() as u64;
        let below = replica.areas.range(..page).rev().zip((0..page).rev());
        let down = below.take_while(|(area, at)| same(*area, *at)).count() as u64;
        let areas = (page - down..page + up).map(|at| (at, prot)).collect();
        if !replica.pages.contains_key(&page) {
            return Answer { areas, pages: Vec::new() };
        }
        Answer { areas, pages: replica.slots(page - down, page, page + up) }
    }

    /// A page that is copy-on-write here gets a frame of its own before anyone else hears of it.
    pub(super) fn break_copy(&self, me: usize, replica: &mut Replica, page: u64) {
        if let Some(Entry { frame, cow: true }) = replica.pages.get(&page).copied() {
            let frame = self.allocate(me, replica, frame);
            replica.pages.insert(page, Entry { frame, cow: false });
        }
    }
}

impl Replica {
    fn allows(&self, page: u64, write: bool) -> Result<()> {
        let prot = self.areas.get(&page).ok_or(Errno::EFAULT)?;
        let may = if write { prot.contains(Access::WRITE) } else { !prot.is_empty() };
        may.then_some(()).ok_or(Errno::EFAULT)
    }

    /// Takes over what is not known here.
    pub(super) fn install(&mut self, answer: Answer) {
        for (page, prot) in answer.areas {
            self.areas.entry(page).or_insert(prot);
        }
        for (page, frame) in answer.pages {
            self.pages.entry(page).or_insert(Entry { frame, cow: false });
        }
    }

    /// Runs that are contiguous in memory too: the one around `page`, then those above it, then those below.
    fn slots(&self, start: u64, page: u64, end: u64) -> Vec<(u64, super::Frame)> {
        let ready = |at: u64| self.pages.get(&at).filter(|entry| !entry.cow).map(|entry| (at, entry.frame));
        let present: Vec<(u64, super::Frame)> = (start..end).filter_map(ready).collect();
        let follows = |a: &(u64, super::Frame), b: &(u64, super::Frame)| a.0 + 1 == b.0 && (a.1 .0, a.1 .1 + 1) == b.1;
        let runs: Vec<_> = present.chunk_by(follows).collect();
        let first = runs.iter().position(|run| run.iter().any(|(at, _)| *at == page)).unwrap_or(0);
        let order = (first..runs.len()).chain((0..first).rev());
        order.take(SLOTS).flat_map(|run| runs[run].iter().copied()).collect()
    }
}
