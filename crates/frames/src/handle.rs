//! Owning handles, so that the compiler tells an own frame from one of another kernel.

use crate::{bytes, Foreign, Partition, Purpose};
use core::{fmt, mem, ptr::NonNull, sync::atomic::Ordering::SeqCst};
use machine::{Frame, KernelId, Words};

/// A frame of this kernel's partition whose only user is the handle; freed when dropped.
pub struct OwnFrame<'a> {
    partition: &'a Partition,
    frame: Frame,
}

impl<'a> OwnFrame<'a> {
    /// A zeroed frame.
    pub fn alloc(partition: &'a Partition) -> Option<Self> {
        Self::alloc_for(partition, Purpose::Kernel)
    }

    /// A zeroed frame, if `purpose` may have one.
    pub fn alloc_for(partition: &'a Partition, purpose: Purpose) -> Option<Self> {
        Some(OwnFrame { partition, frame: partition.alloc_for(purpose)? })
    }

    pub fn frame(&self) -> Frame {
        self.frame
    }

    /// Its bytes in the direct map, valid as long as the handle.
    pub fn pointer(&self) -> NonNull<u8> {
        self.partition.pointer(self.frame)
    }

    /// The one count becomes the caller's to release.
    pub fn into_frame(self) -> Frame {
        let frame = self.frame;
        mem::forget(self);
        frame
    }

    /// To another kernel: see [`Partition::lend`].
    pub fn lend(self, to: KernelId) -> Frame {
        self.partition.lend(self.frame, to);
        self.into_frame()
    }
}

impl Drop for OwnFrame<'_> {
    fn drop(&mut self) {
        self.partition.release(self.frame);
    }
}

impl fmt::Debug for OwnFrame<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Own{:?}", self.frame)
    }
}

/// One more user of an own frame that is counted here, who counts in its words: they are found in the direct map once for all.
pub struct OwnWords<'a> {
    partition: &'a Partition,
    frame: Frame,
    page: NonNull<u8>,
}

// SAFETY: the page is only reached by atomic operations, and the direct map is the same on every CPU of this kernel.
unsafe impl Send for OwnWords<'_> {}
// SAFETY: as above.
unsafe impl Sync for OwnWords<'_> {}

impl<'a> OwnWords<'a> {
    /// `frame` is in use, and not lent.
    pub fn new(partition: &'a Partition, frame: Frame) -> Self {
        partition.retain(frame);
        OwnWords { partition, frame, page: partition.pointer(frame) }
    }
}

impl Drop for OwnWords<'_> {
    fn drop(&mut self) {
        self.partition.release(self.frame);
    }
}

impl Words for OwnWords<'_> {
    fn load(&self, offset: usize) -> u32 {
        // SAFETY: the direct map has the page, which is in use as long as this is. SeqCst, as in `bytes`.
        unsafe { bytes::word(self.page.as_ptr(), offset) }.load(SeqCst)
    }

    fn add(&self, offset: usize, value: u32) -> u32 {
        // SAFETY: as above.
        unsafe { bytes::word(self.page.as_ptr(), offset) }.fetch_add(value, SeqCst).wrapping_add(value)
    }
}

/// One use of a frame that lies in another kernel's partition. It can't be had as a pointer: the
/// direct map doesn't reach it.
pub struct BorrowedFrame<'a> {
    foreign: &'a Foreign,
    frame: Frame,
    home: KernelId,
}

impl<'a> BorrowedFrame<'a> {
    /// Takes over a frame that `home` gave us.
    pub fn adopt(foreign: &'a Foreign, frame: Frame, home: KernelId) -> Self {
        foreign.adopt(frame, home);
        BorrowedFrame { foreign, frame, home }
    }

    pub fn frame(&self) -> Frame {
        self.frame
    }

    pub fn home(&self) -> KernelId {
        self.home
    }

    /// The one use becomes the caller's to release.
    pub fn into_frame(self) -> Frame {
        let frame = self.frame;
        mem::forget(self);
        frame
    }
}

impl Clone for BorrowedFrame<'_> {
    fn clone(&self) -> Self {
        self.foreign.retain(self.frame);
        BorrowedFrame { ..*self }
    }
}

impl Drop for BorrowedFrame<'_> {
    fn drop(&mut self) {
        self.foreign.release(self.frame);
    }
}
