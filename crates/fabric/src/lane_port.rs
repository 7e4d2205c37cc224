//! The port of real kernels: lanes and doorbells in shared memory.

use crate::doorbell::Doorbell;
use crate::lane::{Full, Receiver, Sender};
use crate::port::Port;
use alloc::{boxed::Box, vec::Vec};
use core::{
    ptr,
    sync::atomic::{AtomicPtr, Ordering},
};
use machine::KernelId;
use messages::Priority;

/// What connects this kernel with one other. The arrays are indexed by priority.
pub struct Link {
    /// In our memory.
    pub inbound: [Receiver; 2],
    /// In the peer's memory.
    pub outbound: [Sender; 2],
    /// The peer's, on the board.
    pub doorbell: &'static Doorbell,
}

/// The [`Port`] of a real kernel: its lanes and doorbells, by peer.
pub struct LanePort {
    doorbell: &'static Doorbell,
    /// By kernel id. Null: not connected.
    links: Box<[AtomicPtr<Link>]>,
    /// Interrupts a kernel.
    interrupt: Box<dyn Fn(KernelId) + Send + Sync>,
}

impl LanePort {
    /// For a machine of at most `kernels` kernels. `doorbell` is this kernel's own word.
    pub fn new(
        kernels: usize,
        doorbell: &'static Doorbell,
        interrupt: impl Fn(KernelId) + Send + Sync + 'static,
    ) -> Self {
        let links = (0..kernels).map(|_| AtomicPtr::new(ptr::null_mut())).collect();
        LanePort { doorbell, links, interrupt: Box::new(interrupt) }
    }

    /// Connects `peer`, or connects it anew after it was started again. A link is never freed,
    /// because another CPU may be using the old one: a kernel that is restarted costs its peers a
    /// few hundred bytes each time, and the sending path costs no reference count.
    pub fn connect(&self, peer: KernelId, link: Link) {
        let link = Box::leak(Box::new(link));
        // Release pairs with the Acquire in `link`.
        self.links[peer.index()].store(link, Ordering::Release);
    }

    /// This kernel's own doorbell word.
    pub fn doorbell(&self) -> &'static Doorbell {
        self.doorbell
    }

    #[inline]
    fn link(&self, peer: KernelId) -> Option<&Link> {
        let link = self.links.get(peer.index())?.load(Ordering::Acquire);
        // SAFETY: null or leaked by `connect`, so valid and shared for ever.
        unsafe { link.as_ref() }
    }
}

impl Port for LanePort {
    fn max_message(&self, to: KernelId, priority: Priority) -> usize {
        let limit = crate::lane::PAYLOAD;
        self.link(to).map_or(limit, |link| link.outbound[priority.index()].max_message())
    }

    #[inline]
    fn try_send(&self, to: KernelId, priority: Priority, bytes: &[u8]) -> Result<(), Full> {
        self.link(to).ok_or(Full)?.outbound[priority.index()].try_send(bytes)
    }

    #[inline]
    fn pending(&self, from: KernelId, priority: Priority) -> bool {
        self.link(from).is_some_and(|link| link.inbound[priority.index()].pending())
    }

    #[inline]
    fn try_recv(&self, from: KernelId, priority: Priority, buffer: &mut Vec<u8>) -> bool {
        self.link(from).is_some_and(|link| link.inbound[priority.index()].try_recv(buffer))
    }

    fn ring(&self, to: KernelId) -> bool {
        let must = self.link(to).is_some_and(|link| link.doorbell.must_ring());
        if must {
            (self.interrupt)(to);
        }
        must
    }

    fn set_polling(&self, polling: bool) {
        match polling {
            true => self.doorbell.start_polling(),
            false => self.doorbell.stop_polling(),
        }
    }
}
