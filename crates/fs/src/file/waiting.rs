//! How an operation waits, or refuses to.

use super::transfer::Transfer;
use alloc::boxed::Box;
use core::{future::poll_fn, task::Poll};
use machine::{errno::Result, sync::WaitQueue, BoxFuture, Errno};

/// Runs `attempt`, again whenever `queue` is woken, until it gives something other than EAGAIN, as far as `patience` goes.
pub(crate) fn attempt<'a, T: Send + 'a>(
    queue: &'a WaitQueue,
    patience: Patience,
    mut attempt: impl FnMut() -> Result<T> + Send + 'a,
) -> Transfer<'a, T> {
    match attempt() {
        Err(Errno::EAGAIN) if patience == Patience::Waits => {
            Transfer::later(queue.wait_again(move || match attempt() {
                Err(Errno::EAGAIN) => None,
                done => Some(done),
            }))
        }
        Err(Errno::EAGAIN) => Transfer::Done(Err(patience.answer())),
        done => Transfer::Done(done),
    }
}

/// The answer to a stand-in that tries: the operation would wait, so it is to wait where it is. Programs never
/// see it; a file that is not to wait at all answers EAGAIN. (Linux has such numbers above 511 too.)
pub const MUST_WAIT: Errno = Errno(540);

/// What an operation does when it can't go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// Waits until it can, or is interrupted.
    Waits,
    /// For a stand-in: [`MUST_WAIT`].
    Tries,
    /// O_NONBLOCK, MSG_DONTWAIT: EAGAIN.
    Refuses,
}

impl Patience {
    pub(crate) fn unless(self, refuses: bool) -> Self {
        if refuses {
            Patience::Refuses
        } else {
            self
        }
    }

    /// An operation that knows only to wait: unless it may, it is looked at once, and abandoned if it would.
    pub(crate) fn limit<'a, T: Send + 'a>(self, mut operation: BoxFuture<'a, Result<T>>) -> BoxFuture<'a, Result<T>> {
        if self == Patience::Waits {
            return operation;
        }
        Box::pin(poll_fn(move |context| match operation.as_mut().poll(context) {
            Poll::Pending => Poll::Ready(Err(self.answer())),
            done => done,
        }))
    }

    /// What EAGAIN of something that does not wait itself becomes.
    pub(crate) fn answer(self) -> Errno {
        if self == Patience::Tries {
            MUST_WAIT
        } else {
            Errno::EAGAIN
        }
    }
}
