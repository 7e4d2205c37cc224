//! How an operation waits, or refuses to.

use alloc::boxed::Box;
use machine::{errno::Result, sync::WaitQueue, BoxFuture, Errno};

/// Runs `attempt` until it gives something other than EAGAIN; with O_NONBLOCK only once.
pub(crate) fn attempt<'a, T: Send + 'a>(
    queue: &'a WaitQueue,
    nonblocking: bool,
    mut attempt: impl FnMut() -> Result<T> + Send + 'a,
) -> BoxFuture<'a, Result<T>> {
    if nonblocking {
        return crate::file::ready(attempt());
    }
    Box::pin(queue.wait_until(move || match attempt() {
        Err(Errno::EAGAIN) => None,
        done => Some(done),
    }))
}
