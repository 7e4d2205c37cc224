//! Memory that several spaces share and no file names: MAP_SHARED | MAP_ANONYMOUS, System V segments.

use crate::{region::Backing, vm::Shared, withdraw::Frames};
use abi::ObjectId;
use alloc::{boxed::Box, collections::BTreeMap, sync::Arc};
use core::sync::atomic::{AtomicU64, Ordering};
use fs::{Holders, Loaned, Lost, Mappers, Object};
use machine::{errno::Result, sync::Lock, to_completion, BoxFuture, Errno, Frame, KernelId, PAGE_BITS};

/// Serial numbers with this bit are of memory, those without of files.
const MEMORY: u64 = 1 << 63;

/// Zero until written; its frames are on this kernel.
pub struct SharedMemory {
    vm: Arc<Shared>,
    id: ObjectId,
    pages: u64,
    /// A tree, which grows in small pieces: memory may be large.
    frames: Lock<BTreeMap<u64, Frame>>,
    holders: Holders,
    losses: AtomicU64,
}

impl SharedMemory {
    pub(crate) fn create(vm: Arc<Shared>, pages: u64) -> Arc<Self> {
        let serial = vm.serials.next() | MEMORY;
        let id = ObjectId { owner: vm.memory.kernel(), serial };
        let memory = Arc::new(SharedMemory {
            vm,
            id,
            pages,
            frames: Lock::default(),
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

    fn get(&self, index: u64) -> Result<Frame> {
        if index >= self.pages {
            return Err(Errno::EFAULT);
        }
        let mut frames = self.frames.lock();
        let frame = match frames.get(&index) {
            Some(frame) => *frame,
            None => {
                let frame = self.vm.memory.alloc().ok_or(Errno::ENOMEM)?;
                frames.insert(index, frame);
                frame
            }
        };
        self.vm.memory.retain(frame);
        Ok(frame)
    }
}

impl Object for SharedMemory {
    fn id(&self) -> ObjectId {
        self.id
    }

    fn size(&self) -> u64 {
        self.pages << PAGE_BITS
    }

    fn page(&self, index: u64) -> BoxFuture<'_, Result<Frame>> {
        Box::pin(core::future::ready(self.get(index)))
    }

    fn resident(&self, index: u64) -> Option<Frame> {
        let frames = self.frames.lock();
        let frame = frames.get(&index).copied()?;
        self.vm.memory.retain(frame);
        Some(frame)
    }

    fn mark_dirty(&self, _index: u64) {}

    fn sync(&self, _start: u64, _end: u64) -> BoxFuture<'_, Result<()>> {
        Box::pin(core::future::ready(Ok(())))
    }

    fn losses(&self) -> u64 {
        self.losses.load(Ordering::Acquire)
    }

    fn lend(&self, index: u64, to: KernelId, _write: bool) -> BoxFuture<'_, Result<Loaned>> {
        self.holders.add(to);
        Box::pin(core::future::ready(self.get(index).map(Loaned::Own)))
    }

    fn punch(&self, first: u64, end: u64) -> BoxFuture<'_, Result<()>> {
        let mut dead = Frames::default();
        {
            let mut frames = self.frames.lock();
            // Under the lock: who gets a page afterwards sees it (pairs with the load in `losses`).
            self.losses.fetch_add(1, Ordering::AcqRel);
            frames.retain(|index, frame| {
                let keep = !(first..end).contains(index);
                if !keep {
                    dead.push(*frame, 1);
                }
                keep
            });
        }
        if dead.is_empty() {
            return Box::pin(core::future::ready(Ok(())));
        }
        let memory = self.vm.shared_memory(self.id);
        let lost = Lost { object: self.id, first, end, private: false };
        Box::pin(async move {
            let Some(memory) = memory else { return Ok(()) };
            let vm = memory.vm.clone();
            let work = async move {
                dead.release(&*memory.vm.memory);
                memory.vm.lost(lost).await;
                memory.holders.tell(&*memory.vm, lost).await;
            };
            to_completion(&*vm.spawner, work).await;
            Ok(())
        })
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        self.vm.memories.lock().remove(&self.id.serial);
        for frame in self.frames.get_mut().values() {
            self.vm.memory.release(*frame);
        }
    }
}
