//! Sending and receiving.

use super::{credentials_of, flight::Parcel, inbox, names::Found, Role, Socket, SocketKind, State};
use crate::{
    control::{SocketMessage, UnixCredentials, UnixPlace},
    Caller,
};
use alloc::sync::Arc;
use machine::{
    account::{Account, Charge, OverLimit, Resource},
    errno::Result,
    Errno,
};

pub const MSG_PEEK: u32 = 0x2;
pub const MSG_TRUNC: u32 = 0x20;
pub const MSG_DONTWAIT: u32 = 0x40;
const MSG_OOB: u32 = 0x1;

impl Socket {
    /// Whom a message goes to.
    pub(super) async fn target(&self, place: Option<&UnixPlace>) -> Result<Found> {
        let near = match place {
            Some(_) if self.kind.connects() => {
                return Err(if self.peer().is_ok() { Errno::EISCONN } else { Errno::EOPNOTSUPP })
            }
            Some(place) => match self.names.find(&self.keyed(place.clone())).await? {
                Found::Here(target) if target.kind != self.kind => return Err(Errno::EPROTOTYPE),
                found => return Ok(found),
            },
            None if self.kind == SocketKind::Datagram => {
                if let Role::Far(there, _) = &self.state.lock().role {
                    return Ok(Found::There(*there));
                }
                self.peer()?.ok_or(Errno::ECONNREFUSED)?
            }
            None => self.peer()?.ok_or(Errno::EPIPE)?,
        };
        Ok(Found::Here(near))
    }

    /// Bytes taken. EAGAIN: no room.
    pub(super) fn try_send(&self, target: &Socket, message: &SocketMessage, sender: UnixCredentials) -> Result<usize> {
        let (name, account) = {
            let mut state = self.state.lock();
            if state.write_shut {
                return Err(Errno::EPIPE);
            }
            (state.name.clone(), self.payer(&mut state, sender))
        };
        // Before the inbox is locked, as flight.rs says.
        let files = self.parcel(account.as_ref(), message)?;
        let count = {
            let mut there = target.state.lock();
            if there.read_shut {
                return Err(Errno::EPIPE);
            }
            let wanted = message.bytes.len();
            let count = match self.kind {
                SocketKind::Stream if wanted == 0 => return Ok(0),
                SocketKind::Stream => wanted.min(there.inbox.room()),
                _ if wanted > inbox::LIMIT - 32 => return Err(Errno::EMSGSIZE),
                _ => wanted,
            };
            let fits = if self.kind == SocketKind::Stream { count > 0 } else { there.inbox.takes(count) };
            if !fits {
                return Err(Errno::EAGAIN);
            }
            let charge = pay(account.as_ref(), count, &files)?;
            there.inbox.push(message.bytes[..count].to_vec(), files, sender, name, charge);
            count
        };
        target.changes.wake_all();
        if !message.files.is_empty() {
            self.names.flight.sent();
        }
        Ok(count)
    }

    /// The account of `sender`, who sends through this socket.
    fn payer(&self, state: &mut State, sender: UnixCredentials) -> Option<Arc<Account>> {
        match &state.payer {
            Some((known, account)) if *known == sender => Some(account.clone()),
            _ => {
                let account = self.names.account(sender)?;
                state.payer = Some((sender, account.clone()));
                Some(account)
            }
        }
    }

    /// The files of `message`, paid for. ETOOMANYREFS. Not under the lock of an inbox.
    pub(super) fn parcel(&self, account: Option<&Arc<Account>>, message: &SocketMessage) -> Result<Parcel> {
        let charge = match (message.files.len(), account) {
            (0, _) => return Ok(Parcel::empty()),
            (_, None) => Charge::FREE,
            (descriptors, Some(account)) => account
                .charge_within(Resource::DescriptorsInFlight, descriptors, message.most_in_flight as usize)
                .map_err(|OverLimit| Errno::ETOOMANYREFS)?,
        };
        Ok(Parcel::new(&self.names.flight, message.files.clone(), charge))
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
        let (mut message, files, peer) = {
            let mut state = self.state.lock();
            if self.kind.connects() && !matches!(state.role, Role::Connected(_)) {
                return Err(if self.kind == SocketKind::Stream { Errno::EINVAL } else { Errno::ENOTCONN });
            }
            let by_sender = state.wants_credentials;
            let taken = match self.kind {
                SocketKind::Stream => state.inbox.take_stream(limit, peek, by_sender),
                _ => state.inbox.take_datagram(limit, peek),
            };
            let Some((mut message, files)) = taken else {
                if let Some(error) = state.error.take() {
                    return Err(error);
                }
                return if state.read_shut { Ok(SocketMessage::default()) } else { Err(Errno::EAGAIN) };
            };
            if !state.wants_credentials {
                message.credentials = None;
            }
            let peer = match &state.role {
                Role::Connected(peer) => peer.upgrade(),
                _ => None,
            };
            (message, files, peer)
        };
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
    let size = inbox::MESSAGE_BYTES + bytes + files.len() * inbox::FILE_BYTES;
    account.charge(Resource::Memory, size).map_err(|OverLimit| Errno::ENOBUFS)
}
