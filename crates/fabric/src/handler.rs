//! Handlers: what runs when a request arrives.
//!
//! A handler future is polled once inside the drain; most finish there, and cost no task. One that has
//! to wait is *parked*: it becomes a task of the kernel, which answers when it is done. A caller that
//! loses interest (a signal, a death) sends `Cancel`; the task then drops the handler's future at the point
//! where it waits, and answers `Cancelled`. If the handler has finished first, its answer is on
//! its way and the cancel finds nothing.
//!
//! A handler that must not stop half-way (it has begun to revoke, say) is registered with
//! [`Endpoint::on_to_completion`] and does not see cancels.
#![forbid(unsafe_code)]

use crate::endpoint::{Endpoint, Peer};
use crate::wire::{Header, Packet, Role};
use alloc::{boxed::Box, sync::Arc};
use core::{
    future::{poll_fn, Future},
    pin::Pin,
    sync::atomic::Ordering,
    task::{Context, Poll, Waker},
};
use machine::{sync::Lock, KernelId};
use messages::{Kind, Request, CATALOGUE};
use spin::Once;

/// A request as it came out of a lane.
#[derive(Clone, Copy)]
pub(crate) struct Incoming<'a> {
    pub peer: &'a Peer,
    /// The life of the peer that it comes from.
    pub epoch: u32,
    pub header: Header,
    pub body: &'a [u8],
}

/// What became of a request when the drain goes on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It has been answered, and the answer returns the credit.
    Answered,
    /// A task is at it; the credit goes back now.
    Parked,
    /// Its bytes make no sense.
    Malformed,
}

type Handler = Box<dyn Fn(&Endpoint, Incoming<'_>) -> Outcome + Send + Sync>;

/// One handler per type of message, by its place in the catalogue.
pub(crate) struct Handlers(Box<[Once<Handler>]>);

impl Handlers {
    pub fn new() -> Self {
        Handlers(CATALOGUE.iter().map(|_| Once::new()).collect())
    }

    fn set<M: Request>(&self, handler: Handler) {
        let index = messages::index_of(M::KIND).expect("every message is in the catalogue");
        let mut first = false;
        self.0[index].call_once(|| {
            first = true;
            handler
        });
        assert!(first, "two handlers for {}", M::NAME);
    }

    pub fn get(&self, kind: Kind) -> Option<&Handler> {
        self.0[messages::index_of(kind)?].get()
    }
}

/// A parked request: how to stop it.
#[derive(Default)]
pub(crate) struct Running {
    state: Lock<(bool, Option<Waker>)>,
}

impl Running {
    pub fn cancel(&self) {
        let waker = {
            let mut state = self.state.lock();
            state.0 = true;
            state.1.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn is_cancelled(&self, waker: &Waker) -> bool {
        let mut state = self.state.lock();
        if !state.0 {
            state.1 = Some(waker.clone());
        }
        state.0
    }
}

impl Endpoint {
    /// Registers the handler of `M`: an async function of the sender and the message. Its future may
    /// be dropped at any `.await` when the caller cancels.
    ///
    /// The endpoint owns the handler, so a handler that needs the endpoint holds a `Weak` of it or
    /// of its service.
    ///
    /// # Panics
    ///
    /// If `M` has a handler already; so does its kin.
    pub fn on<M, F, R>(&self, handler: F)
    where
        M: Request,
        F: Fn(KernelId, M) -> R + Send + Sync + 'static,
        R: Future<Output = M::Reply> + Send + 'static,
    {
        self.handlers.set::<M>(asynchronous(handler, true));
    }

    /// Like [`Self::on`], but a handler that was begun always runs to its end.
    pub fn on_to_completion<M, F, R>(&self, handler: F)
    where
        M: Request,
        F: Fn(KernelId, M) -> R + Send + Sync + 'static,
        R: Future<Output = M::Reply> + Send + 'static,
    {
        self.handlers.set::<M>(asynchronous(handler, false));
    }

    /// Registers a handler that runs wholly inside the drain, before the next message of its lane:
    /// for revocations and installs. It must not wait.
    pub fn on_sync<M, F>(&self, handler: F)
    where
        M: Request,
        F: Fn(KernelId, M) -> M::Reply + Send + Sync + 'static,
    {
        self.handlers.set::<M>(Box::new(move |endpoint, incoming| {
            let Ok(message) = postcard::from_bytes(incoming.body) else { return Outcome::Malformed };
            let reply = handler(incoming.peer.id, message);
            endpoint.answer::<M>(incoming.peer, incoming.header, false, &reply);
            Outcome::Answered
        }));
    }

    fn answer<M: Request>(&self, peer: &Peer, request: Header, parked: bool, reply: &M::Reply) {
        if request.role == Role::Request {
            let header = Header { role: Role::Reply, parked, ..request };
            self.transmit_answer(peer, &Packet::new(header, reply));
        }
    }

    /// Starts the task for a request whose handler has to wait.
    fn park<M: Request>(
        &self,
        Incoming { peer, epoch, header: request, .. }: Incoming<'_>,
        mut handler: Pin<Box<impl Future<Output = M::Reply> + Send + 'static>>,
        cancellable: bool,
    ) {
        let running = Arc::new(Running::default());
        let cancellable = cancellable && request.role == Role::Request;
        if cancellable {
            peer.running.lock().insert((epoch, request.id), running.clone());
            // Another CPU may just have declared the peer dead, and not have seen this one.
            if peer.epoch.load(Ordering::Acquire) != epoch {
                running.cancel();
            }
        }
        let (endpoint, from) = (self.shared(), peer.id);
        self.spawner.spawn(Box::pin(async move {
            let reply = poll_fn(|context| match cancellable && running.is_cancelled(context.waker()) {
                true => Poll::Ready(None),
                false => handler.as_mut().poll(context).map(Some),
            })
            .await;
            // Before the answer, so that the caller finds all the handler had released.
            drop(handler);
            endpoint.unpark::<M>(from, epoch, request, reply);
        }));
    }

    fn unpark<M: Request>(&self, from: KernelId, epoch: u32, request: Header, reply: Option<M::Reply>) {
        let Some(peer) = self.peer(from) else { return };
        peer.running.lock().remove(&(epoch, request.id));
        if peer.epoch.load(Ordering::Acquire) != epoch {
            return; // It died; ids of its successor mean other calls.
        }
        match reply {
            Some(reply) => self.answer::<M>(peer, request, true, &reply),
            None => {
                let header = Header { role: Role::Cancelled, parked: true, ..request };
                self.transmit_answer(peer, &Packet::bare(header));
            }
        }
    }
}

fn asynchronous<M, F, R>(handler: F, cancellable: bool) -> Handler
where
    M: Request,
    F: Fn(KernelId, M) -> R + Send + Sync + 'static,
    R: Future<Output = M::Reply> + Send + 'static,
{
    Box::new(move |endpoint, incoming| {
        let Ok(message) = postcard::from_bytes(incoming.body) else { return Outcome::Malformed };
        let mut future = Box::pin(handler(incoming.peer.id, message));
        // Nobody listens to this waker: if the future has to wait, its task polls it again at once.
        match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(reply) => {
                drop(future);
                endpoint.answer::<M>(incoming.peer, incoming.header, false, &reply);
                Outcome::Answered
            }
            Poll::Pending => {
                endpoint.park::<M>(incoming, future, cancellable);
                Outcome::Parked
            }
        }
    })
}
