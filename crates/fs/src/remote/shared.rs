//! Shared mappings of another kernel's object, at addresses that this kernel owns (MAP_FIXED, mremap).
//!
//! All processes that map an object MAP_SHARED must see the same frame for a page, so nothing is copied. The owner of the object counts
//! its frame once more for this kernel (the frame is *pinned*), and this kernel maps it. When the last page table here has dropped the
//! frame, the count goes back to the owner like that of an adopted frame ([`machine::Memory::accept_pin`]). Until then the owner can
//! neither reclaim nor reuse the frame, nor send it home if it has borrowed it.
//!
//! Nothing is cached here: the owner knows whether a page is in memory, and where the object ends.

use super::{object::Foreign, Remote};
use crate::{file::ready, File, Loaned, Object, ObjectId, ReadAhead};
use alloc::{
    boxed::Box,
    sync::{Arc, Weak},
    vec::Vec,
};
use core::any::Any;
use machine::{errno::Result, BoxFuture, CountedFrame, Errno, Frame, KernelId};
use messages::fs::{ObjectAdmit, ObjectDirty, ObjectLost, ObjectPin, ObjectPunch, ObjectSync, Opened, ResolveObject};

/// An object of another kernel, mapped shared: its pages are the owner's frames.
pub struct SharedPages(Arc<Foreign>);

impl SharedPages {
    pub(super) fn new(foreign: Arc<Foreign>) -> Self {
        SharedPages(foreign)
    }

    async fn pin(&self, index: u64) -> Result<CountedFrame<'_>> {
        let (remote, name) = (&self.0.file.remote, self.0.file.name());
        let (memory, unwanted) = (remote.memory.clone(), remote.memory.clone());
        // The pin is accepted as it arrives, even if nobody waits any more, since the owner has counted it.
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

    /// Only the owner knows the size, and it refuses pages past the end.
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
        // Fails if the owner is dead.
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

/// At the owner: an object that other kernels map, as a file that they can have references to. It is in the export table like every
/// such file. There is one for each object, so each kernel has one stand-in for it.
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
    /// Sets how objects of this kernel are found, for questions of other kernels.
    pub fn serve_objects(&self, own: Arc<OwnObjects>) {
        *self.own_objects.lock() = Some(own);
    }

    /// The object with this id, of any kernel. A kernel that sends another one the id keeps the object until the other has answered.
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
        // `file` is dropped after the lock is released: dropping the last handle takes it.
        drop(handles);
        opened
    }

    /// Gives `holder` the count of a frame, until it sends the frame back.
    pub(super) fn pin(&self, frame: CountedFrame<'_>, holder: KernelId) -> Frame {
        let frame = frame.pin(holder);
        if !self.endpoint.is_alive(holder) {
            // Its pins may have been taken back already, and nobody would take this one.
            self.memory.take_home(frame, holder);
        }
        frame
    }

    /// The object of this kernel with this id. ESTALE: it is not in use.
    fn own_object(&self, id: ObjectId) -> Result<Arc<dyn Object>> {
        let own = self.own_objects.lock().clone();
        own.and_then(|own| own(id)).ok_or(Errno::ESTALE)
    }
}

/// Registers the handlers of the messages about objects.
pub(super) fn register(remote: &Arc<Remote>) {
    let serve = remote.endpoint.serve(remote);
    serve.on_sync(|remote, from, ResolveObject { object }| Ok(remote.hand_object(from, remote.own_object(object)?)));
    serve.on::<ObjectPin, _, _>(|remote, from, ObjectPin { id, index }| async move {
        let object = remote.exports.get(id)?.object().await?;
        let (Loaned::Own(frame) | Loaned::Copy(frame)) = object.lend(index, from, true, ReadAhead::Normal).await?;
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
