//! What was sent to a socket and not read yet.

use crate::{
    control::{SocketMessage, UnixCredentials},
    File,
};
use alloc::{collections::VecDeque, sync::Arc, vec::Vec};

/// net.core.wmem_default: bytes on their way to one socket.
pub const LIMIT: usize = 212_992;
/// net.unix.max_dgram_qlen.
const MAX_MESSAGES: usize = 10 + 1;

struct Message {
    bytes: Vec<u8>,
    /// How many of them a stream has read already.
    read: usize,
    files: Vec<Arc<dyn File>>,
    sender: UnixCredentials,
    name: Vec<u8>,
}

#[derive(Default)]
pub struct Inbox {
    messages: VecDeque<Message>,
    bytes: usize,
}

impl Inbox {
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    pub fn bytes(&self) -> usize {
        self.bytes
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

    pub fn push(&mut self, bytes: Vec<u8>, files: Vec<Arc<dyn File>>, sender: UnixCredentials, name: Vec<u8>) {
        self.bytes += bytes.len();
        self.messages.push_back(Message { bytes, read: 0, files, sender, name });
    }

    /// One datagram; what does not fit `limit` is lost.
    pub fn take_datagram(&mut self, limit: usize, peek: bool) -> Option<SocketMessage> {
        let first = self.messages.front_mut()?;
        let length = first.bytes.len();
        let bytes = first.bytes[..length.min(limit)].to_vec();
        let (files, name) = match peek {
            true => (first.files.clone(), first.name.clone()),
            false => (core::mem::take(&mut first.files), core::mem::take(&mut first.name)),
        };
        let sender = first.sender;
        if !peek {
            self.messages.pop_front();
            self.bytes -= length;
        }
        Some(SocketMessage { bytes, files, credentials: Some(sender), name, full_length: length as u64 })
    }

    /// Bytes of a stream: of several messages, but never past one that brings files, nor from one sender
    /// to another if `by_sender`.
    pub fn take_stream(&mut self, limit: usize, peek: bool, by_sender: bool) -> Option<SocketMessage> {
        let first = self.messages.front()?;
        let (sender, name) = (first.sender, first.name.clone());
        let mut bytes = Vec::new();
        let mut files = Vec::new();
        let mut whole = 0;
        for (index, message) in self.messages.iter_mut().enumerate() {
            let stranger = by_sender && message.sender != sender;
            if bytes.len() == limit || index > 0 && (stranger || !message.files.is_empty()) {
                break;
            }
            let rest = &message.bytes[message.read..];
            let count = rest.len().min(limit - bytes.len());
            bytes.extend_from_slice(&rest[..count]);
            let brings = !message.files.is_empty();
            if peek {
                files.extend(message.files.iter().cloned());
            } else {
                files.append(&mut message.files);
                message.read += count;
                whole += usize::from(message.read == message.bytes.len());
            }
            if brings {
                break;
            }
        }
        if !peek {
            self.messages.drain(..whole);
            self.bytes -= bytes.len();
        }
        let full_length = bytes.len() as u64;
        Some(SocketMessage { bytes, files, credentials: Some(sender), name, full_length })
    }
}
