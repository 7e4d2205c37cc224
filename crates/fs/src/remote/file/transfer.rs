//! Reading and writing a file of another kernel. Each message moves some bytes; many travel in lent frames.

use super::{Loan, RemoteFile};
use crate::{
    file::{Access, Source},
    waiting::{Patience, MUST_WAIT},
};
use alloc::sync::Arc;
use machine::{collections::try_filled, errno::Result, Errno, PAGE_SIZE};
use messages::fs::{Data, FileRead, FileWrite, ReadReply, WaitPlace};

/// Bytes of a write. They are copied into the frames once, however often the owner is asked to take them.
struct Payload {
    bytes: usize,
    data: Data,
    loan: Arc<Loan>,
}

impl RemoteFile {
    /// How many of `wanted` bytes one message moves, and frames for them. A terminal gets one page at most: the frames are lent while
    /// its kernel waits, and a terminal's input is no longer. A datagram goes whole. ENOBUFS: there are not enough frames for it.
    fn loan(&self, wanted: usize) -> Result<(usize, Loan)> {
        let memory = &self.remote.memory;
        let loan = match self.waiting {
            WaitPlace::AtOwner => Loan::for_bytes(memory, wanted.min(PAGE_SIZE)),
            WaitPlace::Socket(kind) if !kind.is_stream() => Loan::for_message(memory, wanted),
            _ => Loan::for_bytes(memory, wanted),
        };
        let room = match self.waiting {
            WaitPlace::AtOwner => loan.capacity().min(PAGE_SIZE),
            WaitPlace::Socket(kind) if !kind.is_stream() && wanted.min(Loan::LONGEST_MESSAGE) > loan.capacity() => {
                return Err(Errno::ENOBUFS)
            }
            _ => loan.capacity(),
        };
        Ok((wanted.min(room), loan))
    }

    /// Takes the first bytes of `from`, as many as one message moves. Errors: NEEDS_BUFFER, ENOBUFS.
    fn payload(&self, from: &mut Source<'_>) -> Result<Payload> {
        let (bytes, loan) = self.loan(from.len())?;
        let data = match loan.frames().is_empty() {
            true => {
                let mut inline = try_filled(bytes, 0)?;
                from.take(&mut inline)?;
                Data::Inline(inline)
            }
            false => {
                loan.fill_from(from, bytes)?;
                Data::Frames(loan.frames().to_vec(), bytes as u32)
            }
        };
        Ok(Payload { bytes, data, loan: Arc::new(loan) })
    }

    /// Reads with one message. With `waits` the owner waits until there is data.
    async fn read_once(&self, buf: &mut [u8], access: Access<'_>, waits: bool) -> Result<usize> {
        let (bytes, loan) = self.loan(buf.len())?;
        let message = FileRead {
            id: self.name.id,
            at: access.at,
            bytes: bytes as u32,
            frames: loan.frames().to_vec(),
            wait: waits,
            caller: access.caller().filter(|_| self.waiting == WaitPlace::AtOwner).cloned(),
        };
        let accept = move |reply: Result<ReadReply>| -> Result<(ReadReply, Loan)> { Ok((reply?, loan)) };
        let (taken, loan) = self.ask_and_stay(message, accept, access.caller(), waits).await??;
        Ok(loan.receive_into(taken, &mut buf[..bytes]))
    }

    /// Offers the owner the payload once.
    async fn write_once(&self, payload: &Payload, access: Access<'_>) -> Result<usize> {
        let message = FileWrite {
            id: self.name.id,
            at: access.at,
            data: payload.data.clone(),
            wait: !self.tries(),
            caller: access.caller().filter(|_| !matches!(self.waiting, WaitPlace::Never | WaitPlace::Here)).cloned(),
        };
        // The frames stay lent until the owner has answered, even if nobody waits for that any more.
        let loan = payload.loan.clone();
        let accept = move |reply: Result<u64>| {
            drop(loan);
            reply
        };
        let count = self.ask_and_stay(message, accept, access.caller(), self.waiting == WaitPlace::AtOwner).await??;
        Ok((count as usize).min(payload.bytes))
    }

    /// Whether the owner only tries, and this kernel waits.
    pub(super) fn tries(&self) -> bool {
        matches!(self.waiting, WaitPlace::Here | WaitPlace::Epoll | WaitPlace::Socket(_) | WaitPlace::Signals)
    }

    /// Reads until `buf` is full or the file ends. What only comes in time (a stream) is read with one message.
    pub(super) async fn read_all(&self, buf: &mut [u8], access: Access<'_>) -> Result<usize> {
        if self.waiting != WaitPlace::Never {
            return self.read_stream(buf, access).await;
        }
        let mut done = 0;
        loop {
            let room = &mut buf[done..];
            let asked = room.len().min(Loan::LARGEST);
            let count = match self.read_once(room, access.after(done), true).await {
                Ok(count) => count,
                Err(errno) if done == 0 => return Err(errno),
                Err(_) => return Ok(done),
            };
            done += count;
            // Less than was asked for is the end of the file.
            if done == buf.len() || count < asked {
                return Ok(done);
            }
        }
    }

    async fn read_stream(&self, buf: &mut [u8], access: Access<'_>) -> Result<usize> {
        let waits_there = match self.waiting {
            WaitPlace::AtOwner => true,
            WaitPlace::Here | WaitPlace::Socket(_) => access.patience == Patience::Waits,
            _ => false,
        };
        if waits_there {
            match self.read_once(buf, access, true).await {
                // The bytes for this socket are on a third kernel: the owner can't wait for them.
                Err(MUST_WAIT) => {}
                read => return read,
            }
        }
        // A closure that lends `buf` to one future after another can't be written; a cell can.
        let cell = machine::sync::AsyncLock::new(buf);
        let (cell, lend) = (&cell, move || access);
        self.insist(access.patience, access.shield(), move || async move {
            let mut buf = cell.lock().await;
            self.read_once(&mut buf, lend(), false).await
        })
        .await
    }

    /// Writes all, or as much as the owner takes. Into a stream it writes as much as one message moves.
    pub(super) async fn write_all(&self, mut from: Source<'_>, access: Access<'_>) -> Result<usize> {
        if self.waiting != WaitPlace::Never {
            let payload = self.payload(&mut from)?;
            return self.insist(access.patience, access.shield(), || self.write_once(&payload, access)).await;
        }
        let mut done = 0;
        loop {
            let written = async {
                let payload = self.payload(&mut from)?;
                Ok((self.write_once(&payload, access.after(done)).await?, payload.bytes))
            };
            match written.await {
                Ok((count, offered)) => {
                    done += count;
                    if count < offered || from.is_empty() {
                        return Ok(done);
                    }
                }
                Err(_) if done > 0 => return Ok(done),
                Err(errno) => return Err(errno),
            }
        }
    }
}
