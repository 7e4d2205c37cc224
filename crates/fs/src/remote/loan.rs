//! Frames that carry the data of one transfer between kernels: of a file, a pipe, a socket, a message queue of System V, the memory
//! of a process. They belong to the kernel that asks, and the kernel that answers copies into or out of them. They may be freed only
//! when it has answered or died. So the loan belongs to the code that takes the answer, which runs even if the caller has gone.

use crate::file::Source;
use alloc::{sync::Arc, vec, vec::Vec};
use machine::{errno::Result, Errno, Frame, Memory, PAGE_SIZE};
use messages::fs::{Data, ReadReply, INLINE_BYTES};

/// The frames of one transfer, released when it is dropped.
pub struct Loan {
    memory: Arc<dyn Memory>,
    frames: Vec<Frame>,
}

impl Loan {
    const FRAMES: usize = 16;
    /// Frames for the longest datagram, which can't be split.
    const MESSAGE_FRAMES: usize = 53;
    /// Bytes of the longest datagram.
    pub const LONGEST_MESSAGE: usize = Self::MESSAGE_FRAMES * PAGE_SIZE;
    /// Bytes of one transfer, of anything but a datagram.
    pub const LARGEST: usize = Self::FRAMES * PAGE_SIZE;

    /// Frames for up to `bytes` bytes. Up to [`INLINE_BYTES`] travel in the message and need none. When memory is short there are
    /// fewer, and the transfer is shorter.
    pub fn for_bytes(memory: &Arc<dyn Memory>, bytes: usize) -> Self {
        Self::up_to(memory, bytes, Self::FRAMES)
    }

    /// The same for a message of a socket.
    pub fn for_message(memory: &Arc<dyn Memory>, bytes: usize) -> Self {
        Self::up_to(memory, bytes, Self::MESSAGE_FRAMES)
    }

    #[expect(clippy::disallowed_methods, reason = "numbers of few frames")]
    fn up_to(memory: &Arc<dyn Memory>, bytes: usize, most: usize) -> Self {
        let wanted = if bytes <= INLINE_BYTES { 0 } else { bytes.div_ceil(PAGE_SIZE).min(most) };
        let mut loan = Loan { memory: memory.clone(), frames: Vec::with_capacity(wanted) };
        while loan.frames.len() < wanted {
            match memory.alloc() {
                Some(frame) => loan.frames.push(frame),
                None => break,
            }
        }
        loan
    }

    /// The frames, for the message.
    pub fn frames(&self) -> &[Frame] {
        &self.frames
    }

    /// How many bytes fit into the frames, or without frames into the message.
    pub fn capacity(&self) -> usize {
        match self.frames.len() {
            0 => INLINE_BYTES,
            count => count * PAGE_SIZE,
        }
    }

    /// Copies `data` into the frames.
    pub fn fill(&self, data: &[u8]) {
        copy_in(&*self.memory, &self.frames, data);
    }

    /// A copy of the first bytes of the frames.
    pub fn collect(&self, bytes: usize) -> Vec<u8> {
        copy_out(&*self.memory, &self.frames, bytes.min(self.frames.len() * PAGE_SIZE))
    }

    /// Copies `data`, which fits, into the frames or into what it answers, for the message.
    pub fn send(&self, data: &[u8]) -> Data {
        match self.frames.len() * PAGE_SIZE {
            // Few bytes, or there was no memory for frames.
            room if room < data.len() || room == 0 => Data::Inline(data.to_vec()),
            _ => {
                self.fill(data);
                Data::Frames(self.frames.clone(), data.len() as u32)
            }
        }
    }

    /// Moves the next `bytes` bytes of `from`, which fit, into the frames. Errors: NEEDS_BUFFER.
    pub fn fill_from(&self, from: &mut Source<'_>, bytes: usize) -> Result<()> {
        for (index, &frame) in self.frames.iter().enumerate() {
            let part = bytes.saturating_sub(index * PAGE_SIZE).min(PAGE_SIZE);
            from.take_frame(&*self.memory, frame, 0, part)?;
        }
        Ok(())
    }

    /// Copies the bytes of an answer to `to`. Answers how many.
    pub fn receive_into(&self, taken: ReadReply, to: &mut [u8]) -> usize {
        match taken {
            ReadReply::Inline(data) => {
                let count = data.len().min(to.len());
                to[..count].copy_from_slice(&data[..count]);
                count
            }
            ReadReply::InFrames(bytes) => {
                let count = (bytes as usize).min(to.len()).min(self.frames.len() * PAGE_SIZE);
                for (&frame, chunk) in self.frames.iter().zip(to[..count].chunks_mut(PAGE_SIZE)) {
                    self.memory.read(frame, 0, chunk);
                }
                count
            }
        }
    }

    /// The bytes of an answer.
    pub fn receive(&self, taken: ReadReply) -> Vec<u8> {
        match taken {
            ReadReply::Inline(data) => data,
            ReadReply::InFrames(bytes) => self.collect(bytes as usize),
        }
    }

    /// Gives the first `count` frames to the caller, and releases the others.
    pub fn keep(mut self, count: usize) -> Vec<Frame> {
        let kept = self.frames.drain(..count.min(self.frames.len())).collect();
        drop(self);
        kept
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        for &frame in &self.frames {
            self.memory.release(frame);
        }
    }
}

/// Copies `data` into the frames.
pub fn copy_in(memory: &dyn Memory, frames: &[Frame], data: &[u8]) {
    for (&frame, chunk) in frames.iter().zip(data.chunks(PAGE_SIZE)) {
        memory.write(frame, 0, chunk);
    }
}

/// A copy of the first `bytes` bytes of the frames.
#[expect(clippy::disallowed_methods, reason = "as many bytes as somebody has given frames for")]
pub fn copy_out(memory: &dyn Memory, frames: &[Frame], bytes: usize) -> Vec<u8> {
    let mut data = vec![0; bytes];
    for (&frame, chunk) in frames.iter().zip(data.chunks_mut(PAGE_SIZE)) {
        memory.read(frame, 0, chunk);
    }
    data
}

/// At the receiver: checks that the frames of a request hold `bytes` bytes and are frames of memory. EINVAL.
pub fn check(memory: &dyn Memory, frames: &[Frame], bytes: usize) -> Result<()> {
    let fits = frames.len() <= Loan::MESSAGE_FRAMES && bytes <= frames.len() * PAGE_SIZE;
    match fits && frames.iter().all(|&frame| memory.home_of(frame).is_some()) {
        true => Ok(()),
        false => Err(Errno::EINVAL),
    }
}

/// At the receiver: the data of a request.
pub fn received(memory: &dyn Memory, data: Data) -> Result<Vec<u8>> {
    match data {
        Data::Inline(data) => Ok(data),
        Data::Frames(frames, bytes) => {
            check(memory, &frames, bytes as usize)?;
            Ok(copy_out(memory, &frames, bytes as usize))
        }
    }
}

/// At the receiver: puts `data` into the frames of a request, which have been checked, or if they have no room into the message.
pub fn answer(memory: &dyn Memory, frames: &[Frame], data: Vec<u8>) -> ReadReply {
    if frames.is_empty() || data.len() > frames.len() * PAGE_SIZE {
        return ReadReply::Inline(data);
    }
    copy_in(memory, frames, &data);
    ReadReply::InFrames(data.len() as u32)
}
