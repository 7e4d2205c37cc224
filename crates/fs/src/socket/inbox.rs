//! What was sent to a socket and not read yet.

use super::{flight::Parcel, urgent::Urgent};
use crate::{
    control::{DatagramHeader, MessageExtra, SocketMessage, UnixCredentials},
    File, Timestamp,
};
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use machine::{
    account::Charge,
    collections::{try_with_capacity, Queue},
    errno::Result,
};

/// net.core.wmem_default: bytes on their way to one socket, unless SO_SNDBUF or SO_RCVBUF say otherwise.
pub const LIMIT: usize = 212_992;
/// What a message takes of the heap beside its bytes and files, and each file.
pub const MESSAGE_BYTES: usize = 192;
pub const FILE_BYTES: usize = 16;
/// What Linux counts for a short datagram beside its bytes.
pub const DATAGRAM_BYTES: usize = 768;
/// net.unix.max_dgram_qlen.
const MAX_MESSAGES: usize = 10 + 1;

/// What comes for a socket.
#[derive(Default)]
pub struct Incoming {
    pub bytes: Vec<u8>,
    pub files: Parcel,
    pub sender: UnixCredentials,
    /// The sender's address.
    pub name: Vec<u8>,
    pub charge: Charge,
    /// Its last byte is urgent.
    pub urgent: bool,
    /// Of a datagram of AF_INET or AF_INET6.
    pub datagram: Option<DatagramHeader>,
}

/// What a message brings that few receivers ask for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Along {
    pub datagram: Option<DatagramHeader>,
    /// When it came, of a socket that wants to know.
    pub time: Option<Timestamp>,
}

struct Message {
    bytes: Vec<u8>,
    /// How many of them a stream has read already.
    read: usize,
    files: Parcel,
    sender: UnixCredentials,
    name: Vec<u8>,
    along: Option<Box<Along>>,
    /// It was looked at from SO_PEEK_OFF on.
    peeked: bool,
    _charge: Charge,
}

impl Message {
    fn rest(&self) -> &[u8] {
        &self.bytes[self.read..]
    }
}

/// What was taken out.
#[derive(Default)]
pub struct Taken {
    /// Without its files.
    pub message: SocketMessage,
    /// To be [opened](Parcel::open) when the inbox is not locked any more.
    pub files: Parcel,
    pub along: Option<Box<Along>>,
}

/// How a stream is read.
#[derive(Clone, Copy, Default)]
pub struct Reading {
    /// MSG_PEEK.
    pub peek: bool,
    /// Not from one sender to another.
    pub by_sender: bool,
    /// SO_OOBINLINE.
    pub inline: bool,
}

#[derive(Default)]
pub struct Inbox {
    messages: Queue<Message>,
    /// Those of which the one byte there was has been received as urgent.
    hollow: usize,
    bytes: usize,
    /// How many bytes of a stream were read since it began.
    read: u64,
    urgent: Option<Urgent>,
    /// SO_PEEK_OFF.
    peek_from: Option<usize>,
    /// Files that came with an urgent byte which nobody will receive in its place.
    lost: Vec<Parcel>,
    /// Messages that have come, ever.
    arrived: u64,
}

impl Inbox {
    pub fn is_empty(&self) -> bool {
        self.messages.len() == self.hollow
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// What it takes of a window (link.rs).
    pub fn cost(&self) -> usize {
        self.bytes + self.len() * MESSAGE_BYTES
    }

    /// Messages that have come, ever.
    pub fn arrived(&self) -> u64 {
        self.arrived
    }

    /// Messages.
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// Bytes of the first message (FIONREAD of a datagram socket).
    pub fn first(&self) -> usize {
        self.messages.front().map_or(0, |message| message.bytes.len())
    }

    /// For a stream, if all may take `limit` bytes.
    pub fn room(&self, limit: usize) -> usize {
        limit.saturating_sub(self.bytes)
    }

    /// Is there room for another datagram of so many bytes? Many who send may have few in it; the `one` that is connected with it fills it.
    pub fn takes(&self, bytes: usize, limit: usize, one: bool) -> bool {
        let fits = match one {
            true => bytes + (self.len() + 1) * DATAGRAM_BYTES <= self.room(limit),
            false => self.len() < MAX_MESSAGES && bytes <= self.room(limit),
        };
        self.messages.is_empty() || fits
    }

    pub fn urgent(&self) -> Option<&Urgent> {
        self.urgent.as_ref()
    }

    /// How many bytes lie before the urgent one. Of AF_UNIX it may have been taken out; then so many lie before its place.
    pub fn before_urgent(&self) -> Option<usize> {
        self.urgent.map(|urgent| (urgent.at - self.read) as usize)
    }

    /// SIOCATMARK.
    pub fn is_at_mark(&self) -> bool {
        self.before_urgent() == Some(0)
    }

    pub fn peek_from(&self) -> Option<usize> {
        self.peek_from
    }

    pub fn set_peek_from(&mut self, from: Option<usize>) {
        self.peek_from = from;
    }

    pub fn push(&mut self, incoming: Incoming, time: Option<Timestamp>) {
        let Incoming { bytes, files, sender, name, charge, datagram, .. } = incoming;
        self.bytes += bytes.len();
        self.arrived += 1;
        let along = (datagram.is_some() || time.is_some()).then(|| Box::new(Along { datagram, time }));
        self.messages.push_back(Message { bytes, read: 0, files, sender, name, along, peeked: false, _charge: charge });
    }

    /// The last byte is urgent; the one that was so before is a byte as all others. `passes`: by TCP, that one is lost if all before it was
    /// read (tcp_check_urg in Linux).
    pub fn mark_urgent(&mut self, passes: bool) {
        if passes && self.urgent.is_some() && self.is_at_mark() && self.bytes > 1 {
            self.pass();
        }
        self.urgent = Some(Urgent::at(self.read + self.bytes as u64 - 1));
    }

    /// The urgent byte; None: there is none, or it was received before. `leaves`: by TCP it stays where it is, to be passed over.
    pub fn take_urgent(&mut self, peek: bool, leaves: bool) -> Option<u8> {
        let before = self.before_urgent()?;
        let urgent = self.urgent.as_mut().filter(|urgent| !urgent.taken)?;
        let mut skip = before;
        let message = self.messages.iter_mut().find(|message| match skip < message.rest().len() {
            true => true,
            false => {
                skip -= message.rest().len();
                false
            }
        })?;
        let byte = message.rest()[skip];
        if !peek {
            urgent.taken = true;
            if !leaves {
                urgent.gone = true;
                message.bytes.remove(message.read + skip);
                self.hollow += usize::from(message.rest().is_empty());
                self.bytes -= 1;
                self.drop_hollow();
            }
        }
        Some(byte)
    }

    /// Whether a read would find nothing, and leave nothing changed.
    pub fn has_nothing(&self) -> bool {
        self.messages.is_empty() && self.urgent.is_none() && self.lost.is_empty()
    }

    /// Files that nobody receives, to be dropped when the inbox is not locked any more.
    pub fn take_lost(&mut self) -> Vec<Parcel> {
        core::mem::take(&mut self.lost)
    }

    /// Takes messages off the front that nothing is left of.
    fn drop_hollow(&mut self) {
        while self.hollow > 0 && self.messages.front().is_some_and(|message| message.rest().is_empty()) {
            self.hollow -= 1;
            let files = self.messages.pop_front().map(|message| message.files);
            self.lost.extend(files.filter(|files| !files.is_empty()));
        }
    }

    /// Passes over the next byte.
    fn pass(&mut self) {
        let Some(first) = self.messages.iter_mut().find(|message| !message.rest().is_empty()) else { return };
        first.read += 1;
        self.hollow += usize::from(first.rest().is_empty());
        self.bytes -= 1;
        self.read += 1;
        self.drop_hollow();
    }

    /// How many bytes a read has to leave out first, and how many it may take before the urgent one. A read that begins at that passes over it.
    fn stops(&mut self, limit: usize, skip: usize, how: Reading) -> (usize, usize) {
        let Some(urgent) = self.urgent.filter(|_| limit > 0) else { return (skip, limit) };
        match (urgent.at).checked_sub(self.read + skip as u64) {
            Some(0) => {
                let leaves_out = !urgent.gone && !how.inline;
                if how.peek {
                    return (skip + usize::from(leaves_out), limit);
                }
                self.urgent = None;
                if leaves_out {
                    self.pass();
                }
                (skip, limit)
            }
            Some(before) => (skip, limit.min(usize::try_from(before).unwrap_or(limit))),
            None => (skip, limit),
        }
    }

    /// Puts what was sent earlier in front.
    pub fn prepend(&mut self, earlier: Inbox) {
        let mut earlier = earlier;
        self.bytes += earlier.bytes;
        let later = self.urgent.map(|urgent| Urgent { at: urgent.at + earlier.bytes as u64, ..urgent });
        self.urgent = later.or(earlier.urgent);
        while let Some(message) = earlier.messages.pop_back() {
            self.messages.push_front(message);
        }
    }

    /// All of it for another kernel, as messages of their own; the files are to be [opened](Parcel::open) when the inbox is not locked any more.
    pub fn take_all(&mut self) -> Result<Vec<Taken>> {
        let mut all = try_with_capacity(self.messages.len())?;
        let (mut end, urgent) = (self.read, self.urgent.take());
        (self.bytes, self.hollow) = (0, 0);
        while let Some(message) = self.messages.pop_front() {
            let Message { mut bytes, read, mut files, sender, name, along, .. } = message;
            bytes.drain(..read);
            let length = bytes.len();
            end += length as u64;
            let mut message = received(bytes, Vec::new(), sender, name, length);
            // Nothing was received yet: it is the last byte of its message.
            if urgent.is_some_and(|urgent| urgent.at + 1 == end) {
                message.extra.get_or_insert_default().urgent = true;
            }
            all.push(Taken { message, files: files.leave(), along });
        }
        Ok(all)
    }

    /// The sockets in all messages, and stand-ins of sockets.
    pub fn sockets(&self) -> impl Iterator<Item = &Arc<dyn File>> {
        self.messages.iter().flat_map(|message| message.files.sockets())
    }

    pub fn brings_files(&self) -> bool {
        self.messages.iter().any(|message| !message.files.is_empty())
    }

    /// One datagram; what does not fit `limit` is lost.
    pub fn take_datagram(&mut self, limit: usize, peek: bool) -> Option<Taken> {
        if let (true, Some(skip)) = (peek, self.peek_from) {
            return self.peek_datagram(limit, skip);
        }
        let first = self.messages.front_mut()?;
        let length = first.bytes.len();
        let bytes = first.bytes[..length.min(limit)].to_vec();
        let (peeked, files, name) = match peek {
            true => (first.files.peek(), Parcel::empty(), first.name.clone()),
            false => (Vec::new(), first.files.leave(), core::mem::take(&mut first.name)),
        };
        let (sender, along) = (first.sender, first.along.clone());
        if !peek {
            self.messages.pop_front();
            self.bytes -= length;
            self.peek_from = self.peek_from.map(|from| from.saturating_sub(length));
        }
        Some(Taken { message: received(bytes, peeked, sender, name, length), files, along })
    }

    /// From SO_PEEK_OFF on: whole datagrams are passed over, and the beginning of one.
    fn peek_datagram(&mut self, limit: usize, mut skip: usize) -> Option<Taken> {
        let found = self.messages.iter_mut().find(|message| {
            let length = message.bytes.len();
            let passes = skip >= length && (length > 0 || skip > 0 || message.peeked);
            skip -= if passes { length } else { 0 };
            !passes
        })?;
        found.peeked = true;
        let rest = &found.bytes[skip..];
        let bytes = rest[..rest.len().min(limit)].to_vec();
        let message = received(bytes, found.files.peek(), found.sender, found.name.clone(), rest.len());
        self.peek_from = self.peek_from.map(|from| from + message.bytes.len());
        Some(Taken { message, files: Parcel::empty(), along: found.along.clone() })
    }

    /// Gives `give` what [`Inbox::take_stream`] would take, message by message, and takes that out unless `give` fails. None: it is not only
    /// bytes (urgent data, files), or nothing is wanted.
    pub fn pour(
        &mut self,
        limit: usize,
        by_sender: bool,
        mut give: impl FnMut(&[u8]) -> Result<()>,
    ) -> Option<Result<usize>> {
        if limit == 0 || self.urgent.is_some() || self.hollow > 0 || !self.lost.is_empty() {
            return None;
        }
        let sender = self.messages.front().filter(|first| first.files.is_empty())?.sender;
        let (mut count, mut whole, mut begun) = (0, 0, 0);
        for message in self.messages.iter() {
            let stranger = by_sender && message.sender != sender;
            if count == limit || stranger || !message.files.is_empty() {
                break;
            }
            let rest = message.rest();
            let part = rest.len().min(limit - count);
            if let Err(error) = give(&rest[..part]) {
                return Some(Err(error));
            }
            count += part;
            match part == rest.len() {
                true => whole += 1,
                false => begun = part,
            }
        }
        for _ in 0..whole {
            self.messages.pop_front();
        }
        if let Some(first) = self.messages.front_mut() {
            first.read += begun;
        }
        self.bytes -= count;
        self.read += count as u64;
        self.peek_from = self.peek_from.map(|from| from.saturating_sub(count));
        Some(Ok(count))
    }

    /// Bytes of a stream: of several messages, but never past one that brings files.
    pub fn take_stream(&mut self, limit: usize, how: Reading) -> Option<Taken> {
        let peek = how.peek;
        let (mut skip, limit) = self.stops(limit, if peek { self.peek_from.unwrap_or(0) } else { 0 }, how);
        let mut bytes = Vec::new();
        let (mut peeked, mut files, mut along) = (Vec::new(), Parcel::empty(), None);
        let mut first = None;
        let mut whole = 0;
        for message in self.messages.iter_mut() {
            if message.rest().len() <= skip {
                skip -= message.rest().len();
                if !peek {
                    // Nothing is left of it.
                    whole += 1;
                    self.hollow -= 1;
                    self.lost.extend(Some(message.files.leave()).filter(|files| !files.is_empty()));
                }
                continue;
            }
            let begun = first.is_some();
            let (sender, _) = first.get_or_insert_with(|| (message.sender, message.name.clone()));
            let stranger = how.by_sender && *sender != message.sender;
            if bytes.len() == limit || begun && (stranger || !message.files.is_empty()) {
                break;
            }
            along = message.along.clone();
            let rest = &message.bytes[message.read + skip..];
            skip = 0;
            let count = rest.len().min(limit - bytes.len());
            if bytes.is_empty() && count == message.bytes.len() && !peek {
                bytes = core::mem::take(&mut message.bytes);
                message.read = 0;
            } else {
                bytes.extend_from_slice(&rest[..count]);
                message.read += if peek { 0 } else { count };
            }
            let brings = !message.files.is_empty();
            match (peek, brings) {
                (true, _) => peeked.extend(message.files.peek()),
                (false, true) => files = message.files.leave(),
                (false, false) => {}
            }
            if !peek {
                whole += usize::from(message.rest().is_empty());
            }
            if brings {
                break;
            }
        }
        match peek {
            true => self.peek_from = self.peek_from.map(|from| from + bytes.len()),
            false => {
                for _ in 0..whole {
                    self.messages.pop_front();
                }
                self.bytes -= bytes.len();
                self.read += bytes.len() as u64;
                self.peek_from = self.peek_from.map(|from| from.saturating_sub(bytes.len()));
            }
        }
        let (sender, name) = first?;
        let length = bytes.len();
        Some(Taken { message: received(bytes, peeked, sender, name, length), files, along })
    }
}

/// A message without what was not asked for.
fn received(
    bytes: Vec<u8>,
    files: Vec<Arc<dyn File>>,
    sender: UnixCredentials,
    name: Vec<u8>,
    full_length: usize,
) -> SocketMessage {
    let full_length = full_length as u64;
    SocketMessage { bytes, files, credentials: Some(sender), name, full_length, ..SocketMessage::default() }
}

/// What recvmsg(2) with MSG_OOB receives.
pub fn urgent_message(byte: u8, limit: usize) -> SocketMessage {
    const MSG_OOB: u32 = 0x1;
    const MSG_TRUNC: u32 = 0x20;
    let flags = if limit > 0 { MSG_OOB } else { MSG_OOB | MSG_TRUNC };
    let extra = Some(Box::new(MessageExtra { flags, ..MessageExtra::default() }));
    let bytes = if limit > 0 { [byte].into() } else { Vec::new() };
    SocketMessage { bytes, extra, ..SocketMessage::default() }
}
