//! Mapped files of other kernels. A kernel that maps one privately keeps copies of the pages that it reads. (A thread
//! that moved still borrows text pages from the owner of their slice: docs/limits.md.)
//!
//! Copies are only for reading. The owner asks for them back before it changes a page ([`crate::cache`], lent.rs), so
//! they never show an older state than the file. Of pages that may change at any time the owner lends its own frame instead, pinned
//! as for a shared mapping. Pages of shared mappings are never copied: mostly the kernel named in [`Object::id`] maps them itself, and
//! for the other cases see shared.rs.

use super::{loan::Loan, shared::SharedPages, Remote, RemoteFile, OBJECTS_KEPT};
use crate::{
    cache::{
        advice::ADVISED,
        reclaim::{self, is_charged_to, ChargedTo, Hands, Look, Objects, Reclaimable, Request, Stage},
    },
    file::ready,
    Object, ObjectId, ReadAhead,
};
use alloc::{
    boxed::Box,
    sync::{Arc, Weak},
    vec::Vec,
};
use core::ops::{
    Bound::{Excluded, Unbounded},
    Range,
};
use machine::{
    errno::Result,
    group::{ChargedPage, PageKind},
    pause,
    sync::Lock,
    BoxFuture, CountedFrame, Errno, Frame, FrameTree, GroupId, KernelId, KernelSet, Memory, PAGE_SIZE,
};
use messages::{
    cgroup::Reclaim,
    fs::{Lost, ObjectLost, ObjectPages, ObjectPagesReply, ObjectPunch, Opened},
};

/// Pages asked for at a time: as many as Linux maps around a fault of a file (fault_around_bytes), and as one transfer has.
const RUN: u64 = 16;

/// An object (mapped file) of another kernel, as long as this kernel uses it. There is one for each object.
pub(super) struct Foreign {
    pub id: ObjectId,
    /// Keeps the object in use at its owner.
    pub file: Arc<RemoteFile>,
    pages: Lock<Pages>,
    hands: Hands,
}

struct Pages {
    frames: FrameTree<Frame>,
    /// See [`Object::losses`].
    losses: u64,
}

/// A count of a page, for who has asked for it.
struct Kept(Arc<Foreign>, Frame);

impl Drop for Kept {
    fn drop(&mut self) {
        self.0.memory().release(self.1);
    }
}

/// Another kernel's object, for reading and for private mappings.
pub struct RemoteObject(Arc<Foreign>);

impl Remote {
    /// The object with this id, of which another kernel has sent a reference.
    pub(super) fn object(&self, opened: Opened, id: ObjectId) -> Result<Arc<RemoteObject>> {
        let name = opened.file;
        // Keeps the stand-in alive until it has been found by its name.
        let _file = self.accept(opened)?;
        let file = self.stand_ins.lock().get(&name).and_then(Weak::upgrade).ok_or(Errno::EBADF)?;
        let foreign = {
            let mut known = self.foreign.lock();
            match known.get(&id).and_then(Weak::upgrade) {
                Some(foreign) => foreign,
                None => {
                    let pages = Pages { frames: FrameTree::new(self.memory.clone()), losses: 0 };
                    let foreign = Arc::new(Foreign { id, file, pages: Lock::new(pages), hands: Hands::default() });
                    known.insert(id, Arc::downgrade(&foreign));
                    foreign
                }
            }
        };
        Ok(Arc::new(RemoteObject(foreign)))
    }

    /// The same. The object and its pages are kept in case it is mapped again.
    pub(super) fn mapped(&self, opened: Opened, id: ObjectId) -> Result<Arc<RemoteObject>> {
        let object = self.object(opened, id)?;
        let mut kept = self.objects.lock();
        let there = kept.iter().position(|foreign| foreign.id == id);
        let old = there.and_then(|index| kept.remove(index));
        kept.push_back(object.0.clone());
        let oldest = if kept.len() > OBJECTS_KEPT { kept.pop_front() } else { None };
        // Dropping an object may drop a stand-in: not under the lock.
        drop(kept);
        drop((old, oldest));
        Ok(object)
    }

    /// Drops the objects that are only kept in case they are mapped again. Answers how many pages they had.
    pub fn reclaim(&self) -> usize {
        self.names.clear();
        let all = core::mem::take(&mut *self.objects.lock());
        let (unused, used): (Vec<_>, Vec<_>) = all.into_iter().partition(|object| Arc::strong_count(object) == 1);
        self.objects.lock().extend(used);
        unused.iter().map(|object: &Arc<Foreign>| object.pages.lock().frames.len()).sum()
    }

    fn request<'a>(&'a self, of: Option<&'a [GroupId]>) -> Request<'a> {
        let mappers = self.mappers.lock().clone();
        Request { objects: self, of, mappers, refaults: &self.refaults, spawner: &*self.spawner }
    }

    /// Drops copies of pages that are charged to `groups` (ascending) and meant. Answers how many.
    pub async fn reclaim_of(&self, groups: &[GroupId], which: Reclaim) -> usize {
        self.request(Some(groups)).meant(which).await
    }

    /// Drops copies that programs map: first those that nobody used lately. Answers how many; 0 if there is no copy at all that can go.
    pub async fn reclaim_mapped(&self) -> usize {
        let request = self.request(None);
        match request.some(&[Stage::Unused]).await {
            0 => request.any(&[Stage::Used, Stage::Unmapped]).await,
            freed => freed,
        }
    }

    /// Tells `others` that pages of an object of this kernel are lost. Answers those of them that use nothing of the object any more.
    pub async fn recall(&self, others: &KernelSet, lost: Lost) -> KernelSet {
        let answers = self.endpoint.multicast(others, ObjectLost { lost }).await;
        // A kernel that has died uses nothing.
        answers.into_iter().filter(|(_, uses)| !matches!(uses, Ok(true))).map(|(kernel, _)| kernel).collect()
    }

    /// Called when `owner` has died. No page of its objects is mapped from now on, since the frames that it lent are its memory.
    pub(super) fn objects_died(&self, owner: KernelId) {
        let of = |serial| ObjectId { owner, serial };
        let known: Vec<_> =
            self.foreign.lock().range(of(0)..=of(u64::MAX)).filter_map(|(_, foreign)| foreign.upgrade()).collect();
        for foreign in &known {
            foreign.lose(Lost { object: foreign.id, first: 0, end: u64::MAX, private: false });
        }
        // `known` keeps each alive until the lock is free: dropping one may drop its stand-in.
        self.objects.lock().retain(|foreign| foreign.id.owner != owner);
        drop(known);
    }

    /// Takes what is mapped of the objects of `dead` out of the page tables, in slices that this kernel owns. Nothing comes after it: no page that was under way is
    /// mapped ([`Remote::objects_died`]), and none can be asked for.
    pub async fn lose_objects(&self, dead: KernelId) {
        let Some(mappers) = self.mappers.lock().clone() else { return };
        let of = |serial| ObjectId { owner: dead, serial };
        let known: Vec<_> = {
            let known = self.foreign.lock();
            known
                .range(of(0)..=of(u64::MAX))
                .filter(|(_, foreign)| foreign.strong_count() > 0)
                .map(|(id, _)| *id)
                .collect()
        };
        for object in known {
            mappers.lost(Lost { object, first: 0, end: u64::MAX, private: false }).await;
        }
    }

    /// [`ObjectLost`]: pages of another kernel's object are lost. Answers false if this kernel does not use the object.
    pub(super) async fn hear_of_loss(&self, lost: Lost) -> bool {
        let foreign = self.foreign.lock().get(&lost.object).and_then(Weak::upgrade);
        let Some(foreign) = foreign else { return false };
        foreign.lose(lost);
        let mappers = self.mappers.lock().clone();
        if let Some(mappers) = mappers {
            mappers.lost(lost).await;
        }
        true
    }
}

impl Objects for Remote {
    fn count(&self) -> usize {
        self.foreign.lock().len()
    }

    fn next(&self, stage: Stage) -> Option<Arc<dyn Reclaimable>> {
        let last = &mut self.turns.lock()[stage as usize];
        let known = self.foreign.lock();
        let behind = last.map_or(Unbounded, Excluded);
        let (id, next) = known.range((behind, Unbounded)).next().or_else(|| known.first_key_value())?;
        *last = Some(*id);
        Some(next.upgrade()?)
    }
}

impl Reclaimable for Foreign {
    fn name(&self) -> ObjectId {
        self.id
    }

    fn hands(&self) -> &Hands {
        &self.hands
    }

    fn look(&self, range: Range<u64>, stage: Stage, of: ChargedTo<'_>, most: usize) -> Look {
        let memory = self.memory();
        let goes = |frame: Frame| match stage {
            Stage::Unmapped => memory.count(frame) == 1,
            Stage::Unused | Stage::Used => memory.count(frame) > 1,
            Stage::Dirty => false,
        };
        Look::at(&self.pages.lock().frames, range, most, |frame| goes(*frame) && is_charged_to(memory, *frame, of))
    }

    fn drop_idle(&self, range: Range<u64>, of: ChargedTo<'_>, most: usize, tell: &dyn Fn(u64)) -> usize {
        let memory = self.memory();
        let is_idle = |frame: &Frame| memory.count(*frame) == 1 && is_charged_to(memory, *frame, of);
        reclaim::drop_idle(&mut &mut self.pages.lock().frames, range, most, is_idle, |frames, index| {
            frames.remove(index);
            tell(index);
        })
    }
}

impl Foreign {
    fn memory(&self) -> &dyn Memory {
        &*self.file.remote.memory
    }

    /// The copy of a page, if there is one.
    fn get(&self, index: u64) -> Option<CountedFrame<'_>> {
        let pages = self.pages.lock();
        Some(CountedFrame::retain(self.memory(), *pages.frames.get(&index)?))
    }

    /// Enters pages that were asked for when `losses` had this value. If it has grown since, they may be out of date and are dropped.
    fn add<'m>(&self, first: u64, new: impl IntoIterator<Item = CountedFrame<'m>>, losses: u64) {
        let mut pages = self.pages.lock();
        let current = pages.losses == losses;
        // Goes through all even if none is kept: a frame that the iterator has not yielded would not be released.
        for (index, frame) in (first..).zip(new) {
            // Two may have asked for the same page: the first copy stays, it may be mapped.
            if current && !pages.frames.contains_key(&index) {
                pages.frames.insert(index, frame, |frame| frame);
                self.file.remote.refaults.back(self.id, index);
            }
        }
    }

    fn drop_unneeded(&self, pages: Range<u64>) {
        let memory = self.memory();
        self.pages.lock().frames.retain(|index, frame| !pages.contains(&index) || memory.count(*frame) > 1);
    }

    /// Drops the copies of lost pages.
    fn lose(&self, lost: Lost) {
        let mut pages = self.pages.lock();
        pages.losses += 1;
        // A page table that still maps one holds a count of its own.
        pages.frames.remove_range(lost.first..lost.end);
    }

    pub(super) fn losses(&self) -> u64 {
        self.pages.lock().losses
    }

    pub(super) async fn punch(&self, first: u64, end: u64) -> Result<()> {
        let name = self.file.name();
        self.file.remote.endpoint.call(name.owner, ObjectPunch { id: name.id, first, end }).await?
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        let remote = &self.file.remote;
        let mut known = remote.foreign.lock();
        // A new one may have taken its place already.
        if known.get(&self.id).is_some_and(|foreign| foreign.strong_count() == 0) {
            known.remove(&self.id);
        }
    }
}

impl RemoteObject {
    /// Who pays for copies, and may be charged with one. EDQUOT.
    async fn room_for_one(&self) -> Result<GroupId> {
        let remote = &self.0.file.remote;
        let payer = remote.spawner.payer();
        while ChargedPage::new(&*remote.memory, payer, PageKind::File).is_err() {
            let mappers = remote.mappers.lock().clone();
            let room = match mappers {
                Some(mappers) => mappers.room_in_group(payer).await,
                None => false,
            };
            if !room {
                return Err(Errno::EDQUOT);
            }
        }
        Ok(payer)
    }

    /// Gets copies of a page and some that follow from the owner.
    async fn fetch(&self, index: u64, read_ahead: ReadAhead) -> Result<CountedFrame<'_>> {
        let remote = &self.0.file.remote;
        let name = self.0.file.name();
        loop {
            let payer = self.room_for_one().await?;
            let losses = self.0.losses();
            let pages = match read_ahead {
                ReadAhead::Random => 1,
                _ => RUN - index % RUN,
            };
            let loan = Loan::for_bytes(&remote.memory, pages as usize * PAGE_SIZE);
            if loan.frames().is_empty() {
                return Err(Errno::ENOMEM);
            }
            let message = ObjectPages { id: name.id, first: index, frames: loan.frames().to_vec(), read_ahead };
            let here = self.0.clone();
            let accept = move |reply: Result<ObjectPagesReply>| -> Result<Option<Kept>> {
                match reply? {
                    ObjectPagesReply::Copies(0) => return Err(Errno::EIO),
                    ObjectPagesReply::Copies(count) => {
                        let kept = loan.keep(count as usize).into_iter();
                        let charged = kept.map(|frame| {
                            // There was room for one; some more do not matter.
                            ChargedPage::anyway(here.memory(), payer, PageKind::File).put_on(frame);
                            CountedFrame::from_raw(here.memory(), frame)
                        });
                        here.add(index, charged, losses);
                    }
                    ObjectPagesReply::Own(frame) => {
                        here.memory().accept_pin(frame, name.owner);
                        here.add(index, [CountedFrame::from_raw(here.memory(), frame)], losses);
                    }
                }
                // From here on: a page that nobody has is the first to go if memory is short.
                Ok(here.get(index).map(|frame| Kept(here.clone(), frame.into_raw())))
            };
            // None: the page was lost again already, by a change at the owner.
            if let Some(kept) = remote.ask(name.owner, message, accept, drop).await?? {
                return Ok(CountedFrame::retain(self.0.memory(), kept.1));
            }
        }
    }
}

impl Object for RemoteObject {
    fn id(&self) -> ObjectId {
        self.0.id
    }

    /// Only the owner knows the size, and it refuses pages past the end.
    fn size(&self) -> u64 {
        crate::cache::MAX_SIZE
    }

    fn page(&self, index: u64) -> BoxFuture<'_, Result<CountedFrame<'_>>> {
        self.page_advised(index, ReadAhead::Normal)
    }

    fn page_advised(&self, index: u64, read_ahead: ReadAhead) -> BoxFuture<'_, Result<CountedFrame<'_>>> {
        match self.0.get(index) {
            Some(frame) => ready(Ok(frame)),
            None => Box::pin(self.fetch(index, read_ahead)),
        }
    }

    fn resident(&self, index: u64) -> Option<CountedFrame<'_>> {
        self.0.get(index)
    }

    fn read_ahead(&self, first: u64, end: u64) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let memory = &self.0.file.remote.memory;
            for index in first..end.min(first.saturating_add(ADVISED)) {
                // EFAULT: the file ends there.
                if self.page(index).await.is_err() || !memory.has_room() {
                    break;
                }
                pause(&*self.0.file.remote.spawner).await;
            }
        })
    }

    /// The copies only: the owner is told by who has the file open.
    fn not_needed(&self, start: u64, end: u64) -> BoxFuture<'_, ()> {
        self.0.drop_unneeded(start.div_ceil(PAGE_SIZE as u64)..end / PAGE_SIZE as u64);
        ready(())
    }

    /// Copies are never written.
    fn mark_dirty(&self, _index: u64) {}

    fn sync(&self, _start: u64, _end: u64) -> BoxFuture<'_, Result<()>> {
        ready(Ok(()))
    }

    fn losses(&self) -> u64 {
        self.0.losses()
    }

    fn punch(&self, first: u64, end: u64) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.0.punch(first, end))
    }

    fn shared(&self) -> Option<Arc<dyn Object>> {
        Some(Arc::new(SharedPages::new(self.0.clone())))
    }
}
