//! Requests and their replies: each future is woken by the interrupt that brings its reply.
//!
//! The dangerous interleaving: the reply arrives between adding the request and the first poll of the future, or
//! the future is dropped and its key given to another before the device is done. Therefore the outcome lives in
//! `pending` under the key, from before the device sees the request until *both* the device is done and the
//! future has taken its result or was dropped; only then is the key free.
//!
//! What the device reads and writes is in the ring until then, so nothing becomes of a dropped future but that nobody hears the answer: frames of a request stay counted, also when whoever
//! asked is a thread of a kernel that has died.

use alloc::{boxed::Box, vec::Vec};
use core::{
    future::Future,
    mem,
    pin::Pin,
    task::{Context, Poll, Waker},
};

use machine::block::Pieces;
use machine::collections::try_filled;
use machine::errno::Result;
use machine::sync::{Lock, WaitQueue};
use machine::{BoxFuture, Errno, Exchange, PageQueue};
use slab::Slab;

use super::ring::{Buffers, DeviceMemory, RequestPage, Ring, MOST_BYTES};

/// Pages of requests that are kept for the next ones: the one that there was at first.
const KEPT: usize = 1;

enum Pending {
    /// The device has it; whom to wake when it is done.
    Waiting(Option<Waker>),
    Done(Reply),
    /// Nobody wants the reply any more.
    Abandoned,
}

/// What a device has answered.
enum Reply {
    Bytes(Vec<u8>),
    Status(u8),
}

/// What is to be sent once there is room for it.
enum Unsent {
    Bytes(Vec<u8>, usize),
    Pieces { header: Vec<u8>, pieces: Pieces, device_writes: bool },
}

struct Inner<H: DeviceMemory> {
    ring: Ring<H>,
    pending: Slab<Pending>,
    /// For requests for frames.
    pages: Vec<RequestPage<H>>,
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
        let inner = Inner { ring, pending: Slab::new(), pages: Vec::new(), broken: false };
        RequestQueue { inner: Lock::new(inner), room: WaitQueue::new() }
    }

    /// A queue for requests for frames: it keeps what one of them needs, so that there is always one that can be sent. False: there is no memory for that.
    #[must_use]
    pub(super) fn prepare_for_pieces(&self) -> bool {
        let page = RequestPage::new();
        let has_page = page.is_some();
        self.inner.lock().pages.extend(page);
        has_page
    }

    /// Sends `out` and waits until the device is done with it; gives what it wrote, at most `room` bytes. Dropping
    /// the future leaves the request with the device. EINVAL: nothing to send, or `out` and `room` are more than [`MOST_BYTES`]. ENOMEM: there is no memory for `room` bytes.
    pub async fn request(&self, out: Vec<u8>, room: usize) -> Result<Vec<u8>> {
        if out.is_empty() || out.len() + room > MOST_BYTES {
            return Err(Errno::EINVAL);
        }
        match self.send(Unsent::Bytes(out, room)).await? {
            Reply::Bytes(reply) => Ok(reply),
            Reply::Status(_) => Err(Errno::EIO),
        }
    }

    /// See [`PageQueue::submit`].
    pub async fn transfer(&self, header: Vec<u8>, pieces: Pieces, device_writes: bool) -> Result<u8> {
        let most = self.inner.lock().ring.most_segments();
        if header.is_empty() || header.len() > RequestPage::<H>::HEADER || pieces.segments() > most {
            return Err(Errno::EINVAL);
        }
        match self.send(Unsent::Pieces { header, pieces, device_writes }).await? {
            Reply::Status(status) => Ok(status),
            Reply::Bytes(_) => Err(Errno::EIO),
        }
    }

    async fn send(&self, unsent: Unsent) -> Result<Reply> {
        let mut unsent = Some(unsent);
        let key = self.room.wait_until(|| self.submit(&mut unsent)).await?;
        Waiting { queue: self, key }.await
    }

    /// Takes `unsent` if there is room for it.
    fn submit(&self, unsent: &mut Option<Unsent>) -> Option<Result<usize>> {
        let inner = &mut *self.inner.lock();
        if inner.broken {
            return Some(Err(Errno::EIO));
        }
        let buffers = match unsent.take()? {
            Unsent::Bytes(out, room) => match try_filled(room, 0) {
                Ok(into) => Buffers::Bytes { out, into },
                Err(_) => return Some(Err(Errno::ENOMEM)),
            },
            Unsent::Pieces { header, pieces, device_writes } => {
                let Some(page) = inner.pages.pop().or_else(RequestPage::new) else {
                    *unsent = Some(Unsent::Pieces { header, pieces, device_writes });
                    return None;
                };
                Buffers::pieces(page, &header, pieces, device_writes)
            }
        };
        let key = inner.pending.insert(Pending::Waiting(None));
        match inner.ring.add(key, buffers) {
            Ok(()) => {
                inner.ring.notify();
                Some(Ok(key))
            }
            Err(back) => {
                inner.pending.remove(key);
                *unsent = Some(inner.unsent(back));
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
        let (mut wakers, mut done) = (Vec::new(), Vec::new());
        {
            let inner = &mut *self.inner.lock();
            while !inner.broken {
                match inner.ring.take_used() {
                    Ok(None) => break,
                    Ok(Some(used)) => {
                        let reply = match used.buffers {
                            Buffers::Bytes { mut into, .. } => {
                                into.truncate(used.written);
                                Reply::Bytes(into)
                            }
                            Buffers::Pieces { page, pieces, .. } => {
                                done.push(pieces);
                                let status = page.status();
                                inner.keep(page);
                                Reply::Status(status)
                            }
                        };
                        wakers.extend(inner.finish(used.key, reply));
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
        // Outside the lock: a waker may run code that sends the next request. Frames go before anybody hears of it.
        drop(done);
        wakers.into_iter().for_each(Waker::wake);
        self.room.wake_all();
    }
}

impl<H: DeviceMemory> Inner<H> {
    fn keep(&mut self, page: RequestPage<H>) {
        if self.pages.len() < KEPT {
            self.pages.push(page);
        }
    }

    /// What found no room in the ring, as it was before.
    fn unsent(&mut self, buffers: Buffers<H>) -> Unsent {
        match buffers {
            Buffers::Bytes { out, into } => Unsent::Bytes(out, into.len()),
            Buffers::Pieces { page, header, pieces, device_writes } => {
                let header = page.header(header);
                self.keep(page);
                Unsent::Pieces { header, pieces, device_writes }
            }
        }
    }

    fn finish(&mut self, key: usize, reply: Reply) -> Option<Waker> {
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

struct Waiting<'a, H: DeviceMemory> {
    queue: &'a RequestQueue<H>,
    key: usize,
}

impl<H: DeviceMemory> Future for Waiting<'_, H> {
    type Output = Result<Reply>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let inner = &mut *self.queue.inner.lock();
        let broken = inner.broken;
        match &mut inner.pending[self.key] {
            Pending::Done(reply) => Poll::Ready(Ok(mem::replace(reply, Reply::Status(0)))),
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

impl<H: DeviceMemory> Drop for Waiting<'_, H> {
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

impl<H: DeviceMemory + Send + Sync> PageQueue for RequestQueue<H> {
    fn submit(&self, header: Vec<u8>, pieces: Pieces, device_writes: bool) -> BoxFuture<'_, Result<u8>> {
        Box::pin(self.transfer(header, pieces, device_writes))
    }

    fn most_segments(&self) -> usize {
        self.inner.lock().ring.most_segments()
    }
}
