//! Shared mappings of another kernel's object, where the owner of the object is not the owner of the
//! addresses (MAP_FIXED, mremap).
//!
//! All who map an object MAP_SHARED must see one frame per page, so here nothing is copied: the owner counts
//! its frame once more, for us (it is *pinned*), and we map it. The pin goes back to the owner like every other frame
//! that we have from it and do not use any more ([`machine::Memory::accept_pin`]), so the owner can neither
//! reclaim nor reuse a frame that a page table here still leads to; nor, if it has borrowed the frame, send it home.
//!
//! Nothing is cached: whether a page is in memory, and where the object ends, the owner knows.

use super::{object::Foreign, Remote};
use crate::{file::ready, File, Loaned, Object, ObjectId};
use alloc::{
    boxed::Box,
    sync::{Arc, Weak},
    vec::Vec,
};
use core::any::Any;
use machine::{errno::Result, BoxFuture, CountedFrame, Errno, Frame, KernelId};
use messages::fs::{ObjectAdmit, ObjectDirty, ObjectLost, ObjectPin, ObjectPunch, ObjectSync, Opened, ResolveObject};

/// The owner's own pages.
pub struct SharedPages(Arc<Foreign>);

impl SharedPages {
    pub(super) fn new(foreign: Arc<Foreign>) -> Self {
        SharedPages(foreign)
    }

    async fn pin(&self, index: u64) -> Result<CountedFrame<'_>> {
        let (remote, name) = (&self.0.file.remote, self.0.file.name());
        let (memory, unwanted) = (remote.memory.clone(), remote.memory.clone());
        // Taken over when it arrives, whether or not somebody still waits: the owner has counted it. From there to whoever waits
        // it is a bare frame.
        let accept = move |reply: Result<Frame>| reply.inspect(|frame| memory.accept_pin(*frame, name.owner));
        let stray = move |pinned: Result<Frame>| {
            if let Ok(frame) = pinned {
                unwanted.release(frame);
            }
        };
        let pinned = remote.ask(name.owner, ObjectPin { id: name.id, index }, accept, stray).await??;
        Ok(CountedFrame::from_raw(&*remote.memory, pinned))
    }
}

impl Object for SharedPages {
    fn id(&self) -> ObjectId {
        self.0.id
    }

    /// Only the owner knows, and refuses pages past the end.
    fn size(&self) -> u64 {
        crate::cache::MAX_SIZE
    }

    fn page(&self, index: u64) -> BoxFuture<'_, Result<CountedFrame<'_>>> {
        Box::pin(self.pin(index))
    }

    fn resident(&self, _index: u64) -> Option<CountedFrame<'_>> {
        None
    }

    fn mark_dirty(&self, index: u64) {
        // A dead owner has no pages to keep.
        let name = self.0.file.name();
        let _ = self.0.file.remote.endpoint.send(name.owner, ObjectDirty { id: name.id, index });
    }

    fn sync(&self, start: u64, end: u64) -> BoxFuture<'_, Result<()>> {
        let name = self.0.file.name();
        let message = ObjectSync { id: name.id, start, end };
        Box::pin(async move { self.0.file.remote.endpoint.call(name.owner, message).await? })
    }

    fn losses(&self) -> u64 {
        self.0.losses()
    }

    fn admit_writer(&self) -> Option<BoxFuture<'_, Result<()>>> {
        let name = self.0.file.name();
        let endpoint = &self.0.file.remote.endpoint;
        Some(Box::pin(async move { endpoint.call(name.owner, ObjectAdmit { id: name.id }).await? }))
    }

    fn punch(&self, first: u64, end: u64) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.0.punch(first, end))
    }
}

/// At the owner: what other kernels hold of an object that they map. Lives in the export table, like every file that
/// others have a stand-in of; one for each object, so that a kernel has one stand-in of it.
pub(super) struct Handle {
    object: Arc<dyn Object>,
    remote: Weak<Remote>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        let Some(remote) = self.remote.upgrade() else { return };
        let mut handles = remote.handles.lock();
        if handles.get(&self.object.id()).is_some_and(|handle| handle.strong_count() == 0) {
            handles.remove(&self.object.id());
        }
    }
}

impl File for Handle {
    fn attributes(&self) -> BoxFuture<'_, Result<crate::Attributes>> {
        ready(Err(Errno::EBADF))
    }

    fn object(&self) -> BoxFuture<'_, Result<Arc<dyn Object>>> {
        ready(Ok(self.object.clone()))
    }

    fn path(&self) -> BoxFuture<'_, Vec<u8>> {
        ready(Vec::new())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Finds an object of this kernel by its name, if it is in use.
pub type OwnObjects = dyn Fn(ObjectId) -> Option<Arc<dyn Object>> + Send + Sync;

impl Remote {
    /// How other kernels' questions for objects of this kernel are answered.
    pub fn serve_objects(&self, own: Arc<OwnObjects>) {
        *self.own_objects.lock() = Some(own);
    }

    /// The object of that name, on whatever kernel it is. Whoever sends a name to another kernel keeps the
    /// object until that kernel has answered.
    pub async fn resolve(&self, id: ObjectId) -> Result<Arc<dyn Object>> {
        if id.owner == self.me() {
            return self.own_object(id);
        }
        let remote = self.shared();
        let accept = move |reply: Result<Opened>| -> Result<Arc<dyn Object>> { Ok(remote.object(reply?, id)?) };
        self.ask(id.owner, ResolveObject { object: id }, accept, drop).await?
    }

    /// A reference to an object of this kernel, for `holder`.
    pub(super) fn hand_object(&self, holder: KernelId, object: Arc<dyn Object>) -> Opened {
        let mut handles = self.handles.lock();
        let there = handles.get(&object.id()).and_then(Weak::upgrade);
        let handle = there.unwrap_or_else(|| {
            let handle = Arc::new(Handle { object: object.clone(), remote: self.this.clone() });
            handles.insert(object.id(), Arc::downgrade(&handle));
            handle
        });
        let file: Arc<dyn File> = handle;
        let opened = self.exports.add(self.me(), &file, holder);
        // Ends after the lock: it may be the last.
        drop(handles);
        opened
    }

    /// The frame is in use at `holder` from now on, which has the count until it sends the frame back.
    pub(super) fn pin(&self, frame: CountedFrame<'_>, holder: KernelId) -> Frame {
        let frame = frame.pin(holder);
        if !self.endpoint.is_alive(holder) {
            // What it had may have been taken back before this.
            self.memory.take_home(frame, holder);
        }
        frame
    }

    fn own_object(&self, id: ObjectId) -> Result<Arc<dyn Object>> {
        let own = self.own_objects.lock().clone();
        own.and_then(|own| own(id)).ok_or(Errno::ESTALE)
    }
}

/// Registers what answers stand-ins of objects.
pub(super) fn register(remote: &Arc<Remote>) {
    let serve = remote.endpoint.serve(remote);
    serve.on_sync(|remote, from, ResolveObject { object }| Ok(remote.hand_object(from, remote.own_object(object)?)));
    serve.on::<ObjectPin, _, _>(|remote, from, ObjectPin { id, index }| async move {
        let object = remote.exports.get(id)?.object().await?;
        let (Loaned::Own(frame) | Loaned::Copy(frame)) = object.lend(index, from, true).await?;
        Ok(remote.pin(frame, from))
    });
    serve.on::<ObjectPunch, _, _>(|remote, _, ObjectPunch { id, first, end }| async move {
        remote.exports.get(id)?.object().await?.punch(first, end).await
    });
    serve.on::<ObjectAdmit, _, _>(|remote, _, ObjectAdmit { id }| async move {
        let object = remote.exports.get(id)?.object().await?;
        match object.admit_writer() {
            Some(admitted) => admitted.await,
            None => Ok(()),
        }
    });
    serve.on_to_completion(|remote, _, ObjectLost { lost }| async move { remote.hear_of_loss(lost).await });
    serve.on::<ObjectDirty, _, _>(|remote, _, ObjectDirty { id, index }| async move {
        let Ok(file) = remote.exports.get(id) else { return };
        if let Ok(object) = file.object().await {
            object.mark_dirty(index);
        }
    });
    serve.on::<ObjectSync, _, _>(|remote, _, ObjectSync { id, start, end }| async move {
        remote.exports.get(id)?.object().await?.sync(start, end).await
    });
}
