//! A kernel's end of the fabric: what the services use.
//!
//! This file: construction, peers, sending, calling. Receiving is in drain.rs, handlers in handler.rs, calls
//! seen from the caller in call.rs, flow control in outbox.rs.
#![forbid(unsafe_code)]

use crate::call::{Answer, Call, CallError, Calls, Multicast, Pending, Then, Unwanted};
use crate::handler::{Handlers, Running};
use crate::outbox::{Outbox, Sent};
use crate::port::Port;
use crate::stats::{Counters, Stats};
use crate::wire::{self, Body, Header, Packet, Role};
use alloc::{boxed::Box, collections::BTreeMap, sync::Arc, sync::Weak, vec::Vec};
use core::{
    future::poll_fn,
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering},
    task::{Poll, Waker},
};
use machine::{
    sync::{Lock, WaitQueue},
    Actor, GroupId, KernelId, KernelSet, Spawner,
};
use messages::{Priority, Request};

/// What arrived from one peer with one priority; locked by the CPU that is draining it.
#[derive(Default)]
pub(crate) struct Inbox {
    /// The boot generation of the peer that the rest is about.
    pub boot_generation: u32,
    pub buffer: Vec<u8>,
    /// The first fragments of a long packet.
    pub partial: Vec<u8>,
    /// Credits of requests taken out of the lane that no answer will return.
    pub credits_due: u32,
}

/// Another kernel, or this one (calls to oneself use the same tables, but no lane).
pub(crate) struct Peer {
    pub id: KernelId,
    pub alive: AtomicBool,
    /// Counts the deaths, so that a task that began for a dead kernel does not answer the one that is booted in its place.
    pub boot_generation: AtomicU32,
    pub out: [Outbox; 2],
    pub inbox: [Lock<Inbox>; 2],
    pub calls: Lock<Calls>,
    /// Parked requests of this peer that can be cancelled, by its boot generation and their id.
    pub running: Lock<BTreeMap<(u32, u64), Arc<Running>>>,
    /// Woken when credits come back.
    room: WaitQueue,
}

impl Peer {
    fn new(id: KernelId) -> Self {
        Peer {
            id,
            alive: AtomicBool::new(false),
            boot_generation: AtomicU32::new(0),
            out: Priority::ALL.map(|priority| Outbox::new(id, priority)),
            inbox: Default::default(),
            calls: Lock::default(),
            running: Lock::default(),
            room: WaitQueue::new(),
        }
    }

    pub fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Acquire)
    }

    /// Its boot generation, if it lives.
    pub fn boot_generation(&self) -> Option<u32> {
        self.is_alive().then(|| self.boot_generation.load(Ordering::Acquire))
    }
}

/// A kernel's end of the fabric. One per kernel, shared by its CPUs.
pub struct Endpoint {
    pub(crate) me: KernelId,
    pub(crate) port: Box<dyn Port>,
    pub(crate) spawner: Arc<dyn Spawner>,
    /// By kernel id; as many as the machine can have kernels.
    peers: Box<[Peer]>,
    pub(crate) handlers: Handlers,
    pub(crate) counters: Counters,
    /// Where the last drain stopped, so that no peer is always first.
    pub(crate) next_peer: AtomicUsize,
    /// Names notices in a trace.
    notices: AtomicU64,
    this: Weak<Endpoint>,
}

impl Endpoint {
    /// An endpoint for kernel `me` of a machine of at most `kernels` kernels (one per CPU). It knows
    /// nobody but itself until [`Self::add_peer`].
    pub fn new(me: KernelId, kernels: usize, port: Box<dyn Port>, spawner: Arc<dyn Spawner>) -> Arc<Self> {
        assert!(me.index() < kernels, "kernel {me} of {kernels}");
        let endpoint = Arc::new_cyclic(|this| Endpoint {
            me,
            port,
            spawner,
            peers: (0..kernels).map(|id| Peer::new(KernelId(id as u16))).collect(),
            handlers: Handlers::new(),
            counters: Counters::new(),
            next_peer: AtomicUsize::new(0),
            notices: AtomicU64::new(0),
            this: this.clone(),
        });
        endpoint.peers[me.index()].alive.store(true, Ordering::Release);
        endpoint
    }

    /// The kernel whose endpoint this is.
    pub fn me(&self) -> KernelId {
        self.me
    }

    /// From now on `kernel` can be called and is listened to. Its lanes must be connected and empty.
    /// Also for a kernel that was dead and has been started again.
    pub fn add_peer(&self, kernel: KernelId) {
        let Some(peer) = self.peer(kernel).filter(|peer| !peer.is_alive()) else { return };
        let boot_generation = peer.boot_generation.load(Ordering::Acquire);
        for outbox in &peer.out {
            outbox.set_boot_generation(Some(boot_generation));
        }
        // Under the lock that `start_packet` checks it with.
        let _calls = peer.calls.lock();
        peer.alive.store(true, Ordering::Release);
    }

    /// Fails all calls to `kernel`, now and until it is added again, and stops the handlers that
    /// work for it.
    pub fn declare_dead(&self, kernel: KernelId) {
        let Some(peer) = self.peer(kernel).filter(|peer| peer.id != self.me) else { return };
        let (wakers, thens) = {
            let mut calls = peer.calls.lock();
            peer.alive.store(false, Ordering::Release);
            peer.boot_generation.fetch_add(1, Ordering::AcqRel);
            calls.fail_all()
        };
        for outbox in &peer.out {
            outbox.set_boot_generation(None);
        }
        let running = core::mem::take(&mut *peer.running.lock());
        for handler in running.values() {
            handler.cancel();
        }
        drop(thens);
        wakers.into_iter().for_each(Waker::wake);
        peer.room.wake_all();
    }

    /// After [`Self::declare_dead`]: returns when no CPU is at a message of `kernel` any more. A drain that has taken one out of
    /// the lane before may still be in its handler, or in what a reply does.
    pub async fn silence(&self, kernel: KernelId) {
        let Some(peer) = self.peer(kernel) else { return };
        poll_fn(|context| {
            // Never waited for with a spin: this may itself run inside a drain.
            let quiet = peer.inbox.iter().all(|inbox| inbox.try_lock().is_some());
            if !quiet {
                context.waker().wake_by_ref();
            }
            if quiet {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await
    }

    /// The boot generation of `kernel`, if it is alive. What began in an earlier one came from a kernel that is dead.
    pub fn boot_generation(&self, kernel: KernelId) -> Option<u32> {
        self.peer(kernel)?.boot_generation()
    }

    /// Whether `kernel` can be called, as far as this kernel knows.
    pub fn is_alive(&self, kernel: KernelId) -> bool {
        self.peer(kernel).is_some_and(Peer::is_alive)
    }

    /// How many kernels the machine has, those that have died too.
    pub fn kernels(&self) -> usize {
        self.peers.len()
    }

    /// This kernel and all that can be called.
    pub fn present(&self) -> KernelSet {
        self.peers.iter().filter(|peer| peer.is_alive()).map(|peer| peer.id).collect()
    }

    /// The others that can be called.
    pub fn others(&self) -> KernelSet {
        let mut set = self.present();
        set.remove(self.me);
        set
    }

    /// Asks `to` and waits for the answer.
    ///
    /// `to` may be this kernel: then the handler runs at once, in the caller.
    pub fn call<M: Request>(&self, to: KernelId, message: M) -> Call<'_, M::Reply> {
        self.start(to, message)
    }

    /// Like [`Self::call`]; the request is on its way when this returns, and the handle can cancel it.
    pub fn start<M: Request>(&self, to: KernelId, message: M) -> Call<'_, M::Reply> {
        Call::new(self.start_packet(to, M::PRIORITY, &mut request::<M>(&message), None))
    }

    /// Like [`Self::call`], for what `then` makes of the reply. It runs when that arrives, *inside the drain*, before the
    /// next message from that kernel is looked at. So what the reply installs is in place before a later revocation
    /// is handled. `then` must not wait and should be short. It runs even if the call was dropped
    /// meanwhile, and what it made is dropped; if no reply comes (dead, cancelled, refused), it is dropped itself.
    pub fn call_then<M, T, F>(&self, to: KernelId, message: M, then: F) -> Call<'_, T>
    where
        M: Request,
        T: Send + 'static,
        F: FnOnce(M::Reply) -> T + Send + 'static,
    {
        let then: Then = Box::new(move |body| match wire::decode(body) {
            Some(reply) => Ok(Body::Taken(Box::new(then(reply)))),
            None => Err(CallError::Refused),
        });
        Call::taking(self.start_packet(to, M::PRIORITY, &mut request::<M>(&message), Some(then)))
    }

    /// Sends the same message to all of `set` and gathers the answers, in the order of the ids.
    pub fn multicast<M: Request>(&self, set: &KernelSet, message: M) -> Multicast<'_, M> {
        let mut packet = request::<M>(&message);
        Multicast::new(self.start_all(set, M::PRIORITY, &mut packet))
    }

    /// Sends a notice: no answer. It never waits; a notice that there is no credit for yet is kept
    /// here, so who sends many should await [`Self::room`] in between.
    pub fn send<M: Request<Reply = ()>>(&self, to: KernelId, message: M) -> Result<(), CallError> {
        // It tells of news from here: what its receiver's threads talk through is not there.
        self.send_for((Actor::NOBODY, GroupId::ROOT), to, message)
    }

    /// The same for the thread that this CPU works for: whom the receiver wakes, that has woken.
    pub fn send_for_thread<M: Request<Reply = ()>>(&self, to: KernelId, message: M) -> Result<(), CallError> {
        self.send_for((self.spawner.actor(), self.spawner.payer()), to, message)
    }

    fn send_for<M: Request<Reply = ()>>(
        &self,
        (actor, payer): (Actor, GroupId),
        to: KernelId,
        message: M,
    ) -> Result<(), CallError> {
        let id = match trace::on::message_send() {
            true => self.notices.fetch_add(1, Ordering::Relaxed),
            false => 0,
        };
        let header = Header { kind: M::KIND, role: Role::Notice, parked: false, id, actor, payer };
        let packet = Packet::new(header, &message);
        let peer = self.peer(to).ok_or(CallError::Dead)?;
        let boot_generation = peer.boot_generation().ok_or(CallError::Dead)?;
        self.transmit_request(peer, boot_generation, M::PRIORITY, 0, &packet);
        Ok(())
    }

    /// Waits until a request of type `M` to `to` would go out without waiting for a credit, or
    /// `to` is dead.
    pub async fn room<M: Request>(&self, to: KernelId) {
        let Some(peer) = self.peer(to) else { return };
        let outbox = &peer.out[M::PRIORITY.index()];
        peer.room.wait_until(|| (outbox.has_credit() || !peer.is_alive()).then_some(())).await
    }

    /// Calls whose answer has not come or not been collected, and requests of others that are parked here.
    /// The simulator checks that nothing is left over.
    pub fn outstanding(&self) -> (usize, usize) {
        let calls = self.peers.iter().map(|peer| peer.calls.lock().len()).sum();
        let parked = self.peers.iter().map(|peer| peer.running.lock().len()).sum();
        (calls, parked)
    }

    /// What this kernel has sent and received since it booted.
    pub fn stats(&self) -> Stats {
        self.counters.read()
    }

    pub(crate) fn peer(&self, kernel: KernelId) -> Option<&Peer> {
        self.peers.get(kernel.index())
    }

    pub(crate) fn peers(&self) -> &[Peer] {
        &self.peers
    }

    /// For what outlives the caller: tasks of handlers.
    pub(crate) fn shared(&self) -> Arc<Endpoint> {
        self.this.upgrade().expect("someone is calling its method")
    }

    fn start_all(&self, set: &KernelSet, priority: Priority, packet: &mut Packet) -> Vec<Pending<'_>> {
        set.iter().map(|to| self.start_packet(to, priority, packet, None)).collect()
    }

    fn start_packet(&self, to: KernelId, priority: Priority, packet: &mut Packet, then: Option<Then>) -> Pending<'_> {
        let header = packet.header();
        let mut pending = Pending { endpoint: self, to, kind: header.kind, priority, id: None };
        let Some(peer) = self.peer(to) else { return pending };
        let (boot_generation, id) = {
            let mut calls = peer.calls.lock();
            let Some(boot_generation) = peer.boot_generation() else {
                // `then` must not be dropped under the lock: it may own anything.
                drop(calls);
                return pending;
            };
            (boot_generation, calls.insert(priority, then))
        };
        pending.id = Some(id);
        let (actor, payer) = (self.spawner.actor(), self.spawner.payer());
        packet.set_header(Header { id, actor, payer, ..header });
        self.transmit_request(peer, boot_generation, priority, id, packet);
        pending
    }

    fn transmit_request(&self, peer: &Peer, boot_generation: u32, priority: Priority, id: u64, packet: &Packet) {
        self.counters.sent(packet.header().kind);
        if peer.id == self.me {
            return self.deliver_to_self(peer, priority, packet);
        }
        self.counters.bytes.add(packet.len());
        if trace::on::message_send() {
            trace_send(peer.id, packet);
        }
        let sent = peer.out[priority.index()].send_request(&*self.port, boot_generation, id, packet);
        self.after_send(peer, sent);
    }

    /// Sends what needs no credit, to this boot generation of the peer. False if that is over.
    pub(crate) fn transmit(&self, peer: &Peer, boot_generation: u32, priority: Priority, packet: &[u8]) -> bool {
        if peer.id == self.me {
            self.deliver_to_self(peer, priority, packet);
            return true;
        }
        self.counters.bytes.add(packet.len());
        if trace::on::message_send() {
            trace_send(peer.id, packet);
        }
        let sent = peer.out[priority.index()].send(&*self.port, boot_generation, packet);
        self.after_send(peer, sent);
        sent != Sent::TooLate
    }

    fn after_send(&self, peer: &Peer, sent: Sent) {
        match sent {
            Sent::InLane => self.ring(peer),
            Sent::Queued => self.counters.full.add_one(),
            Sent::Waiting | Sent::TooLate => {}
        }
    }

    pub(crate) fn ring(&self, peer: &Peer) {
        match self.port.ring(peer.id) {
            true => {
                trace::doorbell_ring(peer.id.0);
                self.counters.rung.add_one()
            }
            false => self.counters.suppressed.add_one(),
        }
    }

    /// `count` credits for requests of `priority` came back from this boot generation of `peer`.
    pub(crate) fn credit(&self, peer: &Peer, boot_generation: u32, priority: Priority, count: u32) {
        if peer.id == self.me {
            return;
        }
        match peer.out[priority.index()].give_credits(&*self.port, boot_generation, count) {
            Some(true) => self.ring(peer),
            Some(false) => {}
            None => self.counters.malformed.add_one(),
        }
        peer.room.wake_all();
    }

    /// Has the other kernel stop working on call `id`, once.
    pub(crate) fn cancel(&self, call: &Pending<'_>, id: u64) {
        self.give_up(call, id, |calls, id| (calls.cancel(id), None));
    }

    /// Nobody waits for call `id` any more.
    pub(crate) fn detach(&self, to: KernelId, id: u64) {
        if let Some(peer) = self.peer(to) {
            let unwanted = peer.calls.lock().detach(id);
            drop(unwanted);
        }
    }

    /// The future of call `id` was dropped.
    pub(crate) fn abandon(&self, call: &Pending<'_>, id: u64) {
        self.give_up(call, id, Calls::abandon);
    }

    /// Takes back the request of call `id`, which is cancelled. False if it has left.
    pub(crate) fn withdraw(&self, call: &Pending<'_>, id: u64) -> bool {
        let Some(peer) = self.peer(call.to) else { return false };
        let withdrawn = peer.out[call.priority.index()].withdraw(id);
        if withdrawn {
            self.complete(peer, id, Err(CallError::Cancelled));
        }
        withdrawn
    }

    fn give_up(&self, call: &Pending<'_>, id: u64, how: impl FnOnce(&mut Calls, u64) -> (bool, Option<Unwanted>)) {
        let Some(peer) = self.peer(call.to) else { return };
        let (cancels, unwanted) = how(&mut peer.calls.lock(), id);
        drop(unwanted);
        if !cancels {
            return;
        }
        if self.withdraw(call, id) {
            return;
        }
        let Some(boot_generation) = peer.boot_generation() else { return };
        let header = Header {
            kind: call.kind,
            role: Role::Cancel,
            parked: false,
            id,
            actor: Actor::NOBODY,
            payer: GroupId::ROOT,
        };
        self.transmit(peer, boot_generation, call.priority, &Packet::bare(header));
    }

    pub(crate) fn poll_call(&self, to: KernelId, id: u64, waker: &Waker) -> Poll<Answer> {
        let peer = self.peer(to).expect("a call has an id only if its peer exists");
        peer.calls.lock().poll(id, waker)
    }

    /// The answer to call `id` is there.
    pub(crate) fn complete(&self, peer: &Peer, id: u64, answer: Result<&[u8], CallError>) {
        let Some(then) = peer.calls.lock().take_then(id) else { return };
        let answer = match (answer, then) {
            (Ok(body), Some(then)) => then(body),
            (Ok(body), None) => Ok(Body::new(body)),
            (Err(error), then) => {
                drop(then);
                Err(error)
            }
        };
        let (waker, unwanted) = peer.calls.lock().complete(id, answer);
        drop(unwanted);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

fn request<M: Request>(message: &M) -> Packet {
    let header =
        Header { kind: M::KIND, role: Role::Request, parked: false, id: 0, actor: Actor::NOBODY, payer: GroupId::ROOT };
    Packet::new(header, message)
}

/// A packet goes out. Credits are not traced: they are no message of anybody's.
#[cold]
fn trace_send(to: KernelId, packet: &[u8]) {
    let Some((header, _)) = Header::split(packet).filter(|(header, _)| header.role != Role::Credit) else { return };
    let (thread, bytes) = (header.actor.thread().0, packet.len() as u32);
    trace::message_send(header.id, thread, bytes, to.0, header.kind.0, header.role as u8);
}
