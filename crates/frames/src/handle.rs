//! Owning handles, so that the compiler tells an own frame from one of another kernel.

use crate::{Foreign, Partition, Purpose};
use core::{fmt, mem, ptr::NonNull};
use machine::{Frame, KernelId};

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
