//! Pages of a file that other kernels have.
//!
//! A kernel that maps the file privately, or only reads it, wants pages in memory of its own: so it gets copies, and
//! nothing may show that they are copies. The cache therefore changes no page of which there is a copy: before it does,
//! it asks for the copies back, and goes on when all are gone (from page tables too). What it can't see changing is
//! not copied at all: while a shared mapping may write to a page, others get its frame itself, counted once more for them.
//! A page that was changed once while there were copies is lent that way from then on, or a program that reads what
//! another writes would cost a question each time.
//!
//! Whether the page is a copy or not, it is lost when the file is truncated there or a hole is made. The cache forgets
//! it first, then all who may show it are asked, and only then the call returns. Dangerous is a page that somebody has
//! got but not mapped yet:
//!
//! ```text
//! kernel K                                  the file's kernel
//! fault: asks for page 5 ----------------->  has lent page 5 to K: writes K down, sends it
//!                                            truncate: forgets page 5
//!    K maps no page of it  <---------------- lost: page 5 (and all after it)
//!    "done" ------------------------------->  truncate returns
//! page 5 arrives: mapped?
//! ```
//!
//! So [`Object::losses`] is counted up by whoever hears of a loss, before page tables are searched; a fault notes the
//! number before it asks, and maps what it got, under the lock of its address space, only if the number is the same.
//! The same protects a fault at the file's own kernel, and a copy whose page is about to be written.

use super::{PageCache, Slot, State};
use crate::{Loaned, ReadAhead};
use alloc::{boxed::Box, vec::Vec};
use core::ops::Range;
use machine::{errno::Result, to_completion, KernelId};
use messages::fs::Lost;

/// What became of copies of a page.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Copies {
    /// Some kernel may have one.
    Given,
    /// All kernels are being asked; who wants to write waits.
    Asked,
    /// It has been written since: no more copies.
    Over,
}

impl State {
    /// Somebody may show a copy.
    pub fn is_copied(&self, index: u64) -> bool {
        matches!(self.copies.get(&index), Some(Copies::Given | Copies::Asked))
    }

    /// Pages `first..end` are gone from the cache; true if others have some.
    pub fn lose(&mut self, first: u64, end: u64) -> bool {
        self.losses += 1;
        let mut any = false;
        for (_, copies) in self.copies.range_mut(first..end) {
            *copies = Copies::Asked;
            any = true;
        }
        any
    }
}

impl PageCache {
    /// After [`State::lose`]: takes the pages from everybody. Goes on to its end even if the caller does not wait.
    pub(super) async fn withdraw(&self, first: u64, end: u64, private: bool) {
        let Some(this) = self.this.upgrade() else { return };
        let lost = Lost { object: self.id, first, end, private };
        let Some(mappers) = self.services.mappers() else { return self.asked(first..end, None) };
        let work = async move {
            mappers.lost(lost).await;
            this.holders.tell(&*mappers, lost).await;
            this.asked(first..end, None);
        };
        to_completion(&*self.services.spawner, work).await
    }

    /// All copies in `range` are gone.
    fn asked(&self, range: Range<u64>, then: Option<Copies>) {
        let mut state = self.state.lock();
        let asked: Vec<u64> = state
            .copies
            .range(range)
            .filter(|(_, copies)| **copies == Copies::Asked)
            .map(|(index, _)| *index)
            .collect();
        for index in asked {
            match then {
                Some(then) => state.copies.insert(index, then),
                None => state.copies.remove(&index),
            };
        }
        drop(state);
        self.loaded.wake_all();
    }

    /// Returns when nobody has a copy of the pages, which are about to be changed.
    pub(super) async fn take_copies_back(&self, range: Range<u64>) {
        let given = {
            let mut state = self.state.lock();
            let given = state.copies.range_mut(range.clone()).filter(|(_, copies)| **copies == Copies::Given);
            given.map(|(_, copies)| *copies = Copies::Asked).count() > 0
        };
        if let (true, Some(this)) = (given, self.this.upgrade()) {
            let lost = Lost { object: self.id, first: range.start, end: range.end, private: false };
            let asked = range.clone();
            self.services.spawner.spawn(Box::pin(async move {
                if let Some(mappers) = this.services.mappers() {
                    this.holders.tell(&*mappers, lost).await;
                }
                this.asked(asked, Some(Copies::Over));
            }));
        }
        let asked = || self.state.lock().copies.range(range.clone()).any(|(_, copies)| *copies == Copies::Asked);
        self.loaded.wait_until(|| (!asked()).then_some(())).await
    }

    /// See [`crate::Object::lend`].
    pub(super) async fn lend_page(
        &self,
        index: u64,
        to: KernelId,
        write: bool,
        read_ahead: ReadAhead,
    ) -> Result<Loaned<'_>> {
        self.holders.add(to);
        loop {
            if write {
                if let Some(reserved) = self.reserve_below(index..index + 1) {
                    reserved.await?;
                }
                self.take_copies_back(index..index + 1).await;
            }
            let held = self.load(index, self.wanted_by_fault(read_ahead), read_ahead).await?;
            let mut state = self.state.lock();
            let state = &mut *state;
            let Some(Slot::Ready { frame, exposed, .. }) = state.pages.get_mut(&index) else { continue };
            if *frame != held.frame() {
                continue;
            }
            let copies = state.copies.get(&index).copied();
            if write {
                if matches!(copies, Some(Copies::Given | Copies::Asked)) {
                    continue;
                }
                *exposed = true;
            } else if !*exposed || self.services.memory.count(held.frame()) <= 2 {
                // The cache and we ourselves: nobody maps it any more.
                *exposed = false;
                if matches!(copies, None | Some(Copies::Given)) {
                    state.copies.insert(index, Copies::Given);
                    return Ok(Loaned::Copy(held));
                }
            }
            return Ok(Loaned::Own(held));
        }
    }
}
