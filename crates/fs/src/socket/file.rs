//! A socket as an open file.

use super::{
    credentials_of, inbox,
    transfer::{MSG_DONTWAIT, MSG_TRUNC},
    Role, Socket, SocketKind,
};
use crate::{
    anonymous::answer_int,
    control::{Control, ControlAnswer, SocketControl, SocketMessage, UnixCredentials, UnixPlace},
    file::ready,
    waiting::attempt,
    Attributes, Caller, Events, File, OpenFlags, SetAttributes,
};
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::any::Any;
use linux_raw_sys::ioctl::{FIONREAD, TIOCOUTQ};
use machine::{errno::Result, sync::WaitQueue, BoxFuture, Errno};

impl Socket {
    async fn send(
        &self,
        place: Option<UnixPlace>,
        message: &SocketMessage,
        sender: UnixCredentials,
        nonblocking: bool,
    ) -> Result<usize> {
        let target = self.target(place.as_ref())?;
        // A connected socket is woken by its peer; a datagram to anybody waits for that one's reads.
        let queue = if place.is_some() { &target.changes } else { &self.changes };
        attempt(queue, nonblocking, || self.try_send(&target, message, sender)).await
    }

    async fn connect(&self, place: Option<UnixPlace>, caller: &Caller) -> Result<()> {
        let Some(place) = place else {
            return match self.kind.connects() {
                true => Err(Errno::EINVAL),
                false => {
                    self.state.lock().role = Role::Alone;
                    Ok(())
                }
            };
        };
        let other = self.names.find(&place)?;
        if self.kind.connects() {
            return attempt(&other.changes, self.flags.nonblocking(), || self.try_connect(&other, caller)).await;
        }
        if other.kind != self.kind {
            return Err(Errno::EPROTOTYPE);
        }
        let mut state = self.state.lock();
        state.role = Role::Connected(Arc::downgrade(&other));
        state.peer_credentials = Some(credentials_of(caller));
        Ok(())
    }

    async fn socket_control(&self, caller: &Caller, control: SocketControl) -> Result<ControlAnswer> {
        use messages::fs::SocketControl::*;
        let waits = |flags: u32| !self.flags.nonblocking() && flags & MSG_DONTWAIT == 0;
        Ok(match control {
            Bind { place, name } => self.bind(place, name).map(|()| ControlAnswer::Done)?,
            Listen { backlog } => self.listen(backlog, caller).map(|()| ControlAnswer::Done)?,
            Accept { flags } => {
                ControlAnswer::File(attempt(&self.changes, self.flags.nonblocking(), || self.try_accept(flags)).await?)
            }
            Connect { place } => self.connect(place, caller).await.map(|()| ControlAnswer::Done)?,
            Shutdown { how } => self.shutdown(how).map(|()| ControlAnswer::Done)?,
            Send { place, message, flags } => {
                let sender = Self::sender(caller, message.credentials, flags)?;
                ControlAnswer::Number(self.send(place, &message, sender, !waits(flags)).await? as i64)
            }
            Receive { bytes, flags } => {
                let limit = bytes.min(inbox::LIMIT as u64) as usize;
                let mut message = attempt(&self.changes, !waits(flags), || self.try_receive(limit, flags)).await?;
                if flags & MSG_TRUNC == 0 {
                    message.full_length = message.full_length.max(message.bytes.len() as u64);
                }
                ControlAnswer::Message(message)
            }
            Name => ControlAnswer::Bytes(self.state.lock().name.clone()),
            PeerName => {
                let peer = self.peer()?.ok_or(Errno::ENOTCONN)?;
                let name = peer.state.lock().name.clone();
                ControlAnswer::Bytes(name)
            }
            GetOption { level, name } => ControlAnswer::Bytes(self.option(level, name)?),
            SetOption { level, name, value } => self.set_option(level, name, &value).map(|()| ControlAnswer::Done)?,
        })
    }

    fn write_message(&self, sender: UnixCredentials, buf: &[u8]) -> BoxFuture<'_, Result<usize>> {
        let message = SocketMessage {
            bytes: buf[..buf.len().min(inbox::LIMIT)].to_vec(),
            files: Vec::new(),
            credentials: None,
            name: Vec::new(),
            full_length: 0,
        };
        Box::pin(async move { self.send(None, &message, sender, self.flags.nonblocking()).await })
    }
}

impl File for Socket {
    fn read<'a>(&'a self, buf: &'a mut [u8]) -> BoxFuture<'a, Result<usize>> {
        attempt(&self.changes, self.flags.nonblocking(), move || {
            // Files that come along are closed: read(2) cannot give them.
            let message = self.try_receive(buf.len(), 0)?;
            buf[..message.bytes.len()].copy_from_slice(&message.bytes);
            Ok(message.bytes.len())
        })
    }

    fn write<'a>(&'a self, buf: &'a [u8]) -> BoxFuture<'a, Result<usize>> {
        self.write_message(UnixCredentials::default(), buf)
    }

    fn write_for<'a>(&'a self, caller: &'a Caller, buf: &'a [u8]) -> BoxFuture<'a, Result<usize>> {
        self.write_message(credentials_of(caller), buf)
    }

    fn flags(&self) -> OpenFlags {
        self.flags.get()
    }

    fn set_flags(&self, flags: OpenFlags) -> BoxFuture<'_, Result<()>> {
        self.flags.set(flags);
        ready(Ok(()))
    }

    fn attributes(&self) -> BoxFuture<'_, Result<Attributes>> {
        ready(Ok(self.inode.attributes()))
    }

    fn set_attributes<'a>(&'a self, caller: &'a Caller, set: SetAttributes) -> BoxFuture<'a, Result<()>> {
        ready(self.inode.set(caller, set))
    }

    fn ioctl<'a>(&'a self, _caller: &'a Caller, request: u32, data: &'a mut Vec<u8>) -> BoxFuture<'a, Result<i64>> {
        let state = self.state.lock();
        match request {
            FIONREAD if matches!(state.role, Role::Listening { .. }) => return ready(Err(Errno::EINVAL)),
            FIONREAD if self.kind == SocketKind::Stream => answer_int(data, state.inbox.bytes()),
            FIONREAD => answer_int(data, state.inbox.first()),
            TIOCOUTQ => {
                drop(state);
                let peer = self.peer().ok().flatten();
                answer_int(data, peer.map_or(0, |peer| peer.state.lock().inbox.bytes()));
            }
            _ => return ready(Err(Errno::ENOTTY)),
        }
        ready(Ok(0))
    }

    fn control<'a>(&'a self, caller: &'a Caller, control: Control) -> BoxFuture<'a, Result<ControlAnswer>> {
        match control {
            Control::Socket(control) => Box::pin(self.socket_control(caller, control)),
            _ => ready(Err(Errno::EINVAL)),
        }
    }

    /// unix_poll.
    fn poll(&self) -> Events {
        let (mut events, peer, write_shut) = {
            let state = self.state.lock();
            let mut events = Events::empty();
            let waiting = matches!(&state.role, Role::Listening { waiting, .. } if !waiting.is_empty());
            if !state.inbox.is_empty() || waiting || state.read_shut {
                events |= Events::IN | Events::RDNORM;
            }
            if state.read_shut {
                events |= Events::RDHUP;
            }
            let unconnected = self.kind.connects() && matches!(state.role, Role::Alone);
            if state.read_shut && state.write_shut || unconnected {
                events |= Events::HUP;
            }
            if state.error.is_some() {
                events |= Events::ERR;
            }
            let peer = match &state.role {
                Role::Connected(peer) => peer.upgrade(),
                Role::Listening { .. } => return events,
                Role::Alone => None,
            };
            (events, peer, state.write_shut)
        };
        let room = match peer {
            Some(peer) if self.kind == SocketKind::Stream => peer.state.lock().inbox.room() > 0,
            Some(peer) => peer.state.lock().inbox.takes(1),
            None => true,
        };
        if room || write_shut {
            events |= Events::OUT | Events::WRNORM | Events::WRBAND;
        }
        events
    }

    fn changes(&self) -> Option<&WaitQueue> {
        Some(&self.changes)
    }

    fn path(&self) -> BoxFuture<'_, Vec<u8>> {
        ready(self.inode.path("socket"))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
