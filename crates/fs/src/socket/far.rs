//! A socket's dealings with other kernels.
//!
//! **Connections.** The listener's kernel makes both ends ([`Socket::attach`]); what `socket(2)` had made becomes
//! a shell around the client's end: status flags, the bound name and the descriptor's identity are its own,
//! everything else is done by the end. What changes there is heard here, because a shell subscribes to the
//! end's stand-in as soon as it has one, so that an epoll that watched the socket before goes on watching.
//!
//! **Datagrams** are put into the far inbox by a message that never waits. EAGAIN comes back when there is no
//! room; who may wait asks that kernel to tell of room (and of the end: a name keeps no socket alive), and a
//! task does so for those who poll.

use super::{circles, credentials_of, inbox, inet, options, transfer::pay, Attached, FarSocket, Role, Socket};
use crate::{
    control::{Control, ControlAnswer, InternetEnds, SocketControl, SocketMessage, UnixCredentials},
    file::{Access, Destination, Source, Transfer},
    waiting::{attempt, Patience},
    Caller, File, OpenFlags,
};
use alloc::{
    boxed::Box,
    sync::{Arc, Weak},
    vec::Vec,
};
use machine::{errno::Result, sync::Subscriber, Errno, Shield};

/// Kept in the queue of the end's stand-in: what changes there has changed here.
struct PassOn(Weak<Socket>);

impl Subscriber for PassOn {
    fn changed(&self) -> bool {
        if let Some(shell) = self.0.upgrade() {
            shell.changes.wake_all();
        }
        true
    }
}

/// A subscriber that tells the socket's own watchers.
pub(super) fn pass_on(socket: &Weak<Socket>) -> Arc<dyn Subscriber> {
    Arc::new(PassOn(socket.clone()))
}

impl Socket {
    /// A shell's end of the connection.
    pub(super) fn body(&self) -> Option<Arc<dyn File>> {
        match &self.state.lock().role {
            Role::Elsewhere(body) => Some(body.clone()),
            _ => None,
        }
    }

    fn patience(&self, patience: Patience) -> Patience {
        patience.unless(self.flags.nonblocking())
    }

    /// connect(2) of a stream or packet socket to a listener of another kernel.
    pub(super) async fn connect_far(&self, there: FarSocket, caller: &Caller, patience: Patience) -> Result<()> {
        let others = self.names.others()?;
        let (made, _held) = loop {
            self.check_unconnected()?;
            let (name, wants) = {
                let state = self.state.lock();
                (state.name.clone(), state.wants_credentials)
            };
            // Until the socket knows its end: a thread that left before would connect once more.
            let held = caller.shield.hold();
            match others.attach(there, self.kind as u32, name, None, wants, caller).await {
                Ok(made) => break (made, held),
                Err(Errno::EAGAIN) => match self.patience(patience) {
                    Patience::Waits => {
                        drop(held);
                        others.room(there).await?;
                    }
                    refuses => {
                        self.hear_of_room(there);
                        return Err(refuses.answer());
                    }
                },
                Err(error) => return Err(error),
            }
        };
        self.become_shell(made).await
    }

    /// Of TCP: tries once. EAGAIN: the backlog is full.
    pub(super) async fn attach_far(&self, there: FarSocket, caller: &Caller) -> Result<()> {
        self.check_unconnected()?;
        let ends = self.inet.as_ref().and_then(|inet| inet.connection());
        let _held = caller.shield.hold();
        let others = self.names.others()?;
        let made = others.attach(there, self.kind as u32, Vec::new(), ends, false, caller).await?;
        self.become_shell(made).await
    }

    /// The end of the connection is on another kernel.
    async fn become_shell(&self, (body, listener): Attached) -> Result<()> {
        if let Some(queue) = body.changes() {
            queue.subscribe(pass_on(&self.this), false);
        }
        body.watch().await?;
        {
            let mut state = self.state.lock();
            if !matches!(state.role, Role::Alone) {
                return Err(Errno::EISCONN);
            }
            state.peer_credentials = listener;
            state.role = Role::Elsewhere(body);
        }
        self.names.flight.note_shell(self);
        self.changes.wake_all();
        Ok(())
    }

    /// At the listener: both ends of a connection from another kernel, and who listens. The answer is the
    /// client's end.
    pub(crate) fn attach(
        self: &Arc<Self>,
        kind: u32,
        name: Vec<u8>,
        ends: Option<InternetEnds>,
        wants_credentials: bool,
        caller: &Caller,
    ) -> Result<(Arc<Socket>, Option<UnixCredentials>)> {
        if self.kind as u32 != kind {
            return Err(Errno::EPROTOTYPE);
        }
        let client = match ends {
            Some(ends) => Self::internet_client(&self.names, caller, ends),
            None => Self::new(&self.names, caller, self.kind, OpenFlags::empty()),
        };
        {
            let mut state = client.state.lock();
            state.name = name;
            state.wants_credentials = wants_credentials;
        }
        client.try_connect(self, caller)?;
        let listener = client.state.lock().peer_credentials;
        Ok((client, listener))
    }

    /// At the other side of a datagram socket's connect.
    pub(crate) fn meet(&self, kind: u32) -> Result<Vec<u8>> {
        match self.kind as u32 == kind {
            true => Ok(self.state.lock().name.clone()),
            false => Err(Errno::EPROTOTYPE),
        }
    }

    /// Room for whoever waits on another kernel: in the backlog, or for a datagram.
    pub(crate) fn has_room(&self) -> bool {
        let state = self.state.lock();
        match &state.role {
            Role::Listening { backlog, waiting } => waiting.len() <= *backlog,
            // A socket that listens no more refuses, which is news too.
            _ => self.kind.connects() || state.inbox.takes(1),
        }
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
            return self.take_datagram(from, &mut message, sender).map(|()| count);
        }
        let (sender, brings_files) = (message.credentials.unwrap_or_default(), !message.files.is_empty());
        let account = self.names.account(sender);
        let files = self.parcel(account.as_ref(), &message)?;
        {
            let mut state = self.state.lock();
            if state.read_shut {
                return Err(Errno::EPIPE);
            }
            if !state.inbox.takes(count) {
                return Err(Errno::EAGAIN);
            }
            let charge = pay(account.as_ref(), count, &files)?;
            state.inbox.push(message.bytes, files, sender, message.name, charge);
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
        if message.bytes.len() > inbox::LIMIT - 32 {
            return Err(Errno::EMSGSIZE);
        }
        let name = {
            let state = self.state.lock();
            if state.write_shut {
                return Err(Errno::EPIPE);
            }
            state.name.clone()
        };
        let message = SocketMessage { name, credentials: Some(sender), ..message.clone() };
        let others = self.names.others()?;
        loop {
            match others.deliver(there, self.kind as u32, &message, shield).await {
                Err(Errno::EAGAIN) => match patience {
                    Patience::Waits => others.room(there).await?,
                    refuses => {
                        self.hear_of_room(there);
                        return Err(refuses.answer());
                    }
                },
                done => return done,
            }
        }
    }

    /// Until `there` has room this socket is not writable; then its watchers hear of it.
    fn hear_of_room(&self, there: FarSocket) {
        if core::mem::replace(&mut self.state.lock().full, true) {
            return;
        }
        let Ok(others) = self.names.others() else { return };
        let (this, asks) = (self.this.clone(), others.clone());
        others.run(Box::pin(async move {
            // Gone is news as well: the next try says so.
            let _ = asks.room(there).await;
            if let Some(socket) = this.upgrade() {
                socket.state.lock().full = false;
                socket.changes.wake_all();
            }
        }));
    }

    /// What a shell has its end do.
    pub(super) async fn pass_on(
        &self,
        body: &Arc<dyn File>,
        caller: &Caller,
        control: SocketControl,
        patience: Patience,
    ) -> Result<ControlAnswer> {
        match (control, &self.inet) {
            (control @ (SocketControl::Connect { .. } | SocketControl::Name), Some(inet)) => {
                self.internet_control(inet, caller, control, patience).await
            }
            (SocketControl::Bind { .. }, Some(_)) => Err(Errno::EINVAL),
            (SocketControl::Send { message, flags, .. }, Some(_)) => {
                let control = SocketControl::Send { place: None, message, flags };
                body.control_with(caller, Control::Socket(control), self.patience(patience)).await
            }
            (control, _) => self.pass_to(body, caller, control, patience).await,
        }
    }

    async fn pass_to(
        &self,
        body: &Arc<dyn File>,
        caller: &Caller,
        control: SocketControl,
        patience: Patience,
    ) -> Result<ControlAnswer> {
        match control {
            // Errors are the end's; what a program has set before is here, and what it sets now in both places.
            SocketControl::GetOption { level, name } if self.inet.is_some() && (level, name) != options::ERROR => {
                self.option(level, name).map(ControlAnswer::Bytes)
            }
            SocketControl::SetOption { level, name, ref value } => {
                self.set_option(caller, level, name, value)?;
                body.control_with(caller, Control::Socket(control), patience).await
            }
            SocketControl::Connect { .. } => Err(Errno::EISCONN),
            SocketControl::Accept { .. } | SocketControl::Listen { .. } => Err(Errno::EINVAL),
            // The name it was bound to is its own.
            SocketControl::Bind { place, name } => self.bind(place, name).await.map(|()| ControlAnswer::Done),
            SocketControl::Name => Ok(ControlAnswer::Bytes(self.state.lock().name.clone())),
            SocketControl::Send { place: Some(_), .. } => Err(Errno::EISCONN),
            control => {
                let patience = self.patience(patience);
                body.control_with(caller, Control::Socket(control), patience).await
            }
        }
    }

    pub(super) fn read_bytes<'a>(&'a self, buf: &'a mut [u8], access: Access<'a>) -> Transfer<'a> {
        let patience = self.patience(access.patience);
        if let Some(body) = self.body() {
            return Transfer::later(
                async move { body.read_into(Destination::Kernel(buf), access.with(patience)).await },
            );
        }
        attempt(&self.changes, patience, move || {
            // Files that come along are closed: read(2) cannot give them.
            let message = self.try_receive(buf.len(), 0)?;
            buf[..message.bytes.len()].copy_from_slice(&message.bytes);
            Ok(message.bytes.len())
        })
    }

    /// With the caller's credentials, if one is known.
    pub(super) async fn write_bytes(&self, buf: &[u8], access: Access<'_>) -> Result<usize> {
        let patience = self.patience(access.patience);
        if let Some(body) = self.body() {
            return body.write_from(Source::Kernel(buf), access.with(patience)).await;
        }
        let sender = access.caller().map(credentials_of).unwrap_or_default();
        if let Some(inet) = &self.inet {
            let mut message = SocketMessage { bytes: buf.to_vec(), ..SocketMessage::default() };
            return match self.kind.connects() {
                true => {
                    message.bytes.truncate(inbox::LIMIT);
                    self.send_stream(&mut message, sender, patience).await
                }
                false => self.send_datagram(inet, None, &mut message, sender, access.shield()).await,
            };
        }
        self.write_message(sender, access.shield(), buf, patience).await
    }
}
