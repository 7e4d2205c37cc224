//! Sockets that meet across kernels: what [`crate::socket::UnixNames`] asks of other kernels, and answers.
//!
//! One kernel (that of the root file system) keeps which kernel has a name; the socket itself is known by a
//! number on its own kernel. A name keeps nothing alive, so nothing here holds a reference to a socket: what
//! waits for one (its backlog, its inbox) waits at that kernel for room, and hears there that it has gone.
//!
//! A name that was given up may still be in the table while the message about it is on its way:
//!
//! ```text
//! K1                                  names                              K2
//! close: out of its own table
//! -- UnixUnbind ------------ .
//! writes into a pipe ----------------------------------------------------> reads
//!                             .       <----------------------- UnixClaim --
//!                               .---> too late
//! ```
//!
//! So a claim that finds the name taken asks the holder (UnixBound), whose own table is always right; and an
//! unbinding names the number of the socket, lest it takes the successor out.

use super::{exports::SocketLoan, loan, loan::Loan, Remote};
use crate::{
    control::{SocketMessage, UnixCredentials, UnixPlace},
    socket::UnixNames,
    Caller, File,
};
use alloc::{sync::Arc, vec::Vec};
use machine::{errno::Result, Errno, KernelId, KernelSet, Shield, Spawner};
use messages::fs::*;

/// A socket by its number on another kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FarSocket {
    pub kernel: KernelId,
    pub serial: u64,
}

pub(crate) fn register(remote: &Arc<Remote>, names: &Arc<UnixNames>) {
    let serve = remote.endpoint.serve(names);
    serve.on(|names, from, UnixClaim { place, serial }| async move {
        names.claim(place, FarSocket { kernel: from, serial }).await
    });
    serve.on_sync(|names, from, UnixUnbind { place, serial }| {
        names.unclaim(&place, FarSocket { kernel: from, serial });
    });
    serve.on_sync(|names, _, UnixBound { serial }| names.by_serial(serial).is_ok());
    serve.on_sync(|names, _, UnixFind { place }| {
        let there = names.look_up(&place)?;
        Ok((there.kernel, there.serial))
    });
    serve.on_sync(|names, _, UnixMeet { serial, kind }| names.by_serial(serial)?.meet(kind));
    serve.on_sync(|names, from, UnixAttach { serial, kind, name, wants_credentials, caller }| {
        let (client, listener) = names.by_serial(serial)?.attach(kind, name, wants_credentials, &caller)?;
        let client: Arc<dyn File> = client;
        let remote = names.remote()?;
        Ok((remote.exports.add(remote.me(), &client, from), listener))
    });
    serve.on_sync(|names, _, UnixSuspect {}| names.suspected());
    serve.on(|names, _, UnixSurvey { survey, from }| async move { names.survey_page(survey, from).await });
    serve.on_sync(|_, _, UnixFlush {}| ());
    serve.on_sync(|names, _, UnixGained { survey, nodes }| Ok(names.surveyed(survey)?.gained(&nodes)));
    serve.on(|names, _, UnixEmpty { survey, nodes }| async move { names.empty(survey, nodes).await });
    serve.on_sync(|names, _, UnixForgetSurvey { survey }| names.forget_survey(Some(survey)));
    serve.on(|names, _, UnixRoom { serial }| async move { names.room(serial).await });
    serve.on(|names, _, message: UnixDeliver| async move { deliver(&*names.remote()?, &names, message).await });
}

async fn deliver(remote: &Remote, names: &UnixNames, message: UnixDeliver) -> Result<u64> {
    let UnixDeliver { serial, kind, message, frames, sent } = message;
    // First of all, for the references in it hold counts.
    let mut message = remote.receive_message(message)?;
    loan::check(&*remote.memory, &frames, sent as usize)?;
    if sent > 0 {
        message.bytes = loan::copy_out(&*remote.memory, &frames, sent as usize);
    }
    Ok(names.by_serial(serial)?.deliver(kind, message)? as u64)
}

impl Remote {
    pub(crate) fn is_me(&self, kernel: KernelId) -> bool {
        kernel == self.me()
    }

    pub(crate) async fn unix_claim(&self, names: KernelId, place: UnixPlace, serial: u64) -> Result<()> {
        let (remote, given_up) = (self.shared(), UnixUnbind { place: place.clone(), serial });
        let stray = move |claimed: Result<()>| {
            if claimed.is_ok() {
                // The one who wanted it has gone.
                let _ = remote.endpoint.send(names, given_up);
            }
        };
        self.ask(names, UnixClaim { place, serial }, |reply| reply, stray).await?
    }

    pub(crate) fn unix_unbind(&self, names: KernelId, place: UnixPlace, serial: u64) {
        // If it has died, so have its names.
        let _ = self.endpoint.send(names, UnixUnbind { place, serial });
    }

    pub(crate) async fn unix_is_bound(&self, there: FarSocket) -> bool {
        self.endpoint.call(there.kernel, UnixBound { serial: there.serial }).await.unwrap_or(false)
    }

    pub(crate) async fn unix_find(&self, names: KernelId, place: UnixPlace) -> Result<FarSocket> {
        let (kernel, serial) = self.endpoint.call(names, UnixFind { place }).await??;
        Ok(FarSocket { kernel, serial })
    }

    pub(crate) async fn unix_meet(&self, there: FarSocket, kind: u32) -> Result<Vec<u8>> {
        self.endpoint.call(there.kernel, UnixMeet { serial: there.serial, kind }).await.map_err(gone)?
    }

    /// The client's end of a new connection.
    pub(crate) async fn unix_attach(
        &self,
        there: FarSocket,
        kind: u32,
        name: Vec<u8>,
        wants_credentials: bool,
        caller: &Caller,
    ) -> Result<(Arc<dyn File>, Option<UnixCredentials>)> {
        let message = UnixAttach { serial: there.serial, kind, name, wants_credentials, caller: caller.clone() };
        let remote = self.shared();
        let accept = move |reply: Result<_>| -> Result<_> {
            let (client, listener) = reply?;
            Ok((remote.accept(client)?, listener))
        };
        self.ask(there.kernel, message, accept, drop).await.map_err(gone)?
    }

    /// EAGAIN: no room.
    pub(crate) async fn unix_deliver(
        &self,
        there: FarSocket,
        kind: u32,
        message: &SocketMessage,
        shield: &Shield,
    ) -> Result<usize> {
        // Also while references are counted for `there`.
        let _held = shield.hold();
        let mut message = message.clone();
        let loan = Loan::for_message(&self.memory, message.bytes.len());
        if message.bytes.len() > loan.capacity() {
            return Err(Errno::ENOBUFS);
        }
        let mut sent = 0;
        if !loan.frames().is_empty() {
            loan.fill(&message.bytes);
            sent = core::mem::take(&mut message.bytes).len() as u32;
        }
        let (message, files) = self.send_message(there.kernel, message).await?;
        let message = UnixDeliver { serial: there.serial, kind, message, frames: loan.frames().to_vec(), sent };
        let accept = move |reply: Result<u64>| {
            drop((loan, files));
            reply
        };
        let count = self.ask_and_stay(there.kernel, message, accept, shield, false).await.map_err(gone)??;
        Ok(count as usize)
    }

    /// Returns when `there` may have room again.
    pub(crate) async fn unix_room(&self, there: FarSocket) -> Result<()> {
        self.endpoint.call(there.kernel, UnixRoom { serial: there.serial }).await.map_err(gone)?
    }
}

/// Circles of sockets that hold each other ([`crate::socket`]).
impl Remote {
    pub(crate) fn spawner(&self) -> &dyn Spawner {
        &*self.spawner
    }

    /// This kernel and all others.
    pub(crate) fn present(&self) -> KernelSet {
        self.endpoint.present()
    }

    /// What other kernels have of a file of this one.
    pub(crate) fn loan_of(&self, file: &Arc<dyn File>) -> Option<SocketLoan> {
        self.exports.loan_of(file)
    }

    pub(crate) fn unix_suspect(&self, names: KernelId) {
        let _ = self.endpoint.send(names, UnixSuspect {});
    }

    pub(crate) async fn unix_survey(&self, of: KernelId, survey: u64, from: (u32, u32)) -> Result<SurveyPage> {
        self.endpoint.call(of, UnixSurvey { survey, from }).await?
    }

    /// Returns when `owner` has heard of all references that this kernel has handed on, received or given back.
    pub(crate) async fn unix_flush(&self, owner: KernelId) -> Result<()> {
        Ok(self.endpoint.call(owner, UnixFlush {}).await?)
    }

    pub(crate) async fn unix_gained(&self, of: KernelId, survey: u64, nodes: Vec<u32>) -> Result<Vec<u32>> {
        self.endpoint.call(of, UnixGained { survey, nodes }).await?
    }

    pub(crate) async fn unix_empty(&self, of: KernelId, survey: u64, nodes: Vec<u32>) -> Result<()> {
        self.endpoint.call(of, UnixEmpty { survey, nodes }).await?
    }

    pub(crate) fn unix_forget_survey(&self, of: KernelId, survey: u64) {
        let _ = self.endpoint.send(of, UnixForgetSurvey { survey });
    }
}

/// A socket of a kernel that died refuses.
fn gone(error: fabric::CallError) -> Errno {
    match Errno::from(error) {
        Errno::EIO => Errno::ECONNREFUSED,
        error => error,
    }
}
