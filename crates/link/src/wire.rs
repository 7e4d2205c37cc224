//! Frames: cutting a byte stream into messages, whatever the pieces it arrives in.

use alloc::vec::Vec;

use crate::LinkError;

/// Bytes of a frame before its payload.
pub const HEADER: usize = 5;

/// The longest payload of any frame. A header that announces more is an error before anything is allocated.
pub const MAX_PAYLOAD: usize = 64 * 1024;

/// What a sender of stream data should put into one frame at most, so that a window holds several frames and
/// the next one travels while the last one is being written out.
pub const MAX_DATA: usize = 16 * 1024;

/// Something that travels in one frame.
pub trait Message: Sized {
    fn kind(&self) -> u8;

    /// Appends the payload, of at most [`MAX_PAYLOAD`] bytes.
    fn payload(&self, out: &mut Vec<u8>);

    fn from_frame(kind: u8, payload: &[u8]) -> Result<Self, LinkError>;

    /// Appends the whole frame. A frame should reach the device in one piece: see `credit.rs`.
    fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.push(self.kind());
        out.extend_from_slice(&[0; 4]);
        self.payload(out);
        let length = out.len() - start - HEADER;
        assert!(length <= MAX_PAYLOAD, "frame of {length} bytes");
        out[start + 1..start + HEADER].copy_from_slice(&(length as u32).to_le_bytes());
    }
}

/// Turns the bytes of the stream into messages. Holds at most one unfinished frame, so the other side can't
/// make it grow beyond `HEADER + MAX_PAYLOAD` bytes.
#[derive(Debug, Default)]
pub struct Decoder {
    partial: Vec<u8>,
}

impl Decoder {
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes bytes off the front of `input` until a message is complete. `None`: all of `input` is taken and
    /// more is needed. After an error the stream is out of step and must be given up.
    pub fn next<M: Message>(&mut self, input: &mut &[u8]) -> Result<Option<M>, LinkError> {
        if !self.fill(HEADER, input) {
            return Ok(None);
        }
        let length = u32::from_le_bytes([self.partial[1], self.partial[2], self.partial[3], self.partial[4]]);
        if length as usize > MAX_PAYLOAD {
            return Err(LinkError::TooLong(length));
        }
        if !self.fill(HEADER + length as usize, input) {
            return Ok(None);
        }
        let message = M::from_frame(self.partial[0], &self.partial[HEADER..]);
        self.partial.clear();
        message.map(Some)
    }

    /// True if the stream ended between two frames.
    pub fn is_empty(&self) -> bool {
        self.partial.is_empty()
    }

    fn fill(&mut self, wanted: usize, input: &mut &[u8]) -> bool {
        let missing = wanted.saturating_sub(self.partial.len());
        let (taken, rest) = input.split_at(missing.min(input.len()));
        self.partial.extend_from_slice(taken);
        *input = rest;
        self.partial.len() >= wanted
    }
}
