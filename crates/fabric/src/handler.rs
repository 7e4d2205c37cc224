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
//!
//! The type of a message is known only where its bytes are read and its reply is written: a handler is stored as what
//! makes a [`Packet`] of a body, and everything else here and in call.rs exists once, not once per message.
#![forbid(unsafe_code)]

use crate::endpoint::{Endpoint, Peer};
use crate::wire::{self, Header, Packet, Role};
use alloc::{
    boxed::Box,
    sync::{Arc, Weak},
};
use core::{
    future::{poll_fn, Future},
    pin::Pin,
    sync::atomic::Ordering,
    task::{Context, Poll, Waker},
};
use machine::{sync::Lock, KernelId};
use messages::{MessageKind, Request, CATALOGUE};
use pin_project_lite::pin_project;
use serde::Serialize;
use spin::Once;

/// A request as it came out of a lane.
#[derive(Clone, Copy)]
pub(crate) struct Incoming<'a> {
    pub peer: &'a Peer,
    /// The boot generation of the peer that it comes from.
    pub boot_generation: u32,
    pub header: Header,
    pub body: &'a [u8],
}

/// What became of a request when the drain goes on. The numbers are in traces.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It has been answered, and the answer returns the credit.
    Answered,
    /// A task is at it; the credit goes back now.
    Parked,
    /// Its bytes make no sense, or the service is gone.
    Refused,
}

/// Reads a body and does what it says, or begins to. `None`: the bytes make no sense, or the service is gone.
type Begin<T> = Box<dyn Fn(KernelId, Header, &[u8]) -> Option<T> + Send + Sync>;

/// A handler at work; it ends with the reply.
type Work = Pin<Box<dyn Future<Output = Packet> + Send>>;

pub(crate) enum Handler {
    Sync(Begin<Packet>),
    Async { begin: Begin<Work>, cancellable: bool },
}

pin_project! {
    /// A handler's future, whose reply becomes a packet.
    struct Answering<R> {
        #[pin]
        handler: R,
        request: Header,
    }
}

impl<R: Future<Output: Serialize>> Future for Answering<R> {
    type Output = Packet;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Packet> {
        let this = self.project();
        this.handler.poll(context).map(|reply| Packet::reply(*this.request, &reply))
    }
}

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

    pub fn get(&self, kind: MessageKind) -> Option<&Handler> {
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

/// Registers the handlers of a service: [`Endpoint::serve`].
pub struct Serve<'a, S> {
    endpoint: &'a Endpoint,
    service: Weak<S>,
}

impl<S: Send + Sync + 'static> Serve<'_, S> {
    /// [`Endpoint::on`], for the service.
    pub fn on<M, F, R>(&self, handler: F)
    where
        M: Request,
        F: Fn(Arc<S>, KernelId, M) -> R + Send + Sync + 'static,
        R: Future<Output = M::Reply> + Send + 'static,
    {
        self.register(handler, true);
    }

    /// [`Endpoint::on_to_completion`], for the service.
    pub fn on_to_completion<M, F, R>(&self, handler: F)
    where
        M: Request,
        F: Fn(Arc<S>, KernelId, M) -> R + Send + Sync + 'static,
        R: Future<Output = M::Reply> + Send + 'static,
    {
        self.register(handler, false);
    }

    /// [`Endpoint::on_sync`], for the service.
    pub fn on_sync<M, F>(&self, handler: F)
    where
        M: Request,
        F: Fn(Arc<S>, KernelId, M) -> M::Reply + Send + Sync + 'static,
    {
        let service = self.service.clone();
        let handler = move |from, message| Some(handler(service.upgrade()?, from, message));
        self.endpoint.handlers.set::<M>(synchronous(handler));
    }

    fn register<M, F, R>(&self, handler: F, cancellable: bool)
    where
        M: Request,
        F: Fn(Arc<S>, KernelId, M) -> R + Send + Sync + 'static,
        R: Future<Output = M::Reply> + Send + 'static,
    {
        let service = self.service.clone();
        let handler = move |from, message| Some(handler(service.upgrade()?, from, message));
        self.endpoint.handlers.set::<M>(asynchronous(handler, cancellable));
    }
}

impl Endpoint {
    /// For the handlers of `service`. The endpoint does not own it, as it has the endpoint; what is asked of one that is
    /// gone is refused.
    pub fn serve<S>(&self, service: &Arc<S>) -> Serve<'_, S> {
        Serve { endpoint: self, service: Arc::downgrade(service) }
    }

    /// Registers the handler of `M`: an async function of the sender and the message. Its future may
    /// be dropped at any `.await` when the caller cancels. The endpoint owns it: what is of a service that has the endpoint is
    /// registered with [`Endpoint::serve`].
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
        self.handlers.set::<M>(asynchronous(move |from, message| Some(handler(from, message)), true));
    }

    /// Like [`Self::on`], but a handler that was begun always runs to its end.
    pub fn on_to_completion<M, F, R>(&self, handler: F)
    where
        M: Request,
        F: Fn(KernelId, M) -> R + Send + Sync + 'static,
        R: Future<Output = M::Reply> + Send + 'static,
    {
        self.handlers.set::<M>(asynchronous(move |from, message| Some(handler(from, message)), false));
    }

    /// Registers a handler that runs wholly inside the drain, before the next message of its lane:
    /// for revocations and installs. It must not wait.
    pub fn on_sync<M, F>(&self, handler: F)
    where
        M: Request,
        F: Fn(KernelId, M) -> M::Reply + Send + Sync + 'static,
    {
        self.handlers.set::<M>(synchronous(move |from, message| Some(handler(from, message))));
    }

    /// Runs the handler of a request that came in.
    pub(crate) fn begin(&self, handler: &Handler, incoming: Incoming<'_>) -> Outcome {
        let Incoming { peer, boot_generation, header, body } = incoming;
        match handler {
            Handler::Sync(run) => match run(peer.id, header, body) {
                Some(reply) => {
                    self.answer(peer, boot_generation, header, reply);
                    Outcome::Answered
                }
                None => Outcome::Refused,
            },
            Handler::Async { begin, cancellable } => {
                let Some(mut work) = begin(peer.id, header, body) else { return Outcome::Refused };
                // Nobody listens to this waker: if the future has to wait, its task polls it again at once.
                match work.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                    Poll::Ready(reply) => {
                        // First, so that the caller finds all the handler had released.
                        drop(work);
                        self.answer(peer, boot_generation, header, reply);
                        Outcome::Answered
                    }
                    Poll::Pending => {
                        self.park(incoming, work, *cancellable);
                        Outcome::Parked
                    }
                }
            }
        }
    }

    fn answer(&self, peer: &Peer, boot_generation: u32, request: Header, reply: Packet) {
        if request.role == Role::Request {
            self.transmit_answer(peer, boot_generation, &reply);
        }
    }

    /// Starts the task for a request whose handler has to wait.
    fn park(&self, incoming: Incoming<'_>, mut work: Work, cancellable: bool) {
        let Incoming { peer, boot_generation, header: request, .. } = incoming;
        let running = Arc::new(Running::default());
        let cancellable = cancellable && request.role == Role::Request;
        if cancellable {
            peer.running.lock().insert((boot_generation, request.id), running.clone());
            // Another CPU may just have declared the peer dead, and not have seen this one.
            if peer.boot_generation.load(Ordering::Acquire) != boot_generation {
                running.cancel();
            }
        }
        let (endpoint, from) = (self.shared(), peer.id);
        let work = Box::pin(async move {
            let reply = poll_fn(|context| {
                let cancelled = cancellable && running.is_cancelled(context.waker());
                // Asked once more all the same: what it waited for may have come first (a wake that counts it as woken).
                match work.as_mut().poll(context) {
                    Poll::Pending if cancelled => Poll::Ready(None),
                    polled => polled.map(Some),
                }
            })
            .await;
            drop(work);
            endpoint.unpark(from, boot_generation, request, reply);
        });
        self.spawner.spawn_for(request.actor, request.payer, work);
    }

    fn unpark(&self, from: KernelId, boot_generation: u32, request: Header, reply: Option<Packet>) {
        let Some(peer) = self.peer(from) else { return };
        peer.running.lock().remove(&(boot_generation, request.id));
        trace::handler_done(request.id, from.0, request.kind.0, if reply.is_some() { 0 } else { 3 });
        // If it has died nobody gets it: ids of its successor mean other calls.
        match reply {
            Some(mut reply) => {
                reply.set_header(Header { role: Role::Reply, parked: true, ..request });
                self.answer(peer, boot_generation, request, reply);
            }
            None => {
                let header = Header { role: Role::Cancelled, parked: true, ..request };
                self.transmit_answer(peer, boot_generation, &Packet::bare(header));
            }
        }
    }
}

/// `handler` gives nothing if its service is gone.
fn synchronous<M: Request>(handler: impl Fn(KernelId, M) -> Option<M::Reply> + Send + Sync + 'static) -> Handler {
    Handler::Sync(Box::new(move |from, request, body| {
        Some(Packet::reply(request, &handler(from, wire::decode(body)?)?))
    }))
}

fn asynchronous<M, F, R>(handler: F, cancellable: bool) -> Handler
where
    M: Request,
    F: Fn(KernelId, M) -> Option<R> + Send + Sync + 'static,
    R: Future<Output = M::Reply> + Send + 'static,
{
    let begin = move |from, request, body: &[u8]| -> Option<Work> {
        let handler = handler(from, wire::decode(body)?)?;
        Some(Box::pin(Answering { handler, request }))
    };
    Handler::Async { begin: Box::new(begin), cancellable }
}
