//! Messages of netlink (RFC 3549): a header, a structure that the type of the message says, then attributes, each with its length and
//! its type. All begin at multiples of four bytes; numbers are the machine's.

use alloc::vec::Vec;
use linux_raw_sys::netlink::{NLMSG_DONE, NLMSG_ERROR, NLM_F_CAPPED, NLM_F_MULTI};
use machine::Errno;

/// `struct nlmsghdr`.
pub const HEADER: usize = 16;
/// `struct nlattr`.
const ATTRIBUTE: usize = 4;
/// Of an attribute's type: there are attributes in it; its numbers are in network order.
const TYPE_FLAGS: u16 = 0xc000;

/// A message that a program sent.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    pub kind: u16,
    pub flags: u16,
    pub sequence: u32,
    /// Behind the header.
    pub body: &'a [u8],
    /// With the header.
    pub whole: &'a [u8],
}

fn half(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).and_then(|bytes| bytes.try_into().ok()).map_or(0, u16::from_ne_bytes)
}

/// The word at `at`; 0 behind the end.
pub fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_ne_bytes)
}

impl Request<'_> {
    /// The byte of its structure at `at`; 0 behind the end.
    pub fn byte(&self, at: usize) -> u8 {
        self.body.get(at).copied().unwrap_or(0)
    }

    pub fn word(&self, at: usize) -> u32 {
        word(self.body, at)
    }

    /// The attributes behind a structure of `size` bytes.
    pub fn attributes(&self, size: usize) -> Attributes<'_> {
        Attributes(self.body.get(size.next_multiple_of(4)..).unwrap_or_default())
    }
}

/// The messages in what one call sent. What is not whole, and all behind it, is not looked at.
pub struct Requests<'a>(pub &'a [u8]);

impl<'a> Iterator for Requests<'a> {
    type Item = Request<'a>;

    fn next(&mut self) -> Option<Request<'a>> {
        let length = word(self.0, 0) as usize;
        if self.0.len() < HEADER || length < HEADER || length > self.0.len() {
            return None;
        }
        let whole = &self.0[..length];
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or_default();
        let (kind, flags, sequence) = (half(whole, 4), half(whole, 6), word(whole, 8));
        Some(Request { kind, flags, sequence, body: &whole[HEADER..], whole })
    }
}

/// Types and values.
pub struct Attributes<'a>(&'a [u8]);

impl<'a> Attributes<'a> {
    /// The last one of this type.
    pub fn find(self, kind: u32) -> Option<&'a [u8]> {
        self.filter(|(found, _)| u32::from(*found) == kind).last().map(|(_, value)| value)
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<(u16, &'a [u8])> {
        let length = usize::from(half(self.0, 0));
        if length < ATTRIBUTE || length > self.0.len() {
            return None;
        }
        let attribute = (half(self.0, 2) & !TYPE_FLAGS, &self.0[ATTRIBUTE..length]);
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(attribute)
    }
}

/// The answers to one request, as one datagram.
pub struct Answers {
    pub bytes: Vec<u8>,
    /// Of each message.
    pub flags: u32,
    pub sequence: u32,
    /// Whose request it was.
    pub port: u32,
}

impl Answers {
    pub fn new(request: &Request<'_>, port: u32) -> Self {
        Answers { bytes: Vec::new(), flags: 0, sequence: request.sequence, port }
    }

    /// More of the answers, in another datagram.
    pub fn continued(&self) -> Self {
        Answers { bytes: Vec::new(), ..*self }
    }

    /// Adds a message with a structure and what `fill` puts behind it.
    pub fn message(&mut self, kind: u32, structure: &[u8], fill: impl FnOnce(&mut Self)) {
        let start = self.bytes.len();
        self.put(&[0; 4]);
        self.put(&(kind as u16).to_ne_bytes());
        self.put(&(self.flags as u16).to_ne_bytes());
        self.put(&self.sequence.to_ne_bytes());
        self.put(&self.port.to_ne_bytes());
        self.put(structure);
        fill(self);
        let length = (self.bytes.len() - start) as u32;
        self.bytes[start..start + 4].copy_from_slice(&length.to_ne_bytes());
        self.align();
    }

    /// A dump's end, with an error if it could not go on.
    pub fn done(&mut self, error: Option<Errno>) {
        self.flags |= NLM_F_MULTI;
        self.message(NLMSG_DONE, &code(error), |_| ());
    }

    /// An acknowledgement, or an error: then with all of the request unless `capped`.
    pub fn acknowledge(&mut self, request: &Request<'_>, error: Option<Errno>, capped: bool) {
        let given = match error.is_none() || capped {
            true => &request.whole[..HEADER],
            false => request.whole,
        };
        self.flags = if given.len() < request.whole.len() || error.is_none() { NLM_F_CAPPED } else { 0 };
        self.message(NLMSG_ERROR, &code(error), |answers| {
            answers.put(given);
            answers.align();
        });
    }

    pub fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    fn align(&mut self) {
        let padding = self.bytes.len().next_multiple_of(4) - self.bytes.len();
        self.put(&[0; 3][..padding]);
    }

    pub fn attribute(&mut self, kind: u32, value: &[u8]) {
        self.nest(kind, |answers| answers.put(value));
    }

    pub fn number(&mut self, kind: u32, value: u32) {
        self.attribute(kind, &value.to_ne_bytes());
    }

    /// An attribute with what `fill` puts into it.
    pub fn nest(&mut self, kind: u32, fill: impl FnOnce(&mut Self)) {
        let start = self.bytes.len();
        self.put(&[0; 2]);
        self.put(&(kind as u16).to_ne_bytes());
        fill(self);
        let length = (self.bytes.len() - start) as u16;
        self.bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        self.align();
    }
}

fn code(error: Option<Errno>) -> [u8; 4] {
    error.map_or(0, |errno| -i32::from(errno.0)).to_ne_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(body: &[u8]) -> Vec<u8> {
        let mut bytes = ((HEADER + body.len()) as u32).to_ne_bytes().to_vec();
        bytes.extend([18, 0, 1, 3, 7, 0, 0, 0, 0, 0, 0, 0]);
        bytes.extend(body);
        bytes
    }

    #[test]
    fn messages_end_where_one_is_not_whole() {
        let one = request(&[1, 2, 3, 4]);
        let two = [&one[..], &one, &[200, 0, 0, 0], &[0; 12]].concat();
        assert_eq!(Requests(&two).count(), 2);
        let first = Requests(&one).next().unwrap();
        assert_eq!((first.kind, first.flags, first.sequence, first.word(0)), (18, 0x301, 7, 0x0403_0201));
        assert_eq!((Requests(&one[..19]).count(), Requests(&[0; 64]).count(), first.word(4)), (0, 0, 0));
    }

    #[test]
    fn attributes_are_aligned_and_nest() {
        let bytes = request(&[]);
        let mut answers = Answers::new(&Requests(&bytes).next().unwrap(), 9);
        answers.message(16, &[0; 4], |answers| {
            answers.attribute(3, b"lo\0");
            answers.nest(26, |answers| answers.number(1, 5));
        });
        let answer = Requests(&answers.bytes).next().unwrap();
        let found: Vec<_> = answer.attributes(4).collect();
        assert_eq!(found[0], (3, &b"lo\0"[..]));
        assert_eq!(Attributes(found[1].1).find(1), Some(&5u32.to_ne_bytes()[..]));
        assert_eq!(answers.bytes.len() % 4, 0);
    }

    #[test]
    fn an_error_has_the_request_and_an_acknowledgement_its_header() {
        let bytes = request(&[1; 8]);
        let request = Requests(&bytes).next().unwrap();
        for (error, capped, length) in
            [(Some(Errno::EPERM), false, 44), (Some(Errno::EPERM), true, 36), (None, false, 36)]
        {
            let mut answers = Answers::new(&request, 9);
            answers.acknowledge(&request, error, capped);
            assert_eq!(answers.bytes.len(), length);
            assert_eq!(word(&answers.bytes, HEADER) as i32, error.map_or(0, |errno| -i32::from(errno.0)));
        }
    }
}
