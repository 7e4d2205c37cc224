//! [`HeldPipe`]: the first bytes of a pipe, which nobody else reads while somebody puts them elsewhere (splice, tee).
//!
//! What has been written to another file can't be taken back from there, and what has been taken out of a pipe can't be put back
//! into it in front of a reader that has come meanwhile:
//!
//! ```text
//! splice from a pipe                       another reader
//! looks: "abc"
//! writes "abc" to a file
//!                                          reads "abc"
//! takes what it has written: "def"                          <- "abc" is there twice, "def" nowhere
//! ```
//!
//! So whoever moves bytes holds the pipe: the bytes stay where they are, other readers wait, also those that do not block (as on
//! Linux, where they wait for the pipe's lock), and in the end as many go as were written. Writers go on behind them. Nobody
//! holds a pipe while he waits for something to be in it, or for room in another pipe: of two that wait for each
//! other neither could go on. A holder that ends, in whatever way, has let go.
//!
//! The pipe may be another kernel's. Then that kernel holds it for us (remote/pipe.rs), and the bytes come in lent frames.

use super::{ring, Pipe, PipeEnd, DEFAULT_CAPACITY};
use crate::{
    file::{Access, HeldBytes, Source},
    waiting::{Patience, MUST_WAIT},
    Caller, File,
};
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use machine::{account::Charge, collections::try_filled, errno::Result, BoxFuture, Errno};

/// Somebody holds the pipe: even who does not wait for bytes waits for that.
pub(super) const HELD: Errno = MUST_WAIT;

/// Of a pipe of this kernel. It lets go when it is dropped.
pub(super) struct Hold {
    pipe: Arc<Pipe>,
    count: usize,
    taken: usize,
}

impl HeldBytes for Hold {
    fn bytes(&mut self) -> Result<Vec<u8>> {
        let mut bytes = try_filled(self.count, 0)?;
        let found = ring::copy(self.pipe.state.lock().bytes.front(self.count), &mut bytes);
        // Less, if all ends have been closed.
        bytes.truncate(found);
        Ok(bytes)
    }

    fn take(mut self: Box<Self>, count: usize) -> Option<BoxFuture<'static, ()>> {
        self.taken = count;
        None
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let refused = {
            let mut state = self.pipe.state.lock();
            let taken = self.taken.min(self.count).min(state.bytes.len());
            state.bytes.pop(taken, DEFAULT_CAPACITY);
            state.read += u64::from(taken > 0);
            state.held = false;
            core::mem::take(&mut state.refused)
        };
        if self.taken > 0 {
            self.pipe.wake_writers();
        }
        // Only if a reader has met it: an edge-triggered epoll takes a wake for news.
        if refused {
            self.pipe.wake_readers();
        }
    }
}

impl Pipe {
    /// None: nobody is left who could write anything.
    fn try_hold(self: &Arc<Self>, most: usize) -> Result<Option<Hold>> {
        let mut state = self.state.lock();
        if state.held {
            state.refused = true;
            return Err(HELD);
        }
        if state.bytes.is_empty() {
            return if state.writers == 0 { Ok(None) } else { Err(Errno::EAGAIN) };
        }
        state.held = true;
        let count = most.min(state.bytes.len());
        Ok(Some(Hold { pipe: self.clone(), count, taken: 0 }))
    }
}

impl PipeEnd {
    /// The first bytes, at most `most`, as soon as there are any and nobody else holds them. None: there will be none.
    pub(super) async fn hold_first(&self, most: usize, wait: bool) -> Result<Option<Hold>> {
        if !self.flags.get().readable() {
            return Err(Errno::EBADF);
        }
        let waits = wait && !self.flags.nonblocking();
        let attempt = || match self.pipe.try_hold(most) {
            Err(HELD) => None,
            Err(Errno::EAGAIN) if waits => None,
            held => Some(held),
        };
        self.pipe.readable.wait_until(attempt).await
    }
}

/// Bytes of a pipe, of whichever kernel.
pub struct HeldPipe {
    pub bytes: Vec<u8>,
    hold: Box<dyn HeldBytes>,
    /// For the bytes.
    _charge: Charge,
}

impl HeldPipe {
    /// The first `count` bytes have found their place: the others are the next reader's.
    pub async fn take(self, count: usize) {
        if let Some(told) = self.hold.take(count) {
            told.await;
        }
    }
}

/// The first bytes of a pipe, at most `most`, for which `charge` is; waits for some if it may. None: nobody is left who could write
/// anything.
pub async fn hold(
    file: &Arc<dyn File>,
    caller: &Caller,
    most: usize,
    charge: Charge,
    wait: bool,
) -> Result<Option<HeldPipe>> {
    let Some(mut hold) = file.hold(&caller.shield, most, wait).await? else { return Ok(None) };
    Ok(Some(HeldPipe { bytes: hold.bytes()?, hold, _charge: charge }))
}

/// Puts into a pipe what goes in at once. EAGAIN: nothing does, whether or not a write would wait.
pub async fn offer(file: &Arc<dyn File>, caller: &Caller, bytes: &[u8]) -> Result<usize> {
    if let Some(end) = file.as_any().downcast_ref::<PipeEnd>() {
        return match end.flags.get().writable() {
            true => end.pipe.try_write(&mut Source::Kernel(bytes)),
            false => Err(Errno::EBADF),
        };
    }
    file.write_from(Source::Kernel(bytes), Access::by(caller).with(Patience::Refuses)).await
}
