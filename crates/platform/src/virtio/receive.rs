//! Bytes that come uninvited (a console's input): buffers wait in the queue, and filled ones for a reader.
//!
//! A filled buffer goes back to the device only when its bytes have been read. So a reader that stops reading
//! stops the device, and through it the sender; nothing piles up here.

use alloc::{collections::VecDeque, vec, vec::Vec};

use machine::errno::Result;
use machine::sync::{Lock, WaitQueue};
use machine::Errno;

use super::ring::{Buffers, DeviceMemory, Ring, Used};

/// QEMU reads at most 4 KiB at a time from a character device.
const BUFFER: usize = 4096;
const BUFFERS: usize = 32;

struct Inner<H: DeviceMemory> {
    ring: Ring<H>,
    /// Buffers with their keys, and how much of each is new.
    filled: VecDeque<(usize, Vec<u8>, usize)>,
    broken: bool,
}

/// A queue where the device speaks and the driver listens.
pub struct ReceiveQueue<H: DeviceMemory> {
    inner: Lock<Inner<H>>,
    arrived: WaitQueue,
}

impl<H: DeviceMemory> ReceiveQueue<H> {
    pub(super) fn new(mut ring: Ring<H>) -> Self {
        for key in 0..BUFFERS {
            // There is room: a ring has more descriptors than that.
            let _ = ring.add(key, Buffers::Bytes { out: Vec::new(), into: vec![0; BUFFER] });
        }
        ReceiveQueue {
            inner: Lock::new(Inner { ring, filled: VecDeque::with_capacity(BUFFERS), broken: false }),
            arrived: WaitQueue::new(),
        }
    }

    /// Tells the device of the first buffers, once it runs.
    pub(super) fn notify(&self) {
        self.inner.lock().ring.notify();
    }

    /// The next bytes, in order.
    pub async fn receive(&self) -> Result<Vec<u8>> {
        self.arrived.wait_until(|| self.inner.lock().take()).await
    }

    /// Called for the queue's interrupt.
    pub fn complete(&self) {
        {
            let inner = &mut *self.inner.lock();
            while !inner.broken {
                match inner.ring.take_used() {
                    Ok(Some(Used { key, buffers: Buffers::Bytes { into, .. }, written })) => {
                        inner.filled.push_back((key, into, written));
                    }
                    Ok(Some(_)) => {}
                    Ok(None) => break,
                    Err(_) => {
                        log::error!("virtio: a device used a buffer that it was not given");
                        inner.broken = true;
                    }
                }
            }
        }
        self.arrived.wake_all();
    }
}

impl<H: DeviceMemory> Inner<H> {
    fn take(&mut self) -> Option<Result<Vec<u8>>> {
        while let Some((key, into, written)) = self.filled.pop_front() {
            let bytes = into[..written].to_vec();
            // There is room: its descriptor came back with it.
            let _ = self.ring.add(key, Buffers::Bytes { out: Vec::new(), into });
            self.ring.notify();
            if !bytes.is_empty() {
                return Some(Ok(bytes));
            }
        }
        self.broken.then_some(Err(Errno::EIO))
    }
}
