//! What one kernel still has to send to another, per priority, and why that is bounded.
//!
//! # Problem
//!
//! Lanes fill up. If a kernel that cannot send stopped receiving until it can, two kernels whose
//! lanes to each other are full would wait for each other for ever. If it kept whatever it cannot
//! send in a queue without limit, a slow kernel would eat the memory of the fast ones.
//!
//! # Idea
//!
//! Nothing on the receiving path waits: a packet that finds its lane full goes into `queue` here, and
//! every later drain tries again, in order. What keeps the queue short are *credits*. To send a
//! request, a kernel takes one of [`CREDITS`] it has for that receiver and priority. The credit comes back
//! when the receiver has taken the request out of the lane and
//!
//! - answered it at once: with the answer, or
//! - *parked* it, that is, made a task of its handler because that has to wait; or the request
//!   was a notice, which has no answer: with a `Credit` packet, for a batch of them.
//!
//! A request without a credit stays in `waiting` at its sender, whose caller is waiting anyway.
//!
//! # Why no deadlock, even with every lane full
//!
//! Consider any two kernels. Every kernel drains its lanes at kernel entry and when idle, and draining
//! needs no room in any lane. So every lane gets empty in finite time, whatever the others do, and
//! every queue gets its turn. Requests in lanes, and only they, hold credits; they are all taken in
//! finite time, so every credit comes back and every waiting request is sent. In particular a
//! handler that calls back its caller, which calls again, to any depth, never waits for a credit that
//! is held by the very request it works on; that is the reason for parking.
//!
//! # Why bounded
//!
//! `queue` to a peer holds at most: our requests with credit (`CREDITS` per priority) and as many
//! cancels; answers to the peer's requests that we answered at once (its `CREDITS`) and credit packets;
//! answers of parked requests, each of which had a task here until now, and has a task of the peer
//! that waits for it.
//!
//! # Order
//!
//! All answers and the requests of priority `High` take the lane `High`, in the order of the calls that
//! sent them: a mapping given in an answer and its revocation afterwards arrive in this order.
//! The one exception: a request that had to wait for a credit counts as sent when it gets it. So a
//! kernel that revokes must not hand out in an answer what is being revoked, until the revocation has been acknowledged.
#![forbid(unsafe_code)]

use crate::port::Port;
use crate::stall::Backlog;
use crate::wire::{Header, Role, HEADER};
use alloc::{boxed::Box, collections::VecDeque, vec::Vec};
use core::sync::atomic::{AtomicUsize, Ordering};
use machine::{sync::Lock, Actor, GroupId, KernelId};
use messages::{MessageKind, Priority};

/// Requests of one priority that may be on their way to one kernel.
pub const CREDITS: u32 = 256;

/// Credits come back in batches of this many. Less than `CREDITS`, so some are always under way.
pub const CREDIT_BATCH: u32 = CREDITS / 4;

#[derive(Default)]
struct Queues {
    /// The boot generation of the peer that the rest is about; None while it is dead.
    boot_generation: Option<u32>,
    credits: u32,
    /// Packets that go next, as soon as the lane has room.
    queue: VecDeque<Box<[u8]>>,
    /// Requests without a credit, with their ids.
    waiting: VecDeque<(u64, Box<[u8]>)>,
    /// See [`Backlog::progress`].
    progress: u64,
}

/// What a send did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// It is in the lane: ring.
    InLane,
    /// It waits here for room.
    Queued,
    /// It waits here for a credit.
    Waiting,
    /// It was for a boot generation of the peer that is over: nobody gets it.
    TooLate,
}

pub struct Outbox {
    to: KernelId,
    priority: Priority,
    queues: Lock<Queues>,
    /// Length of `queue`, to be read without the lock.
    backlog: AtomicUsize,
}

impl Outbox {
    pub fn new(to: KernelId, priority: Priority) -> Self {
        Outbox { to, priority, queues: Lock::default(), backlog: AtomicUsize::new(0) }
    }

    /// Begins a boot generation of the peer; None: the peer is dead. Nothing of an earlier one remains, and when this returns nobody
    /// is writing to its lane any more.
    pub fn set_boot_generation(&self, boot_generation: Option<u32>) {
        let mut queues = self.queues.lock();
        *queues = Queues { boot_generation, credits: CREDITS, ..Queues::default() };
        self.backlog.store(0, Ordering::Relaxed);
    }

    /// Sends a request or notice, for which a credit is needed.
    pub fn send_request(&self, port: &dyn Port, boot_generation: u32, id: u64, packet: &[u8]) -> Sent {
        let mut queues = self.queues.lock();
        if queues.boot_generation != Some(boot_generation) {
            return Sent::TooLate;
        }
        // Those that wait were first.
        if queues.credits == 0 || !queues.waiting.is_empty() {
            queues.waiting.push_back((id, packet.into()));
            return Sent::Waiting;
        }
        queues.credits -= 1;
        self.transmit(port, &mut queues, packet)
    }

    /// Sends an answer, cancel or credit.
    pub fn send(&self, port: &dyn Port, boot_generation: u32, packet: &[u8]) -> Sent {
        let mut queues = self.queues.lock();
        match queues.boot_generation == Some(boot_generation) {
            true => self.transmit(port, &mut queues, packet),
            false => Sent::TooLate,
        }
    }

    /// Takes back a request that still waits for a credit.
    pub fn withdraw(&self, id: u64) -> bool {
        let mut queues = self.queues.lock();
        let Some(index) = queues.waiting.iter().position(|(other, _)| *other == id) else { return false };
        queues.waiting.remove(index);
        // Who waits after that has not waited with it.
        queues.progress += u64::from(queues.waiting.is_empty());
        true
    }

    /// `count` credits came back. True if something got into the lane: ring. `None`: these are more
    /// than were ever given out.
    pub fn give_credits(&self, port: &dyn Port, boot_generation: u32, count: u32) -> Option<bool> {
        let mut queues = self.queues.lock();
        if queues.boot_generation != Some(boot_generation) {
            return Some(false);
        }
        queues.credits = queues.credits.checked_add(count).filter(|credits| *credits <= CREDITS)?;
        let mut sent = false;
        while queues.credits > 0 {
            let Some((_, packet)) = queues.waiting.pop_front() else { break };
            queues.credits -= 1;
            queues.progress += 1;
            sent |= self.transmit(port, &mut queues, &packet) == Sent::InLane;
        }
        Some(sent)
    }

    /// Whether a request sent now would go without waiting for a credit.
    pub fn has_credit(&self) -> bool {
        self.credits() > 0
    }

    pub fn credits(&self) -> u32 {
        self.queues.lock().credits
    }

    /// What waits here, for who looks whether it moves.
    pub fn waiting(&self) -> Backlog {
        let queues = self.queues.lock();
        let (for_room, for_credit) = (queues.queue.len(), queues.waiting.len());
        Backlog { progress: queues.progress, for_room, for_credit, boot_generation: queues.boot_generation }
    }

    pub fn backlog(&self) -> usize {
        self.backlog.load(Ordering::Relaxed)
    }

    /// Sends what waits for room. True if something got into the lane: ring.
    pub fn flush(&self, port: &dyn Port) -> bool {
        self.backlog() > 0 && self.flush_locked(port, &mut self.queues.lock())
    }

    fn flush_locked(&self, port: &dyn Port, queues: &mut Queues) -> bool {
        let mut sent = false;
        while let Some(packet) = queues.queue.front() {
            if port.try_send(self.to, self.priority, packet).is_err() {
                break;
            }
            queues.queue.pop_front();
            queues.progress += 1;
            sent = true;
        }
        self.backlog.store(queues.queue.len(), Ordering::Relaxed);
        sent
    }

    fn transmit(&self, port: &dyn Port, queues: &mut Queues, packet: &[u8]) -> Sent {
        let max = port.max_message(self.to, self.priority);
        if packet.len() > max {
            queues.queue.extend(fragments(packet, max));
            return if self.flush_locked(port, queues) { Sent::InLane } else { Sent::Queued };
        }
        if queues.queue.is_empty() && port.try_send(self.to, self.priority, packet).is_ok() {
            return Sent::InLane;
        }
        queues.queue.push_back(packet.into());
        self.backlog.store(queues.queue.len(), Ordering::Relaxed);
        Sent::Queued
    }
}

/// Cuts a packet into packets of at most `max` bytes. They stay next to each other in the queue, and
/// so in the lane, because everything to this peer and priority passes through the queue.
fn fragments(packet: &[u8], max: usize) -> impl Iterator<Item = Box<[u8]>> + '_ {
    assert!(max > HEADER, "a port must take packets longer than a header");
    let mut left = packet.len();
    packet.chunks(max - HEADER).map(move |chunk| {
        left -= chunk.len();
        let header = Header {
            kind: MessageKind(0),
            role: Role::Fragment,
            parked: false,
            id: left as u64,
            actor: Actor::NOBODY,
            payer: GroupId::ROOT,
        };
        let mut fragment = Vec::with_capacity(HEADER + chunk.len());
        fragment.extend_from_slice(&header.to_bytes());
        fragment.extend_from_slice(chunk);
        fragment.into_boxed_slice()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::Full;
    use std::sync::Mutex;

    /// A lane with room for `room` packets of 64 bytes.
    struct Narrow {
        room: Mutex<usize>,
        packets: Mutex<Vec<Vec<u8>>>,
    }

    impl Narrow {
        fn new(room: usize) -> Self {
            Narrow { room: Mutex::new(room), packets: Mutex::default() }
        }
    }

    impl Port for Narrow {
        fn max_message(&self, _: KernelId, _: Priority) -> usize {
            64
        }

        fn try_send(&self, _: KernelId, _: Priority, bytes: &[u8]) -> Result<(), Full> {
            assert!(bytes.len() <= 64);
            let mut room = self.room.lock().unwrap();
            *room = room.checked_sub(1).ok_or(Full)?;
            self.packets.lock().unwrap().push(bytes.to_vec());
            Ok(())
        }

        fn pending(&self, _: KernelId, _: Priority) -> bool {
            false
        }

        fn try_recv(&self, _: KernelId, _: Priority, _: &mut Vec<u8>) -> bool {
            false
        }

        fn ring(&self, _: KernelId) -> bool {
            false
        }

        fn set_polling(&self, _: bool) {}
    }

    fn alive(priority: Priority) -> Outbox {
        let outbox = Outbox::new(KernelId(1), priority);
        outbox.set_boot_generation(Some(0));
        outbox
    }

    #[test]
    fn what_waits_for_room_goes_in_order() {
        let (port, outbox) = (Narrow::new(1), alive(Priority::Low));
        assert_eq!(outbox.send(&port, 0, b"first"), Sent::InLane);
        assert_eq!(outbox.send(&port, 0, b"second"), Sent::Queued);
        *port.room.lock().unwrap() = 1;
        assert_eq!(outbox.send(&port, 0, b"third"), Sent::Queued, "there is room, but it is not its turn");
        assert!(outbox.flush(&port));
        assert_eq!(outbox.backlog(), 1);
        *port.room.lock().unwrap() = 2;
        assert!(outbox.flush(&port));
        assert!(!outbox.flush(&port));
        assert_eq!(*port.packets.lock().unwrap(), [b"first".to_vec(), b"second".to_vec(), b"third".to_vec()]);
    }

    #[test]
    fn requests_wait_for_credits_but_answers_do_not() {
        let (port, outbox) = (Narrow::new(usize::MAX), alive(Priority::Low));
        for id in 0..u64::from(CREDITS) {
            assert_eq!(outbox.send_request(&port, 0, id, b"request"), Sent::InLane);
        }
        assert_eq!(outbox.send_request(&port, 0, 1000, b"late"), Sent::Waiting);
        assert_eq!(outbox.send_request(&port, 0, 1001, b"later"), Sent::Waiting);
        assert_eq!(outbox.send(&port, 0, b"answer"), Sent::InLane);
        assert!(outbox.withdraw(1000));
        assert!(!outbox.withdraw(0), "already sent");
        assert_eq!(outbox.give_credits(&port, 0, CREDITS + 1), None);
        assert_eq!(outbox.give_credits(&port, 0, 2), Some(true));
        assert_eq!(port.packets.lock().unwrap().last().unwrap(), b"later");
        assert_eq!(outbox.credits(), 1);
    }

    #[test]
    fn what_was_for_a_boot_generation_that_is_over_reaches_nobody() {
        let (port, outbox) = (Narrow::new(1), alive(Priority::Low));
        assert_eq!(outbox.send(&port, 0, b"before"), Sent::InLane);
        assert_eq!(outbox.send(&port, 0, b"no room"), Sent::Queued);
        *port.room.lock().unwrap() = 10;
        for boot_generation in [None, Some(1)] {
            outbox.set_boot_generation(boot_generation);
            assert_eq!(outbox.send(&port, 0, b"answer"), Sent::TooLate);
            assert_eq!(outbox.send_request(&port, 0, 1, b"request"), Sent::TooLate);
            assert_eq!(outbox.give_credits(&port, 0, 1), Some(false));
            assert!(!outbox.flush(&port));
            assert_eq!(outbox.backlog(), 0);
        }
        assert_eq!(outbox.send(&port, 1, b"new"), Sent::InLane);
        assert_eq!(*port.packets.lock().unwrap(), [b"before".to_vec(), b"new".to_vec()]);
    }

    #[test]
    fn fragments_carry_every_byte_and_what_is_still_to_come() {
        for len in [65, 104, 105, 1000] {
            let (port, outbox) = (Narrow::new(usize::MAX), alive(Priority::High));
            let packet: Vec<u8> = (0..len).map(|index| index as u8).collect();
            outbox.send(&port, 0, &packet);
            let mut whole = Vec::new();
            for fragment in port.packets.lock().unwrap().iter() {
                let (header, body) = Header::split(fragment).unwrap();
                whole.extend_from_slice(body);
                assert_eq!(header.role, Role::Fragment);
                assert_eq!(header.id, (len - whole.len()) as u64);
            }
            assert_eq!(whole, packet);
        }
    }
}
