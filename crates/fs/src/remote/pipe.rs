//! Holding data in a pipe of another kernel, for splice and tee (pipe/hold.rs). The pipe's kernel keeps the hold under a number, until
//! the holder says how much was taken, or dies.
//!
//! ```text
//! holder (K)                                 the pipe's kernel
//! -- PipeHold ------------------------------> waits for bytes; holds them; numbers the hold
//! <------------------- the bytes, a number --
//! writes them elsewhere                       other readers wait
//! -- PipeLetGo(number, taken) --------------> the bytes go, the readers come
//! ```
//!
//! If the caller has gone when the answer comes, the [`HeldThere`] that the answer makes is dropped, which sends `PipeLetGo`.

use super::{file::interrupted, loan, loan::Loan, Remote, RemoteFile};
use crate::file::HeldBytes;
use alloc::{boxed::Box, collections::BTreeMap, sync::Arc, vec::Vec};
use machine::{errno::Result, sync::Lock, BoxFuture, Errno, KernelId, Memory, Serials, Shield};
use messages::fs::{PipeHold, PipeLetGo, ReadReply, INLINE_BYTES};

/// What other kernels hold of pipes of this one, by kernel and number.
pub(super) struct Holds {
    held: Lock<BTreeMap<(KernelId, u64), Box<dyn HeldBytes>>>,
    /// The numbers. None was used in an earlier boot generation of this kernel, whose holds somebody may still let go of.
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

    /// Takes a hold out. Dropping it wakes readers and writers of the pipe.
    fn remove(&self, holder: KernelId, number: u64) -> Option<Box<dyn HeldBytes>> {
        self.held.lock().remove(&(holder, number))
    }

    /// Ends all holds of a dead kernel.
    pub fn release_all(&self, holder: KernelId) {
        let held: Vec<Box<dyn HeldBytes>> = {
            let mut held = self.held.lock();
            held.extract_if(.., |(by, _), _| *by == holder).map(|(_, hold)| hold).collect()
        };
        drop(held);
    }
}

/// Registers the handlers of [`PipeHold`] and [`PipeLetGo`].
pub(super) fn register(remote: &Arc<Remote>) {
    let serve = remote.endpoint.serve(remote);
    serve.on::<PipeHold, _, _>(|remote, from, message| async move { hold(&remote, from, message).await });
    serve.on_sync(|remote, from, PipeLetGo { number, taken }| {
        if let Some(hold) = remote.holds.remove(from, number) {
            // A pipe of this kernel needs no future for that.
            let _ = hold.take(taken as usize);
        }
    });
}

/// Answers [`PipeHold`].
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
        // Its holds may have been released already, and nobody would release this one.
        drop(remote.holds.remove(from, number));
    }
    Ok(Some((number, taken)))
}

/// A hold on another kernel's pipe. Dropping it lets go of the data and takes nothing.
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
            // Fails if the owner is dead.
            self.remote.note_deed(self.owner);
            let _ = self.remote.endpoint.call(self.owner, PipeLetGo { number: self.number, taken: count as u32 }).await;
            self.remote.note_deed(self.owner);
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
            // Made first, so that it lets go if taking the bytes fails.
            let mut held = Box::new(HeldThere { remote, owner, number, bytes: Vec::new(), over: false });
            held.bytes = loan.receive(taken);
            Ok(Some(held as Box<dyn HeldBytes>))
        };
        self.remote.ask_and_stay(owner, message, accept, shield, true).await.map_err(interrupted)?
    }
}
