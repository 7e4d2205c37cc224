//! Reading and writing a file of another kernel: message by message, whose bytes travel in lent frames if they are many.

use super::{Loan, RemoteFile};
use crate::{
    file::{Access, Source},
    waiting::{Patience, MUST_WAIT},
};
use alloc::sync::Arc;
use machine::{collections::try_filled, errno::Result, Errno, PAGE_SIZE};
use messages::fs::{Data, FileRead, FileWrite, ReadReply, WaitPlace};

/// Bytes for the owner, which stay in their frames however often they are offered.
struct Payload {
    bytes: usize,
    data: Data,
    loan: Arc<Loan>,
}

impl RemoteFile {
    /// Frames for what one message asks for or brings, of `wanted` bytes. A terminal's kernel keeps them while it waits, whoever it does so for;
    /// a terminal's input is a page at most, and its output goes on with the next. A datagram goes whole. ENOBUFS.
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

    /// The first bytes of `from`. Errors: NEEDS_BUFFER, ENOBUFS.
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

    /// One message's worth of reading; `waits`: the owner waits until there is something.
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

    /// Does the owner only try, and the caller wait here?
    pub(super) fn tries(&self) -> bool {
        matches!(self.waiting, WaitPlace::Here | WaitPlace::Epoll | WaitPlace::Socket(_) | WaitPlace::Signals)
    }

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
                // What this socket reads is on a third kernel.
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

    /// Writes as much as one message takes of what goes into a stream, else all, or as much as the owner takes.
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
