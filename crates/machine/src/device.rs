//! Devices that reach out of the machine, as the services above see them.

use crate::block::Pieces;
use crate::errno::Result;
use crate::sync::WaitQueue;
use crate::BoxFuture;
use alloc::vec::Vec;

/// A stream of bytes each way to somebody outside (a console port). One reader, any number of writers.
pub trait ByteStream: Send + Sync {
    /// The next bytes to arrive, never none of them. Dropping the future loses nothing.
    fn receive(&self) -> BoxFuture<'_, Result<Vec<u8>>>;

    /// Hands `bytes` to the device in one piece and waits until it has taken them. Pieces leave in the
    /// order in which these futures are first polled while the device has room.
    fn send(&self, bytes: Vec<u8>) -> BoxFuture<'_, Result<()>>;
}

/// A device that answers each request with one reply (a 9P server). Many may be under way at once, and
/// the replies come in any order.
pub trait Exchange: Send + Sync {
    /// Sends `request` and waits for its reply of at most `room` bytes.
    ///
    /// Dropping the future does not call the request back: the device still carries it out, and what it
    /// answers is thrown away. A request whose effect must not be lost (it makes a fid, say) therefore
    /// runs in a task of its own or is awaited to the end.
    fn exchange(&self, request: Vec<u8>, room: usize) -> BoxFuture<'_, Result<Vec<u8>>>;
}

/// A device whose requests have their data in frames, which it reads or writes where they are (a disk). Many may be under way at once, and are answered in any order.
pub trait PageQueue: Send + Sync {
    /// Sends `header`, then `pieces`, and waits for the byte of status that the device answers. `device_writes`: it writes the pieces, else it reads them.
    ///
    /// Dropping the future does not call the request back. The device still carries it out, and the frames stay counted until it has answered.
    ///
    /// EINVAL: they are more segments than [`PageQueue::most_segments`]. EIO: the device is out of order.
    fn submit(&self, header: Vec<u8>, pieces: Pieces, device_writes: bool) -> BoxFuture<'_, Result<u8>>;

    /// Runs of adjoining memory in one request, at most ([`Pieces::segments`]).
    fn most_segments(&self) -> usize;

    /// How many queues it has. A request takes that of the CPU which sends it.
    fn queues(&self) -> usize {
        1
    }

    /// Woken when the device's configuration may have changed. None: it can't say so.
    fn changes(&self) -> Option<&WaitQueue> {
        None
    }

    /// The configuration as it is now, of a device that says when it changes.
    fn configuration(&self) -> Vec<u8> {
        Vec::new()
    }
}
