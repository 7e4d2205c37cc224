//! The page cache of one file.
//!
//! A file's bytes exist once in memory: in the frames here. read and write copy from and to them,
//! shared mappings map them, so all three agree by construction. For tmpfs and memfd the cache is the
//! file; for files of the host a [`Store`] lies below, from which pages are read (ahead of a sequential
//! reader) and to which dirty ones are written.
//!
//! The dangerous interleaving is a truncation while a page is on its way from the store: the answer
//! would bring dead bytes back. So a page on its way is a slot with a ticket; truncation removes the
//! slot, and an answer that does not find its own ticket is thrown away. A reader that is interrupted
//! (its future dropped) takes its tickets with it and wakes those who waited for them.

pub(crate) mod advice;
mod direct;
mod flusher;
mod group;
mod holders;
mod lent;
mod object;
mod pages;
pub(crate) mod reclaim;
mod refaults;
mod services;
mod size;
mod transfer;
mod words;
mod write_back;

pub use direct::DirectUnits;
pub use flusher::{Flusher, Settings as WriteBackSettings};
pub use holders::Holders;
pub use refaults::Refaults;
pub use services::{Clock, Mappers, Services};
pub use words::MappedWords;

use crate::{file::Frames, ObjectId, ReadAhead};
use alloc::{
    boxed::Box,
    collections::BTreeMap,
    sync::{Arc, Weak},
    vec::Vec,
};
use core::{ops::Range, sync::atomic::AtomicBool};
use flusher::DirtyPages;
use lent::Copies;
use machine::{
    account::{Account, Charge, Resource},
    errno::Result,
    sync::{AsyncLock, Lock, WaitQueue},
    BoxFuture, CountedFrame, Errno, Frame, FrameSlot, KernelId, Memory, PAGE_SIZE,
};
use pages::Pages;
use reclaim::Hands;

const PAGE: u64 = PAGE_SIZE as u64;
/// To be written over what is to be zero.
static ZEROS: [u8; PAGE_SIZE] = [0; PAGE_SIZE];
/// Pages that are read ahead at most, unless the store says otherwise.
const READ_AHEAD: u64 = 64;
/// Pages that a fault wants, which knows of one only.
const FAULT: u64 = 16;
/// Pages for which a write sees to room below at once ([`Store::reserve`]).
pub const RESERVED: u64 = 64;
/// Longest file (MAX_LFS_FILESIZE).
pub const MAX_SIZE: u64 = i64::MAX as u64;

/// What lies below a cache.
pub trait Store: Send + Sync {
    /// Reads bytes from `offset`, the beginning of a page, on into frames that are zero; fewer than they hold only at the end of the file.
    /// When the future is dropped, a device may go on putting bytes there, until when it has a count of each frame.
    fn read<'a>(&'a self, offset: u64, to: Frames<'a>) -> BoxFuture<'a, Result<usize>>;
    /// Writes the bytes. They may change meanwhile: then they are written again. Several writes of other bytes may be under way at once.
    fn write<'a>(&'a self, offset: u64, from: Frames<'a>) -> BoxFuture<'a, Result<()>>;
    /// Sees to it that there is room below for pages that are about to become dirty. None: there is; else it has to be waited for, and the answer is for the first of them only if they are
    /// many ([`RESERVED`]).
    fn reserve(&self, _pages: Range<u64>) -> Option<BoxFuture<'_, Result<()>>> {
        None
    }
    /// How many pages are read at most before somebody asks for them.
    fn read_ahead(&self) -> u64 {
        READ_AHEAD
    }
    /// What reads and writes past the cache must be made of. None: there are none.
    fn direct(&self) -> Option<DirectUnits> {
        None
    }
    /// What has been written stays, also if the power fails (msync).
    fn sync(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(core::future::ready(Ok(())))
    }
    /// A page has become dirty where none was; `mapped`: by a mapping, which goes on writing to it unseen.
    fn dirtied(&self, _mapped: bool) {}
}

enum Slot {
    Loading(u64),
    Ready {
        frame: Frame,
        dirty: bool,
        /// A shared mapping was made writable: while anybody maps it, the page changes unseen.
        exposed: bool,
    },
    /// The page was in the memory of another kernel, which has died. EIO, until it is written as a whole or taken away.
    Lost,
}

impl Slot {
    fn fresh(frame: Frame) -> Self {
        Slot::Ready { frame, dirty: false, exposed: false }
    }

    /// Whether nothing is lost if the page goes: it can be read again, and nobody maps or reads it now.
    fn is_idle(&self, memory: &dyn Memory) -> bool {
        matches!(self, Slot::Ready { frame, dirty: false, .. } if memory.count(*frame) == 1)
    }
}

impl FrameSlot for Slot {
    fn frame(&self) -> Option<Frame> {
        match self {
            Slot::Ready { frame, .. } => Some(*frame),
            Slot::Loading(_) | Slot::Lost => None,
        }
    }
}

struct State {
    size: u64,
    pages: Pages,
    tickets: u64,
    /// The page a sequential reader wants next from the store, and how many he got last time; 0: the last one was no sequential reader.
    next: u64,
    window: u64,
    dirty: DirtyPages,
    /// Pages whose bytes are on their way to the store.
    writing: usize,
    /// Changes of contents made here: an answer about the store from before one is out of date.
    epoch: u64,
    /// Pages that others have or had copies of (lent.rs).
    copies: BTreeMap<u64, Copies>,
    /// Pages that direct writes are about (direct.rs).
    direct: Vec<Range<u64>>,
    /// How often pages were lost: see [`Object::losses`].
    losses: u64,
}

pub struct PageCache {
    id: ObjectId,
    this: Weak<PageCache>,
    holders: Holders,
    /// No more holes (F_SEAL_WRITE, F_SEAL_FUTURE_WRITE).
    pub(crate) sealed: AtomicBool,
    /// It may be sealed some day.
    pub(crate) sealable: AtomicBool,
    /// Held while it is found out whether it can be sealed.
    pub(crate) sealing: AsyncLock<()>,
    services: Arc<Services>,
    store: Option<Arc<dyn Store>>,
    /// Of the file system, if that says how many pages there may be.
    account: Option<Arc<Account>>,
    /// Of who it is kept for, if that is no file system.
    _charge: Charge,
    state: Lock<State>,
    hands: Hands,
    loaded: WaitQueue,
    /// Held by who changes size or contents, so that appends do not overlap.
    writer: AsyncLock<()>,
    /// A task writes pages back that sync_file_range was asked for.
    begun: AtomicBool,
    /// Held while bytes are on their way to the store: a truncation must not be overtaken by them.
    flushing: AsyncLock<()>,
    /// Ranges that wait for `flushing` to be written back.
    asked: Lock<Vec<Arc<write_back::Asked>>>,
}

/// Pages on their way; what has not arrived is given up.
struct Loading<'a> {
    cache: &'a PageCache,
    ticket: u64,
    pages: Range<u64>,
}

impl Drop for Loading<'_> {
    fn drop(&mut self) {
        let mut state = self.cache.state.lock();
        for index in self.pages.clone() {
            if matches!(state.pages.get(&index), Some(Slot::Loading(ticket)) if *ticket == self.ticket) {
                state.pages.remove(&index);
            }
        }
        drop(state);
        self.cache.loaded.wake_all();
    }
}

enum Step<'m> {
    Have(CountedFrame<'m>),
    Wait,
    /// It exists nowhere yet.
    Make,
    Load {
        ticket: u64,
        pages: Range<u64>,
    },
}

impl PageCache {
    /// Pages that exist only here.
    pub fn memory(services: &Arc<Services>, size: u64) -> Arc<Self> {
        Self::new(services, size, None, None, Charge::FREE)
    }

    /// The same, for somebody who pays for it.
    fn charged(services: &Arc<Services>, size: u64, charge: Charge) -> Arc<Self> {
        Self::new(services, size, None, None, charge)
    }

    /// Pages that exist only here, of a file system whose account says how many there may be (ENOSPC).
    pub fn within(services: &Arc<Services>, account: &Arc<Account>) -> Arc<Self> {
        Self::new(services, 0, None, Some(account.clone()), Charge::FREE)
    }

    /// Pages of a file that lies elsewhere.
    pub fn over(services: &Arc<Services>, size: u64, store: Arc<dyn Store>) -> Arc<Self> {
        let cache = Self::new(services, size, Some(store), None, Charge::FREE);
        services.reclaimable(&cache);
        cache
    }

    fn new(
        services: &Arc<Services>,
        size: u64,
        store: Option<Arc<dyn Store>>,
        account: Option<Arc<Account>>,
        _charge: Charge,
    ) -> Arc<Self> {
        let pages = account.as_ref().map_or(Charge::FREE, |account| account.nothing(Resource::Pages));
        let cache = Arc::new_cyclic(|this| PageCache {
            id: services.object_id(),
            this: this.clone(),
            holders: Holders::default(),
            sealed: AtomicBool::new(false),
            sealable: AtomicBool::new(false),
            sealing: AsyncLock::new(()),
            services: services.clone(),
            store,
            account,
            _charge,
            state: Lock::new(State {
                size,
                pages: Pages::new(services.memory.clone(), pages),
                tickets: 0,
                next: 0,
                window: 0,
                dirty: services.flusher.count(),
                writing: 0,
                epoch: 0,
                copies: BTreeMap::new(),
                direct: Vec::new(),
                losses: 0,
            }),
            hands: Hands::default(),
            loaded: WaitQueue::new(),
            writer: AsyncLock::new(()),
            begun: AtomicBool::new(false),
            flushing: AsyncLock::new(()),
            asked: Lock::new(Vec::new()),
        });
        services.register(&cache);
        cache
    }

    pub fn len(&self) -> u64 {
        self.state.lock().size
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn has_dirty(&self) -> bool {
        self.state.lock().dirty.get() > 0
    }

    /// Whether no page is dirty, nor on its way to the store.
    pub(crate) fn is_clean(&self) -> bool {
        let state = self.state.lock();
        state.dirty.get() == 0 && state.writing == 0
    }

    /// Changes whenever contents change from this side.
    pub fn epoch(&self) -> u64 {
        self.state.lock().epoch
    }

    /// Frames in memory.
    pub fn frames(&self) -> u64 {
        let state = self.state.lock();
        match self.store {
            // None is ever on its way.
            None => state.pages.len() as u64,
            Some(_) => state.pages.values().filter(|slot| matches!(slot, Slot::Ready { .. })).count() as u64,
        }
    }

    /// For a page more. ENOSPC: the file system is full; EDQUOT: the control group is (group.rs).
    async fn frame(&self) -> Result<CountedFrame<'_>> {
        if !self.has_room() {
            return Err(Errno::ENOSPC);
        }
        let page = self.services.charge(self.page_kind()).await?;
        let frame = match self.store {
            Some(_) => self.services.frame_at_any_cost().await?,
            None => self.services.lasting_frame().await?,
        };
        page.put_on(frame.frame());
        Ok(frame)
    }

    /// See [`Store::reserve`].
    fn reserve_below(&self, pages: Range<u64>) -> Option<BoxFuture<'_, Result<()>>> {
        self.store.as_ref()?.reserve(pages)
    }

    fn has_room(&self) -> bool {
        self.account.as_ref().is_none_or(|account| account.used(Resource::Pages) < account.most(Resource::Pages))
    }

    /// See [`Services::lose_frames`].
    pub(crate) async fn lose_frames(&self) {
        if self.store.is_some() {
            return;
        }
        let memory = &*self.services.memory;
        let (first, end) = {
            let mut state = self.state.lock();
            let (mut first, mut end) = (u64::MAX, 0);
            for (index, slot) in state.pages.iter_mut() {
                if let Some(frame) = slot.frame().filter(|frame| memory.is_lost(*frame)) {
                    *slot = Slot::Lost;
                    drop(CountedFrame::from_raw(memory, frame));
                    (first, end) = (first.min(index), index + 1);
                }
            }
            if first >= end {
                return;
            }
            state.lose(first, end);
            (first, end)
        };
        log::error!("pages {first} to {end} of a file in memory went with a kernel that died");
        self.withdraw(first, end, false).await;
    }

    fn dirty(&self, mut state: machine::sync::LockGuard<'_, State>, index: u64) {
        let Some(store) = &self.store else { return };
        state.epoch += 1;
        let Some(Slot::Ready { dirty, exposed, .. }) = state.pages.get_mut(&index) else { return };
        if core::mem::replace(dirty, true) {
            return;
        }
        let mapped = *exposed;
        state.dirty.add(1);
        let first = state.dirty.get() == 1;
        drop(state);
        if first {
            store.dirtied(mapped);
        }
        self.services.note_dirty();
    }

    /// The frame of a page, read from the store if need be; the caller needs `wanted` pages from there on. EFAULT past the end.
    async fn load(&self, index: u64, wanted: u64, advice: ReadAhead) -> Result<CountedFrame<'_>> {
        let mut alone = false;
        loop {
            // A page that may be the bad one is read by itself.
            let (wanted, advice) = if alone { (1, ReadAhead::Random) } else { (wanted, advice) };
            match self.step(index, wanted, advice)? {
                Step::Have(frame) => return Ok(frame),
                Step::Make => {
                    let frame = self.frame().await?;
                    let mut state = self.state.lock();
                    let here = index < state.size.div_ceil(PAGE) && !state.pages.contains_key(&index);
                    if !here || self.services.memory.is_lost(frame.frame()) {
                        continue;
                    }
                    state.pages.insert(index, frame.clone());
                    return Ok(frame);
                }
                Step::Wait => {
                    self.loaded
                        .wait_until(|| {
                            let state = self.state.lock();
                            (!matches!(state.pages.get(&index), Some(Slot::Loading(_)))).then_some(())
                        })
                        .await
                }
                Step::Load { ticket, pages } => {
                    let Some(store) = &self.store else { return Err(Errno::EIO) };
                    let loading = Loading { cache: self, ticket, pages: pages.clone() };
                    let counted = self.frames_to_read_into(&pages).await?;
                    let frames: Vec<Frame> = counted.iter().map(CountedFrame::frame).collect();
                    let room = Frames::new(&*self.services.memory, &frames, frames.len() * PAGE_SIZE);
                    match store.read(pages.start * PAGE, room).await {
                        Ok(_) => {
                            if let Some(frame) = self.arrive(&loading, counted) {
                                return Ok(frame);
                            }
                        }
                        // Another page may be the bad one; or the store needs memory, of which this gives back what is only read ahead.
                        Err(Errno::EIO | Errno::ENOMEM) if pages.end - pages.start > 1 => alone = true,
                        Err(error) => return Err(error),
                    }
                }
            }
        }
    }

    /// What is to be done to have a page, of `wanted` that the caller needs one after the other.
    fn step(&self, index: u64, wanted: u64, advice: ReadAhead) -> Result<Step<'_>> {
        let mut state = self.state.lock();
        if index >= state.size.div_ceil(PAGE) {
            return Err(Errno::EFAULT);
        }
        match state.pages.get(&index) {
            Some(Slot::Ready { frame, .. }) => {
                return Ok(Step::Have(CountedFrame::retain(&*self.services.memory, *frame)));
            }
            Some(Slot::Loading(_)) => return Ok(Step::Wait),
            Some(Slot::Lost) => return Err(Errno::EIO),
            None => {}
        }
        let Some(store) = &self.store else { return Ok(Step::Make) };
        let most = advice::most(&**store, advice);
        let window = match index {
            _ if advice == ReadAhead::Random => 0,
            0 => read_ahead(0, wanted, most),
            _ if index == state.next => read_ahead(state.window, wanted, most),
            _ => 0,
        };
        let limit = (index + window.max(wanted).min(most)).min(state.size.div_ceil(PAGE));
        let end = state.pages.range(index..limit).next().map_or(limit, |(taken, _)| *taken);
        if advice != ReadAhead::Random {
            (state.window, state.next) = (window, end);
        }
        state.tickets += 1;
        let ticket = state.tickets;
        for page in index..end {
            state.pages.note(page, Slot::Loading(ticket));
        }
        Ok(Step::Load { ticket, pages: index..end })
    }

    /// Frames for pages from the store. Only the first must be had; read-ahead may not.
    async fn frames_to_read_into(&self, pages: &Range<u64>) -> Result<Vec<CountedFrame<'_>>> {
        let first = self.services.charge(self.page_kind()).await?;
        let mut frames = alloc::vec![self.services.frame_at_any_cost().await?];
        first.put_on(frames[0].frame());
        for _ in pages.start + 1..pages.end {
            let Some(page) = self.services.charge_now(self.page_kind()) else { break };
            let Ok(frame) = self.services.frame() else { break };
            page.put_on(frame.frame());
            frames.push(frame);
        }
        Ok(frames)
    }

    /// Makes pages of what has come from the store. Answers the first, of which the caller has a count from the beginning: without one it would be the first to go if memory is short.
    /// None: it was truncated meanwhile.
    fn arrive<'m>(&self, loading: &Loading<'_>, frames: Vec<CountedFrame<'m>>) -> Option<CountedFrame<'m>> {
        let mut first = None;
        for (index, frame) in loading.pages.clone().zip(frames) {
            let mut state = self.state.lock();
            if matches!(state.pages.get(&index), Some(Slot::Loading(ticket)) if *ticket == loading.ticket) {
                if index == loading.pages.start {
                    first = Some(frame.clone());
                }
                state.pages.insert(index, frame);
                self.services.refaults.back(self.id, index);
            }
        }
        first
    }

    /// The file was changed below, as was found out by a question asked at `epoch`: forgets its pages, but for those
    /// that mappings here may have written to meanwhile.
    pub async fn invalidate(&self, size: u64, epoch: u64) {
        let lost = {
            let mut state = self.state.lock();
            if state.dirty.get() > 0 || state.writing > 0 || state.epoch != epoch {
                return;
            }
            state.size = size;
            let before = state.pages.len();
            let memory = &self.services.memory;
            let keeps =
                |slot: &Slot| matches!(slot, Slot::Ready { frame, exposed: true, .. } if memory.count(*frame) > 1);
            state.pages.retain(|_, slot| keeps(slot));
            state.lose(0, u64::MAX) | (state.pages.len() < before)
        };
        self.loaded.wake_all();
        if lost {
            self.withdraw(0, u64::MAX, false).await;
        }
    }

    /// Whose the frames are that it holds.
    pub(crate) fn homes(&self) -> Vec<KernelId> {
        let state = self.state.lock();
        let frames = state.pages.values().filter_map(Slot::frame);
        frames.filter_map(|frame| self.services.memory.home_of(frame)).collect()
    }
}

impl Drop for PageCache {
    fn drop(&mut self) {
        self.services.unregister(self.id);
    }
}

/// How many pages a sequential reader gets who got `before` and needs `wanted`, `most` at most; who reads here and there gets what he wants and no more. Numbers are those of Linux
/// (mm/readahead.c): a reader who begins may soon end.
fn read_ahead(before: u64, wanted: u64, most: u64) -> u64 {
    let size = if before == 0 { wanted.max(1).next_power_of_two() } else { before };
    match before {
        0 if size <= most / 32 => size * 4,
        0 if size <= most / 4 => size * 2,
        1.. if size < most / 16 => size * 4,
        1.. if size <= most / 2 => size * 2,
        _ => most,
    }
}
