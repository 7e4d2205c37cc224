//! [`LeasedFile`]: a regular file of another kernel that this one has opened without asking.
//!
//! The owner lets a kernel open a file again that it has opened once (lease.rs). All open files that come from one answer share an
//! [`Anchor`]: the reference that keeps the file at the owner, and what is known of the file until the owner recalls it. Position and
//! flags are kept here. Small files are read from copies of their pages, which mappings use too (object.rs).
//!
//! Everything else needs an open file description at the owner: writes, locks, passing the file to another kernel, a read after
//! a recall. It is made when it is first needed, with the position and flags of this one ([`LeasedFile::real`]). From then on the
//! file passes everything on to that description's stand-in.
//!
//! A read checks whether the file was recalled *after* it has copied the bytes. The owner recalls before it makes a change, so
//! without a recall size and bytes are of one state. Otherwise the read is done again at the owner.

use super::{names::Answer, Remote, RemoteFile};
use crate::{
    anonymous::Open,
    anonymous::{SETTABLE, TRANSIENT},
    file::{self, Access, Destination, Source, Transfer, NEEDS_BUFFER},
    Attributes, Caller, Clock, Control, ControlAnswer, File, FileRef, Object, OpenFlags, SetAttributes, SyncRange,
    Whence, XattrOp,
};
use abi::{LockConflict, LockOp};
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::{
    any::Any,
    sync::atomic::{AtomicBool, Ordering::SeqCst},
};
use machine::{
    errno::Result,
    sync::{AsyncLock, Lock},
    BoxFuture, Errno, KernelId, PAGE_SIZE,
};

/// Longer files are read at the owner: their pages would fill this kernel's memory.
const LONGEST: u64 = 256 << 10;

/// A file that this kernel may open without asking.
pub(super) struct Anchor {
    /// The stand-in that keeps the file at its owner.
    file: Arc<dyn File>,
    attributes: Attributes,
    /// A read changes nothing at the owner, so it may be done here.
    quiet: bool,
    /// What the owner names when it recalls.
    pub tokens: Vec<u64>,
    /// When the lease ends without a recall, in ns of `clock`.
    until: u64,
    clock: Arc<dyn Clock>,
    recalled: AtomicBool,
    /// The owner must hear of closes.
    watched: AtomicBool,
    object: Lock<Option<Arc<dyn Object>>>,
}

impl Anchor {
    pub fn new(
        file: Arc<dyn File>,
        attributes: Attributes,
        quiet: bool,
        tokens: Vec<u64>,
        until: u64,
        clock: Arc<dyn Clock>,
    ) -> Arc<Self> {
        Arc::new(Anchor {
            file,
            attributes,
            quiet,
            tokens,
            until,
            clock,
            recalled: AtomicBool::new(false),
            watched: AtomicBool::new(false),
            object: Lock::new(None),
        })
    }

    /// The owner recalls what it has said of the file. With `watched` it must hear of closes from now on.
    pub fn recall(&self, watched: bool) {
        self.recalled.store(true, SeqCst);
        self.watched.fetch_or(watched, SeqCst);
        let object = self.object.lock().take();
        drop(object);
    }

    pub fn owner(&self) -> Option<KernelId> {
        self.file.remote().map(|there| there.owner)
    }

    fn is_current(&self) -> bool {
        !self.recalled.load(SeqCst) && (self.until == u64::MAX || self.clock.monotonic() < self.until)
    }

    async fn object(&self) -> Result<Arc<dyn Object>> {
        if let Some(object) = self.object.lock().clone() {
            return Ok(object);
        }
        let object = self.file.object().await?;
        if self.is_current() {
            let old = self.object.lock().replace(object.clone());
            drop(old);
        }
        Ok(object)
    }
}

/// The reference that goes back to the owner with an answer that is not kept any more. None: the file is open here.
pub(super) fn give_back(answer: Answer) -> Option<(u64, u64)> {
    let Answer::Open(anchor) = answer else { return None };
    let file: Arc<dyn Any + Send + Sync> = Arc::into_inner(anchor)?.file;
    Some(Arc::into_inner(file.downcast::<RemoteFile>().ok()?)?.take_count())
}

/// The file that other kernels may have a reference to: for a leased file, its description at the owner.
pub(super) async fn settle(file: &Arc<dyn File>) -> Result<Arc<dyn File>> {
    match file.as_any().downcast_ref::<LeasedFile>() {
        Some(leased) => leased.real().await,
        None => Ok(file.clone()),
    }
}

/// The kernel that has what a walk begins at. None: this one.
pub(super) fn owner_of(file: &Arc<dyn File>) -> Option<KernelId> {
    if file.location().is_some() {
        return None;
    }
    match file.as_any().downcast_ref::<LeasedFile>() {
        Some(leased) => leased.anchor.owner(),
        None => file.remote().map(|there| there.owner),
    }
}

pub(super) struct LeasedFile {
    remote: Arc<Remote>,
    anchor: Arc<Anchor>,
    /// The number of the answer that let it be opened ([`super::names::Key::number`]).
    number: u64,
    flags: Lock<OpenFlags>,
    /// Locked during each operation that uses it, and while `real` is made with it.
    position: AsyncLock<u64>,
    /// The stand-in of the description at the owner, once there is one.
    real: Lock<Option<Arc<dyn File>>>,
    /// The owner has heard of the close, if it must.
    told: bool,
    _open: Open,
}

impl LeasedFile {
    pub fn open(remote: &Arc<Remote>, anchor: Arc<Anchor>, number: u64, flags: OpenFlags) -> Arc<Self> {
        Arc::new(LeasedFile {
            remote: remote.clone(),
            anchor,
            number,
            flags: Lock::new(flags - TRANSIENT),
            position: AsyncLock::new(0),
            real: Lock::new(None),
            told: false,
            _open: Open::new(),
        })
    }

    fn known(&self) -> Option<Arc<dyn File>> {
        self.real.lock().clone()
    }

    /// Whether the file may still be read without its owner.
    fn is_here(&self) -> bool {
        self.anchor.is_current() && self.real.lock().is_none()
    }

    /// The stand-in of the description at the owner, which is made if there is none yet.
    pub async fn real(&self) -> Result<Arc<dyn File>> {
        if let Some(real) = self.known() {
            return Ok(real);
        }
        let position = self.position.lock().await;
        if let Some(real) = self.known() {
            return Ok(real);
        }
        let flags = *self.flags.lock();
        let real = self.anchor.file.reopen(&crate::file::SYSTEM, flags).await?;
        if *position > 0 {
            real.seek(*position as i64, Whence::Set).await?;
        }
        *self.real.lock() = Some(real.clone());
        Ok(real)
    }

    /// Called when the last descriptor is closed. Returns when the owner has heard of the close, if it must.
    pub async fn end(mut self) {
        if self.anchor.watched.load(SeqCst) {
            // The owner tells whoever watches the file (inotify) when `real` is closed. Fails if it is dead.
            let _ = self.real().await;
        }
        self.told = true;
        let real = self.real.lock().take();
        if let Some(real) = real {
            file::close(real).await;
        }
        // The last open file of an answer that is not kept any more.
        if Arc::strong_count(&self.anchor) == 1 {
            let file = self.anchor.file.clone();
            drop(self);
            file::close(file).await;
        }
    }

    fn writes(&self) -> Result<()> {
        self.remote.names.wrote(self.number);
        match self.flags.lock().writable() {
            true => Ok(()),
            false => Err(Errno::EBADF),
        }
    }

    /// Reads without the owner. None: the owner must be asked.
    async fn read_here(&self, mut to: Destination<'_>, from: u64) -> Result<Option<usize>> {
        let size = self.anchor.attributes.size;
        if !self.is_here() || !self.anchor.quiet || size > LONGEST {
            return Ok(None);
        }
        if !self.flags.lock().readable() {
            return Err(Errno::EBADF);
        }
        if from > crate::cache::MAX_SIZE {
            return Err(Errno::EINVAL);
        }
        let wanted = (to.len() as u64).min(size.saturating_sub(from)) as usize;
        if wanted > 0 {
            let Ok(object) = self.anchor.object().await else { return Ok(None) };
            let mut done = 0;
            while done < wanted {
                let at = from + done as u64;
                let (index, within) = (at / PAGE_SIZE as u64, (at % PAGE_SIZE as u64) as usize);
                let part = (wanted - done).min(PAGE_SIZE - within);
                let Ok(frame) = object.page(index).await else { return Ok(None) };
                to.put_frame(&*self.remote.memory, frame.frame(), within, part)?;
                done += part;
            }
        }
        Ok(self.anchor.is_current().then_some(wanted))
    }

    async fn read_somewhere(&self, mut to: Destination<'_>, access: Access<'_>) -> Result<usize> {
        let read = match access.at {
            Some(at) => self.read_here(to.reborrow(), at).await?,
            None => {
                let mut position = self.position.lock().await;
                let read = self.read_here(to.reborrow(), *position).await?;
                *position += read.unwrap_or_default() as u64;
                read
            }
        };
        match read {
            Some(read) => Ok(read),
            // Some bytes may be copied already, and `to` can't go back. The caller comes again with a buffer.
            None if matches!(to, Destination::User(..)) => Err(NEEDS_BUFFER),
            None => self.real().await?.read_into(to.reborrow(), access).await,
        }
    }
}

impl Drop for LeasedFile {
    fn drop(&mut self) {
        if !self.told && self.anchor.watched.load(SeqCst) && self.real.get_mut().is_none() {
            let (anchor, flags) = (self.anchor.clone(), *self.flags.get_mut());
            self.remote.spawn(async move {
                // Opened at the owner and closed at once, so that whoever watches the file hears of a close.
                let _ = anchor.file.reopen(&crate::file::SYSTEM, flags).await;
            });
        }
    }
}

impl File for LeasedFile {
    fn read_into<'a>(&'a self, to: Destination<'a>, access: Access<'a>) -> Transfer<'a> {
        Transfer::later(self.read_somewhere(to, access))
    }

    fn write_from<'a>(&'a self, mut from: Source<'a>, access: Access<'a>) -> Transfer<'a> {
        Transfer::later(async move {
            self.writes()?;
            self.real().await?.write_from(from.reborrow(), access).await
        })
    }

    fn seek(&self, offset: i64, whence: Whence) -> BoxFuture<'_, Result<u64>> {
        Box::pin(async move {
            let mut position = self.position.lock().await;
            let start = match whence {
                _ if self.real.lock().is_some() => None,
                Whence::Set => Some(0),
                Whence::Current => Some(*position),
                Whence::End if self.anchor.is_current() => Some(self.anchor.attributes.size),
                _ => None,
            };
            let Some(start) = start else {
                drop(position);
                return self.real().await?.seek(offset, whence).await;
            };
            let to = start.checked_add_signed(offset).filter(|to| *to <= crate::cache::MAX_SIZE);
            *position = to.ok_or(Errno::EINVAL)?;
            Ok(*position)
        })
    }

    fn flags(&self) -> OpenFlags {
        self.known().map_or_else(|| *self.flags.lock(), |real| real.flags())
    }

    fn current_flags(&self) -> BoxFuture<'_, Result<OpenFlags>> {
        Box::pin(async move {
            match self.known() {
                Some(real) => real.current_flags().await,
                None => Ok(*self.flags.lock()),
            }
        })
    }

    fn set_flags(&self, flags: OpenFlags) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let position = self.position.lock().await;
            if let Some(real) = self.known() {
                drop(position);
                return real.set_flags(flags).await;
            }
            let mut own = self.flags.lock();
            *own = (*own - SETTABLE) | (flags & SETTABLE);
            Ok(())
        })
    }

    fn attributes(&self) -> BoxFuture<'_, Result<Attributes>> {
        match self.anchor.is_current() {
            true => crate::file::ready(Ok(self.anchor.attributes.clone())),
            false => self.anchor.file.attributes(),
        }
    }

    fn set_attributes<'a>(&'a self, caller: &'a Caller, set: SetAttributes) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.real().await?.set_attributes(caller, set).await })
    }

    /// They are the file's, whoever has it open.
    fn xattr<'a>(&'a self, caller: &'a Caller, op: XattrOp) -> BoxFuture<'a, Result<Vec<u8>>> {
        self.anchor.file.xattr(caller, op)
    }

    fn sync(&self, data_only: bool) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.real().await?.sync(data_only).await })
    }

    fn sync_range(&self, range: SyncRange) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.real().await?.sync_range(range).await })
    }

    fn allocate(&self, mode: u32, offset: u64, len: u64) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.real().await?.allocate(mode, offset, len).await })
    }

    fn control<'a>(&'a self, caller: &'a Caller, control: Control) -> BoxFuture<'a, Result<ControlAnswer>> {
        Box::pin(async move { self.real().await?.control(caller, control).await })
    }

    fn object(&self) -> BoxFuture<'_, Result<Arc<dyn Object>>> {
        Box::pin(async move {
            match self.anchor.is_current() {
                true => self.anchor.object().await,
                false => self.anchor.file.object().await,
            }
        })
    }

    fn lock<'a>(&'a self, caller: &'a Caller, op: LockOp) -> BoxFuture<'a, Result<Option<LockConflict>>> {
        Box::pin(async move { self.real().await?.lock(caller, op).await })
    }

    fn seal(&self, add: u32) -> BoxFuture<'_, Result<u32>> {
        Box::pin(async move { self.real().await?.seal(add).await })
    }

    fn reopen<'a>(&'a self, caller: &'a Caller, flags: OpenFlags) -> BoxFuture<'a, Result<Arc<dyn File>>> {
        Box::pin(async move { self.real().await?.reopen(caller, flags).await })
    }

    fn path(&self) -> BoxFuture<'_, Vec<u8>> {
        self.anchor.file.path()
    }

    /// Without a recall there are no locks on the file that a close would end.
    fn closed<'a>(&'a self, caller: &'a Caller) -> BoxFuture<'a, ()> {
        match (self.anchor.recalled.load(SeqCst), self.known()) {
            (false, _) => crate::file::ready(()),
            (true, None) => self.anchor.file.closed(caller),
            // Its locks may be kept here.
            (true, Some(real)) => {
                let caller = caller.clone();
                Box::pin(async move { real.closed(&caller).await })
            }
        }
    }

    fn remote(&self) -> Option<FileRef> {
        self.known()?.remote()
    }

    fn close(self: Arc<Self>) -> Option<BoxFuture<'static, ()>> {
        Arc::into_inner(self).map(|last| -> BoxFuture<'static, ()> { Box::pin(last.end()) })
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
