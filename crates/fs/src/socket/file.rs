//! A socket as an open file.

use super::{
    far, inbox,
    names::Found,
    options::Wishes,
    transfer::{self, Datagram, Sending, MOVED, MSG_DONTWAIT, MSG_ERRQUEUE, MSG_OOB, MSG_PEEK, MSG_PROBES, MSG_TRUNC},
    Role, Socket, SocketKind, State,
};
use crate::{
    anonymous::{answer_int, StatusFlags},
    control::{Control, ControlAnswer, SocketControl, SocketMessage, UnixCredentials},
    file::{ready, Access, Destination, Fasync, Gained, Source, Transfer},
    waiting::{attempt, Patience, MUST_WAIT},
    Attributes, Caller, Events, File, SetAttributes,
};
use alloc::{
    boxed::Box,
    sync::{Arc, Weak},
    vec::Vec,
};
use core::any::Any;
use linux_raw_sys::ioctl::{FIONREAD, SIOCATMARK, TIOCOUTQ};
use machine::{errno::Result, sync::WaitQueue, BoxFuture, Errno, Shield};
use messages::fs::{SocketAddress, SocketType, WaitPlace};

const AF_UNIX: u16 = 1;

impl Socket {
    pub(super) async fn send(
        &self,
        place: Option<SocketAddress>,
        message: &mut SocketMessage,
        sender: UnixCredentials,
        shield: &Shield,
        patience: Patience,
    ) -> Result<usize> {
        if place.is_none() && self.kind.connects() {
            return self.send_connected(message, sender, shield, patience).await;
        }
        // A waiting sender does not keep the other side open: its end is what may end the wait.
        let target = {
            // To look for a name is not to wait.
            let _held = shield.hold();
            self.target(place.as_ref()).await?
        };
        let (room, target) = match target {
            Found::Here(target) => (target.room.clone(), Arc::downgrade(&target)),
            Found::There(there) => return self.send_far(there, message, sender, shield, patience).await,
        };
        let target = move || target.upgrade().ok_or(Errno::ECONNREFUSED);
        attempt(&room, patience, || self.try_send(&*target()?, message, sender)).await
    }

    /// To the other end of a connection, which may move to another kernel and back.
    pub(super) async fn send_connected(
        &self,
        message: &mut SocketMessage,
        sender: UnixCredentials,
        shield: &Shield,
        patience: Patience,
    ) -> Result<usize> {
        loop {
            let linked = matches!(self.state.lock().role, Role::Linked(_));
            let sent = match linked {
                true => self.send_linked(message, sender, shield, patience).await?,
                false => attempt(&self.changes, patience, || self.try_send_near(message, sender)).await?,
            };
            if let Some(sent) = sent {
                return Ok(sent);
            }
        }
    }

    /// None: the other end has moved to another kernel.
    pub(super) fn try_send_near(&self, message: &mut SocketMessage, sender: UnixCredentials) -> Result<Option<usize>> {
        let other = {
            let mut state = self.state.lock();
            match &state.role {
                Role::Connected(other) => other.clone(),
                Role::Linked(_) => return Ok(None),
                // Of a connect that failed.
                _ if self.inet.is_some() => return Err(state.error.take().unwrap_or(Errno::EPIPE)),
                _ => return Err(Errno::ENOTCONN),
            }
        };
        match (other.upgrade(), &self.inet) {
            (Some(other), _) => match self.try_send(&other, message, sender) {
                // It is on its way to another kernel.
                Err(MOVED) => Err(Errno::EAGAIN),
                sent => sent.map(Some),
            },
            (None, Some(_)) => self.send_into_nowhere(message.bytes.len()).map(Some),
            (None, None) => Err(Errno::EPIPE),
        }
    }

    async fn connect(&self, place: Option<SocketAddress>, caller: &Caller, patience: Patience) -> Result<()> {
        let Some(place) = place else {
            return match self.kind.connects() {
                true => Err(Errno::EINVAL),
                false => {
                    self.associate(Role::Alone, None);
                    Ok(())
                }
            };
        };
        // To look for a name is not to wait.
        let held = caller.shield.hold();
        let found = self.names.find(&self.keyed(place)?).await?;
        if self.kind.connects() {
            drop(held);
            let (room, other) = match found {
                Found::Here(other) => (other.room.clone(), Arc::downgrade(&other)),
                Found::There(there) => return self.connect_far(there, caller, patience).await,
            };
            let patience = patience.unless(self.flags.nonblocking());
            return self.connect_near(other, room, caller, patience).await;
        }
        let (role, room) = match found {
            Found::Here(other) if other.kind != self.kind => return Err(Errno::EPROTOTYPE),
            Found::Here(other) => {
                let name = {
                    let there = other.state.lock();
                    self.check_may_send(&there)?;
                    there.name.clone()
                };
                self.state.lock().other_name = name;
                (Role::Connected(Arc::downgrade(&other)), Some(other.room.clone()))
            }
            Found::There(there) => {
                let name = self.names.others()?.meet(there, self.kind as u32).await?;
                (Role::Far(there, name), None)
            }
        };
        self.associate(role, room);
        Ok(())
    }

    /// To a listener of this kernel.
    pub(super) async fn connect_near(
        &self,
        listener: Weak<Socket>,
        room: Arc<WaitQueue>,
        caller: &Caller,
        patience: Patience,
    ) -> Result<()> {
        let connect = || self.try_connect(&listener.upgrade().ok_or(Errno::ECONNREFUSED)?, caller);
        let tried = attempt(&room, patience, connect).await;
        if tried == Err(MUST_WAIT) {
            self.hear_of_backlog(listener, room.clone());
        }
        tried
    }

    /// A read would give something, though it may only be that it passes the place of a byte that was received as urgent.
    fn is_readable(&self, state: &State) -> bool {
        if self.kind != SocketKind::Stream {
            return !state.inbox.is_empty();
        }
        match &self.inet {
            Some(_) if state.awaited => state.tcp_has(1),
            Some(_) => state.tcp_has(state.settings.least(inbox::LIMIT)),
            None => !state.inbox.is_empty() || state.inbox.is_at_mark(),
        }
    }

    /// getpeername(2).
    fn peer_name(&self) -> Result<Vec<u8>> {
        match &self.state.lock().role {
            Role::Far(_, name) => return Ok(name.clone()),
            Role::Linked(link) => return Ok(link.name.clone()),
            _ => {}
        }
        let name = self.peer()?.map(|peer| peer.state.lock().name.clone());
        Ok(name.unwrap_or_else(|| self.state.lock().other_name.clone()))
    }

    /// A datagram socket gets another default destination: who waits to write hears of room there.
    fn associate(&self, role: Role, room: Option<Arc<WaitQueue>>) {
        let room = room.map(|room| {
            let key = room.subscribe(far::pass_on(&self.this), false);
            (room, key)
        });
        let before = {
            let mut state = self.state.lock();
            state.role = role;
            core::mem::replace(&mut state.room_there, room)
        };
        if let Some((room, key)) = before {
            room.unsubscribe(key);
        }
        self.changes.wake_all();
    }

    async fn control_patiently(&self, caller: &Caller, control: Control, patience: Patience) -> Result<ControlAnswer> {
        let Control::Socket(control) = control else { return Err(Errno::EINVAL) };
        match &self.inet {
            Some(inet) => self.internet_control(inet, caller, control, patience).await,
            None => self.socket_control(caller, control, patience).await,
        }
    }

    async fn socket_control(
        &self,
        caller: &Caller,
        control: SocketControl,
        patience: Patience,
    ) -> Result<ControlAnswer> {
        use messages::fs::SocketControl::*;
        let flagged = patience.unless(self.flags.nonblocking());
        Ok(match control {
            Bind { place, name } => self.bind(place, name).await.map(|()| ControlAnswer::Done)?,
            Listen { backlog } => self.listen(backlog, caller).map(|()| ControlAnswer::Done)?,
            Accept { flags, end } => self.accept(flags, end, caller, flagged).await?,
            Move { end, references, watchers } => self.give_up(end, references, watchers, caller).await?,
            ClosedFirst => return Err(Errno::EINVAL),
            Connect { place } => self.connect(place, caller, patience).await.map(|()| ControlAnswer::Done)?,
            Shutdown { how } => self.shutdown(how).map(|()| ControlAnswer::Done)?,
            Send { place, mut message, flags } => {
                self.check_sending(&message, place.is_some(), flags)?;
                if flags & MSG_PROBES != 0 {
                    return Ok(ControlAnswer::Number(0));
                }
                let sender = Self::sender(caller, message.credentials)?;
                self.mark_urgent(&mut message, flags)?;
                let patience = flagged.unless(flags & MSG_DONTWAIT != 0);
                ControlAnswer::Number(self.send(place, &mut message, sender, &caller.shield, patience).await? as i64)
            }
            AwaitRoom { place, bytes, sender } => {
                self.await_room(place.as_ref(), Datagram { bytes: bytes as usize, sender }).await?;
                ControlAnswer::Done
            }
            Receive { bytes, flags } => self.receive(bytes, flags, flagged).await?,
            Name => ControlAnswer::Bytes(self.state.lock().name.clone()),
            PeerName => ControlAnswer::Bytes(self.peer_name()?),
            GetOption { level, name } => ControlAnswer::Bytes(self.option(level, name)?),
            SetOption { level, name, value } => {
                self.set_option(caller, level, name, &value).map(|()| ControlAnswer::Done)?
            }
        })
    }

    pub(super) async fn receive(&self, bytes: u64, flags: u32, patience: Patience) -> Result<ControlAnswer> {
        let limit = bytes.min(2 * inbox::LIMIT as u64) as usize;
        let patience = patience.unless(flags & MSG_DONTWAIT != 0);
        let mut message = match &self.inet {
            Some(inet) if flags & MSG_ERRQUEUE != 0 => self.receive_error(inet, limit)?,
            // A datagram can't be urgent, and UDP does not look whether it is to be.
            Some(_) if flags & MSG_OOB != 0 && self.kind != SocketKind::Datagram => {
                self.receive_urgent(limit, flags & MSG_PEEK != 0)?
            }
            None if flags & MSG_OOB != 0 => {
                self.check_connected()?;
                self.receive_urgent(limit, flags & MSG_PEEK != 0)?
            }
            _ => attempt(&self.changes, patience, || self.try_receive(limit, flags, patience)).await?,
        };
        if flags & MSG_TRUNC == 0 {
            message.full_length = message.full_length.max(message.bytes.len() as u64);
        }
        Ok(ControlAnswer::Message(message))
    }
}

impl File for Socket {
    fn read_into<'a>(&'a self, to: Destination<'a>, access: Access<'a>) -> Transfer<'a> {
        if self.kind == SocketKind::Stream && access.at.is_none() {
            return self.read_stream(to, access);
        }
        let buf = match to.stream_buffer(&access) {
            Ok(buf) => buf,
            Err(error) => return Transfer::Done(Err(error)),
        };
        self.read_bytes(buf, access)
    }

    fn write_from<'a>(&'a self, from: Source<'a>, access: Access<'a>) -> Transfer<'a> {
        if self.kind == SocketKind::Stream && access.at.is_none() {
            return self.write_stream(from, access);
        }
        let buf = match from.stream_buffer(&access) {
            Ok(buf) => buf,
            Err(error) => return Transfer::Done(Err(error)),
        };
        Transfer::later(self.write_bytes(buf, access))
    }

    fn status(&self) -> Option<&StatusFlags> {
        Some(&self.flags)
    }

    fn fasync(&self) -> Option<Fasync> {
        let state = self.state.lock();
        let counted = !matches!(state.role, Role::Listening { .. });
        Some(Fasync::Socket { arrived: counted.then(|| state.inbox.arrived()) })
    }

    fn attributes(&self) -> BoxFuture<'_, Result<Attributes>> {
        ready(Ok(self.inode.attributes()))
    }

    fn set_attributes<'a>(&'a self, caller: &'a Caller, set: SetAttributes) -> BoxFuture<'a, Result<()>> {
        ready(self.inode.set(caller, set))
    }

    fn ioctl<'a>(&'a self, _: &'a Caller, request: u32, data: &'a mut Vec<u8>) -> BoxFuture<'a, Result<i64>> {
        let state = self.state.lock();
        match request {
            FIONREAD if matches!(state.role, Role::Listening { .. }) => return ready(Err(Errno::EINVAL)),
            FIONREAD if self.kind == SocketKind::Stream => {
                let all = state.inbox.bytes();
                let before = match (&self.inet, state.settings.inline()) {
                    (Some(_), false) => state.inbox.before_urgent().unwrap_or(all),
                    _ => all,
                };
                answer_int(data, before);
            }
            FIONREAD => answer_int(data, state.inbox.first()),
            TIOCOUTQ if self.inet.is_some() => answer_int(data, 0),
            TIOCOUTQ if matches!(state.role, Role::Linked(_)) => {
                drop(state);
                return Box::pin(async move {
                    answer_int(data, self.unread_there().await as usize);
                    Ok(0)
                });
            }
            TIOCOUTQ => {
                drop(state);
                let peer = self.peer().ok().flatten();
                answer_int(data, peer.map_or(0, |peer| peer.state.lock().inbox.bytes()));
            }
            SIOCATMARK if self.kind != SocketKind::Stream => return ready(Err(Errno::EOPNOTSUPP)),
            SIOCATMARK => answer_int(data, state.inbox.is_at_mark().into()),
            _ => return ready(Err(Errno::ENOTTY)),
        }
        ready(Ok(0))
    }

    fn control<'a>(&'a self, caller: &'a Caller, control: Control) -> BoxFuture<'a, Result<ControlAnswer>> {
        Box::pin(self.control_patiently(caller, control, Patience::Waits))
    }

    fn may_move(&self) -> bool {
        self.can_move()
    }

    fn delivered(&self) -> BoxFuture<'_, ()> {
        let there = self.state.lock().link().map(|(there, _)| there);
        match (there, self.names.others()) {
            (Some(there), Ok(others)) => Box::pin(async move {
                // A dead kernel has nothing that could be read.
                let _ = others.flush(there.kernel).await;
            }),
            _ => ready(()),
        }
    }

    fn waiting(&self) -> WaitPlace {
        WaitPlace::Socket(SocketType {
            family: self.inet.as_ref().map_or(AF_UNIX, |inet| inet.family()),
            kind: self.kind as u16,
        })
    }

    fn timeouts(&self) -> Option<[u64; 2]> {
        Some(self.timeouts())
    }

    fn control_with<'a>(
        &'a self,
        caller: &'a Caller,
        control: Control,
        patience: Patience,
    ) -> BoxFuture<'a, Result<ControlAnswer>> {
        Box::pin(self.control_patiently(caller, control, patience))
    }

    fn gained(&self) -> Option<&Gained> {
        Some(&self.gained)
    }

    /// unix_poll.
    fn poll(&self) -> Events {
        let (mut events, peer, from, write_shut) = {
            let state = self.state.lock();
            let mut events = Events::empty();
            let waiting = matches!(&state.role, Role::Listening { waiting, .. } if !waiting.is_empty());
            if self.is_readable(&state) || waiting || state.read_shut {
                events |= Events::IN | Events::RDNORM;
            }
            if state.has_urgent() {
                events |= Events::PRI;
            }
            if state.read_shut {
                events |= Events::RDHUP;
            }
            if self.inet.as_ref().is_some_and(|inet| inet.is_trying()) {
                return events;
            }
            let unconnected = self.kind.connects() && matches!(state.role, Role::Alone | Role::Linking(_));
            if state.read_shut && state.write_shut || unconnected {
                events |= Events::HUP;
            }
            if state.error.is_some() || state.errors.is_some() {
                events |= Events::ERR;
                events.set(Events::PRI, state.settings.wishes.contains(Wishes::ERRORS_PRI));
            }
            let peer = match &state.role {
                Role::Connected(peer) => peer.upgrade(),
                Role::Listening { .. } => return events,
                Role::Linked(link) if !link.closed && !link.has_room() && !state.write_shut => return events,
                Role::Far(..) if state.full => return events,
                _ => None,
            };
            let from = Sending {
                kind: self.kind,
                internet: self.inet.is_some(),
                account: state.payer.as_ref().map(|(_, account)| account.clone()),
                buffer: state.settings.send_buffer(),
            };
            (events, peer, from, state.write_shut)
        };
        let room = peer.is_none_or(|peer| transfer::has_room(&peer.state.lock(), &from));
        if room || write_shut {
            events |= Events::OUT | Events::WRNORM;
            if self.inet.is_none() || !self.kind.connects() {
                events |= Events::WRBAND;
            }
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
