//! Sockets that meet across kernels: what [`crate::socket::NetNamespace`] asks of other kernels, and answers.
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
//! So it is with ports (PortRelease, PortClaiming; PortHeld asks).
//!
//! So a claim that finds the name taken asks the holder (UnixBound), whose own table is always right; and an
//! unbinding names the number of the socket, lest it takes the successor out.

use super::{leased, loan, loan::Loan, Remote};
use crate::{
    control::{SocketMessage, UnixPlace},
    socket::{Connecting, Datagram, FarSocket, Lent, NetNamespace, OtherKernels, SocketLoan},
    Caller, File, FileRef,
};
use alloc::{
    boxed::Box,
    sync::{Arc, Weak},
    vec::Vec,
};
use machine::{errno::Result, BoxFuture, Errno, Frame, KernelId, KernelSet, Serials, Shield, Spawner};
use messages::fs::*;

fn register(remote: &Arc<Remote>, names: &Arc<NetNamespace>) {
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
    serve.on(|names, from, PortClaiming { claim, serial }| async move {
        names.claim_for(FarSocket { kernel: from, serial }, claim).await
    });
    serve.on_sync(|names, _, PortHeld { protocol, port, serial }| names.held_port(protocol, port, serial));
    serve.on_sync(|names, from, PortRelease { protocol, port, serial, until }| {
        names.claims().release(FarSocket { kernel: from, serial }, protocol, port, until);
    });
    serve.on_sync(|names, _, PortFind { protocol, to, from }| {
        let there = names.claims().find(protocol, to, from)?;
        Ok((there.kernel, there.serial))
    });
    serve.on_sync(|names, _, PingGroups {}| names.ping_groups());
    serve.on_sync(|names, _, UnixMeet { serial, kind }| names.by_serial(serial)?.meet(kind));
    serve.on_sync(|names, from, UnixAttach { serial, kind, end, name, ends, caller }| {
        let client = Connecting { kind, end: FarSocket { kernel: from, serial: end }, name, ends };
        names.by_serial(serial)?.attach_from(client, &caller)
    });
    let this = Arc::downgrade(remote);
    serve.on_sync(move |names, from, message: SocketSend| {
        if let Some(remote) = this.upgrade() {
            remote.receive_sent(&names, from, message);
        }
    });
    serve.on_sync(|names, _, SocketCredited { to, credit }| {
        if let Ok(socket) = names.by_serial(to) {
            socket.credited(credit);
        }
    });
    serve.on_sync(|names, _, SocketWant { to, room, buffer }| names.by_serial(to)?.wanted(room, buffer));
    serve.on_sync(|names, from, SocketMove { to, end: (kernel, serial) }| {
        names.end_moves(to, FarSocket { kernel, serial }, from)
    });
    serve.on_sync(|names, _, SocketChanged { to, change }| {
        if let Ok(socket) = names.by_serial(to) {
            socket.changed_there(change);
        }
    });
    serve.on_sync(|names, _, SocketsListed { protocol, from }| names.listed(protocol, from));
    serve.on(|names, _, SocketReceived { to }| async move { names.received(to).await });
    serve.on_sync(|names, _, UnixSuspect {}| names.suspected());
    serve.on(|names, _, UnixSurvey { survey, from }| async move { names.survey_page(survey, from).await });
    serve.on_sync(|_, _, UnixFlush {}| ());
    serve.on_sync(|names, _, UnixGained { survey, nodes }| Ok(names.surveyed(survey)?.gained(&nodes)));
    serve.on(|names, _, UnixEmpty { survey, nodes }| async move { names.empty(survey, nodes).await });
    serve.on_sync(|names, _, UnixForgetSurvey { survey }| names.forget_survey(Some(survey)));
    serve.on(|names, _, UnixRoom { serial, bytes, sender }| async move {
        let datagram = Datagram { bytes: bytes as usize, sender };
        names.room(serial, datagram).await
    });
    let this = Arc::downgrade(remote);
    serve.on(move |names, _, message: UnixDeliver| {
        let remote = this.upgrade().ok_or(Errno::ECONNREFUSED);
        async move { deliver(&*remote?, &names, message) }
    });
}

fn deliver(remote: &Remote, names: &NetNamespace, message: UnixDeliver) -> Result<u64> {
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
    /// What a connection's end has sent to one of this kernel; a reset goes back if that is closed.
    fn receive_sent(&self, names: &NetNamespace, from: KernelId, message: SocketSend) {
        let SocketSend { to, from: sender, credit, message, frames, sent } = message;
        let end = names.by_serial(to);
        let arrived = self.receive_message(message).and_then(|mut message| {
            let end = end.as_ref().map_err(|error| *error)?;
            loan::check(&*self.memory, &frames, sent as usize)?;
            if sent > 0 {
                message.bytes = loan::copy_out(&*self.memory, &frames, sent as usize);
            }
            end.arrive(message, credit)
        });
        if arrived.is_err() {
            self.tell(FarSocket { kernel: from, serial: sender }, SocketChange::reset());
            // A message that nobody understands: both ends hear of it.
            if let Ok(end) = end {
                end.changed_there(SocketChange::reset());
            }
        }
    }

    /// Sockets of this kernel, whose names are `names`, and those of others find each other from now on; `keeper` has the names of all.
    pub fn join_sockets(self: &Arc<Self>, names: &Arc<NetNamespace>, keeper: KernelId) {
        *self.sockets.lock() = Arc::downgrade(names);
        names.join(self.clone(), keeper);
        register(self, names);
    }

    async fn deliver_message(
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
}

impl OtherKernels for Remote {
    fn me(&self) -> KernelId {
        Remote::me(self)
    }

    fn present(&self) -> KernelSet {
        self.endpoint.present()
    }

    fn first_serial(&self) -> u64 {
        Serials::new(&*self.memory).next()
    }

    fn kernels(&self) -> usize {
        self.endpoint.kernels()
    }

    fn run(&self, task: BoxFuture<'static, ()>) {
        self.spawner.spawn(task);
    }

    fn spawner(&self) -> &dyn Spawner {
        &*self.spawner
    }

    fn claim(&self, keeper: KernelId, place: UnixPlace, serial: u64) -> BoxFuture<'_, Result<()>> {
        let (remote, given_up) = (self.shared(), UnixUnbind { place: place.clone(), serial });
        let stray = move |claimed: Result<()>| {
            if claimed.is_ok() {
                // The one who wanted it has gone.
                let _ = remote.endpoint.send(keeper, given_up);
            }
        };
        Box::pin(async move { self.ask(keeper, UnixClaim { place, serial }, |reply| reply, stray).await? })
    }

    fn unbind(&self, keeper: KernelId, place: UnixPlace, serial: u64) {
        // If it has died, so have its names.
        let _ = self.endpoint.send(keeper, UnixUnbind { place, serial });
    }

    fn find(&self, keeper: KernelId, place: UnixPlace) -> BoxFuture<'_, Result<FarSocket>> {
        Box::pin(async move {
            let (kernel, serial) = self.endpoint.call(keeper, UnixFind { place }).await??;
            Ok(FarSocket { kernel, serial })
        })
    }

    fn is_bound(&self, there: FarSocket) -> BoxFuture<'_, bool> {
        let message = UnixBound { serial: there.serial };
        Box::pin(async move { self.endpoint.call(there.kernel, message).await.unwrap_or(false) })
    }

    fn claim_port(&self, keeper: KernelId, claim: PortClaim, serial: u64) -> BoxFuture<'_, Result<()>> {
        let (remote, given_up) =
            (self.shared(), PortRelease { protocol: claim.protocol, port: claim.at.port, serial, until: 0 });
        let stray = move |claimed: Result<()>| {
            if claimed.is_ok() {
                // The one who wanted it has gone.
                let _ = remote.endpoint.send(keeper, given_up);
            }
        };
        Box::pin(async move { self.ask(keeper, PortClaiming { claim, serial }, |reply| reply, stray).await? })
    }

    fn release_port(&self, keeper: KernelId, protocol: u8, port: u16, serial: u64, until: u64) {
        // If it has died, so have its claims.
        let _ = self.endpoint.send(keeper, PortRelease { protocol, port, serial, until });
    }

    fn held_port(&self, there: FarSocket, protocol: u8, port: u16) -> BoxFuture<'_, Option<PortClaim>> {
        let message = PortHeld { protocol, port, serial: there.serial };
        Box::pin(async move { self.endpoint.call(there.kernel, message).await.unwrap_or(None) })
    }

    fn find_port(
        &self,
        keeper: KernelId,
        protocol: u8,
        to: InternetAddress,
        from: InternetAddress,
    ) -> BoxFuture<'_, Result<FarSocket>> {
        let message = PortFind { protocol, to, from };
        Box::pin(async move {
            let (kernel, serial) = self.endpoint.call(keeper, message).await.map_err(gone)??;
            Ok(FarSocket { kernel, serial })
        })
    }

    fn ping_groups(&self, keeper: KernelId) -> BoxFuture<'_, Result<(u32, u32)>> {
        Box::pin(async move { Ok(self.endpoint.call(keeper, PingGroups {}).await?) })
    }

    fn meet(&self, there: FarSocket, kind: u32) -> BoxFuture<'_, Result<Vec<u8>>> {
        let message = UnixMeet { serial: there.serial, kind };
        Box::pin(async move { self.endpoint.call(there.kernel, message).await.map_err(gone)? })
    }

    fn attach<'a>(
        &'a self,
        there: FarSocket,
        client: Connecting,
        caller: &'a Caller,
    ) -> BoxFuture<'a, Result<SocketAttached>> {
        let Connecting { kind, end, name, ends } = client;
        let message = UnixAttach { serial: there.serial, kind, end: end.serial, name, ends, caller: caller.clone() };
        let remote = self.shared();
        let stray = move |made: Result<SocketAttached>| {
            if let Ok(made) = made {
                // The one who wanted it has gone.
                remote.tell(FarSocket { kernel: there.kernel, serial: made.end }, SocketChange::reset());
            }
        };
        Box::pin(async move { self.ask(there.kernel, message, |reply| reply, stray).await.map_err(gone)? })
    }

    fn transmit(&self, to: FarSocket, from: u64, credit: SocketCredit, message: SocketMessage) -> Result<Option<Lent>> {
        let loan = Loan::for_message(&self.memory, message.bytes.len());
        let mut message = self.give_message(to.kernel, message)?;
        let mut sent = 0;
        let fits = message.bytes.len() <= loan.capacity() && !loan.frames().is_empty();
        let (frames, lent): (Vec<Frame>, Option<Lent>) = match fits {
            true => {
                loan.fill(&message.bytes);
                sent = core::mem::take(&mut message.bytes).len() as u32;
                (loan.frames().to_vec(), Some(Box::new(loan)))
            }
            // Few bytes, or there is no memory for frames.
            false => (Vec::new(), None),
        };
        let message = SocketSend { to: to.serial, from, credit, message, frames, sent };
        self.note_deed(to.kernel);
        self.endpoint.send_for_thread(to.kernel, message).map_err(|_| Errno::ECONNRESET)?;
        Ok(lent)
    }

    fn want(&self, to: FarSocket, room: u64, buffer: u64) -> BoxFuture<'_, Result<(SocketCredit, u64)>> {
        let message = SocketWant { to: to.serial, room, buffer };
        Box::pin(async move { self.endpoint.call(to.kernel, message).await.map_err(gone)? })
    }

    fn moves(&self, there: FarSocket, to: FarSocket) -> BoxFuture<'_, Result<u64>> {
        let message = SocketMove { to: there.serial, end: (to.kernel, to.serial) };
        Box::pin(async move { self.endpoint.call(there.kernel, message).await.map_err(gone)? })
    }

    fn credit(&self, to: FarSocket, credit: SocketCredit) {
        // If it has died, so has who would send.
        self.note_deed(to.kernel);
        let _ = self.endpoint.send_for_thread(to.kernel, SocketCredited { to: to.serial, credit });
    }

    fn tell(&self, to: FarSocket, change: SocketChange) {
        // If it has died, nobody is left to be told.
        self.note_deed(to.kernel);
        let _ = self.endpoint.send(to.kernel, SocketChanged { to: to.serial, change });
    }

    fn received(&self, to: FarSocket) -> BoxFuture<'_, ()> {
        let message = SocketReceived { to: to.serial };
        // A dead kernel copies nothing.
        Box::pin(async move { self.endpoint.call(to.kernel, message).await.unwrap_or_default() })
    }

    fn settle<'a>(&'a self, file: &'a Arc<dyn File>) -> BoxFuture<'a, Result<Arc<dyn File>>> {
        Box::pin(leased::settle(file))
    }

    fn deliver<'a>(
        &'a self,
        there: FarSocket,
        kind: u32,
        message: &'a SocketMessage,
        shield: &'a Shield,
    ) -> BoxFuture<'a, Result<usize>> {
        Box::pin(self.deliver_message(there, kind, message, shield))
    }

    fn room(&self, there: FarSocket, datagram: Datagram) -> BoxFuture<'_, Result<()>> {
        let Datagram { bytes, sender } = datagram;
        let message = UnixRoom { serial: there.serial, bytes: bytes as u64, sender };
        Box::pin(async move { self.endpoint.call(there.kernel, message).await.map_err(gone)? })
    }

    fn listed(
        &self,
        of: KernelId,
        protocol: Option<(u8, bool)>,
        from: u64,
    ) -> BoxFuture<'_, (Vec<ListedSocket>, Option<u64>)> {
        Box::pin(async move { self.endpoint.call(of, SocketsListed { protocol, from }).await.unwrap_or_default() })
    }

    fn loan_of(&self, file: &Arc<dyn File>) -> Option<SocketLoan> {
        self.exports.loan_of(file)
    }

    fn references(&self, file: FileRef) -> u64 {
        let stand_in = self.stand_ins.lock().get(&file).and_then(Weak::upgrade);
        stand_in.map_or(0, |stand_in| stand_in.count())
    }

    fn suspect(&self, keeper: KernelId) {
        let _ = self.endpoint.send(keeper, UnixSuspect {});
    }

    fn survey(&self, of: KernelId, survey: u64, from: (u32, u32)) -> BoxFuture<'_, Result<SocketGraphPage>> {
        Box::pin(async move { self.endpoint.call(of, UnixSurvey { survey, from }).await? })
    }

    fn flush(&self, owner: KernelId) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { Ok(self.endpoint.call(owner, UnixFlush {}).await?) })
    }

    fn gained(&self, of: KernelId, survey: u64, nodes: Vec<u32>) -> BoxFuture<'_, Result<Vec<u32>>> {
        Box::pin(async move { self.endpoint.call(of, UnixGained { survey, nodes }).await? })
    }

    fn empty(&self, of: KernelId, survey: u64, nodes: Vec<u32>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.endpoint.call(of, UnixEmpty { survey, nodes }).await? })
    }

    fn forget_survey(&self, of: KernelId, survey: u64) {
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
