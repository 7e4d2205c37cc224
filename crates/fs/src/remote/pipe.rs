//! A pipe of another kernel that somebody here holds (pipe/hold.rs): its kernel keeps the hold, by a number, until it is told how
//! much was taken, or this kernel dies.
//!
//! ```text
//! holder (K)                                 the pipe's kernel
//! -- PipeHold ------------------------------> waits for bytes; holds them; numbers the hold
//! <------------------- the bytes, a number --
//! writes them elsewhere                       other readers wait
//! -- PipeLetGo(number, taken) --------------> the bytes go, the readers come
//! ```
//!
//! An answer that comes for somebody who has left makes a [`HeldThere`] all the same, which is dropped, and so lets go.

use super::{file::interrupted, loan, loan::Loan, Remote, RemoteFile};
use crate::file::HeldBytes;
use alloc::{boxed::Box, collections::BTreeMap, sync::Arc, vec::Vec};
use machine::{errno::Result, sync::Lock, BoxFuture, Errno, KernelId, Memory, Serials, Shield};
use messages::fs::{PipeHold, PipeLetGo, ReadReply, INLINE_BYTES};

/// Pipes of this kernel that others hold, by kernel and number.
pub(super) struct Holds {
    held: Lock<BTreeMap<(KernelId, u64), Box<dyn HeldBytes>>>,
    /// Never those of another life of this kernel, which somebody may still let go of.
    serials: Serials,
}

impl Holds {
    pub fn new(memory: &dyn Memory) -> Self {
        Holds { held: Lock::default(), serials: Serials::new(memory) }
    }

    fn add(&self, holder: KernelId, hold: Box<dyn HeldBytes>) -> u64 {
        let number = self.serials.next();
        self.held.lock().insert((holder, number), hold);
        number
    }

    /// To be dropped outside the lock: it wakes.
    fn remove(&self, holder: KernelId, number: u64) -> Option<Box<dyn HeldBytes>> {
        self.held.lock().remove(&(holder, number))
    }

    /// Whatever a dead kernel held.
    pub fn release_all(&self, holder: KernelId) {
        let held: Vec<Box<dyn HeldBytes>> = {
            let mut held = self.held.lock();
            held.extract_if(.., |(by, _), _| *by == holder).map(|(_, hold)| hold).collect()
        };
        drop(held);
    }
}

pub(super) fn register(remote: &Arc<Remote>) {
    let serve = remote.endpoint.serve(remote);
    serve.on::<PipeHold, _, _>(|remote, from, message| async move { hold(&remote, from, message).await });
    serve.on_sync(|remote, from, PipeLetGo { number, taken }| {
        if let Some(hold) = remote.holds.remove(from, number) {
            // Of a pipe of this kernel: at once.
            let _ = hold.take(taken as usize);
        }
    });
}

async fn hold(remote: &Remote, from: KernelId, message: PipeHold) -> Result<Option<(u64, ReadReply)>> {
    let PipeHold { id, bytes, frames, wait } = message;
    let bytes = bytes as usize;
    match frames.is_empty() {
        true if bytes > INLINE_BYTES => return Err(Errno::EINVAL),
        true => {}
        false => loan::check(&*remote.memory, &frames, bytes)?,
    }
    let file = remote.exports.get(id)?;
    let Some(mut hold) = file.hold(&Shield::NONE, bytes, wait).await? else { return Ok(None) };
    let taken = loan::answer(&*remote.memory, &frames, hold.bytes()?);
    let number = remote.holds.add(from, hold);
    if !remote.endpoint.is_alive(from) {
        // What it held may have been released before this, and nobody would release it again.
        drop(remote.holds.remove(from, number));
    }
    Ok(Some((number, taken)))
}

/// It lets go when it is dropped.
struct HeldThere {
    remote: Arc<Remote>,
    owner: KernelId,
    number: u64,
    bytes: Vec<u8>,
    over: bool,
}

impl HeldBytes for HeldThere {
    fn bytes(&mut self) -> Result<Vec<u8>> {
        Ok(core::mem::take(&mut self.bytes))
    }

    fn take(mut self: Box<Self>, count: usize) -> Option<BoxFuture<'static, ()>> {
        Some(Box::pin(async move {
            self.over = true;
            // A dead owner has no pipe any more.
            let _ = self.remote.endpoint.call(self.owner, PipeLetGo { number: self.number, taken: count as u32 }).await;
        }))
    }
}

impl Drop for HeldThere {
    fn drop(&mut self) {
        if !self.over {
            let _ = self.remote.endpoint.send(self.owner, PipeLetGo { number: self.number, taken: 0 });
        }
    }
}

impl RemoteFile {
    pub(super) async fn hold_pipe(
        &self,
        shield: &Shield,
        most: usize,
        wait: bool,
    ) -> Result<Option<Box<dyn HeldBytes>>> {
        let loan = Loan::for_bytes(&self.remote.memory, most);
        let message = PipeHold {
            id: self.name().id,
            bytes: most.min(loan.capacity()) as u32,
            frames: loan.frames().to_vec(),
            wait,
        };
        let (remote, owner) = (self.remote.clone(), self.name().owner);
        let accept = move |reply: Result<Option<(u64, ReadReply)>>| -> Result<_> {
            let Some((number, taken)) = reply? else { return Ok(None) };
            // Before the bytes are looked at: it lets go if those fail.
            let mut held = Box::new(HeldThere { remote, owner, number, bytes: Vec::new(), over: false });
            held.bytes = loan.receive(taken);
            Ok(Some(held as Box<dyn HeldBytes>))
        };
        self.remote.ask_and_stay(owner, message, accept, shield, true).await.map_err(interrupted)?
    }
}
