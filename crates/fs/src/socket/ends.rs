//! Connections whose ends are on two kernels: how they begin, what an end sends and receives, how they end. How much may be sent is link.rs's.
//!
//! ```text
//! K1, which connects                          K2, which listens
//! connect: a link -- UnixAttach ------------> makes the other end, into the backlog
//!                 <- its number -------------
//! write ------------ SocketSend ------------> into its inbox       (also before accept)
//! shutdown, close -- SocketChanged ---------> end of file, or reset
//! ```
//!
//! What comes for an end that is closed is answered with a reset, as is all that a dead kernel's ends had to do with.

use super::{
    circles,
    flight::Parcel,
    inbox::Incoming,
    link::{cost, Link},
    transfer::limit_between,
    FarSocket, NetNamespace, Role, Socket, SocketKind, State,
};
use crate::{
    control::{InternetEnds, SocketMessage, UnixCredentials},
    waiting::Patience,
    Caller,
};
use alloc::{
    sync::{Arc, Weak},
    vec::Vec,
};
use machine::{
    account::{Account, Charge, OverLimit, Resource},
    errno::Result,
    Errno, KernelId, Shield,
};
use messages::fs::{SocketAttached, SocketChange, SocketCredit};

/// Who connects, as the listener's kernel knows it.
pub struct Connecting {
    /// SOCK_*.
    pub kind: u32,
    /// The connecting end.
    pub end: FarSocket,
    /// `sun_path` of the client.
    pub name: Vec<u8>,
    /// Instead, of a connection by TCP.
    pub ends: Option<InternetEnds>,
}

/// A try to send.
enum Tried {
    /// So many bytes.
    Sent(usize),
    /// So much room would be needed, at the other end of this link.
    Short { there: FarSocket, room: u64 },
    /// The other end has come to this kernel.
    Near,
    /// The other end is closed.
    Alone,
}

/// What the other end is told of a close; `hard`: a reset.
pub(super) fn end(internet: bool, hard: bool) -> SocketChange {
    match hard {
        true => SocketChange::reset(),
        // By TCP the other side may still send.
        false => SocketChange { read_shut: true, write_shut: !internet, closed: true, ..SocketChange::default() },
    }
}

impl State {
    /// The link to the other end, if that is on another kernel and made.
    pub(super) fn link(&mut self) -> Option<(FarSocket, &mut Link)> {
        match &mut self.role {
            Role::Linked(link) => Some((link.there?, link)),
            _ => None,
        }
    }

    /// Also while it is being made: the other end may send before connect(2) knows of it.
    fn link_begun(&mut self) -> Option<&mut Link> {
        match &mut self.role {
            Role::Linked(link) | Role::Linking(link) => Some(link),
            _ => None,
        }
    }
}

/// A connect that has not come to an end: if it never does, the socket is as it was.
struct Begun<'a>(&'a Socket);

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        if matches!(state.role, Role::Linking(_)) {
            let role = core::mem::take(&mut state.role);
            drop(state);
            let Role::Linking(link) = role else { return };
            if let (Some(there), Ok(others)) = (link.there, self.0.names.others()) {
                // It was accepted meanwhile on a kernel that hears of this from nobody else.
                others.tell(there, SocketChange::reset());
            }
        }
    }
}

impl Socket {
    /// Asks the listener's kernel for the other end. EAGAIN: the backlog is full.
    pub(super) async fn attach(&self, there: FarSocket, caller: &Caller) -> Result<()> {
        let others = self.names.others()?;
        let payer = self.names.account(super::credentials_of(caller));
        let mut link = Link::new(&self.names, &self.this, payer)?;
        link.connects = true;
        let end = link.number();
        let name = {
            let mut state = self.state.lock();
            match state.role {
                Role::Alone => state.role = Role::Linking(link),
                Role::Linking(_) => return Err(Errno::EALREADY),
                Role::Listening { .. } => return Err(Errno::EINVAL),
                _ => return Err(Errno::EISCONN),
            }
            state.name.clone()
        };
        let begun = Begun(self);
        let ends = self.inet.as_ref().and_then(|inet| inet.connection());
        let connecting = Connecting { kind: self.kind as u32, end: self.names.here(end), name, ends };
        let SocketAttached { end, name, credentials, groups } = others.attach(there, connecting, caller).await?;
        let there = {
            let mut state = self.state.lock();
            (state.peer_credentials, state.peer_groups) = (credentials, groups.into());
            let Role::Linking(mut link) = core::mem::take(&mut state.role) else { return Err(Errno::ECONNABORTED) };
            // It may have been accepted on another kernel before this was known.
            let there = *link.there.get_or_insert(FarSocket { kernel: there.kernel, serial: end });
            link.name = name;
            state.role = Role::Linked(link);
            there
        };
        drop(begun);
        self.changes.wake_all();
        self.check_alive(there.kernel);
        Ok(())
    }

    /// At the listener: the end that will be accepted, for a client of another kernel.
    pub(crate) fn attach_from(self: &Arc<Self>, client: Connecting, caller: &Caller) -> Result<SocketAttached> {
        if self.kind as u32 != client.kind {
            return Err(Errno::EPROTOTYPE);
        }
        let payer = self.names.account(super::credentials_of(caller));
        let (mut number, mut made) = (0, Weak::new());
        let role = |server: &Arc<Socket>| {
            made = server.this.clone();
            let mut link = Link::new(&self.names, &server.this, payer)?;
            (link.there, link.name) = (Some(client.end), client.name);
            number = link.number();
            Ok(Role::Linked(link))
        };
        let (credentials, groups) = self.admit(client.ends, caller, role)?;
        if let Some(server) = made.upgrade() {
            server.check_alive(client.end.kernel);
        }
        let name = self.state.lock().name.clone();
        Ok(SocketAttached { end: number, name, credentials, groups: groups.to_vec() })
    }

    /// To the end of a connection on another kernel. None: it is on this one by now.
    pub(super) async fn send_linked(
        &self,
        message: &mut SocketMessage,
        sender: UnixCredentials,
        shield: &Shield,
        patience: Patience,
    ) -> Result<Option<usize>> {
        let others = self.names.others()?;
        for file in &mut message.files {
            // To make one ready is not to wait.
            let _held = shield.hold();
            *file = others.settle(file).await?;
        }
        let mut asked = false;
        loop {
            let (there, room) = match self.try_send_linked(message, sender, asked)? {
                Tried::Sent(count) => return Ok(Some(count)),
                Tried::Near => return Ok(None),
                Tried::Alone if self.inet.is_some() => return self.send_into_nowhere(message.bytes.len()).map(Some),
                Tried::Alone => return Err(Errno::EPIPE),
                Tried::Short { .. } if asked && patience != Patience::Waits => return Err(patience.answer()),
                Tried::Short { .. } if asked => {
                    self.changes.wait_until(|| self.may_send().then_some(())).await;
                    asked = false;
                    continue;
                }
                Tried::Short { there, room } => (there, room),
            };
            // To ask is not to wait.
            let _held = shield.hold();
            match others.want(there, room, self.send_buffer()).await {
                Ok((credit, _)) => self.has_room_for(credit),
                Err(Errno::ENOBUFS) => return Err(Errno::ENOBUFS),
                // It has gone, or moved. What tells of that this answer may have overtaken, or its kernel has died.
                Err(_) => {
                    self.changes.wait_until(|| self.has_left(there).then_some(())).await;
                    continue;
                }
            }
            asked = true;
        }
    }

    /// The other end is known to have gone from there.
    fn has_left(&self, there: FarSocket) -> bool {
        self.state.lock().link().is_none_or(|(now, link)| link.closed || now != there)
    }

    /// There may be room, or an end of the wait.
    fn may_send(&self) -> bool {
        let mut state = self.state.lock();
        let gone = state.write_shut || state.error.is_some() && self.inet.is_some();
        gone || state.link().is_none_or(|(_, link)| link.closed || link.has_room())
    }

    /// `asked`: the window is as large as it will be now, and a stream takes what fits.
    fn try_send_linked(&self, message: &mut SocketMessage, sender: UnixCredentials, asked: bool) -> Result<Tried> {
        let mut state = self.state.lock();
        let state = &mut *state;
        if let Some(error) = state.error.take_if(|_| self.inet.is_some()) {
            return Err(error);
        }
        if state.write_shut {
            return Err(Errno::EPIPE);
        }
        let wanted = message.bytes.len();
        match self.kind {
            SocketKind::Stream if wanted == 0 => return Ok(Tried::Sent(0)),
            SocketKind::Stream => {}
            _ if wanted > state.settings.send_buffer() - 32 => return Err(Errno::EMSGSIZE),
            _ => {}
        }
        let payer = match message.files.is_empty() {
            true => None,
            false => self.payer(state, sender),
        };
        let name = state.name.clone();
        if matches!(state.role, Role::Connected(_)) {
            return Ok(Tried::Near);
        }
        let (there, link) = state.link().ok_or(Errno::EPIPE)?;
        if link.closed {
            return Ok(Tried::Alone);
        }
        let room = cost(wanted);
        let count = match (link.room() >= room, self.kind) {
            (true, _) => wanted,
            (false, SocketKind::Stream) if asked && link.room() > cost(0) => (link.room() - cost(0)) as usize,
            (false, kind) => {
                link.want(if kind == SocketKind::Stream { cost(1) } else { room });
                if asked {
                    self.flags.owned.no_room();
                }
                return Ok(Tried::Short { there, room });
            }
        };
        let charge = match payer {
            Some(payer) => charge_descriptors(&payer, message)?,
            None => Charge::FREE,
        };
        let bytes = match count == wanted {
            true => core::mem::take(&mut message.bytes),
            false => message.bytes[..count].to_vec(),
        };
        // The caller has the files, too: nothing is closed under the lock. The last byte of all is the urgent one.
        let extra = if count == wanted { message.extra.take() } else { None };
        let part = SocketMessage {
            bytes,
            files: message.files.clone(),
            credentials: Some(sender),
            name,
            extra,
            ..SocketMessage::default()
        };
        let (number, credit) = (link.number(), link.credit());
        // Under the lock, so that what is counted first also leaves first.
        let frames = self.names.others()?.transmit(there, number, credit, part).map_err(|_| Errno::EPIPE)?;
        link.sent(count, frames, charge);
        Ok(Tried::Sent(count))
    }

    /// A message from the other end, which always has room. Error: this end is none any more.
    pub(crate) fn arrive(&self, message: SocketMessage, credit: SocketCredit) -> Result<()> {
        let urgent = message.is_urgent();
        let SocketMessage { bytes, files, credentials, name, .. } = message;
        let brings_files = !files.is_empty();
        let files = match brings_files {
            true => Parcel::new(self, files, Charge::FREE),
            false => Parcel::empty(),
        };
        let due = {
            let mut state = self.state.lock();
            let link = state.link_begun().ok_or(Errno::ECONNRESET)?;
            link.hear(credit);
            link.arrived(bytes.len());
            // Also if this end was shut meanwhile: it was sent before that was known.
            let (sender, charge) = (credentials.unwrap_or_default(), Charge::FREE);
            let incoming = Incoming { bytes, files, sender, name, charge, urgent, datagram: None };
            match self.take_in(&mut state, incoming) {
                0 => None,
                passed => Self::received(&mut state, passed, false),
            }
        };
        self.credit(due);
        self.changes.wake_all();
        if brings_files {
            circles::sent(&self.names);
        }
        Ok(())
    }

    /// A program has received part of what the other end has sent; the credit that it may be due. `at_once`: there were descriptors in it.
    pub(super) fn received(state: &mut State, part: usize, at_once: bool) -> Option<(FarSocket, SocketCredit)> {
        let (there, link) = state.link()?;
        Some((there, link.take(part as u64, at_once)?))
    }

    pub(super) fn credit(&self, credit: Option<(FarSocket, SocketCredit)>) {
        if let (Some((there, credit)), Ok(others)) = (credit, self.names.others()) {
            others.credit(there, credit);
        }
    }

    /// A program at the other end has received something.
    pub(crate) fn credited(&self, credit: SocketCredit) {
        if let Some(link) = self.state.lock().link_begun() {
            link.mover = None;
        }
        self.has_room_for(credit);
    }

    /// This end may send more. Who waits is not woken for what was known: a stand-in would ask once more, and hear it again.
    fn has_room_for(&self, credit: SocketCredit) {
        if self.state.lock().link_begun().is_some_and(|link| link.hear(credit)) {
            self.changes.wake_all();
        }
    }

    fn send_buffer(&self) -> u64 {
        self.state.lock().settings.send_buffer() as u64
    }

    /// The other end, which has such a SO_SNDBUF, wants to send so much; and how many bytes nobody has received yet.
    pub(crate) fn wanted(&self, room: u64, buffer: u64) -> Result<(SocketCredit, u64)> {
        let (answer, awaited) = {
            let mut state = self.state.lock();
            let unread = state.inbox.bytes() as u64;
            let limit = limit_between(buffer as usize, &state, self.inet.is_some());
            let link = state.link_begun().ok_or(Errno::ECONNRESET)?;
            let credit = link.make_room(room, self.kind == SocketKind::Stream, limit)?;
            ((credit, unread), link.is_awaited())
        };
        if awaited {
            self.is_awaited();
        }
        Ok(answer)
    }

    /// The other end was shut, closed or named.
    pub(crate) fn changed_there(&self, change: SocketChange) {
        {
            let mut state = self.state.lock();
            let Some(link) = state.link_begun() else { return };
            link.hears();
            let after_end = link.closed;
            link.closed |= change.closed;
            if let Some(name) = change.name {
                link.name = name;
            }
            state.read_shut |= change.read_shut;
            state.write_shut |= change.write_shut;
            match (&self.inet, change.error) {
                // What was sent after it had closed in peace (tcp_reset in Linux).
                (Some(inet), Some(_)) if after_end && inet.has_ended() => state.error = Some(Errno::EPIPE),
                (_, Some(error)) => state.error = Some(error),
                (Some(inet), None) if change.closed => inet.has_been_ended(),
                _ => {}
            }
        }
        self.changes.wake_all();
    }

    /// Tells the other end, if it is on another kernel.
    pub(super) fn tell(&self, change: SocketChange) {
        let mut state = self.state.lock();
        if let (Some((there, link)), Ok(others)) = (state.link().filter(|(_, link)| !link.closed), self.names.others())
        {
            // Under the lock: the other end may move.
            link.told();
            others.tell(there, change);
        }
    }

    /// How many bytes the other end has not received, which its kernel knows.
    pub(super) async fn unread_there(&self) -> u64 {
        let there = self.state.lock().link().map(|(there, _)| there);
        let (Some(there), Ok(others)) = (there, self.names.others()) else { return 0 };
        let Ok((credit, unread)) = others.want(there, 0, self.send_buffer()).await else { return 0 };
        self.has_room_for(credit);
        unread
    }

    /// If that kernel died before it was known that the other end is there, nobody has told this one.
    pub(super) fn check_alive(&self, kernel: KernelId) {
        if self.names.others().is_ok_and(|others| !others.present().contains(kernel)) {
            self.kernel_died(kernel);
        }
    }

    /// A kernel has died, and with it the other end, if that was there.
    fn kernel_died(&self, kernel: KernelId) {
        let gone = |there: FarSocket, link: &Link| there.kernel == kernel || link.mover == Some(kernel);
        if self.state.lock().link().is_some_and(|(there, link)| gone(there, link) && !link.closed) {
            // It lives if only the kernel that it came from has died, and would wait for ever for what was lost there.
            self.tell(SocketChange::reset());
            self.changed_there(SocketChange::reset());
        }
    }
}

/// ETOOMANYREFS.
fn charge_descriptors(payer: &Arc<Account>, message: &SocketMessage) -> Result<Charge> {
    payer
        .charge_within(Resource::DescriptorsInFlight, message.files.len(), message.most_in_flight as usize)
        .map_err(|OverLimit| Errno::ETOOMANYREFS)
}

impl NetNamespace {
    /// The ends of connections whose other end was there are reset.
    pub(super) fn links_died(&self, kernel: KernelId) {
        for socket in self.sockets() {
            socket.kernel_died(kernel);
        }
    }
}
