//! The calls that change areas (5.7.5): all under the heavy lock, all told to everyone.

use super::{lock::Scope, Answer, Ask, Entry, Frame, Popcorn, ZERO};
use crate::model::Where;
use machine::{errno::Result, Access, Errno};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Where addresses of the kernel's choice begin.
const ANYWHERE: u64 = 0x7000_0000;

impl Popcorn {
    pub(super) async fn unmap(self: &Arc<Self>, me: usize, page: u64, pages: u64) {
        let stamp = self.lock(me, Scope::All).await;
        self.unmap_everywhere(me, vec![(page, pages)]).await;
        self.unlock(me, stamp, Scope::All);
    }

    /// With the heavy lock: nobody has the pages afterwards, and their frames are free.
    async fn unmap_everywhere(self: &Arc<Self>, me: usize, ranges: Vec<(u64, u64)>) {
        let mut answers = self.ask_all(me, Ask::Unmap(ranges.clone())).await;
        answers.push(self.unmap_here(me, &ranges));
        let gone: BTreeSet<Frame> = answers.iter().flat_map(|answer| &answer.pages).map(|(_, frame)| *frame).collect();
        self.free(gone);
    }

    fn free(&self, frames: BTreeSet<Frame>) {
        let mut memory = self.memory.lock();
        for frame in frames.into_iter().filter(|frame| *frame != ZERO) {
            memory.remove(&frame).expect("a frame is freed once");
        }
    }

    pub(super) fn unmap_here(&self, me: usize, ranges: &[(u64, u64)]) -> Answer {
        let mut replica = self.kernels[me].lock();
        let mut answer = Answer::default();
        for at in ranges.iter().flat_map(|(page, pages)| *page..page + pages) {
            answer.areas.extend(replica.areas.remove(&at).map(|prot| (at, prot)));
            answer.pages.extend(replica.pages.remove(&at).map(|entry| (at, entry.frame)));
        }
        answer
    }

    pub(super) async fn protect(self: &Arc<Self>, me: usize, page: u64, pages: u64, prot: Access) -> Result<()> {
        let stamp = self.lock(me, Scope::All).await;
        let old = self.protect_everywhere(me, page, pages, prot).await;
        let hole = (page..page + pages).find(|at| !old.contains_key(at));
        if let Some(hole) = hole {
            // man 2 mprotect: what lies before it has changed.
            for (at, old) in old.range(hole..) {
                self.protect_everywhere(me, *at, 1, *old).await;
            }
        }
        self.unlock(me, stamp, Scope::All);
        hole.map_or(Ok(()), |_| Err(Errno::ENOMEM))
    }

    /// With the heavy lock. What there is, with the protection it had.
    async fn protect_everywhere(
        self: &Arc<Self>,
        me: usize,
        page: u64,
        pages: u64,
        prot: Access,
    ) -> BTreeMap<u64, Access> {
        let mut answers = self.ask_all(me, Ask::Protect { page, pages, prot }).await;
        answers.push(self.protect_here(me, page, pages, prot));
        answers.into_iter().flat_map(|answer| answer.areas).collect()
    }

    pub(super) fn protect_here(&self, me: usize, page: u64, pages: u64, prot: Access) -> Answer {
        let mut replica = self.kernels[me].lock();
        let here = replica.areas.range_mut(page..page + pages);
        let areas = here.map(|(at, here)| (*at, std::mem::replace(here, prot))).collect();
        Answer { areas, pages: Vec::new() }
    }

    pub(super) async fn map(self: &Arc<Self>, me: usize, at: Where, pages: u64, prot: Access) -> Result<u64> {
        let stamp = self.lock(me, Scope::All).await;
        let place = self.place(me, at, pages).await;
        if let Ok(page) = place {
            // The others learn of it when they touch it.
            self.kernels[me].lock().areas.extend((page..page + pages).map(|at| (at, prot)));
        }
        self.unlock(me, stamp, Scope::All);
        place
    }

    async fn place(self: &Arc<Self>, me: usize, at: Where, pages: u64) -> Result<u64> {
        match at {
            Where::Fixed(page) => {
                self.unmap_everywhere(me, vec![(page, pages)]).await;
                Ok(page)
            }
            Where::NoReplace(page) => {
                self.fetch(me, page, pages, false).await;
                self.is_free(me, page, pages).then_some(page).ok_or(Errno::EEXIST)
            }
            Where::Hint(page) => {
                self.fetch(me, page, pages, false).await;
                match self.is_free(me, page, pages) {
                    true => Ok(page),
                    false => Ok(self.somewhere(me, pages).await),
                }
            }
            Where::Anywhere => Ok(self.somewhere(me, pages).await),
        }
    }

    /// A range that is free everywhere: one that looks free here, until nobody objects.
    async fn somewhere(self: &Arc<Self>, me: usize, pages: u64) -> u64 {
        loop {
            let page = {
                let replica = self.kernels[me].lock();
                let taken = |start: u64| replica.areas.range(start..start + pages).next_back().map(|(at, _)| *at);
                let mut start = ANYWHERE;
                while let Some(last) = taken(start) {
                    start = last + 1;
                }
                start
            };
            self.fetch(me, page, pages, false).await;
            if self.is_free(me, page, pages) {
                return page;
            }
        }
    }

    fn is_free(&self, me: usize, page: u64, pages: u64) -> bool {
        self.kernels[me].lock().areas.range(page..page + pages).next().is_none()
    }

    /// With the heavy lock: `me` knows all that anyone knows of the range.
    async fn fetch(self: &Arc<Self>, me: usize, page: u64, pages: u64, contents: bool) {
        let answers = self.ask_all(me, Ask::Range { page, pages, contents }).await;
        let mut replica = self.kernels[me].lock();
        answers.into_iter().for_each(|answer| replica.install(answer));
    }

    pub(super) fn range(&self, me: usize, page: u64, pages: u64, contents: bool) -> Answer {
        let mut replica = self.kernels[me].lock();
        let areas: Vec<_> = replica.areas.range(page..page + pages).map(|(at, prot)| (*at, *prot)).collect();
        if !contents {
            return Answer { areas, pages: Vec::new() };
        }
        (page..page + pages).for_each(|at| self.break_copy(me, &mut replica, at));
        let pages = replica.pages.range(page..page + pages).map(|(at, entry)| (*at, entry.frame)).collect();
        Answer { areas, pages }
    }

    pub(super) async fn remap(
        self: &Arc<Self>,
        me: usize,
        page: u64,
        old: u64,
        new: u64,
        may_move: bool,
    ) -> Result<u64> {
        let stamp = self.lock(me, Scope::All).await;
        let result = self.remap_locked(me, page, old, new, may_move).await;
        self.unlock(me, stamp, Scope::All);
        result
    }

    async fn remap_locked(self: &Arc<Self>, me: usize, page: u64, old: u64, new: u64, may_move: bool) -> Result<u64> {
        self.fetch(me, page, old, true).await;
        if self.is_free(me, page, 1) {
            return Err(Errno::EFAULT);
        }
        if old >= new {
            self.unmap_everywhere(me, vec![(page + new, old - new)]).await;
            return Ok(page);
        }
        let prot = {
            let replica = self.kernels[me].lock();
            let here: Vec<Access> = replica.areas.range(page..page + old).map(|(_, prot)| *prot).collect();
            let one = here.len() as u64 == old && here.iter().all(|prot| *prot == here[0]);
            one.then(|| here[0]).ok_or(Errno::EFAULT)?
        };
        self.fetch(me, page + old, new - old, false).await;
        if self.is_free(me, page + old, new - old) {
            self.kernels[me].lock().areas.extend((page + old..page + new).map(|at| (at, prot)));
            return Ok(page);
        }
        if !may_move {
            return Err(Errno::ENOMEM);
        }
        let target = self.somewhere(me, new).await;
        self.ask_all(me, Ask::Unmap(vec![(page, old), (target, new)])).await;
        let mut replica = self.kernels[me].lock();
        let moved: BTreeMap<u64, Entry> = (0..old)
            .filter_map(|index| replica.pages.remove(&(page + index)).map(|entry| (target + index, entry)))
            .collect();
        for at in page..page + old {
            replica.areas.remove(&at);
        }
        replica.areas.extend((target..target + new).map(|at| (at, prot)));
        replica.pages.extend(moved);
        Ok(target)
    }
}
