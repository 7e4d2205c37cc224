//! Memory that several spaces share and no file names: MAP_SHARED | MAP_ANONYMOUS, System V segments.

use crate::{region::Backing, vm::Shared, withdraw::Frames};
use abi::ObjectId;
use alloc::{boxed::Box, sync::Arc};
use core::sync::atomic::{AtomicU64, Ordering};
use fs::{Holders, Loaned, Lost, Mappers, Object, ReadAhead};
use machine::{
    errno::Result,
    group::{ChargedPage, PageKind},
    sync::Lock,
    to_completion, BoxFuture, CountedFrame, Errno, Frame, FrameTree, GroupId, KernelId, PAGE_BITS,
};

/// Serial numbers with this bit are of memory, those without of files.
const MEMORY: u64 = 1 << 63;

/// Shared anonymous memory (MAP_SHARED with MAP_ANONYMOUS, System V segments). It is zero until written. The kernel that made
/// it counts its frames, whichever kernel they are from.
pub struct SharedMemory {
    vm: Arc<Shared>,
    id: ObjectId,
    pages: u64,
    /// None: the page went with a kernel that died.
    frames: Lock<FrameTree<Option<Frame>>>,
    holders: Holders,
    losses: AtomicU64,
}

/// Why a page can't be had yet, or at all.
enum Lacking {
    Frame,
    /// To charge the group with it.
    Leave(GroupId),
    Page(Errno),
}

impl SharedMemory {
    pub(crate) fn create(vm: Arc<Shared>, pages: u64) -> Arc<Self> {
        let serial = vm.serials.next() | MEMORY;
        let id = ObjectId { owner: vm.memory.kernel(), serial };
        let memory = Arc::new(SharedMemory {
            frames: Lock::new(FrameTree::new(vm.memory.clone())),
            vm,
            id,
            pages,
            holders: Holders::default(),
            losses: AtomicU64::new(0),
        });
        memory.vm.memories.lock().insert(serial, Arc::downgrade(&memory));
        memory
    }

    /// New memory as a mapping of its own shows it.
    pub(crate) fn backing(vm: Arc<Shared>, pages: u64) -> Backing {
        Backing { object: Self::create(vm, pages), first: 0, label: (*b"/dev/zero (deleted)").into() }
    }

    /// A page, as a fault of anonymous memory gets one (borrow.rs).
    async fn get(&self, index: u64) -> Result<CountedFrame<'_>> {
        let mut to_the_last = false;
        loop {
            match self.try_get(index, to_the_last) {
                Ok(frame) => return Ok(frame),
                Err(Lacking::Leave(group)) if self.vm.room_in_group(group).await => {}
                Err(Lacking::Leave(_)) => return Err(Errno::EDQUOT),
                Err(Lacking::Frame) if !to_the_last => to_the_last = !self.vm.borrow(false).await,
                Err(Lacking::Frame) if self.vm.borrow(true).await => {}
                Err(Lacking::Frame) => return Err(Errno::ENOMEM),
                Err(Lacking::Page(error)) => return Err(error),
            }
        }
    }

    fn try_get(&self, index: u64, to_the_last: bool) -> core::result::Result<CountedFrame<'_>, Lacking> {
        if index >= self.pages {
            return Err(Lacking::Page(Errno::EFAULT));
        }
        let memory = &*self.vm.memory;
        // What is taken from the stock under the lock is found by `lose_frames`, or is not of the dead.
        let mut frames = self.frames.lock();
        if let Some(frame) = frames.get(&index) {
            return Ok(CountedFrame::retain(memory, frame.ok_or(Lacking::Page(Errno::EIO))?));
        }
        let payer = self.vm.spawner.payer();
        let page = ChargedPage::new(memory, payer, PageKind::Shared).map_err(|_| Lacking::Leave(payer))?;
        let rest = || if to_the_last { memory.alloc() } else { None };
        let frame = memory.alloc_anywhere().or_else(rest).ok_or(Lacking::Frame)?;
        page.put_on(frame);
        let frame = CountedFrame::from_raw(memory, frame);
        frames.insert(index, frame.clone(), Some);
        Ok(frame)
    }

    /// Takes the pages that lay in the memory of a kernel which has died from everybody.
    pub(crate) async fn lose_frames(self: &Arc<Self>) {
        let (mut dead, mut first, mut end) = (Frames::default(), u64::MAX, 0);
        {
            let mut frames = self.frames.lock();
            self.losses.fetch_add(1, Ordering::AcqRel);
            for (index, slot) in frames.iter_mut() {
                if slot.is_some_and(|frame| self.vm.memory.is_lost(frame)) {
                    slot.take().into_iter().for_each(|frame| dead.push(frame, 1));
                    (first, end) = (first.min(index), index + 1);
                }
            }
        }
        if !dead.is_empty() {
            log::error!("pages {first} to {end} of shared memory went with a kernel that died");
            self.clone().take_from_all(dead, first, end).await;
        }
    }

    /// `dead` are pages of `first..end` that it does not have any more.
    async fn take_from_all(self: Arc<Self>, dead: Frames, first: u64, end: u64) {
        let lost = Lost { object: self.id, first, end, private: false };
        let vm = self.vm.clone();
        let work = async move {
            dead.release(&*self.vm.memory);
            self.vm.lost(lost).await;
            self.holders.tell(&*self.vm, lost).await;
        };
        to_completion(&*vm.spawner, work).await
    }
}

impl Object for SharedMemory {
    fn id(&self) -> ObjectId {
        self.id
    }

    fn size(&self) -> u64 {
        self.pages << PAGE_BITS
    }

    fn page(&self, index: u64) -> BoxFuture<'_, Result<CountedFrame<'_>>> {
        Box::pin(self.get(index))
    }

    fn resident(&self, index: u64) -> Option<CountedFrame<'_>> {
        let frames = self.frames.lock();
        Some(CountedFrame::retain(&*self.vm.memory, frames.get(&index).copied()??))
    }

    fn mark_dirty(&self, _index: u64) {}

    fn sync(&self, _start: u64, _end: u64) -> BoxFuture<'_, Result<()>> {
        Box::pin(core::future::ready(Ok(())))
    }

    fn losses(&self) -> u64 {
        self.losses.load(Ordering::Acquire)
    }

    fn lend(&self, index: u64, to: KernelId, _write: bool, _: ReadAhead) -> BoxFuture<'_, Result<Loaned<'_>>> {
        self.holders.add(to);
        Box::pin(async move { self.get(index).await.map(Loaned::Own) })
    }

    fn punch(&self, first: u64, end: u64) -> BoxFuture<'_, Result<()>> {
        let mut dead = Frames::default();
        {
            let mut frames = self.frames.lock();
            // Under the lock: who gets a page afterwards sees it (pairs with the load in `losses`).
            self.losses.fetch_add(1, Ordering::AcqRel);
            frames.take_range(first..end, |frame| dead.push(frame, 1));
        }
        if dead.is_empty() {
            return Box::pin(core::future::ready(Ok(())));
        }
        let memory = self.vm.shared_memory(self.id);
        Box::pin(async move {
            if let Some(memory) = memory {
                memory.take_from_all(dead, first, end).await;
            }
            Ok(())
        })
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        self.vm.memories.lock().remove(&self.id.serial);
    }
}
