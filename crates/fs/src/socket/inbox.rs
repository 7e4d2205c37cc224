//! What was sent to a socket and not read yet.

use super::flight::Parcel;
use crate::{
    control::{SocketMessage, UnixCredentials},
    File,
};
use alloc::{sync::Arc, vec::Vec};
use machine::{
    account::Charge,
    collections::{try_with_capacity, Queue},
    errno::Result,
};

/// net.core.wmem_default: bytes on their way to one socket.
pub const LIMIT: usize = 212_992;
/// What a message takes of the heap beside its bytes and files, and each file.
pub const MESSAGE_BYTES: usize = 192;
pub const FILE_BYTES: usize = 16;
/// What Linux counts for a short datagram of UDP beside its bytes.
pub const DATAGRAM_BYTES: usize = 768;
/// net.unix.max_dgram_qlen.
const MAX_MESSAGES: usize = 10 + 1;

struct Message {
    bytes: Vec<u8>,
    /// How many of them a stream has read already.
    read: usize,
    files: Parcel,
    sender: UnixCredentials,
    name: Vec<u8>,
    _charge: Charge,
}

/// What was taken out: the message without its files, and those, to be [opened](Parcel::open) when the inbox is not locked any more.
pub type Taken = (SocketMessage, Parcel);

#[derive(Default)]
pub struct Inbox {
    messages: Queue<Message>,
    bytes: usize,
    /// Messages that have come, ever.
    arrived: u64,
}

impl Inbox {
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
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

    pub fn room(&self) -> usize {
        LIMIT.saturating_sub(self.bytes)
    }

    /// Is there room for another datagram of so many bytes?
    pub fn takes(&self, bytes: usize) -> bool {
        self.messages.is_empty() || self.messages.len() < MAX_MESSAGES && bytes <= self.room()
    }

    pub fn push(&mut self, bytes: Vec<u8>, files: Parcel, sender: UnixCredentials, name: Vec<u8>, charge: Charge) {
        self.bytes += bytes.len();
        self.arrived += 1;
        self.messages.push_back(Message { bytes, read: 0, files, sender, name, _charge: charge });
    }

    /// Puts what was sent earlier in front.
    pub fn prepend(&mut self, earlier: Inbox) {
        let mut earlier = earlier;
        self.bytes += earlier.bytes;
        while let Some(message) = earlier.messages.pop_back() {
            self.messages.push_front(message);
        }
    }

    /// All of it for another kernel, as messages of their own; the files are to be [opened](Parcel::open) when the inbox is not locked any more.
    pub fn take_all(&mut self) -> Result<Vec<Taken>> {
        let mut all = try_with_capacity(self.messages.len())?;
        self.bytes = 0;
        while let Some(message) = self.messages.pop_front() {
            let Message { mut bytes, read, mut files, sender, name, _charge } = message;
            bytes.drain(..read);
            let length = bytes.len() as u64;
            all.push((received(bytes, Vec::new(), sender, name, length), files.leave()));
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
        let first = self.messages.front_mut()?;
        let length = first.bytes.len();
        let bytes = first.bytes[..length.min(limit)].to_vec();
        let (peeked, files, name) = match peek {
            true => (first.files.peek(), Parcel::empty(), first.name.clone()),
            false => (Vec::new(), first.files.leave(), core::mem::take(&mut first.name)),
        };
        let sender = first.sender;
        if !peek {
            self.messages.pop_front();
            self.bytes -= length;
        }
        let full_length = length as u64;
        Some((received(bytes, peeked, sender, name, full_length), files))
    }

    /// Bytes of a stream: of several messages, but never past one that brings files, nor from one sender
    /// to another if `by_sender`.
    pub fn take_stream(&mut self, limit: usize, peek: bool, by_sender: bool) -> Option<Taken> {
        let first = self.messages.front()?;
        let (sender, name) = (first.sender, first.name.clone());
        let mut bytes = Vec::new();
        let (mut peeked, mut files) = (Vec::new(), Parcel::empty());
        let mut whole = 0;
        for (index, message) in self.messages.iter_mut().enumerate() {
            let stranger = by_sender && message.sender != sender;
            if bytes.len() == limit || index > 0 && (stranger || !message.files.is_empty()) {
                break;
            }
            let rest = &message.bytes[message.read..];
            let count = rest.len().min(limit - bytes.len());
            if bytes.is_empty() && count == message.bytes.len() && !peek {
                bytes = core::mem::take(&mut message.bytes);
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
                whole += usize::from(message.read == message.bytes.len());
            }
            if brings {
                break;
            }
        }
        if !peek {
            for _ in 0..whole {
                self.messages.pop_front();
            }
            self.bytes -= bytes.len();
        }
        let full_length = bytes.len() as u64;
        Some((received(bytes, peeked, sender, name, full_length), files))
    }
}

fn received(
    bytes: Vec<u8>,
    files: Vec<Arc<dyn File>>,
    sender: UnixCredentials,
    name: Vec<u8>,
    full_length: u64,
) -> SocketMessage {
    SocketMessage { bytes, files, credentials: Some(sender), name, full_length, most_in_flight: 0 }
}
