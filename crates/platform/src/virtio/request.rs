//! Requests and their replies: each future is woken by the interrupt that brings its reply.
//!
//! The dangerous interleaving: the reply arrives between adding the request and the first poll of the future, or
//! the future is dropped and its key given to another before the device is done. Therefore the outcome lives in
//! `pending` under the key, from before the device sees the request until *both* the device is done and the
//! future has taken its result or was dropped; only then is the key free.

use alloc::{boxed::Box, vec, vec::Vec};
use core::{
    future::Future,
    mem,
    pin::Pin,
    task::{Context, Poll, Waker},
};

use machine::errno::Result;
use machine::sync::{Lock, WaitQueue};
use machine::{BoxFuture, Errno, Exchange};
use slab::Slab;

use super::ring::{DeviceMemory, Ring, MOST_BYTES};

enum Pending {
    /// The device has it; whom to wake when it is done.
    Waiting(Option<Waker>),
    Done(Vec<u8>),
    /// Nobody wants the reply any more.
    Abandoned,
}

struct Inner<H: DeviceMemory> {
    ring: Ring<H>,
    pending: Slab<Pending>,
    /// The device broke the rules; everything fails with EIO from now on.
    broken: bool,
}

/// A queue where the driver asks and the device answers.
pub struct RequestQueue<H: DeviceMemory> {
    inner: Lock<Inner<H>>,
    /// Woken when descriptors came back.
    room: WaitQueue,
}

impl<H: DeviceMemory> RequestQueue<H> {
    pub(super) fn new(ring: Ring<H>) -> Self {
        RequestQueue { inner: Lock::new(Inner { ring, pending: Slab::new(), broken: false }), room: WaitQueue::new() }
    }

    /// Sends `out` and waits until the device is done with it; gives what it wrote, at most `room` bytes. Dropping
    /// the future leaves the request with the device. EINVAL: nothing to send, or `out` and `room` are more than [`MOST_BYTES`].
    pub async fn request(&self, out: Vec<u8>, room: usize) -> Result<Vec<u8>> {
        if out.is_empty() || out.len() + room > MOST_BYTES {
            return Err(Errno::EINVAL);
        }
        let mut buffers = Some((out, vec![0; room]));
        let key = self.room.wait_until(|| self.submit(&mut buffers)).await?;
        Reply { queue: self, key }.await
    }

    /// Takes `buffers` if there is room for them.
    fn submit(&self, buffers: &mut Option<(Vec<u8>, Vec<u8>)>) -> Option<Result<usize>> {
        let inner = &mut *self.inner.lock();
        if inner.broken {
            return Some(Err(Errno::EIO));
        }
        let (out, into) = buffers.take()?;
        let key = inner.pending.insert(Pending::Waiting(None));
        match inner.ring.add(key, out, into) {
            Ok(()) => {
                inner.ring.notify();
                Some(Ok(key))
            }
            Err(back) => {
                inner.pending.remove(key);
                *buffers = Some(back);
                None
            }
        }
    }

    /// Requests whose outcome somebody still has to take.
    #[cfg(test)]
    pub fn under_way(&self) -> usize {
        self.inner.lock().pending.len()
    }

    /// Called for the queue's interrupt: hands out the replies that are there.
    pub fn complete(&self) {
        let mut wakers = Vec::new();
        {
            let inner = &mut *self.inner.lock();
            while !inner.broken {
                match inner.ring.take_used() {
                    Ok(None) => break,
                    Ok(Some(mut used)) => {
                        used.into.truncate(used.written);
                        wakers.extend(inner.finish(used.key, used.into));
                    }
                    Err(_) => {
                        log::error!("virtio: a device used a chain that it was not given");
                        inner.broken = true;
                        wakers.extend(inner.pending.iter_mut().filter_map(|(_, pending)| match pending {
                            Pending::Waiting(waker) => waker.take(),
                            _ => None,
                        }));
                    }
                }
            }
        }
        // Outside the lock: a waker may run code that sends the next request.
        wakers.into_iter().for_each(Waker::wake);
        self.room.wake_all();
    }
}

impl<H: DeviceMemory> Inner<H> {
    fn finish(&mut self, key: usize, reply: Vec<u8>) -> Option<Waker> {
        match mem::replace(&mut self.pending[key], Pending::Done(reply)) {
            Pending::Waiting(waker) => waker,
            // Abandoned: the key is free now. (Done cannot be: a chain is used once.)
            _ => {
                self.pending.remove(key);
                None
            }
        }
    }
}

struct Reply<'a, H: DeviceMemory> {
    queue: &'a RequestQueue<H>,
    key: usize,
}

impl<H: DeviceMemory> Future for Reply<'_, H> {
    type Output = Result<Vec<u8>>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let inner = &mut *self.queue.inner.lock();
        let broken = inner.broken;
        match &mut inner.pending[self.key] {
            Pending::Done(reply) => Poll::Ready(Ok(mem::take(reply))),
            _ if broken => Poll::Ready(Err(Errno::EIO)),
            Pending::Waiting(waker) => {
                match waker {
                    Some(waker) => waker.clone_from(context.waker()),
                    None => *waker = Some(context.waker().clone()),
                }
                Poll::Pending
            }
            Pending::Abandoned => unreachable!("abandoned only when this future is dropped"),
        }
    }
}

impl<H: DeviceMemory> Drop for Reply<'_, H> {
    fn drop(&mut self) {
        let inner = &mut *self.queue.inner.lock();
        match &mut inner.pending[self.key] {
            Pending::Done(_) => {
                inner.pending.remove(self.key);
            }
            pending => *pending = Pending::Abandoned,
        }
    }
}

impl<H: DeviceMemory + Send + Sync> Exchange for RequestQueue<H> {
    fn exchange(&self, request: Vec<u8>, room: usize) -> BoxFuture<'_, Result<Vec<u8>>> {
        Box::pin(self.request(request, room))
    }
}
