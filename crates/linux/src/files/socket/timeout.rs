//! SO_RCVTIMEO and SO_SNDTIMEO (man 7 socket): how long a call on a socket waits.
//!
//! A socket of this kernel says so itself. Of one of another kernel it takes a message to know, so that kernel is asked only when the call
//! has waited for a while.

use crate::{call::Call, files::poll::Deadline};
use alloc::sync::Arc;
use core::{
    future::{poll_fn, Future},
    pin::{pin, Pin},
    task::Poll,
};
use fs::{
    control::{Control, ControlAnswer, SocketControl},
    File,
};
use machine::{errno::Result, BoxFuture, Errno};

const SOL_SOCKET: u32 = 1;
const SO_RCVTIMEO: u32 = 20;
const SO_SNDTIMEO: u32 = 21;
/// How long a call waits before it asks another kernel, in ns.
const BEFORE_ASKING: u64 = 2_000_000;

/// What a call waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Receive,
    Send,
    Connect,
}

impl Direction {
    fn index(self) -> usize {
        usize::from(self != Direction::Receive)
    }

    fn option(self) -> u32 {
        match self {
            Direction::Receive => SO_RCVTIMEO,
            _ => SO_SNDTIMEO,
        }
    }

    /// What a call answers when its time is over.
    fn answer(self) -> Errno {
        match self {
            Direction::Connect => Errno::EINPROGRESS,
            _ => Errno::EAGAIN,
        }
    }
}

/// Waits as [`Call::wait_for`] does, as long as the socket's option has it.
pub(crate) async fn wait<T>(
    call: &Call<'_>,
    file: &Arc<dyn File>,
    direction: Direction,
    wait: impl Future<Output = Result<T>>,
) -> Result<T> {
    match file.timeouts().map(|timeouts| timeouts[direction.index()]) {
        Some(0) => call.wait_for(file, wait).await,
        Some(ns) => {
            let over = Deadline::after(call, ns).future(call).unwrap_or_else(|| fs::file::ready(()));
            until(call, file, direction, wait, over).await
        }
        None => {
            let began = call.system().now();
            let mut wait = pin!(wait);
            let asking = Deadline::after(call, BEFORE_ASKING).future(call).unwrap_or_else(|| fs::file::ready(()));
            match call.wait_for(file, race(wait.as_mut(), asking)).await? {
                Some(done) => Ok(done),
                None => match ask(call, file, direction).await? {
                    0 => call.wait_for(file, wait).await,
                    ns => {
                        let left = ns.saturating_sub(call.system().now() - began);
                        let over = Deadline::after(call, left).future(call).unwrap_or_else(|| fs::file::ready(()));
                        until(call, file, direction, wait, over).await
                    }
                },
            }
        }
    }
}

/// The option, of a socket of another kernel.
async fn ask(call: &Call<'_>, file: &Arc<dyn File>, direction: Direction) -> Result<u64> {
    let control = SocketControl::GetOption { level: SOL_SOCKET, name: direction.option() };
    let ControlAnswer::Bytes(value) = file.control(&call.caller(), Control::Socket(control)).await? else {
        return Err(Errno::EIO);
    };
    let part = |at: usize| value.get(at..at + 8).and_then(|part| part.try_into().ok()).map_or(0, u64::from_ne_bytes);
    Ok(part(0).saturating_mul(1_000_000_000).saturating_add(part(8) * 1000))
}

/// Not restarted if a signal interrupts it: its time would begin anew (man 7 signal).
async fn until<T>(
    call: &Call<'_>,
    file: &Arc<dyn File>,
    direction: Direction,
    wait: impl Future<Output = Result<T>>,
    over: BoxFuture<'static, ()>,
) -> Result<T> {
    match call.wait_for(file, race(pin!(wait), over)).await {
        Ok(Some(done)) => Ok(done),
        Ok(None) => Err(direction.answer()),
        Err(Errno::RESTART) => Err(Errno::EINTR),
        Err(error) => Err(error),
    }
}

/// None: `over` was first.
async fn race<T>(
    mut wait: Pin<&mut impl Future<Output = Result<T>>>,
    mut over: BoxFuture<'static, ()>,
) -> Result<Option<T>> {
    poll_fn(|context| match wait.as_mut().poll(context) {
        Poll::Ready(done) => Poll::Ready(done.map(Some)),
        Poll::Pending => over.as_mut().poll(context).map(|()| Ok(None)),
    })
    .await
}
