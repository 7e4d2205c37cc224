//! A socket's dealings with other kernels.
//!
//! Connections have their ends on both kernels (ends.rs). Datagrams are put into the far inbox by a message that never waits. EAGAIN comes back when there is no
//! room; who may wait asks that kernel to tell of room (and of the end: a name keeps no socket alive), and a
//! task does so for those who poll.

use super::{
    circles, credentials_of,
    inbox::{self, Incoming},
    inet,
    names::Found,
    transfer::{pay, Datagram},
    FarSocket, Role, Socket,
};
use crate::{
    control::{SocketAddress, SocketMessage, UnixCredentials},
    file::{Access, Transfer},
    waiting::{attempt, Patience},
    Caller,
};
use alloc::{
    boxed::Box,
    sync::{Arc, Weak},
    vec::Vec,
};
use core::future::Future;
use machine::{
    errno::Result,
    sync::{Subscriber, WaitQueue},
    Errno, Shield,
};

/// Kept in another socket's queue: what changes there has changed here.
struct PassOn(Weak<Socket>);

impl Subscriber for PassOn {
    fn changed(&self) -> bool {
        if let Some(socket) = self.0.upgrade() {
            socket.changes.wake_all();
        }
        true
    }
}

/// A subscriber that tells the socket's own watchers.
pub(super) fn pass_on(socket: &Weak<Socket>) -> Arc<dyn Subscriber> {
    Arc::new(PassOn(socket.clone()))
}

impl Socket {
    pub(super) fn patience(&self, patience: Patience) -> Patience {
        patience.unless(self.flags.nonblocking())
    }

    /// connect(2) of a stream or packet socket to a listener of another kernel.
    pub(super) async fn connect_far(&self, there: FarSocket, caller: &Caller, patience: Patience) -> Result<()> {
        loop {
            let tried = {
                // Until the socket knows its other end: a thread that left before would connect once more.
                let _held = caller.shield.hold();
                self.attach(there, caller).await
            };
            match (tried, self.patience(patience)) {
                (Err(Errno::EAGAIN), Patience::Waits) => self.names.others()?.room(there, Datagram::default()).await?,
                (Err(Errno::EAGAIN), refuses) => {
                    self.hear_of_room(there, Datagram::default());
                    return Err(refuses.answer());
                }
                (done, _) => return done,
            }
        }
    }

    /// At the other side of a datagram socket's connect.
    pub(crate) fn meet(&self, kind: u32) -> Result<Vec<u8>> {
        let state = self.state.lock();
        match &state.role {
            _ if self.kind as u32 != kind => Err(Errno::EPROTOTYPE),
            Role::Connected(_) => Err(Errno::EPERM),
            _ => Ok(state.name.clone()),
        }
    }

    /// Room for whoever waits on another kernel: in the backlog, or for that datagram.
    pub(crate) fn has_room(&self, datagram: Datagram) -> bool {
        if let Role::Listening { backlog, waiting } = &self.state.lock().role {
            return waiting.len() <= *backlog;
        }
        // A socket that listens no more refuses, which is news too.
        self.kind.connects() || self.takes_datagram(datagram, inbox::LIMIT)
    }

    /// May a datagram be put into the inbox, which takes `limit` bytes, or be refused for another reason than the lack of room there? See
    /// transfer.rs.
    fn takes_datagram(&self, datagram: Datagram, limit: usize) -> bool {
        let account = self.names.account(datagram.sender);
        let state = self.state.lock();
        state.read_shut
            || state.inbox.is_empty()
            || state.inbox.takes(datagram.bytes, limit, state.has_one_sender())
                && datagram.is_affordable(account.as_ref())
    }

    /// Serves [`AwaitRoom`](messages::fs::SocketControl::AwaitRoom): see there.
    pub(super) async fn await_room(&self, place: Option<&SocketAddress>, datagram: Datagram) -> Result<()> {
        let limit = self.state.lock().settings.send_buffer();
        let (room, target) = match self.target(place).await? {
            Found::Here(target) => (target.room.clone(), Arc::downgrade(&target)),
            Found::There(there) => return self.names.others()?.room(there, datagram).await,
        };
        let has_room = || target.upgrade().is_none_or(|target| target.takes_datagram(datagram, limit));
        room.wait_until(|| has_room().then_some(())).await;
        Ok(())
    }

    /// A datagram from another kernel.
    pub(crate) fn deliver(&self, kind: u32, message: SocketMessage) -> Result<usize> {
        if self.kind as u32 != kind {
            return Err(Errno::EPROTOTYPE);
        }
        let mut message = message;
        let count = message.bytes.len();
        if self.inet.is_some() {
            let (from, sender) = (inet::address::decode(&message.name)?, message.credentials.unwrap_or_default());
            let header = message.extra.as_ref().and_then(|extra| extra.datagram).unwrap_or_default();
            return self.take_datagram(from, header, &mut message.bytes, sender).map(|()| count);
        }
        let (sender, brings_files) = (message.credentials.unwrap_or_default(), !message.files.is_empty());
        let account = self.names.account(sender);
        let files = self.parcel(account.as_ref(), &message)?;
        {
            let mut state = self.state.lock();
            match &state.role {
                Role::Connected(_) => return Err(Errno::EPERM),
                Role::Far(_, name) if *name != message.name => return Err(Errno::EPERM),
                _ => {}
            }
            if state.read_shut {
                return Err(Errno::EPIPE);
            }
            if !state.inbox.takes(count, inbox::LIMIT, state.has_one_sender()) {
                return Err(Errno::EAGAIN);
            }
            let charge = match pay(account.as_ref(), count, &files) {
                Err(_) if !state.inbox.is_empty() => return Err(Errno::EAGAIN),
                charge => charge?,
            };
            let SocketMessage { bytes, name, .. } = message;
            self.take_in(&mut state, Incoming { bytes, files, sender, name, charge, ..Incoming::default() });
        }
        self.changes.wake_all();
        if brings_files {
            circles::sent(&self.names);
        }
        Ok(count)
    }

    pub(super) async fn send_far(
        &self,
        there: FarSocket,
        message: &SocketMessage,
        sender: UnixCredentials,
        shield: &Shield,
        patience: Patience,
    ) -> Result<usize> {
        let name = {
            let state = self.state.lock();
            if message.bytes.len() > state.settings.send_buffer().min(inbox::LIMIT) - 32 {
                return Err(Errno::EMSGSIZE);
            }
            if state.write_shut {
                return Err(Errno::EPIPE);
            }
            state.name.clone()
        };
        let message = SocketMessage { name, credentials: Some(sender), ..message.clone() };
        let others = self.names.others()?;
        let datagram = Datagram { bytes: message.bytes.len(), sender };
        loop {
            match others.deliver(there, self.kind as u32, &message, shield).await {
                Err(Errno::EAGAIN) => match patience {
                    Patience::Waits => others.room(there, datagram).await?,
                    refuses => {
                        self.hear_of_room(there, datagram);
                        return Err(refuses.answer());
                    }
                },
                done => return done,
            }
        }
    }

    /// Until `there` has room this socket is not writable; then its watchers hear of it. The task ends with the socket.
    pub(super) fn hear_of_room(&self, there: FarSocket, datagram: Datagram) {
        let names = self.names.clone();
        // Gone is news as well: the next try says so.
        self.hear_of(async move {
            let _ = names.room_of(there, datagram).await;
        });
    }

    /// The same of a listener of this kernel, for a stand-in that waits to connect.
    pub(super) fn hear_of_backlog(&self, listener: Weak<Socket>, room: Arc<WaitQueue>) {
        self.hear_of(async move {
            room.wait_until(|| {
                listener.upgrade().is_none_or(|listener| listener.has_room(Datagram::default())).then_some(())
            })
            .await;
        });
    }

    fn hear_of(&self, room: impl Future<Output = ()> + Send + 'static) {
        let Ok(others) = self.names.others() else { return };
        if core::mem::replace(&mut self.state.lock().full, true) {
            return;
        }
        let (this, ended) = (self.this.clone(), self.room.clone());
        others.run(Box::pin(async move {
            let gone = ended.wait_until(|| (this.strong_count() == 0).then_some(()));
            inet::first(room, gone).await;
            if let Some(socket) = this.upgrade() {
                socket.state.lock().full = false;
                socket.changes.wake_all();
            }
        }));
    }

    pub(super) fn read_bytes<'a>(&'a self, buf: &'a mut [u8], access: Access<'a>) -> Transfer<'a> {
        let patience = self.patience(access.patience);
        attempt(&self.changes, patience, move || {
            // Files that come along are closed: read(2) cannot give them.
            let message = self.try_receive(buf.len(), 0, patience)?;
            buf[..message.bytes.len()].copy_from_slice(&message.bytes);
            Ok(message.bytes.len())
        })
    }

    /// Of a socket of datagrams or packets, with the caller's credentials, if one is known.
    pub(super) async fn write_bytes(&self, buf: &[u8], access: Access<'_>) -> Result<usize> {
        let patience = self.patience(access.patience);
        let sender = access.caller().map(credentials_of).unwrap_or_default();
        // Longer ones are too long for any buffer.
        let bytes = buf[..buf.len().min(2 * inbox::LIMIT)].to_vec();
        let mut message = SocketMessage { bytes, ..SocketMessage::default() };
        match &self.inet {
            Some(inet) => self.send_datagram(inet, None, &mut message, sender, access.shield()).await,
            None => self.send(None, &mut message, sender, access.shield(), patience).await,
        }
    }
}
