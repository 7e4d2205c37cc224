//! How an endpoint reaches the other kernels. `LanePort` does it through lanes in shared memory;
//! the simulator through queues it delays, reorders between pairs and fills up.
#![forbid(unsafe_code)]

pub use crate::lane::Full;
use alloc::{sync::Arc, vec::Vec};
use machine::KernelId;
use messages::Priority;

/// Per ordered pair of kernels and priority: reliable, in order, limited. No method waits.
pub trait Port: Send + Sync {
    /// The longest message `try_send` takes; the endpoint cuts longer ones up.
    fn max_message(&self, to: KernelId, priority: Priority) -> usize;

    /// Sends all of `bytes` as one message or nothing. To a kernel that was never connected: `Full`.
    fn try_send(&self, to: KernelId, priority: Priority, bytes: &[u8]) -> Result<(), Full>;

    /// Whether `try_recv` would find something.
    fn pending(&self, from: KernelId, priority: Priority) -> bool;

    /// Replaces `buffer` by the next message; false if there is none.
    fn try_recv(&self, from: KernelId, priority: Priority, buffer: &mut Vec<u8>) -> bool;

    /// Makes sure that `to` looks at its lanes. True if that took an interrupt, false if it is
    /// looking anyway (see doorbell.rs).
    fn ring(&self, to: KernelId) -> bool;

    /// A CPU of this kernel starts or stops looking at the lanes by itself. Calls come in pairs,
    /// one pair per CPU. After `false` the caller must check `pending` once more before it sleeps.
    fn set_polling(&self, polling: bool);
}

/// The kernel keeps a handle of its port, to connect those who come later.
impl<P: Port + ?Sized> Port for Arc<P> {
    fn max_message(&self, to: KernelId, priority: Priority) -> usize {
        (**self).max_message(to, priority)
    }

    fn try_send(&self, to: KernelId, priority: Priority, bytes: &[u8]) -> Result<(), Full> {
        (**self).try_send(to, priority, bytes)
    }

    fn pending(&self, from: KernelId, priority: Priority) -> bool {
        (**self).pending(from, priority)
    }

    fn try_recv(&self, from: KernelId, priority: Priority, buffer: &mut Vec<u8>) -> bool {
        (**self).try_recv(from, priority, buffer)
    }

    fn ring(&self, to: KernelId) -> bool {
        (**self).ring(to)
    }

    fn set_polling(&self, polling: bool) {
        (**self).set_polling(polling)
    }
}
