//! Receiving: what a kernel does with its lanes at each entry and when idle.
//!
//! Messages of one peer and priority are handled one after the other, by one CPU at a time (the
//! lock of the inbox, which others only try). `High` lanes go before each round of `Low` ones, which have a quarter of each drain all the same: nobody
//! keeps a kernel from requests by sending it revocations.
#![forbid(unsafe_code)]

use crate::call::CallError;
use crate::endpoint::{Endpoint, Inbox, Peer};
use crate::handler::{Incoming, Outcome};
use crate::outbox::CREDIT_BATCH;
use crate::wire::{Header, Packet, Role};
use alloc::vec::Vec;
use core::{mem, sync::atomic::Ordering};
use machine::{Actor, GroupId};
use messages::{MessageKind, Priority};

/// Requests taken from a peer before it is the next one's turn.
const LOW_ROUND: usize = 8;

/// Where a packet came from.
#[derive(Clone, Copy)]
struct Source<'a> {
    peer: &'a Peer,
    priority: Priority,
    /// The boot generation of the peer, see `Peer::boot_generation`.
    boot_generation: u32,
}

impl Endpoint {
    /// Handles up to about `budget` messages and sends what waited for room. Returns how many
    /// messages it handled. The kernel calls it at each entry and exit and in the idle loop;
    /// several CPUs may at the same time.
    pub fn drain(&self, budget: usize) -> usize {
        self.flush();
        let mut handled = 0;
        loop {
            let before = handled;
            let most = budget - budget / 4;
            handled += self.drain_priority(Priority::High, most.saturating_sub(handled), usize::MAX);
            let high = handled;
            handled += self.drain_priority(Priority::Low, budget - handled, LOW_ROUND);
            if handled > before {
                // Written only if there was something: an entry that finds nothing writes nothing.
                self.next_peer.fetch_add(1, Ordering::Relaxed);
            }
            if handled == high || handled >= budget {
                return handled;
            }
        }
    }

    /// This CPU will drain again and again from now on, and needs no doorbell.
    pub fn start_polling(&self) {
        self.port.set_polling(true);
    }

    /// This CPU wants to halt or return to user mode. True: no message is left, and doorbells will
    /// ring; false: something came in meanwhile, the CPU counts as polling again and must drain.
    pub fn stop_polling(&self) -> bool {
        self.port.set_polling(false);
        // Only after that, see doorbell.rs.
        let mail = self.has_mail();
        if mail {
            self.port.set_polling(true);
        }
        !mail
    }

    /// Whether a message has arrived.
    pub fn has_mail(&self) -> bool {
        let pending = |peer: &Peer| Priority::ALL.iter().any(|&priority| self.port.pending(peer.id, priority));
        self.peers().iter().any(|peer| self.listens_to(peer) && pending(peer))
    }

    /// Whether something waits for room in a lane. Nobody rings when there is room again, so a
    /// kernel with a backlog should not halt, and should not stay in user mode for long.
    pub fn has_backlog(&self) -> bool {
        let waits = |peer: &Peer| peer.out.iter().any(|outbox| outbox.backlog() > 0);
        self.peers().iter().any(|peer| self.listens_to(peer) && waits(peer))
    }

    fn listens_to(&self, peer: &Peer) -> bool {
        peer.id != self.me && peer.is_alive()
    }

    /// Sends what waited for room in the lanes.
    fn flush(&self) {
        for peer in self.peers().iter().filter(|peer| self.listens_to(peer)) {
            for outbox in &peer.out {
                if outbox.flush(&*self.port) {
                    self.ring(peer);
                }
            }
        }
    }

    /// One round over all peers, beginning with another one each time.
    fn drain_priority(&self, priority: Priority, budget: usize, per_peer: usize) -> usize {
        let first = self.next_peer.load(Ordering::Relaxed) % self.peers().len();
        let (wrapped, ahead) = self.peers().split_at(first);
        let mut handled = 0;
        for peer in ahead.iter().chain(wrapped).filter(|peer| self.listens_to(peer)) {
            if handled >= budget {
                break;
            }
            handled += self.drain_lane(peer, priority, per_peer.min(budget - handled));
        }
        handled
    }

    fn drain_lane(&self, peer: &Peer, priority: Priority, limit: usize) -> usize {
        if !self.port.pending(peer.id, priority) {
            return 0;
        }
        // Another CPU is at it, or a handler of this very lane drains: nothing to do here.
        let Some(mut inbox) = peer.inbox[priority.index()].try_lock() else { return 0 };
        let boot_generation = peer.boot_generation.load(Ordering::Acquire);
        if inbox.boot_generation != boot_generation {
            *inbox = Inbox { boot_generation, ..Inbox::default() };
        }
        let source = Source { peer, priority, boot_generation };
        let mut handled = 0;
        while handled < limit && peer.is_alive() {
            let Inbox { buffer, partial, credits_due, .. } = &mut *inbox;
            if !self.port.try_recv(peer.id, priority, buffer) {
                break;
            }
            handled += 1;
            *credits_due += self.receive(source, buffer, partial);
            if *credits_due >= CREDIT_BATCH {
                self.return_credits(source, mem::take(credits_due));
            }
        }
        handled
    }

    /// Handles a packet, or keeps it until its last fragment is there. Returns how many credits the
    /// sender is due that no answer returns.
    fn receive(&self, source: Source<'_>, packet: &[u8], partial: &mut Vec<u8>) -> u32 {
        match Header::split(packet) {
            Some((Header { role: Role::Fragment, id: to_come, .. }, body)) => {
                partial.extend_from_slice(body);
                match to_come {
                    0 => self.dispatch(source, &mem::take(partial)),
                    _ => 0,
                }
            }
            _ => self.dispatch(source, packet),
        }
    }

    /// A message to this kernel itself: handled at once, with no lane and no credit.
    pub(crate) fn deliver_to_self(&self, peer: &Peer, priority: Priority, packet: &[u8]) {
        self.dispatch(Source { peer, priority, boot_generation: 0 }, packet);
    }

    fn dispatch(&self, source: Source<'_>, packet: &[u8]) -> u32 {
        let Some((header, body)) = Header::split(packet) else {
            self.counters.malformed.add_one();
            return 0;
        };
        // Whom a request wakes is woken by who sent it; an answer wakes the one who waits for it, who is the same.
        let before = (self.spawner.set_actor(header.actor), self.spawner.set_payer(header.payer));
        let credits = self.receive_packet(source, header, body);
        self.spawner.set_actor(before.0);
        self.spawner.set_payer(before.1);
        credits
    }

    /// Returns the credits that the sender is due, as [`Self::receive`].
    fn receive_packet(&self, source: Source<'_>, header: Header, body: &[u8]) -> u32 {
        let Source { peer, priority, boot_generation } = source;
        if trace::on::message_receive() && peer.id != self.me && header.role != Role::Credit {
            let thread = header.actor.thread().0;
            trace::message_receive(header.id, thread, peer.id.0, header.kind.0, header.role as u8);
        }
        match header.role {
            Role::Request | Role::Notice => return self.handle(Incoming { peer, boot_generation, header, body }),
            Role::Reply => self.answered(source, header, Ok(body)),
            Role::Cancelled => self.answered(source, header, Err(CallError::Cancelled)),
            Role::Refused => self.answered(source, header, Err(CallError::Refused)),
            Role::Credit => self.credit(peer, boot_generation, priority, header.id as u32),
            Role::Cancel => {
                let running = peer.running.lock().remove(&(boot_generation, header.id));
                if let Some(running) = running {
                    running.cancel();
                }
            }
            Role::Fragment => self.counters.malformed.add_one(),
        }
        0
    }

    fn handle(&self, incoming: Incoming<'_>) -> u32 {
        let Incoming { peer, boot_generation, header, .. } = incoming;
        self.counters.received(header.kind);
        trace::handler_begin(header.id, peer.id.0, header.kind.0);
        let outcome = match self.handlers.get(header.kind) {
            Some(handler) => self.begin(handler, incoming),
            None => Outcome::Refused,
        };
        if outcome == Outcome::Refused {
            self.counters.malformed.add_one();
        }
        trace::handler_end(header.id, peer.id.0, header.kind.0, outcome as u8);
        match (outcome, header.role) {
            // The answer returns the credit.
            (Outcome::Answered, Role::Request) => 0,
            (Outcome::Refused, Role::Request) => {
                let refused = Header { role: Role::Refused, ..header };
                self.transmit_answer(peer, boot_generation, &Packet::bare(refused));
                0
            }
            // There will be no answer, or one that was told not to.
            _ => 1,
        }
    }

    fn answered(&self, source: Source<'_>, header: Header, answer: Result<&[u8], CallError>) {
        let Source { peer, boot_generation, .. } = source;
        self.counters.replies_received.add_one();
        let priority = peer.calls.lock().priority(header.id);
        self.complete(peer, header.id, answer);
        if let (Some(priority), false) = (priority, header.parked) {
            self.credit(peer, boot_generation, priority, 1);
        }
    }

    /// Credits travel in the lane of the requests they are for.
    fn return_credits(&self, source: Source<'_>, count: u32) {
        let Source { peer, priority, boot_generation } = source;
        let header = Header {
            kind: MessageKind(0),
            role: Role::Credit,
            parked: false,
            id: count.into(),
            actor: Actor::NOBODY,
            payer: GroupId::ROOT,
        };
        self.transmit(peer, boot_generation, priority, &Packet::bare(header));
    }

    /// Answers always go first class.
    pub(crate) fn transmit_answer(&self, peer: &Peer, boot_generation: u32, packet: &[u8]) {
        if self.transmit(peer, boot_generation, Priority::High, packet) {
            self.counters.replies_sent.add_one();
        }
    }
}
