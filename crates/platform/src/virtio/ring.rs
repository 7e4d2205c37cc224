//! A virtqueue that owns its buffers.
//!
//! Problem. While a chain of buffers is in a queue, the device reads and writes them whenever it likes. A
//! future that holds such a buffer can be dropped at any await (a signal interrupts the call); then its memory
//! would be reused while the device still writes into it.
//!
//! Idea. Buffers are moved in and come back out only when the device has put the chain into the used ring. What
//! the caller keeps is a key, and forgetting a key harms nobody.
//!
//! A buffer that is not in one piece for the device takes several descriptors. What is moved in is bounded
//! ([`MOST_BYTES`]), so that a chain fits into an empty ring however scattered its frames are.
//!
//! A ring is never taken apart: the interrupt table holds it for ever (see `device.rs`), because freeing its
//! memory while the device is alive would be the same mistake again.

use alloc::{boxed::Box, vec::Vec};

use machine::PAGE_SIZE;
use virtio_drivers::{queue::VirtQueue, transport::Transport, Hal};

/// Descriptors in a queue. QEMU's console and 9P devices have exactly that many.
pub const SIZE: usize = 128;

/// What both buffers of a chain may have together: a descriptor for each page, and each may begin and end within one.
pub const MOST_BYTES: usize = (SIZE - 4) * PAGE_SIZE;

/// How buffers look to the device.
pub trait DeviceMemory: Hal {
    /// How much of the beginning of `buffer`, which is not empty, is in one piece.
    fn contiguous(buffer: &[u8]) -> usize;
}

/// Tells the device that a queue has something new.
pub trait Doorbell: Send + Sync {
    fn ring(&self);
}

struct Chain {
    key: usize,
    out: Vec<u8>,
    into: Vec<u8>,
}

/// A chain that the device is done with.
pub struct Used {
    pub key: usize,
    /// The buffer that the device wrote, whole; only its first `written` bytes are new.
    pub into: Vec<u8>,
    pub written: usize,
}

/// The device used a chain that was not given to it. It can't be trusted with memory any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Broken;

pub struct Ring<H: DeviceMemory> {
    queue: Box<VirtQueue<H, SIZE>>,
    /// By the chain's first descriptor.
    chains: Vec<Option<Chain>>,
    doorbell: Box<dyn Doorbell>,
}

impl<H: DeviceMemory> Ring<H> {
    /// Sets up queue `index` of a device between FEATURES_OK and DRIVER_OK.
    ///
    /// VIRTIO_F_EVENT_IDX is not used: `VirtQueue::should_notify` of virtio-drivers 0.13 compares
    /// the indices without regard to their wrapping, and loses a notification after 65536 chains. Neither
    /// is VIRTIO_F_INDIRECT_DESC: it would allocate for each chain, and two descriptors do as a rule.
    pub fn new<T: Transport>(
        transport: &mut T,
        index: u16,
        doorbell: Box<dyn Doorbell>,
    ) -> virtio_drivers::Result<Self> {
        let queue = Box::new(VirtQueue::new(transport, index, false, false)?);
        Ok(Ring { queue, chains: (0..SIZE).map(|_| None).collect(), doorbell })
    }

    /// Gives the device a chain: `out` to read, `into` to write; not both empty. They come back in `Err` when
    /// there is no room now.
    pub fn add(&mut self, key: usize, out: Vec<u8>, into: Vec<u8>) -> Result<(), (Vec<u8>, Vec<u8>)> {
        let mut chain = Chain { key, out, into };
        let Chain { out, into, .. } = &mut chain;
        let (inputs, mut outputs) = (pieces::<H>(out), pieces_mut::<H>(into));
        // SAFETY: the buffers are on the heap and belong to `chain`, which is kept in `chains` (moving a Vec
        // does not move its bytes) and not touched until `take_used` pops this token.
        match unsafe { self.queue.add(&inputs, &mut outputs) } {
            Ok(token) => {
                self.chains[usize::from(token)] = Some(chain);
                Ok(())
            }
            Err(_) => Err((chain.out, chain.into)),
        }
    }

    /// Lets the device know what was added, unless it has said that it looks anyway.
    pub fn notify(&self) {
        if self.queue.should_notify() {
            self.doorbell.ring();
        }
    }

    /// The next chain that the device is done with.
    pub fn take_used(&mut self) -> Result<Option<Used>, Broken> {
        let Some(token) = self.queue.peek_used() else {
            return Ok(None);
        };
        let chain = self.chains.get_mut(usize::from(token)).and_then(Option::take);
        let Some(mut chain) = chain else {
            return Err(Broken);
        };
        let Chain { out, into, .. } = &mut chain;
        let (inputs, mut outputs) = (pieces::<H>(out), pieces_mut::<H>(into));
        // SAFETY: the same buffers as in `add` for this token: `chains` is indexed by it.
        let written = unsafe { self.queue.pop_used(token, &inputs, &mut outputs) };
        let written = written.map_err(|_| Broken)? as usize;
        Ok(Some(Used { key: chain.key, written: written.min(chain.into.len()), into: chain.into }))
    }
}

/// What has a descriptor each; none for an empty buffer, which may not have one.
fn pieces<H: DeviceMemory>(mut buffer: &[u8]) -> Vec<&[u8]> {
    let mut pieces = Vec::with_capacity(1);
    while !buffer.is_empty() {
        let (piece, rest) = buffer.split_at(H::contiguous(buffer));
        pieces.push(piece);
        buffer = rest;
    }
    pieces
}

fn pieces_mut<H: DeviceMemory>(mut buffer: &mut [u8]) -> Vec<&mut [u8]> {
    let mut pieces = Vec::with_capacity(1);
    while !buffer.is_empty() {
        let (piece, rest) = buffer.split_at_mut(H::contiguous(buffer));
        pieces.push(piece);
        buffer = rest;
    }
    pieces
}
