//! [`Object`]: pages that can be mapped.

use super::ready;
use abi::{ObjectId, ReadAhead, SyncRange};
use alloc::{boxed::Box, sync::Arc};
use machine::{errno::Result, BoxFuture, CountedFrame, Errno, KernelId};

/// Pages that can be mapped: a file's page cache, a memfd, shared anonymous memory.
pub trait Object: Send + Sync + 'static {
    /// Its name in the whole machine.
    fn id(&self) -> ObjectId;
    /// Bytes; a page wholly past the end is SIGBUS.
    fn size(&self) -> u64;
    /// The frame of page `index`, filled.
    /// Errors: EFAULT past the end (SIGBUS), EIO, ENOMEM.
    fn page(&self, index: u64) -> BoxFuture<'_, Result<CountedFrame<'_>>>;
    /// The same for a mapping of which madvise has said how it is read.
    fn page_advised(&self, index: u64, _read_ahead: ReadAhead) -> BoxFuture<'_, Result<CountedFrame<'_>>> {
        self.page(index)
    }
    /// The frame if it is in memory already (fault-around, mincore).
    fn resident(&self, index: u64) -> Option<CountedFrame<'_>>;
    /// Page `index` was written through a shared mapping.
    fn mark_dirty(&self, index: u64);
    /// A shared mapping of page `index` is about to become writable: from then on the page changes unseen. False if that must be
    /// prepared for first ([`Object::take_back`]); then it is asked again.
    fn write(&self, index: u64) -> bool {
        self.mark_dirty(index);
        true
    }
    /// Returns when no other kernel shows a copy of page `index`, and there is room for it where it is kept. ENOSPC, EDQUOT, EIO
    /// (SIGBUS): there is none.
    fn take_back(&self, _index: u64) -> BoxFuture<'_, Result<()>> {
        ready(Ok(()))
    }
    /// Is there no other place that its pages are kept at? Then who keeps it in case it is wanted again keeps all its memory.
    fn is_only_in_memory(&self) -> bool {
        false
    }
    /// Goes up whenever pages of the object are lost ([`messages::fs::Lost`]): a frame that was got before counts no more.
    fn losses(&self) -> u64 {
        0
    }
    /// Page `index` for kernel `to`; `write`: for a shared mapping there. Whoever takes pages away
    /// afterwards must ask `to`.
    fn lend(
        &self,
        index: u64,
        _to: KernelId,
        _write: bool,
        read_ahead: ReadAhead,
    ) -> BoxFuture<'_, Result<Loaned<'_>>> {
        Box::pin(async move { Ok(Loaned::Own(self.page_advised(index, read_ahead).await?)) })
    }
    /// May a shared mapping be written? Asked when the mapping is there, for all to count, and before anybody can use it. EPERM: the
    /// object is sealed ([`crate::tmpfs`]). None: it never is.
    fn admit_writer(&self) -> Option<BoxFuture<'_, Result<()>>> {
        None
    }
    /// Makes a hole of pages `first..end` (MADV_REMOVE).
    fn punch(&self, _first: u64, _end: u64) -> BoxFuture<'_, Result<()>> {
        ready(Err(Errno::EOPNOTSUPP))
    }
    /// Writes dirty pages of bytes `start..end` back (msync, fsync).
    fn sync(&self, start: u64, end: u64) -> BoxFuture<'_, Result<()>>;
    /// sync_file_range(2). What is kept nowhere else has nothing to be written.
    fn sync_range(&self, _range: SyncRange) -> BoxFuture<'_, Result<()>> {
        ready(Ok(()))
    }
    /// Gets pages `first..end` from where they are kept, as long as there is room for them: somebody says that he will need them
    /// (MADV_WILLNEED, readahead). What is kept nowhere else is here already.
    fn read_ahead(&self, _first: u64, _end: u64) -> BoxFuture<'_, ()> {
        ready(())
    }
    /// Writes back what is dirty of bytes `start..end`, without waiting for it, and drops the whole pages that are clean and that nobody maps
    /// (POSIX_FADV_DONTNEED). What is kept nowhere else stays.
    fn not_needed(&self, _start: u64, _end: u64) -> BoxFuture<'_, ()> {
        ready(())
    }
    /// Set for a stand-in, whose pages are copies: the same object with the owner's own frames, for
    /// shared mappings.
    fn shared(&self) -> Option<Arc<dyn Object>> {
        None
    }
}

/// A page on its way to another kernel.
pub enum Loaned<'m> {
    /// To be copied: the object asks for the copy back before it changes the page.
    Copy(CountedFrame<'m>),
    /// To be mapped there itself, because it may change at any time.
    Own(CountedFrame<'m>),
}
