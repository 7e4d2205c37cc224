//! Sending and receiving.
//!
//! What waits in an inbox is charged to its sender, whose user may have so much in all sockets of a kernel. A sender for whom there is no more
//! waits as one whose inbox is full does, if something is in that inbox: who reads it wakes the sender, and at last it is empty. Into an
//! empty one nobody may ever look, so then there is ENOBUFS.

use super::{
    circles, credentials_of,
    flight::Parcel,
    inbox::{self, Inbox},
    names::Found,
    Role, Socket, SocketKind, State,
};
use crate::{
    control::{SocketAddress, SocketMessage, UnixCredentials},
    Caller,
};
use alloc::sync::Arc;
use machine::{
    account::{Account, Charge, OverLimit, Resource},
    errno::Result,
    Errno, PAGE_SIZE,
};

pub const MSG_PEEK: u32 = 0x2;
pub const MSG_TRUNC: u32 = 0x20;
pub const MSG_DONTWAIT: u32 = 0x40;
const MSG_OOB: u32 = 0x1;
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
        let (name, account) = {
            let mut state = self.state.lock();
            if let Some(error) = state.error.take_if(|_| self.inet.is_some()) {
                return Err(error);
            }
            if state.write_shut {
                return Err(Errno::EPIPE);
            }
            (state.name.clone(), self.payer(&mut state, sender))
        };
        // Before the inbox is locked, as flight.rs says.
        let files = target.parcel(account.as_ref(), message)?;
        let count = {
            let mut there = target.state.lock();
            if matches!(there.role, Role::Moved) {
                return Err(MOVED);
            }
            if there.read_shut && self.inet.is_none() {
                return Err(Errno::EPIPE);
            }
            let wanted = message.bytes.len();
            let mut count = match self.kind {
                SocketKind::Stream if wanted == 0 => return Ok(0),
                SocketKind::Stream => wanted.min(there.inbox.room()),
                _ if wanted > inbox::LIMIT - 32 => return Err(Errno::EMSGSIZE),
                _ => wanted,
            };
            let fits = if self.kind == SocketKind::Stream { count > 0 } else { there.inbox.takes(count) };
            if !fits {
                self.flags.owned.no_room();
                return Err(Errno::EAGAIN);
            }
            let charge = match pay(account.as_ref(), count, &files) {
                Err(_) if self.kind == SocketKind::Stream => {
                    count = count.min(affordable(account.as_ref(), &files));
                    // As by Linux, less than a page is not sent in parts.
                    if count < wanted.min(PAGE_SIZE) {
                        Err(Errno::ENOBUFS)
                    } else {
                        pay(account.as_ref(), count, &files)
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
            there.inbox.push(bytes, files, sender, name, charge);
            count
        };
        target.changes.wake_all();
        if !message.files.is_empty() {
            circles::sent(&self.names);
        }
        Ok(count)
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

    /// Checks what a sender claims to be (man 7 unix, SCM_CREDENTIALS).
    pub(super) fn sender(caller: &Caller, claimed: Option<UnixCredentials>, flags: u32) -> Result<UnixCredentials> {
        if flags & MSG_OOB != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
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

    pub(super) fn try_receive(&self, limit: usize, flags: u32) -> Result<SocketMessage> {
        let peek = flags & MSG_PEEK != 0;
        let (mut message, files, peer, credit) = {
            let mut state = self.state.lock();
            if self.kind.connects() && !matches!(state.role, Role::Connected(_) | Role::Linked(_)) {
                return match (&self.inet, self.kind) {
                    (None, SocketKind::Stream) => Err(Errno::EINVAL),
                    // Of a connect that failed.
                    (Some(_), _) if state.error.is_some() => Err(state.error.take().unwrap_or(Errno::EIO)),
                    (Some(_), _) if state.read_shut => Ok(SocketMessage::default()),
                    (Some(inet), _) if inet.is_trying() => Err(Errno::EAGAIN),
                    _ => Err(Errno::ENOTCONN),
                };
            }
            if let (Some(_), false, Some(error)) = (&self.inet, self.kind.connects(), state.error) {
                state.error = None;
                return Err(error);
            }
            let (by_sender, before) = (state.wants_credentials, state.inbox.cost());
            let taken = match self.kind {
                SocketKind::Stream => state.inbox.take_stream(limit, peek, by_sender),
                _ => state.inbox.take_datagram(limit, peek),
            };
            let Some((mut message, files)) = taken else {
                let ended = self.inet.as_ref().is_some_and(|inet| inet.has_ended());
                if let (false, Some(error)) = (ended, state.error) {
                    state.error = None;
                    return Err(error);
                }
                return if state.read_shut { Ok(SocketMessage::default()) } else { Err(Errno::EAGAIN) };
            };
            let brings_files = !files.is_empty();
            if !state.wants_credentials {
                message.credentials = None;
            }
            let peer = match &state.role {
                Role::Connected(peer) => peer.upgrade(),
                _ => None,
            };
            let received = before - state.inbox.cost();
            (message, files, peer, Self::received(&mut state, received, brings_files))
        };
        self.credit(credit);
        // What is only looked at is in the message already.
        if !files.is_empty() {
            message.files = files.open();
        }
        if !peek {
            // There is room again.
            if let Some(peer) = peer {
                peer.changes.wake_all();
            }
            if !self.kind.connects() {
                self.changes.wake_all();
                self.room.wake_all();
            }
        }
        Ok(message)
    }
}

/// For `bytes` bytes in an inbox, and `files`. ENOBUFS.
pub(super) fn pay(account: Option<&Arc<Account>>, bytes: usize, files: &Parcel) -> Result<Charge> {
    let Some(account) = account else { return Ok(Charge::FREE) };
    account.charge(Resource::Memory, overhead(files) + bytes).map_err(|OverLimit| Errno::ENOBUFS)
}

fn overhead(files: &Parcel) -> usize {
    inbox::MESSAGE_BYTES + files.len() * inbox::FILE_BYTES
}

/// For how many bytes [`pay`] can pay.
fn affordable(account: Option<&Arc<Account>>, files: &Parcel) -> usize {
    account.map_or(usize::MAX, |account| account.room(Resource::Memory).saturating_sub(overhead(files)))
}

/// Is there room in `inbox` for something that this account would pay for? A stream takes some, a packet goes whole: like Linux's, a socket
/// of packets has room if three quarters are free. Into an empty one something can always be tried.
pub(super) fn has_room(inbox: &Inbox, kind: SocketKind, account: Option<&Arc<Account>>) -> bool {
    let (fits, least) = match kind {
        SocketKind::Stream => (inbox.room() > 0, PAGE_SIZE),
        _ => (inbox.takes(1) && inbox.bytes() * 4 <= inbox::LIMIT, inbox::LIMIT),
    };
    inbox.is_empty() || fits && affordable(account, &Parcel::empty()) >= least
}
