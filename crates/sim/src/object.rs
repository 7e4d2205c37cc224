//! Mapped objects: page `i` begins with words that say so.

use abi::ObjectId;
use fs::{remote::Remote, Lost, Object, Services};
use machine::{
    errno::Result, sync::Lock, BoxFuture, CountedFrame, Errno, Frame, FrameTree, KernelSet, Memory, PAGE_SIZE,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};
use vm::Vm;

/// What word `word` of page `index` of object `serial` is before anyone writes it.
pub fn initial(serial: u64, index: u64, word: usize) -> u64 {
    serial << 32 | index << 8 | word as u64 | 1 << 60
}

/// Bytes between the words of a page that programs use.
pub const WORD_STEP: usize = 512;

pub struct SimObject {
    id: ObjectId,
    pages: u64,
    memory: Arc<dyn Memory>,
    frames: Lock<FrameTree<Frame>>,
    pub dirty: Lock<BTreeSet<u64>>,
}

impl SimObject {
    pub fn new(id: ObjectId, pages: u64, memory: Arc<dyn Memory>) -> Arc<Self> {
        let frames = Lock::new(FrameTree::new(memory.clone()));
        Arc::new(SimObject { id, pages, memory, frames, dirty: Lock::default() })
    }

    fn load(&self, index: u64) -> Result<CountedFrame<'_>> {
        if index >= self.pages {
            return Err(Errno::EFAULT);
        }
        let mut frames = self.frames.lock();
        if let Some(frame) = frames.get(&index) {
            return Ok(CountedFrame::retain(&*self.memory, *frame));
        }
        let frame = CountedFrame::from_raw(&*self.memory, self.memory.alloc().ok_or(Errno::ENOMEM)?);
        for word in 0..PAGE_SIZE / WORD_STEP {
            let value = initial(self.id.serial, index, word);
            self.memory.write(frame.frame(), word * WORD_STEP, &value.to_le_bytes());
        }
        frames.insert(index, frame.clone(), |frame| frame);
        Ok(frame)
    }
}

impl Object for SimObject {
    fn id(&self) -> ObjectId {
        self.id
    }

    fn size(&self) -> u64 {
        self.pages * PAGE_SIZE as u64
    }

    fn page(&self, index: u64) -> BoxFuture<'_, Result<CountedFrame<'_>>> {
        // As from a disk: not at once.
        Box::pin(async move {
            Later(false).await;
            self.load(index)
        })
    }

    fn resident(&self, index: u64) -> Option<CountedFrame<'_>> {
        let frames = self.frames.lock();
        Some(CountedFrame::retain(&*self.memory, *frames.get(&index)?))
    }

    fn mark_dirty(&self, index: u64) {
        self.dirty.lock().insert(index);
    }

    fn sync(&self, _start: u64, _end: u64) -> BoxFuture<'_, Result<()>> {
        Box::pin(async { Ok(()) })
    }
}

/// Ready at the second poll.
pub struct Later(pub bool);

impl Future for Later {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.0 {
            return Poll::Ready(());
        }
        self.0 = true;
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

/// The objects one kernel can map: its own, made when first asked for, and through crate `fs` those of others.
pub struct SimObjects {
    memory: Arc<dyn Memory>,
    pub remote: Arc<Remote>,
    pages: u64,
    known: Lock<BTreeMap<ObjectId, Arc<SimObject>>>,
    /// Files of this kernel, which come and go as programs like.
    pub files: Arc<Services>,
}

impl SimObjects {
    /// Every object has `pages` pages.
    pub fn new(memory: Arc<dyn Memory>, remote: Arc<Remote>, pages: u64, files: Arc<Services>) -> Arc<Self> {
        Arc::new(SimObjects { memory, remote, pages, known: Lock::default(), files })
    }

    /// Tells other kernels what they ask about the objects of this one, `vm`'s among them.
    pub fn serve(self: &Arc<Self>, vm: &Arc<Vm>) {
        // The handlers must not keep alive what they serve.
        let (objects, vm) = (Arc::downgrade(self), Arc::downgrade(vm));
        self.remote.serve_objects(Arc::new(move |id| match vm.upgrade()?.shared_memory(id) {
            Some(memory) => Some(memory),
            None => Some(objects.upgrade()?.own(id)),
        }));
    }

    fn own(&self, id: ObjectId) -> Arc<dyn Object> {
        match self.files.object(id) {
            Some(file) => file,
            None => self.get(id),
        }
    }

    pub fn get(&self, id: ObjectId) -> Arc<SimObject> {
        assert_eq!(id.owner, self.memory.kernel(), "an own object");
        let mut known = self.known.lock();
        let make = || SimObject::new(id, self.pages, self.memory.clone());
        known.entry(id).or_insert_with(make).clone()
    }

    pub fn clear(&self) {
        let objects = std::mem::take(&mut *self.known.lock());
        drop(objects);
    }
}

impl vm::Objects for SimObjects {
    fn resolve(&self, id: ObjectId) -> BoxFuture<'_, Result<Arc<dyn Object>>> {
        Box::pin(async move {
            match id.owner == self.memory.kernel() {
                true => Ok(self.own(id)),
                false => self.remote.resolve(id).await,
            }
        })
    }

    fn recall(&self, others: KernelSet, lost: Lost) -> BoxFuture<'_, KernelSet> {
        Box::pin(async move { self.remote.recall(&others, lost).await })
    }
}
