//! What an endpoint counts; `cob run --stats` and `cobctl status` print it.
#![forbid(unsafe_code)]

use alloc::{boxed::Box, vec::Vec};
use core::sync::atomic::{AtomicU64, Ordering};
use messages::{MessageKind, CATALOGUE};

/// Relaxed throughout: these are statistics, nothing is decided by them.
#[derive(Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub fn add_one(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub fn add(&self, count: usize) {
        self.0.fetch_add(count as u64, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

pub struct Counters {
    sent: Box<[Counter]>,
    received: Box<[Counter]>,
    pub replies_sent: Counter,
    pub replies_received: Counter,
    pub bytes: Counter,
    pub rung: Counter,
    pub suppressed: Counter,
    pub full: Counter,
    pub malformed: Counter,
}

fn per_type() -> Box<[Counter]> {
    CATALOGUE.iter().map(|_| Counter::default()).collect()
}

impl Counters {
    pub fn new() -> Self {
        Counters {
            sent: per_type(),
            received: per_type(),
            replies_sent: Counter::default(),
            replies_received: Counter::default(),
            bytes: Counter::default(),
            rung: Counter::default(),
            suppressed: Counter::default(),
            full: Counter::default(),
            malformed: Counter::default(),
        }
    }

    pub fn sent(&self, kind: MessageKind) {
        if let Some(index) = messages::index_of(kind) {
            self.sent[index].add_one();
        }
    }

    pub fn received(&self, kind: MessageKind) {
        if let Some(index) = messages::index_of(kind) {
            self.received[index].add_one();
        }
    }

    pub fn read(&self) -> Stats {
        let types = CATALOGUE.iter().enumerate().map(|(index, message)| TypeStats {
            kind: message.kind,
            name: message.name,
            sent: self.sent[index].get(),
            received: self.received[index].get(),
        });
        Stats {
            types: types.filter(|counts| counts.sent + counts.received > 0).collect(),
            replies_sent: self.replies_sent.get(),
            replies_received: self.replies_received.get(),
            bytes_sent: self.bytes.get(),
            doorbells_rung: self.rung.get(),
            doorbells_suppressed: self.suppressed.get(),
            full: self.full.get(),
            malformed: self.malformed.get(),
        }
    }
}

/// Messages of one type, without the replies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeStats {
    /// The type's number on the wire.
    pub kind: MessageKind,
    /// Its name, as in `docs/messages.md`.
    pub name: &'static str,
    /// How many this kernel has sent.
    pub sent: u64,
    /// How many it has received.
    pub received: u64,
}

/// What a kernel has sent and received since it booted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// The types that occurred.
    pub types: Vec<TypeStats>,
    /// Replies, which have no type of their own.
    pub replies_sent: u64,
    /// The same from others.
    pub replies_received: u64,
    /// Of all that went to other kernels, with their headers: what is in lent frames is not among them.
    pub bytes_sent: u64,
    /// Interrupts sent to tell another kernel of messages.
    pub doorbells_rung: u64,
    /// Sends that needed no interrupt, because the receiver was polling or already called.
    pub doorbells_suppressed: u64,
    /// Times that a lane had no room and the message waited in this kernel.
    pub full: u64,
    /// Packets nobody could make sense of; never on a sound machine.
    pub malformed: u64,
}

impl Stats {
    /// All that were sent, replies included.
    pub fn messages_sent(&self) -> u64 {
        self.types.iter().map(|counts| counts.sent).sum::<u64>() + self.replies_sent
    }

    /// All that were received, replies included.
    pub fn messages_received(&self) -> u64 {
        self.types.iter().map(|counts| counts.received).sum::<u64>() + self.replies_received
    }
}
