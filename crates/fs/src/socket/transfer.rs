//! Sending and receiving.
//!
//! What waits in an inbox is charged to its sender, whose user may have so much in all sockets of a kernel. A sender for whom there is no more
//! waits as one whose inbox is full does, if something is in that inbox: who reads it wakes the sender, and at last it is empty. Into an
//! empty one nobody may ever look, so then there is ENOBUFS.

use super::{
    circles, credentials_of,
    flight::Parcel,
    inbox::{self, Incoming, Reading, Taken},
    names::Found,
    options::Wishes,
    Role, Socket, SocketKind, State,
};
use crate::{
    control::{SocketAddress, SocketMessage, UnixCredentials},
    waiting::Patience,
    Caller,
};
use alloc::{sync::Arc, vec::Vec};
use machine::{
    account::{Account, Charge, OverLimit, Resource},
    errno::Result,
    Errno, PAGE_SIZE,
};

pub const MSG_PEEK: u32 = 0x2;
pub const MSG_TRUNC: u32 = 0x20;
pub const MSG_DONTWAIT: u32 = 0x40;
/// Programs can't say this (it is MSG_CMSG_COMPAT): the receive has begun, and ends before an urgent byte.
pub const MSG_GOES_ON: u32 = 0x8000_0000;
/// The same of a send that sends nothing: it says what would be wrong whatever the bytes are.
pub const MSG_PROBES: u32 = 0x8000_0000;
pub const MSG_OOB: u32 = 0x1;
pub const MSG_ERRQUEUE: u32 = 0x2000;
/// [`Socket::try_send`]: the other end is on its way to another kernel, and the socket about to hear of it.
pub(super) const MOVED: Errno = Errno(541);

impl Socket {
    /// Whom a message goes to.
    pub(super) async fn target(&self, place: Option<&SocketAddress>) -> Result<Found> {
        let near = match place {
            Some(_) if self.kind.connects() => {
                let connected = matches!(self.state.lock().role, Role::Connected(_) | Role::Linked(_));
                return Err(if connected { Errno::EISCONN } else { Errno::EOPNOTSUPP });
            }
            Some(place) => match self.names.find(&self.keyed(place.clone())?).await? {
                Found::Here(target) if target.kind != self.kind => return Err(Errno::EPROTOTYPE),
                found => return Ok(found),
            },
            None if self.kind == SocketKind::Datagram => {
                if let Role::Far(there, _) = &self.state.lock().role {
                    return Ok(Found::There(*there));
                }
                self.peer()?.ok_or(Errno::ECONNREFUSED)?
            }
            None => return Err(Errno::ENOTCONN),
        };
        Ok(Found::Here(near))
    }

    /// Bytes taken. EAGAIN: no room, and something to be read before.
    pub(super) fn try_send(
        &self,
        target: &Socket,
        message: &mut SocketMessage,
        sender: UnixCredentials,
    ) -> Result<usize> {
        let (name, account, limit) = {
            let mut state = self.state.lock();
            if let Some(error) = state.error.take_if(|_| self.inet.is_some()) {
                return Err(error);
            }
            if state.write_shut {
                return Err(Errno::EPIPE);
            }
            (state.name.clone(), self.payer(&mut state, sender), state.settings.send_buffer())
        };
        let count = match self.put(target, message, sender, name, account.as_ref(), limit) {
            Err(Errno::EAGAIN) => {
                target.is_awaited();
                self.flags.owned.no_room();
                return Err(Errno::EAGAIN);
            }
            count => count?,
        };
        if count == 0 && self.kind == SocketKind::Stream {
            return Ok(0);
        }
        target.changes.wake_all();
        if !message.files.is_empty() {
            circles::sent(&self.names);
        }
        Ok(count)
    }

    /// Of AF_UNIX, but streams: what is wrong before the bytes and the destination are looked at, as Linux has it (unix_dgram_sendmsg,
    /// unix_seqpacket_sendmsg). `named`: the destination is.
    pub(super) fn check_sending(&self, message: &SocketMessage, named: bool, flags: u32) -> Result<()> {
        if self.kind == SocketKind::Stream {
            return Ok(());
        }
        self.check_connected()?;
        let mut state = self.state.lock();
        if let Some(error) = state.error.take_if(|_| self.kind == SocketKind::SeqPacket) {
            return Err(error);
        }
        if flags & MSG_OOB != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        if !named && matches!(state.role, Role::Alone) && flags & MSG_PROBES == 0 {
            return Err(Errno::ENOTCONN);
        }
        if message.bytes.len() > state.settings.send_buffer() - 32 {
            return Err(Errno::EMSGSIZE);
        }
        match state.write_shut {
            true => Err(Errno::EPIPE),
            false => Ok(()),
        }
    }

    /// ENOTCONN: a socket of packets without a connection, of which nothing else is looked at.
    pub(super) fn check_connected(&self) -> Result<()> {
        let connected = matches!(self.state.lock().role, Role::Connected(_) | Role::Linked(_));
        match self.kind == SocketKind::SeqPacket && !connected {
            true => Err(Errno::ENOTCONN),
            false => Ok(()),
        }
    }

    /// EPERM: a datagram socket that is connected to another one than this takes nothing from it (unix_may_send in Linux).
    pub(super) fn check_may_send(&self, there: &State) -> Result<()> {
        let other = match &there.role {
            Role::Connected(peer) => !peer.ptr_eq(&self.this),
            Role::Far(..) => true,
            _ => false,
        };
        match self.kind == SocketKind::Datagram && other {
            true => Err(Errno::EPERM),
            false => Ok(()),
        }
    }

    /// Into the inbox of `target`.
    fn put(
        &self,
        target: &Socket,
        message: &mut SocketMessage,
        sender: UnixCredentials,
        name: Vec<u8>,
        account: Option<&Arc<Account>>,
        buffer: usize,
    ) -> Result<usize> {
        // Before the inbox is locked, as flight.rs says.
        let files = target.parcel(account, message)?;
        let mut there = target.state.lock();
        if matches!(there.role, Role::Moved) {
            return Err(MOVED);
        }
        self.check_may_send(&there)?;
        if there.read_shut && self.inet.is_none() {
            return Err(Errno::EPIPE);
        }
        let limit = limit_between(buffer, &there, self.inet.is_some());
        let wanted = message.bytes.len();
        let mut count = match self.kind {
            SocketKind::Stream if wanted == 0 => return Ok(0),
            SocketKind::Stream => wanted.min(there.inbox.room(limit)),
            _ if wanted > limit - 32 => return Err(Errno::EMSGSIZE),
            _ => wanted,
        };
        let fits = if self.kind == SocketKind::Stream {
            count > 0
        } else {
            there.inbox.takes(count, limit, there.has_one_sender())
        };
        if !fits {
            return Err(Errno::EAGAIN);
        }
        let charge = match pay(account, count, &files) {
            Err(_) if self.kind == SocketKind::Stream => {
                count = count.min(affordable(account, &files));
                // As by Linux, less than a page is not sent in parts.
                if count < wanted.min(PAGE_SIZE) {
                    Err(Errno::ENOBUFS)
                } else {
                    pay(account, count, &files)
                }
            }
            paid => paid,
        };
        let charge = match charge {
            Err(_) if !there.inbox.is_empty() => return Err(Errno::EAGAIN),
            charge => charge?,
        };
        let bytes = match count == wanted {
            true => core::mem::take(&mut message.bytes),
            false => message.bytes[..count].to_vec(),
        };
        let urgent = count == wanted && message.is_urgent();
        target.take_in(&mut there, Incoming { bytes, files, sender, name, charge, urgent, datagram: None });
        Ok(count)
    }

    /// A sender has found no room: who waits here for more (SO_RCVLOWAT) takes what there is.
    pub(super) fn is_awaited(&self) {
        let waits = {
            let mut state = self.state.lock();
            state.settings.least(usize::MAX) > 1 && !core::mem::replace(&mut state.awaited, true)
        };
        if waits {
            self.changes.wake_all();
        }
    }

    /// The account of `sender`, who sends through this socket.
    pub(super) fn payer(&self, state: &mut State, sender: UnixCredentials) -> Option<Arc<Account>> {
        match &state.payer {
            Some((known, account)) if *known == sender => Some(account.clone()),
            _ => {
                let account = self.names.account(sender)?;
                state.payer = Some((sender, account.clone()));
                Some(account)
            }
        }
    }

    /// The files of a message to this socket, paid for. ETOOMANYREFS. Not under the lock of an inbox.
    pub(super) fn parcel(&self, account: Option<&Arc<Account>>, message: &SocketMessage) -> Result<Parcel> {
        let charge = match (message.files.len(), account) {
            (0, _) => return Ok(Parcel::empty()),
            (_, None) => Charge::FREE,
            (descriptors, Some(account)) => account
                .charge_within(Resource::DescriptorsInFlight, descriptors, message.most_in_flight as usize)
                .map_err(|OverLimit| Errno::ETOOMANYREFS)?,
        };
        Ok(Parcel::new(self, message.files.clone(), charge))
    }

    /// MSG_OOB. EOPNOTSUPP: nothing of this message can be urgent.
    pub(super) fn mark_urgent(&self, message: &mut SocketMessage, flags: u32) -> Result<()> {
        if flags & MSG_OOB == 0 {
            return Ok(());
        }
        if self.kind != SocketKind::Stream || self.inet.is_none() && message.bytes.is_empty() {
            return Err(Errno::EOPNOTSUPP);
        }
        message.extra.get_or_insert_default().urgent = true;
        Ok(())
    }

    /// Checks what a sender claims to be (man 7 unix, SCM_CREDENTIALS).
    pub(super) fn sender(caller: &Caller, claimed: Option<UnixCredentials>) -> Result<UnixCredentials> {
        let real = credentials_of(caller);
        let Some(claimed) = claimed else { return Ok(real) };
        let who = &caller.credentials;
        let own = claimed.pid == real.pid
            && [who.uid, who.euid, who.suid].contains(&claimed.uid)
            && [who.gid, who.egid, who.sgid].contains(&claimed.gid);
        if own || who.is_privileged() {
            Ok(claimed)
        } else {
            Err(Errno::EPERM)
        }
    }

    /// `patience`: who waits does so until there is as much as SO_RCVLOWAT says.
    pub(super) fn try_receive(&self, limit: usize, flags: u32, patience: Patience) -> Result<SocketMessage> {
        let peek = flags & MSG_PEEK != 0;
        let (mut message, files, lost, peer, credit, brings_files) = {
            let mut state = self.state.lock();
            if let Some(told) = self.cannot_receive(&mut state) {
                return told;
            }
            // Who waits looks several times, most often in vain.
            let is_stream = self.kind == SocketKind::Stream;
            if is_stream && state.inbox.has_nothing() && !state.read_shut && state.error.is_none() {
                return Err(Errno::EAGAIN);
            }
            if flags & MSG_GOES_ON != 0 && state.inbox.is_at_mark() {
                return Ok(SocketMessage::default());
            }
            if patience != Patience::Refuses && self.waits_for_more(&state, limit, peek) {
                return Err(Errno::EAGAIN);
            }
            let by_sender = state.wants_credentials || state.settings.wishes.contains(Wishes::PIDFD);
            let (before, inline) = (state.inbox.cost(), state.settings.inline());
            let taken = match self.kind {
                SocketKind::Stream => state.inbox.take_stream(limit, Reading { peek, by_sender, inline }),
                _ => state.inbox.take_datagram(limit, peek),
            };
            let (received, lost) = (before - state.inbox.cost(), state.inbox.take_lost());
            state.awaited &= received == 0;
            let (message, files) = match taken {
                Some(Taken { mut message, files, along }) => {
                    self.accompany(&state, &mut message, along.as_deref());
                    if !state.wants_credentials {
                        message.credentials = None;
                    }
                    (Ok(message), files)
                }
                None => (self.nothing_received(&mut state, patience), Parcel::empty()),
            };
            let brings_files = !files.is_empty();
            let peer = if received > 0 || message.is_ok() { state.peer() } else { None };
            (message, files, lost, peer, Self::received(&mut state, received, brings_files), brings_files)
        };
        self.credit(credit);
        // Outside the lock: they may be sockets.
        drop(lost);
        if let (Ok(message), false) = (&mut message, files.is_empty()) {
            // What is only looked at is in the message already.
            message.files = files.open();
        }
        if !peek {
            // There is room again.
            if let Some(peer) = peer {
                peer.changes.wake_all();
            }
            if !self.kind.connects() && message.is_ok() {
                self.changes.wake_all();
            }
            if !self.kind.connects() || brings_files {
                self.room.wake_all();
            }
        }
        message
    }

    /// What there is to say before the inbox is looked at.
    fn cannot_receive(&self, state: &mut State) -> Option<Result<SocketMessage>> {
        if self.kind.connects() && !matches!(state.role, Role::Connected(_) | Role::Linked(_)) {
            return Some(match (&self.inet, self.kind) {
                (None, SocketKind::Stream) => Err(Errno::EINVAL),
                // Of a connect that failed.
                (Some(_), _) if state.error.is_some() => Err(state.error.take().unwrap_or(Errno::EIO)),
                (Some(_), _) if state.read_shut => Ok(SocketMessage::default()),
                (Some(inet), _) if inet.is_trying() => Err(Errno::EAGAIN),
                _ => Err(Errno::ENOTCONN),
            });
        }
        match (&self.inet, self.kind.connects()) {
            (Some(_), false) => state.error.take().map(Err),
            _ => None,
        }
    }

    /// The inbox has nothing to give.
    fn nothing_received(&self, state: &mut State, patience: Patience) -> Result<SocketMessage> {
        let ended = self.inet.as_ref().is_some_and(|inet| inet.has_ended());
        if let (false, Some(error)) = (ended, state.error) {
            state.error = None;
            return Err(error);
        }
        // Datagrams have no end, but who would wait for one is told that none will come.
        let has_end = self.kind.connects() || patience != Patience::Refuses;
        match state.read_shut && has_end {
            true => Ok(self.end_message(state)),
            false => Err(Errno::EAGAIN),
        }
    }

    /// SO_RCVLOWAT: a stream has less than that, and more may come before.
    pub(super) fn waits_for_more(&self, state: &State, limit: usize, peek: bool) -> bool {
        let least = state.settings.least(limit);
        least > 1
            && self.kind == SocketKind::Stream
            && state.inbox.bytes() < least
            // What is urgent or brings files ends a read.
            && !(peek && self.inet.is_none())
            && state.inbox.urgent().is_none()
            && !state.inbox.brings_files()
            && !(state.awaited || state.read_shut || state.error.is_some())
    }
}

/// For `bytes` bytes in an inbox, and `files`. ENOBUFS.
pub(super) fn pay(account: Option<&Arc<Account>>, bytes: usize, files: &Parcel) -> Result<Charge> {
    let Some(account) = account else { return Ok(Charge::FREE) };
    account.charge(Resource::Memory, overhead(files) + bytes).map_err(|OverLimit| Errno::ENOBUFS)
}

/// A datagram that waits for room.
#[derive(Clone, Copy, Debug, Default)]
pub struct Datagram {
    pub bytes: usize,
    /// Pays for it.
    pub sender: UnixCredentials,
}

impl Datagram {
    /// Also with as many files as a message may bring (SCM_MAX_FD).
    pub(super) fn is_affordable(&self, account: Option<&Arc<Account>>) -> bool {
        affordable(account, &Parcel::empty()) >= self.bytes + 253 * inbox::FILE_BYTES
    }
}

fn overhead(files: &Parcel) -> usize {
    inbox::MESSAGE_BYTES + files.len() * inbox::FILE_BYTES
}

/// For how many bytes [`pay`] can pay.
fn affordable(account: Option<&Arc<Account>>, files: &Parcel) -> usize {
    account.map_or(usize::MAX, |account| account.room(Resource::Memory).saturating_sub(overhead(files)))
}

/// Who sends, as far as it decides how much may be on its way.
pub(super) struct Sending {
    pub kind: SocketKind,
    pub internet: bool,
    pub account: Option<Arc<Account>>,
    /// SO_SNDBUF.
    pub buffer: usize,
}

impl Sending {
    fn limit(&self, there: &State) -> usize {
        limit_between(self.buffer, there, self.internet)
    }
}

/// How much may be on its way to `there` from a socket with such a SO_SNDBUF. By TCP half of it waits on either side.
pub(super) fn limit_between(buffer: usize, there: &State, internet: bool) -> usize {
    match internet {
        true => (buffer + there.settings.receive_buffer()) / 2,
        false => buffer,
    }
}

/// Is there room for something that `from` would send to `there`, and this account pay for? A stream takes some, a packet goes whole: like
/// Linux's, a socket of packets has room if three quarters are free. Into an empty inbox something can always be tried.
pub(super) fn has_room(there: &State, from: &Sending) -> bool {
    let (inbox, limit) = (&there.inbox, from.limit(there));
    let (fits, least) = match from.kind {
        SocketKind::Stream => (inbox.room(limit) > 0, PAGE_SIZE),
        _ => (inbox.takes(1, limit, there.has_one_sender()) && inbox.bytes() * 4 <= limit, limit),
    };
    inbox.is_empty() || fits && affordable(from.account.as_ref(), &Parcel::empty()) >= least
}
