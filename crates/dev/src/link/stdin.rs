//! How much of its stdin the program is given.
//!
//! At home a program takes from its stdin what it reads and leaves the rest to whoever comes next: in
//! `while read x; do ./cob run -- prog; done <file` the lines belong to the loop. So the host reads its descriptor
//! only within the credit that we give. But a credit for each read alone is a round trip through two machines
//! for each read.
//!
//! The rule: ahead of the program we never ask for more than it has already read, or is asking for now. The
//! first `read` of a line gets what it asks for and nothing else; after a megabyte the full window is under way.
//!
//! Credit is counted in charge (payload + FRAME_COST, see crate `link`). `granted` is what the host may still
//! send as far as we know; frames on the way are still in it, so the host never has more than that.

use alloc::{collections::VecDeque, vec::Vec};

use link::{charge, LinkError, FRAME_COST, STDIN_WINDOW};

use super::StdinReady;

pub struct Stdin {
    /// Frames not yet read to the end, and how far the first one is.
    frames: VecDeque<Vec<u8>>,
    offset: usize,
    bytes: usize,
    /// Charge of `frames`.
    held: u32,
    granted: u32,
    read: u64,
    end: bool,
}

impl Stdin {
    pub fn new() -> Self {
        Stdin { frames: VecDeque::new(), offset: 0, bytes: 0, held: 0, granted: 0, read: 0, end: false }
    }

    pub fn arrived(&mut self, bytes: Vec<u8>) -> Result<(), LinkError> {
        let cost = charge(bytes.len());
        self.granted = self.granted.checked_sub(cost).ok_or(LinkError::CreditOverflow)?;
        if bytes.is_empty() {
            // Nothing to hold, but it was paid for; the next grant makes up for it.
            return Ok(());
        }
        self.held += cost;
        self.bytes += bytes.len();
        self.frames.push_back(bytes);
        Ok(())
    }

    pub fn end(&mut self) {
        self.end = true;
    }

    pub fn ready(&self) -> StdinReady {
        StdinReady { bytes: self.bytes, end: self.end }
    }

    /// Fills the beginning of `buffer`; Some(0) at the end; None: wait.
    pub fn read(&mut self, buffer: &mut [u8]) -> Option<usize> {
        if self.bytes == 0 {
            return self.end.then_some(0);
        }
        let mut taken = 0;
        while let Some(frame) = self.frames.front() {
            let rest = &frame[self.offset..];
            let part = rest.len().min(buffer.len() - taken);
            buffer[taken..taken + part].copy_from_slice(&rest[..part]);
            taken += part;
            if part < rest.len() {
                self.offset += part;
                break;
            }
            self.held -= charge(frame.len());
            self.offset = 0;
            self.frames.pop_front();
        }
        self.bytes -= taken;
        self.read += taken as u64;
        Some(taken)
    }

    /// The credit to give now, if any, when the program reads `wanted` bytes at a time; `waiting`: it has none.
    pub fn grant(&mut self, wanted: usize, waiting: bool) -> Option<u32> {
        if self.end {
            return None;
        }
        let ahead = if waiting { self.read.max(wanted as u64) } else { self.read };
        let ahead = ahead.saturating_sub(self.bytes as u64);
        if ahead == 0 {
            return None;
        }
        let target = ahead.saturating_add(u64::from(FRAME_COST)).min(u64::from(STDIN_WINDOW - self.held)) as u32;
        let amount = target.checked_sub(self.granted).filter(|amount| *amount > 0)?;
        // In portions: a reader that has bytes left can let the credit grow to something worth a frame.
        if !waiting && amount < STDIN_WINDOW / 4 {
            return None;
        }
        self.granted += amount;
        Some(amount)
    }
}
