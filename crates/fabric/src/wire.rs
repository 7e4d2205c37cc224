//! The form of a message in a lane: a header of 16 bytes, then the postcard bytes of the struct.
#![forbid(unsafe_code)]

use alloc::{boxed::Box, format, string::String, vec::Vec};
use core::{any::Any, ops::Deref};
use machine::{Actor, GroupId};
use messages::MessageKind;
use postcard::ser_flavors::Flavor;
use serde::{de::DeserializeOwned, Serialize};

pub const HEADER: usize = 16;

/// What a packet is. `kind` names the request also in what answers it, for traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Role {
    /// Wants an answer with the same id.
    Request = 0,
    /// Wants none; its credit comes back with a `Credit`.
    Notice = 1,
    Reply = 2,
    /// Stop working on the request `id`; sent in the lane of the request, so it comes after it.
    Cancel = 3,
    /// The answer to a request that stopped because of `Cancel`.
    Cancelled = 4,
    /// The answer to a request that has no handler, or whose bytes make no sense.
    Refused = 5,
    /// Gives back `id` credits for requests of priority `kind`.
    Credit = 6,
    /// Part of a packet too long for the port; `id` is the number of bytes still to come.
    Fragment = 7,
}

impl Role {
    fn asks(self) -> bool {
        matches!(self, Role::Request | Role::Notice)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub kind: MessageKind,
    pub role: Role,
    /// In an answer: the credit of the request was given back before (see outbox.rs).
    pub parked: bool,
    pub id: u64,
    /// For whom the sender worked when it asked.
    pub actor: Actor,
    /// In a request: who pays for the pages that are made for it.
    pub payer: GroupId,
}

impl Header {
    pub fn to_bytes(self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..2].copy_from_slice(&self.kind.0.to_le_bytes());
        // What goes with the role has the other 13 bits.
        let with_role = if self.role.asks() { self.payer.0 } else { self.parked.into() };
        bytes[2..4].copy_from_slice(&(with_role << 3 | self.role as u16).to_le_bytes());
        bytes[4..12].copy_from_slice(&self.id.to_le_bytes());
        bytes[12..].copy_from_slice(&self.actor.0.to_le_bytes());
        bytes
    }

    /// Header and body of a packet; `None` if it is none.
    pub fn split(packet: &[u8]) -> Option<(Header, &[u8])> {
        let (header, body) = packet.split_first_chunk::<HEADER>()?;
        let (role, with_role) = (header[2] & 7, u16::from_le_bytes([header[2], header[3]]) >> 3);
        let role = match role {
            0 => Role::Request,
            1 => Role::Notice,
            2 => Role::Reply,
            3 => Role::Cancel,
            4 => Role::Cancelled,
            5 => Role::Refused,
            6 => Role::Credit,
            _ => Role::Fragment,
        };
        let kind = MessageKind(u16::from_le_bytes([header[0], header[1]]));
        let (_, rest) = header.split_first_chunk::<4>()?;
        let (id, actor) = rest.split_first_chunk::<8>()?;
        let (id, actor) = (u64::from_le_bytes(*id), u32::from_le_bytes(*actor.first_chunk()?));
        let (parked, payer) = match role.asks() {
            true => (false, GroupId(with_role)),
            false => (with_role != 0, GroupId::ROOT),
        };
        Some((Header { kind, role, parked, id, actor: Actor(actor), payer }, body))
    }
}

/// What a packet is; None if that is no message.
pub fn kind_of(packet: &[u8]) -> Option<MessageKind> {
    Header::split(packet).map(|(header, _)| header.kind)
}

/// A packet in words, for traces.
pub fn describe(packet: &[u8]) -> String {
    let Some((Header { kind, role, parked, id, .. }, body)) = Header::split(packet) else {
        return format!("{} bytes that are no message", packet.len());
    };
    let name = messages::index_of(kind).map_or("?", |index| messages::CATALOGUE[index].name);
    let parked = if parked { ", parked" } else { "" };
    match role {
        Role::Credit => format!("{id} credits"),
        Role::Fragment => format!("fragment of {} bytes, {id} to come", body.len()),
        _ => format!("{name} {role:?}{parked} #{}, {} bytes", id as u32, body.len()),
    }
}

/// A packet being sent: on the stack when it is short, as nearly all are.
pub enum Packet {
    Short([u8; Packet::SHORT], usize),
    Long(Vec<u8>),
}

/// The reverse.
#[inline(never)]
pub fn decode<T: DeserializeOwned>(body: &[u8]) -> Option<T> {
    postcard::from_bytes(body).ok()
}

impl Packet {
    /// Two slots of a lane.
    const SHORT: usize = 2 * crate::lane::PAYLOAD;
    /// Room for most others, a moving thread with its first pages among them.
    const LONG: usize = 3072;

    /// One copy for each kind of message: they are many.
    #[inline(never)]
    pub fn new<T: Serialize>(header: Header, body: &T) -> Packet {
        let mut packet = Packet::Short([0; Packet::SHORT], HEADER);
        packet.set_header(header);
        let encoded = postcard::serialize_with_flavor(body, packet);
        encoded.unwrap_or_else(|_| unreachable!("a message is plain data of known length"))
    }

    /// The answer to `request`.
    pub fn reply<T: Serialize>(request: Header, body: &T) -> Packet {
        Packet::new(Header { role: Role::Reply, parked: false, ..request }, body)
    }

    /// Makes it a long one, with room for `more` bytes.
    fn grown(&mut self, more: usize) -> &mut Vec<u8> {
        let mut long = Vec::with_capacity(Packet::LONG.max(self.len() + more));
        long.extend_from_slice(self);
        *self = Packet::Long(long);
        match self {
            Packet::Long(bytes) => bytes,
            Packet::Short(..) => unreachable!("it is long now"),
        }
    }

    pub fn bare(header: Header) -> [u8; HEADER] {
        header.to_bytes()
    }

    pub fn header(&self) -> Header {
        Header::split(self).expect("it was made with one").0
    }

    pub fn set_header(&mut self, header: Header) {
        let bytes = match self {
            Packet::Short(bytes, _) => &mut bytes[..],
            Packet::Long(bytes) => bytes,
        };
        bytes[..HEADER].copy_from_slice(&header.to_bytes());
    }
}

/// How postcard writes one: short until it is too long for that, so that nothing is written twice.
impl Flavor for Packet {
    type Output = Packet;

    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        match self {
            Packet::Short(bytes, len) if *len < Packet::SHORT => {
                bytes[*len] = byte;
                *len += 1;
            }
            Packet::Long(bytes) => bytes.push(byte),
            _ => self.grown(1).push(byte),
        }
        Ok(())
    }

    fn try_extend(&mut self, more: &[u8]) -> postcard::Result<()> {
        // Most numbers are small: written without a call of memcpy.
        if let [byte] = more {
            return self.try_push(*byte);
        }
        match self {
            Packet::Short(bytes, len) if more.len() <= Packet::SHORT - *len => {
                bytes[*len..*len + more.len()].copy_from_slice(more);
                *len += more.len();
            }
            Packet::Long(bytes) => bytes.extend_from_slice(more),
            _ => self.grown(more.len()).extend_from_slice(more),
        }
        Ok(())
    }

    fn finalize(self) -> postcard::Result<Packet> {
        Ok(self)
    }
}

impl Deref for Packet {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Packet::Short(bytes, len) => &bytes[..*len],
            Packet::Long(bytes) => bytes,
        }
    }
}

/// The body of an answer while it waits in its correlation slot; short ones need no allocation.
pub enum Body {
    Short([u8; Body::SHORT], u8),
    Long(Vec<u8>),
    /// What was made of it when it came.
    Taken(Box<dyn Any + Send>),
}

impl Body {
    const SHORT: usize = 47;

    pub fn new(bytes: &[u8]) -> Body {
        if bytes.len() > Body::SHORT {
            return Body::Long(bytes.to_vec());
        }
        let mut short = [0; Body::SHORT];
        short[..bytes.len()].copy_from_slice(bytes);
        Body::Short(short, bytes.len() as u8)
    }

    pub fn decode<T: DeserializeOwned>(&self) -> Option<T> {
        match self {
            Body::Short(bytes, len) => decode(&bytes[..usize::from(*len)]),
            Body::Long(bytes) => decode(bytes),
            Body::Taken(_) => None,
        }
    }

    /// What was made of it, if that is a T.
    pub fn taken<T: 'static>(self) -> Option<T> {
        match self {
            Body::Taken(made) => made.downcast().ok().map(|made| *made),
            Body::Short(..) | Body::Long(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn packets_short_and_long_survive() {
        for len in [0usize, 1, 47, 48, 99, 100, 101, 5000] {
            let (kind, role, parked) = (MessageKind(0x1234), Role::Reply, len % 2 == 1);
            let (actor, payer) = (Actor(0x8000_0001), GroupId::ROOT);
            let header = Header { kind, role, parked, id: u64::MAX - 5, actor, payer };
            let body = vec![9u8; len];
            let packet = Packet::new(Header { id: 0, ..header }, &body);
            let mut renamed = packet;
            renamed.set_header(header);
            let (read, bytes) = Header::split(&renamed).unwrap();
            assert_eq!(read, header);
            assert_eq!(Body::new(bytes).decode::<Vec<u8>>(), Some(body));
        }
    }

    #[test]
    fn what_is_no_packet_is_told_apart() {
        assert_eq!(Header::split(&[0; HEADER - 1]), None);
    }

    #[test]
    fn any_group_pays_for_a_request() {
        for role in [Role::Request, Role::Notice] {
            let (kind, payer) = (MessageKind(7), GroupId::MAX);
            let header = Header { kind, role, parked: false, id: 1, actor: Actor(2), payer };
            assert_eq!(Header::split(&header.to_bytes()), Some((header, &[][..])));
        }
    }
}
