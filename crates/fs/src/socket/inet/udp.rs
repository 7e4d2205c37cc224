//! UDP. A datagram that finds no room is lost, and so is one for a port that nobody has: a connected sender hears of that by its next call.

use super::{
    address::{
        encode, family_of, is_v4, parse, reachable, scope_of, source_for, Scope, AF_INET, AF_INET6, AF_UNSPEC,
        BROADCAST,
    },
    Internet, Protocol,
};
use crate::{
    control::{DatagramHeader, InternetAddress, MessageExtra, SocketAddress, SocketMessage, UnixCredentials},
    socket::{
        ancillary::SendOptions,
        flight::Parcel,
        inbox::{self, Inbox, Incoming},
        names::Found,
        options::V6ONLY,
        transfer::pay,
        Socket,
    },
    Caller,
};
use alloc::{boxed::Box, vec::Vec};
use machine::{errno::Result, Errno, Shield};

/// Longest datagram: 65,535 bytes with its headers.
const LONGEST_4: usize = 65_507;
const LONGEST_6: usize = 65_487;

impl Socket {
    pub(super) async fn connect_datagram(&self, inet: &Internet, bytes: &[u8], caller: &Caller) -> Result<()> {
        if family_of(bytes)? == AF_UNSPEC {
            inet.forget_peer();
            return Ok(());
        }
        let of_six = inet.six && (family_of(bytes)? != AF_INET || self.setting(V6ONLY) != 0);
        let to = self.destination(parse(of_six, bytes)?)?;
        let _held = caller.shield.hold();
        let port = self.ensure_port(inet, caller.credentials.euid).await?;
        {
            let mut ends = inet.ends.lock();
            if scope_of(ends.local.ip) == Scope::Any {
                ends.local.ip = source_for(to.ip);
            }
            ends.peer = Some(to);
        }
        // Others may have the port too.
        port.change(|claim| claim.peer = Some(to)).await
    }

    /// Where a datagram goes. EACCES: to all, without SO_BROADCAST.
    fn destination(&self, to: InternetAddress) -> Result<InternetAddress> {
        match scope_of(to.ip) {
            Scope::Broadcast if to.ip != BROADCAST && self.setting(crate::socket::options::BROADCAST) == 0 => {
                Err(Errno::EACCES)
            }
            _ => Ok(InternetAddress { ip: reachable(to.ip)?, ..to }),
        }
    }

    pub(in crate::socket) async fn send_datagram(
        &self,
        inet: &Internet,
        place: Option<&[u8]>,
        message: &mut SocketMessage,
        sender: UnixCredentials,
        shield: &Shield,
    ) -> Result<usize> {
        let count = message.bytes.len();
        match inet.protocol {
            Protocol::Icmp | Protocol::Icmp6 => Self::check_echo(count)?,
            _ if count > if inet.six { LONGEST_6 } else { LONGEST_4 } => return Err(Errno::EMSGSIZE),
            _ => {}
        }
        let peer = inet.ends.lock().peer;
        let to = self.where_to(inet, place)?;
        let six = !is_v4(to.ip);
        let options = SendOptions::parse(message.control(), inet.six, six)?;
        self.check_datagram()?;
        let (ttl, tos) = {
            let (ttl, tos) = self.state.lock().settings.ttl_and_tos(six);
            (options.ttl.unwrap_or(ttl), options.tos.unwrap_or(tos))
        };
        let header = DatagramHeader { to: to.ip, port: to.port, ttl, tos };
        let _held = shield.hold();
        self.ensure_port(inet, sender.uid).await?;
        let local = inet.ends.lock().local;
        let ip = match (options.from, scope_of(local.ip)) {
            (Some(ip), _) => ip,
            (None, Scope::Any) => source_for(to.ip),
            (None, _) => local.ip,
        };
        let from = InternetAddress { ip, ..local };
        if is_v4(from.ip) != is_v4(to.ip) {
            return Err(Errno::ENETUNREACH);
        }
        if inet.protocol.is_echo() {
            return self.send_echo(inet, to, DatagramHeader { to: ip, ..header }, message, sender);
        }
        let delivered = match self.names.find_port(inet.protocol as u8, to, from).await {
            Ok(Found::Here(target)) => target.take_datagram(from, header, &mut message.bytes, sender),
            Ok(Found::There(there)) => {
                let name = encode(true, from);
                let extra = Some(Box::new(MessageExtra { datagram: Some(header), ..MessageExtra::default() }));
                let sent = SocketMessage { name, credentials: Some(sender), extra, ..core::mem::take(message) };
                let delivered = self.names.others()?.deliver(there, self.kind as u32, &sent, shield).await;
                message.bytes = sent.bytes;
                delivered.map(drop)
            }
            Err(error) => Err(error),
        };
        match delivered {
            Err(Errno::ECONNREFUSED) => {
                self.is_refused(inet, to, peer == Some(to), message, sender);
                Ok(count)
            }
            // No room there: it is lost.
            Err(Errno::EAGAIN) => Ok(count),
            done => done.map(|()| count),
        }
    }

    /// Where a send to `place` goes, if one is named (udp_sendmsg, udpv6_sendmsg).
    fn where_to(&self, inet: &Internet, place: Option<&[u8]>) -> Result<InternetAddress> {
        let peer = || inet.ends.lock().peer.ok_or(Errno::EDESTADDRREQ);
        let Some(bytes) = place else { return peer() };
        let (family, echo) = (family_of(bytes)?, inet.protocol.is_echo());
        let to = match (inet.six, family) {
            (true, AF_UNSPEC) if !echo => return peer(),
            (true, AF_INET) if !echo && self.setting(V6ONLY) != 0 => return Err(Errno::ENETUNREACH),
            (true, AF_INET) if !echo => parse(false, bytes)?,
            (true, AF_INET6) | (_, AF_INET) => parse(inet.six, bytes)?,
            (false, AF_UNSPEC) if !echo && bytes.len() >= 16 => {
                let family = AF_INET.to_ne_bytes();
                parse(false, &[&family[..], &bytes[2..16]].concat())?
            }
            (true, _) if !echo => return Err(Errno::EINVAL),
            _ => parse(inet.six, bytes)?,
        };
        if to.port == 0 && !echo {
            return Err(Errno::EINVAL);
        }
        self.destination(to)
    }

    /// What has happened to the socket, whatever it is to send.
    fn check_datagram(&self) -> Result<()> {
        let mut state = self.state.lock();
        match (state.error.take(), state.write_shut) {
            (Some(error), _) => Err(error),
            (None, true) => Err(Errno::EPIPE),
            (None, false) => Ok(()),
        }
    }

    /// What is wrong with a send before the bytes are looked at ([`MSG_PROBES`](crate::socket::MSG_PROBES)).
    pub(super) fn probe_datagram(
        &self,
        inet: &Internet,
        place: Option<SocketAddress>,
        message: &SocketMessage,
    ) -> Result<()> {
        // An echo request begins with bytes of its own.
        if inet.protocol.is_echo() {
            return Ok(());
        }
        let to = match &place {
            Some(SocketAddress::Unix(_)) => return Err(Errno::EINVAL),
            Some(SocketAddress::Other(bytes)) => self.where_to(inet, Some(bytes))?,
            None => self.where_to(inet, None)?,
        };
        SendOptions::parse(message.control(), inet.six, !is_v4(to.ip))?;
        self.check_datagram()
    }

    /// At the receiver. EAGAIN: no room.
    pub(in crate::socket) fn take_datagram(
        &self,
        from: InternetAddress,
        header: DatagramHeader,
        bytes: &mut Vec<u8>,
        sender: UnixCredentials,
    ) -> Result<()> {
        let inet = self.inet.as_ref().ok_or(Errno::ECONNREFUSED)?;
        if inet.ends.lock().peer.is_some_and(|peer| peer != from) {
            return Err(Errno::ECONNREFUSED);
        }
        self.put_datagram(inet, from, header, bytes, sender)
    }

    pub(super) fn put_datagram(
        &self,
        inet: &Internet,
        from: InternetAddress,
        header: DatagramHeader,
        bytes: &mut Vec<u8>,
        sender: UnixCredentials,
    ) -> Result<()> {
        let account = self.names.account(sender);
        let name = encode(inet.six, from);
        {
            let mut state = self.state.lock();
            if is_full(&state.inbox, state.settings.receive_buffer()) {
                return Err(Errno::EAGAIN);
            }
            let charge = pay(account.as_ref(), bytes.len(), &Parcel::empty()).map_err(|_| Errno::EAGAIN)?;
            let (bytes, datagram) = (core::mem::take(bytes), Some(header));
            self.take_in(&mut state, Incoming { bytes, sender, name, charge, datagram, ..Incoming::default() });
        }
        self.changes.wake_all();
        Ok(())
    }
}

/// A short one counts as what Linux keeps for it.
pub(super) fn is_full(inbox: &Inbox, limit: usize) -> bool {
    inbox.bytes() + inbox.len() * inbox::DATAGRAM_BYTES > limit
}
