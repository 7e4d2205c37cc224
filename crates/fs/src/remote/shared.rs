//! Shared mappings of another kernel's object, where the owner of the object is not the owner of the
//! addresses (MAP_FIXED, mremap).
//!
//! All who map an object MAP_SHARED must see one frame per page, so here nothing is copied: the owner counts
//! its frame once more, for us (it is *pinned*), and we map it. The pin goes home like every other frame of
//! that kernel that we do not use any more ([`machine::Memory::accept_pin`]), so the owner can neither
//! reclaim nor reuse a frame that a page table here still leads to.
//!
//! Nothing is cached: whether a page is in memory, and where the object ends, the owner knows.

use super::{serve, Remote, RemoteFile, RemoteObject};
use crate::{file::ready, File, FileRef, Object, ObjectId, OpenFlags};
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::any::Any;
use machine::{errno::Result, BoxFuture, Errno, Frame};
use messages::fs::{ObjectDirty, ObjectPin, ObjectState, ObjectSync, Opened, ResolveObject};

/// The owner's own pages.
pub struct SharedPages {
    /// Keeps the object in use at its owner.
    file: Arc<RemoteFile>,
    name: FileRef,
    id: ObjectId,
}

impl SharedPages {
    pub(super) fn new(file: Arc<RemoteFile>, name: FileRef, id: ObjectId) -> Self {
        SharedPages { file, name, id }
    }

    async fn pin(&self, index: u64) -> Result<Frame> {
        let remote = &self.file.remote;
        let (memory, unwanted) = (remote.memory.clone(), remote.memory.clone());
        // Taken over when it arrives, whether or not somebody still waits: the owner has counted it.
        let accept = move |reply: Result<Frame>| reply.inspect(|frame| memory.accept_pin(*frame));
        let stray = move |pinned: Result<Frame>| {
            if let Ok(frame) = pinned {
                unwanted.release(frame);
            }
        };
        remote.ask(self.name.owner, ObjectPin { id: self.name.id, index }, accept, stray).await?
    }
}

impl Object for SharedPages {
    fn id(&self) -> ObjectId {
        self.id
    }

    /// Only the owner knows, and refuses pages past the end.
    fn size(&self) -> u64 {
        crate::cache::MAX_SIZE
    }

    fn page(&self, index: u64) -> BoxFuture<'_, Result<Frame>> {
        Box::pin(self.pin(index))
    }

    fn resident(&self, _index: u64) -> Option<Frame> {
        None
    }

    fn mark_dirty(&self, index: u64) {
        // A dead owner has no pages to keep.
        let _ = self.file.remote.endpoint.send(self.name.owner, ObjectDirty { id: self.name.id, index });
    }

    fn sync(&self, start: u64, end: u64) -> BoxFuture<'_, Result<()>> {
        let message = ObjectSync { id: self.name.id, start, end };
        Box::pin(async move { self.file.remote.endpoint.call(self.name.owner, message).await? })
    }
}

/// At the owner: what another kernel holds of an object it knows by name only. Lives in the export table,
/// like every file that others have a stand-in of.
struct Handle(Arc<dyn Object>);

impl File for Handle {
    fn flags(&self) -> OpenFlags {
        OpenFlags::empty()
    }

    fn set_flags(&self, _flags: OpenFlags) -> BoxFuture<'_, Result<()>> {
        ready(Err(Errno::EBADF))
    }

    fn attributes(&self) -> BoxFuture<'_, Result<crate::Attributes>> {
        ready(Err(Errno::EBADF))
    }

    fn object(&self) -> BoxFuture<'_, Result<Arc<dyn Object>>> {
        ready(Ok(self.0.clone()))
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
    ///
    /// The stand-in of another kernel's object starts without pages: from the name alone one can't tell
    /// whether pages that are here already are still those of the file.
    pub async fn resolve(&self, id: ObjectId) -> Result<Arc<dyn Object>> {
        if id.owner == self.me() {
            return self.own_object(id);
        }
        let remote = self.shared();
        let accept = move |reply: Result<(Opened, ObjectState)>| -> Result<Arc<dyn Object>> {
            let (opened, state) = reply?;
            let name = opened.file;
            // Lives until the stand-in has been found by its name.
            let _file = remote.accept(opened)?;
            Ok(Arc::new(RemoteObject::new(&remote, name, state)?))
        };
        self.ask(id.owner, ResolveObject { object: id }, accept, drop).await?
    }

    fn own_object(&self, id: ObjectId) -> Result<Arc<dyn Object>> {
        let own = self.own_objects.lock().clone();
        own.and_then(|own| own(id)).ok_or(Errno::ESTALE)
    }
}

/// Registers what answers stand-ins of objects.
pub(super) fn register(remote: &Arc<Remote>) {
    let of = remote.clone();
    remote.endpoint.on_sync::<ResolveObject, _>(move |from, ResolveObject { object }| {
        let object = of.own_object(object)?;
        let state = ObjectState { id: object.id(), size: object.size(), stamp: (0, 0) };
        let handle: Arc<dyn File> = Arc::new(Handle(object));
        Ok((of.exports.add(of.me(), &handle, Some(from)), state))
    });
    serve::on::<ObjectPin, _>(remote, |remote, _, ObjectPin { id, index }| async move {
        remote.exports.get(id)?.object().await?.page(index).await
    });
    serve::on::<ObjectDirty, _>(remote, |remote, _, ObjectDirty { id, index }| async move {
        let Ok(file) = remote.exports.get(id) else { return };
        if let Ok(object) = file.object().await {
            object.mark_dirty(index);
        }
    });
    serve::on::<ObjectSync, _>(remote, |remote, _, ObjectSync { id, start, end }| async move {
        remote.exports.get(id)?.object().await?.sync(start, end).await
    });
}
