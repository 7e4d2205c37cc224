//! Reading and writing a file of another kernel: message by message, whose bytes travel in lent frames if they are many.

use super::{shield_of, Loan, RemoteFile};
use crate::{
    file::APPEND_AT,
    waiting::{Patience, MUST_WAIT},
    Caller,
};
use alloc::vec::Vec;
use machine::{errno::Result, PAGE_SIZE};
use messages::fs::{FileRead, FileWrite, ReadReply, WaitPlace, INLINE_BYTES};

impl RemoteFile {
    /// How many bytes one message asks for or brings. A terminal's kernel keeps them while it waits, whoever it does so for; a terminal's
    /// input is a page at most, and its output goes on with the next.
    fn most(&self) -> usize {
        match self.waiting {
            WaitPlace::AtOwner => PAGE_SIZE,
            _ => Loan::LARGEST,
        }
    }

    /// One message's worth of reading; `waits`: the owner waits until there is something.
    async fn read_once(&self, buf: &mut [u8], at: Option<u64>, caller: Option<&Caller>, waits: bool) -> Result<usize> {
        let room = buf.len().min(self.most());
        let buf = &mut buf[..room];
        let loan = Loan::for_bytes(&self.remote.memory, buf.len());
        let bytes = buf.len().min(loan.capacity()) as u32;
        let message = FileRead {
            id: self.name.id,
            at,
            bytes,
            frames: loan.frames().to_vec(),
            wait: waits,
            caller: caller.filter(|_| self.waiting == WaitPlace::AtOwner).cloned(),
        };
        let accept = move |reply: Result<ReadReply>| -> Result<Vec<u8>> { Ok(loan.receive(reply?)) };
        let data = self.ask_and_stay(message, accept, caller, waits).await??;
        let count = data.len().min(buf.len());
        buf[..count].copy_from_slice(&data[..count]);
        Ok(count)
    }

    async fn write_once(&self, buf: &[u8], at: Option<u64>, caller: Option<&Caller>) -> Result<usize> {
        let buf = &buf[..buf.len().min(self.most())];
        let loan = Loan::for_bytes(&self.remote.memory, buf.len());
        let buf = &buf[..buf.len().min(loan.capacity())];
        let message = FileWrite {
            id: self.name.id,
            at,
            data: loan.send(buf),
            wait: !self.tries(),
            caller: caller.filter(|_| !matches!(self.waiting, WaitPlace::Never | WaitPlace::Here)).cloned(),
        };
        // The frames stay lent until the owner has answered, even if nobody waits for that any more.
        let accept = move |reply: Result<u64>| {
            drop(loan);
            reply
        };
        let count = self.ask_and_stay(message, accept, caller, self.waiting == WaitPlace::AtOwner).await??;
        Ok((count as usize).min(buf.len()))
    }

    /// Does the owner only try, and the caller wait here?
    pub(super) fn tries(&self) -> bool {
        matches!(self.waiting, WaitPlace::Here | WaitPlace::Socket { .. } | WaitPlace::Signals)
    }

    pub(super) async fn read_all(
        &self,
        buf: &mut [u8],
        at: Option<u64>,
        caller: Option<&Caller>,
        patience: Patience,
    ) -> Result<usize> {
        if self.waiting != WaitPlace::Never {
            return self.read_stream(buf, at, caller, patience).await;
        }
        let mut done = 0;
        loop {
            let offset = at.map(|at| at + done as u64);
            let room = &mut buf[done..];
            let asked = room.len().min(Loan::LARGEST);
            let count = match self.read_once(room, offset, caller, true).await {
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

    async fn read_stream(
        &self,
        buf: &mut [u8],
        at: Option<u64>,
        caller: Option<&Caller>,
        patience: Patience,
    ) -> Result<usize> {
        let waits_there = match self.waiting {
            WaitPlace::AtOwner => true,
            WaitPlace::Here | WaitPlace::Socket { .. } => patience == Patience::Waits,
            _ => false,
        };
        if waits_there {
            match self.read_once(buf, at, caller, true).await {
                // What this socket reads is on a third kernel.
                Err(MUST_WAIT) => {}
                read => return read,
            }
        }
        // A closure that lends `buf` to one future after another can't be written; a cell can.
        let cell = machine::sync::AsyncLock::new(buf);
        let (cell, lend) = (&cell, move || at);
        self.insist(patience, shield_of(caller), move || async move {
            let mut buf = cell.lock().await;
            self.read_once(&mut buf, lend(), caller, false).await
        })
        .await
    }

    pub(super) async fn write_all(
        &self,
        buf: &[u8],
        at: Option<u64>,
        caller: Option<&Caller>,
        patience: Patience,
    ) -> Result<usize> {
        if self.waiting != WaitPlace::Never {
            return self.insist(patience, shield_of(caller), || self.write_once(buf, at, caller)).await;
        }
        let mut done = 0;
        loop {
            let offset = at.map(|at| if at == APPEND_AT { at } else { at + done as u64 });
            let left = buf.len() - done;
            match self.write_once(&buf[done..], offset, caller).await {
                Ok(0) => return Ok(done),
                // The owner was given all that is left, and has taken no more.
                Ok(count) if count < left && left <= INLINE_BYTES => return Ok(done + count),
                Ok(count) => done += count,
                Err(errno) if done == 0 => return Err(errno),
                Err(_) => return Ok(done),
            }
            if done == buf.len() {
                return Ok(done);
            }
        }
    }
}
