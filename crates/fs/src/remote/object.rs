//! Mapped files of other kernels: a kernel that maps one has copies of its own of the pages it reads. (A thread
//! that moved still borrows text pages from the owner of their slice: docs/limits.md.)
//!
//! Copies are only for reading. They are of one state of the file (size and times of change); the next
//! mmap after a change gets a fresh object. Shared pages are never copied: mostly they are mapped by the
//! kernel named in [`Object::id`], and if not, see shared.rs.

use super::{loan::Loan, shared::SharedPages, Remote, RemoteFile, OBJECTS_KEPT};
use crate::{file::ready, FileRef, Object, ObjectId};
use alloc::{
    boxed::Box,
    collections::BTreeMap,
    sync::{Arc, Weak},
};
use machine::{errno::Result, sync::Lock, BoxFuture, Errno, Frame, PAGE_SIZE};
use messages::fs::{ObjectPages, ObjectState};

/// Pages asked for at a time.
const RUN: u64 = 8;

pub struct RemoteObject {
    /// Keeps the file open at its owner.
    file: Arc<RemoteFile>,
    name: FileRef,
    state: ObjectState,
    pages: Arc<Pages>,
}

/// The copies. Shared with answers that arrive late.
struct Pages {
    memory: Arc<dyn machine::Memory>,
    frames: Lock<BTreeMap<u64, Frame>>,
}

impl Remote {
    /// The object of a stand-in, with the pages that are here already if the file is still the same.
    pub(super) fn object(&self, name: FileRef, state: ObjectState) -> Result<Arc<RemoteObject>> {
        let mut objects = self.objects.lock();
        let there = objects.iter().position(|object| object.state.id == state.id);
        let old = there.and_then(|index| objects.remove(index));
        let object = match &old {
            Some(object) if object.state == state => object.clone(),
            _ => Arc::new(RemoteObject::new(self, name, state)?),
        };
        objects.push_back(object.clone());
        let oldest = if objects.len() > OBJECTS_KEPT { objects.pop_front() } else { None };
        // Dropping an object may drop a stand-in: not under the lock.
        drop(objects);
        drop((old, oldest));
        Ok(object)
    }

    /// Gives back the pages of objects that are only kept in case they are mapped again; says how many.
    pub fn reclaim(&self) -> usize {
        let all = core::mem::take(&mut *self.objects.lock());
        let (unused, used): (alloc::vec::Vec<_>, alloc::vec::Vec<_>) =
            all.into_iter().partition(|object| Arc::strong_count(object) == 1);
        self.objects.lock().extend(used);
        unused.iter().map(|object: &Arc<RemoteObject>| object.pages.frames.lock().len()).sum()
    }
}

impl RemoteObject {
    /// Without pages yet. `name`: a file of which there is a stand-in here.
    pub(super) fn new(remote: &Remote, name: FileRef, state: ObjectState) -> Result<Self> {
        let file = remote.stand_ins.lock().get(&name).and_then(Weak::upgrade).ok_or(Errno::EBADF)?;
        let pages = Pages { memory: remote.memory.clone(), frames: Lock::new(BTreeMap::new()) };
        Ok(RemoteObject { file, name, state, pages: Arc::new(pages) })
    }

    async fn fetch(&self, index: u64) -> Result<Frame> {
        let pages = self.state.size.div_ceil(PAGE_SIZE as u64);
        if index >= pages {
            return Err(Errno::EFAULT);
        }
        let run = (index / RUN * RUN + RUN).min(pages) - index;
        let remote = &self.file.remote;
        loop {
            let loan = Loan::for_bytes(&remote.memory, run as usize * PAGE_SIZE);
            if loan.frames().is_empty() {
                return Err(Errno::ENOMEM);
            }
            let message = ObjectPages { id: self.name.id, first: index, frames: loan.frames().to_vec() };
            let here = self.pages.clone();
            let accept = move |reply: Result<u32>| -> Result<u32> {
                let read = reply?;
                here.add(index, loan.keep(read as usize));
                Ok(read)
            };
            let read = remote.ask(self.name.owner, message, accept, drop).await??;
            match self.pages.get(index) {
                Some(frame) => return Ok(frame),
                None if read == 0 => return Err(Errno::EIO),
                // Came, and was renewed at once by another thread's madvise.
                None => {}
            }
        }
    }
}

impl Pages {
    /// Counted for the caller.
    fn get(&self, index: u64) -> Option<Frame> {
        let frames = self.frames.lock();
        let frame = *frames.get(&index)?;
        self.memory.retain(frame);
        Some(frame)
    }

    fn add(&self, first: u64, new: alloc::vec::Vec<Frame>) {
        let mut frames = self.frames.lock();
        for (index, frame) in (first..).zip(new) {
            // Two may have asked for the same page: the first copy stays, it may be mapped.
            if *frames.entry(index).or_insert(frame) != frame {
                self.memory.release(frame);
            }
        }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        for &frame in self.frames.lock().values() {
            self.memory.release(frame);
        }
    }
}

impl Object for RemoteObject {
    fn id(&self) -> ObjectId {
        self.state.id
    }

    fn size(&self) -> u64 {
        self.state.size
    }

    fn page(&self, index: u64) -> BoxFuture<'_, Result<Frame>> {
        match self.pages.get(index) {
            Some(frame) => ready(Ok(frame)),
            None => Box::pin(self.fetch(index)),
        }
    }

    fn resident(&self, index: u64) -> Option<Frame> {
        self.pages.get(index)
    }

    /// Copies are never written.
    fn mark_dirty(&self, _index: u64) {}

    fn sync(&self, _start: u64, _end: u64) -> BoxFuture<'_, Result<()>> {
        ready(Ok(()))
    }

    fn renew(&self, first: u64, pages: u64) {
        let mut frames = self.pages.frames.lock();
        let old: alloc::vec::Vec<u64> =
            frames.range(first..first.saturating_add(pages)).map(|(&index, _)| index).collect();
        for index in old {
            if let Some(frame) = frames.remove(&index) {
                // Who has it mapped counts it as well.
                self.pages.memory.release(frame);
            }
        }
    }

    fn shared(&self) -> Option<Arc<dyn Object>> {
        Some(Arc::new(SharedPages::new(self.file.clone(), self.name, self.state.id)))
    }
}
