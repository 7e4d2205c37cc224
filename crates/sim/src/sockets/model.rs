//! What connections are, and what may be seen of them.
//!
//! Nothing is known of the order of what happens in one step. So each answer is held against what was so before the step and
//! what is so after it, when the machine rests and all that was sent has arrived: one of the two, or what lies between, must explain it.

use ::machine::{Errno, KernelId};
use fs::{Events, File};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

/// What a message takes of a window beside its bytes.
const OVERHEAD: u64 = 192;
/// What a packet takes on one kernel beside its bytes, as Linux counts it.
const PACKET_OVERHEAD: u64 = 768;
/// An inbox with so many bytes, or a window with so much in it, may be called full.
const FULL: u64 = 212_992;
const MOST_PACKETS: usize = 11;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    Stream,
    Packets,
    Tcp,
}

/// One end of a connection: which, and which side of it.
pub type End = (usize, usize);

/// What a side has done. Positions count bytes, or packets.
#[derive(Clone, Copy, Default, Debug)]
pub struct Facts {
    pub sent: u64,
    pub received: u64,
    pub shut_read: bool,
    pub shut_write: bool,
    pub gone: bool,
    /// Nobody knows what it sent last: it died.
    pub torn: bool,
    /// It went without having received all, or before it was accepted.
    pub hard: bool,
    /// What it has sent that was not received, as a window counts it; and in how many messages.
    cost: u64,
    messages: usize,
}

pub struct Side {
    pub facts: Facts,
    /// Where the socket is, and where its program is.
    pub kernel: KernelId,
    pub user: KernelId,
    /// None: nobody has it yet, or any more.
    pub file: Option<Arc<dyn File>>,
    /// Another program that has it, on another kernel.
    pub twin: Option<(KernelId, Arc<dyn File>)>,
    /// What was sent and not received: up to which position, and how many bytes.
    unread: VecDeque<(u64, u64)>,
    /// Bytes of each packet.
    lengths: Vec<usize>,
    /// The numbers of files that were sent, by position.
    files: BTreeMap<u64, Vec<u64>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    Connecting,
    /// In the backlog.
    Queued,
    /// Programs may have both ends.
    Accepted,
    /// Who connected was interrupted, or died: it is in the backlog or not.
    Unknown,
    Failed,
}

pub struct Connection {
    pub family: Family,
    pub phase: Phase,
    pub listener: Option<usize>,
    /// The steps in which connect(2) was called, and in which it came back.
    pub begun: u32,
    pub queued: u32,
    /// The listener's kernel, if it was accepted on another.
    pub mover: Option<KernelId>,
    /// That has died before the other end had heard of the one that was accepted: the connection may be reset, or not.
    pub shaken: bool,
    /// Who connected, and who accepts.
    pub sides: [Side; 2],
}

impl Side {
    pub fn new(kernel: KernelId, user: KernelId, file: Option<Arc<dyn File>>) -> Self {
        Side {
            facts: Facts::default(),
            kernel,
            user,
            file,
            twin: None,
            unread: VecDeque::new(),
            lengths: Vec::new(),
            files: BTreeMap::new(),
        }
    }
}

impl Side {
    /// Its program closes it. The end goes with the last one that has it.
    pub fn close(&mut self) {
        match self.twin.take() {
            Some((user, file)) => (self.user, self.file) = (user, Some(file)),
            None => (self.facts.gone, self.file) = (true, None),
        }
    }
}

fn byte(end: End, packet: u64, position: u64) -> u8 {
    (end.0 as u64 * 31 + end.1 as u64 * 101 + packet * 57 + position * 7 + position / 251) as u8
}

/// Both sides at one moment.
pub type Both = [Facts; 2];

/// Has what comes to side `to` ended?
fn read_ended(both: &Both, to: usize) -> bool {
    let from = both[1 - to];
    from.gone || from.shut_write || both[to].shut_read
}

fn write_ended(family: Family, both: &Both, from: usize) -> bool {
    let to = both[1 - from];
    both[from].shut_write || to.gone || to.shut_read && family != Family::Tcp
}

fn unread(both: &Both, to: usize) -> u64 {
    both[1 - to].sent.saturating_sub(both[to].received)
}

/// What is to be explained, with what was so before and after.
pub struct View {
    pub family: Family,
    pub before: Both,
    pub after: Both,
    /// Memory may be refused, to windows or at all.
    pub tight: bool,
    pub scarce: bool,
}

impl Connection {
    pub fn both(&self) -> Both {
        [self.sides[0].facts, self.sides[1].facts]
    }

    /// `dead` has died.
    pub fn shake(&mut self, dead: KernelId) {
        let server = &self.sides[1].facts;
        self.shaken |= self.mover == Some(dead) && server.sent == 0 && !server.shut_write;
    }

    fn is_packets(&self) -> bool {
        self.family == Family::Packets
    }

    /// What side `side` sends next.
    pub fn next(&self, end: End, bytes: usize) -> Vec<u8> {
        let sent = self.sides[end.1].facts.sent;
        let (packet, from) = if self.is_packets() { (sent, 0) } else { (0, sent) };
        (from..from + bytes as u64).map(|position| byte(end, packet, position)).collect()
    }

    pub fn has_sent(&mut self, end: End, bytes: usize, files: &[u64]) {
        let packets = self.is_packets();
        let side = &mut self.sides[end.1];
        if !files.is_empty() {
            side.files.insert(side.facts.sent, files.to_vec());
        }
        side.facts.sent += if packets { 1 } else { bytes as u64 };
        side.lengths.push(bytes);
        side.unread.push_back((side.facts.sent, bytes as u64));
        self.count();
    }

    fn count(&mut self) {
        for from in 0..2 {
            let received = self.sides[1 - from].facts.received;
            let side = &mut self.sides[from];
            while side.unread.front().is_some_and(|(end, _)| *end <= received) {
                side.unread.pop_front();
            }
            side.facts.messages = side.unread.len();
            side.facts.cost = side.unread.iter().map(|(_, bytes)| bytes + OVERHEAD).sum();
        }
    }

    /// Side `end` has received `got`, of at most `limit` bytes. `files`: their numbers, if that was asked.
    pub fn has_received(&mut self, end: End, got: &[u8], limit: usize, peek: bool, files: Option<&[Option<u64>]>) {
        let (from, packets) = (&self.sides[1 - end.1], self.is_packets());
        let position = self.sides[end.1].facts.received;
        let (packet, start) = if packets { (position, 0) } else { (0, position) };
        let sender = (end.0, 1 - end.1);
        let wrong = got.iter().zip(start..).position(|(byte_, at)| *byte_ != byte(sender, packet, at));
        assert_eq!(wrong, None, "{end:?} got something else at {position} than was sent");
        if packets && !from.facts.torn {
            let length = from.lengths.get(position as usize);
            assert_eq!(length.map(|length| *length.min(&limit)), Some(got.len()), "the length of packet {position}");
        }
        let next = position + if packets { 1 } else { got.len() as u64 };
        assert!(from.facts.torn || next <= from.facts.sent, "{end:?} got more than was sent");
        if let (Some(files), false) = (files, from.facts.torn) {
            let expected: Vec<u64> =
                from.files.range(position..next).flat_map(|(_, numbers)| numbers).copied().collect();
            let same = files.len() == expected.len()
                && files.iter().zip(&expected).all(|(file, number)| file.is_none_or(|file| file == *number));
            assert!(same, "{end:?} got the files {files:?} at {position}, not {expected:?}");
        }
        if !peek {
            self.sides[end.1].facts.received = next;
            self.count();
        }
    }
}

impl View {
    /// All that was sent before was received before.
    fn complete(&self, to: usize) -> bool {
        self.after[1 - to].torn || unread(&self.before, to) == 0
    }

    /// Bytes for side `to` may always be received. It was told that no more come, or an error.
    pub fn may_end(&self, to: usize, error: Option<Errno>) -> bool {
        let from = self.after[1 - to];
        let explained = match (error, self.family) {
            (None, _) => read_ended(&self.after, to),
            (Some(Errno::ECONNRESET), Family::Stream | Family::Packets) => {
                from.gone && (from.hard || from.received < self.after[to].sent)
            }
            (Some(Errno::ECONNRESET | Errno::EPIPE), Family::Tcp) => from.gone,
            _ => false,
        };
        explained && self.complete(to)
    }

    /// By TCP the other side's reset ends the connection.
    pub fn may_be_unconnected(&self, side: usize) -> bool {
        self.family == Family::Tcp && self.after[1 - side].gone
    }

    /// There was nothing to be read.
    pub fn may_be_empty(&self, to: usize) -> bool {
        unread(&self.before, to) == 0 && !read_ended(&self.before, to)
    }

    pub fn may_wait_to_read(&self, to: usize) -> bool {
        unread(&self.after, to) == 0 && !read_ended(&self.after, to)
    }

    /// Side `from` has sent.
    pub fn may_send(&self, from: usize) -> bool {
        let gone = self.before[1 - from].gone && self.family == Family::Tcp && !self.before[from].shut_write;
        gone || !write_ended(self.family, &self.before, from)
    }

    pub fn may_fail_to_send(&self, from: usize, bytes: usize, error: Errno) -> bool {
        match error {
            Errno::EPIPE => write_ended(self.family, &self.after, from),
            Errno::ECONNRESET => match self.family {
                Family::Tcp => self.after[1 - from].gone,
                // The error of the socket, before anything else (unix_seqpacket_sendmsg in Linux).
                Family::Packets => self.after[1 - from].hard || self.after[1 - from].torn,
                Family::Stream => false,
            },
            Errno::EAGAIN => self.is_full(&self.before, from, bytes),
            Errno::ENOBUFS => self.tight || self.scarce,
            _ => false,
        }
    }

    pub fn may_wait_to_send(&self, from: usize, bytes: usize) -> bool {
        !write_ended(self.family, &self.after, from) && self.is_full(&self.after, from, bytes)
    }

    fn is_full(&self, both: &Both, from: usize, bytes: usize) -> bool {
        let Facts { cost, messages, .. } = both[from];
        let fits = match self.family {
            Family::Packets => {
                let more = messages as u64 * (PACKET_OVERHEAD - OVERHEAD) + bytes as u64 + PACKET_OVERHEAD;
                cost + more <= FULL && messages < MOST_PACKETS
            }
            _ => cost < FULL,
        };
        messages > 0 && (self.tight || !fits)
    }

    /// What poll tells of `side` could have been so.
    pub fn may_be_told(&self, side: usize, told: Events) -> bool {
        let other = self.after[1 - side];
        let readable = other.sent > self.before[side].received || read_ended(&self.after, side) || other.torn;
        readable || !told.contains(Events::IN)
    }

    /// What poll must have told of `side` at one moment; `moves`: something is received or sent at that time.
    fn must(&self, both: &Both, side: usize, receives: bool, sends: bool) -> Events {
        let mut must = Events::empty();
        let sure = !both[1 - side].torn && !receives;
        if read_ended(both, side) || sure && unread(both, side) > 0 {
            must |= Events::IN;
        }
        let empty = both[side].messages == 0 && !sends && !self.tight;
        if write_ended(self.family, both, side) || empty {
            must |= Events::OUT;
        }
        must
    }

    pub fn must_before(&self, side: usize, receives: bool, sends: bool) -> Events {
        self.must(&self.before, side, receives, sends)
    }

    /// At rest.
    pub fn must_after(&self, side: usize) -> Events {
        self.must(&self.after, side, false, false)
    }
}
